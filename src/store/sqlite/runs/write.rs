//! What is written of runs: each verb one transaction, which begins as an effect's does and ends in
//! the same ways (STO-2, CMT-3).
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::super::busy::Deadline;
use super::super::error::Fault;
use super::super::now;
use super::super::schema::VERSION;
use super::super::write::{Try, commit, execute, miscounted_rows, one, roll_back};
use crate::plan::protocol::Append;
use crate::plan::time::Timestamp;
use crate::plan::workflow::{DispatchRef, InboxItem, RunAppend, Wakeup};
use crate::store::columns::{check_runs, check_version};
use crate::store::row::integer;
use crate::store::runs::columns::{DispatchRow, RunColumns, WakeupRow, inbox_key, woken_by};
use crate::store::runs::row::{RunRow, wish_text};

const UPGRADE: &str = "ctrlrun init --upgrade";

const INSERT: &str = "INSERT INTO runs(
    run_id, record_version, write_id, workflow, tier, status, reason, definition, definition_hash,
    inputs, node_states, last_transition_seq, created_at, updated_at, state_checksum)
  VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
  ON CONFLICT DO NOTHING";

const UPDATE: &str = "UPDATE runs SET
    record_version=?2, write_id=?3, workflow=?4, tier=?5, status=?6, reason=?7, definition=?8,
    definition_hash=?9, inputs=?10, node_states=?11, last_transition_seq=?12, created_at=?13,
    updated_at=?14, state_checksum=?15
  WHERE run_id=?1 AND record_version=?16 AND write_id=?17";

const EVENT: &str = "INSERT INTO run_history(run_id, revision, write_id, type, recorded_at, data)
  VALUES(?1, ?2, ?3, ?4, ?5, ?6)";

const PUT_DISPATCH: &str = "INSERT INTO dispatches(
    run_id, node, put_id, effect_key, attempt, expected, due_at, free_at, claim_id, tier, workflow)
  VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?11, ?9, ?10)
  ON CONFLICT DO UPDATE SET put_id=excluded.put_id, effect_key=excluded.effect_key,
    attempt=excluded.attempt, expected=excluded.expected, due_at=excluded.due_at,
    free_at=excluded.free_at, claim_id=excluded.claim_id, tier=excluded.tier, workflow=excluded.workflow";

/// Tier and workflow are the run's: where there is none, nothing is put. One that is there already
/// takes the earlier time, and whoever has it in hand has it no more: what it is put for, they may not
/// have seen (WFL-11).
const PUT_WAKEUP: &str = "INSERT INTO wakeups(
    run_id, wake_key, put_id, due_at, free_at, claim_id, requeues, since_seq, tier, workflow)
  SELECT ?1, ?2, ?3, ?4, ?4, NULL, ?5, ?6, r.tier, r.workflow FROM runs r WHERE r.run_id=?1
  ON CONFLICT DO UPDATE SET put_id=excluded.put_id, due_at=min(due_at, excluded.due_at),
    free_at=min(due_at, excluded.due_at), claim_id=NULL, requeues=excluded.requeues,
    since_seq=excluded.since_seq, tier=excluded.tier, workflow=excluded.workflow";

/// Performs `body` in a transaction of its own; false of it: the condition did not hold, and nothing
/// is written. `stop` halts before COMMIT, in tests.
pub fn transact(
    connection: &Connection,
    deadline: &Deadline,
    stop: Option<&dyn Fn()>,
    body: impl FnOnce() -> Result<bool, Fault>,
) -> Try {
    if let Err(fault) = deadline.insist(|| execute(connection, "BEGIN IMMEDIATE")) {
        return Try::NotCommitted(fault);
    }
    match stands(connection).and_then(|()| body()) {
        Ok(true) => {}
        Ok(false) => {
            roll_back(connection);
            return Try::Refused;
        }
        Err(fault) => {
            roll_back(connection);
            return Try::NotCommitted(fault);
        }
    }
    if let Some(stop) = stop {
        stop();
    }
    commit(connection, deadline)
}

