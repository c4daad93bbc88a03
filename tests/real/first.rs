//! As the first process of a PID namespace, which is what a container's entry point is.
use crate::at::{Kind, MARK, Place, is_alive, number_in, until};
use crate::common::Output;
use crate::real::{behind, children, ends, kill, lines};

/// `unshare` and its flags. A user who may not is given a namespace of users as well; where even
/// that is forbidden, these tests fail and say so.
fn alone() -> Vec<&'static str> {
    let with = |more: &[&'static str]| {
        let mut words = vec!["unshare"];
        words.extend(more);
        words.extend(["--pid", "--fork", "--mount-proc"]);
        words
    };
    let plain = with(&[]);
    let works = std::process::Command::new(plain[0]).args(&plain[1..]).arg("true").output();
    if works.is_ok_and(|done| done.status.success()) {
        plain
    } else {
        with(&["--user", "--map-root-user"])
    }
}

fn run(at: &Place, key: &str, flags: &[&str], script: &str) -> Output {
    ends(&mut behind(&alone(), &at.run(key, flags, script)))
}

#[test]
fn as_pid_1_it_hands_on_exit_codes_and_says_128_and_the_signal() {
    // Case 27's neighbour; EXE-12, EXE-17: PID 1 cannot die of a signal that it sends to itself.
    let at = Place::new(Kind::Sqlite);
    let pid = run(&at, "pid", &[], "echo $PPID");
    assert_eq!((pid.code, pid.stdout.as_str()), (Some(0), "1\n"), "{pid:?}");
    for code in [0, 1, 5, 255] {
        assert_eq!(run(&at, &format!("c:{code}"), &[], &format!("exit {code}")).code, Some(code));
    }
    for number in [1, 2, 3, 6, 9, 11, 13, 15, 64] {
        let key = format!("s:{number}");
        let end = run(&at, &key, &[], &format!("ulimit -c 0; kill -{number} $$"));
        assert_eq!((end.code, end.signal), (Some(128 + number), None), "{end:?}");
        assert_eq!(at.show(&key)["signal"], number);
    }
}

#[test]
fn as_pid_1_it_reaps_what_it_inherits_before_and_while_the_child_runs() {
    // EXE-12
    let at = Place::new(Kind::Sqlite);
    // One that its own start has left it with, one that the child orphans: no zombie stays of either.
    let gone = "while [ -e /proc/$(cat $PLACE/P) ]; do sleep 0.01; done; ";
    let child = format!(
        "(sh -c 'echo $$ >$PLACE/orphan' &); while [ ! -s $PLACE/orphan ]; do sleep 0.01; done; {}{}{MARK}",
        gone.replace('P', "before"),
        gone.replace('P', "orphan"),
    )
    .replace("$beforeLACE", "$PLACE")
    .replace("$orphanLACE", "$PLACE");
    let mut words = alone();
    words.extend(["sh", "-c", "true & echo $! >$PLACE/before; exec \"$@\"", "sh"]);
    let end = ends(&mut behind(&words, &at.run("k", &[], &child)));
    assert_eq!((end.code, at.marks()), (Some(0), 1), "{end:?}");
}

#[test]
fn as_pid_1_it_passes_signals_on_and_records_the_real_outcome() {
    // Case 25; EXE-13
    let at = Place::new(Kind::Sqlite);
    let script =
        format!("trap 'echo TERM >>$PLACE/got; exit 0' TERM; {MARK} while :; do sleep 0.01; done");
    let outer = at.start(&mut behind(&alone(), &at.run("k", &[], &script)));
    until("it has marked", || at.marks() == 1);
    let inner = children(outer.pid())[0];
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(inner), nix::sys::signal::Signal::SIGTERM)
        .unwrap();
    let end = outer.end();
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!((at.state("k").as_str(), lines(&at, "got").len()), ("committed", 1));
}

#[test]
fn as_pid_1_a_time_out_ends_all_within_reach() {
    // Case 28; EXE-11
    let at = Place::new(Kind::Sqlite);
    let script = r#"sh -c 'trap "" TERM; while :; do sleep 0.01; done' & wait"#;
    let end = run(&at, "k", &["--timeout", "300ms", "--kill-after", "200ms"], script);
    assert_eq!(end.code, Some(124), "{end:?}");
    assert_eq!(at.show("k")["cause"], "timeout");
}

