//! Opening and making a store, and refusing what must not be used as one (STO-2, STO-5 to STO-11).
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};
use rustix::io::Errno;

use super::busy::Deadline;
use super::error::{Fault, could_not};
use super::place::{self, FileId, FileSystem, Log, Status, directory_of};
use super::schema::{self, Standing};
use super::{Opening, Session, Sqlite, absolute, quoted};
use crate::store::location::{Location, SqliteAt};
use crate::store::runs::turns::Turns;
use crate::store::{CouldNot, Identity, Mode, Opened, Options, Reason};

/// Where a store is, and how it is opened.
pub struct Site {
    /// The database file, absolute.
    pub path: PathBuf,
    /// The same without symbolic links: what SQLite keeps beside it has its name from that.
    resolved: PathBuf,
    /// As a person named it.
    place: String,
    /// The file that was opened first: every other connection must be to it.
    opened: FileId,
    /// Whether nothing may be written through it.
    pub read_only: bool,
}

/// What was seen of a file that is read as one that does not change (STO-10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frozen {
    database: Status,
    log: Option<Status>,
}

/// Opens the store in a file. See [`crate::store::open`].
///
/// # Errors
/// As there.
pub fn open(at: &SqliteAt, options: &Options) -> Result<Opened, CouldNot> {
    let (store, warnings, created) = sqlite(at, options)?;
    Ok(Opened { store: Box::new(store), warnings, created, grants: None })
}

/// As [`open`]: the store, the warnings, and whether it was made just now.
pub(super) fn sqlite(
    at: &SqliteAt,
    options: &Options,
) -> Result<(Sqlite, Vec<String>, bool), CouldNot> {
    let place = Location::Sqlite(at.clone()).to_string();
    let path = absolute(&at.path);
    let (read_only, makes) = match options.mode {
        Mode::Read => (true, false),
        Mode::Write | Mode::Upgrade => (false, false),
        Mode::Create | Mode::Scratch => (false, true),
    };
    let io_error = |error: Errno| from_io(&place, "", error.into());
    // Looked at before the file: a database is made before its log.
    let log = place::beside(&path, "-wal").map_err(io_error)?;
    if makes && place::status(&path).map_err(io_error)?.is_none() {
        if log.is_some_and(|log| log.size > 0) {
            return Err(orphan(&place));
        }
        fit_for_a_database(existing(&path), &place, at.network)?;
        make_file(&path).map_err(|error| from_io(&place, "could not be made: ", error))?;
    }
    let Some(status) = place::status(&path).map_err(io_error)? else {
        return Err(missing(&place, "there is no store"));
    };
    status.fit(&place)?;
    let warnings = fit_for_a_database(&path, &place, at.network)?;

    let deadline = Deadline::new();
    deadline.set(options.within);
    let resolved = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let site = Site { path, resolved, place, opened: status.id, read_only };
    let understood = |fault| could_not(fault, &site.place, || place::barrier(&site.path));
    // Kept over the tries: one may make the schema and then find the next thing busy.
    let mut created = false;
    let opening = deadline
        .insist(|| site.first(&deadline, options.mode, &mut created))
        .map_err(understood)?;
    let mark = schema::mark(&opening.connection).map_err(understood)?;
    let identity = Identity {
        store_id: mark.store_id,
        schema_version: mark.schema_version,
        scratch: mark.scratch,
        place: site.place.clone(),
    };
    let before_commit = options.before_commit.clone().filter(|_| mark.scratch);
    let before_run_commit = options.before_run_commit.clone().filter(|_| mark.scratch);
    let session = Session {
        connection: Some(opening),
        deadline,
        suspects: Vec::new(),
        turns: Turns::default(),
    };
    let session = Mutex::new(session);
    let store = Sqlite { site, identity, before_commit, before_run_commit, session };
    Ok((store, warnings, created))
}

impl Site {
    /// The first connection: it finds out what the file is, and makes the schema if it may.
    fn first(&self, deadline: &Deadline, mode: Mode, created: &mut bool) -> Result<Opening, Fault> {
        self.spare_what_is_not_ours()?;
        let opening = self.raw(deadline)?;
        let connection = &opening.connection;
        match (schema::standing(connection)?, mode) {
            (Standing::Empty, Mode::Create | Mode::Scratch) => {
                *created |= schema::migrate(connection, deadline, mode == Mode::Scratch)?;
            }
            (Standing::Empty, Mode::Read | Mode::Write | Mode::Upgrade) => {
                return Err(missing(&self.place, "the file is empty, and not yet a store").into());
            }
            (Standing::Ours(version), Mode::Upgrade) if version < schema::VERSION => {
                schema::migrate(connection, deadline, false)?;
            }
            (
                Standing::Ours(version),
                Mode::Read | Mode::Write | Mode::Create | Mode::Scratch | Mode::Upgrade,
            ) => {
                schema::check(version, &self.place, &self.upgrade())?;
            }
            (Standing::Foreign, _) => {
                // Ours may be the last connection to it: its log is not ours to checkpoint.
                connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
                return Err(self.not_ours().into());
            }
        }
        self.settings(connection)?;
        Ok(Opening { log: self.log()?, ..opening })
    }

