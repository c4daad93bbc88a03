//! Some threads that tick what is woken and run what is dispatched, until they are told to stop.
//!
//! One thread at a time asks the store for work; the others wait for it to find some. A thread that
//! has run a node ticks its run at once, and takes what that tick dispatches for itself and for
//! threads that wait: a run that goes through one process needs no queue.
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::scope;
use std::time::Duration;

use super::Counters;
use super::coordinator::Coordinator;
use super::node::{Came, Settings, perform};
use crate::drive::deliver::deliver;
use crate::drive::host;
use crate::drive::spool::Spool;
use crate::plan::time::Moment;
use crate::plan::workflow::pace::Pace;
use crate::plan::workflow::write::{Aim, Done, Keep};
use crate::plan::workflow::{Claim, Dispatch, NodeState, Run, RunId, Status};
use crate::store::runs::Take;
use crate::store::{CouldNot, Reason, Store};

/// How often, and for how long at a time, the store is asked for work where there is none.
const POLL_FIRST: Duration = Duration::from_millis(5);
const POLL_MAX: Duration = Duration::from_millis(500);

/// How often what is woken is looked for while every job is at work.
const TICK_EVERY: Duration = Duration::from_millis(200);

/// How often the watchdog goes round.
const WATCH_EVERY: Duration = Duration::from_secs(60);

/// How often the spool is looked at.
const DELIVER_EVERY: Duration = Duration::from_secs(10);

/// How many nodes a thread runs at most without asking the queue, which shares out fairly: a run of a
/// thousand nodes, one behind the other, must not keep others waiting to its end.
const IN_A_ROW_MAX: u32 = 8;

/// What a worker works with.
pub struct Worker<'a> {
    /// A store for each thread; with fewer they share.
    pub stores: &'a [std::sync::Arc<dyn Store>],
    /// Outcomes that the store cannot take.
    pub spool: Option<&'a Spool>,
    /// How nodes are run.
    pub settings: &'a Settings,
    /// The coordinator's schedule.
    pub pace: &'a Pace,
    /// What is counted.
    pub counters: &'a Counters,
    /// How many nodes are run at a time.
    pub jobs: usize,
    /// Only this run.
    pub only: Option<&'a RunId>,
    /// How long a wakeup or a dispatch that was taken is nobody else's. A worker that dies gives
    /// what it had to others after that.
    pub hold: Duration,
    /// Ends when the run of `only` has ended, or waits for a person.
    pub to_the_end: bool,
    /// Ends when there is nothing to do, and nothing will be by itself.
    pub until_idle: bool,
    /// Is asked again and again whether to stop: what runs is waited for, nothing more is started.
    pub told_to_stop: &'a (dyn Fn() -> bool + Sync),
    /// Is told what happens.
    pub tell: &'a (dyn Fn(&Told<'_>) + Sync),
}

/// What a worker tells of.
#[derive(Debug)]
pub enum Told<'a> {
    /// A run was written: how it stood, and stands.
    Ticked(Option<&'a Run>, &'a Run),
    /// A node's attempt has ended.
    Ran(&'a Dispatch, &'a crate::drive::run::Ran),
    /// Nothing was run by a dispatch.
    Stale(&'a Dispatch),
    /// Nothing was run: the spool holds a word of an older store about it.
    InDoubtElsewhere(&'a Dispatch),
    /// The store could not do something; it is tried again.
    CouldNot(Option<&'a RunId>, &'a CouldNot),
}

/// How a worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// Its run has ended, or waits for a person: how it stands.
    Run(Box<Run>),
    /// There is no such run.
    NoRun,
    /// There was nothing to do.
    Idle,
    /// The store hands out no work to us, and will not by being asked again: it is of another version,
    /// we lack a right, or it is gone (STO-4).
    Refused(CouldNot),
}

struct Shared {
    /// Dispatches that a tick of ours took for us.
    kept: VecDeque<(Dispatch, Claim)>,
    is_asking: bool,
    ended: Option<Ended>,
    poll: Duration,
    /// How many threads wait for work.
    waiting: usize,
    watch_at: Moment,
    watched: Option<RunId>,
    deliver_at: Moment,
}

