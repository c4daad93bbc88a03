//! A soak: operations for a long time, three quarters of them as every day has them, the rest with a
//! fault that is written down before it happens; and at the end nothing that is not explained, and
//! nothing that grows (SOA clauses).
//!
//! | file | what it does |
//! |---|---|
//! | [`deck`] | which operations there are, and which is the next |
//! | [`operate`] | one of them |
//! | [`shift`] | an interval of them, and its end: what lapses, is decided, is forgotten |
//! | [`judge`] | PURE: ledger and store in, what is not explained out |
//! | [`measure`] | what must not grow |
//! | [`report`] | what came of it, as values |
mod deck;
mod judge;
mod measure;
mod operate;
pub mod report;
mod shift;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctrlrun::store::Location;

pub use self::measure::Measure;
use self::report::Soaked;
use self::shift::{Shift, Until};
use super::bench::{Bench, Sizes};
use super::lab::Lab;
use super::worker::Worker;
use super::{Trouble, scratch, watched};

/// Measurements that a soak has at least.
const INTERVALS_MIN: u32 = 12;
/// An interval is not longer than this.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Nor are there more operations in it: what it keeps in mind, and on disk, is bounded.
const OPERATIONS_MAX: u64 = 500;

/// For how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So long, and to the end of the interval.
    For(Duration),
    /// So many operations.
    Operations(u64),
}

/// The shortest that tells anything: every class of fault comes in it.
pub const OPERATIONS_MIN: u64 = deck::CARDS;
/// The same as a time.
pub const TIME_MIN: Duration = Duration::from_secs(30);

/// What is asked for.
pub struct SoakAsk {
    /// For how long.
    pub length: Length,
    /// What the operations are dealt from.
    pub seed: u64,
    /// Whether a signal has come.
    pub is_stopped: Box<dyn Fn() -> bool + Send + Sync>,
}

/// What is told while it runs.
pub enum Told<'a> {
    /// Something a person ought to know.
    Note(&'a str),
    /// An operation is over.
    Operation,
    /// An interval is over.
    Interval(&'a Soaked),
}

/// Soaks a scratch store beside the one at `location`, with `binary` as workers.
///
/// # Errors
/// [`Trouble`].
pub fn run(
    location: &Location,
    binary: &Path,
    ask: &SoakAsk,
    tell: Arc<dyn Fn(Told<'_>) + Send + Sync>,
) -> Result<Soaked, Trouble> {
    let made = scratch::make(location).map_err(Trouble::Unusable)?;
    for note in &made.notes {
        tell(Told::Note(note));
    }
    let each = Arc::clone(&tell);
    let bench = Bench::new(binary.to_owned(), made.scratch, Sizes::default(), ask.seed, None)
        .with_progress(Box::new(move || each(Told::Operation)));
    watched(&bench, ask.is_stopped.as_ref(), || soak(&bench, ask, tell.as_ref()))
}

fn soak(
    bench: &Bench,
    ask: &SoakAsk,
    tell: &(dyn Fn(Told<'_>) + Send + Sync),
) -> Result<Soaked, Trouble> {
    let started = Instant::now();
    let mut soaked = Soaked { store: bench.scratch().kind(), seed: ask.seed, ..Soaked::default() };
    let ledger = bench.scratch().directory().join("injections");
    // One run lasts as long as the soak: it renews its lease, and what it leaks it leaks all the time.
    let lab = Lab::new(bench, "SOAK", 1)?;
    let mut gate = lab.gate()?;
    let key = lab.key("long")?;
    let long = lab.run(&key).with(["--lease", "15s"]);
    let mut long = long.doing(["--hold".into(), gate.file().into_os_string()]).start()?;
    if !lab.until_ran(&key, 1)? {
        return Err(Trouble::Broke("the run that lasts as long as the soak did not start".into()));
    }
    let mut due = Due { records: 1, loose: 0 };
    let mut time = 2;
    while let Some(until) = next(ask.length, &soaked, started) {
        let shift = Shift { bench, ledger: &ledger, seed: ask.seed, until };
        shift.work(time, &mut soaked, &mut due)?;
        let measured = measured(bench, &long, started, &soaked, &due)?;
        soaked.measures.push(measured);
        soaked.duration = started.elapsed();
        tell(Told::Interval(&soaked));
        time += 1;
    }
    gate.open();
    let ended = long.end()?;
    if ended.code != Some(0) {
        let said = ended.stderr.lines().next().unwrap_or("").to_owned();
        soaked.violations.push(format!("{key}: the long run ended {:?} ({said})", ended.code));
    }
    lab.stands(&key, "committed")?;
    lab.executions(&key, 1)?;
    soaked.executions += 1;
    soaked.violations.extend(lab.found().0);
    soaked.violations.extend(super::check::violations(&lab.evidence(&key)?));
    soaked.duration = started.elapsed();
    Ok(soaked)
}

/// Records that may be there after everything settled was forgotten.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    /// Those that must.
    records: u64,
    /// Those of operations whose end the store did not let us see.
    loose: u64,
}

/// When the next interval ends; `None` if there is none.
fn next(length: Length, soaked: &Soaked, started: Instant) -> Option<Until> {
    match length {
        Length::For(length) => {
            let interval = (length / INTERVALS_MIN).min(INTERVAL_MAX);
            let fewer = soaked.measures.len() < usize::try_from(INTERVALS_MIN).unwrap_or(0);
            (started.elapsed() < length || fewer).then(|| Until {
                number: soaked.operations.saturating_add(OPERATIONS_MAX),
                time: Some(Instant::now() + interval),
            })
        }
        Length::Operations(all) => {
            let interval = all.div_ceil(u64::from(INTERVALS_MIN)).clamp(1, OPERATIONS_MAX);
            (soaked.operations < all).then(|| Until {
                number: all.min(soaked.operations.saturating_add(interval)),
                time: None,
            })
        }
    }
}

fn measured(
    bench: &Bench,
    long: &Worker<'_>,
    started: Instant,
    soaked: &Soaked,
    due: &Due,
) -> Result<Measure, Trouble> {
    let held = bench.scratch().held();
    let long = long.id().to_string();
    Ok(Measure {
        at: started.elapsed(),
        operations: soaked.operations,
        memory: measure::memory("self"),
        descriptors: measure::descriptors("self"),
        long_memory: measure::memory(&long),
        long_descriptors: measure::descriptors(&long),
        held: held.map_err(|error| Trouble::Broke(format!("the scratch store: {error}")))?,
        rows_due: due.records,
        rows_loose: due.loose,
        spooled: shift::spooled(bench),
    })
}
