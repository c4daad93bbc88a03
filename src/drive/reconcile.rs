//! Asks a probe what became of an effect that is in doubt, and records its answer (DEC-1 to DEC-8).
//!
//! The answer is held to the revision that was read before the probe started, so neither a second
//! probe beside it nor a holder that reports meanwhile is overruled by it. If this process dies while
//! a probe runs, nothing was written and nothing has to be undone.
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::Duration;

use super::handle::{Call, handle};
use super::host::ending;
use crate::exec::{
    Captured, Child, ChildEnd, CommandLine, Exit, Output, Signals, Sink, Stdin, Waited,
};
use crate::plan::effect::{self, Answer, Command, ProbeAnswer, Record, State};
use crate::plan::expect::StreamState;
use crate::plan::key::{Key, idempotency_key};
use crate::plan::probe::{self, Ended, Printed};
use crate::plan::protocol::{Answered, CouldNot, Done};
use crate::plan::time::Timestamp;
use crate::store::Store;

/// How long a probe may take unless somebody says otherwise.
pub const TIME_MAX: Duration = Duration::from_secs(30);
/// The name of a probe that was given on the command line: never its words, which may hold a
/// password, since the name goes into the history (DEC-8).
pub const COMMAND_LINE: &str = "command-line";

/// How much of each stream of a probe is kept, in bytes: more than any last line needs.
const CAP: usize = 64 * 1024;
/// From TERM to KILL, at the end of its time.
const KILL_AFTER: Duration = Duration::from_secs(2);
/// How often a signal that another thread was woken by is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A command that says whether an effect has happened (DEC-1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Its name in the history: the effect's that declares it.
    pub name: String,
    /// The program, and its arguments. Never empty; no shell is involved.
    pub words: Vec<OsString>,
    /// It makes a later execution impossible: its "not executed" is for ever, not only so far.
    pub is_final: bool,
    /// How long it may take.
    pub time_max: Duration,
}

impl Probe {
    /// A line for the shell, as `--reconcile` takes it.
    #[must_use]
    pub fn shell(line: OsString, time_max: Duration) -> Self {
        let words = vec!["sh".into(), "-c".into(), line];
        Self { name: COMMAND_LINE.to_owned(), words, is_final: false, time_max }
    }

    /// What signs its answers.
    #[must_use]
    pub fn signature(&self) -> String {
        format!("reconcile:{}", self.name)
    }
}

/// What an effect's probe is asked with.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// The store.
    pub store: &'a dyn Store,
    /// The probe.
    pub probe: &'a Probe,
    /// Our signals: one that ends this process ends the probe.
    pub signals: Option<&'a Signals>,
    /// How long each command to the store may take.
    pub within: Duration,
}

/// What came of asking.
#[derive(Debug)]
pub struct Reconciled {
    /// What came of it.
    pub came: Came,
    /// The record as it stands now, where it was seen.
    pub record: Option<Record>,
    /// The store's clock then.
    pub now: Option<Timestamp>,
}

/// See [`Reconciled::came`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Came {
    /// The probe's word is the record's: it happened, or it did not.
    Decided(ProbeAnswer),
    /// "Not executed", which here means "not so far": it is kept, and the record stays.
    NotSoFar,
    /// The probe could not tell: why, in a few words.
    Unknown {
        /// How it ended.
        why: String,
        /// The last line of its stderr, if there is one. Text from outside.
        said: Option<String>,
    },
    /// The record moved while it was asked about: the answer was dropped.
    Moved,
    /// There is no doubt to ask about: live, or settled. No probe ran.
    NotInDoubt,
    /// There is no such effect. No probe ran.
    NoSuchEffect,
    /// This signal ended it. Nothing was written.
    Interrupted(i32),
    /// The store could not do a part of it.
    CouldNot(CouldNot),
    /// Whether the answer was kept is not known.
    Unsure(CouldNot),
}

impl Reconciled {
    fn without_record(came: Came) -> Self {
        Self { came, record: None, now: None }
    }

    fn of(came: Came, answered: Answered) -> Self {
        Self { came, record: answered.record, now: Some(answered.now) }
    }
}

/// Contends for `key`, and asks about it if it is in doubt (DEC-5).
pub fn reconcile(key: &Key, asking: Asking<'_>) -> Reconciled {
    let answered = match command(key, Command::Contend, asking) {
        Ok(answered) => answered,
        Err(came) => return Reconciled::without_record(came),
    };
    let Some(record) = &answered.record else {
        return Reconciled::of(Came::NoSuchEffect, answered);
    };
    if matches!(record.state, State::Ambiguous { .. }) {
        ask_about(record, answered.now, asking)
    } else {
        Reconciled::of(Came::NotInDoubt, answered)
    }
}

