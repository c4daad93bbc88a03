//! Single facts of the tick.
use ctrlrun::plan::effect::{Answer, Cause, Verdict};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::time::Timestamp;
use ctrlrun::plan::workflow::tick::{tick, waits_for_nothing};
use ctrlrun::plan::workflow::write::{Aim, Done};
use ctrlrun::plan::workflow::{
    Asked, DispatchedWhy, Expected, NodeState, RunEvent, Status, Tier, Wish,
};

use crate::world::{World, name};
use crate::{definition, diamond, dispatched, node, runs, status, waits};

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// Runs a node's dispatch to this end.
fn runs_to(world: &mut World, of: &str, verdict: Verdict) {
    let dispatch = world.due().into_iter().find(|at| at.id.node == name(of)).unwrap();
    let holder = world.start(&dispatch).unwrap();
    world.settle(&dispatch.key, holder, verdict, "out\n");
}

fn in_doubt() -> Verdict {
    Verdict::Ambiguous { cause: Cause::Exit, reaped: true }
}

fn chain() -> World {
    World::started(&definition(&[
        ("a", runs(&[], &["a"], 1)),
        ("b", runs(&["a"], &["b"], 0)),
        ("c", runs(&[], &["c"], 0)),
    ]))
}

#[test]
fn a_start_dispatches_what_needs_nothing() {
    // WFL-6, WFL-8
    let world = chain();
    assert_eq!(dispatched(&world), [name("a"), name("c")]);
    assert!(world.dispatches.iter().all(|at| at.expect == Expected::NoStream && at.attempt == 1));
    assert_eq!(world.the_run().revision, 3, "one append");
}

#[test]
fn a_tick_that_changes_nothing_writes_nothing_and_emits_nothing() {
    // WFL-6
    let mut world = chain();
    let before = world.the_run().clone();
    assert!(matches!(world.tick(), Done::Nothing(_)));
    assert_eq!(world.the_run(), &before);
}

#[test]
fn failed_is_retried_as_often_as_the_definition_says() {
    // WFL-16
    let mut world = chain();
    runs_to(&mut world, "a", Verdict::Failed);
    world.tick();
    let NodeState::Dispatched { expect, attempt, due, .. } = world.state("a").clone() else {
        panic!("{:?}", world.state("a"));
    };
    assert_eq!((expect, attempt), (Expected::Revision(3), 2));
    assert!(due > Timestamp(world.now), "after a pause");
    world.now += 2_000_000;
    runs_to(&mut world, "a", Verdict::Failed);
    world.tick();
    assert!(matches!(world.state("a"), NodeState::Failed { .. }));
    assert_eq!(status(&world), Status::Failed, "c was not started, and is withdrawn");
    assert!(matches!(world.state("c"), NodeState::Skipped));
    assert_eq!(dispatched(&world), []);
}

#[test]
fn what_never_started_or_was_said_not_to_have_happened_is_no_retry() {
    // WFL-16
    let mut world = chain();
    for _ in 0..5 {
        world.now += 120_000_000;
        runs_to(&mut world, "a", Verdict::NeverStarted);
        world.tick();
        assert_eq!(world.the_run().progress.nodes[&name("a")].retries, 0);
    }
    world.now += 120_000_000;
    runs_to(&mut world, "a", in_doubt());
    world.tick();
    assert_eq!(world.resolve(&key("r/a"), false), Answer::Resolved);
    world.tick();
    let whys: Vec<DispatchedWhy> = world
        .history
        .iter()
        .filter_map(|row| match &row.event {
            RunEvent::NodeDispatched { node, why, .. } if *node == name("a") => Some(*why),
            _ => None,
        })
        .collect();
    assert_eq!(whys.last(), Some(&DispatchedWhy::NotExecuted));
    assert_eq!(world.the_run().progress.nodes[&name("a")].retries, 0);
}

#[test]
fn a_pause_after_what_never_started_grows_and_is_bounded() {
    // WFL-16
    let mut world = chain();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        world.now += 120_000_000;
        runs_to(&mut world, "a", Verdict::NeverStarted);
        world.tick();
        let NodeState::Dispatched { due, .. } = world.state("a") else { panic!() };
        pauses.push((due.0 - world.the_run().updated_at.0) / 1_000_000);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
}

