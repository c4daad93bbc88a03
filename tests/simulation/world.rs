//! One seed: its processes, its store, and how it ends when the faults have stopped.
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctrlrun::drive::deliver::{Delivery, deliver_on};
use ctrlrun::drive::handle::{Call, handle_on};
use ctrlrun::drive::spool::Spool;
use ctrlrun::plan::effect::{Command, Event, ProbeAnswer};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::Done;
use ctrlrun::plan::time::Moment;
use ctrlrun::store::Store;
use ctrlrun::store::conformance::Check;
use uuid::Builder;

use crate::child::Started;
use crate::laws;
use crate::life::{Told, operator, runner};
use crate::machine::Machine;
use crate::shape::Shape;
use crate::store::SimStore;
use crate::turn::{Life, Turns};
use crate::verify::broken::{Break, Broken, Memory};
use crate::verify::ledger::Line;
use crate::verify::seed::Draws;

/// What a seed came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Came {
    pub seed: u64,
    pub failures: Vec<String>,
    pub trace: String,
    /// What came about in it.
    pub tally: Tally,
}

/// What came about in one or many worlds: a simulation in which nothing does says nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub executions: u64,
    pub kills: u64,
    pub freezes: u64,
    pub faults: u64,
    pub spooled: u64,
    pub delivered: u64,
    pub committed: u64,
    pub failed: u64,
    pub ambiguous: u64,
    pub second_executions: u64,
    pub renewals: u64,
    pub late: u64,
    pub decisions: u64,
    pub forgotten: u64,
}

pub struct World {
    pub turns: Arc<Turns>,
    pub store: Arc<SimStore>,
    started: Mutex<Vec<Started>>,
    told: Mutex<Vec<Told>>,
    /// The spool of each host.
    spools: Vec<PathBuf>,
    scratch: PathBuf,
    breaks: Option<Break>,
}

/// What one of its threads does.
type Task = Box<dyn FnOnce(&Arc<World>) + Send>;

/// Lives the world of `seed`. Files are kept in `dir`, which is empty.
pub fn live(seed: u64, breaks: Option<Break>, dir: &Path) -> Came {
    let mut draws = Draws::of(seed, 1);
    let shape = Shape::of(&mut draws);
    let store_id = Builder::from_random_bytes(u128::from(draws.next()).to_be_bytes()).into_uuid();
    let turns = Arc::new(Turns::new(draws, shape.clone()));
    let world = Arc::new(World {
        store: Arc::new(SimStore::new(Arc::clone(&turns), store_id)),
        turns: Arc::clone(&turns),
        started: Mutex::default(),
        told: Mutex::default(),
        spools: (0..shape.hosts).map(|host| dir.join(format!("spool-{host}"))).collect(),
        scratch: dir.to_owned(),
        breaks,
    });
    turns.inside().say(&format!("{shape:?}"));
    std::thread::scope(|scope| {
        let mut tasks: Vec<Task> = Vec::new();
        for number in 0..shape.runners {
            tasks.push(Box::new(move |world| runner(world, number)));
        }
        if shape.operator {
            tasks.push(Box::new(operator));
        }
        let entered: Vec<_> = tasks.into_iter().map(|it| (turns.enter(None), it)).collect();
        for (task, work) in entered {
            let world = Arc::clone(&world);
            scope.spawn(move || world.turns.run(task, || work(&world)));
        }
        turns.begin();
    });
    let task = turns.enter(None);
    turns.inside().quiet = true;
    turns.begin();
    let _ = turns.run(task, || world.end());
    world.came(seed)
}

/// Runs a check of the suite for stores on a simulated one in which nothing goes wrong.
pub fn suited(check: Check) -> Result<(), String> {
    let mut draws = Draws::of(0, 1);
    let shape = Shape::of(&mut draws);
    let turns = Arc::new(Turns::new(draws, shape));
    let store = SimStore::new(Arc::clone(&turns), uuid::Uuid::nil());
    turns.inside().quiet = true;
    let task = turns.enter(None);
    turns.begin();
    turns.run(task, || check(&store)).unwrap_or_else(|_| Err("it panicked".to_owned()))
}

impl World {
    /// The faults have stopped: what is known is delivered, and somebody comes for each key.
    fn end(self: &Arc<Self>) {
        let shape = self.shape();
        let last = self.store.settles_within();
        self.turns
            .pass(last + Duration::from_millis(40 * shape.lease_ms) + Duration::from_secs(600));
        self.turns.become_life(Life { name: "the end".to_owned(), ..Life::default() });
        let machine = Machine { world: Arc::clone(self) };
        let within = Duration::from_secs(10);
        // A store's clock that was set back may have to catch up.
        {
            let mut inside = self.turns.inside();
            inside.store_clock = inside.store_clock.max(0);
        }
        for dir in &self.spools {
            let Some(spool) =
                Spool::find(std::slice::from_ref(dir), self.store.identity().store_id)
            else {
                continue;
            };
            for delivery in deliver_on(&machine, self.store.as_ref(), &spool, within, within) {
                self.say(&format!("the end delivers: {}", brief(&delivery)));
                if let Delivery::Failed(key, error) = &delivery
                    && !self.was_forgotten(key)
                {
                    self.fail(format!("what is spooled of {key} cannot be delivered: {error}"));
                }
                if let Delivery::Damaged { why, .. } = &delivery {
                    self.fail(format!("a file of the spool is damaged: {why}"));
                }
            }
        }
        for at in 0..shape.keys {
            let call = Call {
                key: self.key(at),
                command: Command::Contend,
                expect: StreamState::Any,
                within,
                exchange_max: within,
                outputs: Vec::new(),
            };
            let done = handle_on(&machine, self.store.as_ref(), call);
            if !matches!(done, Done::Answered(_)) {
                self.fail(format!("{} cannot be contended for: {done:?}", self.key(at)));
            }
        }
        laws::hold(self);
    }

