//! Time-outs, ending on purpose, and what is said of descendants.

#![expect(clippy::expect_used, reason = "helpers of tests, outside #[test]")]

mod exec_support;

use std::{path::Path, time::Duration};

use ctrlrun::exec::{CommandLine, Exit, Waited};
use exec_support::{
    end_of, is_alive, number_in, run, serve_until, sh, start, stop, text, until, with_path,
};

const TERM: Exit = Exit::Signal { number: libc::SIGTERM, core: false };
const KILL: Exit = Exit::Signal { number: libc::SIGKILL, core: false };

fn in_ms(mut line: CommandLine, timeout: u64, kill_after: u64) -> CommandLine {
    line.timeout = Some(Duration::from_millis(timeout));
    line.kill_after = Duration::from_millis(kill_after);
    line
}

fn pid_in(path: &Path) -> i32 {
    number_in(path).expect("a pid was written")
}

#[test]
fn a_time_out_is_term_and_told_so() {
    let end = run(in_ms(sh("exec sleep 1000"), 50, 10_000));
    assert_eq!((end.exit, end.timed_out, end.ended_by_us), (TERM, true, false));
    assert!(end.duration >= Duration::from_millis(50));
    assert!(end.duration < Duration::from_secs(5), "the grace was not needed");
    assert!(end.descendants_left.is_empty());
}

#[test]
fn a_child_that_exits_0_on_our_term_was_timed_out_all_the_same() {
    let end = run(in_ms(sh("trap 'exit 0' TERM; while :; do sleep 0.01; done"), 50, 10_000));
    assert_eq!((end.exit, end.timed_out), (Exit::Code(0), true));
}

#[test]
fn a_child_that_ended_before_its_time_was_not_timed_out() {
    let end = run(in_ms(sh("exit 5"), 10_000, 10_000));
    assert_eq!((end.exit, end.timed_out), (Exit::Code(5), false));
}

#[test]
fn a_child_that_ended_while_nobody_looked_was_in_time() {
    let mut child = start(in_ms(sh("exit 5"), 100, 10_000));
    let stat = format!("/proc/{}/stat", child.pid());
    let zombie = || std::fs::read_to_string(&stat).is_ok_and(|s| s.contains(") Z "));
    until("it is a zombie", zombie);
    let from = ctrlrun::exec::boottime();
    until("its time is over", || ctrlrun::exec::boottime() - from > Duration::from_millis(100));
    assert!(!end_of(&mut child).timed_out);
}

#[test]
fn a_child_that_ignores_term_is_killed_after_the_grace() {
    let end = run(in_ms(sh("trap '' TERM; while :; do sleep 0.01; done"), 50, 200));
    assert_eq!((end.exit, end.timed_out), (KILL, true));
    assert!(end.duration >= Duration::from_millis(250));
}

#[test]
fn a_grandchild_that_ignores_term_is_killed_though_the_child_has_ended() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("pid");
    let script = "sh -c 'trap \"\" TERM; echo $$ >\"$F\"; while :; do sleep 0.01; done' & wait";
    let end = run(in_ms(with_path(sh(script), "F", &file), 200, 1000));
    assert_eq!((end.exit, end.timed_out), (TERM, true));
    assert!(end.duration < Duration::from_millis(1200), "the child itself went at once");
    assert!(!is_alive(pid_in(&file)), "the grandchild is dead when the end is told");
    assert!(end.descendants_left.is_empty() && !end.descendants_unseen);
}

#[test]
fn a_grandchild_that_needs_a_while_has_the_whole_grace() {
    let dir = tempfile::tempdir().expect("dir");
    let (file, done) = (dir.path().join("pid"), dir.path().join("done"));
    let script = "sh -c 'trap \"sleep 0.2; echo done >\\\"$D\\\"; exit\" TERM; echo $$ >\"$F\"; while :; do sleep 0.01; done' & wait";
    let line = with_path(with_path(sh(script), "F", &file), "D", &done);
    let end = run(in_ms(line, 200, 10_000));
    assert!(end.timed_out && done.exists() && end.descendants_left.is_empty(), "{end:?}");
}

#[test]
fn a_stopped_child_gets_its_term() {
    let end = run(in_ms(sh("kill -STOP $$"), 50, 10_000));
    assert_eq!((end.exit, end.timed_out), (TERM, true));
}

#[test]
fn a_pipeline_that_is_over_has_left_nobody() {
    for _ in 0..20 {
        let end = run(sh("echo a | cat | cat"));
        assert_eq!(text(&end.stdout), "a\n");
        assert!(end.descendants_left.is_empty(), "{end:?}");
    }
}

#[test]
fn ending_twice_and_ending_what_has_ended_is_nothing() {
    let mut child = start(sh("exec sleep 1000"));
    child.end_group();
    child.end_group();
    let end = end_of(&mut child);
    assert_eq!((end.exit, end.ended_by_us), (TERM, true));
    let mut child = start(sh("exit 7"));
    let stat = format!("/proc/{}/stat", child.pid());
    until("it is a zombie", || std::fs::read_to_string(&stat).is_ok_and(|s| s.contains(") Z ")));
    child.end_group();
    let end = end_of(&mut child);
    assert_eq!((end.exit, end.ended_by_us), (Exit::Code(7), false));
}

#[test]
fn one_child_does_not_know_anothers_descendants() {
    // An orphan: it has become a child of this very process.
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("pid");
    let mut with_family =
        start(with_path(sh("(sleep 1000 & echo $! >\"$F\"); exec sleep 1000"), "F", &file));
    serve_until(&mut with_family, "a grandchild", || number_in(&file).is_some());
    assert!(run(sh("exit 0")).descendants_left.is_empty());
    stop(with_family);
    until("the grandchild is dead", || !is_alive(pid_in(&file)));
}

#[test]
fn no_zombie_of_the_group_is_left_to_us() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("pid");
    // An orphan that ends while the child still runs falls to us.
    let script = "(sh -c 'echo $$ >\"$F\"' &); until test -s \"$F\"; do sleep 0.01; done
        until grep -q ') Z ' /proc/$(cat \"$F\")/stat; do sleep 0.01; done";
    run(with_path(sh(script), "F", &file));
    let pid = pid_in(&file);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "collected");
}

#[test]
fn a_wait_of_no_time_is_a_look() {
    let mut child = start(sh("exec sleep 1000"));
    for _ in 0..10 {
        let waited = child.wait(Some(Duration::ZERO), None);
        assert!(matches!(waited, Waited::TimeReached));
    }
    stop(child);
}

#[test]
fn many_children_at_once_keep_their_ends_apart() {
    let threads: Vec<_> = (0..8)
        .map(|code| {
            std::thread::spawn(move || {
                for _ in 0..25 {
                    let end = run(sh(&format!("echo {code}; exit {code}")));
                    assert_eq!(end.exit, Exit::Code(code));
                    assert_eq!(text(&end.stdout), format!("{code}\n"));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("all ends were right");
    }
}
