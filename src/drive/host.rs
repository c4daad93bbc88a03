//! What the machines of `plan` may not read by themselves: this host's clock and its random source.
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use uuid::{Builder, Uuid};

use crate::plan::effect::{OutcomeId, WriteId};
use crate::plan::time::Moment;

/// Now, on the clock that runs in suspend (EXE-8).
#[must_use]
pub fn now() -> Moment {
    // CLOCK_BOOTTIME exists on every Linux that this runs on; were it refused, the monotonic clock
    // is the next best, and one of the two is always there.
    let read =
        clock_gettime(ClockId::CLOCK_BOOTTIME).or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC));
    let Ok(at) = read else {
        return Moment(u64::MAX);
    };
    Moment(u64::try_from(Duration::from(at).as_micros()).unwrap_or(u64::MAX))
}

/// Sixteen fresh bytes of the kernel's random source, marked as a random UUID.
///
/// # Panics
/// If the kernel gives no random bytes: without them no write could be told from another.
#[must_use]
pub fn draw() -> Uuid {
    let mut bytes = [0; 16];
    #[expect(clippy::expect_used, reason = "no identity can be drawn without the kernel's help")]
    getrandom::fill(&mut bytes).expect("the kernel's random source answers");
    Builder::from_random_bytes(bytes).into_uuid()
}

/// A fresh identity for one append.
#[must_use]
pub fn write_id() -> WriteId {
    WriteId(draw())
}

/// A fresh identity for what came of one child.
#[must_use]
pub fn outcome_id() -> OutcomeId {
    OutcomeId(draw())
}

/// A random length between nothing and `most`.
#[must_use]
pub fn up_to(most: Duration) -> Duration {
    let (draw, _) = draw().as_u64_pair();
    let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(draw % micros.saturating_add(1))
}
