//! Any sequence of commands, lapses, crashes and lost answers on one key: three processes, a
//! person, a probe, and a store in memory (EFF-1 to EFF-21, CMT-7, CMT-10, CMT-11, HIS-1, HIS-2).
//!
//! The store itself asserts what must hold of each row that lands (plan_common/world.rs); here is
//! what must hold of the processes.
#[path = "plan_common/ask.rs"]
mod ask;
mod plan_common;
#[path = "plan_common/world.rs"]
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use ask::{LEASE, NOW, begin, outcome_id, reserve, settle};
use ctrlrun::plan::effect::{
    Answer, Cause, Command, Holder, OutcomeId, Probe, ProbeAnswer, Reserve, Resolve, State, Verdict,
};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::idempotency_key;
use ctrlrun::plan::protocol::{Answered, Done, Handle};
use ctrlrun::plan::retry::Budget;
use plan_common::{key, request};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use uuid::Uuid;
use world::{Fault, World, name, ours};

/// What one of the processes, a person, a probe or the time does next.
#[derive(Debug, Clone)]
enum Op {
    /// A process goes on: it reserves, begins, or its child ends with this word.
    Go(usize, Wish),
    Renew(usize),
    /// What could not be recorded is tried again.
    Deliver,
    /// The process is gone, and its child with it or not: nobody will tell.
    Crash(usize),
    Resolve {
        happened: bool,
        stale: bool,
    },
    Reopen {
        stale: bool,
    },
    Contend,
    Probe {
        answer: ProbeAnswer,
        last_word: bool,
        stale: bool,
    },
    /// Some time, or as much as a lease.
    Wait(bool),
}

/// How a process goes on, in whichever place it is.
#[derive(Debug, Clone, Copy)]
struct Wish {
    other_command: bool,
    rebind: bool,
    at_most: Option<u64>,
    word: Verdict,
}

/// A step of a sequence: the faults that meet its exchanges, and what another does in between.
#[derive(Debug, Clone)]
struct Turn {
    op: Op,
    faults: Vec<Fault>,
    meanwhile: Option<(usize, Op)>,
}