/// The schema is one that this binary knows, and has runs.
pub fn stands(connection: &Connection) -> Result<(), Fault> {
    const SQL: &str = "SELECT schema_version FROM store";
    let version: i64 = prepared(connection, SQL)?.query_row([], |row| row.get(0))?;
    check_version(version, VERSION, "the store", UPGRADE)?;
    check_runs(version, "the store", UPGRADE)?;
    Ok(())
}

fn prepared<'a>(connection: &'a Connection, sql: &str) -> Result<CachedStatement<'a>, Fault> {
    Ok(connection.prepare_cached(sql)?)
}

/// One tick's write; false if the row was not as it was found, or a dispatch that was to be withdrawn
/// had been started (WFL-6, WFL-9).
pub fn append(
    connection: &Connection,
    append: &RunAppend,
    columns: &RunColumns,
) -> Result<bool, Fault> {
    let row = &columns.row;
    for taken in &append.dispatches_deleted {
        prepared(connection, "DELETE FROM dispatches WHERE run_id=?1 AND node=?2 AND put_id=?3")?
            .execute(params![
                row.run_id,
                taken.id.node.as_str(),
                &taken.id.put_id.0.as_bytes()[..]
            ])?;
        let Some((key, revision)) = &taken.unstarted else { continue };
        let stands =
            prepared(connection, "SELECT record_version FROM effects WHERE effect_key=?1")?
                .query_row([key.as_str()], |row| row.get::<_, i64>(0))
                .optional()?;
        let expected = revision.map(|at| integer("expected", at)).transpose()?;
        if stands != expected {
            return Ok(false);
        }
    }
    match write_row(connection, append, row)? {
        1 => {}
        0 => return Ok(false),
        more => return Err(miscounted_rows(more)),
    }
    // Only where the row was written is there history.
    for event in &columns.events {
        one(prepared(connection, EVENT)?.execute(params![
            row.run_id,
            event.revision,
            &event.write_id.as_bytes()[..],
            event.kind,
            event.recorded_at,
            event.data,
        ])?)?;
    }
    for item in &append.consumed {
        prepared(connection, "DELETE FROM inbox WHERE run_id=?1 AND item_id=?2")?
            .execute(params![row.run_id, &item.0.as_bytes()[..]])?;
    }
    for dispatch in &columns.dispatches {
        one(put_dispatch(connection, dispatch, row)?)?;
    }
    for (key, put_id) in &append.wakeups_deleted {
        delete_wakeup(connection, &row.run_id, key, put_id.0.as_bytes())?;
    }
    for wakeup in &columns.wakeups {
        put_wakeup(connection, wakeup)?;
    }
    Ok(true)
}

fn write_row(connection: &Connection, append: &RunAppend, row: &RunRow) -> Result<usize, Fault> {
    macro_rules! with {
        ($($more:expr),*) => {
            params![
                row.run_id,
                row.record_version,
                &row.write_id.as_bytes()[..],
                row.workflow,
                row.tier,
                row.status,
                row.reason,
                row.definition,
                &row.definition_hash[..],
                row.inputs,
                row.node_states,
                row.last_transition_seq,
                row.created_at,
                row.updated_at,
                &row.state_checksum[..],
                $($more),*
            ]
        };
    }
    Ok(match &append.found {
        None => prepared(connection, INSERT)?.execute(with![])?,
        Some(found) => {
            let revision = integer("record_version", found.revision)?;
            let write_id = &found.write_id.0.as_bytes()[..];
            prepared(connection, UPDATE)?.execute(with![revision, write_id])?
        }
    })
}

fn put_dispatch(
    connection: &Connection,
    dispatch: &DispatchRow,
    run: &RunRow,
) -> Result<usize, Fault> {
    Ok(prepared(connection, PUT_DISPATCH)?.execute(params![
        dispatch.run_id,
        dispatch.node,
        &dispatch.put_id.as_bytes()[..],
        dispatch.effect_key,
        dispatch.attempt,
        dispatch.expected,
        dispatch.due_at,
        dispatch.free_at,
        run.tier,
        run.workflow,
        dispatch.claim_id.as_ref().map(|id| &id.as_bytes()[..]),
    ])?)
}

fn put_wakeup(connection: &Connection, wakeup: &WakeupRow) -> Result<(), Fault> {
    prepared(connection, PUT_WAKEUP)?.execute(params![
        wakeup.run_id,
        wakeup.wake_key,
        &wakeup.put_id.as_bytes()[..],
        wakeup.due_at,
        wakeup.requeues,
        wakeup.since_seq,
    ])?;
    Ok(())
}

