//! The flags of `ctrlrun run` (CLI-8).
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::verdict::NotExecuted;

use crate::cli::values::{self, Capture, Per};
use crate::config::effect::Probe;

/// Run one command as an effect: once, whatever happens in between
///
/// The key names the effect. If it is new, or is known not to have happened, the command runs. If it is
/// COMMITTED, nothing runs and the stored output is printed. If nobody knows (AMBIGUOUS), nothing runs
/// until a person has looked. Exit 0 means COMMITTED; any other exit code proves nothing, unless
/// --not-executed says so.
#[derive(Debug, PartialEq, Args)]
#[command(
    override_usage = "ctrlrun run --key KEY [OPTIONS] -- CMD [ARG...]\n       ctrlrun run [OPTIONS] NAME [PARAM=VALUE...]",
    after_help = "Examples:
  ctrlrun run --key refund:txn_1 -- ./refund.sh txn_1
  ctrlrun run --key refund:txn_1 --not-executed 6,11 -- ./refund.sh txn_1
  ctrlrun run refund payment_id=txn_1 amount=500
  0 3 * * * ctrlrun run -k backup --per day --on-running skip -- backup.sh
  while read -r id; do ctrlrun run -n -k \"m:$id\" -- ./m.sh \"$id\"; done <ids

Exit status: the command's own if it ran; 0 COMMITTED, now or earlier; 64 to 79 nothing was run
(ctrlrun help exit-codes)."
)]
pub struct RunArgs {
    /// The effect's name; a key names one effect for ever
    #[arg(short, long, required_unless_present = "name")]
    pub key: Option<String>,
    /// A job that comes round again: append the current period (UTC) to the key
    #[arg(long, value_name = "PERIOD")]
    pub per: Option<Per>,
    /// Allow a key with an empty part, "null", "undefined", or an unexpanded $X or {x}
    #[arg(long)]
    pub key_as_is: bool,

