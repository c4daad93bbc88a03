//! A scratch store in a directory of its own beside the user's file: on the same file system, so that
//! what is verified is what the user's store has.
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctrlrun::plan::key::Key;
use ctrlrun::store::location::SqliteAt;
use ctrlrun::store::{CouldNot, Location, Mode, Options, open};
use rusqlite::{Connection, params};

use super::directory::{Directory, leftovers};
use super::{Held, Made, Scratch, Sick, Unusable};

/// The longest that making the store may wait.
const WITHIN: Duration = Duration::from_secs(20);

/// See the module.
pub struct SqliteScratch {
    directory: Directory,
    location: Location,
    network: bool,
}

/// Makes it beside `at`.
///
/// # Errors
/// [`Unusable`], where a store could not be made there either.
pub fn make(at: &SqliteAt) -> Result<Made, Unusable> {
    let parent = match at.path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    };
    let unusable = |error: &io::Error| Unusable {
        message: format!("no scratch store can be made in {}: {error}", parent.display()),
        hint: Some(format!(
            "give this user the right to write there: the directory of {}, which is itself left as it is",
            at.path.display()
        )),
    };
    let mut notes = leftovers(&parent);
    let directory = Directory::make(&parent).map_err(|error| unusable(&error))?;
    let path = directory.path().join("effects.db");
    let location = Location::Sqlite(SqliteAt { path, network: at.network });
    let scratch = SqliteScratch { directory, location, network: at.network };
    // From here on a failure drops, and so destroys, what was made.
    let warnings = create(&scratch.location).map_err(|error| Unusable {
        message: format!("no scratch store can be made: {}", error.message),
        hint: error.hint,
    })?;
    notes.extend(warnings);
    Ok(Made { scratch: Box::new(scratch), notes })
}

fn create(location: &Location) -> Result<Vec<String>, CouldNot> {
    open(location, &Options::new(Mode::Scratch, WITHIN)).map(|opened| opened.warnings)
}

impl SqliteScratch {
    fn path(&self) -> PathBuf {
        self.directory.path().join("effects.db")
    }

    fn connect(&self) -> Result<Connection, String> {
        connect(&self.path())
    }

    /// A further store in the same directory.
    fn another(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.directory.path().join(name);
        let at = SqliteAt { path: path.clone(), network: self.network };
        create(&Location::Sqlite(at)).map_err(|error| error.message)?;
        Ok(path)
    }
}

fn connect(path: &Path) -> Result<Connection, String> {
    let connection = Connection::open(path).map_err(|error| error.to_string())?;
    connection.busy_timeout(WITHIN).map_err(|error| error.to_string())?;
    Ok(connection)
}

impl Scratch for SqliteScratch {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn location(&self) -> &Location {
        &self.location
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn beat(&self) {
        self.directory.beat();
    }

    fn forget(&self, key: &Key) -> Result<(), String> {
        let forget = || {
            let mut connection = Connection::open(self.path())?;
            connection.busy_timeout(WITHIN)?;
            let transaction = connection.transaction()?;
            let key = key.as_str();
            transaction.execute(
                "UPDATE store SET attempt_floor=max(attempt_floor,
                   (SELECT attempt FROM effects WHERE effect_key=?1))",
                params![key],
            )?;
            for table in ["effects", "history", "output"] {
                transaction
                    .execute(&format!("DELETE FROM {table} WHERE effect_key=?1"), params![key])?;
            }
            transaction.commit()
        };
        forget().map_err(|error: rusqlite::Error| error.to_string())
    }

    fn tamper(&self, key: &Key) -> Result<(), String> {
        let sql = "UPDATE effects SET detail='exited 3' WHERE effect_key=?1";
        match self.connect()?.execute(sql, params![key.as_str()]) {
            Ok(1) => Ok(()),
            Ok(changed) => Err(format!("{changed} rows were changed")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn sick(&self) -> Result<Vec<Sick>, String> {
        let sick = |what, path: PathBuf, exits| Sick {
            what,
            store: path.into(),
            rig: "",
            file_limit: None,
            exits,
            holds: None,
        };
        let text = |error: io::Error| error.to_string();
        let mut all = vec![sick("missing", self.directory.path().join("missing.db"), &[78])];

        let foreign = self.directory.path().join("foreign.db");
        fs::write(&foreign, "no database").map_err(text)?;
        all.push(sick("no store of ours", foreign, &[78]));

        // This may be asked more than once, and what is newer by now cannot be made again.
        for name in ["newer.db", "newer.db-wal", "newer.db-shm"] {
            match fs::remove_file(self.directory.path().join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(text(error)),
                Ok(()) | Err(_) => {}
            }
        }
        let newer = self.another("newer.db")?;
        connect(&newer)?
            .execute("UPDATE store SET schema_version=schema_version+1", [])
            .map_err(|error| error.to_string())?;
        all.push(sick("newer schema", newer, &[78]));

        let locked = self.another("locked.db")?;
        let holder = connect(&locked)?;
        let lock = move || {
            holder.execute_batch("BEGIN IMMEDIATE").map_err(|error| error.to_string())?;
            Ok(Box::new(holder) as Box<dyn Send>)
        };
        all.push(Sick { holds: Some(Box::new(lock)), ..sick("locked", locked, &[69]) });

        let full = self.another("full.db")?;
        let reader = connect(&full)?;
        // Its log is longer than the limit by then, and is kept by this connection: the next write
        // to it fails as on a full disk.
        reader
            .execute_batch(
                "CREATE TABLE filler(bytes BLOB); INSERT INTO filler VALUES(zeroblob(131072));",
            )
            .map_err(|error| error.to_string())?;
        all.push(Sick {
            holds: Some(Box::new(|| Ok(Box::new(reader)))),
            file_limit: Some(64),
            ..sick("full disk", full, &[69])
        });

        let read_only = self.another("read-only.db")?;
        fs::set_permissions(&read_only, fs::Permissions::from_mode(0o400)).map_err(text)?;
        if File::options().write(true).open(&read_only).is_err() {
            // Root may write anything; for everybody else this one is read-only.
            all.push(sick("read-only", read_only, &[77]));
        }
        let failing = self.another("failing.db")?;
        let rigged = |what, rig, path: &Path| Sick { rig, ..sick(what, path.into(), &[69]) };
        all.push(rigged("out of reach at the load", "load:1-:fail", &failing));
        all.push(rigged("out of reach at the write", "append:1-:fail", &failing));
        Ok(all)
    }

    fn held(&self) -> Result<Held, String> {
        let sql = "SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM history),
                     (SELECT count(*) FROM output)";
        let counts = self.connect()?.query_row(sql, [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        let (effects, history, outputs) = counts.map_err(|error| error.to_string())?;
        let count = |counted| u64::try_from(counted).unwrap_or(0);
        let size = |suffix: &str| {
            let path = format!("{}{suffix}", self.path().display());
            // There is no log between two users of the store.
            fs::metadata(path).map_or(0, |found| found.len())
        };
        Ok(Held {
            effects: count(effects),
            history: count(history),
            outputs: count(outputs),
            bytes: size(""),
            log: Some(size("-wal")),
            log_is_shared: false,
            stale_transactions: 0,
            connections: None,
        })
    }

    fn not_applicable(&self, _id: &str) -> Option<&'static str> {
        None
    }
}
