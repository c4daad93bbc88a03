//! The catalogue against stores that are broken on purpose (VER-9): a check that cannot fail is none.
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ctrlrun::store::Location;

use super::bench::{Bench, Sizes};
use super::broken::Break;
use super::catalogue::named;
use super::report::Status;
use super::{Ask, Trouble, one_guarantee, scratch};

/// Broken stores that are tried at once: they mostly wait for leases to end.
const LANES: usize = 3;

/// Enough to meet, and no more: a broken store fails at once or never.
const SIZES: Sizes = Sizes { processes: 4, rounds: 2 };

/// What came of one broken store.
#[derive(Debug, Clone)]
pub struct Caught {
    /// In which way it is broken.
    pub how: Break,
    /// The guarantees that caught it, and what each said first.
    pub by: Vec<(&'static str, String)>,
    /// Those that should have, and did not: what became of them instead.
    pub missed: Vec<(&'static str, String)>,
    /// How long it took.
    pub duration: Duration,
}

impl Caught {
    /// Whether every guarantee that is named for it has caught it.
    #[must_use]
    pub fn is_caught(&self) -> bool {
        !self.by.is_empty() && self.missed.is_empty()
    }
}

/// Tries the broken stores, each in a scratch store of its own.
///
/// # Errors
/// [`Trouble`].
pub fn run(
    location: &Location,
    binary: &Path,
    ask: &Ask,
    progress: &(dyn Fn(&Caught) + Sync),
) -> Result<Vec<Caught>, Trouble> {
    // Kept to the end: what had to be made above it goes with the last of them.
    let _kept = scratch::make(location).map_err(Trouble::Unusable)?;
    let next = AtomicUsize::new(0);
    let caught: Mutex<Vec<Caught>> = Mutex::default();
    let trouble: Mutex<Option<Trouble>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(how) = Break::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let stopped = trouble.lock().is_ok_and(|trouble| trouble.is_some());
                    if stopped || (ask.is_stopped)() {
                        return;
                    }
                    match one(location, binary, ask, *how) {
                        Ok(one) => {
                            progress(&one);
                            if let Ok(mut caught) = caught.lock() {
                                caught.push(one);
                            }
                        }
                        Err(error) => {
                            if let Ok(mut trouble) = trouble.lock() {
                                trouble.get_or_insert(error);
                            }
                        }
                    }
                }
            });
        }
    });
    if (ask.is_stopped)() {
        return Err(Trouble::Stopped);
    }
    if let Some(trouble) = trouble.into_inner().ok().flatten() {
        return Err(trouble);
    }
    let mut caught = caught.into_inner().unwrap_or_default();
    caught.sort_by_key(|one| Break::ALL.iter().position(|how| *how == one.how));
    Ok(caught)
}

fn one(location: &Location, binary: &Path, ask: &Ask, how: Break) -> Result<Caught, Trouble> {
    let started = Instant::now();
    let made = scratch::make(location).map_err(Trouble::Unusable)?;
    let bench = Bench::new(binary.to_owned(), made.scratch, SIZES, ask.seed, Some(how));
    let (mut by, mut missed) = (Vec::new(), Vec::new());
    for id in how.about().2 {
        let guarantee =
            named(id).ok_or_else(|| Trouble::Broke(format!("{id} is not in the catalogue")))?;
        let line = one_guarantee(&bench, guarantee)?;
        if line.status == Status::Fail {
            let first = line.detail.split("; ").next().unwrap_or("").to_owned();
            by.push((guarantee.id, first));
        } else {
            missed.push((guarantee.id, format!("{}: {}", line.status.verdict(), line.detail)));
        }
    }
    Ok(Caught { how, by, missed, duration: started.elapsed() })
}
