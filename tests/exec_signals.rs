//! Signals to a process that stands for one command, without a terminal.

#![expect(clippy::expect_used, reason = "helpers of tests, outside #[test]")]

mod exec_support;
#[path = "exec_support/wrapper.rs"]
mod wrapper_process;

use std::{os::unix::process::ExitStatusExt, path::Path, process::Stdio};

use exec_support::{is_alive, number_in, until};
use wrapper_process::{Wrapper, be_wrapper, counting, lines, send};

#[test]
fn wrapper() {
    be_wrapper();
}

#[test]
fn each_signal_is_passed_on_once() {
    let wrapper = Wrapper::new(&counting("TERM INT HUP QUIT USR1 USR2 WINCH"), &[]);
    wrapper.until_file("up");
    let all = [15, 1, 10, 12, 28, 2, 3];
    for (sent, signal) in (1..).zip(all) {
        wrapper.send(signal);
        until("it arrived", || lines(&wrapper.file("got")).len() == sent);
    }
    wrapper.send(15);
    until("it arrived", || lines(&wrapper.file("got")).len() == 8);
    std::fs::write(wrapper.file("stop"), "").expect("write");
    let (status, end, dir) = wrapper.end();
    assert_eq!(
        lines(&dir.path().join("got")),
        ["TERM", "HUP", "USR1", "USR2", "WINCH", "INT", "QUIT", "TERM"]
    );
    assert!(end.contains("Code(7), timed_out: false, ended_by_us: false"), "{end}");
    assert_eq!(status.code(), Some(0), "the wrapper stayed until the end");
}

#[test]
fn signals_that_came_before_the_child_are_delivered_to_it() {
    let wrapper = Wrapper::new("exec sleep 1000", &[("WRAPPER_HOLD", "1")]);
    wrapper.send(libc::SIGWINCH);
    wrapper.send(libc::SIGTERM);
    std::fs::write(wrapper.file("go"), "").expect("write");
    let (status, end, dir) = wrapper.end();
    let pending = lines(&dir.path().join("pending"));
    assert!(pending == ["Some([28, 15])"] || pending == ["Some([15, 28])"], "{pending:?}");
    assert!(end.contains("Signal { number: 15, core: false }"), "{end}");
    assert_eq!(status.signal(), Some(15), "it dies of the same");
}

#[test]
fn only_the_process_is_signalled_as_without_a_wrapper() {
    let script = "sleep 1000 & echo $! >\"$DIR/grandchild\"; echo up >\"$DIR/up\"; wait";
    let wrapper = Wrapper::new(script, &[]);
    wrapper.until_file("up");
    wrapper.send(libc::SIGTERM);
    let (status, end, dir) = wrapper.end();
    assert_eq!(status.signal(), Some(15));
    let left = number_in(&dir.path().join("grandchild")).expect("pid");
    assert!(is_alive(left));
    assert!(end.contains(&format!("descendants_left: [{left}]")), "{end}");
    send(left, libc::SIGKILL);
}

#[test]
fn the_wrapper_dies_as_its_child_did_and_dumps_no_core() {
    for number in [1, 2, 3, 6, 9, 13, 14, 15, 11, 34, 64] {
        let script = format!("ulimit -c 0; exec perl -e 'kill {number}, $$; sleep 1000'");
        let wrapper = Wrapper::new(&script, &[]);
        let (status, end, _dir) = wrapper.end();
        assert_eq!(status.signal(), Some(number), "{end}");
        assert!(!status.core_dumped());
    }
}

#[test]
fn what_the_caller_ignored_stays_ignored_by_both() {
    let through = ["setsid", "env", "--default-signal", "--ignore-signal=HUP,INT,PIPE,CHLD"];
    let wrapper = Wrapper::through(&through, &counting("TERM"), &[], Stdio::null());
    wrapper.until_file("up");
    let child = wrapper.until_number("child");
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).expect("status");
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).expect("line");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("hex");
    let bit = |signal: i32| ignored >> (signal - 1) & 1 == 1;
    assert!(bit(libc::SIGHUP) && bit(libc::SIGINT) && bit(libc::SIGPIPE), "{ignored:x}");
    wrapper.send(libc::SIGHUP);
    wrapper.send(libc::SIGTERM);
    until("TERM", || !lines(&wrapper.file("got")).is_empty());
    std::fs::write(wrapper.file("stop"), "").expect("write");
    let (status, end, dir) = wrapper.end();
    assert_eq!(lines(&dir.path().join("got")), ["TERM"]);
    // The exit status is known although the caller ignored SIGCHLD.
    assert!(end.contains("Code(7)"), "{end}");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn an_orphan_that_ends_is_collected_while_the_child_runs() {
    let script = "(setsid sh -c 'echo $$ >\"$DIR/orphan\"' &); echo up >\"$DIR/up\"; until test -e \"$DIR/stop\"; do sleep 0.01; done; exit 7";
    let wrapper = Wrapper::new(script, &[]);
    wrapper.until_file("up");
    let orphan = wrapper.file("orphan");
    until("an orphan", || number_in(&orphan).is_some());
    let pid = number_in(&orphan).expect("pid");
    until("it is collected", || !Path::new(&format!("/proc/{pid}")).exists());
    std::fs::write(wrapper.file("stop"), "").expect("write");
    let (_, end, _dir) = wrapper.end();
    assert!(end.contains("Code(7)") && end.contains("descendants_left: []"), "{end}");
}

