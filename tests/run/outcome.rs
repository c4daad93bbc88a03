//! What a child's end means, and what we end with.
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::at::{
    HOLD, Kind, MARK, Place, error_of, is_alive, number_in, on_every_store, text, until,
};
use crate::common::{Output, finish};

on_every_store!(
    only_exit_0_and_what_is_declared_prove_anything,
    a_command_that_is_stopped_and_then_killed_is_ambiguous,
    what_a_command_says_counts_more_than_its_exit_code,
    what_cannot_be_started_failed_and_may_run_again,
    every_exit_code_and_every_signal_is_passed_through,
    a_time_out_ends_the_whole_group,
    what_outlives_its_command_is_named_and_never_claimed_dead,
);

/// State, cause, exit code and signal, as recorded.
fn recorded(at: &Place, key: &str) -> (String, String, Value, Value) {
    let shown = at.show(key);
    (
        text(&shown["state"]),
        text(&shown["cause"]),
        shown["exit_code"].clone(),
        shown["signal"].clone(),
    )
}

fn only_exit_0_and_what_is_declared_prove_anything(kind: Kind) {
    // Cases 8 and 10; EXE-3, EXE-6, EXE-17
    let at = Place::new(kind);
    let table: &[(&str, &[&str], &str, &str)] = &[
        // script, flags, state, cause
        ("exit 0", &[], "committed", ""),
        ("exit 1", &[], "ambiguous", "exit"),
        ("exit 137", &[], "ambiguous", "exit"),
        ("exit 255", &[], "ambiguous", "exit"),
        ("kill -KILL $$", &[], "ambiguous", "signal"),
        ("kill -TERM $$", &[], "ambiguous", "signal"),
        ("ulimit -c 0; kill -ABRT $$", &[], "ambiguous", "signal"),
        ("exit 11", &["--not-executed", "6,11"], "failed", ""),
        ("exit 12", &["--not-executed", "6,11"], "ambiguous", "exit"),
        ("exit 123", &["--not-executed", "nonzero"], "failed", ""),
        ("exit 124", &["--not-executed", "nonzero"], "ambiguous", "exit"),
        ("exit 137", &["--not-executed", "137"], "failed", ""),
        ("kill -KILL $$", &["--not-executed", "137"], "ambiguous", "signal"),
        ("exit 255", &["--not-executed", "255"], "failed", ""),
    ];
    for (number, (script, flags, state, cause)) in table.iter().enumerate() {
        let key = format!("k:{number}");
        let end = finish(&mut at.run(&key, flags, script));
        let (is, why, code, signal) = recorded(&at, &key);
        assert_eq!((is.as_str(), why.as_str()), (*state, *cause), "{script}: {end:?}");
        // A real SIGKILL and an exit with 137 differ, in the record and in how we end.
        assert_eq!(
            (&Value::from(end.code), &Value::from(end.signal)),
            (&code, &signal),
            "{script}"
        );
        assert_eq!(end.stderr.is_empty(), *state == "committed", "{script}: {}", end.stderr);
        let may_have = end.stderr.contains("may have happened");
        assert_eq!(may_have, *state == "ambiguous", "{script}: {}", end.stderr);

        let by_outcome = [*flags, &["--exit", "outcome"]].concat();
        let end = finish(&mut at.run(&format!("o:{number}"), &by_outcome, script));
        let expected = match *state {
            "committed" => 0,
            "failed" => 1,
            _ => 76,
        };
        assert_eq!(end.code, Some(expected), "{script}: {end:?}");
    }
    for code in ["0", "256", "-1", "x", "1,"] {
        let end = finish(&mut at.run("bad", &["--not-executed", code], MARK));
        assert_eq!(end.code, Some(64), "{code}: {end:?}");
    }
    assert_eq!((at.marks(), at.state("bad").as_str()), (0, ""));
    for (codes, warnings) in [
        ("124", 1),
        ("126", 1),
        ("127", 1),
        ("130", 1),
        ("137", 1),
        ("143", 1),
        ("255", 1),
        ("6,11", 0),
    ] {
        let end = finish(&mut at.run("w", &["--dry-run", "--not-executed", codes], "exit 0"));
        assert_eq!(end.stderr.matches("warning").count(), warnings, "{codes}: {}", end.stderr);
    }
}

