//! The fault proxy, on a real server: each fault falls exactly where it was put.
#![expect(clippy::unwrap_used, reason = "a test ends where its stage cannot be set")]
use std::time::Duration;

use ctrlrun::store::postgres::connect::{Why, connect};
use ctrlrun::store::postgres::faultproxy::{Act, Proxy, Reply, Rule, Upstream, What, When, Which};
use ctrlrun::store::postgres::here;
use ctrlrun::store::postgres::link::{Committed, Link, LinkError};
use tokio_postgres::error::Severity;
use tokio_postgres::types::Type;

mod common {
    pub mod postgres;
}
use common::postgres::{LONG, Server, info, link, rows, server};

const SHORT: Duration = Duration::from_millis(200);

struct Stage {
    server: Server,
    proxy: Proxy,
}

impl Stage {
    fn new() -> Option<Self> {
        let server = server()?;
        server.sql("CREATE TABLE t (x int)");
        let proxy = Proxy::start(server.upstream()).unwrap();
        Some(Self { server, proxy })
    }

    fn on(&self, connection: Which, when: When, act: Act) {
        self.proxy.on(Rule { connection, when, act });
    }

    fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.proxy.addr)
    }

    /// A link through the proxy, in a transaction that has written.
    fn written(&self) -> Link {
        let made = link(&self.url());
        made.batch("BEGIN ISOLATION LEVEL READ COMMITTED", LONG).unwrap();
        made.execute("INSERT INTO t VALUES ($1)", &[(&1_i32, Type::INT4)], LONG).unwrap();
        made
    }

    fn count(&self) -> String {
        self.server.sql("SELECT count(*) FROM t")[0][0].clone().unwrap()
    }

    fn wait_for_count(&self, count: u32) {
        self.server.wait_for(&format!("SELECT count(*) = {count} FROM t"));
    }

    /// No transaction of a client is open any more.
    fn wait_for_quiet(&self) {
        self.server.wait_for(
            "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE xact_start IS NOT NULL \
             AND backend_type = 'client backend' AND pid <> pg_backend_pid())",
        );
    }
}

fn lost(error: &LinkError) -> bool {
    matches!(error, LinkError::Lost(_))
}

#[test]
fn without_rules_everything_passes_and_is_seen() {
    let Some(stage) = Stage::new() else { return };
    assert_eq!(stage.written().commit(LONG), Ok(Committed::Yes));
    assert_eq!(stage.count(), "1");
    let statements: Vec<_> = stage
        .proxy
        .seen()
        .into_iter()
        .filter_map(|event| {
            let What::Statement(text) = event.what else { return None };
            Some(text)
        })
        .collect();
    assert_eq!(
        statements,
        ["BEGIN ISOLATION LEVEL READ COMMITTED", "INSERT INTO t VALUES ($1)", "COMMIT"]
    );
    assert!(stage.proxy.wait(LONG, |seen| seen.iter().any(|event| event.what == What::ClientGone)));
    let answered = stage.proxy.seen().into_iter().filter_map(|event| {
        let What::Answered(status) = event.what else { return None };
        Some(status)
    });
    assert_eq!(answered.collect::<String>(), "ITTI", "the start-up, and three exchanges");
}

#[test]
fn a_commit_cut_before_it_is_forwarded_did_not_land() {
    let Some(stage) = Stage::new() else { return };
    stage.on(Which::Any, When::Commit(1), Act::CutBeforeForward);
    let made = stage.written();
    assert!(lost(&made.commit(LONG).unwrap_err()));
    assert!(stage.proxy.acted(0, LONG));
    stage.wait_for_quiet();
    assert_eq!(stage.count(), "0");
    assert_eq!(stage.written().commit(LONG), Ok(Committed::Yes), "the second COMMIT is not meant");
}

#[test]
fn a_commit_cut_after_the_answer_has_landed() {
    let Some(stage) = Stage::new() else { return };
    stage.on(Which::Nth(1), When::Commit(1), Act::CutAfterAnswer);
    assert!(lost(&stage.written().commit(LONG).unwrap_err()));
    assert_eq!(stage.count(), "1", "it had landed before the client could know");
}

