//! Workflow runs in the embedded store: what the checks of conformance cannot see from outside.
mod common;

use std::sync::{Arc, Mutex, mpsc};

use common::runs::{WITHIN, claim, noted, row, run_id, started, tick, wakeup};
use common::store::{Home, child, child_store, files, handle, key, open_at, record, reserve};
use ctrlrun::plan::protocol::Done;
use ctrlrun::store::runs::{ListedRun, RunFilter};
use ctrlrun::store::{End, Flow, Location, Mode, Options, Reason, Store, open};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rusqlite::Connection;

fn listed(store: &dyn Store) -> Vec<Result<String, String>> {
    let mut all = Vec::new();
    let mut each = |listed| {
        all.push(match listed {
            ListedRun::Run(run, _) => Ok(run.id.to_string()),
            ListedRun::Unreadable { run, why } => Err(format!("{run}: {why}")),
        });
        Flow::Continue
    };
    store.runs().list_runs(&RunFilter::default(), &mut each, WITHIN).unwrap();
    all
}

#[test]
fn a_damaged_row_stops_its_run_by_its_name_and_no_other() {
    // WFL-4
    for damage in [
        "UPDATE runs SET node_states='{\"nodes\":{}}' WHERE run_id='bad'",
        "UPDATE runs SET status='succeeded' WHERE run_id='bad'",
        "UPDATE runs SET tier=9, node_states='x' WHERE run_id='bad'",
        "UPDATE runs SET state_checksum=zeroblob(32) WHERE run_id='bad'",
        "UPDATE runs SET write_id=x'00' WHERE run_id='bad'",
        "UPDATE wakeups SET put_id=x'00' WHERE run_id='bad'",
        "UPDATE wakeups SET requeues=-1 WHERE run_id='bad'",
        "INSERT INTO inbox VALUES('bad', zeroblob(16), 0, 'no wish')",
        "INSERT INTO dispatches VALUES('bad', '/', zeroblob(16), 'k', 1, NULL, 1, 'w', 0, 0, NULL)",
    ] {
        let home = Home::new();
        let store = home.store();
        for run in ["bad", "good"] {
            started(&*store, run, "w");
            wakeup(&*store, &run_id(run), "w");
        }
        Connection::open(home.path()).unwrap().execute_batch(damage).unwrap();
        let error = store.runs().load_run(&run_id("bad"), WITHIN).unwrap_err();
        assert_eq!(error.reason, Reason::Damaged, "{damage}");
        assert!(error.message.contains("\"bad\""), "{damage}: {}", error.message);
        let mut woken = claim(&*store, 9).taken;
        woken.retain(|woken| woken.run.as_str() == "good");
        assert_eq!(woken.len(), 1, "{damage}");
        let next = tick(&*store, &run_id("good"), &[noted("on")]);
        assert_eq!(store.runs().append_run(&next, WITHIN), End::Landed, "{damage}");
        let listed = listed(&*store);
        assert_eq!(listed.len(), 2, "{damage}: {listed:?}");
        assert_eq!(listed[1], Ok("good".to_owned()), "{damage}");
    }
}

#[test]
fn a_row_that_cannot_be_read_is_listed_with_its_name() {
    // WFL-4
    let home = Home::new();
    let store = home.store();
    started(&*store, "bad", "w");
    Connection::open(home.path()).unwrap().execute_batch("UPDATE runs SET tier=0").unwrap();
    let listed = listed(&*store);
    let [Err(why)] = listed.as_slice() else { panic!("it was read: {listed:?}") };
    assert!(why.starts_with("bad: column state_checksum"), "{why}");
}

