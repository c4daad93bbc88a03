//! The JSON report of a run, for refusals too.
use std::fs;

use serde_json::Value;

use crate::at::{HOLD, Kind, MARK, Place, on_every_store};
use crate::common::finish;

on_every_store!(a_report_tells_every_outcome_and_every_refusal);

fn a_report_tells_every_outcome_and_every_refusal(kind: Kind) {
    // Case 48; CLI-3, CLI-12
    let at = Place::new(kind);
    let path = at.env.path("report.json");
    let told = |key: &str, flags: &[&str], script: &str| -> (Option<i32>, Value) {
        // It must not be an older one that is read.
        let _ = fs::remove_file(&path);
        let end = finish(at.run(key, flags, script).args([] as [&str; 0]));
        (end.code, serde_json::from_slice(&fs::read(&path).unwrap()).unwrap())
    };
    let report = path.to_str().unwrap();
    let with = |flags: &[&'static str]| -> Vec<&str> {
        let mut all = vec!["--report", report];
        all.extend(flags);
        all
    };
    let holding = [MARK, HOLD].concat();
    let holder = at.holder("held", &[]);
    for (key, flags, script, code, refused) in [
        ("held", vec![], holding.as_str(), 75, "in_progress"),
        ("held", vec![], MARK, 65, "mismatch"),
        ("new", vec!["--expect", "exists"], MARK, 79, "revision_conflict"),
        ("$X", vec![], MARK, 64, "usage"),
        ("new", vec!["--bind-file", "/no/such/file"], MARK, 66, "usage"),
    ] {
        let (end, told) = told(key, &with(&flags), script);
        assert_eq!(end, Some(code), "{told}");
        assert_eq!(told["refused"], refused, "{told}");
        assert_eq!((&told["ran"], &told["replayed"]), (&false.into(), &false.into()));
        assert_eq!(
            (&told["exit_status"], &told["exit_status_of"]),
            (&code.into(), &"ctrlrun".into())
        );
        assert_eq!(told["key"].as_str().unwrap(), key.trim_matches('"'));
        assert!(told["message"].as_str().unwrap().contains("nothing was run"), "{told}");
    }
    at.go();
    assert_eq!(holder.end().code, Some(0));

    let outcome = |key: &str, flags: &[&'static str], script: &str| told(key, &with(flags), script);
    let (code, told) = outcome("c", &[], "echo out");
    assert_eq!(code, Some(0));
    assert_eq!(
        (&told["state"], &told["ran"], &told["refused"]),
        (&"committed".into(), &true.into(), &Value::Null)
    );
    assert_eq!((&told["stdout_bytes"], &told["exit_status_of"]), (&4.into(), &"command".into()));
    assert!(told["duration_ms"].is_u64());
    let (code, told) = outcome("c", &[], "echo out");
    assert_eq!((code, &told["ran"], &told["replayed"]), (Some(0), &false.into(), &true.into()));
    assert_eq!((&told["refused"], &told["exit_status_of"]), (&Value::Null, &"ctrlrun".into()));
    let (code, told) = outcome("c", &["--on-committed", "refuse"], "echo out");
    assert_eq!((code, &told["refused"]), (Some(73), &"committed".into()));
    let (code, told) = outcome("a", &[], "exit 9");
    assert_eq!(
        (code, &told["state"], &told["cause"]),
        (Some(9), &"ambiguous".into(), &"exit".into())
    );
    let (code, told) = outcome("a", &[], "exit 9");
    assert_eq!(
        (code, &told["refused"], &told["ran"]),
        (Some(76), &"ambiguous".into(), &false.into())
    );
    let (code, told) = outcome("f", &["--not-executed", "9"], "exit 9");
    assert_eq!((code, &told["state"], &told["refused"]), (Some(9), &"failed".into(), &Value::Null));
    let (code, told) = outcome("f", &["--max-attempts", "1"], "exit 9");
    assert_eq!((code, &told["refused"]), (Some(72), &"max_attempts".into()));
    // 124 is ours, though a command could have said it.
    let (code, told) = outcome("t", &["--timeout", "100ms"], "exec sleep 60");
    assert_eq!((code, &told["exit_status_of"]), (Some(124), &"ctrlrun".into()));

    let nowhere =
        finish(&mut at.run("n", &["--store", "/no/such/store", "--report", report], MARK));
    // The last flag counts.
    assert!(matches!(nowhere.code, Some(64 | 78)), "{nowhere:?}");
    let unwritable = finish(&mut at.run("n", &["--report", "/no/such/folder/report"], MARK));
    assert_eq!(unwritable.code, Some(66), "{unwritable:?}");
    assert_eq!(at.state("n"), "");
    assert_eq!(at.marks(), 1);
}

#[test]
fn a_report_tells_that_the_store_could_not_be_used() {
    // CLI-12, STO-7
    let at = Place::new(Kind::Sqlite);
    let path = at.env.path("report.json");
    let mut run = at.env.command(["run", "--store", "/no/such/store", "-k", "k", "--report"]);
    let end = finish(run.arg(&path).args(["--", "true"]));
    assert_eq!(end.code, Some(78), "{end:?}");
    let told: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&told["refused"], &told["exit_status"]), (&"store".into(), &78.into()));
    assert_eq!((&told["ran"], &told["exit_status_of"]), (&false.into(), &"ctrlrun".into()));
}
