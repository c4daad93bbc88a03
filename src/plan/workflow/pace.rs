//! When a tick that lost a race is tried again, and when a run that only loses is ended (WFL-13,
//! WFL-14).
use std::time::Duration;

use super::append::Wakeup;
use super::names::RunId;
use super::types::Run;
use crate::plan::effect::WriteId;
use crate::plan::time::Timestamp;

/// The schedule of a coordinator, as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    /// The pause before each further try in this process, each from freshly loaded state.
    pub again: Vec<Duration>,
    /// The pause of the first requeue; it doubles.
    pub requeue_first: Duration,
    /// The longest pause of a requeue.
    pub requeue_max: Duration,
    /// After so many requeues without progress the run is ended by force.
    pub requeues_max: u32,
    /// A run that should move and has not for so long is looked after by the watchdog.
    pub stuck_after: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            again: [0, 10, 20, 40, 1_000].map(Duration::from_millis).to_vec(),
            requeue_first: Duration::from_millis(100),
            requeue_max: Duration::from_secs(10),
            requeues_max: 20,
            stuck_after: Duration::from_secs(5 * 60),
        }
    }
}

/// What becomes of the wakeups whose tick lost every race.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requeue {
    /// This stands instead of them.
    Later(Wakeup),
    /// The run has not progressed through all its requeues: it is to be ended by force.
    Livelock {
        /// Its `last_transition_seq`, at which it still stands.
        since_seq: u64,
        /// How often it was requeued.
        count: u32,
    },
}

/// What becomes of `wakeups`. `seen` is what the last load found of the run; the count goes on only
/// where it stands at the sequence number at which the count began.
#[must_use]
pub fn requeue(
    pace: &Pace,
    wakeups: &[Wakeup],
    seen: Seen,
    put_id: WriteId,
    run: &RunId,
) -> Requeue {
    let counts = wakeups.iter().filter(|wakeup| wakeup.since_seq == seen.seq);
    let before = counts.map(|wakeup| wakeup.count).max().unwrap_or(0);
    if before >= pace.requeues_max {
        return Requeue::Livelock { since_seq: seen.seq, count: before };
    }
    let pause =
        pace.requeue_first.saturating_mul(2_u32.saturating_pow(before)).min(pace.requeue_max);
    let count = before.saturating_add(1);
    Requeue::Later(Wakeup {
        key: format!("{run}/{}/{count}", seen.revision),
        put_id,
        run: run.clone(),
        due: seen.now.plus(pause),
        count,
        since_seq: seen.seq,
    })
}

/// What a load found of a run, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its `record_version`.
    pub revision: u64,
    /// Its `last_transition_seq`.
    pub seq: u64,
    /// The store's clock.
    pub now: Timestamp,
}

impl Seen {
    /// Of a run that was loaded at `now`.
    #[must_use]
    pub fn of(run: &Run, now: Timestamp) -> Self {
        Self { revision: run.revision, seq: run.last_transition_seq, now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn run() -> RunId {
        RunId::new("r").unwrap()
    }

    fn put_id() -> WriteId {
        WriteId(Uuid::from_u128(1))
    }

    fn wakeup(count: u32, since_seq: u64) -> Wakeup {
        let key = "r/a/3".to_owned();
        Wakeup { key, put_id: put_id(), run: run(), due: Timestamp(0), count, since_seq }
    }

    fn seen(revision: u64, seq: u64) -> Seen {
        Seen { revision, seq, now: Timestamp(1_000_000) }
    }

    #[test]
    fn the_numbers_are_the_documented_ones() {
        // WFL-13, WFL-14
        let pace = Pace::default();
        let again: Vec<u128> = pace.again.iter().map(Duration::as_millis).collect();
        assert_eq!(again, [0, 10, 20, 40, 1_000]);
        let mut wakeup = wakeup(0, 0);
        let mut pauses = Vec::new();
        let mut keys = Vec::new();
        loop {
            match requeue(&pace, &[wakeup], seen(7, 5), put_id(), &run()) {
                Requeue::Later(next) => {
                    pauses.push((next.due.0 - 1_000_000) / 1_000);
                    keys.push(next.key.clone());
                    wakeup = next;
                }
                Requeue::Livelock { since_seq, count } => {
                    assert_eq!((since_seq, count), (5, 20));
                    break;
                }
            }
        }
        assert_eq!(pauses[..8], [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000]);
        assert!(pauses[8..].iter().all(|pause| *pause == 10_000));
        assert_eq!(pauses.len(), 20);
        assert_eq!(keys[..2], ["r/7/1", "r/7/2"]);
    }

    #[test]
    fn progress_by_anybody_starts_the_count_anew() {
        // WFL-14
        let pace = Pace::default();
        let at_the_bound = [wakeup(20, 5), wakeup(3, 5)];
        let livelock = requeue(&pace, &at_the_bound, seen(9, 5), put_id(), &run());
        assert_eq!(livelock, Requeue::Livelock { since_seq: 5, count: 20 });
        let Requeue::Later(next) = requeue(&pace, &at_the_bound, seen(9, 6), put_id(), &run())
        else {
            panic!("it was not started anew");
        };
        assert_eq!((next.count, next.since_seq), (1, 6));
    }
}
