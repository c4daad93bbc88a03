//! What keeps a store: walking over all of it, counting, and letting go of what is old (OPS clauses).
use rusqlite::{Connection, params};

use super::busy::Deadline;
use super::error::Fault;
use super::read::Cells;
use super::write::{Try, commit, execute, roll_back};
use super::{now, place};
use crate::plan::time::Timestamp;
use crate::store::columns::{RECORD_COLUMNS, event_columns, record_columns};
use crate::store::row::{Malformed, integer, natural};
use crate::store::upkeep::{
    AsRead, Count, Cut, Gone, Stats, Step, WALK_EVENTS, WALK_KEYS, Walked, Whole,
};
use crate::store::{CouldNot, Filter, Reason};

/// The log is not let grow beyond this, in bytes, by a prune: where a reader keeps it from starting
/// anew, the reader is waited for.
pub const LOG_MAX: u64 = 64 << 20;

/// One page of a walk: rows and histories of one moment, in a transaction that reads.
///
/// # Errors
/// SQLite's. The walk may then go on from where it stood.
pub fn walk(
    connection: &Connection,
    filter: &Filter,
    step: &mut Step,
) -> Result<Vec<Walked>, Fault> {
    if step.over {
        return Ok(Vec::new());
    }
    execute(connection, "BEGIN")?;
    let page = page(connection, filter, step);
    roll_back(connection);
    page
}

fn page(connection: &Connection, filter: &Filter, step: &mut Step) -> Result<Vec<Walked>, Fault> {
    let clock = now();
    let mut sql = String::from(concat!(
        "SELECT ",
        record_columns!(),
        ", (SELECT sum(length(head)+length(tail)) FROM output o WHERE o.effect_key=e.effect_key)",
        " FROM effects e WHERE "
    ));
    sql.push_str(if step.inclusive { "e.effect_key>=?1" } else { "e.effect_key>?1" });
    if !filter.states.is_empty() {
        // Names of ours, not anybody's text.
        let names: Vec<String> = filter.states.iter().map(|state| format!("'{state}'")).collect();
        sql.push_str(&format!(" AND e.state IN ({})", names.join(",")));
    }
    let born = filter.there_for.map_or(i64::MAX, |age| {
        clock.0.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX))
    });
    sql.push_str(&format!(" AND e.created_at<=?2 ORDER BY e.effect_key LIMIT {WALK_KEYS}"));
    let mut statement = connection.prepare_cached(&sql)?;
    let from = rusqlite::types::ValueRef::Text(&step.from);
    let from = rusqlite::types::ToSqlOutput::Borrowed(from);
    let mut rows = statement.query(params![from, born])?;
    let prefix = filter.prefix.as_deref().unwrap_or("").as_bytes();
    let (mut walked, mut events) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let rusqlite::types::ValueRef::Text(key) = row.get_ref(0)? else {
            return Err(Malformed::new("effect_key", "not text").into());
        };
        if !key.starts_with(prefix) {
            step.over = true;
            return Ok(walked);
        }
        if events >= WALK_EVENTS {
            return Ok(walked);
        }
        let found = whole(connection, row, key, clock)?;
        events += found.as_ref().map_or(1, |whole| whole.history.len());
        walked.push(match found {
            Ok(whole) => Walked::Effect(Box::new(whole)),
            Err(malformed) => Walked::Unreadable {
                key: String::from_utf8_lossy(key).into_owned(),
                why: malformed.to_string(),
            },
        });
        step.from = key.to_vec();
        step.inclusive = false;
    }
    step.over = walked.len() < WALK_KEYS;
    Ok(walked)
}

/// SQLite's errors end the page; what is malformed is only this one's.
fn whole(
    connection: &Connection,
    row: &rusqlite::Row<'_>,
    key: &[u8],
    now: Timestamp,
) -> Result<Result<Whole, Malformed>, Fault> {
    let record = match Cells::new(row, 0).record().and_then(crate::store::row::Row::record) {
        Ok(record) => record,
        Err(malformed) => return Ok(Err(malformed)),
    };
    let kept = Cells::new(row, RECORD_COLUMNS).int_or_null("head");
    let kept = match kept.and_then(|kept| natural("head", kept.unwrap_or(0))) {
        Ok(kept) => kept,
        Err(malformed) => return Ok(Err(malformed)),
    };
    let mut statement = connection.prepare_cached(concat!(
        "SELECT ",
        event_columns!(),
        " FROM history h WHERE h.effect_key=?1 ORDER BY h.revision"
    ))?;
    let key = rusqlite::types::ToSqlOutput::Borrowed(rusqlite::types::ValueRef::Text(key));
    let mut rows = statement.query(params![key])?;
    let mut history = Vec::new();
    while let Some(row) = rows.next()? {
        match Cells::new(row, 0).event().and_then(crate::store::row::EventRow::event) {
            Ok(event) => history.push(event),
            Err(malformed) => return Ok(Err(malformed)),
        }
    }
    Ok(Ok(Whole { record, now, history, kept }))
}

