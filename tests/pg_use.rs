//! How a store on a server uses it: round trips, connections, poolers, deadlines, other servers (PGS-2,
//! PGS-4 to PGS-6; cases 6, 35, 38, 39, 40).
mod common;

use std::fs;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::pgbouncer::PgBouncer;
use common::pgstore::{MARK, Stage, open_url, store_at, wait_until};
use common::postgres::{LONG, Options, link, server, server_with};
use common::{Output, TestEnv};
use ctrlrun::drive::{Call, handle};
use ctrlrun::plan::effect::{Command, Request, Reserve};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::protocol::Done;
use ctrlrun::store::postgres::faultproxy::{Act, Event, What, When, Which};
use ctrlrun::store::{Ask, Location, Mode, Reason, open};

fn on(env: &TestEnv, url: &str, arguments: &[&str]) -> Output {
    let mut command = env.command(arguments);
    common::finish(command.env("CTRLRUN_STORE", url))
}

fn start(env: &TestEnv, url: &str, key: &str, script: &str) -> Child {
    let mut command = env.command(["run", "--key", key, "--", "sh", "-c", script]);
    command.env("CTRLRUN_STORE", url).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn marks(env: &TestEnv) -> usize {
    fs::read_to_string(env.path("here/marker")).unwrap_or_default().lines().count()
}

/// A command that goes on until the test lets it.
fn until_go(script: &str) -> String {
    format!("{script}; until [ -e go ]; do sleep 0.01; done")
}

/// The connections of ctrlrun that the server knows.
const NONE_CONNECTED: &str = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity \
     WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())";

#[test]
fn a_run_takes_eight_round_trips() {
    // PGS-2, CMT-15, CMT-16: one to connect, one to look at the store, and for each of reserve, begin and
    // settle one to write and one to commit. BEGIN and the write share one.
    let Some(stage) = Stage::new() else { return };
    let out = stage.run("k", &[], MARK);
    assert_eq!(out.code, Some(0), "{out:?}");
    let kind = |text: &String| match text {
        text if text.starts_with("BEGIN ") && text.contains("WITH written") => "write",
        text if text == "COMMIT" => "commit",
        text if text.contains("server_encoding") => "look",
        text if text.starts_with("SELECT schema_version, store_id, EXISTS") => "why",
        text if text == "ROLLBACK" => "give up",
        text if text.contains("\"ctrlrun\".output") => "output",
        text if text.starts_with("SELECT s.schema_version") => "load",
        _ => "other",
    };
    let kinds: Vec<_> = stage.statements().iter().map(kind).collect();
    let write = ["write", "commit"];
    assert_eq!(kinds, [&["look"][..], &write, &write, &write].concat());
    // A key that is there already costs the guess that it is not, with what tells why and the
    // ROLLBACK; then come the load, and what is asked of the stored streams.
    let before = kinds.len();
    assert_eq!(stage.run("k", &[], MARK).code, Some(0));
    let kinds: Vec<_> = stage.statements().iter().skip(before).map(kind).collect();
    assert_eq!(kinds[..5], ["look", "write", "why", "give up", "load"]);
    let accepted =
        stage.proxy.seen().into_iter().filter(|event| matches!(event.what, What::Accepted));
    assert_eq!(accepted.count(), 2, "connections, one a run");
}

