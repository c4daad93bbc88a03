//! A directory of verify's own, with a heartbeat; and what other verifies have left beside it.
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::unistd::geteuid;

use super::{ABANDONED_AFTER, minutes};

/// What its name starts with; sixteen hexadecimal digits follow.
const PREFIX: &str = ".ctrlrun-verify-";
/// The file whose time says when its verify was last alive.
const HEARTBEAT: &str = "heartbeat";

/// See the module. Dropped, it is removed.
pub struct Directory {
    path: PathBuf,
    /// What was made above it, the deepest first: that goes too, if it is empty.
    made: Vec<PathBuf>,
}

impl Directory {
    /// One in `parent`, which is made if it is not there.
    ///
    /// # Errors
    /// I/O.
    pub fn make(parent: &Path) -> io::Result<Self> {
        let parent = std::path::absolute(parent)?;
        let made = make_directories(&parent)?;
        let drawn = getrandom::u64().map_err(io::Error::other)?;
        let path = parent.join(format!("{PREFIX}{drawn:016x}"));
        let directory = Self { path, made };
        DirBuilder::new().mode(0o700).create(&directory.path)?;
        directory.beat();
        Ok(directory)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says that this verify is alive.
    pub fn beat(&self) {
        // Written anew, it has a new time. If that fails it looks abandoned in an hour at the
        // earliest, which is longer than any verify takes.
        let _ = fs::write(self.path.join(HEARTBEAT), std::process::id().to_string());
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed now is found, dropped and named by the next run.
        let _ = fs::remove_dir_all(&self.path);
        for directory in &self.made {
            // Only where nothing else has come into it.
            let _ = fs::remove_dir(directory);
        }
    }
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

/// Drops what this user's verifies that were killed have left in `parent`, and names it.
#[must_use]
pub fn leftovers(parent: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let ours = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let named = digits.is_some_and(|digits| {
            digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        // Of the entry itself, and not of what a link leads to.
        let found = entry.metadata();
        named && found.is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw())
    };
    let found = entries.flatten().filter(ours);
    found.filter_map(|entry| leftover(&entry.path())).collect()
}

fn leftover(path: &Path) -> Option<String> {
    // None: it went while we looked.
    let silent = silence(path)?;
    let (shown, ago) = (path.display(), minutes(silent));
    if silent < ABANDONED_AFTER {
        return Some(format!(
            "left {shown} alone: its verify was alive {ago} ago; it is dropped by the next run after an hour"
        ));
    }
    Some(match fs::remove_dir_all(path) {
        Ok(()) => format!("dropped {shown}, which a verify that was killed {ago} ago had left"),
        Err(error) => format!("{shown} was left by a verify that was killed: {error}"),
    })
}

/// How long ago a directory's verify was last alive.
fn silence(directory: &Path) -> Option<Duration> {
    // Killed before its first beat, it has the time at which it was made.
    let sign = fs::metadata(directory.join(HEARTBEAT)).or_else(|_| fs::metadata(directory)).ok()?;
    // A time in the future is a sign of life.
    Some(SystemTime::now().duration_since(sign.modified().ok()?).unwrap_or(Duration::ZERO))
}
