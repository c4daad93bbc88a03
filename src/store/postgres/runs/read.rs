//! What is read of runs. What belongs together is read in one transaction, of one moment, and in one
//! exchange.
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::super::cells::Cells;
use super::super::error::Fault;
use super::super::health::{self, Origin};
use super::super::link::Link;
use super::super::read::{CLOCK, Param};
use super::super::schema::{self, Names};
use super::super::transaction::{Deadline, begin, both, look, roll_back};
use super::queue::{dispatch_row, wakeup_row};
use crate::plan::key::Key;
use crate::plan::protocol::Captured;
use crate::plan::time::Timestamp;
use crate::plan::workflow::{InboxId, InboxItem, Run, RunHistoryRow, RunId};
use crate::store::columns::record_columns;
use crate::store::row::{Malformed, natural};
use crate::store::runs::columns::{
    FIRST_PAGE, PAGE, damaged, dispatch_columns, run_columns, run_event_columns, unended,
    wakeup_columns,
};
use crate::store::runs::row::{RunEventRow, RunRow, wish};
use crate::store::runs::{EffectsFound, ListedRun, RunFilter, RunFound, RunReread};

/// The row, which store it is of, and its clock.
const RUN: &str = concat!(
    "SELECT s.schema_version, s.store_id, :clock, ",
    run_columns!(),
    " FROM :schema.store s LEFT JOIN :schema.runs r ON r.run_id = $1"
);

const INBOX: &str =
    "SELECT item_id, put_at, wish FROM :schema.inbox WHERE run_id = $1 ORDER BY put_at, item_id";

const DISPATCHES: &str =
    concat!("SELECT ", dispatch_columns!(), " FROM :schema.dispatches d WHERE d.run_id = $1");

const WAKEUPS: &str = concat!(
    "SELECT ",
    wakeup_columns!(),
    " FROM :schema.wakeups w WHERE w.run_id = $1 AND w.due_at <= (SELECT :clock)"
);

const HISTORY: &str = concat!(
    "SELECT ",
    run_event_columns!(),
    " FROM :schema.run_history h WHERE h.run_id = $1 AND h.revision >= $2 ORDER BY h.revision LIMIT $3"
);

/// What is read with.
pub struct Reading<'a> {
    /// The names of the tables.
    pub names: &'a Names,
    /// The store it must be of.
    pub store_id: Uuid,
    /// When it has to be over.
    pub deadline: Deadline,
}

