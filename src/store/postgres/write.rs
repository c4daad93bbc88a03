//! One conditional write, in two exchanges: BEGIN with the one statement that writes row, history and
//! outputs; then COMMIT alone (PGS-1 to PGS-4).
//!
//! | what fails | end | why |
//! |---|---|---|
//! | anything before COMMIT was sent | not committed | the transaction is given up, COMMIT is never sent |
//! | COMMIT, by SQLSTATE 40001 or 40P01 | not committed | the server says that it aborted |
//! | COMMIT, answered with the tag ROLLBACK | not committed | the server says that there was nothing to commit |
//! | COMMIT, by anything else | unknown | an error, a lost line and silence prove nothing |
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::cells::Cells;
use super::error::{Fault, is_victim};
use super::health::{NO_ORIGIN_COLUMNS, ORIGIN_COLUMNS, Origin};
use super::link::{Committed, Link};
use super::read::Param;
use super::runs;
use super::schema::{self, Names, VERSION};
use super::transaction::{Deadline, MARK, begin, both, roll_back};
use crate::plan::protocol::Kept;
use crate::store::columns::{Columns, OLDEST, miscounted, same_attempt, time_over};
use crate::store::row::{EventRow, Malformed, integer, stream_name};
use crate::store::{Append, BeforeCommit, Captured, CouldNot, Reason};

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
    /// Whether this role may ask which server it is.
    pub tells_origin: bool,
    /// A stop point before COMMIT, of effects.
    pub before_commit: Option<&'a BeforeCommit>,
    /// When it has to be over.
    pub deadline: Deadline,
}

const INSERT: &str = "INSERT INTO :schema.effects(
    effect_key, record_version, write_id, reservation_id, state, first_attempt, attempt, attempt_id,
    fingerprint, program, arguments, command, lease_expires_at, cause, reaped, in_doubt, doubted,
    exit_code, signal, detail, resolved_by, reason, proven_failures, run_id, created_at, updated_at)
  SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
    $21, $22, $23, $24, $25, $26
  FROM :schema.store WHERE :fits AND attempt_floor = $30:held
  ON CONFLICT (effect_key) DO NOTHING";

const UPDATE: &str = "UPDATE :schema.effects SET
    record_version = $2, write_id = $3, reservation_id = $4, state = $5, first_attempt = $6,
    attempt = $7, attempt_id = $8, fingerprint = $9, program = $10, arguments = $11, command = $12,
    lease_expires_at = $13, cause = $14, reaped = $15, in_doubt = $16, doubted = $17,
    exit_code = $18, signal = $19, detail = $20, resolved_by = $21, reason = $22,
    proven_failures = $23, run_id = $24, created_at = $25, updated_at = $26
  WHERE effect_key = $1 AND record_version = $30 AND write_id = $31
    AND EXISTS (SELECT FROM :schema.store WHERE :fits):held";

/// The same within an attempt: what it was granted with stays as it is.
const UPDATE_WITHIN: &str = "UPDATE :schema.effects SET
    record_version = $2, write_id = $3, state = $5, lease_expires_at = $13, cause = $14,
    reaped = $15, in_doubt = $16, doubted = $17, exit_code = $18, signal = $19, detail = $20,
    resolved_by = $21, reason = $22, proven_failures = $23, updated_at = $26
  WHERE effect_key = $1 AND record_version = $30 AND write_id = $31
    AND EXISTS (SELECT FROM :schema.store WHERE :fits):held";

/// The store that must be there, in the transaction that was begun for the write.
const FITS: &str = "schema_version BETWEEN :oldest AND $27 AND store_id = $28 AND :marked";

/// `:row` is one of the two above. History and outputs come from it: where no row was written there
/// is nothing to join them with (HIS-3). The answer counts all three. A new connection has to learn of
/// everything that a statement mentions, so it mentions no more than is written.
const WRITE: &str = "WITH :dispatched written AS (:row RETURNING 1):events:outputs:woken
  SELECT pg_catalog.current_setting('synchronous_commit'), (SELECT pg_catalog.count(*) FROM written),
    :of_events, :of_outputs, :origin";

/// Asked only where no row was written: is it the store's doing, or that of the row?
const WHY: &str = "SELECT schema_version, store_id, :marked FROM :schema.store";

const EVENTS: &str = ",
  events AS (
    INSERT INTO :schema.history(
      effect_key, revision, write_id, outcome_id, type, attempt, recorded_at, data)
    SELECT $1, :each
    RETURNING 1)";

