//! The store of the model: the rows of one key, and one verb performed on them, well or not.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctrlrun::plan::effect::{Event, HistoryRow, Record};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::Input;
use ctrlrun::plan::protocol::Step;
use ctrlrun::plan::time::Timestamp;
use ctrlrun::store::{
    Append, Ask, Captured, CouldNot, Cut, End, Filter, Flow, Found, Identity, Listed, Pruned,
    Reason, Stats, Store, Stream, Walked,
};

use crate::verify::broken::{Break, Broken, Memory};

/// What is stored of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rows {
    pub record: Option<Record>,
    pub history: Vec<HistoryRow>,
    pub floor: u64,
}

impl Rows {
    fn found(&self, ask: Ask, now: Timestamp) -> Found {
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
        let (record, event) = (self.record.clone(), event.cloned());
        Found { record, now, attempt_floor: self.floor, event }
    }

    /// Whether an append's condition holds (CMT-2). One whose condition fails now fails for ever:
    /// no `write_id` comes round again, and forgetting a key raises the floor.
    pub fn lets(&self, append: &Append) -> bool {
        match (&append.found, &self.record) {
            (None, None) => append.attempt_floor == self.floor,
            (Some(found), Some(record)) => {
                (found.revision, found.write_id) == (record.revision, record.write_id)
            }
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// The row and its history, in one transaction.
    pub fn append(&mut self, append: &Append) -> End {
        if !self.lets(append) {
            return End::Refused;
        }
        let taken = |row: &HistoryRow| self.history.iter().any(|it| it.revision == row.revision);
        if append.history.iter().any(taken) {
            return End::NotCommitted(why(Reason::Damaged));
        }
        self.record = Some(append.next.clone());
        self.history.extend(append.history.iter().cloned());
        End::Landed
    }

    /// The key is forgotten, and no number of it comes round again (OPS-5). `by_hand`: only its
    /// attempts' numbers do not.
    pub fn forget(&mut self, by_hand: bool) {
        let last = self
            .record
            .as_ref()
            .map_or(0, |record| if by_hand { record.attempt } else { record.revision });
        *self = Self { floor: self.floor.max(last), ..Self::default() };
    }
}

/// How an exchange with the store goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    /// As it should.
    Well,
    /// It fails, and nothing was committed.
    Fails,
    /// A write that lands, and its answer is lost.
    LandsUnseen,
    /// A write that does not land, and its answer is lost.
    Lost,
    /// A write that matches no row, whatever stands there, as of a trigger that swallows it.
    Swallowed,
    /// A write whose answer is lost, and which may land at any later time.
    LandsLater,
}

/// One exchange with the rows of a key.
#[derive(Debug)]
pub struct Exchange {
    /// The rows, if they have changed.
    pub rows: Option<Rows>,
    pub input: Input,
    pub memory: Memory,
    /// The write that may still land.
    pub later: Option<Append>,
}

/// Performs `step`, by way of the store that is broken as `breaks` says.
pub fn exchange(
    key: &Key,
    rows: &Arc<Rows>,
    now: Timestamp,
    step: &Step,
    how: How,
    fresh: ctrlrun::plan::effect::WriteId,
    breaks: Option<(Break, Memory)>,
) -> Exchange {
    let inside = Inside { rows: Arc::clone(rows), how: Some(how), later: None };
    let shelf = Arc::new(Shelf { now, inside: Mutex::new(inside) });
    let perform = |store: &dyn Store| match step {
        Step::Load { ask, within } => Input::Loaded(store.load(key, *ask, *within), fresh),
        Step::Append { append, within } => Input::Ended(store.append(append, *within)),
        Step::Reread { ask, within } => Input::Reread(store.reread(key, *ask, *within)),
        Step::Draw | Step::Pause(_) | Step::Done(_) => Input::Paused,
    };
    let (input, memory) = match breaks {
        None => (perform(&*shelf), Memory::default()),
        Some((how, memory)) => {
            let memory = Arc::new(Mutex::new(memory));
            let broken = Broken::new(Arc::clone(&shelf) as _, how, Arc::clone(&memory));
            let input = perform(&broken);
            let memory = memory.lock().unwrap_or_else(PoisonError::into_inner).clone();
            (input, memory)
        }
    };
    let inside = std::mem::take(&mut *shelf.inside());
    let changed = !Arc::ptr_eq(&inside.rows, rows);
    let rows = changed.then(|| Arc::unwrap_or_clone(inside.rows));
    Exchange { rows, input, memory, later: inside.later }
}

/// The rows as a store. The fault falls on the first call.
struct Shelf {
    now: Timestamp,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    rows: Arc<Rows>,
    how: Option<How>,
    later: Option<Append>,
}

impl Inside {
    fn append(&mut self, append: &Append) -> End {
        if !self.rows.lets(append) {
            return End::Refused;
        }
        Arc::make_mut(&mut self.rows).append(append)
    }
}

impl Shelf {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, ask: Ask) -> Result<Found, CouldNot> {
        let mut inside = self.inside();
        match inside.how.take() {
            None | Some(How::Well) => Ok(inside.rows.found(ask, self.now)),
            Some(_) => Err(why(Reason::Busy)),
        }
    }
}

