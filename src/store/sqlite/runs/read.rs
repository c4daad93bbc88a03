//! What is read of runs.
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params, params_from_iter};

use super::super::error::Fault;
use super::super::read::Cells;
use super::queue::{dispatch_row, wakeup_row};
use super::write::stands;
use crate::plan::effect::Record;
use crate::plan::key::Key;
use crate::plan::protocol::Captured;
use crate::plan::time::Timestamp;
use crate::plan::workflow::{Dispatch, InboxId, InboxItem, Run, RunHistoryRow, RunId, Wakeup};
use crate::store::columns::record_columns;
use crate::store::row::{Malformed, natural};
use crate::store::runs::columns::{
    DispatchRow, FIRST_PAGE, PAGE, WakeupRow, damaged, dispatch_columns, run_columns,
    run_event_columns, unended, wakeup_columns,
};
use crate::store::runs::row::{RunEventRow, RunRow, wish};
use crate::store::runs::{EffectsFound, ListedRun, RunFilter, RunFound, RunReread};

/// What one run is read with.
pub struct Reading<'a> {
    /// The connection.
    pub connection: &'a Connection,
    /// The store as a person would name it.
    pub place: &'a str,
    /// The run.
    pub run: &'a RunId,
}

impl Reading<'_> {
    /// All that a tick looks at, as of one moment.
    pub fn load(&self, now: fn() -> Timestamp) -> Result<RunFound, Fault> {
        let moment = self.connection.unchecked_transaction()?;
        stands(self.connection)?;
        let run = self.run()?;
        let now = now();
        let found = RunFound {
            run,
            now,
            inbox: self.told(self.inbox())?,
            dispatches: self.told(self.dispatches())?,
            wakeups: self.told(self.wakeups(now))?,
        };
        moment.rollback()?;
        Ok(found)
    }

    /// The row and one event of its history.
    pub fn reread(&self, revision: u64) -> Result<RunReread, Fault> {
        let moment = self.connection.unchecked_transaction()?;
        stands(self.connection)?;
        let run = self.run()?;
        let event = self.history(revision, 1)?.into_iter().find(|row| row.revision == revision);
        moment.rollback()?;
        Ok(RunReread { run, event })
    }

    fn run(&self) -> Result<Option<Run>, Fault> {
        const SQL: &str = concat!("SELECT ", run_columns!(), " FROM runs r WHERE r.run_id=?1");
        let mut statement = self.connection.prepare_cached(SQL)?;
        let mut rows = statement.query([self.run.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        self.told(run_row(&mut Cells::new(row, 0)).and_then(RunRow::run).map_err(Fault::from))
            .map(Some)
    }

    /// What cannot be read is told with the run's name (WFL-4).
    fn told<T>(&self, read: Result<T, Fault>) -> Result<T, Fault> {
        read.map_err(|fault| match fault {
            Fault::Malformed(malformed) => {
                damaged(self.place, self.run.as_str(), &malformed).into()
            }
            other @ (Fault::Sqlite(_) | Fault::Known(_)) => other,
        })
    }

    fn inbox(&self) -> Result<Vec<InboxItem>, Fault> {
        const SQL: &str = "SELECT item_id, put_at, wish FROM inbox WHERE run_id=?1
            ORDER BY put_at, item_id";
        let mut statement = self.connection.prepare_cached(SQL)?;
        let mut rows = statement.query([self.run.as_str()])?;
        let mut items = Vec::new();
        while let Some(row) = rows.next()? {
            let mut cells = Cells::new(row, 0);
            items.push(InboxItem {
                id: InboxId(cells.id("item_id")?),
                run: self.run.clone(),
                at: Timestamp(cells.int("put_at")?),
                wish: wish(&cells.text("wish")?)?,
            });
        }
        Ok(items)
    }

    fn dispatches(&self) -> Result<Vec<Dispatch>, Fault> {
        const SQL: &str =
            concat!("SELECT ", dispatch_columns!(), " FROM dispatches d WHERE run_id=?1");
        let mut statement = self.connection.prepare_cached(SQL)?;
        let mut rows = statement.query([self.run.as_str()])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(dispatch_row(&mut Cells::new(row, 0)).and_then(DispatchRow::dispatch)?);
        }
        Ok(all)
    }

    fn wakeups(&self, now: Timestamp) -> Result<Vec<Wakeup>, Fault> {
        const SQL: &str =
            concat!("SELECT ", wakeup_columns!(), " FROM wakeups w WHERE run_id=?1 AND due_at<=?2");
        let mut statement = self.connection.prepare_cached(SQL)?;
        let mut rows = statement.query(params![self.run.as_str(), now.0])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(wakeup_row(&mut Cells::new(row, 0)).and_then(WakeupRow::wakeup)?);
        }
        Ok(all)
    }

    /// At most so many events from revision `from` on.
    pub fn history(&self, from: u64, limit: usize) -> Result<Vec<RunHistoryRow>, Fault> {
        const SQL: &str = concat!(
            "SELECT ",
            run_event_columns!(),
            " FROM run_history h WHERE run_id=?1 AND revision>=?2 ORDER BY revision LIMIT ?3"
        );
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(SQL)?;
        let mut rows = statement.query(params![self.run.as_str(), from, limit])?;
        let mut events = Vec::new();
        while let Some(row) = rows.next()? {
            let event = run_event(&mut Cells::new(row, 0)).and_then(RunEventRow::event);
            events.push(self.told(event.map_err(Fault::from))?);
        }
        Ok(events)
    }
}

