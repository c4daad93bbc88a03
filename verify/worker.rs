//! Worker processes: plain `ctrlrun` commands of this very binary, released together, halted, killed,
//! and waited for. What a signal did is proven by the wait status (VER-4).
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ctrlrun::store::stop::Point;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::lab::{Halt, Lab};
use super::rig;

/// How often a condition is looked at.
pub const TICK: Duration = Duration::from_millis(3);

/// A command line of a worker, before it is started.
pub struct Job<'a> {
    pub(super) lab: &'a Lab<'a>,
    pub(super) store: OsString,
    pub(super) words: Vec<OsString>,
    pub(super) command: Vec<OsString>,
    pub(super) rig: Vec<String>,
    pub(super) rig_at: PathBuf,
    pub(super) stop_at: Option<Point>,
    pub(super) file_limit: Option<u32>,
    /// Where its outcomes are spooled; `None`: in the lab's own spool.
    pub(super) spool: Option<PathBuf>,
}

impl<'a> Job<'a> {
    /// More words of ctrlrun's own.
    #[must_use]
    pub fn with<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// More words of the executor's.
    #[must_use]
    pub fn doing<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.command.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Another command instead of the executor.
    #[must_use]
    pub fn running<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.command = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// The command so far.
    #[must_use]
    pub fn command(&self) -> &[OsString] {
        &self.command
    }

    /// More words of the rig.
    #[must_use]
    pub fn rigged(mut self, words: &str) -> Self {
        self.rig.push(words.to_owned());
        self
    }

    /// Waits for the others there.
    #[must_use]
    pub fn at_gate(mut self, gate: &Gate, words: &str) -> Self {
        self.rig_at.clone_from(&gate.directory);
        self.rigged(words)
    }

