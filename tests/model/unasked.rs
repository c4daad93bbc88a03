//! What the model's store says of workflow runs, of which it has none: they are a machine of their own.
use std::time::Duration;

use ctrlrun::plan::key::Key;
use ctrlrun::plan::workflow::{
    Dispatch, DispatchRef, InboxItem, RunAppend, RunHistoryRow, RunId, Wakeup,
};
use ctrlrun::store::runs::{
    Claimed, EffectsFound, ListedRun, RunFilter, RunFound, RunReread, Take, Woken,
};
use ctrlrun::store::{CouldNot, End, Flow, Reason, Runs};
use uuid::Uuid;

/// A store without runs.
pub struct Unasked;

fn none() -> CouldNot {
    CouldNot { reason: Reason::Unfit, message: "the model has no runs".to_owned(), hint: None }
}

impl Runs for Unasked {
    fn load_run(&self, _: &RunId, _: Duration) -> Result<RunFound, CouldNot> {
        Err(none())
    }

    fn load_effects(&self, _: &[Key], _: &[Key], _: Duration) -> Result<EffectsFound, CouldNot> {
        Err(none())
    }

    fn append_run(&self, _: &RunAppend, _: Duration) -> End {
        End::NotCommitted(none())
    }

    fn reread_run(&self, _: &RunId, _: u64, _: Duration) -> Result<RunReread, CouldNot> {
        Err(none())
    }

    fn list_runs(
        &self,
        _: &RunFilter,
        _: &mut dyn FnMut(ListedRun) -> Flow,
        _: Duration,
    ) -> Result<(), CouldNot> {
        Err(none())
    }

    fn run_history(&self, _: &RunId, _: u64, _: Duration) -> Result<Vec<RunHistoryRow>, CouldNot> {
        Err(none())
    }

    fn put_inbox(&self, _: &InboxItem, _: Duration) -> End {
        End::NotCommitted(none())
    }

    fn claim_wakeups(&self, _: &Take<'_>, _: Duration) -> Result<Claimed<Woken>, CouldNot> {
        Err(none())
    }

    fn finish_wakeups(&self, _: &[Wakeup], _: Duration) -> End {
        End::NotCommitted(none())
    }

    fn requeue(&self, _: &[Wakeup], _: &Wakeup, _: Duration) -> End {
        End::NotCommitted(none())
    }

    fn claim_dispatches(&self, _: &Take<'_>, _: Duration) -> Result<Claimed<Dispatch>, CouldNot> {
        Err(none())
    }

    fn postpone_dispatch(&self, _: &DispatchRef, _: Uuid, _: Duration, _: Duration) -> End {
        End::NotCommitted(none())
    }
}
