//! A run's append: BEGIN, what it takes away, and the one statement that writes, in one exchange; then
//! COMMIT alone (PGS-2). The other writes of runs are the same with another statement.
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::cells::Cells;
use super::super::error::Fault;
use super::super::group::not_in_transaction;
use super::super::health::{NO_ORIGIN_COLUMNS, ORIGIN_COLUMNS, Origin};
use super::super::link::Link;
use super::super::read::{CLOCK, Param};
use super::super::schema::{self, VERSION};
use super::super::transaction::{Deadline, MARK, begin, begin_light, both};
use super::super::write::{Try, Writing, Written, end};
use super::effect::PUT_WAKEUP;
use crate::plan::workflow::{InboxItem, RunAppend, Wakeup};
use crate::store::columns::{RUNS_SINCE, miscounted};
use crate::store::row::{Malformed, integer};
use crate::store::runs::columns::{RunColumns, inbox_key};
use crate::store::runs::row::wish_text;

/// What a statement that writes begins with: `fits`. Its first parameters are the version, the store's
/// id and the mark.
const STORE: &str = "WITH store AS (
    SELECT schema_version, store_id,
      schema_version BETWEEN :runs_since AND $1 AND store_id = $2 AND :marked AS fits
    FROM :schema.store)";

/// What a tick takes away, once it holds the row that it was made on. That others took some of it away
/// is no matter. For a dispatch it waits for the reserve that holds it; of a wakeup that somebody is
/// just at, it keeps its hands: it would only be handed out once more.
const TAKE_AWAY: &str = "WITH mine AS MATERIALIZED (
    SELECT 1 FROM :schema.runs
    WHERE run_id = $1 AND record_version = $2 AND write_id = $3 AND :marked FOR UPDATE),
  dispatches AS (
    DELETE FROM :schema.dispatches d
    USING mine, unnest($5::text[], $6::bytea[]) t(node, put_id)
    WHERE d.run_id = $1 AND d.node = t.node AND d.put_id = t.put_id),
  inbox AS (
    DELETE FROM :schema.inbox i USING mine WHERE i.run_id = $1 AND i.item_id = ANY ($7::bytea[])),
  wakeups AS (
    DELETE FROM :schema.wakeups w USING (
      SELECT o.wake_key FROM mine, unnest($8::text[], $9::bytea[]) t(wake_key, put_id)
      JOIN :schema.wakeups o ON o.wake_key = t.wake_key AND o.put_id = t.put_id
      WHERE o.run_id = $1 FOR UPDATE OF o SKIP LOCKED) x
    WHERE w.run_id = $1 AND w.wake_key = x.wake_key)
  SELECT pg_catalog.count(*) FROM mine";

const INSERT: &str = "INSERT INTO :schema.runs(
      run_id, record_version, write_id, workflow, tier, status, reason, definition,
      definition_hash, inputs, node_states, last_transition_seq, created_at, updated_at,
      state_checksum)
    SELECT $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18
    FROM store WHERE fits AND NOT EXISTS (SELECT 1 FROM moved)
    ON CONFLICT (run_id) DO NOTHING";

const UPDATE: &str = "UPDATE :schema.runs SET
      record_version = $5, write_id = $6, workflow = $7, tier = $8, status = $9, reason = $10,
      definition = $11, definition_hash = $12, inputs = $13, node_states = $14,
      last_transition_seq = $15, created_at = $16, updated_at = $17, state_checksum = $18
    WHERE run_id = $4 AND record_version = $38 AND write_id = $39
      AND (SELECT fits FROM store) AND NOT EXISTS (SELECT 1 FROM moved)";