/// The records of these keys, and some of their outputs, as of one moment.
pub fn effects(
    connection: &Connection,
    keys: &[Key],
    with_output: &[Key],
    now: fn() -> Timestamp,
) -> Result<EffectsFound, Fault> {
    const RECORD: &str =
        concat!("SELECT ", record_columns!(), " FROM effects e WHERE e.effect_key=?1");
    // Of what somebody else than the attempt says to have happened, only what they stated.
    const OUTPUT: &str = "SELECT o.head, o.tail, o.bytes, o.whole FROM effects e JOIN output o
        ON o.effect_key=e.effect_key AND o.attempt=e.attempt
        AND o.stream=CASE WHEN e.resolved_by IS NULL THEN 'stdout' ELSE 'stated' END
        WHERE e.effect_key=?1 AND e.state='committed'";
    let moment = connection.unchecked_transaction()?;
    stands(connection)?;
    let floor: i64 = connection
        .prepare_cached("SELECT attempt_floor FROM store")?
        .query_row([], |row| row.get(0))?;
    let mut records: Vec<Record> = Vec::with_capacity(keys.len());
    for key in keys {
        let mut statement = connection.prepare_cached(RECORD)?;
        let mut rows = statement.query([key.as_str()])?;
        if let Some(row) = rows.next()? {
            records.push(Cells::new(row, 0).record()?.record()?);
        }
    }
    let mut outputs = Vec::with_capacity(with_output.len());
    for key in with_output {
        let mut statement = connection.prepare_cached(OUTPUT)?;
        let mut rows = statement.query([key.as_str()])?;
        if let Some(row) = rows.next()? {
            let captured = Captured {
                head: row.get(0)?,
                tail: row.get(1)?,
                bytes: natural("bytes", row.get(2)?)?,
                whole: row.get(3)?,
            };
            outputs.push((key.clone(), captured));
        }
    }
    moment.rollback()?;
    let attempt_floor = natural("attempt_floor", floor)?;
    Ok(EffectsFound { records, outputs, attempt_floor, now: now() })
}

/// Where a listing of runs stands. Each page is a statement of its own (STO-10).
pub struct Listing<'a> {
    filter: &'a RunFilter,
    from: Vec<u8>,
    inclusive: bool,
    page: usize,
    over: bool,
}

impl<'a> Listing<'a> {
    /// A listing of what `filter` lets through.
    pub fn new(filter: &'a RunFilter) -> Self {
        let prefix = filter.prefix.as_deref().unwrap_or("").as_bytes();
        let (from, inclusive) = match filter.after.as_ref().map(|run| run.as_str().as_bytes()) {
            Some(after) if after >= prefix => (after, false),
            Some(_) | None => (prefix, true),
        };
        Self { filter, from: from.to_vec(), inclusive, page: FIRST_PAGE, over: false }
    }

