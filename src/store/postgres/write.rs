//! One conditional write, in two exchanges: BEGIN with the one statement that writes row, history and
//! outputs, as one message; then COMMIT alone (PGS-1 to PGS-4).
//!
//! | what fails | end | why |
//! |---|---|---|
//! | anything before COMMIT was sent | not committed | the transaction is given up, COMMIT is never sent |
//! | the server says that there is no transaction behind BEGIN | unknown | the write was committed by itself, or is gone |
//! | COMMIT, by SQLSTATE 40001 or 40P01 | not committed | the server says that it aborted |
//! | COMMIT, answered with the tag ROLLBACK | not committed | the server says that there was nothing to commit |
//! | COMMIT, by anything else | unknown | an error, a lost line and silence prove nothing |
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::cells::Cells;
use super::error::{Fault, is_victim};
use super::health::{Home, Origin, SINCE};
use super::link::{Committed, Link};
use super::literal::{self, Cell, Value};
use super::read::Param;
use super::runs::{self, OfRun};
use super::schema::{self, Names, VERSION};
use super::transaction::{Deadline, begin, roll_back};
use crate::plan::protocol::Kept;
use crate::store::columns::{Columns, OLDEST, miscounted, same_attempt, time_over};
use crate::store::row::{EventRow, Malformed, Row, integer, stream_name};
use crate::store::{Append, BeforeCommit, CouldNot, Reason};

/// How a try ended, on this link.
pub enum Try {
    /// Committed.
    Landed,
    /// The condition did not hold.
    Refused,
    /// Nothing was committed: COMMIT was not sent.
    NotCommitted(Fault),
    /// Nothing was committed: COMMIT was sent, and the server says that it aborted.
    Aborted(Fault),
    /// Nobody knows.
    Unknown(Fault),
}

/// What a try is made with.
pub struct Writing<'a> {
    /// The names of the store's tables.
    pub names: &'a Names,
    /// The store that must be there.
    pub store_id: Uuid,
    /// The server that it was found on, where this role may ask which it is.
    pub home: Option<&'a Home>,
    /// A stop point before COMMIT, of effects.
    pub before_commit: Option<&'a BeforeCommit>,
    /// When it has to be over.
    pub deadline: Deadline,
}

/// Asked only where no row came back: is it the store's doing, or that of the row? Or was the row
/// written, by this very transaction, and its history was not?
const WHY: &str = "SELECT schema_version, store_id, EXISTS (SELECT FROM :schema.effects
    WHERE effect_key = $1 AND write_id = $2
      AND xmin = pg_catalog.xid(pg_catalog.pg_current_xact_id_if_assigned()))
  FROM :schema.store";

/// Outputs that are longer together travel as they are, not as text, in an exchange of their own.
const INLINE_MAX: usize = 1 << 20;

/// Tries `append` once; also where it was written, as far as that is known. After
/// [`Try::Aborted`] and [`Try::Unknown`] the link is not to be used any more.
pub fn append(link: &Link, append: &Append, writing: &Writing<'_>) -> (Try, Option<Origin>) {
    let columns = match Columns::of(append) {
        Ok(columns) => columns,
        Err(error) => return (Try::NotCommitted(error.into()), None),
    };
    let written = write(link, append, &columns, writing);
    let stop = writing.before_commit.map(|stop| || stop(append));
    let stop = stop.as_ref().map(|stop| stop as &dyn Fn());
    end(link, written, stop, writing)
}

/// Ends a transaction, and tells how it ended: what was written in it is committed, or it is given up.
pub fn end(
    link: &Link,
    written: Result<Written, Fault>,
    before_commit: Option<&dyn Fn()>,
    writing: &Writing<'_>,
) -> (Try, Option<Origin>) {
    let origin = match written {
        Ok(Written::Row(origin)) => origin,
        Ok(Written::Refused) => {
            roll_back(link);
            return (Try::Refused, None);
        }
        Ok(Written::Outside(origin)) => return (Try::Unknown(not_in_transaction().into()), origin),
        Err(fault) => {
            roll_back(link);
            return (Try::NotCommitted(fault), None);
        }
    };
    if let Some(stop) = before_commit {
        stop();
    }
    if writing.deadline.passed() {
        roll_back(link);
        return (Try::NotCommitted(time_over().into()), None);
    }
    // From here on only the server's word that it is committed, or that it is not, counts.
    let tried = match link.commit(writing.deadline.left()) {
        Ok(Committed::Yes) => Try::Landed,
        Ok(Committed::RolledBack) => Try::Aborted(rolled_back().into()),
        Err(error) if is_victim(&error) => Try::Aborted(error.into()),
        Err(error) => Try::Unknown(error.into()),
    };
    (tried, origin)
}

