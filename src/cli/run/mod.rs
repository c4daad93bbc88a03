//! `ctrlrun run`: one command, once (CLI-8 to CLI-14).
//!
//! | file | about |
//! |---|---|
//! | [`args`] | the flags |
//! | [`named`] | an effect by its name, and what the configuration says where no flag does |
//! | [`request`] | the key, and what it is bound to |
//! | [`quick`] | the plain command lines, read without the parser |
//! | [`asking`] | a probe, where it meets AMBIGUOUS |
//! | [`trace`] | where it belongs, as its caller traces it |
//! | [`dry`] | what would happen |
//! | [`replay`] | a stored output, printed again |
//! | [`status`] | the exit status of what came of it |
//! | [`tell`] | what came of it, in words |
//! | [`report`] | the JSON report |
mod args;
mod asking;
mod dry;
mod named;
pub mod quick;
mod replay;
pub mod report;
pub mod request;
mod status;
pub mod tell;
mod trace;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctrlrun::drive::host;
use ctrlrun::drive::persist::{Between, Persisted, persist};
use ctrlrun::drive::run::{Command, Ran, Tools};
use ctrlrun::drive::spool::Spool;
use ctrlrun::exec::{Signals, die_of_signal};
use ctrlrun::plan::again::Again;
use ctrlrun::plan::attempt::{Order, Outcome, Undelivered};
use ctrlrun::plan::effect::{Record, Refusal, Verdict};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::store::stop;
use uuid::Uuid;

pub use args::RunArgs;
use args::{OnCommitted, OnRunning};
use asking::{Inquiry, Then};
use report::Report;
use request::Asked;
pub use request::ran_on;
use status::Status;

use super::Global;
use super::access::{Opened, for_running};
use super::error::{CliError, Deed, Exit};
use super::journal;
use super::render::text::{clean, span};
use super::spooled;

/// Arms a stop point, in a scratch store only (STO-12).
pub const STOP_VARIABLE: &str = "CTRLRUN_STOP_AT";

/// Runs the command as an effect.
///
/// # Errors
/// A report that cannot be opened. Whatever comes of the run is told here, before its hook.
pub fn run(mut args: RunArgs, global: &Global) -> Result<Exit, CliError> {
    let mut report = Report::open(args.report.as_deref(), args.key(), global)?;
    let end = go(&mut args, global, &mut report);
    let hook = report.write(&end, global);
    if let Some(told) = end.told {
        let told = match end.status {
            Status::Code(code) => told.exiting(code),
            Status::Signal(_) => told,
        };
        told.report(global.json);
    }
    // Last of all: nobody waits for it who could do something with what is told.
    if let Some((hook, report)) = hook {
        hook.run(&report, global);
    }
    match end.status {
        Status::Code(code) => Ok(Exit(code)),
        Status::Signal(number) => {
            // The store is closed, the outcome recorded and told: nothing is left to be done.
            die_of_signal(number)
        }
    }
}

/// A command line that cannot be meant: a report of an earlier run must not pass for this one's
/// (CLI-12).
pub fn report_usage(told: &CliError, report: Option<OsString>, store: Option<OsString>) {
    let Some(path) = report else {
        return;
    };
    let global = Global::bare(store);
    // One that cannot be written is not worth a second error.
    if let Ok(mut report) = Report::open(Some(Path::new(&path)), "", &global) {
        report.refused_before(told);
        // Of a refusal no hook is told.
        let _ = report.write(&End::refused(told.clone()), &global);
    }
}

/// How it all ended.
pub struct End {
    /// With what exit status.
    status: Status,
    /// What is told on stderr; nothing of a first COMMITTED.
    told: Option<CliError>,
}

impl End {
    fn refused(error: CliError) -> Self {
        Self { status: Status::Code(error.exit().0), told: Some(error) }
    }

    fn silent() -> Self {
        Self { status: Status::Code(0), told: None }
    }
}

fn go(args: &mut RunArgs, global: &Global, report: &mut Report) -> End {
    try_go(args, global, report).unwrap_or_else(|error| {
        report.refused_before(&error);
        End::refused(error)
    })
}