impl Worker<'_> {
    /// Works until it is told to stop, or its one run needs no more of it.
    pub fn work(&self) -> Ended {
        let now = host::now();
        let shared = Mutex::new(Shared {
            kept: VecDeque::new(),
            is_asking: false,
            ended: None,
            poll: POLL_FIRST,
            waiting: 0,
            watch_at: now.plus(WATCH_EVERY),
            watched: None,
            deliver_at: now,
        });
        let found = Condvar::new();
        let at_work = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        scope(|scope| {
            // One more than there are jobs: while all of them are at work it ticks what is woken, so
            // that a wish to end need not wait for a command that runs for hours.
            for index in 0..=self.jobs.max(1) {
                let crew = Hand {
                    of: self,
                    index,
                    shared: &shared,
                    found: &found,
                    at_work: &at_work,
                    stop: &stop,
                    in_a_row: Cell::new(0),
                };
                scope.spawn(move || crew.work());
            }
        });
        let ended = lock(&shared).ended.take();
        ended.unwrap_or(Ended::Stopped)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread of a worker.
struct Hand<'w> {
    of: &'w Worker<'w>,
    index: usize,
    shared: &'w Mutex<Shared>,
    found: &'w Condvar,
    at_work: &'w AtomicUsize,
    stop: &'w AtomicBool,
    /// How many nodes this thread has run since it last asked the queue.
    in_a_row: Cell<u32>,
}

