//! Two clocks that are never mixed: the store's, which all hosts share, and this host's own.
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A reading of the **store's** clock: microseconds since the Unix epoch, UTC.
///
/// Leases of other holders are judged by it alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This reading, later by `by`; it stops at the end of the clock.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }

    /// How long after `earlier` this reading is; zero if it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A reading of **this host's** clock that runs in suspend: microseconds since some fixed start.
///
/// Our own lease and every deadline are counted on it; it says nothing to another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// This moment, later by `by`.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long it is from `now` until this moment; zero once it has passed.
    #[must_use]
    pub fn from_now(self, now: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(now.0))
    }
}

fn micros(of: Duration) -> i64 {
    i64::try_from(of.as_micros()).unwrap_or(i64::MAX)
}
