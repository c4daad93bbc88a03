//! The effect aggregate: the states of one real-world consequence, and what each command may do
//! to it (EFF-1 onwards).
//!
//! `RESERVED -> EXECUTING -> COMMITTED | FAILED | AMBIGUOUS`. No record means NEW. FAILED is the
//! only state that lets another attempt through by itself; only a person or a probe moves a record
//! out of AMBIGUOUS.
mod command;
mod decide;
mod event;
mod evolve;

pub use command::{
    Answer, Begin, Command, Decision, Holder, Probe, ProbeAnswer, Recorded, Refusal, Reserve,
    Resolve, Settle, Verdict,
};
pub use decide::decide;
pub use event::{
    Ambiguated, Began, Committed, Event, Failed, HistoryRow, LateOutcome, LeaseRenewed, Probed,
    RanOn, Reopened, Reserved, Resolved, Unreadable,
};
pub use evolve::{BadStart, evolve};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::key::{Fingerprint, Key};
use super::time::Timestamp;

/// Drawn once per append: every try of that append carries the same one (CMT-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WriteId(pub Uuid);

/// Drawn once per child, before its first settle: every settle, late outcome and spool file of
/// that child carries the same one, so that delivering it twice records it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutcomeId(pub Uuid);

/// The caller's own marks on an attempt: evidence for a person, read by no rule.
pub type Labels = BTreeMap<String, String>;

/// What a key is bound to: the request that was made under it (KEY clauses on the fingerprint).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Identifies the arguments and binds; two requests are the same if and only if it is equal.
    pub fingerprint: Fingerprint,
    /// The program's name, for a person.
    pub program: String,
    /// How many arguments it was given.
    pub arguments: u32,
    /// The whole command line, only where the user asked for it to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
}

/// How a child ended, as far as anybody saw.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Ending {
    /// Its exit code, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal it died of, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// One line for a person: "exited 22", "could not be started: No such file or directory".
    pub detail: String,
}

/// Why a record is AMBIGUOUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The lease ended and nobody had reported.
    Lapsed,
    /// An exit code that proves nothing.
    Exit,
    /// Death by a signal.
    Signal,
    /// Our time-out ended the child.
    Timeout,
    /// The child's exit and its own word contradict each other, or its word was unreadable.
    Contradiction,
    /// A word that came late says that something may have happened.
    LateOutcome,
    /// A person took a decision back.
    Reopened,
}

impl Cause {
    /// Its name in stores and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lapsed => "lapsed",
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Timeout => "timeout",
            Self::Contradiction => "contradiction",
            Self::LateOutcome => "late_outcome",
            Self::Reopened => "reopened",
        }
    }
}

/// On whose word a record is FAILED.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedBy {
    /// The executor's own word: a declared exit code, or `not-executed`.
    OwnWord,
    /// The command was never started.
    NeverStarted,
    /// A person resolved it as not executed.
    Person,
    /// A probe answered "not-executed" where that frees.
    Probe,
}

/// On whose word a record is COMMITTED.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommittedBy {
    /// The executor's own word: exit 0, or `committed`.
    OwnWord,
    /// A person.
    Person,
    /// A probe.
    Probe,
}

/// The state of an effect that exists, with only the data that is valid in it (EFF-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// The key is taken; nothing has been started.
    Reserved {
        /// When the right to begin ends, by the store's clock.
        lease_expires_at: Timestamp,
    },
    /// The command was started, or is about to be.
    Executing {
        /// When the holder is presumed lost, by the store's clock.
        lease_expires_at: Timestamp,
    },
    /// It happened.
    Committed {
        /// On whose word.
        by: CommittedBy,
    },
    /// It provably did not happen.
    Failed {
        /// On whose word.
        by: FailedBy,
    },
    /// Nobody knows.
    Ambiguous {
        /// Why nobody knows.
        cause: Cause,
        /// Whether the holder itself recorded the doubt after reaping its child, with no time-out
        /// and no descendant left.
        reaped: bool,
    },
}

impl State {
    /// Its name in stores, filters and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reserved { .. } => "reserved",
            Self::Executing { .. } => "executing",
            Self::Committed { .. } => "committed",
            Self::Failed { .. } => "failed",
            Self::Ambiguous { .. } => "ambiguous",
        }
    }
}

/// The newest decision of a person or a probe about the effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resolution {
    /// Who: `oncall@bastion`, or `reconcile:NAME`.
    pub by: String,
    /// How they know.
    pub reason: String,
}

