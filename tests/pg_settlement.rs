//! A COMMIT whose answer was lost, on a real server behind a proxy that cuts exactly there, under every
//! isolation level (CMT-5 to CMT-11, PGS-3, PGS-4; cases 4 and 5).
mod common;

use common::pgstore::{MARK, Stage, open_url, wait_until};
use common::postgres::{LONG, link};
use ctrlrun::drive::{Call, handle};
use ctrlrun::plan::effect::{Command, Record, Request, Reserve};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::protocol::Done;
use ctrlrun::store::Mode;
use ctrlrun::store::postgres::faultproxy::{Act, Reply, When, Which};
use std::time::Duration;

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const RESERVE: u32 = 1;
const BEGIN: u32 = 2;
const SETTLE: u32 = 3;

/// One test, under each isolation level.
fn under_every_level(test: impl Fn(&Stage, &str)) {
    for level in LEVELS {
        let Some(stage) = Stage::new() else { return };
        stage.isolate(level);
        test(&stage, level);
        let begun = stage.server.sql("SELECT 1");
        assert_eq!(begun.len(), 1, "the server is there at the end");
    }
}

/// The effect's row was inserted, or updated, so many times.
fn writes(stage: &Stage, what: &str) -> usize {
    let statements = stage.statements();
    statements.iter().filter(|text| text.contains(what) && text.contains("WITH written")).count()
}

const INSERT: &str = "INSERT INTO \"ctrlrun\".effects";
const UPDATE: &str = "UPDATE \"ctrlrun\".effects";

fn rereads(stage: &Stage) -> usize {
    stage.statements().iter().filter(|text| text.contains("FOR UPDATE")).count()
}

fn once(stage: &Stage, key: &str, context: &str) {
    assert_eq!(stage.column(key, "state"), "committed", "{context}");
    assert_eq!(stage.events(key), ["reserved", "began", "committed"], "{context}");
}

#[test]
fn t155_a_connection_that_dies_during_commit_costs_no_second_execution_and_no_outcome() {
    // CMT-9, CMT-10
    under_every_level(|stage, level| {
        let mut ran = 0;
        for commit in [RESERVE, BEGIN, SETTLE] {
            for act in [Act::CutBeforeForward, Act::CutAfterAnswer, Act::CutAfterForward] {
                let key = format!("k{ran}");
                let context = format!("{level}, COMMIT {commit}, {act:?}");
                let rule = stage.add(Which::Any, When::Commit(commit), act);
                let out = stage.run(&key, &[], MARK);
                ran += 1;
                assert!(stage.proxy.acted(rule, LONG), "{context}: nothing was cut");
                assert_eq!(out.code, Some(0), "{context}: {out:?}");
                assert_eq!(stage.marks(), ran, "{context}");
                once(stage, &key, &context);
            }
        }
        assert!(rereads(stage) >= ran, "{level}: each was settled by a re-read");
    });
}

#[test]
fn t155b_a_commit_that_landed_unseen_is_seen_as_landed_and_the_command_runs_once() {
    // CMT-10
    under_every_level(|stage, level| {
        let rule = stage.add(Which::Any, When::Commit(RESERVE), Act::CutAfterAnswer);
        let out = stage.run("k", &[], MARK);
        assert!(stage.proxy.acted(rule, LONG));
        assert_eq!((out.code, stage.marks()), (Some(0), 1), "{level}: {out:?}");
        assert_eq!(writes(stage, INSERT), 1, "{level}: it was not written again");
        once(stage, "k", level);
    });
}

