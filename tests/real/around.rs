//! Programs that run ctrlrun, and commands that do odd things.
use std::fs;

use nix::sys::signal::Signal;

use crate::at::{HOLD, Kind, MARK, Place, is_alive, number_in, until};
use crate::common::BINARY;
use crate::pty::Session;
use crate::real::{behind, ends, lines, script, words};

#[test]
fn timeout_around_it_ends_the_command_and_its_end_is_recorded() {
    // Case 25. timeout(1) makes a group, and sends TERM to ctrlrun, TERM to the group, CONT to
    // both; it does the same when it is sent TERM itself, for which nobody has to wait.
    let at = Place::new(Kind::Sqlite);
    let child = format!(
        "echo $$ >$PLACE/pid; trap 'echo TERM >>$PLACE/got; exit 9' TERM; {MARK} while :; do sleep 0.01; done"
    );
    let run = at.start(&mut behind(
        &["env", "--default-signal", "timeout", "1h"],
        &at.run("k", &[], &child),
    ));
    until("it has marked", || at.marks() == 1);
    run.signal(Signal::SIGTERM);
    let end = run.end();
    assert_eq!(end.code, Some(9), "{end:?}");
    let shown = at.show("k");
    assert_eq!((&shown["state"], &shown["exit_code"]), (&"ambiguous".into(), &9.into()));
    assert!(!is_alive(number_in(&at.env.path("pid"))));
}

