//! Workflow runs on a real server: answers that are lost at COMMIT, locks that are waited for and
//! those that are not, under every isolation level (WFL-6, WFL-9, WFL-12, PGS-10, PGS-11).
mod common;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::pgstore::{Stage, open_url, store_at};
use common::postgres::{LONG, Server, server};
use common::runs::{
    HOLD, WITHIN, claim, dispatched, draw, noted, reserve, row, run_id, started, tick, wakeup,
    withdraw,
};
use ctrlrun::plan::protocol::End;
use ctrlrun::store::postgres::faultproxy::{Act, When, Which};
use ctrlrun::store::runs::Take;
use ctrlrun::store::{Ask, Mode, Reason, Store};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// One test, under each isolation level, with a store through the proxy and one beside it.
fn under_every_level(test: impl Fn(&Stage, Arc<dyn Store>, &dyn Store, &str)) {
    for level in LEVELS {
        let Some(stage) = Stage::new() else { return };
        stage.isolate(level);
        let through: Arc<dyn Store> = open_url(&stage.url(), Mode::Write).unwrap().store.into();
        let beside = store_at(&stage.server.url("postgres"));
        test(&stage, through, &*beside, level);
    }
}

/// Somebody waits for a lock.
fn somebody_waits(server: &Server) {
    server.wait_for("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)");
}

#[test]
fn the_commit_of_a_tick_whose_answer_is_lost_is_unknown_and_a_re_read_tells() {
    // CMT-9, PGS-10
    under_every_level(|stage, through, beside, level| {
        for (act, name) in [
            (Act::CutBeforeForward, "before"),
            (Act::CutAfterAnswer, "answer"),
            (Act::CutAfterForward, "after"),
        ] {
            let context = format!("{level}, {act:?}");
            let run = started(beside, name, "w").id;
            let waiting = wakeup(beside, &run, "w");
            let mut next = tick(&*through, &run, &[noted("x")]);
            next.wakeups_deleted = vec![(waiting.key.clone(), waiting.put_id)];
            let rule = stage.add(Which::Any, When::Commit(1), act);
            let end = through.runs().append_run(&next, LONG);
            assert!(stage.proxy.acted(rule, LONG), "{context}: nothing was cut");
            assert!(matches!(end, End::Unknown(_)), "{context}: {end:?}");
            let found = through.runs().reread_run(&run, next.next.revision, LONG).unwrap();
            let left = beside.runs().load_run(&run, LONG).unwrap().wakeups.len();
            if found.run.as_ref() == Some(&next.next) {
                assert_eq!(found.event.as_ref(), next.history.last(), "{context}");
                assert_eq!(left, 0, "{context}: what goes with it");
            } else {
                // The re-read waits for a back end that is still at it, so this is final.
                assert_eq!(found.run, next.found, "{context}");
                assert_eq!((found.event, left), (None, 1), "{context}");
                assert_eq!(through.runs().append_run(&next, LONG), End::Landed, "{context}");
            }
            assert_eq!(row(beside, &run), next.next, "{context}");
            // Written again it finds itself there.
            assert_eq!(through.runs().append_run(&next, LONG), End::Refused, "{context}");
        }
    });
}

#[test]
fn of_two_ticks_on_one_version_the_second_waits_and_is_refused() {
    // WFL-6
    under_every_level(|stage, through, beside, level| {
        let run = started(beside, "r", "w").id;
        let (first, second) =
            (tick(&*through, &run, &[noted("1")]), tick(beside, &run, &[noted("2")]));
        let held = stage.add(Which::Any, When::Commit(1), Act::HoldRequest);
        let one = first.clone();
        let at_commit = thread::spawn(move || through.runs().append_run(&one, LONG));
        assert!(stage.proxy.acted(held, LONG));
        thread::scope(|scope| {
            let other = scope.spawn(|| beside.runs().append_run(&second, LONG));
            somebody_waits(&stage.server);
            stage.proxy.release();
            assert_eq!(at_commit.join().unwrap(), End::Landed, "{level}");
            assert_eq!(other.join().unwrap(), End::Refused, "{level}");
        });
        assert_eq!(row(beside, &run), first.next, "{level}");
        assert_eq!(beside.runs().run_history(&run, 1, LONG).unwrap().len(), 2, "{level}");
    });
}