#[test]
fn a_stop_point_inside_a_runs_append_comes_after_its_writes_and_before_its_commit() {
    // STO-12
    let stopped = |mode| {
        let home = Home::new();
        home.open(mode).unwrap();
        let path = home.path();
        let (send, seen) = mpsc::channel();
        let send = Mutex::new(send);
        let options = Options {
            before_run_commit: Some(Arc::new(move |append| {
                // Another connection does not see the row yet.
                let tool = Connection::open(&path).unwrap();
                let count = "SELECT count(*) FROM runs";
                let rows: i64 = tool.query_row(count, [], |row| row.get(0)).unwrap();
                send.lock().unwrap().send((append.next.revision, rows)).unwrap();
            })),
            ..Options::new(Mode::Write, WITHIN)
        };
        let store = open(&Location::file(home.path()), &options).unwrap().store;
        started(&*store, "r", "w");
        drop((store, options));
        seen.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(stopped(Mode::Scratch), [(1, 0)]);
    assert_eq!(stopped(Mode::Create), [], "only a scratch store has stop points");
}

#[test]
fn a_process_that_is_killed_inside_a_tick_leaves_nothing_of_it() {
    // STO-12, WFL-6: another tick on the version it had loaded lands.
    const NAME: &str = "a_process_that_is_killed_inside_a_tick_leaves_nothing_of_it";
    if let Some(path) = child_store() {
        let options = Options {
            before_run_commit: Some(Arc::new(|append| {
                ctrlrun::store::stop::arm("in-tick");
                ctrlrun::store::stop::inside_run_append(append);
            })),
            ..Options::new(Mode::Write, WITHIN)
        };
        let store = open(&Location::file(path), &options).unwrap().store;
        let mut next = tick(&*store, &run_id("r"), &[noted("never")]);
        let found = store.runs().load_run(&run_id("r"), WITHIN).unwrap();
        next.wakeups_deleted =
            found.wakeups.iter().map(|wakeup| (wakeup.key.clone(), wakeup.put_id)).collect();
        let _ = store.runs().append_run(&next, WITHIN);
        panic!("it was not stopped");
    }
    let home = Home::new();
    drop(home.open(Mode::Scratch).unwrap());
    let store = home.store();
    let run = started(&*store, "r", "w");
    let waiting = wakeup(&*store, &run.id, "w");
    let mut child = child(NAME, &home.path()).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let status = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert!(matches!(status, WaitStatus::Stopped(_, Signal::SIGSTOP)), "{status:?}");
    kill(pid, Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    assert_eq!(row(&*store, &run.id), run);
    let found = store.runs().load_run(&run.id, WITHIN).unwrap();
    assert_eq!(found.wakeups, [waiting]);
    let next = tick(&*store, &run.id, &[noted("on")]);
    assert_eq!(store.runs().append_run(&next, WITHIN), End::Landed);
}

/// A store as version 1 made it.
fn version_1(home: &Home) {
    let tool = Connection::open(home.path()).unwrap();
    tool.execute_batch(include_str!("../src/store/schema/sqlite_1.sql")).unwrap();
    tool.execute_batch(
        "INSERT INTO store VALUES(1, 1, zeroblob(16), 0, 0);
         PRAGMA application_id=0x6374726c; PRAGMA user_version=1; PRAGMA journal_mode=WAL",
    )
    .unwrap();
}

#[test]
fn an_older_store_is_used_as_it_is_until_it_is_moved_and_then_has_runs() {
    // STO-13, STO-5: the binaries of a fleet come first.
    let home = Home::new();
    version_1(&home);
    for mode in [Mode::Write, Mode::Create, Mode::Read] {
        assert_eq!(home.open(mode).unwrap().store.identity().schema_version, 1);
    }
    let old = home.store();
    assert!(matches!(handle(&*old, &key("k"), reserve("a")), Done::Answered(_)));
    let refused = |store: &dyn Store| {
        let errors = [
            store.runs().load_run(&run_id("r"), WITHIN).map(drop),
            store.runs().run_history(&run_id("r"), 1, WITHIN).map(drop),
            store.runs().load_effects(&[], &[], WITHIN).map(drop),
        ];
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(error.reason, Reason::Unfit, "{error}");
            assert!(error.message.contains("workflows need version 2"), "{error}");
            assert!(error.hint.unwrap().contains("init --upgrade"));
        }
    };
    refused(&*old);
    let before = record(&*old, &key("k"));
    assert_eq!(home.open(Mode::Upgrade).unwrap().store.identity().schema_version, 2);
    // One that was open all the time goes on, and has runs now.
    for store in [old, home.store()] {
        assert_eq!(record(&*store, &key("k")), before);
        let run = format!("of {}", store.identity().schema_version);
        started(&*store, &run, "w");
        assert_eq!(listed(&*store).iter().filter(|run| run.is_ok()).count(), listed(&*store).len());
    }
    let again = files(home.directory()).len();
    home.open(Mode::Upgrade).unwrap();
    assert_eq!(files(home.directory()).len(), again);
}

#[test]
fn nothing_of_runs_is_written_through_a_store_that_is_open_to_look_at() {
    // STO-10
    let home = Home::new();
    let run = started(&*home.store(), "r", "w").id;
    wakeup(&*home.store(), &run, "w");
    let reader = open_at(&home.path(), Mode::Read).unwrap().store;
    let next = tick(&*reader, &run, &[noted("never")]);
    assert!(matches!(reader.runs().append_run(&next, WITHIN), End::NotCommitted(_)));
    let take =
        ctrlrun::store::runs::Take { only: None, limit: 1, claim: uuid::Uuid::nil(), hold: WITHIN };
    let error = reader.runs().claim_wakeups(&take, WITHIN).unwrap_err();
    assert_eq!(error.reason, Reason::Denied);
}

#[test]
fn a_claim_costs_the_same_however_many_wait() {
    // WFL-12, STO-1, STO-14: every question is a look into an index; that is asked of SQLite itself.
    let home = Home::new();
    let store = home.store();
    let run = started(&*store, "r", "hog").id;
    wakeup(&*store, &run, "w");
    let tool = Connection::open(home.path()).unwrap();
    tool.execute_batch(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100000)
         INSERT INTO wakeups SELECT 'r'||(i%1000), 'k'||i, zeroblob(16), 1, 'hog', 1000+i, 1000+i,
           NULL, 0, 0 FROM n",
    )
    .unwrap();
    for table in ["wakeups", "dispatches"] {
        for question in [
            "SELECT free_at FROM t WHERE tier=1 ORDER BY free_at LIMIT 1",
            "SELECT workflow FROM t WHERE tier=1 AND workflow>'a' ORDER BY workflow LIMIT 1",
            "SELECT run_id FROM t WHERE tier=1 AND free_at<=9 AND workflow='hog'
               ORDER BY free_at LIMIT 1",
            "SELECT run_id FROM t WHERE tier=1 AND free_at<=9 ORDER BY free_at LIMIT 1",
        ] {
            let sql =
                format!("EXPLAIN QUERY PLAN {}", question.replace(" t ", &format!(" {table} ")));
            let mut statement = tool.prepare(&sql).unwrap();
            let plan: Vec<String> =
                statement.query_map([], |row| row.get(3)).unwrap().map(Result::unwrap).collect();
            assert_eq!(plan.len(), 1, "{question}: {plan:?}");
            assert!(plan[0].starts_with("SEARCH"), "{question}: {plan:?}");
            // The oldest of one workflow is not looked for among those of all.
            let of_one = question.contains("workflow='hog'");
            let by = "in_turn (tier=? AND workflow=? AND free_at<?)";
            assert!(!of_one || plan[0].contains(by), "{question}: {plan:?}");
        }
    }
    // And another workflow's one is not behind a hundred thousand.
    let small = started(&*store, "small", "small").id;
    wakeup(&*store, &small, "w");
    let taken: Vec<String> =
        (0..2).flat_map(|_| claim(&*store, 1).taken).map(|woken| woken.run.to_string()).collect();
    assert!(taken.contains(&"small".to_owned()), "{taken:?}");
}
