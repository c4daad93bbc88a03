//! Signals that processes send to ctrlrun.
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::at::{BOUND, Kind, MARK, Place, is_alive, number_in, process_state, until};
use crate::pty::Session;
use crate::real::{behind, counting, lines, stop};

const ALL: [(Signal, &str); 7] = [
    (Signal::SIGTERM, "TERM"),
    (Signal::SIGINT, "INT"),
    (Signal::SIGHUP, "HUP"),
    (Signal::SIGQUIT, "QUIT"),
    (Signal::SIGUSR1, "USR1"),
    (Signal::SIGUSR2, "USR2"),
    (Signal::SIGWINCH, "WINCH"),
];

const TRAPS: &str = "TERM INT HUP QUIT USR1 USR2 WINCH";

fn names() -> Vec<&'static str> {
    ALL.iter().chain(&ALL).map(|(_, name)| *name).collect()
}

#[test]
fn each_signal_reaches_the_child_once_for_each_time_it_came() {
    // Case 25; EXE-13
    let at = Place::new(Kind::Sqlite);
    let clean = ["setsid", "env", "--default-signal"];
    let run = at.start(&mut behind(&clean, &at.run("k", &[], &counting(TRAPS))));
    number_in(&at.env.path("up"));
    for (count, (signal, _)) in (1..).zip(ALL.iter().chain(&ALL)) {
        run.signal(*signal);
        until("it was passed on", || lines(&at, "got").len() == count);
    }
    stop(&at);
    let end = run.end();
    assert_eq!(
        (end.code, lines(&at, "got")),
        (Some(7), names().iter().map(|n| (*n).to_owned()).collect())
    );
    assert_eq!(at.types("k"), ["reserved", "began", "ambiguated"]);
}

#[test]
fn with_a_terminal_what_a_process_sends_reaches_the_child_once_as_well() {
    // Case 25; EXE-10, EXE-13. They share a group, and this was sent to one process of it.
    let at = Place::new(Kind::Sqlite);
    let mut session = Session::start(&at.run("k", &[], &counting(TRAPS)));
    number_in(&at.env.path("up"));
    for (count, (signal, _)) in (1..).zip(ALL.iter().chain(&ALL)) {
        nix::sys::signal::kill(Pid::from_raw(session.pid()), *signal).unwrap();
        session.sees("it was passed on", || lines(&at, "got").len() == count);
    }
    stop(&at);
    assert_eq!(session.end().code, Some(7));
    assert_eq!(lines(&at, "got"), names());
}

#[test]
fn each_signal_that_came_before_the_child_reaches_it() {
    // Case 25; EXE-13
    for (signal, name) in ALL {
        if signal == Signal::SIGWINCH {
            // Nobody dies of it, and a child cannot be listening yet.
            continue;
        }
        let at = Place::scratch(Kind::Sqlite);
        let mut run = behind(&["env", "--default-signal"], &at.run("k", &[], "exec sleep 1000"));
        let run = at.start(run.env("CTRLRUN_STOP_AT", "after-begin"));
        run.stopped();
        assert_eq!(at.types("k"), ["reserved", "began"]);
        run.signal(signal);
        run.go_on();
        let end = run.end();
        assert_eq!(end.signal, Some(signal as i32), "{name}: {end:?}");
        let shown = at.show("k");
        assert_eq!(
            (&shown["state"], &shown["signal"]),
            (&"ambiguous".into(), &(signal as i32).into())
        );
    }
}

#[test]
fn a_signal_to_the_whole_group_reaches_a_child_of_its_own_group_once() {
    // Case 25; EXE-10, EXE-13
    let at = Place::new(Kind::Sqlite);
    let clean = ["setsid", "env", "--default-signal"];
    let run = at.start(&mut behind(&clean, &at.run("k", &[], &counting("TERM USR1"))));
    let child = number_in(&at.env.path("up"));
    let group = |pid| nix::unistd::getpgid(Some(Pid::from_raw(pid))).unwrap().as_raw();
    assert_eq!((group(run.pid()), group(child)), (run.pid(), child));
    killpg(Pid::from_raw(run.pid()), Signal::SIGTERM).unwrap();
    until("it was passed on", || !lines(&at, "got").is_empty());
    run.signal(Signal::SIGUSR1);
    until("it was passed on", || lines(&at, "got").len() >= 2);
    stop(&at);
    assert_eq!(run.end().code, Some(7));
    assert_eq!(lines(&at, "got"), ["TERM", "USR1"]);
}

