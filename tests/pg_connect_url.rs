//! What a connection string means, without a server: libpq's grammar, sources and their order.
#![expect(clippy::unwrap_used, reason = "a test ends where its stage cannot be set")]
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctrlrun::store::postgres::conninfo::{At, Conninfo, Target};
use ctrlrun::store::postgres::here::{Account, Here, Seen};
use ctrlrun::store::postgres::params::ConninfoError;
use ctrlrun::store::postgres::tls::{Roots, SslMode};
use ctrlrun::store::postgres::url::redact;
use proptest::prelude::*;

/// Files by path, with their mode.
type Files = BTreeMap<PathBuf, (u32, String)>;

fn read(files: &Files, path: &Path) -> io::Result<Seen> {
    let Some((mode, text)) = files.get(path) else { return Err(io::ErrorKind::NotFound.into()) };
    Ok(Seen { bytes: text.clone().into_bytes(), mode: *mode, uid: 1000, regular: true })
}

fn me() -> Option<Account> {
    Some(Account { name: "me".into(), home: "/home/me".into() })
}

fn parse_with(
    url: &str,
    env: &[(&str, &str)],
    files: &[(&str, u32, &str)],
) -> Result<Conninfo, ConninfoError> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let files: Files = files
        .iter()
        .map(|(path, mode, text)| (PathBuf::from(path), (*mode, (*text).to_owned())))
        .collect();
    let read = |path: &Path| read(&files, path);
    let here = Here {
        env: env.iter().map(owned).collect(),
        unreadable: Vec::new(),
        account: &me,
        files: &read,
    };
    Conninfo::parse(url, &here)
}

fn parse(url: &str) -> Conninfo {
    parse_with(url, &[], &[]).unwrap()
}

fn error(url: &str) -> String {
    parse_with(url, &[], &[]).unwrap_err().to_string()
}

fn password(info: &Conninfo) -> Option<&str> {
    info.hosts[0].password.as_ref().map(|password| password.reveal())
}

fn tcp(info: &Conninfo, at: usize) -> (Option<&str>, u16) {
    match &info.hosts[at].at {
        At::Tcp { name, .. } => (name.as_deref(), info.hosts[at].port),
        At::Socket(dirs) => panic!("{dirs:?} is no TCP host"),
    }
}

#[test]
fn every_part_of_the_authority_is_read_and_decoded() {
    let info = parse("postgresql://app%40corp:p%2Fw%3A@db1:6432,[::1]:7000,db3/my%20db");
    assert_eq!(info.user, "app@corp");
    assert_eq!(password(&info), Some("p/w:"));
    assert!(info.password_in_url);
    assert_eq!(tcp(&info, 0), (Some("db1"), 6432));
    assert_eq!(tcp(&info, 1), (Some("::1"), 7000));
    assert_eq!(tcp(&info, 2), (Some("db3"), 5432));
    assert_eq!(info.dbname, "my db");
    assert_eq!(info.hosts.len(), 3);
}

/// CON-1.
#[test]
fn a_url_that_says_nothing_means_the_local_socket_and_the_users_own_database() {
    let info = parse("postgres://");
    let dirs = vec![PathBuf::from("/var/run/postgresql"), PathBuf::from("/tmp")];
    assert_eq!(info.hosts[0].at, At::Socket(dirs));
    assert_eq!((info.user.as_str(), info.dbname.as_str()), ("me", "me"));
    assert_eq!((info.schema.as_str(), info.application_name.as_str()), ("ctrlrun", "ctrlrun"));
    assert_eq!(info.tls.mode, SslMode::Prefer);
    assert_eq!(info.target, Target::ReadWrite, "a store writes");
    assert_eq!(info.connect_timeout, None);
}

#[test]
fn a_socket_folder_may_stand_in_the_authority_or_after_the_question_mark() {
    for url in [
        "postgres://%2Frun%2Fpg/ops",
        "postgres:///ops?host=/run/pg",
        "postgres://localhost/ops?host=%2Frun%2Fpg",
    ] {
        assert_eq!(parse(url).hosts[0].at, At::Socket(vec!["/run/pg".into()]), "{url}");
    }
    assert!(error("postgres:///ops?host=%40abstract").contains("abstract"));
}

#[test]
fn hosts_addresses_and_ports_go_together_or_not_at_all() {
    let info = parse("postgres:///d?host=a,b&hostaddr=10.0.0.1,10.0.0.2&port=1");
    let addr: IpAddr = "10.0.0.2".parse().unwrap();
    assert_eq!(info.hosts[1].at, At::Tcp { name: Some("b".into()), addr: Some(addr) });
    assert_eq!(info.hosts[1].port, 1, "one port is for all");
    assert!(error("postgres:///d?host=a,b&hostaddr=10.0.0.1").contains("do not match"));
    assert!(error("postgres:///d?host=a,b&port=1,2,3").contains("do not match"));
    assert!(error("postgres:///d?host=a&port=0").contains("1 to 65535"));
    assert!(error("postgres:///d?hostaddr=nonsense").contains("hostaddr"));
}

