//! One conditional write: `BEGIN IMMEDIATE`, the row on its condition, the row count, its history,
//! its outputs, `COMMIT`, and nothing else (STO-2, CMT-2).
//!
//! | what fails | end | why |
//! |---|---|---|
//! | anything before COMMIT was issued | not committed | nothing of it can be found (CMT-5) |
//! | COMMIT, and the transaction is still open | not committed | it is rolled back (CMT-6) |
//! | COMMIT, by a failed write or a full disk | not committed | the log has no commit record (CMT-6) |
//! | COMMIT, by anything else, a failed fsync above all | unknown | the log may have it (CMT-8) |
use rusqlite::{Connection, Statement, params};

use super::busy::Deadline;
use super::error::{Fault, is_fsync, proves_no_commit};
use super::runs;
use crate::plan::protocol::{Append, Kept};
use crate::store::BeforeCommit;
use crate::store::columns::{Columns, miscounted, same_attempt, time_over};
use crate::store::row::{Row, integer, stream_name};

/// How a try ended, on this connection.
pub enum Try {
    /// Committed.
    Landed,
    /// The condition did not hold.
    Refused,
    /// Nothing was committed.
    NotCommitted(Fault),
    /// Nobody knows.
    Unknown(Fault),
}

/// Asked within the transaction, before anything is written in it (STO-4, CMT-2).
const STANDS: &str = "SELECT schema_version, attempt_floor FROM store";

const INSERT: &str = "INSERT INTO effects(
    effect_key, record_version, write_id, reservation_id, state, first_attempt, attempt, attempt_id,
    fingerprint, program, arguments, command, lease_expires_at, cause, reaped, in_doubt, doubted,
    exit_code, signal, detail, resolved_by, reason, proven_failures, run_id, created_at, updated_at)
  VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
    ?21, ?22, ?23, ?24, ?25, ?26)
  ON CONFLICT DO NOTHING";

/// What changes within an attempt; preparing the columns that do not is a good part of a run.
const UPDATE: &str = "UPDATE effects SET
    record_version=?4, write_id=?5, state=?6, lease_expires_at=?7, cause=?8, reaped=?9,
    in_doubt=?10, doubted=?11, exit_code=?12, signal=?13, detail=?14, resolved_by=?15, reason=?16,
    proven_failures=?17, updated_at=?18
  WHERE effect_key=?1 AND record_version=?2 AND write_id=?3";

/// What changes as well when an attempt is granted.
const UPDATE_ATTEMPT: &str = "UPDATE effects SET
    record_version=?4, write_id=?5, state=?6, lease_expires_at=?7, cause=?8, reaped=?9,
    in_doubt=?10, doubted=?11, exit_code=?12, signal=?13, detail=?14, resolved_by=?15, reason=?16,
    proven_failures=?17, updated_at=?18, reservation_id=?19, first_attempt=?20, attempt=?21,
    attempt_id=?22, fingerprint=?23, program=?24, arguments=?25, command=?26, run_id=?27,
    created_at=?28
  WHERE effect_key=?1 AND record_version=?2 AND write_id=?3";

const EVENT: &str = "INSERT INTO history(
    effect_key, revision, write_id, outcome_id, type, attempt, recorded_at, data)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const OUTPUT: &str = "INSERT INTO output(effect_key, attempt, stream, bytes, whole, head, tail)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
  ON CONFLICT DO UPDATE SET bytes=excluded.bytes, whole=excluded.whole, head=excluded.head,
    tail=excluded.tail";

