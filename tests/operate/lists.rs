//! Lists: their order, what is cut, what is advised, and that no text from outside reaches the
//! terminal as it is (OPS-12, OPS-13, CLI-5).
use std::fs;
use std::path::Path;

use crate::at::{Kind, MARK, Place, on_every_store};
use crate::common::{Output, finish};

on_every_store!(the_oldest_come_first, no_control_character_reaches_the_terminal);

fn keys(out: &Output) -> Vec<String> {
    let lines = out.stdout.lines().skip(1);
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

fn the_oldest_come_first(kind: Kind) {
    // OPS-12
    let at = Place::new(kind);
    for (key, days) in [("a", 1), ("b", 3), ("c", 0), ("d", 2)] {
        finish(&mut at.run(key, &[], "exit 3"));
        at.home.age(key, days);
    }
    let by_age = at.ask(&["effects", "--sort", "age"]);
    assert_eq!(
        (by_age.code, keys(&by_age)),
        (Some(0), vec!["b", "d", "a", "c"].into_iter().map(String::from).collect())
    );
    assert_eq!(keys(&at.ask(&["effects"])), ["a", "b", "c", "d"]);
    let two = at.ask(&["effects", "--stuck", "--sort", "age", "--limit", "2"]);
    assert_eq!(keys(&two), ["b", "d"]);
    assert!(two.stderr.contains("the list is cut after 2 effects"), "{two:?}");
    let all = at.ask(&["effects", "--sort", "age", "--limit", "4"]);
    assert_eq!((keys(&all).len(), all.stderr.as_str()), (4, ""));
    let old = at.ask(&["effects", "--older-than", "2d", "--sort", "age", "--json"]);
    assert_eq!(old.stdout.lines().count(), 2, "{old:?}");
}

/// What a terminal would act upon, and what would hide text from a person.
fn harmful(text: &str) -> Option<char> {
    text.chars().find(|c| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}' | '\u{feff}')
    })
}

fn no_control_character_reaches_the_terminal(kind: Kind) {
    // OPS-12, CLI-5
    const EVIL: &str = "\u{1b}]0;x\u{7}\u{1b}[2J\r\u{9b}31m\u{202e}\u{200b}\u{7f}";
    let at = Place::new(kind);
    // Everything that a person, a script or another host may have put there.
    let folder = at.env.path("here").join(format!("dir{EVIL}"));
    fs::create_dir(&folder).unwrap();
    let script = folder.join(format!("cmd{EVIL}"));
    fs::write(&script, format!("#!/bin/sh\nprintf '%s\\n' '{EVIL}' >&2\nexit 3\n")).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let label = format!("l{EVIL}=v{EVIL}");
    let id = format!("id{EVIL}");
    let mut run = at.run_words(
        "k",
        &["--label", &label, "--attempt-id", &id],
        &[script.to_str().unwrap(), EVIL],
    );
    run.env("USER", format!("u{EVIL}")).current_dir(&folder);
    assert_eq!(finish(&mut run).code, Some(3));
    // In a table of the store itself: what another version, or another program, has left.
    at.home.tamper(&format!("UPDATE :effects SET detail='said {EVIL}' WHERE effect_key='k'"));
    let reason = format!("because {EVIL}");
    let by = format!("by{EVIL}");
    let resolve = |decision: &str, revision: &str| {
        at.ask(&["resolve", "k", decision, "--expect", revision, "--reason", &reason, "--by", &by])
    };
    let told = [resolve("--committed", "3"), resolve("--reopen", "4"), resolve("--committed", "3")];
    assert_eq!(told.each_ref().map(|out| out.code), [Some(0), Some(0), Some(79)]);
    // A row that cannot be read has a key that cannot be one.
    at.home.tamper(&format!("UPDATE :effects SET effect_key='bad{EVIL}' WHERE effect_key='l'"));
    finish(&mut at.run("l", &[], "true"));
    at.home.tamper(&format!("UPDATE :effects SET effect_key='bad{EVIL}' WHERE effect_key='l'"));
    // And the spool of this host.
    fs::create_dir_all(at.spool()).unwrap();
    let missing = format!("no{EVIL}");
    let spool = at.spool();
    let name = |store: &str| spool.join(format!("{store}-{EVIL}.json"));
    fs::write(name("x"), "not ours").unwrap();
    let no_store = at.env.path("here").join(&missing);
    let no_store: &Path = &no_store;
    let no_store = no_store.to_str().unwrap();
    for words in [
        &["effects"][..],
        &["effects", "--stuck"],
        &["effects", "--sort", "age"],
        &["effects", "--prefix", EVIL],
        &["effects", "--json"],
        &["show", "k"],
        &["show", "k", "--json"],
        &["show", &missing],
        &["show", &missing, "--json"],
        &["history", "k"],
        &["history", "k", "--json"],
        &["history", &missing],
        &["output", &missing],
        &["output", "k", "--attempt", "9"],
        &["stats"],
        &["stats", "--json"],
        &["stats", "--prometheus"],
        &["doctor", "--deep"],
        &["doctor", "--deep", "--json"],
        &["prune", "--older-than", "0s", "--dry-run", "--prefix", EVIL],
        &["help", &missing],
        &["effects", "--state", EVIL],
        &["effects", &format!("--x{EVIL}")],
        &[&missing],
        &["run", "-k", "k", "--dry-run", "--", EVIL],
    ] {
        for place in [at.store(), no_store] {
            for colour in ["never", "auto"] {
                let mut command = at.env.command(words);
                command.args(["--color", colour]).env("CTRLRUN_STORE", place);
                let out = finish(&mut command);
                for text in [&out.stdout, &out.stderr] {
                    let bad = harmful(text);
                    assert!(bad.is_none(), "{words:?} on {place:?}: {bad:?} in {text:?}");
                }
            }
        }
    }
    // The stored output is the command's, byte for byte.
    let raw = at.ask(&["output", "k", "--stderr"]);
    assert!(raw.stdout.contains(EVIL), "{raw:?}");
}

