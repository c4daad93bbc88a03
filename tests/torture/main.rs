//! The power fails: at every point of what the embedded store has written, with what it had not
//! synced lost, kept, reordered or torn (PRF-5, PRF-6).
//!
//! The shipped binary is traced, so that nothing of the store has to be built otherwise. Its calls
//! are played onto a disk that remembers what is durable; from that disk's possible states after a
//! power failure stores are rebuilt and opened.
//!
//! | file | what |
//! |---|---|
//! | `scenario` | what is done to a store, and what is promised while it is done |
//! | `record` | what a traced run of the binary did to the store's files |
//! | `disk` | what of that can be on the disk after a power failure |
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails"))]
#[path = "../common/mod.rs"]
mod common;
mod disk;
mod record;
mod scenario;

use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use common::{TestEnv, finish};
use disk::{Disk, Image};
use record::Op;
use scenario::{Promise, RUN, Recorded, alone, there, together, under_way};

/// What is missing of `promise`.
fn missing(promise: &Promise, found: &Promise) -> Option<String> {
    promise
        .iter()
        .find(|(key, events)| !found[*key].starts_with(events))
        .map(|(key, events)| format!("{key}: promised {events:?}, found {:?}", found[key]))
}

/// What became of a record that was tortured.
#[derive(Debug, Default)]
struct Outcome {
    points: usize,
    images: usize,
    by_binary: usize,
    lost: Vec<String>,
}

/// One image of so many is given to the shipped binary too.
const SAMPLE: usize = 40;

/// Rebuilds and opens all that can be there after a power failure. Of two points with no sync between
/// them the later one has everything of the earlier one, and more promises: points are looked at
/// right before a sync, and at the end. `syncs`: whether syncs do what they say.
fn torture(env: &TestEnv, recorded: &Recorded, syncs: bool) -> Outcome {
    let (mut outcome, mut disk) = (Outcome::default(), Disk::default());
    let mut looked_at: HashSet<u64> = HashSet::new();
    for (at, op) in recorded.ops.iter().enumerate() {
        if matches!(op, Op::Sync(_)) {
            if !syncs {
                continue;
            }
            look(env, recorded, at, &disk, &mut looked_at, &mut outcome);
        }
        disk.perform(op);
    }
    look(env, recorded, recorded.ops.len(), &disk, &mut looked_at, &mut outcome);
    outcome
}

fn look(
    env: &TestEnv,
    recorded: &Recorded,
    at: usize,
    disk: &Disk,
    looked_at: &mut HashSet<u64>,
    outcome: &mut Outcome,
) {
    outcome.points += 1;
    let promised = recorded.promises.iter().rev().find(|(from, _)| *from <= at);
    let promises = promised.map_or(0, |(from, _)| *from);
    for image in disk.images(at as u64) {
        let mut hash = DefaultHasher::new();
        (&image.files, promises).hash(&mut hash);
        if !looked_at.insert(hash.finish()) {
            continue;
        }
        outcome.images += 1;
        let store = rebuilt(env, recorded, &image);
        let (found, promise) = match (there(&store, &recorded.keys), promised) {
            (Ok(found), Some((_, promise))) => (found, promise),
            // Before it was told to be there a store may be anything.
            (_, None) => continue,
            (Err(error), Some(_)) => {
                outcome.lost.push(format!("at {at}, {}: {error}", image.how));
                continue;
            }
        };
        let mut wrong = missing(promise, &found);
        if wrong.is_none() && outcome.images.is_multiple_of(SAMPLE) {
            outcome.by_binary += 1;
            wrong = by_binary(env, &store, &found)
                .or_else(|| run_by_binary(env, recorded, &store, &found));
        }
        outcome.lost.extend(wrong.map(|wrong| format!("at {at}, {}: {wrong}", image.how)));
    }
}

/// The files of an image, as they would be found.
fn rebuilt(env: &TestEnv, recorded: &Recorded, image: &Image) -> PathBuf {
    let directory = env.path("tmp").join("image");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    for (path, bytes) in &image.files {
        // The index of the log is built anew after a power failure.
        if !path.to_string_lossy().ends_with("-shm") {
            fs::write(directory.join(path.file_name().unwrap()), bytes).unwrap();
        }
    }
    directory.join(recorded.store.file_name().unwrap())
}

/// The shipped binary runs nothing under a key whose newest attempt has begun and has not failed.
fn by_binary(env: &TestEnv, store: &Path, found: &Promise) -> Option<String> {
    for (key, events) in found {
        let last = events.last().copied().unwrap_or_default();
        if *key == RUN || events.is_empty() || matches!(last, "failed" | "resolved") {
            continue;
        }
        let mark = env.path("tmp").join("mark");
        let mut command = env.command(["run", "--key", key, "--", "touch"]);
        let out = finish(command.arg(&mark).env("CTRLRUN_STORE", store));
        if mark.exists() || !matches!(out.code, Some(65 | 75 | 76)) {
            return Some(format!("{key}: the binary ends {:?}: {}", out.code, out.stderr));
        }
    }
    None
}