/// Another process takes the key, with the same attempt id.
fn reserve_elsewhere(stage: &Stage) -> Record {
    let store = open_url(&stage.server.url("postgres"), Mode::Write).unwrap().store;
    let reserve = Command::Reserve(Reserve {
        request: Request {
            fingerprint: Fingerprint::of([&[b"sh", b"-c", MARK.as_bytes()], &[], &[], &[], &[]]),
            program: "sh".to_owned(),
            arguments: 2,
            command: None,
        },
        attempt_id: "same".to_owned(),
        lease: Duration::from_secs(60),
        max_attempts: None,
        rebind: false,
        run_id: None,
    });
    let call = Call {
        key: Key::new("k").unwrap(),
        command: reserve,
        expect: StreamState::Any,
        within: LONG,
        exchange_max: LONG,
        outputs: Vec::new(),
    };
    let Done::Answered(theirs) = handle(store.as_ref(), call) else { panic!("not reserved") };
    theirs.record.unwrap()
}

#[test]
fn t155c_a_row_with_our_attempt_id_that_another_process_wrote_is_not_ours() {
    // CMT-9, EFF-4
    under_every_level(|stage, level| {
        stage.on(Which::Any, When::Commit(RESERVE), Act::CutBeforeForward);
        let reread = stage.add(Which::Any, When::Text("FOR UPDATE".into(), 1), Act::HoldRequest);
        let child = stage.start("k", &["--attempt-id", "same"], MARK);
        assert!(stage.proxy.acted(reread, LONG), "{level}: no re-read");
        let theirs = reserve_elsewhere(stage);
        stage.proxy.release();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(75), "{level}: {said}");
        assert_eq!(stage.marks(), 0, "{level}");
        let theirs = theirs.reservation_id.0.simple().to_string();
        assert_eq!(stage.column("k", "encode(reservation_id, 'hex')"), theirs, "{level}");
    });
}

/// From now on a change of an effect waits at COMMIT for a lock that the test holds.
fn gate(stage: &Stage, event: &str) -> ctrlrun::store::postgres::link::Link {
    stage.server.sql(&format!(
        "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER gate AFTER {event} ON ctrlrun.effects \
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gate()"
    ));
    let gate = link(&stage.server.url("postgres"));
    gate.batch("BEGIN; SELECT pg_advisory_xact_lock(7)", LONG).unwrap();
    gate
}

const AT_THE_GATE: &str =
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)";
const BEHIND_ANOTHER: &str =
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted)";

#[test]
fn t155d_a_commit_that_lands_only_after_the_first_re_read_is_found_by_the_next() {
    // CMT-11
    under_every_level(|stage, level| {
        let gate = gate(stage, "INSERT");
        stage.on(Which::Any, When::Commit(RESERVE), Act::CutAfterForward);
        let child = stage.start("k", &[], MARK);
        stage.server.wait_for(AT_THE_GATE);
        // The first re-read found nothing; the second try waits for the first one's end.
        stage.server.wait_for(BEHIND_ANOTHER);
        assert_eq!((rereads(stage), writes(stage, INSERT)), (1, 2), "{level}");
        gate.batch("ROLLBACK", LONG).unwrap();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), stage.marks()), (Some(0), 1), "{level}: {said}");
        assert!(rereads(stage) >= 2, "{level}: the second try was taken at its word");
        once(stage, "k", level);
    });
}

#[test]
fn t155d_an_update_that_is_still_committing_is_waited_for_by_the_re_read() {
    // CMT-9
    under_every_level(|stage, level| {
        let gate = gate(stage, "UPDATE");
        stage.on(Which::Any, When::Commit(SETTLE), Act::CutAfterForward);
        // Not at the begin.
        stage.server.sql("ALTER TABLE ctrlrun.effects DISABLE TRIGGER gate");
        let child = stage.start("k", &[], &format!("{MARK}; until [ -e go ]; do sleep 0.01; done"));
        wait_until("it runs", || stage.marks() == 1);
        stage.server.sql("ALTER TABLE ctrlrun.effects ENABLE TRIGGER gate");
        std::fs::write(stage.env.path("here/go"), "").unwrap();
        stage.server.wait_for(AT_THE_GATE);
        stage.server.wait_for(BEHIND_ANOTHER);
        gate.batch("ROLLBACK", LONG).unwrap();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), stage.marks()), (Some(0), 1), "{level}: {said}");
        assert_eq!(writes(stage, UPDATE), 2, "{level}: begin and settle, neither again");
        once(stage, "k", level);
    });
}

