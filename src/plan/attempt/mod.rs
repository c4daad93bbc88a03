//! One attempt at one effect, as a state machine without I/O: reserve, begin, start, watch and
//! renew, settle, spool (EXE clauses).
//!
//! | it says | the driver does | and answers with |
//! |---|---|---|
//! | [`Do::Store`] | one step of a conditional write | [`Came::Store`] |
//! | [`Do::Granted`] | asked for by [`Attempt::gated`]: waits for a place, or gives up waiting | [`Came::Begin`], [`Came::Release`] |
//! | [`Do::Start`] | starts the child, unless the moment has passed | [`Came::Started`], [`Came::NotStarted`], [`Came::TooLate`] |
//! | [`Do::Watch`] | waits for the child's end, a renewal's, or the moment | [`Came::Ended`], [`Came::Renewed`], [`Came::Due`] |
//! | [`Do::Renew`] | runs that write beside the child, and goes on watching | |
//! | [`Do::EndChild`] | TERM to the child's group, KILL after the grace, and goes on watching | |
//! | [`Do::Spool`] | writes the outcome to a local file | [`Came::Spooled`] |
//! | [`Do::Unspool`] | removes that file | [`Came::Unspooled`] |
//! | [`Do::Over`] | nothing more | |
//!
//! Each of reserve, begin, start, end and settle is durable before the next (EXE-1). The driver has
//! ended a renewal, and handed over what came of it, before it hands over the child's end: one
//! writer of one record per process (EXE-7).
mod machine;

pub use machine::Attempt;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::effect::{
    Ending, Holder, Labels, OutcomeId, RanOn, Record, Refusal, Request, Settle, Verdict,
};
use super::expect::StreamState;
use super::key::Key;
use super::protocol::{Captured, CouldNot, Done, Handle, Input, Kept, Known, Step};
use super::time::{Moment, Timestamp};
use super::verdict::{ChildEnd, NotExecuted};
use super::workflow::DispatchRef;

/// The longest lease of a reservation that has not begun (EXE-7).
pub const RESERVED_LEASE_MAX: Duration = Duration::from_secs(30);

/// The shortest lease (EXE-7).
pub const LEASE_MIN: Duration = Duration::from_secs(1);

/// What is to be attempted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Order {
    /// The effect.
    pub key: Key,
    /// What its key is to be bound to.
    pub request: Request,
    /// The caller's label for this attempt.
    pub attempt_id: String,
    /// The stream state that the reserve is held to.
    pub expect: StreamState,
    /// The most attempts since the key was last forgotten.
    pub max_attempts: Option<u64>,
    /// Whether another command may be bound to a key resolved as not executed.
    pub rebind: bool,
    /// The full lease.
    pub lease: Duration,
    /// Where it runs: evidence.
    pub ran_on: RanOn,
    /// The caller's marks: evidence.
    pub labels: Labels,
    /// The exit codes that prove that nothing happened.
    pub not_executed: NotExecuted,
    /// How long one store command may take.
    pub store_timeout: Duration,
    /// Identifies what comes of this attempt's child.
    pub outcome_id: OutcomeId,
    /// That the key is new, where that is the likeliest and a look would cost more (CMT-16).
    pub guess: Option<Known>,
    /// The dispatch that it acts on, of a workflow's node: the reserve holds only while that is
    /// there, and the effect belongs to its run.
    pub dispatch: Option<DispatchRef>,
}

/// What the driver is to do next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
pub enum Do {
    /// Perform one step of a conditional write.
    Store(Step),
    /// It is reserved: begin when there is a place for the child. Only a gated attempt says so.
    Granted,
    /// Start the child, as late as `not_after` at most (EXE-8).
    Start {
        /// Whose attempt it is.
        holder: Holder,
        /// What the idempotency key derives from, beside the key.
        proven_failures: u64,
        /// The end of our own lease: from then on the child must not be started.
        not_after: Moment,
    },
    /// Wait for the child's end, or a running renewal's, or for this moment.
    Watch {
        /// When the lease is to be renewed.
        until: Moment,
    },
    /// Run this write beside the child.
    Renew(Box<Handle>),
    /// End the child's group: its record says that it must not go on (EXE-9).
    EndChild,
    /// Keep the outcome in a local file (EXE-24).
    Spool(Box<Undelivered>),
    /// The outcome is recorded: remove its file.
    Unspool(OutcomeId),
    /// It is over.
    Over(Box<Report>),
}

/// What the driver answers with.
#[derive(Debug)]
pub enum Came {
    /// The first call.
    Call,
    /// A step's answer.
    Store(Box<Input>),
    /// There is a place for the child.
    Begin,
    /// There is none, for this reason: the reservation is given back, settled never started.
    Release {
        /// One line for a person.
        detail: String,
    },
    /// The renewal runs beside the child, or the child's group has been told to end.
    UnderWay,
    /// The child runs.
    Started,
    /// It could not be started, for this reason, and nothing ran.
    NotStarted {
        /// One line for a person.
        detail: String,
    },
    /// The moment had passed: it was not started.
    TooLate,
    /// The moment to renew has come.
    Due,
    /// A renewal has ended.
    Renewed(Done),
    /// The child has ended.
    Ended {
        /// How.
        end: ChildEnd,
        /// What it wrote to standard output; `None` if that was not captured.
        stdout: Option<Captured>,
        /// The same of standard error.
        stderr: Option<Captured>,
    },
    /// The outcome is in the file, or could not be kept there.
    Spooled(Result<(), String>),
    /// This process is told to end, instead of the pause: where the outcome is in the spool it need
    /// not be tried on.
    GiveUp,
    /// The file is removed, or will be delivered once more, which does no harm.
    Unspooled,
}

/// An outcome that the store has not taken yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Undelivered {
    /// The effect.
    pub key: Key,
    /// The outcome.
    pub settle: Settle,
    /// The output that goes with it.
    pub outputs: Vec<Kept>,
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Report {
    /// The child was started.
    pub ran: bool,
    /// The holder, if the attempt was granted.
    pub holder: Option<Holder>,
    /// How it ended.
    pub result: Outcome,
    /// The record, as last seen.
    pub record: Option<Record>,
    /// The store's clock when it was last read.
    pub now: Option<Timestamp>,
    /// Whether the outcome is in the spool: `None` if there was no need.
    pub spooled: Option<Result<(), String>>,
    /// The holder learned, while its child ran, that the record was no longer its own.
    pub lost: bool,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The outcome is recorded as this attempt's.
    Settled {
        /// What came of it.
        verdict: Verdict,
        /// How the child ended, or why it was not started.
        ending: Ending,
    },
    /// It happened in an earlier attempt; nothing was run.
    CommittedAlready,
    /// Refused; nothing was run.
    Refused(Refusal),
    /// The store could not be used; nothing was run.
    CouldNot(CouldNot),
    /// Whether the reservation or the begin is written stayed unknown; nothing was run.
    Unknown(CouldNot),
    /// The child's outcome is known and is not recorded as this attempt's (exit 74).
    NotRecorded {
        /// The outcome.
        undelivered: Box<Undelivered>,
        /// Why it is not.
        why: NotRecorded,
    },
}

/// Why an outcome is not recorded as its attempt's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NotRecorded {
    /// The record was no longer ours: it is kept in the history as a late outcome.
    Late,
    /// The effect was forgotten meanwhile.
    Forgotten,
    /// The store could not take it, or did not say that it had.
    Store(CouldNot),
}
