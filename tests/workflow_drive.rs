//! Coordinators on real stores, in this process: many at one run, races that never end, a run that
//! nothing moves (WFL-13 to WFL-15).
mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::pgstore::store_at;
use common::postgres::server;
use common::store::Home;
use ctrlrun::drive::host;
use ctrlrun::drive::workflow::Counters;
use ctrlrun::drive::workflow::coordinator::Coordinator;
use ctrlrun::plan::protocol::End;
use ctrlrun::plan::time::Timestamp;
use ctrlrun::plan::workflow::pace::Pace;
use ctrlrun::plan::workflow::tick::{Decided, Loaded};
use ctrlrun::plan::workflow::write::{Aim, Done, fold};
use ctrlrun::plan::workflow::{
    Definition, InboxId, InboxItem, Name, NodeSpec, NodeState, Run, RunEvent, RunId, RunSpec,
    Status, WaitSpec, What, Wish,
};
use ctrlrun::store::Store;
use ctrlrun::store::faulty::{Faulty, Verb};
use ctrlrun::store::runs::{Take, Woken};

const WITHIN: Duration = Duration::from_secs(20);

/// The numbers of the default, in a shorter time.
fn quick() -> Pace {
    Pace {
        again: [0, 1, 1, 1, 2].map(Duration::from_millis).to_vec(),
        requeue_first: Duration::from_millis(1),
        requeue_max: Duration::from_millis(5),
        requeues_max: 6,
        stuck_after: Duration::ZERO,
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn run_id() -> RunId {
    RunId::new("r").unwrap()
}

fn waits(need: Option<&str>, signal: &str) -> NodeSpec {
    let wait = WaitSpec { signal: Some(name(signal)), ..WaitSpec::default() };
    NodeSpec { needs: need.map(name).into_iter().collect(), what: What::Wait(wait) }
}

fn definition(nodes: impl IntoIterator<Item = (String, NodeSpec)>) -> Definition {
    Definition {
        name: name("w"),
        tier: ctrlrun::plan::workflow::Tier::Normal,
        inputs: BTreeMap::new(),
        nodes: nodes.into_iter().map(|(of, spec)| (name(&of), spec)).collect(),
    }
}

fn coordinator<'a>(
    store: &'a dyn Store,
    pace: &'a Pace,
    counters: &'a Counters,
) -> Coordinator<'a> {
    Coordinator { store, pace, counters, within: WITHIN }
}

fn start(store: &dyn Store, definition: Definition) {
    let (pace, counters) = (Pace::default(), Counters::default());
    let aim = Aim::Start { definition: Box::new(definition), inputs: BTreeMap::new() };
    let done = coordinator(store, &pace, &counters).write(&run_id(), aim, None);
    assert!(matches!(done, Done::Committed(_)), "{done:?}");
}

fn send(store: &dyn Store, signal: &str) {
    let wish = Wish::Signal { name: name(signal), payload: String::new(), by: "test".to_owned() };
    let item = InboxItem { id: InboxId(host::draw()), run: run_id(), wish, at: Timestamp(0) };
    while store.runs().put_inbox(&item, WITHIN) != End::Landed {}
}

fn look(store: &dyn Store) -> Loaded {
    let (pace, counters) = (Pace::default(), Counters::default());
    coordinator(store, &pace, &counters).look(&run_id()).unwrap().unwrap()
}

fn take(store: &dyn Store) -> Vec<Woken> {
    let run = run_id();
    let take =
        Take { only: Some(&run), limit: 1, claim: host::draw(), hold: Duration::from_millis(200) };
    store.runs().claim_wakeups(&take, WITHIN).map(|claimed| claimed.taken).unwrap_or_default()
}

/// A test on each kind of store.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite { $(#[test] fn $name() {
            let home = super::Home::new();
            super::$name(&|| home.store());
        })* }
        mod postgres { $(#[test] fn $name() {
            let Some(server) = super::server() else { return };
            let url = server.url("postgres");
            super::$name(&|| super::store_at(&url));
        })* }
    };
}

on_both!(
    a_hot_run_makes_progress_and_is_not_ended_by_the_bound,
    a_run_whose_ticks_conflict_for_ever_is_ended_by_force,
    a_run_that_progresses_between_its_requeues_is_not_ended,
    a_run_that_nothing_moves_is_ended_by_the_watchdog,
    a_run_that_waits_is_left_alone_by_the_watchdog,
    a_wakeup_that_was_lost_is_made_good_by_the_watchdog,
);

