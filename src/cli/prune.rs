//! `ctrlrun prune`: lets go of what is old (OPS-1 to OPS-7).
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use ctrlrun::drive::prune::{Halt, Tally, Terms, prune as go};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::retention::Stays;
use ctrlrun::store::stop;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::Global;
use super::access::{Opened, for_reading, for_writing};
use super::error::{CliError, Deed, Exit, Kind};
use super::render::text::{count, number, safe_json, span};
use super::spooled::deliver_all;
use super::terminal::{self, Answer, a_person_is_there, answer};
use super::values;

/// Drop the stored output of effects that were settled long ago, or forget them
///
/// Only what is COMMITTED or FAILED goes, by the time when it was settled; what needs a decision, or is
/// running, never does. Output is dropped first: the record stays, and a later run of the key still
/// replays nothing but says so.
///
/// With --forget-keys the key is as good as new: A LATER RUN OF IT RUNS ITS COMMAND AGAIN. An effect of
/// which an attempt was never seen to end keeps its key. Workflow runs that ended so long ago go as well,
/// and so does the name: the same --id is a new run then. What belongs to a run that has not ended stays.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun prune --older-than 30d --dry-run      what would go
  ctrlrun prune --older-than 30d                stored output
  ctrlrun prune --older-than 365d --forget-keys --yes

Exit status: 0; 64 not confirmed; 69 the store did not go on: what is told to be gone is gone,
and the same command goes on from there.")]
pub struct PruneArgs {
    /// Settled at least so long ago, by the store's clock
    #[arg(long, value_name = "DUR", value_parser = values::duration)]
    pub older_than: Duration,
    /// Forget whole effects: their keys may then run again
    #[arg(long)]
    pub forget_keys: bool,
    /// Do not ask
    #[arg(long, requires = "forget_keys")]
    pub yes: bool,
    /// Say what would go, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Only keys that start with this
    #[arg(long, value_name = "P")]
    pub prefix: Option<String>,
}

/// Lets go.
///
/// # Errors
/// 64 where nobody confirmed; what the store could not do.
pub fn prune(args: &PruneArgs, global: &Global) -> Result<Exit, CliError> {
    let ask = args.forget_keys && !args.yes && !args.dry_run;
    if ask && !a_person_is_there() {
        return Err(unconfirmed("it needs --yes where nobody can be asked"));
    }
    if let Some(point) = std::env::var_os("CTRLRUN_STOP_AT") {
        stop::arm(&point.to_string_lossy());
    }
    let opened = match args.dry_run {
        true => for_reading(global)?,
        false => for_writing(global, Deed::Change)?,
    };
    let spare = match args.dry_run {
        true => BTreeSet::new(),
        // What a child said of its attempt comes before anything of it is forgotten.
        false => deliver_all(&opened, global)?,
    };
    if ask {
        confirm(args, global, &opened, spare.clone())?;
    }
    let (tally, end) = walk(terms(args, spare, args.dry_run), global, &opened);
    if global.json {
        let line = object(args, &opened, &tally);
        let mut out = Answer::plain();
        out.put(|out| writeln!(out, "{}", safe_json(&line)))?;
        out.end()?;
    } else {
        answer(&text(args, &tally))?;
    }
    match end {
        Ok(()) => Ok(Exit::OK),
        Err(halt) => Err(halted(halt, &opened)),
    }
}

fn terms(args: &PruneArgs, spare: BTreeSet<Key>, dry_run: bool) -> Terms {
    Terms {
        older_than: args.older_than,
        forget_keys: args.forget_keys,
        prefix: args.prefix.clone(),
        spare,
        dry_run,
    }
}

fn walk(terms: Terms, global: &Global, opened: &Opened) -> (Tally, Result<(), Halt>) {
    let bar = bar(global);
    let mut told = |tally: &Tally| {
        bar.set_position(tally.looked_at);
        if tally.looked_at.is_multiple_of(256) {
            bar.set_message(count(tally.outputs + tally.effects, "effect"));
        }
    };
    let ended = go(opened.store.as_ref(), &terms, opened.within, &mut told);
    bar.finish_and_clear();
    ended
}

