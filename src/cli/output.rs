//! `ctrlrun output`: what a command wrote (CLI-18).
use clap::Args;
use ctrlrun::store::{Captured, Stream, was_pruned};

use super::access::{Opened, for_reading};
use super::error::{CliError, Deed, Exit, Hint, Kind};
use super::render::shell::line;
use super::render::text::{clean, count};
use super::terminal::{Answer, say};
use super::{Global, existing_key};

/// Print the stored output of an effect, byte for byte
///
/// That of the last attempt that has any. Where it was not stored whole, stderr says so.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun output refund:txn_77
  ctrlrun output refund:txn_77 --stderr --attempt 1")]
pub struct OutputArgs {
    /// The effect's key
    pub key: String,
    /// Standard error instead
    #[arg(long)]
    pub stderr: bool,
    /// Of this attempt
    #[arg(long, value_name = "N")]
    pub attempt: Option<u64>,
}

/// Prints the stream.
///
/// # Errors
/// 66 if there is no such effect, or nothing stored of it.
pub fn output(args: &OutputArgs, global: &Global) -> Result<Exit, CliError> {
    let key = existing_key(&args.key, Deed::Look)?;
    let opened = for_reading(global)?;
    let record = opened.find(&key)?.record;
    let attempts = match args.attempt {
        Some(attempt) => attempt..=attempt,
        None => record.first_attempt..=record.attempt,
    };
    let mut found = None;
    for attempt in attempts.rev() {
        if let Some(captured) = stored(&opened, &key, attempt, args.stderr)? {
            found = Some((attempt, captured));
            break;
        }
    }
    let Some((attempt, captured)) = found else {
        return Err(nothing_stored(&opened, args));
    };
    if was_pruned(&captured) {
        let message = format!(
            "{}: the {} that attempt {attempt} wrote were pruned: only their number is left",
            clean(key.as_str()),
            count(captured.bytes, "byte")
        );
        return Err(CliError::new(Kind::NotFound, message));
    }
    if !captured.whole && captured.bytes == 0 {
        let message = format!(
            "{}: what attempt {attempt} wrote was not stored (--capture none)",
            clean(key.as_str())
        );
        return Err(CliError::new(Kind::NotFound, message));
    }
    if !captured.whole {
        say(&format!(
            "{}: attempt {attempt} wrote {}; {} of them are stored: the rest, from the middle, is NOT here",
            clean(key.as_str()),
            count(captured.bytes, "byte"),
            count((captured.head.len() + captured.tail.len()) as u64, "byte"),
        ));
    }
    let mut out = Answer::plain();
    out.put(|out| {
        out.write_all(&captured.head)?;
        out.write_all(&captured.tail)
    })?;
    out.end()?;
    Ok(Exit::OK)
}

/// What a person stated stands before what the child wrote.
fn stored(
    opened: &Opened,
    key: &ctrlrun::plan::key::Key,
    attempt: u64,
    stderr: bool,
) -> Result<Option<Captured>, CliError> {
    if stderr {
        return opened.output(key, attempt, Stream::Stderr);
    }
    match opened.output(key, attempt, Stream::Stated)? {
        Some(stated) => Ok(Some(stated)),
        None => opened.output(key, attempt, Stream::Stdout),
    }
}

fn nothing_stored(opened: &Opened, args: &OutputArgs) -> CliError {
    let stream = if args.stderr { "stderr" } else { "stdout" };
    let of = match args.attempt {
        Some(attempt) => format!(" of attempt {attempt}"),
        None => String::new(),
    };
    let key = clean(&args.key);
    let message = format!("{key}: no {stream}{of} is stored in {}", opened.place.named());
    let error = CliError::new(Kind::NotFound, message);
    if args.stderr {
        return error;
    }
    error.hint(Hint::command(
        "the other stream",
        line("output", &args.key, "--stderr", &opened.place),
    ))
}