#[test]
fn a_read_takes_three_round_trips() {
    // PGS-2
    let Some(stage) = Stage::new() else { return };
    let out = on(&stage.env, &stage.url(), &["effects"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert_eq!(stage.statements().len(), 2, "{:?}", stage.statements());
}

#[test]
fn no_transaction_is_open_and_soon_no_connection_while_a_command_runs() {
    // PGS-5, case 40
    let Some(stage) = Stage::new() else { return };
    let child = stage.start("k", &["--lease", "6s"], &until_go(MARK));
    wait_until("it runs", || stage.marks() == 1);
    stage.server.wait_for(
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE xact_start IS NOT NULL \
         AND backend_type = 'client backend' AND pid <> pg_backend_pid())",
    );
    stage.server.wait_for(NONE_CONNECTED);
    // A renewal has one, and gives it up again.
    wait_until("a renewal", || stage.events("k").len() > 2);
    stage.server.wait_for(NONE_CONNECTED);
    assert_eq!(stage.events("k"), ["reserved", "began", "lease_renewed"]);
    fs::write(stage.env.path("here/go"), "").unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(stage.column("k", "state"), "committed");
}

#[test]
fn a_short_command_keeps_the_connection() {
    // PGS-5
    let Some(stage) = Stage::new() else { return };
    assert_eq!(stage.run("k", &[], "sleep 0.2").code, Some(0));
    let connections = stage.proxy.seen().iter().map(|event| event.connection).max();
    assert_eq!(connections, Some(1));
}

#[test]
fn more_runs_than_connections_are_all_recorded() {
    // PGS-5, case 40: each command outlasts the time for which a connection is kept.
    let settings = [
        "max_connections=52",
        "superuser_reserved_connections=2",
        "idle_in_transaction_session_timeout=1s",
    ];
    let options = Options { settings: settings.map(str::to_owned).to_vec(), ..Options::default() };
    let Some(server) = server_with(&options) else { return };
    let url = server.url("postgres");
    drop(store_at(&url));
    let grants = open_url(&url, Mode::Create).unwrap().grants.unwrap();
    let grants = grants.replace("WRITER", "app").replace("READER", "looker");
    server.sql(&format!("CREATE ROLE app LOGIN; CREATE ROLE looker; {grants}"));
    let app = url.replace("postgres@", "app@");
    let env = TestEnv::new();
    let script = format!("{MARK}; sleep 5");
    let children: Vec<_> = (0..200).map(|n| start(&env, &app, &format!("k{n}"), &script)).collect();
    for child in children {
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{said}");
    }
    assert_eq!(marks(&env), 200);
    let committed = "SELECT count(*) FROM ctrlrun.effects WHERE state = 'committed'";
    assert_eq!(server.sql(committed)[0][0].as_deref(), Some("200"));
}

#[test]
fn case_38_everything_works_through_a_pooler_in_transaction_mode() {
    // PGS-6
    for pool in [1, 2] {
        let Some(server) = server() else { return };
        let Some(pooler) = PgBouncer::start(&server, pool) else { return };
        let env = TestEnv::new();
        let url = pooler.url("postgres");
        assert_eq!(on(&env, &url, &["init", "--store", &url]).code, Some(0));
        let own: Vec<_> = (0..6).map(|n| start(&env, &url, &format!("k{n}"), MARK)).collect();
        let one: Vec<_> =
            (0..6).map(|_| start(&env, &url, "one", &format!("{MARK}; sleep 0.3"))).collect();
        for child in own {
            let out = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(0), "pool {pool}: {said}\n{}", pooler.log());
        }
        for child in one {
            let out = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr);
            // A late one finds it done, and replays.
            assert!(matches!(out.status.code(), Some(0 | 75)), "pool {pool}: {said}");
        }
        assert_eq!(marks(&env), 7, "pool {pool}");
        let out = on(&env, &url, &["run", "--key", "a", "--", "sh", "-c", "echo hi; exit 3"]);
        assert_eq!(out.code, Some(3), "{out:?}");
        for arguments in [&["effects"][..], &["show", "a"], &["history", "a"], &["output", "a"]] {
            let out = on(&env, &url, arguments);
            assert!(matches!(out.code, Some(0 | 76)), "{arguments:?}: {out:?}");
        }
        let resolve =
            ["resolve", "a", "--not-executed", "--expect", "3", "--reason", "looked", "--by", "me"];
        let out = on(&env, &url, &resolve);
        assert_eq!(out.code, Some(0), "{out:?}");
    }
}

