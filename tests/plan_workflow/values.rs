//! What a definition, a history and an inbox say, value by value.
use std::time::Duration;

use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::workflow::check::check;
use ctrlrun::plan::workflow::write::Aim;
use ctrlrun::plan::workflow::{
    Asked, Definition, Difference, Expected, Given, NodeSpec, RunEvent, RunSpec, Status, Tier,
    What, Wish, evolve, is_transition,
};

use crate::world::{World, name, run_id};
use crate::{definition, diamond, node, runs};

fn with(change: impl FnOnce(&mut RunSpec)) -> NodeSpec {
    let mut run =
        RunSpec { command: vec!["x".to_owned(), "{day}".to_owned()], ..RunSpec::default() };
    change(&mut run);
    node(&[], What::Run(Box::new(run)))
}

fn wrong(nodes: &[(&str, NodeSpec)]) -> Vec<String> {
    check(&definition(nodes)).into_iter().map(|problem| problem.what).collect()
}

#[test]
fn a_lease_is_at_least_a_second_and_a_time_longer_than_nothing() {
    // WFL-1
    let lease = |ms| wrong(&[("a", with(|run| run.lease_ms = Some(ms)))]);
    assert!(lease(999)[0].starts_with("a lease is at least 1s"), "{:?}", lease(999));
    assert_eq!(lease(1_000), [""; 0]);
    assert_eq!(lease(1_001), [""; 0]);
    let timeout = |ms| wrong(&[("a", with(|run| run.timeout_ms = Some(ms)))]);
    assert_eq!(timeout(0), ["it must be longer than nothing"]);
    assert_eq!(timeout(1), [""; 0]);
}

#[test]
fn what_is_not_said_of_a_node_is_what_it_is_of_a_run() {
    // WFL-1
    let nothing_said = RunSpec::default();
    assert_eq!(nothing_said.lease(), Duration::from_secs(300));
    assert_eq!(nothing_said.timeout(), None);
    let said = RunSpec { lease_ms: Some(2_500), timeout_ms: Some(3_500), ..RunSpec::default() };
    assert_eq!(said.lease(), Duration::from_millis(2_500));
    assert_eq!(said.timeout(), Some(Duration::from_millis(3_500)));
}

#[test]
fn a_name_that_differs_in_a_letter_or_two_is_asked_for() {
    // WFL-1
    let need = |there: &str, meant: &str| {
        let found = wrong(&[("a", with(|_| {})), (there, runs(&[meant], &["x"], 0))]);
        found.into_iter().find(|what| what.contains("there is no node")).unwrap()
    };
    assert_eq!(need("loads", "load"), "there is no node load; did you mean loads?");
    assert_eq!(need("load", "loads"), "there is no node loads; did you mean load?");
    assert_eq!(need("oad", "load"), "there is no node load; did you mean oad?");
    assert_eq!(need("lxad", "load"), "there is no node load; did you mean lxad?");
    assert_eq!(need("load", "laod"), "there is no node laod; did you mean load?");
    assert_eq!(need("load", "LOAD"), "there is no node LOAD; did you mean load?");
    for other in ["zz", "lxxx", "lo", "loadit", "xxxx"] {
        assert_eq!(need(other, "load"), "there is no node load", "{other}");
    }
    assert_eq!(need("zz", "yy"), "there is no node yy", "they have nothing in common");
}

#[test]
fn tiers_and_expectations_are_what_stores_know_them_as() {
    // WFL-4, WFL-8
    for (tier, number) in [(Tier::Urgent, 0), (Tier::Normal, 1), (Tier::Background, 2)] {
        assert_eq!((tier.number(), Tier::of(number)), (number, Some(tier)));
    }
    assert_eq!((Tier::of(3), Tier::of(-1)), (None, None));
    assert_eq!(Expected::NoStream.stream_state(), StreamState::NoStream);
    assert_eq!(Expected::Revision(7).stream_state(), StreamState::Revision(7));
    for status in Status::ALL {
        assert_eq!(Status::of(status.name()), Some(status));
    }
}

#[test]
fn a_node_s_state_is_kept_under_the_name_that_it_is_told_by() {
    // WFL-4
    let world = World::started(&diamond(0));
    let nodes = &world.the_run().progress.nodes;
    let (mut seen, mut names) = (Vec::new(), Vec::new());
    for node in nodes.values() {
        names.push(node.state.name());
        seen.push(serde_json::to_value(node).unwrap());
    }
    assert_eq!(names, ["dispatched", "pending", "pending", "pending", "pending"]);
    assert_eq!(seen[1], serde_json::json!({ "state": "pending" }), "no count of nothing");
    assert_eq!(seen[0]["state"], "dispatched");
}

