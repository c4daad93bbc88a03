//! Many processes, one effect.
use std::thread;
use std::time::{Duration, Instant};

use crate::at::{HOLD, Kind, MARK, Place, on_every_store, text, until};
use crate::common::finish;

on_every_store!(
    a_command_longer_than_its_lease_runs_once,
    another_command_under_a_key_is_refused_but_after_failed,
    sixty_four_processes_on_a_new_key_run_it_once,
    who_holds_a_key_never_depends_on_host_pid_or_attempt_id,
);

fn a_command_longer_than_its_lease_runs_once(kind: Kind) {
    // Case 1; EXE-7, EFF-5, EFF-14
    let at = Place::new(kind);
    let holder = at.holder("k", &["--lease", "2s"]);
    let first_end = text(&at.show("k")["lease_expires_at"]);
    until("it was renewed after its first lease had ended", || {
        // Times have one shape, so their texts are in their order.
        at.history("k").iter().any(|event| {
            event["type"] == "lease_renewed" && text(&event["recorded_at"]) > first_end
        })
    });
    let again = finish(&mut at.run("k", &["--lease", "2s"], &[MARK, HOLD].concat()));
    assert_eq!(again.code, Some(75), "{again:?}");
    assert!(again.stderr.contains("nothing was run"), "{}", again.stderr);
    assert!(again.stderr.contains("has been running for"), "{}", again.stderr);
    assert_eq!(at.state("k"), "executing");
    at.go();
    let first = holder.end();
    assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""));
    let third = finish(&mut at.run("k", &["--lease", "2s"], &[MARK, HOLD].concat()));
    assert_eq!(third.code, Some(0));
    assert_eq!(at.types("k"), ["reserved", "began", "committed"]);
    assert_eq!(at.marked(), ["1"]);
}

fn another_command_under_a_key_is_refused_but_after_failed(kind: Kind) {
    // Case 11; EFF-10, EFF-11, CLI-14
    let at = Place::new(kind);
    let other = "exit 0; : another";
    let holder = at.holder("k", &[]);
    let mismatch = finish(&mut at.run("k", &[], other));
    assert_eq!(mismatch.code, Some(65), "{mismatch:?}");
    assert!(mismatch.stderr.contains("nothing was run"), "{}", mismatch.stderr);
    assert!(mismatch.stderr.contains("a value differs"), "{}", mismatch.stderr);
    assert!(!mismatch.stderr.contains("another\n"), "{}", mismatch.stderr);
    at.go();
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(finish(&mut at.run("k", &[], other)).code, Some(65));
    assert_eq!(finish(&mut at.run_words("k", &[], &["true"])).code, Some(65));

    let failed = finish(&mut at.run("f", &["--not-executed", "3"], "exit 3"));
    assert_eq!(failed.code, Some(3), "{failed:?}");
    assert_eq!(finish(&mut at.run("f", &[], MARK)).code, Some(0));

    // What a person has freed stays bound to what it was about.
    finish(&mut at.run("r", &[], "exit 3"));
    at.resolve("r", "--not-executed");
    let bound = finish(&mut at.run("r", &[], MARK));
    assert_eq!(bound.code, Some(65), "{bound:?}");
    assert!(bound.stderr.contains("--rebind"), "{}", bound.stderr);
    assert_eq!(finish(&mut at.run("r", &["--rebind"], MARK)).code, Some(0));
    assert_eq!(at.marked(), ["1", "2", "2"]);
}

fn sixty_four_processes_on_a_new_key_run_it_once(kind: Kind) {
    // Case 12; CMT-2, EFF-10, CLI-10
    let at = Place::new(kind);
    let script = [MARK, HOLD].concat();
    let mut all: Vec<_> = (0..64).map(|_| at.start(&mut at.run("k", &[], &script))).collect();
    until("all but one have ended", || {
        all.iter_mut().filter_map(|one| one.ended().then_some(())).count() == 63
    });
    at.go();
    let ends: Vec<_> = all.into_iter().map(crate::at::Running::end).collect();
    assert_eq!(ends.iter().filter(|end| end.code == Some(0)).count(), 1);
    for refused in ends.iter().filter(|end| end.code != Some(0)) {
        assert_eq!(refused.code, Some(75), "{refused:?}");
        assert!(refused.stderr.contains("nothing was run"), "{refused:?}");
    }
    assert_eq!(at.marked(), ["1"]);
}