#[test]
fn a_tick_that_withdraws_a_dispatch_waits_for_the_reserve_that_holds_it() {
    // WFL-9: whatever level the tick is under, it never withdraws what was reserved.
    under_every_level(|stage, through, beside, level| {
        let run = started(beside, "r", "w").id;
        let dispatch = dispatched(beside, &run, "a");
        let (withdrawal, reservation) =
            (withdraw(&*through, &dispatch), reserve(beside, &dispatch));
        // The reserve has written all, and is held before its COMMIT.
        let other = open_url(&stage.url(), Mode::Write).unwrap().store;
        let held = stage.add(Which::Nth(2), When::Commit(1), Act::HoldRequest);
        thread::scope(|scope| {
            let reserving = scope.spawn(|| other.append(&reservation, LONG));
            assert!(stage.proxy.acted(held, LONG));
            let ticking = scope.spawn(|| through.runs().append_run(&withdrawal, LONG));
            somebody_waits(&stage.server);
            stage.proxy.release();
            assert_eq!(reserving.join().unwrap(), End::Landed, "{level}");
            let end = ticking.join().unwrap();
            let proven = matches!(&end, End::NotCommitted(why) if why.reason == Reason::Busy);
            assert!(end == End::Refused || (proven && level != LEVELS[0]), "{level}: {end:?}");
        });
        assert!(beside.load(&dispatch.key, Ask::Nothing, LONG).unwrap().record.is_some());
        assert_eq!(beside.runs().load_run(&run, LONG).unwrap().dispatches.len(), 1, "{level}");
    });
}

#[test]
fn a_reserve_waits_for_the_tick_that_withdraws_its_dispatch_and_is_refused() {
    // WFL-9
    under_every_level(|stage, through, beside, level| {
        let run = started(beside, "r", "w").id;
        let dispatch = dispatched(beside, &run, "a");
        let (withdrawal, reservation) =
            (withdraw(&*through, &dispatch), reserve(&*through, &dispatch));
        let blocker = common::postgres::link(&stage.server.url("postgres"));
        blocker.batch("BEGIN; LOCK TABLE ctrlrun.run_history IN EXCLUSIVE MODE", LONG).unwrap();
        thread::scope(|scope| {
            let ticking = scope.spawn(|| beside.runs().append_run(&withdrawal, LONG));
            somebody_waits(&stage.server);
            let reserving = scope.spawn(|| through.append(&reservation, LONG));
            stage.server.wait_for("SELECT (SELECT count(*) FROM pg_locks WHERE NOT granted) >= 2");
            blocker.batch("ROLLBACK", LONG).unwrap();
            assert_eq!(ticking.join().unwrap(), End::Landed, "{level}");
            let end = reserving.join().unwrap();
            let proven = matches!(&end, End::NotCommitted(why) if why.reason == Reason::Busy);
            assert!(end == End::Refused || (proven && level != LEVELS[0]), "{level}: {end:?}");
        });
        // Tried again it is refused under every level.
        let store = open_url(&stage.url(), Mode::Write).unwrap().store;
        assert_eq!(store.append(&reservation, LONG), End::Refused, "{level}");
        assert_eq!(beside.load(&dispatch.key, Ask::Nothing, LONG).unwrap().record, None);
    });
}

