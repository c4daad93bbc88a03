//! Signals, in processes of their own: this test binary, run again as a wrapper.
//!
//! Handlers belong to a process, so each case starts this binary anew (`wrapper`, below), which
//! stands for one command as ctrlrun does and writes down what it saw.

mod exec_support;

use std::{
    env,
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use ctrlrun::exec::{Child, Exit, Output, Signals, Sink, Waited, die_of_signal};
use exec_support::{BOUND, is_alive, number_in, sh, until};
use tempfile::TempDir;

/// Not a test: what the tests below run. Does nothing unless it is told to.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn wrapper() {
    let Some(script) = env::var_os("WRAPPER_SCRIPT") else {
        return;
    };
    let dir = PathBuf::from(env::var_os("WRAPPER_DIR").expect("a directory"));
    let signals = Signals::install().expect("handlers");
    std::fs::write(dir.join("ready"), format!("{}\n", std::process::id())).expect("write");
    if env::var_os("WRAPPER_HOLD").is_some() {
        until("go", || dir.join("go").exists());
        std::fs::write(dir.join("pending"), format!("{:?}", signals.pending())).expect("write");
    }
    let mut line = sh("");
    line.args[1] = script;
    line.env.push(("DIR".into(), dir.clone().into()));
    if env::var_os("WRAPPER_STDIN").is_some() {
        line.stdin = ctrlrun::exec::Stdin::Inherit;
    }
    if env::var_os("WRAPPER_PASS").is_some() {
        line.output = Output::Capture {
            cap: 1024,
            stdout: Sink::Ours,
            stderr: Sink::Ours,
        };
    }
    if let Some(ms) = env::var_os("WRAPPER_TIMEOUT") {
        let ms = ms
            .to_str()
            .and_then(|ms| ms.parse().ok())
            .expect("a number");
        line.timeout = Some(Duration::from_millis(ms));
        line.kill_after = Duration::from_millis(300);
    }
    let mut child = Child::spawn(line, Some(&signals)).expect("start");
    std::fs::write(dir.join("child"), format!("{}\n", child.pid())).expect("write");
    let Waited::Ended(end) = child.wait(Some(BOUND), None) else {
        panic!("no end");
    };
    std::fs::write(dir.join("end"), format!("{end:?}")).expect("write");
    let delivery = child.deliver_rest();
    std::fs::write(dir.join("delivery"), format!("{delivery:?}")).expect("write");
    if let Exit::Signal { number, .. } = end.exit {
        die_of_signal(number);
    }
}

struct Wrapper {
    dir: TempDir,
    process: std::process::Child,
}

