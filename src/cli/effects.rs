//! `ctrlrun effects`: the list (CLI-15).
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io::IsTerminal;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::time::Timestamp;
use ctrlrun::store::{Filter, Flow, Listed, Shown};

use super::Global;
use super::access::{Opened, for_reading};
use super::error::{CliError, Exit, Hint, Kind};
use super::render::object::Object;
use super::render::table::{Layout, Row};
use super::render::text::{clean, count};
use super::terminal::{Answer, Reader, columns, say};
use super::values;
use super::watch;
use super::which::Place;

/// Rows shown on a terminal unless `--limit` says otherwise.
const TERMINAL_LIMIT: u64 = 200;
/// Rows that the columns' widths are taken from before the first is printed.
const MEASURED: usize = 256;

/// List effects, and what became of them
///
/// Columns: the key; its state; the revision it stands at, which `resolve --expect` takes; the attempt;
/// the time since it last changed; the host it ran on; and why it stands so.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun effects --stuck                     what needs a decision
  ctrlrun effects --stuck --watch
  ctrlrun effects --stuck --sort age --limit 10
  ctrlrun effects --prefix refund: --state failed,ambiguous
  ctrlrun effects --stuck --older-than 10m --check >/dev/null || page-somebody

Exit status: 0; with --check 76 if there is any; 70 if a record could not be read.")]
pub struct EffectsArgs {
    /// Only AMBIGUOUS ones, and ones whose lease has ended
    #[arg(long)]
    pub stuck: bool,
    /// Only these states
    #[arg(long, value_name = "S,..", value_delimiter = ',')]
    pub state: Vec<StateName>,
    /// Only keys that start with this
    #[arg(long, value_name = "P")]
    pub prefix: Option<String>,
    /// Only those that have not changed for this long
    #[arg(long, value_name = "DUR", value_parser = values::duration)]
    pub older_than: Option<Duration>,
    /// At most so many [default: 200 on a terminal, all elsewhere]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// The order: by key, or what has not changed for longest first
    #[arg(long, value_name = "BY", default_value = "key", hide_default_value = true)]
    pub sort: SortBy,
    /// Exit 76 if there is any
    #[arg(long)]
    pub check: bool,
    /// On a terminal: draw the list again every DUR [default: 2s]
    #[arg(
        long,
        value_name = "DUR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2s",
        value_parser = values::some_time,
        conflicts_with_all = ["check", "limit"]
    )]
    pub watch: Option<Duration>,
}

/// What a list is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// As they come
    Key,
    /// The oldest first, by their last change
    Age,
}

/// A state, as `--state` takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StateName {
    /// About to start
    Reserved,
    /// Running, or its holder is lost
    Executing,
    /// Happened
    Committed,
    /// Did not happen
    Failed,
    /// May have happened
    Ambiguous,
}

impl StateName {
    fn stored(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Executing => "executing",
            Self::Committed => "committed",
            Self::Failed => "failed",
            Self::Ambiguous => "ambiguous",
        }
    }
}

/// Prints the list. A record that cannot be read is named on stderr and hides no other (STO-11).
///
/// # Errors
/// What the store or stdout could not do.
pub fn effects(args: &EffectsArgs, global: &Global) -> Result<Exit, CliError> {
    if let Some(every) = args.watch {
        return watch::watch(&filter(args), every, global);
    }
    let opened = for_reading(global)?;
    let terminal = !global.json && std::io::stdout().is_terminal();
    let limit = args.limit.or(terminal.then_some(TERMINAL_LIMIT));
    let mut list = List::new(&opened.place, global.json, limit);
    let stopped = walk(&opened, args, &mut list);
    let (shown, unreadable, cut) = (list.shown, list.unreadable, list.cut);
    // What was read before the store failed is shown, and then the failure.
    list.end()?;
    stopped?;
    if cut {
        let rest = match args.limit {
            Some(_) => "",
            None => "; --limit N for more, or send it to a pipe for all",
        };
        global.note(&format!("the list is cut after {}{rest}", count(shown, "effect")));
    } else if shown == 0 && unreadable == 0 && terminal {
        let what = if args.stuck { "nothing is stuck" } else { "no effects" };
        global.note(&format!("{what} in {}", opened.place.named()));
    }
    if args.check && shown > 0 {
        Ok(Kind::Ambiguous.exit())
    } else if unreadable > 0 {
        // Not 0: "nothing is stuck" would be more than is known.
        Ok(Kind::Internal.exit())
    } else {
        Ok(Exit::OK)
    }
}

fn filter(args: &EffectsArgs) -> Filter {
    Filter {
        prefix: args.prefix.clone(),
        states: args.state.iter().map(|state| state.stored().to_owned()).collect(),
        stuck: args.stuck,
        older_than: args.older_than,
        ..Filter::default()
    }
}

