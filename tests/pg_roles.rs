//! What roles with the printed grants may do, and what becomes of an older schema, through the commands
//! (PGS-8, STO-13; cases 32, 41).
mod common;

use std::fs;
use std::process::Stdio;

use common::pgstore::{MARK, open_url, wait_until};
use common::postgres::{Server, server};
use common::{Output, TestEnv, finish};
use ctrlrun::store::Mode;

fn on(env: &TestEnv, url: &str, arguments: &[&str]) -> Output {
    finish(env.command(arguments).env("CTRLRUN_STORE", url))
}

fn marks(env: &TestEnv) -> usize {
    fs::read_to_string(env.path("here/marker")).unwrap_or_default().lines().count()
}

/// A store that is its owner's, and two roles with what `ctrlrun init` printed for them: `app` and
/// `looker`; then their URLs.
fn roles(server: &Server, env: &TestEnv) -> (String, String) {
    let out = on(env, &server.url("postgres"), &["init"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    granted(server, &out.stdout)
}

fn granted(server: &Server, printed: &str) -> (String, String) {
    let grants: Vec<&str> = printed.lines().filter(|line| line.starts_with("GRANT ")).collect();
    assert!(grants.len() >= 6, "the grants are printed: {printed}");
    let grants = grants.join("\n").replace("WRITER", "app").replace("READER", "looker");
    server.sql(&format!(
        "DO $$ BEGIN CREATE ROLE app LOGIN; CREATE ROLE looker LOGIN; \
         EXCEPTION WHEN duplicate_object THEN NULL; END $$; {grants}"
    ));
    let url = |role: &str| server.url("postgres").replace("postgres@", &format!("{role}@"));
    (url("app"), url("looker"))
}

/// Two nodes; the second fails once, with a code that says so, and is tried again.
const FLOW: &str = r#"
name = "two"
[node.one]
command = ["sh", "-c", "echo one >>marker"]
[node.two]
needs = ["one"]
retries = 1
backoff = "10ms"
not_executed = [3]
command = ["sh", "-c", "echo two >>marker; [ \"$CTRLRUN_ATTEMPT\" != 1 ] || exit 3"]
"#;

fn flow(env: &TestEnv) -> String {
    let path = env.path("here/two.toml");
    fs::write(&path, FLOW).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Every row of every table, with the transaction that wrote it.
fn rows(server: &Server) -> Vec<Vec<Option<String>>> {
    let tables = server.sql(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'ctrlrun'::regnamespace \
         AND relkind = 'r' ORDER BY 1",
    );
    assert_eq!(tables.len(), 9, "{tables:?}");
    let mut all = Vec::new();
    for table in tables {
        let table = table[0].as_deref().unwrap();
        all.extend(server.sql(&format!(
            "SELECT t.xmin::text, t.xmax::text, t::text FROM ctrlrun.{table} t ORDER BY 3"
        )));
    }
    all
}

#[test]
fn a_role_that_writes_and_owns_nothing_runs_effects_and_workflows() {
    // PGS-8
    let Some(server) = server() else { return };
    let env = TestEnv::new();
    let (app, _) = roles(&server, &env);
    let file = flow(&env);
    assert_eq!(on(&env, &app, &["run", "--key", "k", "--", "sh", "-c", MARK]).code, Some(0));
    let out = on(&env, &app, &["workflow", "run", &file, "--id", "r"]);
    assert_eq!((out.code, marks(&env)), (Some(0), 4), "{out:?}");
    // Another is started here, driven there, and ended by a person.
    assert_eq!(on(&env, &app, &["workflow", "start", &file, "--id", "s"]).code, Some(0));
    let out = on(&env, &app, &["workflow", "work", "--until-idle"]);
    assert_eq!((out.code, marks(&env)), (Some(0), 7), "{out:?}");
    assert_eq!(on(&env, &app, &["workflow", "start", &file, "--id", "t"]).code, Some(0));
    assert_eq!(on(&env, &app, &["workflow", "cancel", "t"]).code, Some(0));
    let out = on(&env, &app, &["workflow", "work", "--until-idle"]);
    assert_eq!((out.code, marks(&env)), (Some(0), 7), "{out:?}");
    // An effect in doubt is resolved, and tried again.
    let doubt = &["run", "--key", "d", "--", "sh", "-c", "exit 9"];
    assert_eq!(on(&env, &app, doubt).code, Some(9));
    let resolve = &["resolve", "d", "--not-executed", "--expect", "3", "--reason", "seen"];
    let out = on(&env, &app, resolve);
    assert_eq!(out.code, Some(0), "{out:?}");
    let out = on(&env, &app, &["doctor"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(out.stdout.contains("may run effects and workflows"), "{out:?}");
    // What only an owner may.
    let out = on(&env, &app, &["prune", "--forget-keys", "--older-than", "0s", "--yes"]);
    assert_eq!(out.code, Some(77), "{out:?}");
}

#[test]
fn a_role_that_only_looks_can_use_every_command_that_looks_and_no_other() {
    // PGS-8, STO-7, case 32
    let Some(server) = server() else { return };
    let env = TestEnv::new();
    let (app, looker) = roles(&server, &env);
    let file = flow(&env);
    let said = format!("{MARK}; echo said");
    assert_eq!(on(&env, &app, &["run", "--key", "k", "--", "sh", "-c", &said]).code, Some(0));
    assert_eq!(on(&env, &app, &["workflow", "run", &file, "--id", "r"]).code, Some(0));
    assert_eq!(on(&env, &app, &["workflow", "start", &file, "--id", "open"]).code, Some(0));
    let (before, ran) = (rows(&server), marks(&env));
    for look in [
        &["show", "k"][..],
        &["show", "k", "--json"],
        &["history", "k"],
        &["effects"],
        &["effects", "--json"],
        &["output", "k"],
        &["stats"],
        &["workflow", "status", "r"],
        &["workflow", "status", "r", "--json"],
        &["workflow", "list"],
        &["doctor"],
    ] {
        let out = on(&env, &looker, look);
        assert_eq!(out.code, Some(0), "{look:?}: {out:?}");
    }
    assert!(on(&env, &looker, &["doctor"]).stdout.contains("may only look"));
    for write in [
        &["run", "--key", "o", "--", "sh", "-c", MARK][..],
        &["workflow", "start", &file, "--id", "s"],
        &["workflow", "work", "--until-idle"],
        &["workflow", "cancel", "open"],
        &["resolve", "k", "--reopen", "--expect", "3", "--reason", "no"],
    ] {
        let out = on(&env, &looker, write);
        assert_eq!(out.code, Some(77), "{write:?}: {out:?}");
        assert!(!out.stderr.contains("panic"), "{out:?}");
    }
    assert_eq!((rows(&server), marks(&env)), (before, ran), "something was written, or ran");
}

/// A store as the first version made it, with one effect that came about.
fn old_store(server: &Server) {
    let schema = include_str!("../src/store/schema/postgres_1.sql").replace(":schema", "ctrlrun");
    server.sql(&format!(
        "CREATE SCHEMA ctrlrun; {schema}; INSERT INTO ctrlrun.store VALUES \
         (1, 1, decode(repeat('ab', 16), 'hex'), 0, false)"
    ));
}

fn version(server: &Server) -> String {
    server.sql("SELECT schema_version FROM ctrlrun.store")[0][0].clone().unwrap()
}

#[test]
fn an_older_schema_serves_every_command_about_effects_and_is_moved_under_a_running_one() {
    // STO-13, PGS-8, case 41
    let Some(server) = server() else { return };
    let env = TestEnv::new();
    old_store(&server);
    let url = server.url("postgres");
    let file = flow(&env);
    assert_eq!(on(&env, &url, &["run", "--key", "k", "--", "sh", "-c", MARK]).code, Some(0));
    for fine in [
        &["show", "k"][..],
        &["history", "k"],
        &["effects"],
        &["stats"],
        &["doctor"],
        &["init"],
        &["prune", "--forget-keys", "--older-than", "1d", "--yes"],
    ] {
        let out = on(&env, &url, fine);
        assert_eq!(out.code, Some(0), "{fine:?}: {out:?}");
    }
    for needs_more in [
        &["workflow", "run", &file, "--id", "r"][..],
        &["workflow", "start", &file, "--id", "r"],
        // WFL-17: a worker that waits for work ends as well.
        &["workflow", "work"],
        &["workflow", "work", "--until-idle"],
        &["workflow", "status", "r"],
        &["workflow", "list"],
        &["workflow", "cancel", "r"],
    ] {
        let out = on(&env, &url, needs_more);
        assert_eq!(out.code, Some(78), "{needs_more:?}: {out:?}");
        assert!(out.stderr.contains("--upgrade"), "the mend: {out:?}");
    }
    assert_eq!((version(&server).as_str(), marks(&env)), ("1", 1), "nothing moved, nothing ran");

    // Somebody is at work meanwhile, and ends behind it as if nothing had been.
    let script = format!("{MARK}; until [ -e go ]; do sleep 0.01; done");
    let mut busy = env.command(["run", "--key", "busy", "--", "sh", "-c", &script]);
    let busy = busy.env("CTRLRUN_STORE", &url).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it runs", || marks(&env) == 2);
    let out = on(&env, &url, &["init", "--upgrade"]);
    assert_eq!((out.code, version(&server).as_str()), (Some(0), "2"), "{out:?}");
    let (app, looker) = granted(&server, &out.stdout);
    fs::write(env.path("here/go"), "").unwrap();
    let out = busy.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(on(&env, &url, &["show", "busy"]).code, Some(0));
    assert_eq!(on(&env, &url, &["init", "--upgrade"]).code, Some(0), "again changes nothing");
    let out = on(&env, &app, &["workflow", "run", &file, "--id", "r"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert_eq!(on(&env, &looker, &["workflow", "status", "r"]).code, Some(0));
}

#[test]
fn a_role_without_the_rights_of_the_newer_schema_runs_effects_and_is_told_of_the_rest() {
    // PGS-8, STO-13: the grants of version 1 were given before there was a version 2.
    let Some(server) = server() else { return };
    let env = TestEnv::new();
    old_store(&server);
    server.sql(
        "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA ctrlrun TO app; \
         GRANT SELECT ON ctrlrun.store TO app; \
         GRANT SELECT, INSERT, UPDATE ON ctrlrun.effects, ctrlrun.output TO app; \
         GRANT SELECT, INSERT ON ctrlrun.history TO app",
    );
    let app = server.url("postgres").replace("postgres@", "app@");
    let run = |key: &str| on(&env, &app, &["run", "--key", key, "--", "sh", "-c", MARK]).code;
    assert_eq!(run("before"), Some(0));
    // The role that owns nothing cannot move it.
    let out = on(&env, &app, &["init", "--upgrade"]);
    assert_eq!((out.code, version(&server).as_str()), (Some(77), "1"), "{out:?}");
    open_url(&server.url("postgres"), Mode::Upgrade).unwrap();
    assert_eq!((run("after"), marks(&env)), (Some(0), 2));
    for arguments in [
        &["workflow", "start", &flow(&env), "--id", "r"][..],
        // A worker ends, instead of asking for ever (WFL-17).
        &["workflow", "work"],
    ] {
        let out = on(&env, &app, arguments);
        assert_eq!(out.code, Some(77), "{out:?}");
    }
    let out = on(&env, &app, &["doctor"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(out.stdout.contains("may not run workflows"), "{out:?}");
}
