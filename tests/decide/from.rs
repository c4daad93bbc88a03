//! Decisions from a file or a pipe.
use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::at::{Kind, Place, on_every_store, until};
use crate::common::{Output, finish};
use crate::doubt;

on_every_store!(
    what_is_stuck_is_listed_changed_and_decided_in_a_pipe,
    each_refusal_is_told_and_stops_no_other,
    a_file_with_a_mistake_changes_nothing,
);

fn line(key: &str, revision: u64, decision: &str) -> String {
    json!({"key": key, "revision": revision, "decision": decision, "reason": "INC-40"}).to_string()
}

/// `ctrlrun resolve --from FILE`.
fn from_file(at: &Place, lines: &str, more: &[&str]) -> Output {
    let file = at.env.path("decisions.jsonl");
    fs::write(&file, lines).unwrap();
    at.ask(&[&["resolve", "--from", file.to_str().unwrap()], more].concat())
}

/// The same from stdin.
fn from_pipe(at: &Place, lines: &str) -> Output {
    let mut command = at.ctrlrun(&["resolve", "--from", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Output {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code(),
        signal: None,
    }
}

fn what_is_stuck_is_listed_changed_and_decided_in_a_pipe(kind: Kind) {
    // DEC-12, DEC-13, DEC-14
    let at = Place::new(kind);
    for number in 0..7 {
        doubt(&at, &format!("k{number}"));
    }
    let listed = at.ask(&["effects", "--stuck", "--json"]);
    let decided = |listed: &str| {
        let lines = listed.lines().map(|line| {
            let mut object: Value = serde_json::from_str(line).unwrap();
            object["decision"] = "not-executed".into();
            object["reason"] = "network down before any call, INC-40".into();
            format!("{object}\n")
        });
        lines.collect::<String>()
    };
    let lines = decided(&listed.stdout);
    // Somebody is faster with one of them.
    at.resolve("k3", "--committed");
    let told = from_pipe(&at, &lines);
    assert_eq!(told.code, Some(79), "{told:?}");
    assert!(told.stderr.contains("k3: not changed: you looked at revision 3, it is at 4 now"));
    let summary = "ctrlrun: 7 decisions: 6 done, 1 not (revision moved): k3\n";
    assert!(told.stderr.ends_with(summary), "{told:?}");
    let states: Vec<String> = (0..7).map(|number| at.state(&format!("k{number}"))).collect();
    assert_eq!(states.iter().filter(|state| *state == "failed").count(), 6);
    assert_eq!(
        (states[3].as_str(), at.show("k0")["reason"].as_str()),
        ("committed", Some("network down before any call, INC-40"))
    );
    // Run again, it is harmless.
    let told = from_pipe(&at, &lines);
    assert_eq!(told.code, Some(79), "{told:?}");
    let summary = "7 decisions: 0 done, 6 so already, 1 not (revision moved): k3\n";
    assert!(told.stderr.ends_with(summary), "{told:?}");
    assert_eq!(at.show("k0")["revision"], 4);
    // Nothing is stuck: nothing is decided, and that is fine.
    let told = from_pipe(&at, &decided(&at.ask(&["effects", "--stuck", "--json"]).stdout));
    assert_eq!((told.code, told.stderr.as_str()), (Some(0), "ctrlrun: 0 decisions: 0 done\n"));
}

fn each_refusal_is_told_and_stops_no_other(kind: Kind) {
    // DEC-14
    let at = Place::new(kind);
    for key in ["a", "b", "moved"] {
        doubt(&at, key);
    }
    finish(&mut at.run("settled", &[], "true"));
    let live = at.holder("live", &[]);
    let all = [
        line("nobody", 1, "committed"),
        line("settled", 3, "not-executed"),
        String::new(),
        line("live", 2, "committed"),
        line("moved", 2, "committed"),
        line("a", 3, "not-executed"),
        line("b", 3, "committed")
            .replace("INC-40\"", "INC-40\",\"output\":\"re_1\\n\",\"by\":\"oncall\""),
    ];
    let told = from_file(&at, &all.join("\n"), &["--json"]);
    assert_eq!(told.code, Some(79), "{told:?}");
    let results: Vec<Value> =
        told.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let results: Vec<(u64, &str, &str)> = results
        .iter()
        .map(|it| {
            (
                it["line"].as_u64().unwrap(),
                it["key"].as_str().unwrap(),
                it["result"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        results,
        [
            (1, "nobody", "no_such_effect"),
            (2, "settled", "settled"),
            (4, "live", "running"),
            (5, "moved", "moved"),
            (6, "a", "done"),
            (7, "b", "done"),
        ]
    );
    let summary: Value = serde_json::from_str(told.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(
        summary["summary"],
        json!({"decisions": 6, "done": 2, "already": 0, "not_done": 4, "complete": true})
    );
    assert_eq!((at.state("a").as_str(), at.state("moved").as_str()), ("failed", "ambiguous"));
    let replayed = at.ask(&["output", "b"]);
    assert_eq!(
        (replayed.stdout.as_str(), at.show("b")["resolved_by"].as_str()),
        ("re_1\n", Some("oncall"))
    );
    // The exit status is that of the first reason that applies.
    let ends = |lines: &[String]| from_file(&at, &lines.join("\n"), &[]);
    let told = ends(&all[..4]);
    assert_eq!(told.code, Some(75), "{told:?}");
    let summary = "3 decisions: 0 done, 1 not (running): live; 1 not (settled otherwise): settled; 1 not (no such effect): nobody\n";
    assert!(told.stderr.ends_with(summary), "{told:?}");
    assert_eq!(ends(&all[..2]).code, Some(73));
    assert_eq!(ends(&all[..1]).code, Some(66));
    at.go();
    live.end();
}

fn a_file_with_a_mistake_changes_nothing(kind: Kind) {
    // DEC-13
    let at = Place::new(kind);
    doubt(&at, "a");
    doubt(&at, "b");
    let lines = [
        line("a", 3, "committed"),
        "{\"key\":\"b\x1b[2J\"}".to_owned(),
        line("b", 3, "maybe"),
        line("a", 3, "not-executed"),
    ];
    let told = from_file(&at, &lines.join("\n"), &[]);
    assert_eq!(told.code, Some(64), "{told:?}");
    assert!(told.stderr.contains("3 lines are wrong; nothing was changed"), "{told:?}");
    for wrong in ["line 2: column ", "line 3: `decision` is", "line 4: the key of line 1 again"] {
        assert!(told.stderr.contains(wrong), "{wrong}: {told:?}");
    }
    assert!(!told.stderr.contains('\x1b'));
    assert_eq!(
        (at.show("a")["revision"].clone(), at.show("b")["revision"].clone()),
        (3.into(), 3.into())
    );
    // From a pipe, what stands before the mistake is done, and that is told.
    let told = from_pipe(&at, &lines.join("\n"));
    assert_eq!((told.code, at.state("a").as_str()), (Some(64), "committed"), "{told:?}");
    assert!(told.stderr.contains("stdin: line 2: "), "{told:?}");
    assert!(told.stderr.ends_with("1 decision: 1 done; the rest was not read\n"), "{told:?}");
    assert_eq!(at.show("b")["revision"], 3);
}

#[test]
fn a_pipe_is_decided_as_it_comes() {
    // DEC-13: what stands behind may come much later.
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "a");
    doubt(&at, "b");
    let fifo = at.env.path("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let words = ["resolve", "--from", fifo.to_str().unwrap()];
    let running = at.start(&mut at.ctrlrun(&words));
    let mut pipe = fs::File::options().write(true).open(&fifo).unwrap();
    writeln!(pipe, "{}", line("a", 3, "committed")).unwrap();
    until("the first is decided", || at.state("a") == "committed");
    assert_eq!(at.state("b"), "ambiguous");
    write!(pipe, "{}", line("b", 3, "not-executed")).unwrap();
    drop(pipe);
    let ended = running.end();
    assert_eq!((ended.code, at.state("b").as_str()), (Some(0), "failed"), "{ended:?}");
    assert!(ended.stderr.ends_with("2 decisions: 2 done\n"), "{ended:?}");
}

#[test]
fn many_mistakes_are_counted_and_a_few_are_told() {
    // DEC-13
    let at = Place::new(Kind::Sqlite);
    let told = from_file(&at, &"{}\n".repeat(1_000), &[]);
    assert_eq!(told.code, Some(64));
    assert!(told.stderr.contains("1,000 lines are wrong"), "{told:?}");
    assert!(told.stderr.contains("and 980 more") && told.stderr.lines().count() == 22, "{told:?}");
}

#[test]
fn where_the_store_does_not_answer_it_stops() {
    // DEC-14
    let at = Place::new(Kind::Sqlite);
    for key in ["a", "b", "c"] {
        doubt(&at, key);
    }
    at.home.refuse_updates_of("b");
    let lines = ["a", "b", "c"].map(|key| line(key, 3, "committed")).join("\n");
    let told = from_file(&at, &lines, &[]);
    assert!(matches!(told.code, Some(69 | 70)), "{told:?}");
    let states = ["a", "b", "c"].map(|key| at.state(key));
    assert_eq!(states, ["committed", "ambiguous", "ambiguous"]);
    assert!(told.stderr.contains("2 decisions: 1 done, 1 not; the rest was not read"), "{told:?}");
}

#[test]
fn a_decision_after_a_lapse_warns_of_the_old_process() {
    // DEC-14, CLI-19
    let at = Place::new(Kind::Sqlite);
    let holder = at.holder("k", &["--lease", "1s"]);
    holder.stop();
    at.lapsed("k");
    let told = from_file(&at, &line("k", 2, "not-executed"), &[]);
    assert_eq!((told.code, at.state("k").as_str()), (Some(0), "failed"), "{told:?}");
    assert!(
        told.stderr.contains("warning: of 1 effect nobody saw the old process end"),
        "{told:?}"
    );
    holder.kill();
}

#[test]
fn what_cannot_be_read_or_meant_changes_nothing() {
    // DEC-12
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    assert_eq!(at.ask(&["resolve", "--from", "nowhere"]).code, Some(66));
    assert_eq!(at.ask(&["resolve", "--from", "."]).code, Some(66));
    for more in [
        &["k"][..],
        &["--reason", "r"],
        &["--expect", "3"],
        &["--committed"],
        &["--output", "-"],
        &["--by", "reconcile:x"],
    ] {
        let words = [&["resolve", "--from", "-"], more].concat();
        assert_eq!(at.ask(&words).code, Some(64), "{words:?}");
    }
    assert_eq!(at.show("k")["revision"], 3);
}
