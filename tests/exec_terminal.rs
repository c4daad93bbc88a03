//! A process that stands for one command, on a real pseudo-terminal.

#![expect(clippy::expect_used, reason = "helpers of tests, outside #[test]")]

mod exec_support;
#[path = "exec_support/wrapper.rs"]
mod wrapper_process;

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::Stdio,
    time::Duration,
};

use ctrlrun::exec::{Output, Sink, Waited};
use exec_support::{is_alive, run, sh, start, stop};
use nix::pty::openpty;
use wrapper_process::{Wrapper, be_wrapper, counting, lines, send};

#[test]
fn wrapper() {
    be_wrapper();
}

/// The terminal as its user has it, and as its programs do.
fn terminal() -> (File, OwnedFd) {
    let pty = openpty(None, None).expect("pty");
    // Or every program started meanwhile by another test keeps the terminal from hanging up.
    for end in [&pty.master, &pty.slave] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC).expect("flags");
    }
    (File::from(pty.master), pty.slave)
}

fn on_terminal(script: &str, env: &[(&str, &str)]) -> (Wrapper, File) {
    let (user, program) = terminal();
    (Wrapper::on_terminal(script, env, Stdio::from(program)), user)
}

#[test]
fn what_the_terminal_sends_reaches_the_child_once() {
    let (wrapper, mut user) = on_terminal(&counting("INT QUIT TERM USR1"), &[]);
    wrapper.until_file("up");
    for (count, key) in [(1, b"\x03"), (2, b"\x1c"), (3, b"\x03")] {
        user.write_all(key).expect("type");
        wrapper.until_got(count);
    }
    // And what a process sends to the wrapper alone is passed on; it comes after a second INT would have.
    wrapper.send(libc::SIGTERM);
    wrapper.until_got(4);
    wrapper.make("stop");
    let (status, end, dir) = wrapper.end();
    assert_eq!(lines(&dir.path().join("got")), ["INT", "QUIT", "INT", "TERM"]);
    assert!(end.contains("Code(7)"), "{end}");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_terminal_that_hangs_up_tells_the_child_though_the_kernel_tells_only_the_leader() {
    let (wrapper, user) = on_terminal(&counting("HUP"), &[]);
    wrapper.until_file("up");
    drop(user);
    wrapper.until_got(1);
    wrapper.make("stop");
    let (_, end, dir) = wrapper.end();
    assert_eq!(lines(&dir.path().join("got")), ["HUP"]);
    assert!(end.contains("Code(7)"), "{end}");
}

#[test]
fn an_interrupt_kills_the_child_and_the_wrapper_dies_of_it() {
    let (wrapper, mut user) = on_terminal("echo up >\"$DIR/up\"; exec sleep 1000", &[]);
    wrapper.until_file("up");
    user.write_all(b"\x03").expect("type");
    let (status, end, _dir) = wrapper.end();
    assert_eq!(status.signal(), Some(2), "{end}");
}

#[test]
fn a_prompt_on_the_terminal_is_answered() {
    let script = "printf 'name? ' >/dev/tty; read x </dev/tty; echo \"$x\" >\"$DIR/answer\"; test \"$x\" = joe";
    let (wrapper, mut user) = on_terminal(script, &[]);
    let mut prompt = [0; 6];
    user.read_exact(&mut prompt).expect("prompt");
    assert_eq!(&prompt, b"name? ");
    user.write_all(b"joe\n").expect("type");
    let (_, end, dir) = wrapper.end();
    assert_eq!(lines(&dir.path().join("answer")), ["joe"]);
    assert!(end.contains("Code(0)"), "{end}");
}

#[test]
fn a_job_can_be_stopped_and_continued_by_the_shell() {
    let (mut user, program) = {
        let (user, program) = terminal();
        (user, Stdio::from(program))
    };
    // A shell with job control, which sees the wrapper stop, and takes it to the front again.
    let shell = "\"$@\"; echo $? >\"$WRAPPER_DIR/stopped\"; fg >/dev/null; echo $? >\"$WRAPPER_DIR/status\"";
    let through = ["setsid", "-c", "env", "--default-signal", "sh", "-m", "-c", shell, "sh"];
    let script = "echo up >\"$DIR/up\"; until test -e \"$DIR/stop\"; do sleep 0.01; done; read x </dev/tty; echo $x >\"$DIR/answer\"";
    let wrapper = Wrapper::through(&through, script, &[], program);
    wrapper.until_file("up");
    let child = wrapper.until_number("child");
    user.write_all(b"\x1a").expect("type");
    let status = wrapper.until_file("stopped");
    assert_eq!(status.trim(), (128 + libc::SIGTSTP).to_string());
    wrapper.make("stop");
    user.write_all(b"joe\n").expect("type");
    assert_eq!(wrapper.until_file("answer"), "joe\n");
    assert_eq!(wrapper.until_file("status"), "0\n");
    assert!(!is_alive(child), "nothing is left stopped");
    let (_, end, _dir) = wrapper.end();
    assert!(end.contains("Code(0)"), "{end}");
}

#[test]
fn a_script_that_kills_its_group_is_not_killed_twice() {
    let script = "trap 'echo TERM >>\"$DIR/got\"' TERM; kill 0; sleep 0.1; exit 7";
    let (wrapper, _user) = on_terminal(script, &[]);
    let (_, end, dir) = wrapper.end();
    assert_eq!(lines(&dir.path().join("got")), ["TERM"]);
    assert!(end.contains("Code(7)"), "{end}");
}

#[test]
fn on_a_terminal_a_time_out_ends_the_descendants_in_the_session_and_reports_the_rest() {
    // One in our group that ignores TERM, one in a group of its own (a job), one that has left the session.
    let script = "
        sh -c 'trap \"\" TERM; echo $$ >\"$DIR/deaf\"; while :; do sleep 0.01; done' &
        set -m; sh -c 'echo $$ >\"$DIR/job\"; exec sleep 1000' & set +m
        (setsid sh -c 'echo $$ >\"$DIR/escaped\"; exec sleep 1000' &)
        exec sleep 1000";
    let (wrapper, _user) = on_terminal(script, &[("WRAPPER_TIMEOUT", "500")]);
    let pids = ["deaf", "job", "escaped"].map(|name| wrapper.until_number(name));
    let (status, end, _dir) = wrapper.end();
    assert_eq!(status.signal(), Some(15), "{end}");
    assert!(end.contains("timed_out: true"), "{end}");
    assert_eq!(pids.map(is_alive), [false, false, true], "{end}");
    assert!(end.contains(&format!("descendants_left: [{}]", pids[2])), "{end}");
    send(pids[2], libc::SIGKILL);
}

#[test]
fn a_terminal_that_takes_nothing_stops_neither_waiting_nor_the_time_out() {
    let (_user, program) = terminal();
    let mut line = sh("exec yes");
    line.output = Output::Capture {
        cap: 10,
        stdout: Sink::To(program.try_clone().expect("clone")),
        stderr: Sink::Nowhere,
    };
    let mut child = start(line);
    // Long enough for the terminal's buffers to be full many times over.
    for _ in 0..30 {
        let waited = child.wait(Some(Duration::from_millis(10)), None);
        assert!(matches!(waited, Waited::TimeReached));
    }
    stop(child);
}

#[test]
fn a_terminal_that_hung_up_is_noted_and_the_output_is_kept() {
    let (user, program) = terminal();
    drop(user);
    let mut line = sh("seq 1 10; exit 6");
    line.output = Output::Capture { cap: 100, stdout: Sink::To(program), stderr: Sink::Nowhere };
    let end = run(line);
    assert_eq!(end.exit, ctrlrun::exec::Exit::Code(6));
    assert_eq!(end.stdout.bytes, 21);
    assert_eq!(end.problems.len(), 1, "{:?}", end.problems);
}
