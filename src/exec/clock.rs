//! The clock that leases and time-outs are counted on.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine was started, suspended time included (`CLOCK_BOOTTIME`).
///
/// `Instant` stands still while a laptop sleeps or a virtual machine is suspended; a lease in a
/// store does not, so neither may the clock it is counted on. The reading never goes backwards
/// and is unaffected by setting the wall clock. It means nothing on another machine.
#[must_use]
pub fn boottime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    // The kernel never hands out a negative reading of this clock.
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}