/// Opens the store once more, as another process would.
type Open<'a> = &'a dyn Fn() -> Arc<dyn Store>;

fn a_hot_run_makes_progress_and_is_not_ended_by_the_bound(open: Open<'_>) {
    // WFL-13, WFL-14: 16 coordinators, each with a connection of its own.
    const STEPS: usize = 120;
    let step = |index: usize| format!("n{index:03}");
    let nodes = (0..STEPS).map(|index| {
        let before = index.checked_sub(1).map(step);
        (step(index), waits(before.as_deref(), &step(index)))
    });
    let store = open();
    start(store.as_ref(), definition(nodes));
    let stores: Vec<Arc<dyn Store>> = (0..16).map(|_| open()).collect();
    let (pace, counters) = (Pace::default(), Counters::default());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for store in &stores {
            let (pace, counters, over) = (&pace, &counters, &over);
            scope.spawn(move || {
                let of = coordinator(store.as_ref(), pace, counters);
                while !over.load(Ordering::SeqCst) {
                    // With a wakeup and without one, so that they do meet.
                    let done = of.write(&run_id(), Aim::Tick, None);
                    for woken in take(store.as_ref()) {
                        of.wake(&woken, None);
                    }
                    if let Done::Nothing(loaded) = &done
                        && loaded.run.status.is_end()
                    {
                        over.store(true, Ordering::SeqCst);
                    }
                }
            });
        }
        // Each step is asked for when the one before has come about: sixteen that lose to each other
        // all the while must bring on every single one. It goes on for some seconds.
        let began = std::time::Instant::now();
        for index in 0..STEPS {
            send(store.as_ref(), &step(index));
            let passed = |run: &Run| run.progress.nodes[&name(&step(index))].state.is_done();
            let bound = std::time::Instant::now() + WITHIN;
            while !passed(&look(store.as_ref()).run) {
                if std::time::Instant::now() > bound {
                    over.store(true, Ordering::SeqCst);
                    panic!("step {index}: no progress for {WITHIN:?}, {:?} in", began.elapsed());
                }
                std::thread::yield_now();
            }
        }
    });
    let run = look(store.as_ref()).run;
    assert_eq!(run.status, Status::Succeeded, "{:?}", run.reason);
    assert_eq!(counters.livelocks.get(), 0);
    // Nearly every step is a race of sixteen.
    assert!(counters.conflicts.get() > STEPS as u64, "they hardly met: {:?}", counters.conflicts);
}

/// Writes a note to the run: its version moves, and it makes no progress.
fn note(store: &dyn Store) {
    loop {
        let loaded = look(store);
        let what = "somebody was faster".to_owned();
        let events = vec![RunEvent::Noted { item: None, what }];
        let decided = Decided { events, ..Decided::default() };
        let quiet = Loaded { wakeups: Vec::new(), ..loaded };
        let append = fold(&quiet, None, &decided, host::write_id(), None).unwrap();
        if store.runs().append_run(&append, WITHIN) == End::Landed {
            return;
        }
    }
}

/// A store on which somebody is faster than each of the first `times` appends of a run.
fn raced(open: Open<'_>, times: u32) -> Faulty {
    let other = open();
    Faulty::new(open(), []).meanwhile(Box::new(move |verb, call| {
        if verb == Verb::AppendRun && call <= times {
            note(other.as_ref());
        }
    }))
}

/// Ticks as a worker does until the run has ended, `rounds` at most; the requeues that were seen.
fn drive(of: Coordinator<'_>, rounds: usize) -> Vec<String> {
    let mut keys = Vec::new();
    for _ in 0..rounds {
        let woken = loop {
            let taken = take(of.store);
            if !taken.is_empty() {
                break taken;
            }
            if look(of.store).run.status.is_end() {
                return keys;
            }
        };
        for woken in woken {
            keys.extend(woken.wakeups.iter().filter(|at| at.count > 0).map(|at| at.key.clone()));
            of.wake(&woken, None);
        }
    }
    keys
}

