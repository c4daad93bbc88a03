//! Many conditional writes in one transaction, in the same two exchanges as one (BAT-1, BAT-2).
//!
//! The rows travel as arrays, a column each, so that the statement's text is the same for a group of
//! any size. What is refused is simply not among the keys that come back.
use std::collections::HashSet;

use tokio_postgres::types::Type;

use super::cells::Cells;
use super::error::{Fault, is_victim};
use super::health::{NO_ORIGIN_COLUMNS, ORIGIN_COLUMNS, Origin};
use super::link::{Committed, Link, LinkError};
use super::read::Param;
use super::runs;
use super::schema::{self, VERSION};
use super::transaction::{MARK, begin, both, roll_back};
use super::write::{Try, Writing, rolled_back};
use crate::store::columns::{Columns, OLDEST, miscounted, time_over};
use crate::store::row::{Malformed, integer, stream_name};
use crate::store::runs::columns::woken_by;
use crate::store::{Append, CouldNot, Reason};

/// How a try of a group ended, on this link.
pub enum Group {
    /// Which of the appends matched, in their order, and what became of those.
    Tried(Vec<bool>, Try, Option<Origin>),
    /// A statement failed: nothing was committed, and they are to be written singly.
    Apart,
}

/// The columns of a row, each with the type of its array.
const ROW: [(&str, &str); 26] = [
    ("effect_key", "text"),
    ("record_version", "bigint"),
    ("write_id", "bytea"),
    ("reservation_id", "bytea"),
    ("state", "text"),
    ("first_attempt", "bigint"),
    ("attempt", "bigint"),
    ("attempt_id", "text"),
    ("fingerprint", "bytea"),
    ("program", "text"),
    ("arguments", "bigint"),
    ("command", "text"),
    ("lease_expires_at", "bigint"),
    ("cause", "text"),
    ("reaped", "boolean"),
    ("in_doubt", "boolean"),
    ("doubted", "boolean"),
    ("exit_code", "bigint"),
    ("signal", "bigint"),
    ("detail", "text"),
    ("resolved_by", "text"),
    ("reason", "text"),
    ("proven_failures", "bigint"),
    ("run_id", "text"),
    ("created_at", "bigint"),
    ("updated_at", "bigint"),
];
const EVENT: [(&str, &str); 8] = [
    ("effect_key", "text"),
    ("revision", "bigint"),
    ("write_id", "bytea"),
    ("outcome_id", "bytea"),
    ("type", "text"),
    ("attempt", "bigint"),
    ("recorded_at", "bigint"),
    ("data", "text"),
];
const OUTPUT: [(&str, &str); 7] = [
    ("effect_key", "text"),
    ("stream", "text"),
    ("attempt", "bigint"),
    ("bytes", "bigint"),
    ("whole", "boolean"),
    ("head", "bytea"),
    ("tail", "bytea"),
];

/// The first parameters: version, store id, mark.
const BEFORE: usize = 3;

/// Tries `appends`, of different keys and in their order, once. After [`Try::Aborted`] and
/// [`Try::Unknown`] the link is not to be used any more.
pub fn append(link: &Link, appends: &[&Append], writing: &Writing<'_>) -> Group {
    if appends.iter().any(|append| append.dispatch.is_some()) {
        // A reserve that is held to a dispatch waits for whoever is at that (WFL-9), and the others
        // are not to wait with it.
        return Group::Apart;
    }
    let columns: Result<Vec<Columns>, _> = appends.iter().map(|a| Columns::of(a)).collect();
    // One that no store can hold is told of by itself, not by the group.
    let Ok(columns) = columns else {
        return Group::Apart;
    };
    let (matched, origin) = match write(link, appends, &columns, writing) {
        Ok(written) => written,
        Err(fault) => {
            roll_back(link);
            let said_no = matches!(fault, Fault::Link(LinkError::Server(_)));
            return match said_no && !link.is_dead() || matches!(fault, Fault::Known(_)) {
                true => Group::Apart,
                false => Group::Tried(vec![true; appends.len()], Try::NotCommitted(fault), None),
            };
        }
    };
    if !matched.contains(&true) {
        roll_back(link);
        return Group::Tried(matched, Try::Refused, None);
    }
    if let Some(stop) = writing.before_commit {
        appends.iter().zip(&matched).filter(|(_, matched)| **matched).for_each(|(a, _)| stop(a));
    }
    if writing.deadline.passed() {
        roll_back(link);
        return Group::Tried(matched, Try::NotCommitted(time_over().into()), None);
    }
    // From here on only the server's word that it is committed, or that it is not, counts.
    let tried = match link.commit(writing.deadline.left()) {
        Ok(Committed::Yes) => Try::Landed,
        Ok(Committed::RolledBack) => Try::Aborted(rolled_back().into()),
        Err(error) if is_victim(&error) => Try::Aborted(error.into()),
        Err(error) => Try::Unknown(error.into()),
    };
    Group::Tried(matched, tried, origin)
}