#[test]
fn what_its_caller_had_started_is_not_held_for_the_commands() {
    // EXE-12. A script that starts a helper and then becomes ctrlrun hands the helper down.
    let at = Place::new(Kind::Sqlite);
    // /proc tells the start of a process in hundredths of a second: the helper must be older by one.
    let line = "sleep 1000 >/dev/null 2>&1 & echo $! >$PLACE/helper; read t r </proc/uptime; \
                until read now r </proc/uptime; [ $now != $t ]; do :; done; exec \"$@\"";
    let end =
        ends(&mut behind(&["sh", "-c", line, "sh"], &at.run("k", &["--timeout", "30s"], "exit 5")));
    let helper = number_in(&at.env.path("helper"));
    let alive = is_alive(helper);
    kill(helper);
    assert_eq!(end.code, Some(5), "{end:?}");
    assert!(alive, "it was ended");
    assert!(!end.stderr.contains(&helper.to_string()), "{end:?}");
    assert_eq!(at.history("k").pop().unwrap()["data"]["reaped"], true);
}

#[test]
fn a_proc_of_other_processes_is_not_believed() {
    // EXE-12. Without /proc of its own namespace every number there is another process's: once
    // strangers were named as left by the command.
    let at = Place::new(Kind::Sqlite);
    let words: Vec<&str> = alone().into_iter().filter(|word| *word != "--mount-proc").collect();
    let run = at.run("k", &[], "(sleep 1000 >/dev/null 2>&1 &); exit 5");
    let end = ends(&mut behind(&words, &run));
    assert_eq!(end.code, Some(5), "{end:?}");
    assert!(!end.stderr.contains("pid "), "{end:?}");
    assert_eq!(at.history("k").pop().unwrap()["data"]["reaped"], false);
}

#[test]
fn an_orphan_that_ends_while_it_waits_for_another_attempt_is_reaped() {
    // EXE-12, EXE-21. There is no child then whose wait would see it.
    let at = Place::new(Kind::Sqlite);
    let holder = at.holder("k", &[]);
    // A helper that the caller left it with, which ends when the test says so.
    let line = "sh -c 'while [ -d $PLACE ] && [ ! -e $PLACE/end ]; do sleep 0.01; done' >/dev/null 2>&1 & echo $! >$PLACE/helper; exec \"$@\"";
    let script = [MARK, crate::at::HOLD].concat();
    let waiting =
        at.start(&mut behind(&["sh", "-c", line, "sh"], &at.run("k", &["--wait", "1h"], &script)));
    let helper = number_in(&at.env.path("helper"));
    until("it waits", || waiting.stderr().contains("waiting"));
    std::fs::write(at.env.path("end"), "").unwrap();
    until("it is reaped", || !std::path::Path::new(&format!("/proc/{helper}")).exists());
    at.go();
    assert_eq!((holder.end().code, waiting.end().code, at.marks()), (Some(0), Some(0), 1));
}

#[test]
fn what_had_ended_before_it_began_is_reaped_though_nothing_else_ends() {
    // EXE-12. Its SIGCHLD came to the program that then became ctrlrun.
    let at = Place::new(Kind::Sqlite);
    let perl = r#"
        my $pid = fork // die; exit 0 unless $pid;
        my $state = ""; until ($state =~ /Z/) { open(my $from, "<", "/proc/$pid/stat") or die; $state = <$from> =~ s/.*\) (.).*/$1/sr; }
        open(my $to, ">", "$ENV{PLACE}/before"); print $to "$pid\n"; close $to;
        exec @ARGV"#;
    let run = at.run_words("k", &[], &["sleep", "1000"]);
    let run = at.start(&mut behind(&["perl", "-e", perl, "--"], &run));
    let before = number_in(&at.env.path("before"));
    until("it runs", || at.state("k") == "executing");
    until("it is reaped", || !std::path::Path::new(&format!("/proc/{before}")).exists());
    run.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(run.end().signal, Some(15));
}
