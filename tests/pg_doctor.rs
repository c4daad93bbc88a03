//! `ctrlrun doctor` on a real server, and on one that lies (CLI-23; case 35).
mod common;

use common::pgstore::{Stage, store_at};
use common::postgres::{Options, server, server_with};
use common::{Output, TestEnv, finish};
use ctrlrun::store::postgres::faultproxy::{Act, Reply, When, Which};
use serde_json::Value;

fn doctor(env: &TestEnv, url: &str, flags: &[&str]) -> Output {
    finish(&mut env.command([&["doctor", "--store", url], flags].concat()))
}

/// The checks of a JSON answer that have findings, and the answer.
fn found(env: &TestEnv, url: &str, flags: &[&str]) -> (Vec<String>, Value) {
    let out = doctor(env, url, &[flags, &["--json"]].concat());
    let told: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|_| panic!("{out:?}"));
    let checks = told["checks"].as_array().unwrap();
    let wrong: Vec<String> = checks
        .iter()
        .filter(|check| check["ok"] == false)
        .map(|check| check["check"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(told["findings"], wrong.len());
    assert_eq!(out.code, Some(i32::from(!wrong.is_empty())), "{out:?}");
    (wrong, told)
}

fn one<'a>(told: &'a Value, about: &str) -> &'a Value {
    let checks = told["checks"].as_array().unwrap();
    checks.iter().find(|check| check["check"] == about).unwrap_or_else(|| panic!("{told}"))
}

#[test]
fn a_sound_server_has_no_finding_and_passes_every_experiment() {
    let Some(server) = server() else { return };
    let url = server.url("postgres");
    drop(store_at(&url));
    let env = TestEnv::new();
    let out = doctor(&env, &url, &["--probe"]);
    assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""), "{out:?}");
    for line in ["ok  store", "ok  role", "primary", "ok  blocked insert", "ok  lost race", "empty"]
    {
        assert!(out.stdout.contains(line), "{line}: {}", out.stdout);
    }
    let left = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'ctrlrun_probe%'";
    assert_eq!(server.sql(left)[0][0].as_deref(), Some("0"), "the probe has left something behind");
    let (wrong, told) = found(&env, &url, &[]);
    assert_eq!(wrong, [""; 0]);
    assert_eq!(told["why"], "from --store");
    assert_eq!(
        one(&told, "schema")["found"],
        "version 2 in \"ctrlrun\", this ctrlrun knows 1 to 2"
    );
}

#[test]
fn what_must_not_stay_so_is_a_finding() {
    let env = TestEnv::new();
    let Some(mut server) = server() else { return };
    let url = server.url("postgres");
    let (wrong, told) = found(&env, &url, &[]);
    assert_eq!(wrong, ["schema"]);
    assert!(one(&told, "schema")["finding"].as_str().unwrap().contains("ctrlrun init"), "{told}");
    drop(store_at(&url));
    server.sql("ALTER ROLE postgres SET synchronous_commit = off");
    let (wrong, told) = found(&env, &url, &[]);
    assert_eq!(wrong, [""; 0]);
    assert!(one(&told, "synchronous_commit")["found"].as_str().unwrap().contains("raised"));
    // An outcome that waits.
    let spool = env.path("home/.local/state/ctrlrun/spool");
    let mut run =
        env.command(["run", "--store", &url, "--store-timeout", "300ms", "--lease", "1s"]);
    run.args(["-k", "k", "--", "sh", "-c", "touch on; until [ -e go ]; do sleep 0.01; done"]);
    let run = run.stderr(std::process::Stdio::null()).spawn().unwrap();
    common::pgstore::wait_until("it runs", || env.path("here/on").exists());
    server.stop();
    std::fs::write(env.path("here/go"), "").unwrap();
    assert_eq!(run.wait_with_output().unwrap().status.code(), Some(74));
    let (wrong, _) = found(&env, &url, &["--store-timeout", "1s"]);
    assert_eq!(wrong[0], "server");
    server.start();
    let (wrong, told) = found(&env, &url, &[]);
    assert_eq!(wrong, ["spool"]);
    assert!(one(&told, "spool")["found"].as_str().unwrap().contains(spool.to_str().unwrap()));

    let settings = ["fsync=off", "full_page_writes=off", "default_transaction_read_only=on"];
    let settings = settings.map(str::to_owned).to_vec();
    if let Some(server) = server_with(&Options { settings, ..Options::default() }) {
        let url = server.url("postgres") + "&target_session_attrs=any";
        let (wrong, _) = found(&TestEnv::new(), &url, &[]);
        assert_eq!(wrong, ["role", "fsync", "full_page_writes", "schema"]);
    }
    if let Some(server) = server_with(&Options { standby: true, ..Options::default() }) {
        let url = server.url("postgres") + "&target_session_attrs=any";
        let (wrong, told) = found(&TestEnv::new(), &url, &[]);
        assert_eq!(one(&told, "role")["found"], "a standby");
        assert!(wrong.contains(&"role".to_owned()));
    }
}

#[test]
fn a_server_that_lies_is_found_out_by_experiment() {
    let tag = |tag: &str| Reply::Tag(tag.to_owned());
    let others = || When::Text("'k', 2".to_owned(), 0);
    let late = || When::Text("v = 6".to_owned(), 0);
    let lie = |reply: Reply, forward: bool| Act::Forge { reply, forward };
    let rolled_back = || When::Rollback(0);
    let rewrite = |from: &str, to: &str| Act::Rewrite { from: from.to_owned(), to: to.to_owned() };
    let lies = [
        // It counts a conflict as a row.
        (others(), lie(tag("INSERT 0 1"), true), vec!["conflict", "blocked insert"]),
        // It takes what is there for nothing, and says so.
        (late(), lie(tag("UPDATE 1"), true), vec!["lost race"]),
        // It keeps what was to be rolled back.
        (
            rolled_back(),
            rewrite("ROLLBACK", "COMMIT"),
            vec!["ROLLBACK", "insert behind a rollback"],
        ),
        // It commits nothing, and says that it did.
        (When::Commit(0), lie(tag("COMMIT"), false), vec!["COMMIT", "failed COMMIT"]),
        // It has no unique keys to speak of: the second writer wins.
        (
            others(),
            rewrite("DO NOTHING", "DO UPDATE SET v = excluded.v"),
            vec!["conflict", "blocked insert"],
        ),
    ];
    for (when, act, wanted) in lies {
        let Some(stage) = Stage::new() else { return };
        let told = format!("{act:?}");
        stage.on(Which::Any, when, act);
        let (wrong, answer) =
            found(&stage.env, &stage.url(), &["--probe", "--store-timeout", "2s"]);
        for about in wanted {
            assert!(wrong.contains(&about.to_owned()), "{told}: {about} not in {answer}");
        }
    }
}
