//! The only room that knows stores and executors: it performs the steps that `plan` names and feeds
//! the answers back. It decides nothing.
pub mod batch;
pub mod bus;
pub mod deliver;
pub mod handle;
pub mod host;
pub mod integrity;
pub mod journal;
pub mod persist;
pub mod prune;
pub mod reach;
pub mod reconcile;
pub mod remember;
pub mod run;
pub mod spool;
pub mod workflow;

pub use handle::{Call, handle};