/// `moved` are the effects of dispatches withdrawn that are not where they were expected. It is
/// another statement than the one that took the dispatches away, and so it sees what a reserve wrote
/// that held one of them (WFL-9). All that is put comes from the row that was written.
const WRITE: &str = ",
  moved AS (
    SELECT 1 FROM unnest($19::text[], $20::bigint[]) u(effect_key, expected)
    LEFT JOIN :schema.effects e ON e.effect_key = u.effect_key
    WHERE e.record_version IS DISTINCT FROM u.expected),
  written AS (:row RETURNING 1),
  events AS (
    INSERT INTO :schema.run_history(run_id, revision, type, recorded_at, data, write_id)
    SELECT $4, u.revision, u.type, u.recorded_at, u.data, $6
    FROM written, unnest($21::bigint[], $22::text[], $23::bigint[], $24::text[])
      u(revision, type, recorded_at, data)
    RETURNING 1),
  dispatches AS (
    INSERT INTO :schema.dispatches(
      run_id, node, put_id, effect_key, attempt, expected, due_at, free_at, claim_id, tier, workflow)
    SELECT $4, u.*, $8, $7
    FROM written, unnest($25::text[], $26::bytea[], $27::text[], $28::bigint[], $29::bigint[],
      $30::bigint[], $31::bigint[], $32::bytea[]) u
    ON CONFLICT (run_id, node) DO UPDATE SET put_id = excluded.put_id,
      effect_key = excluded.effect_key, attempt = excluded.attempt, expected = excluded.expected,
      due_at = excluded.due_at, free_at = excluded.free_at, claim_id = excluded.claim_id,
      reserved_by = NULL, tier = excluded.tier, workflow = excluded.workflow
    RETURNING 1),
  wakeups AS (
    INSERT INTO :schema.wakeups AS w(
      run_id, wake_key, put_id, due_at, free_at, requeues, since_seq, tier, workflow)
    SELECT $4, u.wake_key, u.put_id, u.due_at, u.due_at, u.requeues, u.since_seq, $8, $7
    FROM written, unnest($33::text[], $34::bytea[], $35::bigint[], $36::bigint[], $37::bigint[])
      u(wake_key, put_id, due_at, requeues, since_seq)
    ON CONFLICT (run_id, wake_key) DO UPDATE SET put_id = excluded.put_id,
      due_at = LEAST(w.due_at, excluded.due_at), free_at = LEAST(w.due_at, excluded.due_at),
      claim_id = NULL, requeues = excluded.requeues, since_seq = excluded.since_seq,
      tier = excluded.tier, workflow = excluded.workflow
    RETURNING 1)
  SELECT :answer, (SELECT pg_catalog.count(*) FROM written),
    (SELECT pg_catalog.count(*) FROM events) + (SELECT pg_catalog.count(*) FROM dispatches)
      + (SELECT pg_catalog.count(*) FROM wakeups), :origin
  FROM store s";

/// The first columns of the answer of a statement that writes: what must be so whatever was written.
const ANSWER: &str = "s.schema_version, s.store_id, :marked, \
    pg_catalog.current_setting('synchronous_commit')";

/// Reads them.
///
/// # Errors
/// An unknown version, another store, a statement outside of its transaction.
fn answered<'row>(cells: &mut Cells<'row>, writing: &Writing<'_>) -> Result<Durable<'row>, Fault> {
    schema::check(cells.get("schema_version")?, writing.names)?;
    if cells.id("store_id")? != writing.store_id {
        return Err(writing.names.another_store().into());
    }
    if cells.or_null("mark")? != Some(true) {
        return Err(not_in_transaction().into());
    }
    Ok(Durable(cells.get("synchronous_commit")?))
}

/// How far a commit in this transaction is waited for.
#[must_use]
struct Durable<'row>(&'row str);

impl Durable<'_> {
    /// Waits until it is on disk, whoever said otherwise: the role, the database, or another client of
    /// the same pooler (PGS-7).
    ///
    /// # Errors
    /// The link's.
    fn raise(self, link: &Link, deadline: Deadline) -> Result<(), Fault> {
        if matches!(self.0, "off" | "local") {
            link.batch("SET LOCAL synchronous_commit = on", deadline.left())?;
        }
        Ok(())
    }
}

/// What a statement finds out about its own transaction; `$N` has the mark.
fn marked(parameter: usize) -> String {
    format!("pg_catalog.current_setting('{MARK}', true) = ${parameter}")
}

/// A statement with what every one of them has.
fn fill(writing: &Writing<'_>, sql: &str) -> String {
    let origin = if writing.home.is_some() { ORIGIN_COLUMNS } else { NO_ORIGIN_COLUMNS };
    let sql = sql
        .replace(":answer", ANSWER)
        .replace(":origin", origin)
        .replace(":runs_since", &RUNS_SINCE.to_string())
        .replace(":marked", &marked(3));
    writing.names.fill(&sql)
}

