//! What keeps a store: walking over all of it, counting, and letting go of what is old (OPS clauses).
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::cells::Cells;
use super::error::{Fault, is_victim};
use super::link::{Committed, Link};
use super::read::{CLOCK, Param};
use super::schema::{self, Names};
use super::transaction::{Deadline, begin, roll_back};
use super::write::Try;
use crate::plan::time::Timestamp;
use crate::store::columns::{OLDEST, RECORD_COLUMNS, event_columns, record_columns, time_over};
use crate::store::row::{Malformed, integer, natural};
use crate::store::stop::{self, Point};
use crate::store::upkeep::{
    AsRead, Count, Cut, Gone, Stats, Step, WALK_EVENTS, WALK_KEYS, Walked, Whole,
};
use crate::store::{CouldNot, Filter, Reason};

/// One page of a walk: rows and histories of one moment, hence in one statement.
///
/// # Errors
/// The link's. The walk may then go on from where it stood.
pub fn walk(
    link: &Link,
    names: &Names,
    filter: &Filter,
    step: &mut Step,
    deadline: Deadline,
) -> Result<Vec<Walked>, Fault> {
    if step.over {
        return Ok(Vec::new());
    }
    let rows = ask(link, names, filter, step, Some(WALK_EVENTS), deadline)?;
    // The limit may have cut the last key's history short: that key is not of this page. Where it is
    // the only one it is asked for again, with all of its history.
    let all = rows.len() <= WALK_EVENTS;
    let mut keys = Vec::new();
    for row in &rows {
        let key: &str = Cells::new(row, 2).get("effect_key")?;
        match keys.last_mut() {
            Some((last, count)) if *last == key => *count += 1,
            Some(_) | None => keys.push((key, 1_usize)),
        }
    }
    if !all && keys.len() == 1 {
        let rows = ask(link, names, filter, step, None, deadline)?;
        let count = rows.len();
        return page(filter, step, &rows, &[count], false);
    }
    if !all {
        keys.pop();
    }
    let over = all && keys.len() < WALK_KEYS;
    let counts: Vec<usize> = keys.iter().map(|(_, count)| *count).collect();
    page(filter, step, &rows, &counts, over)
}

/// Reads rows of which the first `counts[0]` are of the first key, and so on.
fn page(
    filter: &Filter,
    step: &mut Step,
    rows: &[Row],
    counts: &[usize],
    over: bool,
) -> Result<Vec<Walked>, Fault> {
    let prefix = filter.prefix.as_deref().unwrap_or("");
    let mut walked = Vec::new();
    let mut rest = rows;
    step.over = over;
    for count in counts {
        let (of_key, more) = rest.split_at((*count).min(rest.len()));
        rest = more;
        let Some(first) = of_key.first() else { break };
        let key: &str = Cells::new(first, 2).get("effect_key")?;
        if !key.starts_with(prefix) {
            step.over = true;
            break;
        }
        walked.push(match whole(of_key) {
            Ok(whole) => Walked::Effect(Box::new(whole)),
            Err(malformed) => {
                Walked::Unreadable { key: key.to_owned(), why: malformed.to_string() }
            }
        });
        step.from = key.as_bytes().to_vec();
        step.inclusive = false;
    }
    Ok(walked)
}

fn ask(
    link: &Link,
    names: &Names,
    filter: &Filter,
    step: &Step,
    events_max: Option<usize>,
    deadline: Deadline,
) -> Result<Vec<Row>, Fault> {
    let states = match filter.states.is_empty() {
        true => String::new(),
        false => " AND x.state = ANY ($3)".to_owned(),
    };
    // One more than a page may have, to know whether it is all; or the first key alone.
    let (keys, events) = match events_max {
        Some(events) => (WALK_KEYS, format!(" LIMIT {}", events + 1)),
        None => (1, String::new()),
    };
    let sql = format!(
        concat!(
            "SELECT {clock}, e.kept, ",
            record_columns!(),
            ", ",
            event_columns!(),
            " FROM (SELECT x.*, (SELECT pg_catalog.sum(pg_catalog.length(o.head) + ",
            "pg_catalog.length(o.tail)) FROM :schema.output o ",
            "WHERE o.effect_key = x.effect_key)::bigint AS kept ",
            "FROM :schema.effects x WHERE x.effect_key {from} $1 ",
            "AND {clock} - x.created_at >= $2{states} ",
            "ORDER BY x.effect_key LIMIT {keys}) e ",
            "LEFT JOIN :schema.history h ON h.effect_key = e.effect_key ",
            "ORDER BY e.effect_key, h.revision{events}"
        ),
        clock = CLOCK,
        from = if step.inclusive { ">=" } else { ">" },
        states = states,
        keys = keys,
        events = events,
    );
    let from = String::from_utf8_lossy(&step.from).into_owned();
    let age =
        filter.there_for.map_or(i64::MIN, |age| i64::try_from(age.as_micros()).unwrap_or(i64::MAX));
    let mut params: Vec<Param<'_>> = vec![(&from, Type::TEXT), (&age, Type::INT8)];
    if !filter.states.is_empty() {
        params.push((&filter.states, Type::TEXT_ARRAY));
    }
    Ok(link.query(&names.fill(&sql), &params, deadline.left())?)
}

