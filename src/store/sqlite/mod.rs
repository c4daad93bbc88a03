//! The embedded store: one SQLite file, for the processes of one host (STO clauses).
//!
//! | file | what it does |
//! |---|---|
//! | `open` | opens, makes, and refuses what must not be used |
//! | `place` | which file it is, and what it lies on |
//! | `schema` | the schema and its steps |
//! | `write` | one conditional write |
//! | `read`, `list` | what is read |
//! | `upkeep` | walking over all of it, letting go of what is old |
//! | `doctor` | what the file and its place are like |
//! | `runs` | workflow runs |
//! | `busy` | waiting for a lock |
//! | `error` | what SQLite's errors mean |
mod busy;
pub(crate) mod doctor;
mod error;
mod list;
mod open;
mod place;
mod read;
mod runs;
mod schema;
mod upkeep;
mod write;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::Connection;

use self::busy::Deadline;
use self::error::{Fault, could_not, is_busy};
use self::list::Listing;
use self::open::{Frozen, Site};
use self::place::Log;
use self::write::{Group, Try};
use super::runs::turns::Turns;
use super::{
    Append, Ask, BeforeCommit, BeforeRunCommit, Captured, CouldNot, Cut, End, Filter, Flow, Found,
    Identity, Listed, Pruned, Reason, Runs, Stats, Store, Stream, Walked, group,
};
use crate::plan::effect::{HistoryRow, WriteId};
use crate::plan::key::Key;
use crate::plan::time::Timestamp;
use crate::store::stop::{self, Point};
use crate::store::upkeep::{Gone, Step};

pub use self::open::open;
pub use self::schema::VERSION as NEWEST;

/// A store in a SQLite file, open.
pub struct Sqlite {
    site: Site,
    identity: Identity,
    before_commit: Option<BeforeCommit>,
    before_run_commit: Option<BeforeRunCommit>,
    session: Mutex<Session>,
}

/// What changes from verb to verb.
struct Session {
    /// `None` after a connection was given up; the next verb makes a new one.
    connection: Option<Opening>,
    deadline: Deadline,
    /// Writes whose COMMIT failed in a way that proves nothing. What is read of them, there or not,
    /// is no evidence by itself (CMT-8).
    suspects: Vec<WriteId>,
    /// Whose turn it is in the queues.
    turns: Turns,
}

impl Session {
    /// Keeps in mind what the end of a write says about later reads of it.
    fn ended(&mut self, write_id: WriteId, end: End) -> End {
        match &end {
            // Its frames were written anew, over those of the try that failed.
            End::Landed => self.suspects.retain(|suspect| *suspect != write_id),
            End::Unknown(_) => self.suspects.push(write_id),
            End::Refused | End::NotCommitted(_) => {}
        }
        end
    }
}

/// A connection, and what was seen of the file if it was opened as one that does not change.
struct Opening {
    connection: Connection,
    frozen: Option<Frozen>,
    /// Its log, once it had one.
    log: Option<Log>,
}