/// Tries a run's append once; also where it was written.
pub fn append(
    link: &Link,
    append: &RunAppend,
    columns: &RunColumns,
    writing: &Writing<'_>,
    stop: Option<&dyn Fn()>,
) -> (Try, Option<Origin>) {
    end(link, write(link, append, columns, writing), stop, writing)
}

fn write(
    link: &Link,
    append: &RunAppend,
    columns: &RunColumns,
    writing: &Writing<'_>,
) -> Result<Written, Fault> {
    let mark = append.next.write_id.0.simple().to_string();
    let opening = begin(writing.deadline.left(), &mark);
    let values = Values::of(append, columns)?;
    let row = if append.found.is_some() { UPDATE } else { INSERT };
    let sql = fill(writing, &[STORE, &WRITE.replace(":row", row)].concat());
    let store_id = &writing.store_id.as_bytes()[..];
    let params = values.params(columns, &store_id, &mark);
    let take_away = writing.names.fill(&TAKE_AWAY.replace(":marked", &marked(4)));
    let taken = values.taken(columns, &mark);
    // All are answered before anything is concluded.
    let rows = link.run(writing.deadline.left(), async |client| match &taken {
        None => {
            let (begun, rows) =
                both(client.batch_execute(&opening), client.query_typed(&sql, &params)).await;
            begun?;
            rows
        }
        Some(taken) => {
            let (begun, (held, rows)) = both(
                client.batch_execute(&opening),
                both(client.query_typed(&take_away, taken), client.query_typed(&sql, &params)),
            )
            .await;
            begun?;
            held?;
            rows
        }
    })?;
    let mut cells = first(&rows)?;
    let durable = answered(&mut cells, writing)?;
    let (written, more): (i64, i64) = (cells.get("written")?, cells.get("events")?);
    let origin = Origin::read(&mut cells)?;
    match written {
        0 => return Ok(Written::Refused),
        1 => {}
        many => return Err(miscounted(many.unsigned_abs()).into()),
    }
    let wanted = columns.events.len() + columns.dispatches.len() + columns.wakeups.len();
    if usize::try_from(more) != Ok(wanted) {
        return Err(miscounted(more.unsigned_abs()).into());
    }
    durable.raise(link, writing.deadline)?;
    Ok(Written::Row(origin))
}

fn first(rows: &[Row]) -> Result<Cells<'_>, Fault> {
    let lost = || Malformed::new("store_id", "the store has lost its row");
    Ok(Cells::new(rows.first().ok_or_else(lost)?, 0))
}

/// Bytes, as a statement takes many of them.
type Bytes<'a> = Vec<&'a [u8]>;

