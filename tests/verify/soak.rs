//! `ctrlrun verify --soak`, from outside (SOA clauses).
use std::fs;

use serde_json::Value;

use crate::common::TestEnv;
use crate::common::postgres::server;

fn object(stdout: &str) -> Value {
    serde_json::from_str(stdout).unwrap()
}

/// What a soak of two decks must tell, whatever the store.
#[track_caller]
fn is_sound(report: &Value, operations: u64) {
    assert_eq!(report["status"], "pass", "{report:#}");
    let none = Value::Array(Vec::new());
    assert_eq!((&report["wrong"], &report["not_shown"]), (&none, &none));
    let number = |field: &str| report[field].as_u64().unwrap();
    assert_eq!((number("operations"), number("ordinary")), (operations, operations / 4 * 3));
    // Every doubt but those that were not written down has an injection, and each of these was found.
    assert!(number("controls") >= 1 && number("explained") >= 6, "{report:#}");
    assert_eq!(number("controls"), number("controls_caught"));
    assert_eq!(number("ambiguous"), number("explained") + number("controls"));
    assert_eq!(report["unexplained"], none);
    for (name, fell) in report["injected"].as_object().unwrap() {
        assert!(fell["fell"].as_u64().unwrap() >= 1, "{name}: {fell}");
    }
    let measures = report["measures"].as_array().unwrap();
    assert!(measures.len() >= 12, "{}", measures.len());
    for measure in measures {
        for field in ["memory_bytes", "descriptors", "long_run_memory_bytes", "store_bytes"] {
            assert!(measure[field].as_u64().unwrap() > 0, "{field}: {measure}");
        }
        assert_eq!(measure["effects"], measure["effects_due"], "{measure}");
        assert_eq!(measure["spooled"], 0);
    }
    let bounds = report["bounds"].as_array().unwrap();
    assert!(bounds.iter().all(|bound| bound["holds"] == true), "{bounds:#?}");
}

#[test]
fn a_soak_explains_every_doubt_and_nothing_grows() {
    // SOA-1 to SOA-6
    let env = TestEnv::new();
    let out = env.run(["verify", "--soak", "80", "--seed", "7", "--json"]);
    assert_eq!(out.code, Some(0), "{}\n{}", out.stdout, out.stderr);
    is_sound(&object(&out.stdout), 80);
    // Nothing is left of it, and no store was made.
    assert_eq!(fs::read_dir(env.path("home")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(env.path("tmp")).unwrap().count(), 0);
}

#[test]
fn a_soak_on_a_server_explains_every_doubt_and_nothing_grows() {
    // SOA-1 to SOA-6
    let Some(server) = server() else { return };
    let env = TestEnv::new();
    let mut command = env.command(["verify", "--soak", "80", "--seed", "7", "--json"]);
    command.env("CTRLRUN_STORE", server.url("postgres"));
    let out = crate::common::finish(&mut command);
    assert_eq!(out.code, Some(0), "{}\n{}", out.stdout, out.stderr);
    let report = object(&out.stdout);
    is_sound(&report, 80);
    assert_eq!(report["store"], "postgres");
    let left = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'ctrlrun%'";
    assert_eq!(server.sql(left), Vec::<Vec<Option<String>>>::new());
}

#[test]
fn a_soak_that_would_tell_nothing_is_a_usage_error() {
    // SOA-1
    let env = TestEnv::new();
    for (length, says) in [("39", "at least 40"), ("5s", "less than 30s"), ("1x", "no duration")] {
        let out = env.run(["verify", "--soak", length]);
        assert_eq!(out.code, Some(64), "{length}: {out:?}");
        assert!(out.stderr.contains(says), "{length}: {}", out.stderr);
    }
    for with in [&["--only", "G1"][..], &["--self-test"], &["--rounds", "3"], &["--list"]] {
        let out = env.run([&["verify", "--soak", "40"], with].concat());
        assert_eq!(out.code, Some(64), "{with:?}: {out:?}");
    }
}