impl Reading<'_> {
    fn fill(&self, sql: &str) -> String {
        self.names.fill(&sql.replace(":clock", CLOCK))
    }

    /// That it is this store, of a version that we know.
    fn head(&self, cells: &mut Cells<'_>) -> Result<(), Fault> {
        schema::check(cells.get("schema_version")?, self.names)?;
        match cells.id("store_id")? == self.store_id {
            true => Ok(()),
            false => Err(self.names.another_store().into()),
        }
    }

    /// All that a tick looks at. The wakeups are read first, should the server run the statements
    /// outside of the transaction that was begun for them.
    pub fn load(&self, link: &Link, run: &RunId) -> Result<RunFound, Fault> {
        let opening = look(self.deadline.left());
        let [wakeups, row, inbox, dispatches] =
            [WAKEUPS, RUN, INBOX, DISPATCHES].map(|sql| self.fill(sql));
        let name = run.as_str();
        let params: [Param<'_>; 1] = [(&name, Type::TEXT)];
        let (wakeups, row, inbox, dispatches) = link.run(self.deadline.left(), async |client| {
            let (begun, (wakeups, (row, (inbox, (dispatches, ended))))) = both(
                client.batch_execute(&opening),
                both(
                    client.query_typed(&wakeups, &params),
                    both(
                        client.query_typed(&row, &params),
                        both(
                            client.query_typed(&inbox, &params),
                            both(
                                client.query_typed(&dispatches, &params),
                                client.batch_execute("ROLLBACK"),
                            ),
                        ),
                    ),
                ),
            )
            .await;
            begun?;
            let all = (wakeups?, row?, inbox?, dispatches?);
            ended?;
            Ok(all)
        })?;
        let mut cells = first(&row)?;
        self.head(&mut cells)?;
        let now = Timestamp(cells.get("clock")?);
        let told = |malformed: Malformed| damaged(&self.names.place, run.as_str(), &malformed);
        Ok(RunFound {
            run: run_row(&mut cells).map_err(told)?,
            now,
            inbox: each(&inbox, |cells| inbox_item(cells, run)).map_err(told)?,
            dispatches: each(&dispatches, |cells| dispatch_row(cells)?.dispatch()).map_err(told)?,
            wakeups: each(&wakeups, |cells| wakeup_row(cells)?.wakeup()).map_err(told)?,
        })
    }

    /// The row and one event, after the lock of the row, so that a writer in flight has ended; and
    /// where they were read. A server that takes no writes refuses (CMT-9).
    pub fn reread(
        &self,
        link: &Link,
        run: &RunId,
        revision: u64,
    ) -> Result<(RunReread, Option<Origin>), Fault> {
        let answer = self.locked(link, run, revision);
        // Nothing was written, so nothing is to be committed.
        roll_back(link);
        answer
    }

    fn locked(
        &self,
        link: &Link,
        run: &RunId,
        revision: u64,
    ) -> Result<(RunReread, Option<Origin>), Fault> {
        let opening = begin(self.deadline.left(), "");
        let lock = self.fill("SELECT 1 FROM :schema.runs r WHERE r.run_id = $1 FOR UPDATE");
        let name = run.as_str();
        let of_run: [Param<'_>; 1] = [(&name, Type::TEXT)];
        link.run(self.deadline.left(), async |client| {
            let (begun, locked) =
                both(client.batch_execute(&opening), client.query_typed(&lock, &of_run)).await;
            begun?;
            locked
        })?;
        // A new statement: under READ COMMITTED it sees what the lock was waited for.
        let rows = link.query(&self.fill(RUN), &of_run, self.deadline.left())?;
        let mut cells = first(&rows)?;
        self.head(&mut cells)?;
        let told = |malformed: Malformed| damaged(&self.names.place, run.as_str(), &malformed);
        cells.get::<i64>("clock")?;
        let found = run_row(&mut cells).map_err(told)?;
        let history = self.events(link, run, revision, 1)?;
        let event = history.into_iter().find(|row| row.revision == revision);
        let asked = link.query(health::ORIGIN, &[], self.deadline.left())?;
        let origin = asked.first().map(|row| Origin::read(&mut Cells::new(row, 0)));
        Ok((RunReread { run: found, event }, origin.transpose()?.flatten()))
    }

    /// The history from revision `from` on.
    pub fn history(
        &self,
        link: &Link,
        run: &RunId,
        from: u64,
    ) -> Result<Vec<RunHistoryRow>, Fault> {
        self.events(link, run, from, i64::MAX)
    }

    fn events(
        &self,
        link: &Link,
        run: &RunId,
        from: u64,
        limit: i64,
    ) -> Result<Vec<RunHistoryRow>, Fault> {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let name = run.as_str();
        let params: [Param<'_>; 3] =
            [(&name, Type::TEXT), (&from, Type::INT8), (&limit, Type::INT8)];
        let rows = link.query(&self.fill(HISTORY), &params, self.deadline.left())?;
        let told = |malformed: Malformed| damaged(&self.names.place, run.as_str(), &malformed);
        Ok(each(&rows, |cells| run_event(cells)?.event()).map_err(told)?)
    }

    /// The records of these keys, and some of their outputs, of one moment.
    pub fn effects(
        &self,
        link: &Link,
        keys: &[Key],
        with_output: &[Key],
    ) -> Result<EffectsFound, Fault> {
        const RECORDS: &str = concat!(
            "SELECT s.schema_version, s.store_id, s.attempt_floor, :clock, ",
            record_columns!(),
            " FROM :schema.store s LEFT JOIN :schema.effects e ON e.effect_key = ANY ($1)"
        );
        // Of what somebody else than the attempt says to have happened, only what they stated.
        const OUTPUTS: &str = "SELECT o.effect_key, o.head, o.tail, o.bytes, o.whole
            FROM :schema.effects e JOIN :schema.output o
              ON o.effect_key = e.effect_key AND o.attempt = e.attempt
              AND o.stream = CASE WHEN e.resolved_by IS NULL THEN 'stdout' ELSE 'stated' END
            WHERE e.effect_key = ANY ($1) AND e.state = 'committed'";
        let opening = look(self.deadline.left());
        let [records, outputs] = [RECORDS, OUTPUTS].map(|sql| self.fill(sql));
        let keys: Vec<&str> = keys.iter().map(Key::as_str).collect();
        let wanted: Vec<&str> = with_output.iter().map(Key::as_str).collect();
        let of_keys: [Param<'_>; 1] = [(&keys, Type::TEXT_ARRAY)];
        let of_wanted: [Param<'_>; 1] = [(&wanted, Type::TEXT_ARRAY)];
        let (records, outputs) = if wanted.is_empty() {
            // One statement is of one moment by itself.
            (link.query(&records, &of_keys, self.deadline.left())?, Vec::new())
        } else {
            link.run(self.deadline.left(), async |client| {
                let (begun, (records, (outputs, ended))) = both(
                    client.batch_execute(&opening),
                    both(
                        client.query_typed(&records, &of_keys),
                        both(
                            client.query_typed(&outputs, &of_wanted),
                            client.batch_execute("ROLLBACK"),
                        ),
                    ),
                )
                .await;
                begun?;
                let all = (records?, outputs?);
                ended?;
                Ok(all)
            })?
        };
        let mut cells = first(&records)?;
        self.head(&mut cells)?;
        let attempt_floor = natural("attempt_floor", cells.get("attempt_floor")?)?;
        let now = Timestamp(cells.get("clock")?);
        let mut found = Vec::new();
        for row in &records {
            if let Some(row) = Cells::new(row, 4).record()? {
                found.push(row.record()?);
            }
        }
        let outputs = each(&outputs, output)?;
        Ok(EffectsFound { records: found, outputs, attempt_floor, now })
    }
}

fn output(cells: &mut Cells<'_>) -> Result<(Key, Captured), Malformed> {
    let key = Key::new(cells.get::<String>("effect_key")?)
        .map_err(|error| Malformed::new("effect_key", error.to_string()))?;
    let captured = Captured {
        head: cells.get("head")?,
        tail: cells.get("tail")?,
        bytes: natural("bytes", cells.get("bytes")?)?,
        whole: cells.get("whole")?,
    };
    Ok((key, captured))
}

fn inbox_item(cells: &mut Cells<'_>, run: &RunId) -> Result<InboxItem, Malformed> {
    Ok(InboxItem {
        id: InboxId(cells.id("item_id")?),
        run: run.clone(),
        at: Timestamp(cells.get("put_at")?),
        wish: wish(cells.get("wish")?)?,
    })
}

fn each<T>(
    rows: &[Row],
    read: impl Fn(&mut Cells<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    rows.iter().map(|row| read(&mut Cells::new(row, 0))).collect()
}

fn first(rows: &[Row]) -> Result<Cells<'_>, Fault> {
    let lost = || Malformed::new("store_id", "the store has lost its row");
    Ok(Cells::new(rows.first().ok_or_else(lost)?, 0))
}

fn run_row(cells: &mut Cells<'_>) -> Result<Option<Run>, Malformed> {
    let Some(run_id) = cells.or_null("run_id")? else { return Ok(None) };
    let row = RunRow {
        run_id,
        record_version: cells.get("record_version")?,
        write_id: cells.id("write_id")?,
        workflow: cells.get("workflow")?,
        tier: cells.get("tier")?,
        status: cells.get("status")?,
        reason: cells.or_null("reason")?,
        definition: cells.get("definition")?,
        definition_hash: cells.bytes("definition_hash")?,
        inputs: cells.get("inputs")?,
        node_states: cells.get("node_states")?,
        last_transition_seq: cells.get("last_transition_seq")?,
        created_at: cells.get("created_at")?,
        updated_at: cells.get("updated_at")?,
        state_checksum: cells.bytes("state_checksum")?,
    };
    row.run().map(Some)
}

fn run_event(cells: &mut Cells<'_>) -> Result<RunEventRow, Malformed> {
    Ok(RunEventRow {
        revision: cells.get("revision")?,
        write_id: cells.id("write_id")?,
        kind: cells.get("type")?,
        recorded_at: cells.get("recorded_at")?,
        data: cells.get("data")?,
    })
}

/// Where a listing of runs stands. Each page is a statement of its own.
pub struct Listing<'a> {
    filter: &'a RunFilter,
    from: String,
    inclusive: bool,
    page: usize,
    over: bool,
}

impl<'a> Listing<'a> {
    /// A listing of what `filter` lets through.
    pub fn new(filter: &'a RunFilter) -> Self {
        let prefix = filter.prefix.as_deref().unwrap_or("");
        let (from, inclusive) = match filter.after.as_ref().map(RunId::as_str) {
            Some(after) if after.as_bytes() >= prefix.as_bytes() => (after, false),
            Some(_) | None => (prefix, true),
        };
        Self { filter, from: from.to_owned(), inclusive, page: FIRST_PAGE, over: false }
    }

    /// The next page; empty once there is no more.
    pub fn next_page(
        &mut self,
        link: &Link,
        reading: &Reading<'_>,
    ) -> Result<Vec<ListedRun>, Fault> {
        if self.over {
            return Ok(Vec::new());
        }
        let filter = self.filter;
        let workflow = filter.workflow.as_ref().map(|workflow| workflow.as_str());
        let quiet =
            filter.quiet_for.map(|quiet| i64::try_from(quiet.as_micros()).unwrap_or(i64::MAX / 4));
        let statuses: Vec<&str> = filter.statuses.iter().map(|status| status.name()).collect();
        let statuses = Some(statuses).filter(|statuses| !statuses.is_empty());
        let params: [Param<'_>; 4] = [
            (&self.from, Type::TEXT),
            (&workflow, Type::TEXT),
            (&statuses, Type::TEXT_ARRAY),
            (&quiet, Type::INT8),
        ];
        let rows = link.query(&reading.fill(&self.query()), &params, reading.deadline.left())?;
        let mut page = Vec::new();
        let (mut last, mut over) = (None, false);
        for row in &rows {
            let name: &str = Cells::new(row, 1).get("run_id")?;
            if !name.starts_with(filter.prefix.as_deref().unwrap_or("")) {
                over = true;
                break;
            }
            let mut cells = Cells::new(row, 0);
            let now = Timestamp(cells.get("clock")?);
            // One row that cannot be read does not hide the others (WFL-4).
            match run_row(&mut cells) {
                Ok(Some(run)) => page.push(ListedRun::Run(Box::new(run), now)),
                Ok(None) => {}
                Err(malformed) => page.push(ListedRun::Unreadable {
                    run: name.to_owned(),
                    why: malformed.to_string(),
                }),
            }
            last = Some(name.to_owned());
        }
        self.over = over || rows.len() < self.page;
        if let Some(name) = last {
            self.from = name;
            self.inclusive = false;
        }
        self.page = PAGE;
        Ok(page)
    }

    fn query(&self) -> String {
        let from = if self.inclusive { ">=" } else { ">" };
        let open = match unended(&self.filter.statuses) {
            true => " AND r.status NOT IN ('succeeded', 'failed', 'cancelled')",
            false => "",
        };
        format!(
            concat!(
                "WITH clock(at) AS MATERIALIZED (SELECT :clock) SELECT (SELECT at FROM clock), ",
                run_columns!(),
                " FROM :schema.runs r WHERE r.run_id {} $1{}
                 AND ($2::text IS NULL OR r.workflow = $2)
                 AND ($3::text[] IS NULL OR r.status = ANY ($3))
                 AND ($4::bigint IS NULL OR (r.updated_at <= (SELECT at FROM clock) - $4
                   AND NOT EXISTS (SELECT 1 FROM :schema.wakeups w WHERE w.run_id = r.run_id)))
                 ORDER BY r.run_id LIMIT {}"
            ),
            from, open, self.page
        )
    }
}