#[test]
fn t155e_an_update_whose_commit_did_not_land_is_issued_once_more() {
    // CMT-10, CMT-11
    under_every_level(|stage, level| {
        for (key, script, state, code) in
            [("yes", MARK, "committed", 0), ("no", "echo x >>marker; exit 11", "failed", 11)]
        {
            let updates = writes(stage, UPDATE);
            let rule = stage.add(Which::Any, When::Commit(SETTLE), Act::CutBeforeForward);
            let out = stage.run(key, &["--not-executed", "11"], script);
            assert!(stage.proxy.acted(rule, LONG));
            assert_eq!(out.code, Some(code), "{level}: {out:?}");
            assert_eq!(stage.column(key, "state"), state, "{level}");
            assert_eq!(stage.events(key), ["reserved", "began", state], "{level}");
            assert_eq!(writes(stage, UPDATE) - updates, 3, "{level}: begin, and settle twice");
        }
        assert_eq!(stage.marks(), 2, "{level}");
    });
}

/// A trigger that raises an error at the first row it sees, and never again.
fn fails_once(stage: &Stage, code: &str, timing: &str) {
    stage.server.sql(&format!(
        "CREATE SEQUENCE seen; \
         CREATE FUNCTION fails_once() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN IF nextval(''public.seen'') = 1 THEN \
          RAISE EXCEPTION ''on purpose'' USING ERRCODE = ''{code}''; END IF; RETURN NEW; END'; \
         CREATE {timing} FOR EACH ROW EXECUTE FUNCTION fails_once()"
    ));
}

const AT_STATEMENT: &str = "TRIGGER fails BEFORE INSERT ON ctrlrun.effects";
const AT_COMMIT: &str = "CONSTRAINT TRIGGER fails AFTER INSERT ON ctrlrun.effects \
                         DEFERRABLE INITIALLY DEFERRED";

#[test]
fn t155f_a_victim_of_another_transaction_was_not_committed_at_a_statement_and_at_commit() {
    // CMT-5, PGS-4
    under_every_level(|stage, level| {
        for (nth, (code, timing)) in [
            ("40001", AT_STATEMENT),
            ("40P01", AT_STATEMENT),
            ("40001", AT_COMMIT),
            ("40P01", AT_COMMIT),
        ]
        .into_iter()
        .enumerate()
        {
            fails_once(stage, code, timing);
            let key = format!("k{nth}");
            let out = stage.run(&key, &[], MARK);
            assert_eq!(out.code, Some(0), "{level}, {code}: {out:?}");
            assert_eq!(stage.marks(), nth + 1, "{level}, {code}");
            once(stage, &key, code);
            assert_eq!(stage.server.sql("SELECT last_value FROM seen")[0][0].as_deref(), Some("2"));
            stage.server.sql("DROP FUNCTION fails_once CASCADE; DROP SEQUENCE seen");
        }
        assert_eq!(rereads(stage), 0, "{level}: nothing was in doubt");
    });
}

#[test]
fn t155f_a_cancel_at_commit_proves_nothing() {
    // CMT-5, PGS-4
    under_every_level(|stage, level| {
        let gate = gate(stage, "INSERT");
        let child = stage.start("k", &[], MARK);
        stage.server.wait_for(AT_THE_GATE);
        assert_eq!(stage.statements().last().map(String::as_str), Some("COMMIT"), "{level}");
        stage.server.sql(
            "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted",
        );
        wait_until("a re-read", || rereads(stage) == 1);
        gate.batch("ROLLBACK", LONG).unwrap();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), stage.marks()), (Some(0), 1), "{level}: {said}");
        assert!(stage.server.log().contains("canceling statement due to user request"));
        assert_eq!(writes(stage, INSERT), 2, "{level}");
        once(stage, "k", level);
    });
}

