//! Programs that are told of an outcome (AFT-8 to AFT-11).
use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::at::{Kind, MARK, Place, number_in, on_every_store, process_state, until};
use crate::common::finish;
use crate::{configure, run, with};

on_every_store!(
    each_outcome_calls_its_hook_with_the_report,
    the_effects_of_a_batch_are_journaled_and_call_hooks,
    what_ran_nothing_calls_no_hook
);

/// Every hook appends a line: which one it is, and what it was given.
fn hooked(at: &Place) {
    let hook = |name: &str| {
        let script = format!(r#"printf '{name} ' >>"$PLACE/hooked"; cat >>"$PLACE/hooked""#);
        format!("{name} = [\"sh\", \"-c\", '''{script}''']\n")
    };
    let hooks = ["ambiguous", "failed", "committed"].map(hook).concat();
    configure(at, &format!("[hooks]\n{hooks}"));
}

/// What hooks were called, and with what.
fn told(at: &Place) -> Vec<(String, Value)> {
    let text = fs::read_to_string(at.env.path("hooked")).unwrap_or_default();
    let parts = text.lines().map(|line| line.split_once(' ').unwrap());
    parts.map(|(name, report)| (name.to_owned(), serde_json::from_str(report).unwrap())).collect()
}

fn each_outcome_calls_its_hook_with_the_report(kind: Kind) {
    // AFT-8, AFT-9
    let at = Place::new(kind);
    hooked(&at);
    let report = at.env.path("report");
    let flags = ["--report", report.to_str().unwrap(), "--not-executed", "3"];
    let out = run(&at, "a", &flags, &[MARK, "echo out"].concat());
    assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (Some(0), "out\n", ""));
    let same: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!(told(&at), [("committed".to_owned(), same)]);
    assert_eq!(
        run(&at, "b", &["--not-executed", "3", "--retries", "1", "--backoff", "1ms"], "exit 3")
            .code,
        Some(3)
    );
    assert_eq!(run(&at, "c", &[], "exit 9").code, Some(9));
    assert_eq!(run(&at, "d", &[], "kill -9 $$").signal, Some(9));
    let words = ["/no/such/program"];
    assert_eq!(finish(with(&at, &mut at.run_words("e", &[], &words))).code, Some(127));
    let is = |(name, report): &(String, Value)| {
        format!("{name} {} {} {}", report["key"], report["state"], report["exit_status"])
            .replace('"', "")
    };
    let said: Vec<String> = told(&at).iter().map(is).collect();
    assert_eq!(
        said,
        [
            "committed a committed 0",
            "failed b failed 3",
            "ambiguous c ambiguous 9",
            "ambiguous d ambiguous 137",
            "failed e failed 127"
        ]
    );
    assert_eq!(told(&at)[1].1["attempt"], 2, "of several retries the last");
}

fn what_ran_nothing_calls_no_hook(kind: Kind) {
    // AFT-8
    let at = Place::new(kind);
    configure(&at, "");
    assert_eq!(run(&at, "k", &[], MARK).code, Some(0));
    assert_eq!(run(&at, "l", &[], "exit 9").code, Some(9));
    hooked(&at);
    assert_eq!(run(&at, "k", &[], MARK).code, Some(0));
    assert_eq!(run(&at, "k", &["--on-committed", "refuse"], MARK).code, Some(73));
    assert_eq!(run(&at, "k", &[], "true").code, Some(65));
    assert_eq!(run(&at, "l", &[], "exit 9").code, Some(76));
    assert_eq!(run(&at, "m", &["--dry-run"], "exit 9").code, Some(0));
    assert_eq!(run(&at, "a:null", &[], "true").code, Some(64));
    assert!(told(&at).is_empty());
}

#[test]
fn an_outcome_that_the_store_does_not_have_calls_for_somebody() {
    // AFT-8
    let at = Place::new(Kind::Sqlite);
    hooked(&at);
    let script = [MARK, crate::at::HOLD].concat();
    let flags = ["--store-timeout", "300ms", "--lease", "2s"];
    let holder = at.start(with(&at, &mut at.run("k", &flags, &script)));
    until("it runs", || at.marks() == 1);
    at.home.away();
    at.go();
    assert_eq!(holder.end().code, Some(74));
    at.home.back();
    let told = told(&at);
    assert_eq!((told.len(), told[0].0.as_str()), (1, "ambiguous"), "{told:?}");
    assert_eq!((&told[0].1["exit_status"], &told[0].1["key"]), (&74.into(), &"k".into()));
}