/// An effect's newest state: the fold of its history (HIS-1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// The effect's name.
    pub key: Key,
    /// The revision of its newest event; stored as `record_version`.
    pub revision: u64,
    /// Identifies the append that wrote this row.
    pub write_id: WriteId,
    /// The `write_id` of the append that reserved the current attempt.
    pub reservation_id: WriteId,
    /// What is known.
    pub state: State,
    /// The number of the key's first attempt since it was last forgotten.
    pub first_attempt: u64,
    /// The current attempt: the fencing number.
    pub attempt: u64,
    /// The caller's label for the attempt; proves nothing.
    pub attempt_id: String,
    /// What the key is bound to.
    pub request: Request,
    /// A late word says that something may have happened, and no person has decided since.
    pub in_doubt: bool,
    /// Whether any attempt of this key was ever AMBIGUOUS.
    pub doubted: bool,
    /// How many attempts are proven not to have happened; the idempotency key derives from it.
    pub proven_failures: u64,
    /// How the current attempt's child ended, where that is known.
    pub ending: Option<Ending>,
    /// The newest decision about it.
    pub resolution: Option<Resolution>,
    /// The workflow run that this effect belongs to.
    pub run_id: Option<String>,
    /// When the first event was recorded.
    pub created_at: Timestamp,
    /// When the newest event was recorded.
    pub updated_at: Timestamp,
}

impl Record {
    /// Whether this record is held by `holder`: attempt number **and** reservation are theirs
    /// (EFF ownership clause). Never by attempt id, host, pid or version.
    #[must_use]
    pub fn is_held_by(&self, holder: Holder) -> bool {
        self.attempt == holder.attempt && self.reservation_id == holder.reservation_id
    }

    /// When the lease ends; `None` in the states that have none.
    #[must_use]
    pub fn lease_expires_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Reserved { lease_expires_at } | State::Executing { lease_expires_at } => {
                Some(lease_expires_at)
            }
            State::Committed { .. } | State::Failed { .. } | State::Ambiguous { .. } => None,
        }
    }

    /// Whether there is a lease and it has ended by `now` of the store's clock.
    #[must_use]
    pub fn is_lapsed(&self, now: Timestamp) -> bool {
        self.lease_expires_at().is_some_and(|end| end <= now)
    }

    /// Whether a decision is needed: AMBIGUOUS, or a lease that has ended.
    #[must_use]
    pub fn is_stuck(&self, now: Timestamp) -> bool {
        matches!(self.state, State::Ambiguous { .. }) || self.is_lapsed(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::key::Fingerprint;
    use uuid::Uuid;

    fn record(state: State) -> Record {
        Record {
            key: Key::new("k").unwrap(),
            revision: 1,
            write_id: WriteId(Uuid::nil()),
            reservation_id: WriteId(Uuid::nil()),
            state,
            first_attempt: 1,
            attempt: 1,
            attempt_id: "a".to_owned(),
            request: Request {
                fingerprint: Fingerprint([0; 32]),
                program: "p".to_owned(),
                arguments: 0,
                command: None,
            },
            in_doubt: false,
            doubted: false,
            proven_failures: 0,
            ending: None,
            resolution: None,
            run_id: None,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
        }
    }

    #[test]
    fn a_decision_is_needed_of_what_is_ambiguous_or_lapsed_and_of_nothing_else() {
        // EFF-5
        let lease = Timestamp(10);
        for (state, name, before, after) in [
            (State::Reserved { lease_expires_at: lease }, "reserved", false, true),
            (State::Executing { lease_expires_at: lease }, "executing", false, true),
            (State::Committed { by: CommittedBy::OwnWord }, "committed", false, false),
            (State::Failed { by: FailedBy::Person }, "failed", false, false),
            (State::Ambiguous { cause: Cause::Exit, reaped: true }, "ambiguous", true, true),
        ] {
            let record = record(state);
            assert_eq!(record.state.name(), name);
            assert_eq!(record.is_stuck(Timestamp(9)), before, "{name}");
            assert_eq!(record.is_stuck(Timestamp(10)), after, "{name}: its end is not of it");
        }
    }

    #[test]
    fn a_cause_has_the_name_that_it_is_stored_by() {
        // EFF-2
        for cause in [
            Cause::Lapsed,
            Cause::Exit,
            Cause::Signal,
            Cause::Timeout,
            Cause::Contradiction,
            Cause::LateOutcome,
            Cause::Reopened,
        ] {
            let name = format!("\"{}\"", cause.name());
            assert_eq!(serde_json::to_string(&cause).unwrap(), name);
        }
    }
}
