//! A store around a store that does wrong on purpose, at a chosen call of a chosen verb (STO-1).
//!
//! It opens the windows that a test must not race for: the answer lost after a commit, the failure
//! before it, the commit that lands after everybody has looked.
mod runs;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{
    Append, Ask, Captured, CouldNot, Cut, End, Filter, Flow, Found, Identity, Listed, Pruned,
    Reason, Runs, Stats, Store, Stream, Walked,
};
use crate::plan::effect::HistoryRow;
use crate::plan::key::Key;
use crate::plan::workflow::RunAppend;

/// The verbs that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// [`Store::load`]
    Load,
    /// [`Store::append`]
    Append,
    /// [`Store::reread`]
    Reread,
    /// [`Runs::load_run`]
    LoadRun,
    /// [`Runs::load_effects`]
    LoadEffects,
    /// [`Runs::append_run`]
    AppendRun,
    /// [`Runs::reread_run`]
    RereadRun,
    /// [`Runs::put_inbox`]
    PutInbox,
    /// [`Runs::claim_wakeups`]
    ClaimWakeups,
    /// [`Runs::finish_wakeups`]
    FinishWakeups,
    /// [`Runs::requeue`]
    Requeue,
    /// [`Runs::claim_dispatches`]
    ClaimDispatches,
    /// [`Runs::postpone_dispatch`]
    PostponeDispatch,
    /// [`Runs::forget_runs`]
    ForgetRuns,
}

impl Verb {
    /// All.
    pub const ALL: [Self; 14] = [
        Self::Load,
        Self::Append,
        Self::Reread,
        Self::LoadRun,
        Self::LoadEffects,
        Self::AppendRun,
        Self::RereadRun,
        Self::PutInbox,
        Self::ClaimWakeups,
        Self::FinishWakeups,
        Self::Requeue,
        Self::ClaimDispatches,
        Self::PostponeDispatch,
        Self::ForgetRuns,
    ];

    /// Its name where a fault is told in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Append => "append",
            Self::Reread => "reread",
            Self::LoadRun => "load-run",
            Self::LoadEffects => "load-effects",
            Self::AppendRun => "append-run",
            Self::RereadRun => "reread-run",
            Self::PutInbox => "put-inbox",
            Self::ClaimWakeups => "claim-wakeups",
            Self::FinishWakeups => "finish-wakeups",
            Self::Requeue => "requeue",
            Self::ClaimDispatches => "claim-dispatches",
            Self::PostponeDispatch => "postpone-dispatch",
            Self::ForgetRuns => "forget-runs",
        }
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Fails before anything is done: of an append, provably nothing was committed.
    Fail(Reason),
    /// An append is not performed, and answered as if its condition had not held, whatever stands
    /// there: as of a trigger or a policy that swallows a row.
    Refuse,
    /// An append is committed (if its condition holds), and the answer is lost: unknown.
    LoseAnswer,
    /// An append is not performed, and nobody can tell: unknown.
    LoseRequest,
    /// An append is unknown, and is performed behind the next call of this verb: after a re-read
    /// has looked, or after another append was answered (T155d).
    Late(Verb),
    /// An append is unknown, and is performed when the test says so ([`Faulty::perform_late`]).
    Held,
}

/// A fault and where it falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// The verb.
    pub verb: Verb,
    /// Which call of it, from 1; many together are one call.
    pub call: u32,
    /// What goes wrong.
    pub fault: Fault,
}

/// Called before each call of a verb, with its number: a test does there what another process
/// would do meanwhile.
pub type Meanwhile = Box<dyn Fn(Verb, u32) + Send + Sync>;

/// A store that does wrong where it was told to, and is the wrapped store everywhere else.
pub struct Faulty {
    inner: Arc<dyn Store>,
    meanwhile: Option<Meanwhile>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    plan: Vec<Planned>,
    calls: BTreeMap<Verb, u32>,
    /// Appends that are still to be performed, each behind a call of a verb, or when told.
    late: Vec<(Option<Verb>, Append)>,
    /// The same of runs.
    late_runs: Vec<(Option<Verb>, RunAppend)>,
    /// The ends of those that were performed late.
    late_ends: Vec<End>,
    fallen: Vec<Planned>,
}

