//! On a terminal it is as if it were not there.
use crate::at::{Kind, MARK, Place, is_alive, number_in, process_state};
use crate::pty::Session;
use crate::real::{counting, kill, lines, script, stop, words};

/// Asks on the terminal as a password prompt does, whatever stdin is.
const ASK: &str =
    "stty -echo </dev/tty; printf 'word: ' >/dev/tty; read w </dev/tty; stty echo </dev/tty; ";

/// An interactive shell that waits for the first line.
fn shell(at: &Place, name: &str) -> Session {
    let flags: &[&str] = match name {
        "bash" => &["bash", "--norc", "--noprofile", "--noediting", "-i"],
        other => &[other, "-i"],
    };
    let mut session = Session::start(&words(at, flags));
    session.shows("$ ");
    session
}

/// Waits until both are in this state.
fn both_are(session: &mut Session, pids: [i32; 2], state: char) {
    session.sees("both are in that state", || pids.map(process_state) == [Some(state); 2]);
}

#[test]
fn a_prompt_on_the_terminal_is_answered_while_stdin_is_a_pipe() {
    // Case 27; EXE-10, EXE-19
    let at = Place::new(Kind::Sqlite);
    script(&at, "child", &format!("{ASK} {MARK} in=$(cat); echo \"word=$w in=$in\""));
    let line = "printf from-pipe | ctrlrun run -k k -- sh child";
    let mut session = Session::start(&words(&at, &["sh", "-c", line]));
    session.shows("word: ");
    session.types("secret\n");
    session.shows("word=secret in=from-pipe");
    let end = session.end();
    assert_eq!((end.code, at.state("k").as_str(), at.marks()), (Some(0), "committed", 1));
    assert_eq!(end.seen.matches("secret").count(), 1, "it was echoed: {end:?}");
}

#[test]
fn a_prompt_is_answered_while_all_of_its_standard_descriptors_are_closed() {
    // Cases 7, 27; EXE-10, EXE-19
    let at = Place::new(Kind::Sqlite);
    script(
        &at,
        "child",
        &format!("{ASK} {MARK} echo \"$w\" >$PLACE/word; ls -l /proc/$$/fd >$PLACE/fds"),
    );
    let line = "ctrlrun run -k k -- sh child <&- >&- 2>&-";
    let mut session = Session::start(&words(&at, &["sh", "-c", line]));
    session.shows("word: ");
    session.types("secret\n");
    assert_eq!(session.end().code, Some(0));
    assert_eq!(
        (lines(&at, "word"), at.state("k").as_str()),
        (vec!["secret".to_owned()], "committed")
    );
    assert!(
        !lines(&at, "fds").iter().any(|line| line.contains("effects.db")),
        "{:?}",
        lines(&at, "fds")
    );
}

#[test]
fn a_job_is_stopped_and_continued_with_its_child() {
    // Case 27; EXE-10
    for name in ["bash", "dash"] {
        let at = Place::new(Kind::Sqlite);
        let child =
            format!("{MARK} echo $$ >$PLACE/pid; echo $PPID >$PLACE/ours; read x; echo \"got=$x\"");
        script(&at, "child", &child);
        let mut session = shell(&at, name);
        session.types("ctrlrun run -k k -- sh child\n");
        session.sees("it has marked", || at.marks() == 1);
        let pids = ["pid", "ours"].map(|file| number_in(&at.env.path(file)));
        for _ in 0..3 {
            session.types("\x1a");
            session.shows("topped");
            both_are(&mut session, pids, 'T');
            session.types("fg\n");
            session.shows("ctrlrun run");
            both_are(&mut session, pids, 'S');
        }
        session.types("joe\n");
        session.shows("got=joe");
        session.types("echo status=$?\n");
        session.shows("status=0");
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{name}: something is left");
        session.types("exit\n");
        assert_eq!(session.end().code, Some(0), "{name}");
        assert_eq!((at.state("k").as_str(), at.marks()), ("committed", 1), "{name}");
    }
}

