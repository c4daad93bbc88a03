//! Waiting for a condition, within a bound.
use std::time::{Duration, Instant};

/// No condition takes longer, on however busy a machine.
const BOUND: Duration = Duration::from_secs(60);

/// Waits until it is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < BOUND, "never so: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