/// Everything up to COMMIT.
fn write(
    link: &Link,
    appends: &[&Append],
    columns: &[Columns],
    writing: &Writing<'_>,
) -> Result<(Vec<bool>, Option<Origin>), Fault> {
    let (deadline, names) = (writing.deadline, writing.names);
    let mark = appends.first().map_or_else(String::new, |a| a.next.write_id.0.simple().to_string());
    let opening = begin(deadline.left(), &mark);
    let shape = Shape::of(appends);
    let sql = names.fill(&shape.statement(writing.home.is_some()));
    let rows = Rows::of(appends, columns)?;
    let store_id: &[u8] = writing.store_id.as_bytes();
    let mut params: Vec<Param<'_>> =
        vec![(&VERSION, Type::INT8), (&store_id, Type::BYTEA), (&mark, Type::TEXT)];
    rows.params(shape, &mut params);
    let answer = link.run(deadline.left(), async |client| {
        let (begun, rows) =
            both(client.batch_execute(&opening), client.query_typed(&sql, &params)).await;
        begun?;
        rows
    })?;
    let Some(row) = answer.first() else {
        return Err(Malformed::new("store_id", "the store has lost its row").into());
    };
    let mut cells = Cells::new(row, 0);
    schema::check(cells.get("schema_version")?, names)?;
    if cells.id("store_id")? != writing.store_id {
        return Err(names.another_store().into());
    }
    if cells.or_null("mark")? != Some(true) {
        return Err(not_in_transaction().into());
    }
    let durable: &str = cells.get("synchronous_commit")?;
    let written: Vec<&str> = cells.get("written")?;
    let (events, outputs): (i64, i64) = (cells.get("events")?, cells.get("outputs")?);
    let origin = Origin::read(&mut cells)?;
    let keys: HashSet<&str> = written.iter().copied().collect();
    let matched: Vec<bool> =
        appends.iter().map(|append| keys.contains(append.next.key.as_str())).collect();
    // Each key once, and of each that was written all of its events and outputs.
    let landed = || appends.iter().zip(&matched).filter(|(_, matched)| **matched);
    let wanted = (
        landed().count(),
        landed().map(|(append, _)| append.history.len()).sum(),
        landed().map(|(append, _)| append.outputs.len()).sum(),
    );
    let count = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
    if (written.len(), count(events), count(outputs)) != wanted {
        return Err(miscounted(events.unsigned_abs().saturating_add(outputs.unsigned_abs())).into());
    }
    if !written.is_empty() && matches!(durable, "off" | "local") {
        // Whoever set it: the role, the database, or another client of the same pooler (PGS-7).
        link.batch("SET LOCAL synchronous_commit = on", deadline.left())?;
    }
    Ok((matched, origin))
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

/// What a group consists of: what it has none of is not mentioned, and not planned.
#[derive(Debug, Clone, Copy)]
struct Shape {
    inserts: bool,
    updates: bool,
    outputs: bool,
    wakes: bool,
}

impl Shape {
    fn of(appends: &[&Append]) -> Self {
        Self {
            inserts: appends.iter().any(|append| append.found.is_none()),
            updates: appends.iter().any(|append| append.found.is_some()),
            outputs: appends.iter().any(|append| !append.outputs.is_empty()),
            wakes: appends.iter().any(|append| woken_by(append).is_some()),
        }
    }

    fn statement(self, tells_origin: bool) -> String {
        let row: Vec<(&str, &str)> = ROW
            .into_iter()
            .chain([("floor", "bigint"), ("found_version", "bigint"), ("found_write_id", "bytea")])
            .collect();
        let names = |of: &[(&str, &str)]| -> Vec<String> {
            of.iter().map(|(name, _)| (*name).to_owned()).collect()
        };
        let columns = names(&ROW).join(", ");
        let values = names(&ROW).iter().map(|name| format!("g.{name}")).collect::<Vec<_>>();
        let set: Vec<String> =
            ROW.iter().skip(1).map(|(name, _)| format!("{name} = g.{name}")).collect();
        let marked = format!("pg_catalog.current_setting('{MARK}', true) = $3");
        let mut sql = format!(
            "WITH store AS (
               SELECT schema_version, store_id, attempt_floor,
                 schema_version BETWEEN {OLDEST} AND $1 AND store_id = $2 AND {marked} AS fits
               FROM :schema.store),
             given AS (SELECT {} FROM {})",
            collated(&names(&row)),
            unnest(BEFORE, &row, "g"),
        );
        let mut written = Vec::new();
        if self.inserts {
            sql += &format!(
                ", inserted AS (
                   INSERT INTO :schema.effects({columns})
                   SELECT {} FROM given g, store s
                   WHERE s.fits AND g.found_version IS NULL AND g.floor = s.attempt_floor
                   ORDER BY g.effect_key
                   ON CONFLICT (effect_key) DO NOTHING RETURNING effect_key)",
                values.join(", ")
            );
            written.push("SELECT effect_key FROM inserted");
        }
        if self.updates {
            sql += &format!(
                ", updated AS (
                   UPDATE :schema.effects e SET {} FROM given g
                   WHERE e.effect_key = g.effect_key AND e.record_version = g.found_version
                     AND e.write_id = g.found_write_id AND (SELECT fits FROM store)
                   RETURNING e.effect_key)",
                set.join(", ")
            );
            written.push("SELECT effect_key FROM updated");
        }
        sql += &format!(", written AS ({})", written.join(" UNION ALL "));
        let after = BEFORE + row.len();
        let beside = |name: &str, table: &str, before: usize, of: &[(&str, &str)], tail: &str| {
            let columns = names(of).join(", ");
            format!(
                ", {name} AS (
                   INSERT INTO :schema.{table}({columns})
                   SELECT {columns} FROM (SELECT {} FROM {}) g
                   WHERE g.effect_key IN (SELECT effect_key FROM written) {tail} RETURNING 1)",
                collated(&names(of)),
                unnest(before, of, "g"),
            )
        };
        sql += &beside("events", "history", after, &EVENT, "");
        if self.outputs {
            let replace = "ON CONFLICT (effect_key, attempt, stream) DO UPDATE SET
                bytes = excluded.bytes, whole = excluded.whole, head = excluded.head,
                tail = excluded.tail";
            sql += &beside("outputs", "output", after + EVENT.len(), &OUTPUT, replace);
        }
        if self.wakes {
            sql += &format!(", woken AS ({})", runs::wake_all());
        }
        let of_outputs = match self.outputs {
            true => "(SELECT pg_catalog.count(*) FROM outputs)",
            false => "0::bigint",
        };
        let origin = if tells_origin { ORIGIN_COLUMNS } else { NO_ORIGIN_COLUMNS };
        sql + &format!(
            " SELECT s.schema_version, s.store_id, {marked},
                pg_catalog.current_setting('synchronous_commit'),
                ARRAY(SELECT effect_key FROM written),
                (SELECT pg_catalog.count(*) FROM events), {of_outputs}, {origin}
              FROM store s"
        )
    }
}