#[test]
fn a_claim_waits_for_nobody() {
    // WFL-12, PGS-11
    let Some(stage) = Stage::new() else { return };
    let store = store_at(&stage.server.url("postgres"));
    let runs: Vec<_> =
        (0..3).map(|number| started(&*store, &format!("r{number}"), "w").id).collect();
    let waiting: Vec<_> = runs.iter().map(|run| wakeup(&*store, run, "w")).collect();
    // Somebody is at the first of them, and does not end.
    let at_it = common::postgres::link(&stage.server.url("postgres"));
    at_it
        .batch("BEGIN; UPDATE ctrlrun.wakeups SET requeues = 5 WHERE run_id = 'r0'", LONG)
        .unwrap();
    let short = Duration::from_secs(5);
    let claim = |limit| {
        let take = Take { only: None, limit, claim: draw(), hold: HOLD };
        let taken = store.runs().claim_wakeups(&take, short).unwrap().taken;
        let mut names: Vec<String> = taken.into_iter().map(|woken| woken.run.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(claim(1), ["r1"]);
    assert_eq!(claim(9), ["r2"]);
    assert_eq!(claim(9), [""; 0]);
    // Neither does finishing: what somebody is at is left to them.
    assert_eq!(store.runs().finish_wakeups(&waiting, short), End::Landed);
    at_it.batch("ROLLBACK", LONG).unwrap();
    assert_eq!(claim(9), ["r0"]);
    assert_eq!(store.runs().finish_wakeups(&waiting, short), End::Landed);
    let left = "SELECT count(*) FROM ctrlrun.wakeups";
    assert_eq!(stage.server.sql(left), [[Some("0".to_owned())]]);
}

#[test]
fn of_many_that_claim_at_once_each_gets_others() {
    // WFL-12
    let Some(server) = server() else { return };
    let store = store_at(&server.url("postgres"));
    for number in 0..60 {
        let run = started(&*store, &format!("r{number}"), &format!("w{}", number % 3)).id;
        wakeup(&*store, &run, "w");
    }
    let mut all = thread::scope(|scope| {
        let claiming: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let store = store_at(&server.url("postgres"));
                    let mut mine = Vec::new();
                    let mut empty = 0;
                    while empty < 3 {
                        let taken = claim(&*store, 2).taken;
                        empty = if taken.is_empty() { empty + 1 } else { 0 };
                        mine.extend(taken.into_iter().map(|woken| woken.run.to_string()));
                    }
                    mine
                })
            })
            .collect();
        claiming.into_iter().flat_map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    all.sort();
    let claimed = all.len();
    all.dedup();
    assert_eq!((claimed, all.len()), (60, 60), "one was handed out twice, or not at all");
}

#[test]
fn a_claim_costs_the_same_however_many_wait() {
    // WFL-12: a workflow with a hundred thousand wakeups starves nobody, and rows are counted.
    let Some(server) = server() else { return };
    let store = store_at(&server.url("postgres"));
    started(&*store, "r", "hog");
    let small = started(&*store, "small", "small").id;
    wakeup(&*store, &small, "w");
    server.sql(
        "INSERT INTO ctrlrun.wakeups SELECT 'r' || (i % 1000), 'k' || i, \
         decode(repeat('00', 16), 'hex'), (SELECT tier FROM ctrlrun.runs WHERE run_id = 'r'), 'hog', \
         1000 + i, 1000 + i, NULL, 0, 0 FROM generate_series(1, 100000) i",
    );
    server.sql("ANALYZE ctrlrun.wakeups");
    drop(store);
    let read = || -> i64 {
        // A back end tells what it has read when it ends, at the latest.
        let others = "SELECT count(*)::text FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        let began = Instant::now();
        while server.sql(others)[0][0].as_deref() != Some("0") {
            assert!(began.elapsed() < WITHIN, "a back end that does not end");
        }
        let sql = "SELECT (seq_tup_read + idx_tup_fetch)::text FROM pg_stat_user_tables \
             WHERE schemaname = 'ctrlrun' AND relname = 'wakeups'";
        server.sql(sql)[0][0].as_deref().unwrap().parse().unwrap()
    };
    let before = read();
    let store = store_at(&server.url("postgres"));
    let taken: Vec<String> =
        (0..10).flat_map(|_| claim(&*store, 1).taken).map(|woken| woken.run.to_string()).collect();
    drop(store);
    let rows = read() - before;
    assert_eq!(taken.len(), 10, "{taken:?}");
    assert!(taken[..2].contains(&"small".to_owned()), "{taken:?}");
    // With each go the other hundred of its run.
    assert!((1_000..20_000).contains(&rows), "{rows} rows were read for ten claims");
}