fn a_run_whose_ticks_conflict_for_ever_is_ended_by_force(open: Open<'_>) {
    // WFL-13, WFL-14
    let plain = open();
    start(plain.as_ref(), definition([("a".to_owned(), waits(None, "go"))]));
    send(plain.as_ref(), "go");
    let (pace, counters) = (quick(), Counters::default());
    // Every try of every tick, and two of the write that ends it: it looks again.
    let ticks = (pace.requeues_max + 1) * 6;
    let store = raced(open, ticks + 2);
    let of = coordinator(&store, &pace, &counters);
    let keys = drive(of, 50);
    let run = look(plain.as_ref()).run;
    assert_eq!(run.status, Status::Failed);
    let reason = run.reason.unwrap();
    assert!(reason.starts_with("ended by force: livelock: 6 times"), "{reason}");
    assert_eq!((counters.livelocks.get(), counters.stuck.get()), (1, 0));
    assert_eq!(counters.requeues.get(), 6);
    assert_eq!(counters.failures.get(), 0, "a conflict is no failure");
    let mut different = keys.clone();
    different.sort();
    different.dedup();
    assert!(different.len() >= 6, "each requeue has a key of its own: {keys:?}");
}

fn a_run_that_progresses_between_its_requeues_is_not_ended(open: Open<'_>) {
    // WFL-14: the same races, but now and then somebody gets through.
    let plain = open();
    let nodes = (0..6).map(|index| (format!("n{index}"), waits(None, &format!("s{index}"))));
    start(plain.as_ref(), definition(nodes));
    let store = raced(open, u32::MAX);
    let (pace, counters) = (quick(), Counters::default());
    let of = coordinator(&store, &pace, &counters);
    send(plain.as_ref(), "s0");
    let quiet = Counters::default();
    for signal in 1..5 {
        drive(of, usize::try_from(pace.requeues_max).unwrap() - 1);
        // Another coordinator, which nobody races.
        send(plain.as_ref(), &format!("s{signal}"));
        coordinator(plain.as_ref(), &pace, &quiet).write(&run_id(), Aim::Tick, None);
        send(plain.as_ref(), "more");
    }
    assert_eq!(look(plain.as_ref()).run.status, Status::Running);
    assert!(counters.requeues.get() > u64::from(pace.requeues_max));
    assert_eq!(counters.livelocks.get(), 0);
}

fn a_run_that_nothing_moves_is_ended_by_the_watchdog(open: Open<'_>) {
    // WFL-15: a run that no code of ours leaves so.
    let store = open();
    start(store.as_ref(), definition([("a".to_owned(), waits(None, "go"))]));
    let loaded = look(store.as_ref());
    let broken = definition([(
        "a".to_owned(),
        NodeSpec {
            needs: [name("b")].into(),
            what: What::Run(Box::new(RunSpec {
                command: vec!["true".to_owned()],
                ..RunSpec::default()
            })),
        },
    )]);
    let events = vec![RunEvent::DefinitionAccepted {
        item: InboxId(host::draw()),
        definition: broken.canonical(),
        hash: ctrlrun::plan::workflow::hash(&broken.canonical()),
        nodes: vec![name("a")],
        by: "a bug".to_owned(),
    }];
    let decided = Decided { events, ..Decided::default() };
    let append = fold(&loaded, None, &decided, host::write_id(), None).unwrap();
    assert_eq!(store.runs().append_run(&append, WITHIN), End::Landed);
    let (pace, counters) = (quick(), Counters::default());
    coordinator(store.as_ref(), &pace, &counters).watch(None).unwrap();
    let run = look(store.as_ref()).run;
    assert_eq!(run.status, Status::Failed);
    assert!(run.reason.unwrap().starts_with("ended by force: stuck"), "the same path");
    assert_eq!((counters.livelocks.get(), counters.stuck.get()), (0, 1));
}

fn a_run_that_waits_is_left_alone_by_the_watchdog(open: Open<'_>) {
    // WFL-15
    let store = open();
    start(store.as_ref(), definition([("a".to_owned(), waits(None, "go"))]));
    let before = look(store.as_ref()).run;
    let (pace, counters) = (quick(), Counters::default());
    coordinator(store.as_ref(), &pace, &counters).watch(None).unwrap();
    assert_eq!(look(store.as_ref()).run, before);
}

fn a_wakeup_that_was_lost_is_made_good_by_the_watchdog(open: Open<'_>) {
    // WFL-15: it ticks before it ends anything.
    let store = open();
    start(store.as_ref(), definition([("a".to_owned(), waits(None, "go"))]));
    send(store.as_ref(), "go");
    for woken in take(store.as_ref()) {
        assert_eq!(store.runs().finish_wakeups(&woken.wakeups, WITHIN), End::Landed);
    }
    let (pace, counters) = (quick(), Counters::default());
    coordinator(store.as_ref(), &pace, &counters).watch(None).unwrap();
    let run = look(store.as_ref()).run;
    assert_eq!(run.progress.nodes[&name("a")].state, NodeState::Passed);
    assert_eq!(run.status, Status::Succeeded);
}
