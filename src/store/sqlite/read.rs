//! What is read for one key: one statement, so that row, floor and event are of one moment (STO-1).
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, ToSql, params};
use uuid::Uuid;

use super::error::Fault;
use super::schema;
use crate::plan::effect::HistoryRow;
use crate::plan::key::Key;
use crate::plan::protocol::{Ask, Captured, Found, Stream};
use crate::plan::time::Timestamp;
use crate::store::columns::{RECORD_COLUMNS, event_columns, record_columns};
use crate::store::row::{EventRow, Malformed, Row, natural, stream_name};

/// The row alone: what a run without mishap loads, and it loads three times.
const LOAD_ROW: &str = concat!(
    "SELECT s.schema_version, s.attempt_floor, ",
    record_columns!(),
    " FROM store s LEFT JOIN effects e ON e.effect_key=?1"
);

/// `?2` names the event that is wanted, `?3` what tells it. One text for every kind of event, so
/// that one process prepares it once.
const LOAD: &str = concat!(
    "SELECT s.schema_version, s.attempt_floor, ",
    record_columns!(),
    ", ",
    event_columns!(),
    " FROM store s
      LEFT JOIN effects e ON e.effect_key=?1
      LEFT JOIN history h ON h.effect_key=?1 AND h.revision=CASE ?2
        WHEN 1 THEN ?3
        WHEN 2 THEN e.record_version
        WHEN 3 THEN (SELECT revision FROM history
                     WHERE effect_key=?1 AND attempt=?3 AND type='began'
                     ORDER BY revision DESC LIMIT 1)
        WHEN 4 THEN (SELECT revision FROM history WHERE effect_key=?1 AND outcome_id=?3 LIMIT 1)
        WHEN 5 THEN (SELECT revision FROM history
                     WHERE effect_key=?1
                       AND type NOT IN ('late_outcome','probed','lease_renewed')
                     ORDER BY revision DESC LIMIT 1)
      END"
);

/// The row of `key`, the floor, the event that `ask` names, and `now`, read after the row.
///
/// # Errors
/// SQLite's; [`Malformed`] for what cannot be read; an unknown schema version.
pub fn load(
    connection: &Connection,
    key: &Key,
    ask: Ask,
    place: &str,
    now: fn() -> Timestamp,
) -> Result<Found, Fault> {
    let which = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let (kind, told): (i64, Box<dyn ToSql>) = match ask {
        Ask::Nothing => (0, Box::new(rusqlite::types::Null)),
        Ask::Revision(revision) => (1, Box::new(which(revision))),
        Ask::Last => (2, Box::new(rusqlite::types::Null)),
        Ask::Began(attempt) => (3, Box::new(which(attempt))),
        Ask::Outcome(id) => (4, Box::new(id.0.as_bytes().to_vec())),
        Ask::LastChange => (5, Box::new(rusqlite::types::Null)),
    };
    let alone = ask == Ask::Nothing;
    let mut statement = connection.prepare_cached(if alone { LOAD_ROW } else { LOAD })?;
    let mut rows = if alone {
        statement.query(params![key.as_str()])?
    } else {
        statement.query(params![key.as_str(), kind, told])?
    };
    let Some(row) = rows.next()? else {
        return Err(Malformed::new("store_id", "the store has lost its row").into());
    };
    let mut cells = Cells::new(row, 0);
    schema::check(cells.int("schema_version")?, place, "ctrlrun init --upgrade")?;
    let attempt_floor = natural("attempt_floor", cells.int("attempt_floor")?)?;
    let record = match cells.is_null() {
        true => None,
        false => Some(cells.record()?.record()?),
    };
    let event = if alone {
        None
    } else {
        let mut cells = Cells::new(row, 2 + RECORD_COLUMNS);
        match cells.is_null() {
            true => None,
            false => Some(cells.event()?.event()?),
        }
    };
    Ok(Found { record, now: now(), attempt_floor, event })
}

/// The history of `key` from revision `from` on.
///
/// # Errors
/// SQLite's; [`Malformed`].
pub fn history(connection: &Connection, key: &Key, from: u64) -> Result<Vec<HistoryRow>, Fault> {
    let from = i64::try_from(from).unwrap_or(i64::MAX);
    let mut statement = prepared(
        connection,
        concat!(
            "SELECT ",
            event_columns!(),
            " FROM history h WHERE h.effect_key=?1 AND h.revision>=?2 ORDER BY h.revision"
        ),
    )?;
    let mut rows = statement.query(params![key.as_str(), from])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(Cells::new(row, 0).event()?.event()?);
    }
    Ok(events)
}

/// What is stored of one stream of one attempt.
///
/// # Errors
/// SQLite's; [`Malformed`].
pub fn output(
    connection: &Connection,
    key: &Key,
    attempt: u64,
    stream: Stream,
) -> Result<Option<Captured>, Fault> {
    let attempt = i64::try_from(attempt).unwrap_or(i64::MAX);
    let mut statement = prepared(
        connection,
        "SELECT head, tail, bytes, whole FROM output WHERE effect_key=?1 AND attempt=?2 AND stream=?3",
    )?;
    let found = statement
        .query_row(params![key.as_str(), attempt, stream_name(stream)], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((head, tail, bytes, whole)) = found else {
        return Ok(None);
    };
    Ok(Some(Captured { head, tail, bytes: natural("bytes", bytes)?, whole }))
}

fn prepared<'a>(connection: &'a Connection, sql: &str) -> Result<CachedStatement<'a>, Fault> {
    Ok(connection.prepare_cached(sql)?)
}

