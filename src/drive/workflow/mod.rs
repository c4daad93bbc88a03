//! Drives runs of workflows (WFL clauses): loads, ticks, commits, runs what is dispatched. Any
//! number of these may be at one run; nothing holds a lock.
//!
//! | file | does |
//! |---|---|
//! | [`coordinator`] | one tick, with its retries; what becomes of a wakeup; the watchdog |
//! | [`node`] | one dispatch: the node's effect, run as any other |
//! | [`worker`] | some threads that do both |
pub mod coordinator;
pub mod node;
pub mod worker;

use std::sync::atomic::{AtomicU64, Ordering};

/// What was done, counted.
#[derive(Debug, Default)]
pub struct Counters {
    /// Ticks that were committed.
    pub ticks: Count,
    /// Ticks that found nothing to do.
    pub idle_ticks: Count,
    /// Races lost; no errors.
    pub conflicts: Count,
    /// Wakeups put back after every try had lost.
    pub requeues: Count,
    /// Runs ended by force because they only lost races.
    pub livelocks: Count,
    /// Runs ended by force by the watchdog.
    pub stuck: Count,
    /// Nodes whose command was run.
    pub ran: Count,
    /// Dispatches by which nothing was run: what they expected did not hold.
    pub stale: Count,
    /// What the store could not do, or did not say that it had.
    pub failures: Count,
}

/// One number of [`Counters`].
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to it.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// What it is.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
