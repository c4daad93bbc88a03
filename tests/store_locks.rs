//! Waiting for locks, many writers at once, many rows (STO-1, STO-3, CMT-14).
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::store::{
    Home, WITHIN, answered, events, granted, handle, handle_within, key, open_at, record, reserve,
    running, settle,
};
use ctrlrun::drive::host;
use ctrlrun::plan::effect::{Answer, Verdict};
use ctrlrun::plan::protocol::Done;
use ctrlrun::store::{Ask, Filter, Flow, Listed, Location, Mode, Options, Reason, Store, open};
use rusqlite::Connection;

/// Another tool's exclusive lock on the store.
fn lock(home: &Home, how: &str) -> Connection {
    let tool = Connection::open(home.path()).unwrap();
    tool.execute_batch(how).unwrap();
    tool
}

#[test]
fn a_lock_that_is_released_in_time_is_never_reported() {
    // STO-3, case 14: another tool holds the lock while a reserve waits for it.
    let home = Home::new();
    let store = home.store();
    let tool = lock(&home, "BEGIN IMMEDIATE");
    let waiting = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let seen = Arc::clone(&waiting);
        let reserve = scope.spawn(move || {
            seen.store(true, Ordering::SeqCst);
            handle(&*store, &key("k"), reserve("a"))
        });
        while !waiting.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        // The lock outlasts what SQLite's own first pauses would wait for.
        let until = Instant::now() + Duration::from_millis(600);
        while Instant::now() < until {
            assert!(!reserve.is_finished(), "it did not wait");
            thread::yield_now();
        }
        tool.execute_batch("COMMIT").unwrap();
        assert_eq!(answered(reserve.join().unwrap()).0, Answer::Granted);
    });
}

#[test]
fn a_lock_that_is_kept_is_not_committed_and_nothing_ran() {
    // STO-3, CMT-14: within the deadline, and no later.
    let home = Home::new();
    let store = home.store();
    let tool = lock(&home, "BEGIN IMMEDIATE");
    let within = Duration::from_millis(200);
    let started = Instant::now();
    let done = handle_within(&*store, &key("k"), reserve("a"), within);
    assert!(started.elapsed() >= within);
    assert!(started.elapsed() < within * 10, "{:?}", started.elapsed());
    let Done::CouldNot(error) = done else {
        panic!("{done:?}");
    };
    assert_eq!(error.reason, Reason::Busy);
    drop(tool);
    assert_eq!(record(&*store, &key("k")), None);
}

#[test]
fn opening_waits_for_an_exclusive_lock_and_gives_up_at_its_deadline() {
    // STO-3: a lock that shuts readers out too.
    let home = Home::new();
    drop(home.store());
    let exclusive =
        "PRAGMA locking_mode=EXCLUSIVE; BEGIN IMMEDIATE; UPDATE store SET one=1; COMMIT";
    let tool = lock(&home, exclusive);
    for mode in [Mode::Read, Mode::Write] {
        let options = Options::new(mode, Duration::from_millis(150));
        let error = match open(&Location::file(home.path()), &options) {
            Ok(_) => panic!("it was opened under an exclusive lock"),
            Err(error) => error,
        };
        assert_eq!(error.reason, Reason::Busy, "{error:?}");
    }
    thread::scope(|scope| {
        let opened = scope.spawn(|| home.open(Mode::Write).map(|_| ()));
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            assert!(!opened.is_finished(), "it did not wait");
            thread::yield_now();
        }
        drop(tool);
        opened.join().unwrap().unwrap();
    });
}

#[test]
fn a_write_whose_time_is_over_before_its_commit_is_rolled_back() {
    // CMT-14: what nobody waits for any more must not come to pass.
    let home = Home::new();
    home.open(Mode::Scratch).unwrap();
    let options = Options {
        before_commit: Some(Arc::new(|_| {
            let until = Instant::now() + Duration::from_millis(100);
            while Instant::now() < until {
                thread::yield_now();
            }
        })),
        ..Options::new(Mode::Write, WITHIN)
    };
    let store = open(&Location::file(home.path()), &options).unwrap().store;
    let done = handle_within(&*store, &key("k"), reserve("a"), Duration::from_millis(50));
    assert!(matches!(done, Done::CouldNot(error) if error.reason == Reason::Busy));
    assert_eq!(record(&*store, &key("k")), None);
}

