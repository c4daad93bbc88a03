//! The place of a database file: which file it is, and whether a database may live there (STO-6,
//! STO-8, STO-9).
//!
//! Everything here asks for the status of a path. Nothing closes the database file: closing any
//! descriptor of it would drop the locks that SQLite holds on it in this process.
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{
    Access, AtFlags, CWD, StatVfsMountFlags, StatxAttributes, StatxFlags, access, statfs, statvfs,
    statx,
};
use rustix::io::Errno;

use super::error::Barrier;
use crate::store::{CouldNot, Reason};

/// Which file a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    device: (u32, u32),
    inode: u64,
}

/// A path's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Which file it is.
    pub id: FileId,
    links: u32,
    mount: bool,
    regular: bool,
    /// Its length in bytes.
    pub size: u64,
    modified: (i64, u32),
}

/// The status of the file that `path` leads to; `None` where there is none.
///
/// # Errors
/// Those of statx(2).
pub fn status(path: &Path) -> Result<Option<Status>, Errno> {
    let found = match statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS) {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(error),
    };
    // A kernel that cannot tell a mount point leaves the bit out of the mask.
    let mount =
        (found.stx_attributes & found.stx_attributes_mask).contains(StatxAttributes::MOUNT_ROOT);
    Ok(Some(Status {
        id: FileId { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino },
        links: found.stx_nlink,
        mount,
        regular: found.stx_mode & 0o170_000 == 0o100_000,
        size: found.stx_size,
        modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
    }))
}

impl Status {
    /// Whether a database may be used in this file: it must have one path only (STO-8).
    ///
    /// # Errors
    /// [`Reason::Unfit`], with the mend.
    pub fn fit(&self, place: &str) -> Result<(), CouldNot> {
        let (message, hint) = if !self.regular {
            ("is not a file", "name a file")
        } else if self.mount {
            (
                "is a mount point itself: by its two paths it would have two logs, and two winners",
                "mount the directory that holds it",
            )
        } else if self.links > 1 {
            (
                "has more than one name (hard links): by two paths it would have two logs, and two \
                 winners",
                "leave it one name; `find / -samefile FILE` shows them",
            )
        } else {
            return Ok(());
        };
        Err(CouldNot {
            reason: Reason::Unfit,
            message: format!("{place} {message}"),
            hint: Some(hint.to_owned()),
        })
    }
}

/// Whether `path` still leads to the file that was opened, and that file has this one name only
/// (STO-9).
///
/// # Errors
/// [`Reason::Moved`]: what would be written now, nobody would find again.
pub fn still(path: &Path, opened: FileId, place: &str) -> Result<(), CouldNot> {
    let what = match status(path) {
        Ok(Some(now)) if now.id != opened => "another file was put in its place",
        Ok(Some(now)) if now.links != 1 => "it was given a second name (a hard link)",
        Ok(Some(now)) if now.mount => "another file was mounted over it",
        Ok(Some(_)) => return Ok(()),
        Ok(None) => "it is gone",
        Err(error) => return Err(unreachable(place, &error.to_string())),
    };
    let mut error = unreachable(place, &format!("{what} while it was open"));
    error.reason = Reason::Moved;
    error.hint = Some("put the file back, or see which one is the store".to_owned());
    Err(error)
}

/// What SQLite keeps beside a database for as long as it is open: the log, and the log's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    log: FileId,
    index: FileId,
}

/// The log of the database at `path`, and its index; `None` where one of them is not there.
///
/// # Errors
/// Those of statx(2).
pub fn log(path: &Path) -> Result<Option<Log>, Errno> {
    let (log, index) = (beside(path, "-wal")?, beside(path, "-shm")?);
    Ok(log.zip(index).map(|(log, index)| Log { log: log.id, index: index.id }))
}

/// Where SQLite locks a database that it reads, and for how many bytes: for as long as a connection to
/// one with a log is open. Part of its file format.
const SHARED: (i64, i64) = (0x4000_0002, 510);

/// Databases that were asked about: their descriptors are never closed, see the module.
static ASKED: Mutex<Vec<(FileId, File)>> = Mutex::new(Vec::new());

/// Whether a connection has the database at `path` open, which is the file `opened`.
///
/// # Errors
/// Those of open(2) and fcntl(2).
pub fn is_open(path: &Path, opened: FileId) -> io::Result<bool> {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = asked.iter().position(|(id, _)| *id == opened);
    let at = match known {
        Some(at) => at,
        None => {
            asked.push((opened, File::open(path)?));
            asked.len() - 1
        }
    };
    let Some((_, file)) = asked.get(at) else {
        return Ok(false);
    };
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: SHARED.0,
        l_len: SHARED.1,
        l_pid: 0,
    };
    // As an open file's lock, so that one of this very process counts too.
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    // Who has it for itself alone makes SQLite wait, and is no one's rival.
    Ok(lock.l_type == libc::F_RDLCK as i16)
}