/// Lets go of what `cut` names, in one transaction.
///
/// # Errors
/// As a value: see [`Try`]. What went is in `gone`, and counts only where it landed.
pub fn prune(
    connection: &Connection,
    deadline: &Deadline,
    cut: &Cut,
    before_commit: impl Fn(),
    gone: &mut Gone,
) -> Try {
    if let Err(fault) = deadline.insist(|| execute(connection, "BEGIN IMMEDIATE")) {
        return Try::NotCommitted(fault);
    }
    match remove(connection, cut) {
        Ok(went) => *gone = went,
        Err(fault) => {
            roll_back(connection);
            return Try::NotCommitted(fault);
        }
    }
    before_commit();
    commit(connection, deadline)
}

const FORGET: &str =
    "DELETE FROM effects WHERE effect_key=?1 AND record_version=?2 AND write_id=?3";

const DROP: &str = "UPDATE output SET head=x'', tail=x'', whole=0
  WHERE effect_key=?1 AND bytes>0 AND EXISTS (
    SELECT 1 FROM effects WHERE effect_key=?1 AND record_version=?2 AND write_id=?3)";

fn remove(connection: &Connection, cut: &Cut) -> Result<Gone, Fault> {
    let version: i64 = connection
        .prepare_cached("SELECT schema_version FROM store")?
        .query_row([], |row| row.get(0))?;
    super::schema::check(version, "the store", "ctrlrun init --upgrade")?;
    let mut gone = Gone::default();
    let mut floor = 0;
    for effect in &cut.effects {
        if on_the_row(connection, FORGET, effect)? == 0 {
            // It has moved since it was read: it stays.
            continue;
        }
        for rest in
            ["DELETE FROM history WHERE effect_key=?1", "DELETE FROM output WHERE effect_key=?1"]
        {
            connection.prepare_cached(rest)?.execute(params![effect.key.as_str()])?;
        }
        gone.effects += 1;
        floor = floor.max(integer("attempt_floor", effect.largest())?);
    }
    if gone.effects > 0 {
        // In the same transaction: no number of what is gone can be granted again (OPS-5).
        let raise = "UPDATE store SET attempt_floor=max(attempt_floor, ?1)";
        connection.prepare_cached(raise)?.execute(params![floor])?;
    }
    for effect in &cut.outputs {
        gone.outputs += u64::from(on_the_row(connection, DROP, effect)? > 0);
    }
    Ok(gone)
}

fn on_the_row(connection: &Connection, sql: &str, row: &AsRead) -> Result<usize, Fault> {
    let revision = integer("record_version", row.revision)?;
    let write_id = &row.write_id.0.as_bytes()[..];
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.execute(params![row.key.as_str(), revision, write_id])?)
}

/// Makes sure that the log is not longer than `log_max` before a prune adds to it.
///
/// # Errors
/// A reader keeps it from starting anew, and the time is over.
pub fn bound_the_log(
    connection: &Connection,
    path: &std::path::Path,
    log_max: u64,
) -> Result<(), Fault> {
    let length = || match place::beside(path, "-wal") {
        Ok(Some(log)) => log.size,
        Ok(None) | Err(_) => 0,
    };
    if length() <= log_max || super::checkpoint(connection) {
        return Ok(());
    }
    // The checkpoint has waited until the deadline, by its busy handler.
    Err(CouldNot {
        reason: Reason::Busy,
        message: format!(
            "another program reads this store and keeps its log from starting anew; it has {} MiB \
             already",
            length() >> 20
        ),
        hint: Some("end that reader, then prune again: it goes on from here".to_owned()),
    }
    .into())
}

/// The store in numbers.
///
/// # Errors
/// SQLite's.
pub fn stats(connection: &Connection, path: &std::path::Path) -> Result<Stats, Fault> {
    let clock = now();
    let mut statement = connection.prepare_cached(
        "SELECT e.state, coalesce(e.state IN ('reserved','executing') AND e.lease_expires_at<=?1, 0),
           count(*), min(e.updated_at), max(e.updated_at)
         FROM effects e GROUP BY 1, 2",
    )?;
    let mut rows = statement.query([clock.0])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        let effects: i64 = row.get(2)?;
        counts.push(Count {
            state: row.get(0)?,
            lapsed: row.get(1)?,
            effects: natural("count", effects)?,
            oldest: Timestamp(row.get(3)?),
            newest: Timestamp(row.get(4)?),
        });
    }
    let floor: i64 = connection
        .prepare_cached("SELECT attempt_floor FROM store")?
        .query_row([], |row| row.get(0))?;
    let size = |suffix| match place::beside(path, suffix) {
        Ok(Some(found)) => found.size,
        Ok(None) | Err(_) => 0,
    };
    Ok(Stats {
        now: Some(clock),
        counts,
        attempt_floor: natural("attempt_floor", floor)?,
        bytes: size("") + size("-wal"),
    })
}
