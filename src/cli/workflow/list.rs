//! `ctrlrun workflow list`: the runs of a store.
use std::io::{self, IsTerminal, Write};

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
    let mut rows = Rows::default();
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
            rows.take(cells(&run, now), out)
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
    out.put(|out| rows.flush(out))?;
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

type Cells = [String; 6];

fn cells(run: &Run, now: Timestamp) -> Cells {
    let done = run.progress.nodes.values().filter(|node| node.state.is_done()).count();
    [
        clean(run.id.as_str()).into_owned(),
        run.workflow.as_str().to_owned(),
        run.status.name().to_owned(),
        format!("{done}/{}", run.progress.nodes.len()),
        age(now.since(run.updated_at)),
        clean(run.reason.as_deref().unwrap_or("")).into_owned(),
    ]
}

/// Rows that the columns' widths are taken from before the first is printed.
const MEASURED: usize = 256;

/// The table as it is printed: as it comes, but for the first rows.
#[derive(Default)]
struct Rows {
    waiting: Vec<Cells>,
    widths: Option<[usize; 5]>,
}

impl Rows {
    fn take(&mut self, cells: Cells, out: &mut dyn Write) -> io::Result<()> {
        if let Some(widths) = self.widths {
            return writeln!(out, "{}", row(&cells, widths));
        }
        self.waiting.push(cells);
        if self.waiting.len() < MEASURED { Ok(()) } else { self.flush(out) }
    }

    fn flush(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let head = ["RUN", "WORKFLOW", "STATUS", "DONE", "AGE", "WHY"].map(str::to_owned);
        let waiting = std::mem::take(&mut self.waiting);
        let mut widths = [0; 5];
        for cells in waiting.iter().chain([&head]) {
            for (widest, cell) in widths.iter_mut().zip(cells) {
                *widest = width(cell).max(*widest);
            }
        }
        self.widths = Some(widths);
        std::iter::once(&head)
            .chain(&waiting)
            .try_for_each(|cells| writeln!(out, "{}", row(cells, widths)))
    }
}

/// One row; it is cut at the terminal's edge.
fn row(cells: &Cells, widths: [usize; 5]) -> String {
    let mut text = String::new();
    for (cell, wide) in cells.iter().zip(widths) {
        text.push_str(cell);
        text.push_str(&" ".repeat(wide.saturating_sub(width(cell)) + 2));
    }
    text.push_str(&cells[5]);
    match columns() {
        Some(columns) => cut(text.trim_end(), columns).into_owned(),
        None => text.trim_end().to_owned(),
    }
}
