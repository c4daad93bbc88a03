//! Every byte that touches a database: few verbs, each names its condition and returns what it
//! found (STO clauses).
//!
//! A write has three ends, landed, refused and unknown, and a fourth that is only "could not":
//! nothing was committed. They are a value that must be looked at; no `?` can turn one into another.
//!
//! | file | what it does |
//! |---|---|
//! | [`location`] | where a store is, as a user writes it |
//! | [`open`](mod@open) | opens one |
//! | [`check`](mod@check) | what a person may ask of a store: is it well? |
//! | [`group`] | many appends together |
//! | [`row`], `columns` | a record as flat columns, the same on every store |
//! | [`postgres`] | a server, for many hosts |
//! | [`sqlite`] | the embedded store |
//! | [`postgres`] | the store for many hosts; so far, connecting to it |
//! | [`conformance`] | what every store must do |
//! | [`faulty`] | a store that loses answers on purpose |
//! | [`runs`] | workflow runs: their rows, inboxes, dispatches and wakeups |
//! | [`upkeep`] | what is asked of a store to keep it |
//! | [`stop`] | named places where a process halts itself, for tests that kill it there |
pub mod check;
mod columns;
pub mod conformance;
pub mod faulty;
pub mod group;
pub mod location;
pub mod open;
pub mod postgres;
pub mod row;
pub mod runs;
pub mod sqlite;
pub mod stop;
pub mod upkeep;

use std::time::{Duration, Instant};

use crate::plan::effect::{HistoryRow, Record};
use crate::plan::key::Key;
use crate::plan::time::Timestamp;

pub use self::location::Location;
pub use self::open::{BeforeCommit, BeforeRunCommit, Mode, Opened, Options, open};
pub use self::runs::Runs;
pub use self::upkeep::{Cut, Pruned, Stats, Walked, Whole};
pub use crate::plan::protocol::{Append, Ask, Captured, CouldNot, End, Found, Reason, Stream};

