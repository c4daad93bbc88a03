//! A scratch store in a directory of its own beside the user's file: on the same file system, so that
//! what is verified is what the user's store has.
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ctrlrun::plan::key::Key;
use ctrlrun::store::location::SqliteAt;
use ctrlrun::store::{CouldNot, Location, Mode, Options, open};
use rusqlite::{Connection, params};

use super::{Made, Scratch, Sick, Unusable};

/// What the directory's name starts with; sixteen hexadecimal digits follow.
pub const PREFIX: &str = ".ctrlrun-verify-";
/// The file whose time says when its verify was last alive.
pub const HEARTBEAT: &str = "heartbeat";
/// With no sign of life for so long a scratch store is dropped by whoever finds it.
pub const ABANDONED_AFTER: Duration = Duration::from_secs(3_600);
/// The longest that making the store may wait.
const WITHIN: Duration = Duration::from_secs(20);

/// See the module.
pub struct SqliteScratch {
    directory: PathBuf,
    location: Location,
    network: bool,
    /// The directory above, and what was made of its own ancestors: they go too, if they are empty.
    made: Vec<PathBuf>,
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
    let parent = std::path::absolute(&parent).map_err(|error| unusable(&error))?;
    let made = make_directories(&parent).map_err(|error| unusable(&error))?;
    let mut notes = leftovers(&parent);
    let drawn = getrandom::u64().map_err(|error| unusable(&io::Error::other(error)))?;
    let directory = parent.join(format!("{PREFIX}{drawn:016x}"));
    DirBuilder::new().mode(0o700).create(&directory).map_err(|error| unusable(&error))?;
    let path = directory.join("effects.db");
    let location = Location::Sqlite(SqliteAt { path, network: at.network });
    let scratch = SqliteScratch { directory, location, network: at.network, made };
    scratch.beat();
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

/// Makes a directory and those above it; names those that were made, the deepest first.
fn make_directories(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut missing: Vec<PathBuf> = directory
        .ancestors()
        .take_while(|ancestor| !ancestor.exists())
        .map(Path::to_owned)
        .collect();
    for path in missing.iter().rev() {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    missing.retain(|path| path.is_dir());
    Ok(missing)
}

/// Drops what verifies that were killed have left in `parent`, and names it.
fn leftovers(parent: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    let Ok(entries) = fs::read_dir(parent) else {
        return notes;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let ours = digits.is_some_and(|digits| {
            digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        let silent = silence(&path);
        let shown = path.display();
        notes.push(match silent {
            Some(silent) if silent >= ABANDONED_AFTER => match fs::remove_dir_all(&path) {
                Ok(()) => format!(
                    "dropped {shown}, which a verify that was killed {} ago had left",
                    minutes(silent)
                ),
                Err(error) => format!("{shown} was left by a verify that was killed: {error}"),
            },
            Some(silent) => format!(
                "left {shown} alone: its verify was alive {} ago; it is dropped by the next run after an hour",
                minutes(silent)
            ),
            // It went while we looked.
            None => continue,
        });
    }
    notes
}

/// How long ago a scratch store's verify was last alive.
fn silence(directory: &Path) -> Option<Duration> {
    // Killed before its first beat, it has the time at which it was made.
    let sign = fs::metadata(directory.join(HEARTBEAT)).or_else(|_| fs::metadata(directory)).ok()?;
    // A time in the future is a sign of life.
    Some(SystemTime::now().duration_since(sign.modified().ok()?).unwrap_or(Duration::ZERO))
}

fn minutes(of: Duration) -> String {
    match of.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

impl SqliteScratch {
    fn path(&self) -> PathBuf {
        self.directory.join("effects.db")
    }

    fn connect(&self) -> Result<Connection, String> {
        connect(&self.path())
    }

    /// A further store in the same directory.
    fn another(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.directory.join(name);
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
        &self.directory
    }

    fn beat(&self) {
        // Written anew, it has a new time. If that fails the store looks abandoned in an hour at the
        // earliest, which is longer than any verify takes.
        let _ = fs::write(self.directory.join(HEARTBEAT), std::process::id().to_string());
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
            kept: None,
        };
        let text = |error: io::Error| error.to_string();
        let mut all = vec![sick("missing", self.directory.join("missing.db"), &[78])];

        let foreign = self.directory.join("foreign.db");
        fs::write(&foreign, "no database").map_err(text)?;
        all.push(sick("no store of ours", foreign, &[78]));

        let newer = self.another("newer.db")?;
        connect(&newer)?
            .execute("UPDATE store SET schema_version=schema_version+1", [])
            .map_err(|error| error.to_string())?;
        all.push(sick("newer schema", newer, &[78]));

        let locked = self.another("locked.db")?;
        let holder = connect(&locked)?;
        holder.execute_batch("BEGIN IMMEDIATE").map_err(|error| error.to_string())?;
        all.push(Sick { kept: Some(Box::new(holder)), ..sick("locked", locked, &[69]) });

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
            kept: Some(Box::new(reader)),
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

    fn not_applicable(&self, _id: &str) -> Option<&'static str> {
        None
    }
}

impl Drop for SqliteScratch {
    fn drop(&mut self) {
        // What cannot be removed now is found, dropped and named by the next run.
        let _ = fs::remove_dir_all(&self.directory);
        for directory in &self.made {
            // Only where nothing else has come into it.
            let _ = fs::remove_dir(directory);
        }
    }
}
