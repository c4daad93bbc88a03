//! The store that verify makes for itself and destroys (VER-2): where it is, and what only its own
//! kind of store knows how to do. A further kind of store is a further implementation of [`Scratch`]
//! and an arm of [`make`].
mod directory;
mod postgres;
mod sqlite;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use ctrlrun::plan::key::Key;
use ctrlrun::store::Location;

/// With no sign of life for so long a scratch store is dropped by whoever finds it (VER-2).
const ABANDONED_AFTER: Duration = Duration::from_secs(3_600);

/// A scratch store. Dropped, it is destroyed.
pub trait Scratch: Send + Sync {
    /// The kind of store, as the report names it.
    fn kind(&self) -> &'static str;

    /// Where the store is.
    fn location(&self) -> &Location;

    /// A local directory for ledgers and gates; it goes with the store.
    fn directory(&self) -> &Path;

    /// Says that this verify is alive.
    fn beat(&self);

    /// Forgets a key that is settled, as pruning does: its number never comes round again.
    ///
    /// # Errors
    /// What stood in the way.
    fn forget(&self, key: &Key) -> Result<(), String>;

    /// Changes a row behind the store's back.
    ///
    /// # Errors
    /// What stood in the way.
    fn tamper(&self, key: &Key) -> Result<(), String>;

    /// Stores that cannot be used, each in its way.
    ///
    /// # Errors
    /// What stood in the way of making them so.
    fn sick(&self) -> Result<Vec<Sick>, String>;

    /// What the store holds now, in numbers.
    ///
    /// # Errors
    /// What stood in the way.
    fn held(&self) -> Result<Held, String>;

    /// Why a guarantee cannot be shown on this kind of store.
    fn not_applicable(&self, id: &str) -> Option<&'static str>;
}

/// What a store holds, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Records.
    pub effects: u64,
    /// Events.
    pub history: u64,
    /// Stored streams of output.
    pub outputs: u64,
    /// The store's own room, in bytes, without its log.
    pub bytes: u64,
    /// Its log, in bytes, where it can be told.
    pub log: Option<u64>,
    /// Whether that is the whole server's, which keeps as much of it as it is set to.
    pub log_is_shared: bool,
    /// Transactions of ours that have been open for longer than any takes.
    pub stale_transactions: u64,
    /// Connections of this role to it, where there are such.
    pub connections: Option<u64>,
}

/// A store that cannot be used.
pub struct Sick {
    /// In which way.
    pub what: &'static str,
    /// What `--store` takes.
    pub store: OsString,
    /// Words for the worker's rig.
    pub rig: &'static str,
    /// The longest file that the worker may write, in KiB.
    pub file_limit: Option<u32>,
    /// The exit codes that are right.
    pub exits: &'static [i32],
    /// Makes it so, for as long as what it gives is kept: no longer than needed, since through a pooler
    /// it may have the only connection that there is.
    pub holds: Option<Holds>,
}

/// See [`Sick::holds`].
pub type Holds = Box<dyn FnOnce() -> Result<Box<dyn Send>, String>>;

/// A store that was made, and what was found on the way.
pub struct Made {
    /// It.
    pub scratch: Box<dyn Scratch>,
    /// What a person ought to know, one sentence each: what an earlier verify left, above all.
    pub notes: Vec<String>,
}

/// Why no scratch store can be made: the configuration cannot be used (exit 2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unusable {
    /// What stood in the way.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Makes a scratch store like, and beside, the store at `location`, which itself is not opened, read
/// or made.
///
/// # Errors
/// [`Unusable`].
pub fn make(location: &Location) -> Result<Made, Unusable> {
    match location {
        Location::Sqlite(at) => sqlite::make(at),
        Location::Postgres(at) => postgres::make(at),
    }
}

/// What `--store` takes to mean this store.
#[must_use]
pub fn argument(location: &Location) -> OsString {
    match location {
        Location::Sqlite(at) if !at.network => at.path.clone().into(),
        Location::Sqlite(_) => location.to_string().into(),
        Location::Postgres(at) => at.url().into(),
    }
}

/// How long something is ago, for a person.
fn minutes(of: Duration) -> String {
    match of.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}
