//! Waiting for a lock: short random pauses until the deadline of the verb (STO-3).
//!
//! SQLite's own busy time-out doubles its pauses, so under contention the one who waited longest
//! looks least often. Pauses drawn at random from a short range keep the worst wait short.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::error::{Fault, is_busy};

/// The longest pause between two looks at a lock.
const PAUSE_MAX: Duration = Duration::from_millis(3);
/// The shortest.
const PAUSE_MIN: Duration = Duration::from_micros(100);

/// Until when a connection may wait for locks. Shared with its busy handler.
#[derive(Debug, Clone)]
pub struct Deadline {
    origin: Instant,
    micros: Arc<AtomicU64>,
}

impl Deadline {
    /// One that has passed.
    pub fn new() -> Self {
        Self { origin: Instant::now(), micros: Arc::default() }
    }

    /// Moves it to `within` from now.
    pub fn set(&self, within: Duration) {
        let at = self.origin.elapsed().saturating_add(within);
        self.micros.store(u64::try_from(at.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What is left of it.
    pub fn left(&self) -> Duration {
        let at = Duration::from_micros(self.micros.load(Ordering::Relaxed));
        at.saturating_sub(self.origin.elapsed())
    }

    /// Whether it has passed.
    pub fn passed(&self) -> bool {
        self.left().is_zero()
    }

    /// Pauses; false if the deadline has passed.
    pub fn pause(&self) -> bool {
        let left = self.left();
        if left.is_zero() {
            return false;
        }
        thread::sleep(pause_length().min(left));
        true
    }

    /// Makes `connection` wait for locks until this deadline, whatever it is set to later.
    pub fn install(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let deadline = self.clone();
        connection.busy_handler(Some(move |_| deadline.pause()))
    }

    /// Performs `attempt`, and again while it is busy, until the deadline: SQLite answers "busy" to
    /// some things without asking the busy handler (a change of the journal mode, a log that is
    /// being recovered).
    pub fn insist<T>(&self, mut attempt: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
        loop {
            match attempt() {
                Err(fault) if is_busy(&fault) && self.pause() => {}
                answer => return answer,
            }
        }
    }
}

fn pause_length() -> Duration {
    // Without randomness the pauses are merely regular.
    let drawn = getrandom::u32().unwrap_or(u32::MAX / 2);
    let range = PAUSE_MAX - PAUSE_MIN;
    PAUSE_MIN + range.mul_f64(f64::from(drawn) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_stay_within_their_range() {
        // STO-3
        for _ in 0..1_000 {
            let pause = pause_length();
            assert!((PAUSE_MIN..=PAUSE_MAX).contains(&pause), "{pause:?}");
        }
    }

    #[test]
    fn a_deadline_that_has_passed_pauses_no_more() {
        let deadline = Deadline::new();
        assert!(deadline.passed() && !deadline.pause());
        deadline.set(Duration::from_secs(9));
        assert!(!deadline.passed() && deadline.pause());
    }
}