#[test]
fn the_grants_of_init_are_enough_for_runs() {
    // PGS-8
    let Some(server) = server() else { return };
    let opened = open_url(&server.url("postgres"), Mode::Create).unwrap();
    let grants = opened.grants.unwrap().replace("WRITER", "app").replace("READER", "looker");
    server.sql(&format!("CREATE ROLE app LOGIN; CREATE ROLE looker LOGIN; {grants}"));
    let url = |role: &str| server.url("postgres").replace("postgres@", &format!("{role}@"));
    let app = open_url(&url("app"), Mode::Write).unwrap().store;
    let wrong: Vec<String> = ctrlrun::store::conformance::runs::suite()
        .into_iter()
        .filter_map(|(name, check)| check(&*app).err().map(|why| format!("{name}: {why}")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let run = started(&*app, "r", "w").id;
    let looker = open_url(&url("looker"), Mode::Read).unwrap().store;
    assert_eq!(row(&*looker, &run).id, run);
    let next = tick(&*looker, &run, &[noted("never")]);
    let End::NotCommitted(error) = looker.runs().append_run(&next, WITHIN) else {
        panic!("it was written");
    };
    assert_eq!(error.reason, Reason::Denied);
}

#[test]
fn a_damaged_row_stops_its_run_by_its_name_and_no_other() {
    // WFL-4
    let Some(server) = server() else { return };
    let store = store_at(&server.url("postgres"));
    for run in ["bad", "good"] {
        started(&*store, run, "w");
        wakeup(&*store, &run_id(run), "w");
    }
    server.sql("UPDATE ctrlrun.runs SET status = 'succeeded' WHERE run_id = 'bad'");
    let error = store.runs().load_run(&run_id("bad"), WITHIN).unwrap_err();
    assert_eq!(error.reason, Reason::Damaged);
    assert!(error.message.contains("\"bad\""), "{}", error.message);
    server.sql("UPDATE ctrlrun.wakeups SET put_id = 'x' WHERE run_id = 'bad'");
    assert_eq!(claim(&*store, 9).taken.len(), 1, "the other is handed out");
    let next = tick(&*store, &run_id("good"), &[noted("on")]);
    assert_eq!(store.runs().append_run(&next, WITHIN), End::Landed);
}

#[test]
fn an_older_store_is_used_as_it_is_until_init_moves_it_and_then_has_runs() {
    // STO-13, PGS-8
    let Some(server) = server() else { return };
    let schema = include_str!("../src/store/schema/postgres_1.sql").replace(":schema", "ctrlrun");
    server.sql(&format!(
        "CREATE SCHEMA ctrlrun; {schema}; INSERT INTO ctrlrun.store VALUES \
         (1, 1, decode(repeat('ab', 16), 'hex'), 0, false)"
    ));
    let url = server.url("postgres");
    let old = store_at(&url);
    assert_eq!(old.identity().schema_version, 1, "what is there is not moved");
    let key = common::store::key("k");
    let done = common::store::handle(&*old, &key, common::store::reserve("a"));
    assert!(matches!(done, ctrlrun::plan::protocol::Done::Answered(_)), "{done:?}");
    for error in [
        old.runs().load_run(&run_id("r"), WITHIN).map(drop).unwrap_err(),
        old.runs().claim_wakeups(&take(), WITHIN).map(drop).unwrap_err(),
        match old.runs().requeue(&[], &unput(), WITHIN) {
            End::NotCommitted(error) => error,
            other => panic!("{other:?}"),
        },
    ] {
        assert_eq!(error.reason, Reason::Unfit, "{error}");
        assert!(error.message.contains("workflows need version 2"), "{error}");
        assert!(error.hint.unwrap().contains("init --store"), "the line that moves it");
    }
    let moved = open_url(&url, Mode::Upgrade).unwrap();
    assert_eq!(moved.store.identity().schema_version, 2);
    for (store, run) in [(&*old, "of the old"), (&*moved.store, "of the new")] {
        assert!(store.load(&key, Ask::Nothing, WITHIN).unwrap().record.is_some());
        started(store, run, "w");
    }
}

fn take() -> Take<'static> {
    Take { only: None, limit: 1, claim: draw(), hold: HOLD }
}

fn unput() -> ctrlrun::plan::workflow::Wakeup {
    ctrlrun::plan::workflow::Wakeup {
        key: "k".to_owned(),
        put_id: ctrlrun::plan::effect::WriteId(draw()),
        run: run_id("r"),
        due: ctrlrun::plan::time::Timestamp(0),
        count: 0,
        since_seq: 0,
    }
}
