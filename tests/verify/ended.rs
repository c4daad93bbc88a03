//! A verify that does not come to its end: what it leaves, and who cleans up (VER-2, VER-4).
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

use crate::common::{self, TestEnv};
use crate::wait::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A verify that is at work: its workers have run something.
fn at_work(env: &TestEnv) -> (Child, PathBuf) {
    let mut command = env.command(["verify", "--store", store(env).to_str().unwrap()]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("its workers are at work", || {
        scratch(env).is_some_and(|scratch| scratch.join("G4/ledger").exists())
    });
    let scratch = scratch(env).unwrap();
    (child, scratch)
}

fn store(env: &TestEnv) -> PathBuf {
    env.path("here/effects.db")
}

fn scratch(env: &TestEnv) -> Option<PathBuf> {
    let entries = fs::read_dir(env.path("here")).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(".ctrlrun-verify-"))
}

/// The processes that have the scratch store's place in their command line.
fn processes(scratch: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(scratch.to_str().unwrap()) {
            found.push(line);
        }
    }
    found
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

fn again(env: &TestEnv) -> common::Output {
    env.run(["verify", "--only", "G1", "--store", store(env).to_str().unwrap()])
}

#[test]
fn what_a_killed_verify_leaves_is_named_and_dropped_after_an_hour() {
    let env = TestEnv::new();
    let (mut child, scratch) = at_work(&env);
    send(&child, Signal::SIGKILL);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    // Its workers die with it; a command of theirs ends by itself.
    until("its workers are gone", || processes(&scratch).is_empty());
    assert!(scratch.exists());

    let out = again(&env);
    assert_eq!(out.code, Some(0), "{out:?}");
    let named = format!("left {} alone", scratch.display());
    assert!(out.stderr.contains(&named), "{}", out.stderr);
    assert!(scratch.exists(), "it may be at work");

    let long_ago = SystemTime::now() - Duration::from_secs(3_700);
    let heartbeat = File::options().write(true).open(scratch.join("heartbeat")).unwrap();
    heartbeat.set_modified(long_ago).unwrap();
    let out = again(&env);
    assert_eq!(out.code, Some(0), "{out:?}");
    let named = format!("dropped {}", scratch.display());
    assert!(out.stderr.contains(&named), "{}", out.stderr);
    assert_eq!(fs::read_dir(env.path("here")).unwrap().count(), 0);
}

#[test]
fn what_is_not_a_scratch_store_is_never_dropped() {
    let env = TestEnv::new();
    let long_ago = SystemTime::now() - Duration::from_secs(90_000);
    for name in [".ctrlrun-verify-", ".ctrlrun-verify-mine", ".ctrlrun-verify-0123456789abcdeg"] {
        let path = env.path("here").join(name);
        fs::create_dir(&path).unwrap();
        File::create(path.join("heartbeat")).unwrap().set_modified(long_ago).unwrap();
    }
    let out = again(&env);
    assert_eq!((out.code, out.stderr.lines().count()), (Some(0), 1), "{out:?}");
    assert_eq!(fs::read_dir(env.path("here")).unwrap().count(), 3);
}

#[test]
fn a_verify_that_is_told_to_end_cleans_up_and_dies_of_that_signal() {
    let env = TestEnv::new();
    let (mut child, scratch) = at_work(&env);
    send(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert!(!scratch.exists());
    until("its workers are gone", || processes(&scratch).is_empty());
}