    /// Exit codes that prove that nothing happened: "6,11", or "nonzero" (1 to 123)
    #[arg(long, value_name = "CODES", value_parser = values::not_executed, help_heading = "The command")]
    pub not_executed: Option<NotExecuted>,
    /// End it after this long: TERM, then KILL; AMBIGUOUS unless it says otherwise
    #[arg(long, value_name = "DUR", value_parser = values::some_time, help_heading = "The command")]
    pub timeout: Option<Duration>,
    /// From TERM to KILL
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = values::duration, help_heading = "The command")]
    pub kill_after: Duration,
    /// How soon a crash is noticed; renewed as long as the command runs [default: 5m]
    #[arg(long, value_name = "DUR", value_parser = values::lease, help_heading = "The command")]
    pub lease: Option<Duration>,
    /// How much of each stream is kept (its first and last half), or none; you see all of it [default: 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = values::capture, help_heading = "The command")]
    pub capture: Option<Capture>,
    /// Give it /dev/null as standard input
    #[arg(short, long, help_heading = "The command")]
    pub no_stdin: bool,

    /// If it is COMMITTED already: print its stored output, be silent, or end 73
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "replay",
        help_heading = "If it is there already"
    )]
    pub on_committed: OnCommitted,
    /// If another attempt is running: end 75, or be silent and end 0
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "refuse",
        help_heading = "If it is there already"
    )]
    pub on_running: OnRunning,
    /// Wait that long for another attempt, then decide again
    #[arg(long, value_name = "DUR", value_parser = values::duration, help_heading = "If it is there already")]
    pub wait: Option<Duration>,
    /// Only if the record stands so: any, new, exists, or a revision
    #[arg(long, value_name = "STATE", default_value = "any", value_parser = values::expect, help_heading = "If it is there already")]
    pub expect: StreamState,
    /// Refuse more attempts than this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "If it is there already")]
    pub max_attempts: Option<u64>,
    /// If it is AMBIGUOUS: ask this (sh -c): exit 0 and a last line `committed` or `not-executed`
    #[arg(long, value_name = "CMD", value_parser = NonEmptyStringValueParser::new(), help_heading = "If it is there already")]
    pub reconcile: Option<String>,
    /// How long that may take [default: what its effect says, or 30s]
    #[arg(long, value_name = "DUR", value_parser = values::some_time, help_heading = "If it is there already")]
    pub reconcile_timeout: Option<Duration>,
    /// Allow another command on a key that was resolved as not executed
    #[arg(long, help_heading = "If it is there already")]
    pub rebind: bool,

    /// Run it again in this process after FAILED, at most so often; never after AMBIGUOUS
    #[arg(long, value_name = "N", help_heading = "Again")]
    pub retries: Option<u32>,
    /// The pause before the first retry; it doubles [default: 1s]
    #[arg(long, value_name = "DUR", value_parser = values::duration, help_heading = "Again")]
    pub backoff: Option<Duration>,

    /// One more value that identifies the request
    #[arg(long, value_name = "VALUE", help_heading = "What identifies the request")]
    pub bind: Vec<OsString>,
    /// One more file whose content identifies it
    #[arg(long, value_name = "FILE", help_heading = "What identifies the request")]
    pub bind_file: Vec<PathBuf>,
    /// One more variable whose value identifies it
    #[arg(long, value_name = "NAME", help_heading = "What identifies the request")]
    pub bind_env: Vec<OsString>,
    /// This value identifies it, and the command's arguments do not
    #[arg(long, value_name = "VALUE", help_heading = "What identifies the request")]
    pub bind_only: Vec<OsString>,

    /// Your own name for this attempt; evidence only
    #[arg(long, value_name = "ID", help_heading = "Evidence")]
    pub attempt_id: Option<String>,
    /// Your own mark on it, as NAME=VALUE; evidence only
    #[arg(long, value_name = "K=V", value_parser = values::label, help_heading = "Evidence")]
    pub label: Vec<(String, String)>,
    /// Write a JSON report there, for refusals too
    #[arg(long, value_name = "FILE", help_heading = "Evidence")]
    pub report: Option<PathBuf>,
    /// Whose exit status to end with: the command's, or 0 COMMITTED, 1 FAILED, 76 AMBIGUOUS
    #[arg(long, value_name = "WHOSE", default_value = "child", help_heading = "Evidence")]
    pub exit: ExitAs,
    /// Say what would happen; reserve nothing
    #[arg(long, help_heading = "Evidence")]
    pub dry_run: bool,

    /// Or an effect of ctrlrun.toml, by its name
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Its parameters
    #[arg(value_name = "PARAM=VALUE", requires = "name")]
    pub params: Vec<OsString>,
    /// The command and its arguments, behind `--`
    #[arg(last = true, required_unless_present = "name", value_name = "CMD")]
    pub command: Vec<OsString>,
    /// What finds out whether it happened, of a named effect that has such a thing.
    #[arg(skip)]
    pub probe: Option<Probe>,
}

impl RunArgs {
    /// The key as it was given; empty where none was.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }

    /// How soon a crash is noticed.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease.unwrap_or(Duration::from_secs(300))
    }

    /// How much of each stream is kept.
    #[must_use]
    pub fn capture(&self) -> Capture {
        self.capture.unwrap_or(Capture::Bytes(64 << 10))
    }

    /// The pause before the first retry.
    #[must_use]
    pub fn backoff(&self) -> Duration {
        self.backoff.unwrap_or(Duration::from_secs(1))
    }
}

/// See [`RunArgs::on_committed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnCommitted {
    /// Print the stored output, end 0
    Replay,
    /// Be silent, end 0
    Skip,
    /// End 73
    Refuse,
}

/// See [`RunArgs::on_running`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnRunning {
    /// End 75
    Refuse,
    /// Be silent, end 0
    Skip,
}

/// See [`RunArgs::exit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExitAs {
    /// The command's
    Child,
    /// The outcome's
    Outcome,
}
