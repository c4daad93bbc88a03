//! A terminal with a person in front of it: what is typed, what is shown, its size, its hang-up.
#![allow(dead_code, reason = "each test target uses some of it")]
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::unistd::ttyname;

use crate::at::BOUND;
use crate::real::behind;

/// A process that leads a session, and the terminal of that session.
pub struct Session {
    child: Child,
    name: PathBuf,
    /// `None` when it has hung up.
    user: Option<File>,
    /// All that was shown.
    seen: Vec<u8>,
    /// How much of it the test has looked at.
    looked: usize,
}

/// How a session's leader ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that it died of.
    pub signal: Option<i32>,
    /// All that was shown.
    pub seen: String,
}

impl Session {
    /// Starts `command` as the leader of a session with a terminal of its own, which is its stdin,
    /// stdout and stderr; every signal is at its default.
    pub fn start(command: &Command) -> Self {
        Self::start_sized(command, 24, 200)
    }

    /// The same on a terminal of this size.
    pub fn start_sized(command: &Command, rows: u16, columns: u16) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        for end in [&pty.master, &pty.slave] {
            // Or what another test starts meanwhile would keep the terminal from hanging up.
            fcntl(end.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        }
        fcntl(pty.master.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let name = ttyname(pty.slave.as_fd()).unwrap();
        let mut leader = behind(&["setsid", "-c", "env", "--default-signal"], command);
        leader.stdin(Stdio::from(pty.slave.try_clone().unwrap()));
        leader.stdout(Stdio::from(pty.slave.try_clone().unwrap()));
        leader.stderr(Stdio::from(pty.slave));
        let child = leader.spawn().unwrap();
        Self { child, name, user: Some(File::from(pty.master)), seen: Vec::new(), looked: 0 }
    }

    /// The leader's process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Types this.
    pub fn types(&mut self, keys: &str) {
        self.user.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is shown, behind what was waited for before.
    pub fn shows(&mut self, text: &str) {
        let text = text.as_bytes();
        self.until(&format!("it shows {:?}", String::from_utf8_lossy(text)), |_| false, Some(text));
    }

    /// Waits for a condition, while what is shown is read.
    pub fn sees(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        self.until(what, |_| condition(), None);
    }

    fn until(&mut self, what: &str, mut so: impl FnMut(&mut Self) -> bool, text: Option<&[u8]>) {
        let started = Instant::now();
        loop {
            self.read();
            let rest = &self.seen[self.looked..];
            let found = text.and_then(|text| rest.windows(text.len()).position(|w| w == text));
            if let (Some(at), Some(text)) = (found, text) {
                self.looked += at + text.len();
                return;
            }
            if text.is_none() && so(self) {
                return;
            }
            let seen = String::from_utf8_lossy(&self.seen);
            assert!(started.elapsed() < BOUND, "never so: {what}; shown was: {seen}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How the terminal treats what is typed: its modes, as `stty` names them.
    pub fn modes(&self) -> String {
        let told = Command::new("stty").arg("-F").arg(&self.name).arg("-a").output().unwrap();
        String::from_utf8(told.stdout).unwrap()
    }

    /// Changes the size of its window.
    pub fn resize(&self, columns: u16) {
        let columns = columns.to_string();
        let mut stty = Command::new("stty");
        stty.arg("-F").arg(&self.name).args(["columns", &columns]);
        assert!(stty.status().unwrap().success());
    }

    /// Takes the terminal away.
    pub fn hang_up(&mut self) {
        self.user = None;
    }

    /// Waits for the leader's end.
    pub fn end(mut self) -> Ended {
        self.until("it has ended", |it| it.child.try_wait().unwrap().is_some(), None);
        let status = self.child.wait().unwrap();
        self.read();
        Ended { code: status.code(), signal: status.signal(), seen: self.text() }
    }

    /// All that was shown so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    fn read(&mut self) {
        let mut bytes = [0; 4096];
        while let Some(user) = &mut self.user {
            match user.read(&mut bytes) {
                Ok(0) => return,
                Ok(got) => self.seen.extend_from_slice(&bytes[..got]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nothing there, or no process has it open.
                Err(_) => return,
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