#[test]
fn a_commit_may_land_after_the_client_was_cut() {
    let Some(stage) = Stage::new() else { return };
    stage.server.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let gate = link(&stage.server.url("postgres"));
    gate.batch("BEGIN; SELECT pg_advisory_xact_lock(7)", LONG).unwrap();
    stage.on(Which::Nth(1), When::Commit(1), Act::CutAfterForward);
    assert!(lost(&stage.written().commit(LONG).unwrap_err()));
    stage.server.wait_for(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)",
    );
    assert_eq!(stage.count(), "0", "the old back end is still committing");
    gate.batch("ROLLBACK", LONG).unwrap();
    stage.wait_for_count(1);
}

#[test]
fn a_commit_may_reach_the_server_long_after_the_client_was_cut() {
    let Some(stage) = Stage::new() else { return };
    stage.on(Which::Nth(1), When::Commit(1), Act::CutAndForwardOnRelease);
    assert!(lost(&stage.written().commit(LONG).unwrap_err()));
    assert_eq!(stage.count(), "0");
    stage.proxy.release();
    stage.wait_for_count(1);
}

#[test]
fn a_held_request_is_not_known_to_the_server_until_it_is_released() {
    let Some(stage) = Stage::new() else { return };
    stage.on(Which::Nth(1), When::Commit(1), Act::HoldRequest);
    let made = stage.written();
    assert_eq!(made.commit(SHORT), Err(LinkError::Deadline(SHORT)));
    assert_eq!(stage.count(), "0");
    stage.proxy.release();
    stage.wait_for_count(1);
}

#[test]
fn a_held_answer_is_an_answer_once_it_is_released() {
    let Some(stage) = Stage::new() else { return };
    stage.on(Which::Nth(1), When::Commit(0), Act::HoldAnswer);
    let made = stage.written();
    assert_eq!(made.commit(SHORT), Err(LinkError::Deadline(SHORT)));
    assert_eq!(stage.count(), "1");
    stage.proxy.release();

    stage.on(Which::Nth(2), When::Commit(1), Act::HoldAnswer);
    let made = stage.written();
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| made.commit(LONG));
        assert!(stage.proxy.acted(1, LONG));
        stage.wait_for_count(2);
        assert!(!commit.is_finished());
        stage.proxy.release();
        assert_eq!(commit.join().unwrap(), Ok(Committed::Yes));
    });
}

#[test]
fn an_answer_with_the_end_right_behind_it_is_not_lost() {
    let Some(stage) = Stage::new() else { return };
    stage.on(Which::Any, When::Commit(0), Act::CloseBehindAnswer);
    for _ in 0..20 {
        assert_eq!(stage.written().commit(LONG), Ok(Committed::Yes));
    }
    assert_eq!(stage.count(), "20");
}

#[test]
fn the_text_of_begin_becomes_another_isolation_level() {
    let Some(stage) = Stage::new() else { return };
    for (nth, level) in [(1, "repeatable read"), (2, "serializable")] {
        let act = Act::Rewrite { from: "READ COMMITTED".into(), to: level.into() };
        stage.on(Which::Nth(nth), When::Begin(1), act);
        let made = stage.written();
        let found =
            made.query("SELECT current_setting('transaction_isolation')", &[], LONG).unwrap();
        assert_eq!(found[0].get::<_, String>(0), level);
    }
}

#[test]
fn a_statement_sent_by_the_extended_protocol_is_found_and_rewritten() {
    let Some(stage) = Stage::new() else { return };
    let text = When::Text("INSERT INTO t".into(), 1);
    stage.on(Which::Any, text, Act::Rewrite { from: "$1".into(), to: "$1 + 41".into() });
    assert_eq!(stage.written().commit(LONG), Ok(Committed::Yes));
    assert_eq!(stage.server.sql("SELECT x FROM t"), [[Some("42".to_owned())]]);

    let text = When::Text("INSERT INTO t".into(), 1);
    stage.on(Which::Nth(2), text, Act::CutBeforeForward);
    let made = link(&stage.url());
    made.batch("BEGIN", LONG).unwrap();
    assert!(lost(
        &made.execute("INSERT INTO t VALUES ($1)", &[(&1_i32, Type::INT4)], LONG).unwrap_err()
    ));
}

