//! What is there already; waiting, retries.
use crate::at::{HOLD, Kind, MARK, Place, error_of, on_every_store, until};
use crate::common::{BINARY, finish};

on_every_store!(
    a_second_call_replays_in_a_strict_script,
    what_to_do_on_a_committed_or_running_key_can_be_chosen,
    a_waiting_run_replays_what_the_other_did,
    a_waiting_run_meets_a_lapse_as_a_contender,
    a_waiting_run_runs_what_did_not_happen,
    a_retry_has_the_number_that_the_store_granted,
    nothing_is_retried_after_ambiguous,
    a_retry_is_held_to_its_own_failure,
    attempts_are_counted_over_all_processes,
    an_expectation_that_does_not_hold_writes_nothing,
    a_dry_run_writes_nothing,
);

fn a_second_call_replays_in_a_strict_script(kind: Kind) {
    // Case 49; CLI-2, CLI-9
    let at = Place::new(kind);
    let script = format!(
        "set -e; export CTRLRUN_STORE='{}' PLACE={}; R='ctrlrun run -k k'
         one() {{ $R -- sh -c '{}echo out; echo err >&2'; }}; one; one >\"$PLACE/second\"; echo after",
        at.store(),
        at.env.path("").display(),
        MARK.replace('\'', "'\\''"),
    );
    let end = at.env.shell(&script);
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "out\nafter\n"), "{end:?}");
    assert_eq!(std::fs::read_to_string(at.env.path("second")).unwrap(), "out\n");
    let told: Vec<&str> = end.stderr.lines().collect();
    assert_eq!((told[0], told[2], told.len()), ("err", "err", 3), "{}", end.stderr);
    assert!(told[1].contains("COMMITTED") && told[1].contains("by attempt 1; nothing was run"));
    assert_eq!(at.marks(), 1);

    // Cut, or not kept at all: stdout stays empty, and the line says why.
    let long = "printf 0123456789";
    assert_eq!(finish(&mut at.run("cut", &["--capture", "4B"], long)).stdout, "0123456789");
    assert_eq!(finish(&mut at.run("none", &["--capture", "none"], long)).stdout, "0123456789");
    for key in ["cut", "none"] {
        let again = finish(&mut at.run(key, &[], long));
        assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""), "{again:?}");
        assert!(again.stderr.contains("its output is not printed"), "{}", again.stderr);
    }
    // Resolved by a person: what he gave, or nothing.
    for (key, given) in [("given", Some("re_9\n")), ("bare", None)] {
        finish(&mut at.run(key, &[], "echo half; exit 7"));
        let revision = at.show(key)["revision"].to_string();
        let mut words =
            vec!["resolve", key, "--committed", "--reason", "seen", "--expect", &revision];
        let file = at.env.path("given");
        std::fs::write(&file, given.unwrap_or_default()).unwrap();
        if given.is_some() {
            words.extend(["--output", file.to_str().unwrap()]);
        }
        assert_eq!(at.ask(&words).code, Some(0));
        let again = finish(&mut at.run(key, &[], "echo half; exit 7"));
        assert_eq!((again.code, again.stdout.as_str()), (Some(0), given.unwrap_or_default()));
    }
}

fn what_to_do_on_a_committed_or_running_key_can_be_chosen(kind: Kind) {
    // CLI-9, CLI-10
    let at = Place::new(kind);
    let script = [MARK, HOLD, "echo out"].concat();
    let holder = at.start(&mut at.run("k", &[], &script));
    until("it has marked", || at.marks() == 1);
    let skip = finish(&mut at.run("k", &["--on-running", "skip"], &script));
    assert_eq!((skip.code, skip.stdout.as_str(), skip.stderr.as_str()), (Some(0), "", ""));
    let refuse = finish(&mut at.run("k", &["--on-running", "refuse", "-q"], &script));
    assert_eq!(refuse.code, Some(75));
    assert!(
        refuse.stderr.contains("nothing was run") && refuse.stderr.contains("its lease ends in")
    );
    at.go();
    assert_eq!(holder.end().code, Some(0));
    let skip = finish(&mut at.run("k", &["--on-committed", "skip"], &script));
    assert_eq!((skip.code, skip.stdout.as_str(), skip.stderr.as_str()), (Some(0), "", ""));
    let refuse = finish(&mut at.run("k", &["--on-committed", "refuse"], &script));
    assert_eq!((refuse.code, refuse.stdout.as_str()), (Some(73), ""));
    assert!(refuse.stderr.contains("nothing was run"), "{}", refuse.stderr);
    // Neither hides that nobody knows.
    finish(&mut at.run("a", &[], "exit 4"));
    let flags = ["--on-committed", "skip", "--on-running", "skip"];
    assert_eq!(finish(&mut at.run("a", &flags, "exit 4")).code, Some(76));
    assert_eq!(at.marks(), 1);
}

