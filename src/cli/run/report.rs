//! The JSON report of a run (CLI-12): opened before anything is reserved, written for refusals too.
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use ctrlrun::drive::run::Ran;
use ctrlrun::exec::Exit;
use ctrlrun::plan::attempt::Outcome;
use ctrlrun::plan::effect::Refusal;
use ctrlrun::plan::key::Key;
use ctrlrun::store::Shown;
use serde_json::{Map, Value, json};

use super::End;
use super::request::Asked;
use super::status::Status;
use crate::cli::Global;
use crate::cli::access::{self, Opened};
use crate::cli::error::{CliError, Kind};
use crate::cli::hooks::Hook;
use crate::cli::render::object::Object;
use crate::cli::render::text::{clean, safe_json};
use crate::cli::terminal::say;

/// The report that is being made, if one was asked for.
#[derive(Debug)]
pub struct Report {
    file: Option<File>,
    began: Instant,
    /// As it was given, until it is read.
    key: String,
    object: Option<Value>,
    ran: bool,
    replayed: bool,
    refused: Option<&'static str>,
    exit: Option<Exit>,
    hook: Option<Hook>,
}

impl Report {
    /// Opens the file, so that a report that cannot be written stops the run before it begins.
    ///
    /// # Errors
    /// 66 if it cannot be opened; 64 if it is a part of the store.
    pub fn open(path: Option<&Path>, key: &str, global: &Global) -> Result<Self, CliError> {
        Ok(Self {
            file: path.map(|path| open(path, global)).transpose()?,
            began: Instant::now(),
            key: key.to_owned(),
            object: None,
            ran: false,
            replayed: false,
            refused: None,
            exit: None,
            hook: None,
        })
    }

    /// The effect it is about.
    pub fn about(&mut self, key: &Key) {
        key.as_str().clone_into(&mut self.key);
    }

    /// A refusal before any attempt.
    pub fn refused_before(&mut self, error: &CliError) {
        let usage = matches!(error.kind(), Kind::Usage | Kind::NotFound);
        self.refused = Some(if usage { "usage" } else { "store" });
    }

    /// What came of the attempt.
    pub fn ran(&mut self, ran: &Ran, replayed: bool, refused_committed: bool, global: &Global) {
        self.hook = Hook::after(ran, global);
        self.ran = ran.report.ran;
        self.replayed = replayed;
        self.refused = if refused_committed { Some("committed") } else { refused(ran) };
        self.exit = ran.child.as_ref().filter(|_| ran.report.ran).map(|child| child.exit);
    }

    /// Reads the record for the report, where somebody will read it, and hands `end` on.
    #[must_use]
    pub fn closing(&mut self, opened: &Opened, asked: &Asked, end: End) -> End {
        if (self.file.is_some() || self.hook.is_some())
            && let Ok(Some(shown)) = opened.look(&asked.key)
        {
            self.object = Some(object(&shown, opened));
        }
        end
    }

    /// Writes it. What was run is run: a report that cannot be written is only told. Returns the hook
    /// that is to be run, with the report for it.
    pub fn write(mut self, end: &End, global: &Global) -> Option<(Hook, String)> {
        let (file, hook) = (self.file.take(), self.hook.take());
        if file.is_none() && hook.is_none() {
            return None;
        }
        let text = self.text(end);
        if let Some(file) = file {
            Self::keep(file, &text, global);
        }
        hook.map(|hook| (hook, text))
    }

    fn keep(mut file: File, text: &str, global: &Global) {
        if let Err(error) = file.write_all(text.as_bytes()) {
            say(&format!("warning: the report could not be written: {error}"));
        } else if global.verbose > 1 {
            say("the report is written");
        }
    }

