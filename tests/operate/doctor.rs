//! What doctor finds, and that each finding says what mends it (OPS-10, OPS-11; cases 35, 43, 44).
use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::at::{Kind, MARK, Place, on_every_store};
use crate::common::finish;

on_every_store!(
    a_sound_store_has_no_finding,
    a_record_that_is_not_the_fold_of_its_history_is_found,
    a_clock_that_was_set_back_is_found,
    a_damaged_file_of_the_spool_is_found,
);

/// The checks with findings, by name, and the answer.
fn found(at: &Place, flags: &[&str]) -> (Vec<String>, Value) {
    let out = at.ask(&[&["doctor", "--json"], flags].concat());
    let told: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|_| panic!("{out:?}"));
    let mut wrong = Vec::new();
    for check in told["checks"].as_array().unwrap() {
        if check["ok"] == false {
            wrong.push(check["check"].as_str().unwrap().to_owned());
            // Each says what mends it.
            assert!(check["finding"].as_str().unwrap().len() > 30, "{check}");
        }
    }
    assert_eq!(told["findings"], wrong.len());
    assert_eq!(out.code, Some(i32::from(!wrong.is_empty())), "{out:?}");
    (wrong, told)
}

fn one(told: &Value, about: &str) -> String {
    let checks = told["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == about);
    check.unwrap_or_else(|| panic!("{about}: {told}"))["found"].as_str().unwrap().to_owned()
}

fn finding(told: &Value, about: &str) -> String {
    let checks = told["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == about && check["ok"] == false);
    check.unwrap_or_else(|| panic!("{about}: {told}"))["finding"].as_str().unwrap().to_owned()
}

fn a_sound_store_has_no_finding(kind: Kind) {
    // OPS-10, OPS-11
    let at = Place::new(kind);
    finish(&mut at.run("k", &[], MARK));
    finish(&mut at.run("l", &[], "exit 3"));
    let before = at.dump();
    let (wrong, told) = found(&at, &["--deep"]);
    assert!(wrong.is_empty(), "{told}");
    assert!(one(&told, "version").contains(env!("CARGO_PKG_VERSION")), "{told}");
    assert!(one(&told, "schema").contains("version 2"), "{told}");
    assert!(one(&told, "effects").starts_with("2; 1 stuck, the oldest for"), "{told}");
    assert_eq!(one(&told, "histories"), "2 records, each the fold of its history");
    assert!(one(&told, "newest record").ends_with(" ago"), "{told}");
    match kind {
        Kind::Sqlite => {
            assert!(one(&told, "durability").starts_with("journal wal"), "{told}");
            assert!(one(&told, "file system").contains(" at /"), "{told}");
            assert_eq!(one(&told, "rights"), "this user may run effects");
        }
        Kind::Postgres => {
            assert_eq!(
                one(&told, "rights"),
                "postgres may run effects and workflows, and forget effects"
            );
            assert!(one(&told, "clock").contains("less than 1 s apart"), "{told}");
            assert!(one(&told, "standbys").contains("a fail-over may lose"), "case 35: {told}");
        }
    }
    assert_eq!(at.dump(), before);
}

fn a_record_that_is_not_the_fold_of_its_history_is_found(kind: Kind) {
    // OPS-11
    let at = Place::new(kind);
    for number in 0..15 {
        finish(&mut at.run(&format!("k{number:02}"), &[], "true"));
    }
    let tamper = |what: &str| at.home.tamper(what);
    tamper("UPDATE :effects SET attempt_id='other' WHERE effect_key='k03'");
    tamper("DELETE FROM :history WHERE effect_key='k04' AND revision=2");
    tamper("DELETE FROM :history WHERE effect_key='k05'");
    tamper("UPDATE :history SET data='{' WHERE effect_key='k06' AND revision=1");
    tamper("UPDATE :effects SET state='done' WHERE effect_key='k07'");
    assert!(found(&at, &[]).0.is_empty(), "it is found where it is asked for");
    let (wrong, told) = found(&at, &["--deep"]);
    assert_eq!(wrong, ["histories"], "{told}");
    assert_eq!(one(&told, "histories"), "5 of 15 are not right");
    let finding = finding(&told, "histories");
    for part in [
        "k03 (the record is not what its 3 events say)",
        "k04 (revision 3 stands where 2 should)",
        "k05 (it has no history)",
        "k06 (column data",
        "k07 (column state",
    ] {
        assert!(finding.contains(part), "{part}: {finding}");
    }
    // None of them is thrown away.
    let out = at.ask(&["prune", "--older-than", "0s", "--forget-keys", "--yes", "--json"]);
    let told: Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!((&told["effects"], &told["stay"]["damaged"]), (&10.into(), &3.into()), "{told}");
    assert_eq!(told["stay"]["unreadable"], 1, "{told}");
    tamper("DELETE FROM :effects WHERE effect_key<>'k03'");
    tamper("UPDATE :effects SET attempt_id='x'");
    for number in 10..26 {
        finish(&mut at.run(&format!("n{number}"), &[], "true"));
    }
    tamper("UPDATE :effects SET attempt_id='other'");
    let (_, told) = found(&at, &["--deep"]);
    let finding = self::finding(&told, "histories");
    assert!(
        finding.ends_with(", ...") && finding.matches(" events say)").count() == 10,
        "{finding}"
    );
}

fn a_clock_that_was_set_back_is_found(kind: Kind) {
    // OPS-10
    let at = Place::new(kind);
    finish(&mut at.run("k", &[], MARK));
    at.home.age("k", -2);
    let (wrong, told) = found(&at, &[]);
    assert_eq!(wrong, ["newest record"], "{told}");
    assert_eq!(one(&told, "newest record"), "47 h in the future");
    // And what will only be settled is not old.
    let out = at.ask(&["prune", "--older-than", "0s", "--forget-keys", "--yes"]);
    assert!(out.stdout.contains("0 effects"), "{out:?}");
}

fn a_damaged_file_of_the_spool_is_found(kind: Kind) {
    // OPS-10, EXE-26
    let at = Place::new(kind);
    let holder = at.holder("k", &["--store-timeout", "300ms", "--lease", "2s"]);
    at.home.away();
    at.go();
    assert_eq!(holder.end().code, Some(74));
    at.home.back();
    let (wrong, told) = found(&at, &[]);
    assert_eq!(wrong, ["spool"], "{told}");
    let file = at.spooled(&at.spool()).remove(0);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, &text[..text.len() - 9]).unwrap();
    let (wrong, told) = found(&at, &[]);
    assert_eq!(wrong, ["spool"], "{told}");
    assert!(one(&told, "spool").starts_with("0 waiting, 1 damaged in"), "{told}");
    assert!(finding(&told, "spool").contains(file.to_str().unwrap()), "{told}");
}

#[test]
fn an_embedded_store_tells_of_its_place() {
    // OPS-10; cases 43, 44
    let at = Place::new(Kind::Sqlite);
    let file = at.file();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o606)).unwrap();
    let (wrong, told) = found(&at, &[]);
    assert_eq!(wrong, ["rights"], "{told}");
    assert!(finding(&told, "rights").contains("chmod o-w"), "{told}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    at.connect().execute_batch("PRAGMA journal_mode=DELETE").unwrap();
    let (wrong, told) = found(&at, &[]);
    assert_eq!(wrong, ["durability"], "{told}");
    fs::remove_file(&file).unwrap();
    let (wrong, told) = found(&at, &[]);
    assert_eq!(wrong, ["store"], "{told}");
    assert!(finding(&told, "store").contains("ctrlrun init --store"), "{told}");
    // One that is gone with the machine's uptime.
    if std::path::Path::new("/dev/shm").is_dir() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("x.db");
        let path = path.to_str().unwrap();
        assert_eq!(at.env.run(["init", "--store", path]).code, Some(0));
        let out = at.env.run(["doctor", "--store", path]);
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.stdout.contains("!!  file system    tmpfs at /dev/shm\n"), "{}", out.stdout);
    }
}

