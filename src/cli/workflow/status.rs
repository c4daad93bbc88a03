//! `ctrlrun workflow status`: how a run stands; live on a terminal.
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use clap::Args;
use ctrlrun::drive::workflow::Counters;
use ctrlrun::drive::workflow::coordinator::Coordinator;
use ctrlrun::plan::effect::State;
use ctrlrun::plan::workflow::pace::Pace;
use ctrlrun::plan::workflow::tick::Loaded;
use ctrlrun::plan::workflow::{Definition, Dispatch, Name, NodeState, Status};

use super::hints::hints;
use super::{no_such_run, object, run_id};
use crate::cli::Global;
use crate::cli::access::{Opened, for_reading};
use crate::cli::error::{CliError, Deed, Exit};
use crate::cli::render::text::{age, clean, cut, second, width};
use crate::cli::terminal::{Answer, Reader, answer, columns};

/// How often a live table is drawn anew.
const EVERY: Duration = Duration::from_secs(1);

/// See the help of `status`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun workflow status nightly-2026-11-30
  ctrlrun workflow status nightly-2026-11-30 --json | jq .status

On a terminal the table is live until the run has ended; --once shows it once.")]
pub struct StatusArgs {
    /// The run
    pub id: String,
    /// Once, also on a terminal
    #[arg(long)]
    pub once: bool,
}

/// Shows it.
///
/// # Errors
/// 66 if there is no such run; what the store or stdout could not do.
pub fn status(args: &StatusArgs, global: &Global) -> Result<Exit, CliError> {
    let id = run_id(&args.id, Deed::Look)?;
    let opened = for_reading(global)?;
    let (pace, counters) = (Pace::default(), Counters::default());
    let within = global.store_timeout;
    let coordinator =
        Coordinator { store: opened.store.as_ref(), pace: &pace, counters: &counters, within };
    let look = || match coordinator.look(&id) {
        Ok(Some(loaded)) => Ok(loaded),
        Ok(None) => Err(no_such_run(&id, &opened.place)),
        Err(error) => Err(opened.could_not(&error)),
    };
    let live = !args.once
        && !global.json
        && std::io::stdout().is_terminal()
        && can_move(std::env::var_os("TERM").as_deref());
    let loaded = look()?;
    if global.json {
        let next: Vec<String> = hints(&loaded.run, &loaded.records, &opened)
            .into_iter()
            .map(|hint| hint.text)
            .collect();
        let object = object::of(&loaded.run, Some(&loaded.records), &next, &opened.place);
        answer(&format!("{object}\n"))?;
        return Ok(Exit::OK);
    }
    let mut drawn = 0;
    let mut loaded = loaded;
    loop {
        // What is drawn over must all be on the screen; the last one stays, and is whole.
        let over = live && !loaded.run.status.is_end();
        let lines = table(&loaded, &opened, screen_rows().filter(|_| over));
        if drawn > 0 {
            // Back to the first line of what was drawn before, and all of that away. That is no colour,
            // and goes out where none is wanted (NO_COLOR).
            let mut up = Answer::plain();
            up.put(|out| write!(out, "\x1b[{drawn}A\x1b[J"))?;
            up.end()?;
        }
        let mut out = Answer::styled();
        let there = out.put(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))?;
        out.end()?;
        if !live || loaded.run.status.is_end() || there == Reader::Gone {
            return Ok(Exit::OK);
        }
        drawn = lines.iter().map(|line| rows(line)).sum();
        std::thread::sleep(EVERY);
        loaded = look()?;
    }
}

/// Whether a terminal of this name can move its cursor.
fn can_move(term: Option<&OsStr>) -> bool {
    term.is_some_and(|name| !name.is_empty() && name != "dumb")
}

