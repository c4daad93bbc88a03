//! A run that meets AMBIGUOUS asks its probe, and decides anew.
use crate::at::{HOLD, Kind, MARK, Place, on_every_store, until};
use crate::common::finish;
use crate::{ASKED, asked, doubt};

/// What `doubt` runs, so that the fingerprint is the same.
fn script() -> String {
    [MARK, "echo some output; echo no answer >&2; exit 28"].concat()
}

on_every_store!(
    a_run_that_learns_that_it_happened_replays,
    a_run_that_learns_that_it_did_not_runs_it,
    of_two_that_ask_at_once_one_writes_and_one_runs,
    another_command_asks_nothing,
);

fn a_run_that_learns_that_it_happened_replays(kind: Kind) {
    // DEC-7
    let at = Place::new(kind);
    doubt(&at, "k");
    let ran = finish(&mut at.run("k", &["--reconcile", "echo committed"], &script()));
    assert_eq!((ran.code, at.marks()), (Some(0), 1), "{ran:?}");
    assert!(ran.stderr.contains("reconcile:command-line says committed"), "{ran:?}");
    assert!(ran.stderr.contains("nothing was run"), "{ran:?}");
    assert_eq!(ran.stdout, "");
    doubt(&at, "l");
    let flags = ["--reconcile", "echo committed", "--on-committed", "refuse"];
    assert_eq!(finish(&mut at.run("l", &flags, &script())).code, Some(73));
}

fn a_run_that_learns_that_it_did_not_runs_it(kind: Kind) {
    // DEC-7: also where it is held to the revision that it found.
    let at = Place::new(kind);
    for (key, expect) in [("a", "any"), ("b", "exists"), ("c", "3")] {
        doubt(&at, key);
        let before = at.marks();
        let probe = [ASKED, "echo not-executed"].concat();
        let flags = ["--reconcile", &probe, "--expect", expect];
        let ran = finish(&mut at.run(key, &flags, &script()));
        assert_eq!((ran.code, at.marks()), (Some(28), before + 1), "{ran:?}");
        assert_eq!(
            at.types(key),
            [
                "reserved",
                "began",
                "ambiguated",
                "probed",
                "resolved",
                "reserved",
                "began",
                "ambiguated"
            ]
        );
    }
    // Its own doubt is not asked about: the same line is, run again.
    assert_eq!(asked(&at), 3);
    let refused = finish(&mut at.run("c", &["--reconcile", "true", "--expect", "3"], &script()));
    assert_eq!((refused.code, at.marks()), (Some(79), 6), "{refused:?}");
}

fn of_two_that_ask_at_once_one_writes_and_one_runs(kind: Kind) {
    // Case 31; DEC-5, DEC-7: both hear "not executed", one frees the key, and it runs once more.
    let at = Place::new(kind);
    doubt(&at, "k");
    let probe = [ASKED, HOLD, "echo not-executed"].concat();
    let flags = ["--reconcile", probe.as_str()];
    let both = [0, 1].map(|_| at.start(&mut at.run("k", &flags, &script())));
    until("both were asked", || asked(&at) == 2);
    at.go();
    let codes = both.map(|running| running.end().code);
    // The other one meets it running, or in doubt again. It may ask about that new doubt, and then
    // that attempt too is known not to have happened, and it runs it again, one behind the other.
    assert!(codes.contains(&Some(28)), "{codes:?}");
    let attempts = at.marked();
    let expected: Vec<String> = (1..=attempts.len()).map(|number| number.to_string()).collect();
    assert_eq!(attempts, expected, "an attempt ran twice");
    let freed = at.types("k").iter().filter(|kind| *kind == "resolved").count();
    assert_eq!(attempts.len(), freed + 1, "an attempt ran that nobody freed");
}

fn another_command_asks_nothing(kind: Kind) {
    // DEC-7
    let at = Place::new(kind);
    doubt(&at, "k");
    let probe = [ASKED, "echo not-executed"].concat();
    let ran = finish(&mut at.run("k", &["--reconcile", &probe], "true"));
    assert_eq!((ran.code, asked(&at), at.show("k")["revision"].clone()), (Some(65), 0, 3.into()));
}

