//! A row that this process wrote itself a moment ago, in place of a load (BAT-8).
use std::time::Duration;

use super::Found;
use crate::plan::effect::Record;
use crate::plan::time::{Moment, Timestamp};

/// How long it stands for a load.
const FRESH: Duration = Duration::from_secs(5);

/// What this process knows of a row without asking.
///
/// It saves a load, never a check: whatever is decided on it is written on the condition that the row
/// is still there.
#[derive(Debug, Clone)]
pub struct Known {
    record: Record,
    attempt_floor: u64,
    now: Timestamp,
    asked: Moment,
}

impl Known {
    /// After an append of `record` landed, that was decided on a load asked for at `asked`, which
    /// found the store's clock at `now`.
    #[must_use]
    pub fn new(record: Record, attempt_floor: u64, now: Timestamp, asked: Moment) -> Self {
        Self { record, attempt_floor, now, asked }
    }

    /// What a load at `at` may be answered with; `None` where too much time has passed.
    ///
    /// The clock in it is not behind the store's: `now` was read after `asked`, so what has passed since
    /// `asked` is no less than what has passed since `now`. So no lease that is counted from `at` on
    /// our clock outlasts what the store is told of it (EXE-8).
    #[must_use]
    pub fn found(&self, at: Moment) -> Option<Found> {
        let passed = at.from_now(self.asked);
        (passed <= FRESH).then(|| Found {
            record: Some(self.record.clone()),
            now: self.now.plus(passed),
            attempt_floor: self.attempt_floor,
            event: None,
        })
    }
}
