//! `sslmode` against servers with and without TLS: libpq's table (case 36).
#![expect(clippy::unwrap_used, reason = "a test ends where its stage cannot be set")]
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ctrlrun::store::postgres::connect::{ConnectError, Kind, Why, connect};
use ctrlrun::store::postgres::conninfo::Conninfo;
use ctrlrun::store::postgres::here;
use ctrlrun::store::postgres::link::Link;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, date_time_ymd,
};
use tempfile::TempDir;

mod common {
    pub mod postgres;
}
use common::postgres::{
    LONG, Options, Server, ServerTls, info, nowhere, rows, server, server_with,
};

const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    cert: Certificate,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        Self { issuer: Issuer::new(params, key), cert }
    }

    /// A certificate and its key, in PEM.
    fn signs(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// For these names (or addresses), with this common name.
fn params(names: &[&str], common: &str) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, common);
    params
}

fn tls_server(cert: String, key: String, ca: Option<String>, hba: &[&str]) -> Option<Server> {
    let hba = hba.iter().map(|line| (*line).into()).collect();
    server_with(&Options { tls: Some(ServerTls { cert, key, ca }), hba, ..Options::default() })
}

fn file(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

fn url(server: &Server, host: &str, query: &str) -> String {
    // The name is looked up nowhere: the address is given beside it.
    format!("postgres://postgres@{host}:{}/postgres?hostaddr=127.0.0.1&{query}", server.port)
}

fn attempt(url: &str) -> Result<Link, ConnectError> {
    connect(&info(url), &here::read, LONG)
}

/// Whether the connection is encrypted; `None` if there is none.
fn outcome(url: &str) -> Option<bool> {
    let made = attempt(url).ok()?;
    let ssl = rows(&made, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
    Some(ssl == [[Some("t".to_owned())]])
}

fn table(server: &Server, host: &str, query: &str) -> Vec<Option<bool>> {
    let with = |mode: &&str| outcome(&url(server, host, &format!("sslmode={mode}&{query}")));
    MODES.iter().map(with).collect()
}

const PLAIN: Option<bool> = Some(false);
const TLS: Option<bool> = Some(true);
const NONE: Option<bool> = None;

#[test]
fn a_server_without_tls_is_taken_by_the_modes_that_do_not_insist_case_36() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = file(&folder, "root", &Authority::new("root").cert.pem());
    let found = table(&server, "localhost", &format!("sslrootcert={root}"));
    assert_eq!(found, [PLAIN, PLAIN, PLAIN, NONE, NONE, NONE]);
    let error = attempt(&url(&server, "localhost", "sslmode=require")).unwrap_err();
    assert!(error.to_string().contains("does not do TLS"), "{error}");
    assert_eq!(error.kind(), Kind::Settings);
}

/// CON-5.
#[test]
fn the_right_authority_and_name_satisfy_every_mode_case_36() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let (cert, key) = ours.signs(&params(&["db.example", "127.0.0.1"], "x"));
    let Some(server) = tls_server(cert, key, None, &[]) else { return };
    let root = file(&folder, "ours", &ours.cert.pem());
    let wrong = file(&folder, "other", &other.cert.pem());
    let both = file(&folder, "both", &(other.cert.pem() + &ours.cert.pem()));

    let query = format!("sslrootcert={root}");
    assert_eq!(table(&server, "db.example", &query), [PLAIN, PLAIN, TLS, TLS, TLS, TLS]);
    assert_eq!(table(&server, "127.0.0.1", &query), [PLAIN, PLAIN, TLS, TLS, TLS, TLS]);
    let query = format!("sslrootcert={both}");
    assert_eq!(table(&server, "db.example", &query), [PLAIN, PLAIN, TLS, TLS, TLS, TLS]);
    // A wrong name matters to verify-full alone.
    let query = format!("sslrootcert={root}");
    assert_eq!(table(&server, "evil.example", &query), [PLAIN, PLAIN, TLS, TLS, TLS, NONE]);
    // With a root certificate require checks it too, and prefer falls back.
    let query = format!("sslrootcert={wrong}");
    assert_eq!(table(&server, "db.example", &query), [PLAIN, PLAIN, PLAIN, NONE, NONE, NONE]);
    // Without one, verify-ca and verify-full cannot be had.
    assert_eq!(table(&server, "db.example", ""), [PLAIN, PLAIN, TLS, TLS, NONE, NONE]);

    let error = attempt(&url(&server, "db.example", "sslmode=verify-full")).unwrap_err();
    assert!(error.to_string().contains("give sslrootcert=FILE"), "{error}");
    let query = format!("sslmode=verify-full&sslrootcert={root}");
    let error = attempt(&url(&server, "evil.example", &query)).unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
}

