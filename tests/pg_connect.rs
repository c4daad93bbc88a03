//! Connecting to a real server, in the ways that libpq's users expect (cases 35, 37, 38, 39).
#![expect(clippy::unwrap_used, reason = "a test ends where its stage cannot be set")]
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ctrlrun::store::postgres::connect::{ConnectError, Kind, Why, connect};
use ctrlrun::store::postgres::conninfo::Conninfo;
use ctrlrun::store::postgres::here::{self, Account, Here};
use ctrlrun::store::postgres::link::{Committed, Link, LinkError};
use tokio_postgres::error::Severity;
use tokio_postgres::types::Type;

mod common {
    pub mod pgbouncer;
    pub mod postgres;
}
use common::pgbouncer::PgBouncer;
use common::postgres::{
    LONG, Options, Server, binaries, free_port, info, link, rows, server, server_with,
};

/// A process with this environment and home.
fn process(env: &[(&str, &str)], home: Option<PathBuf>) -> Here<'static> {
    let home = home.map(|home| ("HOME", home.display().to_string()));
    let home = home.iter().map(|(name, value)| (*name, value.as_str()));
    let app = || Some(Account { name: "app".into(), home: "/no/such/home".into() });
    let env =
        env.iter().copied().chain(home).map(|(name, value)| (name.into(), value.into())).collect();
    Here { env, unreadable: Vec::new(), account: Box::leak(Box::new(app)), files: &here::read }
}

fn attempt(url: &str, here: &Here<'_>) -> Result<Link, ConnectError> {
    connect(&Conninfo::parse(url, here).unwrap(), &here::read, LONG)
}

fn refused(url: &str) -> ConnectError {
    connect(&info(url), &here::read, LONG).unwrap_err()
}

const PASSWORD: &str = "s3cret:with\\odd";

/// A server on which `app` needs a password, by SCRAM.
fn with_password() -> Option<Server> {
    let hba = [
        "local all postgres trust",
        "local all app scram-sha-256",
        "host all all 127.0.0.1/32 scram-sha-256",
    ];
    let options =
        Options { hba: hba.iter().map(|line| (*line).into()).collect(), ..Options::default() };
    let server = server_with(&options)?;
    server.sql(&format!("CREATE ROLE app LOGIN PASSWORD '{PASSWORD}'"));
    Some(server)
}

