//! Whether a server and a store on it may be used: asked once, at open, in one round trip (PGS-7).
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::cells::Cells;
use super::error::{Fault, code};
use super::link::Link;
use super::read::{CLOCK, Param};
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
}

/// What a store on a server is, once it was found fit.
pub struct Health {
    /// Its schema's version, one that this binary knows.
    pub schema_version: i64,
    /// Drawn when it was made.
    pub store_id: Uuid,
    /// Whether it carries the mark of a scratch store.
    pub scratch: bool,
    /// Whether this role may ask which server it is.
    pub tells_origin: bool,
    /// The attempt floor and the clock.
    pub glimpse: Glimpse,
}

/// What of the server has to do with durability and order.
const SERVER: &str = "pg_catalog.current_setting('server_encoding'), \
     pg_catalog.current_setting('fsync'), pg_catalog.pg_is_in_recovery(), \
     pg_catalog.current_setting('transaction_read_only')";

/// A new connection knows nothing of the catalogue yet, so this asks no more of it than has to be
/// known: what a role may not do is found by the first write, which asks for all of its rights.
const STORE: &str = "s.schema_version, s.store_id, s.scratch, s.attempt_floor, :clock, \
     pg_catalog.num_nonnulls(pg_catalog.to_regclass($2), pg_catalog.to_regclass($3), \
       pg_catalog.to_regclass($4)), \
     ARRAY(SELECT c.relname::text FROM pg_catalog.pg_class c WHERE c.oid IN \
       (pg_catalog.to_regclass($1), pg_catalog.to_regclass($2), pg_catalog.to_regclass($3), \
        pg_catalog.to_regclass($4)) AND c.relpersistence <> 'p') FROM :schema.store s";

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
    let rows = link.query(&format!("SELECT {SERVER}"), &[], deadline.left())?;
    let row = rows.first().ok_or_else(|| Malformed::new("fsync", "no answer"))?;
    server(&mut Cells::new(row, 0), names, true)
}

fn ask(
    link: &Link,
    names: &Names,
    writes: bool,
    origin: bool,
    deadline: Deadline,
) -> Result<Health, Fault> {
    let columns = if origin { ORIGIN_COLUMNS } else { NO_ORIGIN_COLUMNS };
    let sql = names.fill(&format!("SELECT {SERVER}, {columns}, {STORE}").replace(":clock", CLOCK));
    let tables = ["store", "effects", "history", "output"]
        .map(|table| format!("{}.{table}", names.quoted()));
    let params = tables.each_ref().map(|table| -> Param<'_> { (table, Type::TEXT) });
    let rows = link.query(&sql, &params, deadline.left())?;
    let Some(row) = rows.first() else {
        return Err(Malformed::new("store_id", "the store has lost its row").into());
    };
    let mut cells = Cells::new(row, 0);
    server(&mut cells, names, writes)?;
    let found = Origin::read(&mut cells)?;
    let schema_version = cells.get("schema_version")?;
    schema::check(schema_version, names)?;
    let health = Health {
        schema_version,
        store_id: cells.id("store_id")?,
        scratch: cells.get("scratch")?,
        tells_origin: found.is_some(),
        glimpse: Glimpse {
            attempt_floor: natural("attempt_floor", cells.get("attempt_floor")?)?,
            now: Timestamp(cells.get("now")?),
        },
    };
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
    Ok(health)
}

fn server(cells: &mut Cells<'_>, names: &Names, writes: bool) -> Result<(), Fault> {
    let encoding: &str = cells.get("server_encoding")?;
    let fsync: &str = cells.get("fsync")?;
    let standby: bool = cells.get("pg_is_in_recovery")?;
    let read_only: &str = cells.get("transaction_read_only")?;
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
