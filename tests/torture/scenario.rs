//! What is done to a store while it is recorded, and what is promised to somebody while it is done.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ctrlrun::plan::effect::evolve;
use ctrlrun::plan::key::Key;
use ctrlrun::plan::workflow::{RunEvent, RunId, evolve as evolve_run};
use ctrlrun::store::{Ask, Mode, Store};

use crate::common::TestEnv;
use crate::common::store::{WITHIN, open_at};
use crate::record::{Op, trace};

/// What was told to somebody, and must be there from then on: the events of each key, and of the run.
pub type Promise = BTreeMap<&'static str, Vec<&'static str>>;

/// The keys of the commands that are run one at a time.
const ALONE: [&str; 4] = ["once", "again", "killed", "late"];
/// Those of the batch, whose writes land in groups.
const BATCH: [&str; 4] = ["b/1", "b/2", "b/3", "b/4"];
/// The run of the workflow, and its nodes' keys.
pub const RUN: &str = "flow";
pub const NODES: [&str; 3] = ["flow/first", "flow/left", "flow/right"];

/// Every child's last word is its key, by which its start is known in the trace; a node marks its own
/// beside.
const WORKFLOW: &str = r#"
name = "flow"
[node.first]
command = ["sh", "-c", "echo $0 >>$MARKS; echo fed", "flow/first"]
lease = "1s"
[node.left]
needs = ["first"]
command = ["sh", "-c", "echo $0 >>$MARKS; exit 6", "flow/left"]
not_executed = [6]
retries = 1
backoff = "10ms"
lease = "1s"
[node.right]
needs = ["first"]
command = ["sh", "-c", "echo $0 >>$MARKS; exit 1", "flow/right"]
lease = "1s"
"#;

/// A scenario: what was done to the files, and from which of it on what is promised.
pub struct Recorded {
    pub ops: Vec<Op>,
    pub promises: Vec<(usize, Promise)>,
    pub store: PathBuf,
    /// The workflow's file.
    pub workflow: PathBuf,
    /// The keys that it has to do with.
    pub keys: Vec<&'static str>,
}

/// What is there before anything is done.
fn nothing(env: &TestEnv, keys: Vec<&'static str>) -> Recorded {
    let store = env.path("here").join("store").join("effects.db");
    fs::create_dir(store.parent().unwrap()).unwrap();
    let workflow = env.path("here").join("flow.toml");
    fs::write(&workflow, WORKFLOW).unwrap();
    Recorded { ops: Vec::new(), promises: Vec::new(), store, workflow, keys }
}

/// Commands that are run one at a time, traced: each kind of write, a holder that is killed. `None`
/// where nothing can be traced.
pub fn alone(env: &TestEnv) -> Option<Recorded> {
    let mut recorded = nothing(env, ALONE.to_vec());
    let run = |recorded: &mut Recorded, key: &'static str, words: &[&str], child: &str| {
        let mut all = vec!["run", "--key", key, "--not-executed", "6"];
        all.extend(words);
        all.extend(["--", "sh", "-c", child, key]);
        one(env, recorded, &all)
    };
    one(env, &mut recorded, &["init"])?;
    run(&mut recorded, "once", &[], "head -c 30000 /dev/zero")?;
    run(&mut recorded, "again", &[], "exit 6")?;
    run(&mut recorded, "again", &[], "echo done")?;
    // Its log stays behind, and the next one finds it.
    run(&mut recorded, "killed", &["--lease", "1s"], "kill -9 $PPID; exec sleep 1.2")?;
    run(&mut recorded, "killed", &[], "echo never")?;
    let decide = ["resolve", "killed", "--not-executed", "--expect", "3", "--reason", "seen"];
    one(env, &mut recorded, &decide)?;
    run(&mut recorded, "late", &[], "exit 1")?;
    run(&mut recorded, "killed", &["--rebind"], "echo once more")?;
    Some(recorded)
}

/// A batch of four at once, so that what several of them write lands in one transaction, and a run of a
/// workflow, whose ticks write rows of several kinds in one.
pub fn together(env: &TestEnv) -> Option<Recorded> {
    let mut recorded = nothing(env, BATCH.into_iter().chain(NODES).collect());
    one(env, &mut recorded, &["init"])?;
    batch(env, &mut recorded)?;
    let file = recorded.workflow.to_string_lossy().into_owned();
    one(env, &mut recorded, &["workflow", "run", &file, "--id", RUN])?;
    Some(recorded)
}

