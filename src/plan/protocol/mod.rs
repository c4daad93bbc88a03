//! One conditional write, as a state machine without I/O: load, decide, append, and what to do
//! when the answer to a commit did not come (CMT clauses).
//!
//! | it says | the driver does | and answers with |
//! |---|---|---|
//! | [`Step::Load`] | `Store::load` | [`Input::Loaded`] |
//! | [`Step::Draw`] | draws a fresh identity; the row is known | [`Input::Drawn`] |
//! | [`Step::Append`] | `Store::append` | [`Input::Ended`] |
//! | [`Step::Reread`] | `Store::reread`, on a fresh connection | [`Input::Reread`] |
//! | [`Step::Pause`] | sleeps for a random time up to it | [`Input::Paused`] |
//! | [`Step::Done`] | nothing more | |
//!
//! The two failures that are never merged: [`End::NotCommitted`] proves that nothing was written,
//! [`End::Unknown`] proves nothing. Once a try of an append is unknown the append stays unknown,
//! and only a re-read says otherwise.
mod machine;
mod words;

pub use machine::Handle;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::effect::{Answer, HistoryRow, OutcomeId, Record, WriteId};
use super::time::{Moment, Timestamp};
use super::workflow::DispatchRef;

/// The one event of a key's history that a decision needs beside the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ask {
    /// None.
    Nothing,
    /// The event that carries this outcome.
    Outcome(OutcomeId),
    /// The `began` event of this attempt.
    Began(u64),
    /// The event at this revision.
    Revision(u64),
    /// The newest event.
    Last,
    /// The newest event that changed the state: not `late_outcome`, `probed` or `lease_renewed`.
    LastChange,
}

/// What a load found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Found {
    /// The row, if there is one.
    pub record: Option<Record>,
    /// The store's clock.
    pub now: Timestamp,
    /// Attempts of a new key are numbered from this plus one.
    pub attempt_floor: u64,
    /// The event asked for, if it is there.
    pub event: Option<HistoryRow>,
}

impl Found {
    /// The revision found; `None` where there is no record.
    #[must_use]
    pub fn revision(&self) -> Option<u64> {
        self.record.as_ref().map(|record| record.revision)
    }
}

/// A child's stream as it is kept: its beginning, its end, and how much there was.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Captured {
    /// The first bytes.
    #[serde(with = "crate::plan::bytes")]
    pub head: Vec<u8>,
    /// The last bytes, where something between was dropped.
    #[serde(with = "crate::plan::bytes")]
    pub tail: Vec<u8>,
    /// All that the child wrote.
    pub bytes: u64,
    /// Whether this is all of it.
    pub whole: bool,
}

/// Which output of an attempt it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// The child's standard output.
    Stdout,
    /// The child's standard error.
    Stderr,
    /// What a person gave as the output when resolving; the child's own stays as evidence.
    Stated,
}

/// One output to be kept, written in the transaction of the event that it belongs to. It replaces
/// what the same stream of the same attempt had.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kept {
    /// The attempt whose output it is.
    pub attempt: u64,
    /// Which output.
    pub stream: Stream,
    /// What is kept of it.
    pub captured: Captured,
}

/// One conditional write: the row and its history, in one transaction.
///
/// Every try of it carries this same value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Append {
    /// The row the decision was made on, and the condition of the write: it must still stand at
    /// this revision with this `write_id`. `None`: there must be no row.
    pub found: Option<Record>,
    /// The row to be written.
    pub next: Record,
    /// Its events, the last of which is at `next.revision`.
    pub history: Vec<HistoryRow>,
    /// The floor that a new key's attempt number was counted from; must still be the store's.
    pub attempt_floor: u64,
    /// Outputs to be kept with it.
    pub outputs: Vec<Kept>,
    /// The dispatch that it acts on, of a workflow's node: the write holds only while that is there.
    pub dispatch: Option<DispatchRef>,
}

/// How one try of an append ended. There is no error beside it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use = "a write's end decides whether a command may run"]
pub enum End {
    /// It is committed, every result was seen and every row count was right.
    Landed,
    /// The condition did not hold: nothing was written.
    Refused,
    /// It failed before any byte of COMMIT was sent, or in a way that proves an abort.
    NotCommitted(CouldNot),
    /// COMMIT may have been sent, and what came back proves nothing.
    Unknown(CouldNot),
}

/// Why a store could not do a thing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{message}")]
pub struct CouldNot {
    /// What kind of thing stood in the way.
    pub reason: Reason,
    /// What happened, for a person.
    pub message: String,
    /// What to do about it, if the store knows.
    pub hint: Option<String>,
}

/// What kind of thing stood in a store's way; it decides the exit code, and whether trying again
/// can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Busy, locked, or a deadline of ours: it may pass.
    Busy,
    /// Out of reach: cannot be opened, I/O error, disk full.
    Unreachable,
    /// The store's path leads elsewhere now: what would be written, nobody would find again.
    Moved,
    /// The store may not be written, or read, by this user.
    Denied,
    /// The store is not there.
    Missing,
    /// The store is there and must not be used as it is: its settings, place or schema.
    Unfit,
    /// What is stored cannot be read.
    Damaged,
}

