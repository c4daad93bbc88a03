//! `ctrlrun verify`, from outside: what it shows, what it tells, and what it leaves alone.
use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::fill::Fill;
use crate::common::{self, TestEnv};
use serde_json::Value;

/// A quick part of the catalogue that still runs commands.
const QUICK: [&str; 4] = ["--only", "G1,G7,G14", "--processes", "3"];

fn verify(env: &TestEnv, words: &[&str]) -> common::Output {
    env.run([&["verify"], words].concat())
}

#[test]
fn every_guarantee_holds_on_sqlite() {
    // VER-1, VER-3, VER-4, VER-7, VER-8
    let env = TestEnv::new();
    let out = verify(&env, &["--json", "--processes", "4", "--rounds", "4", "--seed", "7"]);
    let report: Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!(out.code, Some(0), "{report:#}\n{}", out.stderr);
    assert_eq!((&report["store"], &report["seed"]), (&"sqlite".into(), &7.into()));
    let guarantees = report["guarantees"].as_array().unwrap();
    let ids: Vec<String> = (1..=19).map(|number| format!("G{number}")).collect();
    let named: Vec<&str> = guarantees.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(named, ids);
    for guarantee in guarantees {
        let (id, status) = (guarantee["id"].as_str().unwrap(), &guarantee["status"]);
        assert_eq!(status, "pass", "{guarantee:#}");
        for field in ["executions", "kills", "rounds", "duration_ms"] {
            assert!(guarantee[field].is_u64(), "{id}: {field}");
        }
    }
    let count = |field: &str| report[field].as_u64().unwrap();
    assert_eq!((count("passed"), count("failed")), (19, 0));
    assert_eq!((count("inconclusive"), count("not_applicable")), (0, 0));
    // Nine stop points, and at least one random kill.
    assert!(guarantees[3]["kills"].as_u64().unwrap() >= 10, "{:#}", guarantees[3]);
    assert!(guarantees[3]["detail"].as_str().unwrap().starts_with("longest wait"));
    assert_eq!(fs::read_dir(env.path("tmp")).unwrap().count(), 0);
    assert!(out.stderr.starts_with(r#"{"note":"verify: seed 7, "#), "{}", out.stderr);
}

#[test]
fn the_users_store_is_left_byte_for_byte() {
    // VER-2
    let env = TestEnv::new();
    let path = env.default_store();
    Fill::make(&path).committed("mail:1", "sent\n");
    // Nothing could be written or read there without being seen.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    let folder = path.parent().unwrap();
    let content = || {
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap(), path)
            })
            .collect();
        files.sort();
        files
    };
    let before = content();
    let out = verify(&env, &QUICK);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert_eq!(content(), before);
}

#[test]
fn a_store_that_is_not_there_is_not_made_and_nothing_is_left() {
    // VER-2
    let env = TestEnv::new();
    assert_eq!(verify(&env, &QUICK).code, Some(0));
    assert_eq!(fs::read_dir(env.path("home")).unwrap().count(), 0);
    let named = env.path("here/named.db");
    let out = verify(&env, &[&QUICK[..], &["--store", named.to_str().unwrap()]].concat());
    assert_eq!(out.code, Some(0), "{out:?}");
    assert_eq!(fs::read_dir(env.path("here")).unwrap().count(), 0);
}

#[test]
fn a_guarantee_that_does_not_exist_is_a_usage_error() {
    // VER-1: a filter that matches nothing must not look like success.
    let env = TestEnv::new();
    for only in ["NOPE", "G4,NOPE", "", "G20"] {
        let out = verify(&env, &["--only", only]);
        assert_eq!(out.code, Some(64), "{only:?}: {out:?}");
        assert!(out.stderr.contains("G1 to G19"), "{}", out.stderr);
    }
    assert_eq!(verify(&env, &["--processes", "1"]).code, Some(64));
    assert_eq!(verify(&env, &["--rounds", "0"]).code, Some(64));
}

#[test]
fn a_configuration_that_cannot_be_used_is_told_and_ends_2() {
    // VER-1, VER-2
    let env = TestEnv::new();
    fs::write(env.path("here/file"), "").unwrap();
    let below = env.path("here/file/effects.db");
    for store in [below.to_str().unwrap(), "", "mysql://host/db", "postgres://u@127.0.0.1:1/d"] {
        let out = verify(&env, &[&QUICK[..], &["--store", store]].concat());
        assert_eq!(out.code, Some(2), "{store:?}: {out:?}");
        assert!(!out.stderr.is_empty());
    }
    let out = verify(&env, &[&QUICK[..], &["--junit", "/nonexistent/verify.xml"]].concat());
    assert_eq!(out.code, Some(2), "{out:?}");
}

#[test]
fn a_list_names_every_guarantee_and_does_nothing() {
    // VER-1
    let env = TestEnv::new();
    let out = verify(&env, &["--list"]);
    assert_eq!((out.code, out.stdout.lines().count()), (Some(0), 19));
    assert_eq!(out.stderr, "");
    let one = verify(&env, &["--list", "--only", "g4", "--json"]);
    let line: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!(line["id"], "G4");
}

#[test]
fn the_table_and_the_junit_report_tell_the_same() {
    // VER-8
    let env = TestEnv::new();
    let xml = env.path("here/verify.xml");
    let out = verify(&env, &["--only", "G1,G3", "--junit", xml.to_str().unwrap()]);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(
        out.stdout.contains("G1   a committed effect never runs again  holds"),
        "{}",
        out.stdout
    );
    // No bar where nobody looks.
    assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
    let xml = fs::read_to_string(xml).unwrap();
    for part in ["tests=\"2\"", "failures=\"0\"", "errors=\"0\"", "name=\"executions\""] {
        assert!(xml.contains(part), "{part}: {xml}");
    }
}