fn delete_wakeup(
    connection: &Connection,
    run: &str,
    key: &str,
    put_id: &[u8],
) -> Result<(), Fault> {
    const SQL: &str = "DELETE FROM wakeups WHERE run_id=?1 AND wake_key=?2 AND put_id=?3";
    prepared(connection, SQL)?.execute(params![run, key, put_id])?;
    Ok(())
}

/// Puts an item into a run's inbox, and its wakeup; false if there is no such run.
pub fn put_inbox(connection: &Connection, item: &InboxItem, now: Timestamp) -> Result<bool, Fault> {
    const THERE: &str = "SELECT 1 FROM runs WHERE run_id=?1";
    const PUT: &str = "INSERT INTO inbox(run_id, item_id, put_at, wish) VALUES(?1, ?2, ?3, ?4)
        ON CONFLICT DO NOTHING";
    let run = item.run.as_str();
    if !prepared(connection, THERE)?.exists([run])? {
        return Ok(false);
    }
    let id = &item.id.0.as_bytes()[..];
    prepared(connection, PUT)?.execute(params![run, id, now.0, wish_text(&item.wish)?])?;
    let wakeup = WakeupRow {
        run_id: run.to_owned(),
        wake_key: inbox_key(item),
        put_id: item.id.0,
        due_at: now.0,
        requeues: 0,
        since_seq: 0,
    };
    put_wakeup(connection, &wakeup)?;
    Ok(true)
}

/// Deletes wakeups, and puts another, if one is told.
pub fn finish(
    connection: &Connection,
    wakeups: &[Wakeup],
    next: Option<&WakeupRow>,
) -> Result<bool, Fault> {
    for wakeup in wakeups {
        let (run, put_id) = (wakeup.run.as_str(), wakeup.put_id.0.as_bytes());
        delete_wakeup(connection, run, &wakeup.key, put_id)?;
    }
    if let Some(next) = next {
        put_wakeup(connection, next)?;
    }
    Ok(true)
}

/// Gives a dispatch back; false if the claim has it no more.
pub fn postpone(
    connection: &Connection,
    dispatch: &DispatchRef,
    claim: &[u8],
    due: Timestamp,
) -> Result<bool, Fault> {
    const SQL: &str = "UPDATE dispatches SET due_at=?5, free_at=?5, claim_id=NULL
        WHERE run_id=?1 AND node=?2 AND put_id=?3 AND claim_id=?4";
    let changed = prepared(connection, SQL)?.execute(params![
        dispatch.run.as_str(),
        dispatch.node.as_str(),
        &dispatch.put_id.0.as_bytes()[..],
        claim,
        due.0,
    ])?;
    match changed {
        0 => Ok(false),
        1 => Ok(true),
        more => Err(miscounted_rows(more)),
    }
}

/// Asked in the transaction of an effect's append, before it writes: whether the dispatch that it acts
/// on is there (WFL-9). Nobody deletes it meanwhile: the lock of all writers is held.
pub fn still_dispatched(connection: &Connection, append: &Append) -> Result<bool, Fault> {
    const SQL: &str = "SELECT 1 FROM dispatches WHERE run_id=?1 AND node=?2 AND put_id=?3";
    let Some(dispatch) = &append.dispatch else { return Ok(true) };
    let put_id = &dispatch.put_id.0.as_bytes()[..];
    Ok(prepared(connection, SQL)?.exists(params![
        dispatch.run.as_str(),
        dispatch.node.as_str(),
        put_id
    ])?)
}

/// In the transaction of an effect's append, after it was written: the wakeup of the run that the
/// effect belongs to, if it wakes it (WFL-10).
pub fn wake(connection: &Connection, append: &Append) -> Result<(), Fault> {
    let Some((run, key)) = woken_by(append) else { return Ok(()) };
    let wakeup = WakeupRow {
        run_id: run.to_owned(),
        wake_key: key,
        put_id: append.next.write_id.0,
        due_at: now().0,
        requeues: 0,
        since_seq: 0,
    };
    put_wakeup(connection, &wakeup)
}
