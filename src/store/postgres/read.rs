//! What is read for one key: one statement, so that row, floor and event are of one moment, and one
//! round trip (STO-1).
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::cells::Cells;
use super::error::Fault;
use super::health::{self, Origin};
use super::link::Link;
use super::schema::{self, Names};
use super::transaction::{Deadline, begin, both, roll_back};
use crate::plan::effect::HistoryRow;
use crate::plan::key::Key;
use crate::plan::protocol::{Ask, Captured, Found, Stream};
use crate::plan::time::Timestamp;
use crate::store::columns::{event_columns, record_columns};
use crate::store::row::{Malformed, natural, stream_name};

/// A parameter with its type: nothing is prepared by name, and nothing is asked of the server first.
pub type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The server's clock in microseconds. Not `now()`: that is the transaction's start, and stale
/// after a wait for a lock.
pub const CLOCK: &str = "(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint";

/// The row alone: what a run without mishap loads. `:columns` are an event's, where one is wanted.
const LOAD: &str = concat!(
    "SELECT s.schema_version, s.store_id, s.attempt_floor, :clock, ",
    record_columns!(),
    ":columns FROM :schema.store s LEFT JOIN :schema.effects e ON e.effect_key = $1"
);

/// Takes the row's lock, so that an updater in flight has ended by then.
const LOCK: &str = "SELECT 1 FROM :schema.effects e WHERE e.effect_key = $1 FOR UPDATE";

/// What is loaded, and of which store.
pub struct Loading<'a> {
    /// The names of its tables.
    pub names: &'a Names,
    /// Its id, once that is known: what another store says is no answer.
    pub store_id: Uuid,
    /// The effect.
    pub key: &'a Key,
    /// The event to bring along.
    pub ask: Ask,
}

impl Loading<'_> {
    /// The row of the key, the floor, the event, and the server's clock, read after the row.
    ///
    /// # Errors
    /// The link's; [`Malformed`] for what cannot be read; an unknown version; another store.
    pub fn load(&self, link: &Link, deadline: Deadline) -> Result<Found, Fault> {
        let (sql, number, id) = self.statement();
        let key = self.key.as_str();
        let params = params(&key, number.as_ref(), id.as_ref());
        let rows = link.query(&sql, &params, deadline.left())?;
        self.found(&rows)
    }

    /// The same in a transaction of its own, after the lock of the row; and where it was read. A
    /// server that takes no writes refuses (CMT-9).
    ///
    /// # Errors
    /// As [`Loading::load`]; the server cannot say which it is.
    pub fn load_locked(
        &self,
        link: &Link,
        deadline: Deadline,
    ) -> Result<(Found, Option<Origin>), Fault> {
        let answer = self.locked(link, deadline);
        // Nothing was written, so nothing is to be committed.
        roll_back(link);
        answer
    }

    fn locked(&self, link: &Link, deadline: Deadline) -> Result<(Found, Option<Origin>), Fault> {
        let opening = begin(deadline.left(), "");
        let lock = self.names.fill(LOCK);
        let key = self.key.as_str();
        let of_key: [Param<'_>; 1] = [(&key, Type::TEXT)];
        link.run(deadline.left(), async |client| {
            let (begun, locked) =
                both(client.batch_execute(&opening), client.query_typed(&lock, &of_key)).await;
            begun?;
            locked
        })?;
        // A statement of its own, hence a snapshot of its own: it sees what the lock waited for.
        let (sql, number, id) = self.statement();
        let params = params(&key, number.as_ref(), id.as_ref());
        let (found, origin) = link.run(deadline.left(), async |client| {
            let (found, origin) =
                both(client.query_typed(&sql, &params), client.query_typed(health::ORIGIN, &[]))
                    .await;
            Ok((found?, origin?))
        })?;
        let origin = origin.first().map(|row| Origin::read(&mut Cells::new(row, 0)));
        Ok((self.found(&found)?, origin.transpose()?.flatten()))
    }

    fn found(&self, rows: &[tokio_postgres::Row]) -> Result<Found, Fault> {
        let Some(row) = rows.first() else {
            return Err(Malformed::new("store_id", "the store has lost its row").into());
        };
        found(row, self.names, self.store_id)
    }

    /// The statement, and its parameters behind the key.
    fn statement(&self) -> (String, Option<i64>, Option<Vec<u8>>) {
        const NEWEST: &str = "LATERAL (SELECT * FROM :schema.history WHERE effect_key = $1 AND ";
        const OF_THEM: &str = " ORDER BY revision DESC LIMIT 1) h ON true";
        let which = |number: u64| Some(i64::try_from(number).unwrap_or(i64::MAX));
        let by_revision =
            |what: &str| format!(":schema.history h ON h.effect_key = $1 AND h.revision = {what}");
        let newest = |what: &str| format!("{NEWEST}{what}{OF_THEM}");
        let (event, number, id) = match self.ask {
            Ask::Nothing => (String::new(), None, None),
            Ask::Revision(revision) => (by_revision("$2"), which(revision), None),
            Ask::Last => (by_revision("e.record_version"), None, None),
            Ask::Began(attempt) => {
                (newest("attempt = $2 AND type = 'began'"), which(attempt), None)
            }
            Ask::Outcome(id) => (newest("outcome_id = $2"), None, Some(id.0.as_bytes().to_vec())),
            Ask::LastChange => {
                (newest("type NOT IN ('late_outcome', 'probed', 'lease_renewed')"), None, None)
            }
        };
        let (columns, join) = match event.as_str() {
            "" => ("", ""),
            _ => (concat!(", ", event_columns!()), " LEFT JOIN "),
        };
        let sql = LOAD.replace(":clock", CLOCK).replace(":columns", columns);
        (self.names.fill(&format!("{sql}{join}{event}")), number, id)
    }
}

