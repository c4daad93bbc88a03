//! Whether this process tries once more: waiting for another attempt, and retries after FAILED
//! (EXE-21, EXE-22).
use std::time::Duration;

use super::attempt::{Outcome, Report};
use super::effect::{Refusal, Verdict};
use super::expect::StreamState;
use super::retry::Schedule;
use super::time::Moment;

/// How often a waiting contender looks again, at most.
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(1);

/// How persistent the caller wants this process to be.
#[derive(Debug, Clone)]
pub struct Again {
    wait_until: Moment,
    looks: Schedule,
    retries_left: u32,
    backoff: Duration,
}

/// What to do after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing more: its report is the report.
    Stop,
    /// Another attempt holds the key: look again after this long.
    LookAgain(Duration),
    /// It did not happen: once more after this long, held to our own FAILED.
    Retry {
        /// The pause before it.
        after: Duration,
        /// What the next reserve is held to.
        expect: StreamState,
    },
}

impl Again {
    /// Waits for another attempt until `wait_until`; runs again up to `retries` times after FAILED,
    /// first after `backoff`, then after twice that, and so on.
    #[must_use]
    pub fn new(wait_until: Moment, retries: u32, backoff: Duration) -> Self {
        let looks = Schedule::exponential(Duration::from_millis(50), LOOK_AGAIN_MAX);
        Self { wait_until, looks, retries_left: retries, backoff }
    }

    /// What to do after `report`, at `at`.
    pub fn next(&mut self, report: &Report, at: Moment) -> Next {
        match &report.result {
            Outcome::Refused(Refusal::InProgress) => {
                let left = self.wait_until.from_now(at);
                if left.is_zero() {
                    return Next::Stop;
                }
                Next::LookAgain(self.looks.wait().min(left))
            }
            Outcome::Settled { verdict: Verdict::Failed | Verdict::NeverStarted, .. } => {
                let Some(record) = report.record.as_ref().filter(|_| self.retries_left > 0) else {
                    return Next::Stop;
                };
                self.retries_left -= 1;
                let after = self.backoff;
                self.backoff = self.backoff.saturating_mul(2);
                // Somebody else may have decided about it, or taken it, meanwhile.
                Next::Retry { after, expect: StreamState::Revision(record.revision) }
            }
            // Never after AMBIGUOUS, and never where it is not known that nothing ran.
            Outcome::Settled {
                verdict: Verdict::Committed | Verdict::Ambiguous { .. }, ..
            }
            | Outcome::CommittedAlready
            | Outcome::Refused(_)
            | Outcome::CouldNot(_)
            | Outcome::Unknown(_)
            | Outcome::NotRecorded { .. } => Next::Stop,
        }
    }
}