/// On a terminal only.
fn bar(global: &Global) -> ProgressBar {
    if global.quiet || global.json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{spinner} {human_pos} looked at, {msg} to go or gone");
    let bar = ProgressBar::new_spinner();
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Counts first, so that the question says how many.
fn confirm(
    args: &PruneArgs,
    global: &Global,
    opened: &Opened,
    spare: BTreeSet<Key>,
) -> Result<(), CliError> {
    let (tally, end) = walk(terms(args, spare, true), global, opened);
    end.map_err(|halt| halted(halt, opened))?;
    if tally.effects + tally.runs == 0 {
        return Ok(());
    }
    let runs = match tally.runs {
        0 => String::new(),
        runs => format!(" and {}", count(runs, "workflow run")),
    };
    terminal::prompt(&format!(
        "Forget {}{runs} in {}? A later run of these keys RUNS ITS COMMAND AGAIN. [y/N] ",
        count(tally.effects, "effect"),
        opened.place.shown()
    ));
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    if read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(unconfirmed("not confirmed"))
}

fn unconfirmed(why: &str) -> CliError {
    let message =
        format!("--forget-keys: {why}; nothing was changed: keys that are forgotten may run again");
    CliError::new(Kind::Usage, message).tell("what would go", "--dry-run")
}

fn halted(halt: Halt, opened: &Opened) -> CliError {
    let error = match halt {
        Halt::CouldNot(error) => CliError::could_not(&error, &opened.place, Deed::Look),
        Halt::Unknown(error) => CliError::unknown(&error, &opened.place, Deed::Change)
            .fact("of the last transaction all is gone, or nothing is"),
    };
    error.fact("what was told to be gone is gone, no effect by half; the same command goes on")
}

/// Why something stays, in a person's words, and its name in JSON.
fn why(stays: Stays) -> (&'static str, &'static str) {
    match stays {
        Stays::Unsettled => ("unsettled", "are not settled"),
        Stays::Young => ("young", "were settled too short a time ago"),
        Stays::OfARun => ("of_a_run", "belong to a workflow run that has not ended"),
        Stays::Unseen => ("unseen", "keep their key: nobody saw an attempt of theirs end"),
        Stays::InDoubt => ("in_doubt", "keep their key: a late word says it may have happened"),
        Stays::Damaged => ("damaged", "are not the fold of their history (ctrlrun doctor --deep)"),
    }
}

fn text(args: &PruneArgs, tally: &Tally) -> String {
    let (dropped, forgotten) =
        if args.dry_run { ("would drop", "would forget") } else { ("dropped", "forgotten") };
    let mut lines = Vec::new();
    let bytes = count(tally.output_bytes, "byte");
    if args.forget_keys {
        lines.push((forgotten, format!("{} ({bytes} of output)", count(tally.effects, "effect"))));
        if tally.outputs > 0 {
            lines.push((dropped, format!("the output of {} more", number(tally.outputs))));
        }
        if tally.runs > 0 {
            lines.push((forgotten, count(tally.runs, "workflow run")));
        }
    } else {
        let effects = count(tally.outputs, "effect");
        lines.push((dropped, format!("the output of {effects} ({bytes})")));
    }
    let old = span(args.older_than);
    let looked_at = count(tally.looked_at, "settled effect");
    lines.push(("looked at", format!("{looked_at}, first reserved at least {old} ago")));
    let mut stay: Vec<(u64, &str)> =
        tally.stay.iter().map(|(stays, effects)| (*effects, why(*stays).1)).collect();
    stay.push((tally.moved, "changed meanwhile"));
    stay.push((tally.spooled, "have an outcome in the spool"));
    stay.push((tally.unreadable, "cannot be read (ctrlrun doctor --deep)"));
    for (effects, why) in stay.into_iter().filter(|(effects, _)| *effects > 0) {
        lines.push(("stay", format!("{} {why}", number(effects))));
    }
    if tally.runs_stay > 0 {
        let runs = count(tally.runs_stay, "workflow run");
        lines.push(("stay", format!("{runs} that ended too short a time ago, or with doubts")));
    }
    if tally.unknown > 0 {
        lines.push(("not known", format!("{} effects or runs", number(tally.unknown))));
    }
    lines.iter().map(|(label, line)| format!("{label:<12}  {line}\n")).collect()
}

fn object(args: &PruneArgs, opened: &Opened, tally: &Tally) -> Value {
    let mut stay = serde_json::Map::new();
    for stays in [Stays::Young, Stays::OfARun, Stays::Unseen, Stays::InDoubt, Stays::Damaged] {
        let effects = tally.stay.get(&stays).copied().unwrap_or(0);
        stay.insert(why(stays).0.to_owned(), effects.into());
    }
    stay.insert("moved".to_owned(), tally.moved.into());
    stay.insert("spooled".to_owned(), tally.spooled.into());
    stay.insert("unreadable".to_owned(), tally.unreadable.into());
    json!({
        "store": opened.place.location.to_string(),
        "dry_run": args.dry_run,
        "older_than_ms": u64::try_from(args.older_than.as_millis()).unwrap_or(u64::MAX),
        "looked_at": tally.looked_at,
        "outputs": tally.outputs,
        "output_bytes": tally.output_bytes,
        "effects": tally.effects,
        "runs": tally.runs,
        "runs_stay": tally.runs_stay,
        "unknown": tally.unknown,
        "stay": stay,
    })
}