/// CON-2.
#[test]
fn an_unknown_parameter_is_named() {
    let unknown = error("postgres://db/ops?sslmod=require");
    assert_eq!(unknown, "unknown parameter \"sslmod\" in the store's URL");
    let found = parse_with(
        "postgres://db/ops",
        &[("PGSERVICE", "s")],
        &[("/home/me/.pg_service.conf", 0o644, "[s]\nhots=db\n")],
    );
    assert_eq!(found.unwrap_err().to_string(), "unknown parameter \"hots\" in the service \"s\"");
}

/// CON-2.
#[test]
fn what_libpq_does_and_ctrlrun_does_not_is_refused_and_not_ignored() {
    for (query, name) in [
        ("sslcrl=/c", "sslcrl"),
        ("gssencmode=require", "gssencmode"),
        ("require_auth=scram-sha-256", "require_auth"),
        ("sslpassword=x", "sslpassword"),
        ("load_balance_hosts=random", "load_balance_hosts"),
        ("client_encoding=LATIN1", "client_encoding"),
        ("replication=database", "replication"),
        ("channel_binding=maybe", "channel_binding"),
    ] {
        let text = error(&format!("postgres://db/ops?{query}"));
        assert!(text.contains(&format!("\"{name}\"")), "{text}");
    }
    let by_env = parse_with("postgres://db/ops", &[("PGSSLCRL", "/c")], &[]).unwrap_err();
    assert!(by_env.to_string().contains("in the environment, PGSSLCRL"), "{by_env}");
    // What they ask for is had anyway.
    parse(
        "postgres://db/ops?gssencmode=prefer&channel_binding=prefer&sslcompression=0&options=-c%20a%3Db",
    );
}

/// CON-1.
#[test]
fn url_beats_service_beats_environment_beats_default() {
    let files = [(
        "/svc",
        0o644,
        "# mine\n[other]\nuser=wrong\n\n[prod]\nuser=by_service\nport=7\ndbname=by_service\nsslmode=require\n[more]\nuser=wrong\n",
    )];
    let env =
        [("PGSERVICEFILE", "/svc"), ("PGUSER", "by_env"), ("PGPORT", "8"), ("PGAPPNAME", "by_env")];
    let info = parse_with("postgres://by_url@db?service=prod", &env, &files).unwrap();
    assert_eq!(info.user, "by_url");
    assert_eq!(info.dbname, "by_service");
    assert_eq!(tcp(&info, 0), (Some("db"), 7));
    assert_eq!(info.application_name, "by_env");
    assert_eq!(info.tls.mode, SslMode::Require);
}

#[test]
fn every_pg_variable_is_a_default() {
    let env = [
        ("PGHOST", "h"),
        ("PGPORT", "7"),
        ("PGDATABASE", "d"),
        ("PGUSER", "u"),
        ("PGPASSWORD", "w"),
        ("PGSSLMODE", "verify-ca"),
        ("PGSSLROOTCERT", "/r"),
        ("PGSSLCERT", "/c"),
        ("PGSSLKEY", "/k"),
        ("PGCONNECT_TIMEOUT", "3"),
        ("PGTARGETSESSIONATTRS", "primary"),
        ("PGAPPNAME", "a"),
        ("PGOPTIONS", "-c x=y"),
        ("PGREQUIREPEER", "p"),
        ("PGCHANNELBINDING", ""),
    ];
    let info = parse_with("postgres://", &env, &[]).unwrap();
    assert_eq!(tcp(&info, 0), (Some("h"), 7));
    assert_eq!((info.dbname.as_str(), info.user.as_str(), password(&info)), ("d", "u", Some("w")));
    assert_eq!(info.tls.mode, SslMode::VerifyCa);
    assert_eq!(info.tls.roots, Roots::File("/r".into()));
    assert_eq!(info.tls.cert, Some(("/c".into(), true)));
    assert_eq!(info.tls.key, Some("/k".into()));
    assert_eq!(info.connect_timeout, Some(Duration::from_secs(3)));
    assert_eq!(info.target, Target::Primary);
    assert_eq!(info.options.as_deref(), Some("-c x=y"));
    assert_eq!(info.requirepeer.as_deref(), Some("p"));
    assert!(!info.password_in_url);
}

