//! Reading for one who may only read, and being refused for one who may not even that (STO-10,
//! STO-11).
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]
mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::store::{
    Home, Mount, WITHIN, answered, child, child_store, events, files, granted, handle, key, list,
    open_at, record, refused, reserve, running,
};
use ctrlrun::plan::effect::{Answer, Refusal};
use ctrlrun::plan::protocol::Done;
use ctrlrun::store::{Ask, Mode, Reason};

/// Makes `command` run as one who is not the files' owner, where we may: as root.
fn as_nobody(command: &mut Command) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if root {
        command.uid(65_534).gid(65_534);
    }
    root
}

#[test]
fn part_of_a_reader() {
    let Some(path) = child_store() else { return };
    let store = open_at(&path, Mode::Read).unwrap().store;
    let keys = list(&*store);
    assert!(record(&*store, &key("k")).is_some() && keys.contains(&"k".to_owned()));
    assert_eq!(events(&*store, &key("k")), ["reserved", "began"]);
    assert!(store.reread(&key("k"), Ask::Last, WITHIN).unwrap().event.is_some());
    // Nothing can be written through it.
    let done = handle(&*store, &key("new"), reserve("a"));
    assert!(matches!(done, Done::CouldNot(_)), "{done:?}");
    // To write is refused before anything else.
    let error = refused(&path, Mode::Write);
    assert_eq!(error.reason, Reason::Denied, "{error:?}");
    println!("read");
}

/// Whether a reader who may not write reads the store, and leaves all as it was.
fn reads_only(home: &Home, directory: u32, file: u32) {
    fs::set_permissions(home.directory(), Permissions::from_mode(directory)).unwrap();
    for path in files(home.directory()).into_keys() {
        fs::set_permissions(&path, Permissions::from_mode(file)).unwrap();
    }
    let shm = format!("{}-shm", home.path().display());
    if fs::exists(&shm).unwrap() {
        fs::set_permissions(&shm, Permissions::from_mode(file)).unwrap();
    }
    let before = files(home.directory());
    let mut command = child("part_of_a_reader", &home.path());
    as_nobody(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("read"), "{output:?}");
    assert_eq!(files(home.directory()), before);
    fs::set_permissions(home.directory(), Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn t160_a_store_is_read_by_one_who_may_only_read() {
    // STO-10: with nobody else there, so without a log, in a directory that may not be written.
    let home = Home::new();
    running(&*home.store(), &key("k"));
    reads_only(&home, 0o555, 0o444);
}

#[test]
fn t160_a_store_in_use_is_read_by_one_who_may_only_read() {
    // STO-10: with a log and its index there, which the reader may not write either.
    let home = Home::new();
    let store = home.store();
    running(&*store, &key("k"));
    reads_only(&home, 0o555, 0o444);
    drop(store);
}

#[test]
fn t160_a_reader_who_may_not_write_the_file_makes_no_log_for_it() {
    // STO-10: one made by the reader would shut the owner out. The directory is open to all.
    let home = Home::new();
    running(&*home.store(), &key("k"));
    reads_only(&home, 0o777, 0o444);
    granted(&*home.store(), &key("later"), "a");
}

#[test]
fn t160_a_frozen_read_is_repeated_when_the_file_was_changed() {
    // STO-10: the file is read as one that does not change, and then it does.
    let home = Home::new();
    running(&*home.store(), &key("k"));
    let readable = home.directory().join("ro");
    fs::create_dir(&readable).unwrap();
    let path = readable.join("effects.db");
    fs::copy(home.path(), &path).unwrap();
    let set = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    set(0o444);
    if nix::unistd::geteuid().is_root() {
        // Root may write whatever the mode says: the file would not count as frozen.
        return frozen_by_mount(&readable);
    }
    let reader = open_at(&path, Mode::Read).unwrap().store;
    assert_eq!(record(&*reader, &key("new")), None);
    set(0o600);
    granted(&*open_at(&path, Mode::Write).unwrap().store, &key("new"), "a");
    set(0o444);
    assert!(record(&*reader, &key("new")).is_some());
}

/// The same for root, through a read-only bind mount of the directory.
fn frozen_by_mount(directory: &Path) {
    let view = tempfile::tempdir().unwrap();
    let Some(_mount) = read_only(directory, view.path()) else {
        println!("inconclusive: nothing can be mounted here");
        return;
    };
    let reader = open_at(&view.path().join("effects.db"), Mode::Read).unwrap().store;
    assert_eq!(record(&*reader, &key("new")), None);
    let writer = open_at(&directory.join("effects.db"), Mode::Write).unwrap().store;
    granted(&*writer, &key("new"), "a");
    // Now there is a log; and then there is none again, and the file is another.
    assert!(record(&*reader, &key("new")).is_some());
    drop(writer);
    assert!(record(&*reader, &key("new")).is_some());
    // In one process SQLite may reuse the writer's descriptor for the other path.
    drop(reader);
    let error = refused(&view.path().join("effects.db"), Mode::Write);
    assert_eq!(error.reason, Reason::Unreachable, "{error:?}");
    assert!(error.hint.unwrap().contains("read-only"));
}

#[test]
fn a_reader_changes_no_row_and_makes_no_store() {
    // STO-10, case 32
    let home = Home::new();
    running(&*home.store(), &key("k"));
    let dump = || fs::read(home.path()).unwrap();
    let before = dump();
    let store = home.open(Mode::Read).unwrap().store;
    list(&*store);
    let done = handle(&*store, &key("k"), reserve("b"));
    let (answer, _) = answered(done);
    assert_eq!(answer, Answer::Refused(Refusal::InProgress));
    let done = handle(&*store, &key("new"), reserve("b"));
    assert!(matches!(done, Done::CouldNot(_)), "{done:?}");
    drop(store);
    assert_eq!(dump(), before);
}

#[test]
fn a_store_that_may_not_be_read_or_written_is_denied_before_anything_runs() {
    // STO-11, case 44
    let home = Home::new();
    running(&*home.store(), &key("k"));
    fs::set_permissions(home.path(), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(home.directory(), Permissions::from_mode(0o555)).unwrap();
    let mut command = child("part_of_one_who_may_nothing", &home.path());
    as_nobody(&mut command);
    let output = command.output().unwrap();
    fs::set_permissions(home.directory(), Permissions::from_mode(0o700)).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("denied"), "{output:?}");
}

#[test]
fn part_of_one_who_may_nothing() {
    let Some(path) = child_store() else { return };
    let beside = path.with_file_name("new.db");
    let below = path.with_file_name("new").join("new.db");
    for (path, mode) in [
        (&path, Mode::Read),
        (&path, Mode::Write),
        (&path, Mode::Create),
        (&beside, Mode::Create),
        (&below, Mode::Create),
    ] {
        let error = refused(path, mode);
        assert_eq!(error.reason, Reason::Denied, "{}: {error:?}", path.display());
    }
    println!("denied");
}

/// The directory as it looks through a mount that cannot be written.
fn read_only(directory: &Path, at: &Path) -> Option<Mount> {
    let mounted = Mount::new(&["--bind", directory.to_str()?], at)?;
    // The second takes the place of the first; undone, both go.
    Mount::new(&["-o", "remount,bind,ro"], at).map(|again| {
        std::mem::forget(again);
        mounted
    })
}