    /// A further connection, to the same file.
    ///
    /// # Errors
    /// SQLite's; another file in its place.
    pub fn connect(&self, deadline: &Deadline) -> Result<Opening, Fault> {
        let opening = self.raw(deadline)?;
        match schema::standing(&opening.connection)? {
            Standing::Ours(version) => schema::check(version, &self.place, &self.upgrade())?,
            Standing::Empty | Standing::Foreign => return Err(self.another_store().into()),
        }
        self.settings(&opening.connection)?;
        Ok(Opening { log: self.log()?, ..opening })
    }

    fn raw(&self, deadline: &Deadline) -> Result<Opening, Fault> {
        self.is_not_without_its_log(deadline)?;
        let frozen = match self.read_only {
            true => self.frozen()?,
            false => None,
        };
        let mut connection = match frozen {
            Some(_) => {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
                    | OpenFlags::SQLITE_OPEN_URI
                    | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                Connection::open_with_flags(immutable(&self.path), flags)?
            }
            None if self.read_only => Connection::open_with_flags(
                &self.path,
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?,
            // The session has a lock of its own.
            None => Connection::open_with_flags(
                &self.path,
                OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?,
        };
        // By name SQLite opens what is there now; it must be what was looked at.
        self.still()?;
        deadline.install(&mut connection)?;
        Ok(Opening { connection, frozen, log: None })
    }

    /// Opening a database beside which an interrupted transaction lies rolls that back. Where it is
    /// another program's, that is not ours to do, so the file is looked at first as it lies there.
    fn spare_what_is_not_ours(&self) -> Result<(), Fault> {
        let look = |suffix| {
            place::beside(&self.path, suffix)
                .map_err(|error| Fault::Known(from_io(&self.place, "", error.into())))
        };
        let before = (look("")?, look("-journal")?);
        if before.1.is_none() {
            return Ok(());
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let as_it_lies = Connection::open_with_flags(immutable(&self.path), flags)?;
        // Of our own schema, cut off, perhaps only page 1 was written, and it names more pages than
        // there are: read it all the same.
        as_it_lies.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
        let standing = schema::standing(&as_it_lies);
        if (look("")?, look("-journal")?) != before {
            // The transaction was not interrupted, but somebody's who is at it: nothing that was
            // read without a lock counts.
            return Err(self.moved_meanwhile());
        }
        match standing? {
            Standing::Foreign => Err(self.not_ours().into()),
            // Our own schema, cut off while it was made: page 1, with our mark, is written first.
            Standing::Empty | Standing::Ours(_) => Ok(()),
        }
    }

    /// The settings of every connection that writes, made and checked (STO-2).
    fn settings(&self, connection: &Connection) -> Result<(), Fault> {
        if self.read_only {
            return Ok(());
        }
        if connection.is_readonly("main")? {
            // SQLite opens what may not be written as far as it may be read, and says nothing.
            let readonly = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
            return Err(rusqlite::Error::SqliteFailure(readonly, None).into());
        }
        // Else a statement that the partial index might have served is prepared twice: once more
        // when its values are known.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        let synchronous = || connection.query_row("PRAGMA synchronous", [], |row| row.get(0));
        let journal = |sql| connection.query_row(sql, [], |row| row.get(0));
        let mut level: i64 = synchronous()?;
        if level != FULL {
            connection.execute_batch("PRAGMA synchronous=FULL")?;
            level = synchronous()?;
        }
        let mut mode: String = journal("PRAGMA journal_mode")?;
        if mode != "wal" {
            mode = journal("PRAGMA journal_mode=WAL")?;
        }
        if level == FULL && mode == "wal" {
            return Ok(());
        }
        Err(Fault::Known(CouldNot {
            reason: Reason::Unfit,
            message: format!(
                "{}: the database does not take the settings it needs (journal {mode}, \
                 synchronous {level})",
                self.place
            ),
            hint: Some("put it on a local disk".to_owned()),
        }))
    }

    /// Whether the path still leads to the file that was opened (STO-9).
    ///
    /// # Errors
    /// [`Reason::Unreachable`].
    pub fn still(&self) -> Result<(), CouldNot> {
        place::still(&self.path, self.opened, &self.place)
    }

    /// The connection of a session to write by: a write to a file or a log that lost its place would be
    /// found by nobody (STO-9).
    ///
    /// # Errors
    /// SQLite's; [`Reason::Moved`].
    pub fn in_place(&self, session: &mut Session) -> Result<Opening, Fault> {
        let deadline = session.deadline.clone();
        let mut opening = match session.connection.take() {
            Some(opening) => opening,
            None => deadline.insist(|| self.connect(&deadline))?,
        };
        match self.has_its_place(&mut opening) {
            Ok(()) => Ok(opening),
            Err(error) => {
                // Closed as the last it would checkpoint.
                session.connection = Some(opening);
                Err(Fault::Known(error))
            }
        }
    }

    /// Whether the file, and the log that `opening` writes to, are still those that others find (STO-9).
    ///
    /// # Errors
    /// [`Reason::Moved`].
    fn has_its_place(&self, opening: &mut Opening) -> Result<(), CouldNot> {
        self.still()?;
        let now = self.log()?;
        if opening.log.is_none() {
            // A database that has just been given a log has it from the next transaction on.
            opening.log = now;
        }
        if now == opening.log {
            return Ok(());
        }
        Err(CouldNot {
            reason: Reason::Moved,
            message: format!(
                "{0}: its log ({0}-wal, {0}-shm) was removed or replaced while it was open",
                self.place
            ),
            hint: Some(UNTIL_ENDED.to_owned()),
        })
    }

    fn log(&self) -> Result<Option<Log>, CouldNot> {
        place::log(&self.resolved).map_err(|error| from_io(&self.place, "", error.into()))
    }

    /// There is a log beside a database for as long as any process has it open. If there is none and it
    /// is open, then the log was taken away, and whoever opened it now would make another and not see what
    /// stands in the first: who runs what (STO-9). Making a store, and the last who closes one, are
    /// without a log for a moment.
    fn is_not_without_its_log(&self, deadline: &Deadline) -> Result<(), CouldNot> {
        loop {
            // A file that may not be opened is SQLite's to tell of.
            let is_open = || place::is_open(&self.resolved, self.opened).unwrap_or(false);
            if self.log()?.is_some() || !is_open() || self.log()?.is_some() {
                return Ok(());
            }
            if !deadline.pause() {
                break;
            }
        }
        Err(CouldNot {
            reason: Reason::Unreachable,
            message: format!(
                "{0}: a process has it open, and its log ({0}-wal, {0}-shm) is not there: it was removed",
                self.place
            ),
            hint: Some(UNTIL_ENDED.to_owned()),
        })
    }

    /// What is seen of the file now, if it has to be read as one that does not change: there is no
    /// log, and this user may not write, so a log and its index cannot be made, or would be made as
    /// this user's and shut the owner out.
    ///
    /// # Errors
    /// [`Reason::Unreachable`], [`Reason::Denied`].
    pub fn frozen(&self) -> Result<Option<Frozen>, CouldNot> {
        let failed = |error: Errno| from_io(&self.place, "", error.into());
        let Some(database) = place::status(&self.path).map_err(failed)? else {
            return Err(missing(&self.place, "there is no store any more"));
        };
        let log = place::beside(&self.path, "-wal").map_err(failed)?;
        if log.is_some_and(|log| log.size > 0) {
            return Ok(None);
        }
        let writable = |path: &Path| access(path, Access::WRITE_OK).is_ok();
        if writable(&self.path) && writable(directory_of(&self.path)) {
            return Ok(None);
        }
        Ok(Some(Frozen { database, log }))
    }

    /// A read that was overtaken by a writer; it is repeated.
    pub fn moved_meanwhile(&self) -> Fault {
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        let what = format!("{} was changed while it was read", self.place);
        rusqlite::Error::SqliteFailure(busy, Some(what)).into()
    }

    /// The file holds another store than it did.
    pub fn another_store(&self) -> CouldNot {
        CouldNot {
            reason: Reason::Unreachable,
            message: format!("{}: another store was put in its place", self.place),
            hint: None,
        }
    }

    /// A write to a store that was opened to look at.
    pub fn for_reading(&self) -> CouldNot {
        CouldNot {
            reason: Reason::Denied,
            message: format!("{}: it was opened for reading only", self.place),
            hint: None,
        }
    }

    fn not_ours(&self) -> CouldNot {
        CouldNot {
            reason: Reason::Unfit,
            message: format!(
                "{}: it is another program's database, and was left as it was",
                self.place
            ),
            hint: Some(format!("name another file: {}", init("FILE"))),
        }
    }

    fn upgrade(&self) -> String {
        format!("{} --upgrade", init(&quoted(&self.place)))
    }
}

/// What mends a log that was taken away.
const UNTIL_ENDED: &str = "wait until every command that has the store open has ended; the last of \
                           them puts what is in its log into the store";

/// `PRAGMA synchronous`: every commit is fsynced.
const FULL: i64 = 2;

fn init(place: &str) -> String {
    format!("ctrlrun init --store {place}")
}

fn missing(place: &str, what: &str) -> CouldNot {
    CouldNot {
        reason: Reason::Missing,
        message: format!("{place}: {what}"),
        hint: Some(format!("make it: {}", init(&quoted(place)))),
    }
}

/// A log whose database is gone. SQLite would remove it for a new one, and with it commits that are
/// nowhere else: the database that was taken away would have forgotten who runs what.
fn orphan(place: &str) -> CouldNot {
    CouldNot {
        reason: Reason::Unfit,
        message: format!(
            "{place}: there is no database, but the log of one ({place}-wal) that holds commits"
        ),
        hint: Some("put the database back beside its log; they are moved together".to_owned()),
    }
}

/// Whether a database may live where `path` is; what to warn about if it may (STO-6, STO-8).
fn fit_for_a_database(path: &Path, place: &str, network: bool) -> Result<Vec<String>, CouldNot> {
    let kind = place::file_system(path).map_err(|error| from_io(place, "", error.into()))?;
    match kind {
        FileSystem::Local => Ok(Vec::new()),
        FileSystem::Network(_) if network => Ok(Vec::new()),
        FileSystem::Fleeting(what) => Ok(vec![format!("{place} lies on {what}")]),
        FileSystem::Network(name) => Err(CouldNot {
            reason: Reason::Unfit,
            message: format!(
                "{place} lies on a network file system ({name}), where two hosts would not see each \
                 other's locks and could both win"
            ),
            hint: Some(
                "put it on a local disk; where only one host ever uses it: ?network=allow"
                    .to_owned(),
            ),
        }),
    }
}

/// The nearest ancestor of `path` that is there.
fn existing(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"))
}

/// Makes an empty database file that only its owner may read, and the directories above it.
///
/// SQLite would make it readable to others. It is made under another name and then given its own:
/// closing a descriptor of the file under its own name would drop the locks that another thread of
/// this process may hold on it by then. The log and its index get the file's mode from SQLite.
fn make_file(path: &Path) -> io::Result<()> {
    let directory = directory_of(path);
    make_directory(directory)?;
    let aside = aside(path)?;
    let make = || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&aside)?;
        match renameat_with(CWD, &aside, CWD, path, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            // Somebody was faster: theirs it is.
            Err(Errno::EXIST) => std::fs::remove_file(&aside),
            Err(Errno::INVAL | Errno::NOSYS) => {
                // A file system without that kind of rename.
                let linked = std::fs::hard_link(&aside, path);
                std::fs::remove_file(&aside)?;
                match linked {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    Ok(()) | Err(_) => Ok(()),
                }
            }
            Err(error) => Err(error.into()),
        }
    };
    if let Err(error) = make() {
        std::fs::remove_file(&aside).ok();
        return Err(error);
    }
    sync_directory(directory)
}

fn aside(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    let drawn = getrandom::u64().map_err(io::Error::other)?;
    name.push(format!(".new-{drawn:016x}"));
    Ok(path.with_file_name(name))
}

/// Makes a directory and those above it, 0700; each is fsynced in its parent, so that the store is
/// still there after a power failure.
fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = directory_of(directory);
    make_directory(parent)?;
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => sync_directory(parent),
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn from_io(place: &str, what: &str, error: io::Error) -> CouldNot {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let hint = "this user needs the right to read and write the file and its directory";
    CouldNot {
        reason: match denied {
            true => Reason::Denied,
            false => Reason::Unreachable,
        },
        message: format!("{place}: {what}{error}"),
        hint: denied.then(|| hint.to_owned()),
    }
}

/// A URI by which SQLite opens the file as one that nobody changes.
fn immutable(path: &Path) -> String {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            // Writing to a string cannot fail.
            _ => write!(uri, "%{byte:02x}").unwrap_or_default(),
        }
    }
    uri.push_str("?immutable=1");
    uri
}
