//! What tests share. [`store`] and [`pgstore`] make stores, [`fill`] puts effects into them,
//! [`postgres`] and [`pgbouncer`] start servers.
//!
//! Here: a hermetic place for the built binary, with its own HOME and state, a cleared environment, a
//! fixed language and time zone. Nothing of whoever runs the tests gets in, and nothing gets out.
//!
//! ```ignore
//! let env = TestEnv::new();
//! let out = env.run(["effects", "--stuck"]);
//! assert_eq!((out.code, out.stdout.as_str()), (Some(0), ""));
//! ```
#![allow(dead_code, reason = "each test file uses some of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]
pub mod fill;
pub mod hosts;
pub mod pgbouncer;
pub mod pgstore;
pub mod postgres;
pub mod runs;
pub mod store;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_ctrlrun");

/// A place of its own; it is removed when this is dropped.
pub struct TestEnv {
    root: TempDir,
}

/// What came of one run of the binary. A byte that is not text shows as U+FFFD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// What it printed to stdout.
    pub stdout: String,
    /// What it printed to stderr.
    pub stderr: String,
    /// Its exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that it died of, if it did.
    pub signal: Option<i32>,
}

impl TestEnv {
    /// A new place, with an empty HOME.
    pub fn new() -> Self {
        let env = Self { root: tempfile::tempdir().unwrap() };
        for folder in ["home", "tmp", "here"] {
            std::fs::create_dir(env.path(folder)).unwrap();
        }
        env
    }

    /// A path in the place: `home`, `tmp`, `here` (the working directory) are there.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Where the default store is, once something has made it.
    pub fn default_store(&self) -> PathBuf {
        self.path("home/.local/state/ctrlrun/effects.db")
    }

    /// The binary with these arguments, in this place; to be changed and started by the caller.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"))
            .env("USER", "tester")
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .current_dir(self.path("here"))
            .stdin(Stdio::null());
        command
    }

    /// Runs the binary with these arguments to its end.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        finish(&mut self.command(arguments))
    }

    /// The same, with `input` on its stdin.
    pub fn run_with<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        input: &[u8],
    ) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A child that does not read it is no fault of the test's.
        let _ = child.stdin.take().unwrap().write_all(input);
        output(child.wait_with_output().unwrap())
    }

    /// Runs a shell line in this place, with the binary's folder first in PATH: what a person types.
    pub fn shell(&self, line: &str) -> Output {
        let folder = Path::new(BINARY).parent().unwrap().to_str().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let prepared = self.command::<&str>([]);
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env_clear();
        for (name, value) in prepared.get_envs() {
            shell.env(name, value.unwrap());
        }
        shell
            .env("PATH", format!("{folder}:{path}"))
            .current_dir(self.path("here"))
            .stdin(Stdio::null());
        finish(&mut shell)
    }

    /// `text` with this place's own folder written as `[ROOT]`, for snapshots.
    pub fn neutral(&self, text: &str) -> String {
        text.replace(self.root.path().to_str().unwrap(), "[ROOT]")
    }
}

/// Runs a command to its end.
pub fn finish(command: &mut Command) -> Output {
    output(command.output().unwrap())
}

fn output(output: std::process::Output) -> Output {
    Output {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
        signal: output.status.signal(),
    }
}

impl Output {
    /// Everything at once, for snapshots: exit status, then what was printed where.
    pub fn all(&self, env: &TestEnv) -> String {
        let status = match (self.code, self.signal) {
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "neither exit nor signal".to_owned(),
        };
        let part = |name: &str, text: &str| match text {
            "" => String::new(),
            text => format!("\n--- {name}\n{}", env.neutral(text).trim_end()),
        };
        let out = part("stdout", &self.stdout);
        let err = part("stderr", &self.stderr);
        format!("{status}{out}{err}")
    }
}
