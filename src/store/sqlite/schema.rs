//! The schema, and the only way it moves: forward, in steps, each under an exclusive lock (STO-5).
//!
//! `application_id` marks a file as ours and `user_version` is its schema's version, both in the
//! file's header. The table `store` repeats the version, so that every load and every write checks
//! it for nothing (STO-4).
use rusqlite::Connection;
use uuid::Uuid;

use super::busy::Deadline;
use super::error::Fault;
use crate::store::columns::{check_version, draw_id};
use crate::store::{CouldNot, Reason};

/// Marks a database file as a store of ctrlrun: "ctrl".
const APPLICATION_ID: i64 = 0x6374_726C;

/// Step N leads from version N to version N + 1. A step that was released is never changed.
const STEPS: [&str; 2] =
    [include_str!("../schema/sqlite_1.sql"), include_str!("../schema/sqlite_2.sql")];

/// The newest version that this binary reads and writes.
pub const VERSION: i64 = STEPS.len() as i64;

/// What a database file is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A database with nothing in it.
    Empty,
    /// A store, at this schema version.
    Ours(i64),
    /// Somebody else's database.
    Foreign,
}

/// What the open database is.
///
/// # Errors
/// SQLite's, NOTADB for a file that is no database among them.
pub fn standing(connection: &Connection) -> Result<Standing, Fault> {
    if let Standing::Ours(version) = header(connection)? {
        return Ok(Standing::Ours(version));
    }
    if !connection.is_autocommit() {
        return header(connection);
    }
    // The parts were read one by one, and somebody may be making the schema right now: half of it
    // would look like another program's.
    connection.execute_batch("BEGIN")?;
    let standing = header(connection);
    connection.execute_batch("ROLLBACK")?;
    standing
}

fn header(connection: &Connection) -> Result<Standing, Fault> {
    let number = |sql: &str| -> Result<i64, rusqlite::Error> {
        connection.query_row(sql, [], |row| row.get(0))
    };
    let application_id = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    if application_id == APPLICATION_ID {
        return Ok(Standing::Ours(version));
    }
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if (application_id, version, tables) == (0, 0, 0) {
        Ok(Standing::Empty)
    } else {
        Ok(Standing::Foreign)
    }
}

/// Whether this binary knows the version; `place` and `upgrade` are for the message.
///
/// # Errors
/// [`Reason::Unfit`] (exit 78).
pub fn check(version: i64, place: &str, upgrade: &str) -> Result<(), CouldNot> {
    check_version(version, VERSION, place, upgrade)
}

/// Moves the schema to the newest version. True if this call made it from nothing.
///
/// Of many that try at once one performs each step; the others find it done.
///
/// # Errors
/// SQLite's. The step that failed left the version before it.
pub fn migrate(connection: &Connection, deadline: &Deadline, scratch: bool) -> Result<bool, Fault> {
    perform(connection, deadline, scratch, &STEPS)
}

fn perform(
    connection: &Connection,
    deadline: &Deadline,
    scratch: bool,
    steps: &[&str],
) -> Result<bool, Fault> {
    let mut made = false;
    for (from, step) in (0..).zip(steps) {
        deadline.insist(|| Ok(connection.execute_batch("BEGIN EXCLUSIVE")?))?;
        let done = one_step(connection, from, step, scratch);
        match done {
            Ok(true) => made |= from == 0,
            Ok(false) => {}
            Err(fault) => {
                if !connection.is_autocommit() {
                    // Should it fail, the connection is closed with the error, which rolls back.
                    connection.execute_batch("ROLLBACK").ok();
                }
                return Err(fault);
            }
        }
    }
    Ok(made)
}