#[test]
fn a_long_reason_is_cut_in_tables_and_whole_where_it_is_asked_for() {
    // OPS-12
    let at = Place::new(Kind::Sqlite);
    finish(&mut at.run("k", &[], "exit 3"));
    let long = "why ".repeat(25_000);
    let resolve = at.ask(&["resolve", "k", "--committed", "--expect", "3", "--reason", &long]);
    assert_eq!(resolve.code, Some(0));
    for words in [&["effects"][..], &["history", "k"]] {
        let out = at.ask(words);
        assert!(
            out.stdout.len() < 2_000 && out.stdout.contains('…'),
            "{words:?}: {}",
            out.stdout.len()
        );
    }
    for words in [
        &["show", "k"][..],
        &["show", "k", "--json"],
        &["effects", "--json"],
        &["history", "k", "--json"],
    ] {
        let out = at.ask(words);
        let words_kept = out.stdout.matches("why").count();
        assert!(words_kept >= 25_000, "{words:?}: {words_kept}");
    }
}

#[test]
fn of_a_misspelled_flag_the_nearest_is_suggested() {
    // OPS-12
    let at = Place::new(Kind::Sqlite);
    let told = |words: &[&str]| {
        let out = at.env.run(words);
        assert_eq!(out.code, Some(64), "{out:?}");
        out.stderr
    };
    let run = told(&["run", "--kee", "k", "--", "true"]);
    assert!(run.contains("  did you mean: --key?\n"), "{run}");
    assert!(!run.contains("as a value"), "{run}");
    let show = told(&["show", "k", "--chekc"]);
    assert!(show.contains("  did you mean: --check?\n") && !show.contains("-- --"), "{show}");
    let sub = told(&["efects"]);
    assert!(sub.contains("  did you mean: effects?\n"), "{sub}");
    let none = told(&["run", "--frobnicate", "--", "true"]);
    assert!(!none.contains("as a value"), "{none}");
}

#[test]
fn another_command_after_a_failure_is_told() {
    // OPS-13, EFF-11
    let at = Place::new(Kind::Sqlite);
    let run = |flags: &[&str], script: &str| {
        finish(&mut at.run("k", &[&["--not-executed", "11"], flags].concat(), script))
    };
    assert_eq!(run(&[], "exit 11").code, Some(11));
    let same = run(&[], "exit 11");
    assert!(!same.stderr.contains("another command"), "{same:?}");
    let other = run(&[], &format!("{MARK} exit 11"));
    let line = "k: attempt 3 ran another command than the one before, which had failed: sh, 2 \
                arguments, before sh, 2 arguments\n";
    assert!(other.stderr.contains(line), "{other:?}");
    // What a person decided, and --rebind, are words enough.
    run(&[], "exit 3");
    at.resolve("k", "--not-executed");
    let rebound = run(&["--rebind"], "exit 11");
    assert!(!rebound.stderr.contains("another command"), "{rebound:?}");
    let quiet = run(&["-q"], "exit 0");
    assert!(!quiet.stderr.contains("another command"), "{quiet:?}");
    assert_eq!(at.state("k"), "committed");
}
