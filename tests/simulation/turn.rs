//! Who goes on, when it is, and who dies.
//!
//! There is one turn. Whoever has it runs until it lets time pass; then the task whose time comes
//! first goes on, by a draw where several do. Nothing here depends on how threads are scheduled.
use std::cell::Cell;
use std::fmt::{Display, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::shape::Shape;
use crate::verify::seed::Draws;

/// What a killed process unwinds with: no destructor of the driver writes anything anywhere.
pub struct Killed;

/// What a task that cannot go on any more is unwound with.
struct Stuck;

/// When a task goes on.
#[derive(Debug, Clone, Copy)]
pub enum When {
    /// At this time.
    At(u64),
    /// At this time, or once that task is over.
    AtOrOver(u64, usize),
    /// Once that task is over.
    Over(usize),
    /// Never: it is over itself.
    Never,
}

struct Task {
    when: When,
    /// The process that it belongs to.
    life: Option<usize>,
    wake: Arc<Condvar>,
}

/// A process, from its start to its end.
#[derive(Debug, Clone, Default)]
pub struct Life {
    /// How its attempts are labelled, and what the trace calls it.
    pub name: String,
    /// The machine that it runs on.
    pub host: usize,
    pub killed: bool,
    /// Until then none of it goes on.
    pub frozen_until: u64,
    /// From when on it is told to end.
    pub told_to_end_at: Option<u64>,
    /// The task that runs beside, if there is or was one.
    pub beside: Option<usize>,
    /// Where it may keep what the store does not take.
    pub spool: Option<PathBuf>,
    /// The outcome that the store did not take at the first try.
    pub not_taken: Option<Uuid>,
    /// What has been done to it: the reasons that may explain a doubt.
    pub hits: Vec<&'static str>,
}

/// All that has an order in time.
pub struct Inside {
    pub draws: Draws,
    /// Microseconds since the world began.
    pub now: u64,
    /// How far the store's clock has been set away from that.
    pub store_clock: i64,
    pub lives: Vec<Life>,
    pub shape: Shape,
    /// No fault falls any more.
    pub quiet: bool,
    pub kills: u32,
    pub freezes: u32,
    pub trace: String,
    pub failures: Vec<String>,
    tasks: Vec<Task>,
    current: Option<usize>,
    steps: u64,
}

/// The one turn.
pub struct Turns {
    inside: Mutex<Inside>,
}

thread_local! {
    static ME: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// More steps than any world takes: what goes on for ever is a failure, not a hang.
const STEPS_MAX: u64 = 200_000;

impl Turns {
    pub fn new(draws: Draws, shape: Shape) -> Self {
        let inside = Inside {
            draws,
            now: 1_000_000,
            store_clock: 0,
            lives: Vec::new(),
            shape,
            quiet: false,
            kills: 0,
            freezes: 0,
            trace: String::new(),
            failures: Vec::new(),
            tasks: Vec::new(),
            current: None,
            steps: 0,
        };
        Self { inside: Mutex::new(inside) }
    }

    pub fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new task, which goes on at its first turn.
    pub fn enter(&self, life: Option<usize>) -> usize {
        let mut inside = self.inside();
        let when = When::At(inside.now);
        inside.tasks.push(Task { when, life, wake: Arc::new(Condvar::new()) });
        inside.tasks.len() - 1
    }

    /// Gives the turn to whoever is first.
    pub fn begin(&self) {
        self.inside().hand_over();
    }

    /// Runs a task to its end, on the thread that calls: waits for its first turn, and gives the turn
    /// away at the end, however that comes.
    pub fn run<T>(&self, task: usize, work: impl FnOnce() -> T) -> std::thread::Result<T> {
        ME.set(task);
        self.await_turn(self.inside(), task);
        let done = catch_unwind(AssertUnwindSafe(|| {
            self.die_if_killed();
            work()
        }));
        let mut inside = self.inside();
        if let Err(panic) = &done
            && !panic.is::<Killed>()
        {
            let why = panic.downcast_ref::<String>().cloned();
            let why = why.or_else(|| panic.downcast_ref::<&str>().map(|why| (*why).to_owned()));
            inside.fail(format!("a process panicked: {}", why.unwrap_or_default()));
        }
        inside.tasks[task].when = When::Never;
        inside.hand_over();
        done
    }

    /// The process that the caller belongs to from now on.
    pub fn become_life(&self, life: Life) -> usize {
        let mut inside = self.inside();
        inside.lives.push(life);
        let at = inside.lives.len() - 1;
        inside.tasks[ME.get()].life = Some(at);
        at
    }

    /// The caller is nobody's any more.
    pub fn leave_life(&self) {
        self.inside().tasks[ME.get()].life = None;
    }

    pub fn my_life(&self) -> Option<usize> {
        // A thread that is no task is nobody's.
        self.inside().tasks.get(ME.get()).and_then(|task| task.life)
    }

    /// Lets so much time pass; the process may be killed, or stand still for longer.
    pub fn pass(&self, long: Duration) {
        if ME.get() == usize::MAX {
            return;
        }
        let until = {
            let mut inside = self.inside();
            inside.befall(ME.get());
            inside.now.saturating_add(micros(long))
        };
        self.wait(When::At(until));
    }

    /// Waits, and dies if the process was killed meanwhile.
    pub fn wait(&self, when: When) {
        let me = ME.get();
        let mut inside = self.inside();
        inside.tasks[me].when = when;
        inside.hand_over();
        self.await_turn(inside, me);
        self.die_if_killed();
    }

    fn await_turn(&self, mut inside: MutexGuard<'_, Inside>, me: usize) {
        while inside.current != Some(me) {
            let wake = Arc::clone(&inside.tasks[me].wake);
            inside = wake.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        if inside.steps > STEPS_MAX {
            drop(inside);
            resume_unwind(Box::new(Stuck));
        }
    }

    /// A killed process does nothing more. Its other tasks go first: a thread that waits for another
    /// in earnest must not have the turn.
    fn die_if_killed(&self) {
        let me = ME.get();
        loop {
            let mut inside = self.inside();
            let Some(life) = inside.tasks[me].life.filter(|life| inside.lives[*life].killed) else {
                return;
            };
            let beside = inside.lives[life].beside.filter(|it| *it != me);
            let Some(other) = beside.filter(|it| !matches!(inside.tasks[*it].when, When::Never))
            else {
                drop(inside);
                resume_unwind(Box::new(Killed));
            };
            let now = inside.now;
            inside.tasks[other].when = When::At(now);
            inside.tasks[me].when = When::Over(other);
            inside.hand_over();
            self.await_turn(inside, me);
        }
    }
}

impl Inside {
    /// Chooses who goes on, and lets the time be theirs.
    fn hand_over(&mut self) {
        self.steps += 1;
        let over = |task: &Task| matches!(task.when, When::Never);
        let mut first: Option<u64> = None;
        let mut ready: Vec<usize> = Vec::new();
        for (at, task) in self.tasks.iter().enumerate() {
            let due = match task.when {
                When::At(due) => due,
                When::AtOrOver(due, other) => {
                    if over(&self.tasks[other]) {
                        self.now.min(due)
                    } else {
                        due
                    }
                }
                When::Over(other) if over(&self.tasks[other]) => self.now,
                When::Over(_) | When::Never => continue,
            };
            let life = task.life.map(|life| &self.lives[life]);
            let frozen = life.filter(|life| !life.killed).map_or(0, |life| life.frozen_until);
            let due = due.max(self.now).max(frozen);
            if first.is_none_or(|first| due < first) {
                first = Some(due);
                ready.clear();
            }
            if first == Some(due) {
                ready.push(at);
            }
        }
        let Some(first) = first else {
            self.current = None;
            return;
        };
        self.now = first;
        let next = ready[usize::try_from(self.draws.below(ready.len() as u64)).unwrap_or(0)];
        if self.current != Some(next) {
            self.tasks[next].wake.notify_one();
        }
        self.current = Some(next);
        if self.steps == STEPS_MAX {
            self.fail("it goes on for ever".to_owned());
        }
    }

    /// What may befall a process wherever it lets time pass.
    fn befall(&mut self, me: usize) {
        let Some(life) = self.tasks[me].life.filter(|_| !self.quiet) else {
            return;
        };
        if self.lives[life].killed {
            return;
        }
        if self.shape.kill != 0 && self.kills < self.shape.kills_max && self.one_in(self.shape.kill)
        {
            self.kills += 1;
            self.lives[life].killed = true;
            self.hit(life, "killed");
        } else if self.shape.freeze != 0
            && self.freezes < self.shape.freezes_max
            && self.one_in(self.shape.freeze)
        {
            self.freezes += 1;
            let long = 1_000 * (1 + self.draws.below(3 * self.shape.lease_ms));
            self.lives[life].frozen_until = self.now + long;
            self.hit(life, "stood still");
        }
    }

    /// Notes what was done to a process.
    pub fn hit(&mut self, life: usize, what: &'static str) {
        if !self.lives[life].hits.contains(&what) {
            self.lives[life].hits.push(what);
        }
        let name = self.lives[life].name.clone();
        self.say(&format!("{name} -- {what}"));
    }

    pub fn one_in(&mut self, odds: u64) -> bool {
        self.draws.below(odds) == 0
    }

    pub fn say(&mut self, what: &dyn Display) {
        let _ = writeln!(self.trace, "{:>12} {what}", self.now);
    }

    pub fn fail(&mut self, what: String) {
        let _ = writeln!(self.trace, "{:>12} WRONG: {what}", self.now);
        self.failures.push(what);
    }
}

pub fn micros(long: Duration) -> u64 {
    u64::try_from(long.as_micros()).unwrap_or(u64::MAX)
}
