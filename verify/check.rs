//! The checker: pure. From a key's history, its record and the ledger it tells what must not be
//! (VER-6). It knows the specification's rules and nothing of how they are kept: but for the fold,
//! which is the definition of a record (HIS-2), it shares no code with the planner.
use std::collections::BTreeMap;

use ctrlrun::plan::effect::{
    Began, Cause, Event, FailedBy, HistoryRow, LeaseRenewed, ProbeAnswer, Record, Reserved, evolve,
};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::time::Timestamp;

use super::ledger::Line;

/// All that is known of one key.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// The key.
    pub key: Key,
    /// Its record, if there is one.
    pub record: Option<Record>,
    /// Its history, oldest first.
    pub history: Vec<HistoryRow>,
    /// What ran under it.
    pub ledger: Vec<Line>,
}

/// What must not be, one sentence each.
#[must_use]
pub fn violations(evidence: &Evidence) -> Vec<String> {
    let mut wrong = Vec::new();
    let history = &evidence.history;
    let mut stands = Stands::New;
    let mut attempt = 0;
    let mut lease = Timestamp(0);
    // What is granted to a key that was forgotten is counted from above all that it had: its first
    // revision and its first attempt are one number (OPS-5).
    let first = history.first().map_or(1, |row| row.attempt.max(1));
    for (row, expected) in history.iter().zip(first..) {
        if row.revision != expected {
            wrong.push(format!("revision {} stands where {expected} should (HIS-1)", row.revision));
        }
        if let Event::Reserved(event) = &row.event {
            if attempt != 0 && event.attempt != attempt + 1 {
                let next = event.attempt;
                wrong.push(format!("attempt {next} was granted after attempt {attempt} (EFF-6)"));
            }
            attempt = event.attempt;
        }
        let late = matches!(row.event, Event::LateOutcome(_));
        if row.attempt != attempt && !late {
            wrong.push(format!(
                "`{}` of attempt {} in the time of attempt {attempt}",
                row.event.kind(),
                row.attempt
            ));
        }
        match &row.event {
            Event::Reserved(Reserved { lease_expires_at, .. })
            | Event::Began(Began { lease_expires_at, .. })
            | Event::LeaseRenewed(LeaseRenewed { lease_expires_at }) => lease = *lease_expires_at,
            Event::Ambiguated(event) if event.cause == Cause::Lapsed && row.recorded_at < lease => {
                wrong.push(format!("attempt {attempt} was called lapsed within its lease (EFF-5)"));
            }
            Event::Ambiguated(_)
            | Event::Committed(_)
            | Event::Failed(_)
            | Event::LateOutcome(_)
            | Event::Probed(_)
            | Event::Resolved(_)
            | Event::Reopened(_) => {}
        }
        match stands.after(&row.event) {
            Some(next) => stands = next,
            None => wrong.push(format!(
                "`{}` at revision {} on a record that was {stands:?}",
                row.event.kind(),
                row.revision
            )),
        }
    }
    wrong.extend(executions(evidence));
    wrong.extend(fold(evidence));
    wrong.into_iter().map(|what| format!("{}: {what}", evidence.key)).collect()
}

/// How a record stands, as far as it decides what may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    New,
    Reserved,
    Executing,
    Committed,
    Failed,
    Ambiguous,
}

impl Stands {
    /// What an event makes of it; `None` if it may not come here.
    fn after(self, event: &Event) -> Option<Self> {
        let in_progress = matches!(self, Self::Reserved | Self::Executing);
        match event {
            Event::Reserved(_) => {
                matches!(self, Self::New | Self::Failed).then_some(Self::Reserved)
            }
            Event::Began(_) => (self == Self::Reserved).then_some(Self::Executing),
            Event::LeaseRenewed(_) => (self == Self::Executing).then_some(Self::Executing),
            Event::Committed(_) => (self == Self::Executing).then_some(Self::Committed),
            Event::Failed(event) => match event.by {
                FailedBy::NeverStarted => in_progress.then_some(Self::Failed),
                FailedBy::OwnWord => (self == Self::Executing).then_some(Self::Failed),
                // Theirs is `resolved`.
                FailedBy::Person | FailedBy::Probe => None,
            },
            Event::Ambiguated(event) => match event.cause {
                Cause::Lapsed => in_progress.then_some(Self::Ambiguous),
                Cause::LateOutcome => {
                    (in_progress || self == Self::Failed).then_some(Self::Ambiguous)
                }
                Cause::Exit | Cause::Signal | Cause::Timeout | Cause::Contradiction => {
                    (self == Self::Executing).then_some(Self::Ambiguous)
                }
                // That is `reopened`.
                Cause::Reopened => None,
            },
            // Evidence; it moves nothing by itself.
            Event::LateOutcome(_) => (self != Self::New).then_some(self),
            Event::Probed(_) => (self == Self::Ambiguous).then_some(self),
            Event::Resolved(event) if self == Self::Ambiguous => match event.decision {
                ProbeAnswer::Committed => Some(Self::Committed),
                ProbeAnswer::NotExecuted => Some(Self::Failed),
                ProbeAnswer::Unknown => None,
            },
            Event::Resolved(_) => None,
            Event::Reopened(_) => {
                matches!(self, Self::Committed | Self::Failed).then_some(Self::Ambiguous)
            }
        }
    }
}

/// What ran, held against what the history allows. That a further attempt was allowed at all follows
/// from the order of events.
fn executions(evidence: &Evidence) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut of: BTreeMap<u64, u32> = BTreeMap::new();
    for line in &evidence.ledger {
        *of.entry(line.attempt).or_default() += 1;
    }
    for (attempt, times) in of {
        if times > 1 {
            wrong.push(format!("attempt {attempt} ran {times} times"));
        }
        let events = || evidence.history.iter().filter(|row| row.attempt == attempt);
        if !events().any(|row| matches!(row.event, Event::Began(_))) {
            wrong.push(format!("attempt {attempt} ran and had not begun (EXE-1)"));
        }
        let never = |event: &Event| matches!(event, Event::Failed(failed) if failed.by == FailedBy::NeverStarted);
        if events().any(|row| never(&row.event)) {
            wrong.push(format!("attempt {attempt} ran, and is recorded as never started"));
        }
    }
    wrong
}

/// The record is the fold of its history (HIS-2).
fn fold(evidence: &Evidence) -> Option<String> {
    let mut folded = None;
    for row in &evidence.history {
        match evolve(&evidence.key, folded.take(), row) {
            Ok(record) => folded = Some(record),
            Err(error) => return Some(error.to_string()),
        }
    }
    if folded == evidence.record {
        return None;
    }
    Some(match (&folded, &evidence.record) {
        (Some(folded), Some(record)) => format!(
            "its record (revision {}, attempt {}) is not the fold of its history (revision {}, attempt {})",
            record.revision, record.attempt, folded.revision, folded.attempt
        ),
        (None, Some(_)) => "it has a record and no history".to_owned(),
        (Some(_), None) => "it has a history and no record".to_owned(),
        (None, None) => return None,
    })
}

#[cfg(test)]
#[path = "check/tests.rs"]
mod tests;
