//! What every store must do, as plain checks over `&dyn Store` (STO-1).
//!
//! Each check works on keys of its own, so that the suite can run on a store that is in use. It is
//! run on every store, and on a faulty store with no fault planned: the wrapper must be transparent.
mod groups;
mod lists;
mod reads;
mod rows;
pub mod runs;
mod upkeep;
mod writes;

use std::time::Duration;

use uuid::Uuid;

use super::{Append, Ask, Captured, End, Filter, Flow, Found, Listed, Shown, Store, Stream};
use crate::plan::effect::{
    Ambiguated, Began, Cause, Committed, Ending, Event, Failed, FailedBy, HistoryRow, Labels,
    LeaseRenewed, RanOn, Record, Request, Reserved, WriteId, evolve,
};
use crate::plan::key::{Fingerprint, Key};
use crate::plan::protocol::Kept;
use crate::plan::time::Timestamp;

/// One check: what it found wrong, as a sentence.
pub type Check = fn(&dyn Store) -> Result<(), String>;

/// The longest that one exchange of a check may take.
const WITHIN: Duration = Duration::from_secs(20);

/// Every check, with its name, which is the fact that it checks.
#[must_use]
pub fn suite() -> Vec<(&'static str, Check)> {
    [writes::CHECKS, groups::CHECKS, rows::CHECKS, reads::CHECKS, lists::CHECKS, upkeep::CHECKS]
        .concat()
}

/// One check's corner of a store.
struct Lab<'a> {
    store: &'a dyn Store,
    prefix: String,
}

impl<'a> Lab<'a> {
    fn new(store: &'a dyn Store) -> Result<Self, String> {
        let prefix = format!("conformance:{}:", draw()?);
        Ok(Self { store, prefix })
    }

    /// A key that no other check and no other run has.
    fn key(&self, name: &str) -> Result<Key, String> {
        Key::new(format!("{}{name}", self.prefix)).map_err(|error| error.to_string())
    }

    fn load(&self, key: &Key, ask: Ask) -> Result<Found, String> {
        self.store.load(key, ask, WITHIN).map_err(|error| format!("load: {error}"))
    }

    fn record(&self, key: &Key) -> Result<Record, String> {
        let found = self.load(key, Ask::Nothing)?;
        found.record.ok_or_else(|| format!("{key} is not there"))
    }

    fn history(&self, key: &Key) -> Result<Vec<HistoryRow>, String> {
        self.store.history(key, 1, WITHIN).map_err(|error| format!("history: {error}"))
    }

    fn output(&self, key: &Key, attempt: u64, stream: Stream) -> Result<Option<Captured>, String> {
        self.store.output(key, attempt, stream, WITHIN).map_err(|error| format!("output: {error}"))
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Shown>, String> {
        let mut all = Vec::new();
        let mut unreadable = Vec::new();
        let mut each = |listed| {
            match listed {
                Listed::Record(shown) => all.push(*shown),
                Listed::Unreadable { key, why } => unreadable.push(format!("{key}: {why}")),
            }
            Flow::Continue
        };
        self.store.list(filter, &mut each, WITHIN).map_err(|error| format!("list: {error}"))?;
        same(&unreadable, &Vec::new(), "rows that cannot be read")?;
        Ok(all)
    }

    /// Lands `events` on what is there now, and gives the row written.
    fn put(&self, key: &Key, events: &[Event]) -> Result<Record, String> {
        self.put_with(key, events, Vec::new())
    }

    fn put_with(&self, key: &Key, events: &[Event], outputs: Vec<Kept>) -> Result<Record, String> {
        let found = self.load(key, Ask::Nothing)?;
        let mut append = fold(key, &found, events)?;
        append.outputs = outputs;
        land(self.store, &append)?;
        Ok(append.next)
    }

    /// The row, its history and its outputs are as they were told.
    fn holds(&self, key: &Key, record: &Record, events: usize) -> Result<(), String> {
        same(&self.record(key)?, record, "the row")?;
        same(&self.history(key)?.len(), &events, "the number of events")
    }
}

/// The append of `events` on `found`.
fn fold(key: &Key, found: &Found, events: &[Event]) -> Result<Append, String> {
    let write_id = WriteId(draw()?);
    let mut record = found.record.clone();
    let mut history = Vec::new();
    for event in events {
        let revision = record.as_ref().map_or(0, |record| record.revision) + 1;
        let mut row = HistoryRow {
            revision,
            write_id,
            outcome_id: None,
            attempt: 0,
            recorded_at: found.now,
            event: event.clone(),
        };
        let next = evolve(key, record.take(), &row).map_err(|error| error.to_string())?;
        row.attempt = next.attempt;
        history.push(row);
        record = Some(next);
    }
    Ok(Append {
        found: found.record.clone(),
        next: record.ok_or("no events")?,
        history,
        attempt_floor: found.attempt_floor,
        outputs: Vec::new(),
        dispatch: None,
    })
}

fn land(store: &dyn Store, append: &Append) -> Result<(), String> {
    ended(store.append(append, WITHIN), &End::Landed)
}

fn refused(store: &dyn Store, append: &Append) -> Result<(), String> {
    ended(store.append(append, WITHIN), &End::Refused)
}

fn ended(end: End, wanted: &End) -> Result<(), String> {
    same(&end, wanted, "the append's end")
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, wanted: &T, what: &str) -> Result<(), String> {
    if found == wanted {
        Ok(())
    } else {
        Err(format!("{what}: found {found:?}, wanted {wanted:?}"))
    }
}

fn draw() -> Result<Uuid, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}

/// A reservation by `attempt`, with a lease until `lease_expires_at`.
fn reserved(attempt: u64, lease_expires_at: Timestamp) -> Event {
    Event::Reserved(Reserved {
        attempt,
        attempt_id: format!("label-{attempt}"),
        request: Request {
            fingerprint: Fingerprint([0xfe; 32]),
            program: "refund.sh".to_owned(),
            arguments: 2,
            command: None,
        },
        lease_expires_at,
        run_id: None,
    })
}

fn began(lease_expires_at: Timestamp) -> Event {
    Event::Began(Began {
        lease_expires_at,
        ran_on: RanOn {
            host: "web-17".to_owned(),
            pid: 4_121,
            user: "deploy".to_owned(),
            directory: "/srv/\u{e9}".to_owned(),
        },
        labels: Labels::from([("ticket".to_owned(), "OPS-12".to_owned())]),
    })
}

fn renewed(lease_expires_at: Timestamp) -> Event {
    Event::LeaseRenewed(LeaseRenewed { lease_expires_at })
}

fn committed() -> Event {
    Event::Committed(Committed { ending: exited(0) })
}

fn failed(by: FailedBy) -> Event {
    let ending = match by {
        FailedBy::NeverStarted => {
            Ending { detail: "could not be started".to_owned(), ..Ending::default() }
        }
        FailedBy::OwnWord | FailedBy::Person | FailedBy::Probe => exited(11),
    };
    Event::Failed(Failed { by, ending })
}

fn ambiguated(cause: Cause) -> Event {
    let ending = match cause {
        Cause::Exit | Cause::Timeout | Cause::Contradiction => Some(exited(22)),
        Cause::Signal => {
            Some(Ending { exit_code: None, signal: Some(9), detail: "died of signal 9".to_owned() })
        }
        Cause::Lapsed | Cause::LateOutcome | Cause::Reopened => None,
    };
    Event::Ambiguated(Ambiguated { cause, reaped: cause == Cause::Exit, ending })
}

fn exited(code: i32) -> Ending {
    Ending { exit_code: Some(code), signal: None, detail: format!("exited {code}") }
}
