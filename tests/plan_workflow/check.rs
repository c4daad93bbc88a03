//! What is wrong with a definition, and its hash (WFL-1, WFL-3).
use std::collections::BTreeMap;

use ctrlrun::plan::workflow::check::{Place, check};
use ctrlrun::plan::workflow::{Definition, Difference, Name, RunId, hash};

use crate::world::name;
use crate::{definition, diamond, runs, waits};

fn wrong(definition: &Definition) -> Vec<String> {
    check(definition).into_iter().map(|problem| problem.what).collect()
}

/// As the first part of a complaint.
fn complains(nodes: &[(&str, ctrlrun::plan::workflow::NodeSpec)], of: &str) {
    let mut definition = definition(nodes);
    definition.inputs.clear();
    let found = wrong(&definition);
    assert!(found.iter().any(|what| what.starts_with(of)), "{of:?} in {found:?}");
}

#[test]
fn what_is_right_is_not_complained_of() {
    // WFL-1
    for variant in 0..4 {
        assert_eq!(wrong(&diamond(variant)), Vec::<String>::new(), "{variant}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    // WFL-1, WFL-2
    complains(&[], "it has no nodes");
    complains(&[("a", runs(&["b"], &["x"], 0))], "there is no node b");
    complains(
        &[("exract", runs(&["extract"], &["x"], 0))],
        "there is no node extract; did you mean exract?",
    );
    complains(&[("a", runs(&["a"], &["x"], 0))], "a cycle: a -> a");
    let cycle = [
        ("a", runs(&["c"], &["x"], 0)),
        ("b", runs(&["a"], &["x"], 0)),
        ("c", runs(&["b"], &["x"], 0)),
        ("d", runs(&["c"], &["x"], 0)),
    ];
    complains(&cycle, "a cycle: a -> c -> b -> a");
    let mut all = definition(&cycle);
    all.inputs.clear();
    assert_eq!(wrong(&all).len(), 1, "one complaint a cycle");
    // What it needs beside is no part of it.
    let beside = [
        ("a", runs(&["b", "c"], &["x"], 0)),
        ("b", runs(&[], &["x"], 0)),
        ("c", runs(&["b", "a"], &["x"], 0)),
    ];
    complains(&beside, "a cycle: a -> c -> a");
    complains(&[("a", runs(&[], &["x", "{day}"], 0))], "nothing gives {day}");
    complains(&[("a", runs(&[], &["x", "{b.stdout}"], 0))], "there is no node b");
    let unneeded = [("a", runs(&[], &["x", "{b.stdout}"], 0)), ("b", runs(&[], &["x"], 0))];
    complains(&unneeded, "{b.stdout} needs the node b to be done");
    let waiting = [("a", runs(&["b"], &["x", "{b.stdout}"], 0)), ("b", waits(&[], "go", None))];
    complains(&waiting, "the node b waits, and has no output");
    complains(&[("a", runs(&[], &["sh", "-c", "echo {run}"], 0))], "{run} stands in a script");
    let unused = definition(&[("a", runs(&[], &["x"], 0))]);
    assert_eq!(wrong(&unused), ["the input day is used by no node: {day}"]);
    assert_eq!(check(&unused)[0].at, Place::Input(name("day")));
}

#[test]
fn a_node_may_be_fed_through_others() {
    // WFL-2
    let mut through = definition(&[
        ("a", runs(&[], &["x"], 0)),
        ("b", runs(&["a"], &["x"], 0)),
        ("c", runs(&["b"], &["x", "{a.stdout}"], 0)),
    ]);
    through.inputs.clear();
    assert_eq!(wrong(&through), Vec::<String>::new());
}

#[test]
fn names_are_of_few_letters() {
    // WFL-1
    for good in ["a", "A-1_b", "7"] {
        assert!(Name::new(good).is_ok(), "{good}");
    }
    for bad in ["", "-a", "a b", "a.b", "a/b", "\u{e9}", "a\n", &"x".repeat(129)] {
        assert!(Name::new(bad).is_err(), "{bad}");
    }
    assert!(RunId::new("nightly/2026 11").is_ok());
    for bad in ["", " a", "a\n", &"x".repeat(257)] {
        assert!(RunId::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_hash_is_of_what_is_run_and_the_difference_is_in_nodes() {
    // WFL-3
    let old = diamond(0);
    assert_eq!(
        hash(&old.canonical()),
        hash(&Definition::read(&old.canonical()).unwrap().canonical())
    );
    let told = |new: u8| Difference::of(&old, &diamond(new)).told();
    assert_eq!(told(0), "nothing");
    assert_eq!(told(1), "changed c");
    assert_eq!(told(2), "changed e; removed c");
    assert_eq!(told(3), "added f");
    for variant in 1..4 {
        assert_ne!(hash(&old.canonical()), hash(&diamond(variant).canonical()));
    }
}

#[test]
fn inputs_are_those_of_the_definition() {
    // WFL-1
    let definition = diamond(0);
    let day = |value: &str| BTreeMap::from([(name("day"), value.to_owned())]);
    assert_eq!(definition.inputs_of(&day("x")).unwrap(), day("x"));
    assert_eq!(definition.inputs_of(&BTreeMap::new()).unwrap(), day("monday"));
    let unknown = BTreeMap::from([(name("hour"), "1".to_owned())]);
    assert_eq!(definition.inputs_of(&unknown).unwrap_err().unknown, [name("hour")]);
}
