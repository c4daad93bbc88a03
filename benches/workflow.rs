//! What a workflow costs above its commands, how fast runs are ticked, and how many runs a server
//! takes from 1, 4 and 16 workers.
//!
//! ```text
//! cargo bench --features bench --bench workflow [-- --nodes 50 --seconds 5 --runs 100]
//! ```
//!
//! It prints numbers and asserts nothing: they are the machine's. Writes are counted by the store, so
//! those are the program's.
#[path = "../tests/common/postgres.rs"]
mod postgres;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ctrlrun::drive::host;
use ctrlrun::drive::workflow::Counters;
use ctrlrun::drive::workflow::coordinator::Coordinator;
use ctrlrun::plan::time::Timestamp;
use ctrlrun::plan::workflow::pace::Pace;
use ctrlrun::plan::workflow::write::{Aim, Done};
use ctrlrun::plan::workflow::{
    Definition, InboxId, InboxItem, Name, NodeSpec, RunId, Tier, WaitSpec, What, Wish,
};
use ctrlrun::store::{Location, Mode, Options, open};

type Outcome<T> = Result<T, Box<dyn Error>>;

const WITHIN: Duration = Duration::from_secs(20);

struct Arguments {
    nodes: usize,
    seconds: u64,
    runs: usize,
}

fn main() -> Outcome<()> {
    let Arguments { nodes, seconds, runs } = arguments()?;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let at = directory.path();
    let file = at.join("store.db").to_str().ok_or("a path that is no text")?.to_owned();
    println!("SQLite");
    nodes_above_commands(at, &file, nodes, None)?;
    ticks(&file, seconds)?;
    let Some(server) = postgres::server_with(&postgres::Options {
        settings: vec!["max_connections=300".to_owned()],
        ..postgres::Options::default()
    }) else {
        println!("PostgreSQL: not installed");
        return Ok(());
    };
    println!("PostgreSQL");
    let url = server.url("postgres");
    nodes_above_commands(at, &url, nodes, Some(&server))?;
    ticks(&url, seconds)?;
    for workers in [1, 4, 16] {
        runs_per_second(at, &url, workers, runs, &server)?;
    }
    Ok(())
}

fn arguments() -> Outcome<Arguments> {
    let mut found = Arguments { nodes: 50, seconds: 5, runs: 100 };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || -> Outcome<usize> { Ok(args.next().ok_or("a number")?.parse()?) };
        match arg.as_str() {
            "--bench" => {}
            "--nodes" => found.nodes = number()?,
            "--seconds" => found.seconds = number()? as u64,
            "--runs" => found.runs = number()?,
            _ => return Err(format!("unknown argument {arg}").into()),
        }
    }
    Ok(found)
}

/// `ctrlrun` in an environment of its own.
fn ctrlrun(at: &Path, store: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ctrlrun"));
    command
        .args(words)
        .args(["--store", store])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", at)
        .env("XDG_STATE_HOME", at)
        .current_dir(at)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn done(command: &mut Command) -> Outcome<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// Transactions that wrote, as the server numbers them: one that only reads gets no number. Of the
/// embedded store calls of fsync stand for them.
fn commits(server: &postgres::Server) -> u64 {
    let sql = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text";
    server.sql(sql)[0][0].as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A chain of nodes against as many commands of `ctrlrun run`.
fn nodes_above_commands(
    at: &Path,
    store: &str,
    nodes: usize,
    server: Option<&postgres::Server>,
) -> Outcome<()> {
    done(&mut ctrlrun(at, store, &["init"]))?;
    let mut text = "name = \"chain\"\n".to_owned();
    for node in 0..nodes {
        let needs = node.checked_sub(1).map_or(String::new(), |before| format!("'n{before}'"));
        text.push_str(&format!("[node.n{node}]\nneeds = [{needs}]\ncommand = ['true']\n"));
    }
    fs::write(at.join("chain.toml"), text)?;
    let single = |round: usize| -> Outcome<Duration> {
        let start = Instant::now();
        for node in 0..nodes {
            let key = format!("single:{round}:{node}");
            done(ctrlrun(at, store, &["run", "--key", &key]).args(["--", "true"]))?;
        }
        Ok(start.elapsed())
    };
    let flow = |round: usize| -> Outcome<Duration> {
        let start = Instant::now();
        let id = format!("chain-{round}");
        done(&mut ctrlrun(at, store, &["workflow", "run", "chain.toml", "--id", &id]))?;
        Ok(start.elapsed())
    };
    // Once before it counts.
    single(0)?;
    flow(0)?;
    let writes = |what: &dyn Fn() -> Outcome<Duration>| -> Outcome<(Duration, Option<u64>)> {
        let before = server.map(commits);
        let took = what()?;
        Ok((took, server.map(commits).zip(before).map(|(after, before)| after - before)))
    };
    let (single_took, single_writes) = writes(&|| single(1))?;
    let (flow_took, flow_writes) = writes(&|| flow(1))?;
    let per = |took: Duration| took.as_secs_f64() * 1e3 / nodes as f64;
    println!(
        "  a node {:.3} ms, a `ctrlrun run` {:.3} ms: {:.3} times as long",
        per(flow_took),
        per(single_took),
        flow_took.as_secs_f64() / single_took.as_secs_f64()
    );
    let (flow_syncs, single_syncs) = match (flow_writes, single_writes) {
        (Some(flow), Some(single)) => (Some(flow), Some(single)),
        _ => (
            fsyncs(at, ctrlrun(at, store, &["workflow", "run", "chain.toml", "--id", "traced"]))?,
            {
                let mut one = ctrlrun(at, store, &["run", "--key", "traced"]);
                one.args(["--", "true"]);
                fsyncs(at, one)?.map(|one| one * nodes as u64)
            },
        ),
    };
    let what = if server.is_some() { "transactions that wrote" } else { "calls of fsync" };
    match (flow_syncs, single_syncs) {
        (Some(flow), Some(single)) => println!(
            "  {what}: a node {:.2}, a `ctrlrun run` {:.2}: {:.3} times as many",
            flow as f64 / nodes as f64,
            single as f64 / nodes as f64,
            flow as f64 / single as f64
        ),
        _ => println!("  {what}: not counted, strace is not here"),
    }
    Ok(())
}

/// How often a command and its children call fsync or fdatasync; `None` without strace.
fn fsyncs(at: &Path, command: Command) -> Outcome<Option<u64>> {
    let counts = at.join("strace");
    let mut traced = Command::new("strace");
    traced
        .args(["-f", "-c", "-e", "trace=fsync,fdatasync", "-o"])
        .arg(&counts)
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(at)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match traced.status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(status) if !status.success() => return Err(format!("{traced:?}: {status}").into()),
        Ok(_) => {}
    }
    let mut calls = 0;
    for line in fs::read_to_string(&counts)?.lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        if let (Some("fsync" | "fdatasync"), Some(count)) =
            (columns.last().copied(), columns.get(3))
        {
            calls += count.parse::<u64>()?;
        }
    }
    Ok(Some(calls))
}