#[test]
fn ambiguous_blocks_what_was_not_dispatched_until_it_is_resolved() {
    // WFL-16
    let mut world = chain();
    runs_to(&mut world, "c", in_doubt());
    runs_to(&mut world, "a", Verdict::Committed);
    world.tick();
    assert_eq!(status(&world), Status::Blocked);
    assert_eq!(world.the_run().reason.as_deref(), Some("c: AMBIGUOUS: ended"));
    assert_eq!(*world.state("b"), NodeState::Pending);
    assert_eq!(world.resolve(&key("r/c"), true), Answer::Resolved);
    assert!(!world.wakeups.is_empty(), "WFL-10: resolving wakes it");
    world.tick();
    assert_eq!(status(&world), Status::Running);
    assert_eq!(dispatched(&world), [name("b")]);
}

#[test]
fn a_finished_node_that_is_reopened_blocks_what_was_not_dispatched_yet() {
    // WFL-16
    let mut world = World::started(&definition(&[
        ("a", runs(&[], &["a"], 0)),
        ("b", waits(&["a"], "go", None)),
        ("c", runs(&["b"], &["c"], 0)),
    ]));
    runs_to(&mut world, "a", Verdict::Committed);
    world.tick();
    world.reopen(&key("r/a"));
    world.wish(signal("go"));
    world.tick();
    assert_eq!(status(&world), Status::Blocked);
    assert_eq!(*world.state("c"), NodeState::Pending);
    world.resolve(&key("r/a"), true);
    world.tick();
    assert_eq!(dispatched(&world), [name("c")]);
}

#[test]
fn a_node_that_is_reopened_after_the_end_is_noted_and_nothing_more() {
    // WFL-16
    let mut world = World::started(&definition(&[("a", runs(&[], &["a"], 0))]));
    runs_to(&mut world, "a", Verdict::Committed);
    world.tick();
    assert_eq!(status(&world), Status::Succeeded);
    world.reopen(&key("r/a"));
    world.tick();
    assert!(matches!(world.state("a"), NodeState::Ambiguous { reopened: true, .. }));
    assert_eq!(status(&world), Status::Succeeded);
    world.resolve(&key("r/a"), false);
    world.tick();
    assert!(matches!(world.state("a"), NodeState::Failed { .. }));
    assert_eq!((status(&world), dispatched(&world)), (Status::Succeeded, vec![]));
}

fn signal(of: &str) -> Wish {
    Wish::Signal { name: name(of), payload: "p".to_owned(), by: "me".to_owned() }
}

fn cancel() -> Wish {
    Wish::Cancel(Asked { by: "me".to_owned(), reason: Some("late".to_owned()) })
}

#[test]
fn cancel_waits_for_what_was_started_and_withdraws_the_rest() {
    // WFL-7, WFL-9, WFL-16
    let mut world = chain();
    let dispatch = world.due().into_iter().find(|at| at.id.node == name("a")).unwrap();
    let unstarted = world.due().into_iter().find(|at| at.id.node == name("c")).unwrap();
    let holder = world.start(&dispatch).unwrap();
    world.wish(cancel());
    world.tick();
    assert_eq!(status(&world), Status::Cancelling);
    assert_eq!(dispatched(&world), [name("a")]);
    assert_eq!(world.start(&unstarted), None, "one that was withdrawn");
    world.settle(&dispatch.key, holder, Verdict::Committed, "");
    world.tick();
    assert_eq!(status(&world), Status::Cancelled);
    assert_eq!(world.the_run().reason.as_deref(), Some("by me: late"));
    assert!(matches!(world.state("a"), NodeState::Committed { .. }));
}

#[test]
fn a_withdrawal_holds_only_if_nothing_was_started() {
    // WFL-9: the worker reserves between the load and the commit of the tick that withdraws.
    let mut world = chain();
    let dispatches = world.due();
    world.wish(cancel());
    let done = world.write_with(Aim::Tick, |world, appends| {
        if appends == 1 {
            for dispatch in &dispatches {
                assert!(world.start(dispatch).is_some());
            }
        }
    });
    assert!(matches!(done, Done::Committed(_)));
    assert_eq!(status(&world), Status::Cancelling, "it looked again");
    assert_eq!(dispatched(&world), [name("a"), name("c")]);
}

#[test]
fn a_wish_that_comes_twice_is_the_same_as_once() {
    // WFL-7
    let mut world = World::started(&definition(&[
        ("a", waits(&[], "go", None)),
        ("b", waits(&["a"], "more", None)),
    ]));
    let first = signal("more");
    let second = Wish::Signal { name: name("more"), payload: "q".to_owned(), by: "you".to_owned() };
    world.wish(first.clone());
    world.wish(second);
    world.wish(first);
    world.tick();
    assert_eq!(world.the_run().progress.signals[&name("more")], "p", "the first counts");
    assert_eq!(world.inbox, []);
    world.wish(signal("go"));
    world.tick();
    assert_eq!(status(&world), Status::Succeeded, "one that came before it was waited for");
    world.wish(cancel());
    world.tick();
    let last = &world.history.last().unwrap().event;
    assert!(matches!(last, RunEvent::Noted { .. }), "after the end: {last:?}");
    assert_eq!(status(&world), Status::Succeeded);
}