/// The columns, the key among them in the order of its bytes.
fn collated(names: &[String]) -> String {
    let column = |name: &String| match name.as_str() {
        "effect_key" => "effect_key COLLATE pg_catalog.\"C\" AS effect_key".to_owned(),
        name => name.to_owned(),
    };
    names.iter().map(column).collect::<Vec<_>>().join(", ")
}

/// `ROWS FROM (unnest($4::text[]), ...) AS g(effect_key, ...)`: parameters from the one behind
/// `before` on.
fn unnest(before: usize, of: &[(&str, &str)], name: &str) -> String {
    let arrays: Vec<String> = of
        .iter()
        .zip(before + 1..)
        .map(|((_, kind), at)| {
            format!("pg_catalog.unnest(${at}::pg_catalog.{}[])", catalogued(kind))
        })
        .collect();
    let names: Vec<&str> = of.iter().map(|(name, _)| *name).collect();
    format!("ROWS FROM ({}) AS {name}({})", arrays.join(", "), names.join(", "))
}

/// A type under the name that it has in the catalogue.
fn catalogued(kind: &str) -> &str {
    match kind {
        "bigint" => "int8",
        "boolean" => "bool",
        other => other,
    }
}

type Ints = Vec<Option<i64>>;
type Texts<'a> = Vec<Option<&'a str>>;
type Bytes<'a> = Vec<Option<&'a [u8]>>;
type Flags = Vec<bool>;

/// One array, of a type.
enum Array<'a> {
    Int(Ints),
    Text(Texts<'a>),
    Bytes(Bytes<'a>),
    Flag(Flags),
}

/// The arrays of a group.
struct Rows<'a> {
    row: Vec<Array<'a>>,
    events: Vec<Array<'a>>,
    outputs: Vec<Array<'a>>,
}

