//! Output, reports, summaries.
use std::fs;

use serde_json::Value;

use crate::at::{Kind, Place};
use crate::{MARK_KEY, line, run, summary};

#[test]
fn what_children_write_has_their_key_in_front() {
    // BAT-11
    let at = Place::new(Kind::Sqlite);
    let out = run(&at, &line("k:1", "echo one; echo two >&2; printf three"), &[]);
    assert_eq!(out.stdout, "k:1: one\nk:1: three\n");
    assert!(out.stderr.contains("k:1: two\n"), "{out:?}");
    assert!(out.stderr.contains("1 effect: 1 committed now"), "{out:?}");
    // And is stored as of a run.
    assert_eq!(at.ask(&["output", "k:1"]).stdout, "one\nthree");
}

#[test]
fn what_children_write_goes_to_files_or_nowhere_if_that_is_asked() {
    // BAT-11
    let at = Place::new(Kind::Sqlite);
    let lines = line("k/1", "head -c 300000 /dev/zero | tr '\\0' x; echo e >&2");
    let out = run(&at, &lines, &["--output-dir", "out/of"]);
    assert_eq!((out.code, out.stdout.as_str()), (Some(0), ""), "{out:?}");
    let read = |name: &str| fs::read(at.env.path("here/out/of").join(name)).unwrap();
    assert_eq!(read("k%2F1.out").len(), 300_000);
    assert_eq!(read("k%2F1.err"), b"e\n");
    let out = run(&at, &line("k:2", "echo one"), &["--output", "none"]);
    assert_eq!((out.code, out.stdout.as_str()), (Some(0), ""), "{out:?}");
}

#[test]
fn a_child_of_a_batch_reads_nothing_of_its_input() {
    // BAT-11
    let at = Place::new(Kind::Sqlite);
    let lines = [line("a", &format!("cat; {MARK_KEY}")), line("b", MARK_KEY)].concat();
    let out = crate::at::fed(&mut at.ctrlrun(&["batch", "-j1"]), lines.into_bytes());
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(out.stdout, b"");
    assert_eq!(at.marked(), ["a", "b"]);
}

#[test]
fn the_report_has_an_object_for_each_line_with_its_number() {
    // BAT-18
    let at = Place::new(Kind::Sqlite);
    let lines = [line("a", "echo hi"), line("b", "exit 7"), line("a", "echo ho")].concat();
    let out = run(&at, &lines, &["-j1", "--report", "report.jsonl", "--json"]);
    assert_eq!(out.code, Some(76), "{out:?}");
    let text = fs::read_to_string(at.env.path("here/report.jsonl")).unwrap();
    let mut report: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    report.sort_by_key(|line| line["line"].as_u64());
    let of = |name: &str| report.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("line"), [1, 2, 3]);
    assert_eq!(of("key"), ["a", "b", "a"]);
    assert_eq!(of("ran"), [true, true, false]);
    assert_eq!(of("exit_status"), [0, 7, 65]);
    assert_eq!(report[1]["state"], "ambiguous");
    assert_eq!(report[2]["refused"], "mismatch");
    assert_eq!(report[0]["stdout_bytes"], 3);
    assert!(report[1]["next"][0].as_str().unwrap().starts_with("ctrlrun resolve b"), "{report:?}");
    // stdout has the summary, and nothing else.
    assert_eq!(summary(&out)["effects"], 3);
}

#[test]
fn an_empty_input_is_no_failure() {
    // BAT-16
    let at = Place::new(Kind::Sqlite);
    let out = run(&at, "", &[]);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(out.stderr.contains("0 effects: 0 committed now"), "{out:?}");
}
