//! Listing, in the order of keys: page by page, each a statement of its own that starts after the
//! last key, so that a slow reader (a pager) holds no snapshot and the log does not grow behind it.
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};

use super::error::Fault;
use super::read::Cells;
use crate::plan::time::Timestamp;
use crate::store::columns::{
    EVENT_COLUMNS, RECORD_COLUMNS, UNSETTLED, event_columns, record_columns,
};
use crate::store::row::{Malformed, natural};
use crate::store::{Filter, Listed, Shown, Sizes};

/// The first page is short, so that the first line comes at once; the others save statements.
const FIRST_PAGE: usize = 32;
const PAGE: usize = 512;

/// Where a listing stands.
pub struct Listing<'a> {
    filter: &'a Filter,
    /// The key to start at or after, as its bytes: it may be one that cannot be read.
    from: Vec<u8>,
    inclusive: bool,
    page: usize,
    over: bool,
}

impl<'a> Listing<'a> {
    /// A listing of what `filter` lets through.
    pub fn new(filter: &'a Filter) -> Self {
        let prefix = filter.prefix.as_deref().unwrap_or("").as_bytes();
        let (from, inclusive) = match filter.after.as_ref().map(|key| key.as_str().as_bytes()) {
            Some(after) if after >= prefix => (after, false),
            Some(_) | None => (prefix, true),
        };
        Self { filter, from: from.to_vec(), inclusive, page: FIRST_PAGE, over: false }
    }

    /// The next page; empty once there is no more.
    ///
    /// # Errors
    /// SQLite's. The listing may then go on from where it stood.
    pub fn next_page(
        &mut self,
        connection: &Connection,
        now: Timestamp,
    ) -> Result<Vec<Listed>, Fault> {
        if self.over {
            return Ok(Vec::new());
        }
        let (sql, values) = self.query(now);
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut page = Vec::new();
        let mut last = None;
        let mut over = false;
        let prefix = self.filter.prefix.as_deref().unwrap_or("").as_bytes();
        while let Some(row) = rows.next()? {
            let key = match row.get_ref(0)? {
                ValueRef::Text(bytes) => bytes.to_vec(),
                ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => {
                    return Err(Malformed::new("effect_key", "not text").into());
                }
            };
            if !key.starts_with(prefix) {
                over = true;
                break;
            }
            // One row that cannot be read does not hide the others (STO-11).
            page.push(match shown(row, now) {
                Ok(shown) => Listed::Record(Box::new(shown)),
                Err(malformed) => Listed::Unreadable {
                    key: String::from_utf8_lossy(&key).into_owned(),
                    why: malformed.to_string(),
                },
            });
            last = Some(key);
        }
        self.over = over || page.len() < self.page || self.filter.key.is_some();
        if let Some(key) = last {
            self.from = key;
            self.inclusive = false;
        }
        self.page = PAGE;
        Ok(page)
    }

    fn query(&self, now: Timestamp) -> (String, Vec<Value>) {
        let filter = self.filter;
        let unsettled = filter.stuck
            || (!filter.states.is_empty()
                && filter.states.iter().all(|state| UNSETTLED.contains(&state.as_str())));
        let mut values = vec![Value::Text(self.from.clone())];
        let mut sql = String::from(concat!(
            "SELECT ",
            record_columns!(),
            ", ",
            event_columns!(),
            ", o.bytes, o.whole, r.bytes, r.whole FROM effects e "
        ));
        if unsettled {
            sql.push_str("INDEXED BY unsettled ");
        }
        // The event first: in a history of a thousand renewals it is the first of its attempt.
        sql.push_str(
            "LEFT JOIN history h ON h.effect_key=e.effect_key AND h.revision=(
               SELECT revision FROM history b
               WHERE b.effect_key=e.effect_key AND b.attempt=e.attempt AND b.type='began'
               ORDER BY b.revision DESC LIMIT 1)
             LEFT JOIN output o
               ON o.effect_key=e.effect_key AND o.attempt=e.attempt AND o.stream='stdout'
             LEFT JOIN output r
               ON r.effect_key=e.effect_key AND r.attempt=e.attempt AND r.stream='stderr' WHERE ",
        );
        sql.push_str(if self.inclusive { "e.effect_key>=?1" } else { "e.effect_key>?1" });
        let mut also = |condition: &str, value: Option<Value>| {
            sql.push_str(" AND ");
            sql.push_str(condition);
            values.extend(value);
        };
        if unsettled {
            // A state that this binary does not know is not settled for it: it is named, not missed.
            also("e.state NOT IN ('committed','failed')", None);
        }
        if filter.stuck {
            also(
                "(e.state NOT IN ('reserved','executing') OR e.lease_expires_at<=?)",
                Some(Value::Integer(now.0)),
            );
        }
        if let Some(key) = &filter.key {
            let key = key.as_str().as_bytes().to_vec();
            also("e.effect_key=?", Some(Value::Text(key)));
        }
        if let Some(age) = filter.older_than {
            let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
            let before = now.0.saturating_sub(age);
            also("e.updated_at<=?", Some(Value::Integer(before)));
        }
        if let Some((first, others)) = filter.states.split_first() {
            let text = |state: &String| Value::Text(state.clone().into_bytes());
            also("(e.state=?", Some(text(first)));
            for state in others {
                sql.push_str(" OR e.state=?");
                values.push(text(state));
            }
            sql.push(')');
        }
        sql.push_str(" ORDER BY e.effect_key LIMIT ");
        sql.push_str(&self.page.to_string());
        (sql, values)
    }
}

fn shown(row: &rusqlite::Row<'_>, now: Timestamp) -> Result<Shown, Malformed> {
    let record = Cells::new(row, 0).record()?.record()?;
    let mut cells = Cells::new(row, RECORD_COLUMNS);
    let began = match cells.is_null() {
        true => None,
        false => Some(cells.event()?.event()?),
    };
    let mut cells = Cells::new(row, RECORD_COLUMNS + EVENT_COLUMNS);
    Ok(Shown { record, now, began, stdout: sizes(&mut cells)?, stderr: sizes(&mut cells)? })
}

fn sizes(cells: &mut Cells<'_>) -> Result<Sizes, Malformed> {
    let bytes = cells.int_or_null("bytes")?;
    let whole = cells.int_or_null("whole")?;
    Ok(Sizes { bytes: natural("bytes", bytes.unwrap_or(0))?, truncated: whole == Some(0) })
}

/// A value of a condition. A key is bound as its bytes: a stored one need not be valid text.
enum Value {
    Integer(i64),
    Text(Vec<u8>),
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Text(bytes) => ValueRef::Text(bytes),
        }))
    }
}
