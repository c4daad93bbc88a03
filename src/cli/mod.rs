//! The face of the engine: what a user types, and what comes back (CLI clauses).
//!
//! One file a subcommand: its arguments, whose comments are the help text, and one function.
//!
//! | file | about |
//! |---|---|
//! | [`which`] | which store it is, and why that one |
//! | [`access`] | opening it |
//! | [`values`] | what can stand behind a flag |
//! | [`error`] | what is told when it did not go well; the exit codes |
//! | [`refusal`] | the engine's refusals, in a person's words |
//! | [`render`] | records and histories, for people and for programs |
//! | [`spooled`] | outcomes that are still to be delivered |
//! | [`watch`] | a list that is drawn again and again |
//! | [`terminal`] | stdout and stderr |
//! | [`probes`] | probes: what is told of them, which one it is |
//! | [`hooks`] | programs that are told of an outcome |
//! | [`journal`] | the second memory, before a run and for doctor |
//! | [`suggest`] | what was meant, most likely |
//! | [`prometheus`] | numbers for a collector |
//! | [`complete`] | what can stand at the cursor of a shell |
//! | [`man`] | manual pages |
//! | [`parsing`] | what is told of a command line that cannot be meant |
mod access;
mod bare;
pub mod batch;
mod complete;
mod doctor;
mod effects;
pub mod error;
mod help;
mod history;
mod hooks;
pub mod init;
mod journal;
mod man;
mod outcome;
mod output;
mod parsing;
mod probes;
mod prometheus;
mod prune;
mod reconcile;
mod refusal;
pub mod render;
pub mod resolve;
mod run;
mod show;
mod spooled;
mod stats;
pub mod suggest;
pub mod terminal;
pub mod values;
mod verify;
mod waiting;
mod watch;
mod which;
pub mod workflow;

use std::ffi::OsString;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use error::{CliError, Exit};
use terminal::say;

use crate::config::{self, Config};

/// Runs a command as an effect: something that must not happen twice
#[derive(Debug, Parser)]
#[command(
    name = "ctrlrun",
    version,
    disable_help_subcommand = true,
    override_usage = "ctrlrun run --key KEY -- CMD [ARG...]\n       ctrlrun COMMAND ...",
    max_term_width = 100,
    after_help = "Examples:
  ctrlrun run --key refund:txn_1 -- ./refund.sh txn_1
  ctrlrun run --key backup --per day -- ./backup.sh
  ctrlrun effects --stuck
  ctrlrun show refund:txn_1

More: ctrlrun help outcomes | exit-codes | probes | keys | stores | config | json"
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What every command takes, before or after its name.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Everywhere")]
pub struct Global {
    /// The store: a path or sqlite:PATH [env: CTRLRUN_STORE] [default: the user's own]
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<OsString>,
    /// The configuration [env: CTRLRUN_CONFIG] [default: see `ctrlrun help config`]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<OsString>,
    /// What the configuration says; read between the command line and the command.
    #[arg(skip)]
    pub settings: Arc<Config>,
    /// Answer in JSON: one object, or one object a line for lists
    #[arg(long, global = true)]
    pub json: bool,
    /// Colours
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub color: ColorChoice,
    /// Say more on stderr: which store, and why that one
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Print no notes; refusals are always printed
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// How long one store command may take
    #[arg(long, global = true, value_name = "DUR", default_value = "10s", value_parser = values::some_time)]
    pub store_timeout: Duration,
}

impl Global {
    /// With nothing but a store, for a command line that could not be read.
    #[must_use]
    fn bare(store: Option<OsString>) -> Self {
        Self {
            store,
            config: None,
            settings: Arc::default(),
            json: false,
            color: ColorChoice::Auto,
            verbose: 0,
            quiet: true,
            store_timeout: Duration::from_secs(10),
        }
    }