/// Tries `append` once. Whatever is left of a transaction afterwards ends with the connection:
/// the caller drops it unless it is in autocommit.
pub fn append(
    connection: &Connection,
    deadline: &Deadline,
    append: &Append,
    before_commit: Option<&BeforeCommit>,
) -> Try {
    let columns = match Columns::of(append) {
        Ok(columns) => columns,
        Err(error) => return Try::NotCommitted(error.into()),
    };
    if let Err(fault) = deadline.insist(|| execute(connection, "BEGIN IMMEDIATE")) {
        return Try::NotCommitted(fault);
    }
    match stands(connection).and_then(|floor| write(connection, append, &columns, floor, false)) {
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
    if let Some(stop) = before_commit {
        stop(append);
    }
    commit(connection, deadline)
}

/// Ends the transaction that is open by COMMIT, and says what is known of that.
pub fn commit(connection: &Connection, deadline: &Deadline) -> Try {
    if deadline.passed() {
        roll_back(connection);
        return Try::NotCommitted(time_over().into());
    }
    let Err(fault) = execute(connection, "COMMIT") else {
        return Try::Landed;
    };
    let still_open = !connection.is_autocommit();
    if still_open {
        roll_back(connection);
    }
    if !is_fsync(&fault) && (still_open || proves_no_commit(&fault)) {
        Try::NotCommitted(fault)
    } else {
        Try::Unknown(fault)
    }
}

/// How a try of a group ended.
pub enum Group {
    /// Which of the appends matched, in their order, and what became of those. What did not match is
    /// refused whatever became of the others: it was seen under the lock of all writers.
    Tried(Vec<bool>, Try),
    /// A statement failed: nothing was committed, and they are to be written singly.
    Apart,
    /// It never came to a statement: nothing was committed.
    NotBegun(Fault),
}

/// Tries `appends`, of different keys and in their order, in one transaction (BAT-1). What is left of
/// it afterwards ends with the connection, as in [`append`].
pub fn append_group(
    connection: &Connection,
    deadline: &Deadline,
    appends: &[&Append],
    before_commit: Option<&BeforeCommit>,
) -> Group {
    // One that no store can hold is told of by itself, not by the group.
    let columns: Result<Vec<Columns>, _> =
        appends.iter().map(|append| Columns::of(append)).collect();
    let columns = match columns {
        Ok(columns) => columns,
        Err(_) => return Group::Apart,
    };
    if let Err(fault) = deadline.insist(|| execute(connection, "BEGIN IMMEDIATE")) {
        return Group::NotBegun(fault);
    }
    let written = stands(connection).and_then(|floor| {
        let each = appends.iter().zip(&columns);
        each.map(|(append, columns)| write(connection, append, columns, floor, true)).collect()
    });
    let matched: Vec<bool> = match written {
        Ok(matched) => matched,
        Err(_) => {
            roll_back(connection);
            return Group::Apart;
        }
    };
    if !matched.contains(&true) {
        roll_back(connection);
        return Group::Tried(matched, Try::Refused);
    }
    if let Some(stop) = before_commit {
        appends.iter().zip(&matched).filter(|(_, matched)| **matched).for_each(|(a, _)| stop(a));
    }
    Group::Tried(matched, commit(connection, deadline))
}

/// The floor, where the schema is one that this binary knows.
fn stands(connection: &Connection) -> Result<i64, Fault> {
    let (version, floor): (i64, i64) =
        connection.prepare_cached(STANDS)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    super::schema::check(version, "the store", "ctrlrun init --upgrade")?;
    Ok(floor)
}

/// False if the condition did not hold.
fn write(
    connection: &Connection,
    append: &Append,
    columns: &Columns,
    floor: i64,
    one_of_many: bool,
) -> Result<bool, Fault> {
    let row = &columns.row;
    if append.found.is_none() && floor != integer("attempt_floor", append.attempt_floor)? {
        return Ok(false);
    }
    if !runs::still_dispatched(connection, append)? {
        return Ok(false);
    }
    match write_row(connection, append, row, one_of_many)? {
        1 => {}
        0 => return Ok(false),
        more => return Err(miscounted_rows(more)),
    }
    // Only where the row was written is there history (HIS-3).
    for event in &columns.events {
        let outcome_id = event.outcome_id.as_ref().map(|id| &id.as_bytes()[..]);
        one(connection.prepare_cached(EVENT)?.execute(params![
            row.effect_key,
            event.revision,
            &event.write_id.as_bytes()[..],
            outcome_id,
            event.kind,
            event.attempt,
            event.recorded_at,
            event.data,
        ])?)?;
    }
    for kept in &append.outputs {
        let Kept { attempt, stream, captured } = kept;
        one(connection.prepare_cached(OUTPUT)?.execute(params![
            row.effect_key,
            integer("attempt", *attempt)?,
            stream_name(*stream),
            integer("bytes", captured.bytes)?,
            captured.whole,
            captured.head,
            captured.tail,
        ])?)?;
    }
    runs::wake(connection, append)?;
    Ok(true)
}

fn write_row(
    connection: &Connection,
    append: &Append,
    row: &Row,
    one_of_many: bool,
) -> Result<usize, Fault> {
    let (write_id, reservation_id) =
        (&row.write_id.as_bytes()[..], &row.reservation_id.as_bytes()[..]);
    let Some(found) = &append.found else {
        let insert = |insert: &mut Statement<'_>| {
            insert.execute(params![
                row.effect_key,
                row.record_version,
                write_id,
                reservation_id,
                row.state,
                row.first_attempt,
                row.attempt,
                row.attempt_id,
                &row.fingerprint[..],
                row.program,
                row.arguments,
                row.command,
                row.lease_expires_at,
                row.cause,
                row.reaped,
                row.in_doubt,
                row.doubted,
                row.exit_code,
                row.signal,
                row.detail,
                row.resolved_by,
                row.reason,
                row.proven_failures,
                row.run_id,
                row.created_at,
                row.updated_at,
            ])
        };
        return Ok(match one_of_many {
            true => insert(&mut *connection.prepare_cached(INSERT)?)?,
            // Once in a run: not kept, since what is kept is prepared without the fast allocator.
            false => insert(&mut connection.prepare(INSERT)?)?,
        });
    };
    let revision = integer("record_version", found.revision)?;
    macro_rules! changed_and {
        ($($more:expr),*) => {
            params![
                row.effect_key,
                revision,
                &found.write_id.0.as_bytes()[..],
                row.record_version,
                write_id,
                row.state,
                row.lease_expires_at,
                row.cause,
                row.reaped,
                row.in_doubt,
                row.doubted,
                row.exit_code,
                row.signal,
                row.detail,
                row.resolved_by,
                row.reason,
                row.proven_failures,
                row.updated_at,
                $($more),*
            ]
        };
    }
    Ok(if same_attempt(found, &append.next) {
        connection.prepare_cached(UPDATE)?.execute(changed_and![])?
    } else {
        connection.prepare_cached(UPDATE_ATTEMPT)?.execute(changed_and![
            reservation_id,
            row.first_attempt,
            row.attempt,
            row.attempt_id,
            &row.fingerprint[..],
            row.program,
            row.arguments,
            row.command,
            row.run_id,
            row.created_at
        ])?
    })
}

/// One statement without parameters.
///
/// # Errors
/// SQLite's.
pub fn execute(connection: &Connection, sql: &str) -> Result<(), Fault> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

/// Gives the transaction up. Some errors have rolled back already. Should it fail, the caller closes the connection.
pub fn roll_back(connection: &Connection) {
    if !connection.is_autocommit() {
        execute(connection, "ROLLBACK").ok();
    }
}

/// It changed one row, as it must.
pub fn one(changed: usize) -> Result<(), Fault> {
    match changed {
        1 => Ok(()),
        other => Err(miscounted_rows(other)),
    }
}

/// It changed another number of rows than one.
pub fn miscounted_rows(changed: usize) -> Fault {
    miscounted(u64::try_from(changed).unwrap_or(u64::MAX)).into()
}