#[test]
fn what_a_probe_could_not_tell_stands_beside_the_refusal() {
    // DEC-3, DEC-7
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    let probe = r"printf 'no route \033[2J to host\n' >&2; exit 7";
    let ran = finish(&mut at.run("k", &["--reconcile", probe], &script()));
    assert_eq!((ran.code, at.marks()), (Some(76), 1), "{ran:?}");
    assert!(ran.stderr.contains(r"it exited 7 (no route \x1b[2J to host)"), "{ran:?}");
    assert!(ran.stderr.contains("nothing was run"), "{ran:?}");
}

#[test]
fn a_run_whose_own_command_ends_in_doubt_does_not_ask() {
    // DEC-7
    let at = Place::new(Kind::Sqlite);
    let probe = [ASKED, "echo not-executed"].concat();
    let ran = finish(&mut at.run("k", &["--reconcile", &probe], &script()));
    assert_eq!((ran.code, asked(&at), at.marks()), (Some(28), 0, 1), "{ran:?}");
    assert!(ran.stderr.contains("asks the probe first"), "{ran:?}");
}

#[test]
fn one_attempt_is_asked_about_once() {
    // DEC-7: the answer frees nothing, and it does not go on asking.
    let at = Place::new(Kind::Sqlite);
    let slow = [MARK, "sleep 1000"].concat();
    let flags = ["--timeout", "100ms"];
    assert_eq!(finish(&mut at.run("k", &flags, &slow)).code, Some(124));
    let probe = [ASKED, "echo not-executed"].concat();
    let ran = finish(&mut at.run("k", &["--reconcile", &probe, "--timeout", "100ms"], &slow));
    assert_eq!((ran.code, asked(&at), at.marks()), (Some(76), 1, 1), "{ran:?}");
    assert!(ran.stderr.contains("--expect 4"), "{ran:?}");
}

#[test]
fn a_doubt_that_moves_while_it_is_asked_about_is_not_asked_about_again() {
    // DEC-5, DEC-7: the answer was about an older revision. Here the probe itself asks another one.
    let at = Place::new(Kind::Sqlite);
    let slow = [MARK, "sleep 1000"].concat();
    let flags = ["--timeout", "100ms"];
    assert_eq!(finish(&mut at.run("k", &flags, &slow)).code, Some(124));
    let inner = r#"$CTRLRUN reconcile k --store "$STORE" --reconcile 'echo not-executed'; "#;
    let probe = [ASKED, inner, "echo committed"].concat();
    let mut run = at.run("k", &["--reconcile", &probe], &slow);
    let ran = finish(run.env("STORE", at.store()));
    assert_eq!((ran.code, asked(&at), at.marks()), (Some(76), 1, 1), "{ran:?}");
    assert!(ran.stderr.contains("the answer is dropped"), "{ran:?}");
    assert_eq!((at.state("k").as_str(), at.types("k").len()), ("ambiguous", 4));
}

#[test]
fn a_dry_run_asks_nothing() {
    // CLI-13, DEC-7
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    let probe = [ASKED, "echo not-executed"].concat();
    let ran = finish(&mut at.run("k", &["--reconcile", &probe, "--dry-run"], &script()));
    assert_eq!((ran.code, asked(&at)), (Some(76), 0), "{ran:?}");
}

#[test]
fn the_trace_that_a_run_belongs_to_reaches_the_command_and_is_kept() {
    // DEC-18
    let at = Place::new(Kind::Sqlite);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let run = |key: &str, value: &str, flags: &[&str]| {
        let mut command = at.run(key, flags, "printf %s \"$TRACEPARENT\"");
        finish(command.env("TRACEPARENT", value))
    };
    assert_eq!(run("a", parent, &[]).stdout, parent);
    assert_eq!(at.show("a")["labels"]["traceparent"], parent);
    assert!(at.ask(&["show", "a"]).stdout.contains(&format!("traceparent={parent}")));
    // A label of that name is the caller's.
    assert_eq!(run("b", parent, &["--label", "traceparent=mine"]).stdout, parent);
    assert_eq!(at.show("b")["labels"]["traceparent"], "mine");
    // Nothing of another form is kept: it may be a secret that was put there by mistake.
    assert_eq!(run("c", "hunter2", &[]).stdout, "hunter2");
    assert_eq!(at.show("c")["labels"], serde_json::json!({}));
    assert!(!at.dump().split("history: ").any(|row| row.contains("hunter2")));
}
