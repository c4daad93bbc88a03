//! Ticks runs on a real store: the steps of [`Write`], what becomes of a wakeup whose tick lost
//! every race, and the watchdog (WFL-13 to WFL-15).
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;

use super::Counters;
use crate::drive::host;
use crate::plan::effect::WriteId;
use crate::plan::key::Key;
use crate::plan::protocol::Captured;
use crate::plan::retry::Budget;
use crate::plan::workflow::fill::wanted;
use crate::plan::workflow::pace::{Pace, Requeue, Seen, requeue};
use crate::plan::workflow::tick::{Loaded, waits_for_nothing};
use crate::plan::workflow::write::{Aim, Done, Found, Input, Keep, Reread, Step, Write};
use crate::plan::workflow::{Run, RunId, Status, Wakeup};
use crate::store::runs::{ListedRun, RunFilter, Runs, Woken};
use crate::store::stop::{self, TickPoint};
use crate::store::{CouldNot, Flow, Store};

/// The most tries of one write, whatever time is left.
const TRIES_MAX: u32 = 1_000;

/// The most runs that one round of the watchdog looks after.
const WATCHED_MAX: usize = 16;

/// What ticks runs.
#[derive(Clone, Copy)]
pub struct Coordinator<'a> {
    /// The store.
    pub store: &'a dyn Store,
    /// Its schedule.
    pub pace: &'a Pace,
    /// What is counted.
    pub counters: &'a Counters,
    /// How long one exchange with the store may take; a write may take six times as long.
    pub within: Duration,
}

