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
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::plan::effect::WriteId;
use crate::plan::expect::StreamState;
use crate::plan::key::{Fingerprint, Key};
use crate::plan::time::Timestamp;

/// The most bytes a run's name may have: with a slash and a node's name it is still a key (KEY-1).
pub const RUN_BYTES_MAX: usize = 256;

/// The most bytes a node's, a workflow's, an input's or a signal's name may have.
pub const NAME_BYTES_MAX: usize = 128;

/// A run's name. It is a key (KEY-1) of at most [`RUN_BYTES_MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RunId(String);

/// The name of a node, a workflow, an input or a signal: letters, digits, `_` and `-`, beginning
/// with a letter or a digit (WFL-1). It holds no slash, so that `RUN/NODE` is one run's node only,
/// and no dot, so that `{NODE.stdout}` is no input's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// A text that cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadName(String);

impl RunId {
    /// A run's name of these bytes.
    ///
    /// # Errors
    /// [`BadName`] for what cannot be one.
    pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
        let text = text.into();
        if text.len() > RUN_BYTES_MAX {
            let why =
                format!("it has {} bytes; a run's name has at most {RUN_BYTES_MAX}", text.len());
            return Err(BadName(why));
        }
        match Key::new(text.clone()) {
            Ok(_) => Ok(Self(text)),
            Err(error) => Err(BadName(error.to_string().replace("the key", "the run's name"))),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Name {
    /// A name of these bytes.
    ///
    /// # Errors
    /// [`BadName`] for what cannot be one.
    pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
        let text = text.into();
        if text.len() > NAME_BYTES_MAX {
            let why = format!("it has {} bytes; a name has at most {NAME_BYTES_MAX}", text.len());
            return Err(BadName(why));
        }
        let is_first = |c: char| c.is_ascii_alphanumeric();
        let is_rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if text.starts_with(is_first) && text.chars().all(is_rest) {
            Ok(Self(text))
        } else {
            let why = format!(
                "{text:?} cannot be a name: letters, digits, _ and - only, a letter or a digit first"
            );
            Err(BadName(why))
        }
    }

    /// The name of a workflow that is not known yet.
    pub(super) fn nothing() -> Self {
        Self(String::new())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A SHA-256, in hexadecimal where it is text: of a definition, or of a run's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = text
            .strip_prefix("sha256:")
            .and_then(|hex| data_encoding::HEXLOWER.decode(hex.as_bytes()).ok())
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| serde::de::Error::custom("no hash"))
    }
}

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

/// Identifies an item of an inbox; drawn by whoever puts it there, so that putting it twice puts it
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InboxId(pub Uuid);

/// Something that is wanted of a run. Only a tick writes the run's row, so it waits here for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxItem {
    /// Identifies it.
    pub id: InboxId,
    /// The run.
    pub run: RunId,
    /// What is wanted.
    pub wish: Wish,
    /// When it was put there, by the store's clock; zero when it is handed to the store.
    pub at: Timestamp,
}

/// See [`InboxItem`]. Each is the same if it comes twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "wish", rename_all = "snake_case")]
pub enum Wish {
    /// End, once nothing is in flight.
    Cancel(Asked),
    /// A signal has come.
    Signal {
        /// Its name.
        name: Name,
        /// What it carries.
        payload: String,
        /// Who sent it.
        by: String,
    },
    /// Go on by another definition.
    Definition {
        /// The hash of the one that it replaces: on any other it is not applied.
        from: Hash,
        /// The new one, in canonical JSON.
        definition: String,
        /// Who accepted it.
        by: String,
    },
}

/// Which dispatch it is: of a node's dispatches only the newest is there, and `put_id` tells them
/// apart. A reserve that carries it holds only while it is there (WFL clause on stale dispatches).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DispatchRef {
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: Name,
    /// The `write_id` of the tick that put it there.
    pub put_id: WriteId,
}

/// A node that is to be run. It outlives the worker that took it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// Which it is.
    pub id: DispatchRef,
    /// Its effect.
    pub key: Key,
    /// The attempt that it is for.
    pub attempt: u64,
    /// What the reserve is held to.
    pub expect: Expected,
    /// Before this nobody is handed it, by the store's clock.
    pub due: Timestamp,
    /// Who has it, until when.
    pub claim: Option<Claim>,
}

/// Somebody works at it: nobody else is handed it before `until`, by the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Drawn by whoever claims.
    pub id: Uuid,
    /// When it is handed out again.
    pub until: Timestamp,
}

/// A reason to tick a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wakeup {
    /// Unique to what caused it: `KEY/REVISION` of an effect, `RUN/RECORD_VERSION/COUNT` of a
    /// requeue, `inbox/ID`, `RUN/RECORD_VERSION/due` of a time.
    pub key: String,
    /// The write that put it there. One that is put again, under the same key, gets another, so
    /// that whoever saw the first does not take away the second.
    pub put_id: WriteId,
    /// The run.
    pub run: RunId,
    /// Before this it wakes nobody, by the store's clock.
    pub due: Timestamp,
    /// How often the run was requeued without progress.
    pub count: u32,
    /// The run's `last_transition_seq` when that count began.
    pub since_seq: u64,
}

/// One conditional write of a run: what one committed tick writes, in one transaction.
///
/// Every try of it carries this same value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAppend {
    /// The row the tick was made on, and the condition of the write: it must still stand at this
    /// revision with this `write_id`. `None`: there must be no row.
    pub found: Option<Run>,
    /// The row to be written.
    pub next: Run,
    /// Its events, the last of which is at `next.revision`.
    pub history: Vec<RunHistoryRow>,
    /// Items of the inbox that it consumes: they are deleted.
    pub consumed: Vec<InboxId>,
    /// Dispatches that are taken away: settled, or withdrawn.
    pub dispatches_deleted: Vec<Taken>,
    /// Dispatches to be put, after those were taken away. Each is the node's only one.
    pub dispatches_put: Vec<Dispatch>,
    /// Wakeups that were seen before all else was loaded: they are deleted, by key and `put_id`.
    /// One that is not there any more is no matter.
    pub wakeups_deleted: Vec<(String, WriteId)>,
    /// Wakeups to be put.
    pub wakeups_put: Vec<Wakeup>,
}

/// A dispatch that a tick takes away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Which; one that is not there any more is no matter.
    pub id: DispatchRef,
    /// It was not started, as far as was seen: the whole append holds only if its effect, `key`,
    /// still stands at this revision (`None`: there is none), asked **after** the dispatch was
    /// deleted. `None`: it is settled, and nothing is asked.
    pub unstarted: Option<(Key, Option<u64>)>,
}