impl<'a> Rows<'a> {
    fn of(appends: &[&'a Append], columns: &'a [Columns]) -> Result<Self, Malformed> {
        let row = columns.iter().map(|columns| &columns.row);
        macro_rules! int {
            ($rows:expr, $of:expr) => {
                Array::Int($rows.map($of).collect())
            };
        }
        macro_rules! text {
            ($rows:expr, $of:expr) => {
                Array::Text($rows.map($of).collect())
            };
        }
        macro_rules! bytes {
            ($rows:expr, $of:expr) => {
                Array::Bytes($rows.map($of).collect())
            };
        }
        macro_rules! flag {
            ($rows:expr, $of:expr) => {
                Array::Flag($rows.map($of).collect())
            };
        }
        let floors: Result<Ints, Malformed> = appends
            .iter()
            .map(|append| integer("attempt_floor", append.attempt_floor).map(Some))
            .collect();
        let versions: Result<Ints, Malformed> = appends
            .iter()
            .map(|append| match &append.found {
                None => Ok(None),
                Some(found) => integer("record_version", found.revision).map(Some),
            })
            .collect();
        let rows = vec![
            text!(row.clone(), |r| Some(r.effect_key.as_str())),
            int!(row.clone(), |r| Some(r.record_version)),
            bytes!(row.clone(), |r| Some(&r.write_id.as_bytes()[..])),
            bytes!(row.clone(), |r| Some(&r.reservation_id.as_bytes()[..])),
            text!(row.clone(), |r| Some(r.state.as_str())),
            int!(row.clone(), |r| Some(r.first_attempt)),
            int!(row.clone(), |r| Some(r.attempt)),
            text!(row.clone(), |r| Some(r.attempt_id.as_str())),
            bytes!(row.clone(), |r| Some(&r.fingerprint[..])),
            text!(row.clone(), |r| Some(r.program.as_str())),
            int!(row.clone(), |r| Some(r.arguments)),
            text!(row.clone(), |r| r.command.as_deref()),
            int!(row.clone(), |r| r.lease_expires_at),
            text!(row.clone(), |r| r.cause.as_deref()),
            flag!(row.clone(), |r| r.reaped),
            flag!(row.clone(), |r| r.in_doubt),
            flag!(row.clone(), |r| r.doubted),
            int!(row.clone(), |r| r.exit_code),
            int!(row.clone(), |r| r.signal),
            text!(row.clone(), |r| r.detail.as_deref()),
            text!(row.clone(), |r| r.resolved_by.as_deref()),
            text!(row.clone(), |r| r.reason.as_deref()),
            int!(row.clone(), |r| Some(r.proven_failures)),
            text!(row.clone(), |r| r.run_id.as_deref()),
            int!(row.clone(), |r| Some(r.created_at)),
            int!(row, |r| Some(r.updated_at)),
            Array::Int(floors?),
            Array::Int(versions?),
            bytes!(appends.iter(), |append| {
                append.found.as_ref().map(|found| &found.write_id.0.as_bytes()[..])
            }),
        ];
        let events = columns.iter().flat_map(|columns| {
            columns.events.iter().map(|event| (columns.row.effect_key.as_str(), event))
        });
        let events = vec![
            text!(events.clone(), |(key, _)| Some(key)),
            int!(events.clone(), |(_, e)| Some(e.revision)),
            bytes!(events.clone(), |(_, e)| Some(&e.write_id.as_bytes()[..])),
            bytes!(events.clone(), |(_, e)| e.outcome_id.as_ref().map(|id| &id.as_bytes()[..])),
            text!(events.clone(), |(_, e)| Some(e.kind.as_str())),
            int!(events.clone(), |(_, e)| Some(e.attempt)),
            int!(events.clone(), |(_, e)| Some(e.recorded_at)),
            text!(events, |(_, e)| Some(e.data.as_str())),
        ];
        let kept = appends
            .iter()
            .flat_map(|append| append.outputs.iter().map(|kept| (append.next.key.as_str(), kept)));
        let attempts: Result<Ints, Malformed> =
            kept.clone().map(|(_, k)| integer("attempt", k.attempt).map(Some)).collect();
        let sizes: Result<Ints, Malformed> =
            kept.clone().map(|(_, k)| integer("bytes", k.captured.bytes).map(Some)).collect();
        let outputs = vec![
            text!(kept.clone(), |(key, _)| Some(key)),
            text!(kept.clone(), |(_, k)| Some(stream_name(k.stream))),
            Array::Int(attempts?),
            Array::Int(sizes?),
            flag!(kept.clone(), |(_, k)| k.captured.whole),
            bytes!(kept.clone(), |(_, k)| Some(k.captured.head.as_slice())),
            bytes!(kept, |(_, k)| Some(k.captured.tail.as_slice())),
        ];
        Ok(Self { row: rows, events, outputs })
    }

    fn params<'b>(&'b self, shape: Shape, params: &mut Vec<Param<'b>>) {
        let outputs = self.outputs.iter().filter(|_| shape.outputs);
        for array in self.row.iter().chain(&self.events).chain(outputs) {
            params.push(match array {
                Array::Int(array) => (array, Type::INT8_ARRAY),
                Array::Text(array) => (array, Type::TEXT_ARRAY),
                Array::Bytes(array) => (array, Type::BYTEA_ARRAY),
                Array::Flag(array) => (array, Type::BOOL_ARRAY),
            });
        }
    }
}
