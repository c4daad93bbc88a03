//! Every process ctrlrun starts: spawn, signals, time-outs, output. Knows no store and nothing of
//! effects; it reports what a child did and lets others say what that proves.
//!
//! | file | does |
//! |---|---|
//! | `spawn` | starts a child with what the caller gave us, or proves that nothing ran |
//! | `child` | one poll loop over output, signals, deadlines and the child's end, or those of many |
//! | `signals` | catches, passes on, and dies of signals |
//! | `group` | finds a child's descendants |
//! | `reap` | collects ended processes, ours and inherited ones |
//! | `output` | passes output on without blocking, keeps part of it |
//! | `outcome_file` | where a child says what came of its effect |
//! | `origin` | what the process was given before Rust's runtime changed it |
//! | `clock` | the clock that runs in suspend |
//!
//! The only room with `unsafe`. Linux only.

mod child;
mod clock;
mod group;
mod origin;
mod outcome_file;
mod output;
mod reap;
mod signals;
mod spawn;

use std::{ffi::OsString, os::fd::OwnedFd, time::Duration};

pub use child::{Child, Children, Waited};
pub use clock::boottime;
pub use outcome_file::{OUTCOME_BYTES_MAX, OutcomeFile, OutcomeRead};
pub use output::{Captured, Sink};
pub use signals::{PASSED_ON, Signals, die_of_signal};
pub use spawn::{NotStarted, NotStartedKind};

/// What to run and how. Working directory, umask, limits and all open descriptors are ours.
#[derive(Debug)]
pub struct CommandLine {
    /// Looked up in our own PATH, unless it has a slash. Never run through a shell.
    pub program: OsString,
    /// Its arguments, without the program's name.
    pub args: Vec<OsString>,
    /// Added to our environment; replaces what has the same name there.
    pub env: Vec<(OsString, OsString)>,
    /// The child's standard input.
    pub stdin: Stdin,
    /// The child's standard output and error.
    pub output: Output,
    /// After this long (suspended time included) TERM is sent.
    pub timeout: Option<Duration>,
    /// How long after a TERM of ours KILL follows.
    pub kill_after: Duration,
    /// The last moment, on [`boottime`], at which it may still be started.
    pub not_after: Option<Duration>,
}

/// The child's standard input.
#[derive(Debug)]
pub enum Stdin {
    /// Ours; closed, if ours was closed when we were started.
    Inherit,
    /// /dev/null.
    Null,
    /// This descriptor.
    From(OwnedFd),
}

/// The child's standard output and error.
#[derive(Debug)]
pub enum Output {
    /// Our own descriptors; nothing is kept.
    Inherit,
    /// A pipe each, passed on live.
    Capture {
        /// How many bytes of each stream are kept: its first and its last half.
        cap: usize,
        /// Where standard output goes.
        stdout: Sink,
        /// Where standard error goes.
        stderr: Sink,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code, 0 to 255.
    Code(i32),
    /// It was killed.
    Signal {
        /// The signal's number, real-time signals included.
        number: i32,
        /// A core was written.
        core: bool,
    },
    /// Something else in this process has collected the child (a foreign `wait`): nobody knows how it ended.
    Lost,
}

/// What is known when a child has ended and its output was read.
#[derive(Debug)]
pub struct ChildEnd {
    /// How it ended.
    pub exit: Exit,
    /// The time-out's TERM was sent before the end was seen.
    pub timed_out: bool,
    /// The TERM of [`Child::end_group`] was sent before the end was seen.
    pub ended_by_us: bool,
    /// Descendants that were alive after the child had ended (and, if we ended it, after its
    /// group was killed). Never claimed dead.
    pub descendants_left: Vec<u32>,
    /// There are more, or may be, whose pids could not be found out.
    pub descendants_unseen: bool,
    /// What was kept of standard output.
    pub stdout: Captured,
    /// What was kept of standard error.
    pub stderr: Captured,
    /// Bytes read but not yet passed on, because a reader is slow: see [`Child::deliver_rest`].
    pub undelivered: u64,
    /// What went wrong on the way, a line each: output that could not be passed on, a signal that was not permitted.
    pub problems: Vec<String>,
    /// From just before the spawn until the end was seen, suspended time included.
    pub duration: Duration,
}

/// How the delivery of the last output ended.
#[derive(Debug, Default)]
pub struct Delivery {
    /// The signal that ended it early; it is dealt with by that.
    pub stopped_by: Option<i32>,
    /// As [`ChildEnd::problems`].
    pub problems: Vec<String>,
}

/// Whether this process has a controlling terminal that works.
#[must_use]
pub fn controlling_terminal() -> bool {
    use rustix::fs::{Mode, OFlags, open};
    open(
        c"/dev/tty",
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )
    .is_ok()
}