#[test]
fn nodes_are_told_behind_what_they_need_and_those_of_a_cycle_not_at_all() {
    let told = |definition: &Definition| -> Vec<String> {
        definition.in_order().into_iter().map(|name| name.as_str().to_owned()).collect()
    };
    assert_eq!(told(&diamond(0)), ["a", "b", "c", "d", "e"]);
    let backwards = [
        ("a", runs(&["b"], &["x"], 0)),
        ("b", runs(&["c"], &["x"], 0)),
        ("c", runs(&[], &["x"], 0)),
        ("d", runs(&["d"], &["x"], 0)),
    ];
    assert_eq!(told(&definition(&backwards)), ["c", "b", "a"]);
}

#[test]
fn what_is_as_ever_is_not_in_the_text_that_the_hash_is_taken_over() {
    // WFL-3: a field that comes later does not change the hash of a definition that lacks it.
    let canonical = definition(&[("a", runs(&[], &["x"], 0))]).canonical();
    assert_eq!(
        canonical,
        concat!(
            r#"{"name":"w","tier":"normal","inputs":{"day":{"default":"monday"}},"#,
            r#""nodes":{"a":{"what":{"run":{"command":["x"]}}}}}"#
        )
    );
}

#[test]
fn the_difference_of_two_definitions_names_what_is_beside_their_nodes() {
    // WFL-3
    let old = diamond(0);
    let told = |change: &dyn Fn(&mut Definition)| {
        let mut new = old.clone();
        change(&mut new);
        Difference::of(&old, &new).told()
    };
    assert_eq!(told(&|new| new.name = name("v")), "its name");
    assert_eq!(told(&|new| new.tier = Tier::Urgent), "its tier");
    let input = |new: &mut Definition| drop(new.inputs.insert(name("hour"), Given::default()));
    assert_eq!(told(&input), "its inputs");
    assert_eq!(
        told(&|new| {
            input(new);
            new.tier = Tier::Background;
        }),
        "its tier and its inputs"
    );
}

#[test]
fn an_event_that_is_not_the_next_one_is_refused() {
    // WFL-5
    let world = World::started(&diamond(0));
    let first = &world.history[0];
    let run = evolve(&run_id(), None, first).unwrap();
    let second = &world.history[1];
    assert!(evolve(&run_id(), Some(run.clone()), second).is_ok());
    for revision in [0, 1, 3] {
        let mut moved = second.clone();
        moved.revision = revision;
        let bad = evolve(&run_id(), Some(run.clone()), &moved).unwrap_err();
        assert_eq!((bad.revision, bad.kind), (revision, second.event.kind()));
    }
    let mut moved = first.clone();
    moved.revision = 2;
    assert!(evolve(&run_id(), None, &moved).is_err());
    assert!(evolve(&run_id(), None, second).is_err());
}

#[test]
fn what_moves_neither_a_node_nor_the_status_is_no_progress() {
    // WFL-5, WFL-14
    let mut world = World::started(&diamond(0));
    let before = world.the_run().last_transition_seq;
    world.wish(Wish::Signal { name: name("go"), payload: String::new(), by: "me".to_owned() });
    world.tick();
    assert!(world.the_run().revision > before);
    assert_eq!(world.the_run().last_transition_seq, before);
    let noted = RunEvent::Noted { item: None, what: String::new() };
    assert!(!is_transition(&noted));
    assert!(is_transition(&RunEvent::NodePassed { node: name("d") }));
}

#[test]
fn what_comes_after_the_end_is_noted_by_its_name() {
    // WFL-7
    let mut world = World::started(&diamond(0));
    let since_seq = world.the_run().last_transition_seq;
    world.write(Aim::Force { since_seq, why: "a test".to_owned() });
    assert_eq!(world.the_run().status, Status::Failed);
    let by = || "me".to_owned();
    for (wish, told) in [
        (Wish::Cancel(Asked { by: by(), reason: None }), "cancel came after the end"),
        (
            Wish::Signal { name: name("go"), payload: String::new(), by: by() },
            "the signal go came after the end",
        ),
        (
            Wish::Definition {
                from: world.the_run().definition_hash,
                definition: diamond(1).canonical(),
                by: by(),
            },
            "another definition came after the end",
        ),
    ] {
        world.wish(wish);
        world.tick();
        let mut noted = world.history.iter().filter_map(|row| match &row.event {
            RunEvent::Noted { what, .. } => Some(what.as_str()),
            _ => None,
        });
        assert_eq!(noted.next_back(), Some(told));
    }
}
