//! Opening and making stores on a server: what is refused, with its mend; who may do what; that many
//! make one (PGS-7 to PGS-9; cases 15, 32, 35, 37, 41).
mod common;

use std::process::Stdio;

use common::pgstore::{MARK, Stage, open_url, store_at};
use common::postgres::{LONG, Options, Server, server, server_with};
use common::{Output, TestEnv};
use ctrlrun::store::postgres::faultproxy::{Act, When, Which};
use ctrlrun::store::{CouldNot, Mode, Reason};

fn refused(url: &str, mode: Mode) -> CouldNot {
    match open_url(url, mode) {
        Err(error) => error,
        Ok(_) => panic!("{url} was opened"),
    }
}

fn on(env: &TestEnv, url: &str, arguments: &[&str]) -> Output {
    let mut command = env.command(arguments);
    common::finish(command.env("CTRLRUN_STORE", url))
}

fn run(env: &TestEnv, url: &str, key: &str) -> Output {
    on(env, url, &["run", "--key", key, "--", "sh", "-c", MARK])
}

fn marks(env: &TestEnv) -> usize {
    std::fs::read_to_string(env.path("here/marker")).unwrap_or_default().lines().count()
}

#[test]
fn a_store_that_is_not_there_is_neither_made_nor_confused_with_an_effect_that_is_not() {
    // STO-7, STO-11, PGS-8, case 32
    let Some(server) = server() else { return };
    let env = TestEnv::new();
    let url = server.url("postgres");
    for arguments in [&["show", "k"][..], &["effects"], &["run", "--key", "k", "--", "true"]] {
        let out = on(&env, &url, arguments);
        assert_eq!(out.code, Some(78), "{out:?}");
        assert!(out.stderr.contains("ctrlrun init --store"), "{out:?}");
    }
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'ctrlrun'";
    assert_eq!(server.sql(schemas)[0][0].as_deref(), Some("0"), "something was made");
    let made = on(&env, &url, &["init", "--store", &url]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stdout.contains("GRANT SELECT, INSERT, UPDATE ON"), "{made:?}");
    assert_eq!(on(&env, &url, &["show", "k"]).code, Some(66));
    let again = on(&env, &url, &["init", "--store", &url]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stderr.contains("there already"), "{again:?}");
    // A schema of its own is a store of its own.
    let other = format!("{url}&schema=other");
    assert_eq!(refused(&other, Mode::Write).reason, Reason::Missing);
    let id = |url: &str| open_url(url, Mode::Create).unwrap().store.identity().store_id;
    assert_ne!(id(&other), id(&url));
    assert_eq!(id(&other), id(&other));
}

#[test]
fn what_would_lose_a_commit_is_refused_with_its_mend() {
    // PGS-7
    let options = Options { settings: vec!["fsync=off".into()], ..Options::default() };
    if let Some(server) = server_with(&options) {
        for mode in [Mode::Create, Mode::Scratch] {
            let error = refused(&server.url("postgres"), mode);
            assert_eq!(error.reason, Reason::Unfit, "{error:?}");
            assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("fsync = on")));
        }
        let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'ctrlrun'";
        assert_eq!(server.sql(schemas)[0][0].as_deref(), Some("0"), "something was made");
    }
    let Some(mut server) = server() else { return };
    let url = server.url("postgres");
    drop(store_at(&url));
    server.sql("ALTER TABLE ctrlrun.history SET UNLOGGED");
    let error = refused(&url, Mode::Write);
    assert_eq!(error.reason, Reason::Unfit, "{error:?}");
    assert!(error.message.contains("history"), "{error:?}");
    assert!(error.hint.is_some_and(|hint| hint.contains("SET LOGGED")));
    server.sql("ALTER TABLE ctrlrun.history SET LOGGED");
    drop(store_at(&url));

    server.sql("ALTER SYSTEM SET fsync = off");
    server.stop();
    server.start();
    assert_eq!(refused(&url, Mode::Write).reason, Reason::Unfit, "an existing store too");
    assert!(open_url(&url, Mode::Read).is_ok(), "looking costs nothing");
}

