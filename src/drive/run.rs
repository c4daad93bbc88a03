//! Performs one attempt: the steps of [`Attempt`] on a real store and a real child.
//!
//! One thread does all of it. Only a renewal that falls due gets a thread of its own, so that a
//! store that is slow to answer holds up neither the child's output nor its signals; it is joined
//! before anything else is written (EXE-7).
use std::ffi::OsString;
use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread::{Scope, ScopedJoinHandle, scope};
use std::time::Duration;

use super::handle::{Performed, drive, perform};
use super::host::{Host, Process};
use super::journal::Journal;
use super::spool::Spool;
use crate::exec::{
    self, ChildEnd, CommandLine, NotStarted, NotStartedKind, OutcomeFile, OutcomeRead, Output,
    Signals, Sink, Stdin, Waited,
};
use crate::plan::attempt::{Attempt, Came, Do, Order, Report, Undelivered};
use crate::plan::effect::{Answer, Event, Holder, Record};
use crate::plan::key::idempotency_key;
use crate::plan::protocol::{Captured, Done, End, Handle, Input, Step};
use crate::plan::time::Moment;
use crate::plan::verdict::{self, Left, Said};
use crate::store::stop::{self, Point};
use crate::store::{Append, Store};

/// What is to be run, apart from the effect that it is.
#[derive(Debug, Clone)]
pub struct Command {
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Whether it gets /dev/null for its standard input.
    pub no_stdin: bool,
    /// How much of each stream is kept, in bytes; `None`: nothing, and it gets our own descriptors.
    pub capture: Option<usize>,
    /// Whether what it writes is also passed on to our own streams, live.
    pub is_shown: bool,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// The grace between TERM and KILL.
    pub kill_after: Duration,
    /// Where its outcome file is made; `None`: the directory for temporary files.
    pub outcome_dir: Option<PathBuf>,
}

/// What an attempt is performed with.
#[derive(Clone, Copy)]
pub struct Tools<'a> {
    /// The machine that it runs on.
    pub host: &'a dyn Host,
    /// The store.
    pub store: &'a dyn Store,
    /// Where outcomes go that it cannot take.
    pub spool: Option<&'a Spool>,
    /// The second memory of every attempt; `None` where there is to be none.
    pub journal: Option<&'a Journal>,
    /// Our signals, to be passed on to the child.
    pub signals: Option<&'a Signals>,
    /// Is told once, while the child runs, that the record is no longer this attempt's own, and the
    /// record that was found (EXE-9).
    pub lost: &'a dyn Fn(Option<&Record>),
    /// Is told once, after the command has run, that the store did not take its outcome at the first
    /// try: what was spooled, and whether it could be. It is tried on (EXE-24).
    pub kept: &'a dyn Fn(&Undelivered, bool),
}

/// What came of an attempt, and of its child.
#[derive(Debug)]
pub struct Ran {
    /// What came of the attempt.
    pub report: Report,
    /// How the child ended, if there was one.
    pub child: Option<ChildEnd>,
    /// Why there was none.
    pub not_started: Option<NotStarted>,
    /// There was none because the journal could not be written to (AFT-3).
    pub unjournaled: bool,
    /// What went wrong on the way, a line each, without effect on the outcome.
    pub problems: Vec<String>,
}

/// Performs one attempt to its end.
pub fn attempt(order: Order, command: &Command, tools: Tools<'_>) -> Ran {
    let machine = Attempt::new(order, tools.host.now());
    scope(|scope| {
        Performer {
            scope,
            tools,
            command,
            machine,
            child: None,
            said: None,
            renewal: None,
            ended: None,
            end: None,
            not_started: None,
            journaled: None,
            unjournaled: false,
            problems: Vec::new(),
            told_lost: false,
            is_kept: false,
            rests_at: None,
        }
        .perform()
    })
}

struct Performer<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    tools: Tools<'env>,
    command: &'env Command,
    machine: Attempt,
    child: Option<Box<dyn Process>>,
    said: Option<OutcomeFile>,
    renewal: Option<Renewal<'scope>>,
    /// The child's end, waiting until the renewal that was under way has been handed over.
    ended: Option<Came>,
    end: Option<ChildEnd>,
    not_started: Option<NotStarted>,
    /// Whose begin the journal has.
    journaled: Option<Holder>,
    unjournaled: bool,
    problems: Vec<String>,
    told_lost: bool,
    /// The outcome is in the spool.
    is_kept: bool,
    /// When the store is told to rest, unless the child has ended by then.
    rests_at: Option<Moment>,
}