/// The cells of a row, read one after the other; a cell of another kind than its column is named.
pub struct Cells<'row> {
    row: &'row rusqlite::Row<'row>,
    at: usize,
}

impl<'row> Cells<'row> {
    /// The cells of `row`, from number `at` on.
    pub fn new(row: &'row rusqlite::Row<'row>, at: usize) -> Self {
        Self { row, at }
    }

    /// Whether the next cell is null; it is not passed.
    pub fn is_null(&self) -> bool {
        matches!(self.row.get_ref(self.at), Ok(ValueRef::Null) | Err(_))
    }

    fn next(&mut self, column: &'static str) -> Result<ValueRef<'row>, Malformed> {
        let cell =
            self.row.get_ref(self.at).map_err(|error| Malformed::new(column, error.to_string()))?;
        self.at += 1;
        Ok(cell)
    }

    /// A number or null.
    pub fn int_or_null(&mut self, column: &'static str) -> Result<Option<i64>, Malformed> {
        match self.next(column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(value) => Ok(Some(value)),
            ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => {
                Err(Malformed::new(column, "not a number"))
            }
        }
    }

    /// A number.
    pub fn int(&mut self, column: &'static str) -> Result<i64, Malformed> {
        let value = self.int_or_null(column)?;
        value.ok_or_else(|| Malformed::new(column, "null"))
    }

    /// A flag.
    pub fn flag(&mut self, column: &'static str) -> Result<bool, Malformed> {
        match self.int(column)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed::new(column, format!("{other} is no flag"))),
        }
    }

    /// Text or null.
    pub fn text_or_null(&mut self, column: &'static str) -> Result<Option<String>, Malformed> {
        match self.next(column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text.to_owned())),
                Err(error) => Err(Malformed::new(column, error.to_string())),
            },
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => {
                Err(Malformed::new(column, "not text"))
            }
        }
    }

    /// Text.
    pub fn text(&mut self, column: &'static str) -> Result<String, Malformed> {
        let value = self.text_or_null(column)?;
        value.ok_or_else(|| Malformed::new(column, "null"))
    }

    /// So many bytes.
    pub fn bytes<const N: usize>(&mut self, column: &'static str) -> Result<[u8; N], Malformed> {
        match self.next(column)? {
            ValueRef::Blob(bytes) => {
                bytes.try_into().map_err(|_| Malformed::new(column, format!("not {N} bytes")))
            }
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) => {
                Err(Malformed::new(column, format!("not {N} bytes")))
            }
        }
    }

    /// Sixteen bytes.
    pub fn id(&mut self, column: &'static str) -> Result<Uuid, Malformed> {
        self.bytes(column).map(Uuid::from_bytes)
    }

    /// Sixteen bytes or null.
    pub fn id_or_null(&mut self, column: &'static str) -> Result<Option<Uuid>, Malformed> {
        if self.is_null() {
            self.at += 1;
            return Ok(None);
        }
        self.id(column).map(Some)
    }

    /// The columns of a record.
    pub fn record(&mut self) -> Result<Row, Malformed> {
        Ok(Row {
            effect_key: self.text("effect_key")?,
            record_version: self.int("record_version")?,
            write_id: self.id("write_id")?,
            reservation_id: self.id("reservation_id")?,
            state: self.text("state")?,
            first_attempt: self.int("first_attempt")?,
            attempt: self.int("attempt")?,
            attempt_id: self.text("attempt_id")?,
            fingerprint: self.bytes("fingerprint")?,
            program: self.text("program")?,
            arguments: self.int("arguments")?,
            command: self.text_or_null("command")?,
            lease_expires_at: self.int_or_null("lease_expires_at")?,
            cause: self.text_or_null("cause")?,
            reaped: self.flag("reaped")?,
            in_doubt: self.flag("in_doubt")?,
            doubted: self.flag("doubted")?,
            exit_code: self.int_or_null("exit_code")?,
            signal: self.int_or_null("signal")?,
            detail: self.text_or_null("detail")?,
            resolved_by: self.text_or_null("resolved_by")?,
            reason: self.text_or_null("reason")?,
            proven_failures: self.int("proven_failures")?,
            run_id: self.text_or_null("run_id")?,
            created_at: self.int("created_at")?,
            updated_at: self.int("updated_at")?,
        })
    }

    /// The columns of an event.
    pub fn event(&mut self) -> Result<EventRow, Malformed> {
        Ok(EventRow {
            revision: self.int("revision")?,
            write_id: self.id("write_id")?,
            outcome_id: self.id_or_null("outcome_id")?,
            kind: self.text("type")?,
            attempt: self.int("attempt")?,
            recorded_at: self.int("recorded_at")?,
            data: self.text("data")?,
        })
    }
}
