//! Stores that are broken on purpose, one way each: what the catalogue must catch (VER-9).
//!
//! Some stand for a fault of a store, some for one of the planner. A planner's fault is shown at the
//! store's edge, where it has the same effect: a planner that frees a lapsed lease decides as the
//! sound one does on a record that says FAILED.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctrlrun::plan::effect::{
    Cause, Event, Failed, FailedBy, HistoryRow, Record, State, WriteId, evolve,
};
use ctrlrun::plan::key::Key;
use ctrlrun::store::{Append, Ask, CouldNot, End, Found, Store};

/// Forwards verbs to a field that holds the store.
macro_rules! forward {
    ($field:tt: $($verb:ident)*) => { $(crate::verify::broken::forward!(@ $field $verb);)* };
    (@ $field:tt load) => {
        fn load(
            &self,
            key: &ctrlrun::plan::key::Key,
            ask: ctrlrun::store::Ask,
            within: std::time::Duration,
        ) -> Result<ctrlrun::store::Found, ctrlrun::store::CouldNot> {
            self.$field.load(key, ask, within)
        }
    };
    (@ $field:tt append) => {
        fn append(
            &self,
            append: &ctrlrun::store::Append,
            within: std::time::Duration,
        ) -> ctrlrun::store::End {
            self.$field.append(append, within)
        }
    };
    (@ $field:tt reread) => {
        fn reread(
            &self,
            key: &ctrlrun::plan::key::Key,
            ask: ctrlrun::store::Ask,
            within: std::time::Duration,
        ) -> Result<ctrlrun::store::Found, ctrlrun::store::CouldNot> {
            self.$field.reread(key, ask, within)
        }
    };
    (@ $field:tt list) => {
        fn list(
            &self,
            filter: &ctrlrun::store::Filter,
            each: &mut dyn FnMut(ctrlrun::store::Listed) -> ctrlrun::store::Flow,
            within: std::time::Duration,
        ) -> Result<(), ctrlrun::store::CouldNot> {
            self.$field.list(filter, each, within)
        }
    };
    (@ $field:tt history) => {
        fn history(
            &self,
            key: &ctrlrun::plan::key::Key,
            from: u64,
            within: std::time::Duration,
        ) -> Result<Vec<ctrlrun::plan::effect::HistoryRow>, ctrlrun::store::CouldNot> {
            self.$field.history(key, from, within)
        }
    };
    (@ $field:tt output) => {
        fn output(
            &self,
            key: &ctrlrun::plan::key::Key,
            attempt: u64,
            stream: ctrlrun::store::Stream,
            within: std::time::Duration,
        ) -> Result<Option<ctrlrun::store::Captured>, ctrlrun::store::CouldNot> {
            self.$field.output(key, attempt, stream, within)
        }
    };
    (@ $field:tt upkeep) => {
        fn walk(
            &self,
            filter: &ctrlrun::store::Filter,
            each: &mut dyn FnMut(ctrlrun::store::Walked) -> ctrlrun::store::Flow,
            within: std::time::Duration,
        ) -> Result<(), ctrlrun::store::CouldNot> {
            self.$field.walk(filter, each, within)
        }

        fn prune(
            &self,
            cut: &ctrlrun::store::Cut,
            within: std::time::Duration,
        ) -> ctrlrun::store::Pruned {
            self.$field.prune(cut, within)
        }

        fn stats(
            &self,
            within: std::time::Duration,
        ) -> Result<ctrlrun::store::Stats, ctrlrun::store::CouldNot> {
            self.$field.stats(within)
        }
    };
    (@ $field:tt runs) => {
        fn runs(&self) -> &dyn ctrlrun::store::Runs {
            self.$field.runs()
        }
    };
    (@ $field:tt identity) => {
        fn identity(&self) -> &ctrlrun::store::Identity {
            self.$field.identity()
        }
    };
    (@ $field:tt glimpse) => {
        fn glimpse(&self) -> Option<ctrlrun::store::Glimpse> {
            self.$field.glimpse()
        }
    };
}
pub(super) use forward;

