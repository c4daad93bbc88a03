//! A process from its start to its end: what `ctrlrun run` does, what an operator does, what a probe
//! is asked. All of it goes through the shipped driver.
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use ctrlrun::drive::deliver::{Delivery, deliver_on};
use ctrlrun::drive::handle::{Call, handle_on};
use ctrlrun::drive::host::Host as _;
use ctrlrun::drive::persist::{Between, Persisted, persist};
use ctrlrun::drive::prune::{Terms, prune};
use ctrlrun::drive::run::{Command, Ran, Tools};
use ctrlrun::drive::spool::Spool;
use ctrlrun::plan::again::Again;
use ctrlrun::plan::attempt::{NotRecorded, Order, Outcome, Undelivered};
use ctrlrun::plan::effect::{
    self, Answer, Labels, OutcomeId, Probe, ProbeAnswer, RanOn, Record, Refusal, Request, Resolve,
    State, Verdict,
};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::protocol::{Done, Known};
use ctrlrun::plan::verdict::NotExecuted;
use ctrlrun::store::{Ask, Store};

use crate::child::DECLARED;
use crate::machine::Machine;
use crate::shape::index;
use crate::turn::{Killed, Life};
use crate::world::World;

/// What a process has told at its end, or had put into the spool.
#[derive(Debug, Clone)]
pub struct Told {
    pub label: String,
    pub key: Key,
    pub outcome: OutcomeId,
    pub what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// What came of it is recorded as this.
    Settled(Verdict),
    /// It is in the spool.
    Kept(Verdict),
    /// It ran, and what came of it is neither recorded nor kept: told to whoever called it.
    Shouted,
    /// It was not started.
    DidNotRun,
    /// It had happened before.
    Already,
}

/// What one process works with.
struct Desk<'a> {
    world: &'a Arc<World>,
    machine: Machine,
    store: Arc<dyn Store>,
    spool: Option<Spool>,
    life: usize,
    name: String,
    within: Duration,
}

/// Gives commands, one process after another.
pub fn runner(world: &Arc<World>, number: usize) {
    let (jobs, host) = {
        let mut inside = world.turns.inside();
        let hosts = inside.shape.hosts as u64;
        (inside.shape.jobs, index(&mut inside.draws, hosts))
    };
    let mut restarts = 4;
    let mut job = 0;
    for process in 0.. {
        if job == jobs {
            return;
        }
        let gap = world.draw(world.shape().lease_ms);
        world.turns.pass(Duration::from_millis(gap));
        let name = format!("r{number}.{process}");
        let lived = live(world, name, host, |desk| desk.run());
        // What was killed is started anew by whoever started it, most of the time.
        if lived || restarts == 0 || world.draw(4) == 0 {
            job += 1;
        } else {
            restarts -= 1;
        }
    }
}

/// Decides, asks and forgets.
pub fn operator(world: &Arc<World>) {
    let (looks, host) = (2 + world.draw(6), world.shape().hosts - 1);
    for look in 0..looks {
        let gap = world.draw(3 * world.shape().lease_ms);
        world.turns.pass(Duration::from_millis(gap));
        live(world, format!("o.{look}"), host, |desk| desk.operate());
    }
}

/// One process; false if it was killed.
fn live(world: &Arc<World>, name: String, host: usize, work: impl FnOnce(&Desk<'_>)) -> bool {
    let told_at = (world.draw(12) == 0).then(|| world.draw(4_000 * world.shape().lease_ms));
    let now = world.turns.inside().now;
    let life = world.turns.become_life(Life {
        name: name.clone(),
        host,
        spool: world.spool(host).map(|spool| spool.dir().to_owned()),
        told_to_end_at: told_at.filter(|_| !world.is_calm()).map(|after| now + after),
        ..Life::default()
    });
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let machine = Machine { world: Arc::clone(world) };
        let spool = world.spool(host);
        let within = Duration::from_millis(world.shape().store_timeout_ms);
        let store = world.store_of_process();
        work(&Desk { world, machine, store, spool, life, name, within });
    }));
    world.turns.leave_life();
    match lived {
        Ok(()) => true,
        Err(panic) if panic.is::<Killed>() => false,
        Err(panic) => resume_unwind(panic),
    }
}