/// The values that have to be put together before they can be referred to.
struct Values<'a> {
    ids: [&'a [u8]; 3],
    found: Option<(i64, &'a [u8])>,
    unstarted: (Vec<&'a str>, Vec<Option<i64>>),
    events: (Vec<i64>, Vec<&'a str>, Vec<i64>, Vec<&'a str>),
    nodes: Vec<&'a str>,
    node_ids: Bytes<'a>,
    keys: Vec<&'a str>,
    attempts: Vec<i64>,
    expected: Vec<Option<i64>>,
    due: Vec<i64>,
    free: Vec<i64>,
    claims: Vec<Option<&'a [u8]>>,
    wake_keys: Vec<&'a str>,
    wake_ids: Bytes<'a>,
    wake_due: Vec<i64>,
    requeues: Vec<i64>,
    since: Vec<i64>,
    taken_nodes: Vec<&'a str>,
    taken_ids: Bytes<'a>,
    consumed: Bytes<'a>,
    gone_keys: Vec<&'a str>,
    gone_ids: Bytes<'a>,
}

impl<'a> Values<'a> {
    fn of(append: &'a RunAppend, columns: &'a RunColumns) -> Result<Self, Malformed> {
        let row = &columns.row;
        let found = append.found.as_ref().map(|found| {
            let revision = integer("record_version", found.revision)?;
            Ok((revision, &found.write_id.0.as_bytes()[..]))
        });
        let mut unstarted = (Vec::new(), Vec::new());
        for (key, revision) in append.dispatches_deleted.iter().flat_map(|taken| &taken.unstarted) {
            unstarted.0.push(key.as_str());
            unstarted.1.push(revision.map(|at| integer("expected", at)).transpose()?);
        }
        let events = &columns.events;
        let (dispatches, wakeups) = (&columns.dispatches, &columns.wakeups);
        let deleted = &append.dispatches_deleted;
        Ok(Self {
            ids: [row.write_id.as_bytes(), &row.definition_hash, &row.state_checksum],
            found: found.transpose()?,
            unstarted,
            events: (
                events.iter().map(|event| event.revision).collect(),
                events.iter().map(|event| event.kind.as_str()).collect(),
                events.iter().map(|event| event.recorded_at).collect(),
                events.iter().map(|event| event.data.as_str()).collect(),
            ),
            nodes: dispatches.iter().map(|dispatch| dispatch.node.as_str()).collect(),
            node_ids: dispatches.iter().map(|dispatch| &dispatch.put_id.as_bytes()[..]).collect(),
            keys: dispatches.iter().map(|dispatch| dispatch.effect_key.as_str()).collect(),
            attempts: dispatches.iter().map(|dispatch| dispatch.attempt).collect(),
            expected: dispatches.iter().map(|dispatch| dispatch.expected).collect(),
            due: dispatches.iter().map(|dispatch| dispatch.due_at).collect(),
            free: dispatches.iter().map(|dispatch| dispatch.free_at).collect(),
            claims: dispatches
                .iter()
                .map(|dispatch| dispatch.claim_id.as_ref().map(|id| &id.as_bytes()[..]))
                .collect(),
            wake_keys: wakeups.iter().map(|wakeup| wakeup.wake_key.as_str()).collect(),
            wake_ids: wakeups.iter().map(|wakeup| &wakeup.put_id.as_bytes()[..]).collect(),
            wake_due: wakeups.iter().map(|wakeup| wakeup.due_at).collect(),
            requeues: wakeups.iter().map(|wakeup| wakeup.requeues).collect(),
            since: wakeups.iter().map(|wakeup| wakeup.since_seq).collect(),
            taken_nodes: deleted.iter().map(|taken| taken.id.node.as_str()).collect(),
            taken_ids: deleted.iter().map(|taken| &taken.id.put_id.0.as_bytes()[..]).collect(),
            consumed: append.consumed.iter().map(|item| &item.0.as_bytes()[..]).collect(),
            gone_keys: append.wakeups_deleted.iter().map(|(key, _)| key.as_str()).collect(),
            gone_ids: append.wakeups_deleted.iter().map(|(_, id)| &id.0.as_bytes()[..]).collect(),
        })
    }

    /// Those of [`TAKE_AWAY`]; `None` where nothing is.
    fn taken<'b>(&'b self, columns: &'b RunColumns, mark: &'b String) -> Option<Vec<Param<'b>>> {
        let (revision, write_id) = self.found.as_ref()?;
        if self.taken_nodes.is_empty() && self.consumed.is_empty() && self.gone_keys.is_empty() {
            return None;
        }
        Some(vec![
            (&columns.row.run_id, Type::TEXT),
            (revision, Type::INT8),
            (write_id, Type::BYTEA),
            (mark, Type::TEXT),
            (&self.taken_nodes, Type::TEXT_ARRAY),
            (&self.taken_ids, Type::BYTEA_ARRAY),
            (&self.consumed, Type::BYTEA_ARRAY),
            (&self.gone_keys, Type::TEXT_ARRAY),
            (&self.gone_ids, Type::BYTEA_ARRAY),
        ])
    }

    fn params<'b>(
        &'b self,
        columns: &'b RunColumns,
        store_id: &'b &[u8],
        mark: &'b String,
    ) -> Vec<Param<'b>> {
        let row = &columns.row;
        let mut params: Vec<Param<'b>> = vec![
            (&VERSION, Type::INT8),
            (store_id, Type::BYTEA),
            (mark, Type::TEXT),
            (&row.run_id, Type::TEXT),
            (&row.record_version, Type::INT8),
            (&self.ids[0], Type::BYTEA),
            (&row.workflow, Type::TEXT),
            (&row.tier, Type::INT8),
            (&row.status, Type::TEXT),
            (&row.reason, Type::TEXT),
            (&row.definition, Type::TEXT),
            (&self.ids[1], Type::BYTEA),
            (&row.inputs, Type::TEXT),
            (&row.node_states, Type::TEXT),
            (&row.last_transition_seq, Type::INT8),
            (&row.created_at, Type::INT8),
            (&row.updated_at, Type::INT8),
            (&self.ids[2], Type::BYTEA),
            (&self.unstarted.0, Type::TEXT_ARRAY),
            (&self.unstarted.1, Type::INT8_ARRAY),
            (&self.events.0, Type::INT8_ARRAY),
            (&self.events.1, Type::TEXT_ARRAY),
            (&self.events.2, Type::INT8_ARRAY),
            (&self.events.3, Type::TEXT_ARRAY),
            (&self.nodes, Type::TEXT_ARRAY),
            (&self.node_ids, Type::BYTEA_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.attempts, Type::INT8_ARRAY),
            (&self.expected, Type::INT8_ARRAY),
            (&self.due, Type::INT8_ARRAY),
            (&self.free, Type::INT8_ARRAY),
            (&self.claims, Type::BYTEA_ARRAY),
            (&self.wake_keys, Type::TEXT_ARRAY),
            (&self.wake_ids, Type::BYTEA_ARRAY),
            (&self.wake_due, Type::INT8_ARRAY),
            (&self.requeues, Type::INT8_ARRAY),
            (&self.since, Type::INT8_ARRAY),
        ];
        if let Some((revision, write_id)) = &self.found {
            params.extend([
                (revision as &(dyn tokio_postgres::types::ToSql + Sync), Type::INT8),
                (write_id, Type::BYTEA),
            ]);
        }
        params
    }
}

