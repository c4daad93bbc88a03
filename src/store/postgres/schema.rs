//! The schema, and the only way it moves: forward, in steps, under an advisory lock of the
//! transaction, by `ctrlrun init` alone (STO-5, PGS-8).
use tokio_postgres::types::Type;

use super::error::Fault;
use super::link::{Committed, Link};
use super::literal;
use super::read::Param;
use super::transaction::{Deadline, begin, roll_back};
use crate::store::columns::{check_version, draw_id};
use crate::store::{CouldNot, Reason};

/// Step N leads from version N to version N + 1. A step that was released is never changed.
const STEPS: [&str; 2] =
    [include_str!("../schema/postgres_1.sql"), include_str!("../schema/postgres_2.sql")];

/// The newest version that this binary reads and writes.
pub const VERSION: i64 = STEPS.len() as i64;

/// Whoever makes or moves a store in a database holds this: the letters of "ctrlrun".
const LOCK: &str = "SELECT pg_catalog.pg_advisory_xact_lock(27994057488889198)";

/// What the tables of a store are called, and the store itself.
#[derive(Debug, Clone)]
pub struct Names {
    schema: String,
    quoted: String,
    /// The store as a person would name it, without a password.
    pub place: String,
}

impl Names {
    /// Those of the store in `schema`, which is `quoted` as an identifier.
    pub fn new(schema: String, quoted: String, place: String) -> Self {
        Self { schema, quoted, place }
    }

    /// The schema's name.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The schema's name as an identifier.
    pub fn quoted(&self) -> &str {
        &self.quoted
    }

    /// The names of its tables as texts in SQL: `store`, and the others.
    pub fn tables(&self) -> [String; 4] {
        ["store", "effects", "history", "output"].map(|table| {
            let mut name = String::new();
            // No identifier has a NUL in it: an empty name is that of no table.
            match literal::text(&mut name, &format!("{}.{table}", self.quoted)) {
                Ok(()) => name,
                Err(_) => "''".to_owned(),
            }
        })
    }

    /// A statement with the schema's name where it says `:schema`.
    pub fn fill(&self, sql: &str) -> String {
        sql.replace(":schema", &self.quoted)
    }

    /// It must not be used as it is.
    pub fn unfit(&self, what: &str, mend: &str) -> CouldNot {
        CouldNot {
            reason: Reason::Unfit,
            message: format!("{}: {what}", self.place),
            hint: Some(mend.to_owned()),
        }
    }

    /// The line that makes or moves it.
    pub fn init(&self) -> String {
        format!("ctrlrun init --store '{}'", self.place.replace('\'', "'\\''"))
    }

    /// The line that moves it.
    pub fn upgrade(&self) -> String {
        format!("{} --upgrade", self.init())
    }

    /// It is not there.
    pub fn missing(&self) -> CouldNot {
        CouldNot {
            reason: Reason::Missing,
            message: format!("{}: there is no store in schema {}", self.place, self.quoted),
            hint: Some(format!("make it: {}", self.init())),
        }
    }

    /// What answers is another store than the one that was opened.
    pub fn another_store(&self) -> CouldNot {
        CouldNot {
            reason: Reason::Unreachable,
            message: format!("{}: another store answers in its place", self.place),
            hint: None,
        }
    }

    /// The statements that give a role no more than it needs.
    pub fn grants(&self) -> String {
        let schema = &self.quoted;
        format!(
            "-- the role that runs effects:\n\
             GRANT USAGE ON SCHEMA {schema} TO WRITER;\n\
             GRANT SELECT ON {schema}.store TO WRITER;\n\
             GRANT SELECT, INSERT, UPDATE ON {schema}.effects, {schema}.output TO WRITER;\n\
             GRANT SELECT, INSERT ON {schema}.history TO WRITER;\n\
             -- and, where it drives workflows:\n\
             GRANT SELECT, INSERT, UPDATE ON {schema}.runs TO WRITER;\n\
             GRANT SELECT, INSERT ON {schema}.run_history TO WRITER;\n\
             GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.inbox, {schema}.dispatches, \
             {schema}.wakeups TO WRITER;\n\
             -- a writer that shall also forget effects (ctrlrun prune --forget-keys), besides:\n\
             -- GRANT DELETE ON {schema}.effects, {schema}.history, {schema}.output, {schema}.runs, \
             {schema}.run_history TO WRITER;\n\
             -- GRANT UPDATE (attempt_floor) ON {schema}.store TO WRITER;\n\
             -- a role that only looks:\n\
             GRANT USAGE ON SCHEMA {schema} TO READER;\n\
             GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO READER;"
        )
    }
}

