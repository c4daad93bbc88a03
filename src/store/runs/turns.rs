//! Whose turn it is: within a tier the workflows are served one after the other, in the order of their
//! names and round again, however many each has waiting (WFL-12).
//!
//! Each process goes its own round. Nothing of it is stored: a round that begins anew, or several at
//! once, still pass every workflow, and none waits for another's million.
use crate::plan::workflow::Tier;

/// So many workflows with nothing due are passed before the oldest of the whole tier is taken
/// instead: a claim's cost must not grow with the number of workflows that wait for a later time. The
/// next claim goes on behind them, so none is passed for ever.
pub const IDLE_MAX: usize = 64;

/// Which workflow was served last, of every tier.
#[derive(Debug, Clone, Default)]
pub struct Round([String; Tier::ALL.len()]);

/// The rounds of the two queues.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    /// That of wakeups.
    pub wakeups: Round,
    /// That of dispatches.
    pub dispatches: Round,
}

impl Round {
    /// The workflow of `tier` that was served last; empty where none was.
    #[must_use]
    pub fn last(&self, tier: Tier) -> &str {
        &self.0[place(tier)]
    }

    /// `workflow` was served, or passed.
    pub fn passed(&mut self, tier: Tier, workflow: &str) {
        workflow.clone_into(&mut self.0[place(tier)]);
    }
}

fn place(tier: Tier) -> usize {
    match tier {
        Tier::Urgent => 0,
        Tier::Normal => 1,
        Tier::Background => 2,
    }
}