impl Coordinator<'_> {
    fn runs(&self) -> &dyn Runs {
        self.store.runs()
    }

    /// One write of a run, with its retries.
    pub fn write(&self, run: &RunId, aim: Aim, keep: Option<Keep>) -> Done {
        let deadline = host::now().plus(self.within.saturating_mul(6));
        let budget = Budget::new(TRIES_MAX, deadline, self.within);
        let mut write = Write::new(run.clone(), aim, keep, self.pace, budget);
        let mut input = Input::Start;
        let done = loop {
            input = match write.step(input, host::now()) {
                Step::Load { within } => {
                    let fresh = host::write_id();
                    Input::Loaded(self.load(&write, fresh, within), fresh)
                }
                Step::Append { append, within } => {
                    let scratch = self.store.identity().scratch;
                    stop::at_tick(TickPoint::BeforeTick, scratch);
                    let end = self.runs().append_run(&append, within);
                    stop::at_tick(TickPoint::AfterTick, scratch);
                    Input::Ended(end)
                }
                Step::Reread { revision, within } => {
                    let found = self.runs().reread_run(run, revision, within);
                    Input::Reread(
                        found.map(|found| Box::new(Reread { run: found.run, event: found.event })),
                    )
                }
                Step::Pause(pause) => {
                    std::thread::sleep(pause);
                    Input::Paused
                }
                Step::Done(done) => break done,
            };
        };
        self.count(&done, write.conflicts());
        done
    }

    fn count(&self, done: &Done, conflicts: u32) {
        self.counters.conflicts.add(u64::from(conflicts));
        match done {
            Done::Committed(_) => self.counters.ticks.add(1),
            Done::Nothing(_) => self.counters.idle_ticks.add(1),
            Done::CouldNot(_) | Done::Unknown(_) => self.counters.failures.add(1),
            Done::Exists(_) | Done::Dropped | Done::NoRun | Done::Conflicted(_) => {}
        }
    }

    fn load(&self, write: &Write, fresh: WriteId, within: Duration) -> Result<Found, CouldNot> {
        let found = self.runs().load_run(write.run(), within)?;
        let is_there = found.run.is_some();
        let Some(run) = found.run.or_else(|| write.fresh(found.now, fresh)) else {
            return Ok(Found::Absent(None));
        };
        let effects = self.effects(&run, within)?;
        let loaded = Box::new(Loaded {
            run,
            now: found.now,
            inbox: found.inbox,
            dispatches: found.dispatches,
            wakeups: found.wakeups,
            records: effects.records,
            outputs: effects.outputs,
            attempt_floor: effects.attempt_floor,
        });
        Ok(if is_there { Found::Run(loaded) } else { Found::Absent(Some(loaded)) })
    }

    /// All that a worker or a person looks at of a run that is there.
    ///
    /// # Errors
    /// What the store could not do.
    pub fn look(&self, run: &RunId) -> Result<Option<Loaded>, CouldNot> {
        let write = Write::new(run.clone(), Aim::Tick, None, self.pace, budget_of(self.within));
        let fresh = WriteId(Uuid::nil());
        match self.load(&write, fresh, self.within)? {
            Found::Run(loaded) => Ok(Some(*loaded)),
            Found::Absent(_) => Ok(None),
        }
    }

    /// The effects of a run. A key may be made of an output: then those are read first.
    fn effects(&self, run: &Run, within: Duration) -> Result<Effects, CouldNot> {
        let mut effects = Effects::default();
        let mut known: BTreeSet<Key> = BTreeSet::new();
        let mut known_outputs: BTreeSet<Key> = BTreeSet::new();
        loop {
            let wanted = wanted(run, &effects.outputs);
            let keys: Vec<Key> = wanted.keys.difference(&known).cloned().collect();
            let outputs: Vec<Key> =
                wanted.with_output.difference(&known_outputs).cloned().collect();
            if keys.is_empty() && outputs.is_empty() && effects.asked {
                return Ok(effects);
            }
            let asked: BTreeSet<Key> = keys.iter().chain(&outputs).cloned().collect();
            let asked: Vec<Key> = asked.into_iter().collect();
            let found = self.runs().load_effects(&asked, &outputs, within)?;
            effects.asked = true;
            effects.attempt_floor = found.attempt_floor;
            for record in found.records {
                effects.records.insert(record.key.clone(), record);
            }
            effects.outputs.extend(found.outputs);
            known.extend(keys);
            known_outputs.extend(outputs);
        }
    }

    /// Ticks a run that was woken, and sees to its wakeups. What the store could not do is tried
    /// again when they are handed out again.
    pub fn wake(&self, woken: &Woken, keep: Option<Keep>) -> Done {
        let done = self.write(&woken.run, Aim::Tick, keep);
        match &done {
            Done::Nothing(loaded) => {
                let mut wakeups = woken.wakeups.clone();
                wakeups.extend(loaded.wakeups.iter().cloned());
                self.finish(&wakeups);
            }
            Done::NoRun => self.finish(&woken.wakeups),
            Done::Conflicted(seen) => return self.later(woken, *seen, done),
            // With what was claimed, since a wakeup put anew in between counts for the next tick.
            Done::Committed(_)
            | Done::Exists(_)
            | Done::Dropped
            | Done::CouldNot(_)
            | Done::Unknown(_) => {}
        }
        done
    }

    fn finish(&self, wakeups: &[Wakeup]) {
        if !wakeups.is_empty() {
            // One that stays wakes the run once more, which does no harm.
            let _ = self.runs().finish_wakeups(wakeups, self.within);
        }
    }

    fn later(&self, woken: &Woken, seen: Seen, done: Done) -> Done {
        match requeue(self.pace, &woken.wakeups, seen, host::write_id(), &woken.run) {
            Requeue::Later(next) => {
                self.counters.requeues.add(1);
                let _ = self.runs().requeue(&woken.wakeups, &next, self.within);
                done
            }
            Requeue::Livelock { since_seq, count } => {
                let why = format!(
                    "livelock: {count} times every try to go on lost a race, and nothing else \
                     moved the run"
                );
                let forced = self.force(&woken.run, since_seq, why);
                match &forced {
                    Done::Committed(_) => self.counters.livelocks.add(1),
                    // It has progressed: the count starts anew with the next tick.
                    Done::Dropped => {
                        let now = seen.now;
                        let anew = Wakeup {
                            key: format!("{}/{}/anew", woken.run, seen.revision),
                            put_id: host::write_id(),
                            run: woken.run.clone(),
                            due: now,
                            count: 0,
                            since_seq: 0,
                        };
                        let _ = self.runs().requeue(&woken.wakeups, &anew, self.within);
                    }
                    Done::Nothing(_) | Done::NoRun => self.finish(&woken.wakeups),
                    Done::Exists(_)
                    | Done::Conflicted(_)
                    | Done::CouldNot(_)
                    | Done::Unknown(_) => {}
                }
                forced
            }
        }
    }

    /// Ends a run by force, unless it has progressed since: the one terminal path.
    pub fn force(&self, run: &RunId, since_seq: u64, why: String) -> Done {
        self.write(run, Aim::Force { since_seq, why }, None)
    }

    /// One round of the watchdog: ticks runs that have not moved for long and that nothing will
    /// wake, and ends those by force that a tick leaves as they are although nothing they could wait
    /// for is left (WFL-15). `after` is where the last round stopped.
    ///
    /// # Errors
    /// What the store could not do.
    pub fn watch(&self, after: Option<RunId>) -> Result<Option<RunId>, CouldNot> {
        let filter = RunFilter {
            statuses: vec![Status::Running, Status::Blocked, Status::Cancelling, Status::Failing],
            quiet_for: Some(self.pace.stuck_after),
            after,
            ..RunFilter::default()
        };
        let mut quiet = Vec::new();
        let mut each = |listed| {
            if let ListedRun::Run(run, _) = listed {
                quiet.push(run.id.clone());
            }
            if quiet.len() < WATCHED_MAX { Flow::Continue } else { Flow::Stop }
        };
        self.runs().list_runs(&filter, &mut each, self.within)?;
        for run in &quiet {
            self.look_after(run);
        }
        Ok(quiet.last().filter(|_| quiet.len() >= WATCHED_MAX).cloned())
    }

    /// Ticks a run, and ends it by force if that changes nothing and nothing is left to wait for.
    pub fn look_after(&self, run: &RunId) -> Done {
        let done = self.write(run, Aim::Tick, None);
        let Done::Nothing(loaded) = &done else {
            return done;
        };
        if !waits_for_nothing(loaded) {
            return done;
        }
        let since = loaded.run.last_transition_seq;
        let why = "stuck: nothing is in flight, nothing is waited for, and a tick changes nothing";
        let forced = self.force(run, since, why.to_owned());
        if matches!(forced, Done::Committed(_)) {
            self.counters.stuck.add(1);
        }
        forced
    }
}

#[derive(Default)]
struct Effects {
    records: BTreeMap<Key, crate::plan::effect::Record>,
    outputs: BTreeMap<Key, Captured>,
    attempt_floor: u64,
    asked: bool,
}

fn budget_of(within: Duration) -> Budget {
    Budget::new(TRIES_MAX, host::now().plus(within), within)
}
