//! What can be asked of an effect, and what can be answered.
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Cause, Ending, Event, Labels, OutcomeId, RanOn, Request, WriteId};
use crate::plan::expect::Conflict;
use crate::plan::time::Timestamp;

/// Who holds, or held, an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// The fencing number that the store granted.
    pub attempt: u64,
    /// The `write_id` of the append that granted it.
    pub reservation_id: WriteId,
}

/// A command to one effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Command {
    /// Take the key for one attempt.
    Reserve(Reserve),
    /// Declare that the command is about to be started.
    Begin(Begin),
    /// Say that the holder is alive.
    Renew {
        /// Whose lease.
        holder: Holder,
        /// Its new length, from the store's now.
        lease: Duration,
    },
    /// Record what came of it.
    Settle(Settle),
    /// A person says what is so.
    Resolve(Resolve),
    /// A person takes a decision back.
    Reopen {
        /// Who.
        by: String,
        /// Why.
        reason: String,
        /// The revision that was looked at.
        looked_at: u64,
    },
    /// Notice a lapsed lease, and nothing more.
    Contend,
    /// A probe answered.
    Probed(Probe),
}

impl Command {
    /// The settle that it is, if it is one.
    #[must_use]
    pub fn settle(&self) -> Option<&Settle> {
        match self {
            Self::Settle(settle) => Some(settle),
            Self::Reserve(_)
            | Self::Begin(_)
            | Self::Renew { .. }
            | Self::Resolve(_)
            | Self::Reopen { .. }
            | Self::Contend
            | Self::Probed(_) => None,
        }
    }
}

/// See [`Command::Reserve`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reserve {
    /// What the key is to be bound to.
    pub request: Request,
    /// The caller's label.
    pub attempt_id: String,
    /// How long the holder may take to begin.
    pub lease: Duration,
    /// The most attempts since the key was last forgotten.
    pub max_attempts: Option<u64>,
    /// Whether another command may be bound to a key that was resolved as not executed.
    pub rebind: bool,
    /// The workflow run it belongs to.
    pub run_id: Option<String>,
}

/// See [`Command::Begin`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Begin {
    /// Who begins.
    pub holder: Holder,
    /// The full lease, from the store's now.
    pub lease: Duration,
    /// Where: evidence.
    pub ran_on: RanOn,
    /// The caller's marks.
    pub labels: Labels,
}

/// What a holder says of its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It happened.
    Committed,
    /// It ran, and by its own word nothing happened.
    Failed,
    /// It was never started.
    NeverStarted,
    /// Nobody knows.
    Ambiguous {
        /// Why.
        cause: Cause,
        /// The child was reaped, was not timed out, and left no descendant.
        reaped: bool,
    },
}

impl Verdict {
    /// Whether this word leaves open that something happened.
    #[must_use]
    pub fn may_have_happened(self) -> bool {
        match self {
            Self::Committed | Self::Ambiguous { .. } => true,
            Self::Failed | Self::NeverStarted => false,
        }
    }
}

/// See [`Command::Settle`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settle {
    /// Whose word it is.
    pub holder: Holder,
    /// The child's; the same in every settle of it.
    pub outcome_id: OutcomeId,
    /// What came of it.
    pub verdict: Verdict,
    /// How the child ended.
    pub ending: Ending,
}

/// See [`Command::Resolve`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resolve {
    /// What is so; never [`ProbeAnswer::Unknown`].
    pub decision: ProbeAnswer,
    /// Who says so.
    pub by: String,
    /// How they know.
    pub reason: String,
    /// The revision that was looked at.
    pub looked_at: u64,
}

/// What a person or a probe says of the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeAnswer {
    /// It happened.
    Committed,
    /// It did not; of a probe: it has not so far.
    NotExecuted,
    /// It cannot tell.
    Unknown,
}

/// See [`Command::Probed`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Probe {
    /// What it said.
    pub answer: ProbeAnswer,
    /// `reconcile:NAME`.
    pub by: String,
    /// Whether the effect declares that the probe makes a later execution impossible.
    pub reconcile_final: bool,
    /// The revision read before it started.
    pub looked_at: u64,
}

/// What `decide` makes of a command: what to append, and what to tell the caller.
///
/// Both may be present with a refusal: a contender that meets a lapsed lease writes AMBIGUOUS and
/// is refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
pub struct Decision {
    /// To be appended in one write; none means that nothing is written.
    pub events: Vec<Event>,
    /// For the caller, once they have landed.
    pub answer: Answer,
}

/// What the caller is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The attempt is the caller's: it may begin.
    Granted,
    /// The command may be started.
    Start,
    /// The lease was renewed, to this end on the store's clock.
    Renewed {
        /// The lease's new end.
        lease_expires_at: Timestamp,
    },
    /// The holder no longer holds the record.
    Lost,
    /// The outcome is the record's.
    Settled,
    /// The same outcome was recorded before.
    Delivered,
    /// The outcome is kept as evidence, not as the record's.
    KeptAsLate,
    /// There is no such effect (any more): nothing was created.
    Forgotten,
    /// The decision is the record's.
    Resolved,
    /// The record stood so already, by the same decision.
    AlreadySo,
    /// A lapsed lease was noticed.
    Contended,
    /// The probe's answer was kept, and the record stays as it was.
    ProbeKept,
    /// There was nothing to do.
    Nothing,
    /// Already committed.
    CommittedAlready,
    /// Refused.
    Refused(Refusal),
}

/// Where the word of a child ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recorded {
    /// It is the record's outcome, now or since an earlier delivery of the same word.
    Ours,
    /// It is in the history, as a late outcome.
    Late,
    /// Nowhere: the effect was forgotten.
    Forgotten,
}

impl Answer {
    /// What the answer to a settle says; `None` if it is no answer to one.
    #[must_use]
    pub fn recorded(&self) -> Option<Recorded> {
        match self {
            Self::Settled | Self::Delivered => Some(Recorded::Ours),
            Self::KeptAsLate => Some(Recorded::Late),
            Self::Forgotten => Some(Recorded::Forgotten),
            Self::Granted
            | Self::Start
            | Self::Renewed { .. }
            | Self::Lost
            | Self::Resolved
            | Self::AlreadySo
            | Self::Contended
            | Self::ProbeKept
            | Self::Nothing
            | Self::CommittedAlready
            | Self::Refused(_) => None,
        }
    }
}

/// Why a command was refused. The record found goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The stream state expected did not hold (exit 79).
    Expectation(Conflict),
    /// The key is bound to a different command (exit 65).
    Mismatch,
    /// Another attempt holds the key (exit 75).
    InProgress,
    /// The lease ended before the command was begun (exit 75); nothing was started.
    TooLate,
    /// The attempt is no longer the caller's (exit 75); nothing was started.
    NotOurs,
    /// AMBIGUOUS: a person or a probe decides first (exit 76).
    Ambiguous,
    /// The attempts are used up (exit 72).
    MaxAttempts,
    /// A person's decision cannot touch a live attempt (exit 75).
    Live,
    /// It is settled already, otherwise (exit 73).
    SettledOtherwise,
    /// There is no such effect (exit 66).
    NoSuchEffect,
}