/// Asks about a record that was found AMBIGUOUS, and holds the answer to its revision.
pub fn ask_about(record: &Record, now: Timestamp, asking: Asking<'_>) -> Reconciled {
    let unchanged = |came| Reconciled { came, record: Some(record.clone()), now: Some(now) };
    // A probe may change the world (one that is final does): it is not run for an answer that cannot
    // be kept.
    if let Err(error) = asking.store.may_write(asking.within) {
        return unchanged(Came::CouldNot(error));
    }
    // It may take its time: nobody else is to wait for our connection.
    asking.store.rest();
    let answer = match ask(asking.probe, record, asking.signals) {
        Heard::Said(answer) => answer,
        Heard::Unknown { why, said } => return unchanged(Came::Unknown { why, said }),
        Heard::Interrupted(signal) => return unchanged(Came::Interrupted(signal)),
    };
    let probed = Command::Probed(effect::Probe {
        answer,
        by: asking.probe.signature(),
        reconcile_final: asking.probe.is_final,
        looked_at: record.revision,
    });
    match command(&record.key, probed, asking) {
        Ok(answered) => {
            let came = match answered.answer {
                Answer::Resolved => Came::Decided(answer),
                Answer::ProbeKept => Came::NotSoFar,
                Answer::Granted
                | Answer::Start
                | Answer::Renewed { .. }
                | Answer::Lost
                | Answer::Settled
                | Answer::Delivered
                | Answer::KeptAsLate
                | Answer::Forgotten
                | Answer::AlreadySo
                | Answer::Contended
                | Answer::Nothing
                | Answer::CommittedAlready
                | Answer::Refused(_) => Came::Moved,
            };
            Reconciled::of(came, answered)
        }
        Err(came) => unchanged(came),
    }
}

fn command(key: &Key, command: Command, asking: Asking<'_>) -> Result<Answered, Came> {
    let call = Call {
        key: key.clone(),
        command,
        // The decision itself compares the revision (EFF-20).
        expect: StreamState::Any,
        within: asking.within,
        exchange_max: asking.within,
        outputs: Vec::new(),
    };
    match handle(asking.store, call) {
        Done::Answered(answered) => Ok(*answered),
        Done::CouldNot(error) => Err(Came::CouldNot(error)),
        Done::Unknown(error) => Err(Came::Unsure(error)),
    }
}

/// What was heard of a probe.
enum Heard {
    Said(ProbeAnswer),
    Unknown { why: String, said: Option<String> },
    Interrupted(i32),
}

/// Runs the probe to its end.
fn ask(probe: &Probe, about: &Record, signals: Option<&Signals>) -> Heard {
    let told_to_end = || signals.and_then(ending);
    if let Some(signal) = told_to_end() {
        return Heard::Interrupted(signal);
    }
    // Without our signals: it is in the background, with a group of its own that can be ended whole.
    let mut child = match Child::spawn(line(probe, about), None) {
        Ok(child) => child,
        Err(not_started) => {
            let why = format!("it could not be started: {not_started}");
            return Heard::Unknown { why, said: None };
        }
    };
    let mut interrupted = None;
    loop {
        let wake = signals.filter(|_| interrupted.is_none()).map(AsFd::as_fd);
        match child.wait(Some(LOOK_EVERY), wake) {
            Waited::Ended(end) => {
                return match interrupted {
                    // Its answer came too late to be acted on.
                    Some(signal) => Heard::Interrupted(signal),
                    None => heard(&end, probe.time_max),
                };
            }
            Waited::TimeReached | Waited::Woken => {
                if interrupted.is_none()
                    && let Some(signal) = told_to_end()
                {
                    interrupted = Some(signal);
                    child.end_group();
                }
            }
        }
    }
}

fn line(probe: &Probe, about: &Record) -> CommandLine {
    let variable = |name: &str, value: String| (OsString::from(name), OsString::from(value));
    let mut words = probe.words.iter().cloned();
    CommandLine {
        program: words.next().unwrap_or_default(),
        args: words.collect(),
        env: vec![
            variable("CTRLRUN_KEY", about.key.as_str().to_owned()),
            variable("CTRLRUN_ATTEMPT", about.attempt.to_string()),
            variable("CTRLRUN_ATTEMPT_ID", about.attempt_id.clone()),
            // That of the attempt in doubt: the next one would carry the same (KEY-7).
            variable(
                "CTRLRUN_IDEMPOTENCY_KEY",
                idempotency_key(&about.key, about.proven_failures).to_string(),
            ),
            // Where this runs inside another effect's command, that one's file is not the probe's.
            variable("CTRLRUN_OUTCOME_FILE", String::new()),
        ],
        stdin: Stdin::Null,
        output: Output::Capture { cap: CAP, stdout: Sink::Nowhere, stderr: Sink::Nowhere },
        timeout: Some(probe.time_max),
        kill_after: KILL_AFTER,
        not_after: None,
    }
}

fn heard(end: &ChildEnd, time_max: Duration) -> Heard {
    let ended = match end.exit {
        _ if end.timed_out || end.ended_by_us => Ended::EndedByUs,
        Exit::Code(code) => Ended::Code(code),
        Exit::Signal { number, .. } => Ended::Signal(Some(number)),
        Exit::Lost => Ended::Signal(None),
    };
    let stdout =
        Printed { head: &end.stdout.head, tail: &end.stdout.tail, whole: end.stdout.is_whole() };
    match probe::answer(ended, stdout) {
        Ok(answer) => Heard::Said(answer),
        Err(_) if end.timed_out => {
            let why = format!("it took longer than {} s, and was ended", time_max.as_secs_f64());
            Heard::Unknown { why, said: last_words(&end.stderr) }
        }
        Err(why) => Heard::Unknown { why, said: last_words(&end.stderr) },
    }
}

/// The last line of a probe's stderr that holds anything.
fn last_words(stderr: &Captured) -> Option<String> {
    let last = if stderr.tail.is_empty() { &stderr.head } else { &stderr.tail };
    let text = String::from_utf8_lossy(last);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.to_owned())
}
