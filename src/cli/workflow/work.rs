//! `ctrlrun workflow work`, and the end of `run`: what ticks runs and runs their nodes.
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use ctrlrun::drive::workflow::Counters;
use ctrlrun::drive::workflow::node::Settings;
use ctrlrun::drive::workflow::worker::{Ended, Told, Worker, needs_no_more};
use ctrlrun::exec::{Signals, die_of_signal};
use ctrlrun::plan::effect::Record;
use ctrlrun::plan::key::Key;
use ctrlrun::plan::workflow::pace::Pace;
use ctrlrun::plan::workflow::{Run, RunId, Status};
use ctrlrun::store::{Location, Store, stop};

use super::hints::hints;
use super::tell::tell;
use super::{line, no_such_run, object};
use crate::cli::Global;
use crate::cli::access::{Opened, for_writing, open};
use crate::cli::error::{CliError, Deed, Exit, Hint, Kind};
use crate::cli::journal;
use crate::cli::render::text::{clean, count};
use crate::cli::run::{STOP_VARIABLE, outcome_dir, ran_on};
use crate::cli::spooled;
use crate::cli::terminal::{answer, say};
use crate::cli::values;

/// How often the same trouble of the store is told.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// The most connections of one process.
const STORES_MAX: usize = 8;

/// How many nodes at a time.
#[derive(Debug, Args)]
pub struct Jobs {
    /// How many nodes are run at a time
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: u16,
    /// How soon what a dead worker had is given to another
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = values::some_time)]
    pub hold: Duration,
}

/// See the help of `work`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun workflow work -j 4
  ctrlrun workflow work --until-idle          what is there, and no more

TERM or INT: nothing more is started, what runs is waited for and recorded; then it ends.")]
pub struct WorkArgs {
    #[command(flatten)]
    jobs: Jobs,
    /// End when nothing is left to do, and nothing will be by itself
    #[arg(long)]
    until_idle: bool,
    /// Only this run
    #[arg(long, value_name = "ID")]
    only: Option<String>,
}

/// Drives runs until it is told to stop.
///
/// # Errors
/// What stands in the way of the store.
pub fn work(args: &WorkArgs, global: &Global) -> Result<Exit, CliError> {
    let only = args.only.as_deref().map(|id| super::run_id(id, Deed::Run)).transpose()?;
    let opened = for_writing(global, Deed::Run)?;
    let of = Driving { only: only.as_ref(), to_the_end: false, until_idle: args.until_idle };
    let (ended, counters, _) = drive(&opened, &args.jobs, of, global)?;
    summary(&counters, global)?;
    match ended {
        Ended::Refused(error) => Err(opened.could_not(&error)),
        // To be told to end is how a worker ends.
        Ended::Stopped | Ended::Idle | Ended::Run(_) | Ended::NoRun => Ok(Exit::OK),
    }
}

/// Drives one run to its end, or until a person has to decide. `again` is the line that goes on with
/// it.
///
/// # Errors
/// 1 and 76 by how it ended.
pub fn to_the_end(
    opened: &Opened,
    run: &Run,
    jobs: &Jobs,
    again: &str,
    global: &Global,
) -> Result<Exit, CliError> {
    let of = Driving { only: Some(&run.id), to_the_end: true, until_idle: false };
    let (ended, _, told) = drive(opened, jobs, of, global)?;
    match ended {
        Ended::Run(run) => end(opened, &run, again, global),
        Ended::NoRun => Err(no_such_run(&run.id, &opened.place)),
        Ended::Refused(error) => Err(opened.could_not(&error)),
        Ended::Stopped | Ended::Idle => {
            let id = clean(run.id.as_str());
            say(&format!("{id}: stopped here, what ran is recorded; the run is not over"));
            say(&format!("  go on: {again}"));
            match told {
                Some(signal) => die_of_signal(signal),
                None => Ok(Kind::InProgress.exit()),
            }
        }
    }
}

struct Driving<'a> {
    only: Option<&'a RunId>,
    to_the_end: bool,
    until_idle: bool,
}

