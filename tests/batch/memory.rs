//! The length of the input.
use std::io::Write;
use std::process::Stdio;

use crate::at::{Kind, Place};
use crate::{MARK_KEY, line};

/// What a process has had in memory at most, in KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn the_memory_of_a_dry_run_has_a_bound() {
    // BAT-18: every line is another key, of a table, whose rows are the shortest to write.
    let at = Place::new(Kind::Sqlite);
    let words = ["batch", "--csv", "-k", "k:{id}", "--dry-run", "--", "true", "{id}"];
    let mut command = at.env.command(words);
    command.env("CTRLRUN_STORE", at.store());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"id\n").unwrap();
    let mut feed = |from: usize, to: usize| {
        for thousand in from..to {
            let ids = thousand * 1_000..(thousand + 1) * 1_000;
            let text: String = ids.map(|id| format!("{id}\n")).collect();
            stdin.write_all(text.as_bytes()).unwrap();
        }
    };
    feed(0, 220);
    let before = peak(child.id());
    feed(220, 300);
    let after = peak(child.id());
    drop(stdin);
    let out = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(told.contains("would run 300,000, replay 0,"), "{told}");
    assert!(told.contains("more than 200,000 lines later"), "{told}");
    assert!(after < before + 4_096, "{before} KiB after 220,000 keys, {after} KiB after 300,000");
}

#[test]
fn memory_is_flat_in_the_length_of_the_input() {
    // BAT-13: every line is a load of a key that is committed, but for one that hangs meanwhile and
    // whose key comes again and again.
    let at = Place::new(Kind::Sqlite);
    let mut command = at.ctrlrun(&["batch", "-j2", "-q", "--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut feed = |lines: usize| {
        let key = |number: usize| line(&format!("k:{}", number % 50), MARK_KEY);
        for chunk in 0..lines / 1_000 {
            let text: String = (0..1_000).map(|number| key(chunk * 1_000 + number)).collect();
            stdin.write_all(text.as_bytes()).unwrap();
        }
    };
    feed(10_000);
    let before = peak(child.id());
    feed(90_000);
    let after = peak(child.id());
    drop(stdin);
    let out = child.wait_with_output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(told["committed_now"], 50, "{told}");
    assert_eq!(told["committed_earlier"], 99_950, "{told}");
    assert_eq!(at.marks(), 50);
    // Of a line nothing stays: ten times as many take the same room.
    assert!(after < before + 4_096, "{before} KiB after 10,000 lines, {after} KiB after 100,000");
}
