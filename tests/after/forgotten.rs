//! A store that was restored, or made anew, held against the journal (AFT-6, AFT-7; case 34).
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::at::{HOLD, Kind, MARK, Place, on_every_store, until};
use crate::common::finish;
use crate::{configure, journaled, lines, run, with};

on_every_store!(
    what_the_store_has_forgotten_is_told_with_its_mend,
    a_number_that_was_granted_again_is_told,
    what_goes_on_and_what_was_pruned_is_no_finding,
    an_attempt_above_the_record_s_is_lost,
);

/// `doctor --journal --json`: what is forgotten, by key and kind, and the answer.
fn forgotten(at: &Place) -> (Vec<String>, Value) {
    let out = finish(with(at, &mut at.ctrlrun(&["doctor", "--journal", "--json"])));
    let told: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|_| panic!("{out:?}"));
    let found = told["journal"].as_array().unwrap();
    let name = |one: &Value| format!("{} {}", one["key"], one["forgotten"]).replace('"', "");
    let found: Vec<String> = found.iter().map(name).collect();
    assert_eq!(out.code, Some(i32::from(told["findings"] != 0)), "{out:?}");
    assert_eq!(found.is_empty(), said(&told).1, "{told}");
    (found, told)
}

/// What was read, and whether it is well.
fn said(told: &Value) -> (String, bool) {
    let checks = told["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == "journal against store").unwrap();
    (check["found"].as_str().unwrap().to_owned(), check["ok"] == true)
}

/// The store loses a key, as one does that is restored from a backup.
fn lose(at: &Place, key: &str) {
    at.home.tamper(&format!("DELETE FROM :history WHERE effect_key='{key}'"));
    at.home.tamper(&format!("DELETE FROM :effects WHERE effect_key='{key}'"));
}

/// Takes away what a journal says of an outcome, as a crash does before it is written.
fn without_outcome(file: &Path, key: &str) {
    let text = fs::read_to_string(file).unwrap();
    let out = format!("\"key\":\"{key}\"");
    let kept = text.lines().filter(|line| !(line.contains(&out) && line.contains("settled")));
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    fs::write(file, kept).unwrap();
}

fn what_the_store_has_forgotten_is_told_with_its_mend(kind: Kind) {
    // AFT-6, AFT-7
    let at = Place::new(kind);
    let file = journaled(&at);
    for (key, script) in
        [("a", MARK), ("b", "exit 5"), ("c", "exit 3"), ("stays", MARK), ("z", MARK)]
    {
        run(&at, key, &["--not-executed", "3"], script);
    }
    let (found, told) = forgotten(&at);
    assert!(found.is_empty(), "{told}");
    assert_eq!(said(&told).0, "5 attempts; nothing is forgotten");
    without_outcome(&file, "z");
    for key in ["a", "b", "c", "z"] {
        lose(&at, key);
    }
    let before = (at.dump(), fs::read(&file).unwrap());
    let (found, told) = forgotten(&at);
    // First what has no outcome; what did not happen may run again, and is not told.
    assert_eq!(found, ["z attempt", "a attempt", "b attempt"], "{told}");
    assert_eq!(said(&told).0, "5 attempts, 3 FORGOTTEN");
    assert_eq!(before, (at.dump(), fs::read(&file).unwrap()), "nothing is written");
    // What it says to type keeps the key from running again.
    let marks = at.marks();
    for one in told["journal"].as_array().unwrap() {
        let typed = one["next"][0].as_str().unwrap();
        let out = finish(&mut crate::real::words(&at, &["sh", "-c", typed]));
        assert!([Some(0), Some(1)].contains(&out.code), "{typed}: {out:?}");
        let key = one["key"].as_str().unwrap();
        let again = run(&at, key, &[], MARK);
        assert_eq!((again.code, at.marks()), (Some(65), marks), "{typed}: {again:?}");
    }
    let (found, told) = forgotten(&at);
    assert!(found.is_empty(), "what was decided is not asked for ever: {told}");
    // Also behind a decision, and a further attempt.
    at.resolve("z", "--not-executed");
    assert_eq!(run(&at, "z", &["--rebind"], MARK).code, Some(0));
    assert!(forgotten(&at).0.is_empty());
    assert_eq!((at.state("a").as_str(), at.state("b").as_str()), ("committed", "ambiguous"));
}

fn a_number_that_was_granted_again_is_told(kind: Kind) {
    // AFT-6: it ran, was forgotten, and ran again.
    let at = Place::new(kind);
    journaled(&at);
    assert_eq!(run(&at, "k", &[], MARK).code, Some(0));
    lose(&at, "k");
    assert_eq!(run(&at, "k", &[], MARK).code, Some(0));
    assert_eq!(at.marked(), ["1", "1"]);
    let (found, told) = forgotten(&at);
    assert_eq!(found, ["k granted_again"], "{told}");
    let out = finish(with(&at, &mut at.ctrlrun(&["doctor", "--journal"])));
    assert!(out.stdout.contains("it may have come about twice: ctrlrun history k"), "{out:?}");
}

fn what_goes_on_and_what_was_pruned_is_no_finding(kind: Kind) {
    // AFT-6, AFT-7
    let at = Place::new(kind);
    let file = journaled(&at);
    assert_eq!(run(&at, "old", &[], MARK).code, Some(0));
    let pruned = at.ask(&["prune", "--older-than", "0s", "--forget-keys", "--yes"]);
    assert_eq!(pruned.code, Some(0), "{pruned:?}");
    assert_eq!(run(&at, "again", &["--not-executed", "3"], "exit 3").code, Some(3));
    assert_eq!(run(&at, "again", &["--not-executed", "3", "--bind", "2"], "exit 9").code, Some(9));
    let holder = at.start(with(&at, &mut at.run("k", &[], &[MARK, HOLD].concat())));
    until("it runs", || at.marks() == 2);
    fs::write(&file, fs::read_to_string(&file).unwrap() + "{\"v\":1,\"at\":\"2026").unwrap();
    let (found, told) = forgotten(&at);
    assert!(found.is_empty(), "{told}");
    assert_eq!(
        said(&told).0,
        "4 attempts, 1 pruned since, 1 torn, whose attempts were not started; nothing is forgotten"
    );
    at.go();
    assert_eq!(holder.end().code, Some(0));
    assert!(forgotten(&at).0.is_empty());
    // A new life of the pruned key is no doubt about its old one.
    assert_eq!(run(&at, "old", &[], "exit 9").code, Some(9));
    assert!(forgotten(&at).0.is_empty());
}

fn an_attempt_above_the_record_s_is_lost(kind: Kind) {
    // AFT-6
    let at = Place::new(kind);
    let file = journaled(&at);
    assert_eq!(run(&at, "k", &["--not-executed", "3"], "exit 3").code, Some(3));
    let mut text = fs::read_to_string(&file).unwrap();
    // What a second attempt would have written, which a restored store does not have.
    let second = text.lines().last().unwrap().replace("\"attempt\":1", "\"attempt\":2");
    text += &second.replace("\"failed\"", "\"committed\"");
    fs::write(&file, text + "\n").unwrap();
    let (found, told) = forgotten(&at);
    assert_eq!(found, ["k attempt"], "{told}");
    let typed = told["journal"][0]["next"][0].as_str().unwrap();
    assert!(typed.starts_with("ctrlrun resolve k --reopen --expect 3 "), "{typed}");
}

#[test]
fn an_outcome_that_a_backup_does_not_have_is_told() {
    // AFT-6
    let at = Place::new(Kind::Sqlite);
    journaled(&at);
    let script = [MARK, HOLD].concat();
    let holder = at.start(with(&at, &mut at.run("k", &["--lease", "1s"], &script)));
    until("it runs", || at.marks() == 1);
    let backup = at.env.path("backup.db");
    at.connect().execute("VACUUM INTO ?1", [backup.to_str().unwrap()]).unwrap();
    at.go();
    assert_eq!(holder.end().code, Some(0));
    assert!(forgotten(&at).0.is_empty());
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", at.file().display()));
    }
    fs::copy(&backup, at.file()).unwrap();
    at.lapsed("k");
    let (found, told) = forgotten(&at);
    assert_eq!(found, ["k outcome"], "{told}");
    let next = told["journal"][0]["next"].as_array().unwrap();
    assert!(next.iter().any(|one| one.as_str().unwrap().contains("--committed")), "{told}");
    assert!(!next.iter().any(|one| one.as_str().unwrap().contains("--not-executed")), "{told}");
}