#[test]
fn many_writers_on_their_own_keys_are_all_recorded_while_one_lists() {
    // STO-3, case 14
    const WRITERS: usize = 8;
    const EACH: usize = 20;
    let home = Home::new();
    drop(home.store());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let home = &home;
                scope.spawn(move || {
                    for run in 0..EACH {
                        // Opened and closed for each, as processes do.
                        let store = home.store();
                        let key = key(&format!("{writer}:{run}"));
                        let holder = running(&*store, &key);
                        let word = settle(holder, host::outcome_id(), Verdict::Committed);
                        assert_eq!(answered(handle(&*store, &key, word)).0, Answer::Settled);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                count(&*home.open(Mode::Read).unwrap().store, &Filter::default());
            }
        });
        let done: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        assert!(done.iter().all(Result::is_ok));
    });
    let store = home.store();
    assert_eq!(count(&*store, &Filter::default()), WRITERS * EACH);
    assert_eq!(events(&*store, &key("3:7")), ["reserved", "began", "committed"]);
}

fn count(store: &dyn Store, filter: &Filter) -> usize {
    let mut rows = 0;
    let mut each = |listed| {
        match listed {
            Listed::Record(_) => rows += 1,
            Listed::Unreadable { key, why } => panic!("{key}: {why}"),
        }
        Flow::Continue
    };
    store.list(filter, &mut each, WITHIN).unwrap();
    rows
}

const MANY: usize = 200_000;

#[test]
fn what_is_stuck_is_found_among_many_settled_rows() {
    // STO-1: no verb but list reads more than its key's rows, and a list of what is stuck does not
    // read what is settled.
    let home = Home::new();
    let store = home.store();
    let holder = running(&*store, &key("settled"));
    let word = settle(holder, host::outcome_id(), Verdict::Committed);
    answered(handle(&*store, &key("settled"), word));
    let tool = Connection::open(home.path()).unwrap();
    copies(&tool, "settled", MANY);
    for name in ["a", "stuck:1", "stuck:2", "z"] {
        granted(&*store, &key(name), "a");
    }
    tool.execute_batch("UPDATE effects SET lease_expires_at=1 WHERE effect_key LIKE 'stuck:%'")
        .unwrap();
    let stuck = Filter { stuck: true, ..Filter::default() };
    let (found, quick) = timed(|| count(&*store, &stuck));
    let (all, slow) = timed(|| count(&*store, &Filter::default()));
    assert_eq!((found, all), (2, MANY + 5));
    assert!(quick * 20 < slow, "stuck {quick:?}, all {slow:?}");

    // The first line comes at once, and one key's cost does not grow with the others.
    let mut first = |_: Listed| Flow::Stop;
    let ((), at_once) = timed(|| store.list(&Filter::default(), &mut first, WITHIN).unwrap());
    assert!(at_once * 20 < slow, "first line {at_once:?}, all {slow:?}");
    let small = Home::new();
    let few = small.store();
    granted(&*few, &key("a"), "a");
    let loads = |store: &dyn Store| {
        let load = || store.load(&key("a"), Ask::Last, WITHIN).unwrap();
        load();
        let round = || timed(|| (0..100).for_each(|_| drop(load()))).1;
        (0..5).map(|_| round()).min().unwrap()
    };
    let (few, many) = (loads(&*few), loads(&*store));
    // A scan would be a thousand times slower.
    assert!(many < few * 10, "of few {few:?}, of many {many:?}");
}

fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    (what(), started.elapsed())
}

/// Copies a row that many times, under keys of its own.
fn copies(tool: &Connection, of: &str, many: usize) {
    let columns: Vec<String> = tool
        .prepare("SELECT name FROM pragma_table_info('effects') WHERE name<>'effect_key'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let columns = columns.join(",");
    tool.execute_batch(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{many})
         INSERT INTO effects(effect_key,{columns})
         SELECT printf('bulk:%08d',i),{columns} FROM n,effects WHERE effect_key='{of}'"
    ))
    .unwrap();
}

#[test]
fn a_reader_of_pages_holds_no_snapshot() {
    // STO-1: the log can be checkpointed while a caller looks at a page.
    let home = Home::new();
    let store = home.store();
    granted(&*store, &key("a"), "a");
    granted(&*store, &key("b"), "a");
    let tool = Connection::open(home.path()).unwrap();
    let mut each = |_: Listed| {
        let hindered: i64 =
            tool.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
        assert_eq!(hindered, 0);
        Flow::Continue
    };
    store.list(&Filter::default(), &mut each, WITHIN).unwrap();
    drop(open_at(&home.path(), Mode::Read).unwrap());
}