impl Reason {
    /// Whether the same thing tried again may go well.
    #[must_use]
    pub fn may_pass(self) -> bool {
        match self {
            Self::Busy | Self::Unreachable => true,
            Self::Moved | Self::Denied | Self::Missing | Self::Unfit | Self::Damaged => false,
        }
    }
}

/// What the driver is to do next. `within` is the longest that the step may take.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
pub enum Step {
    /// Read the row.
    Load {
        /// The history event to bring along.
        ask: Ask,
        /// The longest it may take.
        within: Duration,
    },
    /// Draw a fresh `write_id`: the row is known, no load is needed (CMT-15).
    Draw,
    /// Try the write.
    Append {
        /// What to write.
        append: Box<Append>,
        /// The longest it may take.
        within: Duration,
    },
    /// Read the row on a fresh connection.
    Reread {
        /// The history event to bring along.
        ask: Ask,
        /// The longest it may take.
        within: Duration,
    },
    /// Sleep for a random time between nothing and this.
    Pause(Duration),
    /// It is over.
    Done(Done),
}

impl Step {
    /// The end, if this is it; else the step itself, to be performed.
    ///
    /// # Errors
    /// The step, where it is not the last.
    pub fn done(self) -> Result<Done, Box<Self>> {
        match self {
            Self::Done(done) => Ok(done),
            step @ (Self::Load { .. }
            | Self::Draw
            | Self::Append { .. }
            | Self::Reread { .. }
            | Self::Pause(_)) => Err(Box::new(step)),
        }
    }
}

/// What the driver answers with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Input {
    /// The first call.
    Start,
    /// The load's answer, and a fresh draw of the kernel's random source.
    Loaded(Result<Found, CouldNot>, WriteId),
    /// A fresh draw of the kernel's random source.
    Drawn(WriteId),
    /// The append's end.
    Ended(End),
    /// The re-read's answer.
    Reread(Result<Found, CouldNot>),
    /// The pause is over.
    Paused,
}

/// How a command to the store ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Done {
    /// Decided, and what it decided is written if there was anything to write.
    Answered(Box<Answered>),
    /// Nothing was written.
    CouldNot(CouldNot),
    /// It may have been written and nobody knows: run nothing.
    Unknown(CouldNot),
}

/// See [`Done::Answered`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Answered {
    /// The answer.
    pub answer: Answer,
    /// The record as it stands now; of a refusal, the one that was found.
    pub record: Option<Record>,
    /// The store's clock at the load that it was decided on.
    pub now: Timestamp,
    /// Our own clock before that load: leases granted by this answer are counted from here.
    pub read_at: Moment,
    /// Our own clock after it: the store's clock was at `now`, or past it.
    pub seen_at: Moment,
}

/// What is taken for so without a load: what an append of one's own has just written (CMT-15), or
/// that a key is new (CMT-16).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Known {
    record: Option<Record>,
    attempt_floor: u64,
    now: Timestamp,
    read_at: Moment,
    seen_at: Moment,
}

impl Known {
    /// For so long a row that was written is taken for the one that stands. It is a guess that the
    /// write's condition judges; after a longer time too much of the clocks would hang on it.
    const FRESH: Duration = Duration::from_secs(1);

    /// What an answer tells of its record; `None` where it tells of none.
    #[must_use]
    pub fn of(answered: &Answered) -> Option<Self> {
        let Answered { record, now, read_at, seen_at, .. } = answered;
        let record = Some(record.clone()?);
        let (now, read_at, seen_at) = (*now, *read_at, *seen_at);
        // The floor is for new keys only.
        Some(Self { record, attempt_floor: 0, now, read_at, seen_at })
    }

    /// That there is no row, at a store whose floor and clock were asked for after `read_at` and
    /// known by `seen_at`.
    #[must_use]
    pub fn absent(attempt_floor: u64, now: Timestamp, read_at: Moment, seen_at: Moment) -> Self {
        Self { record: None, attempt_floor, now, read_at, seen_at }
    }

    /// Whether it says that there is no row.
    fn is_absent(&self) -> bool {
        self.record.is_none()
    }

    /// What a load would have found at `at`, and when it would have been sent; `None` once too much
    /// time has passed.
    ///
    /// The store's clock is moved on by what ours has since the load, no further: a lease counted
    /// from it never ends later for us than for the store (EXE-8).
    fn at(&self, at: Moment) -> Option<(Found, Moment)> {
        let passed = at.from_now(self.seen_at);
        let now = self.now.plus(passed);
        let (record, attempt_floor) = (self.record.clone(), self.attempt_floor);
        let found = Found { record, now, attempt_floor, event: None };
        (passed < Self::FRESH).then(|| (found, self.read_at.plus(passed)))
    }
}
