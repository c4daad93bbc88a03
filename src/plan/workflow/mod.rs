//! The run aggregate: a workflow's run, driven by ticks (WFL clauses).
mod event;
mod types;

pub use event::{DispatchedWhy, RunEvent};
pub use types::{
    Asked, BadName, Claim, Dispatch, DispatchRef, Expected, Hash, InboxId, InboxItem,
    NAME_BYTES_MAX, Name, Node, NodeState, Progress, RUN_BYTES_MAX, Run, RunAppend, RunHistoryRow,
    RunId, Status, Taken, Tier, Wakeup, Wish,
};