/// Whether a commit is waited for until it is on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// It is.
    Full,
    /// It is not: lost, it is made once more.
    Light,
}

/// Another write of runs: one statement behind [`STORE`] that answers with the rows it counted.
pub fn one_statement(
    link: &Link,
    writing: &Writing<'_>,
    (weight, mark): (Weight, &String),
    sql: &str,
    more: &[Param<'_>],
) -> Result<Written, Fault> {
    let left = writing.deadline.left();
    let opening = match weight {
        Weight::Full => begin(left, mark),
        Weight::Light => begin_light(left, mark),
    };
    let sql = fill(writing, &[STORE, sql].concat());
    let store_id = &writing.store_id.as_bytes()[..];
    let mut params: Vec<Param<'_>> =
        vec![(&VERSION, Type::INT8), (&store_id, Type::BYTEA), (mark, Type::TEXT)];
    params.extend(more.iter().map(|(value, kind)| (*value, kind.clone())));
    let rows = link.run(writing.deadline.left(), async |client| {
        let (begun, rows) =
            both(client.batch_execute(&opening), client.query_typed(&sql, &params)).await;
        begun?;
        rows
    })?;
    let mut cells = first(&rows)?;
    let durable: Durable<'_> = answered(&mut cells, writing)?;
    let counted: i64 = cells.get("written")?;
    if weight == Weight::Full {
        durable.raise(link, writing.deadline)?;
    }
    Ok(if counted == 0 { Written::Refused } else { Written::Row(None) })
}

/// Puts an item into a run's inbox, and its wakeup; refused if there is no such run.
pub fn put_inbox(link: &Link, item: &InboxItem, writing: &Writing<'_>) -> Try {
    let written = wish_text(&item.wish).map_err(Fault::from).and_then(|wish| {
        let put = PUT_WAKEUP
            .replace(":from", &format!("$7, $5, {CLOCK}, {CLOCK}, 0, 0,"))
            .replace(":behind", "here,")
            .replace(":run", "$4");
        let sql = format!(
            ",
  here AS (SELECT r.run_id FROM :schema.runs r, store WHERE r.run_id = $4 AND fits),
  item AS (
    INSERT INTO :schema.inbox(run_id, item_id, put_at, wish)
    SELECT here.run_id, $5, {CLOCK}, $6 FROM here ON CONFLICT (run_id, item_id) DO NOTHING),
  woken AS ({put})
  SELECT :answer, (SELECT pg_catalog.count(*) FROM woken) FROM store s"
        );
        let (run, id) = (item.run.as_str(), &item.id.0.as_bytes()[..]);
        let (key, mark) = (inbox_key(item), item.id.0.simple().to_string());
        let params: [Param<'_>; 4] =
            [(&run, Type::TEXT), (&id, Type::BYTEA), (&wish, Type::TEXT), (&key, Type::TEXT)];
        one_statement(link, writing, (Weight::Full, &mark), &sql, &params)
    });
    end(link, written, None, writing).0
}

/// Deletes wakeups, and puts another, if one is told. What somebody is just at is left to them: it
/// would only be handed out once more.
pub fn finish(
    link: &Link,
    wakeups: &[Wakeup],
    next: Option<&crate::store::runs::columns::WakeupRow>,
    mark: &String,
    writing: &Writing<'_>,
) -> Try {
    const DELETE: &str = ",
  gone AS (
    DELETE FROM :schema.wakeups w USING (
      SELECT o.run_id, o.wake_key
      FROM store, unnest($4::text[], $5::text[], $6::bytea[]) t(run_id, wake_key, put_id)
      JOIN :schema.wakeups o
        ON o.run_id = t.run_id AND o.wake_key = t.wake_key AND o.put_id = t.put_id
      WHERE fits FOR UPDATE OF o SKIP LOCKED) x
    WHERE w.run_id = x.run_id AND w.wake_key = x.wake_key)";
    let runs: Vec<&str> = wakeups.iter().map(|wakeup| wakeup.run.as_str()).collect();
    let keys: Vec<&str> = wakeups.iter().map(|wakeup| wakeup.key.as_str()).collect();
    let ids: Bytes<'_> = wakeups.iter().map(|wakeup| &wakeup.put_id.0.as_bytes()[..]).collect();
    let mut params: Vec<Param<'_>> =
        vec![(&runs, Type::TEXT_ARRAY), (&keys, Type::TEXT_ARRAY), (&ids, Type::BYTEA_ARRAY)];
    let mut sql = DELETE.to_owned();
    let put_id = next.map(|next| next.put_id.as_bytes().to_vec());
    if let (Some(next), Some(put_id)) = (next, &put_id) {
        let put = PUT_WAKEUP
            .replace(":from", "$8, $9, $10, $10, $11, $12,")
            .replace(":behind", "store,")
            .replace(":run", "$7 AND fits");
        sql.push_str(&format!(",\n  put AS ({put})"));
        params.extend([
            (&next.run_id as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT),
            (&next.wake_key, Type::TEXT),
            (put_id, Type::BYTEA),
            (&next.due_at, Type::INT8),
            (&next.requeues, Type::INT8),
            (&next.since_seq, Type::INT8),
        ]);
    }
    sql.push_str(" SELECT :answer, CASE WHEN fits THEN 1::bigint ELSE 0 END FROM store s");
    let written = one_statement(link, writing, (Weight::Light, mark), &sql, &params);
    end(link, written, None, writing).0
}

/// Gives a dispatch back; refused if the claim has it no more.
pub fn postpone(
    link: &Link,
    dispatch: &crate::plan::workflow::DispatchRef,
    claim: uuid::Uuid,
    after: Duration,
    writing: &Writing<'_>,
) -> Try {
    let sql = format!(
        ",
  back AS (
    UPDATE :schema.dispatches SET claim_id = NULL, due_at = {CLOCK} + $8, free_at = {CLOCK} + $8
    WHERE run_id = $4 AND node = $5 AND put_id = $6 AND claim_id = $7 AND (SELECT fits FROM store)
    RETURNING 1)
  SELECT :answer, (SELECT pg_catalog.count(*) FROM back) FROM store s"
    );
    let (run, node) = (dispatch.run.as_str(), dispatch.node.as_str());
    let (put_id, claim) = (&dispatch.put_id.0.as_bytes()[..], &claim.as_bytes()[..]);
    let after = i64::try_from(after.as_micros()).unwrap_or(i64::MAX / 4);
    let mark = dispatch.put_id.0.simple().to_string();
    let params: [Param<'_>; 5] = [
        (&run, Type::TEXT),
        (&node, Type::TEXT),
        (&put_id, Type::BYTEA),
        (&claim, Type::BYTEA),
        (&after, Type::INT8),
    ];
    end(link, one_statement(link, writing, (Weight::Light, &mark), &sql, &params), None, writing).0
}