impl Desk<'_> {
    /// As `ctrlrun run`: deliver, and where nothing of this key is left, run.
    fn run(&self) {
        let keys = self.world.shape().keys as u64;
        let key = self.world.key(usize::try_from(self.world.draw(keys)).unwrap_or(0));
        if !self.deliver(&key) {
            return;
        }
        let guess = (self.world.draw(2) == 0).then(|| self.glimpse());
        let guess = RefCell::new(guess);
        let lease = Duration::from_millis(self.world.shape().lease_ms);
        let expect = if self.world.draw(8) == 0 { StreamState::NoStream } else { StreamState::Any };
        let last: RefCell<(String, OutcomeId)> =
            RefCell::new((String::new(), OutcomeId(self.machine.draw())));
        let attempts = RefCell::new(0);
        let mut order = |expect| {
            *attempts.borrow_mut() += 1;
            let label = format!("{}#{}", self.name, attempts.borrow());
            let outcome_id = OutcomeId(self.machine.draw());
            *last.borrow_mut() = (label.clone(), outcome_id);
            let guess = guess.borrow_mut().take();
            self.order(&key, label, outcome_id, lease, expect, guess)
        };
        let wait = self.world.draw(3) * self.world.draw(4 * self.world.shape().lease_ms);
        let wait = self.machine.now().plus(Duration::from_millis(wait));
        let retries = u32::try_from(self.world.draw(3)).unwrap_or(0);
        let mut again = Again::new(wait, retries, Duration::from_millis(100));
        let kept = |undelivered: &Undelivered, is_kept: bool| {
            if is_kept {
                let (label, outcome) = last.borrow().clone();
                let what = What::Kept(undelivered.settle.verdict);
                self.world.tell(Told { label, key: key.clone(), outcome, what });
            }
        };
        let lost =
            |_: Option<&Record>| self.world.say(&format!("{} has lost its record", self.name));
        let tools = Tools {
            host: &self.machine,
            store: self.store.as_ref(),
            spool: self.spool.as_ref(),
            journal: None,
            signals: None,
            lost: &lost,
            kept: &kept,
        };
        let timeout = self.world.draw(6) == 0;
        let timeout = timeout.then(|| Duration::from_millis(self.world.shape().child_ms / 2));
        let command = Command {
            program: "refund".into(),
            args: Vec::new(),
            no_stdin: true,
            capture: Some(1_024),
            is_shown: false,
            timeout,
            kill_after: Duration::from_millis(500),
            outcome_dir: Some(self.world.scratch().to_owned()),
        };
        let persisted = persist(expect, &mut order, &command, tools, &mut again, &mut |between| {
            if let Between::Retrying(ran, _) = between {
                self.report(&key, &last.borrow(), ran);
            }
        });
        let ran = match persisted {
            Persisted::Ended(ran) | Persisted::Interrupted(ran, _) => ran,
        };
        self.report(&key, &last.borrow(), &ran);
    }

    fn order(
        &self,
        key: &Key,
        attempt_id: String,
        outcome_id: OutcomeId,
        lease: Duration,
        expect: StreamState,
        guess: Option<Known>,
    ) -> Order {
        Order {
            key: key.clone(),
            request: Request {
                fingerprint: Fingerprint([0; 32]),
                program: "refund".to_owned(),
                arguments: 0,
                command: None,
            },
            attempt_id,
            expect,
            max_attempts: None,
            rebind: false,
            lease,
            ran_on: RanOn {
                host: format!("h{}", self.world.turns.inside().lives[self.life].host),
                pid: 0,
                user: String::new(),
                directory: String::new(),
            },
            labels: Labels::new(),
            not_executed: NotExecuted::parse(&DECLARED.to_string()).unwrap_or_default(),
            store_timeout: self.within,
            outcome_id,
            guess,
            dispatch: None,
        }
    }

    /// What opening the store tells (CMT-16).
    fn glimpse(&self) -> Known {
        let read_at = self.machine.now();
        let (floor, now) = (self.world.store.stored().rows.floor, self.world.store.now());
        Known::absent(floor, now, read_at, self.machine.now())
    }

    /// What is in the spool goes first; false where something of this very key is left (EXE-25).
    fn deliver(&self, own: &Key) -> bool {
        let Some(spool) = &self.spool else {
            return true;
        };
        let mut may = true;
        for delivery in
            deliver_on(&self.machine, self.store.as_ref(), spool, self.within, self.within)
        {
            let text = match &delivery {
                Delivery::Recorded(key) => format!("recorded {key}"),
                Delivery::Late(key) => format!("late {key}"),
                Delivery::Forgotten(key) => format!("forgotten {key}"),
                Delivery::Failed(key, _) => {
                    may &= key != own;
                    format!("failed {key}")
                }
                Delivery::Damaged { .. } => "damaged".to_owned(),
            };
            self.world.say(&format!("{} delivers: {text}", self.name));
        }
        may
    }

    fn report(&self, key: &Key, (label, outcome): &(String, OutcomeId), ran: &Ran) {
        let report = &ran.report;
        let what = match &report.result {
            Outcome::Settled { verdict, .. } => What::Settled(*verdict),
            Outcome::CommittedAlready => What::Already,
            Outcome::NotRecorded { undelivered, why } => match (why, &report.spooled) {
                // It is in the history, as the word of one who came late.
                (NotRecorded::Late, _) | (NotRecorded::Store(_), Some(Ok(()))) => {
                    What::Kept(undelivered.settle.verdict)
                }
                (NotRecorded::Forgotten, _) | (NotRecorded::Store(_), Some(Err(_))) => {
                    What::Shouted
                }
                (NotRecorded::Store(_), None) => {
                    let why = format!("{label} has neither recorded what it knew nor spooled it");
                    self.world.fail(why);
                    What::Shouted
                }
            },
            Outcome::Refused(_) | Outcome::CouldNot(_) | Outcome::Unknown(_) => What::DidNotRun,
        };
        let brief = match &report.result {
            Outcome::Refused(refusal) => format!("{refusal:?}"),
            Outcome::CouldNot(error) | Outcome::Unknown(error) => error.to_string(),
            Outcome::Settled { .. } | Outcome::CommittedAlready | Outcome::NotRecorded { .. } => {
                String::new()
            }
        };
        self.world.say(&format!("{label} of {key} is over: {what:?} {brief}"));
        // Whoever is refused is refused by another (CMT-10).
        let own = |record: &Record| record.attempt_id == *label;
        if report.result == Outcome::Refused(Refusal::InProgress)
            && report.record.as_ref().is_some_and(own)
        {
            self.world.fail(format!("{label} was refused by its own reservation"));
        }
        let told = Told { label: label.clone(), key: key.clone(), outcome: *outcome, what };
        let lines = self.world.started().iter().filter(|it| it.line.attempt_id == *label).count();
        if lines != usize::from(report.ran) {
            let ran = report.ran;
            let mut inside = self.world.turns.inside();
            inside.fail(format!("{label} says that it ran: {ran}; it was started {lines} times"));
        }
        self.world.tell(told);
    }

    /// An operator looks at a key, and does something about it.
    fn operate(&self) {
        let keys = self.world.shape().keys as u64;
        let key = self.world.key(usize::try_from(self.world.draw(keys)).unwrap_or(0));
        if !self.deliver(&key) {
            return;
        }
        if self.world.draw(8) == 0 {
            return self.forget();
        }
        let Ok(found) = self.store.load(&key, Ask::Nothing, self.within) else {
            return;
        };
        let Some(record) = found.record else { return };
        let thinks = Duration::from_millis(self.world.draw(500));
        self.world.turns.pass(thinks);
        let (by, looked_at) = ("a person".to_owned(), record.revision);
        let reason = "looked".to_owned();
        let command = match (record.state, self.world.draw(6)) {
            (State::Committed { .. } | State::Failed { .. }, 0) => {
                effect::Command::Reopen { by, reason, looked_at }
            }
            (State::Committed { .. } | State::Failed { .. }, _) => return,
            (_, 0) => effect::Command::Contend,
            (_, 1 | 2) if matches!(record.state, State::Ambiguous { .. }) => {
                let answer = self.world.probe(&key, record.first_attempt);
                let by = "reconcile:refund".to_owned();
                effect::Command::Probed(Probe { answer, by, reconcile_final: false, looked_at })
            }
            (_, turn) => {
                let decision =
                    if turn < 5 { ProbeAnswer::NotExecuted } else { ProbeAnswer::Committed };
                effect::Command::Resolve(Resolve { decision, by, reason, looked_at })
            }
        };
        let what = format!("{command:?}");
        let what = what.split([' ', '(']).next().unwrap_or_default().to_owned();
        let call = Call {
            key: key.clone(),
            command,
            expect: StreamState::Any,
            within: self.within,
            exchange_max: self.within,
            outputs: Vec::new(),
        };
        let done = handle_on(&self.machine, self.store.as_ref(), call);
        let answer = match &done {
            Done::Answered(answered) => match &answered.answer {
                Answer::Refused(refusal) => format!("refused, {refusal:?}"),
                answer => format!("{answer:?}"),
            },
            Done::CouldNot(error) | Done::Unknown(error) => error.to_string(),
        };
        self.world.say(&format!("{} of {key}: {what}: {answer}", self.name));
    }

    fn forget(&self) {
        let terms = Terms { forget_keys: true, ..Terms::default() };
        let (tally, _) = prune(self.store.as_ref(), &terms, self.within, &mut |_| {});
        self.world.say(&format!("{} forgets {} effects", self.name, tally.effects));
    }
}
