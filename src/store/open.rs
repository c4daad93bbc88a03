//! Opening a store by its location.
use std::sync::Arc;
use std::time::Duration;

use super::location::Location;
use super::{Append, CouldNot, Store, postgres, sqlite};
use crate::plan::workflow::RunAppend;

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// To look: nothing is made, no row is changed, and the right to read is enough (STO-10).
    Read,
    /// To read and write a store that is there (STO-7).
    Write,
    /// As [`Mode::Write`]; a store that is not there, or is still empty, is made (STO-6).
    Create,
    /// As [`Mode::Create`]; what is made carries the mark of a scratch store (STO-12).
    Scratch,
    /// As [`Mode::Write`]; an older schema is moved forward first (STO-5).
    Upgrade,
}

/// Called in the middle of an append, after its writes and before its COMMIT. Only a store with the
/// mark of a scratch store calls it (STO-12).
pub type BeforeCommit = Arc<dyn Fn(&Append) + Send + Sync>;

/// The same in the middle of a run's append.
pub type BeforeRunCommit = Arc<dyn Fn(&RunAppend) + Send + Sync>;

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// For what.
    pub mode: Mode,
    /// The longest that opening may wait for others.
    pub within: Duration,
    /// A stop point inside the append.
    pub before_commit: Option<BeforeCommit>,
    /// A stop point inside the append of a run.
    pub before_run_commit: Option<BeforeRunCommit>,
}

impl Options {
    /// For `mode`, waiting no longer than `within` for others.
    #[must_use]
    pub fn new(mode: Mode, within: Duration) -> Self {
        Self { mode, within, before_commit: None, before_run_commit: None }
    }
}

/// A store that was opened.
pub struct Opened {
    /// The store.
    pub store: Box<dyn Store>,
    /// What a person ought to know about it, one sentence each.
    pub warnings: Vec<String>,
    /// Whether it was made just now, by this call.
    pub created: bool,
    /// The statements that give other users of it no more than they need, of a server's store that
    /// was made or moved.
    pub grants: Option<String>,
}

/// Opens the store at `location`.
///
/// # Errors
/// [`Missing`](super::Reason::Missing) where there is none (and `mode` does not make it),
/// [`Unfit`](super::Reason::Unfit) where it must not be used as it is,
/// [`Denied`](super::Reason::Denied) and [`Unreachable`](super::Reason::Unreachable) as STO-11 tells
/// them apart, [`Busy`](super::Reason::Busy) after `within`. Nothing ran, and nothing that was there is
/// changed.
pub fn open(location: &Location, options: &Options) -> Result<Opened, CouldNot> {
    match location {
        Location::Sqlite(at) => sqlite::open(at, options),
        Location::Postgres(at) => postgres::open(at, options),
    }
}
