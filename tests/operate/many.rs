//! A store with many effects: nothing holds it for long, and no memory grows with it (OPS-4, OPS-11,
//! OPS-12; case 59).
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::at::{Kind, MARK, Place, on_every_store, until};
use crate::common::finish;

on_every_store!(many_effects_stream_and_are_pruned_beside_other_writers);

/// Effects in the store. Enough that holding them all would show.
const MANY: u64 = 60_000;
/// More than any command may use, in KiB.
const MEMORY_MAX: u64 = 64 * 1_024;

/// Fills the store with copies of one effect that is settled, `many` of them.
fn filled(at: &Place, many: u64) {
    let script = format!("{MARK} echo said");
    assert_eq!(finish(&mut at.run("seed", &[], &script)).code, Some(0));
    at.home.age("seed", 40);
    let of = |table: &str, columns: &str| {
        let series = match at.home.kind() {
            Kind::Sqlite => format!(
                "(WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM g WHERE n<{many}) \
                 SELECT n FROM g) g"
            ),
            Kind::Postgres => format!("generate_series(1, {many}) AS g(n)"),
        };
        let key = match at.home.kind() {
            Kind::Sqlite => "printf('many:%07d', g.n)",
            Kind::Postgres => "'many:' || lpad(g.n::text, 7, '0')",
        };
        at.home.tamper(&format!(
            "INSERT INTO :{table}(effect_key, {columns}) SELECT {key}, {columns} FROM {series}, \
             :{table} t WHERE t.effect_key='seed'"
        ));
    };
    of(
        "effects",
        "record_version, write_id, reservation_id, state, first_attempt, attempt, attempt_id, \
         fingerprint, program, arguments, command, lease_expires_at, cause, reaped, in_doubt, doubted, \
         exit_code, signal, detail, resolved_by, reason, proven_failures, run_id, created_at, updated_at",
    );
    of("history", "revision, write_id, outcome_id, type, attempt, recorded_at, data");
    of("output", "attempt, stream, bytes, whole, head, tail");
}

/// The most memory that a process has had, in KiB.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// Runs it to its end; its answer and the most memory that it was seen to have.
fn measured(command: &mut Command) -> (String, u64) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || std::io::read_to_string(out).unwrap());
    let mut most = 0;
    until("it has ended", || {
        most = most.max(peak(pid));
        child.try_wait().unwrap().is_some()
    });
    assert!(child.wait().unwrap().success());
    (reader.join().unwrap(), most)
}

fn many_effects_stream_and_are_pruned_beside_other_writers(kind: Kind) {
    let at = Place::new(kind);
    filled(&at, MANY);
    let all = MANY + 1;
    for (key, end) in [("doubt", "exit 3"), ("young", "exit 0")] {
        finish(&mut at.run(key, &[], end));
    }
    at.home.age("doubt", 40);

    // The first line is there long before the last, and a reader may leave.
    let mut list = at.ctrlrun(&["effects", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    let mut line = String::new();
    let mut out = BufReader::new(list.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let first = began.elapsed();
    assert!(serde_json::from_str::<Value>(&line).is_ok(), "{line}");
    drop(out);
    assert!(list.wait().unwrap().success(), "a reader that leaves is no error");
    assert!(first < Duration::from_secs(5), "{first:?}");
    for words in [&["effects"][..], &["effects", "--sort", "age", "--limit", "3"]] {
        let (text, memory) = measured(&mut at.ctrlrun(words));
        assert!(memory < MEMORY_MAX, "{words:?}: {memory} KiB");
        let wanted = if words.len() == 1 { all + 3 } else { 4 };
        assert_eq!(text.lines().count() as u64, wanted, "{words:?}");
    }
    let (deep, memory) = measured(&mut at.ctrlrun(&["doctor", "--deep", "--json"]));
    assert!(deep.contains("records, each the fold of its history"), "{deep}");
    assert!(memory < MEMORY_MAX, "{memory} KiB");

    // While all of it is forgotten, others write, and none of them waits for long.
    let before = at.marks();
    let mut prune =
        at.ctrlrun(&["prune", "--older-than", "30d", "--forget-keys", "--yes", "--json"]);
    let mut prune = prune.stdout(Stdio::piped()).spawn().unwrap();
    let (mut runs, mut slowest, mut log, mut memory) = (0, Duration::ZERO, 0, 0);
    while prune.try_wait().unwrap().is_none() {
        let began = Instant::now();
        let run = finish(&mut at.run(&format!("beside:{runs}"), &[], MARK));
        slowest = slowest.max(began.elapsed());
        assert_eq!(run.code, Some(0), "{run:?}");
        runs += 1;
        memory = memory.max(peak(prune.id()));
        if kind == Kind::Sqlite {
            let wal = format!("{}-wal", at.file().display());
            log = log.max(fs::metadata(wal).map_or(0, |found| found.len()));
        }
    }
    let told: Value = serde_json::from_reader(prune.stdout.take().unwrap()).unwrap();
    assert_eq!((&told["effects"], &told["stay"]["moved"]), (&all.into(), &0.into()), "{told}");
    assert!(runs > 3 && at.marks() == before + runs, "{runs} runs beside it");
    assert!(slowest < Duration::from_secs(5), "one waited {slowest:?}");
    assert!(memory < MEMORY_MAX, "{memory} KiB");
    assert!(log < 64 << 20, "the log has grown to {log} bytes");
    println!("{runs} runs beside it, the slowest {slowest:?}; {memory} KiB; log {log} bytes");
    let dump = at.dump();
    assert!(!dump.contains("many:") && dump.contains("doubt") && dump.contains("young"));
    let deep = at.ask(&["doctor", "--deep"]);
    assert_eq!(deep.code, Some(0), "{deep:?}");
}

#[test]
fn a_reader_that_holds_the_log_stops_the_prune_before_it_outgrows_its_bound() {
    // OPS-4; case 59
    let at = Place::new(Kind::Sqlite);
    filled(&at, 150_000);
    let reader = at.connect();
    reader.execute_batch("BEGIN; SELECT count(*) FROM effects").unwrap();
    let flags = ["--older-than", "30d", "--forget-keys", "--yes", "--json"];
    let words = [&["prune", "--store-timeout", "300ms"], &flags[..]].concat();
    let out = at.ask(&words);
    assert_eq!(out.code, Some(69), "{out:?}");
    assert!(out.stderr.contains("another program reads this store"), "{out:?}");
    let told: Value = serde_json::from_str(&out.stdout).unwrap();
    let gone = told["effects"].as_u64().unwrap();
    assert!(gone > 0 && gone < 150_001, "{told}");
    let wal = format!("{}-wal", at.file().display());
    let log = fs::metadata(&wal).unwrap().len();
    assert!(log < 72 << 20, "{log}");
    // What it says is so, and the same command goes on.
    drop(reader);
    let out = at.ask(&words);
    assert_eq!(out.code, Some(0), "{out:?}");
    let told: Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!(told["effects"].as_u64().unwrap() + gone, 150_001);
}