fn a_command_that_is_stopped_and_then_killed_is_ambiguous(kind: Kind) {
    // Case 8; EXE-3
    let at = Place::new(kind);
    let run = at.start(&mut at.run("k", &[], r#"echo $$ >"$PLACE/pid"; kill -STOP $$"#));
    let pid = number_in(&at.env.path("pid"));
    until("it has stopped", || crate::at::process_state(pid) == Some('T'));
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let end = run.end();
    assert_eq!(end.signal, Some(9), "{end:?}");
    let killed = ("ambiguous".into(), "signal".into(), Value::Null, 9.into());
    assert_eq!(recorded(&at, "k"), killed);
}

fn what_a_command_says_counts_more_than_its_exit_code(kind: Kind) {
    // EXE-4, EXE-5, CLI-21
    let at = Place::new(kind);
    let said = |word: &str| format!(r#""$CTRLRUN" outcome {word}; "#);
    let (yes, no, clear) = (said("committed re_1"), said("not-executed"), said("clear"));
    let timed: &[&str] = &["--timeout", "300ms"];
    let declared: &[&str] = &["--not-executed", "11"];
    // Script, flags; state, cause, exit code.
    type Row<'a> = (String, &'a [&'a str], &'a str, &'a str, Option<i32>);
    let table: Vec<Row<'_>> = vec![
        (format!("{yes} exit 3"), &[], "committed", "", Some(0)),
        (format!("{yes} kill -TERM $$"), &[], "committed", "", Some(0)),
        (format!("{yes} exec sleep 60"), timed, "committed", "", Some(0)),
        (format!("{yes} exit 11"), declared, "ambiguous", "contradiction", Some(11)),
        (format!("{no} exit 3"), &[], "failed", "", Some(3)),
        (format!("{no} exit 0"), &[], "ambiguous", "contradiction", Some(76)),
        (format!("{no} kill -TERM $$"), &[], "ambiguous", "signal", None),
        (format!("{no} exec sleep 60"), timed, "ambiguous", "timeout", Some(124)),
        (format!("{yes}{no} exit 3"), &[], "ambiguous", "contradiction", Some(3)),
        (format!("{yes}{clear} exit 3"), &[], "ambiguous", "exit", Some(3)),
        (format!("{no}{clear}{yes} exit 3"), &[], "committed", "", Some(0)),
        (r#"rm "$CTRLRUN_OUTCOME_FILE""#.into(), &[], "ambiguous", "contradiction", Some(76)),
        (
            r#"echo done >"$CTRLRUN_OUTCOME_FILE""#.into(),
            &[],
            "ambiguous",
            "contradiction",
            Some(76),
        ),
        (r#"echo "$CTRLRUN_OUTCOME_FILE" >"$PLACE/said"; "#.into(), &[], "committed", "", Some(0)),
    ];
    for (number, (script, flags, state, cause, code)) in table.iter().enumerate() {
        let key = format!("k:{number}");
        let end = finish(&mut at.run(&key, flags, script));
        let (is, why, ..) = recorded(&at, &key);
        assert_eq!((is.as_str(), why.as_str()), (*state, *cause), "{script}: {end:?}");
        assert_eq!(end.code, *code, "{script}: {end:?}");
    }
    let path = fs::read_to_string(at.env.path("said")).unwrap();
    assert!(!fs::exists(path.trim_end()).unwrap(), "an outcome file was left behind");
}

fn what_cannot_be_started_failed_and_may_run_again(kind: Kind) {
    // EXE-2, EXE-17
    let at = Place::new(kind);
    let plain = at.env.path("plain");
    fs::write(&plain, "neither a script nor a program").unwrap();
    let plain = plain.to_str().unwrap();
    let ends = |words: &[&str], key: &str| -> Output {
        // A directory in the PATH that may not be searched would make "not found" a "not permitted".
        let end = finish(at.run_words(key, &[], words).env("PATH", "/usr/bin:/bin"));
        let (state, _, code, signal) = recorded(&at, key);
        assert_eq!((state.as_str(), code, signal), ("failed", Value::Null, Value::Null), "{end:?}");
        assert_eq!(at.types(key), ["reserved", "began", "failed"]);
        assert!(end.stderr.contains("did not happen"), "{end:?}");
        end
    };
    assert_eq!(ends(&["no-such-program"], "a").code, Some(127));
    assert_eq!(ends(&["./no-such-program"], "b").code, Some(127));
    assert_eq!(ends(&[plain], "c").code, Some(126));
    assert_eq!(ends(&["/"], "d").code, Some(126));
    assert_eq!(finish(&mut at.run_words("a", &[], &["true"])).code, Some(0));
    let outcome = at.run_words("e", &["--exit", "outcome"], &["no-such-program"]);
    assert_eq!(finish(&mut { outcome }).code, Some(1));
}

fn every_exit_code_and_every_signal_is_passed_through(kind: Kind) {
    // Case 48; EXE-17, CLI-12
    let at = Place::new(kind);
    let report = at.env.path("report.json");
    let flags = ["--report", report.to_str().unwrap()];
    let told = || -> Value { serde_json::from_slice(&fs::read(&report).unwrap()).unwrap() };
    let codes =
        (1..=5).chain([63]).chain(64..=79).chain([80, 99]).chain(123..=131).chain([143, 254, 255]);
    for code in codes {
        let end = finish(&mut at.run(&format!("c:{code}"), &flags, &format!("exit {code}")));
        assert_eq!(end.code, Some(code), "{end:?}");
        let told = told();
        assert_eq!((&told["ran"], &told["refused"]), (&true.into(), &Value::Null));
        assert_eq!(
            (&told["exit_status"], &told["exit_status_of"]),
            (&code.into(), &"command".into())
        );
    }
    for signal in Signal::iterator() {
        let stops = [Signal::SIGSTOP, Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
        let ignored = [Signal::SIGCHLD, Signal::SIGCONT, Signal::SIGURG, Signal::SIGWINCH];
        if stops.contains(&signal) || ignored.contains(&signal) {
            continue;
        }
        let number = signal as i32;
        let script = format!("ulimit -c 0; kill -{number} $$");
        let end = finish(&mut at.run(&format!("s:{number}"), &flags, &script));
        assert_eq!((end.code, end.signal), (None, Some(number)), "{signal}: {}", end.stderr);
        let told = told();
        assert_eq!(told["signal"], number);
        assert_eq!(
            (&told["exit_status"], &told["exit_status_of"]),
            (&(128 + number).into(), &"command".into())
        );
    }
}

fn a_time_out_ends_the_whole_group(kind: Kind) {
    // Case 28; EXE-11
    let at = Place::new(kind);
    let script = r#"sh -c 'trap "" TERM; echo $$ >"$PLACE/pid"; while :; do sleep 1; done' & wait"#;
    let flags = ["--timeout", "1s", "--kill-after", "300ms", "--not-executed", "nonzero"];
    let run = at.start(&mut at.run("k", &flags, script));
    let grandchild = number_in(&at.env.path("pid"));
    let end = run.end();
    assert_eq!(end.code, Some(124), "{end:?}");
    let (state, cause, ..) = recorded(&at, "k");
    assert_eq!((state.as_str(), cause.as_str()), ("ambiguous", "timeout"));
    assert!(!is_alive(grandchild), "what ignores TERM outlived KILL");
    // Whatever it then exits with (EXE-3).
    for code in [0, 3] {
        let key = format!("code:{code}");
        let script = format!("trap 'exit {code}' TERM; while :; do sleep 0.05; done");
        let end = finish(&mut at.run(&key, &flags, &script));
        assert_eq!(end.code, Some(124), "{end:?}");
        let (state, cause, ..) = recorded(&at, &key);
        assert_eq!((state.as_str(), cause.as_str()), ("ambiguous", "timeout"));
    }
}

fn what_outlives_its_command_is_named_and_never_claimed_dead(kind: Kind) {
    // EXE-12, EXE-18, EFF-21: it holds our pipe, and does not hold us.
    let at = Place::new(kind);
    let script = format!("({HOLD}) & echo $! >\"$PLACE/pid\"; echo out; exit 5");
    let end = finish(&mut at.run("k", &[], &script));
    assert_eq!((end.code, end.stdout.as_str()), (Some(5), "out\n"), "{end:?}");
    let left = number_in(&at.env.path("pid"));
    let named = end.stderr.split_once("pid ").map(|(_, pids)| pids.contains(&left.to_string()));
    assert_eq!(named, Some(true), "{end:?}");
    assert!(is_alive(left));
    let ended = at.history("k").pop().unwrap();
    assert_eq!((&ended["type"], &ended["data"]["reaped"]), (&"ambiguated".into(), &false.into()));
    at.go();
    let alone = finish(&mut at.run("l", &["--json"], "exit 5"));
    assert_eq!(error_of(&alone)["error"], "ambiguous");
    assert_eq!(at.history("l").pop().unwrap()["data"]["reaped"], true);
}