/// Performs one step in the transaction that is open, and ends the transaction; false if it was
/// done already, by somebody who had the lock before us.
fn one_step(connection: &Connection, from: i64, step: &str, scratch: bool) -> Result<bool, Fault> {
    let version = match standing(connection)? {
        Standing::Empty => 0,
        Standing::Ours(version) => version,
        Standing::Foreign => {
            return Err(CouldNot {
                reason: Reason::Unfit,
                message: "it is another program's database".to_owned(),
                hint: None,
            }
            .into());
        }
    };
    if version > from {
        connection.execute_batch("ROLLBACK")?;
        return Ok(false);
    }
    connection.execute_batch(step)?;
    let to = from + 1;
    if from == 0 {
        let id = draw_id()?;
        connection.execute(
            "INSERT INTO store(one, schema_version, store_id, attempt_floor, scratch)
             VALUES (1, ?1, ?2, 0, ?3)",
            (to, &id.as_bytes()[..], scratch),
        )?;
        connection.execute_batch(&format!("PRAGMA application_id={APPLICATION_ID}"))?;
    } else {
        connection.execute("UPDATE store SET schema_version=?1", [to])?;
    }
    connection.execute_batch(&format!("PRAGMA user_version={to}; COMMIT"))?;
    Ok(true)
}

/// The one row that says which store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The store's id.
    pub store_id: Uuid,
    /// Whether it is a scratch store.
    pub scratch: bool,
    /// Its schema's version.
    pub schema_version: u32,
}

/// Reads the mark.
///
/// # Errors
/// SQLite's.
pub fn mark(connection: &Connection) -> Result<Mark, Fault> {
    const SQL: &str = "SELECT store_id, scratch, schema_version FROM store";
    let mark = connection.query_row(SQL, [], |row| {
        let bytes: [u8; 16] = row.get(0)?;
        Ok(Mark {
            store_id: Uuid::from_bytes(bytes),
            scratch: row.get(1)?,
            schema_version: row.get(2)?,
        })
    })?;
    Ok(mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::columns::OLDEST;

    fn deadline() -> Deadline {
        let deadline = Deadline::new();
        deadline.set(std::time::Duration::from_secs(9));
        deadline
    }

    fn versions(connection: &Connection) -> (Standing, i64) {
        let repeated =
            connection.query_row("SELECT schema_version FROM store", [], |row| row.get(0)).unwrap();
        (standing(connection).unwrap(), repeated)
    }

    #[test]
    fn a_step_that_is_cut_off_leaves_the_version_before_it() {
        // STO-5
        let connection = Connection::open_in_memory().unwrap();
        let broken = "CREATE TABLE more(a); CREATE TABLE store(a)";
        let steps = [STEPS[0], STEPS[1], broken];
        perform(&connection, &deadline(), false, &steps).unwrap_err();
        assert_eq!(versions(&connection), (Standing::Ours(2), 2));
        let more = connection.prepare("SELECT * FROM more");
        assert!(more.is_err(), "half of the step was left behind");

        let steps = [STEPS[0], STEPS[1], "CREATE TABLE more(a)"];
        let before = mark(&connection).unwrap();
        assert!(!perform(&connection, &deadline(), true, &steps).unwrap());
        assert_eq!(versions(&connection), (Standing::Ours(3), 3));
        let after = mark(&connection).unwrap();
        assert_eq!(
            (after.store_id, after.scratch),
            (before.store_id, before.scratch),
            "a step made another store of it"
        );
    }

    #[test]
    fn another_program_s_database_is_not_touched() {
        // STO-7
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE theirs(a)").unwrap();
        assert_eq!(standing(&connection).unwrap(), Standing::Foreign);
        migrate(&connection, &deadline(), false).unwrap_err();
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .unwrap();
        assert_eq!(tables, 1);
        assert!(connection.is_autocommit());
    }

    #[test]
    fn a_version_that_is_not_known_is_refused_both_ways() {
        // STO-4
        assert_eq!(check(VERSION, "x.db", "up"), Ok(()));
        let newer = check(VERSION + 1, "x.db", "up").unwrap_err();
        assert_eq!(newer.reason, Reason::Unfit);
        let older = check(OLDEST - 1, "x.db", "up").unwrap_err();
        assert_eq!(older.hint.as_deref(), Some("up"));
        for known in OLDEST..=VERSION {
            assert_eq!(check(known, "x.db", "up"), Ok(()));
        }
    }
}