/// One way of being broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// A write that matched no row is taken for one that did.
    RowCounts,
    /// A lapsed lease frees its key.
    LapsedFreed,
    /// A live reservation does not hold.
    LiveFreed,
    /// What is AMBIGUOUS is recorded as FAILED.
    AmbiguousFailed,
    /// The re-read knows a row by its attempt id.
    RereadByAttemptId,
    /// A commit whose answer was lost is taken for one that was not made.
    UnknownNotCommitted,
    /// A write that failed before its commit is taken for one that may have been made.
    NotCommittedUnknown,
    /// A second try that matched nothing is not followed by a re-read.
    NoSecondReread,
    /// The row is written without its history.
    NoHistory,
    /// The expected revision is ignored: the last writer wins.
    RevisionIgnored,
    /// A record is ours if it bears our attempt id.
    OwnedByAttemptId,
    /// `write_id` is left out of the condition.
    WriteIdIgnored,
    /// What is COMMITTED is taken for FAILED.
    CommittedFreed,
    /// It says that a write has landed before it has.
    AnswersEarly,
    /// A re-read that fails is taken for one that found what was written.
    RereadGuessed,
    /// A FAILED by a person's decision is taken for the executor's own word.
    DecisionAsWord,
    /// The outcome is not written.
    OutcomeDropped,
    /// A late outcome is not written.
    LateDropped,
    /// An outcome is not known again by its id.
    OutcomeIdIgnored,
    /// Every doubt counts as one whose child was reaped.
    ReapedAlways,
    /// A reserve does not ask whether its dispatch is still there.
    DispatchIgnored,
}

impl Break {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::RowCounts,
        Self::LapsedFreed,
        Self::LiveFreed,
        Self::AmbiguousFailed,
        Self::RereadByAttemptId,
        Self::UnknownNotCommitted,
        Self::NotCommittedUnknown,
        Self::NoSecondReread,
        Self::NoHistory,
        Self::RevisionIgnored,
        Self::OwnedByAttemptId,
        Self::WriteIdIgnored,
        Self::CommittedFreed,
        Self::AnswersEarly,
        Self::RereadGuessed,
        Self::DecisionAsWord,
        Self::OutcomeDropped,
        Self::LateDropped,
        Self::OutcomeIdIgnored,
        Self::ReapedAlways,
        Self::DispatchIgnored,
    ];

    /// Its name in the rig's words, what it means in one line, and the guarantees that must catch it.
    #[must_use]
    pub fn about(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Self::RowCounts => ("row-counts", "row counts ignored", &["G9", "G13"]),
            Self::LapsedFreed => ("lapsed-freed", "a lapsed lease freed", &["G6"]),
            Self::LiveFreed => ("live-freed", "a live reservation overrun", &["G3", "G4"]),
            Self::AmbiguousFailed => {
                ("ambiguous-failed", "AMBIGUOUS collapsed into FAILED", &["G5", "G10"])
            }
            Self::RereadByAttemptId => {
                ("reread-attempt-id", "the re-read matches on the attempt id", &["G9"])
            }
            Self::UnknownNotCommitted => (
                "unknown-not-committed",
                "\"during COMMIT\" merged into \"before COMMIT\"",
                &["G7"],
            ),
            Self::NotCommittedUnknown => (
                "not-committed-unknown",
                "\"before COMMIT\" merged into \"during COMMIT\"",
                &["G8"],
            ),
            Self::NoSecondReread => {
                ("no-second-reread", "the second try not followed by a re-read", &["G8"])
            }
            Self::NoHistory => ("no-history", "history not written", &["G12"]),
            Self::RevisionIgnored => {
                ("revision-ignored", "the expected revision ignored", &["G4", "G13"])
            }
            Self::OwnedByAttemptId => {
                ("owned-by-attempt-id", "ownership taken from the attempt id", &["G9"])
            }
            Self::WriteIdIgnored => {
                ("write-id-ignored", "write_id left out of the condition", &["G9"])
            }
            Self::CommittedFreed => ("committed-freed", "COMMITTED not kept to", &["G1"]),
            Self::AnswersEarly => {
                ("answers-early", "\"landed\" said before it is durable", &["G2"])
            }
            Self::RereadGuessed => {
                ("reread-guessed", "a failed re-read taken for a good one", &["G11"])
            }
            Self::DecisionAsWord => {
                ("decision-as-word", "a decision taken for the command's own word", &["G14"])
            }
            Self::OutcomeDropped => ("outcome-dropped", "the outcome not written", &["G16"]),
            Self::LateDropped => ("late-dropped", "a late outcome not written", &["G17"]),
            Self::OutcomeIdIgnored => {
                ("outcome-id-ignored", "an outcome not known again by its id", &["G16"])
            }
            Self::ReapedAlways => {
                ("reaped-always", "a probe's \"no\" frees whatever the holder saw", &["G18"])
            }
            Self::DispatchIgnored => {
                ("dispatch-ignored", "a reserve not held to its dispatch", &["G19"])
            }
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.about().0 == name)
    }
}