#[test]
fn another_definition_is_applied_only_to_what_it_was_compared_with() {
    // WFL-3
    let mut world = World::started(&diamond(0));
    let from = world.the_run().definition_hash;
    let new = diamond(3);
    let accept = |of: &ctrlrun::plan::workflow::Definition| Wish::Definition {
        from,
        definition: of.canonical(),
        by: "me".to_owned(),
    };
    world.wish(accept(&new));
    world.wish(accept(&diamond(1)));
    world.tick();
    assert_eq!(world.the_run().definition, new.canonical());
    assert!(world.the_run().progress.nodes.contains_key(&name("f")));
}

#[test]
fn what_was_dispatched_and_not_started_is_dispatched_by_the_new_definition() {
    // WFL-3, WFL-9
    let mut world = World::started(&definition(&[("a", runs(&[], &["one"], 0))]));
    let old = world.due().remove(0);
    let from = world.the_run().definition_hash;
    let new = definition(&[("a", runs(&[], &["two"], 0))]);
    world.wish(Wish::Definition { from, definition: new.canonical(), by: "me".to_owned() });
    world.tick();
    assert_eq!(world.start(&old), None, "the old one runs nothing");
    let dispatch = world.due().remove(0);
    assert!(world.start(&dispatch).is_some());
    let program = &world.records[&key("r/a")].request.program;
    assert_eq!(program, "two");
}

#[test]
fn a_node_that_a_definition_drops_is_not_lost_sight_of_while_it_may_be_at_work() {
    // WFL-3
    let mut world = World::started(&diamond(0));
    runs_to(&mut world, "a", Verdict::Committed);
    world.tick();
    runs_to(&mut world, "c", in_doubt());
    let from = world.the_run().definition_hash;
    let definition = diamond(2).canonical();
    world.wish(Wish::Definition { from, definition, by: "me".to_owned() });
    world.tick();
    assert_eq!(status(&world), Status::Blocked, "c is still in doubt");
    world.resolve(&key("r/c"), true);
    world.tick();
    assert_eq!(status(&world), Status::Running);
}

#[test]
fn an_output_that_cannot_be_used_blocks_with_that_reason() {
    // WFL-2
    let mut world = World::started(&diamond(0));
    let dispatch = world.due().remove(0);
    let holder = world.start(&dispatch).unwrap();
    world.settle(&dispatch.key, holder, Verdict::Committed, "two\nlines\n");
    world.tick();
    assert_eq!(status(&world), Status::Blocked);
    let reason = world.the_run().reason.clone().unwrap();
    assert!(reason.starts_with("b: cannot be dispatched: "), "{reason}");
    for (whole, output) in [(false, "x"), (true, "")] {
        let captured = world.outputs.get_mut(&dispatch.key).unwrap();
        captured.head = output.as_bytes().to_vec();
        captured.whole = whole;
        world.tick();
        assert_eq!(status(&world), Status::Blocked, "{whole} {output:?}");
    }
    let captured = world.outputs.get_mut(&dispatch.key).unwrap();
    (captured.head, captured.whole) = (b"x\n".to_vec(), true);
    world.tick();
    assert_eq!(status(&world), Status::Running);
    let b = world.due().into_iter().find(|at| at.id.node == name("b")).unwrap();
    world.start(&b).unwrap();
    let bound = world.records[&b.key].request.fingerprint;
    let wanted = ctrlrun::plan::key::Fingerprint::of([&[b"use", b"x"], &[], &[], &[], &[]]);
    assert_eq!(bound, wanted, "without the line feed at its end");
}

#[test]
fn a_wait_ends_by_its_signal_or_its_time() {
    // WFL-1
    let mut world = World::started(&definition(&[("a", waits(&[], "go", Some(5_000)))]));
    assert!(matches!(world.state("a"), NodeState::Waiting { until: Some(_), .. }));
    assert_eq!(world.wakeups.len(), 1, "the time wakes it");
    world.tick();
    assert_eq!(status(&world), Status::Running);
    world.now += 6_000_000;
    world.tick();
    assert_eq!(status(&world), Status::Succeeded);
}