/// A child that runs longer than this is not waited for with a connection held (PGS-5).
const REST_AFTER: Duration = Duration::from_secs(1);

/// A renewal beside the child.
struct Renewal<'scope> {
    thread: ScopedJoinHandle<'scope, Done>,
    /// Readable, by its end of file, once the thread is through.
    ended: PipeReader,
}

impl Performer<'_, '_> {
    fn perform(mut self) -> Ran {
        let mut came = Came::Call;
        loop {
            self.tell_if_lost(&came);
            came = match self.machine.step(came, self.tools.host.now()) {
                Do::Store(step) if self.must_go_on(&step) => self.store(step),
                // With the outcome in the spool nobody has to wait for the store any longer than
                // they want to.
                Do::Store(_) => Came::GiveUp,
                // There is always a place for the one child of this process.
                Do::Granted => Came::Begin,
                Do::Start { holder, proven_failures, not_after } => {
                    self.start(holder, proven_failures, not_after)
                }
                Do::Watch { until } => self.watch(until),
                Do::Renew(write) => self.renew(*write),
                Do::EndChild => {
                    if let Some(child) = self.child.as_mut() {
                        child.end_group();
                    }
                    Came::UnderWay
                }
                Do::Spool(undelivered) => {
                    let spooled = self.spool(&undelivered);
                    self.is_kept = spooled.is_ok();
                    if self.end.is_some() {
                        (self.tools.kept)(&undelivered, spooled.is_ok());
                    }
                    Came::Spooled(spooled)
                }
                Do::Unspool(outcome_id) => {
                    if let Some(spool) = self.tools.spool {
                        spool.discard(outcome_id);
                    }
                    Came::Unspooled
                }
                Do::Over(report) => return self.over(*report),
            };
        }
    }

    /// At once, and not at the end: somebody may wait for this command for hours (EXE-9).
    fn tell_if_lost(&mut self, came: &Came) {
        if let Came::Renewed(Done::Answered(answered)) = came
            && answered.answer == Answer::Lost
            && !std::mem::replace(&mut self.told_lost, true)
        {
            (self.tools.lost)(answered.record.as_ref());
        }
    }

    /// Whether a step is performed: all are, but for a pause between two tries to record the outcome
    /// of a child that has ended, once this process is told to end.
    fn must_go_on(&self, step: &Step) -> bool {
        let told = || self.tools.host.told_to_end(self.tools.signals).is_some();
        // Without the file nothing but this process knows the outcome: every pause is waited out.
        !(matches!(step, Step::Pause(_)) && self.is_kept && self.end.is_some() && told())
    }

    fn store(&mut self, step: Step) -> Came {
        let point = stops(&step);
        let scratch = self.tools.store.identity().scratch;
        if let Some((before, _)) = point {
            stop::here(before, scratch);
        }
        let key = self.machine.key();
        let answer = match perform(self.tools.host, self.tools.store, key, step) {
            Performed::Answer(answer) => answer,
            // The attempt never hands out the last step of a write.
            Performed::Over(_) => Box::new(Input::Paused),
        };
        // A guess that the key was new, and was not, is no reserve (CMT-16).
        if let (Some((_, Some(after))), Input::Ended(End::Landed)) = (point, answer.as_ref()) {
            stop::here(after, scratch);
        }
        Came::Store(answer)
    }

    fn start(&mut self, holder: Holder, proven_failures: u64, not_after: Moment) -> Came {
        // Another user's runtime directory, or one that is full, is no reason not to run.
        let made = OutcomeFile::create(self.command.outcome_dir.as_deref())
            .or_else(|_| OutcomeFile::create(None));
        let said = match made {
            Ok(said) => said,
            Err(error) => {
                let detail = format!("could not be started: no outcome file can be made: {error}");
                return Came::NotStarted { detail };
            }
        };
        if let Err(error) = self.journal_begin(holder, proven_failures) {
            self.unjournaled = true;
            let detail = format!("could not be started: the journal cannot be written: {error}");
            return Came::NotStarted { detail };
        }
        let line = self.line(holder, proven_failures, not_after, &said);
        stop::here(Point::AfterBegin, self.tools.store.identity().scratch);
        // As late as can be: between this and the child there is only the spawn itself (EXE-8).
        if self.tools.host.now() >= not_after {
            return Came::TooLate;
        }
        match self.tools.host.spawn(line, self.tools.signals) {
            Ok(child) => {
                self.child = Some(child);
                self.said = Some(said);
                self.rests_at = Some(self.tools.host.now().plus(REST_AFTER));
                stop::here(Point::Running, self.tools.store.identity().scratch);
                Came::Started
            }
            Err(not_started) if not_started.kind == NotStartedKind::TooLate => Came::TooLate,
            Err(not_started) => {
                let detail = format!("could not be started: {not_started}");
                self.not_started = Some(not_started);
                Came::NotStarted { detail }
            }
        }
    }