/// A store around a sound one, broken in one way.
pub struct Broken {
    inner: Arc<dyn Store>,
    how: Break,
    memory: Arc<Mutex<Memory>>,
}

/// What a broken store keeps in mind, for as long as its process lives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// The reservations that this process asked for: number, `write_id`, attempt id.
    asked: Vec<(u64, WriteId, String)>,
    /// The append whose end was unknown last.
    unknown: Option<Append>,
    /// The `write_id` of a second try that matched nothing.
    unseen: Option<WriteId>,
    /// Rows that were said to be written.
    claimed: BTreeMap<String, (Record, Vec<HistoryRow>)>,
}

impl Broken {
    /// `inner`, broken. `memory` is its process's: empty when that begins.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, how: Break, memory: Arc<Mutex<Memory>>) -> Self {
        Self { inner, how, memory }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a load or re-read is said to have found.
    fn bent(&self, mut found: Found, ask: Ask) -> Found {
        let memory = self.memory();
        let now = found.now;
        if let (Break::OutcomeIdIgnored, Ask::Outcome(_)) = (self.how, ask) {
            found.event = None;
        }
        let Some(record) = &mut found.record else {
            return found;
        };
        let own = memory.asked.iter().any(|(_, id, _)| *id == record.reservation_id);
        let in_progress = record.lease_expires_at().is_some();
        let own_word = State::Failed { by: FailedBy::OwnWord };
        match (self.how, record.state) {
            (Break::LapsedFreed, _) if record.is_lapsed(now) && !own => record.state = own_word,
            (Break::LiveFreed, _) if in_progress && !own => record.state = own_word,
            (Break::CommittedFreed, State::Committed { .. }) if !own => record.state = own_word,
            (Break::DecisionAsWord, State::Failed { by: FailedBy::Person | FailedBy::Probe }) => {
                record.state = own_word
            }
            (Break::ReapedAlways, State::Ambiguous { .. }) => {
                record.state = State::Ambiguous { cause: Cause::Exit, reaped: true };
                record.in_doubt = false;
            }
            (Break::OwnedByAttemptId, _) => {
                let ours = memory.asked.iter().find(|(_, _, label)| *label == record.attempt_id);
                if let Some((number, id, _)) = ours {
                    record.attempt = *number;
                    record.reservation_id = *id;
                }
            }
            (Break::NoSecondReread, _) if memory.unseen == Some(record.write_id) => {
                // What the planner makes of the row when nobody has told it that it is ours.
                record.write_id = WriteId(uuid::Uuid::nil());
                record.reservation_id = record.write_id;
                found.event = None;
            }
            _ => {}
        }
        found
    }
}

