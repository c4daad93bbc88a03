//! G4: one winner under contention.
//!
//! | part | what happens |
//! |---|---|
//! | `contention` | N processes, released together, want one key |
//! | `points` | the holder is killed at every point of the list; for each the right end is known |
//! | `random` | KILL, STOP and CONT fall by weight, under a seed that repeats |
//!
//! In every round at most one execution of each attempt, and nobody waits for ever.
mod contention;
pub mod points;
mod random;

use super::lab::{Halt, Lab, together};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    together(lab, &[contention::show, points::show, random::show])?;
    lab.note(format!(
        "longest wait {:.1} s of {} s allowed",
        lab.longest().as_secs_f64(),
        lab.bench.bound().as_secs()
    ));
    Ok(())
}