const OUTPUTS: &str = ",
  outputs AS (
    INSERT INTO :schema.output(effect_key, stream, attempt, bytes, whole, head, tail)
    SELECT $1, :each
    ON CONFLICT (effect_key, attempt, stream) DO UPDATE SET bytes = excluded.bytes,
      whole = excluded.whole, head = excluded.head, tail = excluded.tail
    RETURNING 1)";

/// The parameters of a row, its condition included: with a write_id in it for an UPDATE.
const OF_INSERT: usize = 30;
const OF_UPDATE: usize = 31;
/// The columns of an event and of an output, but for the key.
const OF_EVENT: usize = 7;
const OF_OUTPUT: usize = 6;

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
    let (refused, origin) = match written {
        Ok(Written { refused, origin }) => (refused, origin),
        Err(fault) => {
            roll_back(link);
            return (Try::NotCommitted(fault), None);
        }
    };
    if refused {
        roll_back(link);
        return (Try::Refused, None);
    }
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

/// What was written in the transaction that is open.
pub struct Written {
    /// Nothing: the condition did not hold.
    pub refused: bool,
    /// Where, as far as the server says.
    pub origin: Option<Origin>,
}

/// The first columns of the answer of a statement that writes: what must be so whatever was written.
pub const ANSWER: &str = "s.schema_version, s.store_id, :marked, \
    pg_catalog.current_setting('synchronous_commit')";

/// Reads them.
///
/// # Errors
/// An unknown version, another store, a statement outside of its transaction.
pub fn answered<'row>(
    cells: &mut Cells<'row>,
    writing: &Writing<'_>,
) -> Result<Durable<'row>, Fault> {
    stands(cells, writing)?;
    Ok(Durable(cells.get("synchronous_commit")?))
}

/// Whether the store is the one that was opened, and the statement was one of its transaction.
fn stands(cells: &mut Cells<'_>, writing: &Writing<'_>) -> Result<(), Fault> {
    schema::check(cells.get("schema_version")?, writing.names)?;
    if cells.id("store_id")? != writing.store_id {
        return Err(writing.names.another_store().into());
    }
    if cells.or_null("mark")? != Some(true) {
        return Err(not_in_transaction().into());
    }
    Ok(())
}

/// How far a commit in this transaction is waited for.
#[must_use]
pub struct Durable<'row>(&'row str);

impl Durable<'_> {
    /// Waits until it is on disk, whoever said otherwise: the role, the database, or another client of
    /// the same pooler (PGS-7).
    ///
    /// # Errors
    /// The link's.
    pub fn raise(self, link: &Link, deadline: Deadline) -> Result<(), Fault> {
        if matches!(self.0, "off" | "local") {
            link.batch("SET LOCAL synchronous_commit = on", deadline.left())?;
        }
        Ok(())
    }
}

/// What a statement finds out about its own transaction; `$N` has the mark.
pub fn marked(parameter: usize) -> String {
    format!("pg_catalog.current_setting('{MARK}', true) = ${parameter}")
}

/// Everything up to COMMIT.
fn write(
    link: &Link,
    append: &Append,
    columns: &Columns,
    writing: &Writing<'_>,
) -> Result<Written, Fault> {
    let deadline = writing.deadline;
    let mark = append.next.write_id.0.simple().to_string();
    let opening = begin(deadline.left(), &mark);
    let sql = statement(append, writing);
    let values = Values::of(append, columns, writing)?;
    let params = values.params(columns, &mark);
    // Both are answered before anything is concluded: an answer that nobody waits for would be
    // taken for the next one's.
    let rows = link.run(deadline.left(), async |client| {
        let (begun, rows) =
            both(client.batch_execute(&opening), client.query_typed(&sql, &params)).await;
        begun?;
        rows
    })?;
    let row = rows.first().ok_or_else(|| Malformed::new("written", "no answer"))?;
    let mut cells = Cells::new(row, 0);
    let durable = Durable(cells.get("synchronous_commit")?);
    let mut count = |column| cells.get::<i64>(column);
    let (written, events, outputs) = (count("written")?, count("events")?, count("outputs")?);
    let refused = match written {
        0 => true,
        1 => false,
        more => return Err(miscounted(more.unsigned_abs()).into()),
    };
    let origin = Origin::read(&mut cells)?;
    if refused {
        why_not(link, writing, &mark)?;
        return Ok(Written { refused, origin });
    }
    let whole = |counted: i64, wanted: usize| usize::try_from(counted) == Ok(wanted);
    if !whole(events, append.history.len()) || !whole(outputs, append.outputs.len()) {
        return Err(miscounted(events.unsigned_abs().saturating_add(outputs.unsigned_abs())).into());
    }
    durable.raise(link, deadline)?;
    Ok(Written { refused, origin })
}

