//! Many seeds, on as many threads as there are processors.
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{available_parallelism, scope};

use crate::verify::broken::Break;
use crate::world::{Came, Tally, live};

/// What many came to: all that came about in them, and the first seed that went wrong.
#[derive(Debug, Default)]
pub struct Many {
    pub tally: Tally,
    pub wrong: Option<Came>,
}

/// Lives the worlds of `seeds`, up to the first that goes wrong.
pub fn many(seeds: std::ops::Range<u64>, breaks: Option<Break>) -> Many {
    let next = AtomicU64::new(seeds.start);
    let many = Mutex::new(Many::default());
    let threads = available_parallelism().map_or(2, usize::from).min(8);
    scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let came = one(seed, breaks);
                    let mut many = many.lock().unwrap();
                    many.tally.add(&came.tally);
                    let first = many.wrong.as_ref().is_none_or(|wrong| seed < wrong.seed);
                    if !came.failures.is_empty() && first {
                        // Those that are under way may have a smaller seed; none is begun any more.
                        next.store(seeds.end, Ordering::Relaxed);
                        many.wrong = Some(came);
                    }
                }
            });
        }
    });
    many.into_inner().unwrap()
}

/// Lives the world of one seed, with files in memory where there is such a place: they are synced,
/// and no power fails here.
pub fn one(seed: u64, breaks: Option<Break>) -> Came {
    let place = ["/dev/shm", "/tmp"].map(PathBuf::from);
    let place = place.into_iter().find(|dir| fs::metadata(dir).is_ok()).unwrap_or_default();
    let dir = tempfile::Builder::new().prefix("ctrlrun-sim-").tempdir_in(place).unwrap();
    live(seed, breaks, dir.path())
}

impl Tally {
    fn add(&mut self, other: &Self) {
        for (ours, (_, times)) in self.each().into_iter().zip(other.named()) {
            *ours += times;
        }
    }

    fn each(&mut self) -> [&mut u64; 14] {
        [
            &mut self.executions,
            &mut self.kills,
            &mut self.freezes,
            &mut self.faults,
            &mut self.spooled,
            &mut self.delivered,
            &mut self.committed,
            &mut self.failed,
            &mut self.ambiguous,
            &mut self.second_executions,
            &mut self.renewals,
            &mut self.late,
            &mut self.decisions,
            &mut self.forgotten,
        ]
    }

    /// Each of them, with its name.
    pub fn named(&self) -> [(&'static str, u64); 14] {
        [
            ("executions", self.executions),
            ("kills", self.kills),
            ("freezes", self.freezes),
            ("faults", self.faults),
            ("spooled", self.spooled),
            ("delivered", self.delivered),
            ("committed", self.committed),
            ("failed", self.failed),
            ("ambiguous", self.ambiguous),
            ("second executions", self.second_executions),
            ("renewals", self.renewals),
            ("late outcomes", self.late),
            ("decisions", self.decisions),
            ("forgotten", self.forgotten),
        ]
    }
}