impl Faulty {
    /// `inner`, with these faults.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, plan: impl IntoIterator<Item = Planned>) -> Self {
        let state = State { plan: plan.into_iter().collect(), ..State::default() };
        Self { inner, meanwhile: None, state: Mutex::new(state) }
    }

    /// With something that happens before each call.
    #[must_use]
    pub fn meanwhile(mut self, meanwhile: Meanwhile) -> Self {
        self.meanwhile = Some(meanwhile);
        self
    }

    /// The faults that fell: a test in which one did not proves nothing.
    #[must_use]
    pub fn fallen(&self) -> Vec<Planned> {
        self.state().fallen.clone()
    }

    /// How many calls of a verb there were.
    #[must_use]
    pub fn calls(&self, verb: Verb) -> u32 {
        self.state().calls.get(&verb).copied().unwrap_or(0)
    }

    /// The ends of the appends that were performed late.
    #[must_use]
    pub fn late_ends(&self) -> Vec<End> {
        self.state().late_ends.clone()
    }

    /// Performs what is held back; the ends go to [`Faulty::late_ends`].
    pub fn perform_late(&self, within: Duration) {
        self.perform(None, within);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, lets happen what happens meanwhile, and names the fault that falls on it.
    fn called(&self, verb: Verb) -> Option<Fault> {
        let call = {
            let mut state = self.state();
            let count = state.calls.entry(verb).or_default();
            *count += 1;
            *count
        };
        if let Some(meanwhile) = &self.meanwhile {
            meanwhile(verb, call);
        }
        let mut state = self.state();
        let planned = state
            .plan
            .iter()
            .copied()
            .find(|planned| planned.verb == verb && planned.call == call)?;
        state.fallen.push(planned);
        Some(planned.fault)
    }

    fn perform(&self, behind: Option<Verb>, within: Duration) {
        let due = due_of(&mut self.state().late, behind);
        for append in due {
            let end = self.inner.append(&append, within);
            self.state().late_ends.push(end);
        }
        let due = due_of(&mut self.state().late_runs, behind);
        for append in due {
            let end = self.inner.runs().append_run(&append, within);
            self.state().late_ends.push(end);
        }
    }

    fn read(
        &self,
        verb: Verb,
        within: Duration,
        read: impl FnOnce() -> Result<Found, CouldNot>,
    ) -> Result<Found, CouldNot> {
        self.fallen_on(verb)?;
        let answer = read();
        self.perform(Some(verb), within);
        answer
    }

    fn read_many(
        &self,
        verb: Verb,
        asked: &[(&Key, Ask)],
        within: Duration,
        read: impl FnOnce() -> Vec<Result<Found, CouldNot>>,
    ) -> Vec<Result<Found, CouldNot>> {
        if let Err(error) = self.fallen_on(verb) {
            return asked.iter().map(|_| Err(error.clone())).collect();
        }
        let answers = read();
        self.perform(Some(verb), within);
        answers
    }

    fn fallen_on(&self, verb: Verb) -> Result<(), CouldNot> {
        match self.called(verb) {
            // A read that is lost either way has no other trace.
            Some(Fault::Fail(reason)) => Err(on_purpose(reason)),
            Some(
                Fault::Refuse
                | Fault::LoseAnswer
                | Fault::LoseRequest
                | Fault::Late(_)
                | Fault::Held,
            ) => Err(on_purpose(Reason::Unreachable)),
            None => Ok(()),
        }
    }
}

/// What is to be performed behind `behind`; the rest stays.
fn due_of<T>(late: &mut Vec<(Option<Verb>, T)>, behind: Option<Verb>) -> Vec<T> {
    let (due, kept) =
        std::mem::take(late).into_iter().partition::<Vec<_>, _>(|(when, _)| *when == behind);
    *late = kept;
    due.into_iter().map(|(_, append)| append).collect()
}