fn whole(rows: &[Row]) -> Result<Whole, Malformed> {
    let Some(first) = rows.first() else {
        return Err(Malformed::new("effect_key", "null"));
    };
    let mut cells = Cells::new(first, 0);
    let now = Timestamp(cells.get("now")?);
    let kept: Option<i64> = cells.or_null("kept")?;
    let record = cells.record()?.ok_or_else(|| Malformed::new("effect_key", "null"))?.record()?;
    let mut history = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(event) = Cells::new(row, 2 + RECORD_COLUMNS).event()? {
            history.push(event.event()?);
        }
    }
    Ok(Whole { record, now, history, kept: natural("kept", kept.unwrap_or(0))? })
}

/// `:held` are the rows that stand as they were read, each locked: whoever decides about one of them
/// at the same time has decided before, and then it is not among them, or waits.
const HELD: &str = "held AS MATERIALIZED (
    SELECT e.effect_key, e.record_version FROM :schema.effects e
    JOIN ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::bigint[]),
      pg_catalog.unnest($3::bytea[])) AS d(key, version, write)
      ON e.effect_key = d.key AND e.record_version = d.version AND e.write_id = d.write
    WHERE (SELECT fits FROM store)
    ORDER BY e.effect_key FOR UPDATE OF e)";

const STORE: &str = "WITH store AS (
    SELECT s.schema_version, s.store_id,
      s.schema_version BETWEEN :oldest AND $4 AND s.store_id = $5 AS fits
    FROM :schema.store s), ";

/// All of an effect goes with its row, in this one statement: there is none that half of one would
/// be left by.
const FORGET: &str = ",
  gone AS (
    DELETE FROM :schema.effects e USING held WHERE e.effect_key = held.effect_key
    RETURNING e.effect_key),
  events AS (
    DELETE FROM :schema.history h USING gone WHERE h.effect_key = gone.effect_key RETURNING 1),
  outputs AS (
    DELETE FROM :schema.output o USING gone WHERE o.effect_key = gone.effect_key RETURNING 1),
  floor AS (
    UPDATE :schema.store SET attempt_floor = greatest(attempt_floor, $6)
    WHERE EXISTS (SELECT 1 FROM gone) RETURNING 1)
  SELECT s.schema_version, s.store_id, (SELECT pg_catalog.count(*) FROM gone),
    (SELECT pg_catalog.count(*) FROM floor) FROM store s";

const DROP: &str = ",
  dropped AS (
    UPDATE :schema.output o SET head = '', tail = '', whole = false FROM held
    WHERE o.effect_key = held.effect_key AND o.bytes > 0 RETURNING o.effect_key)
  SELECT s.schema_version, s.store_id,
    (SELECT pg_catalog.count(DISTINCT d.effect_key) FROM dropped d), 1::bigint FROM store s";

/// Lets go of what `cut` names, in one transaction. What went counts only where it landed.
pub fn prune(
    link: &Link,
    names: &Names,
    (store_id, scratch): (Uuid, bool),
    cut: &Cut,
    deadline: Deadline,
) -> (Try, Gone) {
    let gone = match remove(link, names, store_id, cut, deadline) {
        Ok(gone) => gone,
        Err(fault) => {
            roll_back(link);
            return (Try::NotCommitted(fault), Gone::default());
        }
    };
    stop::here(Point::InPrune, scratch);
    if deadline.passed() {
        roll_back(link);
        return (Try::NotCommitted(time_over().into()), Gone::default());
    }
    let tried = match link.commit(deadline.left()) {
        Ok(Committed::Yes) => Try::Landed,
        Ok(Committed::RolledBack) => Try::Aborted(rolled_back().into()),
        Err(error) if is_victim(&error) => Try::Aborted(error.into()),
        Err(error) => Try::Unknown(error.into()),
    };
    (tried, gone)
}