/// How far it came before COMMIT.
pub enum Written {
    /// The row is written, there.
    Row(Option<Origin>),
    /// The condition did not hold.
    Refused,
    /// The row is written, there, and no transaction holds it back.
    Outside(Option<Origin>),
}

/// Everything up to COMMIT.
fn write(
    link: &Link,
    append: &Append,
    columns: &Columns,
    writing: &Writing<'_>,
) -> Result<Written, Fault> {
    let deadline = writing.deadline;
    let size = |kept: &Kept| kept.captured.head.len() + kept.captured.tail.len();
    let inline = append.outputs.iter().map(size).sum::<usize>() <= INLINE_MAX;
    let outputs = if inline { &append.outputs[..] } else { &[] };
    let sql = statement(begin(deadline.left(), ""), append, columns, outputs, writing)?;
    let answer = link.simple(&sql, deadline.left())?;
    let mut rows = answer.iter().filter_map(|message| {
        if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None }
    });
    // A row comes back for each event of the row that was written.
    let Some(row) = rows.next() else {
        why_not(link, append, writing)?;
        return Ok(Written::Refused);
    };
    let cell = |at: usize, column| {
        row.try_get(at).ok().flatten().ok_or_else(|| Malformed::new(column, "no text"))
    };
    let since = cell(1, "since");
    let home = writing.home;
    if !link.in_transaction() {
        let same = home.filter(|home| since.as_ref().is_ok_and(|since| home.since == *since));
        return Ok(Written::Outside(same.map(|home| home.origin.clone())));
    }
    let (durable, since) = (cell(0, "synchronous_commit")?, since?);
    let written: Option<usize> = cell(2, "outputs")?.parse().ok();
    let events = 1 + rows.count();
    if events != append.history.len().max(1) || written != Some(outputs.len()) {
        let more = written.unwrap_or_default() as u64;
        return Err(miscounted(more.saturating_add(events as u64)).into());
    }
    if !inline {
        write_outputs(link, append, writing)?;
    }
    let origin = match home {
        Some(home) if home.since == since => Some(home.origin.clone()),
        // Another of the servers behind one pooler; or it was started anew since the store was opened.
        Some(_) => Origin::ask(link, deadline)?,
        None => None,
    };
    if matches!(durable, "off" | "local") {
        // Whoever set it: the role, the database, or another client of the same pooler (PGS-7).
        link.batch("SET LOCAL synchronous_commit = on", deadline.left())?;
    }
    Ok(Written::Row(origin))
}

