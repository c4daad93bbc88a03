//! The store on a server: one connection at a time, opened when a verb needs it and given up when
//! nothing does (PGS-5).
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::connect::{ConnectError, Try as Attempted, Why, connect};
use super::conninfo::Conninfo;
use super::doctor;
use super::error::{Fault, code, could_not, not_connected};
use super::group::{self as many, Group};
use super::health::{GRANT_ORIGIN, Health, Home, Origin};
use super::here;
use super::link::{Link, LinkError};
use super::list::Listing;
use super::read::{self, Loading, LoadingMany};
use super::schema::Names;
use super::transaction::Deadline;
use super::upkeep;
use super::write::{self, Try, Writing};
use crate::plan::effect::{HistoryRow, WriteId};
use crate::plan::key::Key;
use crate::plan::workflow::RunId;
use crate::store::runs::turns::Turns;
use crate::store::upkeep::{Gone, Step};
use crate::store::{
    Append, Ask, BeforeCommit, BeforeRunCommit, Captured, CouldNot, Cut, End, Filter, Flow, Found,
    Glimpse, Identity, Listed, Pruned, Reason, Runs, Stats, Store, Stream, Walked, group,
};

/// A connection that was unused for so long is opened anew: what lies between (a firewall, a pooler)
/// may have dropped it without a word.
const IDLE: Duration = Duration::from_secs(3);

/// Where a server is, and the tables on it.
pub struct Site {
    /// The URL and what it left open, understood.
    pub info: Conninfo,
    /// The names of the tables.
    pub names: Names,
}

impl Site {
    /// A new connection. A server that is full, or is just starting, is asked again until `deadline`:
    /// waiting for a place is the store's own business (STO-3).
    ///
    /// # Errors
    /// What each host said.
    pub fn connect(&self, deadline: Deadline) -> Result<Link, CouldNot> {
        loop {
            let error = match connect(&self.info, &here::read, deadline.left()) {
                Ok(link) => return Ok(link),
                Err(error) => error,
            };
            let pause = pause();
            if !may_have_room_soon(&error) || deadline.left() <= pause {
                return Err(not_connected(&error, &self.names.place));
            }
            std::thread::sleep(pause);
        }
    }
}

/// Between 20 and 84 ms, at random, so that those who were turned away together do not come again
/// together.
fn pause() -> Duration {
    // Without a random number they do, which is no harm.
    Duration::from_millis(20 + u64::from(getrandom::u32().unwrap_or(0) % 64))
}

fn may_have_room_soon(error: &ConnectError) -> bool {
    let code = |one: &Attempted| match &one.why {
        Why::Server(error) => matches!(&*error.code, "53300" | "57P03"),
        Why::Deadline(_)
        | Why::Unreachable(_)
        | Why::Tls(_)
        | Why::NoPassword
        | Why::Unfit { .. }
        | Why::Settings(_)
        | Why::Odd(_) => false,
    };
    error.tries.last().is_some_and(code)
}

/// A store on a Postgres server, open.
pub struct Postgres {
    pub(super) site: Site,
    pub(super) identity: Identity,
    home: Option<Home>,
    glimpse: Glimpse,
    before_commit: Option<BeforeCommit>,
    pub(super) before_run_commit: Option<BeforeRunCommit>,
    session: Mutex<Session>,
}

/// What changes from verb to verb.
pub(super) struct Session {
    link: Option<Link>,
    used: Instant,
    /// Whose turn it is in the queues.
    pub turns: Turns,
    /// The tries of appends whose COMMIT gave no answer that counts.
    in_doubt: Vec<InDoubt>,
}

/// What a write is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// An effect.
    Effect(Key),
    /// A workflow run.
    Run(RunId),
}

fn subject(append: &Append) -> Subject {
    Subject::Effect(append.next.key.clone())
}

/// A try that nobody knows the end of.
struct InDoubt {
    about: Subject,
    write_id: WriteId,
    /// Where it was written, as far as the server would say.
    wrote_at: Option<Origin>,
}