impl Hand<'_> {
    fn coordinator(&self) -> Option<Coordinator<'_>> {
        let store = self.of.stores.get(self.index % self.of.stores.len().max(1))?;
        Some(Coordinator {
            store: store.as_ref(),
            pace: self.of.pace,
            counters: self.of.counters,
            within: self.of.settings.store_timeout,
        })
    }

    fn work(&self) {
        let Some(coordinator) = self.coordinator() else {
            return;
        };
        while let Some((dispatch, claim)) = self.next(coordinator) {
            self.at_work.fetch_add(1, Ordering::SeqCst);
            self.run(coordinator, &dispatch, claim);
            self.at_work.fetch_sub(1, Ordering::SeqCst);
        }
        self.found.notify_all();
        self.give_back(coordinator);
    }

    /// What this worker took and will not come to: others may have it at once.
    fn give_back(&self, coordinator: Coordinator<'_>) {
        let kept: Vec<(Dispatch, Claim)> = lock(self.shared).kept.drain(..).collect();
        for (dispatch, claim) in kept {
            let now = Duration::ZERO;
            // One that could not be given back is handed out again when the claim ends.
            let _ = coordinator.store.runs().postpone_dispatch(
                &dispatch.id,
                claim.id,
                now,
                coordinator.within,
            );
        }
    }

    /// The next dispatch to be run; `None` if this thread is to end.
    fn next(&self, coordinator: Coordinator<'_>) -> Option<(Dispatch, Claim)> {
        let mut shared = lock(self.shared);
        loop {
            if shared.ended.is_some() || self.stopping() {
                return None;
            }
            if self.only_ticks() && self.at_work.load(Ordering::SeqCst) < self.of.jobs.max(1) {
                let waited = self.found.wait_timeout(shared, TICK_EVERY);
                shared = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if !self.only_ticks()
                && let Some(kept) = shared.kept.pop_front()
            {
                return Some(kept);
            }
            if shared.is_asking {
                shared.waiting += 1;
                let waited = self.found.wait_timeout(shared, POLL_MAX);
                shared = waited.unwrap_or_else(PoisonError::into_inner).0;
                shared.waiting -= 1;
                continue;
            }
            shared.is_asking = true;
            drop(shared);
            let asked = self.ask(coordinator);
            shared = lock(self.shared);
            shared.is_asking = false;
            match asked {
                Asked::Dispatch(dispatch, claim) => {
                    self.in_a_row.set(0);
                    shared.poll = POLL_FIRST;
                    self.found.notify_one();
                    return Some((dispatch, claim));
                }
                Asked::Worked => shared.poll = POLL_FIRST,
                Asked::End(ended) => {
                    shared.ended = Some(ended);
                    self.found.notify_all();
                }
                Asked::Nothing(due) => {
                    let pause = due
                        .map_or(shared.poll, |due| due.min(shared.poll))
                        .max(Duration::from_millis(1));
                    shared.poll = shared.poll.saturating_mul(2).min(POLL_MAX);
                    // Another thread's tick may find something meanwhile: then this one goes on.
                    let waited = self.found.wait_timeout(shared, pause);
                    shared = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Whether this thread runs no nodes.
    fn only_ticks(&self) -> bool {
        self.index >= self.of.jobs.max(1)
    }

    fn stopping(&self) -> bool {
        if self.stop.load(Ordering::SeqCst) {
            return true;
        }
        let told = (self.of.told_to_stop)();
        if told {
            self.stop.store(true, Ordering::SeqCst);
        }
        told
    }

    /// Asks the store for work, and does what is not a node's.
    fn ask(&self, coordinator: Coordinator<'_>) -> Asked {
        self.look_around(coordinator);
        let claim = host::draw();
        let take = Take { only: self.of.only, limit: 1, claim, hold: self.of.hold };
        let woken = match coordinator.store.runs().claim_wakeups(&take, coordinator.within) {
            Ok(claimed) => claimed,
            Err(error) => return self.not_asked(error),
        };
        if !woken.taken.is_empty() {
            for woken in &woken.taken {
                let done = coordinator.wake(woken, self.keep());
                self.after_tick(&woken.run, done);
            }
            return Asked::Worked;
        }
        if self.only_ticks() {
            return Asked::Nothing(Some(TICK_EVERY));
        }
        let dispatches = match coordinator.store.runs().claim_dispatches(&take, coordinator.within)
        {
            Ok(claimed) => claimed,
            Err(error) => return self.not_asked(error),
        };
        if let Some(dispatch) = dispatches.taken.into_iter().next() {
            let until = dispatches.now.plus(self.of.hold);
            return Asked::Dispatch(dispatch, Claim { id: claim, until });
        }
        if let Some(ended) = self.ended(coordinator) {
            return Asked::End(ended);
        }
        if self.of.only.is_some() {
            // The store's "next" is of all runs.
            return Asked::Nothing(None);
        }
        let next = [woken.next_due, dispatches.next_due].into_iter().flatten().min();
        if self.of.until_idle && next.is_none() && self.at_work.load(Ordering::SeqCst) == 0 {
            return Asked::End(Ended::Idle);
        }
        Asked::Nothing(next.map(|next| next.since(dispatches.now)))
    }

    fn could_not(&self, run: Option<&RunId>, error: &CouldNot) -> Asked {
        (self.of.tell)(&Told::CouldNot(run, error));
        Asked::Nothing(None)
    }

    /// The queue could not be asked. A store that is away, or busy, comes back; one that refuses us
    /// does not.
    fn not_asked(&self, error: CouldNot) -> Asked {
        if matches!(error.reason, Reason::Unfit | Reason::Denied | Reason::Missing) {
            return Asked::End(Ended::Refused(error));
        }
        self.could_not(None, &error)
    }

    /// Now and then: the watchdog, and what the store would not take before.
    fn look_around(&self, coordinator: Coordinator<'_>) {
        let now = host::now();
        let (watch, deliver_now) = {
            let mut shared = lock(self.shared);
            let watch = (now >= shared.watch_at).then(|| shared.watched.take());
            if watch.is_some() {
                shared.watch_at = now.plus(WATCH_EVERY);
            }
            let due = now >= shared.deliver_at;
            if due {
                shared.deliver_at = now.plus(DELIVER_EVERY);
            }
            (watch, due)
        };
        if let Some(spool) = self.of.spool.filter(|_| deliver_now) {
            let within = coordinator.within;
            // What stays in the spool is tried again.
            deliver(coordinator.store, spool, within, within);
        }
        if let Some(after) = watch {
            match coordinator.watch(after) {
                Ok(stopped_at) => lock(self.shared).watched = stopped_at,
                Err(error) => drop(self.could_not(None, &error)),
            }
        }
    }

    /// Whether the one run needs no more of this worker.
    fn ended(&self, coordinator: Coordinator<'_>) -> Option<Ended> {
        let run = self.of.only?;
        if !self.of.to_the_end && !self.of.until_idle {
            return None;
        }
        match coordinator.store.runs().load_run(run, coordinator.within) {
            Ok(found) => {
                let waits = !found.dispatches.is_empty() || !found.wakeups.is_empty();
                match found.run {
                    None => Some(Ended::NoRun),
                    Some(run) if self.of.to_the_end => {
                        needs_no_more(&run).then(|| Ended::Run(Box::new(run)))
                    }
                    Some(run) => {
                        let busy = waits || waits_for_a_time(&run);
                        let at_work = self.at_work.load(Ordering::SeqCst);
                        (!busy && at_work == 0).then_some(Ended::Idle)
                    }
                }
            }
            Err(error) => {
                self.could_not(Some(run), &error);
                None
            }
        }
    }

    /// What this tick may take for us: one for this thread, and one for each that waits.
    fn keep(&self) -> Option<Keep> {
        self.in_a_row.set(self.in_a_row.get().saturating_add(1));
        let has_had_its_turn = self.of.only.is_none() && self.in_a_row.get() > IN_A_ROW_MAX;
        if self.stopping() || has_had_its_turn {
            return None;
        }
        let shared = lock(self.shared);
        let ours = usize::from(!self.only_ticks());
        let limit = (ours + shared.waiting).saturating_sub(shared.kept.len());
        Some(Keep { claim: host::draw(), hold: self.of.hold, limit })
    }

    fn run(&self, coordinator: Coordinator<'_>, dispatch: &Dispatch, claim: Claim) {
        let came = perform(coordinator, dispatch, claim.id, self.of.settings, self.of.spool);
        match &came {
            Came::Attempted(ran) => {
                if ran.report.ran {
                    self.of.counters.ran.add(1);
                }
                (self.of.tell)(&Told::Ran(dispatch, ran));
            }
            Came::Stale => {
                self.of.counters.stale.add(1);
                (self.of.tell)(&Told::Stale(dispatch));
            }
            Came::Held => return,
            Came::InDoubtElsewhere => {
                (self.of.tell)(&Told::InDoubtElsewhere(dispatch));
                return;
            }
            Came::Unreadable(error) => {
                self.could_not(Some(&dispatch.id.run), error);
                return;
            }
        }
        let done = coordinator.write(&dispatch.id.run, Aim::Tick, self.keep());
        self.after_tick(&dispatch.id.run, done);
    }

    fn after_tick(&self, run: &RunId, done: Done) {
        match done {
            Done::Committed(append) => {
                (self.of.tell)(&Told::Ticked(append.found.as_ref(), &append.next));
                let mut shared = lock(self.shared);
                if self.of.to_the_end && self.of.only == Some(run) && needs_no_more(&append.next) {
                    shared.ended = Some(Ended::Run(Box::new(append.next)));
                }
                let kept = append.dispatches_put.into_iter();
                shared.kept.extend(kept.filter_map(|dispatch| {
                    let claim = dispatch.claim?;
                    Some((dispatch, claim))
                }));
                self.found.notify_all();
            }
            Done::CouldNot(error) | Done::Unknown(error) => {
                (self.of.tell)(&Told::CouldNot(Some(run), &error));
            }
            // A race that was lost is the winner's to go on with; the wakeup stands.
            Done::Nothing(_)
            | Done::Exists(_)
            | Done::Dropped
            | Done::NoRun
            | Done::Conflicted(_) => {}
        }
    }
}

/// What the store was found to have.
enum Asked {
    /// A node to be run.
    Dispatch(Dispatch, Claim),
    /// A run was ticked.
    Worked,
    /// Nothing, until so long from now at least.
    Nothing(Option<Duration>),
    /// There is nothing left to do.
    End(Ended),
}

/// Whether a run goes on by itself at some time.
fn waits_for_a_time(run: &Run) -> bool {
    let mut nodes = run.progress.nodes.values();
    !run.status.is_end()
        && nodes.any(|node| matches!(node.state, NodeState::Waiting { until: Some(_), .. }))
}

/// Whether a run has ended, or waits for a person with nothing in flight.
#[must_use]
pub fn needs_no_more(run: &Run) -> bool {
    let in_flight =
        run.progress.nodes.values().any(|node| matches!(node.state, NodeState::Dispatched { .. }));
    run.status.is_end() || (run.status == Status::Blocked && !in_flight)
}