    /// Between the begin and the child: whatever this takes counts against the lease (AFT-2).
    fn journal_begin(&mut self, holder: Holder, proven_failures: u64) -> std::io::Result<()> {
        let Some(journal) = self.tools.journal else {
            return Ok(());
        };
        let identity = self.tools.store.identity();
        journal.begins(identity, &self.machine, holder, proven_failures)?;
        self.journaled = Some(holder);
        Ok(())
    }

    fn journal_settle(&mut self, report: &Report) {
        if let (Some(journal), Some(holder)) = (self.tools.journal, self.journaled) {
            let (identity, key) = (self.tools.store.identity(), self.machine.key());
            journal.settles(identity, key, holder, report, &mut self.problems);
        }
    }

    fn line(
        &self,
        holder: Holder,
        proven_failures: u64,
        not_after: Moment,
        said: &OutcomeFile,
    ) -> CommandLine {
        let key = self.machine.key();
        let variable = |name: &str, value: OsString| (OsString::from(name), value);
        CommandLine {
            program: self.command.program.clone(),
            args: self.command.args.clone(),
            env: vec![
                variable("CTRLRUN_KEY", key.as_str().into()),
                variable("CTRLRUN_ATTEMPT", holder.attempt.to_string().into()),
                variable("CTRLRUN_ATTEMPT_ID", self.machine.attempt_id().into()),
                variable(
                    "CTRLRUN_IDEMPOTENCY_KEY",
                    idempotency_key(key, proven_failures).to_string().into(),
                ),
                variable("CTRLRUN_OUTCOME_FILE", said.path().as_os_str().to_owned()),
            ],
            stdin: if self.command.no_stdin { Stdin::Null } else { Stdin::Inherit },
            output: match self.command.capture {
                Some(cap) if self.command.is_shown => {
                    Output::Capture { cap, stdout: Sink::Ours, stderr: Sink::Ours }
                }
                Some(cap) => Output::Capture { cap, stdout: Sink::Nowhere, stderr: Sink::Nowhere },
                None => Output::Inherit,
            },
            timeout: self.command.timeout,
            kill_after: self.command.kill_after,
            // The same clock as ours: see `Host::now`.
            not_after: Some(Duration::from_micros(not_after.0)),
        }
    }

    fn watch(&mut self, until: Moment) -> Came {
        if let Some(ended) = self.ended.take() {
            return ended;
        }
        let Some(child) = self.child.as_mut() else {
            return Came::Due;
        };
        // The renewal has the store while it is at work.
        let rests_at = self.rests_at.filter(|at| self.renewal.is_none() && *at < until);
        let wake = self.renewal.as_ref().map(|renewal| renewal.ended.as_fd());
        let now = self.tools.host.now();
        match child.wait(Some(rests_at.unwrap_or(until).from_now(now)), wake) {
            Waited::TimeReached if rests_at.is_some() => {
                self.tools.store.rest();
                self.rests_at = None;
                self.watch(until)
            }
            Waited::TimeReached => Came::Due,
            Waited::Woken => self.join_renewal().unwrap_or(Came::Due),
            Waited::Ended(end) => {
                stop::here(Point::BeforeSettle, self.tools.store.identity().scratch);
                let came = self.child_ended(*end);
                match self.join_renewal() {
                    Some(renewed) => {
                        self.ended = Some(came);
                        renewed
                    }
                    None => came,
                }
            }
        }
    }

    fn child_ended(&mut self, end: ChildEnd) -> Came {
        let note = "ctrlrun ended it: its record was no longer its own";
        let captures = self.command.capture.is_some();
        let (came, mut end) = child_ended(end, self.said.take(), captures, note);
        self.problems.append(&mut end.problems);
        self.end = Some(end);
        came
    }

