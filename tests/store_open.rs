//! Opening, making and refusing a store (STO-4 to STO-7, STO-10, STO-11).
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]
mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use common::store::{
    Home, WITHIN, child, child_store, files, granted, handle, key, list, open_at, refused, reserve,
    running,
};
use ctrlrun::plan::protocol::Done;
use ctrlrun::store::{Ask, End, Filter, Flow, Listed, Location, Mode, Options, Reason, open};
use rusqlite::Connection;

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_named_store_that_is_not_there_is_not_made() {
    // STO-7, STO-11
    let home = Home::new();
    for mode in [Mode::Read, Mode::Write, Mode::Upgrade] {
        for path in [home.path(), home.directory().join("no/such/x.db")] {
            let error = refused(&path, mode);
            assert_eq!(error.reason, Reason::Missing);
            let line = format!("ctrlrun init --store {}", path.display());
            assert!(error.hint.unwrap().ends_with(&line));
        }
    }
    assert!(files(home.directory()).is_empty());
}

#[test]
fn a_store_is_made_for_its_owner_alone() {
    // STO-6
    let home = Home::new();
    let path = home.directory().join("a/b/effects.db");
    let opened = open_at(&path, Mode::Create).unwrap();
    assert!(opened.created);
    granted(&*opened.store, &key("k"), "a");
    assert_eq!(mode_of(path.parent().unwrap()), 0o700);
    assert_eq!(mode_of(&home.directory().join("a")), 0o700);
    for suffix in ["", "-wal", "-shm"] {
        let file = PathBuf::from(format!("{}{suffix}", path.display()));
        assert_eq!(mode_of(&file), 0o600, "{}", file.display());
    }
    let entries = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(entries, 3, "something was left beside it");
}

#[test]
fn making_a_store_that_is_there_changes_nothing() {
    // STO-7
    let home = Home::new();
    let first = home.open(Mode::Create).unwrap();
    let id = first.store.identity().clone();
    drop(first);
    let before = files(home.directory());
    for mode in [Mode::Create, Mode::Scratch, Mode::Upgrade, Mode::Write, Mode::Read] {
        let again = home.open(mode).unwrap();
        assert!(!again.created);
        assert_eq!(*again.store.identity(), id);
    }
    assert_eq!(files(home.directory()), before);
}

#[test]
fn the_log_is_gone_once_the_last_one_has_closed() {
    // STO-1
    let home = Home::new();
    let (one, other) = (home.store(), home.store());
    granted(&*one, &key("k"), "a");
    drop(one);
    drop(other);
    let names: Vec<PathBuf> = files(home.directory()).into_keys().collect();
    assert_eq!(names, [home.path()]);
}

#[test]
fn an_empty_file_is_no_store_until_one_is_made_of_it() {
    // STO-7
    let home = Home::new();
    fs::write(home.path(), b"").unwrap();
    assert_eq!(refused(&home.path(), Mode::Write).reason, Reason::Missing);
    assert_eq!(refused(&home.path(), Mode::Read).reason, Reason::Missing);
    assert!(home.open(Mode::Create).unwrap().created);
}

#[test]
fn what_is_not_ours_is_left_as_it_was() {
    // STO-7: text, another program's databases, with and without a log, and a directory.
    let home = Home::new();
    let text = home.directory().join("text");
    fs::write(&text, "not a database, though long enough to have a header".repeat(99)).unwrap();
    let theirs = home.directory().join("theirs.db");
    let mut open = Vec::new();
    for mode in ["DELETE", "WAL"] {
        let path = home.directory().join(format!("{mode}.db"));
        let tool = Connection::open(&path).unwrap();
        let _: String =
            tool.query_row(&format!("PRAGMA journal_mode={mode}"), [], |row| row.get(0)).unwrap();
        tool.execute_batch("CREATE TABLE store(a)").unwrap();
        // A log that nobody has checkpointed: not ours to do.
        fs::copy(&path, &theirs).unwrap();
        open.push((path, tool));
    }
    for (path, tool) in open {
        let copy = home.directory().join("copy.db");
        fs::copy(&path, &copy).unwrap();
        let log = format!("{}-wal", path.display());
        if fs::exists(&log).unwrap() {
            fs::copy(log, home.directory().join("copy.db-wal")).unwrap();
        }
        drop(tool);
        let before = files(home.directory());
        for mode in [Mode::Create, Mode::Write, Mode::Read, Mode::Upgrade] {
            assert_eq!(refused(&copy, mode).reason, Reason::Unfit);
            assert_eq!(refused(&text, mode).reason, Reason::Unfit);
            assert_eq!(refused(home.directory(), mode).reason, Reason::Unfit);
        }
        assert_eq!(files(home.directory()), before);
    }
}

