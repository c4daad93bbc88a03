//! The run aggregate: a workflow's run, driven by ticks (WFL clauses).
//!
//! | file | what it does |
//! |---|---|
//! | [`types`](self) | what a run is made of, as stores keep it |
//! | [`definition`](self) | a workflow as its file says it |
//! | [`check`](mod@check) | what is wrong with one, and where |
//! | [`fill`](mod@fill) | what a node runs, with its placeholders filled |
//! | [`event`](self), [`evolve`] | what can happen to a run, and what its history folds into |
//! | [`tick`](mod@tick) | what a run does next |
//! | [`pace`] | when a tick that lost a race is tried again |
//! | [`write`](mod@write) | one conditional write of a run: load, tick, append, settle |
pub mod check;
mod definition;
mod event;
pub mod fill;
mod fold;
mod inbox;
pub mod pace;
pub mod tick;
mod types;
pub mod write;

pub use definition::{
    BACKOFF, BACKOFF_MAX, BadInputs, Definition, Difference, Given, LEASE, NodeSpec, RUN, RunSpec,
    STDOUT, WaitSpec, What, hash,
};
pub use event::{DispatchedWhy, RunEvent};
pub use fold::{Unfolded, evolve, is_transition};
pub use types::{
    Asked, BadName, Claim, Dispatch, DispatchRef, Expected, Hash, InboxId, InboxItem,
    NAME_BYTES_MAX, Name, Node, NodeState, Progress, RUN_BYTES_MAX, Run, RunAppend, RunHistoryRow,
    RunId, Status, Taken, Tier, Wakeup, Wish,
};