impl Sqlite {
    fn session(&self, within: Duration) -> MutexGuard<'_, Session> {
        // A panic of another thread left at worst a transaction open: that connection is given up.
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = |opening: &Opening| opening.connection.is_autocommit();
        if !session.connection.as_ref().is_none_or(usable) {
            session.connection = None;
        }
        session.deadline.set(within);
        session
    }

    /// Reads, again while the store is busy, or was changed under a reader that could not lock it.
    fn read<T>(
        &self,
        session: &mut Session,
        mut what: impl FnMut(&Connection) -> Result<T, Fault>,
    ) -> Result<T, CouldNot> {
        let deadline = session.deadline.clone();
        let answer = deadline.insist(|| {
            let opening = match session.connection.take() {
                Some(opening) => opening,
                None => self.site.connect(&deadline)?,
            };
            let answer = what(&opening.connection);
            match &opening.frozen {
                // Somebody wrote meanwhile: what was read may be of two moments (STO-10).
                Some(frozen) if self.site.frozen()?.as_ref() != Some(frozen) => {
                    Err(self.site.moved_meanwhile())
                }
                Some(_) | None => {
                    session.connection = Some(opening);
                    answer
                }
            }
        });
        answer.map_err(|fault| self.could_not(fault))
    }

    /// How it keeps its log, as it is set in the file.
    fn journal_mode(&self, within: Duration) -> Result<String, CouldNot> {
        let mut session = self.session(within);
        self.read(&mut session, |connection| {
            Ok(connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?)
        })
    }

    fn could_not(&self, fault: Fault) -> CouldNot {
        could_not(fault, &self.identity.place, || place::barrier(&self.site.path))
    }

    fn load_on(&self, session: &mut Session, key: &Key, ask: Ask) -> Result<Found, CouldNot> {
        self.evident(
            session,
            |connection| self.found(connection, key, ask),
            |found| {
                let of_row = found.record.iter().map(|record| record.write_id);
                of_row.chain(found.event.iter().map(|event| event.write_id)).collect()
            },
        )
    }

    /// Reads what `ids` tells the writes of, and takes nothing for read that may be gone after a power
    /// failure.
    fn evident<T>(
        &self,
        session: &mut Session,
        mut what: impl FnMut(&Connection) -> Result<T, Fault>,
        ids: fn(&T) -> Vec<WriteId>,
    ) -> Result<T, CouldNot> {
        if session.suspects.is_empty() {
            return self.read(session, what);
        }
        // CMT-8. The log may hold a commit record that failed to reach the disk: this process reads
        // past it, another, after a crash, would find it. A truncating checkpoint settles that: what
        // it could see is in the database file, fsynced anew, and what it could not is gone.
        // It waits for readers, but leaves time for what was asked.
        let left = session.deadline.left();
        session.deadline.set(left / 2);
        let settled = self.read(session, |connection| Ok(checkpoint(connection)))?;
        let waited = (left / 2).saturating_sub(session.deadline.left());
        session.deadline.set(left.saturating_sub(waited));
        if settled {
            session.suspects.clear();
        }
        let found = self.read(session, &mut what)?;
        if ids(&found).iter().any(|id| session.suspects.contains(id)) {
            // It is seen, and yet may be gone after a power failure.
            return Err(CouldNot {
                reason: Reason::Unreachable,
                message: format!(
                    "{}: a write is in its log that may not have reached the disk",
                    self.identity.place
                ),
                hint: None,
            });
        }
        // Absent, or unchanged, or overwritten by somebody who did commit. The first two say "not
        // yet" at most: whoever asked writes the same row again, and only that proves anything.
        Ok(found)
    }

    /// In one transaction, so that the lock of a reader is taken once.
    fn load_all(
        &self,
        session: &mut Session,
        asked: &[(&Key, Ask)],
    ) -> Vec<Result<Found, CouldNot>> {
        if let ([_] | [], _) | (_, false) = (asked, session.suspects.is_empty()) {
            return asked.iter().map(|(key, ask)| self.load_on(session, key, *ask)).collect();
        }
        let read = self.read(session, |connection| {
            let reading = connection.unchecked_transaction()?;
            let mut all = Vec::with_capacity(asked.len());
            for (key, ask) in asked {
                match self.found(&reading, key, *ask) {
                    // Not the row's fault: all of it is read again.
                    Err(fault) if is_busy(&fault) => return Err(fault),
                    found => all.push(found),
                }
            }
            Ok(all)
        });
        match read {
            Ok(all) => {
                all.into_iter().map(|found| found.map_err(|fault| self.could_not(fault))).collect()
            }
            Err(error) => asked.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Tries one write, on a connection to the file that was opened. `write_id` names it where it can
    /// be looked for afterwards.
    fn write_on(
        &self,
        session: &mut Session,
        write_id: Option<WriteId>,
        attempt: impl FnOnce(&Connection, &Deadline) -> Try,
    ) -> End {
        if self.site.read_only {
            return End::NotCommitted(self.site.for_reading());
        }
        let opening = match self.site.in_place(session) {
            Ok(opening) => opening,
            Err(fault) => return End::NotCommitted(self.could_not(fault)),
        };
        let tried = attempt(&opening.connection, &session.deadline.clone());
        if opening.connection.is_autocommit() {
            session.connection = Some(opening);
        }
        let end = self.told(tried);
        match write_id {
            Some(write_id) => session.ended(write_id, end),
            None => end,
        }
    }

    fn told(&self, tried: Try) -> End {
        match tried {
            Try::Landed => End::Landed,
            Try::Refused => End::Refused,
            Try::NotCommitted(fault) => End::NotCommitted(self.could_not(fault)),
            Try::Unknown(fault) => End::Unknown(self.could_not(fault)),
        }
    }

    /// A fresh connection, to the same store.
    fn renew(&self, session: &mut Session) -> Result<(), CouldNot> {
        let deadline = session.deadline.clone();
        let fresh = deadline
            .insist(|| {
                let fresh = self.site.connect(&deadline)?;
                let id = schema::mark(&fresh.connection)?.store_id;
                if id == self.identity.store_id {
                    Ok(fresh)
                } else {
                    Err(Fault::Known(self.site.another_store()))
                }
            })
            .map_err(|fault| self.could_not(fault))?;
        // The old one goes only now: closed as the last, it would checkpoint.
        session.connection = Some(fresh);
        Ok(())
    }

    fn found(&self, connection: &Connection, key: &Key, ask: Ask) -> Result<Found, Fault> {
        read::load(connection, key, ask, &self.identity.place, now)
    }
}

impl Store for Sqlite {
    fn load(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot> {
        let mut session = self.session(within);
        self.load_on(&mut session, key, ask)
    }

    fn append(&self, append: &Append, within: Duration) -> End {
        let mut session = self.session(within);
        self.write_on(&mut session, Some(append.next.write_id), |connection, deadline| {
            write::append(connection, deadline, append, self.before_commit.as_ref())
        })
    }

    fn load_many(&self, asked: &[(&Key, Ask)], within: Duration) -> Vec<Result<Found, CouldNot>> {
        let mut session = self.session(within);
        self.load_all(&mut session, asked)
    }

    fn append_many(&self, appends: &[&Append], within: Duration) -> Vec<End> {
        let places = group::in_order(appends);
        let [_, _, ..] = places.as_slice() else {
            return group::singly(self, appends, within);
        };
        let not_committed = |error: CouldNot| vec![End::NotCommitted(error); appends.len()];
        if self.site.read_only {
            return not_committed(self.site.for_reading());
        }
        let mut session = self.session(within);
        let opening = match self.site.in_place(&mut session) {
            Ok(opening) => opening,
            Err(fault) => return not_committed(self.could_not(fault)),
        };
        let deadline = session.deadline.clone();
        let ordered: Vec<&Append> = places.iter().map(|at| appends[*at]).collect();
        let stop = self.before_commit.as_ref();
        let tried = write::append_group(&opening.connection, &deadline, &ordered, stop);
        if opening.connection.is_autocommit() {
            session.connection = Some(opening);
        }
        let (matched, tried) = match tried {
            Group::Tried(matched, tried) => (matched, tried),
            Group::NotBegun(fault) => return not_committed(self.could_not(fault)),
            Group::Apart => {
                let left = deadline.left();
                drop(session);
                return group::singly(self, appends, left);
            }
        };
        let mut ends = vec![group::twice(); appends.len()];
        let common = self.told(tried);
        for ((at, append), matched) in places.into_iter().zip(ordered).zip(matched) {
            ends[at] = match matched {
                true => session.ended(append.next.write_id, common.clone()),
                false => End::Refused,
            };
        }
        ends
    }

    fn reread_many(&self, asked: &[(&Key, Ask)], within: Duration) -> Vec<Result<Found, CouldNot>> {
        let mut session = self.session(within);
        match self.renew(&mut session) {
            Ok(()) => self.load_all(&mut session, asked),
            Err(error) => asked.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn reread(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot> {
        let mut session = self.session(within);
        self.renew(&mut session)?;
        self.load_on(&mut session, key, ask)
    }

    fn list(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Listed) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        let mut listing = Listing::new(filter);
        loop {
            // Nothing is locked or open while the caller looks at a page.
            let page = {
                let mut session = self.session(within);
                self.read(&mut session, |connection| listing.next_page(connection, now()))?
            };
            if page.is_empty() {
                return Ok(());
            }
            for listed in page {
                match each(listed) {
                    Flow::Continue => {}
                    Flow::Stop => return Ok(()),
                }
            }
        }
    }

    fn history(&self, key: &Key, from: u64, within: Duration) -> Result<Vec<HistoryRow>, CouldNot> {
        let mut session = self.session(within);
        self.read(&mut session, |connection| read::history(connection, key, from))
    }

    fn output(
        &self,
        key: &Key,
        attempt: u64,
        stream: Stream,
        within: Duration,
    ) -> Result<Option<Captured>, CouldNot> {
        let mut session = self.session(within);
        self.read(&mut session, |connection| read::output(connection, key, attempt, stream))
    }

    fn walk(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Walked) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        let mut step = Step::new(filter);
        loop {
            // Nothing is locked or open while the caller looks at a page.
            let page = {
                let mut session = self.session(within);
                self.read(&mut session, |connection| upkeep::walk(connection, filter, &mut step))?
            };
            if page.is_empty() {
                return Ok(());
            }
            for walked in page {
                match each(walked) {
                    Flow::Continue => {}
                    Flow::Stop => return Ok(()),
                }
            }
        }
    }

    fn prune(&self, cut: &Cut, within: Duration) -> Pruned {
        let mut gone = Gone::default();
        let stop = || stop::here(Point::InPrune, self.identity.scratch);
        let mut session = self.session(within);
        let tried = self.write_on(&mut session, None, |connection, deadline| {
            match upkeep::bound_the_log(connection, &self.site.path, upkeep::LOG_MAX) {
                Ok(()) => upkeep::prune(connection, deadline, cut, stop, &mut gone),
                Err(fault) => Try::NotCommitted(fault),
            }
        });
        match tried {
            End::Landed => Pruned::Done(gone),
            // No row is the condition of the whole.
            End::Refused => Pruned::Done(Gone::default()),
            End::NotCommitted(error) => Pruned::NotCommitted(error),
            End::Unknown(error) => Pruned::Unknown(error),
        }
    }

    fn stats(&self, within: Duration) -> Result<Stats, CouldNot> {
        let mut session = self.session(within);
        self.read(&mut session, |connection| upkeep::stats(connection, &self.site.path))
    }

    fn runs(&self) -> &dyn Runs {
        self
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Whether a truncating checkpoint went through unhindered.
fn checkpoint(connection: &Connection) -> bool {
    let hindered =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    matches!(hindered, Ok(0))
}

/// The version of the SQLite that is built in.
#[must_use]
pub fn version() -> &'static str {
    rusqlite::version()
}

/// The clock of a store on this host is this host's.
fn now() -> Timestamp {
    let micros = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros)
        }
    };
    Timestamp(micros)
}

/// The name of a store for a person, quoted for the shell.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%=".contains(c);
    if !path.is_empty() && path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', "'\\''"))
    }
}

