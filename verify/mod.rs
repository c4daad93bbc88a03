//! `ctrlrun verify`: the guarantees, shown on the user's own kind of store (VER clauses).
//!
//! | file | what it does |
//! |---|---|
//! | [`catalogue`] | the guarantees; `g01` to `g19`: workload, faults and claims of one each |
//! | [`check`] | PURE: history and ledger in, violations out |
//! | [`lab`] | what one guarantee is shown with; [`flow`] what those of workflows are, beside that |
//! | [`bench`] | what all of them share |
//! | [`scratch`] | the store that is made and destroyed; one file a kind of store |
//! | [`worker`] | processes: released together, halted, killed, waited for |
//! | [`execute`], [`ledger`] | the command that they run, and what it leaves outside of the store |
//! | [`rig`], [`broken`] | what is done on purpose inside a worker, on a scratch store only |
//! | [`self_test`] | the catalogue against broken stores |
//! | [`soak`] | operations for hours, with faults that are written down before they happen |
//! | [`report`] | what came of it, as values |
pub mod bench;
pub mod broken;
pub mod catalogue;
mod check;
pub mod execute;
mod flow;
mod g01;
mod g02;
mod g03;
mod g04;
mod g05;
mod g06;
mod g07;
mod g08;
mod g09;
mod g10;
mod g11;
mod g12;
mod g13;
mod g14;
mod g15;
mod g16;
mod g17;
mod g18;
mod g19;
mod lab;
mod ledger;
pub mod report;
pub mod rig;
pub mod scratch;
mod seed;
pub mod self_test;
pub mod soak;
mod worker;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ctrlrun::store::Location;

use bench::{Bench, Sizes};
use catalogue::{Guarantee, Shown};
use lab::{Halt, Lab};
use report::{Line, Report, Status};
use scratch::Unusable;

/// Guarantees that are shown at once: most of their time they wait for leases to end.
const LANES: usize = 4;

/// How often a guarantee is tried of which nothing can be shown.
const TIMES: u32 = 3;

/// How often a verify says that it is alive.
const BEAT: Duration = Duration::from_secs(10);

/// What is asked for.
pub struct Ask {
    /// The guarantees.
    pub only: Vec<&'static Guarantee>,
    /// How much is done.
    pub sizes: Sizes,
    /// What every random choice is drawn from.
    pub seed: u64,
    /// Whether a signal has come.
    pub is_stopped: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The configuration cannot be used (exit 2).
    Unusable(Unusable),
    /// Verify itself broke (exit 3).
    Broke(String),
    /// A signal ended it.
    Stopped,
}

impl From<Halt> for Trouble {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Broke(what) => Self::Broke(what),
            Halt::Stopped => Self::Stopped,
            // The lab's verdict tells it; nobody hands it on.
            Halt::Slow => Self::Broke("the store was too slow".to_owned()),
        }
    }
}

