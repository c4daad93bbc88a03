//! `ctrlrun resolve`: a person says what is so (CLI-19, EFF-18, EFF-19).
//!
//! | file | about |
//! |---|---|
//! | [`one`] | one effect, by its key |
//! | [`bulk`] | decisions from a file or a pipe |
//! | [`lines`] | the lines of such a file |
//! | [`pick`] | picking from a list on a terminal |
//! | [`guard`] | the terminal, when a signal comes |
//! | [`deciding`] | what all of them do: decide, and tell |
mod bulk;
mod deciding;
mod guard;
pub mod lines;
mod one;
mod pick;

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::Global;
use super::error::{CliError, Exit};

/// Say what is so of an effect that is stuck
///
/// Stuck is what is AMBIGUOUS, and what runs no more and never reported.
///
/// It is about the revision that was looked at (--expect, as `ctrlrun show` prints it): if the record
/// has moved since, nothing is changed, and what came since is listed. Without a key, on a terminal, it
/// shows what is stuck, and lets you pick.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("decision").args(["committed", "not_executed", "reopen"]).requires("key"),
    after_help = "Examples:
  ctrlrun resolve refund:txn_77 --committed --expect 3 --reason 're_5512 in the dashboard'
  ctrlrun resolve refund:txn_91 --not-executed --expect 3 --reason 'provider has none, OPS-12'
  ctrlrun resolve refund:txn_91 --reopen --expect 4 --reason 'looked at the wrong account'
  echo re_5512 | ctrlrun resolve refund:txn_77 --committed --output - --expect 3 --reason '...'
  ctrlrun resolve                                   on a terminal: pick from a list
  ctrlrun effects --stuck --json |
    jq -c '{key, revision, decision: \"not-executed\", reason: \"network down, INC-40\"}' |
    ctrlrun resolve --from -

Exit status: 0 done, or so already; 66 no such effect; 73 settled otherwise; 75 running;
79 the record has moved."
)]
pub struct ResolveArgs {
    /// The effect's key
    pub key: Option<String>,
    /// Decisions, one JSON object a line: key, revision, decision, reason; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "decision", "output", "reason", "expect"])]
    pub from: Option<PathBuf>,
    /// It happened: it will not run again
    #[arg(long)]
    pub committed: bool,
    /// It did not happen: it may run again
    #[arg(long)]
    pub not_executed: bool,
    /// Take a decision back: AMBIGUOUS again, nothing will run
    #[arg(long)]
    pub reopen: bool,
    /// With --committed: what later runs print as its output; `-` is standard input
    #[arg(long, value_name = "FILE", requires = "committed")]
    pub output: Option<PathBuf>,
    /// How you know: a ticket, a page you looked at. It is kept
    #[arg(long, value_name = "TEXT", requires = "key")]
    pub reason: Option<String>,
    /// The revision that you looked at; at a terminal you are shown the record and asked
    #[arg(long, value_name = "N", requires = "key", value_parser = clap::value_parser!(u64).range(1..))]
    pub expect: Option<u64>,
    /// Who decides [default: SUDO_USER or USER, at this host]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

/// Records decisions.
///
/// # Errors
/// 64, 66, 73, 75, 79; what the store could not do.
pub fn resolve(args: &ResolveArgs, global: &Global) -> Result<Exit, CliError> {
    match (&args.from, &args.key) {
        (Some(from), _) => bulk::bulk(from, args, global),
        (None, Some(key)) => one::one(key, args, global),
        (None, None) => pick::pick(args, global),
    }
}