/// The rows of many keys, of each the event at one revision if it is asked for.
const LOAD_MANY: &str = concat!(
    "SELECT s.schema_version, s.store_id, s.attempt_floor, :clock, ",
    record_columns!(),
    ":columns FROM :schema.store s, ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]):arrays) \
     WITH ORDINALITY AS k(:names) \
     LEFT JOIN :schema.effects e ON e.effect_key = k.key COLLATE pg_catalog.\"C\":join \
     ORDER BY k.at"
);

/// Takes their rows' locks, in the order of the keys.
const LOCK_MANY: &str = "SELECT 1 FROM :schema.effects e WHERE e.effect_key = ANY($1) \
                         ORDER BY e.effect_key FOR UPDATE";

/// What is loaded for many keys together (BAT-3, BAT-4).
pub struct LoadingMany<'a> {
    names: &'a Names,
    store_id: Uuid,
    keys: Vec<&'a str>,
    /// The events at these revisions, where any is asked for.
    revisions: Option<Vec<Option<i64>>>,
}

impl<'a> LoadingMany<'a> {
    /// `None` where something else is asked for than a row, or the event at a revision: that is rare,
    /// and asked for key by key.
    pub fn new(names: &'a Names, store_id: Uuid, asked: &[(&'a Key, Ask)]) -> Option<Self> {
        if asked.len() < 2 {
            return None;
        }
        let revision = |ask: Ask| match ask {
            Ask::Nothing => Some(None),
            Ask::Revision(revision) => Some(Some(i64::try_from(revision).unwrap_or(i64::MAX))),
            Ask::Outcome(_) | Ask::Began(_) | Ask::Last | Ask::LastChange => None,
        };
        let revisions: Vec<Option<i64>> =
            asked.iter().map(|(_, ask)| revision(*ask)).collect::<Option<_>>()?;
        let any = revisions.iter().any(Option::is_some);
        Some(Self {
            names,
            store_id,
            keys: asked.iter().map(|(key, _)| key.as_str()).collect(),
            revisions: any.then_some(revisions),
        })
    }

    /// As [`Loading::load`], for each in the order of the questions.
    ///
    /// # Errors
    /// The link's, and what is wrong with all of them.
    pub fn load(
        &self,
        link: &Link,
        deadline: Deadline,
    ) -> Result<Vec<Result<Found, Fault>>, Fault> {
        let sql = self.statement();
        let rows = link.query(&sql, &self.params(), deadline.left())?;
        self.found(&rows)
    }

    /// As [`Loading::load_locked`].
    ///
    /// # Errors
    /// As [`LoadingMany::load`].
    #[expect(clippy::type_complexity, reason = "one answer each, and where all of it was read")]
    pub fn load_locked(
        &self,
        link: &Link,
        deadline: Deadline,
    ) -> Result<(Vec<Result<Found, Fault>>, Option<Origin>), Fault> {
        let answer = self.locked(link, deadline);
        roll_back(link);
        answer
    }

    #[expect(clippy::type_complexity, reason = "as above")]
    fn locked(
        &self,
        link: &Link,
        deadline: Deadline,
    ) -> Result<(Vec<Result<Found, Fault>>, Option<Origin>), Fault> {
        let opening = begin(deadline.left(), "");
        let lock = self.names.fill(LOCK_MANY);
        let of_keys: [Param<'_>; 1] = [(&self.keys, Type::TEXT_ARRAY)];
        link.run(deadline.left(), async |client| {
            let (begun, locked) =
                both(client.batch_execute(&opening), client.query_typed(&lock, &of_keys)).await;
            begun?;
            locked
        })?;
        let (sql, params) = (self.statement(), self.params());
        let (rows, origin) = link.run(deadline.left(), async |client| {
            let (rows, origin) =
                both(client.query_typed(&sql, &params), client.query_typed(health::ORIGIN, &[]))
                    .await;
            Ok((rows?, origin?))
        })?;
        let origin = origin.first().map(|row| Origin::read(&mut Cells::new(row, 0)));
        Ok((self.found(&rows)?, origin.transpose()?.flatten()))
    }

    fn statement(&self) -> String {
        let with_events = self.revisions.is_some();
        let columns = if with_events { concat!(", ", event_columns!()) } else { "" };
        let arrays = if with_events { ", pg_catalog.unnest($2::pg_catalog.int8[])" } else { "" };
        let names = if with_events { "key, revision, at" } else { "key, at" };
        let join = match with_events {
            true => {
                " LEFT JOIN :schema.history h ON h.effect_key = k.key COLLATE pg_catalog.\"C\" \
                 AND h.revision = k.revision"
            }
            false => "",
        };
        let sql = LOAD_MANY.replace(":clock", CLOCK).replace(":columns", columns);
        let sql = sql.replace(":arrays", arrays).replace(":names", names).replace(":join", join);
        self.names.fill(&sql)
    }

    fn params(&self) -> Vec<Param<'_>> {
        let mut params: Vec<Param<'_>> = vec![(&self.keys, Type::TEXT_ARRAY)];
        params.extend(
            self.revisions.iter().map(|all| (all as &(dyn ToSql + Sync), Type::INT8_ARRAY)),
        );
        params
    }

    fn found(&self, rows: &[tokio_postgres::Row]) -> Result<Vec<Result<Found, Fault>>, Fault> {
        if rows.len() != self.keys.len() {
            return Err(Malformed::new("store_id", "the store has lost its row").into());
        }
        let found = |row| found(row, self.names, self.store_id);
        Ok(rows.iter().map(found).collect())
    }
}