#[test]
fn an_exchange_with_a_server_that_is_silent_ends_by_our_own_deadline() {
    // CON-7, CMT-14, case 39
    let within = ["--store-timeout", "1s"];
    let Some(stage) = Stage::new() else { return };
    stage.on(Which::Nth(1), When::Connect, Act::BlackHole);
    let began = Instant::now();
    let out = stage.run("k", &within, MARK);
    assert_eq!((out.code, stage.marks()), (Some(69), 0), "{out:?}");
    assert!(out.stderr.contains("nothing was run"), "{out:?}");
    // The load of a key that is there, and the write, are sent and never answered.
    for (text, exists) in [("SELECT s.schema_version", true), ("WITH written", false)] {
        let Some(stage) = Stage::new() else { return };
        if exists {
            assert_eq!(stage.run("k", &["--not-executed", "11"], "exit 11").code, Some(11));
        }
        let held = stage.add(Which::Any, When::Text(text.into(), 1), Act::HoldAnswer);
        stage.on(Which::From(2 + u32::from(exists)), When::Connect, Act::BlackHole);
        let out = stage.run("k", &within, MARK);
        assert!(stage.proxy.acted(held, LONG), "{text}");
        assert_eq!((out.code, stage.marks()), (Some(69), 0), "{text}: {out:?}");
        assert!(out.stderr.contains("nothing was run"), "{text}: {out:?}");
        assert_eq!(stage.events("k").len(), if exists { 3 } else { 0 }, "{text}");
    }
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_write_whose_time_is_over_before_commit_is_not_committed() {
    // CMT-14: nobody waits for the answer any more.
    let Some(stage) = Stage::new() else { return };
    let exchange = Duration::from_millis(500);
    let first = AtomicBool::new(true);
    let mut options = ctrlrun::store::Options::new(Mode::Scratch, LONG);
    options.before_commit = Some(Arc::new(move |_: &ctrlrun::store::Append| {
        let began = Instant::now();
        if first.swap(false, Ordering::SeqCst) {
            wait_until("the time is over", || began.elapsed() > exchange);
        }
    }));
    let at = Location::parse(&(stage.url() + "&schema=scratch")).unwrap();
    let store = open(&at, &options).unwrap().store;
    let made = stage.statements().len();
    let reserve = Reserve {
        request: Request {
            fingerprint: Fingerprint([7; 32]),
            program: "x".to_owned(),
            arguments: 0,
            command: None,
        },
        attempt_id: "a".to_owned(),
        lease: LONG,
        max_attempts: None,
        rebind: false,
        run_id: None,
    };
    let call = Call {
        key: Key::new("k").unwrap(),
        command: Command::Reserve(reserve),
        expect: StreamState::Any,
        within: LONG,
        exchange_max: exchange,
        outputs: Vec::new(),
    };
    let Done::Answered(_) = handle(store.as_ref(), call) else { panic!("not reserved") };
    let ends: Vec<_> = stage.statements().split_off(made);
    let ends: Vec<_> =
        ends.iter().filter(|text| ["COMMIT", "ROLLBACK"].contains(&text.as_str())).collect();
    assert_eq!(ends, ["ROLLBACK", "COMMIT"]);
}

#[test]
fn a_connection_that_ended_while_nothing_was_asked_is_made_anew() {
    // PGS-5
    let Some(stage) = Stage::new() else { return };
    let child = stage.start("k", &[], &until_go(MARK));
    wait_until("it runs", || stage.marks() == 1);
    stage.proxy.cut_all();
    fs::write(stage.env.path("here/go"), "").unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(stage.column("k", "state"), "committed");

    let store = open_url(&stage.url(), Mode::Write).unwrap().store;
    let load = || store.load(&Key::new("k").unwrap(), Ask::Last, LONG).unwrap();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    for _ in 0..3 {
        assert!(load().record.is_some());
        stage.server.sql(end);
        stage.server.wait_for(NONE_CONNECTED);
    }
    store.rest();
    assert!(load().record.is_some());
}

#[test]
fn case_6_a_server_that_stops_while_a_command_runs_costs_no_outcome() {
    // EXE-24
    let Some(mut server) = server() else { return };
    let url = server.url("postgres");
    drop(store_at(&url));
    let env = TestEnv::new();
    let child = start(&env, &url, "back", &until_go(MARK));
    wait_until("it runs", || marks(&env) == 1);
    server.kill9();
    fs::write(env.path("here/go"), "").unwrap();
    // It is tried again until the server is back.
    wait_until("the outcome is spooled", || {
        fs::read_dir(env.path("home/.local/state/ctrlrun")).is_ok_and(|entries| entries.count() > 0)
    });
    server.start();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let state = "SELECT state FROM ctrlrun.effects WHERE effect_key = 'back'";
    assert_eq!(server.sql(state)[0][0].as_deref(), Some("committed"));

    fs::remove_file(env.path("here/go")).unwrap();
    let mut command =
        env.command(["run", "--store-timeout", "1s", "--lease", "2s", "--key", "never"]);
    command.args(["--", "sh", "-c", &until_go(MARK)]).env("CTRLRUN_STORE", &url);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it runs", || marks(&env) == 2);
    server.kill9();
    fs::write(env.path("here/go"), "").unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(74), "{out:?}");
    server.start();
    assert_eq!(on(&env, &url, &["run", "--key", "next", "--", "true"]).code, Some(0));
    let state = "SELECT state FROM ctrlrun.effects WHERE effect_key = 'never'";
    assert_eq!(server.sql(state)[0][0].as_deref(), Some("committed"), "delivered");
    assert_eq!(marks(&env), 2);
}