fn remove(
    link: &Link,
    names: &Names,
    store_id: Uuid,
    cut: &Cut,
    deadline: Deadline,
) -> Result<Gone, Fault> {
    link.batch(&begin(deadline.left(), ""), deadline.left())?;
    // Whoever commits without waiting for the disk waits for this one (PGS-7).
    link.batch("SET LOCAL synchronous_commit = on", deadline.left())?;
    let mut gone = Gone::default();
    if !cut.effects.is_empty() {
        // An INSERT that looked at the old floor has ended before this, and the next one looks at the
        // new floor: its snapshot is taken after it got its own lock (PGS-1).
        let lock = "LOCK TABLE :schema.effects IN SHARE ROW EXCLUSIVE MODE";
        link.batch(&names.fill(lock), deadline.left())?;
        let largest = cut.effects.iter().map(AsRead::largest).max().unwrap_or(0);
        let floor = integer("attempt_floor", largest)?;
        gone.effects = on_rows(link, names, store_id, FORGET, &cut.effects, Some(floor), deadline)?;
    }
    if !cut.outputs.is_empty() {
        gone.outputs = on_rows(link, names, store_id, DROP, &cut.outputs, None, deadline)?;
    }
    Ok(gone)
}

fn on_rows(
    link: &Link,
    names: &Names,
    store_id: Uuid,
    what: &str,
    rows: &[AsRead],
    floor: Option<i64>,
    deadline: Deadline,
) -> Result<u64, Fault> {
    let keys: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    let versions: Vec<i64> =
        rows.iter().map(|row| integer("record_version", row.revision)).collect::<Result<_, _>>()?;
    let writes: Vec<&[u8]> = rows.iter().map(|row| &row.write_id.0.as_bytes()[..]).collect();
    let id = &store_id.as_bytes()[..];
    let mut params: Vec<Param<'_>> = vec![
        (&keys, Type::TEXT_ARRAY),
        (&versions, Type::INT8_ARRAY),
        (&writes, Type::BYTEA_ARRAY),
        (&schema::VERSION, Type::INT8),
        (&id, Type::BYTEA),
    ];
    if let Some(floor) = &floor {
        params.push((floor as &(dyn ToSql + Sync), Type::INT8));
    }
    let sql = [STORE, HELD, what].concat().replace(":oldest", &OLDEST.to_string());
    let sql = names.fill(&sql);
    let answer = link.query(&sql, &params, deadline.left())?;
    let row =
        answer.first().ok_or_else(|| Malformed::new("store_id", "the store has lost its row"))?;
    let mut cells = Cells::new(row, 0);
    schema::check(cells.get("schema_version")?, names)?;
    if cells.id("store_id")? != store_id {
        return Err(names.another_store().into());
    }
    let (gone, floors): (i64, i64) = (cells.get("gone")?, cells.get("floor")?);
    if gone > 0 && floors != 1 {
        return Err(crate::store::columns::miscounted(floors.unsigned_abs()).into());
    }
    Ok(natural("gone", gone)?)
}

fn rolled_back() -> CouldNot {
    CouldNot {
        reason: Reason::Unreachable,
        message: "the server answered COMMIT with ROLLBACK: nothing was pruned".to_owned(),
        hint: None,
    }
}

/// The store in numbers.
///
/// # Errors
/// The link's.
pub fn stats(link: &Link, names: &Names, deadline: Deadline) -> Result<Stats, Fault> {
    // A bound of the statement's own, so that it ends with the server's answer.
    let sql = names.fill(&format!(
        "SELECT {CLOCK}, s.attempt_floor, \
           (SELECT pg_catalog.sum(pg_catalog.pg_total_relation_size(c.oid)) \
            FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
            WHERE n.nspname = $1 AND c.relkind = 'r')::bigint, \
           e.state, e.lapsed, e.effects, e.oldest, e.newest \
         FROM :schema.store s LEFT JOIN ( \
           SELECT x.state, coalesce(x.state IN ('reserved', 'executing') \
               AND x.lease_expires_at <= {CLOCK}, false) AS lapsed, \
             pg_catalog.count(*) AS effects, pg_catalog.min(x.updated_at) AS oldest, \
             pg_catalog.max(x.updated_at) AS newest \
           FROM :schema.effects x GROUP BY 1, 2) e ON true"
    ));
    let schema = names.schema();
    let params: [Param<'_>; 1] = [(&schema, Type::TEXT)];
    let rows = link.query(&sql, &params, deadline.left())?;
    let first =
        rows.first().ok_or_else(|| Malformed::new("store_id", "the store has lost its row"))?;
    let mut cells = Cells::new(first, 0);
    let mut stats = Stats { now: Some(Timestamp(cells.get("now")?)), ..Stats::default() };
    stats.attempt_floor = natural("attempt_floor", cells.get("attempt_floor")?)?;
    stats.bytes = natural("bytes", cells.or_null("bytes")?.unwrap_or(0))?;
    for row in &rows {
        let mut cells = Cells::new(row, 3);
        let Some(state) = cells.or_null::<&str>("state")? else { continue };
        stats.counts.push(Count {
            state: state.to_owned(),
            lapsed: cells.get("lapsed")?,
            effects: natural("effects", cells.get("effects")?)?,
            oldest: Timestamp(cells.get("oldest")?),
            newest: Timestamp(cells.get("newest")?),
        });
    }
    Ok(stats)
}