fn try_go(args: &mut RunArgs, global: &Global, report: &mut Report) -> Result<End, CliError> {
    named::fill(args, &global.settings)?;
    let args = &*args;
    let asked = request::read(args, global.settings.defaults.record_command.unwrap_or_default())?;
    report.about(&asked.key);
    for warning in &asked.warnings {
        global.note(&format!("warning: {warning}"));
    }
    if args.dry_run {
        return dry::dry_run(args, &asked, global);
    }
    if let Some(point) = std::env::var_os(STOP_VARIABLE) {
        stop::arm(&point.to_string_lossy());
    }
    // Before the store is opened: a signal that comes while the key is being reserved is the
    // child's, and must not end this process with a reservation in its hand.
    let signals = Signals::install().map_err(|error| CliError::no_signals(&error))?;
    let opened = for_running(global)?;
    let spool = spooled::spool(&opened, Deed::Run, global)?;
    match &spool {
        Some(spool) => spooled::deliver_first(&opened, spool, &asked.key, Deed::Run, global)?,
        None => global.note(
            "warning: no directory for the spool can be written: an outcome that the store cannot \
             take will be told here only",
        ),
    }
    let journal = journal::open(global, asked.key.as_str())?;
    let lost = |record: Option<&Record>| global.note(&tell::lost(&asked, record));
    let kept = |undelivered: &Undelivered, spooled: bool| {
        global.note(&tell::trying(&asked, undelivered, spooled));
    };
    let tools = Tools {
        host: &host::Here,
        store: opened.store.as_ref(),
        spool: spool.as_ref(),
        journal: journal.as_ref(),
        signals: Some(&signals),
        lost: &lost,
        kept: &kept,
    };
    let command = command(args);
    // Of the first attempt only: a later one knows better.
    let mut guess = opened.guess.clone();
    let mut again = Again::new(
        host::now().plus(args.wait.unwrap_or(Duration::ZERO)),
        args.retries.unwrap_or(0),
        args.backoff(),
    );
    let mut inquiry = Inquiry::new(asking::probe(args), args.expect);
    let (ran, interrupted) = loop {
        let persisted = persist(
            inquiry.expect(),
            &mut |expect| Order { guess: guess.take(), ..order(args, &asked, global, expect) },
            &command,
            tools,
            &mut again,
            &mut |between| tell_between(&between, &asked, &opened, global),
        );
        let (mut ran, interrupted) = match persisted {
            Persisted::Ended(ran) => (ran, None),
            Persisted::Interrupted(ran, signal) => (ran, Some(signal)),
        };
        for problem in &ran.problems {
            global.note(&clean(problem));
        }
        if interrupted.is_some() {
            break (ran, interrupted);
        }
        match inquiry.ask(&mut ran, &opened, &signals, global) {
            Then::DecideAnew => {}
            Then::End => break (ran, None),
            Then::Interrupted(signal) => break (ran, Some(signal)),
        }
    };
    let end = finish(args, &asked, &opened, spool.as_ref(), global, &ran, interrupted, report);
    Ok(inquiry.told_with(end, &opened))
}

#[expect(clippy::too_many_arguments, reason = "the end of a run looks at all of it once")]
fn finish(
    args: &RunArgs,
    asked: &Asked,
    opened: &Opened,
    spool: Option<&Spool>,
    global: &Global,
    ran: &Ran,
    interrupted: Option<i32>,
    report: &mut Report,
) -> End {
    if let Some(note) = tell::rebound(asked, opened, ran) {
        global.note(&note);
    }
    let busy = matches!(ran.report.result, Outcome::Refused(Refusal::InProgress));
    let new = matches!(ran.report.result, Outcome::Settled { verdict: Verdict::Committed, .. });
    let committed = matches!(ran.report.result, Outcome::CommittedAlready);
    let replayed = committed && args.on_committed == OnCommitted::Replay;
    report.ran(ran, replayed, committed && args.on_committed == OnCommitted::Refuse, global);
    if let Some(signal) = interrupted {
        let told = Some(tell::interrupted(asked, opened, ran, signal));
        return report.closing(opened, asked, End { status: Status::Signal(signal), told });
    }
    let end = if committed {
        match args.on_committed {
            OnCommitted::Skip => End::silent(),
            OnCommitted::Refuse => End::refused(tell::committed_already(asked, opened, ran)),
            OnCommitted::Replay => {
                replay::replay(args, asked, opened, ran, global);
                End::silent()
            }
        }
    } else if new || (busy && args.on_running == OnRunning::Skip) {
        End::silent()
    } else {
        let told = tell::result(args.not_executed.is_some(), asked, opened, spool, ran);
        let status = status::of(ran, args.exit).unwrap_or_kind(&told);
        End { status, told: Some(told) }
    };
    report.closing(opened, asked, end)
}

fn order(args: &RunArgs, asked: &Asked, global: &Global, expect: StreamState) -> Order {
    Order {
        key: asked.key.clone(),
        request: asked.request.clone(),
        attempt_id: args.attempt_id.clone().unwrap_or_else(|| Uuid::now_v7().to_string()),
        expect,
        max_attempts: args.max_attempts,
        rebind: args.rebind,
        lease: args.lease(),
        ran_on: asked.ran_on.clone(),
        labels: trace::labels(args),
        not_executed: args.not_executed.clone().unwrap_or_default(),
        store_timeout: global.store_timeout,
        dispatch: None,
        outcome_id: host::outcome_id(),
        guess: None,
    }
}

fn command(args: &RunArgs) -> Command {
    let mut words = args.command.iter().cloned();
    Command {
        program: words.next().unwrap_or_default(),
        args: words.collect(),
        no_stdin: args.no_stdin,
        capture: args.capture().bytes(),
        is_shown: true,
        timeout: args.timeout,
        kill_after: args.kill_after,
        outcome_dir: outcome_dir(),
    }
}

/// Where the outcome file is made: where the user says by TMPDIR, else in memory if there is such a
/// place, since it need not outlive this process, and a file on a disk costs a run noticeably.
pub fn outcome_dir() -> Option<PathBuf> {
    let variable = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
        Some(PathBuf::from(value))
    };
    let places = [variable("TMPDIR"), variable("XDG_RUNTIME_DIR")].into_iter().flatten();
    places.chain(["/dev/shm", "/tmp"].map(PathBuf::from)).find(|dir| dir.is_dir())
}

fn tell_between(between: &Between<'_>, asked: &Asked, opened: &Opened, global: &Global) {
    let key = clean(asked.key.as_str());
    match between {
        Between::Waiting(ran) => {
            let live = tell::live(asked, opened, ran);
            global.note(&format!("{key}: waiting: {live}"));
        }
        Between::Retrying(ran, after) => {
            for problem in &ran.problems {
                global.note(&clean(problem));
            }
            let why = tell::ending(ran);
            global
                .note(&format!("{key}: FAILED (did not happen): {why}; again in {}", span(*after)));
        }
    }
}