/// Whether this binary knows the version.
///
/// # Errors
/// [`Reason::Unfit`] (exit 78).
pub fn check(version: i64, names: &Names) -> Result<(), CouldNot> {
    check_version(version, VERSION, &names.place, &names.upgrade())
}

/// Moves the schema to the newest version. True if this call made it from nothing.
///
/// Of many that try at once one performs each step; the others find it done.
///
/// # Errors
/// The link's. The step that failed left the version before it.
pub fn migrate(
    link: &Link,
    names: &Names,
    scratch: bool,
    deadline: Deadline,
) -> Result<bool, Fault> {
    perform(link, names, scratch, &STEPS, deadline)
}

/// Moves a schema that is there to the newest version; one that is newer is left alone.
///
/// # Errors
/// The link's, "there is no such table" among them.
pub fn upgrade(link: &Link, names: &Names, deadline: Deadline) -> Result<(), Fault> {
    let rows =
        link.query(&names.fill("SELECT schema_version FROM :schema.store"), &[], deadline.left())?;
    let version = rows.first().and_then(|row| row.try_get::<_, i64>(0).ok());
    if version.is_some_and(|version| version < VERSION) {
        migrate(link, names, false, deadline)?;
    }
    Ok(())
}

/// Performs `steps`; see [`migrate`].
fn perform(
    link: &Link,
    names: &Names,
    scratch: bool,
    steps: &[&str],
    deadline: Deadline,
) -> Result<bool, Fault> {
    let mut made = false;
    for (from, step) in (0..).zip(steps) {
        link.batch(&format!("{}; {LOCK}", begin(deadline.left(), "")), deadline.left())
            .inspect_err(|_| roll_back(link))?;
        match one_step(link, names, from, step, scratch, deadline) {
            Ok(true) => {}
            Ok(false) => {
                roll_back(link);
                continue;
            }
            Err(fault) => {
                roll_back(link);
                return Err(fault);
            }
        }
        match link.commit(deadline.left())? {
            Committed::Yes => made |= from == 0,
            Committed::RolledBack => {
                return Err(CouldNot {
                    reason: Reason::Unreachable,
                    message: format!("{}: the server rolled the change back", names.place),
                    hint: Some("run the same command again".to_owned()),
                }
                .into());
            }
        }
    }
    Ok(made)
}

/// Performs one step in the transaction that is open; false if it was done already, by somebody who
/// had the lock before us.
fn one_step(
    link: &Link,
    names: &Names,
    from: i64,
    step: &str,
    scratch: bool,
    deadline: Deadline,
) -> Result<bool, Fault> {
    // The lock was taken by a statement before: this one sees what its last holder committed.
    let there = exists(link, names, deadline)?;
    let version = match there {
        false => 0,
        true => {
            let sql = names.fill("SELECT schema_version FROM :schema.store");
            let rows = link.query(&sql, &[], deadline.left())?;
            rows.first().and_then(|row| row.try_get::<_, i64>(0).ok()).ok_or_else(|| {
                names.unfit("its table `store` is not ours", "name another schema: ?schema=NAME")
            })?
        }
    };
    if version > from {
        return Ok(false);
    }
    if from == 0 {
        link.batch(&names.fill("CREATE SCHEMA IF NOT EXISTS :schema"), deadline.left())?;
    } else {
        // A write is wholly before the step, or wholly after it and finds another version.
        let lock = names.fill("LOCK TABLE :schema.effects IN ACCESS EXCLUSIVE MODE");
        link.batch(&lock, deadline.left())?;
    }
    link.batch(&names.fill(step), deadline.left())?;
    let to = from + 1;
    if from == 0 {
        let id = draw_id()?.as_bytes().to_vec();
        let sql = names.fill(
            "INSERT INTO :schema.store(one, schema_version, store_id, attempt_floor, scratch) \
             VALUES (1, $1, $2, 0, $3)",
        );
        let params: [Param<'_>; 3] =
            [(&to, Type::INT8), (&id, Type::BYTEA), (&scratch, Type::BOOL)];
        link.execute(&sql, &params, deadline.left())?;
    } else {
        let sql = names.fill("UPDATE :schema.store SET schema_version = $1");
        link.execute(&sql, &[(&to, Type::INT8)], deadline.left())?;
    }
    Ok(true)
}

/// Whether the schema holds a table `store`.
fn exists(link: &Link, names: &Names, deadline: Deadline) -> Result<bool, Fault> {
    const SQL: &str = "SELECT 1 FROM pg_catalog.pg_class c \
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = $1 AND c.relname = 'store'";
    let schema = names.schema();
    let params: [Param<'_>; 1] = [(&schema, Type::TEXT)];
    Ok(!link.query(SQL, &params, deadline.left())?.is_empty())
}
