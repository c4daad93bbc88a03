//! Stores for tests: real SQLite files in directories of their own.
#![allow(dead_code, reason = "each test file uses some of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ctrlrun::store::{CouldNot, Location, Mode, Opened, Options, Store, open};
use tempfile::TempDir;

/// Long enough for every exchange of a test.
pub const WITHIN: Duration = Duration::from_secs(20);

/// A directory, and the path of a store in it that is not made yet.
pub struct Home {
    directory: TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("effects.db")
    }

    pub fn open(&self, mode: Mode) -> Result<Opened, CouldNot> {
        open_at(&self.path(), mode)
    }

    /// The store, made if it is not there.
    pub fn store(&self) -> Arc<dyn Store> {
        self.open(Mode::Create).unwrap().store.into()
    }
}

pub fn open_at(path: &Path, mode: Mode) -> Result<Opened, CouldNot> {
    open(&Location::file(path), &Options::new(mode, WITHIN))
}