fn a_waiting_run_replays_what_the_other_did(kind: Kind) {
    // EXE-21
    let at = Place::new(kind);
    let script = [MARK, HOLD, "echo out"].concat();
    let holder = at.start(&mut at.run("k", &[], &script));
    until("it has marked", || at.marks() == 1);
    let waiting = at.start(&mut at.run("k", &["--wait", "1h"], &script));
    until("it waits", || waiting.stderr().contains("waiting"));
    let short = finish(&mut at.run("k", &["--wait", "100ms"], &script));
    assert_eq!(short.code, Some(75), "{short:?}");
    at.go();
    assert_eq!(holder.end().code, Some(0));
    let end = waiting.end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "out\n"), "{end:?}");
    assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
    assert_eq!(at.marked(), ["1"]);
}

fn a_waiting_run_meets_a_lapse_as_a_contender(kind: Kind) {
    // EXE-21, EFF-10, CLI-10
    let at = Place::new(kind);
    let holder = at.holder("k", &["--lease", "2s"]);
    let script = [MARK, HOLD].concat();
    let waiting = at.start(&mut at.run("k", &["--wait", "1h", "--lease", "2s"], &script));
    until("it waits", || waiting.stderr().contains("waiting"));
    holder.kill();
    let end = waiting.end();
    assert_eq!(end.code, Some(76), "{end:?}");
    assert!(end.stderr.contains("may still be running"), "{}", end.stderr);
    assert_eq!((at.state("k").as_str(), at.marks()), ("ambiguous", 1));
}

