//! Whether a path that leads to nothing does so because nothing is there (CFG-5, EXE-25).
//!
//! What only cannot be reached may be there, and may say what must not be overlooked: which store is
//! the user's, or that an effect has happened.
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

/// Whether nothing of ours is at `path`, which could not be opened for this `error`: there is no such
/// name, and no link on the way that leads nowhere; or another user's directory is closed to us, which
/// is so where HOME is not ours.
#[must_use]
pub fn is_absent(path: &Path, error: &io::Error) -> bool {
    let kind = error.kind();
    if matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory) {
        return !leads_nowhere(path);
    }
    kind == ErrorKind::PermissionDenied && !is_closed_by_us(path)
}

/// A link on the way that cannot be followed: what it leads to may be a disk that is not mounted.
fn leads_nowhere(path: &Path) -> bool {
    let there = path.ancestors().find(|on_the_way| fs::symlink_metadata(on_the_way).is_ok());
    there.is_some_and(|there| fs::metadata(there).is_err())
}

/// Whether the directory that may not be searched, or the file that may not be read, is our own.
fn is_closed_by_us(path: &Path) -> bool {
    let seen = path.ancestors().find_map(|on_the_way| fs::metadata(on_the_way).ok());
    seen.is_some_and(|seen| seen.uid() == geteuid().as_raw())
}