#[test]
fn a_root_certificate_at_its_usual_place_is_used_as_if_named() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".postgresql")).unwrap();
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let (cert, key) = ours.signs(&params(&["db.example"], "x"));
    let Some(server) = tls_server(cert, key, None, &[]) else { return };
    let mut here = nowhere();
    here.env.insert("HOME".into(), home.path().display().to_string());
    let attempt = |mode: &str| {
        let url = url(&server, "db.example", &format!("sslmode={mode}"));
        connect(&Conninfo::parse(&url, &here).unwrap(), &here::read, LONG).is_ok()
    };
    assert!(attempt("require") && !attempt("verify-full"));
    file(&home, ".postgresql/root.crt", &other.cert.pem());
    assert!(!attempt("require"), "require behaves as verify-ca");
    file(&home, ".postgresql/root.crt", &ours.cert.pem());
    assert!(attempt("require") && attempt("verify-full"));
}

/// CON-5.
#[test]
fn a_self_signed_certificate_is_believed_where_it_is_its_own_root_case_36() {
    let folder = tempfile::tempdir().unwrap();
    let made = |ca: bool, ends: Option<i32>| {
        let mut params = params(&["db.example"], "x");
        if ca {
            // As `openssl req -x509` makes it.
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        if let Some(year) = ends {
            params.not_after = date_time_ymd(year, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    for ca in [false, true] {
        let (cert, key) = made(ca, None);
        let root = file(&folder, "root", &cert);
        let Some(server) = tls_server(cert, key, None, &[]) else { return };
        let query = format!("sslrootcert={root}");
        assert_eq!(
            table(&server, "db.example", &query),
            [PLAIN, PLAIN, TLS, TLS, TLS, TLS],
            "{ca}"
        );
        assert_eq!(table(&server, "evil.example", &query), [PLAIN, PLAIN, TLS, TLS, TLS, NONE]);
        // Another of the same make is not it.
        let stranger = file(&folder, "stranger", &made(ca, None).0);
        let query = format!("sslrootcert={stranger}");
        assert_eq!(table(&server, "db.example", &query), [PLAIN, PLAIN, PLAIN, NONE, NONE, NONE]);
    }
    let (cert, key) = made(true, Some(2020));
    let root = file(&folder, "root", &cert);
    let Some(server) = tls_server(cert, key, None, &[]) else { return };
    let query = format!("sslrootcert={root}");
    assert_eq!(table(&server, "db.example", &query), [PLAIN, PLAIN, PLAIN, NONE, NONE, NONE]);
}

/// CON-5.
#[test]
fn the_common_name_counts_where_there_is_no_other_and_only_there() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let root = file(&folder, "root", &ours.cert.pem());
    let full = format!("sslmode=verify-full&sslrootcert={root}");
    let (cert, key) = ours.signs(&params(&[], "db.example"));
    let Some(server) = tls_server(cert, key, None, &[]) else { return };
    assert_eq!(outcome(&url(&server, "db.example", &full)), TLS);
    assert_eq!(outcome(&url(&server, "evil.example", &full)), NONE);
    let (cert, key) = ours.signs(&params(&["other.example"], "db.example"));
    let Some(server) = tls_server(cert, key, None, &[]) else { return };
    assert_eq!(outcome(&url(&server, "db.example", &full)), NONE);
}

/// CON-5.
#[test]
fn roots_of_the_system_do_not_know_a_private_authority() {
    let ours = Authority::new("ours");
    let (cert, key) = ours.signs(&params(&["db.example"], "x"));
    let Some(server) = tls_server(cert, key, None, &[]) else { return };
    let error = attempt(&url(&server, "db.example", "sslrootcert=system")).unwrap_err();
    // Where the system has no roots at all that is the reason.
    let why = &error.tries[0].why;
    assert!(matches!(why, Why::Tls(_) | Why::Settings(_)), "{error}");
}

#[test]
fn verify_full_needs_a_name_to_verify() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let (cert, key) = ours.signs(&params(&["127.0.0.1"], "x"));
    let Some(server) = tls_server(cert, key, None, &[]) else { return };
    let root = file(&folder, "root", &ours.cert.pem());
    let url = format!(
        "postgres://postgres@/postgres?hostaddr=127.0.0.1&port={}&sslmode=verify-full&sslrootcert={root}",
        server.port
    );
    let error = attempt(&url).unwrap_err();
    assert!(error.to_string().contains("needs a host name"), "{error}");
}

/// CON-4.
#[test]
fn a_client_certificate_is_shown_and_its_key_must_be_ours_alone_case_36() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let (cert, key) = ours.signs(&params(&["db.example"], "x"));
    let hba = ["local all all trust", "hostssl all all 127.0.0.1/32 cert"];
    let Some(server) = tls_server(cert, key, Some(ours.cert.pem()), &hba) else { return };
    let mut who = params(&[], "postgres");
    who.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let (cert, key) = ours.signs(&who);
    let root = file(&folder, "root", &ours.cert.pem());
    let (cert, key) = (file(&folder, "cert", &cert), file(&folder, "key", &key));

    let base = format!("sslmode=verify-full&sslrootcert={root}");
    let with = format!("{base}&sslcert={cert}&sslkey={key}");
    assert_eq!(outcome(&url(&server, "db.example", &with)), TLS);
    let error = attempt(&url(&server, "db.example", &base)).unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    let without = format!("{with}&sslcertmode=disable");
    assert!(attempt(&url(&server, "db.example", &without)).is_err());

    let mode = |path: &str, mode| {
        fs::set_permissions(Path::new(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&key, 0o644);
    let error = attempt(&url(&server, "db.example", &with)).unwrap_err();
    assert!(error.to_string().contains("chmod 0600"), "{error}");
    assert_eq!(error.kind(), Kind::Settings);
    mode(&key, 0o640);
    let allowed = nix::unistd::geteuid().is_root();
    assert_eq!(attempt(&url(&server, "db.example", &with)).is_ok(), allowed, "root's own only");

    let missing = format!("{base}&sslcert=/no/such&sslkey={key}");
    let error = attempt(&url(&server, "db.example", &missing)).unwrap_err();
    assert!(error.to_string().contains("/no/such"), "{error}");
}

#[test]
fn scram_is_bound_to_the_session_where_that_is_required() {
    let ours = Authority::new("ours");
    let (cert, key) = ours.signs(&params(&["db.example"], "x"));
    let hba = ["local all postgres trust", "host all all 127.0.0.1/32 scram-sha-256"];
    let Some(server) = tls_server(cert, key, None, &hba) else { return };
    server.sql("CREATE ROLE app LOGIN PASSWORD 's3cret'");
    let with = |query: &str| {
        attempt(&format!("postgres://app:s3cret@127.0.0.1:{}/postgres?{query}", server.port))
    };
    for binding in ["disable", "prefer", "require"] {
        with(&format!("sslmode=require&channel_binding={binding}")).unwrap();
    }
    with("sslmode=disable&channel_binding=prefer").unwrap();
    let error = with("sslmode=disable&channel_binding=require").unwrap_err();
    assert!(!format!("{error} {error:?}").contains("s3cret"));
}

#[test]
fn allow_and_prefer_follow_a_server_that_takes_one_way_only() {
    let ours = Authority::new("ours");
    let (cert, key) = ours.signs(&params(&["db.example"], "x"));
    let only = |kind: &str| {
        let line = format!("{kind} all all 127.0.0.1/32 trust");
        tls_server(cert.clone(), key.clone(), None, &["local all all trust", &line])
    };
    let Some(encrypted) = only("hostssl") else { return };
    assert_eq!(table(&encrypted, "db.example", ""), [NONE, TLS, TLS, TLS, NONE, NONE]);
    let Some(clear) = only("hostnossl") else { return };
    assert_eq!(table(&clear, "db.example", ""), [PLAIN, PLAIN, PLAIN, NONE, NONE, NONE]);
}

#[test]
fn versions_can_be_pinned() {
    let ours = Authority::new("ours");
    let (cert, key) = ours.signs(&params(&["db.example"], "x"));
    let Some(server) = tls_server(cert, key, None, &[]) else { return };
    for (query, version) in [
        ("ssl_max_protocol_version=TLSv1.2", "TLSv1.2"),
        ("ssl_min_protocol_version=TLSv1.3", "TLSv1.3"),
    ] {
        let made =
            attempt(&url(&server, "db.example", &format!("sslmode=require&{query}"))).unwrap();
        let found = rows(&made, "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
        assert_eq!(found, [[Some(version.to_owned())]]);
    }
}
