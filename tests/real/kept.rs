//! The spool, while the store is not to be had and after.
use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::at::{HOLD, Kind, MARK, Place, Running, until};
use crate::common::finish;
use crate::real::{behind, ends, scripts};

/// An exchange is given up soon; a settle is tried for as long as the lease, at least.
fn flags(lease: &str) -> [String; 4] {
    ["--store-timeout", "200ms", "--lease", lease].map(ToOwned::to_owned)
}

/// Another program that keeps the store for itself.
fn lock(at: &Place) -> rusqlite::Connection {
    let other = at.connect();
    other.busy_timeout(Duration::from_secs(60)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

/// A run whose command has ended while the store is locked, and which tries to record that; and
/// the file in which it has kept it meanwhile.
fn trying(at: &Place, key: &str, lease: &str) -> (Running, rusqlite::Connection) {
    let _ = fs::remove_file(at.env.path("go"));
    let before = at.marks();
    let flags = flags(lease);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let run = at.start(&mut at.run(key, &flags, &[MARK, HOLD, "echo out"].concat()));
    until("it has marked", || at.marks() > before);
    let locked = lock(at);
    at.go();
    until("it is kept", || at.spooled(&at.spool()).len() == 1);
    (run, locked)
}

#[test]
fn an_outcome_is_kept_before_it_is_tried_again_and_no_longer_than_that() {
    // Cases 6, 42; EXE-24
    let at = Place::new(Kind::Sqlite);
    let (mut run, locked) = trying(&at, "k", "5m");
    assert!(!run.ended());
    assert_eq!(at.types("k"), ["reserved", "began"]);
    drop(locked);
    let end = run.end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "out\n"), "{end:?}");
    assert_eq!((at.state("k").as_str(), at.marks()), ("committed", 1));
    assert_eq!(at.spooled(&at.spool()), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_ctrlrun_that_is_killed_while_it_tries_has_left_the_outcome_to_the_next() {
    // Cases 3, 6; EXE-24, EXE-25
    let at = Place::new(Kind::Sqlite);
    let (run, locked) = trying(&at, "k", "5m");
    run.kill();
    drop(locked);
    // Who looks is told, and delivers nothing.
    let shown = at.ask(&["show", "k"]);
    assert!(shown.stderr.contains("is in the spool"), "{shown:?}");
    assert_eq!(at.state("k"), "executing");
    let next = finish(&mut at.run("other", &[], "true"));
    assert!(next.stderr.contains("k: its spooled outcome is recorded"), "{next:?}");
    assert_eq!((at.state("k").as_str(), at.spooled(&at.spool()).len()), ("committed", 0));
    // And the key itself is replayed, with its output.
    let again = finish(&mut at.run("k", &[], &[MARK, HOLD, "echo out"].concat()));
    assert_eq!((again.code, again.stdout.as_str(), at.marks()), (Some(0), "out\n", 1), "{again:?}");
}

#[test]
fn a_signal_while_it_tries_does_not_make_it_forget_the_outcome() {
    // Cases 6, 25; EXE-13, EXE-24
    let at = Place::new(Kind::Sqlite);
    let (run, locked) = trying(&at, "k", "5m");
    run.signal(Signal::SIGTERM);
    drop(locked);
    let end = run.end();
    assert_eq!(
        (end.code, at.state("k").as_str(), at.marks()),
        (Some(0), "committed", 1),
        "{end:?}"
    );
}

#[test]
fn a_store_that_never_comes_back_in_time_ends_it_with_74_whatever_the_child_ended_with() {
    // Case 6; EXE-17, EXE-24
    for (key, last, flags) in [
        ("code", "exit 5", ""),
        ("declared", "exit 6", ""),
        ("signal", "kill -9 $$", ""),
        ("outcome", "exit 0", "outcome"),
    ] {
        let at = Place::new(Kind::Sqlite);
        let soon = self::flags("2s");
        let mut all: Vec<&str> = soon.iter().map(String::as_str).collect();
        all.extend(["--not-executed", "6"]);
        if !flags.is_empty() {
            all.extend(["--exit", flags]);
        }
        let run = at.start(&mut at.run(key, &all, &[MARK, HOLD, last].concat()));
        until("it has marked", || at.marks() == 1);
        let locked = lock(&at);
        at.go();
        let end = run.end();
        drop(locked);
        assert_eq!((end.code, end.signal), (Some(74), None), "{key}: {end:?}");
        let file = at.spooled(&at.spool()).pop().unwrap();
        assert!(end.stderr.contains(file.to_str().unwrap()), "{key}: {}", end.stderr);
        let how = match key {
            "signal" => "killed by signal 9",
            "code" => "exited 5",
            "declared" => "exited 6",
            _ => "exited 0",
        };
        assert!(end.stderr.contains(how), "{key}: {}", end.stderr);
        let delivered = finish(&mut at.run("other", &[], "true"));
        assert_eq!(delivered.code, Some(0), "{delivered:?}");
        let state = match key {
            "declared" => "failed",
            "outcome" => "committed",
            _ => "ambiguous",
        };
        assert_eq!(at.state(key), state);
    }
}

#[test]
fn where_the_next_key_is_delivered_is_where_it_stands_in_the_way() {
    // EXE-25: two commands deliver one outcome at the same time; it is there once.
    let at = Place::new(Kind::Sqlite);
    let (run, locked) = trying(&at, "k", "5m");
    run.kill();
    let others: Vec<Running> =
        (0..8).map(|n| at.start(&mut at.run(&format!("o:{n}"), &[], "true"))).collect();
    drop(locked);
    for other in others {
        let end = other.end();
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    assert_eq!(at.types("k"), ["reserved", "began", "committed"]);
    assert_eq!(at.spooled(&at.spool()).len(), 0);
}

#[test]
fn the_spool_is_where_it_was_asked_to_be_and_without_one_it_says_so_before_it_runs() {
    // EXE-23
    let at = Place::new(Kind::Sqlite);
    let file = at.env.path("file");
    fs::write(&file, "").unwrap();
    // The state directory and all that come after it are files: nobody can make one there.
    let mut run = at.run("k", &[], MARK);
    for name in ["XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        run.env(name, &file);
    }
    let end = finish(run.env("CTRLRUN_SPOOL", file.join("spool")));
    assert_eq!((end.code, at.marks()), (Some(0), 1), "{end:?}");
    assert_eq!(end.stderr.matches("warning: ").count(), 1, "{}", end.stderr);
    // In the runtime directory where there is no state directory.
    let runtime = scripts(&at).join("runtime");
    fs::create_dir(&runtime).unwrap();
    let soon = flags("2s");
    let soon: Vec<&str> = soon.iter().map(String::as_str).collect();
    let mut run = at.run("l", &soon, &[MARK, HOLD].concat());
    let run = at.start(run.env("XDG_STATE_HOME", &file).env("XDG_RUNTIME_DIR", &runtime));
    until("it has marked", || at.marks() == 2);
    let locked = lock(&at);
    at.go();
    let end = run.end();
    drop(locked);
    assert_eq!(end.code, Some(74), "{end:?}");
    assert_eq!(at.spooled(&runtime.join("ctrlrun/spool")).len(), 1, "{end:?}");
}

#[test]
fn a_lost_outcome_is_told_even_where_it_is_quiet() {
    // EXE-26, CLI-2: all there is left of it is this text.
    let at = Place::new(Kind::Sqlite);
    let file = at.env.path("file");
    fs::write(&file, "").unwrap();
    let soon = flags("2s");
    let mut all: Vec<&str> = soon.iter().map(String::as_str).collect();
    all.push("-q");
    let mut run = at.run("k", &all, &[MARK, HOLD, "exit 0"].concat());
    let run = at.start(run.env("CTRLRUN_SPOOL", file.join("spool")));
    until("it has marked", || at.marks() == 1);
    let locked = lock(&at);
    at.go();
    let end = run.end();
    drop(locked);
    assert_eq!(end.code, Some(74), "{end:?}");
    for fact in ["exited 0", "COMMITTED", "reservation ", "outcome ", "resolve k --committed"] {
        assert!(end.stderr.contains(fact), "{fact}: {}", end.stderr);
    }
    let line = end.stderr.lines().find(|line| line.contains("resolve k --committed")).unwrap();
    let line = &line[line.find("ctrlrun resolve").unwrap()..];
    at.lapsed("k");
    let typed = at.env.shell(line);
    assert_eq!((typed.code, at.state("k").as_str()), (Some(0), "committed"), "{typed:?}");
}

#[test]
fn a_run_that_was_never_started_is_kept_as_that() {
    // EXE-24: a begin that is refused by a store that is gone; nothing ran, and the key is not lost.
    let at = Place::scratch(Kind::Sqlite);
    let soon = flags("1s");
    let soon: Vec<&str> = soon.iter().map(String::as_str).collect();
    let mut run = behind(&["env"], &at.run_words("k", &soon, &["./nowhere"]));
    let run = at.start(run.env("CTRLRUN_STOP_AT", "after-begin"));
    run.stopped();
    let locked = lock(&at);
    run.go_on();
    let end = run.end();
    drop(locked);
    assert!(end.stderr.contains("nothing was run"), "{end:?}");
    assert_eq!(at.spooled(&at.spool()).len(), 1, "{end:?}");
    let next = ends(&mut at.run("other", &[], "true"));
    assert_eq!((next.code, at.state("k").as_str()), (Some(0), "failed"), "{next:?}");
}
