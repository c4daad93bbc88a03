//! Many runs, two hosts, one server, and workers that are killed at random under a printed seed
//! (WFL-6 to WFL-12): no node's command runs twice, every run ends or is blocked by a node in doubt,
//! and a kill explains each doubt.
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::process::Child;
use std::time::{Duration, Instant};

use common::finish;
use common::hosts::Hosts;
use common::pgstore::let_pass;
use serde_json::Value;

const RUNS: usize = 200;
const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];
const WORKERS: usize = 8;
const KILLS: usize = 30;

/// All of it takes no longer, on however busy a machine.
const BOUND: Duration = Duration::from_secs(400);

/// Numbers that a seed decides: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

struct Fleet<'a> {
    at: &'a Hosts,
    workers: Vec<Child>,
    killed: BTreeSet<u64>,
}

impl Fleet<'_> {
    fn start(at: &Hosts, index: usize) -> Child {
        let words = ["workflow", "work", "-q", "-j", "2", "--hold", "1s"];
        let err = at.env.path(&format!("err-{index}"));
        let err = File::options().append(true).create(true).open(err).unwrap();
        at.on(index % 2, &words).stderr(err).spawn().unwrap()
    }

    /// Kills one, and starts another in its place.
    fn replace(&mut self, index: usize) {
        let mut gone = std::mem::replace(&mut self.workers[index], Self::start(self.at, index));
        gone.kill().unwrap();
        gone.wait().unwrap();
        // `nsenter` becomes what it starts: the process is the worker.
        self.killed.insert(u64::from(gone.id()));
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            drop((worker.kill(), worker.wait()));
        }
    }
}

fn lines(at: &Hosts, words: &[&str]) -> Vec<Value> {
    let out = finish(&mut at.on(0, words));
    assert_eq!(out.code, Some(0), "{out:?}");
    out.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The statuses of all runs, and how many of each there are.
fn standing(at: &Hosts) -> BTreeMap<String, usize> {
    let mut standing = BTreeMap::new();
    for run in lines(at, &["workflow", "list", "--json"]) {
        let nodes = run["nodes"].as_object().unwrap();
        let in_flight = nodes.values().any(|node| node["state"] == "dispatched");
        let status = run["status"].as_str().unwrap();
        let status = if status == "blocked" && in_flight { "running" } else { status };
        *standing.entry(status.to_owned()).or_default() += 1;
    }
    standing
}

fn marks(at: &Hosts) -> BTreeMap<String, usize> {
    let mut marks = BTreeMap::new();
    let text = fs::read_to_string(at.env.path("here/marker")).unwrap_or_default();
    for line in text.lines() {
        *marks.entry(line.to_owned()).or_default() += 1;
    }
    marks
}

#[test]
fn killed_at_random_no_node_runs_twice_and_every_run_ends_or_is_blocked_for_a_reason() {
    // WFL-6, WFL-8, WFL-9, WFL-10, WFL-11, WFL-12, WFL-16
    let Some(at) = Hosts::new() else { return };
    let seed = std::env::var("CTRLRUN_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| getrandom::u64().unwrap()) | 1;
    println!("CTRLRUN_TEST_SEED={seed}");
    let mut random = Random(seed);

    let mark = r#"echo "$CTRLRUN_KEY" >>marker"#;
    let needs = ["", "'a'", "'a'", "'b', 'c'", "'d'"];
    let mut text = "name = 'many'\n".to_owned();
    for (node, needs) in NODES.iter().zip(needs) {
        text.push_str(&format!(
            "[node.{node}]\nneeds = [{needs}]\nlease = '2s'\ncommand = ['sh', '-c', '''{mark}''']\n"
        ));
    }
    fs::write(at.env.path("here/many.toml"), text).unwrap();
    let workers = (0..WORKERS).map(|index| Fleet::start(&at, index)).collect();
    let mut fleet = Fleet { at: &at, workers, killed: BTreeSet::new() };
    for run in 0..RUNS {
        let id = format!("r{run:03}");
        let words = ["workflow", "start", "-q", "many.toml", "--id", &id];
        let started = finish(&mut at.on(run % 2, &words));
        assert_eq!(started.code, Some(0), "{started:?}");
        if run % (RUNS / KILLS) == 0 {
            fleet.replace(usize::try_from(random.below(WORKERS as u64)).unwrap());
        }
    }
    let started = Instant::now();
    let kinds = loop {
        let standing = standing(&at);
        let open = ["running", "cancelling", "failing"];
        if open.iter().all(|status| !standing.contains_key(*status)) {
            break standing;
        }
        assert!(started.elapsed() < BOUND, "it does not end: {standing:?}, seed {seed}");
        if fleet.killed.len() < KILLS * 3 / 2 {
            fleet.replace(usize::try_from(random.below(WORKERS as u64)).unwrap());
        }
        let_pass(random.below(400));
    };
    println!("{} kills; {kinds:?}", fleet.killed.len());
    let of = |kind: &str| kinds.get(kind).copied().unwrap_or_default();
    assert_eq!(of("succeeded") + of("blocked"), RUNS, "{kinds:?}, seed {seed}");
    let marked = marks(&at);
    assert!(marked.values().all(|times| *times == 1), "{marked:?}, seed {seed}");

    // Each doubt is explained by a kill, and decided by what the marker says.
    let stuck = lines(&at, &["effects", "--stuck", "--json"]);
    for effect in &stuck {
        let key = effect["key"].as_str().unwrap();
        assert_eq!(effect["state"], "ambiguous", "{effect:#}");
        if let Some(pid) = effect["ran_on"]["pid"].as_u64() {
            assert!(
                fleet.killed.contains(&pid),
                "nobody was killed there: {effect:#}, seed {seed}"
            );
        }
        let decision = if marked.contains_key(key) { "--committed" } else { "--not-executed" };
        let revision = effect["revision"].to_string();
        let words = ["resolve", key, decision, "--expect", &revision, "--reason", "the marker"];
        let done = finish(&mut at.on(1, &words));
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    assert!(stuck.len() <= fleet.killed.len() * 2, "two jobs each: {}", stuck.len());
    loop {
        let standing = standing(&at);
        if standing.get("succeeded") == Some(&RUNS) {
            break;
        }
        assert!(
            started.elapsed() < BOUND,
            "decided, and it does not end: {standing:?}, seed {seed}"
        );
        let_pass(200);
    }
    let marked = marks(&at);
    assert_eq!(marked.len(), RUNS * NODES.len(), "seed {seed}");
    assert!(marked.values().all(|times| *times == 1), "{marked:?}, seed {seed}");
}