/// No row was written. That is the row's doing only where the store is the one that was opened, and
/// where the write was made in its transaction.
fn why_not(link: &Link, writing: &Writing<'_>, mark: &String) -> Result<(), Fault> {
    let sql = writing.names.fill(&WHY.replace(":marked", &marked(1)));
    let rows = link.query(&sql, &[(mark, Type::TEXT)], writing.deadline.left())?;
    let Some(row) = rows.first() else {
        return Err(Malformed::new("store_id", "the store has lost its row").into());
    };
    stands(&mut Cells::new(row, 0), writing)
}

fn statement(append: &Append, writing: &Writing<'_>) -> String {
    let (row, before) = match &append.found {
        Some(found) if same_attempt(found, &append.next) => (UPDATE_WITHIN, OF_UPDATE),
        Some(_) => (UPDATE, OF_UPDATE),
        None => (INSERT, OF_INSERT),
    };
    let events = append.history.len();
    let part = |text: &str, before: usize, columns: usize, rows: usize| match rows {
        0 => String::new(),
        // Of one row nothing has to be joined.
        1 => text.replace(":each", &format!("{} FROM written", listed(before, columns))),
        rows => {
            let values = numbered(before, columns, rows);
            text.replace(":each", &format!("v.* FROM written, (VALUES {values}) v"))
        }
    };
    let counted = |name: &str, rows: usize| match rows {
        0 => "0::bigint".to_owned(),
        _ => format!("(SELECT pg_catalog.count(*) FROM {name})"),
    };
    let origin = if writing.tells_origin { ORIGIN_COLUMNS } else { NO_ORIGIN_COLUMNS };
    let outputs_after = before + events * OF_EVENT;
    let last = outputs_after + append.outputs.len() * OF_OUTPUT;
    let (dispatched, held, woken) = runs::of_effect(append, last);
    let sql = WRITE
        .replace(":events", &part(EVENTS, before, OF_EVENT, events))
        .replace(":outputs", &part(OUTPUTS, outputs_after, OF_OUTPUT, append.outputs.len()))
        .replace(":of_events", &counted("events", events))
        .replace(":of_outputs", &counted("outputs", append.outputs.len()))
        .replace(":woken", &woken)
        .replace(":dispatched", &dispatched)
        .replace(":row", row)
        .replace(":held", held)
        .replace(":fits", FITS)
        .replace(":oldest", &OLDEST.to_string())
        .replace(":origin", origin)
        .replace(":marked", &marked(29));
    writing.names.fill(&sql)
}

/// `($32, $33), ($34, $35)`: so many rows of so many columns, behind the first `before` parameters.
fn numbered(before: usize, columns: usize, rows: usize) -> String {
    let row = |row: usize| format!("({})", listed(before + row * columns, columns));
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

/// `$32, $33`: so many parameters, behind the first `before`.
fn listed(before: usize, columns: usize) -> String {
    let numbers: Vec<String> = (before + 1..=before + columns).map(|at| format!("${at}")).collect();
    numbers.join(", ")
}

/// The values that have to be put together before they can be referred to.
struct Values<'a> {
    ids: [&'a [u8]; 3],
    store_id: &'a [u8],
    condition: i64,
    write_id: Option<&'a [u8]>,
    events: Vec<Event<'a>>,
    outputs: Vec<Output<'a>>,
    of_run: runs::OfEffect<'a>,
}

struct Event<'a> {
    row: &'a EventRow,
    write_id: &'a [u8],
    outcome_id: Option<&'a [u8]>,
}

struct Output<'a> {
    stream: &'static str,
    attempt: i64,
    bytes: i64,
    captured: &'a Captured,
}

