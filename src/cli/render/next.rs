//! What to type next about a record (CLI-4).
use ctrlrun::plan::effect::{Record, State};
use ctrlrun::plan::time::Timestamp;

use super::shell::line;
use crate::cli::error::Hint;
use crate::cli::which::Place;

/// `ctrlrun show KEY`
#[must_use]
pub fn look(key: &str, place: &Place) -> Hint {
    Hint::command("look", line("show", key, "", place))
}

/// The lines that decide a record that is stuck, with the revision that was found.
#[must_use]
pub fn decide(record: &Record, place: &Place) -> [Hint; 2] {
    decide_by(record, place, "--committed")
}

/// The same of an effect whose output others are fed by: who says that it happened says what it wrote.
#[must_use]
pub fn decide_with_output(record: &Record, place: &Place) -> [Hint; 2] {
    decide_by(record, place, "--committed --output FILE")
}

fn decide_by(record: &Record, place: &Place, committed: &str) -> [Hint; 2] {
    let resolve = |decision: &str| {
        let flags = format!("{decision} --expect {} --reason ''", record.revision);
        line("resolve", record.key.as_str(), &flags, place)
    };
    [
        Hint::command("it did", resolve(committed)),
        Hint::command("it did not", resolve("--not-executed")),
    ]
}

/// The line that takes a decision back.
#[must_use]
pub fn reopen(record: &Record, place: &Place) -> Hint {
    let flags = format!("--reopen --expect {} --reason ''", record.revision);
    let key = record.key.as_str();
    Hint::command("if that is wrong", line("resolve", key, &flags, place))
}

/// All that can be done about a record as it stands: the `next` of CLI-17.
#[must_use]
pub fn next(record: &Record, now: Timestamp, place: &Place) -> Vec<Hint> {
    match record.state {
        State::Ambiguous { .. } => decide(record, place).into(),
        State::Reserved { .. } | State::Executing { .. } if record.is_lapsed(now) => {
            decide(record, place).into()
        }
        State::Reserved { .. } | State::Executing { .. } => Vec::new(),
        State::Committed { .. } | State::Failed { .. } => vec![reopen(record, place)],
    }
}
