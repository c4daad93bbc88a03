//! A store of one key in memory, whose answers can be lost, and which holds every row that lands
//! against what must be true of it.
use std::collections::{BTreeMap, BTreeSet};

use ctrlrun::plan::effect::{Event, HistoryRow, OutcomeId, Record, State, WriteId, evolve};
use ctrlrun::plan::protocol::{
    Append, Ask, CouldNot, Done, End, Found, Handle, Input, Reason, Step,
};
use ctrlrun::plan::time::{Moment, Timestamp};

use crate::plan_common::{key, write_id};

/// What our clock shows when the store's shows nothing.
const OURS_AHEAD: u64 = 7_000_000;

/// How one exchange goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does not.
    None,
    /// Not committed: busy. Of a load or a re-read: it failed.
    Cannot,
    /// It landed, and the answer was lost.
    LostAfter,
    /// It did not land, and the answer was lost.
    LostBefore,
    /// The answer was lost, and it lands when the next append comes.
    LandsLate,
}

/// The store, and the log of what it granted.
#[derive(Debug, Default)]
pub struct World {
    pub record: Option<Record>,
    pub history: Vec<HistoryRow>,
    pub now: i64,
    drawn: u128,
    in_flight: Option<Append>,
    /// To which reservation each number was granted.
    granted: BTreeMap<u64, WriteId>,
    /// Attempts that were AMBIGUOUS at some time, or said late that something may have happened.
    pub doubtful: BTreeSet<u64>,
}

impl World {
    pub fn draw(&mut self) -> WriteId {
        self.drawn += 1;
        write_id(self.drawn)
    }

    /// Our clock: it runs as the store's does, and shows something else.
    pub fn moment(&self) -> Moment {
        ours(Timestamp(self.now))
    }

    /// Performs `machine` to its end; `faults` meet its exchanges one by one, and `meanwhile` is
    /// called before each with its number.
    pub fn drive(
        &mut self,
        machine: &mut Handle,
        faults: &[Fault],
        mut meanwhile: impl FnMut(&mut Self, usize),
    ) -> Done {
        let mut input = Input::Start;
        let mut exchanges = 0;
        loop {
            self.now += 1_000;
            let step = machine.step(input, self.moment());
            if !matches!(step, Step::Pause(_) | Step::Draw | Step::Done(_)) {
                meanwhile(self, exchanges);
            }
            let fault = faults.get(exchanges).copied().unwrap_or(Fault::None);
            self.now += 1_000;
            input = match step {
                Step::Done(done) => return done,
                Step::Pause(_) => {
                    input = Input::Paused;
                    continue;
                }
                Step::Draw => {
                    input = Input::Drawn(self.draw());
                    continue;
                }
                Step::Load { ask, .. } => Input::Loaded(self.read(ask, fault), self.draw()),
                Step::Reread { ask, .. } => Input::Reread(self.read(ask, fault)),
                Step::Append { append, .. } => Input::Ended(self.append(*append, fault)),
            };
            exchanges += 1;
        }
    }

    fn read(&self, ask: Ask, fault: Fault) -> Result<Found, CouldNot> {
        if fault == Fault::Cannot {
            return Err(busy());
        }
        let mut rows = self.history.iter().rev();
        let event = match ask {
            Ask::Nothing => None,
            Ask::Outcome(outcome) => rows.find(|row| row.outcome_id == Some(outcome)),
            Ask::Began(attempt) => {
                rows.find(|row| matches!(row.event, Event::Began(_)) && row.attempt == attempt)
            }
            Ask::Revision(revision) => rows.find(|row| row.revision == revision),
            Ask::Last => rows.next(),
            Ask::LastChange => rows.find(|row| {
                !matches!(
                    row.event,
                    Event::LateOutcome(_) | Event::Probed(_) | Event::LeaseRenewed(_)
                )
            }),
        };
        Ok(Found {
            record: self.record.clone(),
            now: Timestamp(self.now),
            attempt_floor: 0,
            event: event.cloned(),
        })
    }

    fn append(&mut self, append: Append, fault: Fault) -> End {
        self.settle_in_flight();
        match fault {
            Fault::None if self.lands(&append) => End::Landed,
            Fault::None => End::Refused,
            Fault::Cannot => End::NotCommitted(busy()),
            Fault::LostBefore => End::Unknown(busy()),
            Fault::LostAfter => {
                self.lands(&append);
                End::Unknown(busy())
            }
            Fault::LandsLate => {
                self.in_flight = Some(append);
                End::Unknown(busy())
            }
        }
    }

