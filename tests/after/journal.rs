//! The journal (AFT-1 to AFT-5; case 34).
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::at::{Kind, MARK, Place, on_every_store, until};
use crate::common::{Output, finish};
use crate::real::behind;
use crate::{configure, journaled, lines, run, with};

on_every_store!(
    every_attempt_has_a_line_before_and_a_line_after,
    a_journal_that_cannot_be_opened_runs_nothing,
    a_line_that_does_not_fit_runs_nothing,
    killed_between_the_begin_and_the_child_the_line_is_there,
    a_journal_that_fails_after_the_child_is_a_warning,
    stopped_in_between_for_longer_than_the_lease_nothing_runs,
);

fn every_attempt_has_a_line_before_and_a_line_after(kind: Kind) {
    // AFT-1, AFT-5
    let at = Place::new(kind);
    let file = journaled(&at);
    assert_eq!(run(&at, "a", &["--attempt-id", "mine"], MARK).code, Some(0));
    assert_eq!(run(&at, "b", &["--not-executed", "3"], "exit 3").code, Some(3));
    assert_eq!(run(&at, "c", &[], "exit 4 # secret").code, Some(4));
    let words = ["/no/such/program"];
    assert_eq!(finish(with(&at, &mut at.run_words("d", &[], &words))).code, Some(127));
    // A replay and a refusal are no attempts.
    assert_eq!(run(&at, "a", &[], MARK).code, Some(0));
    assert_eq!(run(&at, "a", &[], "false").code, Some(65));
    let told = lines(&file);
    let is = |line: &serde_json::Value| {
        format!("{} {} {}", line["key"], line["event"], line["word"]).replace('"', "")
    };
    let said: Vec<String> = told.iter().map(is).collect();
    assert_eq!(
        said,
        [
            "a began null",
            "a settled committed",
            "b began null",
            "b settled failed",
            "c began null",
            "c settled ambiguous",
            "d began null",
            "d settled failed"
        ]
    );
    assert_eq!((&told[0]["attempt_id"], &told[0]["attempt"]), (&"mine".into(), &1.into()));
    let shown = at.show("a");
    for field in ["fingerprint", "idempotency_key"] {
        assert_eq!(told[0][field], shown[field], "{field}");
    }
    assert_eq!((&told[1]["stored"], &told[5]["detail"]), (&"ours".into(), &"exited 4".into()));
    assert_eq!(told[0]["reservation_id"], told[1]["reservation_id"]);
    assert!(!fs::read_to_string(&file).unwrap().contains("secret"));
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// It ran nothing, reserved nothing, and says so with 69.
fn refused(at: &Place, key: &str, out: &Output) {
    assert_eq!(out.code, Some(69), "{out:?}");
    assert!(out.stderr.contains("nothing was run: the journal"), "{out:?}");
    assert_eq!((at.marks(), at.state(key).as_str()), (0, ""), "{out:?}");
}

fn a_journal_that_cannot_be_opened_runs_nothing(kind: Kind) {
    // AFT-3, AFT-5
    let at = Place::new(kind);
    let file = at.env.path("log/journal.jsonl");
    configure(&at, "[journal]\nfile = \"log/journal.jsonl\"\n");
    let out = run(&at, "k", &["--exit", "outcome"], MARK);
    refused(&at, "k", &out);
    assert!(out.stderr.contains("mkdir -p ") && !file.exists(), "{out:?}");
    fs::create_dir(file.parent().unwrap()).unwrap();
    mkfifo(&file, Mode::S_IRWXU).unwrap();
    refused(&at, "k", &run(&at, "k", &[], MARK));
    fs::remove_file(&file).unwrap();
    symlink("/dev/null", &file).unwrap();
    refused(&at, "k", &run(&at, "k", &[], MARK));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    refused(&at, "k", &run(&at, "k", &[], MARK));
    fs::remove_dir(&file).unwrap();
    assert_eq!(run(&at, "k", &[], MARK).code, Some(0));
    assert_eq!((at.marks(), lines(&file).len()), (1, 2));
}

/// Fills a journal with empty lines, which say nothing, up to this size.
fn fill(file: &Path, size: usize) {
    fs::write(file, "\n".repeat(size)).unwrap();
}

fn a_line_that_does_not_fit_runs_nothing(kind: Kind) {
    // AFT-3, AFT-5: the limit is the journal's alone, every other file is smaller.
    const SIZE: usize = 64 << 20;
    let at = Place::new(kind);
    let file = journaled(&at);
    fill(&file, SIZE);
    let limit = format!("--fsize={}", SIZE + 100);
    let run_limited = |flags: &[&str]| {
        let mut command = at.run("k", flags, MARK);
        finish(&mut behind(&["prlimit", &limit], with(&at, &mut command)))
    };
    for flags in [[].as_slice(), &["--exit", "outcome"]] {
        let out = run_limited(flags);
        assert_eq!(out.code, Some(69), "{out:?}");
        assert!(out.stderr.contains("did not happen"), "{out:?}");
        assert!(out.stderr.contains("the journal cannot be written"), "{out:?}");
        assert_eq!((at.marks(), at.state("k").as_str()), (0, "failed"));
    }
    // The torn line swallows none of those behind it.
    assert!(!fs::read(&file).unwrap().ends_with(b"\n"));
    assert_eq!(run(&at, "k", &[], MARK).code, Some(0));
    assert_eq!(at.marked(), ["3"]);
    let out = at.ask(&["doctor", "--journal", file.to_str().unwrap(), "--json"]);
    let told: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    let checks = told["checks"].as_array().unwrap();
    let said = checks.iter().find(|check| check["check"] == "journal against store").unwrap();
    let expected = "1 attempt, 1 torn, whose attempts were not started; nothing is forgotten";
    assert_eq!(said["found"], expected, "{told}");
}

fn killed_between_the_begin_and_the_child_the_line_is_there(kind: Kind) {
    // AFT-2
    let at = Place::scratch(kind);
    let file = journaled(&at);
    let mut command = at.run("k", &["--lease", "1s"], MARK);
    let holder = at.start(with(&at, &mut command).env("CTRLRUN_STOP_AT", "after-begin"));
    holder.stopped();
    let told = lines(&file);
    assert_eq!((told.len(), &told[0]["event"]), (1, &"began".into()), "{told:?}");
    assert_eq!((at.marks(), at.state("k").as_str()), (0, "executing"));
    holder.kill();
    at.lapsed("k");
    // The store knows of it: that is for a person, and nothing that was forgotten.
    let out = finish(with(&at, &mut at.ctrlrun(&["doctor", "--journal"])));
    assert_eq!(out.code, Some(0), "{out:?}");
}

fn stopped_in_between_for_longer_than_the_lease_nothing_runs(kind: Kind) {
    // AFT-2: whatever the journal takes counts against the lease (EXE-8).
    let at = Place::scratch(kind);
    let file = journaled(&at);
    let mut command = at.run("k", &["--lease", "1s"], MARK);
    let holder = at.start(with(&at, &mut command).env("CTRLRUN_STOP_AT", "after-begin"));
    holder.stopped();
    at.lapsed("k");
    holder.go_on();
    let out = holder.end();
    assert_eq!((out.code, at.marks()), (Some(75), 0), "{out:?}");
    let told = lines(&file);
    assert_eq!((told.len(), &told[1]["word"]), (2, &"failed".into()), "{told:?}");
}

fn a_journal_that_fails_after_the_child_is_a_warning(kind: Kind) {
    // AFT-4
    let at = Place::new(kind);
    let file = journaled(&at);
    let out = run(&at, "k", &[], &[MARK, "rm -r \"$PLACE/log\""].concat());
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(out.stderr.contains("warning: the journal"), "{out:?}");
    assert!(out.stderr.contains("this outcome is not in it"), "{out:?}");
    assert_eq!(at.state("k"), "committed");
    assert!(!file.exists());
}

#[test]
fn the_line_is_on_the_disk_before_the_child_is() {
    // AFT-2
    let at = Place::new(Kind::Sqlite);
    let file = journaled(&at);
    let trace = at.env.path("trace");
    let mut command = at.run_words("k", &[], &["/bin/true"]);
    let calls = "--trace=fsync,fdatasync,execve,write";
    let path = trace.to_str().unwrap();
    let traced = &mut behind(&["strace", "-f", "-y", calls, "-o", path], with(&at, &mut command));
    assert_eq!(finish(traced).code, Some(0));
    let text = fs::read_to_string(&trace).unwrap();
    let place = |what: &str, of: &str| {
        let found = text.lines().position(|line| line.contains(what) && line.contains(of));
        found.unwrap_or_else(|| panic!("{what} {of}: {text}"))
    };
    let journal = file.to_str().unwrap();
    let written = place("write(", journal);
    let synced = place("fdatasync(", journal);
    let folder = place("fsync(", &format!("<{}>", file.parent().unwrap().display()));
    let started = place("execve(\"/bin/true\"", "");
    assert!(folder < written && written < synced && synced < started, "{text}");
    // The begin is durable in the store before any of it.
    let stored = text.lines().take(written).filter(|line| line.contains("effects.db-wal"));
    assert!(stored.filter(|line| line.contains("sync(")).count() >= 2, "{text}");
}

#[test]
fn many_processes_write_whole_lines() {
    // AFT-5
    const PROCESSES: usize = 24;
    let at = Place::new(Kind::Sqlite);
    let file = journaled(&at);
    let all: Vec<_> = (0..PROCESSES)
        .map(|number| at.start(with(&at, &mut at.run(&format!("k{number}"), &[], MARK))))
        .collect();
    for one in all {
        let out = one.end();
        assert_eq!(out.code, Some(0), "{out:?}");
    }
    assert_eq!((at.marks(), lines(&file).len()), (PROCESSES, 2 * PROCESSES));
}

#[test]
fn a_journal_can_be_renamed_away_at_any_time() {
    // AFT-5, AFT-6
    let at = Place::new(Kind::Sqlite);
    let file = journaled(&at);
    let script = [MARK, crate::at::HOLD].concat();
    let holder = at.start(with(&at, &mut at.run("k", &[], &script)));
    until("it runs", || at.marks() == 1);
    let old = file.with_extension("old");
    fs::rename(&file, &old).unwrap();
    at.go();
    assert_eq!(holder.end().code, Some(0));
    assert_eq!((lines(&old).len(), lines(&file).len()), (1, 1));
    // Together they know all of it, in whichever order they are given.
    at.home.tamper("DELETE FROM :history");
    at.home.tamper("DELETE FROM :effects");
    let (file, old) = (file.to_str().unwrap(), old.to_str().unwrap());
    for files in [[file, old], [old, file]] {
        let out = at.ask(&[&["doctor", "--journal"], files.as_slice()].concat());
        assert!(out.stdout.contains("COMMITTED (happened)"), "{out:?}");
        assert!(!out.stdout.contains("has no outcome"), "{out:?}");
    }
}