/// The path of the database file, absolute.
fn absolute(path: &std::path::Path) -> PathBuf {
    // It fails only where the working directory is gone; a relative path then leads nowhere either.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::effect::{Event, Record, Reserved, evolve};
    use crate::plan::key::Fingerprint;
    use crate::store::location::SqliteAt;
    use crate::store::{Mode, Options};
    use uuid::Uuid;

    fn lands(store: &Sqlite, key: &Key) -> Record {
        let reserved = Event::Reserved(Reserved {
            attempt: 1,
            attempt_id: "a".to_owned(),
            request: crate::plan::effect::Request {
                fingerprint: Fingerprint([0; 32]),
                program: "p".to_owned(),
                arguments: 0,
                command: None,
            },
            lease_expires_at: now(),
            run_id: None,
        });
        let row = HistoryRow {
            revision: 1,
            write_id: WriteId(Uuid::from_u128(7)),
            outcome_id: None,
            attempt: 1,
            recorded_at: now(),
            event: reserved,
        };
        let next = evolve(key, None, &row).unwrap();
        let append = Append {
            found: None,
            next: next.clone(),
            history: vec![row],
            attempt_floor: 0,
            outputs: Vec::new(),
            dispatch: None,
        };
        assert_eq!(store.append(&append, Duration::from_secs(9)), End::Landed);
        next
    }

    #[test]
    fn a_row_that_may_not_have_reached_the_disk_is_no_evidence_until_it_is_checkpointed() {
        // CMT-8: it once took a row that was merely visible after a failed fsync for a landed one.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("effects.db");
        let at = SqliteAt { path: path.clone(), network: false };
        let options = Options::new(Mode::Create, Duration::from_secs(9));
        let store = open::sqlite(&at, &options).unwrap().0;
        let (key, other) = (Key::new("k").unwrap(), Key::new("other").unwrap());
        let record = lands(&store, &key);
        let within = Duration::from_millis(40);
        store.session(within).suspects.push(record.write_id);

        // A reader of the log hinders the checkpoint.
        let reader = Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM effects").unwrap();
        for ask in [Ask::Nothing, Ask::Revision(1)] {
            let error = store.reread(&key, ask, within).unwrap_err();
            assert_eq!(error.reason, Reason::Unreachable);
            store.load(&key, ask, within).unwrap_err();
        }
        // What is not of that write is what it is.
        assert_eq!(store.reread(&other, Ask::Nothing, within).unwrap().record, None);

        // It landed and moved on: the history tells of it, and may be gone as well.
        let moved_on = "UPDATE effects SET write_id=zeroblob(16) WHERE effect_key='k'";
        let back = "UPDATE effects SET write_id=?1 WHERE effect_key='k'";
        let other = Connection::open(&path).unwrap();
        other.execute(moved_on, []).unwrap();
        assert!(store.reread(&key, Ask::Nothing, within).is_ok());
        store.reread(&key, Ask::Revision(1), within).unwrap_err();
        other.execute(back, [record.write_id.0.as_bytes()]).unwrap();

        reader.execute_batch("ROLLBACK").unwrap();
        let found = store.reread(&key, Ask::Nothing, within).unwrap();
        assert_eq!(found.record, Some(record));
        assert!(store.session(within).suspects.is_empty());
    }

    #[test]
    fn a_path_is_quoted_for_the_shell() {
        // CLI-4
        assert_eq!(quoted("/var/lib/x.db"), "/var/lib/x.db");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