#[test]
fn a_variable_that_is_not_text_is_an_error_if_it_would_count() {
    let files: Files = Files::new();
    let read = |path: &Path| read(&files, path);
    let here = Here {
        env: BTreeMap::new(),
        unreadable: vec!["PGHOST".into(), "LANG".into()],
        account: &me,
        files: &read,
    };
    let found = Conninfo::parse("postgres:///d", &here).unwrap_err();
    assert_eq!(found, ConninfoError::NotText("PGHOST".into()));
    assert!(Conninfo::parse("postgres://db/d", &here).is_ok(), "the URL names the host");
}

/// CON-1, CON-4.
#[test]
fn the_password_file_is_read_as_psql_does_case_37() {
    let text = "# comment\ndb:*:*:\\*:no\nother:*:*:*:no\ndb:5432:o\\:ps:me:a\\:b\\\\c\n*:*:*:me:star:rest\n";
    let with = |url: &str, mode| parse_with(url, &[], &[("/home/me/.pgpass", mode, text)]).unwrap();
    assert_eq!(password(&with("postgres://db/o%3Aps", 0o600)), Some("a:b\\c"), "escapes");
    assert_eq!(password(&with("postgres://db/x", 0o600)), Some("star"), "the first that fits");
    assert_eq!(password(&with("postgres://you@db/x", 0o600)), None);
    let wide = with("postgres://db/x", 0o644);
    assert_eq!(password(&wide), None);
    assert!(wide.warnings[0].contains("chmod 0600 /home/me/.pgpass"), "{:?}", wide.warnings);
    assert!(with("postgres://db/x", 0o400).warnings.is_empty());
}

#[test]
fn the_default_socket_is_localhost_in_a_password_file_and_another_is_its_folder() {
    let text = "localhost:5432:*:*:local\n/run/pg:5432:*:*:folder\n";
    let with = |url: &str| parse_with(url, &[], &[("/home/me/.pgpass", 0o600, text)]).unwrap();
    assert_eq!(password(&with("postgres:///x")), Some("local"));
    assert_eq!(password(&with("postgres:///x?host=/run/pg")), Some("folder"));
}

#[test]
fn each_host_has_its_own_line_in_a_password_file() {
    let files = [("/pw", 0o600, "a:*:*:*:for_a\nb:7:*:*:for_b\n")];
    let info = parse_with("postgres://a,b:7/x", &[("PGPASSFILE", "/pw")], &files).unwrap();
    let all: Vec<_> =
        info.hosts.iter().map(|host| host.password.as_ref().unwrap().reveal()).collect();
    assert_eq!(all, ["for_a", "for_b"]);
}

#[test]
fn a_password_that_was_given_beats_the_file() {
    let files = [("/home/me/.pgpass", 0o600, "*:*:*:*:by_file\n")];
    let env = [("PGPASSWORD", "by_env")];
    assert_eq!(password(&parse_with("postgres://db/x", &env, &files).unwrap()), Some("by_env"));
    let url = "postgres://u:by_url@db/x";
    assert_eq!(password(&parse_with(url, &env, &files).unwrap()), Some("by_url"));
    let passfile = [("/named", 0o600, "*:*:*:*:by_named\n")];
    let info = parse_with("postgres://db/x?passfile=/named", &[], &passfile).unwrap();
    assert_eq!(password(&info), Some("by_named"));
    assert!(
        parse_with("postgres://db/x?passfile=/not/there", &[], &[]).unwrap().warnings.is_empty()
    );
}

#[test]
fn a_service_that_is_nowhere_or_malformed_is_an_error_without_the_lines_text() {
    assert!(error("postgres://?service=none").contains("\"none\" is defined in no service file"));
    for (line, why) in [
        ("password secret", "no NAME=VALUE"),
        ("service=x", "inside"),
        ("pass word=secret", "no spaces"),
    ] {
        let text = format!("[s]\nhost=a\n{line}\n");
        let files = [("/home/me/.pg_service.conf", 0o644, text.as_str())];
        let found = parse_with("postgres://?service=s", &[], &files).unwrap_err().to_string();
        assert!(found.contains("line 3") && found.contains(why), "{found}");
        assert!(!found.contains("secret"), "{found}");
    }
}

#[test]
fn a_system_wide_service_file_comes_after_the_users_own() {
    let files = [
        ("/home/me/.pg_service.conf", 0o644, "[mine]\nhost=own\n"),
        ("/sys/pg_service.conf", 0o644, "[mine]\nhost=wrong\n[ours]\nhost=shared\n"),
    ];
    let env = [("PGSYSCONFDIR", "/sys")];
    let host = |service: &str| {
        let url = format!("postgres://?service={service}");
        tcp(&parse_with(&url, &env, &files).unwrap(), 0).0.map(str::to_owned)
    };
    assert_eq!(host("mine").as_deref(), Some("own"));
    assert_eq!(host("ours").as_deref(), Some("shared"));
}

