//! `ctrlrun batch`, whole: the built binary on real stores, real children, real kills.
//!
//! | file | about |
//! |---|---|
//! | `lines` | what becomes of each line: twice, mismatched, resumed, refused |
//! | `killed` | SIGKILL at random points, and the same line again |
//! | `many` | several batches of one file at once; one key that hangs |
//! | `stops` | signals |
//! | `shown` | output, reports, summaries |
//! | `memory` | the length of the input |
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails"))]
#[expect(dead_code, reason = "the tests of `run` use the rest")]
#[path = "../common/run.rs"]
mod at;
#[path = "../common/mod.rs"]
mod common;

mod killed;
mod lines;
mod many;
mod memory;
mod shown;
mod stops;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::Command;

use at::Place;
use common::{Output, finish};
use serde_json::{Value, json};

/// A script that marks by its key: one line, one `O_APPEND` write.
const MARK_KEY: &str = r#"echo "$CTRLRUN_KEY" >>"$PLACE/marker"; "#;

/// A line that runs a script.
fn line(key: &str, script: &str) -> String {
    json!({ "key": key, "command": ["sh", "-c", script] }).to_string() + "\n"
}

/// So many lines that mark by their keys, `k:0` and so on.
fn marking(many: usize) -> String {
    (0..many).fold(String::new(), |mut lines, number| {
        let _ = write!(lines, "{}", line(&format!("k:{number}"), MARK_KEY));
        lines
    })
}

/// Writes the input, and gives its name.
fn file(at: &Place, lines: &str) -> String {
    let path = at.env.path("here/in.jsonl");
    fs::write(&path, lines).unwrap();
    "in.jsonl".to_owned()
}

/// `ctrlrun batch FILE FLAGS` on the place's store.
fn batch(at: &Place, file: &str, flags: &[&str]) -> Command {
    let mut command = at.ctrlrun(&["batch", file]);
    command.args(flags);
    command
}

/// Runs it to its end.
fn run(at: &Place, lines: &str, flags: &[&str]) -> Output {
    let file = file(at, lines);
    finish(&mut batch(at, &file, flags))
}

/// How often each key came about.
fn marks(at: &Place) -> BTreeMap<String, usize> {
    let mut marks = BTreeMap::new();
    for key in at.marked() {
        *marks.entry(key).or_default() += 1;
    }
    marks
}

/// The summary object of a batch with `--json`.
fn summary(out: &Output) -> Value {
    serde_json::from_str(&out.stdout).unwrap_or_else(|_| panic!("no summary: {out:?}"))
}
