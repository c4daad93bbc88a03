//! What waits for a tick or a worker, and what one committed tick writes.
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::names::{Hash, Name, RunId};
use super::types::{Asked, Expected, Run, RunHistoryRow};
use crate::plan::effect::WriteId;
use crate::plan::key::Key;
use crate::plan::time::Timestamp;

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