fn found(row: &tokio_postgres::Row, names: &Names, store_id: Uuid) -> Result<Found, Fault> {
    let mut cells = Cells::new(row, 0);
    schema::check(cells.get("schema_version")?, names)?;
    if cells.id("store_id")? != store_id {
        return Err(names.another_store().into());
    }
    Ok(Found {
        attempt_floor: natural("attempt_floor", cells.get("attempt_floor")?)?,
        now: Timestamp(cells.get("now")?),
        record: cells.record()?.map(|row| row.record()).transpose()?,
        event: cells.event()?.map(|row| row.event()).transpose()?,
    })
}

fn params<'a>(key: &'a &str, number: Option<&'a i64>, id: Option<&'a Vec<u8>>) -> Vec<Param<'a>> {
    let mut params: Vec<Param<'a>> = vec![(key, Type::TEXT)];
    params.extend(number.map(|number| (number as &(dyn ToSql + Sync), Type::INT8)));
    params.extend(id.map(|id| (id as &(dyn ToSql + Sync), Type::BYTEA)));
    params
}

/// The history of `key` from revision `from` on.
///
/// # Errors
/// The link's; [`Malformed`].
pub fn history(
    link: &Link,
    names: &Names,
    key: &Key,
    from: u64,
    deadline: Deadline,
) -> Result<Vec<HistoryRow>, Fault> {
    const SQL: &str = concat!(
        "SELECT ",
        event_columns!(),
        " FROM :schema.history h WHERE h.effect_key = $1 AND h.revision >= $2 ORDER BY h.revision"
    );
    let key = key.as_str();
    let from = i64::try_from(from).unwrap_or(i64::MAX);
    let params: [Param<'_>; 2] = [(&key, Type::TEXT), (&from, Type::INT8)];
    let rows = link.query(&names.fill(SQL), &params, deadline.left())?;
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        let event = Cells::new(row, 0).event()?;
        events.push(event.ok_or_else(|| Malformed::new("revision", "null"))?.event()?);
    }
    Ok(events)
}

/// What is stored of one stream of one attempt.
///
/// # Errors
/// The link's; [`Malformed`].
pub fn output(
    link: &Link,
    names: &Names,
    (key, attempt, stream): (&Key, u64, Stream),
    deadline: Deadline,
) -> Result<Option<Captured>, Fault> {
    const SQL: &str = "SELECT head, tail, bytes, whole FROM :schema.output \
                       WHERE effect_key = $1 AND attempt = $2 AND stream = $3";
    let key = key.as_str();
    let attempt = i64::try_from(attempt).unwrap_or(i64::MAX);
    let stream = stream_name(stream);
    let params: [Param<'_>; 3] =
        [(&key, Type::TEXT), (&attempt, Type::INT8), (&stream, Type::TEXT)];
    let rows = link.query(&names.fill(SQL), &params, deadline.left())?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut cells = Cells::new(row, 0);
    Ok(Some(Captured {
        head: cells.get("head")?,
        tail: cells.get("tail")?,
        bytes: natural("bytes", cells.get("bytes")?)?,
        whole: cells.get("whole")?,
    }))
}
