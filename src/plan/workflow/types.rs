//! What a run is made of, as stores keep it (WFL clauses): the run's record and its history, what
//! waits in its inbox, what is dispatched to a worker, and what wakes it.
//!
//! | | who writes it | who takes it away |
//! |---|---|---|
//! | [`Run`] | a committed tick, and nobody else | nobody |
//! | [`RunHistoryRow`] | the same append | nobody |
//! | [`InboxItem`] | whoever wants something of the run | the tick that consumes it |
//! | [`Dispatch`] | the tick that wants a node to run | the tick that sees it settled, replaces it, or ends the run |
//! | [`Wakeup`] | whatever changed something a tick depends on | whoever ticked after it |
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::names::{Hash, Name, RunId};
use crate::plan::effect::WriteId;
use crate::plan::expect::StreamState;
use crate::plan::key::{Fingerprint, Key};
use crate::plan::time::Timestamp;

/// Which wakeups and dispatches go first: all of a lower tier before any of a higher one.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Before all others.
    Urgent,
    /// Where nothing else is said.
    #[default]
    Normal,
    /// When there is nothing else to do.
    Background,
}

impl Tier {
    /// All, the first to go first.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Normal, Self::Background];

    /// Its number in stores: the lowest goes first.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Self::Urgent => 0,
            Self::Normal => 1,
            Self::Background => 2,
        }
    }

    /// The tier of that number.
    #[must_use]
    pub fn of(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.number() == number)
    }
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It goes on, or waits for what will come by itself.
    Running,
    /// Nothing new is dispatched until a person, or a probe, has decided something (the reason).
    Blocked,
    /// It was told to end; nodes in flight are waited for.
    Cancelling,
    /// A node failed for good; nodes in flight are waited for.
    Failing,
    /// Every node is done.
    Succeeded,
    /// It ended without.
    Failed,
    /// It was told to end, and has.
    Cancelled,
}

impl Status {
    /// All.
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::Blocked,
        Self::Cancelling,
        Self::Failing,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Its name in stores, filters and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Cancelling => "cancelling",
            Self::Failing => "failing",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether the run has ended: nothing of it is dispatched any more.
    #[must_use]
    pub fn is_end(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
            Self::Running | Self::Blocked | Self::Cancelling | Self::Failing => false,
        }
    }
}

/// What a dispatched node's reserve is held to (WFL clause on dispatches).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// The effect must not exist.
    NoStream,
    /// The effect must stand at this revision, at which it was seen FAILED.
    Revision(u64),
}

impl Expected {
    /// The stream state that the reserve is held to.
    #[must_use]
    pub fn stream_state(self) -> StreamState {
        match self {
            Self::NoStream => StreamState::NoStream,
            Self::Revision(revision) => StreamState::Revision(revision),
        }
    }

    /// The revision that the effect must stand at; `None`: it must not exist.
    #[must_use]
    pub fn revision(self) -> Option<u64> {
        match self {
            Self::NoStream => None,
            Self::Revision(revision) => Some(revision),
        }
    }
}