    /// What is on its way lands now, if its condition still holds.
    pub fn settle_in_flight(&mut self) {
        if let Some(append) = self.in_flight.take() {
            self.lands(&append);
        }
    }

    fn lands(&mut self, append: &Append) -> bool {
        let stands = |record: &Record| (record.revision, record.write_id);
        if append.found.as_ref().map(stands) != self.record.as_ref().map(stands) {
            return false;
        }
        for row in &append.history {
            self.event_lands(row, append.next.write_id);
        }
        let next = &append.next;
        assert_eq!(self.record.as_ref(), Some(next), "HIS-2: the fold");
        let failed = matches!(next.state, State::Failed { .. });
        assert!(!(failed && next.in_doubt), "EFF-7: {next:?}");
        true
    }

    fn event_lands(&mut self, row: &HistoryRow, write_id: WriteId) {
        let revision = u64::try_from(self.history.len()).map_or(0, |n| n + 1);
        assert_eq!((row.revision, row.write_id), (revision, write_id), "HIS-1, HIS-3");
        let before = self.record.take();
        let from = before.as_ref().map_or("NEW", |record| name(record.state));
        let next = match evolve(&key(), before, row) {
            Ok(next) => next,
            Err(error) => panic!("{error}"),
        };
        let by = row.event.kind();
        assert!(ALLOWED.contains(&(from, by)), "{from} by {by}: {row:?}");
        if let Event::Reserved(event) = &row.event {
            let twice = self.granted.insert(event.attempt, write_id);
            assert_eq!(twice, None, "EFF-6: {event:?}");
        }
        if let Event::LateOutcome(event) = &row.event
            && event.word.may_have_happened()
        {
            self.doubtful.insert(event.attempt);
        }
        if matches!(next.state, State::Ambiguous { .. }) {
            self.doubtful.insert(next.attempt);
        }
        self.record = Some(next);
        self.history.push(row.clone());
    }

    /// Folds the whole history from nothing.
    pub fn refold(&self) -> Option<Record> {
        self.history.iter().fold(None, |record, row| evolve(&key(), record, row).ok())
    }

    /// How many appends brought this outcome.
    pub fn appends_with(&self, outcome: OutcomeId) -> usize {
        let ids: BTreeSet<WriteId> = self
            .history
            .iter()
            .filter(|row| row.outcome_id == Some(outcome))
            .map(|row| row.write_id)
            .collect();
        ids.len()
    }
}

/// What our clock shows at `at` of the store's.
pub fn ours(at: Timestamp) -> Moment {
    Moment(OURS_AHEAD + u64::try_from(at.0).unwrap_or(0))
}

fn busy() -> CouldNot {
    CouldNot { reason: Reason::Busy, message: "busy".to_owned(), hint: None }
}

pub fn name(state: State) -> &'static str {
    match state {
        State::Reserved { .. } => "RESERVED",
        State::Executing { .. } => "EXECUTING",
        State::Committed { .. } => "COMMITTED",
        State::Failed { .. } => "FAILED",
        State::Ambiguous { .. } => "AMBIGUOUS",
    }
}

/// Which event may meet which state. A new attempt comes after FAILED alone, and out of AMBIGUOUS
/// leads a decision alone.
const ALLOWED: [(&str, &str); 20] = [
    ("NEW", "reserved"),
    ("RESERVED", "began"),
    ("RESERVED", "committed"),
    ("RESERVED", "failed"),
    ("RESERVED", "ambiguated"),
    ("RESERVED", "late_outcome"),
    ("EXECUTING", "lease_renewed"),
    ("EXECUTING", "committed"),
    ("EXECUTING", "failed"),
    ("EXECUTING", "ambiguated"),
    ("EXECUTING", "late_outcome"),
    ("COMMITTED", "late_outcome"),
    ("COMMITTED", "reopened"),
    ("FAILED", "reserved"),
    ("FAILED", "late_outcome"),
    ("FAILED", "ambiguated"),
    ("FAILED", "reopened"),
    ("AMBIGUOUS", "late_outcome"),
    ("AMBIGUOUS", "probed"),
    ("AMBIGUOUS", "resolved"),
];