fn walk(opened: &Opened, args: &EffectsArgs, list: &mut List<'_>) -> Result<(), CliError> {
    let mut oldest = Oldest::new(list.limit);
    let mut wrong = None;
    let mut each = |listed| match match args.sort {
        SortBy::Key => list.take(listed),
        SortBy::Age => match listed {
            Listed::Record(shown) => {
                oldest.add(shown);
                Ok(Flow::Continue)
            }
            unreadable @ Listed::Unreadable { .. } => list.take(unreadable),
        },
    } {
        Ok(flow) => flow,
        Err(error) => {
            wrong = Some(error);
            Flow::Stop
        }
    };
    let listed = opened.store.list(&filter(args), &mut each, opened.within);
    if let Some(error) = wrong {
        return Err(error);
    }
    for shown in oldest.in_order() {
        if list.take(Listed::Record(shown))? == Flow::Stop {
            break;
        }
    }
    listed.map_err(|error| opened.could_not(&error))
}

/// The oldest of those that were added: with a limit no more are held than are shown, and one, which
/// says that the list is cut.
struct Oldest {
    most: usize,
    held: BinaryHeap<ByAge>,
}

/// The youngest is the greatest: it is the first to go.
struct ByAge(Box<Shown>);

impl ByAge {
    fn place(&self) -> (Timestamp, &Key) {
        (self.0.record.updated_at, &self.0.record.key)
    }
}

impl PartialEq for ByAge {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for ByAge {}

impl PartialOrd for ByAge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByAge {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl Oldest {
    fn new(limit: Option<u64>) -> Self {
        let most = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        Self { most: most.saturating_add(1), held: BinaryHeap::new() }
    }

    fn add(&mut self, shown: Box<Shown>) {
        self.held.push(ByAge(shown));
        if self.held.len() > self.most {
            self.held.pop();
        }
    }

    fn in_order(self) -> impl Iterator<Item = Box<Shown>> {
        self.held.into_sorted_vec().into_iter().map(|ByAge(shown)| shown)
    }
}

/// The list as it is printed: as it comes, but for the first rows, which give the columns' widths.
struct List<'a> {
    place: &'a Place,
    json: bool,
    limit: Option<u64>,
    out: Answer,
    waiting: Vec<Row>,
    layout: Option<Layout>,
    shown: u64,
    unreadable: u64,
    cut: bool,
}

impl<'a> List<'a> {
    fn new(place: &'a Place, json: bool, limit: Option<u64>) -> Self {
        Self {
            place,
            json,
            limit,
            out: if json { Answer::plain() } else { Answer::styled() },
            waiting: Vec::new(),
            layout: None,
            shown: 0,
            unreadable: 0,
            cut: false,
        }
    }

    fn take(&mut self, listed: Listed) -> Result<Flow, CliError> {
        match listed {
            Listed::Unreadable { key, why } => {
                self.unreadable += 1;
                unreadable(&key, &why, self.json);
                Ok(Flow::Continue)
            }
            Listed::Record(_) if self.limit == Some(self.shown) => {
                self.cut = true;
                Ok(Flow::Stop)
            }
            Listed::Record(shown) => {
                self.shown += 1;
                match self.print(&shown)? {
                    Reader::There => Ok(Flow::Continue),
                    Reader::Gone => Ok(Flow::Stop),
                }
            }
        }
    }

    fn print(&mut self, shown: &Shown) -> Result<Reader, CliError> {
        if self.json {
            let line = Object::of(shown, self.place).line();
            return self.out.put(|out| writeln!(out, "{line}"));
        }
        let row = Row::of(shown);
        if let Some(layout) = &self.layout {
            return self.out.put(|out| layout.row(out, &row));
        }
        self.waiting.push(row);
        if self.waiting.len() < MEASURED {
            return Ok(Reader::There);
        }
        self.print_waiting()
    }

    fn print_waiting(&mut self) -> Result<Reader, CliError> {
        let rows = std::mem::take(&mut self.waiting);
        let layout = Layout::of(&rows, columns());
        let written = self.out.put(|out| {
            layout.head(out)?;
            rows.iter().try_for_each(|row| layout.row(out, row))
        });
        self.layout = Some(layout);
        written
    }

    fn end(mut self) -> Result<(), CliError> {
        if !self.waiting.is_empty() {
            self.print_waiting()?;
        }
        self.out.end()
    }
}

fn unreadable(key: &str, why: &str, json: bool) {
    let message = format!("{}: its record cannot be read: {}", clean(key), clean(why));
    if json {
        let error = CliError::new(Kind::Internal, message);
        error.hint(Hint::words("the rest", "is listed all the same")).report(true);
    } else {
        say(&message);
    }
}