/// A node of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// How many retries of a FAILED attempt were dispatched.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// How many dispatches came to nothing, one after the other, without its command having run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unstarted: u32,
    /// How it stands.
    #[serde(flatten)]
    pub state: NodeState,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How a node stands, with only the data that is valid in that state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum NodeState {
    /// It waits for the nodes that it needs.
    Pending,
    /// It is to be run, or is being run: in flight until its record is settled.
    Dispatched {
        /// Its effect.
        key: Key,
        /// The attempt that the dispatch is for.
        attempt: u64,
        /// What it is to be bound to: a record of another command is not this node's.
        fingerprint: Fingerprint,
        /// What the reserve is held to.
        expect: Expected,
        /// Before this it is not handed to a worker, by the store's clock.
        due: Timestamp,
    },
    /// It waits for a signal or a time.
    Waiting {
        /// The signal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<Name>,
        /// The time, by the store's clock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// What it waited for has come.
    Passed,
    /// Its effect is COMMITTED.
    Committed {
        /// Its effect.
        key: Key,
        /// The attempt that did it.
        attempt: u64,
        /// Where the record stood.
        revision: u64,
    },
    /// Its effect is FAILED, and its retries are used up.
    Failed {
        /// Its effect.
        key: Key,
        /// The last attempt.
        attempt: u64,
        /// Where the record stood.
        revision: u64,
        /// What its record says.
        detail: String,
    },
    /// Its effect is AMBIGUOUS: a person or a probe decides first.
    Ambiguous {
        /// Its effect.
        key: Key,
        /// The attempt nobody knows the outcome of.
        attempt: u64,
        /// Where the record stood.
        revision: u64,
        /// What its record says.
        detail: String,
        /// It was done, and a person took that back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reopened: bool,
    },
    /// It cannot be dispatched: what it needs of another node, or its key, cannot be had.
    Unfit {
        /// Why, for a person.
        why: String,
    },
    /// It was not run, and will not be: the run has ended.
    Skipped,
}

impl NodeState {
    /// Its name in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Dispatched { .. } => "dispatched",
            Self::Waiting { .. } => "waiting",
            Self::Passed => "passed",
            Self::Committed { .. } => "committed",
            Self::Failed { .. } => "failed",
            Self::Ambiguous { .. } => "ambiguous",
            Self::Unfit { .. } => "unfit",
            Self::Skipped => "skipped",
        }
    }

    /// The effect that it stands for, once it was dispatched.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Dispatched { key, .. }
            | Self::Committed { key, .. }
            | Self::Failed { key, .. }
            | Self::Ambiguous { key, .. } => Some(key),
            Self::Pending
            | Self::Waiting { .. }
            | Self::Passed
            | Self::Unfit { .. }
            | Self::Skipped => None,
        }
    }

    /// Whether those that need it may go on.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self {
            Self::Passed | Self::Committed { .. } => true,
            Self::Pending
            | Self::Dispatched { .. }
            | Self::Waiting { .. }
            | Self::Failed { .. }
            | Self::Ambiguous { .. }
            | Self::Unfit { .. }
            | Self::Skipped => false,
        }
    }
}

/// A run's newest state: the fold of its history (WFL clause on the record).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its name.
    pub id: RunId,
    /// The revision of its newest event; stored as `record_version`.
    pub revision: u64,
    /// Identifies the append that wrote this row.
    pub write_id: WriteId,
    /// The workflow's name: wakeups are shared out fairly among workflows.
    pub workflow: Name,
    /// Which wakeups and dispatches go first.
    pub tier: Tier,
    /// How it stands.
    pub status: Status,
    /// Why it stands so, for a person; of BLOCKED, FAILED and CANCELLED.
    pub reason: Option<String>,
    /// The definition that it runs by, in canonical JSON (WFL clause on the hash).
    pub definition: String,
    /// The hash of that text.
    pub definition_hash: Hash,
    /// What it was started with, beside the definition.
    pub inputs: BTreeMap<Name, String>,
    /// What its ticks carry from one to the next: nodes, signals, a wish to end.
    pub progress: Progress,
    /// The revision of the newest event that moved a node or the status: progress.
    pub last_transition_seq: u64,
    /// When it was started.
    pub created_at: Timestamp,
    /// When the newest event was recorded.
    pub updated_at: Timestamp,
}

/// The column `node_states`, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Every node of the definition.
    pub nodes: BTreeMap<Name, Node>,
    /// The signals that came, and what each carried. The first of a name counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub signals: BTreeMap<Name, String>,
    /// Who wants it to end, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Asked>,
}

/// A person's wish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Who.
    pub by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One event of a run as the store keeps it: revision N is the N-th event of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHistoryRow {
    /// Its place in the stream, from 1.
    pub revision: u64,
    /// The append that wrote it.
    pub write_id: WriteId,
    /// When, by the store's clock at the load.
    pub recorded_at: Timestamp,
    /// What happened.
    pub event: super::RunEvent,
}