#[test]
fn another_s_interrupted_transaction_is_not_rolled_back() {
    // STO-7: a journal that was left behind belongs to the program that left it.
    let home = Home::new();
    let tool = Connection::open(home.path()).unwrap();
    tool.execute_batch(
        "PRAGMA cache_size=1; CREATE TABLE theirs(a); INSERT INTO theirs VALUES(zeroblob(99999));
         BEGIN; UPDATE theirs SET a=randomblob(99999)",
    )
    .unwrap();
    let copy = home.directory().join("copy.db");
    fs::copy(home.path(), &copy).unwrap();
    let journal = format!("{}-journal", home.path().display());
    fs::copy(journal, home.directory().join("copy.db-journal")).unwrap();
    let before = (fs::read(&copy).unwrap(), files(home.directory()).len());
    for mode in [Mode::Create, Mode::Write, Mode::Read] {
        assert_eq!(refused(&copy, mode).reason, Reason::Unfit);
    }
    assert_eq!((fs::read(&copy).unwrap(), files(home.directory()).len()), before);
}

#[test]
fn a_store_whose_making_was_cut_off_is_made_anew() {
    // STO-5: the process died in the COMMIT that makes the schema, with page 1 written and no other.
    let (home, whole, cut) = (Home::new(), Home::new(), Home::new());
    let tool = Connection::open(home.path()).unwrap();
    tool.execute_batch(
        "PRAGMA cache_size=1; BEGIN EXCLUSIVE; CREATE TABLE a(b);
         INSERT INTO a VALUES(zeroblob(99999)); INSERT INTO a VALUES(zeroblob(99999))",
    )
    .unwrap();
    let journal = |path: PathBuf| format!("{}-journal", path.display());
    fs::copy(journal(home.path()), journal(cut.path())).unwrap();
    whole.store();
    let page = fs::read(whole.path()).unwrap();
    fs::write(cut.path(), &page[..4_096]).unwrap();
    let opened = cut.open(Mode::Create).unwrap();
    assert!(opened.created);
    granted(&*opened.store, &key("k"), "a");
}

#[test]
fn a_newer_schema_is_refused_at_every_use() {
    // STO-4: at open, and by every verb of a store that was open when it was moved forward.
    let home = Home::new();
    let store = home.store();
    granted(&*store, &key("k"), "a");
    let found = store.load(&key("k"), Ask::Nothing, WITHIN).unwrap();
    let tool = Connection::open(home.path()).unwrap();
    tool.execute_batch("PRAGMA user_version=99; UPDATE store SET schema_version=99").unwrap();
    for mode in [Mode::Read, Mode::Write, Mode::Create, Mode::Upgrade] {
        let error = refused(&home.path(), mode);
        assert_eq!(error.reason, Reason::Unfit);
        assert!(error.message.contains("version 99"), "{}", error.message);
    }
    let is_unfit = |error: ctrlrun::store::CouldNot| error.reason == Reason::Unfit;
    assert!(is_unfit(store.load(&key("k"), Ask::Nothing, WITHIN).unwrap_err()));
    assert!(is_unfit(store.reread(&key("k"), Ask::Nothing, WITHIN).unwrap_err()));
    let done = handle(&*store, &key("other"), reserve("a"));
    assert!(matches!(done, Done::CouldNot(error) if error.reason == Reason::Unfit));

    // An insert and an update that were decided before it moved.
    let append = |found: Option<ctrlrun::plan::effect::Record>| ctrlrun::store::Append {
        next: {
            let mut next = found.clone().unwrap();
            if found.is_none() {
                next.key = key("new");
            }
            next
        },
        found,
        history: Vec::new(),
        attempt_floor: 0,
        outputs: Vec::new(),
        dispatch: None,
    };
    let update = append(found.record.clone());
    let mut insert = append(found.record);
    insert.found = None;
    insert.next.key = key("new");
    for write in [update, insert] {
        let End::NotCommitted(error) = store.append(&write, WITHIN) else {
            panic!("a binary that does not know the schema wrote to it");
        };
        assert_eq!(error.reason, Reason::Unfit);
    }
}

#[test]
fn a_scratch_store_is_marked_when_it_is_made_and_never_after() {
    // STO-12
    let (scratch, plain) = (Home::new(), Home::new());
    assert!(scratch.open(Mode::Scratch).unwrap().store.identity().scratch);
    assert!(scratch.open(Mode::Write).unwrap().store.identity().scratch);
    plain.store();
    assert!(!plain.open(Mode::Scratch).unwrap().store.identity().scratch);
}

