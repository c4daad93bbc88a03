//! Whether a server and a store on it may be used: asked once, at open, in one round trip (PGS-7).
use uuid::Uuid;

use super::cells::Cells;
use super::error::{Fault, code};
use super::link::Link;
use super::said::Said;
use super::schema::{self, Names};
use super::transaction::Deadline;
use crate::plan::time::Timestamp;
use crate::store::row::{Malformed, natural};
use crate::store::{CouldNot, Glimpse, Reason};

/// Which server it is, and which of its lives: a copy of it that was promoted has another timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    system: i64,
    timeline: String,
}

/// The server that a store was found on, while it was opened for writing.
#[derive(Debug, Clone)]
pub struct Home {
    /// Which one.
    pub origin: Origin,
    /// What it says to [`SINCE`]: where another connection is told the same, it leads to the same
    /// server, and to the same of its lives. For a server that takes writes goes on to write the log
    /// of its timeline until it ends.
    pub since: String,
}

/// When the server was started, to the microsecond and whatever the session's settings. It costs
/// much less than asking for an [`Origin`].
pub const SINCE: &str = "pg_catalog.timestamptz_send(pg_catalog.pg_postmaster_start_time())";

/// The columns of an [`Origin`]. The timeline is that of the log being written: the one in the
/// control file lags behind a promotion.
pub const ORIGIN_COLUMNS: &str = "(SELECT system_identifier FROM pg_catalog.pg_control_system()), \
     CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL ELSE pg_catalog.substr(\
     pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8) END";
/// The same where this role may not ask.
pub const NO_ORIGIN_COLUMNS: &str = "NULL::bigint, NULL::text";
/// What a role needs to be allowed for it; everyone is, unless it was taken away.
pub const GRANT_ORIGIN: &str = "GRANT EXECUTE ON FUNCTION pg_control_system(), \
     pg_walfile_name(pg_lsn), pg_current_wal_insert_lsn() to this role";
/// Asks for it alone.
pub const ORIGIN: &str = "SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()), \
     pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8)";

impl Origin {
    /// Reads its two columns; `None` where it is not known.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(cells: &mut Cells<'_>) -> Result<Option<Self>, Malformed> {
        let system = cells.or_null("system_identifier")?;
        let timeline = cells.or_null("timeline")?;
        Ok(system.zip(timeline).map(|(system, timeline)| Self { system, timeline }))
    }

    /// The same, of an answer in texts.
    fn said(said: &mut Said<'_>) -> Result<Option<Self>, Malformed> {
        let system = said.number_or_null("system_identifier")?;
        let timeline = said.or_null("timeline")?.map(str::to_owned);
        Ok(system.zip(timeline).map(|(system, timeline)| Self { system, timeline }))
    }

    /// Asks for it.
    ///
    /// # Errors
    /// The link's; [`Malformed`].
    pub fn ask(link: &Link, deadline: Deadline) -> Result<Option<Self>, Fault> {
        let rows = link.query(ORIGIN, &[], deadline.left())?;
        let row = rows.first().ok_or_else(|| Malformed::new("system_identifier", "no answer"))?;
        Ok(Self::read(&mut Cells::new(row, 0))?)
    }
}

/// What a store on a server is, once it was found fit.
pub struct Health {
    /// Its schema's version, one that this binary knows.
    pub schema_version: i64,
    /// Drawn when it was made.
    pub store_id: Uuid,
    /// Whether it carries the mark of a scratch store.
    pub scratch: bool,
    /// Which server it is on; `None` if this role may not ask, or did not.
    pub home: Option<Home>,
    /// The attempt floor and the clock.
    pub glimpse: Glimpse,
}

/// What of the server has to do with durability and order.
const SERVER: &str = "pg_catalog.current_setting('server_encoding'), \
     pg_catalog.current_setting('fsync'), pg_catalog.pg_is_in_recovery(), \
     pg_catalog.current_setting('transaction_read_only')";

/// A new connection knows nothing of the catalogue yet, so this asks no more of it than has to be
/// known, in the way that costs least: what a role may not do is found by the first write, which asks
/// for all of its rights; and a table that could be published is there and is logged. Where one could
/// not, [`TABLES`] tells why.
///
/// It is asked as texts: a statement without parameters costs either side least so. What would look
/// different under another `bytea_output` is encoded, but for [`SINCE`], which is only ever compared
/// with what a write is told, as a text again.
const STORE: &str = "s.schema_version, pg_catalog.encode(s.store_id, 'hex'), s.scratch, \
     s.attempt_floor, \
     pg_catalog.encode(pg_catalog.timestamptz_send(pg_catalog.clock_timestamp()), 'hex')";

/// How many of the tables beside `store` are there, and which of all are not logged.
const TABLES: &str = "SELECT pg_catalog.num_nonnulls(:tables), \
     ARRAY(SELECT c.relname::text FROM pg_catalog.pg_class c WHERE c.oid IN \
       (pg_catalog.to_regclass(:store), :tables) AND c.relpersistence <> 'p')";

/// Examines the server and the store.
///
/// # Errors
/// The link's, "there is no such table" among them; what is unfit, with the mend.
pub fn examine(
    link: &Link,
    names: &Names,
    writes: bool,
    deadline: Deadline,
) -> Result<Health, Fault> {
    match ask(link, names, writes, writes, deadline) {
        // Either the store is forbidden or the two functions are: asked again without them.
        Err(fault) if writes && code(&fault) == Some("42501") => {
            ask(link, names, writes, false, deadline)
        }
        answer => answer,
    }
}

