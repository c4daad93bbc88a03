//! The flags of `ctrlrun batch` (BAT clauses).
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ctrlrun::plan::verdict::NotExecuted;

use crate::cli::values::{self, Capture};

/// Run many commands, each as an effect of its own: once, whatever happens in between
///
/// The lines are JSON objects, {"key":"refund:txn_1","command":["./refund.sh","txn_1"]} or
/// {"effect":"refund","params":{"payment_id":"txn_1"}}, or a table with a header (--csv, --tsv) whose
/// names are placeholders. Run the same line again to resume: what is COMMITTED is left as it is, what
/// is AMBIGUOUS is listed and not run, all else runs.
#[derive(Debug, PartialEq, Args)]
#[command(after_help = "Examples:
  ctrlrun batch refunds.jsonl -j8
  ctrlrun batch refunds.csv --csv -k 'refund:{payment_id}' -j8 -- ./refund.sh {payment_id} {amount}
  jq -c '...' orders.json | ctrlrun batch --report done.jsonl
  ctrlrun batch refunds.csv --csv -k 'refund:{payment_id}' --dry-run -- ./refund.sh {payment_id}

Exit status: 0 all COMMITTED, now or earlier; 76 some AMBIGUOUS; 1 some did not happen or were refused;
130 stopped by a signal; 69 the store could not be used.")]
pub struct BatchArgs {
    /// The lines; - or nothing: standard input
    #[arg(value_name = "FILE|-")]
    pub file: Option<PathBuf>,
    /// How many children run at once [default: the number of processors]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,

    /// A table: comma-separated values with a header
    #[arg(long, conflicts_with = "tsv", requires = "key", help_heading = "The lines")]
    pub csv: bool,
    /// A table: tab-separated values with a header
    #[arg(long, requires = "key", help_heading = "The lines")]
    pub tsv: bool,
    /// The key of a table's rows, with its columns as {placeholders}
    #[arg(short, long, value_name = "TEMPLATE", help_heading = "The lines")]
    pub key: Option<String>,
    /// Allow a key with an empty part, "null", "undefined", or an unexpanded $X or {x}
    #[arg(long, help_heading = "The lines")]
    pub key_as_is: bool,

    /// Exit codes that prove that nothing happened, where a line does not say so
    #[arg(long, value_name = "CODES", value_parser = values::not_executed, help_heading = "The commands")]
    pub not_executed: Option<NotExecuted>,
    /// End each after this long, where a line does not say so
    #[arg(long, value_name = "DUR", value_parser = values::some_time, help_heading = "The commands")]
    pub timeout: Option<Duration>,
    /// From TERM to KILL
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = values::duration, help_heading = "The commands")]
    pub kill_after: Duration,
    /// How soon a crash is noticed; renewed as long as the command runs [default: 5m]
    #[arg(long, value_name = "DUR", value_parser = values::lease, help_heading = "The commands")]
    pub lease: Option<Duration>,
    /// How much of each stream is stored (its first and last half), or none [default: 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = values::capture, help_heading = "The commands")]
    pub capture: Option<Capture>,
    /// Your own mark on each, as NAME=VALUE; evidence only
    #[arg(long, value_name = "K=V", value_parser = values::label, help_heading = "The commands")]
    pub label: Vec<(String, String)>,

    /// What the commands write: with the key in front of each line, or none of it [default: prefix]
    #[arg(
        long,
        value_name = "WHAT",
        conflicts_with = "output_dir",
        help_heading = "What is shown"
    )]
    pub output: Option<Shown>,
    /// What the commands write, to KEY.out and KEY.err in this directory instead
    #[arg(long, value_name = "DIR", help_heading = "What is shown")]
    pub output_dir: Option<PathBuf>,
    /// Write a JSON report there, one object a line, as effects end
    #[arg(long, value_name = "FILE", help_heading = "What is shown")]
    pub report: Option<PathBuf>,
    /// Say what would happen; reserve nothing
    #[arg(long, help_heading = "What is shown")]
    pub dry_run: bool,

    /// The command of a table's rows, behind `--`, with its columns as {placeholders}
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// See [`BatchArgs::output`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shown {
    /// The key in front of each line
    Prefix,
    /// Nothing
    None,
}
