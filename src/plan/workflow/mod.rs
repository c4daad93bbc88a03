//! The run aggregate: a workflow's run, driven by ticks (WFL clauses).
//!
//! | file | what it does |
//! |---|---|
//! | [`names`](self), [`types`](self), [`append`](self) | what a run is made of, as stores keep it |
//! | [`definition`](self) | a workflow as its file says it |
//! | [`check`](mod@check) | what is wrong with one, and where |
//! | [`fill`](mod@fill) | what a node runs, with its placeholders filled |
//! | [`event`](self), [`evolve`] | what can happen to a run, and what its history folds into |
//! | [`tick`](mod@tick) | what a run does next |
//! | [`pace`] | when a tick that lost a race is tried again |
//! | [`write`](mod@write) | one conditional write of a run: load, tick, append, settle |
mod append;
pub mod check;
mod definition;
mod event;
pub mod fill;
mod fold;
mod inbox;
mod names;
pub mod pace;
pub mod tick;
mod types;
pub mod write;

pub use append::{
    Claim, Dispatch, DispatchRef, InboxId, InboxItem, RunAppend, Taken, Wakeup, Wish,
};
pub use definition::{
    BACKOFF, BACKOFF_MAX, BadInputs, Definition, Difference, Given, LEASE, NodeSpec, RUN, RunSpec,
    STDOUT, WaitSpec, What, hash,
};
pub use event::{DispatchedWhy, RunEvent};
pub use fold::{Unfolded, evolve, is_transition};
pub use names::{BadName, Hash, NAME_BYTES_MAX, Name, RUN_BYTES_MAX, RunId};
pub use types::{Asked, Expected, Node, NodeState, Progress, Run, RunHistoryRow, Status, Tier};