#[test]
fn a_background_job_that_wants_the_terminal_stops_and_gets_it_in_the_foreground() {
    // Case 27; EXE-10
    for name in ["bash", "dash"] {
        let at = Place::new(Kind::Sqlite);
        let child = format!(
            "{MARK} echo $$ >$PLACE/pid; echo $PPID >$PLACE/ours; read x </dev/tty; echo \"got=$x\""
        );
        script(&at, "child", &child);
        let mut session = shell(&at, name);
        session.types("ctrlrun run -k k -- sh child &\n");
        session.sees("it has marked", || at.marks() == 1);
        let pids = ["pid", "ours"].map(|file| number_in(&at.env.path(file)));
        both_are(&mut session, pids, 'T');
        session.types("fg\n");
        both_are(&mut session, pids, 'S');
        session.types("joe\n");
        session.shows("got=joe");
        session.types("exit\n");
        assert_eq!(session.end().code, Some(0), "{name}");
        assert_eq!((at.state("k").as_str(), at.marks()), ("committed", 1), "{name}");
    }
}

#[test]
fn a_pager_behind_it_uses_the_terminal() {
    // Case 27; EXE-10, EXE-18
    let at = Place::new(Kind::Sqlite);
    script(&at, "child", &format!("{MARK} seq 5000"));
    script(
        &at,
        "pager",
        "read first; printf 'page: ' >/dev/tty; read k </dev/tty; echo \"first=$first key=$k\"",
    );
    let mut session = shell(&at, "bash");
    session.types("ctrlrun run -k k -- sh child | sh pager; echo status=${PIPESTATUS[0]}\n");
    session.shows("page: ");
    // It has not taken the output, and it is recorded all the same.
    session.sees("it is recorded", || at.state("k") == "committed");
    session.types("q\n");
    session.shows("first=1 key=q");
    session.shows("status=0");
    session.types("exit\n");
    assert_eq!((session.end().code, at.marks()), (Some(0), 1));
}

#[test]
fn a_change_of_the_windows_size_reaches_the_child_once() {
    // Case 25; EXE-13
    let at = Place::new(Kind::Sqlite);
    let mut session = Session::start(&at.run("k", &[], &counting("WINCH USR1")));
    number_in(&at.env.path("up"));
    for (columns, count) in [(100, 1), (101, 2)] {
        session.resize(columns);
        session.sees("it was told", || lines(&at, "got").len() == count);
    }
    // A second telling of either would have come before this one.
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(session.pid()),
        nix::sys::signal::Signal::SIGUSR1,
    )
    .unwrap();
    session.sees("it was told", || lines(&at, "got").contains(&"USR1".to_owned()));
    stop(&at);
    assert_eq!(session.end().code, Some(7));
    assert_eq!(lines(&at, "got"), ["WINCH", "WINCH", "USR1"]);
}

#[test]
fn keys_that_the_terminal_turns_into_signals_reach_the_child_once() {
    // Case 25; EXE-13
    let at = Place::new(Kind::Sqlite);
    let mut session = Session::start(&at.run("k", &[], &counting("INT QUIT")));
    number_in(&at.env.path("up"));
    for (count, key) in [(1, "\x03"), (2, "\x1c"), (3, "\x03"), (4, "\x03")] {
        session.types(key);
        session.sees("it was told", || lines(&at, "got").len() == count);
    }
    stop(&at);
    assert_eq!(session.end().code, Some(7));
    assert_eq!(lines(&at, "got"), ["INT", "QUIT", "INT", "INT"]);
    assert_eq!(at.types("k"), ["reserved", "began", "ambiguated"]);
}

#[test]
fn a_hang_up_of_its_terminal_reaches_the_child_and_the_outcome_is_recorded() {
    // Case 7; EXE-13, EXE-16. As the session's leader (`ssh host ctrlrun ...`) it alone is told.
    let at = Place::new(Kind::Sqlite);
    let child = format!(
        "trap 'echo HUP >>$PLACE/got' HUP; {MARK} while [ ! -e $PLACE/stop ]; do sleep 0.01; done; echo out; echo err >&2"
    );
    let mut session = Session::start(&at.run("k", &[], &child));
    session.sees("it has marked", || at.marks() == 1);
    session.hang_up();
    session.sees("it was told", || lines(&at, "got").len() == 1);
    stop(&at);
    let end = session.end();
    assert_eq!((end.code, end.signal), (Some(0), None), "{end:?}");
    assert_eq!((at.state("k").as_str(), at.marks(), lines(&at, "got").len()), ("committed", 1, 1));
    // What nobody could be shown is kept.
    assert_eq!(at.ask(&["output", "k"]).stdout, "out\n");
}

