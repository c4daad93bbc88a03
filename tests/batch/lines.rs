//! What becomes of each line.
use serde_json::json;

use crate::at::{Kind, MARK, Place, on_every_store, text};
use crate::common::finish;
use crate::{MARK_KEY, batch, file, line, marking, marks, run, summary};

on_every_store!(
    every_line_is_run_once_and_again_only_what_has_not_happened,
    a_key_that_comes_twice_runs_once_and_with_another_command_is_a_mismatch_of_its_line,
    t20_what_is_ambiguous_is_listed_and_not_run_and_failed_ones_run_again,
    groups_and_single_writes_leave_the_same_histories,
);

fn every_line_is_run_once_and_again_only_what_has_not_happened(kind: Kind) {
    // BAT-14, BAT-16, EFF-1
    let at = Place::new(kind);
    let lines = marking(60);
    let first = run(&at, &lines, &["-j4", "--json"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(summary(&first)["committed_now"], 60);
    let again = run(&at, &(lines + &line("k:60", MARK_KEY)), &["-j4", "--json"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(summary(&again)["committed_earlier"], 60);
    assert_eq!(summary(&again)["committed_now"], 1);
    assert_eq!(marks(&at).len(), 61);
    assert!(marks(&at).values().all(|marks| *marks == 1));
    // Each as a run of its own would have left it.
    assert_eq!(at.types("k:7"), ["reserved", "began", "committed"]);
    assert_eq!(at.show("k:7")["revision"], 3);
}

fn a_key_that_comes_twice_runs_once_and_with_another_command_is_a_mismatch_of_its_line(kind: Kind) {
    // BAT-12
    let at = Place::new(kind);
    let lines = [
        line("a", MARK_KEY),
        line("b", MARK_KEY),
        line("a", MARK_KEY),
        line("b", &format!("{MARK_KEY}:")),
        line("a", MARK_KEY),
    ]
    .concat();
    let out = run(&at, &lines, &["-j4", "--json"]);
    let told = summary(&out);
    assert_eq!(out.code, Some(1), "{out:?}");
    let counts = ["committed_now", "committed_earlier", "mismatch"].map(|name| told[name].clone());
    assert_eq!(counts, [json!(2), json!(2), json!(1)]);
    assert_eq!(at.marks(), 2);
    // By a person it is told which line it was: through a pipe, too.
    let again = at.env.run_with(["batch", "-", "-j4", "--store", at.store()], lines.as_bytes());
    assert!(again.stderr.contains("-:4: b: refused, nothing was run"), "{again:?}");
    assert!(!again.stderr.contains("-:2:"), "{again:?}");
}

fn t20_what_is_ambiguous_is_listed_and_not_run_and_failed_ones_run_again(kind: Kind) {
    // Case 20, BAT-14, BAT-17
    let at = Place::new(kind);
    let lines = [
        line("r:1", MARK_KEY),
        line("r:2", &format!("{MARK_KEY} exit 7")),
        line("r:3", &format!("{MARK_KEY} [ -e \"$PLACE/go\" ] || exit 11")),
        line("r:4", &format!("{MARK_KEY} exit 7")),
    ]
    .concat();
    let first = run(&at, &lines, &["-j2", "--not-executed", "11"]);
    assert_eq!(first.code, Some(76), "{first:?}");
    let counted =
        "4 effects: 1 committed now, 0 earlier, 1 did not happen, 2 AMBIGUOUS; 0 not started";
    assert!(first.stderr.contains(counted), "{}", first.stderr);
    assert!(first.stderr.contains("in.jsonl:2: r:2: AMBIGUOUS"), "{}", first.stderr);
    assert!(first.stderr.contains("ctrlrun effects --stuck --prefix r:"), "{}", first.stderr);
    at.go();
    let again = run(&at, &lines, &["-j2", "--not-executed", "11"]);
    assert_eq!(again.code, Some(76), "{again:?}");
    let counted = "1 committed now, 1 earlier, 0 did not happen, 2 AMBIGUOUS; 0 not started";
    assert!(again.stderr.contains(counted), "{}", again.stderr);
    assert!(again.stderr.contains("in.jsonl:4: r:4: AMBIGUOUS (may have happened)"), "{again:?}");
    let marks = marks(&at);
    assert_eq!((marks["r:1"], marks["r:2"], marks["r:3"], marks["r:4"]), (1, 1, 2, 1));
    // COMMITTED ones keep their first result.
    assert_eq!(at.show("r:1")["attempt"], 1);
    assert_eq!(at.show("r:3")["attempt"], 2);
}

fn groups_and_single_writes_leave_the_same_histories(kind: Kind) {
    // BAT-1, BAT-8: what was not loaded is what would have been.
    let at = Place::new(kind);
    let alone = finish(&mut at.run("alone", &[], MARK));
    assert_eq!(alone.code, Some(0));
    let out = run(&at, &line("batch", MARK), &["-j1"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    for (one, other) in at.history("alone").iter().zip(at.history("batch")) {
        let shape = |event: &serde_json::Value| {
            let data = event["data"].as_object().unwrap();
            (text(&event["type"]), data.keys().cloned().collect::<Vec<_>>())
        };
        assert_eq!(shape(one), shape(&other));
    }
    let show = at.show("batch");
    assert_eq!((text(&show["state"]), show["revision"].clone()), ("committed".into(), json!(3)));
    // No clock of its own: the begin is no later than the settle, by the store's.
    let at_times: Vec<String> =
        at.history("batch").iter().map(|event| text(&event["recorded_at"])).collect();
    assert!(at_times.is_sorted(), "{at_times:?}");
}

#[test]
fn a_line_that_cannot_be_started_is_failed_and_the_others_run() {
    // EXE-2, BAT-16
    let at = Place::new(Kind::Sqlite);
    let nothing = json!({ "key": "n", "command": ["./nothing"] }).to_string() + "\n";
    let out = run(&at, &(nothing + &line("k", MARK_KEY)), &[]);
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stderr.contains("in.jsonl:1: n: FAILED (did not happen)"), "{}", out.stderr);
    assert_eq!((at.state("n"), at.state("k")), ("failed".into(), "committed".into()));
}

#[test]
fn a_wrong_line_of_a_file_stops_everything_and_of_a_pipe_what_comes_after() {
    // INP-5, BAT-16
    let at = Place::new(Kind::Sqlite);
    let lines = format!("{}{{\"key\":\n{}", line("a", MARK_KEY), line("b", MARK_KEY));
    let out = run(&at, &lines, &[]);
    assert_eq!((out.code, at.marks()), (Some(64), 0), "{out:?}");
    let mut piped = at.ctrlrun(&["batch"]);
    let out = crate::at::fed(&mut piped, lines.into_bytes());
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(64), "{told}");
    assert!(told.contains("-:2"), "{told}");
    assert!(told.contains("1 committed now"), "{told}");
    assert_eq!(at.marked(), ["a"]);
}

#[test]
fn a_dry_run_says_what_would_happen_and_changes_nothing() {
    // BAT-18
    let at = Place::new(Kind::Sqlite);
    let out = run(&at, &[line("a", MARK_KEY), line("s", "exit 7")].concat(), &["-q"]);
    assert_eq!(out.code, Some(76), "{out:?}");
    let before = at.dump();
    let lines = [
        line("a", MARK_KEY),
        line("b", MARK_KEY),
        line("b", ":"),
        line("s", "exit 7"),
        line("a", MARK_KEY),
    ]
    .concat();
    let file = file(&at, &lines);
    let out = finish(&mut batch(&at, &file, &["--dry-run"]));
    assert_eq!(out.code, Some(76), "{out:?}");
    let told = "would run 1, replay 2, leave 1 AMBIGUOUS, refuse 1; nothing was run";
    assert!(out.stderr.contains(told), "{}", out.stderr);
    let told = "in.jsonl:3: b: same key as line 2, other command: would refuse";
    assert!(out.stderr.contains(told), "{}", out.stderr);
    assert_eq!((at.dump(), at.marks()), (before, 1));
}

#[test]
fn a_dry_run_looks_into_the_spool_and_at_the_journal_as_a_run_would() {
    // BAT-18, CLI-13, EXE-25, AFT-3
    let at = Place::new(Kind::Sqlite);
    let soon = ["--store-timeout", "200ms", "--lease", "2s"];
    let hold = [crate::at::MARK, crate::at::HOLD].concat();
    let holding = ["done", "gone"].map(|key| at.start(&mut at.run(key, &soon, &hold)));
    crate::at::until("both have marked", || at.marks() == 2);
    at.home.away();
    at.go();
    for holding in holding {
        assert_eq!(holding.end().code, Some(74));
    }
    at.home.back();
    // The store forgets one of them: its word then stands in the way of its key.
    for table in ["effects", "history", "output"] {
        let forget = format!("DELETE FROM {table} WHERE effect_key = 'gone'");
        assert!(at.connect().execute(&forget, []).is_ok());
    }
    let spooled = at.spooled(&at.spool());
    let before = (at.dump(), at.marks(), spooled.len());
    assert_eq!(before.2, 2);
    let lines = [line("done", &hold), line("gone", &hold), line("new", &hold)].concat();
    let file = file(&at, &lines);
    let out = finish(&mut batch(&at, &file, &["--dry-run"]));
    let told = "would run 1, replay 1, leave 0 AMBIGUOUS, refuse 1; nothing was run";
    assert!(out.code == Some(1) && out.stderr.contains(told), "{out:?}");
    assert!(out.stderr.contains("in.jsonl:2: gone: an outcome of it is in the spool"), "{out:?}");
    assert_eq!((at.dump(), at.marks(), at.spooled(&at.spool()).len()), before);
    // A journal that cannot be written would run nothing: both dry runs say so, and make none.
    let config = at.env.path("c.toml");
    let journal = at.env.path("away/journal.jsonl");
    std::fs::write(&config, format!("[journal]\nfile = {journal:?}\n")).unwrap();
    for mut command in [batch(&at, &file, &["--dry-run"]), at.run("new", &["--dry-run"], &hold)] {
        let out = finish(command.env("CTRLRUN_CONFIG", &config));
        let told = "cannot be written";
        assert!(out.code == Some(69) && out.stderr.contains(told), "{out:?}");
        assert!(out.stderr.contains("mkdir -p"), "{out:?}");
    }
    assert!(!journal.exists());
    std::fs::create_dir(at.env.path("away")).unwrap();
    let out = finish(at.run("new", &["--dry-run"], &hold).env("CTRLRUN_CONFIG", &config));
    assert_eq!((out.code, journal.exists()), (Some(0), false), "{out:?}");
}

#[test]
fn retries_that_an_effect_declares_are_not_made_and_that_is_said_once() {
    // BAT-14
    let at = Place::new(Kind::Sqlite);
    let config = at.env.path("c.toml");
    let text = "[effect.e]\nkey = \"e:{id}\"\nnot_executed = [7]\nretries = 2\n\
        command = [\"sh\", \"-c\", \"echo x >>$PLACE/marker; exit 7\", \"e\", \"{id}\"]\n";
    std::fs::write(&config, text).unwrap();
    let of = |id: usize| format!("{{\"effect\":\"e\",\"params\":{{\"id\":\"{id}\"}}}}\n");
    let file = file(&at, &(1..=3).map(of).collect::<String>());
    let out = finish(batch(&at, &file, &[]).arg("--config").arg(&config));
    assert_eq!((out.code, at.marks()), (Some(1), 3), "{out:?}");
    let told = "effect e: its 2 retries are not made in a batch";
    assert_eq!(out.stderr.matches(told).count(), 1, "{out:?}");
    // The same line again is what makes them.
    let out = finish(batch(&at, &file, &["-q"]).arg("--config").arg(&config));
    assert_eq!((out.code, at.marks()), (Some(1), 6), "{out:?}");
    assert!(!out.stderr.contains(told), "{out:?}");
}