    /// Halts itself there.
    #[must_use]
    pub fn stopping_at(mut self, point: Point) -> Self {
        self.stop_at = Some(point);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Halt`]: no process can be started.
    pub fn start(self) -> Result<Worker<'a>, Halt> {
        let lab = self.lab;
        let name = lab.next_name();
        let out = lab.directory.join(format!("{name}.out"));
        let err = lab.directory.join(format!("{name}.err"));
        let mut command = match self.file_limit {
            None => Command::new(lab.bench.binary()),
            Some(kib) => {
                // A limit of its own, so that a store in its directory is as on a full disk.
                let line = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", kib * 2);
                let mut shell = Command::new("sh");
                shell.args(["-c", &line]).arg(lab.bench.binary());
                shell
            }
        };
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("CTRLRUN_") {
                command.env_remove(variable);
            }
        }
        command
            .args(&self.words)
            // What the user has configured would change what is shown: no lease, hook or journal of theirs.
            .env("CTRLRUN_CONFIG", "/dev/null")
            // Not as an argument: it may hold a password.
            .env("CTRLRUN_STORE", &self.store)
            .env("CTRLRUN_SPOOL", self.spool.unwrap_or_else(|| lab.directory.join("spool")))
            // What a killed one leaves behind goes with the lab.
            .env("TMPDIR", &lab.directory)
            .env(rig::VARIABLE, lab.bench.rig_words(&self.rig))
            .env(rig::AT_VARIABLE, &self.rig_at)
            .stdin(Stdio::null())
            .stdout(file(&out)?)
            .stderr(file(&err)?)
            // What a terminal sends is for verify, which ends its workers itself.
            .process_group(0);
        if !self.command.is_empty() {
            command.arg("--").args(&self.command);
        }
        if let Some(point) = self.stop_at {
            command.env("CTRLRUN_STOP_AT", point.name());
        }
        let child = command.spawn().map_err(|error| broke("a worker cannot be started", &error))?;
        let pid = i32::try_from(child.id()).map_err(|_| Halt::Broke("a process id".to_owned()))?;
        let pid = Pid::from_raw(pid);
        Ok(Worker { lab, pid, out, err, started: Instant::now(), ended: None })
    }

    /// Starts it and waits for its end.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn end(self) -> Result<Ended, Halt> {
        self.start()?.end()
    }
}

fn file(path: &Path) -> Result<File, Halt> {
    File::create(path).map_err(|error| broke("a worker's output", &error))
}

/// What verify itself could not do.
pub fn broke(what: &str, error: &io::Error) -> Halt {
    Halt::Broke(format!("{what}: {error}"))
}

/// A worker that was started. Dropped, it is killed.
pub struct Worker<'a> {
    lab: &'a Lab<'a>,
    /// Its process.
    pub pid: Pid,
    out: PathBuf,
    err: PathBuf,
    started: Instant,
    ended: Option<(Seen, Duration)>,
}

/// What a look at a worker saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Running,
    Halted,
    Exited(i32),
    Died(Signal),
}

/// How a worker ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that it died of, if it did.
    pub signal: Option<i32>,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it said.
    pub stderr: String,
}

impl Worker<'_> {
    /// Its process, as a number.
    #[must_use]
    pub fn id(&self) -> u32 {
        u32::try_from(self.pid.as_raw()).unwrap_or(0)
    }

    /// Looks whether it has ended; with `stops`, also whether it has halted.
    fn look(&mut self, stops: bool) -> Result<Seen, Halt> {
        if let Some((ended, _)) = self.ended {
            return Ok(ended);
        }
        let mut flags = WaitPidFlag::WNOHANG;
        if stops {
            flags |= WaitPidFlag::WUNTRACED;
        }
        let seen = match waitpid(self.pid, Some(flags)) {
            Ok(WaitStatus::Exited(_, code)) => Seen::Exited(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => Seen::Died(signal),
            Ok(WaitStatus::Stopped(..)) => return Ok(Seen::Halted),
            Ok(_) => return Ok(Seen::Running),
            Err(error) => return Err(broke("a worker cannot be waited for", &error.into())),
        };
        self.ended = Some((seen, self.started.elapsed()));
        Ok(seen)
    }

    /// Whether it has ended by now.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn has_ended(&mut self) -> Result<bool, Halt> {
        Ok(self.look(false)? != Seen::Running)
    }

    /// Waits until it has halted; false if it ended instead, or does neither within the bound.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn halted(&mut self) -> Result<bool, Halt> {
        let until = Instant::now() + self.lab.bench.bound();
        loop {
            match self.look(true)? {
                Seen::Halted => return Ok(true),
                Seen::Exited(_) | Seen::Died(_) => return Ok(false),
                Seen::Running => {}
            }
            self.lab.bench.pause()?;
            if Instant::now() > until {
                return Ok(false);
            }
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            // It has not been waited for, so the number is still its own.
            let _ = kill(self.pid, signal);
        }
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills it, and proves by its wait status that it died of that; false if it had ended before.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn kill(&mut self) -> Result<bool, Halt> {
        self.signal(Signal::SIGKILL);
        loop {
            match self.look(false)? {
                Seen::Died(Signal::SIGKILL) => {
                    self.lab.count_kill();
                    return Ok(true);
                }
                Seen::Exited(_) | Seen::Died(_) => return Ok(false),
                Seen::Running | Seen::Halted => sleep(TICK),
            }
        }
    }

    /// Waits for its end. One that outlasts the bound is killed, and that is a violation: nobody
    /// waits for ever.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn end(&mut self) -> Result<Ended, Halt> {
        let until = Instant::now() + self.lab.bench.bound();
        let mut overran = false;
        let (seen, took) = loop {
            self.look(false)?;
            if let Some(ended) = self.ended {
                break ended;
            }
            if Instant::now() > until {
                overran = true;
                self.signal(Signal::SIGKILL);
            }
            self.lab.bench.pause()?;
        };
        let stderr = fs::read(&self.err).unwrap_or_default();
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        if overran {
            let bound = self.lab.bench.bound().as_secs();
            self.lab.violated(format!("a process did not end within {bound} s: {stderr}"));
        }
        let (code, signal) = match seen {
            Seen::Exited(code) => (Some(code), None),
            Seen::Died(signal) => (None, Some(signal as i32)),
            Seen::Running | Seen::Halted => (None, None),
        };
        let stdout = fs::read(&self.out).unwrap_or_default();
        self.lab.took(took);
        Ok(Ended { code, signal, stdout, stderr })
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.signal(Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}

/// Where workers wait for each other. Dropped, it is open.
pub struct Gate {
    /// Where it is, and where those who came are told.
    pub directory: PathBuf,
    lock: Option<File>,
}

impl Gate {
    /// A closed gate in a directory of its own.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn closed(directory: PathBuf) -> Result<Self, Halt> {
        let close = || {
            fs::create_dir_all(&directory)?;
            let lock = File::create(directory.join(rig::GATE))?;
            rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
            Ok(lock)
        };
        let lock = close().map_err(|error| broke("a gate", &error))?;
        Ok(Self { directory, lock: Some(lock) })
    }

    /// The file that those who are to wait ask a lock of.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.directory.join(rig::GATE)
    }

    /// How many are here.
    #[must_use]
    pub fn here(&self) -> usize {
        let fell = fs::read_to_string(self.directory.join(rig::FELL)).unwrap_or_default();
        fell.lines().filter(|line| line.ends_with(" gate")).count()
    }

    /// Releases all of them at once.
    pub fn open(&mut self) {
        self.lock = None;
    }
}