impl Store for Faulty {
    fn load(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot> {
        self.read(Verb::Load, within, || self.inner.load(key, ask, within))
    }

    fn append(&self, append: &Append, within: Duration) -> End {
        let late = |behind| {
            self.state().late.push((behind, append.clone()));
            End::Unknown(on_purpose(Reason::Unreachable))
        };
        match self.called(Verb::Append) {
            Some(Fault::Fail(reason)) => End::NotCommitted(on_purpose(reason)),
            Some(Fault::Refuse) => End::Refused,
            Some(Fault::LoseAnswer) => match self.inner.append(append, within) {
                End::Landed | End::Refused | End::NotCommitted(_) | End::Unknown(_) => {
                    End::Unknown(on_purpose(Reason::Unreachable))
                }
            },
            Some(Fault::LoseRequest) => End::Unknown(on_purpose(Reason::Unreachable)),
            Some(Fault::Late(verb)) => late(Some(verb)),
            Some(Fault::Held) => late(None),
            None => {
                let end = self.inner.append(append, within);
                self.perform(Some(Verb::Append), within);
                end
            }
        }
    }

    fn load_many(&self, asked: &[(&Key, Ask)], within: Duration) -> Vec<Result<Found, CouldNot>> {
        self.read_many(Verb::Load, asked, within, || self.inner.load_many(asked, within))
    }

    fn append_many(&self, appends: &[&Append], within: Duration) -> Vec<End> {
        let all = |end: End| vec![end; appends.len()];
        let late = |behind| {
            let mut state = self.state();
            state.late.extend(appends.iter().map(|append| (behind, (*append).clone())));
            all(End::Unknown(on_purpose(Reason::Unreachable)))
        };
        match self.called(Verb::Append) {
            Some(Fault::Fail(reason)) => all(End::NotCommitted(on_purpose(reason))),
            Some(Fault::Refuse) => all(End::Refused),
            Some(Fault::LoseAnswer) => {
                let lost = self.inner.append_many(appends, within);
                lost.iter().map(|_| End::Unknown(on_purpose(Reason::Unreachable))).collect()
            }
            Some(Fault::LoseRequest) => all(End::Unknown(on_purpose(Reason::Unreachable))),
            Some(Fault::Late(verb)) => late(Some(verb)),
            Some(Fault::Held) => late(None),
            None => {
                let ends = self.inner.append_many(appends, within);
                self.perform(Some(Verb::Append), within);
                ends
            }
        }
    }

    fn reread_many(&self, asked: &[(&Key, Ask)], within: Duration) -> Vec<Result<Found, CouldNot>> {
        self.read_many(Verb::Reread, asked, within, || self.inner.reread_many(asked, within))
    }

    fn reread(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot> {
        self.read(Verb::Reread, within, || self.inner.reread(key, ask, within))
    }

    fn list(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Listed) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        self.inner.list(filter, each, within)
    }

    fn history(&self, key: &Key, from: u64, within: Duration) -> Result<Vec<HistoryRow>, CouldNot> {
        self.inner.history(key, from, within)
    }

    fn output(
        &self,
        key: &Key,
        attempt: u64,
        stream: Stream,
        within: Duration,
    ) -> Result<Option<Captured>, CouldNot> {
        self.inner.output(key, attempt, stream, within)
    }

    fn walk(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Walked) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        self.inner.walk(filter, each, within)
    }

    fn prune(&self, cut: &Cut, within: Duration) -> Pruned {
        self.inner.prune(cut, within)
    }

    fn stats(&self, within: Duration) -> Result<Stats, CouldNot> {
        self.inner.stats(within)
    }

    fn runs(&self) -> &dyn Runs {
        self
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn may_write(&self, within: Duration) -> Result<(), CouldNot> {
        self.inner.may_write(within)
    }

    fn rest(&self) {
        self.inner.rest();
    }
}

fn on_purpose(reason: Reason) -> CouldNot {
    CouldNot { reason, message: "a fault on purpose".to_owned(), hint: None }
}
