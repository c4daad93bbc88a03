//! Beside the store and after the fact, with the built binary: the journal, hooks, completion, pages,
//! packages. One target, so that it links once.
//!
//! | file | about |
//! |---|---|
//! | `alter` | what a test changes in a store behind its back |
//! | `journal` | what is written, when, and what becomes of a run that cannot write it |
//! | `forgotten` | a store that has forgotten what the journal knows |
//! | `hooks` | programs that are told of an outcome |
//! | `complete` | TAB in real shells |
//! | `pages` | manual pages, read by those who show them |
//! | `packages` | what the packages hold |
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails"))]
#[expect(unused, reason = "some of its helpers are enough here")]
#[path = "../common/run.rs"]
mod at;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/pty.rs"]
mod pty;
#[expect(unused, reason = "some of its helpers are enough here")]
#[path = "../common/real.rs"]
mod real;

#[expect(unused, reason = "some of its helpers are enough here")]
#[path = "../operate/alter.rs"]
mod alter;
mod complete;
mod forgotten;
mod hooks;
mod journal;
mod packages;
mod pages;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use at::Place;
use serde_json::Value;

/// Makes this the configuration of a place's commands; see [`with`].
fn configure(at: &Place, text: &str) {
    fs::write(at.env.path("c.toml"), text).unwrap();
}

/// A command that reads that configuration.
fn with<'a>(at: &Place, command: &'a mut Command) -> &'a mut Command {
    command.env("CTRLRUN_CONFIG", at.env.path("c.toml"))
}

/// A journal for a place, in a folder of its own, and its file.
fn journaled(at: &Place) -> PathBuf {
    let folder = at.env.path("log");
    fs::create_dir_all(&folder).unwrap();
    configure(at, "[journal]\nfile = \"log/journal.jsonl\"\n");
    folder.join("journal.jsonl")
}

/// `ctrlrun run` with that configuration, to its end.
fn run(at: &Place, key: &str, flags: &[&str], script: &str) -> common::Output {
    common::finish(with(at, &mut at.run(key, flags, script)))
}

/// The lines of a journal.
fn lines(file: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}