#[test]
fn a_store_that_was_made_anew_in_the_same_place_is_held_against_what_was_there() {
    // AFT-6
    let at = Place::new(Kind::Sqlite);
    journaled(&at);
    let other = Place::new(Kind::Sqlite);
    assert_eq!(run(&at, "k", &[], MARK).code, Some(0));
    // A journal may be that of several stores.
    let mut elsewhere = other.run("k", &[], "true");
    assert_eq!(finish(with(&at, &mut elsewhere)).code, Some(0));
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", at.file().display()));
    }
    assert_eq!(at.ask(&["init"]).code, Some(0));
    let (found, told) = forgotten(&at);
    assert_eq!(found, ["k attempt"], "{told}");
    assert_eq!(said(&told).0, "1 attempt, 1 of other stores, 1 FORGOTTEN");
}

#[test]
fn a_line_that_is_damaged_is_named() {
    // AFT-7
    let at = Place::new(Kind::Sqlite);
    let file = journaled(&at);
    assert_eq!(run(&at, "k", &[], MARK).code, Some(0));
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{{\"x\": \u{1b}[2J}}\n{text}")).unwrap();
    let out = finish(with(&at, &mut at.ctrlrun(&["doctor", "--journal"])));
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stdout.contains("1 unreadable"), "{out:?}");
    assert!(out.stdout.contains("journal.jsonl:1\n"), "{out:?}");
    assert!(!out.stdout.contains('\u{1b}'));
}

