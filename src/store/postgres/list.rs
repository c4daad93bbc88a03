//! Listing, in the order of keys: page by page, each a statement of its own that starts after the
//! last key, so that a slow reader (a pager) holds no snapshot and no connection from a pooler.
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::cells::Cells;
use super::error::Fault;
use super::link::Link;
use super::read::{CLOCK, Param};
use super::schema::Names;
use super::transaction::Deadline;
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
    /// The key to start at or after.
    from: String,
    inclusive: bool,
    page: usize,
    over: bool,
}

impl<'a> Listing<'a> {
    /// A listing of what `filter` lets through.
    pub fn new(filter: &'a Filter) -> Self {
        let prefix = filter.prefix.as_deref().unwrap_or("");
        let (from, inclusive) = match filter.after.as_ref().map(|key| key.as_str()) {
            Some(after) if after.as_bytes() >= prefix.as_bytes() => (after, false),
            Some(_) | None => (prefix, true),
        };
        Self { filter, from: from.to_owned(), inclusive, page: FIRST_PAGE, over: false }
    }

    /// The next page; empty once there is no more.
    ///
    /// # Errors
    /// The link's. The listing may then go on from where it stood.
    pub fn next_page(
        &mut self,
        link: &Link,
        names: &Names,
        deadline: Deadline,
    ) -> Result<Vec<Listed>, Fault> {
        if self.over {
            return Ok(Vec::new());
        }
        let (sql, values) = self.query();
        let params: Vec<Param<'_>> =
            values.iter().map(|(value, kind)| (value.as_ref(), kind.clone())).collect();
        let rows = link.query(&names.fill(&sql), &params, deadline.left())?;
        let prefix = self.filter.prefix.as_deref().unwrap_or("");
        let mut page = Vec::new();
        let mut last = None;
        let mut over = false;
        for row in &rows {
            let key: &str = Cells::new(row, 1).get("effect_key")?;
            if !key.starts_with(prefix) {
                over = true;
                break;
            }
            // One row that cannot be read does not hide the others (STO-11).
            page.push(match shown(row) {
                Ok(shown) => Listed::Record(Box::new(shown)),
                Err(malformed) => {
                    Listed::Unreadable { key: key.to_owned(), why: malformed.to_string() }
                }
            });
            last = Some(key.to_owned());
        }
        self.over = over || page.len() < self.page || self.filter.key.is_some();
        if let Some(key) = last {
            self.from = key;
            self.inclusive = false;
        }
        self.page = PAGE;
        Ok(page)
    }

    fn query(&self) -> (String, Vec<Value>) {
        let filter = self.filter;
        let unsettled = filter.stuck
            || (!filter.states.is_empty()
                && filter.states.iter().all(|state| UNSETTLED.contains(&state.as_str())));
        let mut sql = format!(
            concat!(
                "SELECT {clock}, ",
                record_columns!(),
                ", ",
                event_columns!(),
                ", o.bytes, o.whole, r.bytes, r.whole FROM :schema.effects e ",
                "LEFT JOIN LATERAL (SELECT * FROM :schema.history b ",
                "WHERE b.effect_key = e.effect_key AND b.attempt = e.attempt AND b.type = 'began' ",
                "ORDER BY b.revision DESC LIMIT 1) h ON true ",
                "LEFT JOIN :schema.output o ON o.effect_key = e.effect_key ",
                "AND o.attempt = e.attempt AND o.stream = 'stdout' ",
                "LEFT JOIN :schema.output r ON r.effect_key = e.effect_key ",
                "AND r.attempt = e.attempt AND r.stream = 'stderr' WHERE e.effect_key {from} $1"
            ),
            clock = CLOCK,
            from = if self.inclusive { ">=" } else { ">" },
        );
        let mut values: Vec<Value> = vec![(Box::new(self.from.clone()), Type::TEXT)];
        let mut also = |condition: &str, value: Option<Value>| {
            values.extend(value);
            sql.push_str(" AND ");
            sql.push_str(&condition.replace('?', &format!("${}", values.len())));
        };
        if unsettled {
            also("e.state IN ('reserved', 'executing', 'ambiguous')", None);
        }
        if filter.stuck {
            also(&format!("(e.state = 'ambiguous' OR e.lease_expires_at <= {CLOCK})"), None);
        }
        if let Some(key) = &filter.key {
            also("e.effect_key = ?", Some((Box::new(key.as_str().to_owned()), Type::TEXT)));
        }
        if let Some(age) = filter.older_than {
            let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
            // Not the clock minus the age, which may be more than there is.
            let condition = format!("{CLOCK} - e.updated_at >= ?");
            also(&condition, Some((Box::new(age), Type::INT8)));
        }
        if !filter.states.is_empty() {
            also("e.state = ANY (?)", Some((Box::new(filter.states.clone()), Type::TEXT_ARRAY)));
        }
        sql.push_str(" ORDER BY e.effect_key LIMIT ");
        sql.push_str(&self.page.to_string());
        (sql, values)
    }
}

type Value = (Box<dyn ToSql + Sync>, Type);

fn shown(row: &Row) -> Result<Shown, Malformed> {
    let now = Timestamp(Cells::new(row, 0).get("now")?);
    let record = Cells::new(row, 1).record()?;
    let record = record.ok_or_else(|| Malformed::new("effect_key", "null"))?.record()?;
    let began = Cells::new(row, 1 + RECORD_COLUMNS).event()?;
    let mut cells = Cells::new(row, 1 + RECORD_COLUMNS + EVENT_COLUMNS);
    Ok(Shown {
        record,
        now,
        began: began.map(|row| row.event()).transpose()?,
        stdout: sizes(&mut cells)?,
        stderr: sizes(&mut cells)?,
    })
}

fn sizes(cells: &mut Cells<'_>) -> Result<Sizes, Malformed> {
    let bytes: Option<i64> = cells.or_null("bytes")?;
    let whole: Option<bool> = cells.or_null("whole")?;
    Ok(Sizes { bytes: natural("bytes", bytes.unwrap_or(0))?, truncated: whole == Some(false) })
}