fn batch(env: &TestEnv, recorded: &mut Recorded) -> Option<()> {
    let line = |(nth, key): (usize, &&str)| {
        let child = ["exit 0", "exit 6", "echo done", "exit 1"][nth % 4];
        let command = serde_json::json!(["sh", "-c", child, key]);
        let line = serde_json::json!({ "key": key, "command": command, "not_executed": [6] });
        format!("{line}\n")
    };
    let lines: String = BATCH.iter().enumerate().map(line).collect();
    let file = env.path("here").join("lines.jsonl");
    fs::write(&file, lines).unwrap();
    one(env, recorded, &["batch", &file.to_string_lossy(), "-j", "4"])
}

/// One command, traced to its end. At the start of a child its attempt is promised to have begun; at
/// the end all that can be seen is.
fn one(env: &TestEnv, recorded: &mut Recorded, words: &[&str]) -> Option<()> {
    let mut command = env.command(words);
    command.env("CTRLRUN_STORE", &recorded.store).env("MARKS", env.path("tmp").join("marks"));
    let last = recorded.promises.last();
    let mut promise = last.map(|(_, promise)| promise.clone()).unwrap_or_default();
    for op in trace(&command, recorded.store.parent().unwrap())? {
        recorded.ops.push(op);
        let Some(Op::Started(word)) = recorded.ops.last() else { continue };
        if let Some(key) = recorded.keys.iter().find(|key| *key == word) {
            let events = promise.entry(key).or_default();
            if events.last() == Some(&"began") {
                // It was tried again: what came of the attempt before was told.
                events.push("failed");
            }
            events.extend(["reserved", "began"]);
            recorded.promises.push((recorded.ops.len(), promise.clone()));
        }
    }
    recorded.promises.push((recorded.ops.len(), seen(env, recorded)));
    Some(())
}

/// The events of every key, in a copy of the store's files: looking changes nothing.
fn seen(env: &TestEnv, recorded: &Recorded) -> Promise {
    let copy = env.path("tmp").join("copy");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(recorded.store.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    there(&copy.join("effects.db"), &recorded.keys).unwrap()
}

/// The events of every key and of the run, each held against its record (HIS-2, WFL-5).
pub fn there(store: &Path, keys: &[&'static str]) -> Result<Promise, String> {
    let store = open_at(store, Mode::Write).map_err(|error| error.to_string())?.store;
    let mut found = Promise::new();
    let mut dispatched = Vec::new();
    found.insert(RUN, run_events(&*store, &mut dispatched)?);
    for key in keys.iter().copied() {
        let events = events(&*store, key)?;
        if NODES.contains(&key) && !events.is_empty() && !dispatched.iter().any(|it| it == key) {
            return Err(format!(
                "{key}: an attempt of it is there, and its run never dispatched it"
            ));
        }
        found.insert(key, events);
    }
    Ok(found)
}

fn events(store: &dyn Store, name: &str) -> Result<Vec<&'static str>, String> {
    let key = Key::new(name).unwrap();
    let history = store.history(&key, 1, WITHIN).map_err(|error| error.to_string())?;
    let found = store.load(&key, Ask::Nothing, WITHIN).map_err(|error| error.to_string())?;
    let mut fold = None;
    for row in &history {
        fold = Some(evolve(&key, fold, row).map_err(|error| error.to_string())?);
    }
    if fold != found.record {
        return Err(format!("{name}: its record is not the fold of its history"));
    }
    Ok(history.iter().map(|row| row.event.kind()).collect())
}

/// The events of the run; `dispatched` is filled with the keys that it has dispatched.
fn run_events(
    store: &dyn Store,
    dispatched: &mut Vec<String>,
) -> Result<Vec<&'static str>, String> {
    let id = RunId::new(RUN).unwrap();
    let (runs, told) = (store.runs(), |error: ctrlrun::store::CouldNot| error.to_string());
    let history = runs.run_history(&id, 1, WITHIN).map_err(told)?;
    let found = runs.load_run(&id, WITHIN).map_err(told)?;
    let mut fold = None;
    for row in &history {
        fold = Some(evolve_run(&id, fold, row).map_err(|error| error.to_string())?);
        if let RunEvent::NodeDispatched { key, .. } = &row.event {
            dispatched.push(key.as_str().to_owned());
        }
    }
    if fold != found.run {
        return Err(format!("{RUN}: its row is not the fold of its history"));
    }
    Ok(history.iter().map(|row| row.event.kind()).collect())
}

/// Nodes whose newest attempt has begun and has not failed.
pub fn under_way(found: &Promise) -> Vec<&'static str> {
    let free = ["failed", "resolved", "reserved"];
    let nodes = NODES.into_iter().filter(|key| found.contains_key(key));
    nodes.filter(|key| found[key].last().is_some_and(|last| !free.contains(last))).collect()
}