/// No row came back. That is the row's doing only where the store is the one that was opened, and
/// where nothing was written.
fn why_not(link: &Link, append: &Append, writing: &Writing<'_>) -> Result<(), Fault> {
    let names = writing.names;
    let (key, write_id) = (append.next.key.as_str(), &append.next.write_id.0.as_bytes()[..]);
    let params: [Param<'_>; 2] = [(&key, Type::TEXT), (&write_id, Type::BYTEA)];
    let rows = link.query(&names.fill(WHY), &params, writing.deadline.left())?;
    let Some(row) = rows.first() else {
        return Err(Malformed::new("store_id", "the store has lost its row").into());
    };
    let mut cells = Cells::new(row, 0);
    schema::check(cells.get("schema_version")?, names)?;
    if cells.id("store_id")? != writing.store_id {
        return Err(names.another_store().into());
    }
    if cells.get("written")? {
        return Err(miscounted(0).into());
    }
    Ok(())
}

/// The text of everything up to COMMIT.
///
/// The history comes from the row and the outputs do: where no row was written there is nothing to
/// join them with (HIS-3). A new connection has to learn of everything that a statement mentions, so
/// it mentions no more than is written. User's values go in last, and nothing is replaced behind them.
fn statement(
    opening: String,
    append: &Append,
    columns: &Columns,
    outputs: &[Kept],
    writing: &Writing<'_>,
) -> Result<String, Malformed> {
    let schema = writing.names.quoted();
    let key = ("effect_key", Value::Text(Some(&columns.row.effect_key)));
    let OfRun { dispatched, held, woken } = runs::of_effect(append, writing.names)?;
    let mut sql = opening;
    sql.push_str("; WITH ");
    sql.push_str(&dispatched);
    sql.push_str("written AS (");
    match &append.found {
        None => insert(&mut sql, append, &columns.row, held, writing)?,
        Some(found) => {
            let within = same_attempt(found, &append.next);
            sql.push_str(&format!("UPDATE {schema}.effects SET "));
            let cells = row_cells(&columns.row);
            let set: Vec<Cell<'_>> = cells
                .into_iter()
                .filter(|(column, _)| !(within && GRANTED.contains(column)))
                .filter(|(column, _)| *column != "effect_key")
                .collect();
            literal::assignments(&mut sql, &set)?;
            let revision = integer("record_version", found.revision)?;
            sql.push_str(" WHERE effect_key = ");
            literal::list(&mut sql, &[key], false)?;
            sql.push_str(&format!(" AND record_version = {revision} AND write_id = "));
            literal::bytes(&mut sql, found.write_id.0.as_bytes());
            sql.push_str(&format!(" AND EXISTS (SELECT FROM {schema}.store WHERE "));
            fits(&mut sql, writing);
            sql.push(')');
            sql.push_str(held);
        }
    }
    sql.push_str(" RETURNING 1)");
    sql.push_str(&woken);
    let mut count = "0";
    if !outputs.is_empty() {
        count = "(SELECT pg_catalog.count(*) FROM outputs)";
        sql.push_str(", outputs AS (");
        let cells = outputs.iter().map(|kept| output_cells(key, kept));
        let rows: Vec<_> = cells.collect::<Result<_, _>>()?;
        beside(&mut sql, schema, "output", &rows)?;
        sql.push_str(REPLACE);
        sql.push_str(" RETURNING 1)");
    }
    let answer = format!("pg_catalog.current_setting('synchronous_commit'), {SINCE}, {count}");
    let rows: Vec<_> = columns.events.iter().map(|event| event_cells(key, event)).collect();
    match rows.as_slice() {
        [] => sql.push_str(&format!(" SELECT {answer} FROM written")),
        rows => {
            sql.push(' ');
            beside(&mut sql, schema, "history", rows)?;
            sql.push_str(&format!(" RETURNING {answer}"));
        }
    }
    Ok(sql)
}

fn insert(
    sql: &mut String,
    append: &Append,
    row: &Row,
    held: &str,
    writing: &Writing<'_>,
) -> Result<(), Malformed> {
    let schema = writing.names.quoted();
    let cells = row_cells(row);
    let floor = integer("attempt_floor", append.attempt_floor)?;
    sql.push_str(&format!("INSERT INTO {schema}.effects({}) SELECT ", columns_of(&cells)));
    literal::list(sql, &cells, false)?;
    sql.push_str(&format!(" FROM {schema}.store WHERE "));
    fits(sql, writing);
    sql.push_str(&format!(
        " AND attempt_floor = {floor}{held} ON CONFLICT (effect_key) DO NOTHING"
    ));
    Ok(())
}

/// The store that must be there.
fn fits(sql: &mut String, writing: &Writing<'_>) {
    sql.push_str(&format!("schema_version BETWEEN {OLDEST} AND {VERSION} AND store_id = "));
    literal::bytes(sql, writing.store_id.as_bytes());
}

/// An INSERT of `rows` beside the row that was written.
fn beside(
    sql: &mut String,
    schema: &str,
    table: &str,
    rows: &[Vec<Cell<'_>>],
) -> Result<(), Malformed> {
    let columns = rows.first().map_or_else(String::new, |row| columns_of(row));
    sql.push_str(&format!("INSERT INTO {schema}.{table}({columns}) SELECT "));
    if let [row] = rows {
        // Of one row nothing has to be joined, and its columns tell the types.
        literal::list(sql, row, false)?;
        sql.push_str(" FROM written");
        return Ok(());
    }
    sql.push_str("v.* FROM written, (VALUES ");
    for (at, row) in rows.iter().enumerate() {
        sql.push_str(if at > 0 { ", (" } else { "(" });
        literal::list(sql, row, true)?;
        sql.push(')');
    }
    sql.push_str(") v");
    Ok(())
}

fn columns_of(cells: &[Cell<'_>]) -> String {
    cells.iter().map(|(column, _)| *column).collect::<Vec<_>>().join(", ")
}

/// What an attempt was granted with: within it these stay as they are.
const GRANTED: [&str; 10] = [
    "reservation_id",
    "first_attempt",
    "attempt",
    "attempt_id",
    "fingerprint",
    "program",
    "arguments",
    "command",
    "run_id",
    "created_at",
];

fn row_cells(row: &Row) -> [Cell<'_>; 26] {
    use Value::{Bytes, Flag, Int, Text};
    [
        ("effect_key", Text(Some(&row.effect_key))),
        ("record_version", Int(Some(row.record_version))),
        ("write_id", Bytes(Some(row.write_id.as_bytes()))),
        ("reservation_id", Bytes(Some(row.reservation_id.as_bytes()))),
        ("state", Text(Some(&row.state))),
        ("first_attempt", Int(Some(row.first_attempt))),
        ("attempt", Int(Some(row.attempt))),
        ("attempt_id", Text(Some(&row.attempt_id))),
        ("fingerprint", Bytes(Some(&row.fingerprint))),
        ("program", Text(Some(&row.program))),
        ("arguments", Int(Some(row.arguments))),
        ("command", Text(row.command.as_deref())),
        ("lease_expires_at", Int(row.lease_expires_at)),
        ("cause", Text(row.cause.as_deref())),
        ("reaped", Flag(row.reaped)),
        ("in_doubt", Flag(row.in_doubt)),
        ("doubted", Flag(row.doubted)),
        ("exit_code", Int(row.exit_code)),
        ("signal", Int(row.signal)),
        ("detail", Text(row.detail.as_deref())),
        ("resolved_by", Text(row.resolved_by.as_deref())),
        ("reason", Text(row.reason.as_deref())),
        ("proven_failures", Int(Some(row.proven_failures))),
        ("run_id", Text(row.run_id.as_deref())),
        ("created_at", Int(Some(row.created_at))),
        ("updated_at", Int(Some(row.updated_at))),
    ]
}

fn event_cells<'a>(key: Cell<'a>, event: &'a EventRow) -> Vec<Cell<'a>> {
    use Value::{Bytes, Int, Text};
    vec![
        key,
        ("revision", Int(Some(event.revision))),
        ("write_id", Bytes(Some(event.write_id.as_bytes()))),
        ("outcome_id", Bytes(event.outcome_id.as_ref().map(|id| &id.as_bytes()[..]))),
        ("type", Text(Some(&event.kind))),
        ("attempt", Int(Some(event.attempt))),
        ("recorded_at", Int(Some(event.recorded_at))),
        ("data", Text(Some(&event.data))),
    ]
}

fn output_cells<'a>(key: Cell<'a>, kept: &'a Kept) -> Result<Vec<Cell<'a>>, Malformed> {
    use Value::{Bytes, Flag, Int, Text};
    Ok(vec![
        key,
        ("stream", Text(Some(stream_name(kept.stream)))),
        ("attempt", Int(Some(integer("attempt", kept.attempt)?))),
        ("bytes", Int(Some(integer("bytes", kept.captured.bytes)?))),
        ("whole", Flag(kept.captured.whole)),
        ("head", Bytes(Some(&kept.captured.head))),
        ("tail", Bytes(Some(&kept.captured.tail))),
    ])
}

/// What an attempt wrote earlier under the same name gives way.
const REPLACE: &str = " ON CONFLICT (effect_key, attempt, stream) DO UPDATE SET
    bytes = excluded.bytes, whole = excluded.whole, head = excluded.head, tail = excluded.tail";

/// Long outputs, as they are, beside the row that this transaction has written.
fn write_outputs(link: &Link, append: &Append, writing: &Writing<'_>) -> Result<(), Fault> {
    let sql = writing.names.fill(
        "INSERT INTO :schema.output(effect_key, stream, attempt, bytes, whole, head, tail)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    ) + REPLACE;
    let key = append.next.key.as_str();
    for kept in &append.outputs {
        let (stream, captured) = (stream_name(kept.stream), &kept.captured);
        let attempt = integer("attempt", kept.attempt)?;
        let bytes = integer("bytes", captured.bytes)?;
        let params: [Param<'_>; 7] = [
            (&key, Type::TEXT),
            (&stream, Type::TEXT),
            (&attempt, Type::INT8),
            (&bytes, Type::INT8),
            (&captured.whole, Type::BOOL),
            (&captured.head, Type::BYTEA),
            (&captured.tail, Type::BYTEA),
        ];
        match link.execute(&sql, &params, writing.deadline.left())? {
            1 => {}
            other => return Err(miscounted(other).into()),
        }
    }
    Ok(())
}

/// The server's word that there was nothing to commit.
pub fn rolled_back() -> CouldNot {
    CouldNot {
        reason: Reason::Unreachable,
        message: "the server answered COMMIT with ROLLBACK: nothing was written".to_owned(),
        hint: None,
    }
}

/// The server took BEGIN, and has no transaction: whatever it is, it does not hold to the protocol.
fn not_in_transaction() -> CouldNot {
    CouldNot {
        reason: Reason::Unreachable,
        message: "the server did not keep the write in the transaction that was begun for it"
            .to_owned(),
        hint: None,
    }
}