#[test]
fn roots_of_the_system_are_for_verify_full_only() {
    assert_eq!(parse("postgres://db?sslrootcert=system").tls.mode, SslMode::VerifyFull);
    let weak = error("postgres://db?sslrootcert=system&sslmode=require");
    assert!(weak.contains("use verify-full"), "{weak}");
    assert_eq!(parse("postgres://db?ssl=true").tls.mode, SslMode::Require);
    assert!(error("postgres://db?sslnegotiation=direct").contains("needs sslmode=require"));
    assert!(error("postgres://db?sslmode=on").contains("verify-full"));
}

#[test]
fn a_schema_is_a_name_that_is_not_the_servers_own() {
    assert_eq!(parse("postgres://db?schema=My%22s").quoted_schema(), "\"My\"\"s\"");
    let long = format!("schema={}", "x".repeat(64));
    for query in ["schema=", "schema=pg_x", "schema=information_schema", "schema=a%0Ab", &long] {
        assert!(error(&format!("postgres://db?{query}")).contains("schema"), "{query}");
    }
}

/// CON-2, CON-3.
#[test]
fn a_malformed_url_is_refused_and_shows_nothing_of_itself() {
    for url in [
        "postgres://app:s3cret/x@db/ops",
        "postgres://app:s3cret?x@db/ops",
        "postgres://app:s3cret@x@db/ops",
        "postgres://app:s3cret%zz@db/ops",
        "postgres://app:s3cret@db:port/ops",
        "postgres://app:s3cret",
        "postgres://app:s3cret?a=b@db/ops",
        "postgres://app:s3cret@[::1/ops",
        "postgres://app:s3cret@::1/ops",
        "postgres://app:s3cret@db/ops?sslmode",
        "postgres://app:s3cret@db/ops?=x",
        "postgres://app:s3cret%00@db",
        "postgres://app:s3cret@db?password=s3cret2&password=s3cret3",
        "postgres://app:s3cret@db?port=1&port=2",
        "postgres://app:s3cret@db?x=y=s3cret",
        "mysql://app:s3cret@db",
    ] {
        let found = parse_with(url, &[], &[]).unwrap_err();
        assert!(!format!("{found} {found:?}").contains("s3cret"), "{url}: {found}");
    }
}

#[test]
fn what_is_shown_has_no_password_and_says_which_place_it_is() {
    let shown = |url: &str| parse(url).to_string();
    assert_eq!(shown("postgres://app:pw@db/ops"), "postgres://app@db/ops?schema=ctrlrun");
    assert_eq!(shown("postgres://a@x:1,[::1]:2/o?schema=s"), "postgres://a@x:1,[::1]:2/o?schema=s");
    assert_eq!(shown("postgres://a@%2Frun/o"), "postgres://a@/o?host=/run&schema=ctrlrun");
}

/// CON-3.
#[test]
fn a_password_is_in_no_debug_output() {
    let files = [("/home/me/.pgpass", 0o600, "*:*:*:*:s3cret\n")];
    let by_file = parse_with("postgres://db/x", &[], &files).unwrap();
    let by_url = parse("postgres://app:s3cret@db/x?application_name=a");
    for info in [by_file, by_url] {
        assert_eq!(password(&info), Some("s3cret"));
        assert!(!format!("{info:?} {info:#?} {info}").contains("s3cret"));
    }
}

#[test]
fn a_url_is_redacted_and_otherwise_kept() {
    assert_eq!(
        redact("postgres://app:pw@db:1/ops?sslmode=verify-full&password=pw&schema=s"),
        "postgres://app@db:1/ops?sslmode=verify-full&schema=s"
    );
    assert_eq!(redact("postgresql:///ops?host=/run"), "postgresql:///ops?host=/run");
    assert_eq!(redact("postgres://db?p%61ssword=pw&sslpassword=pw"), "postgres://db");
    assert_eq!(redact("postgres://app:p@w@db/x"), "postgres://app@...");
}

proptest! {
    #[test]
    fn no_part_of_a_password_is_shown_however_it_was_typed(
        before in "[a-z/@:?&=%#]{0,6}", after in "[a-z/@:?&=%#]{0,6}", query in "(\\?sslmode=require)?",
    ) {
        let url = format!("postgres://app:{before}S3CRET{after}@db/ops{query}");
        prop_assert!(!redact(&url).contains("S3CRET"), "{}", redact(&url));
        let shown = match parse_with(&url, &[], &[]) {
            Ok(info) => format!("{info:?} {info}"),
            Err(error) => format!("{error:?} {error}"),
        };
        prop_assert!(!shown.contains("S3CRET"), "{}", shown);
    }
}