/// The shipped binary goes on with the run, and starts no node whose newest attempt has begun and has
/// not failed.
fn run_by_binary(
    env: &TestEnv,
    recorded: &Recorded,
    store: &Path,
    found: &Promise,
) -> Option<String> {
    if found[RUN].is_empty() {
        return None;
    }
    let marks = env.path("tmp").join("marks");
    fs::write(&marks, "").unwrap();
    let mut command = env.command(["workflow", "run"]);
    command.arg(&recorded.workflow).args(["--id", RUN]);
    let out = finish(command.env("CTRLRUN_STORE", store).env("MARKS", &marks));
    let marked = fs::read_to_string(&marks).unwrap();
    let twice = under_way(found).into_iter().find(|key| marked.lines().any(|line| line == *key));
    match twice {
        Some(key) => Some(format!("{key}: it was started again: {}", out.stderr)),
        None if !matches!(out.code, Some(1 | 76)) => {
            Some(format!("the run ends {:?}: {}", out.code, out.stderr))
        }
        None => None,
    }
}

#[test]
fn whatever_a_power_failure_leaves_no_begin_and_no_outcome_is_lost() {
    // PRF-5, STO-2, EXE-1
    let env = TestEnv::new();
    let Some(recorded) = alone(&env) else { return };
    let (_, last) = recorded.promises.last().unwrap();
    assert_eq!(last["once"], ["reserved", "began", "committed"]);
    assert_eq!(last["again"][2..], ["failed", "reserved", "began", "committed"]);
    let killed = ["ambiguated", "resolved", "reserved", "began", "committed"];
    assert_eq!(last["killed"][2..], killed);
    assert_eq!(last["late"], ["reserved", "began", "ambiguated"]);
    let outcome = torture(&env, &recorded, true);
    let Outcome { points, images, by_binary, lost } = &outcome;
    let calls = recorded.ops.len();
    println!("{calls} calls, {points} points, {images} images, {by_binary} by the binary");
    assert_eq!(*lost, [""; 0], "{}", lost.len());
    assert!(*points > 40 && *images > 500 && *by_binary > 10, "{outcome:?}");
}

#[test]
fn nor_is_any_of_what_several_wrote_in_one_transaction() {
    // PRF-5, BAT-1, WFL-5
    let env = TestEnv::new();
    let Some(recorded) = together(&env) else { return };
    let (_, last) = recorded.promises.last().unwrap();
    assert_eq!(last["b/2"], ["reserved", "began", "failed"]);
    assert_eq!(last["b/3"], ["reserved", "began", "committed"]);
    assert_eq!(last["flow/left"][2..], ["failed", "reserved", "began", "failed"]);
    assert_eq!(last["flow/right"], ["reserved", "began", "ambiguated"]);
    assert_eq!(last[RUN].last(), Some(&"status_changed"));
    let outcome = torture(&env, &recorded, true);
    let Outcome { points, images, by_binary, lost } = &outcome;
    let calls = recorded.ops.len();
    println!("{calls} calls, {points} points, {images} images, {by_binary} by the binary");
    assert_eq!(*lost, [""; 0], "{}", lost.len());
    assert!(*points > 20 && *images > 500 && *by_binary > 10, "{outcome:?}");
}

#[test]
fn a_disk_that_does_not_sync_is_found_out() {
    // PRF-6
    let env = TestEnv::new();
    let Some(recorded) = alone(&env) else { return };
    let outcome = torture(&env, &recorded, false);
    println!("{} of {} images: {}", outcome.lost.len(), outcome.images, outcome.lost[0]);
    assert!(outcome.lost.len() > outcome.images / 2);
}

#[test]
fn a_child_that_starts_before_its_begin_is_synced_is_found_out() {
    // PRF-6: each child's start is put before the sync that it waited for.
    let env = TestEnv::new();
    let Some(mut recorded) = together(&env) else { return };
    let starts: Vec<usize> =
        (0..recorded.ops.len()).filter(|at| matches!(recorded.ops[*at], Op::Started(_))).collect();
    for at in starts {
        let sync = (0..at).rev().find(|at| matches!(recorded.ops[*at], Op::Sync(_))).unwrap();
        for (from, _) in &mut recorded.promises {
            if *from == at + 1 {
                *from = sync;
            }
        }
    }
    let outcome = torture(&env, &recorded, true);
    println!("{} of {} images", outcome.lost.len(), outcome.images);
    assert!(!outcome.lost.is_empty());
}