#[test]
fn a_hook_that_fails_is_a_warning_and_changes_nothing() {
    // AFT-9
    let at = Place::new(Kind::Sqlite);
    for (hook, said) in [
        (
            r#"["sh", "-c", "echo loud; echo 'no \u001b[31mpager' >&2; exit 5"]"#,
            "exited 5 (no \\x1b[31mpager)",
        ),
        (r#"["sh", "-c", "kill -9 $$"]"#, "died of signal 9"),
        (r#"["/no/such/hook"]"#, "was not started: "),
        // One that reads nothing of what it is given.
        (r#"["true"]"#, ""),
    ] {
        configure(&at, &format!("[hooks]\ncommitted = {hook}\n"));
        let key = format!("k{}", at.marks());
        let out = run(&at, &key, &["-q"], &[MARK, "echo out"].concat());
        assert_eq!((out.code, out.stdout.as_str()), (Some(0), "out\n"), "{out:?}");
        if said.is_empty() {
            assert_eq!(out.stderr, "");
        } else {
            let line = format!("ctrlrun: warning: the hook `committed` {said}");
            assert!(out.stderr.starts_with(&line), "{out:?}");
            assert!(out.stderr.ends_with("; the outcome stands\n"), "{out:?}");
        }
        assert_eq!(at.state(&key), "committed");
        let revision = at.show(&key)["revision"].clone();
        assert_eq!(revision, 3, "nothing more is recorded");
    }
}

#[test]
fn a_hook_that_hangs_is_ended_with_all_of_its_group() {
    // AFT-10
    let at = Place::new(Kind::Sqlite);
    let script = r#"trap '' TERM; sleep 1000 & echo $! >"$PLACE/hooked.new"; mv "$PLACE/hooked.new" "$PLACE/hooked"; wait; wait"#;
    configure(&at, &format!("[hooks]\ncommitted = [\"sh\", \"-c\", '''{script}''']\n"));
    let started = std::time::Instant::now();
    let out = run(&at, "k", &[], MARK);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(out.stderr.contains("took longer than 10 s, and was ended"), "{out:?}");
    assert!((10..30).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    let left = number_in(&at.env.path("hooked"));
    until("its group is gone", || process_state(left).is_none_or(|state| state == 'Z'));
}

#[test]
fn a_signal_ends_a_hook_at_once_and_changes_no_status() {
    // AFT-10
    let at = Place::new(Kind::Sqlite);
    let script =
        r#"echo $$ >"$PLACE/hooked.new"; mv "$PLACE/hooked.new" "$PLACE/hooked"; exec sleep 1000"#;
    configure(&at, &format!("[hooks]\nambiguous = [\"sh\", \"-c\", '''{script}''']\n"));
    let running = at.start(with(&at, &mut at.run("k", &[], "exit 7")));
    let hook = number_in(&at.env.path("hooked"));
    // What came of it was told before the hook began.
    assert!(running.stderr().contains("AMBIGUOUS"), "{}", running.stderr());
    running.signal(Signal::SIGTERM);
    let out = running.end();
    assert_eq!((out.code, out.signal), (Some(7), None), "{out:?}");
    assert!(out.stderr.contains("was ended, since ctrlrun was told to end"), "{out:?}");
    until("the hook is gone", || process_state(hook).is_none_or(|state| state == 'Z'));
}

#[test]
fn a_hook_that_runs_an_effect_does_not_call_itself() {
    // AFT-11
    let at = Place::new(Kind::Sqlite);
    let script = r#"echo called >>"$PLACE/hooked"; "$CTRLRUN" run --store "$PLACE/page.db" -k page -- sh -c 'echo paged >>"$PLACE/paged"; exit 9'"#;
    configure(&at, &format!("[hooks]\nambiguous = [\"sh\", \"-c\", '''{script}''']\n"));
    let store = at.env.path("page.db");
    assert_eq!(at.env.run(["init", "--store", store.to_str().unwrap()]).code, Some(0));
    let out = run(&at, "k", &[], "exit 7");
    assert_eq!(out.code, Some(7), "{out:?}");
    assert!(out.stderr.contains("exited 9"), "{out:?}");
    assert_eq!(crate::real::lines(&at, "hooked").len(), 1);
    assert_eq!(crate::real::lines(&at, "paged").len(), 1);
}

#[test]
fn a_file_that_cd_found_has_no_hooks() {
    // AFT-11, CFG-9
    let at = Place::new(Kind::Sqlite);
    let script = r#"["sh", "-c", "touch \"$PLACE/hooked\""]"#;
    fs::write(at.env.path("here/ctrlrun.toml"), format!("[hooks]\ncommitted = {script}\n"))
        .unwrap();
    let out = finish(&mut at.run("k", &[], MARK));
    assert_eq!((out.code, at.marks()), (Some(78), 0), "{out:?}");
    assert!(!at.env.path("hooked").exists());
}

fn the_effects_of_a_batch_are_journaled_and_call_hooks(kind: Kind) {
    // AFT-1, AFT-2, AFT-8
    let at = Place::new(kind);
    hooked(&at);
    let config = fs::read_to_string(at.env.path("c.toml")).unwrap();
    let file = crate::journaled(&at);
    let journal = fs::read_to_string(at.env.path("c.toml")).unwrap();
    configure(&at, &format!("{config}{journal}"));
    let input = at.env.path("lines.jsonl");
    let line = |key: &str, script: &str| {
        serde_json::json!({"key": key, "command": ["sh", "-c", script], "not_executed": [3]})
            .to_string()
    };
    let all = [line("a", MARK), line("b", "exit 3"), line("c", "exit 9")].join("\n");
    fs::write(&input, all).unwrap();
    let words = ["batch", input.to_str().unwrap(), "-j1"];
    let out = finish(with(&at, &mut at.ctrlrun(&words)));
    assert_eq!((out.code, at.marks()), (Some(76), 1), "{out:?}");
    let mut said: Vec<String> =
        told(&at).iter().map(|(name, report)| format!("{name} {}", report["key"])).collect();
    said.sort();
    assert_eq!(said, ["ambiguous \"c\"", "committed \"a\"", "failed \"b\""]);
    // Of each a begin, and behind it what came of it.
    let written = crate::lines(&file);
    assert_eq!(written.len(), 6, "{written:?}");
    for key in ["a", "b", "c"] {
        let of_key: Vec<_> = written.iter().filter(|line| line["key"] == key).collect();
        let types: Vec<_> = of_key.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(types, ["began", "settled"], "{written:?}");
    }
    // A journal that is a folder cannot be written: nothing is run.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    fs::write(&input, line("d", MARK)).unwrap();
    let out = finish(with(&at, &mut at.ctrlrun(&words)));
    assert_eq!((out.code, at.marks()), (Some(69), 1), "{out:?}");
}