#[test]
fn a_hang_up_under_a_shell_ends_the_child_and_is_recorded() {
    // Case 7; EXE-13
    let at = Place::new(Kind::Sqlite);
    script(&at, "child", &format!("echo $$ >$PLACE/pid; {MARK} exec sleep 1000"));
    let mut session = shell(&at, "bash");
    session.types("ctrlrun run -k k -- sh child\n");
    session.sees("it has marked", || at.marks() == 1);
    session.hang_up();
    session.sees("it is recorded", || at.state("k") == "ambiguous");
    assert_eq!(at.show("k")["signal"], 1);
    assert!(!is_alive(number_in(&at.env.path("pid"))));
}

#[test]
fn a_hang_up_while_it_is_stopped_leaves_nothing_stopped() {
    // Cases 7, 27; EXE-10, EXE-13
    let at = Place::new(Kind::Sqlite);
    script(
        &at,
        "child",
        &format!("echo $$ >$PLACE/pid; echo $PPID >$PLACE/ours; {MARK} exec sleep 1000"),
    );
    let mut session = shell(&at, "bash");
    session.types("ctrlrun run -k k -- sh child\n");
    session.sees("it has marked", || at.marks() == 1);
    let pids = ["pid", "ours"].map(|file| number_in(&at.env.path(file)));
    session.types("\x1a");
    both_are(&mut session, pids, 'T');
    session.hang_up();
    session.sees("it is recorded", || at.state("k") == "ambiguous");
    session.sees("nothing is left", || pids.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn a_time_out_on_a_terminal_ends_the_tree_and_names_who_left() {
    // Case 28; EXE-10, EXE-11, EXE-12
    let at = Place::new(Kind::Sqlite);
    let deaf = r#"sh -c 'trap "" TERM; echo $$ >$PLACE/deaf; while :; do sleep 0.01; done' & "#;
    let left = r#"(setsid sh -c 'echo $$ >$PLACE/left; exec sleep 1000' &); "#;
    let flags = ["--timeout", "1s", "--kill-after", "300ms", "--not-executed", "nonzero"];
    let run = at.run("k", &flags, &[deaf, left, "wait"].concat());
    let session = Session::start(&run);
    let pids = ["deaf", "left"].map(|file| number_in(&at.env.path(file)));
    let end = session.end();
    assert_eq!((end.code, end.signal), (Some(124), None), "{end:?}");
    assert_eq!(pids.map(is_alive), [false, true], "{end:?}");
    kill(pids[1]);
    assert!(end.seen.contains(&format!("pid {}", pids[1])), "{end:?}");
    let shown = at.show("k");
    assert_eq!((&shown["state"], &shown["cause"]), (&"ambiguous".into(), &"timeout".into()));
    assert_eq!(at.history("k").pop().unwrap()["data"]["reaped"], false);
}

#[test]
fn a_terminal_that_was_stopped_by_its_user_holds_up_the_output_and_not_the_record() {
    // Case 7; EXE-15, EXE-16: ^S, and ^Q after.
    let at = Place::new(Kind::Sqlite);
    let child = format!("echo be\"\"gun; {MARK} {} echo en\"\"ded", crate::at::HOLD);
    let mut session = Session::start(&at.run("k", &[], &child));
    session.shows("begun");
    session.types("\x13");
    at.go();
    session.sees("it is recorded", || at.state("k") == "committed");
    assert!(!session.text().contains("ended"), "{}", session.text());
    session.types("\x11");
    session.shows("ended");
    assert_eq!(session.end().code, Some(0));
}

#[test]
fn on_a_terminal_a_signal_to_the_whole_group_reaches_the_child() {
    // Case 25; EXE-13: `kill %1`. It has it by itself; nothing tells ctrlrun that it has, so it may
    // come once more.
    let at = Place::new(Kind::Sqlite);
    let mut session = Session::start(&at.run("k", &[], &counting("TERM USR1")));
    number_in(&at.env.path("up"));
    let pid = nix::unistd::Pid::from_raw(session.pid());
    nix::sys::signal::killpg(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    session.sees("it was told", || !lines(&at, "got").is_empty());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGUSR1).unwrap();
    session.sees("it was told", || lines(&at, "got").contains(&"USR1".to_owned()));
    stop(&at);
    assert_eq!(session.end().code, Some(7));
    let got = lines(&at, "got");
    let count = |name: &str| got.iter().filter(|line| *line == name).count();
    assert!((1..=2).contains(&count("TERM")) && count("USR1") == 1, "{got:?}");
}