fn a_waiting_run_runs_what_did_not_happen(kind: Kind) {
    // EXE-21
    let at = Place::new(kind);
    let script = [MARK, HOLD, r#"[ "$CTRLRUN_ATTEMPT" = 2 ] || exit 3"#].concat();
    let holder = at.start(&mut at.run("k", &["--not-executed", "3"], &script));
    until("it has marked", || at.marks() == 1);
    let waiting = at.start(&mut at.run("k", &["--wait", "1h"], &script));
    until("it waits", || waiting.stderr().contains("waiting"));
    at.go();
    assert_eq!(holder.end().code, Some(3));
    assert_eq!(waiting.end().code, Some(0));
    assert_eq!(at.marked(), ["1", "2"]);
}

fn a_retry_has_the_number_that_the_store_granted(kind: Kind) {
    // EXE-22, EXE-20, EFF-6
    let at = Place::new(kind);
    let flags = ["--not-executed", "3", "--retries", "3", "--backoff", "10ms"];
    let script = [MARK, r#"[ "$CTRLRUN_ATTEMPT" = 3 ] || exit 3"#].concat();
    let end = finish(&mut at.run("k", &flags, &script));
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(end.stderr.matches("again in").count(), 2, "{}", end.stderr);
    assert_eq!(at.marked(), ["1", "2", "3"]);
    assert_eq!(
        (&at.show("k")["attempt"], &at.show("k")["state"]),
        (&3.into(), &"committed".into())
    );

    let flags = ["--not-executed", "3", "--retries", "2", "--backoff", "10ms"];
    let end = finish(&mut at.run("f", &flags, "exit 3"));
    assert_eq!((end.code, &at.show("f")["attempt"]), (Some(3), &3.into()), "{end:?}");
}

fn nothing_is_retried_after_ambiguous(kind: Kind) {
    // EXE-22
    let at = Place::new(kind);
    let flags = ["--not-executed", "3", "--retries", "9", "--backoff", "10ms"];
    let end = finish(&mut at.run("k", &flags, &[MARK, "exit 4"].concat()));
    assert_eq!((end.code, at.state("k").as_str()), (Some(4), "ambiguous"), "{end:?}");
    let flags = ["--timeout", "200ms", "--retries", "9", "--backoff", "10ms"];
    let end = finish(&mut at.run("t", &flags, &[MARK, "exec sleep 60"].concat()));
    assert_eq!((end.code, at.state("t").as_str()), (Some(124), "ambiguous"), "{end:?}");
    assert_eq!(at.marks(), 2);
}

fn a_retry_is_held_to_its_own_failure(kind: Kind) {
    // EXE-22, EFF-12
    let at = Place::new(kind);
    let flags = ["--not-executed", "3", "--retries", "5", "--backoff", "2s"];
    let script = [MARK, r#"[ -e "$PLACE/go" ] || exit 3"#].concat();
    let run = at.start(&mut at.run("k", &flags, &script));
    until("it waits for its retry", || run.stderr().contains("again in"));
    at.go();
    assert_eq!(finish(&mut at.run("k", &[], &script)).code, Some(0));
    let end = run.end();
    assert_eq!(end.code, Some(79), "{end:?}");
    assert_eq!(at.marked(), ["1", "2"]);
}

fn attempts_are_counted_over_all_processes(kind: Kind) {
    // EFF-6, EXE-22
    let at = Place::new(kind);
    let script = [MARK, "exit 3"].concat();
    let flags =
        ["--not-executed", "3", "--max-attempts", "3", "--retries", "1", "--backoff", "10ms"];
    assert_eq!(finish(&mut at.run("k", &flags, &script)).code, Some(3));
    let end = finish(&mut at.run("k", &flags, &script));
    assert_eq!(end.code, Some(72), "{end:?}");
    assert!(end.stderr.contains("3 attempts made already"), "{}", end.stderr);
    assert_eq!(at.marked(), ["1", "2", "3"]);
}

fn an_expectation_that_does_not_hold_writes_nothing(kind: Kind) {
    // CLI-11, CMT-12, CMT-13, EFF-12
    let at = Place::new(kind);
    let expect = |key: &str, state: &str| {
        finish(&mut at.run(key, &["--expect", state, "--json"], &[MARK, "exit 4"].concat()))
    };
    for state in ["exists", "3"] {
        let end = expect("new", state);
        assert_eq!((end.code, &error_of(&end)["error"]), (Some(79), &"revision_conflict".into()));
        assert_eq!(at.state("new"), "");
    }
    assert_eq!(expect("k", "new").code, Some(4));
    let before = at.dump();
    for state in ["new", "1", "4"] {
        let end = expect("k", state);
        assert_eq!(end.code, Some(79), "{end:?}");
        assert!(error_of(&end)["message"].as_str().unwrap().contains("revision 3"), "{end:?}");
    }
    // Not even a lapse (EFF-12).
    let holder = at.holder("l", &["--lease", "2s"]);
    holder.kill();
    at.lapsed("l");
    let lapsed = at.dump();
    assert_eq!(
        finish(&mut at.run("l", &["--expect", "new"], &[MARK, HOLD].concat())).code,
        Some(79)
    );
    assert_eq!(at.dump(), lapsed);
    assert!(lapsed.starts_with(before.lines().next().unwrap()));
    // What holds goes on to the state's own answer.
    assert_eq!(expect("k", "3").code, Some(76));
    assert_eq!(expect("k", "exists").code, Some(76));
    at.resolve("k", "--not-executed");
    assert_eq!(expect("k", "4").code, Some(4));
    assert_eq!(at.marked(), ["1", "1", "2"]);
}

fn a_dry_run_writes_nothing(kind: Kind) {
    // CLI-13
    let at = Place::new(kind);
    let script = [MARK, HOLD].concat();
    finish(&mut at.run("a", &[], "exit 4"));
    finish(&mut at.run("c", &[], MARK));
    let holder = at.holder("l", &["--lease", "2s"]);
    holder.kill();
    at.lapsed("l");
    let before = at.dump();
    for (key, script, code) in [
        ("new", MARK, 0),
        ("a", "exit 4", 76),
        ("c", MARK, 0),
        ("c", "exit 4", 65),
        ("l", script.as_str(), 76),
        ("$X", MARK, 64),
    ] {
        let end = finish(&mut at.run(key, &["--dry-run"], script));
        assert_eq!(end.code, Some(code), "{key}: {end:?}");
    }
    let conflict = finish(&mut at.run("a", &["--dry-run", "--expect", "new"], "exit 4"));
    assert_eq!(conflict.code, Some(79), "{conflict:?}");
    assert_eq!(at.dump(), before);
    assert_eq!(at.marks(), 2);
    // It makes no store.
    let fresh = crate::common::TestEnv::new();
    let end = fresh.run(["run", "--dry-run", "-k", "k", "--", BINARY]);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(!fresh.path("home/.local").exists());
}