fn word() -> impl Strategy<Value = Verdict> {
    let ambiguous = |cause, reaped| Just(Verdict::Ambiguous { cause, reaped });
    prop_oneof![
        3 => Just(Verdict::Failed),
        2 => Just(Verdict::Committed),
        1 => Just(Verdict::NeverStarted),
        1 => ambiguous(Cause::Exit, true),
        1 => ambiguous(Cause::Timeout, false),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let process = 0..3_usize;
    let stale = || prop::bool::weighted(0.2);
    let answer = prop_oneof![
        Just(ProbeAnswer::NotExecuted),
        Just(ProbeAnswer::Committed),
        Just(ProbeAnswer::Unknown)
    ];
    let at_most = prop::option::weighted(0.1, 1..6_u64);
    let wish = (prop::bool::weighted(0.15), any::<bool>(), at_most, word()).prop_map(
        |(other_command, rebind, at_most, word)| Wish { other_command, rebind, at_most, word },
    );
    prop_oneof![
        20 => (process.clone(), wish).prop_map(|(by, wish)| Op::Go(by, wish)),
        2 => process.clone().prop_map(Op::Renew),
        3 => Just(Op::Deliver),
        1 => process.prop_map(Op::Crash),
        5 => (prop::bool::weighted(0.2), stale())
            .prop_map(|(happened, stale)| Op::Resolve { happened, stale }),
        1 => stale().prop_map(|stale| Op::Reopen { stale }),
        1 => Just(Op::Contend),
        2 => (answer, any::<bool>(), stale())
            .prop_map(|(answer, last_word, stale)| Op::Probe { answer, last_word, stale }),
        3 => prop::bool::weighted(0.3).prop_map(Op::Wait),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    let fault = prop_oneof![
        3 => Just(Fault::None),
        1 => Just(Fault::Cannot),
        1 => Just(Fault::LostAfter),
        1 => Just(Fault::LostBefore),
        1 => Just(Fault::LandsLate),
    ];
    let faults = prop::collection::vec(fault, 0..5);
    let meanwhile = prop::option::weighted(0.3, (0..4_usize, op()));
    (op(), faults, meanwhile).prop_map(|(op, faults, meanwhile)| Turn { op, faults, meanwhile })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    Idle,
    Reserved(Holder),
    Running(Holder),
}

/// All that is outside the store.
#[derive(Debug)]
struct Outside {
    processes: [Process; 3],
    /// Known outcomes that are not recorded yet.
    spool: Vec<(Holder, OutcomeId, Verdict)>,
    /// Those that a store said it has.
    told: Vec<OutcomeId>,
    /// Attempts that were started, and the idempotency key each showed the remote.
    started: BTreeMap<u64, Uuid>,
    outcomes: u128,
    seen: BTreeMap<&'static str, u32>,
}

impl Outside {
    fn new() -> Self {
        Self {
            processes: [Process::Idle; 3],
            spool: Vec::new(),
            told: Vec::new(),
            started: BTreeMap::new(),
            outcomes: 0,
            seen: BTreeMap::new(),
        }
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// Does `turn`.
    fn turn(&mut self, world: &mut World, turn: &Turn) {
        let Some((command, by)) = self.command(world, &turn.op) else {
            return;
        };
        let budget = Budget::new(6, world.moment().plus(LEASE), Duration::from_secs(1));
        let mut machine = Handle::new(key(), command.clone(), StreamState::Any, budget);
        let done = world.drive(&mut machine, &turn.faults, |world, exchange| {
            let Some((when, op)) = &turn.meanwhile else {
                return;
            };
            if *when == exchange && by.is_none_or(|by| !op.is_by(by)) {
                let (op, faults, meanwhile) = (op.clone(), Vec::new(), None);
                let between = Turn { op, faults, meanwhile };
                self.turn(world, &between);
            }
        });
        self.ended(world, &command, by, done);
        assert_eq!(world.refold(), world.record, "HIS-2");
    }

    /// The command that `op` is now, and the process that gives it.
    fn command(&mut self, world: &mut World, op: &Op) -> Option<(Command, Option<usize>)> {
        let revision = world.record.as_ref().map_or(0, |record| record.revision);
        let looked_at = |stale| revision.saturating_sub(u64::from(stale));
        let person = "oncall@bastion".to_owned();
        let reason = "so says the ledger".to_owned();
        let command = match *op {
            Op::Go(by, wish) => {
                let command = match self.processes[by] {
                    Process::Idle => Command::Reserve(Reserve {
                        request: request(1 + u8::from(wish.other_command)),
                        rebind: wish.rebind,
                        max_attempts: wish.at_most,
                        ..reserve("one label for all")
                    }),
                    Process::Reserved(holder) => begin(holder),
                    Process::Running(holder) => {
                        self.outcomes += 1;
                        settle(holder, outcome_id(self.outcomes), wish.word)
                    }
                };
                return Some((command, Some(by)));
            }
            Op::Renew(by) => match self.processes[by] {
                Process::Running(holder) => {
                    let lease = LEASE;
                    return Some((Command::Renew { holder, lease }, Some(by)));
                }
                Process::Idle | Process::Reserved(_) => return None,
            },
            Op::Deliver => {
                let (holder, outcome, word) = self.spool.pop()?;
                settle(holder, outcome, word)
            }
            Op::Crash(by) => {
                self.processes[by] = Process::Idle;
                return None;
            }
            Op::Resolve { happened, stale } => Command::Resolve(Resolve {
                decision: if happened { ProbeAnswer::Committed } else { ProbeAnswer::NotExecuted },
                by: person,
                reason,
                looked_at: looked_at(stale),
            }),
            Op::Reopen { stale } => {
                Command::Reopen { by: person, reason, looked_at: looked_at(stale) }
            }
            Op::Contend => Command::Contend,
            Op::Probe { answer, last_word, stale } => Command::Probed(Probe {
                answer,
                by: "reconcile:ledger".to_owned(),
                reconcile_final: last_word,
                looked_at: looked_at(stale),
            }),
            Op::Wait(long) => {
                world.now += if long { 61_000_000 } else { 20_000_000 };
                return None;
            }
        };
        Some((command, None))
    }

    /// What a process makes of the end of its command.
    fn ended(&mut self, world: &World, command: &Command, by: Option<usize>, done: Done) {
        let answered = match done {
            Done::Answered(answered) => Some(*answered),
            Done::CouldNot(_) => None,
            Done::Unknown(_) => {
                self.saw("an end that stays unknown");
                None
            }
        };
        match command {
            Command::Reserve(_) => self.reserved(by, answered),
            Command::Begin(begin) => {
                let by = by.unwrap_or(0);
                self.processes[by] = Process::Idle;
                match answered {
                    Some(answered) if answered.answer == Answer::Start => {
                        self.start(begin.holder, &answered);
                        self.processes[by] = Process::Running(begin.holder);
                    }
                    Some(_) => self.saw("a begin that was refused"),
                    None => {
                        self.outcomes += 1;
                        let outcome = outcome_id(self.outcomes);
                        self.spool.push((begin.holder, outcome, Verdict::NeverStarted));
                    }
                }
            }
            Command::Settle(settle) => {
                if let Some(by) = by {
                    self.processes[by] = Process::Idle;
                }
                match answered {
                    Some(answered) => {
                        assert_ne!(answered.answer, Answer::Forgotten);
                        self.told.push(settle.outcome_id);
                        self.saw(if answered.answer == Answer::KeptAsLate {
                            "a late outcome"
                        } else if answered.answer == Answer::Delivered {
                            "an outcome delivered before"
                        } else {
                            assert_eq!(answered.answer, Answer::Settled);
                            "an outcome settled"
                        });
                    }
                    None => self.spool.push((settle.holder, settle.outcome_id, settle.verdict)),
                }
            }
            Command::Renew { .. }
            | Command::Resolve(_)
            | Command::Reopen { .. }
            | Command::Contend
            | Command::Probed(_) => {}
        }
        for outcome in &self.told {
            assert_eq!(world.appends_with(*outcome), 1, "EFF-15: {outcome:?}");
        }
    }

    fn reserved(&mut self, by: Option<usize>, answered: Option<Answered>) {
        let Some(answered) = answered else { return };
        let (Answer::Granted, Some(record), Some(by)) = (answered.answer, answered.record, by)
        else {
            return;
        };
        let holder = Holder { attempt: record.attempt, reservation_id: record.reservation_id };
        let held = |process: &Process| match process {
            Process::Idle => false,
            Process::Reserved(other) | Process::Running(other) => *other == holder,
        };
        assert!(!self.processes.iter().any(held), "EFF-4: {holder:?} twice");
        self.processes[by] = Process::Reserved(holder);
        self.saw("a grant");
    }

    /// The command is started now.
    fn start(&mut self, holder: Holder, answered: &Answered) {
        let Some(record) = &answered.record else {
            panic!("nothing to start: {answered:?}");
        };
        assert!(record.is_held_by(holder), "EFF-13");
        assert_eq!(name(record.state), "EXECUTING", "EFF-13");
        assert!(!record.in_doubt, "EFF-7");
        let State::Executing { lease_expires_at } = record.state else {
            panic!("it is EXECUTING");
        };
        assert!(answered.now < lease_expires_at, "EFF-13: it was live");
        let own_end = answered.read_at.plus(LEASE);
        assert!(own_end <= ours(lease_expires_at), "EXE-8: {answered:?}");
        let shown = idempotency_key(&key(), record.proven_failures);
        let twice = self.started.insert(record.attempt, shown);
        assert_eq!(twice, None, "a second execution of attempt {}", record.attempt);
        self.saw("a start");
        if self.started.len() > 1 {
            self.saw("a start after another");
        }
    }

    /// EFF-9, KEY-7: whatever could repeat a doubtful attempt carries its idempotency key.
    fn check_keys(&mut self, world: &World) {
        for (doubtful, shown) in &self.started {
            if !world.doubtful.contains(doubtful) {
                continue;
            }
            for (attempt, later) in self.started.range(doubtful + 1..) {
                assert_eq!(later, shown, "attempt {attempt} could repeat {doubtful}");
                *self.seen.entry("a start that could repeat").or_default() += 1;
            }
        }
    }
}

impl Op {
    fn is_by(&self, process: usize) -> bool {
        match self {
            Self::Go(by, _) | Self::Renew(by) | Self::Crash(by) => *by == process,
            Self::Deliver
            | Self::Resolve { .. }
            | Self::Reopen { .. }
            | Self::Contend
            | Self::Probe { .. }
            | Self::Wait(_) => false,
        }
    }
}

#[test]
fn whatever_happens_no_attempt_runs_twice_and_no_outcome_is_lost() {
    let config = Config {
        cases: 800,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x0c7e_11a7),
        ..Config::default()
    };
    let seen: RefCell<BTreeMap<&'static str, u32>> = RefCell::default();
    let sequences = prop::collection::vec(turn(), 1..50);
    let result = TestRunner::new(config).run(&sequences, |turns| {
        let mut world = World::default();
        world.now = NOW.0;
        let mut outside = Outside::new();
        for turn in &turns {
            outside.turn(&mut world, turn);
        }
        world.settle_in_flight();
        outside.check_keys(&world);
        for row in &world.history {
            outside.saw(row.event.kind());
        }
        let mut seen = seen.borrow_mut();
        for (what, times) in outside.seen {
            *seen.entry(what).or_default() += times;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    // A run in which a thing did not come about says nothing of it.
    let seen = seen.into_inner();
    for what in [
        "a grant",
        "a start",
        "a start after another",
        "a start that could repeat",
        "a begin that was refused",
        "an outcome settled",
        "a late outcome",
        "an outcome delivered before",
        "an end that stays unknown",
        "reserved",
        "began",
        "lease_renewed",
        "committed",
        "failed",
        "ambiguated",
        "late_outcome",
        "probed",
        "resolved",
        "reopened",
    ] {
        let times = seen.get(what).copied().unwrap_or(0);
        assert!(times >= 10, "{what}: {times} times in {seen:#?}");
    }
}
