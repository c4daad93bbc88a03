//! `ctrlrun workflow`: many steps, many hosts (WFL clauses).
//!
//! | file | about |
//! |---|---|
//! | [`file`] | a workflow's file, and what is wrong with it |
//! | [`graph`] | a drawing of it |
//! | [`begin`] | `start` and `run`: a run that is there already, or by another definition |
//! | [`work`] | what ticks and runs nodes |
//! | [`tell`] | what is said of it meanwhile |
//! | [`wish`] | `cancel`, `signal` |
//! | [`status`] | how a run stands, live |
//! | [`list`] | the runs of a store |
//! | [`object`] | a run as JSON |
mod begin;
pub mod file;
mod graph;
mod hints;
mod list;
mod object;
mod status;
mod tell;
mod wish;
mod work;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ctrlrun::plan::workflow::{Definition, Name, RunId};

use super::Global;
use super::error::{CliError, Deed, Exit, Hint, Kind};
use super::render::shell::{quote, store_flag};
use super::render::text::{clean, count};
use super::terminal::answer;
use super::which::Place;

/// Run many effects as one: a graph of steps that any number of hosts may drive
///
/// A run is driven by whoever is there: `workflow run` drives its own, `workflow work` all runs of the store. None of them holds a lock, and each may die at any moment.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun workflow check nightly.toml
  ctrlrun workflow run nightly.toml --id nightly-2026-11-30 day=2026-11-30
  ctrlrun workflow status nightly-2026-11-30")]
pub struct WorkflowArgs {
    #[command(subcommand)]
    command: WorkflowCommand,
}

#[derive(Debug, Subcommand)]
enum WorkflowCommand {
    /// Say what is wrong with a workflow's file, with lines
    Check(CheckArgs),
    /// Draw a workflow
    Graph(GraphArgs),
    /// Start a run and drive it to its end, in this process
    Run(begin::RunArgs),
    /// Start a run; workers drive it
    Start(begin::StartArgs),
    /// Drive runs: tick them, and run their nodes
    Work(work::WorkArgs),
    /// How a run stands; live on a terminal
    Status(status::StatusArgs),
    /// The runs of the store
    List(list::ListArgs),
    /// Ask a run to end: nothing more is dispatched, what runs is waited for
    Cancel(wish::CancelArgs),
    /// Send a run a signal
    Signal(wish::SignalArgs),
}

/// See [`WorkflowCommand::Check`].
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The workflow's file
    pub file: PathBuf,
}

/// See [`WorkflowCommand::Graph`].
#[derive(Debug, Args)]
pub struct GraphArgs {
    /// The workflow's file
    pub file: PathBuf,
    /// In DOT, for Graphviz
    #[arg(long)]
    pub dot: bool,
}

/// Does it.
///
/// # Errors
/// What each of them may end with.
pub fn workflow(args: WorkflowArgs, global: &Global) -> Result<Exit, CliError> {
    match args.command {
        WorkflowCommand::Check(args) => check(&args, global),
        WorkflowCommand::Graph(args) => draw(&args, global),
        WorkflowCommand::Run(args) => begin::run(&args, global),
        WorkflowCommand::Start(args) => begin::start(&args, global),
        WorkflowCommand::Work(args) => work::work(&args, global),
        WorkflowCommand::Status(args) => status::status(&args, global),
        WorkflowCommand::List(args) => list::list(&args, global),
        WorkflowCommand::Cancel(args) => wish::cancel(&args, global),
        WorkflowCommand::Signal(args) => wish::signal(&args, global),
    }
}

fn check(args: &CheckArgs, global: &Global) -> Result<Exit, CliError> {
    let definition = load(&args.file, global)?;
    let hash = ctrlrun::plan::workflow::hash(&definition.canonical());
    if global.json {
        let object = serde_json::json!({
            "name": definition.name,
            "hash": hash,
            "nodes": definition.in_order(),
            "inputs": definition.inputs.keys().collect::<Vec<_>>(),
        });
        answer(&format!("{object}\n"))?;
    } else {
        let nodes = count(definition.nodes.len() as u64, "node");
        answer(&format!("{}: {nodes}, nothing is wrong with it\n", definition.name))?;
    }
    Ok(Exit::OK)
}

fn draw(args: &GraphArgs, global: &Global) -> Result<Exit, CliError> {
    let definition = load(&args.file, global)?;
    if global.json {
        answer(&format!("{}\n", graph::object(&definition)))?;
        return Ok(Exit::OK);
    }
    answer(&if args.dot { graph::dot(&definition) } else { graph::lanes(&definition) })?;
    Ok(Exit::OK)
}

/// A workflow's file, with the named effects of the configuration.
///
/// # Errors
/// As [`file::load`].
fn load(path: &Path, global: &Global) -> Result<Definition, CliError> {
    let effects = &global.settings.effects;
    file::load(path, &|name| effects.get(name).map(file::Named::of))
}

/// A run's name, as it was typed.
///
/// # Errors
/// 64.
fn run_id(text: &str, deed: Deed) -> Result<RunId, CliError> {
    RunId::new(text).map_err(|bad| {
        CliError::new(Kind::Usage, deed.undone_after(&format!("{}: {bad}", clean(text))))
    })
}

/// `NAME=VALUE`, as it was typed.
///
/// # Errors
/// What is wrong with it.
fn input(text: &str) -> Result<(Name, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((Name::new(name).map_err(|bad| bad.to_string())?, value.to_owned()))
}

/// 66: there is no such run. Names the store, and why that one.
fn no_such_run(run: &RunId, place: &Place) -> CliError {
    let message = format!("no run {} in {}", clean(run.as_str()), place.named());
    let look = format!("ctrlrun workflow list{}", store_flag(place));
    CliError::new(Kind::NotFound, message).hint(Hint::command("look", look))
}

/// A line of `ctrlrun workflow` about a run.
fn line(subcommand: &str, run: &RunId, rest: &str, place: &Place) -> String {
    let rest = if rest.is_empty() { String::new() } else { format!(" {rest}") };
    let store = store_flag(place);
    match run.as_str() {
        dashed if dashed.starts_with('-') => {
            format!("ctrlrun workflow {subcommand}{rest}{store} -- {}", quote(dashed))
        }
        name => format!("ctrlrun workflow {subcommand} {}{rest}{store}", quote(name)),
    }
}
