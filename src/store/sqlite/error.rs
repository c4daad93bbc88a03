//! What SQLite's errors mean to the one who asked (STO-11).
use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::store::row::Malformed;
use crate::store::{CouldNot, Reason};

/// What can go wrong on a connection.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// SQLite said so.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A stored value cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It is known already what it means.
    #[error(transparent)]
    Known(#[from] CouldNot),
}

/// SQLite's extended result code, if there is one.
pub fn code(fault: &Fault) -> Option<i32> {
    match fault {
        Fault::Sqlite(error) => error.sqlite_error().map(|error| error.extended_code),
        Fault::Malformed(_) | Fault::Known(_) => None,
    }
}

/// Whether somebody else is in the way who may be gone in a moment.
pub fn is_busy(fault: &Fault) -> bool {
    // The primary code is the low byte; PROTOCOL is what a reader gets who lost too many races.
    code(fault).is_some_and(|code| {
        [ffi::SQLITE_BUSY, ffi::SQLITE_LOCKED, ffi::SQLITE_PROTOCOL].contains(&(code & 0xff))
    })
}

/// Whether a COMMIT that failed so has provably not committed (CMT-6). A failed fsync is not among
/// them: the commit is in the log, and whether it will be found there nobody can tell.
pub fn proves_no_commit(fault: &Fault) -> bool {
    [Some(ffi::SQLITE_IOERR_WRITE), Some(ffi::SQLITE_FULL)].contains(&code(fault))
}

/// Whether it is the failed fsync of CMT-8.
pub fn is_fsync(fault: &Fault) -> bool {
    code(fault) == Some(ffi::SQLITE_IOERR_FSYNC)
}

/// What stands in the way of writing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// Its file system is mounted read-only.
    FileSystem,
    /// This user may not.
    Rights,
    /// Nothing that can be seen.
    None,
}

/// What a fault means, at the store that a person calls `place`. `barrier` is asked only where a
/// file could not be opened or written.
pub fn could_not(fault: Fault, place: &str, barrier: impl FnOnce() -> Barrier) -> CouldNot {
    let error = match fault {
        Fault::Known(known) => return known,
        Fault::Malformed(malformed) => {
            return CouldNot {
                reason: Reason::Damaged,
                message: format!("{place}: what is stored cannot be read: {malformed}"),
                hint: None,
            };
        }
        Fault::Sqlite(error) => error,
    };
    let what = format!("{place}: {error}");
    let (reason, hint) = match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed,
        ) => {
            return CouldNot {
                reason: Reason::Busy,
                message: format!("{place}: another program held the database's lock all the time"),
                hint: Some("try again, or wait longer with --store-timeout".to_owned()),
            };
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            match barrier() {
                Barrier::FileSystem => (Reason::Unreachable, "its file system is read-only"),
                Barrier::Rights => (
                    Reason::Denied,
                    "this user needs the right to read and write the file and its directory",
                ),
                Barrier::None => (Reason::Unreachable, ""),
            }
        }
        Some(ErrorCode::AuthorizationForStatementDenied) => (Reason::Denied, ""),
        Some(ErrorCode::DiskFull) => (Reason::Unreachable, "the disk is full: make room"),
        Some(ErrorCode::SystemIoFailure) => (Reason::Unreachable, "the disk could not do it"),
        Some(ErrorCode::OutOfMemory) => (Reason::Unreachable, ""),
        Some(ErrorCode::NotADatabase) => {
            (Reason::Unfit, "it is no database, and was left as it was")
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            (Reason::Damaged, "restore it from a backup, or try sqlite3's .recover on a copy")
        }
        // Everything else is a statement that the schema found does not fit.
        Some(_) | None => (Reason::Damaged, ""),
    };
    CouldNot { reason, message: what, hint: (!hint.is_empty()).then(|| hint.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> Fault {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None).into()
    }

    #[test]
    fn only_a_failed_write_and_a_full_disk_prove_that_nothing_was_committed() {
        // CMT-6
        assert!(proves_no_commit(&failure(ffi::SQLITE_IOERR_WRITE)));
        assert!(proves_no_commit(&failure(ffi::SQLITE_FULL)));
        for unknown in [
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR,
            ffi::SQLITE_IOERR_READ,
            ffi::SQLITE_IOERR_SHMMAP,
            ffi::SQLITE_IOERR_TRUNCATE,
            ffi::SQLITE_NOMEM,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_BUSY,
        ] {
            assert!(!proves_no_commit(&failure(unknown)), "{unknown}");
        }
    }

    #[test]
    fn each_error_has_its_reason() {
        // STO-11
        let reason = |code, barrier| could_not(failure(code), "x.db", || barrier).reason;
        let (rights, file_system) = (Barrier::Rights, Barrier::FileSystem);
        assert_eq!(reason(ffi::SQLITE_BUSY, rights), Reason::Busy);
        assert_eq!(reason(ffi::SQLITE_BUSY_RECOVERY, rights), Reason::Busy);
        assert_eq!(reason(ffi::SQLITE_READONLY, rights), Reason::Denied);
        assert_eq!(reason(ffi::SQLITE_READONLY, file_system), Reason::Unreachable);
        assert_eq!(reason(ffi::SQLITE_CANTOPEN, rights), Reason::Denied);
        assert_eq!(reason(ffi::SQLITE_CANTOPEN, Barrier::None), Reason::Unreachable);
        assert_eq!(reason(ffi::SQLITE_FULL, rights), Reason::Unreachable);
        assert_eq!(reason(ffi::SQLITE_IOERR_FSYNC, rights), Reason::Unreachable);
        assert_eq!(reason(ffi::SQLITE_NOTADB, rights), Reason::Unfit);
        assert_eq!(reason(ffi::SQLITE_CORRUPT, rights), Reason::Damaged);
    }
}