#[test]
fn t155f_every_other_answer_to_commit_proves_nothing() {
    // CMT-5, PGS-4
    under_every_level(|stage, level| {
        let mut ran = 0;
        for (severity, code) in [
            ("ERROR", "57014"),
            ("ERROR", "40003"),
            ("ERROR", "08006"),
            ("ERROR", "XX000"),
            ("FATAL", "08P01"),
            ("FATAL", "57P01"),
        ] {
            let (severity, code) = (severity.to_owned(), code.to_owned());
            let context = format!("{level}, {severity} {code}");
            let reply = Reply::Error { severity, code };
            let act = Act::Forge { reply, forward: true };
            let rule = stage.add(Which::Any, When::Commit(RESERVE), act);
            let inserts = writes(stage, INSERT);
            let key = format!("k{ran}");
            let out = stage.run(&key, &[], MARK);
            ran += 1;
            assert!(stage.proxy.acted(rule, LONG), "{context}");
            assert_eq!((out.code, stage.marks()), (Some(0), ran), "{context}: {out:?}");
            assert_eq!(rereads(stage), ran, "{context}: it was not asked whether it landed");
            assert_eq!(writes(stage, INSERT) - inserts, 1, "{context}: it had landed");
            once(stage, &key, &context);
        }
    });
}

#[test]
fn t155f_an_error_inside_the_transaction_never_leads_to_commit() {
    // CMT-5, PGS-3
    under_every_level(|stage, level| {
        stage.server.sql(
            "CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN RAISE EXCEPTION ''never''; END'",
        );
        for table in ["effects", "history"] {
            stage.server.sql(&format!(
                "CREATE TRIGGER never BEFORE INSERT ON ctrlrun.{table} \
                 FOR EACH ROW EXECUTE FUNCTION never()"
            ));
            let out = stage.run("k", &[], MARK);
            assert_eq!(out.code, Some(70), "{level}: {out:?}");
            assert!(out.stderr.contains("nothing"), "{level}: {out:?}");
            stage.server.sql(&format!("DROP TRIGGER never ON ctrlrun.{table}"));
        }
        let statements = stage.statements();
        assert!(statements.iter().any(|text| text == "ROLLBACK"), "{level}: {statements:?}");
        assert!(!statements.iter().any(|text| text == "COMMIT"), "{level}: {statements:?}");
        assert_eq!((stage.marks(), stage.events("k").len()), (0, 0), "{level}");
    });
}

#[test]
fn a_trigger_that_drops_the_row_is_an_integrity_error_and_nothing_runs() {
    // CMT-11: 0 rows, and absent.
    let Some(stage) = Stage::new() else { return };
    stage.server.sql(
        "CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER drops BEFORE INSERT ON ctrlrun.effects \
         FOR EACH ROW EXECUTE FUNCTION drops()",
    );
    let out = stage.run("k", &["--store-timeout", "1s"], MARK);
    assert!(matches!(out.code, Some(69 | 70)), "{out:?}");
    assert_eq!((stage.marks(), stage.events("k").len()), (0, 0));
}

#[test]
fn a_trigger_that_drops_the_history_costs_the_row_too() {
    // HIS-3, PGS-1
    let Some(stage) = Stage::new() else { return };
    stage.server.sql(
        "CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER drops BEFORE INSERT ON ctrlrun.history \
         FOR EACH ROW EXECUTE FUNCTION drops()",
    );
    let out = stage.run("k", &[], MARK);
    assert_eq!((out.code, stage.marks()), (Some(70), 0), "{out:?}");
    assert_eq!(stage.column("k", "state"), "", "a row without history");
    assert!(!stage.statements().iter().any(|text| text == "COMMIT"));
}