#[test]
fn the_journal_is_looked_at_without_being_read() {
    // AFT-6
    let at = Place::new(Kind::Sqlite);
    let check = || {
        let out = finish(with(&at, &mut at.ctrlrun(&["doctor", "--json"])));
        let told: Value = serde_json::from_str(&out.stdout).unwrap();
        let checks = told["checks"].as_array().unwrap();
        checks.iter().find(|check| check["check"] == "journal").unwrap().clone()
    };
    configure(&at, "");
    assert_eq!(check()["found"], "none");
    configure(&at, "[journal]\nfile = \"log/journal.jsonl\"\n");
    assert_eq!(check()["ok"], false, "its folder is not there");
    let file = journaled(&at);
    assert_eq!(check()["ok"], true, "it will be made");
    run(&at, "k", &[], MARK);
    assert_eq!(check()["ok"], true);
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    assert!(check()["finding"].as_str().unwrap().contains("chmod 600"));
    configure(&at, "");
    let out = finish(with(&at, &mut at.ctrlrun(&["doctor", "--journal"])));
    assert!(out.code == Some(1) && out.stdout.contains("there is no journal"), "{out:?}");
}

#[test]
fn the_list_is_no_longer_than_what_is_wanted() {
    // AFT-7: it comes as it is found; who has seen enough ends it.
    let at = Place::new(Kind::Sqlite);
    let file = journaled(&at);
    run(&at, "k", &[], MARK);
    let settled = lines(&file).remove(1).to_string();
    let many = (0..20_000).map(|n| settled.replace("\"k\"", &format!("\"k{n}\"")) + "\n");
    fs::write(&file, many.collect::<String>()).unwrap();
    let mut words = crate::real::words(
        &at,
        &["sh", "-c", "ctrlrun doctor --journal | grep -m1 -c 'does not know it'"],
    );
    let out = finish(with(&at, &mut words));
    assert_eq!(out.stdout, "1\n", "{out:?}");
    let (found, told) = forgotten(&at);
    assert_eq!(found.len(), 20_000);
    assert!(said(&told).0.ends_with("20,000 FORGOTTEN"), "{}", said(&told).0);
}