/// Ticks of one coordinator, each of which commits: a node passes, and the next one waits.
fn ticks(store: &str, seconds: u64) -> Outcome<()> {
    let opened = open(&Location::parse(store)?, &Options::new(Mode::Write, WITHIN));
    let store = opened.map_err(|error| error.to_string())?.store;
    let (pace, counters) = (Pace::default(), Counters::default());
    let of =
        Coordinator { store: store.as_ref(), pace: &pace, counters: &counters, within: WITHIN };
    let name = |text: String| Name::new(text).map_err(|bad| bad.to_string());
    const STEPS: usize = 50;
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut rounds, mut ticking) = (0_u32, Duration::ZERO);
    while Instant::now() < until {
        let id = RunId::new(format!("ticks-{rounds}-{}", host::draw()))
            .map_err(|bad| bad.to_string())?;
        let mut nodes = BTreeMap::new();
        for step in 0..STEPS {
            let needs = step.checked_sub(1).map(|before| name(format!("n{before}"))).transpose()?;
            let signal = Some(name(format!("n{step}"))?);
            let wait = WaitSpec { signal, ..WaitSpec::default() };
            let spec = NodeSpec { needs: needs.into_iter().collect(), what: What::Wait(wait) };
            nodes.insert(name(format!("n{step}"))?, spec);
        }
        let definition = Definition {
            name: name("ticks".to_owned())?,
            tier: Tier::Normal,
            inputs: BTreeMap::new(),
            nodes,
        };
        let aim = Aim::Start { definition: Box::new(definition), inputs: BTreeMap::new() };
        of.write(&id, aim, None);
        for step in 0..STEPS {
            let wish = Wish::Signal {
                name: name(format!("n{step}"))?,
                payload: String::new(),
                by: "bench".to_owned(),
            };
            let item =
                InboxItem { id: InboxId(host::draw()), run: id.clone(), wish, at: Timestamp(0) };
            // What it ends with is the next tick's to see.
            let _ = store.runs().put_inbox(&item, WITHIN);
            let start = Instant::now();
            let done = of.write(&id, Aim::Tick, None);
            ticking += start.elapsed();
            if !matches!(done, Done::Committed(_)) {
                return Err(format!("a tick that did not commit: {done:?}").into());
            }
        }
        rounds += 1;
    }
    let ticks = f64::from(rounds) * STEPS as f64;
    println!("  {:.0} ticks a second of one coordinator", ticks / ticking.as_secs_f64());
    Ok(())
}

/// Runs of three nodes, from the first worker's start to the end of the last run.
fn runs_per_second(
    at: &Path,
    url: &str,
    workers: usize,
    runs: usize,
    server: &postgres::Server,
) -> Outcome<()> {
    let mut text = "name = \"three\"\n".to_owned();
    for (node, needs) in [("a", ""), ("b", "'a'"), ("c", "'b'")] {
        text.push_str(&format!("[node.{node}]\nneeds = [{needs}]\ncommand = ['true']\n"));
    }
    fs::write(at.join("three.toml"), text)?;
    for run in 0..runs {
        let id = format!("w{workers}-{run}");
        done(&mut ctrlrun(at, url, &["workflow", "start", "three.toml", "--id", &id]))?;
    }
    let start = Instant::now();
    let mut all: Vec<Child> = (0..workers)
        .map(|_| ctrlrun(at, url, &["workflow", "work", "--until-idle"]).spawn())
        .collect::<Result<_, _>>()?;
    let left = format!(
        "SELECT count(*)::text FROM ctrlrun.runs WHERE run_id LIKE 'w{workers}-%' AND status <> 'succeeded'"
    );
    while server.sql(&left)[0][0].as_deref() != Some("0") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = start.elapsed();
    for worker in &mut all {
        worker.wait()?;
    }
    println!(
        "  {workers:>2} workers: {:.1} runs of three nodes a second",
        runs as f64 / took.as_secs_f64()
    );
    Ok(())
}