/// CON-8.
#[test]
fn an_answer_can_be_forged_with_and_without_the_servers_knowledge() {
    let Some(stage) = Stage::new() else { return };
    let error =
        |severity: &str, code: &str| Reply::Error { severity: severity.into(), code: code.into() };
    let forge = |reply, forward| Act::Forge { reply, forward };
    let said = |made: &Link| match made.commit(LONG) {
        Err(LinkError::Server(said)) => (said.code, said.severity),
        other => panic!("{other:?}"),
    };
    stage.on(Which::Nth(1), When::Commit(1), forge(error("ERROR", "40001"), false));
    let made = stage.written();
    assert_eq!(said(&made), ("40001".to_owned(), Some(Severity::Error)));
    made.batch("ROLLBACK", LONG).unwrap();
    assert_eq!(stage.count(), "0");

    stage.on(Which::Nth(2), When::Commit(1), forge(error("ERROR", "57014"), true));
    assert_eq!(said(&stage.written()), ("57014".to_owned(), Some(Severity::Error)));
    assert_eq!(stage.count(), "1");

    stage.on(Which::Nth(3), When::Commit(1), forge(error("FATAL", "08P01"), true));
    let made = stage.written();
    assert_eq!(said(&made), ("08P01".to_owned(), Some(Severity::Fatal)));
    assert!(made.is_dead());
    assert_eq!(stage.count(), "2");

    stage.on(Which::Nth(4), When::Commit(1), forge(Reply::Tag("ROLLBACK".into()), true));
    assert_eq!(stage.written().commit(LONG), Ok(Committed::RolledBack));
    let act = Act::Rewrite { from: "COMMIT".into(), to: "ROLLBACK".into() };
    stage.on(Which::Nth(5), When::Commit(1), act);
    assert_eq!(stage.written().commit(LONG), Ok(Committed::RolledBack), "a true one");
    assert_eq!(stage.count(), "3");

    // A statement of the extended protocol, in the middle of a transaction.
    let text = When::Text("INSERT".into(), 1);
    stage.on(Which::Nth(6), text, forge(error("ERROR", "55P03"), false));
    let made = link(&stage.url());
    made.batch("BEGIN", LONG).unwrap();
    let error =
        made.execute("INSERT INTO t VALUES ($1)", &[(&1_i32, Type::INT4)], LONG).unwrap_err();
    assert!(matches!(&error, LinkError::Server(said) if said.code == "55P03"), "{error}");
    made.batch("ROLLBACK", LONG).unwrap();
}

#[test]
fn the_nth_connection_is_refused_black_holed_or_led_elsewhere() {
    let Some(stage) = Stage::new() else { return };
    let Some(other) = server() else { return };
    stage.on(Which::Nth(2), When::Connect, Act::Refuse);
    stage.on(Which::Nth(3), When::Connect, Act::BlackHole);
    let socket = other.socket_folder().join(format!(".s.PGSQL.{}", other.port));
    stage.on(Which::From(4), When::Connect, Act::Reroute(Upstream::Unix(socket)));
    let port = |made: &Link| rows(made, "SELECT current_setting('port')")[0][0].clone().unwrap();
    assert_eq!(port(&link(&stage.url())), stage.server.port.to_string());
    let to = info(&stage.url());
    let error = connect(&to, &here::read, LONG).unwrap_err();
    assert!(matches!(error.tries[0].why, Why::Unreachable(_)), "{error:?}");
    let error = connect(&to, &here::read, SHORT).unwrap_err();
    assert!(matches!(error.tries[0].why, Why::Deadline(_)), "{error:?}");
    for _ in 0..2 {
        assert_eq!(port(&link(&stage.url())), other.port.to_string());
    }
}

#[test]
fn every_connection_can_be_cut_at_once() {
    let Some(stage) = Stage::new() else { return };
    let (one, two) = (stage.written(), stage.written());
    stage.proxy.cut_all();
    assert!(lost(&one.commit(LONG).unwrap_err()) && lost(&two.commit(LONG).unwrap_err()));
    stage.wait_for_quiet();
    assert_eq!(stage.count(), "0");
}
