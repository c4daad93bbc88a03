//! `reconcile` over many keys.
use serde_json::Value;

use crate::at::{HOLD, Kind, MARK, Place, on_every_store, until};
use crate::common::finish;
use crate::real::lines;
use crate::{ASKED, asked, doubt};

on_every_store!(all_that_is_stuck_is_asked_about_and_counted, named_keys_end_by_what_is_left);

/// Answers by the key's last letter.
const BY_KEY: &str =
    "case $CTRLRUN_KEY in *c) echo committed;; *n) echo not-executed;; *) exit 9;; esac";

fn all_that_is_stuck_is_asked_about_and_counted(kind: Kind) {
    // DEC-9, DEC-10, DEC-11
    let at = Place::new(kind);
    for key in ["r:1c", "r:2c", "r:3n", "r:4u", "other:c"] {
        doubt(&at, key);
    }
    let slow = [MARK, "sleep 1000"].concat();
    assert_eq!(finish(&mut at.run("r:5n", &["--timeout", "100ms"], &slow)).code, Some(124));
    finish(&mut at.run("r:6", &[], "true"));
    let live = at.holder("r:7c", &[]);
    let probe = [ASKED, BY_KEY].concat();
    let told = at.ask(&["reconcile", "--all", "--prefix", "r:", "-j", "3", "--reconcile", &probe]);
    assert_eq!((told.code, told.stdout.as_str()), (Some(76), ""), "{told:?}");
    assert!(
        told.stderr
            .contains("5 stuck: 2 committed, 1 not executed, 1 unknown, 1 not so far; probes"),
        "{told:?}"
    );
    assert!(told.stderr.contains("r:4u: AMBIGUOUS (may have happened) still"), "{told:?}");
    assert!(told.stderr.contains("decide: ctrlrun effects --stuck --store"), "{told:?}");
    assert_eq!(asked(&at), 5);
    let states = ["r:1c", "r:2c", "r:3n", "r:4u", "other:c", "r:5n"].map(|key| at.state(key));
    assert_eq!(states, ["committed", "committed", "failed", "ambiguous", "ambiguous", "ambiguous"]);
    // Again, for a program.
    let told = at.ask(&["reconcile", "--all", "--json", "--reconcile", &probe]);
    let mut results: Vec<(String, String)> = told
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["key"].to_string(), line["result"].to_string()))
        .collect();
    results.sort();
    let expected = [("other:c", "committed"), ("r:4u", "unknown"), ("r:5n", "not_so_far")];
    let expected = expected.map(|(key, result)| (format!("{key:?}"), format!("{result:?}")));
    assert_eq!((told.code, results.as_slice()), (Some(76), expected.as_slice()), "{told:?}");
    let summary: Value = serde_json::from_str(told.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&summary["summary"]["stuck"], &summary["summary"]["unknown"]),
        (&3.into(), &1.into())
    );
    // Until nothing is left.
    let told = at.ask(&["reconcile", "--all", "--reconcile", "echo committed"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let told = at.ask(&["reconcile", "--all", "--reconcile", &probe]);
    assert_eq!(told.code, Some(0));
    assert!(told.stderr.contains("nothing is stuck in "), "{told:?}");
    at.go();
    assert_eq!(live.end().code, Some(0));
}

fn named_keys_end_by_what_is_left(kind: Kind) {
    // DEC-9, DEC-11
    let at = Place::new(kind);
    doubt(&at, "u");
    doubt(&at, "c");
    let live = at.holder("live", &[]);
    let ends = |keys: &[&str]| {
        let words = [&["reconcile", "--reconcile", BY_KEY], keys].concat();
        at.ask(&words).code
    };
    assert_eq!(ends(&["nobody", "u"]), Some(66));
    assert_eq!(ends(&["u", "live"]), Some(76));
    assert_eq!(ends(&["c", "live", "c"]), Some(75));
    assert_eq!(at.types("c").len(), 5, "the second of the same key found nothing to ask");
    assert_eq!(ends(&["c"]), Some(0));
    at.go();
    live.end();
}

#[test]
fn so_many_at_a_time_and_no_more() {
    // DEC-9
    let at = Place::new(Kind::Sqlite);
    for number in 0..5 {
        doubt(&at, &format!("k{number}"));
    }
    let probe = [ASKED, HOLD, "echo committed"].concat();
    let words = ["reconcile", "--all", "-j", "3", "--reconcile", &probe];
    let running = at.start(&mut at.ctrlrun(&words));
    until("three were asked", || asked(&at) == 3);
    // Each thread of it has started one.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap();
    let children = tasks.map(|task| {
        let children = task.unwrap().path().join("children");
        std::fs::read_to_string(children).unwrap().split_whitespace().count()
    });
    assert_eq!(children.sum::<usize>(), 3);
    at.go();
    let ended = running.end();
    assert_eq!((ended.code, asked(&at)), (Some(0), 5), "{ended:?}");
    assert!(ended.stderr.contains("5 stuck: 5 committed"), "{ended:?}");
}

#[test]
fn more_than_a_page_is_asked_about() {
    // DEC-9: each once, whatever is left behind stuck.
    let at = Place::new(Kind::Sqlite);
    let fill = crate::common::fill::Fill::open(&at.file(), ctrlrun::store::Mode::Write);
    for number in 0..300 {
        fill.ambiguous(&format!("k{number}"));
    }
    let probe = "case $CTRLRUN_KEY in *7) exit 1;; *) echo committed;; esac";
    let told = at.ask(&["reconcile", "--all", "-j", "4", "--reconcile", probe]);
    assert_eq!(told.code, Some(76), "{told:?}");
    assert!(
        told.stderr.contains("300 stuck: 270 committed, 0 not executed, 30 unknown; probes"),
        "{told:?}"
    );
}

#[test]
fn without_a_probe_nothing_is_asked_and_the_mistake_is_told() {
    // DEC-9
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    for words in [&["reconcile", "k"][..], &["reconcile", "--all"]] {
        let told = at.ask(words);
        assert_eq!(told.code, Some(64), "{told:?}");
        assert!(told.stderr.contains("--reconcile"), "{told:?}");
    }
    for words in [
        &["reconcile", "--reconcile", "true"][..],
        &["reconcile", "k", "--all", "--reconcile", "true"],
        &["reconcile", "k", "--prefix", "k", "--reconcile", "true"],
        &["reconcile", "k", "--reconcile", ""],
        &["reconcile", "k", "--reconcile", "true", "-j", "0"],
    ] {
        assert_eq!(at.ask(words).code, Some(64), "{words:?}");
    }
    assert_eq!(at.show("k")["revision"], 3);
}

#[test]
fn what_waits_in_the_spool_is_delivered_before_anything_is_asked() {
    // DEC-9: the child's own word settles it, and no probe has to.
    let at = Place::new(Kind::Sqlite);
    let holder = at.holder("k", &["--lease", "1s", "--store-timeout", "200ms"]);
    at.home.away();
    at.go();
    assert_eq!(holder.end().code, Some(74));
    assert_eq!(at.spooled(&at.spool()).len(), 1);
    at.home.back();
    at.lapsed("k");
    let told = at.ask(&["reconcile", "k", "--reconcile", &[ASKED, "echo not-executed"].concat()]);
    assert_eq!(
        (told.code, asked(&at), at.state("k").as_str()),
        (Some(0), 0, "committed"),
        "{told:?}"
    );
    assert!(lines(&at, "marker").len() == 1 && at.spooled(&at.spool()).is_empty());
}