    fn text(&self, end: &End) -> String {
        let mut fields = match &self.object {
            Some(Value::Object(fields)) => fields.clone(),
            _ => Map::from_iter([("key".to_owned(), json!(self.key))]),
        };
        let status = match end.status {
            Status::Code(code) => i32::from(code),
            Status::Signal(number) => 128 + number,
        };
        // A time-out's 124, or an outcome's 76, may be the command's number by chance as well.
        let of_command = match (self.exit, end.status) {
            (Some(Exit::Code(code)), Status::Code(status)) => code == i32::from(status),
            (Some(Exit::Signal { number, .. }), Status::Signal(status)) => number == status,
            (Some(_) | None, Status::Code(_) | Status::Signal(_)) => false,
        };
        fields.insert("ran".to_owned(), json!(self.ran));
        fields.insert("replayed".to_owned(), json!(self.replayed));
        fields.insert("refused".to_owned(), json!(self.refused));
        fields.insert("exit_status".to_owned(), json!(status));
        fields.insert(
            "exit_status_of".to_owned(),
            json!(if of_command { "command" } else { "ctrlrun" }),
        );
        let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        fields.insert("duration_ms".to_owned(), json!(elapsed));
        if let Some(told) = &end.told {
            fields.insert("message".to_owned(), json!(told.message()));
            fields.entry("next").or_insert_with(|| json!(told.commands().collect::<Vec<_>>()));
        }
        format!("{}\n", safe_json(&Value::Object(fields)))
    }
}

/// Opens the file and empties it, but never before it is known that it is no part of the store: a
/// log that was emptied would take its reservations with it.
///
/// # Errors
/// 66 if it cannot be opened; 64 if it is a part of the store.
pub fn open(path: &Path, global: &Global) -> Result<File, CliError> {
    let shown = path.to_string_lossy();
    let unwritable = |error: &io::Error| {
        let words = format!("nothing was run: --report {}: cannot be written", clean(&shown));
        CliError::new(Kind::NotFound, words).because(error)
    };
    let was_there = path.exists();
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(path);
    let file = file.map_err(|error| unwritable(&error))?;
    let found = file.metadata().map_err(|error| unwritable(&error))?;
    let is_part = access::parts_of_store(global).iter().any(|part| same_file(part, &found));
    if is_part || (found.is_file() && looks_like_a_store(path)) {
        if !was_there {
            let _ = std::fs::remove_file(path);
        }
        let words = format!("nothing was run: --report {}: that is a store", clean(&shown));
        return Err(CliError::new(Kind::Usage, words));
    }
    if found.is_file() {
        file.set_len(0).map_err(|error| unwritable(&error))?;
    }
    Ok(file)
}

/// Whether a file begins as a database or its log does: with a configuration that cannot be read it
/// is not known which store it would be.
fn looks_like_a_store(path: &Path) -> bool {
    let mut first = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    let is_log = first.starts_with(b"\x37\x7f\x06\x82") || first.starts_with(b"\x37\x7f\x06\x83");
    read.is_ok() && (first.starts_with(b"SQLite format 3\0") || is_log)
}

fn same_file(path: &Path, found: &Metadata) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|other| (other.dev(), other.ino()) == (found.dev(), found.ino()))
}

/// A record as `show` has it.
pub fn object(shown: &Shown, opened: &Opened) -> Value {
    serde_json::to_value(Object::of(shown, &opened.place)).unwrap_or(Value::Null)
}

/// Why nothing was run, in the report's words.
pub fn refused(ran: &Ran) -> Option<&'static str> {
    match &ran.report.result {
        Outcome::Settled { .. } | Outcome::CommittedAlready => None,
        Outcome::NotRecorded { .. } if ran.report.ran => None,
        Outcome::CouldNot(_) | Outcome::Unknown(_) | Outcome::NotRecorded { .. } => Some("store"),
        Outcome::Refused(refusal) => Some(match refusal {
            Refusal::Expectation(_) => "revision_conflict",
            Refusal::Mismatch => "mismatch",
            Refusal::InProgress | Refusal::TooLate | Refusal::NotOurs | Refusal::Live => {
                "in_progress"
            }
            Refusal::Ambiguous => "ambiguous",
            Refusal::MaxAttempts => "max_attempts",
            Refusal::SettledOtherwise => "committed",
            Refusal::NoSuchEffect => "usage",
        }),
    }
}