fn unreachable(place: &str, what: &str) -> CouldNot {
    CouldNot { reason: Reason::Unreachable, message: format!("{place}: {what}"), hint: None }
}

/// What kind of file system a database would live on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// On disks of this host, or not known to be otherwise.
    Local,
    /// Shared with other hosts, whose locks and mapped memory this host does not see.
    Network(&'static str),
    /// Gone with the container or at the next boot.
    Fleeting(&'static str),
}

/// The kind of the file system that holds `path`.
///
/// # Errors
/// Those of statfs(2).
pub fn file_system(path: &Path) -> Result<FileSystem, Errno> {
    let found = statfs(path)?;
    // A magic number has 32 bits, whatever the field's type.
    let magic = found.f_type as u32;
    Ok(kind(magic))
}

/// What keeps this user from writing the database file at `path` and the files beside it.
pub fn barrier(path: &Path) -> Barrier {
    let directory = directory_of(path);
    let read_only =
        statvfs(directory).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
    let denied = |path| matches!(access(path, Access::WRITE_OK), Err(Errno::ACCESS | Errno::PERM));
    if read_only {
        Barrier::FileSystem
    } else if denied(path) || denied(directory) {
        Barrier::Rights
    } else {
        Barrier::None
    }
}

/// Whether this user may write the file and make a log beside it.
pub fn writable(path: &Path) -> bool {
    let may = |path: &Path| access(path, Access::WRITE_OK).is_ok();
    may(path) && may(directory_of(path))
}

/// The mode of a file.
pub fn mode(path: &Path) -> Option<u32> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
    Some(found.stx_mode.into())
}

/// Bytes that this user can still write where `directory` is.
pub fn room(directory: &Path) -> Option<u64> {
    let found = statvfs(directory).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

/// The file system that `path` lies on, and where that is mounted, as the kernel tells it: `ext4 at
/// /var`.
pub fn mounted(path: &Path) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let path = std::fs::canonicalize(directory_of(path)).ok()?;
    let lines = table.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let at = unescaped(place.split(' ').nth(4)?);
        path.starts_with(&at).then_some((at, kind.split(' ').next()?))
    });
    // Of two at one place the later one hides the earlier.
    let (at, kind) = lines.max_by_key(|(at, _)| at.len())?;
    Some(format!("{kind} at {at}"))
}

/// The kernel writes a space in a path as its octal number.
fn unescaped(text: &str) -> String {
    let marks = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    marks.iter().fold(text.to_owned(), |text, (mark, meant)| text.replace(mark, meant))
}

/// The directory that holds `path`.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    }
}

/// The status of a file beside the database at `path`: `-wal` is its write-ahead log, `-journal`
/// what an interrupted transaction left before it had one.
///
/// # Errors
/// Those of statx(2).
pub fn beside(path: &Path, suffix: &str) -> Result<Option<Status>, Errno> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    status(Path::new(&name))
}

/// FUSE counts as a network: sshfs and its like cannot be told from a local one by their number.
fn kind(magic: u32) -> FileSystem {
    use FileSystem::{Fleeting, Local, Network};
    match magic {
        0x6969 => Network("NFS"),
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => Network("SMB"),
        0x0102_1997 => Network("9p"),
        0x5346_414F => Network("AFS"),
        0x00C3_6400 => Network("Ceph"),
        0x7375_7245 => Network("Coda"),
        0x564C => Network("NCP"),
        0x6573_5546 => Network("FUSE"),
        0x0116_1970 => Network("GFS2"),
        0x7461_636F => Network("OCFS2"),
        0x0BD0_0BD0 => Network("Lustre"),
        0x4750_4653 => Network("GPFS"),
        0x0102_1994 | 0x8584_58F6 => Fleeting("tmpfs: it is gone at the next boot"),
        0x794C_7630 => Fleeting("overlay: it is gone with the container"),
        _ => Local,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_and_fleeting_file_systems_are_known_by_their_numbers() {
        // STO-6, STO-8: the numbers are those of statfs(2).
        for (magic, name) in [
            (0x6969, "NFS"),
            (0xFF53_4D42, "SMB"),
            (0xFE53_4D42, "SMB"),
            (0x0102_1997, "9p"),
            (0x6573_5546, "FUSE"),
        ] {
            assert_eq!(kind(magic), FileSystem::Network(name));
        }
        assert!(matches!(kind(0x0102_1994), FileSystem::Fleeting(_)));
        assert!(matches!(kind(0x794C_7630), FileSystem::Fleeting(_)));
        assert_eq!(kind(0xEF53), FileSystem::Local);
    }

    #[test]
    fn what_is_no_file_holds_no_database() {
        let here = status(Path::new("/")).unwrap().unwrap();
        assert_eq!(here.fit("/").unwrap_err().reason, Reason::Unfit);
        assert_eq!(status(Path::new("/no/such/file")), Ok(None));
    }
}