impl Postgres {
    /// The store that was found through `link`.
    pub fn new(
        site: Site,
        identity: Identity,
        health: Health,
        (before_commit, before_run_commit): (Option<BeforeCommit>, Option<BeforeRunCommit>),
        link: Link,
    ) -> Self {
        let session = Mutex::new(Session {
            link: Some(link),
            used: Instant::now(),
            turns: Turns::default(),
            in_doubt: Vec::new(),
        });
        let Health { home, glimpse, .. } = health;
        Self { site, identity, home, glimpse, before_commit, before_run_commit, session }
    }

    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        // A panic of another thread took its link with it.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn could_not(&self, fault: Fault) -> CouldNot {
        if matches!(code(&fault), Some("42P01" | "3F000")) {
            return self.site.names.missing();
        }
        could_not(fault, &self.site.names.place)
    }

    /// Reads; once more on a new connection where the one that was kept turns out to have ended, for
    /// nothing was asked on it that could not be asked again.
    pub(super) fn read<T>(
        &self,
        deadline: Deadline,
        mut what: impl FnMut(&Link) -> Result<T, Fault>,
    ) -> Result<T, CouldNot> {
        let mut session = self.session();
        if let Some(link) = session.kept() {
            let answer = what(&link);
            let ended = link.is_dead();
            let silent = matches!(answer, Err(Fault::Link(LinkError::Deadline(_))));
            if !ended {
                session.keep(link);
            }
            if !ended || silent {
                return answer.map_err(|fault| self.could_not(fault));
            }
        }
        let link = self.site.connect(deadline)?;
        let answer = what(&link);
        session.keep(link);
        answer.map_err(|fault| self.could_not(fault))
    }

    /// Tries one write, and keeps in mind where it was tried if nobody knows its end.
    pub(super) fn write_on(
        &self,
        about: Subject,
        write_id: WriteId,
        within: Duration,
        attempt: impl FnOnce(&Link, &Writing<'_>) -> (Try, Option<Origin>),
    ) -> End {
        let deadline = Deadline::new(within);
        let mut session = self.session();
        session.settled_before(&about, write_id);
        let (end, wrote_at) = self.try_on(&mut session, deadline, attempt);
        session.ended(about, write_id, end, wrote_at.as_ref())
    }

    /// Tries a write that is nobody's to settle.
    pub(super) fn write_once(
        &self,
        within: Duration,
        attempt: impl FnOnce(&Link, &Writing<'_>) -> Try,
    ) -> End {
        let deadline = Deadline::new(within);
        let mut session = self.session();
        self.try_on(&mut session, deadline, |link, writing| (attempt(link, writing), None)).0
    }

    fn try_on(
        &self,
        session: &mut Session,
        deadline: Deadline,
        attempt: impl FnOnce(&Link, &Writing<'_>) -> (Try, Option<Origin>),
    ) -> (End, Option<Origin>) {
        let link = match session.kept().map_or_else(|| self.site.connect(deadline), Ok) {
            Ok(link) => link,
            Err(error) => return (End::NotCommitted(error), None),
        };
        let (tried, wrote_at) = attempt(&link, &self.writing(deadline));
        let end = self.told_of(session, link, tried);
        (end, wrote_at)
    }

    /// `None` where they have to be asked for one by one.
    fn loading_many<'a>(&'a self, asked: &[(&'a Key, Ask)]) -> Option<LoadingMany<'a>> {
        LoadingMany::new(&self.site.names, self.identity.store_id, asked)
    }

    fn writing(&self, deadline: Deadline) -> Writing<'_> {
        Writing {
            names: &self.site.names,
            store_id: self.identity.store_id,
            home: self.home.as_ref(),
            before_commit: self.before_commit.as_ref(),
            deadline,
        }
    }

    /// What a try means, and what becomes of its link.
    fn told_of(&self, session: &mut Session, link: Link, tried: Try) -> End {
        match tried {
            Try::Landed => {
                session.keep(link);
                End::Landed
            }
            Try::Refused => {
                session.keep(link);
                End::Refused
            }
            Try::NotCommitted(fault) => {
                session.keep(link);
                End::NotCommitted(self.could_not(fault))
            }
            // The next try is safe on any connection, and safest on one without a past.
            Try::Aborted(fault) => End::NotCommitted(self.could_not(fault)),
            Try::Unknown(fault) => End::Unknown(self.could_not(fault)),
        }
    }
    /// Reads on a fresh connection, and takes nothing for read that is not of the server that was
    /// written to (CMT-9).
    pub(super) fn reread_on<T>(
        &self,
        about: &Subject,
        within: Duration,
        mut read: impl FnMut(&Link, Deadline) -> Result<(T, Option<Origin>), Fault>,
    ) -> Result<T, CouldNot> {
        let deadline = Deadline::new(within);
        let mut session = self.session();
        session.link = None;
        let of_key = |doubt: &&InDoubt| doubt.about == *about;
        if session.in_doubt.iter().filter(of_key).any(|doubt| doubt.wrote_at.is_none()) {
            return Err(self.cannot_be_told());
        }
        let link = self.site.connect(deadline)?;
        loop {
            match read(&link, deadline) {
                Ok((found, origin)) => {
                    for doubt in session.in_doubt.iter().filter(of_key) {
                        self.same_server(doubt, origin.as_ref())?;
                    }
                    session.keep(link);
                    return Ok(found);
                }
                // Under a stricter isolation level than ours the wait for a writer ends so.
                Err(Fault::Link(LinkError::Server(error)))
                    if matches!(&*error.code, "40001" | "40P01") && !deadline.passed() => {}
                Err(fault) => return Err(self.could_not(fault)),
            }
        }
    }

    fn loading<'a>(&'a self, key: &'a Key, ask: Ask) -> Loading<'a> {
        Loading { names: &self.site.names, store_id: self.identity.store_id, key, ask }
    }
}

impl Session {
    /// Another append to it means that the one before was settled, or given up.
    fn settled_before(&mut self, about: &Subject, write_id: WriteId) {
        self.in_doubt.retain(|doubt| doubt.about != *about || doubt.write_id == write_id);
    }

    /// Keeps in mind where a write was made that nobody knows the end of.
    fn ended(
        &mut self,
        about: Subject,
        write_id: WriteId,
        end: End,
        wrote_at: Option<&Origin>,
    ) -> End {
        if let End::Unknown(_) = &end {
            self.in_doubt.push(InDoubt { about, write_id, wrote_at: wrote_at.cloned() });
        }
        end
    }

    /// The connection, if there is one that can be relied upon.
    fn kept(&mut self) -> Option<Link> {
        self.link.take().filter(|link| !link.is_dead() && self.used.elapsed() < IDLE)
    }

    fn keep(&mut self, link: Link) {
        self.used = Instant::now();
        self.link = Some(link).filter(|link| !link.is_dead());
    }
}

impl Store for Postgres {
    fn load(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot> {
        let deadline = Deadline::new(within);
        self.read(deadline, |link| self.loading(key, ask).load(link, deadline))
    }

    fn append(&self, append: &Append, within: Duration) -> End {
        self.write_on(subject(append), append.next.write_id, within, |link, writing| {
            write::append(link, append, writing)
        })
    }

    fn load_many(&self, asked: &[(&Key, Ask)], within: Duration) -> Vec<Result<Found, CouldNot>> {
        let deadline = Deadline::new(within);
        let Some(loading) = self.loading_many(asked) else {
            return asked.iter().map(|(key, ask)| self.load(key, *ask, deadline.left())).collect();
        };
        match self.read(deadline, |link| loading.load(link, deadline)) {
            Ok(all) => {
                all.into_iter().map(|one| one.map_err(|fault| self.could_not(fault))).collect()
            }
            Err(error) => asked.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn append_many(&self, appends: &[&Append], within: Duration) -> Vec<End> {
        let places = group::in_order(appends);
        let [_, _, ..] = places.as_slice() else {
            return group::singly(self, appends, within);
        };
        let deadline = Deadline::new(within);
        let mut session = self.session();
        let ordered: Vec<&Append> = places.iter().map(|at| appends[*at]).collect();
        for append in &ordered {
            session.settled_before(&subject(append), append.next.write_id);
        }
        let link = match session.kept().map_or_else(|| self.site.connect(deadline), Ok) {
            Ok(link) => link,
            Err(error) => return vec![End::NotCommitted(error); appends.len()],
        };
        let (matched, tried, wrote_at) =
            match many::append(&link, &ordered, &self.writing(deadline)) {
                Group::Tried(matched, tried, wrote_at) => (matched, tried, wrote_at),
                Group::Apart => {
                    session.keep(link);
                    drop(session);
                    return group::singly(self, appends, deadline.left());
                }
            };
        let mut ends = vec![group::twice(); appends.len()];
        let common = self.told_of(&mut session, link, tried);
        for ((at, append), matched) in places.into_iter().zip(ordered).zip(matched) {
            ends[at] = match matched {
                true => session.ended(
                    subject(append),
                    append.next.write_id,
                    common.clone(),
                    wrote_at.as_ref(),
                ),
                false => End::Refused,
            };
        }
        ends
    }

    fn reread_many(&self, asked: &[(&Key, Ask)], within: Duration) -> Vec<Result<Found, CouldNot>> {
        let deadline = Deadline::new(within);
        let Some(loading) = self.loading_many(asked) else {
            return asked
                .iter()
                .map(|(key, ask)| self.reread(key, *ask, deadline.left()))
                .collect();
        };
        let mut session = self.session();
        session.link = None;
        let read = self.site.connect(deadline).and_then(|link| {
            loop {
                match loading.load_locked(&link, deadline) {
                    Ok(read) => {
                        session.keep(link);
                        return Ok(read);
                    }
                    // Under a stricter isolation level than ours the wait for a writer ends so.
                    Err(Fault::Link(LinkError::Server(error)))
                        if matches!(&*error.code, "40001" | "40P01") && !deadline.passed() => {}
                    Err(fault) => return Err(self.could_not(fault)),
                }
            }
        });
        let (all, origin) = match read {
            Ok(read) => read,
            Err(error) => return asked.iter().map(|_| Err(error.clone())).collect(),
        };
        let told = |((key, _), found): (&(&Key, Ask), Result<Found, Fault>)| {
            let about = Subject::Effect((*key).clone());
            for doubt in session.in_doubt.iter().filter(|doubt| doubt.about == about) {
                self.same_server(doubt, origin.as_ref())?;
            }
            found.map_err(|fault| self.could_not(fault))
        };
        asked.iter().zip(all).map(told).collect()
    }

    fn reread(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot> {
        self.reread_on(&Subject::Effect(key.clone()), within, |link, deadline| {
            self.loading(key, ask).load_locked(link, deadline)
        })
    }
    fn list(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Listed) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        let mut listing = Listing::new(filter);
        loop {
            // No lock of ours is held while the caller looks at a page.
            let deadline = Deadline::new(within);
            let names = &self.site.names;
            let page = self.read(deadline, |link| listing.next_page(link, names, deadline))?;
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
        let deadline = Deadline::new(within);
        self.read(deadline, |link| read::history(link, &self.site.names, key, from, deadline))
    }

    fn output(
        &self,
        key: &Key,
        attempt: u64,
        stream: Stream,
        within: Duration,
    ) -> Result<Option<Captured>, CouldNot> {
        let deadline = Deadline::new(within);
        let which = (key, attempt, stream);
        self.read(deadline, |link| read::output(link, &self.site.names, which, deadline))
    }

    fn walk(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Walked) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        let mut step = Step::new(filter);
        loop {
            // No lock of ours is held while the caller looks at a page.
            let deadline = Deadline::new(within);
            let names = &self.site.names;
            let page =
                self.read(deadline, |link| upkeep::walk(link, names, filter, &mut step, deadline))?;
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
        let deadline = Deadline::new(within);
        let mut session = self.session();
        let link = match session.kept().map_or_else(|| self.site.connect(deadline), Ok) {
            Ok(link) => link,
            Err(error) => return Pruned::NotCommitted(error),
        };
        let store = (self.identity.store_id, self.identity.scratch);
        match upkeep::prune(&link, &self.site.names, store, cut, deadline) {
            (Try::Landed, gone) => {
                session.keep(link);
                Pruned::Done(gone)
            }
            // No row is the condition of the whole.
            (Try::Refused, _) => Pruned::Done(Gone::default()),
            (Try::NotCommitted(fault), _) => {
                session.keep(link);
                Pruned::NotCommitted(self.could_not(fault))
            }
            (Try::Aborted(fault), _) => Pruned::NotCommitted(self.could_not(fault)),
            (Try::Unknown(fault), _) => Pruned::Unknown(self.could_not(fault)),
        }
    }

    fn stats(&self, within: Duration) -> Result<Stats, CouldNot> {
        let deadline = Deadline::new(within);
        self.read(deadline, |link| upkeep::stats(link, &self.site.names, deadline))
    }

    fn runs(&self) -> &dyn Runs {
        self
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn glimpse(&self) -> Option<Glimpse> {
        Some(self.glimpse)
    }

    fn may_write(&self, within: Duration) -> Result<(), CouldNot> {
        let deadline = Deadline::new(within);
        self.read(deadline, |link| doctor::may_write(link, &self.site.names, deadline))
    }

    fn rest(&self) {
        let mut session = match self.session.try_lock() {
            Ok(session) => session,
            Err(TryLockError::Poisoned(session)) => session.into_inner(),
            // A verb is at work on it; whoever asked asks again.
            Err(TryLockError::WouldBlock) => return,
        };
        session.link = None;
    }
}

impl Postgres {
    /// A re-read proves something only where the write would be: on the same server, in the same of
    /// its lives (CMT-9).
    fn same_server(&self, doubt: &InDoubt, read_at: Option<&Origin>) -> Result<(), CouldNot> {
        match (&doubt.wrote_at, read_at) {
            (Some(wrote), Some(read)) if wrote == read => Ok(()),
            (Some(_), Some(_)) => Err(CouldNot {
                reason: Reason::Unreachable,
                message: format!(
                    "{}: another server answers than the one that was written to (a fail-over, or a \
                     restored copy?)",
                    self.site.names.place
                ),
                hint: None,
            }),
            (None, _) | (_, None) => Err(self.cannot_be_told()),
        }
    }

    fn cannot_be_told(&self) -> CouldNot {
        CouldNot {
            reason: Reason::Unreachable,
            message: format!(
                "{}: whether it is the server that was written to cannot be told",
                self.site.names.place
            ),
            hint: Some(GRANT_ORIGIN.to_owned()),
        }
    }
}