impl Store for Shelf {
    fn runs(&self) -> &dyn ctrlrun::store::Runs {
        panic!("the model is of effects: no run is asked for")
    }

    fn load(&self, _: &Key, ask: Ask, _: Duration) -> Result<Found, CouldNot> {
        self.read(ask)
    }

    fn append(&self, append: &Append, _: Duration) -> End {
        let mut inside = self.inside();
        match inside.how.take() {
            None | Some(How::Well) => inside.append(append),
            Some(How::Swallowed) => End::Refused,
            Some(How::Fails) => End::NotCommitted(why(Reason::Busy)),
            Some(How::Lost) => End::Unknown(why(Reason::Unreachable)),
            Some(How::LandsUnseen) => match inside.append(append) {
                End::Landed | End::Refused | End::NotCommitted(_) | End::Unknown(_) => {
                    End::Unknown(why(Reason::Unreachable))
                }
            },
            Some(How::LandsLater) => {
                inside.later = Some(append.clone());
                End::Unknown(why(Reason::Unreachable))
            }
        }
    }

    fn reread(&self, _: &Key, ask: Ask, _: Duration) -> Result<Found, CouldNot> {
        self.read(ask)
    }

    fn list(
        &self,
        _: &Filter,
        _: &mut dyn FnMut(Listed) -> Flow,
        _: Duration,
    ) -> Result<(), CouldNot> {
        Ok(())
    }

    fn history(&self, _: &Key, _: u64, _: Duration) -> Result<Vec<HistoryRow>, CouldNot> {
        Ok(self.inside().rows.history.clone())
    }

    fn output(
        &self,
        _: &Key,
        _: u64,
        _: Stream,
        _: Duration,
    ) -> Result<Option<Captured>, CouldNot> {
        Ok(None)
    }

    fn walk(
        &self,
        _: &Filter,
        _: &mut dyn FnMut(Walked) -> Flow,
        _: Duration,
    ) -> Result<(), CouldNot> {
        Ok(())
    }

    fn prune(&self, _: &Cut, _: Duration) -> Pruned {
        Pruned::NotCommitted(why(Reason::Unfit))
    }

    fn stats(&self, _: Duration) -> Result<Stats, CouldNot> {
        Ok(Stats::default())
    }

    fn identity(&self) -> &Identity {
        static IDENTITY: Identity = Identity {
            store_id: uuid::Uuid::nil(),
            schema_version: 1,
            scratch: true,
            place: String::new(),
        };
        &IDENTITY
    }
}

fn why(reason: Reason) -> CouldNot {
    CouldNot { reason, message: "as the model has it".to_owned(), hint: None }
}