    /// A line that `-q` silences (CLI-2).
    pub fn note(&self, line: &str) {
        if self.quiet {
            return;
        }
        if self.json {
            // One object a line, as the errors beside it.
            let mut err = anstream::stderr().lock();
            let note = serde_json::json!({ "note": line.trim_start() });
            let _ = writeln!(err, "{}", render::text::safe_json(&note));
        } else {
            say(line);
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::RunArgs>),
    Batch(Box<batch::BatchArgs>),
    Workflow(workflow::WorkflowArgs),
    Outcome(outcome::OutcomeArgs),
    #[command(visible_alias = "ls")]
    Effects(effects::EffectsArgs),
    Show(show::ShowArgs),
    History(history::HistoryArgs),
    #[command(visible_alias = "logs")]
    Output(output::OutputArgs),
    Resolve(resolve::ResolveArgs),
    Reconcile(reconcile::ReconcileArgs),
    Init(init::InitArgs),
    Verify(verify::VerifyArgs),
    Doctor(doctor::DoctorArgs),
    Prune(prune::PruneArgs),
    Stats(stats::StatsArgs),
    Completions(complete::CompletionsArgs),
    Man(man::ManArgs),
    Help(help::HelpArgs),
    /// What completion scripts ask
    #[command(name = "__complete", hide = true)]
    Complete(complete::CompleteArgs),
    /// What verify's workers run
    #[command(name = "__execute", hide = true)]
    Execute(crate::verify::execute::ExecuteArgs),
}

/// The whole command line; returns the exit status.
#[must_use]
pub fn main(words: impl IntoIterator<Item = OsString>) -> Exit {
    let words: Vec<OsString> = words.into_iter().collect();
    let mut cli = match parse(&words) {
        Ok(cli) => cli,
        Err(error) => return parsing::report(&error, &words),
    };
    set_colour(cli.global.color);
    let json = cli.global.json;
    if let Err(error) = configure(&mut cli) {
        error.report(json);
        return error.exit();
    }
    dispatch(cli).unwrap_or_else(|error| {
        error.report(json);
        error.exit()
    })
}

/// Reads the configuration, where the command looks at it.
fn configure(cli: &mut Cli) -> Result<(), CliError> {
    let walk = match &cli.command {
        // What runs something, or asks what became of it, does so by what stands above the working
        // directory as well; what looks does not need it, and a mistake there must not be in its way.
        Some(
            Command::Run(_)
            | Command::Batch(_)
            | Command::Workflow(_)
            | Command::Reconcile(_)
            | Command::Doctor(_),
        ) => true,
        None
        | Some(
            Command::Effects(_)
            | Command::Show(_)
            | Command::History(_)
            | Command::Output(_)
            | Command::Resolve(_)
            | Command::Prune(_)
            | Command::Stats(_)
            | Command::Verify(_),
        ) => false,
        Some(Command::Init(args)) if args.writes_config() => return Ok(()),
        Some(Command::Init(_)) => false,
        Some(
            Command::Outcome(_)
            | Command::Help(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Complete(_)
            | Command::Execute(_),
        ) => return Ok(()),
    };
    match config::load(cli.global.config.clone(), walk) {
        Ok(config) => {
            cli.global.settings = Arc::new(config);
            Ok(())
        }
        Err(error) => {
            if let Some(Command::Run(args)) = &cli.command {
                let store = cli.global.store.clone();
                run::report_usage(&error, args.report.clone().map(Into::into), store);
            }
            Err(error)
        }
    }
}

/// What is told after a bug of ours; the standard library has said where it was.
#[must_use]
pub fn after_a_panic() -> Exit {
    say(
        "internal error, a bug in ctrlrun: look at the effect (ctrlrun show KEY) before anything else",
    );
    error::Kind::Internal.exit()
}

/// Reads the command line.
///
/// `run` is what scripts call by the thousand, and making flags that it will not look at costs
/// noticeably: so the plain ones are read without the parser, the rest gets a tree of its own with
/// the same words, and neither tree is taken down again, since this process is about to end anyway.
fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    if let Some((global, args)) = run::quick::read(words) {
        return Ok(Cli { global, command: Some(Command::Run(Box::new(args))) });
    }
    let is_run = words.get(1).is_some_and(|word| word == "run");
    let tree = if is_run { OnlyRun::command() } else { Cli::command() };
    let mut tree = ManuallyDrop::new(tree);
    let mut matches = ManuallyDrop::new(tree.try_get_matches_from_mut(words)?);
    if is_run {
        let OnlyRun { global, command: RunCommand::Run(args) } =
            OnlyRun::from_arg_matches_mut(&mut matches)?;
        Ok(Cli { global, command: Some(Command::Run(args)) })
    } else {
        Cli::from_arg_matches_mut(&mut matches)
    }
}

/// A run as the parser reads it, to hold the quick reading against.
#[cfg(test)]
fn parsed_run(words: &[OsString]) -> Option<(Global, run::RunArgs)> {
    let matches = OnlyRun::command().try_get_matches_from(words).ok()?;
    let OnlyRun { global, command: RunCommand::Run(args) } =
        OnlyRun::from_arg_matches(&matches).ok()?;
    Some((global, *args))
}

/// See [`parse`].
#[derive(Debug, Parser)]
#[command(name = "ctrlrun", version, disable_help_subcommand = true, max_term_width = 100)]
struct OnlyRun {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    Run(Box<run::RunArgs>),
}

/// The tree of commands.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

fn dispatch(cli: Cli) -> Result<Exit, CliError> {
    let global = &cli.global;
    match cli.command {
        None => bare::bare(global),
        Some(Command::Run(args)) => run::run(*args, global),
        Some(Command::Batch(args)) => batch::batch(&args, global),
        Some(Command::Outcome(args)) => outcome::outcome(&args),
        Some(Command::Effects(args)) => effects::effects(&args, global),
        Some(Command::Show(args)) => show::show(&args, global),
        Some(Command::History(args)) => history::history(&args, global),
        Some(Command::Output(args)) => output::output(&args, global),
        Some(Command::Resolve(args)) => resolve::resolve(&args, global),
        Some(Command::Reconcile(args)) => reconcile::reconcile(&args, global),
        Some(Command::Init(args)) => init::init(&args, global),
        Some(Command::Workflow(args)) => workflow::workflow(args, global),
        Some(Command::Verify(args)) => verify::verify(&args, global),
        Some(Command::Doctor(args)) => doctor::doctor(&args, global),
        Some(Command::Prune(args)) => prune::prune(&args, global),
        Some(Command::Stats(args)) => stats::stats(&args, global),
        Some(Command::Help(args)) => help::help(&args),
        Some(Command::Completions(args)) => complete::completions(&args),
        Some(Command::Man(args)) => man::man(&args),
        Some(Command::Complete(args)) => Ok(complete::complete(&args)),
        Some(Command::Execute(args)) => crate::verify::execute::execute(&args)
            .map(Exit)
            .map_err(|error| CliError::new(error::Kind::Internal, "__execute").because(&error)),
    }
}

fn set_colour(choice: ColorChoice) {
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// The key of a command that looks at or changes what is there: KEY-1 alone, since a key that was run
/// with `--key-as-is` must be reachable.
///
/// # Errors
/// 64.
fn existing_key(text: &str, deed: error::Deed) -> Result<ctrlrun::plan::key::Key, CliError> {
    ctrlrun::plan::key::Key::new(text).map_err(|bad| CliError::bad_key(text, &bad, deed))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_tree_of_commands_is_sound() {
        super::command().debug_assert();
        super::OnlyRun::command().debug_assert();
    }

    #[test]
    fn a_run_is_told_the_same_by_its_own_tree_as_by_the_whole() {
        let help = |mut tree: clap::Command| {
            tree.build();
            tree.find_subcommand_mut("run").unwrap().render_long_help().to_string()
        };
        assert_eq!(help(super::OnlyRun::command()), help(super::Cli::command()));
    }
}
