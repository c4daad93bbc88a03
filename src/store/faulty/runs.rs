//! The verbs of runs, with faults.
use std::time::Duration;

use uuid::Uuid;

use super::{Fault, Faulty, Verb, on_purpose};
use crate::plan::key::Key;
use crate::plan::workflow::{
    Dispatch, DispatchRef, InboxItem, RunAppend, RunHistoryRow, RunId, Wakeup,
};
use crate::store::runs::{
    Claimed, EffectsFound, ListedRun, RunAsRead, RunFilter, RunFound, RunReread, Runs, Take, Woken,
};
use crate::store::{CouldNot, End, Flow, Reason};

impl Faulty {
    fn read_runs<T>(
        &self,
        verb: Verb,
        within: Duration,
        read: impl FnOnce(&dyn Runs) -> Result<T, CouldNot>,
    ) -> Result<T, CouldNot> {
        match self.called(verb) {
            Some(Fault::Fail(reason)) => Err(on_purpose(reason)),
            // What a claim had taken is taken, though nobody learns of it.
            Some(Fault::LoseAnswer) => {
                drop(read(self.inner.runs()));
                Err(on_purpose(Reason::Unreachable))
            }
            Some(Fault::Refuse | Fault::LoseRequest | Fault::Late(_) | Fault::Held) => {
                Err(on_purpose(Reason::Unreachable))
            }
            None => {
                let answer = read(self.inner.runs());
                self.perform(Some(verb), within);
                answer
            }
        }
    }

    /// Of a write that is no run's append: it is performed or not, at once; it is never late.
    fn write_runs(&self, verb: Verb, write: impl FnOnce(&dyn Runs) -> End) -> End {
        match self.called(verb) {
            Some(Fault::Fail(reason)) => End::NotCommitted(on_purpose(reason)),
            Some(Fault::Refuse) => End::Refused,
            Some(Fault::LoseAnswer) => match write(self.inner.runs()) {
                End::Landed | End::Refused | End::NotCommitted(_) | End::Unknown(_) => {
                    End::Unknown(on_purpose(Reason::Unreachable))
                }
            },
            Some(Fault::LoseRequest | Fault::Late(_) | Fault::Held) => {
                End::Unknown(on_purpose(Reason::Unreachable))
            }
            None => write(self.inner.runs()),
        }
    }
}

impl Runs for Faulty {
    fn load_run(&self, run: &RunId, within: Duration) -> Result<RunFound, CouldNot> {
        self.read_runs(Verb::LoadRun, within, |inner| inner.load_run(run, within))
    }

    fn load_effects(
        &self,
        keys: &[Key],
        with_output: &[Key],
        within: Duration,
    ) -> Result<EffectsFound, CouldNot> {
        self.read_runs(Verb::LoadEffects, within, |inner| {
            inner.load_effects(keys, with_output, within)
        })
    }

    fn append_run(&self, append: &RunAppend, within: Duration) -> End {
        let late = |behind| {
            self.state().late_runs.push((behind, append.clone()));
            End::Unknown(on_purpose(Reason::Unreachable))
        };
        match self.called(Verb::AppendRun) {
            Some(Fault::Fail(reason)) => End::NotCommitted(on_purpose(reason)),
            Some(Fault::Refuse) => End::Refused,
            Some(Fault::LoseAnswer) => match self.inner.runs().append_run(append, within) {
                End::Landed | End::Refused | End::NotCommitted(_) | End::Unknown(_) => {
                    End::Unknown(on_purpose(Reason::Unreachable))
                }
            },
            Some(Fault::LoseRequest) => End::Unknown(on_purpose(Reason::Unreachable)),
            Some(Fault::Late(verb)) => late(Some(verb)),
            Some(Fault::Held) => late(None),
            None => {
                let end = self.inner.runs().append_run(append, within);
                self.perform(Some(Verb::AppendRun), within);
                end
            }
        }
    }

    fn reread_run(
        &self,
        run: &RunId,
        revision: u64,
        within: Duration,
    ) -> Result<RunReread, CouldNot> {
        self.read_runs(Verb::RereadRun, within, |inner| inner.reread_run(run, revision, within))
    }

    fn list_runs(
        &self,
        filter: &RunFilter,
        each: &mut dyn FnMut(ListedRun) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        self.inner.runs().list_runs(filter, each, within)
    }

    fn run_history(
        &self,
        run: &RunId,
        from: u64,
        within: Duration,
    ) -> Result<Vec<RunHistoryRow>, CouldNot> {
        self.inner.runs().run_history(run, from, within)
    }

    fn put_inbox(&self, item: &InboxItem, within: Duration) -> End {
        self.write_runs(Verb::PutInbox, |inner| inner.put_inbox(item, within))
    }

    fn claim_wakeups(&self, take: &Take<'_>, within: Duration) -> Result<Claimed<Woken>, CouldNot> {
        self.read_runs(Verb::ClaimWakeups, within, |inner| inner.claim_wakeups(take, within))
    }

    fn finish_wakeups(&self, wakeups: &[Wakeup], within: Duration) -> End {
        self.write_runs(Verb::FinishWakeups, |inner| inner.finish_wakeups(wakeups, within))
    }

    fn requeue(&self, wakeups: &[Wakeup], next: &Wakeup, within: Duration) -> End {
        self.write_runs(Verb::Requeue, |inner| inner.requeue(wakeups, next, within))
    }

    fn claim_dispatches(
        &self,
        take: &Take<'_>,
        within: Duration,
    ) -> Result<Claimed<Dispatch>, CouldNot> {
        self.read_runs(Verb::ClaimDispatches, within, |inner| inner.claim_dispatches(take, within))
    }

    fn postpone_dispatch(
        &self,
        dispatch: &DispatchRef,
        claim: Uuid,
        after: Duration,
        within: Duration,
    ) -> End {
        self.write_runs(Verb::PostponeDispatch, |inner| {
            inner.postpone_dispatch(dispatch, claim, after, within)
        })
    }

    fn forget_runs(&self, runs: &[RunAsRead], within: Duration) -> End {
        self.write_runs(Verb::ForgetRuns, |inner| inner.forget_runs(runs, within))
    }
}