    fn renew(&mut self, mut write: Handle) -> Came {
        let Tools { host, store, .. } = self.tools;
        let Ok((ended, ends)) = pipe() else {
            // Without a pipe to be woken by it is done here; the child's output waits for it.
            return Came::Renewed(drive(host, store, &mut write));
        };
        let work = Box::new(move || {
            let done = drive(host, store, &mut write);
            drop::<PipeWriter>(ends);
            done
        });
        let thread = host.beside(self.scope, work);
        self.renewal = Some(Renewal { thread, ended });
        Came::UnderWay
    }

    fn join_renewal(&mut self) -> Option<Came> {
        let renewal = self.renewal.take()?;
        match self.tools.host.join(renewal.thread) {
            Ok(done) => {
                self.rests_at = Some(self.tools.host.now().plus(REST_AFTER));
                Some(Came::Renewed(done))
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn spool(&mut self, undelivered: &Undelivered) -> Result<(), String> {
        match self.tools.spool {
            Some(spool) => spool.keep(undelivered).map_err(|error| error.to_string()),
            None => Err("no spool directory can be written".to_owned()),
        }
    }

    fn over(mut self, report: Report) -> Ran {
        stop::here(Point::AfterSettle, self.tools.store.identity().scratch);
        self.journal_settle(&report);
        if let Some(child) = self.child.as_mut().filter(|_| self.end.is_some()) {
            // After the outcome is recorded: a slow reader must not keep it from that.
            self.problems.append(&mut child.deliver_rest().problems);
        }
        let Self { end, not_started, unjournaled, problems, .. } = self;
        Ran { report, child: end, not_started, unjournaled, problems }
    }
}

/// The stop points before and after a step of ours. What follows a begin has a point of its own.
fn stops(step: &Step) -> Option<(Point, Option<Point>)> {
    let Step::Append { append, .. } = step else {
        return None;
    };
    let before = stops_before(append)?;
    Some((before, (before == Point::BeforeReserve).then_some(Point::AfterReserve)))
}

/// The stop point before an append.
pub(super) fn stops_before(append: &Append) -> Option<Point> {
    match append.history.first().map(|row| &row.event) {
        Some(Event::Reserved(_)) => Some(Point::BeforeReserve),
        Some(Event::Began(_)) => Some(Point::BeforeBegin),
        _ => None,
    }
}

/// What the machine is told of a child's end, `note` if we ended it; its output is taken out of it.
pub(super) fn child_ended(
    mut end: ChildEnd,
    file: Option<OutcomeFile>,
    captures: bool,
    note: &str,
) -> (Came, ChildEnd) {
    let mut said = file.map_or_else(Said::nothing, |file| said(&file));
    if end.ended_by_us {
        said.notes.push(note.to_owned());
    }
    let stdout = captures.then(|| captured(std::mem::take(&mut end.stdout)));
    let stderr = captures.then(|| captured(std::mem::take(&mut end.stderr)));
    let exit = match end.exit {
        exec::Exit::Code(code) => verdict::Exit::Code(code),
        exec::Exit::Signal { number, .. } => verdict::Exit::Signal(number),
        exec::Exit::Lost => verdict::Exit::Unseen,
    };
    let seen = verdict::ChildEnd {
        exit,
        timed_out: end.timed_out,
        ended_by_holder: end.ended_by_us,
        left: left(&end),
        said,
    };
    (Came::Ended { end: seen, stdout, stderr }, end)
}

fn left(end: &ChildEnd) -> Left {
    if !end.descendants_left.is_empty() {
        Left::Running(end.descendants_left.clone())
    } else if end.descendants_unseen {
        Left::Unseen
    } else {
        Left::Nothing
    }
}

fn said(file: &OutcomeFile) -> Said {
    match file.read() {
        OutcomeRead::Bytes(bytes) => Said::read(&bytes),
        OutcomeRead::Gone => Said::unreadable("the outcome file is gone"),
        OutcomeRead::TooLong => Said::unreadable("the outcome file is too long"),
        OutcomeRead::Unreadable(why) => {
            Said::unreadable(format!("the outcome file cannot be read: {why}"))
        }
    }
}

pub(super) fn captured(stream: exec::Captured) -> Captured {
    let whole = stream.is_whole();
    Captured { head: stream.head, tail: stream.tail, bytes: stream.bytes, whole }
}