#[test]
fn a_stop_point_is_reached_only_in_a_scratch_store() {
    // STO-12: inside the append, after its writes and before its COMMIT.
    let stopped = |mode| {
        let home = Home::new();
        home.open(mode).unwrap();
        let path = home.path();
        let (send, seen) = std::sync::mpsc::channel();
        let send = std::sync::Mutex::new(send);
        let options = Options {
            before_commit: Some(Arc::new(move |append| {
                // Another connection does not see the row yet.
                let tool = Connection::open(&path).unwrap();
                let rows: i64 =
                    tool.query_row("SELECT count(*) FROM effects", [], |row| row.get(0)).unwrap();
                let revision = append.next.revision;
                send.lock().unwrap().send((revision, rows)).unwrap();
            })),
            ..Options::new(Mode::Write, WITHIN)
        };
        let store = open(&Location::file(home.path()), &options).unwrap().store;
        granted(&*store, &key("k"), "a");
        drop(store);
        seen.try_iter().collect::<Vec<_>>()
    };
    assert_eq!(stopped(Mode::Scratch), [(1, 0)]);
    assert_eq!(stopped(Mode::Create), []);
}

const MAKERS: usize = 16;

#[test]
fn part_of_many_makers() {
    if let Some(path) = child_store() {
        let store = open_at(&path, Mode::Create).unwrap().store;
        println!("store {}", store.identity().store_id);
        granted(&*store, &key(&format!("k{}", std::process::id())), "a");
    }
}

#[test]
fn of_many_processes_on_an_empty_path_one_makes_the_schema_and_all_go_on() {
    // STO-5, case 41
    let home = Home::new();
    let path = home.directory().join("new/effects.db");
    let children: Vec<_> = (0..MAKERS)
        .map(|_| child("part_of_many_makers", &path).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    let ids: Vec<String> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let text = String::from_utf8(output.stdout).unwrap();
            let line = text.split("store ").nth(1).unwrap();
            line.lines().next().unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids.len(), MAKERS);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(list(&*open_at(&path, Mode::Read).unwrap().store).len(), MAKERS);
}

#[test]
fn of_many_threads_on_an_empty_path_one_makes_the_schema_and_all_go_on() {
    // STO-5: in one process a descriptor closed at the wrong moment would drop another's locks.
    for _ in 0..8 {
        let home = Home::new();
        let made: Vec<bool> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..MAKERS)
                .map(|number| {
                    let home = &home;
                    scope.spawn(move || {
                        let opened = home.open(Mode::Create).unwrap();
                        granted(&*opened.store, &key(&number.to_string()), "a");
                        opened.created
                    })
                })
                .collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert_eq!(made.iter().filter(|made| **made).count(), 1);
        assert_eq!(list(&*home.store()).len(), MAKERS);
    }
}

#[test]
fn a_malformed_row_stops_only_itself() {
    // STO-11: a row that cannot be decoded is named, and the others are shown.
    let home = Home::new();
    let store = home.store();
    for name in ["a", "b", "c", "d", "e"] {
        running(&*store, &key(name));
    }
    let tool = Connection::open(home.path()).unwrap();
    tool.execute_batch(
        "UPDATE effects SET state='done' WHERE effect_key='a';
         UPDATE effects SET write_id=x'00' WHERE effect_key='b';
         UPDATE effects SET effect_key=CAST(x'63ff' AS TEXT) WHERE effect_key='c';
         UPDATE history SET data='{}' WHERE effect_key='d' AND type='began'",
    )
    .unwrap();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut each = |listed| {
        match listed {
            Listed::Record(shown) => good.push(shown.record.key.to_string()),
            Listed::Unreadable { key, why } => bad.push((key, why)),
        }
        Flow::Continue
    };
    store.list(&Filter::default(), &mut each, WITHIN).unwrap();
    assert_eq!(good, ["e"]);
    let named: Vec<&str> = bad.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(named, ["a", "b", "c\u{fffd}", "d"]);
    assert!(bad[0].1.contains("state") && bad[1].1.contains("write_id"), "{bad:?}");
    let error = store.load(&key("a"), Ask::Nothing, WITHIN).unwrap_err();
    assert_eq!(error.reason, Reason::Damaged);
    assert!(store.load(&key("e"), Ask::Nothing, WITHIN).is_ok());
}
