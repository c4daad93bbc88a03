//! What both kinds of store write twice otherwise: the names of the columns in their order, and what
//! an append writes, as columns.
use super::row::{EventRow, Malformed, Row};
use super::{Append, CouldNot, Reason};
use crate::plan::effect::Record;

/// The record's columns, in the order of [`Row`], of a table that is called `e`.
macro_rules! record_columns {
    () => {
        "e.effect_key, e.record_version, e.write_id, e.reservation_id, e.state, e.first_attempt, \
         e.attempt, e.attempt_id, e.fingerprint, e.program, e.arguments, e.command, \
         e.lease_expires_at, e.cause, e.reaped, e.in_doubt, e.doubted, e.exit_code, e.signal, \
         e.detail, e.resolved_by, e.reason, e.proven_failures, e.run_id, e.created_at, e.updated_at"
    };
}
/// An event's columns, in the order of [`EventRow`], of a table that is called `h`.
macro_rules! event_columns {
    () => {
        "h.revision, h.write_id, h.outcome_id, h.type, h.attempt, h.recorded_at, h.data"
    };
}
pub(super) use {event_columns, record_columns};

/// How many columns a record has.
pub const RECORD_COLUMNS: usize = 26;
/// How many columns an event has.
pub const EVENT_COLUMNS: usize = 7;

/// The states that the partial index holds.
pub const UNSETTLED: [&str; 3] = ["reserved", "executing", "ambiguous"];

/// What is to be written, as columns: made before the transaction begins.
pub struct Columns {
    /// The row.
    pub row: Row,
    /// Its events.
    pub events: Vec<EventRow>,
}

impl Columns {
    /// The columns of what `append` writes.
    ///
    /// # Errors
    /// A record that no store can hold: nothing was written.
    pub fn of(append: &Append) -> Result<Self, CouldNot> {
        Self::read(append).map_err(|malformed| CouldNot {
            reason: Reason::Damaged,
            message: format!("internal: a record that cannot be stored: {malformed}"),
            hint: None,
        })
    }

    fn read(append: &Append) -> Result<Self, Malformed> {
        let history = append.history.iter();
        Ok(Self {
            row: Row::of(&append.next)?,
            events: history.map(EventRow::of).collect::<Result<_, _>>()?,
        })
    }
}

/// Whether everything that an attempt is granted with stands as it was.
pub fn same_attempt(found: &Record, next: &Record) -> bool {
    (found.reservation_id, found.first_attempt, found.attempt, found.created_at)
        == (next.reservation_id, next.first_attempt, next.attempt, next.created_at)
        && found.attempt_id == next.attempt_id
        && found.request == next.request
        && found.run_id == next.run_id
}

/// The time was over before COMMIT: nobody waits for the answer any more, so it must not come to
/// pass behind their back (CMT-14).
pub fn time_over() -> CouldNot {
    CouldNot {
        reason: Reason::Busy,
        message: "the time was over before the write could be committed".to_owned(),
        hint: None,
    }
}

/// A statement that must change one row changed another number of them.
pub fn miscounted(changed: u64) -> CouldNot {
    CouldNot {
        reason: Reason::Damaged,
        message: format!("a write of one row changed {changed} (a trigger?)"),
        hint: None,
    }
}

/// The oldest schema version that this binary reads and writes. What is new in a later one is an
/// error where it is asked for, and nothing else: so the binaries of a fleet are replaced first, host
/// by host, and the schema is moved when all of them know the new one (STO-13).
pub const OLDEST: i64 = 1;

/// Whether a binary that knows the schema's versions up to `newest` may use one of version `found`;
/// `place` and `upgrade` are for the message.
///
/// # Errors
/// [`Reason::Unfit`] (exit 78).
pub fn check_version(found: i64, newest: i64, place: &str, upgrade: &str) -> Result<(), CouldNot> {
    let hint = match (found < OLDEST, found > newest) {
        (false, false) => return Ok(()),
        (_, true) => "use the newer ctrlrun that made it".to_owned(),
        (true, _) => upgrade.to_owned(),
    };
    Err(CouldNot {
        reason: Reason::Unfit,
        message: format!(
            "{place}: its schema has version {found}; this ctrlrun knows versions {OLDEST} to {newest}"
        ),
        hint: Some(hint),
    })
}

/// The schema version in which runs and their queue came.
pub const RUNS_SINCE: i64 = 2;

/// Whether a schema of version `found` has runs and their queue.
///
/// # Errors
/// [`Reason::Unfit`] (exit 78), with the line that moves it.
pub fn check_runs(found: i64, place: &str, upgrade: &str) -> Result<(), CouldNot> {
    if found >= RUNS_SINCE {
        return Ok(());
    }
    Err(CouldNot {
        reason: Reason::Unfit,
        message: format!(
            "{place}: its schema has version {found}; workflows need version {RUNS_SINCE}"
        ),
        hint: Some(upgrade.to_owned()),
    })
}

/// A store's id, drawn anew.
///
/// # Errors
/// The system has no random numbers.
pub fn draw_id() -> Result<uuid::Uuid, CouldNot> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| CouldNot {
        reason: Reason::Unreachable,
        message: format!("no random number for the store's id: {error}"),
        hint: None,
    })?;
    Ok(uuid::Builder::from_random_bytes(id).into_uuid())
}
