//! The test binary, run again as a process that stands for one command as ctrlrun does.
//!
//! Handlers, dispositions and terminals belong to a process, so each case has one of its own. It
//! writes down what it saw in a directory that it shares with the test.
#![expect(dead_code, reason = "each test file uses its own part of it")]

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use ctrlrun::exec::{Child, Exit, Output, Signals, Sink, Waited, die_of_signal};
use tempfile::TempDir;

use crate::exec_support::{BOUND, number_in, sh, until};

/// What the process does. The caller is an ignored test by the name of `wrapper`.
pub fn be_wrapper() {
    let Some(script) = env::var_os("WRAPPER_SCRIPT") else {
        return;
    };
    let dir = PathBuf::from(env::var_os("WRAPPER_DIR").expect("a directory"));
    let background = env::var_os("WRAPPER_BACKGROUND").is_some();
    let signals = (!background).then(|| Signals::install().expect("handlers"));
    std::fs::write(dir.join("ready"), format!("{}\n", std::process::id())).expect("write");
    if env::var_os("WRAPPER_HOLD").is_some() {
        until("go", || dir.join("go").exists());
        std::fs::write(dir.join("pending"), format!("{:?}", signals.map(|s| s.pending())))
            .expect("write");
    }
    let mut line = sh("");
    if env::var_os("WRAPPER_PLAIN").is_some() {
        // No shell: one changes what it inherits. The words of the script are the command.
        let script = script.to_str().expect("UTF-8").replace("$DIR", dir.to_str().expect("UTF-8"));
        let mut words = script.split(' ').map(OsString::from);
        line.program = words.next().expect("a program");
        line.args = words.collect();
    } else {
        line.args[1] = script;
    }
    line.env.push(("DIR".into(), dir.clone().into()));
    if env::var_os("WRAPPER_STDIN").is_some() {
        line.stdin = ctrlrun::exec::Stdin::Inherit;
    }
    if env::var_os("WRAPPER_PASS").is_some() {
        line.output = Output::Capture { cap: 1024, stdout: Sink::Ours, stderr: Sink::Ours };
    }
    if let Some(ms) = env::var_os("WRAPPER_TIMEOUT") {
        let ms = ms.to_str().and_then(|ms| ms.parse().ok()).expect("a number");
        line.timeout = Some(Duration::from_millis(ms));
        line.kill_after = Duration::from_millis(300);
    }
    let mut child = Child::spawn(line, signals.as_ref()).expect("start");
    std::fs::write(dir.join("child"), format!("{}\n", child.pid())).expect("write");
    let Waited::Ended(end) = child.wait(Some(BOUND), None) else {
        panic!("no end");
    };
    std::fs::write(dir.join("end"), format!("{end:?}")).expect("write");
    let delivery = child.deliver_rest();
    std::fs::write(dir.join("delivery"), format!("{delivery:?}")).expect("write");
    if let Some(number) = delivery.stopped_by {
        die_of_signal(number);
    }
    if let Exit::Signal { number, .. } = end.exit {
        die_of_signal(number);
    }
}

/// A wrapper that runs.
pub struct Wrapper {
    dir: TempDir,
    process: std::process::Child,
}

impl Wrapper {
    /// Without a terminal, every signal at its default.
    pub fn new(script: &str, env: &[(&str, &str)]) -> Self {
        Self::through(&["setsid", "env", "--default-signal"], script, env, Stdio::null())
    }

    /// As the leader of a session whose terminal is `stdin`.
    pub fn on_terminal(script: &str, env: &[(&str, &str)], stdin: Stdio) -> Self {
        Self::through(&["setsid", "-c", "env", "--default-signal"], script, env, stdin)
    }

    /// Started by the command `through`.
    pub fn through(through: &[&str], script: &str, env: &[(&str, &str)], stdin: Stdio) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let mut command = Command::new(through[0]);
        command
            .args(&through[1..])
            .arg(env::current_exe().expect("this binary"))
            .args(["--exact", "wrapper", "--nocapture", "--test-threads=1"])
            .env("WRAPPER_SCRIPT", script)
            .env("WRAPPER_DIR", dir.path())
            .envs(env.iter().copied())
            .stdin(stdin)
            .stdout(Stdio::null());
        let process = command.spawn().expect("start");
        let wrapper = Self { dir, process };
        wrapper.until_number("ready");
        wrapper
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn until_file(&self, name: &str) -> String {
        let read = || std::fs::read_to_string(self.file(name)).unwrap_or_default();
        until(name, || !read().is_empty());
        read()
    }

    pub fn until_number(&self, name: &str) -> i32 {
        until(name, || number_in(&self.file(name)).is_some());
        number_in(&self.file(name)).expect("it was there")
    }

    /// Waits until the child has written down that many signals.
    pub fn until_got(&self, count: usize) {
        until("signals", || lines(&self.file("got")).len() >= count);
    }

    pub fn make(&self, name: &str) {
        std::fs::write(self.file(name), "").expect("write");
    }

    pub fn send(&self, signal: i32) {
        send(self.until_number("ready"), signal);
    }

    pub fn end(mut self) -> (ExitStatus, String, TempDir) {
        let status = self.process.wait().expect("wait");
        let end = std::fs::read_to_string(self.file("end")).unwrap_or_default();
        (status, end, self.dir)
    }
}

pub fn send(pid: i32, signal: i32) {
    let signal = nix::sys::signal::Signal::try_from(signal).expect("a signal");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("sent");
}

pub fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(String::from).collect()
}

/// A child that appends one line per signal to `$DIR/got`.
pub fn counting(signals: &str) -> String {
    let traps: Vec<String> = signals
        .split(' ')
        .map(|name| format!("trap 'echo {name} >>\"$DIR/got\"' {name};"))
        .collect();
    format!(
        "{} echo up >\"$DIR/up\"; until test -e \"$DIR/stop\"; do sleep 0.01; done; exit 7",
        traps.concat()
    )
}