fn file(folder: &tempfile::TempDir, name: &str, mode: u32, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// CON-1, CON-4.
#[test]
fn a_password_is_found_wherever_psql_finds_it_case_37() {
    let Some(server) = with_password() else { return };
    let url = format!("postgres://app@127.0.0.1:{}/postgres", server.port);
    let home = tempfile::tempdir().unwrap();
    let at_home = || Some(home.path().to_owned());
    let line = format!("127.0.0.1:{}:postgres:app:s3cret\\:with\\\\odd\n", server.port);

    assert!(attempt(&url, &process(&[("PGPASSWORD", PASSWORD)], None)).is_ok());

    let passfile = file(&home, ".pgpass", 0o600, &line);
    assert!(attempt(&url, &process(&[], at_home())).is_ok());

    fs::set_permissions(&passfile, fs::Permissions::from_mode(0o644)).unwrap();
    let twice = url.replace("/postgres", &format!(",127.0.0.1:{}/postgres", server.port));
    let wide = Conninfo::parse(&twice, &process(&[], at_home())).unwrap();
    assert!(wide.warnings[0].contains("chmod 0600"), "{:?}", wide.warnings);
    let error = connect(&wide, &here::read, LONG).unwrap_err();
    assert_eq!((&error.tries[0].why, error.kind()), (&Why::NoPassword, Kind::Denied));
    assert_eq!(error.tries.len(), 1, "the next host would ask too");

    let other = file(&home, "other", 0o600, &line);
    let other = other.to_str().unwrap();
    assert!(attempt(&url, &process(&[("PGPASSFILE", other)], at_home())).is_ok());

    let text = format!(
        "[ops]\nhost=127.0.0.1\nport={}\ndbname=postgres\nuser=app\npassword={PASSWORD}\n",
        server.port
    );
    let service = file(&home, "service", 0o600, &text);
    let env = [("PGSERVICEFILE", service.to_str().unwrap()), ("PGSERVICE", "ops")];
    assert!(attempt("postgres://", &process(&env, None)).is_ok());
}

/// CON-3, CON-6.
#[test]
fn a_wrong_password_is_denied_at_once_and_in_no_message() {
    let Some(server) = with_password() else { return };
    let port = server.port;
    let url = format!("postgres://app:Wr0ngOne@127.0.0.1:{port},127.0.0.1:{port}/postgres");
    let error = refused(&url);
    assert_eq!(error.kind(), Kind::Denied);
    assert_eq!(error.tries.len(), 1, "a server that said no is not passed over: {error}");
    let Why::Server(said) = &error.tries[0].why else { panic!("{error}") };
    assert_eq!(said.code, "28P01");
    assert!(!format!("{error} {error:?}").contains("Wr0ngOne"));
    assert!(!server.log().contains("Wr0ngOne"));
}

#[test]
fn a_unix_socket_is_used_by_its_folder_and_its_owner_may_be_demanded() {
    let Some(server) = with_password() else { return };
    let folder = server.socket_folder().display();
    let url = format!("postgres:///postgres?host={folder}&port={}", server.port);
    let made = attempt(&url, &process(&[("PGPASSWORD", PASSWORD)], None)).unwrap();
    assert_eq!(rows(&made, "SELECT inet_client_addr() IS NULL"), [[Some("t".to_owned())]]);

    let error = refused(&format!("{url}&user=postgres&requirepeer=somebody"));
    assert!(error.to_string().contains("requirepeer"), "{error}");
    let owner = if nix::unistd::geteuid().is_root() {
        "postgres".to_owned()
    } else {
        nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name
    };
    link(&format!("{url}&user=postgres&requirepeer={owner}"));
}

#[test]
fn a_connection_says_who_it_is_and_what_it_reached_without_asking() {
    let Some(server) = server() else { return };
    let made = link(&format!("{}&application_name=nightly", server.url("postgres")));
    assert_eq!(made.server.encoding.as_deref(), Some("UTF8"));
    assert_eq!((made.server.standby, made.server.read_only), (Some(false), Some(false)));
    assert!(made.server.version.is_some());
    let name = rows(&made, "SELECT current_setting('application_name')");
    assert_eq!(name, [[Some("nightly".to_owned())]]);
}

/// CON-6.
#[test]
fn a_host_that_is_down_and_one_that_takes_no_writes_are_passed_over_case_35() {
    let standby = Options { standby: true, ..Options::default() };
    let Some(standby) = server_with(&standby) else { return };
    let settings = vec!["default_transaction_read_only=on".into()];
    let Some(read_only) = server_with(&Options { settings, ..Options::default() }) else { return };
    let Some(primary) = server() else { return };
    let down = free_port();
    let hosts = format!(
        "127.0.0.1:{down},127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}",
        standby.port, read_only.port, primary.port
    );
    let url = |hosts: &str, target: &str| {
        format!("postgres://postgres@{hosts}/postgres?sslmode=disable{target}")
    };
    let port = |url: &str| rows(&link(url), "SELECT inet_server_port()")[0][0].clone().unwrap();

    assert_eq!(port(&url(&hosts, "")), primary.port.to_string(), "the default is read-write");
    assert_eq!(port(&url(&hosts, "&target_session_attrs=any")), standby.port.to_string());
    assert_eq!(port(&url(&hosts, "&target_session_attrs=primary")), read_only.port.to_string());
    let last = format!("127.0.0.1:{},127.0.0.1:{}", primary.port, standby.port);
    assert_eq!(port(&url(&last, "&target_session_attrs=prefer-standby")), standby.port.to_string());
    assert_eq!(port(&url(&last, "&target_session_attrs=standby")), standby.port.to_string());
    let only = format!("127.0.0.1:{}", primary.port);
    assert_eq!(port(&url(&only, "&target_session_attrs=prefer-standby")), primary.port.to_string());

    let none = format!("127.0.0.1:{down},127.0.0.1:{},127.0.0.1:{}", standby.port, read_only.port);
    let error = refused(&url(&none, ""));
    assert_eq!((error.tries.len(), error.kind()), (3, Kind::Unreachable));
    let text = error.to_string();
    assert!(
        text.contains("refused") && text.contains("a standby") && text.contains("read-only"),
        "{text}"
    );
}

/// CON-6.
#[test]
fn a_server_that_is_full_is_passed_over() {
    let (Some(full), Some(free)) = (server(), server()) else { return };
    full.sql("CREATE ROLE app LOGIN CONNECTION LIMIT 0");
    free.sql("CREATE ROLE app LOGIN");
    let url = format!("postgres://app@127.0.0.1:{},127.0.0.1:{}/postgres", full.port, free.port);
    assert_eq!(rows(&link(&url), "SHOW port"), [[Some(free.port.to_string())]]);
}

/// Plays a server that says nothing of itself at start-up, and answers the one question put to it.
fn taciturn(listener: &TcpListener, standby: &str, read_only: &str) {
    let message = |kind: u8, body: &[u8]| {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind][..], &length, body].concat()
    };
    let (mut client, _) = listener.accept().unwrap();
    let mut head = [0; 4];
    client.read_exact(&mut head).unwrap();
    let mut startup = vec![0; usize::try_from(u32::from_be_bytes(head)).unwrap() - 4];
    client.read_exact(&mut startup).unwrap();
    let ready = message(b'Z', b"I");
    client.write_all(&[message(b'R', &[0; 4]), ready.clone()].concat()).unwrap();
    let mut head = [0; 5];
    client.read_exact(&mut head).unwrap();
    assert_eq!(head[0], b'Q');
    let column = [&b"x\0"[..], &[0; 18]].concat();
    let described = message(b'T', &[&[0, 2][..], &column, &column].concat());
    let value = |text: &str| [&[0, 0, 0, 1][..], text.as_bytes()].concat();
    let row = message(b'D', &[&[0, 2][..], &value(standby), &value(read_only)].concat());
    client.write_all(&[described, row, message(b'C', b"SELECT 1\0"), ready].concat()).unwrap();
    // Until the client has gone.
    drop(client.read_to_end(&mut Vec::new()));
}

