//! What ran, as the executors themselves told it: one line each, outside of every store (VER-4).
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The effect's key, as the child was told.
    pub key: String,
    /// The attempt's number, as the child was told.
    pub attempt: u64,
    /// The attempt's label.
    pub attempt_id: String,
    /// The key for a remote that deduplicates.
    pub idempotency_key: String,
    /// The executor's process.
    pub pid: u32,
}

impl Line {
    /// What a child of `ctrlrun run` was told by its environment.
    #[must_use]
    pub fn of_process() -> Self {
        Self {
            key: env("CTRLRUN_KEY"),
            attempt: env("CTRLRUN_ATTEMPT").parse().unwrap_or(0),
            attempt_id: env("CTRLRUN_ATTEMPT_ID"),
            idempotency_key: env("CTRLRUN_IDEMPOTENCY_KEY"),
            pid: std::process::id(),
        }
    }
}

/// A variable as text.
pub fn env(name: &str) -> String {
    std::env::var_os(name).unwrap_or_default().to_string_lossy().into_owned()
}

/// The lines of a ledger; none if nothing ran yet.
///
/// # Errors
/// I/O, and a line that is none: then nothing can be said about what ran.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
}