#[test]
fn a_database_that_is_not_utf_8_is_refused() {
    // PGS-7, KEY-1
    let Some(server) = server() else { return };
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let error = refused(&server.url("latin"), Mode::Create);
    assert_eq!(error.reason, Reason::Unfit, "{error:?}");
    assert!(error.message.contains("LATIN1"), "{error:?}");
    assert!(error.hint.is_some_and(|hint| hint.contains("ENCODING 'UTF8'")));
}

#[test]
fn a_server_that_takes_no_writes_runs_nothing_and_says_why() {
    // PGS-7, case 35
    let env = TestEnv::new();
    if let Some(standby) = server_with(&Options { standby: true, ..Options::default() }) {
        for url in [standby.url("postgres"), standby.url("postgres") + "&target_session_attrs=any"]
        {
            let error = refused(&url, Mode::Create);
            assert_eq!(error.reason, Reason::Unreachable, "{error:?}");
            assert!(error.message.contains("standby"), "{error:?}");
        }
    }
    let Some(server) = server() else { return };
    let url = server.url("postgres");
    drop(store_at(&url));
    server.sql("ALTER ROLE postgres SET default_transaction_read_only = on");
    for url in [url.clone(), format!("{url}&target_session_attrs=any")] {
        let out = run(&env, &url, "k");
        assert_eq!((out.code, marks(&env)), (Some(69), 0), "{out:?}");
        assert!(out.stderr.contains("read-only"), "{out:?}");
        assert!(out.stderr.contains("nothing was run"), "{out:?}");
    }
}

