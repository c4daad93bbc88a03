//! The cells of a row, read one after the other; a cell of another kind than its column is named.
use tokio_postgres::Row as Cellar;
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use crate::store::row::{EventRow, Malformed, Row};

/// The cells of a row, from some number on.
pub struct Cells<'row> {
    row: &'row Cellar,
    at: usize,
}

impl<'row> Cells<'row> {
    /// The cells of `row`, from number `at` on.
    pub fn new(row: &'row Cellar, at: usize) -> Self {
        Self { row, at }
    }

    /// A value or null.
    pub fn or_null<T: FromSql<'row>>(
        &mut self,
        column: &'static str,
    ) -> Result<Option<T>, Malformed> {
        let cell = self.row.try_get::<_, Option<T>>(self.at);
        self.at += 1;
        cell.map_err(|error| Malformed::new(column, error.to_string()))
    }

    /// A value.
    pub fn get<T: FromSql<'row>>(&mut self, column: &'static str) -> Result<T, Malformed> {
        self.or_null(column)?.ok_or_else(|| Malformed::new(column, "null"))
    }

    /// Whether the next cell is null, as the first of an outer join's is where there is no row, or was
    /// not asked for. Then so many columns are passed.
    fn absent(&mut self, columns: usize) -> bool {
        let absent = self.at >= self.row.len()
            || matches!(self.row.try_get::<_, Option<Anything>>(self.at), Ok(None));
        if absent {
            self.at += columns;
        }
        absent
    }

    /// Sixteen bytes.
    pub fn id(&mut self, column: &'static str) -> Result<Uuid, Malformed> {
        self.bytes(column).map(Uuid::from_bytes)
    }

    /// So many bytes.
    pub fn bytes<const N: usize>(&mut self, column: &'static str) -> Result<[u8; N], Malformed> {
        let bytes: &[u8] = self.get(column)?;
        bytes.try_into().map_err(|_| Malformed::new(column, format!("not {N} bytes")))
    }

    /// Sixteen bytes or null.
    pub fn id_or_null(&mut self, column: &'static str) -> Result<Option<Uuid>, Malformed> {
        let bytes = self.or_null::<&[u8]>(column)?;
        let id =
            |bytes| Uuid::from_slice(bytes).map_err(|_| Malformed::new(column, "not 16 bytes"));
        bytes.map(id).transpose()
    }

    /// The columns of a record; `None` where there is none.
    pub fn record(&mut self) -> Result<Option<Row>, Malformed> {
        if self.absent(crate::store::columns::RECORD_COLUMNS) {
            return Ok(None);
        }
        Ok(Some(Row {
            effect_key: self.get("effect_key")?,
            record_version: self.get("record_version")?,
            write_id: self.id("write_id")?,
            reservation_id: self.id("reservation_id")?,
            state: self.get("state")?,
            first_attempt: self.get("first_attempt")?,
            attempt: self.get("attempt")?,
            attempt_id: self.get("attempt_id")?,
            fingerprint: self.bytes("fingerprint")?,
            program: self.get("program")?,
            arguments: self.get("arguments")?,
            command: self.or_null("command")?,
            lease_expires_at: self.or_null("lease_expires_at")?,
            cause: self.or_null("cause")?,
            reaped: self.get("reaped")?,
            in_doubt: self.get("in_doubt")?,
            doubted: self.get("doubted")?,
            exit_code: self.or_null("exit_code")?,
            signal: self.or_null("signal")?,
            detail: self.or_null("detail")?,
            resolved_by: self.or_null("resolved_by")?,
            reason: self.or_null("reason")?,
            proven_failures: self.get("proven_failures")?,
            run_id: self.or_null("run_id")?,
            created_at: self.get("created_at")?,
            updated_at: self.get("updated_at")?,
        }))
    }

    /// The columns of an event; `None` where there is none.
    pub fn event(&mut self) -> Result<Option<EventRow>, Malformed> {
        if self.absent(crate::store::columns::EVENT_COLUMNS) {
            return Ok(None);
        }
        Ok(Some(EventRow {
            revision: self.get("revision")?,
            write_id: self.id("write_id")?,
            outcome_id: self.id_or_null("outcome_id")?,
            kind: self.get("type")?,
            attempt: self.get("attempt")?,
            recorded_at: self.get("recorded_at")?,
            data: self.get("data")?,
        }))
    }
}

/// A value of whatever kind, when all that matters is that there is one.
struct Anything;

impl FromSql<'_> for Anything {
    fn from_sql(_: &Type, _: &[u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}
