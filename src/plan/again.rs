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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::effect::{Ending, FailedBy, Record, Request, State, WriteId};
    use crate::plan::key::{Fingerprint, Key};
    use crate::plan::time::Timestamp;
    use uuid::Uuid;

    const BACKOFF: Duration = Duration::from_millis(100);

    fn failed(revision: u64) -> Record {
        Record {
            key: Key::new("k").unwrap(),
            revision,
            write_id: WriteId(Uuid::nil()),
            reservation_id: WriteId(Uuid::nil()),
            state: State::Failed { by: FailedBy::OwnWord },
            first_attempt: 1,
            attempt: 1,
            attempt_id: "a".to_owned(),
            request: Request {
                fingerprint: Fingerprint([0; 32]),
                program: "p".to_owned(),
                arguments: 0,
                command: None,
            },
            in_doubt: false,
            doubted: false,
            proven_failures: 1,
            ending: None,
            resolution: None,
            run_id: None,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
        }
    }

    fn report(result: Outcome, record: Option<Record>) -> Report {
        Report { ran: true, holder: None, result, record, now: None, spooled: None, lost: false }
    }

    fn settled(verdict: Verdict) -> Report {
        report(Outcome::Settled { verdict, ending: Ending::default() }, Some(failed(3)))
    }

    #[test]
    fn it_is_tried_again_so_often_and_no_more_each_time_after_twice_as_long() {
        // EXE-22
        let mut again = Again::new(Moment(0), 2, BACKOFF);
        let retry = |after| Next::Retry { after, expect: StreamState::Revision(3) };
        assert_eq!(again.next(&settled(Verdict::Failed), Moment(0)), retry(BACKOFF));
        assert_eq!(again.next(&settled(Verdict::NeverStarted), Moment(0)), retry(BACKOFF * 2));
        assert_eq!(again.next(&settled(Verdict::Failed), Moment(0)), Next::Stop);
        let mut never = Again::new(Moment(0), 0, BACKOFF);
        assert_eq!(never.next(&settled(Verdict::Failed), Moment(0)), Next::Stop);
    }

    #[test]
    fn nothing_is_tried_again_of_which_it_is_not_known_that_it_did_not_happen() {
        // EXE-22
        let doubt = Verdict::Ambiguous { cause: crate::plan::effect::Cause::Exit, reaped: true };
        for verdict in [doubt, Verdict::Committed] {
            let mut again = Again::new(Moment(0), 9, BACKOFF);
            assert_eq!(again.next(&settled(verdict), Moment(0)), Next::Stop, "{verdict:?}");
        }
        // Nor where nobody knows at which revision it failed.
        let unseen = Outcome::Settled { verdict: Verdict::Failed, ending: Ending::default() };
        let mut again = Again::new(Moment(0), 9, BACKOFF);
        assert_eq!(again.next(&report(unseen, None), Moment(0)), Next::Stop);
    }

    #[test]
    fn another_attempt_is_waited_for_until_the_time_is_over() {
        // EXE-21
        let mut again = Again::new(Moment(60_000), 0, BACKOFF);
        let busy = report(Outcome::Refused(Refusal::InProgress), None);
        let Next::LookAgain(pause) = again.next(&busy, Moment(0)) else { panic!() };
        assert!(!pause.is_zero() && pause <= Duration::from_millis(60));
        let Next::LookAgain(pause) = again.next(&busy, Moment(59_000)) else { panic!() };
        assert_eq!(pause, Duration::from_millis(1), "no longer than what is left");
        assert_eq!(again.next(&busy, Moment(60_000)), Next::Stop);
        let other = report(Outcome::Refused(Refusal::Ambiguous), None);
        assert_eq!(Again::new(Moment(60_000), 0, BACKOFF).next(&other, Moment(0)), Next::Stop);
    }
}
