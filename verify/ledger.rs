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

/// The lines of a ledger; none if nothing ran yet. Executors write to it while it is read, and a reader
/// may see the first part of a line: that one is not there yet, since its executor does nothing before
/// the whole of it is written.
///
/// # Errors
/// I/O, and a line that is none: then nothing can be said about what ran.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_still_being_written_is_not_there_and_one_that_is_none_is_told() {
        // VER-4
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        assert_eq!(read(&path).unwrap(), []);
        let line = |key: &str| Line {
            key: key.to_owned(),
            attempt: 1,
            attempt_id: String::new(),
            idempotency_key: String::new(),
            pid: 1,
        };
        let text = |key| serde_json::to_string(&line(key)).unwrap();
        let (first, second) = (text("first"), text("second"));
        for cut in 0..=second.len() {
            fs::write(&path, format!("{first}\n{}", &second[..cut])).unwrap();
            assert_eq!(read(&path).unwrap(), [line("first")], "{cut}");
        }
        fs::write(&path, format!("{first}\n{second}\n")).unwrap();
        assert_eq!(read(&path).unwrap(), [line("first"), line("second")]);
        fs::write(&path, &first[..9]).unwrap();
        assert_eq!(read(&path).unwrap(), []);
        // Where another line follows, nobody will write the rest of it.
        fs::write(&path, format!("{}{second}\n", &first[..9])).unwrap();
        assert!(read(&path).is_err());
    }
}
