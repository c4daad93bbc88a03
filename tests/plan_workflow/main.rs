//! The tick, its fold and its write, in a world without I/O (WFL-4 to WFL-10).
mod cells;
mod check;
mod settlement;
mod values;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;

use ctrlrun::plan::effect::{Answer, Cause, Command, Holder, State, Verdict};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::workflow::write::{Aim, Done};
use ctrlrun::plan::workflow::{
    Asked, Definition, Given, Name, NodeSpec, NodeState, RunEvent, RunSpec, Status, WaitSpec, What,
    Wish,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use world::{World, name};

/// A node that runs a command.
fn runs(needs: &[&str], command: &[&str], retries: u32) -> NodeSpec {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    let run = RunSpec { command, retries, ..RunSpec::default() };
    node(needs, What::Run(Box::new(run)))
}

fn waits(needs: &[&str], signal: &str, for_ms: Option<u64>) -> NodeSpec {
    node(needs, What::Wait(WaitSpec { signal: Some(name(signal)), for_ms, until: None }))
}

fn node(needs: &[&str], what: What) -> NodeSpec {
    NodeSpec { needs: needs.iter().map(|need| name(need)).collect(), what }
}

fn definition(nodes: &[(&str, NodeSpec)]) -> Definition {
    Definition {
        name: name("w"),
        tier: ctrlrun::plan::workflow::Tier::Normal,
        inputs: BTreeMap::from([(name("day"), Given { default: Some("monday".to_owned()) })]),
        nodes: nodes.iter().map(|(of, spec)| (name(of), spec.clone())).collect(),
    }
}

/// A diamond, fed by an output, with a wait behind it.
fn diamond(variant: u8) -> Definition {
    let mut nodes = vec![
        ("a", runs(&[], &["make", "{day}"], 1)),
        ("b", runs(&["a"], &["use", "{a.stdout}"], 2)),
        ("c", runs(&["a"], &["other"], 0)),
        ("d", waits(&["b"], "go", Some(60_000))),
        ("e", runs(&["c", "d"], &["end", "{run}"], 1)),
    ];
    match variant {
        1 => nodes[2] = ("c", runs(&["a"], &["quite", "other"], 0)),
        2 => drop(nodes.remove(2)),
        3 => nodes.push(("f", runs(&["a"], &["more"], 0))),
        _ => {}
    }
    let mut definition = definition(&nodes);
    if variant == 2 {
        definition.nodes.get_mut(&name("e")).unwrap().needs.remove(&name("c"));
    }
    definition
}

#[derive(Debug, Clone)]
enum Op {
    Tick,
    /// A tick that loads before another thing happens, and commits after it.
    Behind(Box<Op>),
    /// A worker takes one of the dispatches that are due, or one it was handed before.
    Take {
        which: usize,
        stale: bool,
    },
    /// A child ends.
    End {
        which: usize,
        word: Word,
        output: bool,
    },
    /// A child's holder is gone.
    Crash(usize),
    Resolve {
        which: usize,
        happened: bool,
    },
    Reopen(usize),
    Cancel,
    Signal,
    Accept(u8),
    Force,
    Wait(bool),
    /// A note that changes nothing comes to a record: an outcome that is late.
    Late(usize),
}

#[derive(Debug, Clone, Copy)]
enum Word {
    Committed,
    Failed,
    NeverStarted,
    Ambiguous,
}

fn op() -> impl Strategy<Value = Op> {
    let word = prop_oneof![
        4 => Just(Word::Committed),
        2 => Just(Word::Failed),
        1 => Just(Word::NeverStarted),
        1 => Just(Word::Ambiguous),
    ];
    let which = 0_usize..5;
    let simple = prop_oneof![
        6 => Just(Op::Tick),
        6 => (which.clone(), any::<bool>()).prop_map(|(which, stale)| Op::Take { which, stale: stale && which > 1 }),
        6 => (which.clone(), word, prop::bool::weighted(0.9)).prop_map(|(which, word, output)| Op::End { which, word, output }),
        1 => which.clone().prop_map(Op::Crash),
        2 => (which.clone(), any::<bool>()).prop_map(|(which, happened)| Op::Resolve { which, happened }),
        1 => which.clone().prop_map(Op::Reopen),
        1 => Just(Op::Signal),
        1 => (0_u8..4).prop_map(Op::Accept),
        2 => any::<bool>().prop_map(Op::Wait),
        1 => which.prop_map(Op::Late),
    ];
    let ends = prop_oneof![Just(Op::Cancel), Just(Op::Force)];
    let any_op = prop_oneof![30 => simple, 1 => ends];
    any_op.clone().prop_flat_map(move |first| {
        let behind = Just(first.clone()).prop_map(|inner| Op::Behind(Box::new(inner)));
        prop_oneof![4 => Just(first), 1 => behind]
    })
}

/// The children that run, and dispatches that somebody was handed once.
#[derive(Default)]
struct Outside {
    running: Vec<(Key, Holder)>,
    lost: Vec<(Key, Holder)>,
    handed: Vec<ctrlrun::plan::workflow::Dispatch>,
    seen: BTreeMap<&'static str, u32>,
}

impl Outside {
    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn perform(&mut self, world: &mut World, op: &Op) {
        match op {
            Op::Tick => self.tick(world),
            Op::Behind(inner) => {
                let mut before = 0;
                let done = world.write_with(Aim::Tick, |world, appends| {
                    if appends == 1 {
                        before = world.the_run().revision;
                        self.perform(world, inner);
                    }
                });
                if matches!(done, Done::Committed(_)) && world.the_run().revision > before {
                    self.saw("a tick that was raced");
                }
            }
            Op::Take { which, stale } => self.take(world, *which, *stale),
            Op::End { which, word, output } => self.end(world, *which, *word, *output),
            Op::Crash(which) => {
                if !self.running.is_empty() {
                    let gone = self.running.remove(which % self.running.len());
                    self.lost.push(gone);
                    world.now += 20_000_000;
                }
            }
            Op::Resolve { which, happened } => {
                if let Some(key) = nth(world, *which)
                    && world.resolve(&key, *happened) == Answer::Resolved
                {
                    self.saw("a decision");
                }
            }
            Op::Reopen(which) => {
                if let Some(key) = nth(world, *which)
                    && matches!(world.records[&key].state, State::Committed { .. })
                {
                    world.reopen(&key);
                    self.saw("a decision taken back");
                }
            }
            Op::Cancel => {
                world.wish(Wish::Cancel(Asked { by: "me".to_owned(), reason: None }));
            }
            Op::Signal => world.wish(Wish::Signal {
                name: name("go"),
                payload: "p".to_owned(),
                by: "me".to_owned(),
            }),
            Op::Accept(variant) => {
                let from = world.the_run().definition_hash;
                let definition = diamond(*variant).canonical();
                world.wish(Wish::Definition { from, definition, by: "me".to_owned() });
            }
            Op::Force => {
                let since_seq = world.the_run().last_transition_seq;
                let why = "a test".to_owned();
                if let Done::Committed(_) = world.write(Aim::Force { since_seq, why }) {
                    self.saw("an end by force");
                }
            }
            Op::Wait(long) => world.now += if *long { 70_000_000 } else { 1_000_000 },
            Op::Late(which) => {
                if !self.lost.is_empty() {
                    let (key, holder) = self.lost.remove(which % self.lost.len());
                    world.settle(&key, holder, Verdict::Failed, "");
                    self.saw("a late word");
                }
            }
        }
    }

    fn tick(&mut self, world: &mut World) {
        if let Done::Committed(_) = world.tick() {
            // What a tick leaves behind another one leaves as it is, at the same moment.
            let now = world.now;
            let loaded = world.load(world.the_run().clone());
            let again = ctrlrun::plan::workflow::tick::tick(&loaded);
            assert_eq!(again.events, Vec::new(), "a second tick goes on by itself");
            world.now = now;
            self.saw("a tick");
        }
    }

    fn take(&mut self, world: &mut World, which: usize, stale: bool) {
        let due = if stale { self.handed.clone() } else { world.due() };
        if due.is_empty() {
            return;
        }
        let dispatch = due[which % due.len()].clone();
        self.handed.push(dispatch.clone());
        let is_there = world.dispatches.iter().any(|there| there.id == dispatch.id);
        match world.start(&dispatch) {
            Some(holder) => {
                // WFL-8, WFL-9
                assert!(is_there, "a dispatch that is gone ran its node");
                self.running.push((dispatch.key, holder));
                self.saw("a start");
            }
            None if !is_there => self.saw("a dispatch that is gone"),
            None => self.saw("a dispatch that was refused"),
        }
    }

    fn end(&mut self, world: &mut World, which: usize, word: Word, output: bool) {
        if self.running.is_empty() {
            return;
        }
        let (key, holder) = self.running.remove(which % self.running.len());
        let verdict = match word {
            Word::Committed => Verdict::Committed,
            Word::Failed => Verdict::Failed,
            Word::NeverStarted => Verdict::NeverStarted,
            Word::Ambiguous => Verdict::Ambiguous { cause: Cause::Exit, reaped: true },
        };
        world.settle(&key, holder, verdict, if output { "out\n" } else { "" });
    }

    /// Goes on until nothing moves any more: whatever is in doubt happened, whatever runs commits.
    fn finish(&mut self, world: &mut World) {
        world.wish(Wish::Signal { name: name("go"), payload: String::new(), by: "me".to_owned() });
        for _ in 0..200 {
            self.tick(world);
            if world.the_run().status.is_end() {
                return;
            }
            world.now += 70_000_000;
            for key in world.keys() {
                let state = world.records[&key].state;
                if matches!(state, State::Reserved { .. } | State::Executing { .. }) {
                    world.act(&key, &Command::Contend, None);
                }
                if matches!(world.records[&key].state, State::Ambiguous { .. }) {
                    world.resolve(&key, true);
                    let output = b"out".to_vec();
                    let (tail, bytes, whole) = (Vec::new(), 3, true);
                    let stated =
                        ctrlrun::plan::protocol::Captured { head: output, tail, bytes, whole };
                    world.outputs.insert(key, stated);
                }
            }
            for dispatch in world.due() {
                if let Some(holder) = world.start(&dispatch) {
                    world.settle(&dispatch.key, holder, Verdict::Committed, "out");
                }
            }
            // An output that feeds nothing as it is: a person states another one.
            let unfit = world.the_run().progress.nodes.values();
            if unfit.into_iter().any(|node| matches!(node.state, NodeState::Unfit { .. })) {
                let output = b"out".to_vec();
                let (tail, bytes, whole) = (Vec::new(), 3, true);
                let stated = ctrlrun::plan::protocol::Captured { head: output, tail, bytes, whole };
                for key in world.keys() {
                    world.outputs.insert(key, stated.clone());
                }
            }
        }
        panic!("it does not end: {:#?}\n{:#?}", world.the_run(), world.dispatches);
    }
}

fn nth(world: &World, which: usize) -> Option<Key> {
    let keys: Vec<Key> = world.keys().into_iter().collect();
    (!keys.is_empty()).then(|| keys[which % keys.len()].clone())
}

#[test]
fn whatever_happens_a_run_goes_on_and_no_stale_dispatch_runs_anything() {
    let config = Config {
        cases: 700,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x0c7e_11a7),
        max_shrink_iters: 4_000,
        ..Config::default()
    };
    let seen: RefCell<BTreeMap<&'static str, u32>> = RefCell::default();
    let sequences = prop::collection::vec(op(), 1..60);
    let result = TestRunner::new(config).run(&sequences, |ops| {
        let mut world = World::started(&diamond(0));
        let mut outside = Outside::default();
        for op in &ops {
            outside.perform(&mut world, op);
        }
        outside.finish(&mut world);
        for row in &world.history {
            outside.saw(row.event.kind());
        }
        for row in &world.history {
            if let RunEvent::StatusChanged { status, .. } = &row.event {
                outside.saw(status.name());
            }
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
        "a tick",
        "a tick that was raced",
        "a start",
        "a dispatch that is gone",
        "a dispatch that was refused",
        "a decision",
        "a decision taken back",
        "a late word",
        "an end by force",
        "node_dispatched",
        "node_withdrawn",
        "node_waiting",
        "node_passed",
        "node_committed",
        "node_failed",
        "node_ambiguous",
        "node_unfit",
        "node_pending",
        "signalled",
        "cancel_asked",
        "definition_accepted",
        "noted",
        "running",
        "blocked",
        "cancelling",
        "failing",
        "succeeded",
        "failed",
        "cancelled",
    ] {
        assert!(seen.get(what).is_some_and(|times| *times > 0), "never seen: {what}; {seen:?}");
    }
}

/// What the tests of cells share.
fn status(world: &World) -> Status {
    world.the_run().status
}

fn dispatched(world: &World) -> Vec<Name> {
    world.dispatches.iter().map(|dispatch| dispatch.id.node.clone()).collect()
}