/// The lines of the table, none wider than the terminal, and of no more rows than `fits`: then nodes in
/// motion or in trouble are shown, and the others counted.
fn table(loaded: &Loaded, opened: &Opened, fits: Option<usize>) -> Vec<String> {
    let run = &loaded.run;
    let mut order = order(loaded);
    let tail = tail(loaded, opened);
    let mut left_out = None;
    if let Some(fits) = fits {
        // A row for the head, and one for the cursor.
        let room = fits.saturating_sub(2 + tail.iter().map(|line| rows(line)).sum::<usize>());
        if order.len() > room {
            let all = std::mem::take(&mut order);
            let (loud, quiet): (Vec<&Name>, Vec<&Name>) =
                all.into_iter().partition(|node| is_loud(loaded, node));
            let mut shown = loud;
            let rest = shown.split_off(shown.len().min(room.saturating_sub(1)));
            left_out = Some(counted(loaded, rest.iter().chain(&quiet)));
            order = shown;
        }
    }
    let widest = order.iter().map(|node| width(node.as_str())).max().unwrap_or(0).clamp(4, 32);
    let mut lines = vec![format!(
        "{}   {}   {}, started {}, changed {} ago",
        clean(run.id.as_str()),
        painted(style(run.status), &run.status.name().to_uppercase()),
        run.workflow,
        second(run.created_at),
        age(loaded.now.since(run.updated_at)),
    )];
    for node in order {
        let Some(at) = run.progress.nodes.get(node) else {
            continue;
        };
        let (style, state, more) = told(&at.state, loaded);
        let gap = " ".repeat(widest.saturating_sub(width(node.as_str())));
        let state_gap = " ".repeat(12_usize.saturating_sub(width(&state)));
        let retries = match at.retries {
            0 => String::new(),
            count => format!("  retry {count}"),
        };
        let more = format!("{}{retries}", clean(&more));
        // The colour is no part of the width.
        let plain = 2 + widest + 2 + width(&state) + state_gap.len() + 2;
        let more = match columns() {
            Some(columns) => cut(&more, columns.saturating_sub(plain)).into_owned(),
            None => more,
        };
        let line = format!("  {node}{gap}  {}{state_gap}  {more}", painted(style, &state));
        lines.push(line.trim_end().to_owned());
    }
    lines.extend(left_out);
    lines.extend(tail);
    let mut lines: Vec<String> = lines.into_iter().map(narrow).collect();
    if let Some(fits) = fits {
        // Of many decisions only the first ones have room; the others come when those are made.
        let mut left = fits.saturating_sub(1);
        lines.retain(|line| {
            let fits = rows(line) <= left;
            left = if fits { left - rows(line) } else { 0 };
            fits
        });
    }
    lines
}

/// Why the run stands so, and what to type next.
fn tail(loaded: &Loaded, opened: &Opened) -> Vec<String> {
    let reason = loaded.run.reason.iter().map(|reason| narrow(format!("  {}", clean(reason))));
    let hints = hints(&loaded.run, &loaded.records, opened);
    reason.chain(hints.iter().map(|hint| format!("  {}: {}", hint.label, hint.text))).collect()
}

/// A line that is no wider than the terminal.
fn narrow(line: String) -> String {
    match columns() {
        // Lines with colours were measured already, and a command must stay whole.
        Some(columns) if !line.contains('\x1b') && !line.contains("ctrlrun ") => {
            cut(&line, columns).into_owned()
        }
        Some(_) | None => line,
    }
}

/// Whether a node is in motion, waits, or is in trouble.
fn is_loud(loaded: &Loaded, node: &Name) -> bool {
    let state = loaded.run.progress.nodes.get(node).map(|node| &node.state);
    state.is_some_and(|state| match state {
        NodeState::Dispatched { .. }
        | NodeState::Waiting { .. }
        | NodeState::Failed { .. }
        | NodeState::Ambiguous { .. }
        | NodeState::Unfit { .. } => true,
        NodeState::Pending
        | NodeState::Skipped
        | NodeState::Passed
        | NodeState::Committed { .. } => false,
    })
}

/// How many nodes stand how, of those that are not shown.
fn counted<'a>(loaded: &Loaded, nodes: impl Iterator<Item = &'a &'a Name>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes {
        if let Some(at) = loaded.run.progress.nodes.get(*node) {
            *counts.entry(told(&at.state, loaded).1).or_default() += 1;
        }
    }
    let counts = counts.iter().map(|(state, count)| format!("{count} {state}"));
    format!("  and {}  (all of them: --once)", counts.collect::<Vec<_>>().join(", "))
}

/// Rows of the terminal that stdout is.
fn screen_rows() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(_, height)| height.0.into())
}

