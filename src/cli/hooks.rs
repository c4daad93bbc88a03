//! Hooks: programs that are told of an outcome, after the fact (AFT-8 to AFT-11).
//!
//! By the time one runs nothing is left that it could change: the outcome is recorded, delivered and
//! told. If this process is killed meanwhile, a hook is all that is lost.
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ctrlrun::drive::run::Ran;
use ctrlrun::exec::{Child, ChildEnd, CommandLine, Exit, Output, Signals, Sink, Stdin, Waited};
use ctrlrun::plan::attempt::Outcome;
use ctrlrun::plan::effect::Verdict;
use rustix::fs::{MemfdFlags, memfd_create};

use super::Global;
use super::render::text::{clean, cut};
use super::terminal::say;
use crate::config::Hooks;

/// Says to a run that a hook started it.
const IN_HOOK: &str = "CTRLRUN_IN_HOOK";
/// How long a hook may take.
const TIME_MAX: Duration = Duration::from_secs(10);
/// From TERM to KILL.
const KILL_AFTER: Duration = Duration::from_secs(2);
/// How much of its stderr is looked at.
const CAP: usize = 4 * 1024;
/// How often a signal that another thread was woken by is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Which hook an outcome calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Called {
    /// Nobody knows whether it happened, or the store does not have the outcome.
    Ambiguous,
    /// It did not happen.
    Failed,
    /// It happened.
    Committed,
}

/// A hook that is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    called: Called,
    words: Vec<String>,
}

impl Hook {
    /// The hook that is called after this, if there is one: not for a replay or a refusal, and not
    /// where a hook called us (AFT-8, AFT-11).
    #[must_use]
    pub fn after(ran: &Ran, global: &Global) -> Option<Self> {
        let hooks = &global.settings.hooks;
        if *hooks == Hooks::default() || std::env::var_os(IN_HOOK).is_some() {
            return None;
        }
        let called = match &ran.report.result {
            Outcome::Settled { verdict, .. } => match verdict {
                Verdict::Committed => Called::Committed,
                Verdict::Failed | Verdict::NeverStarted => Called::Failed,
                Verdict::Ambiguous { .. } => Called::Ambiguous,
            },
            // What the store will make of it nobody knows yet: somebody must look.
            Outcome::NotRecorded { .. } if ran.report.ran => Called::Ambiguous,
            Outcome::NotRecorded { .. }
            | Outcome::CommittedAlready
            | Outcome::Refused(_)
            | Outcome::CouldNot(_)
            | Outcome::Unknown(_) => return None,
        };
        let words = match called {
            Called::Ambiguous => &hooks.ambiguous,
            Called::Failed => &hooks.failed,
            Called::Committed => &hooks.committed,
        };
        words.clone().map(|words| Self { called, words })
    }

    /// Runs it on the report. Whatever becomes of it is told, and changes nothing.
    pub fn run(&self, report: &str, global: &Global) {
        // Several effects may end at once in one process.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // Caught since before the reserve, so this is only another look at them.
        let signals = Signals::listen().ok();
        if let Err(why) = self.try_run(report, signals.as_ref()) {
            let name = match self.called {
                Called::Ambiguous => "ambiguous",
                Called::Failed => "failed",
                Called::Committed => "committed",
            };
            // Also with -q: it is somebody's pager that did not ring.
            say(&format!("warning: the hook `{name}` {why}; the outcome stands"));
        } else if global.verbose > 0 {
            say("the hook has run");
        }
    }

    fn try_run(&self, report: &str, signals: Option<&Signals>) -> Result<(), String> {
        let told_to_end = || signals.is_some_and(ends_us);
        if told_to_end() {
            return Err("was not started: ctrlrun was told to end".to_owned());
        }
        let input =
            input(report).map_err(|error| format!("cannot be given its report: {error}"))?;
        let line = self.line(input);
        let mut child =
            Child::spawn(line, None).map_err(|why| format!("was not started: {why}"))?;
        let mut ending = false;
        loop {
            let wake = signals.filter(|_| !ending).map(AsFd::as_fd);
            match child.wait(Some(LOOK_EVERY), wake) {
                Waited::Ended(end) => return heard(&end),
                Waited::TimeReached | Waited::Woken => {
                    if !ending && told_to_end() {
                        ending = true;
                        child.end_group();
                    }
                }
            }
        }
    }

    fn line(&self, input: OwnedFd) -> CommandLine {
        let mut words = self.words.iter().map(OsString::from);
        CommandLine {
            program: words.next().unwrap_or_default(),
            args: words.collect(),
            env: vec![
                (IN_HOOK.into(), "1".into()),
                // Where this runs inside another effect's command, that one's file is not the hook's.
                ("CTRLRUN_OUTCOME_FILE".into(), OsString::new()),
            ],
            stdin: Stdin::From(input),
            output: Output::Capture { cap: CAP, stdout: Sink::Nowhere, stderr: Sink::Nowhere },
            timeout: Some(TIME_MAX),
            kill_after: KILL_AFTER,
            not_after: None,
        }
    }
}

/// The report as a file that is nowhere: a hook that does not read it holds nobody up.
fn input(report: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("report", MemfdFlags::CLOEXEC)?);
    file.write_all(report.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// Whether a signal has come that ends a process.
fn ends_us(signals: &Signals) -> bool {
    const ENDING: [i32; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];
    signals.pending().iter().any(|number| ENDING.contains(number))
}

fn heard(end: &ChildEnd) -> Result<(), String> {
    let what = match end.exit {
        _ if end.ended_by_us => "was ended, since ctrlrun was told to end".to_owned(),
        _ if end.timed_out => format!("took longer than {} s, and was ended", TIME_MAX.as_secs()),
        Exit::Code(0) => return Ok(()),
        Exit::Code(code) => format!("exited {code}"),
        Exit::Signal { number, .. } => format!("died of signal {number}"),
        Exit::Lost => "was lost sight of".to_owned(),
    };
    let kept = if end.stderr.tail.is_empty() { &end.stderr.head } else { &end.stderr.tail };
    let text = String::from_utf8_lossy(kept);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    Err(match last {
        Some(last) => format!("{what} ({})", cut(&clean(last), 200)),
        None => what,
    })
}