/// Examines a server that holds no store yet.
///
/// # Errors
/// The link's; what is unfit, with the mend.
pub fn examine_server(link: &Link, names: &Names, deadline: Deadline) -> Result<(), Fault> {
    let answer = link.simple(&format!("SELECT {SERVER}"), deadline.left())?;
    let mut said = Said::first(&answer).ok_or_else(|| Malformed::new("fsync", "no answer"))?;
    server(&mut said, names, true)
}

fn ask(
    link: &Link,
    names: &Names,
    writes: bool,
    origin: bool,
    deadline: Deadline,
) -> Result<Health, Fault> {
    let columns = if origin { ORIGIN_COLUMNS } else { NO_ORIGIN_COLUMNS };
    let fine = names.tables().map(|table| {
        format!("pg_catalog.pg_relation_is_publishable(pg_catalog.to_regclass({table}))")
    });
    let sql = format!(
        "SELECT {SERVER}, {columns}, {SINCE}, {STORE}, {} FROM {}.store s",
        fine.join(" AND "),
        names.quoted()
    );
    let answer = link.simple(&sql, deadline.left())?;
    let Some(mut said) = Said::first(&answer) else {
        return Err(Malformed::new("store_id", "the store has lost its row").into());
    };
    server(&mut said, names, writes)?;
    let origin = Origin::said(&mut said)?;
    let since = said.text("since")?.to_owned();
    let schema_version = said.number("schema_version")?;
    schema::check(schema_version, names)?;
    let health = Health {
        schema_version,
        store_id: Uuid::from_bytes(said.hex("store_id")?),
        scratch: said.flag("scratch")?,
        home: origin.map(|origin| Home { origin, since }),
        glimpse: Glimpse {
            attempt_floor: natural("attempt_floor", said.number("attempt_floor")?)?,
            now: now(said.hex("now")?)?,
        },
    };
    // Null where a table is not there.
    if said.or_null("tables")? != Some("t") {
        tables(link, names, deadline)?;
    }
    Ok(health)
}

/// Microseconds from 1970 to 2000, from where the server counts.
const SERVERS_EPOCH: i64 = 946_684_800_000_000;

fn now(sent: [u8; 8]) -> Result<Timestamp, Malformed> {
    let micros = i64::from_be_bytes(sent).checked_add(SERVERS_EPOCH);
    let micros = micros.filter(|micros| *micros >= 0).map(Timestamp);
    micros.ok_or_else(|| Malformed::new("now", "the server's clock is before 1970"))
}

/// What is wrong with the tables, if anything is.
fn tables(link: &Link, names: &Names, deadline: Deadline) -> Result<(), Fault> {
    let [store, others @ ..] = names.tables();
    let others = others.map(|table| format!("pg_catalog.to_regclass({table})")).join(", ");
    let sql = TABLES.replace(":tables", &others).replace(":store", &store);
    let rows = link.query(&sql, &[], deadline.left())?;
    let row = rows.first().ok_or_else(|| Malformed::new("tables", "no answer"))?;
    let mut cells = Cells::new(row, 0);
    let there: i32 = cells.get("tables")?;
    let unlogged: Vec<&str> = cells.get("relpersistence")?;
    if there != 3 {
        let what = format!("of its four tables {} are there", there + 1);
        return Err(names.unfit(&what, "restore it from a backup, or drop the schema").into());
    }
    if !unlogged.is_empty() {
        let lost = unlogged.join(", ");
        let what = format!("what is written to {lost} is gone after a crash (UNLOGGED)");
        let mend = format!("ALTER TABLE {}.TABLE SET LOGGED, for each", names.quoted());
        return Err(names.unfit(&what, &mend).into());
    }
    Ok(())
}

fn server(said: &mut Said<'_>, names: &Names, writes: bool) -> Result<(), Fault> {
    let encoding = said.text("server_encoding")?;
    let fsync = said.text("fsync")?;
    let standby = said.flag("pg_is_in_recovery")?;
    let read_only = said.text("transaction_read_only")?;
    if encoding != "UTF8" {
        let what = format!("the database's encoding is {encoding}, and keys are UTF-8");
        let mend = "use another database: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0";
        return Err(names.unfit(&what, mend).into());
    }
    if !writes {
        return Ok(());
    }
    if standby {
        return Err(CouldNot {
            reason: Reason::Unreachable,
            message: format!("{}: the server is a standby and takes no writes", names.place),
            hint: Some(
                "name the primary, or several hosts with target_session_attrs=read-write"
                    .to_owned(),
            ),
        }
        .into());
    }
    if read_only == "on" {
        return Err(CouldNot {
            reason: Reason::Unreachable,
            message: format!(
                "{}: transactions are read-only here (default_transaction_read_only)",
                names.place
            ),
            hint: Some(
                "set it off for this role or database, or name the server that takes writes"
                    .to_owned(),
            ),
        }
        .into());
    }
    if fsync == "off" {
        let what = "the server does not sync what it commits (fsync=off): after a power failure an \
                    effect that ran would look as if it had not";
        return Err(names.unfit(what, "ALTER SYSTEM SET fsync = on, and reload").into());
    }
    Ok(())
}