#[test]
fn a_key_that_others_bound_to_another_command_is_no_node_of_ours() {
    // WFL-8: by hand, under the very key.
    let mut world =
        World::started(&definition(&[("a", runs(&[], &["a"], 0)), ("b", runs(&["a"], &["b"], 0))]));
    let mut stranger = World::started(&definition(&[("b", runs(&[], &["other"], 0))]));
    runs_to(&mut stranger, "b", Verdict::Committed);
    world.records.insert(key("r/b"), stranger.records[&key("r/b")].clone());
    runs_to(&mut world, "a", Verdict::Committed);
    world.tick();
    assert_eq!(status(&world), Status::Blocked);
    assert!(world.the_run().reason.clone().unwrap().contains("bound to another command"));
}

#[test]
fn an_effect_that_happened_before_is_done() {
    let mut world =
        World::started(&definition(&[("a", runs(&[], &["a"], 0)), ("b", runs(&["a"], &["b"], 0))]));
    let mut before = World::started(&definition(&[("b", runs(&[], &["b"], 0))]));
    runs_to(&mut before, "b", Verdict::Committed);
    world.records.insert(key("r/b"), before.records[&key("r/b")].clone());
    runs_to(&mut world, "a", Verdict::Committed);
    world.tick();
    assert_eq!(status(&world), Status::Succeeded);
    assert!(!world.started.contains_key(&key("r/b")));
}

#[test]
fn an_end_by_force_lists_what_is_in_flight_and_calls_nothing_failed() {
    // WFL-14, WFL-15
    let mut world = chain();
    let dispatch = world.due().into_iter().find(|at| at.id.node == name("a")).unwrap();
    let left = world.due().into_iter().find(|at| at.id.node == name("c")).unwrap();
    let holder = world.start(&dispatch).unwrap();
    let since_seq = world.the_run().last_transition_seq;
    let aim = Aim::Force { since_seq, why: "livelock".to_owned() };
    assert!(matches!(world.write(aim), Done::Committed(_)));
    assert_eq!(status(&world), Status::Failed);
    let reason = world.the_run().reason.clone().unwrap();
    assert!(reason.contains("in flight: a, c"), "{reason}");
    assert!(matches!(world.state("a"), NodeState::Dispatched { .. }));
    assert_eq!(world.start(&left), None, "WFL-9: nothing is started any more");
    world.settle(&dispatch.key, holder, Verdict::Committed, "");
    world.tick();
    assert!(matches!(world.state("a"), NodeState::Committed { .. }), "and is seen to its end");
    assert_eq!(*world.state("c"), NodeState::Skipped);
}

#[test]
fn an_end_by_force_is_dropped_if_the_run_has_progressed() {
    // WFL-14
    let mut world = chain();
    let since_seq = world.the_run().last_transition_seq;
    runs_to(&mut world, "a", Verdict::Committed);
    world.tick();
    let aim = Aim::Force { since_seq, why: "livelock".to_owned() };
    assert!(matches!(world.write(aim), Done::Dropped));
    assert_eq!(status(&world), Status::Running);
}

#[test]
fn only_a_run_that_waits_for_nothing_at_all_is_stuck() {
    // WFL-15
    let mut world = chain();
    assert!(!waits_for_nothing(&world.load(world.the_run().clone())), "in flight");
    let waiting = World::started(&definition(&[("a", waits(&[], "go", None))]));
    assert!(!waits_for_nothing(&waiting.load(waiting.the_run().clone())));
    runs_to(&mut world, "a", in_doubt());
    world.tick();
    assert!(!waits_for_nothing(&world.load(world.the_run().clone())), "a person decides");
    // As nothing here makes it: a node that needs one which is not there.
    let mut broken = World::started(&definition(&[("a", runs(&[], &["a"], 0))]));
    let run = broken.run.as_mut().unwrap();
    let gone = definition(&[("a", runs(&["x"], &["a"], 0))]);
    run.definition = gone.canonical();
    run.progress.nodes.get_mut(&name("a")).unwrap().state = NodeState::Pending;
    broken.dispatches.clear();
    let loaded = broken.load(broken.the_run().clone());
    assert_eq!(tick(&loaded).events, []);
    assert!(waits_for_nothing(&loaded));
}

#[test]
fn a_tier_goes_before_another() {
    // WFL-12
    let numbers: Vec<i64> = Tier::ALL.iter().map(|tier| tier.number()).collect();
    assert_eq!(numbers, [0, 1, 2]);
    let _ = node(&[], ctrlrun::plan::workflow::What::Wait(Default::default()));
}
