//! Signals.
use nix::sys::signal::Signal;

use crate::at::{HOLD, Kind, MARK, Place, on_every_store, until};
use crate::common::finish;

on_every_store!(
    a_signal_reaches_the_child_once_and_its_real_outcome_is_recorded,
    a_signal_that_came_before_the_child_reaches_it,
    a_signal_ends_a_wait_and_nothing_runs,
    a_signal_between_retries_ends_it,
    a_signal_that_was_ignored_stays_ignored,
    without_a_terminal_a_child_leads_a_group_of_its_own,
);

fn a_signal_reaches_the_child_once_and_its_real_outcome_is_recorded(kind: Kind) {
    // Case 25; EXE-13
    let at = Place::new(kind);
    let script = format!(
        r#"trap 'echo term >>"$PLACE/caught"' TERM; trap 'echo usr1 >>"$PLACE/caught"' USR1; {MARK}{HOLD} echo out"#
    );
    let run = at.start(&mut at.run("k", &[], &script));
    until("it has marked", || at.marks() == 1);
    let caught = || std::fs::read_to_string(at.env.path("caught")).unwrap_or_default();
    // Each is seen before the next is sent: one of two equal signals may be lost by the kernel.
    for (count, signal) in
        [Signal::SIGTERM, Signal::SIGTERM, Signal::SIGUSR1].into_iter().enumerate()
    {
        run.signal(signal);
        until("it was passed on", || caught().lines().count() == count + 1);
    }
    at.go();
    let end = run.end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "out\n"), "{end:?}");
    assert_eq!(caught(), "term\nterm\nusr1\n");
    assert_eq!(at.types("k"), ["reserved", "began", "committed"]);
}

fn a_signal_that_came_before_the_child_reaches_it(kind: Kind) {
    // Case 25; EXE-13
    for point in ["after-reserve", "after-begin"] {
        let at = Place::scratch(kind);
        let run = at.start(at.run("k", &[], "exec sleep 60").env("CTRLRUN_STOP_AT", point));
        run.stopped();
        run.signal(Signal::SIGTERM);
        run.go_on();
        let end = run.end();
        assert_eq!(end.signal, Some(15), "{end:?}");
        let shown = at.show("k");
        assert_eq!((&shown["state"], &shown["signal"]), (&"ambiguous".into(), &15.into()));
    }
}

fn a_signal_ends_a_wait_and_nothing_runs(kind: Kind) {
    // Case 25; EXE-14, EXE-21
    let at = Place::new(kind);
    let holder = at.holder("k", &[]);
    let script = [MARK, HOLD].concat();
    for (signal, ends) in
        [(Signal::SIGTERM, true), (Signal::SIGINT, true), (Signal::SIGUSR1, false)]
    {
        let mut waiting = at.start(&mut at.run("k", &["--wait", "1h"], &script));
        until("it waits", || waiting.stderr().contains("waiting"));
        waiting.signal(signal);
        if ends {
            let end = waiting.end();
            assert_eq!(end.signal, Some(signal as i32), "{end:?}");
            assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
        } else {
            // It is the child's, should there be one.
            assert!(!waiting.ended());
            at.go();
            assert_eq!(waiting.end().code, Some(0));
        }
    }
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(at.marked(), ["1"]);
}

fn a_signal_between_retries_ends_it(kind: Kind) {
    // EXE-14, EXE-22
    let at = Place::new(kind);
    let flags = ["--not-executed", "3", "--retries", "5", "--backoff", "1h"];
    let run = at.start(&mut at.run("k", &flags, &[MARK, "exit 3"].concat()));
    until("it waits for its retry", || run.stderr().contains("again in"));
    run.signal(Signal::SIGHUP);
    let end = run.end();
    assert_eq!(end.signal, Some(1), "{end:?}");
    assert!(end.stderr.contains("it is not run again"), "{}", end.stderr);
    assert_eq!((at.state("k").as_str(), at.marks()), ("failed", 1));
}

fn a_signal_that_was_ignored_stays_ignored(kind: Kind) {
    // EXE-14
    let at = Place::new(kind);
    let run = at.run(
        "k",
        &[],
        &format!(r#"grep SigIgn /proc/$$/status >"$PLACE/ignored"; {MARK}{HOLD}"#),
    );
    let mut nohup = std::process::Command::new("sh");
    nohup.args(["-c", r#"trap "" HUP; exec "$@""#, "sh"]).arg(run.get_program());
    nohup.args(run.get_args()).env_clear();
    for (name, value) in run.get_envs() {
        nohup.env(name, value.unwrap());
    }
    let running = at.start(&mut nohup);
    until("it has marked", || at.marks() == 1);
    running.signal(Signal::SIGHUP);
    at.go();
    assert_eq!(running.end().code, Some(0));
    let ignored = std::fs::read_to_string(at.env.path("ignored")).unwrap();
    assert!(ignored.trim().ends_with('1'), "{ignored}");
    assert_eq!(
        finish(&mut at.run("k", &["--on-committed", "skip", "--rebind"], "true")).code,
        Some(65)
    );
}

fn without_a_terminal_a_child_leads_a_group_of_its_own(kind: Kind) {
    // EXE-10
    let at = Place::new(kind);
    let run = at.run("k", &[], r#"echo "$$ $(cut -d" " -f5 /proc/$$/stat)""#);
    let mut apart = std::process::Command::new("setsid");
    apart.arg("--wait").arg(run.get_program()).args(run.get_args()).env_clear();
    for (name, value) in run.get_envs() {
        apart.env(name, value.unwrap());
    }
    let end = finish(&mut apart);
    let (pid, group) = end.stdout.trim().split_once(' ').unwrap();
    assert_eq!((end.code, pid), (Some(0), group), "{end:?}");
}
