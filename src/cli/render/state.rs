//! A state in words, and why it is so.
use anstyle::{AnsiColor, Style};
use ctrlrun::plan::effect::{Cause, CommittedBy, FailedBy, Record, State};
use ctrlrun::plan::time::Timestamp;

use super::text::{clean, span};

/// The state's name: `AMBIGUOUS`.
#[must_use]
pub fn name(state: State) -> &'static str {
    match state {
        State::Reserved { .. } => "RESERVED",
        State::Executing { .. } => "EXECUTING",
        State::Committed { .. } => "COMMITTED",
        State::Failed { .. } => "FAILED",
        State::Ambiguous { .. } => "AMBIGUOUS",
    }
}

/// What it means, in words (CLI-2).
#[must_use]
pub fn gloss(record: &Record, now: Timestamp) -> &'static str {
    match record.state {
        State::Committed { .. } => "happened",
        State::Failed { .. } => "did not happen",
        State::Ambiguous { .. } => "may have happened",
        // A late word about an earlier attempt stands above this one's never having begun.
        State::Reserved { .. } if record.is_lapsed(now) && !record.in_doubt => "never started",
        State::Reserved { .. } if record.is_lapsed(now) => "may have happened",
        State::Executing { .. } if record.is_lapsed(now) => "may have happened",
        State::Reserved { .. } => "about to start",
        State::Executing { .. } => "running",
    }
}

/// The name, and whether its lease has ended: `EXECUTING, lapsed`.
#[must_use]
pub fn name_at(record: &Record, now: Timestamp) -> String {
    let name = name(record.state);
    if record.is_lapsed(now) { format!("{name}, lapsed") } else { name.to_owned() }
}

/// `AMBIGUOUS (may have happened)`
#[must_use]
pub fn glossed(record: &Record, now: Timestamp) -> String {
    let (name, gloss) = (name_at(record, now), gloss(record, now));
    format!("{name} ({gloss})")
}

/// Its colour: what needs a person stands out.
#[must_use]
pub fn style(record: &Record, now: Timestamp) -> Style {
    let colour = match record.state {
        State::Ambiguous { .. } => AnsiColor::Red,
        State::Reserved { .. } | State::Executing { .. } if record.is_lapsed(now) => AnsiColor::Red,
        State::Reserved { .. } | State::Executing { .. } => AnsiColor::Cyan,
        State::Committed { .. } => AnsiColor::Green,
        State::Failed { .. } => AnsiColor::Yellow,
    };
    colour.on_default().bold()
}

/// Why it stands so, in one line of safe text.
#[must_use]
pub fn why(record: &Record, now: Timestamp) -> String {
    let ended = || {
        let detail = record.ending.as_ref().map(|ending| clean(&ending.detail));
        detail.map_or_else(|| "its end is not known".to_owned(), Into::into)
    };
    let decided = |verb: &str| match &record.resolution {
        Some(by) => format!("{verb} by {}: {}", clean(&by.by), clean(&by.reason)),
        None => verb.to_owned(),
    };
    match record.state {
        State::Reserved { .. } if record.is_lapsed(now) && record.in_doubt => {
            "lease ended before it was begun; a late word says that an earlier attempt may have happened".to_owned()
        }
        State::Reserved { .. } if record.is_lapsed(now) => {
            "lease ended before it was begun: nothing ever ran".to_owned()
        }
        State::Executing { .. } if record.is_lapsed(now) => {
            "lease ended, nobody has reported since".to_owned()
        }
        State::Reserved { lease_expires_at } => {
            format!("to begin within {}", span(lease_expires_at.since(now)))
        }
        State::Executing { lease_expires_at } => {
            format!("running; lease ends in {}", span(lease_expires_at.since(now)))
        }
        State::Committed { by: CommittedBy::OwnWord } => ended(),
        State::Committed { by: CommittedBy::Person | CommittedBy::Probe } => decided("resolved"),
        State::Failed { by: FailedBy::OwnWord | FailedBy::NeverStarted } => ended(),
        State::Failed { by: FailedBy::Person | FailedBy::Probe } => decided("resolved"),
        State::Ambiguous { cause, .. } => match cause {
            Cause::Lapsed => "lease ended, nobody had reported".to_owned(),
            Cause::Exit | Cause::Signal | Cause::Timeout | Cause::Contradiction => ended(),
            Cause::LateOutcome => "a word that came late says it may have happened".to_owned(),
            Cause::Reopened => decided("reopened"),
        },
    }
}