#[test]
fn the_rights_that_a_role_lacks_are_named_with_the_statement_that_gives_them() {
    // OPS-10, PGS-8
    if !Kind::Postgres.is_here() {
        return;
    }
    let at = Place::new(Kind::Postgres);
    let schema = at.store().rsplit_once("schema=").unwrap().1.to_owned();
    let as_role = |role: &str| {
        let url = at.store().replace("postgres@", &format!("{role}@"));
        let out = finish(&mut at.env.command(["doctor", "--json", "--store", &url]));
        serde_json::from_str::<Value>(&out.stdout).unwrap_or_else(|_| panic!("{out:?}"))
    };
    let role = format!("{schema}_role");
    at.home.tamper(&format!("CREATE ROLE {role} LOGIN"));
    at.home.tamper(&format!("GRANT USAGE ON SCHEMA {schema} TO {role}"));
    at.home.tamper(&format!("GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"));
    assert_eq!(one(&as_role(&role), "rights"), format!("{role} may only look"));
    at.home.tamper(&format!("GRANT INSERT ON :effects, :history, :output TO {role}"));
    let told = as_role(&role);
    let mend = finding(&told, "rights");
    assert!(
        mend.contains(&format!(".effects TO {role}")) && mend.contains("GRANT UPDATE"),
        "{mend}"
    );
    at.home.tamper(&format!("GRANT UPDATE ON :effects, :output TO {role}"));
    assert_eq!(
        one(&as_role(&role), "rights"),
        format!(
            "{role} may run effects; may not run workflows, nor forget effects \
             (ctrlrun prune --forget-keys)"
        )
    );
    // It can do what it is told that it can.
    let url = at.store().replace("postgres@", &format!("{role}@"));
    let run = |words: &[&str]| finish(at.env.command(words).arg("--store").arg(&url));
    assert_eq!(finish(&mut at.run("k", &[], "echo said")).code, Some(0));
    assert_eq!(run(&["prune", "--older-than", "0s"]).code, Some(0));
    let forget = ["prune", "--older-than", "0s", "--forget-keys", "--yes"];
    let out = run(&forget);
    assert_eq!(out.code, Some(77), "{out:?}");
    assert_eq!(at.state("k"), "committed");
    at.home.tamper(&format!("GRANT DELETE ON :effects, :history, :output TO {role}"));
    at.home.tamper(&format!("GRANT UPDATE (attempt_floor) ON :store TO {role}"));
    assert_eq!(
        one(&as_role(&role), "rights"),
        format!("{role} may run effects, and forget them; may not run workflows")
    );
    let of_runs = ["runs", "run_history", "inbox", "dispatches", "wakeups"];
    let of_runs = of_runs.map(|table| format!("{schema}.{table}")).join(", ");
    at.home.tamper(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {of_runs} TO {role}"));
    assert_eq!(
        one(&as_role(&role), "rights"),
        format!("{role} may run effects and workflows, and forget effects")
    );
    let out = run(&forget);
    assert_eq!((out.code, at.show("k")), (Some(0), Value::Null), "{out:?}");
}

#[test]
fn who_may_only_look_runs_no_probe() {
    // DEC-5, case 44: the answer could not be kept, and a probe that is final changes the world.
    if !Kind::Postgres.is_here() {
        return;
    }
    let at = Place::new(Kind::Postgres);
    assert_eq!(finish(&mut at.run("k", &[], "exit 28")).code, Some(28));
    let schema = at.store().rsplit_once("schema=").unwrap().1.to_owned();
    let role = format!("{schema}_looks");
    at.home.tamper(&format!("CREATE ROLE {role} LOGIN"));
    at.home.tamper(&format!("GRANT USAGE ON SCHEMA {schema} TO {role}"));
    at.home.tamper(&format!("GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"));
    let url = at.store().replace("postgres@", &format!("{role}@"));
    let probe = format!("echo asked >>{}; echo committed", at.env.path("asked").display());
    let reconcile = |words: &[&str]| {
        let mut command = at.env.command(words);
        finish(command.args(["--store", &url, "--reconcile", &probe]))
    };
    for words in [&["reconcile", "k"][..], &["reconcile", "--all"]] {
        let out = reconcile(words);
        assert_eq!(out.code, Some(77), "{out:?}");
        let told = format!("{role} may not INSERT on \"{schema}\".effects");
        assert!(out.stderr.contains(&told), "{out:?}");
    }
    assert!(!at.env.path("asked").exists());
    assert_eq!(at.state("k"), "ambiguous");
    // What it is told to be granted is enough.
    at.home.tamper(&format!("GRANT INSERT ON :effects, :history, :output TO {role}"));
    at.home.tamper(&format!("GRANT UPDATE ON :effects, :output TO {role}"));
    let out = reconcile(&["reconcile", "--all"]);
    assert_eq!((out.code, at.state("k").as_str()), (Some(0), "committed"), "{out:?}");
    assert!(at.env.path("asked").exists());
}