/// What is told while it runs.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Something a person ought to know.
    Note(&'a str),
    /// A round is over.
    Round,
    /// A guarantee is through.
    Through(&'a Line),
}

/// Shows the guarantees in a scratch store beside the one at `location`, with `binary` as workers.
///
/// # Errors
/// [`Trouble`].
pub fn run(
    location: &Location,
    binary: &Path,
    ask: &Ask,
    tell: std::sync::Arc<dyn Fn(Progress<'_>) + Send + Sync>,
) -> Result<Report, Trouble> {
    let started = Instant::now();
    let made = scratch::make(location).map_err(Trouble::Unusable)?;
    for note in &made.notes {
        tell(Progress::Note(note));
    }
    let rounds = std::sync::Arc::clone(&tell);
    let bench = Bench::new(binary.to_owned(), made.scratch, ask.sizes, ask.seed, None)
        .with_progress(Box::new(move || rounds(Progress::Round)));
    let store = bench.scratch().kind();
    let lines = watched(&bench, ask.is_stopped.as_ref(), || all(&bench, &ask.only, tell.as_ref()))?;
    Ok(Report { store, seed: ask.seed, lines, duration: started.elapsed() })
}

/// Runs `work`, while the scratch store is kept alive and signals are looked for.
fn watched<T: Send>(
    bench: &Bench,
    is_stopped: &(dyn Fn() -> bool + Send + Sync),
    work: impl FnOnce() -> Result<T, Trouble> + Send,
) -> Result<T, Trouble> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut beat = Instant::now();
            while !over.load(Ordering::Relaxed) {
                if is_stopped() {
                    bench.stop();
                }
                if beat.elapsed() >= BEAT {
                    bench.scratch().beat();
                    beat = Instant::now();
                }
                sleep(Duration::from_millis(20));
            }
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// All guarantees that were asked for, some at once; those for the end when the others are through.
fn all(
    bench: &Bench,
    only: &[&'static Guarantee],
    tell: &(dyn Fn(Progress<'_>) + Send + Sync),
) -> Result<Vec<Line>, Trouble> {
    let last = |guarantee: &&&'static Guarantee| matches!(guarantee.shown, Shown::AtTheEnd(_));
    let mut order: Vec<&'static Guarantee> = only.iter().filter(|it| !last(it)).copied().collect();
    // The longest first: what is left at the end is short.
    order.sort_by_key(|guarantee| !["G4", "G9", "G17"].contains(&guarantee.id));
    let mut lines = pool(bench, &order, tell)?;
    let order: Vec<&'static Guarantee> = only.iter().filter(last).copied().collect();
    lines.extend(pool(bench, &order, tell)?);
    let place = |id: &str| catalogue::ALL.iter().position(|guarantee| guarantee.id == id);
    lines.sort_by_key(|line| place(line.id));
    Ok(lines)
}

fn pool(
    bench: &Bench,
    order: &[&'static Guarantee],
    tell: &(dyn Fn(Progress<'_>) + Send + Sync),
) -> Result<Vec<Line>, Trouble> {
    let next = AtomicUsize::new(0);
    let lines: Mutex<Vec<Result<Line, Trouble>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..LANES.min(order.len()) {
            scope.spawn(|| {
                while let Some(guarantee) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let line = one_guarantee(bench, guarantee);
                    match &line {
                        Ok(line) => tell(Progress::Through(line)),
                        // Nothing that the others find can count any more.
                        Err(_) => bench.stop(),
                    }
                    if let Ok(mut lines) = lines.lock() {
                        lines.push(line);
                    }
                }
            });
        }
    });
    let lines = lines.into_inner().unwrap_or_default();
    let broke = lines.iter().find_map(|line| match line {
        Err(trouble @ (Trouble::Broke(_) | Trouble::Unusable(_))) => Some(trouble.clone()),
        Ok(_) | Err(Trouble::Stopped) => None,
    });
    if let Some(trouble) = broke {
        return Err(trouble);
    }
    let lines: Vec<Line> = lines.into_iter().collect::<Result<_, _>>()?;
    if lines.len() == order.len() {
        Ok(lines)
    } else {
        Err(Trouble::Broke("a guarantee was not shown to its end".to_owned()))
    }
}

/// Shows one guarantee.
///
/// # Errors
/// [`Trouble`].
pub fn one_guarantee(bench: &Bench, guarantee: &Guarantee) -> Result<Line, Trouble> {
    let not_applicable = |why: &str| Line {
        id: guarantee.id,
        title: guarantee.title,
        status: Status::NotApplicable,
        detail: why.to_owned(),
        executions: 0,
        kills: 0,
        rounds: 0,
        duration: Duration::ZERO,
    };
    if let Some(why) = bench.scratch().not_applicable(guarantee.id) {
        return Ok(not_applicable(why));
    }
    let show = match guarantee.shown {
        Shown::By(show) | Shown::AtTheEnd(show) => show,
    };
    // What was inconclusive may only have been unlucky, on a host that was busy for a moment.
    let mut time = 1;
    loop {
        let lab = Lab::new(bench, guarantee.id, time)?;
        match show(&lab) {
            Ok(()) | Err(Halt::Slow) => {}
            Err(halt) => return Err(halt.into()),
        }
        let line = lab.verdict(guarantee.title)?;
        if line.status != Status::Inconclusive || time == TIMES {
            return Ok(line);
        }
        time += 1;
    }
}
