//! What must not grow: memory, descriptors, the log, rows and files (SOA-5). Measured while nothing
//! else goes on, after what is settled was forgotten.
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::verify::scratch::Held;

/// One measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measure {
    /// Since the beginning.
    pub at: Duration,
    /// Operations so far.
    pub operations: u64,
    /// Memory of this process, which holds the store open all the time, in bytes.
    pub memory: u64,
    /// Its descriptors.
    pub descriptors: u64,
    /// The same of the one `ctrlrun run` that lasts as long as the soak.
    pub long_memory: u64,
    /// Its descriptors.
    pub long_descriptors: u64,
    /// What the store holds.
    pub held: Held,
    /// Records that have to be there: that of the long run, and those that may not be forgotten.
    pub rows_due: u64,
    /// Records of operations whose end the store did not let us see: each may be one more.
    pub rows_loose: u64,
    /// Outcomes in the spool.
    pub spooled: u64,
}

impl Measure {
    /// The object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "at_ms": u64::try_from(self.at.as_millis()).unwrap_or(u64::MAX),
            "operations": self.operations,
            "memory_bytes": self.memory,
            "descriptors": self.descriptors,
            "long_run_memory_bytes": self.long_memory,
            "long_run_descriptors": self.long_descriptors,
            "log_bytes": self.held.log,
            "log_is_shared": self.held.log_is_shared,
            "stale_transactions": self.held.stale_transactions,
            "store_bytes": self.held.bytes,
            "connections": self.held.connections,
            "effects": self.held.effects,
            "effects_due": self.rows_due,
            "history": self.held.history,
            "outputs": self.held.outputs,
            "spooled": self.spooled,
        })
    }
}

/// What is held to a bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Of what.
    pub name: &'static str,
    /// The most in the first third.
    pub early: u64,
    /// The most in the last third.
    pub late: u64,
    /// The most that the last third may have.
    pub limit: u64,
}

impl Bound {
    /// Whether it is kept.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.late <= self.limit
    }
}

/// Of these there must be none, from the beginning.
const NONE: [&str; 4] = [
    "outcomes in the spool",
    "records that are not due",
    "stored outputs",
    "transactions left open",
];

/// The fewest measurements that tell whether something grows.
pub const MEASURES_MIN: usize = 6;

/// Holds a run's measurements to their bounds: what the last third has at most may be a fixed allowance
/// more than what the first third had at most, which is what pages and buffers make of chance. What
/// leaks a little with each operation passes it within some thousand.
#[must_use]
pub fn bounds(measures: &[Measure]) -> Vec<Bound> {
    const MIB: u64 = 1 << 20;
    let third = (measures.len() / 3).max(1);
    let bound = |name, allowance: u64, of: &dyn Fn(&Measure) -> u64| {
        let early = measures.iter().take(third).map(of).max().unwrap_or(0);
        let late = measures.iter().rev().take(third).map(of).max().unwrap_or(0);
        // Of what is counted, one more is one too many; what is a size has pages and buffers.
        Bound { name, early, late, limit: early + allowance }
    };
    let mut all = vec![
        bound("memory", 4 * MIB, &|it| it.memory),
        bound("descriptors", 0, &|it| it.descriptors),
        bound("memory of the long run", 2 * MIB, &|it| it.long_memory),
        bound("descriptors of the long run", 0, &|it| it.long_descriptors),
        bound("store", 4 * MIB, &|it| it.held.bytes),
        bound("outcomes in the spool", 0, &|it| it.spooled),
        // What may not be forgotten is known one by one, so that no allowance is needed.
        bound("records that are not due", 0, &|it| {
            it.held.effects.saturating_sub(it.rows_due + it.rows_loose)
        }),
        bound("stored outputs", 0, &|it| {
            it.held.outputs.saturating_sub(it.rows_due + it.rows_loose)
        }),
    ];
    all.push(bound("transactions left open", 0, &|it| it.held.stale_transactions));
    if measures.iter().any(|it| it.held.log.is_some() && !it.held.log_is_shared) {
        all.push(bound("log", 4 * MIB, &|it| it.held.log.unwrap_or(0)));
    }
    for bound in all.iter_mut().filter(|bound| NONE.contains(&bound.name)) {
        bound.limit = 0;
    }
    all
}

/// The resident memory of a process, in bytes; 0 if it cannot be told.
#[must_use]
pub fn memory(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The descriptors of a process; 0 if it cannot be told.
#[must_use]
pub fn descriptors(process: &str) -> u64 {
    entries(Path::new(&format!("/proc/{process}/fd")))
}

/// How many entries a directory has; 0 if there is none.
#[must_use]
pub fn entries(directory: &Path) -> u64 {
    fs::read_dir(directory).map_or(0, |found| u64::try_from(found.count()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(of: impl Fn(u64) -> Measure) -> Vec<Measure> {
        (0..12).map(of).collect()
    }

    fn broken(measures: &[Measure]) -> Vec<&'static str> {
        bounds(measures).into_iter().filter(|it| !it.holds()).map(|it| it.name).collect()
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_flat_passes_and_what_grows_does_not() {
        // SOA-5
        let flat = Measure { memory: 20 * MIB, descriptors: 9, ..Measure::default() };
        assert_eq!(broken(&series(|_| flat)), [""; 0]);
        let warm = |at| Measure { memory: (20 + u64::from(at > 0) * 3) * MIB, ..flat };
        assert_eq!(broken(&series(warm)), [""; 0], "it warms up, and then is flat");
        let memory = |at| Measure { memory: (20 + at) * MIB, ..flat };
        assert_eq!(broken(&series(memory)), ["memory"]);
        let descriptors = |at| Measure { descriptors: 9 + at, ..flat };
        assert_eq!(broken(&series(descriptors)), ["descriptors"]);
        let log = |at| Measure { held: Held { log: Some(at * MIB), ..flat.held }, ..flat };
        assert_eq!(broken(&series(log)), ["log"]);
        let shared = |at| Measure { held: Held { log_is_shared: true, ..log(at).held }, ..flat };
        assert_eq!(broken(&series(shared)), [""; 0], "a server keeps as much as it is set to");
        let stale = |at| Measure { held: Held { stale_transactions: at / 8, ..flat.held }, ..flat };
        assert_eq!(broken(&series(stale)), ["transactions left open"]);
        let spool = |_| Measure { spooled: 1, ..flat };
        assert_eq!(broken(&series(spool)), ["outcomes in the spool"]);
    }

    #[test]
    fn a_record_that_nobody_can_account_for_breaks_its_bound_at_once() {
        // SOA-5
        let rows = |effects, rows_due| Measure {
            rows_due,
            held: Held { effects, ..Held::default() },
            ..Measure::default()
        };
        assert_eq!(broken(&series(|at| rows(1 + at, 1 + at))), [""; 0], "all of them are due");
        assert_eq!(broken(&series(|at| rows(2 + at, 1 + at))), ["records that are not due"]);
    }
}