#[test]
fn a_signal_to_every_process_at_once_is_recorded_as_what_the_child_died_of() {
    // Case 25; EXE-13. A service manager that stops a control group, a container that is stopped.
    let at = Place::new(Kind::Sqlite);
    let script =
        format!("sleep 1000 & echo $! >$PLACE/grandchild; echo $$ >$PLACE/pid; {MARK} wait");
    let clean = ["setsid", "env", "--default-signal"];
    let run = at.start(&mut behind(&clean, &at.run("k", &[], &script)));
    until("it has marked", || at.marks() == 1);
    let pids = ["pid", "grandchild"].map(|file| number_in(&at.env.path(file)));
    for pid in [run.pid(), pids[0], pids[1]] {
        nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    }
    let end = run.end();
    assert_eq!(end.signal, Some(15), "{end:?}");
    let shown = at.show("k");
    assert_eq!((&shown["state"], &shown["signal"]), (&"ambiguous".into(), &15.into()));
    until("nothing is left", || !pids.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn a_script_that_signals_its_own_group_does_not_hear_it_twice() {
    // EXE-13. `trap 'kill 0' EXIT` is how scripts end what they have started.
    let at = Place::new(Kind::Sqlite);
    let mut run = at.run("k", &[], &counting("TERM USR1"));
    let mut session = Session::start(run.env("ONCE", "kill TERM => 0"));
    session.sees("it has heard itself", || lines(&at, "got") == ["TERM"]);
    // What is passed on, is so before this.
    nix::sys::signal::kill(Pid::from_raw(session.pid()), Signal::SIGUSR1).unwrap();
    session.sees("it was passed on", || lines(&at, "got").contains(&"USR1".to_owned()));
    stop(&at);
    let end = session.end();
    assert_eq!(end.code, Some(7), "{end:?}");
    assert_eq!(lines(&at, "got"), ["TERM", "USR1"]);
}

#[test]
fn a_signal_that_the_child_outlives_does_not_end_ctrlrun() {
    // Case 25; EXE-13: twice, with a terminal and without.
    let at = Place::new(Kind::Sqlite);
    let deaf = format!("trap '' TERM INT HUP; echo $$ >$PLACE/up; {MARK} {}", crate::at::HOLD);
    let mut run =
        at.start(&mut behind(&["setsid", "env", "--default-signal"], &at.run("k", &[], &deaf)));
    number_in(&at.env.path("up"));
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGTERM] {
        run.signal(signal);
        // It has woken up by it, and sleeps again.
        until("it waits", || process_state(run.pid()) == Some('S'));
        assert!(!run.ended());
    }
    at.go();
    assert_eq!((run.end().code, at.state("k").as_str()), (Some(0), "committed"));
}

#[test]
fn nohup_keeps_both_from_a_hang_up() {
    // EXE-14
    let at = Place::new(Kind::Sqlite);
    let mut run = at.start(&mut behind(&["nohup"], &at.run("k", &[], &counting("USR1"))));
    number_in(&at.env.path("up"));
    run.signal(Signal::SIGHUP);
    // It comes after a hang-up would have.
    run.signal(Signal::SIGUSR1);
    until("it was passed on", || lines(&at, "got").len() == 1);
    assert!(!run.ended());
    stop(&at);
    assert_eq!((run.end().code, lines(&at, "got")), (Some(7), vec!["USR1".to_owned()]));
}

#[test]
fn a_job_that_a_script_put_into_the_background_is_deaf_to_interrupts() {
    // EXE-14. A shell without job control ignores INT and QUIT for what it starts with `&`.
    let at = Place::new(Kind::Sqlite);
    let line = "\"$@\" & echo $! >$PLACE/ours; wait $!";
    let run = behind(
        &["env", "--default-signal", "sh", "-c", line, "sh"],
        &at.run("k", &[], &counting("USR1")),
    );
    let shell = at.start(&mut { run });
    let (ours, child) = (number_in(&at.env.path("ours")), number_in(&at.env.path("up")));
    for pid in [ours, child] {
        for signal in [Signal::SIGINT, Signal::SIGQUIT] {
            nix::sys::signal::kill(Pid::from_raw(pid), signal).unwrap();
        }
    }
    nix::sys::signal::kill(Pid::from_raw(ours), Signal::SIGUSR1).unwrap();
    until("it was passed on", || lines(&at, "got").len() == 1);
    stop(&at);
    assert_eq!(shell.end().code, Some(7));
}

#[test]
fn a_reader_that_never_reads_does_not_keep_it_from_being_ended_by_a_signal() {
    // Cases 7, 25; EXE-15, EXE-16: the outcome is recorded, only the rest of the output waits.
    let at = Place::new(Kind::Sqlite);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut run = behind(
        &["env", "--default-signal"],
        &at.run("k", &[], &format!("{MARK} head -c 300000 /dev/zero & sleep 0; wait; exit 0")),
    );
    let mut run = run.stdout(writer).stderr(std::process::Stdio::piped()).spawn().unwrap();
    // The child could not end while nobody reads: it is given room for all but what a pipe holds.
    let mut taken = vec![0; 200_000];
    std::io::Read::read_exact(&mut reader, &mut taken).unwrap();
    until("it is recorded", || at.state("k") == "committed");
    assert!(run.try_wait().unwrap().is_none(), "it went away with output in its hands");
    nix::sys::signal::kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGTERM).unwrap();
    let started = std::time::Instant::now();
    until("it has ended", || run.try_wait().unwrap().is_some());
    assert!(started.elapsed() < BOUND);
    let end = run.wait_with_output().unwrap();
    assert_eq!(end.status.code(), Some(0), "{end:?}");
    let told = String::from_utf8_lossy(&end.stderr).into_owned();
    assert!(told.contains("bytes were not passed on"), "{told}");
}
