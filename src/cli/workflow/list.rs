//! `ctrlrun workflow list`: the runs of a store.
use std::io::IsTerminal;

use clap::Args;
use ctrlrun::plan::time::Timestamp;
use ctrlrun::plan::workflow::{Name, Run, Status};
use ctrlrun::store::Flow;
use ctrlrun::store::runs::{ListedRun, RunFilter};

use super::object;
use crate::cli::Global;
use crate::cli::access::for_reading;
use crate::cli::error::{CliError, Exit, Kind};
use crate::cli::render::text::{age, clean, count, cut, width};
use crate::cli::terminal::{Answer, Reader, columns, say};

/// Rows shown on a terminal unless `--limit` says otherwise.
const TERMINAL_LIMIT: u64 = 200;

/// See the help of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only these: running, blocked, cancelling, failing, succeeded, failed, cancelled
    #[arg(long, value_name = "S,..", value_delimiter = ',', value_parser = status)]
    pub status: Vec<Status>,
    /// Only runs of this workflow
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub workflow: Option<Name>,
    /// Only names that start with this
    #[arg(long, value_name = "P")]
    pub prefix: Option<String>,
    /// At most so many [default: 200 on a terminal, all elsewhere]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
}

fn status(text: &str) -> Result<Status, String> {
    let all: Vec<&str> = Status::ALL.iter().map(|status| status.name()).collect();
    Status::of(text).ok_or_else(|| format!("one of {}", all.join(", ")))
}

fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|bad| bad.to_string())
}

/// Prints the list. A run that cannot be read is named on stderr and hides no other.
///
/// # Errors
/// What the store or stdout could not do.
pub fn list(args: &ListArgs, global: &Global) -> Result<Exit, CliError> {
    let opened = for_reading(global)?;
    let terminal = !global.json && std::io::stdout().is_terminal();
    let limit = args.limit.or(terminal.then_some(TERMINAL_LIMIT));
    let filter = RunFilter {
        prefix: args.prefix.clone(),
        workflow: args.workflow.clone(),
        statuses: args.status.clone(),
        ..RunFilter::default()
    };
    let mut out = if global.json { Answer::plain() } else { Answer::styled() };
    let (mut shown, mut unreadable, mut is_cut) = (0_u64, 0_u64, false);
    let mut wrong = None;
    let mut each = |listed| {
        let (run, now) = match listed {
            ListedRun::Unreadable { run, why } => {
                unreadable += 1;
                say(&format!("{}: the run cannot be read: {}", clean(&run), clean(&why)));
                return Flow::Continue;
            }
            ListedRun::Run(run, now) => (run, now),
        };
        if limit == Some(shown) {
            is_cut = true;
            return Flow::Stop;
        }
        let written = out.put(|out| {
            if global.json {
                return writeln!(out, "{}", object::of(&run, None, &[], &opened.place));
            }
            if shown == 0 {
                writeln!(out, "{}", row(["RUN", "WORKFLOW", "STATUS", "DONE", "AGE", "WHY"]))?;
            }
            writeln!(out, "{}", line(&run, now))
        });
        shown += 1;
        match written {
            Ok(Reader::There) => Flow::Continue,
            Ok(Reader::Gone) => Flow::Stop,
            Err(error) => {
                wrong = Some(error);
                Flow::Stop
            }
        }
    };
    let listed = opened.store.runs().list_runs(&filter, &mut each, opened.within);
    out.end()?;
    if let Some(error) = wrong {
        return Err(error);
    }
    listed.map_err(|error| opened.could_not(&error))?;
    if is_cut {
        global.note(&format!("the list is cut after {}; --limit N for more", count(shown, "run")));
    } else if shown == 0 && unreadable == 0 && terminal {
        global.note(&format!("no runs in {}", opened.place.named()));
    }
    Ok(if unreadable > 0 { Kind::Internal.exit() } else { Exit::OK })
}

fn line(run: &Run, now: Timestamp) -> String {
    let done = run.progress.nodes.values().filter(|node| node.state.is_done()).count();
    let done = format!("{done}/{}", run.progress.nodes.len());
    row([
        &clean(run.id.as_str()),
        run.workflow.as_str(),
        run.status.name(),
        &done,
        &age(now.since(run.updated_at)),
        &clean(run.reason.as_deref().unwrap_or("")),
    ])
}

/// One row; a column that is too narrow gives way, and the last is cut at the terminal's edge.
fn row(cells: [&str; 6]) -> String {
    const WIDTHS: [usize; 5] = [24, 14, 10, 6, 6];
    let mut text = String::new();
    for (cell, wide) in cells.iter().zip(WIDTHS) {
        text.push_str(cell);
        text.push_str(&" ".repeat(wide.saturating_sub(width(cell)) + 2));
    }
    text.push_str(cells[5]);
    match columns() {
        Some(columns) => cut(&text, columns).into_owned(),
        None => text,
    }
    .trim_end()
    .to_owned()
}