#[test]
fn a_descendant_that_escaped_the_group_is_reported_and_not_killed() {
    // Its parent ends: it becomes the wrapper's, and only thereby is it seen.
    let script = "(setsid sh -c 'echo $$ >\"$DIR/escaped\"; exec sleep 1000' &); exec sleep 1000";
    let wrapper = Wrapper::new(script, &[("WRAPPER_TIMEOUT", "300")]);
    let (status, end, dir) = wrapper.end();
    let left = number_in(&dir.path().join("escaped")).expect("pid");
    assert_eq!(status.signal(), Some(15));
    assert!(end.contains("timed_out: true"), "{end}");
    assert!(end.contains(&format!("descendants_left: [{left}]")), "{end}");
    assert!(is_alive(left));
    send(left, libc::SIGKILL);
}

#[test]
fn a_sigchld_that_the_caller_ignored_is_ignored_in_the_child_and_its_end_is_known() {
    let through = ["setsid", "env", "--default-signal", "--ignore-signal=CHLD"];
    let plain = [("WRAPPER_PLAIN", "1")];
    let script = "cp /proc/self/status $DIR/status";
    let (_, end, dir) = Wrapper::through(&through, script, &plain, Stdio::null()).end();
    assert!(end.contains("Code(0)"), "{end}");
    let status = std::fs::read_to_string(dir.path().join("status")).expect("status");
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.expect("line").trim(), 16).expect("hex");
    // 32 and 33 are the C library's own, which its posix_spawn leaves so (here: that of the tests).
    let ignored = ignored & !(0b11 << 31);
    assert_eq!(ignored, 1 << (libc::SIGCHLD - 1), "that and no other");
    let end_of = |script: &str| Wrapper::through(&through, script, &[], Stdio::null()).end().1;
    assert!(end_of("exit 7").contains("Code(7)"));
    let background = [("WRAPPER_BACKGROUND", "1")];
    let (_, end, _dir) = Wrapper::through(&through, "exit 7", &background, Stdio::null()).end();
    assert!(end.contains("Code(7)"), "without any handler: {end}");
    assert!(end_of("kill -KILL $$").contains("Signal { number: 9"));
}

#[test]
fn a_stdin_that_was_closed_is_closed_in_the_child() {
    for caller in ["setsid", "setsid env --ignore-signal=CHLD"] {
        let shell = format!("exec {caller} \"$@\" <&-");
        let script = "test ! -e /proc/$$/fd/0";
        let stdin = [("WRAPPER_STDIN", "1")];
        let wrapper = Wrapper::through(&["sh", "-c", &shell, "sh"], script, &stdin, Stdio::null());
        let (_, end, _dir) = wrapper.end();
        assert!(end.contains("Code(0)"), "{caller}: {end}");
    }
}

#[test]
fn a_signal_ends_the_delivery_to_a_reader_that_never_reads() {
    // A pipe whose reader is there and does not read.
    let shell =
        "mkfifo \"$WRAPPER_DIR/out\"; exec env --default-signal \"$@\" 1<>\"$WRAPPER_DIR/out\"";
    let through = ["setsid", "sh", "-c", shell, "sh"];
    // More than one pipe holds, less than two.
    let pass = [("WRAPPER_PASS", "1")];
    let wrapper = Wrapper::through(&through, "seq 1 20000; exit 0", &pass, Stdio::null());
    let end = wrapper.until_file("end");
    assert!(end.contains("Code(0)") && !end.contains("undelivered: 0,"), "{end}");
    wrapper.send(libc::SIGWINCH);
    wrapper.send(libc::SIGTERM);
    let (_, _, dir) = wrapper.end();
    let delivery = std::fs::read_to_string(dir.path().join("delivery")).expect("delivery");
    assert!(delivery.contains("stopped_by: Some(15)"), "{delivery}");
    assert!(delivery.contains("bytes were not passed on"), "{delivery}");
}

#[test]
fn as_pid_1_it_collects_what_it_inherits_and_exits_as_a_shell_would_say() {
    let through = ["unshare", "--pid", "--fork", "--mount-proc"];
    let may = std::process::Command::new("unshare").args(&through[1..]).arg("true").status();
    if !may.is_ok_and(|status| status.success()) {
        eprintln!("not permitted here: namespaces");
        return;
    }
    let script = "
        (setsid sh -c 'echo $$ >\"$DIR/orphan\"' &)
        until test -s \"$DIR/orphan\"; do sleep 0.01; done
        while test -e /proc/$(cat \"$DIR/orphan\"); do sleep 0.01; done
        kill -TERM $$";
    let wrapper = Wrapper::through(&through, script, &[], Stdio::null());
    assert_eq!(wrapper.until_number("ready"), 1);
    let (status, end, _dir) = wrapper.end();
    assert!(end.contains("Signal { number: 15") && end.contains("descendants_left: []"), "{end}");
    assert_eq!(status.code(), Some(128 + 15));
}

#[test]
fn what_was_inherited_before_is_no_descendant() {
    // As PID 1 may have: a child of this process, made before it became the wrapper.
    let shell = "sleep 1000 & echo $! >\"$WRAPPER_DIR/older\"; exec env --default-signal \"$@\"";
    let through = ["setsid", "sh", "-c", shell, "sh"];
    let hold = [("WRAPPER_HOLD", "1")];
    let wrapper = Wrapper::through(&through, "exit 7", &hold, Stdio::null());
    let older = wrapper.until_number("older");
    // Start times are told in hundredths of a second.
    let from = ctrlrun::exec::boottime();
    until("a later time", || {
        ctrlrun::exec::boottime() - from > std::time::Duration::from_millis(30)
    });
    wrapper.make("go");
    let (_, end, _dir) = wrapper.end();
    assert!(is_alive(older));
    send(older, libc::SIGKILL);
    assert!(end.contains("descendants_left: []"), "{end}");
}