impl Wrapper {
    fn new(script: &str, set: impl FnOnce(&mut Command)) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let mut command = Command::new(env::current_exe().expect("this binary"));
        command
            .args([
                "--ignored",
                "--exact",
                "wrapper",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("WRAPPER_SCRIPT", script)
            .env("WRAPPER_DIR", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // No controlling terminal, wherever the tests are run.
        detach(&mut command);
        set(&mut command);
        let process = command.spawn().expect("start");
        let wrapper = Self { dir, process };
        until("the wrapper is ready", || {
            number_in(&wrapper.file("ready")).is_some()
        });
        wrapper
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn until_file(&self, name: &str) -> String {
        let path = self.file(name);
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        until(name, || !read().is_empty());
        read()
    }

    fn send(&self, signal: i32) {
        send(self.process.id().cast_signed(), signal);
    }

    fn end(mut self) -> (ExitStatus, String, TempDir) {
        let status = self.process.wait().expect("wait");
        let end = std::fs::read_to_string(self.file("end")).unwrap_or_default();
        (status, end, self.dir)
    }
}

fn send(pid: i32, signal: i32) {
    let signal = nix::sys::signal::Signal::try_from(signal).expect("a signal");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("sent");
}

/// A session of its own, hence no controlling terminal, and every signal at its default.
fn detach(command: &mut Command) {
    // setsid(1) forks where it must, env(1) resets what whoever runs the tests has ignored.
    let program = command.get_program().to_owned();
    let args: Vec<OsString> = command.get_args().map(OsString::from).collect();
    let envs: Vec<(OsString, OsString)> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    let mut outer = Command::new("setsid");
    outer
        .args(["env", "--default-signal"])
        .arg(program)
        .args(args)
        .envs(envs);
    outer.stdin(Stdio::null()).stdout(Stdio::null());
    *command = outer;
}

/// A child that appends one line per signal to `$DIR/got`.
fn counting(signals: &str) -> String {
    let traps: Vec<String> = signals
        .split(' ')
        .map(|name| format!("trap 'echo {name} >>\"$DIR/got\"' {name};"))
        .collect();
    format!(
        "{} echo up >\"$DIR/up\"; until test -e \"$DIR/stop\"; do sleep 0.01; done; exit 7",
        traps.concat()
    )
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(String::from).collect()
}

#[test]
fn each_signal_is_passed_on_once() {
    let wrapper = Wrapper::new(&counting("TERM INT HUP QUIT USR1 USR2 WINCH"), |_| {});
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
        [
            "TERM", "HUP", "USR1", "USR2", "WINCH", "INT", "QUIT", "TERM"
        ]
    );
    assert!(
        end.contains("Code(7), timed_out: false, ended_by_us: false"),
        "{end}"
    );
    assert_eq!(status.code(), Some(0), "the wrapper stayed until the end");
}

#[test]
fn signals_that_came_before_the_child_are_delivered_to_it() {
    let wrapper = Wrapper::new("exec sleep 1000", |c| {
        c.env("WRAPPER_HOLD", "1");
    });
    wrapper.send(libc::SIGWINCH);
    wrapper.send(libc::SIGTERM);
    std::fs::write(wrapper.file("go"), "").expect("write");
    let (status, end, dir) = wrapper.end();
    assert_eq!(lines(&dir.path().join("pending")), ["[28, 15]"]);
    assert!(end.contains("Signal { number: 15, core: false }"), "{end}");
    assert_eq!(status.signal(), Some(15), "it dies of the same");
}

#[test]
fn only_the_process_is_signalled_as_without_a_wrapper() {
    let script = "sleep 1000 & echo $! >\"$DIR/grandchild\"; echo up >\"$DIR/up\"; wait";
    let wrapper = Wrapper::new(script, |_| {});
    wrapper.until_file("up");
    wrapper.send(libc::SIGTERM);
    let (status, end, dir) = wrapper.end();
    assert_eq!(status.signal(), Some(15));
    let left = number_in(&dir.path().join("grandchild")).expect("pid");
    assert!(is_alive(left));
    assert!(
        end.contains(&format!("descendants_left: [{left}]")),
        "{end}"
    );
    send(left, libc::SIGKILL);
}

#[test]
fn the_wrapper_dies_as_its_child_did_and_dumps_no_core() {
    for number in [1, 2, 3, 6, 9, 13, 14, 15, 11, 34, 64] {
        let script = format!("ulimit -c 0; exec perl -e 'kill {number}, $$; sleep 1000'");
        let wrapper = Wrapper::new(&script, |_| {});
        let (status, end, _dir) = wrapper.end();
        assert_eq!(status.signal(), Some(number), "{end}");
        assert!(!status.core_dumped());
    }
}

#[test]
fn what_the_caller_ignored_stays_ignored_by_both() {
    let wrapper = Wrapper::new(&counting("TERM"), |c| {
        let wrapped: Vec<OsString> = c.get_args().skip(2).map(OsString::from).collect();
        let envs: Vec<_> = c
            .get_envs()
            .filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned())))
            .collect();
        *c = Command::new("setsid");
        c.args([
            "env",
            "--default-signal",
            "--ignore-signal=HUP,INT,PIPE,CHLD",
        ]);
        c.args(wrapped)
            .envs(envs)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
    });
    wrapper.until_file("up");
    let child = number_in(&wrapper.file("child")).expect("pid");
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).expect("status");
    let ignored = status
        .lines()
        .find_map(|l| l.strip_prefix("SigIgn:"))
        .expect("line");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("hex");
    let bit = |signal: i32| ignored >> (signal - 1) & 1 == 1;
    assert!(
        bit(libc::SIGHUP) && bit(libc::SIGINT) && bit(libc::SIGPIPE),
        "{ignored:x}"
    );
    // dash, unlike the kernel, takes SIGCHLD out of ignored for its own children: ask a plain program.
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
    let wrapper = Wrapper::new(script, |_| {});
    wrapper.until_file("up");
    let orphan = wrapper.file("orphan");
    until("an orphan", || number_in(&orphan).is_some());
    let pid = number_in(&orphan).expect("pid");
    until("it is collected", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
    std::fs::write(wrapper.file("stop"), "").expect("write");
    let (_, end, _dir) = wrapper.end();
    assert!(
        end.contains("Code(7)") && end.contains("descendants_left: []"),
        "{end}"
    );
}

#[test]
fn a_descendant_that_escaped_the_group_is_reported_and_not_killed() {
    // Its parent ends: it becomes the wrapper's, and only thereby is it seen.
    let script = "(setsid sh -c 'echo $$ >\"$DIR/escaped\"; exec sleep 1000' &); exec sleep 1000";
    let wrapper = Wrapper::new(script, |c| {
        c.env("WRAPPER_TIMEOUT", "300");
    });
    let (status, end, dir) = wrapper.end();
    let left = number_in(&dir.path().join("escaped")).expect("pid");
    assert_eq!(status.signal(), Some(15));
    assert!(end.contains("timed_out: true"), "{end}");
    assert!(
        end.contains(&format!("descendants_left: [{left}]")),
        "{end}"
    );
    assert!(is_alive(left));
    send(left, libc::SIGKILL);
}