#[test]
fn xargs_runs_many_at_once_each_once() {
    // Case 14's neighbour
    let at = Place::new(Kind::Sqlite);
    let line =
        "seq 24 | xargs -P 6 -I{} ctrlrun run -n -k job:{} -- sh -c 'echo {} >>$PLACE/marker'";
    for _ in 0..2 {
        let end = ends(&mut words(&at, &["sh", "-c", line]));
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    let mut marked: Vec<u32> = at.marked().iter().map(|line| line.parse().unwrap()).collect();
    marked.sort_unstable();
    assert_eq!(marked, (1..=24).collect::<Vec<u32>>());
}

#[test]
fn script_and_setsid_and_flock_and_strace_change_nothing() {
    // EXE-10, EXE-17
    let at = Place::new(Kind::Sqlite);
    for (key, wrapper) in [
        ("setsid", &["setsid", "-w"][..]),
        ("flock", &["flock", "/dev/null"]),
        ("strace", &["strace", "-f", "-qq", "-o", "/dev/null"]),
        ("nice", &["nice"]),
        ("stdbuf", &["stdbuf", "-oL"]),
    ] {
        let end = ends(&mut behind(wrapper, &at.run(key, &[], "echo out; echo err >&2; exit 7")));
        assert_eq!((end.code, end.stdout.as_str()), (Some(7), "out\n"), "{key}: {end:?}");
        assert!(end.stderr.starts_with("err\n"), "{key}: {end:?}");
        assert_eq!(at.show(key)["exit_code"], 7);
    }
    // `script` gives it a terminal of its own.
    script(&at, "child", "tty >$PLACE/tty; exit 7");
    let end =
        ends(&mut words(&at, &["script", "-qec", "ctrlrun run -k tty -- sh child", "/dev/null"]));
    assert_eq!(end.code, Some(7), "{end:?}");
    assert!(lines(&at, "tty")[0].starts_with("/dev/"), "{:?}", lines(&at, "tty"));
}

#[test]
fn with_no_environment_at_all_it_runs_what_it_is_given() {
    // Cron, init scripts. No HOME, no PATH, no TMPDIR: only what is given with the words.
    let at = Place::new(Kind::Sqlite);
    let mut bare = std::process::Command::new("env");
    bare.args(["-i", &format!("CTRLRUN_SPOOL={}", at.env.path("spool").display()), BINARY]);
    bare.args([
        "run",
        "--store",
        at.store(),
        "-k",
        "k",
        "--",
        "sh",
        "-c",
        "env | grep -v ^CTRLRUN_",
    ]);
    let end = ends(&mut bare);
    assert_eq!(end.code, Some(0), "{end:?}");
    let added: Vec<&str> = end
        .stdout
        .lines()
        .filter(|line| {
            !line.starts_with("PWD=") && !line.starts_with("_=") && !line.starts_with("SHLVL=")
        })
        .collect();
    // `timeout`, around it in this test, adds nothing either.
    assert_eq!(added, Vec::<&str>::new(), "{end:?}");
}

#[test]
fn a_word_that_nothing_happened_is_not_believed_while_something_is_left_running() {
    // EXE-3, EXE-4, EXE-12: what is left does it later.
    let later = format!("({HOLD} {MARK}) >/dev/null 2>&1 & ");
    for (word, code) in [("exit 7", 7), ("$CTRLRUN outcome not-executed; exit 1", 1)] {
        let at = Place::new(Kind::Sqlite);
        let script = format!("{later}{word}");
        let end = ends(&mut at.run("k", &["--not-executed", "7"], &script));
        assert_eq!((end.code, at.state("k").as_str()), (Some(code), "ambiguous"), "{end:?}");
        assert!(end.stderr.contains("what it left running may still do it"), "{}", end.stderr);
        at.go();
        until("what was left has done it", || at.marks() == 1);
        let again = ends(&mut at.run("k", &["--not-executed", "7"], &script));
        assert_eq!((again.code, at.marks()), (Some(76), 1), "{word}: {again:?}");
    }
}

#[test]
fn a_daemon_that_forks_twice_is_committed_at_once_and_left_alone() {
    // EXE-12, EXE-18
    let at = Place::new(Kind::Sqlite);
    let perl = r#"
        use POSIX;
        if (my $first = fork) { waitpid($first, 0); exit 0 }
        POSIX::setsid(); exit 0 if fork;
        chdir '/'; umask 0;
        POSIX::close($_) for 0 .. 255;
        open(my $to, '>', "$ENV{PLACE}/daemon.new"); print $to "$$\n"; close $to;
        rename "$ENV{PLACE}/daemon.new", "$ENV{PLACE}/daemon";
        sleep 1000;
    "#;
    let end = ends(&mut at.run_words("k", &[], &["perl", "-e", perl]));
    let daemon = number_in(&at.env.path("daemon"));
    let alive = is_alive(daemon);
    crate::real::kill(daemon);
    assert_eq!((end.code, at.state("k").as_str(), alive), (Some(0), "committed", true), "{end:?}");
}

#[test]
fn a_child_that_closes_every_descriptor_is_waited_for() {
    // EXE-15, EXE-18
    let at = Place::new(Kind::Sqlite);
    let perl = r#"use POSIX; POSIX::close($_) for 0 .. 1023; open(F, ">$ENV{PLACE}/closed"); exec "sh", "-c", "$ENV{LAST}""#;
    let mut run = at.run_words("k", &[], &["perl", "-e", perl]);
    let run = at.start(run.env("LAST", format!("{MARK}{HOLD} exit 6")));
    until("it has marked", || at.marks() == 1);
    assert_eq!(at.state("k"), "executing");
    at.go();
    assert_eq!(run.end().code, Some(6));
    assert_eq!(at.show("k")["exit_code"], 6);
}

#[test]
fn a_shell_that_becomes_another_program_is_still_the_command() {
    // EXE-3
    let at = Place::new(Kind::Sqlite);
    let end = ends(&mut at.run("k", &[], "exec sh -c 'exec sh -c \"exit 9\"'"));
    assert_eq!((end.code, &at.show("k")["exit_code"]), (Some(9), &9.into()), "{end:?}");
}

#[test]
fn a_child_with_a_group_of_its_own_on_a_terminal_is_waited_for() {
    // EXE-10: what `set -m` and interactive programs do.
    let at = Place::new(Kind::Sqlite);
    let perl = "setpgrp(0, 0) or die; system('sh', '-c', $ENV{LAST}); exit 4";
    let mut run = at.run_words("k", &[], &["perl", "-e", perl]);
    run.env("LAST", format!("{MARK}{HOLD}"));
    let mut session = Session::start(&run);
    session.sees("it has marked", || at.marks() == 1);
    // It is no longer in the foreground: the interrupt is for ctrlrun's group, where it is alone.
    session.types("\x03");
    session.shows("^C");
    at.go();
    let end = session.end();
    assert_eq!((end.code, &at.show("k")["exit_code"]), (Some(4), &4.into()), "{end:?}");
}

#[test]
fn a_run_within_a_run_has_its_own_outcome() {
    // EXE-20, EXE-13: TERM goes through both.
    let at = Place::new(Kind::Sqlite);
    let inner =
        format!("trap 'echo TERM >>$PLACE/got; exit 0' TERM; {MARK} while :; do sleep 0.01; done");
    let outer = r#""$CTRLRUN" run --store "$STORE" -k inner -- sh -c "$INNER""#;
    let mut run =
        behind(&["env", "--default-signal"], &at.run("outer", &[], &format!("exec {outer}")));
    let run = at.start(run.env("STORE", at.store()).env("INNER", inner));
    until("it has marked", || at.marks() == 1);
    run.signal(Signal::SIGTERM);
    let end = run.end();
    assert_eq!((end.code, lines(&at, "got").len()), (Some(0), 1), "{end:?}");
    assert_eq!([at.state("outer"), at.state("inner")], ["committed", "committed"]);
}

#[test]
fn a_directory_that_is_gone_is_no_reason_to_lose_the_outcome() {
    // EXE-2, EXE-19
    let at = Place::new(Kind::Sqlite);
    fs::create_dir(at.env.path("gone")).unwrap();
    let line = "cd $PLACE/gone && rmdir $PLACE/gone && exec \"$@\"";
    let end = ends(&mut behind(&["sh", "-c", line, "sh"], &at.run("k", &[], "exit 3")));
    assert_eq!(end.code, Some(3), "{end:?}");
    assert_eq!(at.show("k")["exit_code"], 3);
}