fn who_holds_a_key_never_depends_on_host_pid_or_attempt_id(kind: Kind) {
    // Case 17; EFF-4, CLI-8. Two containers: one host name, both pid 1, one attempt id.
    let at = Place::new(kind);
    let mut in_a_namespace = vec!["--fork", "--pid"];
    if !nix::unistd::geteuid().is_root() {
        in_a_namespace.extend(["--user", "--map-root-user"]);
    }
    let mut probe = std::process::Command::new("unshare");
    let alone = probe.args(&in_a_namespace).arg("true").output();
    let alone = alone.is_ok_and(|output| output.status.success());
    if !alone {
        eprintln!("skipped in part: this user may make no PID namespace, so the pids differ");
    }
    let contained = || {
        let script = [MARK, HOLD].concat();
        let run = at.run("k", &["--attempt-id", "pod-1", "--lease", "2s"], &script);
        if !alone {
            return run;
        }
        let mut command = std::process::Command::new("unshare");
        command.args(&in_a_namespace).arg(run.get_program()).args(run.get_args()).env_clear();
        for (name, value) in run.get_envs() {
            command.env(name, value.unwrap());
        }
        command
    };
    let holder = at.start(&mut contained());
    until("it has marked", || at.marks() == 1);
    let shown = at.show("k");
    if alone {
        assert_eq!(shown["ran_on"]["pid"], 1);
    }
    assert_eq!(shown["attempt_id"], "pod-1");
    let twin = finish(&mut contained());
    assert_eq!(twin.code, Some(75), "{twin:?}");
    at.go();
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(finish(&mut contained()).code, Some(0));
    assert_eq!(at.marked(), ["1"]);
}

/// A disk that others use too may take seconds for one fsync.
const PATIENT: [&str; 2] = ["--store-timeout", "60s"];

#[test]
fn runs_on_their_own_keys_never_meet_a_locked_database() {
    // Case 14; STO-3, STO-1
    let at = Place::new(Kind::Sqlite);
    let (workers, runs) = (8, 8);
    thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|worker| {
                let mut prepared: Vec<_> = (0..runs)
                    .map(|run| at.run(&format!("k:{worker}:{run}"), &PATIENT, MARK))
                    .collect();
                scope.spawn(move || prepared.iter_mut().map(finish).collect::<Vec<_>>())
            })
            .collect();
        while handles.iter().any(|handle| !handle.is_finished()) {
            let listed = at.ask(&["effects", "--json", PATIENT[0], PATIENT[1]]);
            assert_eq!((listed.code, listed.stderr.as_str()), (Some(0), ""));
        }
        for handle in handles {
            for end in handle.join().unwrap() {
                assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
            }
        }
    });
    assert_eq!(at.marks(), workers * runs);
    let committed = at.ask(&["effects", "--state", "committed", "--json"]);
    assert_eq!(committed.stdout.lines().count(), workers * runs);
}

/// Another tool that lets nobody read or write.
fn lock(at: &Place) -> rusqlite::Connection {
    let tool = at.connect();
    tool.query_row("PRAGMA locking_mode=EXCLUSIVE", [], |_| Ok(())).unwrap();
    tool.execute_batch("BEGIN EXCLUSIVE; UPDATE store SET attempt_floor=attempt_floor").unwrap();
    tool
}

#[test]
fn a_lock_that_is_released_in_time_is_never_reported() {
    // Case 14; STO-3
    let at = Place::new(Kind::Sqlite);
    let tool = lock(&at);
    let since = Instant::now();
    let mut run = at.start(&mut at.run("k", &[], MARK));
    until("it has waited for 3 s", || {
        assert!(!run.ended(), "{}", run.stderr());
        since.elapsed() > Duration::from_secs(3)
    });
    assert_eq!(at.marks(), 0);
    drop(tool);
    let end = run.end();
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    assert_eq!(at.marks(), 1);
}

#[test]
fn a_lock_that_is_not_released_in_time_says_that_nothing_ran() {
    // Case 14, the SQLite part of case 39; STO-3, CMT-5, CMT-14
    let at = Place::new(Kind::Sqlite);
    let tool = lock(&at);
    let end = finish(&mut at.run("k", &["--store-timeout", "300ms"], MARK));
    assert_eq!(end.code, Some(69), "{end:?}");
    assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
    assert!(!end.stderr.contains("database is locked"), "{}", end.stderr);
    drop(tool);
    assert_eq!(at.state("k"), "");
    assert_eq!(at.marks(), 0);
    assert_eq!(finish(&mut at.run("k", &[], MARK)).code, Some(0));
}

#[test]
fn an_outcome_waits_far_longer_for_a_lock_than_a_reserve() {
    // Case 14; CMT-14, EXE-24
    let at = Place::new(Kind::Sqlite);
    let mut run = at.holder("k", &["--store-timeout", "500ms", "--lease", "4s"]);
    let tool = at.connect();
    tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    at.go();
    // The first try has failed, and its outcome is safe; it does not give up.
    until("the outcome is spooled", || !at.spooled(&at.spool()).is_empty());
    assert!(!run.ended());
    drop(tool);
    let end = run.end();
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    // Whoever waits at a terminal is told why.
    assert!(end.stderr.ends_with("still trying\n"), "{}", end.stderr);
    assert_eq!(at.state("k"), "committed");
    assert_eq!(at.spooled(&at.spool()).len(), 0, "what is recorded is still in the spool");
}