fn drive(
    opened: &Opened,
    jobs: &Jobs,
    of: Driving<'_>,
    global: &Global,
) -> Result<(Ended, Counters, Option<i32>), CliError> {
    if let Some(point) = std::env::var_os(STOP_VARIABLE) {
        stop::arm(&point.to_string_lossy());
    }
    // Before the first node: a signal must not end this process with one in its hand. Children are
    // collected by those who wait for them, since there may be several.
    let signals = Signals::listen().map_err(|error| CliError::no_signals(&error))?;
    let spool = spooled::spool(opened, Deed::Run, global)?;
    if spool.is_none() {
        global.note(
            "warning: no directory for the spool can be written: an outcome that the store cannot \
             take will be told here only",
        );
    }
    let subject = of.only.map_or("workflow", RunId::as_str);
    let journal = journal::open(global, subject)?;
    let mut stores: Vec<std::sync::Arc<dyn Store>> = Vec::new();
    for _ in 0..usize::from(jobs.jobs).min(STORES_MAX) {
        let mode = ctrlrun::store::Mode::Write;
        let quiet = Global { quiet: true, verbose: 0, ..global.clone() };
        stores.push(open(&quiet, opened.place.clone(), mode, Deed::Run)?.store);
    }
    let settings = Settings {
        ran_on: ran_on(),
        capture: capture(global),
        kill_after: Duration::from_secs(10),
        outcome_dir: outcome_dir(),
        journal,
        store_timeout: global.store_timeout,
        store_made: made(opened),
    };
    let counters = Counters::default();
    let pace = Pace::default();
    let told_to_stop = || ending(&signals).is_some();
    let said: Mutex<Option<(String, Instant)>> = Mutex::new(None);
    let tell = |told: &Told<'_>| {
        if let Told::CouldNot(_, error) = told {
            // A store that is away is asked again and again; that is told now and then.
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            let same = |(text, at): &(String, Instant)| {
                *text == error.message && at.elapsed() < SAID_EVERY
            };
            if said.as_ref().is_some_and(same) {
                return;
            }
            *said = Some((error.message.clone(), Instant::now()));
        }
        // How the one run ended is told at the end, with what to type next.
        if !matches!(told, Told::Ticked(_, now) if of.to_the_end && needs_no_more(now)) {
            tell(told, opened, global);
        }
    };
    let worker = Worker {
        stores: &stores,
        spool: spool.as_ref(),
        settings: &settings,
        pace: &pace,
        counters: &counters,
        jobs: usize::from(jobs.jobs),
        only: of.only,
        hold: jobs.hold,
        to_the_end: of.to_the_end,
        until_idle: of.until_idle,
        told_to_stop: &told_to_stop,
        tell: &tell,
    };
    let ended = worker.work();
    Ok((ended, counters, ending(&signals)))
}

/// A signal that ends a process.
fn ending(signals: &Signals) -> Option<i32> {
    const ENDING: [i32; 4] =
        [nix::libc::SIGTERM, nix::libc::SIGINT, nix::libc::SIGHUP, nix::libc::SIGQUIT];
    signals.pending().into_iter().find(|number| ENDING.contains(number))
}

fn made(opened: &Opened) -> Option<std::time::SystemTime> {
    match &opened.place.location {
        Location::Sqlite(at) => std::fs::metadata(&at.path).and_then(|found| found.created()).ok(),
        Location::Postgres(_) => None,
    }
}

fn summary(counters: &Counters, global: &Global) -> Result<(), CliError> {
    if global.json {
        let object = serde_json::json!({
            "ran": counters.ran.get(), "ticks": counters.ticks.get(),
            "idle_ticks": counters.idle_ticks.get(), "conflicts": counters.conflicts.get(),
            "requeues": counters.requeues.get(), "livelocks": counters.livelocks.get(),
            "stuck": counters.stuck.get(), "stale": counters.stale.get(),
            "failures": counters.failures.get(),
        });
        return answer(&format!("{object}\n"));
    }
    global.note(&format!(
        "{} run; {}, {} lost and tried again",
        count(counters.ran.get(), "node"),
        count(counters.ticks.get(), "tick"),
        counters.conflicts.get()
    ));
    Ok(())
}

/// How a run that was driven ended, or why it does not go on.
fn end(opened: &Opened, run: &Run, again: &str, global: &Global) -> Result<Exit, CliError> {
    let records = records(opened, run);
    let hints = hints(run, &records, opened);
    let commands: Vec<String> = hints.iter().map(|hint| hint.text.clone()).collect();
    if global.json {
        answer(&format!("{}\n", object::of(run, Some(&records), &commands, &opened.place)))?;
    }
    let id = clean(run.id.as_str());
    let reason = run.reason.as_deref().map_or(String::new(), |why| format!(": {}", clean(why)));
    let error = match run.status {
        Status::Succeeded => {
            if !global.json && std::io::stderr().is_terminal() {
                global.note(&format!("{id}: every node is done"));
            }
            return Ok(Exit::OK);
        }
        Status::Failed | Status::Failing => {
            CliError::new(Kind::Failed, format!("{id}: FAILED{reason}"))
        }
        Status::Cancelled | Status::Cancelling => CliError::new(
            Kind::Failed,
            format!("{id}: CANCELLED {}", reason.trim_start_matches(": ")),
        ),
        Status::Blocked | Status::Running => CliError::new(
            Kind::Ambiguous,
            format!("{id}: BLOCKED{reason}; nothing more is dispatched until that is decided"),
        )
        .hints(hints)
        .hint(Hint::command("then", again)),
    };
    Err(error.hint(Hint::command("look", line("status", &run.id, "", &opened.place))))
}

/// The records of a run's nodes; what cannot be read is left out.
#[must_use]
pub fn records(opened: &Opened, run: &Run) -> BTreeMap<Key, Record> {
    let nodes = run.progress.nodes.values();
    let keys: Vec<Key> = nodes.filter_map(|node| node.state.key().cloned()).collect();
    let found = opened.store.runs().load_effects(&keys, &[], opened.within);
    let records = found.map(|found| found.records).unwrap_or_default();
    records.into_iter().map(|record| (record.key.clone(), record)).collect()
}

/// How much of each stream is kept: what feeds a later node must be.
fn capture(global: &Global) -> usize {
    const DEFAULT: usize = 64 * 1024;
    global.settings.defaults.capture.and_then(values::Capture::bytes).unwrap_or(DEFAULT)
}