impl Store for Broken {
    fn load(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot> {
        let mut found = self.inner.load(key, ask, within)?;
        if let Some((record, history)) = self.memory().claimed.get(key.as_str()) {
            found.record = Some(record.clone());
            found.event = history.last().cloned();
        }
        Ok(self.bent(found, ask))
    }

    fn append(&self, append: &Append, within: Duration) -> End {
        if append.next.write_id == append.next.reservation_id {
            let next = &append.next;
            let asked = (next.attempt, next.write_id, next.attempt_id.clone());
            self.memory().asked.push(asked);
        }
        let dropped = (self.how == Break::OutcomeDropped && settles(append))
            || (self.how == Break::LateDropped && is_late(append));
        if dropped {
            return End::Landed;
        }
        let end = if self.how == Break::DispatchIgnored {
            self.inner.append(&Append { dispatch: None, ..append.clone() }, within)
        } else if self.how == Break::AmbiguousFailed {
            self.inner.append(&without_doubt(append), within)
        } else if self.how == Break::NoHistory {
            self.inner.append(&Append { history: Vec::new(), ..append.clone() }, within)
        } else if matches!(self.how, Break::RevisionIgnored | Break::WriteIdIgnored) {
            self.insisting(append, within)
        } else {
            self.inner.append(append, within)
        };
        match (self.how, end) {
            (Break::RowCounts, End::Refused) => End::Landed,
            (Break::UnknownNotCommitted, End::Unknown(error)) => End::NotCommitted(error),
            (Break::NotCommittedUnknown, End::NotCommitted(error)) => End::Unknown(error),
            (Break::AnswersEarly, End::NotCommitted(_)) => {
                let claimed = (append.next.clone(), append.history.clone());
                self.memory().claimed.insert(append.next.key.as_str().to_owned(), claimed);
                End::Landed
            }
            (_, End::Unknown(error)) => {
                self.memory().unknown = Some(append.clone());
                End::Unknown(error)
            }
            (Break::NoSecondReread, End::Refused) => {
                let mut memory = self.memory();
                let again = memory.unknown.as_ref().map(|first| first.next.write_id);
                if again == Some(append.next.write_id) {
                    memory.unseen = again;
                }
                End::Refused
            }
            (_, end) => end,
        }
    }

    fn reread(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot> {
        let answer = self.inner.reread(key, ask, within);
        let unknown = self.memory().unknown.clone();
        match (self.how, answer, unknown) {
            (Break::RereadGuessed, Err(_), Some(append)) => Ok(Found {
                now: append.next.updated_at,
                attempt_floor: append.attempt_floor,
                event: append.history.first().cloned(),
                record: Some(append.next),
            }),
            (Break::RereadByAttemptId, Ok(mut found), Some(append)) => {
                let label = &append.next.attempt_id;
                if found.record.as_ref().is_some_and(|record| record.attempt_id == *label) {
                    found.record = Some(append.next);
                }
                Ok(found)
            }
            (_, answer, _) => answer.map(|found| self.bent(found, ask)),
        }
    }

    forward!(inner: list history output upkeep runs identity);
}

impl Broken {
    /// Appends on whatever is there, or, of [`Break::WriteIdIgnored`], on whatever is there at the
    /// expected revision.
    fn insisting(&self, append: &Append, within: Duration) -> End {
        let end = self.inner.append(append, within);
        let (End::Refused, Ok(found)) =
            (&end, self.inner.load(&append.next.key, Ask::Nothing, within))
        else {
            return end;
        };
        let Some(current) = found.record else {
            return end;
        };
        let revision = append.found.as_ref().map(|record| record.revision);
        if self.how == Break::WriteIdIgnored && revision != Some(current.revision) {
            return end;
        }
        if current.write_id == append.next.write_id {
            return end;
        }
        let mut moved = append.clone();
        for (at, row) in (current.revision + 1..).zip(&mut moved.history) {
            row.revision = at;
            moved.next.revision = at;
        }
        moved.found = Some(current);
        self.inner.append(&moved, within)
    }
}

/// The same append with every doubt written as a failure, and the row that follows from that.
fn without_doubt(append: &Append) -> Append {
    let mut changed = append.clone();
    let mut record = append.found.clone();
    for row in &mut changed.history {
        if let Event::Ambiguated(doubt) = &row.event {
            let mut ending = doubt.ending.clone().unwrap_or_default();
            ending.exit_code = ending.exit_code.or(Some(1));
            ending.signal = None;
            row.event = Event::Failed(Failed { by: FailedBy::OwnWord, ending });
        }
        record = evolve(&append.next.key, record, row).ok();
    }
    if let Some(record) = record {
        changed.next = record;
    }
    changed
}

/// Whether an append brings a child's outcome.
fn settles(append: &Append) -> bool {
    append.history.first().is_some_and(|row| match &row.event {
        Event::Committed(_) | Event::Failed(_) => true,
        Event::Ambiguated(event) => event.cause != Cause::Lapsed,
        Event::Reserved(_)
        | Event::Began(_)
        | Event::LeaseRenewed(_)
        | Event::LateOutcome(_)
        | Event::Probed(_)
        | Event::Resolved(_)
        | Event::Reopened(_) => false,
    })
}

fn is_late(append: &Append) -> bool {
    append.history.first().is_some_and(|row| matches!(row.event, Event::LateOutcome(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_broken_store_has_a_name_and_somebody_to_catch_it() {
        // VER-9
        for how in Break::ALL {
            let (name, _, by) = how.about();
            assert_eq!(Break::named(name), Some(how));
            assert!(!by.is_empty());
        }
        assert_eq!(Break::named("sound"), None);
    }
}
