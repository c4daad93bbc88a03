//! One effect, by its key.
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ctrlrun::plan::key::Key;
use ctrlrun::store::{Captured, Shown};

use super::deciding::{Decided, Decision, OUTPUT_MAX, Told, by};
use super::{ResolveArgs, pick};
use crate::cli::access::{Opened, for_writing, place};
use crate::cli::error::{CliError, Deed, Exit, Kind};
use crate::cli::refusal::answered;
use crate::cli::render::next::look;
use crate::cli::render::object::Object;
use crate::cli::render::text::{clean, count};
use crate::cli::spooled::deliver_before_deciding;
use crate::cli::terminal::{self, a_person_is_there, say};
use crate::cli::{Global, existing_key, show};

impl ResolveArgs {
    fn decision(&self) -> Option<Decision> {
        // Clap has seen to it that at most one is set.
        if self.committed {
            Some(Decision::Committed)
        } else if self.not_executed {
            Some(Decision::NotExecuted)
        } else {
            self.reopen.then_some(Decision::Reopen)
        }
    }
}

/// Records the decision.
///
/// # Errors
/// 64, 66, 73, 75, 79; what the store could not do. Nothing was changed.
pub fn one(key: &str, args: &ResolveArgs, global: &Global) -> Result<Exit, CliError> {
    let text = key;
    let key = existing_key(text, Deed::Change)?;
    let Some(decision) = args.decision() else {
        return undecided(&key, args, global);
    };
    let reason = reason(args)?;
    let by = by(args.by.as_deref())?;
    if args.expect.is_none() && !can_ask(args) {
        return Err(unlooked(text, global));
    }
    let output = args.output.as_deref().map(stated).transpose()?;
    let opened = for_writing(global, Deed::Change)?;
    deliver_before_deciding(&opened, &key, global)?;
    let before = opened.find(&key)?;
    let looked_at = match args.expect {
        Some(revision) => revision,
        None => ask(&opened, global, &before, decision)?,
    };
    let decided = Decided { key, decision, by, reason, looked_at, output };
    let done = decided.perform(&opened, before.record.attempt);
    let answered = answered(done, &opened.place, Deed::Change)?;
    let told = Told { opened: &opened, decided: &decided, before: &before };
    let changed = matches!(answered.answer, ctrlrun::plan::effect::Answer::Resolved);
    say(&told.answer(&answered)?);
    if let Some(warning) = told.warning().filter(|_| changed) {
        say(&warning);
    }
    if global.json {
        print_json(&opened, &decided.key)?;
    }
    Ok(Exit::OK)
}

/// A key, and nothing of what is so: a person at a terminal is asked.
fn undecided(key: &Key, args: &ResolveArgs, global: &Global) -> Result<Exit, CliError> {
    if args.reason.is_none() && args.expect.is_none() && !global.json && pick::can_pick() {
        return pick::about(key, args, global);
    }
    let shown = clean(key.as_str());
    let message = format!("{shown}: what is so? Nothing was changed");
    let error = CliError::new(Kind::Usage, message)
        .tell("say it by", "--committed, --not-executed or --reopen");
    Err(match place(global) {
        Ok(place) => error.hint(look(key.as_str(), &place)),
        Err(_) => error,
    })
}

fn reason(args: &ResolveArgs) -> Result<String, CliError> {
    let given = args.reason.as_deref().map(str::trim);
    let what = match given {
        Some("") => "--reason is empty",
        None => "--reason is missing",
        Some(reason) => return Ok(reason.to_owned()),
    };
    Err(CliError::new(
        Kind::Usage,
        format!("{what}: say how you know (a ticket, a page you looked at); nothing was changed"),
    ))
}

/// Whether a person can be asked; not where the answer would be taken from the output's stream.
fn can_ask(args: &ResolveArgs) -> bool {
    args.output.as_deref() != Some(Path::new("-")) && a_person_is_there()
}

fn unlooked(key: &str, global: &Global) -> CliError {
    let shown = clean(key);
    let message = format!(
        "{shown}: --expect is missing: a decision is about the revision that was looked at; nothing was changed"
    );
    let error = CliError::new(Kind::Usage, message);
    match place(global) {
        Ok(place) => error.hint(look(key, &place)),
        Err(_) => error,
    }
}

/// Reads the bytes that are to become the output.
fn stated(from: &Path) -> Result<Captured, CliError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let most = OUTPUT_MAX + 1;
        if from == Path::new("-") {
            io::stdin().lock().take(most).read_to_end(&mut bytes)?;
        } else {
            File::open(from)?.take(most).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    let shown = from.to_string_lossy();
    let head = read().map_err(|error| {
        let message = format!("--output {}: cannot be read; nothing was changed", clean(&shown));
        CliError::new(Kind::NotFound, message).because(&error)
    })?;
    let bytes = head.len() as u64;
    if bytes > OUTPUT_MAX {
        return Err(CliError::new(
            Kind::Usage,
            format!(
                "--output {}: more than {}, which is the most that is kept; nothing was changed",
                clean(&shown),
                count(OUTPUT_MAX, "byte")
            ),
        ));
    }
    Ok(Captured { head, tail: Vec::new(), bytes, whole: true })
}

/// Shows the record and asks; returns the revision that was shown.
fn ask(
    opened: &Opened,
    global: &Global,
    before: &Shown,
    decision: Decision,
) -> Result<u64, CliError> {
    let text = show::text(opened, global, before, terminal::columns_of_stderr())?;
    let facts = text.split("\n\n").next().unwrap_or(&text);
    let what = match decision {
        Decision::Committed => "Record that it happened (COMMITTED; it will not run again)?",
        Decision::NotExecuted => "Record that it did not happen (FAILED; it may run again)?",
        Decision::Reopen => "Make it AMBIGUOUS again?",
    };
    terminal::prompt(&format!("{}\n\n{what} [y/N] ", facts.trim_end()));
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    let yes = matches!(line.trim(), "y" | "Y" | "yes");
    if read.is_ok() && yes {
        return Ok(before.record.revision);
    }
    let key = clean(before.record.key.as_str());
    Err(CliError::new(Kind::Usage, format!("{key}: not confirmed: nothing was changed")))
}

fn print_json(opened: &Opened, key: &Key) -> Result<(), CliError> {
    let shown = opened.find(key)?;
    let line = Object::of(&shown, &opened.place).line();
    let mut out = terminal::Answer::plain();
    out.put(|out| writeln!(out, "{line}"))?;
    out.end()
}