    fn came(&self, seed: u64) -> Came {
        let tally = laws::tally(self);
        let mut inside = self.turns.inside();
        let failures = std::mem::take(&mut inside.failures);
        Came { seed, failures, trace: std::mem::take(&mut inside.trace), tally }
    }

    pub fn shape(&self) -> Shape {
        self.turns.inside().shape.clone()
    }

    /// No fault of any kind falls here.
    pub fn is_calm(&self) -> bool {
        let Shape { kill, freeze, fault, slow, clock_jump, outage, .. } = self.shape();
        [kill, freeze, fault, slow, clock_jump, outage] == [0; 6]
    }

    pub fn key(&self, at: usize) -> Key {
        Key::new(["refund:a", "refund:b"][at]).unwrap()
    }

    pub fn draw(&self, below: u64) -> u64 {
        self.turns.inside().draws.below(below)
    }

    pub fn say(&self, what: &str) {
        self.turns.inside().say(&what);
    }

    pub fn fail(&self, what: String) {
        self.turns.inside().fail(what);
    }

    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// A host's own clock: it shows something else on each, and runs as fast.
    pub fn moment(&self) -> Moment {
        let life = self.turns.my_life();
        let inside = self.turns.inside();
        let host = life.map_or(0, |life| inside.lives[life].host) as u64;
        Moment(inside.now + 7_000_000 * (host + 1))
    }

    pub fn told_to_end(&self) -> Option<i32> {
        let life = self.turns.my_life()?;
        let inside = self.turns.inside();
        inside.lives[life].told_to_end_at.is_some_and(|at| at <= inside.now).then_some(15)
    }

    /// Whether such a signal has come, which is dealt with by that.
    pub fn takes_signal(&self) -> bool {
        let Some(life) = self.told_to_end().and_then(|_| self.turns.my_life()) else {
            return false;
        };
        self.turns.inside().lives[life].told_to_end_at = None;
        true
    }

    pub fn started(&self) -> MutexGuard<'_, Vec<Started>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn tell(&self, told: Told) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }

    pub fn spool(&self, host: usize) -> Option<Spool> {
        if self.shape().no_spool && host == 0 {
            return None;
        }
        Spool::find(&self.spools[host..=host], self.store.identity().store_id)
    }

    /// What a process is given when it opens the store.
    pub fn store_of_process(&self) -> Arc<dyn Store> {
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        match self.breaks {
            None => store,
            Some(how) => Arc::new(Broken::new(store, how, Arc::new(Mutex::new(Memory::default())))),
        }
    }

    /// A child starts: its begin is there to be seen, whatever comes (EXE-1), and its lease is live
    /// (EXE-8), unless somebody has set the clock that it is counted on.
    pub fn has_begun(&self, line: &Line) {
        let key = Key::new(line.key.clone()).unwrap();
        let now = self.store.now();
        let stands = self.store.stored().rows.of.get(&key).map(|of| of.record.clone());
        let live = stands.is_some_and(|record| {
            let until = record.lease_expires_at();
            record.attempt == line.attempt && until.is_some_and(|until| now < until)
        });
        if !live && self.shape().clock_jump == 0 {
            self.fail(format!("{} was started without a live lease", line.attempt_id));
        }
        let has = self
            .store
            .stored()
            .rows
            .ever(&key)
            .iter()
            .any(|row| row.attempt == line.attempt && matches!(row.event, Event::Began(_)));
        if !has {
            self.fail(format!("{} was started and its begin is not stored", line.attempt_id));
        }
    }

    /// What a probe of `key` sees: nothing but the world.
    pub fn probe(&self, key: &Key, first_attempt: u64) -> ProbeAnswer {
        let now = self.turns.inside().now;
        let happened = self.started().iter().any(|it| {
            it.line.key == key.as_str() && it.line.attempt >= first_attempt && it.has_happened(now)
        });
        if happened { ProbeAnswer::Committed } else { ProbeAnswer::NotExecuted }
    }

    fn was_forgotten(&self, key: &Key) -> bool {
        self.store.stored().rows.forgotten.iter().any(|(of, _)| of == key)
    }
}

fn brief(delivery: &Delivery) -> String {
    match delivery {
        Delivery::Recorded(key) => format!("recorded {key}"),
        Delivery::Late(key) => format!("late {key}"),
        Delivery::Forgotten(key) => format!("forgotten {key}"),
        Delivery::Failed(key, error) => format!("failed {key}: {}", error.reason as u8),
        Delivery::Damaged { .. } => "damaged".to_owned(),
    }
}