#[test]
fn case_4_a_commit_that_is_answered_with_rollback_is_not_written() {
    // CON-8, PGS-4
    under_every_level(|stage, level| {
        // A true one: the server rolled back, and says so by the tag alone.
        let act = Act::Rewrite { from: "COMMIT".into(), to: "ROLLBACK".into() };
        let rule = stage.add(Which::Any, When::Commit(0), act);
        let out = stage.run("never", &["--store-timeout", "1s"], MARK);
        assert!(stage.proxy.acted(rule, LONG));
        assert_eq!((out.code, stage.marks()), (Some(69), 0), "{level}: {out:?}");
        assert!(out.stderr.contains("nothing"), "{level}: {out:?}");
        assert_eq!(stage.events("never").len(), 0, "{level}");
    });
    let Some(stage) = Stage::new() else { return };
    let act = Act::Rewrite { from: "COMMIT".into(), to: "ROLLBACK".into() };
    stage.on(Which::Any, When::Commit(RESERVE), act);
    let out = stage.run("once", &[], MARK);
    assert_eq!((out.code, stage.marks(), writes(&stage, INSERT)), (Some(0), 1, 2), "{out:?}");
    once(&stage, "once", "the same row again");
}

#[test]
fn t156_where_the_re_read_fails_too_nothing_runs_and_nothing_more_is_written() {
    // CMT-10, case 5
    under_every_level(|stage, level| {
        stage.on(Which::Any, When::Commit(RESERVE), Act::CutAfterAnswer);
        stage.on(Which::From(2), When::Connect, Act::Refuse);
        let out = stage.run("landed", &["--store-timeout", "1s"], MARK);
        assert_eq!((out.code, stage.marks()), (Some(69), 0), "{level}: {out:?}");
        assert_eq!(stage.events("landed"), ["reserved"], "{level}");

        let Some(other) = Stage::new() else { return };
        other.isolate(level);
        other.on(Which::Any, When::Commit(RESERVE), Act::CutBeforeForward);
        other.on(Which::From(2), When::Connect, Act::BlackHole);
        let out = other.run("lost", &["--store-timeout", "1s"], MARK);
        assert_eq!((out.code, other.marks()), (Some(69), 0), "{level}: {out:?}");
        assert_eq!(other.events("lost").len(), 0, "{level}");
    });
}

#[test]
fn t156_where_a_begin_cannot_be_settled_nothing_runs() {
    // CMT-10
    let Some(stage) = Stage::new() else { return };
    stage.on(Which::Any, When::Commit(BEGIN), Act::CutAfterAnswer);
    stage.on(Which::From(2), When::Connect, Act::Refuse);
    let out = stage.run("k", &["--store-timeout", "1s"], MARK);
    assert_eq!((out.code, stage.marks()), (Some(69), 0), "{out:?}");
}

#[test]
fn an_outcome_whose_settle_stays_unknown_is_spooled_and_delivered_once() {
    // CMT-10, EXE-24
    let Some(stage) = Stage::new() else { return };
    stage.on(Which::Any, When::Commit(SETTLE), Act::CutAfterAnswer);
    stage.on(Which::Nth(2), When::Connect, Act::Refuse);
    let out = stage.run("k", &["--store-timeout", "1s"], MARK);
    assert_eq!(out.code, Some(74), "{out:?}");
    let out = stage.run("other", &[], "true");
    assert_eq!(out.code, Some(0), "{out:?}");
    assert_eq!(stage.marks(), 1);
    once(&stage, "k", "delivered");
}

#[test]
fn t162_a_second_try_that_is_locked_out_does_not_change_that_the_first_is_unknown() {
    // CMT-7
    under_every_level(|stage, level| {
        stage.on(Which::Any, When::Commit(RESERVE), Act::CutAndForwardOnRelease);
        let second = stage.add(Which::Any, When::Text("FOR UPDATE".into(), 2), Act::HoldRequest);
        // An exchange may take a quarter of the lease: a lock is waited for 0.8 s.
        let child = stage.start("k", &["--lease", "4s"], MARK);
        assert!(stage.proxy.acted(second, LONG), "{level}");
        assert!(stage.server.log().contains("canceling statement due to lock timeout"), "{level}");
        stage.proxy.release();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), stage.marks()), (Some(0), 1), "{level}: {said}");
        assert_eq!(stage.column("k", "state"), "committed", "{level}");
        assert_eq!(stage.column("k", "attempt"), "1", "{level}");
    });
}