    /// The next page; empty once there is no more.
    pub fn next_page(
        &mut self,
        connection: &Connection,
        now: Timestamp,
    ) -> Result<Vec<ListedRun>, Fault> {
        if self.over {
            return Ok(Vec::new());
        }
        stands(connection)?;
        let (sql, values) = self.query(now);
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let (mut page, mut last) = (Vec::new(), None);
        let prefix = self.filter.prefix.as_deref().unwrap_or("").as_bytes();
        while let Some(row) = rows.next()? {
            let ValueRef::Text(name) = row.get_ref(0)? else {
                return Err(Malformed::new("run_id", "not text").into());
            };
            if !name.starts_with(prefix) {
                self.over = true;
                break;
            }
            // One row that cannot be read does not hide the others (WFL-4).
            page.push(match run_row(&mut Cells::new(row, 0)).and_then(RunRow::run) {
                Ok(run) => ListedRun::Run(Box::new(run), now),
                Err(malformed) => ListedRun::Unreadable {
                    run: String::from_utf8_lossy(name).into_owned(),
                    why: malformed.to_string(),
                },
            });
            last = Some(name.to_vec());
        }
        self.over |= page.len() < self.page;
        if let Some(name) = last {
            self.from = name;
            self.inclusive = false;
        }
        self.page = PAGE;
        Ok(page)
    }

    fn query(&self, now: Timestamp) -> (String, Vec<Value>) {
        let filter = self.filter;
        let unended = unended(&filter.statuses);
        let mut values = vec![Value::Text(self.from.clone())];
        let mut sql = String::from(concat!("SELECT ", run_columns!(), " FROM runs r "));
        if unended {
            sql.push_str("INDEXED BY unended ");
        }
        sql.push_str(if self.inclusive { "WHERE r.run_id>=?1" } else { "WHERE r.run_id>?1" });
        if unended {
            sql.push_str(" AND r.status NOT IN ('succeeded','failed','cancelled')");
        }
        if let Some(workflow) = &filter.workflow {
            sql.push_str(" AND r.workflow=?");
            values.push(Value::Text(workflow.as_str().as_bytes().to_vec()));
        }
        if !filter.statuses.is_empty() {
            // A status is a word of ours.
            let names: Vec<String> =
                filter.statuses.iter().map(|status| format!("'{}'", status.name())).collect();
            sql.push_str(&format!(" AND r.status IN ({})", names.join(",")));
        }
        if let Some(quiet) = filter.quiet_for {
            let quiet = i64::try_from(quiet.as_micros()).unwrap_or(i64::MAX);
            sql.push_str(
                " AND r.updated_at<=? AND NOT EXISTS(
                   SELECT 1 FROM wakeups w WHERE w.run_id=r.run_id)",
            );
            values.push(Value::Integer(now.0.saturating_sub(quiet)));
        }
        sql.push_str(&format!(" ORDER BY r.run_id LIMIT {}", self.page));
        (sql, values)
    }
}

fn run_row(cells: &mut Cells<'_>) -> Result<RunRow, Malformed> {
    Ok(RunRow {
        run_id: cells.text("run_id")?,
        record_version: cells.int("record_version")?,
        write_id: cells.id("write_id")?,
        workflow: cells.text("workflow")?,
        tier: cells.int("tier")?,
        status: cells.text("status")?,
        reason: cells.text_or_null("reason")?,
        definition: cells.text("definition")?,
        definition_hash: cells.bytes("definition_hash")?,
        inputs: cells.text("inputs")?,
        node_states: cells.text("node_states")?,
        last_transition_seq: cells.int("last_transition_seq")?,
        created_at: cells.int("created_at")?,
        updated_at: cells.int("updated_at")?,
        state_checksum: cells.bytes("state_checksum")?,
    })
}

fn run_event(cells: &mut Cells<'_>) -> Result<RunEventRow, Malformed> {
    Ok(RunEventRow {
        revision: cells.int("revision")?,
        write_id: cells.id("write_id")?,
        kind: cells.text("type")?,
        recorded_at: cells.int("recorded_at")?,
        data: cells.text("data")?,
    })
}

/// A value of a condition.
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
