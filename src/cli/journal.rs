//! The journal, as a person meets it: opened before a run, looked at by doctor (AFT-3, AFT-6, AFT-7).
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ctrlrun::drive::journal::Journal;
use ctrlrun::drive::remember::{Failed, Forgotten, Tally, forgotten};
use ctrlrun::plan::effect::State;
use ctrlrun::plan::journal::{Judged, What, Word, taken_for};
use ctrlrun::store::Store;
use ctrlrun::store::check::Check;
use nix::unistd::{AccessFlags, access};
use serde_json::{Value, json};

use super::Global;
use super::error::{CliError, Kind};
use super::render::next;
use super::render::shell::{line, quote, store_flag};
use super::render::text::{clean, count, number, size};
use super::which::Place;

/// The journal of the configuration, before anything of `what` is reserved.
///
/// # Errors
/// 69: it cannot be written to (AFT-3).
pub fn open(global: &Global, what: &str) -> Result<Option<Journal>, CliError> {
    let Some(path) = &global.settings.journal else {
        return Ok(None);
    };
    Journal::open(path).map(Some).map_err(|error| unwritable(path, what, &error))
}

/// Whether the journal could be written to, as a dry run says it: nothing is made.
///
/// # Errors
/// As [`open`].
pub fn foresee(global: &Global, what: &str) -> Result<(), CliError> {
    let Some(path) = &global.settings.journal else {
        return Ok(());
    };
    let may = |path: &Path, how| access(path, how).map_err(std::io::Error::from);
    let foreseen = match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(std::io::Error::other("it is no regular file")),
        Ok(_) => may(path, AccessFlags::W_OK | AccessFlags::R_OK),
        Err(_) => match path.parent() {
            Some(folder) => may(folder, AccessFlags::W_OK | AccessFlags::X_OK),
            None => Ok(()),
        },
    };
    foreseen.map_err(|error| unwritable(path, what, &error))
}

fn unwritable(path: &Path, what: &str, error: &std::io::Error) -> CliError {
    let words = format!(
        "{}: refused, nothing was run: the journal {} cannot be written",
        clean(what),
        clean(&path.to_string_lossy())
    );
    let folder = path.parent().filter(|folder| !folder.is_dir());
    let told = CliError::new(Kind::Store, words).because(error);
    match folder {
        // Not made by us: what should be mounted there may be away.
        Some(folder) => told.tell("if it is to be there", format!("mkdir -p {}", quote(folder))),
        None => told.tell("without one", "take [journal] out of the configuration"),
    }
}

/// The configured journal, looked at from outside.
#[must_use]
pub fn check(global: &Global) -> Check {
    let Some(path) = &global.settings.journal else {
        return Check::fine("journal", "none");
    };
    let shown = path.to_string_lossy().into_owned();
    let wrong = |what: &str, mend: &str| {
        Check::wrong("journal", format!("{shown}: {what}"), format!("nothing is run: {mend}"))
    };
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            wrong("it is no regular file", "name another one in [journal] file")
        }
        Ok(_) if access(path, AccessFlags::W_OK | AccessFlags::R_OK).is_err() => {
            wrong("this user may not write to it", "chown it, or run as its owner")
        }
        Ok(found) if found.mode() & 0o022 != 0 => Check::wrong(
            "journal",
            format!("{shown}: others may write to it"),
            format!("what it says can be anybody's: chmod 600 {}", quote(path)),
        ),
        Ok(found) => Check::fine("journal", format!("{shown}, {}", size(found.len()))),
        Err(_) if path.parent().is_some_and(Path::is_dir) => {
            Check::fine("journal", format!("{shown}, not there yet"))
        }
        Err(_) => wrong("its folder is not there", "make the folder, or mount what holds it"),
    }
}

/// Holds `files`, else the configured one, against the store; each thing that is forgotten goes to
/// `each` as an object, and as lines for a person. Returns what was read, as one more check.
pub fn compare(
    files: &[PathBuf],
    store: &dyn Store,
    place: &Place,
    global: &Global,
    each: &mut dyn FnMut(&Found) -> bool,
) -> Check {
    let files: Vec<PathBuf> = match files {
        [] => global.settings.journal.iter().cloned().collect(),
        files => files.to_vec(),
    };
    if files.is_empty() {
        return Check::wrong(
            "journal against store",
            "there is no journal",
            "name one: ctrlrun doctor --journal FILE, or [journal] file in the configuration",
        );
    }
    let mut found = 0_u64;
    let tally = forgotten(&files, store, global.store_timeout, &mut |one| {
        found += 1;
        each(&Found::of(&one, place))
    });
    match tally {
        Ok(tally) => told(&tally, found),
        Err(Failed::Enough) => Check::wrong(
            "journal against store",
            "not read to the end",
            "the answer was not wanted any more: ask again for all of it",
        ),
        Err(failed) => Check::wrong(
            "journal against store",
            failed.to_string(),
            "what was found until then stands; mend that, and ask again",
        ),
    }
}