#[test]
fn t164_a_settle_that_landed_unseen_before_the_record_moved_on_is_no_late_outcome() {
    // CMT-10, EFF-17
    under_every_level(|stage, level| {
        stage.on(Which::Any, When::Commit(SETTLE), Act::CutAfterAnswer);
        let reread = stage.add(Which::Any, When::Text("FOR UPDATE".into(), 1), Act::HoldRequest);
        let child = stage.start("k", &["--not-executed", "11"], "exit 11");
        assert!(stage.proxy.acted(reread, LONG), "{level}");
        assert_eq!(reserve_elsewhere(stage).attempt, 2, "{level}");
        stage.proxy.release();
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(11), "{level}: {out:?}");
        assert_eq!(stage.events("k"), ["reserved", "began", "failed", "reserved"], "{level}");
    });
}

#[test]
fn where_begin_fails_nothing_of_the_write_runs() {
    // PGS-2: they are one message, and it stops at its first error.
    for instead in ["SELECT 1/0", "BEGIN; SELECT 1/0", "BEGIN; BEGIN ISOLATION LEVEL NONE"] {
        let Some(stage) = Stage::new() else { return };
        let from = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE".to_owned();
        let act = Act::Rewrite { from, to: instead.to_owned() };
        let rule = stage.add(Which::Any, When::Begin(0), act);
        let out = stage.run("k", &["--store-timeout", "1s"], MARK);
        assert!(stage.proxy.acted(rule, LONG));
        assert_eq!(stage.marks(), 0, "{instead}: {out:?}");
        assert!(writes(&stage, INSERT) >= 1, "the write was sent");
        assert_eq!(stage.events("k").len(), 0, "{instead}: it was committed: {out:?}");
        assert!(!stage.statements().iter().any(|text| text == "COMMIT"), "{instead}");
        assert!(matches!(out.code, Some(69 | 70)), "{instead}: {out:?}");
    }
}

#[test]
fn a_write_that_no_transaction_holds_back_is_in_doubt_and_settled_by_a_re_read() {
    // PGS-2: what stands between takes BEGIN and does nothing. The statement is committed by itself.
    let Some(stage) = Stage::new() else { return };
    let from = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE".to_owned();
    let act = Act::Rewrite { from, to: "SET LOCAL jit = off".to_owned() };
    let rule = stage.add(Which::Any, When::Begin(RESERVE), act);
    let out = stage.run("k", &[], MARK);
    assert!(stage.proxy.acted(rule, LONG));
    assert_eq!((out.code, stage.marks(), rereads(&stage)), (Some(0), 1, 1), "{out:?}");
    assert_eq!(writes(&stage, INSERT), 1, "it had landed");
    once(&stage, "k", "landed by itself");
}

#[test]
fn begin_and_the_write_are_one_message_and_commit_travels_alone() {
    // PGS-2
    let Some(stage) = Stage::new() else { return };
    let held = stage.add(Which::Any, When::Begin(1), Act::HoldAnswer);
    let child = stage.start("k", &[], MARK);
    assert!(stage.proxy.acted(held, LONG));
    let statements = stage.statements();
    let last = statements.last().unwrap();
    assert!(last.starts_with("BEGIN ") && last.contains(INSERT), "{last}");
    assert!(!statements.iter().any(|text| text == "COMMIT"));
    stage.proxy.release();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    let statements = stage.statements();
    let with = statements.iter().filter(|text| text.contains("COMMIT;")).count();
    let alone = statements.iter().filter(|text| *text == "COMMIT").count();
    assert_eq!((alone, with), (3, 0), "{statements:?}");
}