#[test]
fn a_server_that_does_not_say_what_it_is_is_asked() {
    for (standby, read_only, fits) in [("f", "f", true), ("t", "t", false), ("f", "t", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let played = std::thread::spawn(move || taciturn(&listener, standby, read_only));
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable");
        let made = connect(&info(&url), &here::read, LONG);
        assert_eq!(made.is_ok(), fits, "{made:?}");
        drop(made);
        played.join().unwrap();
    }
}

/// CON-6, CON-7.
#[test]
fn a_server_that_accepts_and_never_answers_costs_its_share_of_the_time_and_no_more_case_39() {
    let Some(server) = server() else { return };
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = hole.local_addr().unwrap().port();
    for sslmode in ["disable", "prefer", "require"] {
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode={sslmode}");
        let (within, began) = (Duration::from_millis(200), Instant::now());
        let error = connect(&info(&url), &here::read, within).unwrap_err();
        assert!(matches!(error.tries[0].why, Why::Deadline(_)), "{error}");
        assert!(began.elapsed() >= within - Duration::from_millis(20), "{:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    // The connection string's own bound, which is shorter than the caller's.
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?connect_timeout=1");
    let (began, error) = (Instant::now(), refused(&url));
    assert_eq!(error.tries[0].why, Why::Deadline(Duration::from_secs(1)));
    assert!(began.elapsed() < LONG / 2);
    // The host behind it has its half.
    let url = format!("postgres://postgres@127.0.0.1:{port},127.0.0.1:{}/postgres", server.port);
    connect(&info(&url), &here::read, Duration::from_secs(2)).unwrap();
}

#[test]
fn a_name_that_nobody_knows_and_a_database_that_is_not_there_are_told_apart() {
    let Some(server) = server() else { return };
    let error = refused("postgres://app@no-such-host.invalid/postgres");
    assert_eq!(error.kind(), Kind::Unreachable);
    assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
    let error = refused(&server.url("no_such_database"));
    assert_eq!(error.kind(), Kind::Settings);
    let error = refused("postgres://postgres@/postgres?host=/no/such/folder");
    assert!(error.to_string().contains("/no/such/folder/.s.PGSQL.5432"), "{error}");
}

#[test]
fn an_ordinary_error_leaves_the_link_alive_and_carries_its_code() {
    let Some(server) = server() else { return };
    let made = link(&server.url("postgres"));
    let error = made.batch("SELECT 1/0", LONG).unwrap_err();
    let LinkError::Server(said) = error else { panic!("{error}") };
    assert_eq!((said.code.as_str(), said.severity), ("22012", Some(Severity::Error)));
    let text = "a\u{0}b".replace('\u{0}', "");
    let found = made.query("SELECT $1::text || 'c'", &[(&text, Type::TEXT)], LONG).unwrap();
    assert_eq!(found[0].get::<_, String>(0), "abc");
    assert_eq!(made.execute("SELECT 1", &[], LONG).unwrap(), 1);
}

/// CON-7.
#[test]
fn a_deadline_ends_an_exchange_and_the_link_with_it() {
    let Some(server) = server() else { return };
    let made = link(&server.url("postgres"));
    let within = Duration::from_millis(100);
    let error = made.batch("SELECT pg_sleep(60)", within).unwrap_err();
    assert_eq!(error, LinkError::Deadline(within));
    assert!(made.is_dead());
    let after = made.batch("SELECT 1", LONG).unwrap_err();
    assert!(
        matches!(after, LinkError::Lost(_)),
        "what a late answer belongs to is unknown: {after}"
    );
}

/// CON-8.
#[test]
fn a_commit_that_the_server_answers_with_rollback_is_no_success_case_4() {
    let Some(server) = server() else { return };
    server.sql("CREATE TABLE t (x int)");
    let made = link(&server.url("postgres"));
    made.batch("BEGIN; INSERT INTO t VALUES (1)", LONG).unwrap();
    made.batch("SELECT 1/0", LONG).unwrap_err();
    assert_eq!(made.commit(LONG), Ok(Committed::RolledBack));
    made.batch("BEGIN; INSERT INTO t VALUES (2)", LONG).unwrap();
    assert_eq!(made.commit(LONG), Ok(Committed::Yes));
    assert_eq!(server.sql("SELECT x FROM t"), [[Some("2".to_owned())]]);
}

#[test]
fn a_connection_that_the_server_ends_is_lost_and_says_why() {
    let Some(server) = server() else { return };
    let made = link(&server.url("postgres"));
    let pid = rows(&made, "SELECT pg_backend_pid()")[0][0].clone().unwrap();
    server.sql(&format!("SELECT pg_terminate_backend({pid})"));
    server.wait_for(&format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})"));
    let error = made.batch("SELECT 1", LONG).unwrap_err();
    assert!(matches!(error, LinkError::Lost(_) | LinkError::Server(_)), "{error:?}");
    assert!(error.to_string().contains("terminating connection"), "{error}");
    assert!(made.is_dead());
}

#[test]
fn a_server_killed_with_all_its_processes_comes_back_with_what_was_committed() {
    let Some(mut server) = server() else { return };
    server.sql("CREATE TABLE t (x int); INSERT INTO t VALUES (1)");
    let made = link(&server.url("postgres"));
    server.restart_after_kill9();
    assert!(made.batch("SELECT 1", LONG).is_err());
    assert_eq!(server.sql("SELECT x FROM t"), [[Some("1".to_owned())]]);
}

#[test]
fn a_link_says_goodbye() {
    let Some(server) = server_with(&Options {
        settings: vec!["log_disconnections=on".into(), "log_min_messages=debug1".into()],
        ..Options::default()
    }) else {
        return;
    };
    let made = link(&server.url("postgres"));
    let pid = rows(&made, "SELECT pg_backend_pid()")[0][0].clone().unwrap();
    drop(made);
    server.wait_for(&format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})"));
    assert!(!server.log().contains("unexpected EOF"), "{}", server.log());
}

/// CON-7.
#[test]
fn everything_works_through_a_pooler_with_one_connection_case_38() {
    let Some(server) = server() else { return };
    server.sql("CREATE TABLE t (x int)");
    for pool in [1, 2] {
        let Some(pooler) = PgBouncer::start(&server, pool) else { return };
        let (one, other) = (link(&pooler.url("postgres")), link(&pooler.url("postgres")));
        for made in [&one, &other, &one, &other] {
            made.batch("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", LONG).unwrap();
            assert_eq!(
                made.execute("INSERT INTO t VALUES ($1)", &[(&1_i32, Type::INT4)], LONG),
                Ok(1)
            );
            assert_eq!(made.commit(LONG), Ok(Committed::Yes));
        }
    }
    assert_eq!(server.sql("SELECT count(*) FROM t"), [[Some("8".to_owned())]]);
}

#[test]
fn every_version_that_is_installed_is_spoken_to() {
    for bin in binaries() {
        let shown = bin.display().to_string();
        let Some(server) = server_with(&Options { bin: Some(bin), ..Options::default() }) else {
            return;
        };
        let made = link(&server.url("postgres"));
        assert_eq!(made.server.standby, Some(false), "{shown}");
        assert_eq!(rows(&made, "SHOW fsync"), [[Some("on".to_owned())]], "{shown}");
    }
}

#[test]
fn the_environment_of_this_process_can_be_read() {
    let here = Here::this_process();
    assert!((here.account)().is_some());
    assert_eq!(here.env, std::env::vars().collect::<BTreeMap<_, _>>());
}