#[test]
fn a_re_read_that_another_server_answers_has_failed() {
    // CMT-9, PGS-4, case 35
    // A copy of the server that went its own way: same system, same store, another timeline.
    let Some(copy) = server_with(&Options { standby: true, ..Options::default() }) else { return };
    copy.sql("SELECT pg_promote()");
    drop(store_at(&copy.url("postgres")));
    // And one that holds another store.
    let Some(other) = server() else { return };
    drop(store_at(&other.url("postgres")));
    for (name, elsewhere) in [("copy", &copy), ("other", &other)] {
        let Some(stage) = Stage::new() else { return };
        let system = "SELECT system_identifier FROM pg_control_system()";
        assert_eq!(elsewhere.sql(system), stage.server.sql(system), "it is no copy");
        if name == "copy" {
            let id = stage.server.sql("SELECT encode(store_id, 'hex') FROM ctrlrun.store");
            let id = id[0][0].clone().unwrap();
            let sql = format!("UPDATE ctrlrun.store SET store_id = decode('{id}', 'hex')");
            elsewhere.sql(&sql);
        }
        stage.on(Which::Any, When::Commit(1), Act::CutAfterAnswer);
        stage.on(Which::Nth(2), When::Connect, Act::Reroute(elsewhere.upstream()));
        let out = stage.run("k", &["--store-timeout", "2s"], MARK);
        assert_eq!((out.code, stage.marks()), (Some(69), 0), "{name}: {out:?}");
        let asked = |event: &Event| {
            event.connection == 2
                && matches!(&event.what, What::Statement(text) if text.contains("FOR UPDATE"))
        };
        assert!(stage.proxy.seen().iter().any(asked), "{name}: it was not asked");
        assert_eq!(stage.events("k"), ["reserved"], "{name}: where it was written");
        let there = elsewhere.sql("SELECT FROM ctrlrun.effects");
        assert!(there.is_empty(), "{name}: it was written to the other server");
    }
}

#[test]
fn a_connection_to_another_store_is_not_written_to() {
    // PGS-4: what was loaded here must not be settled there.
    let Some(stage) = Stage::new() else { return };
    let Some(other) = server() else { return };
    drop(store_at(&other.url("postgres")));
    let store = open_url(&stage.url(), Mode::Write).unwrap().store;
    store.rest();
    stage.on(Which::From(2), When::Connect, Act::Reroute(other.upstream()));
    let error = store.load(&Key::new("k").unwrap(), Ask::Nothing, LONG).unwrap_err();
    assert_eq!(error.reason, Reason::Unreachable, "{error:?}");
    assert!(error.message.contains("another store"), "{error:?}");
    let out = stage.run("k", &["--store-timeout", "1s"], MARK);
    assert_eq!(out.code, Some(0), "a run of its own is on that store: {out:?}");
}

#[test]
fn an_insert_waits_for_whoever_raises_the_floor() {
    // CMT-2, PGS-1: else a number that was forgotten could come round again.
    let Some(stage) = Stage::new() else { return };
    let forgetting = link(&stage.server.url("postgres"));
    forgetting
        .batch(
            "BEGIN; LOCK TABLE ctrlrun.effects IN SHARE ROW EXCLUSIVE MODE; \
             UPDATE ctrlrun.store SET attempt_floor = 7",
            LONG,
        )
        .unwrap();
    let child = stage.start("k", &[], MARK);
    stage.server.wait_for(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'relation' AND NOT granted)",
    );
    forgetting.batch("COMMIT", LONG).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(stage.column("k", "attempt"), "8");
}
