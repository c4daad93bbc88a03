//! What a stranger found: ways to hurt the store, the spool or an outcome from outside.
mod common;

use std::fs;
use std::os::unix::fs::symlink;

use common::TestEnv;

/// A spooled COMMITTED of `key` on the store at `at`, by a store that was given a second name while
/// the command ran (STO-9).
fn spooled(env: &TestEnv, at: &str, key: &str) -> std::path::PathBuf {
    let run = format!(
        "ctrlrun run --store {at} --store-timeout 1s -k {key} -- sh -c 'echo x >>{at}.marker; ln {at} {at}.second'"
    );
    assert_eq!(env.shell(&run).code, Some(74));
    fs::remove_file(format!("{at}.second")).unwrap();
    let dir = env.default_store().with_file_name("spool");
    fs::read_dir(dir).unwrap().flatten().next().unwrap().path()
}

fn init(env: &TestEnv) -> String {
    let at = env.path("work/s.db").to_str().unwrap().to_owned();
    assert_eq!(env.run(["init", "--store", &at]).code, Some(0));
    at
}

#[test]
fn a_report_never_empties_the_store() {
    // CLI-12: an emptied log takes its reservations with it, and then a key runs again.
    let env = TestEnv::new();
    let at = init(&env);
    assert_eq!(env.run(["run", "--store", &at, "-k", "a", "--", "true"]).code, Some(0));
    let link = env.path("work/link");
    symlink(&at, &link).unwrap();
    let log = format!("{at}-wal");
    for report in [at.as_str(), link.to_str().unwrap(), &log] {
        let before = fs::read(&at).unwrap();
        let end = env.run(["run", "--store", &at, "-k", "b", "--report", report, "--", "true"]);
        assert_eq!(end.code, Some(64), "{report}: {}", end.stderr);
        assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
        assert_eq!(fs::read(&at).unwrap(), before, "{report}");
    }
    assert!(!fs::exists(&log).unwrap(), "no log was made by the report");
    assert_eq!(env.run(["show", "--store", &at, "a"]).code, Some(0));
}

#[test]
fn a_pipe_or_a_link_in_the_spool_holds_nobody_and_is_not_believed() {
    // EXE-26
    let env = TestEnv::new();
    let at = init(&env);
    let file = spooled(&env, &at, "k");
    let kept = env.path("work/kept");
    fs::rename(&file, &kept).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let end = env.run(["run", "--store", &at, "-k", "other", "--", "true"]);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert!(end.stderr.contains("damaged"), "{}", end.stderr);
    symlink(&kept, &file).unwrap();
    let end = env.run(["run", "--store", &at, "-k", "other", "--", "true"]);
    assert!(end.stderr.contains("symbolic link"), "{}", end.stderr);
    assert_eq!(env.run(["show", "--store", &at, "k", "--check"]).code, Some(75));
}

#[test]
fn a_store_that_took_a_lost_ones_place_does_not_run_what_the_spool_says_happened() {
    // EXE-25
    let env = TestEnv::new();
    let at = init(&env);
    let file = spooled(&env, &at, "k");
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{at}{end}"));
    }
    assert_eq!(env.run(["init", "--store", &at]).code, Some(0));
    let again = format!(
        "ctrlrun run --store {at} -k k -- sh -c 'echo x >>{at}.marker; ln {at} {at}.second'"
    );
    let end = env.shell(&again);
    assert_eq!(end.code, Some(69), "{}", end.stderr);
    assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
    assert_eq!(env.run(["run", "--store", &at, "-k", "other", "--", "true"]).code, Some(0));
    assert_eq!(fs::read_to_string(format!("{at}.marker")).unwrap(), "x\n");
    fs::remove_file(file).unwrap();
    assert_eq!(env.shell(&again).code, Some(74), "a person has decided");
}

#[test]
fn a_report_of_an_earlier_run_does_not_outlive_a_usage_error() {
    // CLI-12
    let env = TestEnv::new();
    let report = env.path("home/report.json");
    let path = report.to_str().unwrap();
    assert_eq!(env.run(["run", "-k", "k", "--report", path, "--", "true"]).code, Some(0));
    let bad = ["run", "-k", "k", "--timeout", "30", "--report", path, "--", "true"];
    assert_eq!(env.run(bad).code, Some(64));
    let told: serde_json::Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!((&told["ran"], &told["refused"]), (&false.into(), &"usage".into()));
    assert_eq!(told["exit_status"], 64);
}

#[test]
fn what_was_not_captured_is_not_told_as_empty() {
    // CLI-18
    let env = TestEnv::new();
    assert_eq!(env.run(["run", "-k", "k", "--capture", "none", "--", "echo", "hi"]).code, Some(0));
    let end = env.run(["output", "k"]);
    assert_eq!(end.code, Some(66));
    assert!(end.stderr.contains("--capture none"), "{}", end.stderr);
}

#[test]
fn a_directory_for_temporary_files_that_is_not_there_stops_nothing() {
    let env = TestEnv::new();
    let end = env.shell("TMPDIR=/nonexistent ctrlrun run -k k -- true");
    assert_eq!(end.code, Some(0), "{}", end.stderr);
}

#[test]
fn an_alarm_that_was_set_before_reaches_the_command() {
    // EXE-13: else it would end us, and the outcome would be nobody's.
    let env = TestEnv::new();
    let script = r#"trap "echo rang; exit 3" ALRM; kill -ALRM $PPID; while :; do :; done"#;
    let end = env.run(["run", "-k", "k", "--not-executed", "3", "--", "sh", "-c", script]);
    assert_eq!((end.code, end.stdout.as_str()), (Some(3), "rang\n"), "{}", end.stderr);
}

#[test]
fn times_in_a_history_are_told_as_all_times_are() {
    // CLI-6, HIS-7
    let env = TestEnv::new();
    env.run(["run", "-k", "k", "--", "true"]);
    let out = env.run(["history", "k", "--json"]).stdout;
    let first: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let lease = first["data"]["lease_expires_at"].as_str().unwrap();
    assert!(lease.ends_with('Z') && lease.contains('T'), "{lease}");
    let dry = env.run(["run", "-k", "k", "--dry-run", "--json", "--", "true"]);
    let told: serde_json::Value = serde_json::from_str(&dry.stdout).unwrap();
    assert_eq!(told["ran"], false);
}