fn told(tally: &Tally, found: u64) -> Check {
    let mut parts = vec![count(tally.attempts, "attempt")];
    let mut also = |of: u64, what: &str| {
        if of > 0 {
            parts.push(format!("{} {what}", number(of)));
        }
    };
    also(tally.pruned, "pruned since");
    also(tally.elsewhere, "of other stores");
    also(tally.torn, "torn, whose attempts were not started");
    also(tally.unreadables, "unreadable");
    also(found, "FORGOTTEN");
    let about = "journal against store";
    let said = parts.join(", ");
    if found > 0 {
        return Check::wrong(
            about,
            said,
            "the store does not know what was done: was it restored from a backup, or made anew? \
             Decide about each of those above before anything runs",
        );
    }
    if tally.unreadables > 0 {
        let places = tally.unreadable.iter();
        let places = places.map(|(file, line)| format!("{}:{line}", file.to_string_lossy()));
        let places = places.collect::<Vec<_>>().join(", ");
        let mend =
            format!("what these lines said is not known; look, then rename the file: {places}");
        return Check::wrong(about, said, mend);
    }
    Check::fine(about, if found == 0 { format!("{said}; nothing is forgotten") } else { said })
}

/// Something that is forgotten, ready to be told.
#[derive(Debug)]
pub struct Found {
    /// For programs.
    pub object: Value,
    /// For a person: what, and what to do.
    pub lines: Vec<String>,
}

impl Found {
    fn of(one: &Forgotten, place: &Place) -> Self {
        let line = &one.line;
        let key = line.key.as_str();
        let word = match &line.what {
            What::Began(_) => None,
            What::Settled(settled) => Some(settled),
        };
        let is = match one.judged {
            Judged::GrantedAgain => "the store has granted its number again",
            Judged::OutcomeLost => "the store no longer knows its outcome",
            Judged::Known | Judged::Pruned | Judged::Lost | Judged::AskHistory => {
                match one.record {
                    Some(_) => "the store knows only earlier attempts",
                    None => "the store does not know it",
                }
            }
        };
        let came = match word.map(|settled| settled.word) {
            None => "began, and has no outcome (may have happened)",
            Some(Word::Committed) => "COMMITTED (happened)",
            Some(Word::Failed) => "FAILED (did not happen)",
            Some(Word::Ambiguous) => "AMBIGUOUS (may have happened)",
        };
        let detail = word.map_or(String::new(), |settled| format!(", {}", clean(&settled.detail)));
        let mut lines = vec![format!(
            "{}  attempt {} of {}: {came}{detail}; {is}",
            clean(key),
            line.attempt,
            clean(&line.at)
        )];
        if let What::Began(began) = &line.what {
            lines.push(format!(
                "  it began on {}, pid {}; look for its idempotency key at the remote: {}",
                clean(&began.host),
                began.pid,
                began.idempotency_key
            ));
        }
        let next = mend(one, word.map(|settled| settled.word), place);
        lines.extend(next.iter().map(|(why, typed)| format!("  {why}: {typed}")));
        let object = json!({
            "key": key,
            "attempt": line.attempt,
            "at": line.at,
            "store_id": line.store_id,
            "reservation_id": line.reservation_id,
            "said": line.what,
            "forgotten": match one.judged {
                Judged::GrantedAgain => "granted_again",
                Judged::OutcomeLost => "outcome",
                Judged::Known | Judged::Pruned | Judged::Lost | Judged::AskHistory => "attempt",
            },
            "state": one.record.as_ref().map(|record| record.state.name()),
            "revision": one.record.as_ref().map(|record| record.revision),
            "next": next.iter().map(|(_, typed)| typed).collect::<Vec<_>>(),
        });
        Self { object, lines }
    }
}

/// What to type, and when.
fn mend(one: &Forgotten, word: Option<Word>, place: &Place) -> Vec<(&'static str, String)> {
    let key = one.line.key.as_str();
    let Some(record) = &one.record else {
        // There is nothing to resolve: the key is taken again, by a command that does nothing.
        let happened = ("if it happened, so that it never runs again", hold(one, "true", place));
        let unsure = ("until you know, so that nothing runs", hold(one, "false", place));
        return match word {
            Some(Word::Committed) => vec![happened],
            None | Some(Word::Ambiguous | Word::Failed) => vec![unsure, happened],
        };
    };
    let live = !record.is_stuck(one.now) && record.lease_expires_at().is_some();
    let look = ("look", line("history", key, "", place));
    if one.judged == Judged::GrantedAgain {
        return vec![("it may have come about twice", line("history", key, "", place))];
    }
    match record.state {
        _ if live => vec![("an attempt runs now: look when it has ended", look.1)],
        State::Committed { .. } => vec![("it may have come about twice", look.1)],
        State::Failed { .. } if word == Some(Word::Committed) || word.is_none() => {
            vec![("until you know, so that nothing runs", next::reopen(record, place).text), look]
        }
        State::Reserved { .. }
        | State::Executing { .. }
        | State::Ambiguous { .. }
        | State::Failed { .. } => {
            let mut next = vec![look];
            let [did, did_not] = next::decide(record, place);
            next.push(("if it happened", did.text));
            if word != Some(Word::Committed) {
                next.push(("if it did not", did_not.text));
            }
            next
        }
    }
}

/// A run that takes the key and does nothing, labelled so that this list knows it.
fn hold(one: &Forgotten, command: &str, place: &Place) -> String {
    format!(
        "ctrlrun run --key-as-is --key={} --attempt-id {}{} -- {command}",
        quote(one.line.key.as_str()),
        taken_for(&one.line),
        store_flag(place)
    )
}