/// How many rows of the terminal a line takes: one that is longer than the terminal is wide goes on
/// in the next.
fn rows(line: &str) -> usize {
    let plain = anstream::adapter::strip_str(line).to_string();
    columns().map_or(1, |columns| width(&plain).div_ceil(columns.max(1)).max(1))
}

fn order(loaded: &Loaded) -> Vec<&Name> {
    let nodes = &loaded.run.progress.nodes;
    let definition = Definition::read(&loaded.run.definition);
    let mut order: Vec<&Name> = Vec::new();
    if let Ok(definition) = &definition {
        let by = definition.in_order();
        order.extend(by.iter().filter_map(|name| nodes.get_key_value(*name)).map(|(name, _)| name));
    }
    let rest: Vec<&Name> = nodes.keys().filter(|name| !order.contains(name)).collect();
    order.extend(rest);
    order
}

fn told(state: &NodeState, loaded: &Loaded) -> (Style, String, String) {
    let green = AnsiColor::Green.on_default();
    let red = AnsiColor::Red.on_default();
    let dim = Style::new().dimmed();
    match state {
        NodeState::Pending => (dim, "pending".to_owned(), String::new()),
        NodeState::Skipped => (dim, "skipped".to_owned(), String::new()),
        NodeState::Passed => (green, "passed".to_owned(), String::new()),
        NodeState::Waiting { signal, until } => {
            let signal = signal.as_ref().map(|signal| format!("for the signal {signal}"));
            let until = until.map(|until| format!("until {}", second(until)));
            let what: Vec<String> = [signal, until].into_iter().flatten().collect();
            (Style::new(), "waiting".to_owned(), what.join(", or "))
        }
        NodeState::Dispatched { key, due, .. } => match loaded.records.get(key) {
            Some(record) if matches!(record.state, State::Executing { .. }) => {
                let since = age(loaded.now.since(record.updated_at));
                // Until then nobody can tell a long command from a host that is gone.
                let lease = match record.state {
                    State::Executing { lease_expires_at } if lease_expires_at > loaded.now => {
                        format!(", its lease ends in {}", age(lease_expires_at.since(loaded.now)))
                    }
                    State::Executing { .. }
                    | State::Reserved { .. }
                    | State::Committed { .. }
                    | State::Failed { .. }
                    | State::Ambiguous { .. } => ", its lease has ended".to_owned(),
                };
                let more = format!("attempt {}, heard of {since} ago{lease}", record.attempt);
                (AnsiColor::Cyan.on_default(), "running".to_owned(), more)
            }
            Some(_) | None if *due > loaded.now => {
                let more = format!("again in {}", age(due.since(loaded.now)));
                (Style::new(), "dispatched".to_owned(), more)
            }
            Some(_) | None => {
                let mine = |there: &&Dispatch| there.key == *key;
                let claim = loaded.dispatches.iter().find(mine).and_then(|there| there.claim);
                let taken = claim.is_some_and(|claim| claim.until > loaded.now);
                let more = if taken { "" } else { "waits for a worker" };
                (Style::new(), "dispatched".to_owned(), more.to_owned())
            }
        },
        NodeState::Committed { attempt, .. } => {
            let more = if *attempt > 1 { format!("attempt {attempt}") } else { String::new() };
            (green, "COMMITTED".to_owned(), more)
        }
        NodeState::Failed { detail, .. } => (red, "FAILED".to_owned(), detail.clone()),
        NodeState::Ambiguous { detail, .. } => {
            (AnsiColor::Yellow.on_default().bold(), "AMBIGUOUS".to_owned(), detail.clone())
        }
        NodeState::Unfit { why } => {
            (AnsiColor::Yellow.on_default(), "unfit".to_owned(), why.clone())
        }
    }
}

fn style(status: Status) -> Style {
    match status {
        Status::Running => AnsiColor::Cyan.on_default(),
        Status::Blocked => AnsiColor::Yellow.on_default().bold(),
        Status::Succeeded => AnsiColor::Green.on_default(),
        Status::Cancelling | Status::Failing | Status::Failed | Status::Cancelled => {
            AnsiColor::Red.on_default()
        }
    }
}

fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