/// A store of effects. One conformance suite holds for all (`conformance`).
///
/// Every verb takes the longest it may take; a verb that cannot answer within it says so.
pub trait Store: Send + Sync {
    /// The row of `key`, the store's clock, its attempt floor, and the one event of the key's
    /// history that `ask` names.
    ///
    /// # Errors
    /// [`CouldNot`]; nothing was written.
    fn load(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot>;

    /// Writes the row and its history in one transaction, on the condition that the row found is
    /// still there (`append.found`), or that there is none. A reserving INSERT also requires the
    /// attempt floor to be the one loaded.
    fn append(&self, append: &Append, within: Duration) -> End;

    /// As [`Store::load`], for many keys together; the answers are in the order of the questions. What
    /// is wrong with one row is the answer about that one (BAT-4).
    fn load_many(&self, asked: &[(&Key, Ask)], within: Duration) -> Vec<Result<Found, CouldNot>> {
        let began = Instant::now();
        let left = || within.saturating_sub(began.elapsed());
        asked.iter().map(|(key, ask)| self.load(key, *ask, left())).collect()
    }

    /// As [`Store::append`], for many in one transaction: each on its own condition, with an end of
    /// its own, in the order in which they were given. A statement that fails takes the group apart,
    /// and its appends are written singly (BAT-1, BAT-2). There is at most one append a key.
    fn append_many(&self, appends: &[&Append], within: Duration) -> Vec<End> {
        group::singly(self, appends, within)
    }

    /// As [`Store::reread`], for many keys, on one fresh connection (BAT-3).
    fn reread_many(&self, asked: &[(&Key, Ask)], within: Duration) -> Vec<Result<Found, CouldNot>> {
        let began = Instant::now();
        let left = || within.saturating_sub(began.elapsed());
        asked.iter().map(|(key, ask)| self.reread(key, *ask, left())).collect()
    }

    /// As [`Store::load`], on a fresh connection to the same store, waiting for a writer that is
    /// still in flight: used to settle an unknown write.
    ///
    /// # Errors
    /// [`CouldNot`], also where what was read is not proven to be of the store that was written to.
    fn reread(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot>;

    /// Hands every record that `filter` lets through to `each`, in the order of their keys, until
    /// `each` says to stop. A row that cannot be read is handed over as such and stops nothing.
    ///
    /// # Errors
    /// [`CouldNot`].
    fn list(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Listed) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot>;

    /// The history of `key` from revision `from` on, oldest first.
    ///
    /// # Errors
    /// [`CouldNot`].
    fn history(&self, key: &Key, from: u64, within: Duration) -> Result<Vec<HistoryRow>, CouldNot>;

    /// What is stored of one stream of one attempt; `None` if nothing is.
    ///
    /// # Errors
    /// [`CouldNot`].
    fn output(
        &self,
        key: &Key,
        attempt: u64,
        stream: Stream,
        within: Duration,
    ) -> Result<Option<Captured>, CouldNot>;

    /// Hands every record that `filter` lets through to `each`, with its whole history of the same
    /// moment, in the order of their keys, until `each` says to stop. Nothing is open or locked while
    /// `each` looks, so it may write to this store. Of the filter `key`, `stuck` and `older_than` do
    /// not count.
    ///
    /// # Errors
    /// [`CouldNot`].
    fn walk(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Walked) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot>;

    /// Lets go of what `cut` names, in one transaction: each row on the condition that it is the one
    /// that was read, an effect whole with its history and its output; and raises the attempt floor
    /// to the largest number that goes (OPS-4, OPS-5).
    fn prune(&self, cut: &Cut, within: Duration) -> Pruned;

    /// The store in numbers.
    ///
    /// # Errors
    /// [`CouldNot`].
    fn stats(&self, within: Duration) -> Result<Stats, CouldNot>;

    /// The workflow runs beside the effects, in the same database. A store whose schema is older than
    /// they are says so at every verb.
    fn runs(&self) -> &dyn Runs;

    /// Which store this is.
    fn identity(&self) -> &Identity;

    /// What opening it has told of every key that is not there, where the guess that a key is new
    /// costs less than a look (CMT-16).
    fn glimpse(&self) -> Option<Glimpse> {
        None
    }

    /// Whether this user may write what a decision writes: asked before something long, whose result
    /// could not be kept. An embedded store has found out when it was opened.
    ///
    /// # Errors
    /// [`Reason::Denied`], or what kept it from being found out.
    fn may_write(&self, _within: Duration) -> Result<(), CouldNot> {
        Ok(())
    }

    /// Gives up what is held between two verbs and costs others something, as a connection does; the
    /// next verb gets it anew. Told while a child runs on and nothing is to be written for a while.
    fn rest(&self) {}
}

/// What a load of a key that is not there would have found while the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glimpse {
    /// Attempts of a new key are numbered from this plus one.
    pub attempt_floor: u64,
    /// The store's clock.
    pub now: Timestamp,
}

/// What a stream looks like of which nothing is kept any more but its size (OPS-2). No capture leaves
/// it so: one that keeps anything keeps the last byte, and `none` counts nothing.
#[must_use]
pub fn was_pruned(captured: &Captured) -> bool {
    !captured.whole && captured.bytes > 0 && captured.head.is_empty() && captured.tail.is_empty()
}

/// Which store it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Drawn when it was made.
    pub store_id: uuid::Uuid,
    /// Its schema's version.
    pub schema_version: u32,
    /// Whether it carries the mark of a scratch store, in which stop points work.
    pub scratch: bool,
    /// Where it is, as a person would name it; never with a password.
    pub place: String,
}

/// Which records a listing is about. Every condition must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this key.
    pub key: Option<Key>,
    /// Only keys that start with this.
    pub prefix: Option<String>,
    /// Only these states, by their stored names (`reserved`, `ambiguous`); empty means all.
    pub states: Vec<String>,
    /// Only AMBIGUOUS ones and ones whose lease has ended.
    pub stuck: bool,
    /// Only those whose newest event is at least this old, by the store's clock.
    pub older_than: Option<Duration>,
    /// Only those whose first event is at least this old, by the store's clock. For [`Store::walk`].
    pub there_for: Option<Duration>,
    /// Only keys after this one: where an earlier listing stopped.
    pub after: Option<Key>,
}

/// One record of a listing, with the evidence that a person wants beside it.
#[derive(Debug, Clone)]
pub enum Listed {
    /// A record.
    Record(Box<Shown>),
    /// A row that cannot be read: its key as stored, and why.
    Unreadable {
        /// The key's bytes, as text.
        key: String,
        /// What is wrong.
        why: String,
    },
}

/// A record and what stands beside it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The record.
    pub record: Record,
    /// The store's clock when it was read.
    pub now: Timestamp,
    /// The `began` event of the current attempt, if it began.
    pub began: Option<HistoryRow>,
    /// Total bytes that the current attempt wrote to its standard output, and whether less is kept.
    pub stdout: Sizes,
    /// The same of its standard error.
    pub stderr: Sizes,
}

/// How much a stream had, and whether all of it is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes the child wrote.
    pub bytes: u64,
    /// Less than that is kept.
    pub truncated: bool,
}

/// Whether a listing goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The next one, please.
    Continue,
    /// Enough.
    Stop,
}