impl<'a> Values<'a> {
    fn of(
        append: &'a Append,
        columns: &'a Columns,
        writing: &'a Writing<'_>,
    ) -> Result<Self, Malformed> {
        let event = |row: &'a EventRow| Event {
            row,
            write_id: row.write_id.as_bytes(),
            outcome_id: row.outcome_id.as_ref().map(|id| &id.as_bytes()[..]),
        };
        let output = |kept: &'a Kept| -> Result<Output<'a>, Malformed> {
            Ok(Output {
                stream: stream_name(kept.stream),
                attempt: integer("attempt", kept.attempt)?,
                bytes: integer("bytes", kept.captured.bytes)?,
                captured: &kept.captured,
            })
        };
        let row = &columns.row;
        Ok(Self {
            ids: [row.write_id.as_bytes(), row.reservation_id.as_bytes(), &row.fingerprint],
            store_id: writing.store_id.as_bytes(),
            condition: match &append.found {
                None => integer("attempt_floor", append.attempt_floor)?,
                Some(found) => integer("record_version", found.revision)?,
            },
            write_id: append.found.as_ref().map(|found| &found.write_id.0.as_bytes()[..]),
            events: columns.events.iter().map(event).collect(),
            outputs: append.outputs.iter().map(output).collect::<Result<_, _>>()?,
            of_run: runs::OfEffect::of(append),
        })
    }

    fn params<'b>(&'b self, columns: &'b Columns, mark: &'b String) -> Vec<Param<'b>> {
        let row = &columns.row;
        let mut params: Vec<Param<'b>> = vec![
            (&row.effect_key, Type::TEXT),
            (&row.record_version, Type::INT8),
            (&self.ids[0], Type::BYTEA),
            (&self.ids[1], Type::BYTEA),
            (&row.state, Type::TEXT),
            (&row.first_attempt, Type::INT8),
            (&row.attempt, Type::INT8),
            (&row.attempt_id, Type::TEXT),
            (&self.ids[2], Type::BYTEA),
            (&row.program, Type::TEXT),
            (&row.arguments, Type::INT8),
            (&row.command, Type::TEXT),
            (&row.lease_expires_at, Type::INT8),
            (&row.cause, Type::TEXT),
            (&row.reaped, Type::BOOL),
            (&row.in_doubt, Type::BOOL),
            (&row.doubted, Type::BOOL),
            (&row.exit_code, Type::INT8),
            (&row.signal, Type::INT8),
            (&row.detail, Type::TEXT),
            (&row.resolved_by, Type::TEXT),
            (&row.reason, Type::TEXT),
            (&row.proven_failures, Type::INT8),
            (&row.run_id, Type::TEXT),
            (&row.created_at, Type::INT8),
            (&row.updated_at, Type::INT8),
            (&VERSION, Type::INT8),
            (&self.store_id, Type::BYTEA),
            (mark, Type::TEXT),
            (&self.condition, Type::INT8),
        ];
        if let Some(write_id) = &self.write_id {
            params.push((write_id as &(dyn ToSql + Sync), Type::BYTEA));
        }
        for event in &self.events {
            let of_event: [Param<'b>; OF_EVENT] = [
                (&event.row.revision, Type::INT8),
                (&event.write_id, Type::BYTEA),
                (&event.outcome_id, Type::BYTEA),
                (&event.row.kind, Type::TEXT),
                (&event.row.attempt, Type::INT8),
                (&event.row.recorded_at, Type::INT8),
                (&event.row.data, Type::TEXT),
            ];
            params.extend(of_event);
        }
        for output in &self.outputs {
            let of_output: [Param<'b>; OF_OUTPUT] = [
                (&output.stream, Type::TEXT),
                (&output.attempt, Type::INT8),
                (&output.bytes, Type::INT8),
                (&output.captured.whole, Type::BOOL),
                (&output.captured.head, Type::BYTEA),
                (&output.captured.tail, Type::BYTEA),
            ];
            params.extend(of_output);
        }
        self.of_run.add(&mut params);
        params
    }
}

/// The server's word that there was nothing to commit.
pub fn rolled_back() -> CouldNot {
    CouldNot {
        reason: Reason::Unreachable,
        message: "the server answered COMMIT with ROLLBACK: nothing was written".to_owned(),
        hint: None,
    }
}

/// BEGIN took no effect, so the statement behind it wrote nothing either (PGS-2).
pub fn not_in_transaction() -> CouldNot {
    CouldNot {
        reason: Reason::Unreachable,
        message: "the server did not run the write in the transaction that was begun for it"
            .to_owned(),
        hint: None,
    }
}
