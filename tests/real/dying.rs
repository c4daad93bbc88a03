//! Its end as its caller sees it: the child's own.
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use crate::at::{Kind, MARK, Place, is_alive, number_in, until};
use crate::pty::Session;
use crate::real::{behind, children, ends, lines, script, scripts, words};

/// A loop over three keys whose children wait for ever.
const LOOP: &str =
    "for i in 1 2 3; do ctrlrun run -k k:$i -- sh child; done; echo after >>$PLACE/after";

#[test]
fn an_interrupt_stops_the_shell_loop_around_it() {
    // Case 27's neighbour; EXE-10, EXE-17. bash goes on after 130, and stops only where the child
    // really died of SIGINT.
    for shell in ["bash", "dash"] {
        let at = Place::new(Kind::Sqlite);
        script(&at, "child", &format!("{MARK} exec sleep 1000"));
        script(&at, "loop", LOOP);
        let mut session = Session::start(&words(&at, &[shell, "loop"]));
        session.sees("the first has marked", || at.marks() == 1);
        session.types("\x03");
        let end = session.end();
        assert_eq!(end.signal, Some(2), "{shell}: {end:?}");
        assert_eq!((at.marks(), lines(&at, "after").len()), (1, 0), "{shell}");
        let shown = at.show("k:1");
        assert_eq!((&shown["state"], &shown["signal"]), (&"ambiguous".into(), &2.into()));
        assert_eq!(at.state("k:2"), "", "{shell}");
    }
}

#[test]
fn an_interrupt_that_the_child_deals_with_is_its_own_affair() {
    // EXE-13, EXE-17
    for shell in ["bash", "dash"] {
        let at = Place::new(Kind::Sqlite);
        script(&at, "child", &format!("trap 'exit 0' INT; {MARK} while :; do sleep 0.01; done"));
        script(&at, "loop", LOOP);
        // The shell of the loop must live through it, as an interactive one does.
        let line = ". ./loop";
        let mut session =
            Session::start(&words(&at, &[shell, "-c", &format!("trap : INT; {line}")]));
        for count in 1..=3 {
            session.sees("one more has marked", || at.marks() == count);
            session.types("\x03");
            let key = format!("k:{count}");
            session.sees("it is recorded", || at.state(&key) == "committed");
        }
        let end = session.end();
        assert_eq!((end.code, lines(&at, "after").len()), (Some(0), 1), "{shell}: {end:?}");
    }
}

#[test]
fn its_parent_sees_the_very_wait_status_of_the_child_and_no_second_core() {
    // Cases 8, 48; EXE-17. Both may dump a core; one of the same name in the same place is not
    // told from the other, so the bit of the wait status is looked at.
    for number in [1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 24, 31, 34, 64] {
        let at = Place::new(Kind::Sqlite);
        let run = at.run("k", &[], &format!("kill -{number} $$; exec sleep 1000"));
        // Whoever runs the tests in the background of a script has INT and QUIT ignored.
        let caller =
            ["env", "--default-signal", "sh", "-c", "ulimit -c unlimited; exec \"$@\"", "sh"];
        let mut shell = behind(&caller, &run);
        let mut with = shell.current_dir(scripts(&at)).stderr(Stdio::null()).spawn().unwrap();
        until("it has ended", || with.try_wait().unwrap().is_some());
        let status = with.wait().unwrap();
        assert_eq!(status.signal(), Some(number), "{status:?}");
        assert!(!status.core_dumped(), "signal {number}");
        assert_eq!(at.show("k")["signal"], number);
    }
}

#[test]
fn a_signal_that_is_ignored_when_it_would_die_of_it_still_ends_it() {
    // EXE-14, EXE-17. The child takes the signal out of "ignored" and dies of it; so must ctrlrun.
    let at = Place::new(Kind::Sqlite);
    let run = at.run_words(
        "k",
        &[],
        &["env", "--default-signal=HUP", "sh", "-c", "kill -1 $$; exec sleep 1000"],
    );
    let end = ends(&mut behind(&["env", "--ignore-signal=HUP"], &run));
    assert_eq!(at.show("k")["signal"], 1);
    assert_eq!((end.code, end.signal), (None, Some(1)), "{end:?}");
}

#[test]
fn the_outcome_can_be_its_exit_status_whatever_the_child_ended_with() {
    // EXE-17, EXE-3
    let at = Place::new(Kind::Sqlite);
    let declared = ["--exit", "outcome", "--not-executed", "7"];
    for (key, end, code) in [
        ("a", "exit 0", 0),
        ("b", "exit 7", 1),
        ("c", "exit 8", 76),
        ("d", "kill -9 $$", 76),
        ("e", "exec ./nowhere", 76),
        ("f", "echo not-executed >\"$CTRLRUN_OUTCOME_FILE\"", 76),
        ("g", "echo committed >\"$CTRLRUN_OUTCOME_FILE\"; kill -15 $$", 0),
    ] {
        let out = ends(&mut at.run(key, &declared, end));
        assert_eq!((out.code, out.signal), (Some(code), None), "{end}: {out:?}");
    }
    let flags = ["--exit", "outcome", "--timeout", "50ms"];
    assert_eq!(ends(&mut at.run("t", &flags, "exec sleep 1000")).code, Some(76));
    let missing = ends(&mut at.run_words("m", &["--exit", "outcome"], &["./nowhere"]));
    assert_eq!(missing.code, Some(1), "{missing:?}");
}

#[test]
fn a_child_that_was_killed_leaves_no_stopped_or_forgotten_process() {
    // Case 20's kill of a child in flight; EXE-12, EXE-13
    let at = Place::new(Kind::Sqlite);
    let mut run =
        at.start(&mut at.run("k", &[], &format!("echo $$ >$PLACE/pid; {MARK} exec sleep 1000")));
    let child = number_in(&at.env.path("pid"));
    until("it has marked", || at.marks() == 1);
    assert_eq!(children(run.pid()), [child]);
    crate::real::kill(child);
    until("it has ended", || run.ended());
    let end = run.end();
    assert_eq!((end.code, end.signal), (None, Some(9)), "{end:?}");
    assert!(!is_alive(child));
    let shown = at.show("k");
    assert_eq!((&shown["state"], &shown["signal"]), (&"ambiguous".into(), &9.into()));
    let again =
        ends(&mut at.run("k", &[], &format!("echo $$ >$PLACE/pid; {MARK} exec sleep 1000")));
    assert_eq!((again.code, at.marks()), (Some(76), 1), "{again:?}");
}
