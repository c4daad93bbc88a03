//! What a database file and the place that it lies in are like, for a person who asks (CLI-23, OPS-10).
use std::path::Path;
use std::time::Duration;

use super::place::{self, directory_of};
use super::upkeep::LOG_MAX;
use super::{absolute, open, schema};
use crate::store::check::{Check, Checked, version};
use crate::store::location::SqliteAt;
use crate::store::{CouldNot, Mode, Options};

/// Less room than this, in bytes, and the next outcomes may not find any.
const ROOM_MIN: u64 = 64 << 20;

/// See [`crate::store::check::check`].
pub fn check(at: &SqliteAt, within: Duration) -> Checked {
    let mut checked = Checked::default();
    let path = absolute(&at.path);
    match open::sqlite(at, &Options::new(Mode::Read, within)) {
        Ok((store, warnings, _)) => {
            checked.store_id = Some(store.identity.store_id);
            let mark = if store.identity.scratch { ", a scratch store" } else { "" };
            let found = i64::from(store.identity.schema_version);
            checked.checks.push(Check::fine("schema", version(found, mark, schema::VERSION)));
            checked.checks.push(durability(&store, within));
            checked.checks.push(file_system(&path, &warnings));
        }
        Err(error) => {
            checked.checks.push(Check::wrong("store", "it cannot be used", told(error)));
            checked.checks.push(file_system(&path, &[]));
        }
    }
    checked.checks.extend(room(&path));
    checked.checks.extend(log(&path));
    checked.checks.extend(rights(&path));
    checked
}

fn told(error: CouldNot) -> String {
    [Some(error.message), error.hint].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn durability(store: &super::Sqlite, within: Duration) -> Check {
    match store.journal_mode(within) {
        Ok(mode) if mode == "wal" => Check::fine(
            "durability",
            format!("journal {mode}; every writer sets and checks synchronous=FULL"),
        ),
        // Of a file that is read as one that does not change the mode is not looked at.
        Ok(mode) if mode == "off" || mode == "memory" => Check::fine(
            "durability",
            "not told to one who may only read; every writer sets and checks it",
        ),
        Ok(mode) => Check::wrong(
            "durability",
            format!("journal {mode}"),
            "another program has changed it; the next command that writes sets WAL again: keep other \
             programs away from this file",
        ),
        Err(error) => Check::wrong("durability", "it cannot be read", told(error)),
    }
}

fn file_system(path: &Path, warnings: &[String]) -> Check {
    let found = place::mounted(path).unwrap_or_else(|| "not known".to_owned());
    match warnings {
        [] => Check::fine("file system", found),
        warnings => Check::wrong("file system", found, warnings.join("; ")),
    }
}

fn room(path: &Path) -> Option<Check> {
    let free = place::room(directory_of(path))?;
    let found = format!("{} MiB free", free >> 20);
    let mend = "an outcome that finds no room is spooled, and a run that finds none is refused: make \
                room, or let old output go (ctrlrun prune --older-than 30d)";
    Some(when(free >= ROOM_MIN, "room", found, mend))
}

fn log(path: &Path) -> Option<Check> {
    let log = place::beside(path, "-wal").ok()??;
    let mend = "a program reads this store and has not ended its transaction for long: find and end \
                it (fuser -v FILE); the log then starts anew by itself";
    Some(when(log.size <= 2 * LOG_MAX, "log", format!("{} MiB", log.size >> 20), mend))
}

fn rights(path: &Path) -> Option<Check> {
    let others = place::mode(path)? & 0o002 != 0;
    let found = match place::writable(path) {
        true => "this user may run effects",
        false => "this user may only look",
    };
    let mend = "everybody on this host may change what is recorded: chmod o-w, the file and its \
                directory";
    Some(when(!others, "rights", found.to_owned(), mend))
}

fn when(fine: bool, about: &'static str, found: String, finding: &str) -> Check {
    if fine { Check::fine(about, found) } else { Check::wrong(about, found, finding) }
}