#[test]
fn a_schema_of_another_version_or_of_somebody_else_is_refused_at_every_use() {
    // STO-4, PGS-8, case 41
    let Some(stage) = Stage::new() else { return };
    let url = stage.server.url("postgres");
    // It becomes newer while a command runs.
    let mut child = stage.start("k", &[], &format!("{MARK}; until [ -e go ]; do sleep 0.01; done"));
    common::pgstore::wait_until("it runs", || stage.marks() == 1);
    stage.server.sql("UPDATE ctrlrun.store SET schema_version = 99");
    std::fs::write(stage.env.path("here/go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(74), "the outcome is spooled");
    for arguments in [&["show", "k"][..], &["run", "--key", "o", "--", "true"], &["init"]] {
        let out = on(&stage.env, &url, arguments);
        assert_eq!(out.code, Some(78), "{out:?}");
        assert!(out.stderr.contains("99"), "{out:?}");
    }
    stage.server.sql("UPDATE ctrlrun.store SET schema_version = 1");
    assert_eq!(on(&stage.env, &url, &["run", "--key", "o", "--", "true"]).code, Some(0));
    assert_eq!(stage.column("k", "state"), "committed", "delivered");

    stage.server.sql("CREATE SCHEMA theirs; CREATE TABLE theirs.store (things int)");
    let theirs = format!("{url}&schema=theirs");
    for mode in [Mode::Write, Mode::Create, Mode::Read] {
        let error = refused(&theirs, mode);
        assert_eq!(error.reason, Reason::Unfit, "{error:?}");
    }
    let tables = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
                  WHERE nspname = 'theirs'";
    assert_eq!(stage.server.sql(tables)[0][0].as_deref(), Some("1"), "it was touched");
    stage.server.sql("DROP TABLE ctrlrun.output");
    let error = refused(&url, Mode::Write);
    assert_eq!(error.reason, Reason::Unfit, "{error:?}");
}

#[test]
fn a_write_checks_in_its_own_transaction_that_it_is_still_the_store_that_was_loaded() {
    // STO-4, PGS-1
    for (change, code, word) in [
        ("schema_version = 99", 78, "99"),
        ("store_id = decode(repeat('ab', 16), 'hex')", 69, "nothing was run"),
    ] {
        let Some(stage) = Stage::new() else { return };
        let held = stage.add(Which::Any, When::Begin(1), Act::HoldRequest);
        let child = stage.start("k", &["--store-timeout", "2s"], MARK);
        assert!(stage.proxy.acted(held, LONG));
        stage.server.sql(&format!("UPDATE ctrlrun.store SET {change}"));
        stage.proxy.release();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{said}");
        assert!(said.contains(word), "{said}");
        assert_eq!((stage.marks(), stage.events("k").len()), (0, 0), "{change}");
        assert!(!stage.statements().iter().any(|text| text == "COMMIT"), "{change}");
    }
}

#[test]
fn sixteen_processes_make_one_store() {
    // STO-5, PGS-8, case 41
    let Some(server) = server() else { return };
    let env = TestEnv::new();
    let url = server.url("postgres");
    let children: Vec<_> = (0..16)
        .map(|_| {
            let mut command = env.command(["init", "--store", &url]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut made = 0;
    for child in children {
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{said}");
        made += usize::from(said.contains("made "));
    }
    assert_eq!(made, 1);
    assert_eq!(server.sql("SELECT schema_version FROM ctrlrun.store"), [[Some("2".to_owned())]]);
    assert_eq!(run(&env, &url, "k").code, Some(0));
}

#[test]
fn a_process_that_is_killed_while_it_makes_a_store_leaves_nothing() {
    // STO-5, case 41
    let Some(server) = server() else { return };
    let proxy = ctrlrun::store::postgres::faultproxy::Proxy::start(server.upstream()).unwrap();
    proxy.on(ctrlrun::store::postgres::faultproxy::Rule {
        connection: Which::Any,
        when: When::Text("INSERT INTO".into(), 1),
        act: Act::HoldRequest,
    });
    let env = TestEnv::new();
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.addr);
    let mut child = env.command(["init", "--store", &url]).spawn().unwrap();
    assert!(proxy.acted(0, LONG));
    // A second one waits for the first.
    let second = env.command(["init", "--store", &server.url("postgres")]).spawn().unwrap();
    server.wait_for(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)",
    );
    child.kill().unwrap();
    child.wait().unwrap();
    proxy.cut_all();
    assert_eq!(second.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(server.sql("SELECT schema_version FROM ctrlrun.store").len(), 1);
}

/// Two roles with what `init` prints for them.
fn roles(server: &Server) -> (String, String) {
    let opened = open_url(&server.url("postgres"), Mode::Create).unwrap();
    let grants = opened.grants.unwrap().replace("WRITER", "app").replace("READER", "looker");
    server.sql(&format!("CREATE ROLE app LOGIN; CREATE ROLE looker LOGIN; {grants}"));
    let url = |role: &str| server.url("postgres").replace("postgres@", &format!("{role}@"));
    (url("app"), url("looker"))
}

/// Every row of every table, with the transaction that wrote it.
fn rows(server: &Server) -> Vec<Vec<Option<String>>> {
    let mut all = Vec::new();
    for table in ["store", "effects", "history", "output"] {
        all.extend(server.sql(&format!(
            "SELECT t.xmin::text, t.xmax::text, t::text FROM ctrlrun.{table} t ORDER BY 3"
        )));
    }
    all
}

#[test]
fn t160_reading_changes_no_row_and_works_for_a_role_that_may_only_read() {
    // STO-10, PGS-8
    let Some(server) = server() else { return };
    let (app, looker) = roles(&server);
    let env = TestEnv::new();
    let out = on(&env, &app, &["run", "--key", "k", "--", "echo", "hello"]);
    assert_eq!(out.code, Some(0), "the role that writes has all it needs: {out:?}");
    let out = on(&env, &app, &["run", "--key", "stuck", "--", "sh", "-c", "exit 3"]);
    assert_eq!(out.code, Some(3), "{out:?}");
    let before = rows(&server);
    for arguments in [
        &["effects"][..],
        &["effects", "--stuck"],
        &["show", "k"],
        &["show", "stuck"],
        &["history", "k"],
        &["output", "k"],
        &["run", "--dry-run", "--key", "new", "--", "true"],
    ] {
        for url in [&looker, &app] {
            let out = on(&env, url, arguments);
            assert!(matches!(out.code, Some(0 | 76)), "{arguments:?}: {out:?}");
            assert!(!out.stderr.contains("permission"), "{out:?}");
        }
    }
    assert_eq!(on(&env, &looker, &["output", "k"]).stdout, "hello\n");
    assert_eq!(rows(&server), before);
    // What it may not do is found before anything runs.
    let out = run(&env, &looker, "new");
    assert_eq!((out.code, marks(&env)), (Some(77), 0), "{out:?}");
    assert!(out.stderr.contains("nothing was run"), "{out:?}");
    server.sql("CREATE ROLE stranger LOGIN");
    let stranger = app.replace("app@", "stranger@");
    assert_eq!(on(&env, &stranger, &["effects"]).code, Some(77));
    // Neither migrates, nor makes.
    let elsewhere = format!("{looker}&schema=other");
    assert_eq!(refused(&elsewhere, Mode::Create).reason, Reason::Denied);
}

#[test]
fn a_role_that_may_not_ask_which_server_it_is_runs_and_settles_nothing() {
    // PGS-4: where a re-read proves nothing it has failed.
    let Some(stage) = Stage::new() else { return };
    let (app, _) = roles(&stage.server);
    stage.server.sql("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC");
    let through = app.replace(&stage.server.addr().to_string(), &stage.proxy.addr.to_string());
    let out = run(&stage.env, &through, "k");
    assert_eq!((out.code, stage.marks()), (Some(0), 1), "{out:?}");
    assert!(out.stderr.contains("GRANT EXECUTE"), "{out:?}");
    stage.on(Which::Any, When::Commit(1), Act::CutAfterAnswer);
    let out = run(&stage.env, &through, "in-doubt");
    assert_eq!((out.code, stage.marks()), (Some(69), 1), "{out:?}");
}

#[test]
fn commits_are_synchronous_whatever_the_role_says() {
    // PGS-7, case 15
    let Some(server) = server() else { return };
    let (app, _) = roles(&server);
    server.sql(
        "CREATE TABLE seen (how text); GRANT INSERT ON seen TO PUBLIC; \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO public.seen VALUES (current_setting(''synchronous_commit'')); \
          RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON ctrlrun.effects \
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()",
    );
    let env = TestEnv::new();
    for (set, found) in
        [("off", "on"), ("local", "on"), ("remote_write", "remote_write"), ("on", "on")]
    {
        server.sql(&format!("ALTER ROLE app SET synchronous_commit = {set}; TRUNCATE seen"));
        assert_eq!(run(&env, &app, set).code, Some(0));
        let at_commit = server.sql("SELECT DISTINCT how FROM seen");
        assert_eq!(at_commit, [[Some(found.to_owned())]], "{set}");
    }
}

#[test]
fn a_password_is_shown_nowhere_and_warned_about_in_an_argument() {
    // CON-3, CLI-1, case 37
    let Some(server) = server() else { return };
    let env = TestEnv::new();
    let url = server.url("postgres").replace("postgres@", "postgres:S3CRET@");
    drop(store_at(&url));
    let store = ["--store", &url];
    let all = |arguments: &[&str]| {
        let out = env.run([arguments, &store[..]].concat());
        assert!(!format!("{out:?}").contains("S3CRET"), "{out:?}");
        out
    };
    let out = env.run(["run", "--store", &url, "--key", "k", "--", "sh", "-c", "exit 3"]);
    assert_eq!(out.code, Some(3), "{out:?}");
    assert!(out.stderr.contains("~/.pgpass"), "{out:?}");
    assert!(!format!("{out:?}").contains("S3CRET"), "{out:?}");
    for arguments in
        [&["show", "k"][..], &["show", "k", "--json"], &["effects"], &["effects", "--json"]]
    {
        all(arguments);
    }
    all(&["init"]);
    all(&["init", "--json"]);
    assert_eq!(all(&["show", "absent"]).code, Some(66));
    assert_eq!(all(&["effects", "-v"]).code, Some(0));
    let out = on(&env, &url, &["show", "k"]);
    assert!(!out.stderr.contains("~/.pgpass"), "the environment is not an argument: {out:?}");
    server.sql("DROP SCHEMA ctrlrun CASCADE");
    let out = all(&["effects"]);
    assert_eq!(out.code, Some(78), "{out:?}");
    let out = env.run(["effects", "--store", &url.replace("postgres:", "nobody:")]);
    assert!(!format!("{out:?}").contains("S3CRET"), "{out:?}");
}
