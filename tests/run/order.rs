//! What is durable before what.
use std::fs;
use std::process::Command;

use crate::at::{Kind, Place};
use crate::common::finish;

/// The most fsyncs that a run of a new key in a store that is there may make: three commits, and
/// what the last connection writes back when it closes the store.
const FSYNCS_MAX: usize = 7;

/// What a trace tells, a letter each, in the order of the calls' ends: `W` a write to the store's
/// files, `S` an fsync of one, `X` the start of a program, `E` the end of one.
fn letters(trace: &str) -> String {
    let mut letters = String::new();
    for line in trace.lines().filter(|line| !line.ends_with("<unfinished ...>")) {
        let Some((_, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start().trim_start_matches("<... ");
        let of_store = line.contains("/effects.db") || call.contains("resumed");
        letters.push(match call {
            _ if call.starts_with("execve") && call.ends_with("= 0") => 'X',
            _ if call.starts_with("exit_group") => 'E',
            _ if call.starts_with("pwrite64") && of_store => 'W',
            _ if (call.starts_with("fdatasync") || call.starts_with("fsync")) && of_store => 'S',
            _ => continue,
        });
    }
    letters
}

#[test]
fn each_step_is_on_the_disk_before_the_next() {
    // Case 15; EXE-1, STO-2
    let at = Place::new(Kind::Sqlite);
    let trace = at.env.path("trace");
    let run = at.run_words("k", &[], &["true"]);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-y", "-s", "0", "-e", "signal=none", "-e"]);
    strace.args(["trace=fsync,fdatasync,pwrite64,execve,exit_group", "-o"]);
    strace.arg(&trace).arg(run.get_program()).args(run.get_args()).env_clear();
    for (name, value) in run.get_envs() {
        strace.env(name, value.unwrap());
    }
    let ended = strace.status();
    if !ended.as_ref().is_ok_and(std::process::ExitStatus::success) {
        assert!(std::env::var_os("CI").is_none(), "strace is needed: {ended:?}");
        eprintln!("skipped: no strace here that may trace ({ended:?})");
        return;
    }
    let trace = fs::read_to_string(&trace).unwrap();
    let letters = letters(&trace);
    let (before, child) = letters.rsplit_once('X').unwrap();
    let (during, after) = child.split_once('E').unwrap();
    // The reserve, then the begin, each on the disk before anything more is written.
    assert!(before.ends_with('S'), "the child starts before the begin is on the disk: {letters}");
    assert!(before.matches("WS").count() >= 2, "{letters}");
    assert_eq!(during, "", "the store is written while the child runs: {letters}");
    let settle = after.find("WS");
    assert!(settle.is_some_and(|at| after[..at].bytes().all(|byte| byte == b'W')), "{letters}");
    let fsyncs = letters.matches('S').count();
    assert!(fsyncs <= FSYNCS_MAX, "{fsyncs} fsyncs: {trace}");
    assert_eq!(finish(&mut at.run_words("k", &[], &["true"])).code, Some(0));
}
