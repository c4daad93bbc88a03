//! `ctrlrun batch`: many effects out of one file (BAT clauses).
//!
//! | file | about |
//! |---|---|
//! | [`args`] | the flags |
//! | [`input`] | the lines of the file, checked |
//! | [`items`] | a line, made ready to be run |
//! | [`dry`] | what would happen |
//! | [`seen`] | which keys came before, in bounded memory |
//! | [`tally`] | counts by outcome, the summary, the exit code |
//! | [`progress`] | how far it is |
//! | [`shown`] | what the children wrote |
//! | [`report`] | the JSON report |
mod args;
mod dry;
pub mod input;
mod items;
mod progress;
mod report;
mod seen;
mod shown;
mod tally;

use std::collections::HashSet;
use std::io::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ctrlrun::drive::batch::gate::Stop;
use ctrlrun::drive::batch::{Ended, Settings, Show, Tell, Tools, Totals, Why, run};
use ctrlrun::drive::deliver::{Delivery, deliver};
use ctrlrun::drive::spool::Spool;
use ctrlrun::exec::Signals;
use ctrlrun::plan::key::Key;
use ctrlrun::plan::proof;
use ctrlrun::store::stop;

pub use args::BatchArgs;
use args::Shown;
use input::{Format, Input, LineError, Reading, Separator, Source};
use items::Defaults;
use progress::Progress;
use report::Report;
use tally::{Came, Tally};

use super::Global;
use super::access::{Opened, for_running};
use super::error::{CliError, Deed, Exit, Hint, Kind};
use super::journal;
use super::render::shell::{quote, store_flag};
use super::render::text::clean;
use super::run::request::{Asked, ran_on};
use super::run::{STOP_VARIABLE, outcome_dir, tell};
use super::spooled;
use super::terminal::{answer, say};

/// Runs every line.
///
/// # Errors
/// What cannot be meant, or cannot be begun.
pub fn batch(args: &BatchArgs, global: &Global) -> Result<Exit, CliError> {
    let source = Source::of(args.file.as_deref());
    let reading = Arc::new(reading(args, global)?);
    let defaults = Defaults::of(args, global);
    let input = Input::open(&source, &reading)?;
    if args.dry_run {
        return dry::dry_run(args, input, &defaults, &source.name(), global);
    }
    let mut report = Report::open(args, global)?;
    let show = show(args, global)?;
    warn_of_the_command(args, global);
    if let Some(point) = std::env::var_os(STOP_VARIABLE) {
        stop::arm(&point.to_string_lossy());
    }
    let signals = Signals::install().map_err(|error| CliError::no_signals(&error))?;
    let journal = journal::open(global, &source.name())?;
    let opened = for_running(global)?;
    let spool = spooled::spool(&opened, Deed::Run, global)?;
    let barred = barred(&opened, spool.as_ref(), global);
    let settings = settings(args, global, show);
    let began = Instant::now();
    let total = input.total();
    let mut teller = Teller {
        args,
        global,
        opened: &opened,
        spool: spool.as_ref(),
        name: source.name(),
        tally: Tally::default(),
        progress: Progress::new(total, global),
        report: &mut report,
        barred: Vec::new(),
        unretried: Vec::new(),
    };
    let own = std::env::var("CTRLRUN_KEY").ok();
    let (tell_barred, told_barred) = std::sync::mpsc::channel();
    let (tell_unretried, told_unretried) = std::sync::mpsc::channel();
    let mut named = HashSet::new();
    let items = input.filter_map(move |line| {
        let item = match line {
            Ok(line) => {
                let retries = line.settings.retries.unwrap_or(0);
                let name = line.effect.as_ref().filter(|_| retries > 0);
                if let Some(name) = name.filter(|name| !named.contains(*name)) {
                    named.insert(name.clone());
                    // As below.
                    let _ = tell_unretried.send((name.clone(), retries));
                }
                defaults.item(line)
            }
            Err(error) => return Some(Err(error)),
        };
        let why = if barred.contains(&item.key) {
            Barred::Spooled
        } else if own.as_deref() == Some(item.key.as_str()) {
            Barred::Own
        } else {
            return Some(Ok(item));
        };
        // The other end goes only with the whole process.
        let _ = tell_barred.send((item.number, item.key, why));
        None
    });
    let tools = Tools {
        store: Arc::clone(&opened.store),
        spool: spool.as_ref(),
        journal: journal.as_ref(),
        signals: Some(&signals),
        nursery: None,
    };
    let ran = run(items, &tools, &settings, &mut |what| {
        teller.barred.extend(told_barred.try_iter());
        teller.unretried.extend(told_unretried.try_iter());
        teller.tell(what);
    });
    let totals = ran.map_err(|error| {
        CliError::new(Kind::Internal, "nothing was run: no threads can be had here").because(&error)
    })?;
    teller.barred.extend(told_barred.try_iter());
    teller.tell_barred();
    teller.unretried.extend(told_unretried.try_iter());
    teller.tell_unretried();
    teller.end(&totals, total, began)
}

/// Why a line is not run whatever the store says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Barred {
    /// A word about its key is in the spool, and the store does not take it.
    Spooled,
    /// This is a command of that very effect.
    Own,
}

fn reading(args: &BatchArgs, global: &Global) -> Result<Reading, CliError> {
    let usage = |words: &str| CliError::new(Kind::Usage, format!("{words}; nothing was run"));
    let separator = match (args.csv, args.tsv) {
        (true, _) => Some(Separator::Comma),
        (_, true) => Some(Separator::Tab),
        (false, false) => None,
    };
    let format = match (separator, &args.key) {
        (Some(separator), Some(key)) => {
            if args.command.is_empty() {
                let words = "a table needs the command of its rows, behind --";
                return Err(usage(words)
                    .tell("so", "--csv -k 'refund:{payment_id}' -- ./refund.sh {payment_id}"));
            }
            Format::table(separator, key, &args.command)?
        }
        (None, None) if args.command.is_empty() => {
            Format::Json { effects: Arc::clone(&global.settings.effects) }
        }
        (_, _) => {
            let words = "--key and a command are those of a table: with --csv or --tsv";
            return Err(usage(words));
        }
    };
    Ok(Reading { format, key_as_is: args.key_as_is })
}

fn show(args: &BatchArgs, global: &Global) -> Result<Show, CliError> {
    if let Some(dir) = &args.output_dir {
        let made = std::fs::create_dir_all(dir).and_then(|()| std::path::absolute(dir));
        let dir: PathBuf = made.map_err(|error| {
            let dir = dir.to_string_lossy();
            let words = format!("nothing was run: --output-dir {}: cannot be made", clean(&dir));
            CliError::new(Kind::NotFound, words).because(&error)
        })?;
        return Ok(Show::Files(dir));
    }
    Ok(match args.output {
        // stdout is the answer's then.
        None if global.json => Show::Nothing,
        Some(Shown::Prefix) | None => Show::AtTheEnd,
        Some(Shown::None) => Show::Nothing,
    })
}

fn settings(args: &BatchArgs, global: &Global, show: Show) -> Settings {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let capture = args.capture.or(global.settings.defaults.capture);
    Settings {
        places: args.jobs.map_or(processors, usize::from),
        // Starting a child holds its thread up, so two make the most of two processors; more than a few
        // only wait for the store.
        shards: processors.clamp(1, 4),
        store_timeout: global.store_timeout,
        kill_after: args.kill_after,
        capture: capture.map_or(Some(64 * 1024), super::values::Capture::bytes),
        show,
        outcome_dir: outcome_dir(),
        ran_on: ran_on(),
        labels: args.label.iter().cloned().collect(),
    }
}

/// What a careful colleague would say of a table's command; the lines' own are too many.
fn warn_of_the_command(args: &BatchArgs, global: &Global) {
    use std::os::unix::ffi::OsStrExt;
    let words: Vec<&[u8]> = args.command.iter().map(|word| word.as_bytes()).collect();
    if !words.is_empty() {
        for warning in proof::warnings(&words, &args.not_executed.clone().unwrap_or_default()) {
            global.note(&format!("warning: {warning}"));
        }
    }
}

/// Delivers the spool; the keys that may not run because a word about them is still there (EXE-25).
fn barred(opened: &Opened, spool: Option<&Spool>, global: &Global) -> HashSet<Key> {
    let Some(spool) = spool else {
        global.note(
            "warning: no directory for the spool can be written: an outcome that the store cannot \
             take will be told here only",
        );
        return HashSet::new();
    };
    let within = global.store_timeout;
    let mut barred = HashSet::new();
    for delivery in deliver(opened.store.as_ref(), spool, within, within) {
        if let Delivery::Failed(key, _) = &delivery {
            barred.insert(key.clone());
        }
        spooled::tell(&delivery, global);
    }
    let made = spooled::made(&opened.place);
    if made.is_some() {
        let older = spool.all_strays().into_iter().filter(|(_, written)| Some(*written) < made);
        barred.extend(older.map(|(key, _)| key));
    }
    barred
}

/// A line that cannot be used, found while others had run.
fn wrong(error: &LineError, ran: u64) -> CliError {
    let what = match ran {
        0 => "nothing was run".to_owned(),
        ran => format!("{ran} lines before it have run; nothing after it is"),
    };
    let told = CliError::new(Kind::Usage, format!("{error}: {what}"));
    match &error.mend {
        Some(mend) => told.tell("mend", clean(mend)),
        None => told,
    }
}

/// Who tells what happens.
struct Teller<'a> {
    args: &'a BatchArgs,
    global: &'a Global,
    opened: &'a Opened,
    spool: Option<&'a Spool>,
    name: String,
    tally: Tally,
    progress: Progress,
    report: &'a mut Report,
    barred: Vec<(u64, Key, Barred)>,
    /// Effects that were named and have retries: told once each.
    unretried: Vec<(String, u32)>,
}

impl Teller<'_> {
    fn tell(&mut self, what: Tell<'_, LineError>) {
        self.tell_barred();
        self.tell_unretried();
        match what {
            Tell::Ended(ended) => self.ended(&ended),
            Tell::Wrong(error) => {
                let told = wrong(&error, self.tally.all());
                self.progress.aside(|| told.report(self.global.json));
            }
            Tell::Stops(why, stop) => self.stops(why, stop),
            Tell::Tick(_) => {}
        }
        self.progress.show(&self.tally);
    }

    fn ended(&mut self, ended: &Ended) {
        let came = Came::of(&ended.ran);
        self.tally.add(&ended.item.key, came);
        let told = match came {
            Came::Now | Came::Earlier => None,
            Came::Failed
            | Came::Ambiguous
            | Came::Held
            | Came::Mismatch
            | Came::Refused
            | Came::NotRecorded
            | Came::NoStore => Some(self.words(ended)),
        };
        self.progress.aside(|| {
            if let Some((out, err)) = &ended.shown {
                let key = ended.item.key.as_str();
                // A reader that has left wants no more of it.
                let _ = shown::prefixed(&mut io::stdout().lock(), key, out);
                let _ = shown::prefixed(&mut io::stderr().lock(), key, err);
            }
            for problem in &ended.ran.problems {
                let key = clean(ended.item.key.as_str());
                self.global.note(&format!("{key}: {}", clean(problem)));
            }
            match &told {
                Some(told) if self.global.json || came == Came::NotRecorded => {
                    told.report(self.global.json);
                }
                Some(told) => {
                    say(&format!(
                        "{}:{}: {}",
                        clean(&self.name),
                        ended.item.number,
                        told.message()
                    ));
                }
                None => {}
            }
        });
        self.report.line(ended, told.as_ref(), self.opened, self.global);
    }

    fn words(&self, ended: &Ended) -> CliError {
        let item = &ended.item;
        let asked = Asked {
            key: item.key.clone(),
            request: item.request.clone(),
            program: item.request.program.clone(),
            ran_on: ran_on(),
            warnings: Vec::new(),
        };
        // Not the hint for a single command line: what a line declares stands in the line.
        tell::result(true, &asked, self.opened, self.spool, &ended.ran)
    }

    fn tell_barred(&mut self) {
        for (number, key, why) in std::mem::take(&mut self.barred) {
            self.tally.add(&key, if why == Barred::Own { Came::Refused } else { Came::NoStore });
            let why = match why {
                Barred::Spooled => {
                    "an outcome of it is in the spool, and the store does not take it"
                }
                Barred::Own => "this is a command of that very effect, which would wait for itself",
            };
            let key = clean(key.as_str());
            let line =
                format!("{}:{number}: {key}: refused, nothing was run: {why}", clean(&self.name));
            self.progress.aside(|| {
                if self.global.json {
                    CliError::new(Kind::Store, line).report(true);
                } else {
                    say(&line);
                }
            });
        }
    }

    /// A pause before a retry would hold a place that other lines wait for: so a batch makes none.
    fn tell_unretried(&mut self) {
        for (name, retries) in std::mem::take(&mut self.unretried) {
            let name = clean(&name);
            let line = format!(
                "effect {name}: its {retries} retries are not made in a batch; what did not happen \
                 runs when the same line is run again"
            );
            self.progress.aside(|| self.global.note(&line));
        }
    }

    fn stops(&self, why: Why, stop: Stop) {
        let line = match (why, stop) {
            (Why::Signal(_), Stop::End) => {
                "stopping: what runs is ended now (TERM, then KILL), and its outcome recorded"
            }
            (Why::Signal(_), Stop::Drain | Stop::No) => {
                "stopping: nothing more is begun, what runs is waited for; once more ends it"
            }
            (Why::Store, _) => "stopping: the store gives no answer; nothing more is begun",
            (Why::Line, _) => return,
            (Why::Broken, _) => "internal error, a bug in ctrlrun: stopping",
        };
        self.progress.aside(|| self.global.note(line));
    }

    fn end(&self, totals: &Totals, total: Option<u64>, began: Instant) -> Result<Exit, CliError> {
        self.progress.end();
        let exit = self.tally.exit(totals.stopped);
        let took = began.elapsed();
        let mut hints = Vec::new();
        if exit != Exit::OK {
            hints.push(Hint::words("run it again", "the same line"));
        }
        if self.tally.of(Came::Ambiguous) > 0 {
            let prefix = self.tally.prefix().map(|prefix| format!(" --prefix {}", quote(prefix)));
            let store = store_flag(&self.opened.place);
            let line = format!("ctrlrun effects --stuck{}{store}", prefix.unwrap_or_default());
            hints.push(Hint::command("decide", line));
        }
        if self.global.json {
            let next: Vec<String> =
                hints.iter().filter(|hint| hint.is_command).map(|hint| hint.text.clone()).collect();
            answer(&format!("{}\n", self.tally.object(totals, total, took, &next)))?;
            return Ok(exit);
        }
        let summary = self.tally.summary(totals, total, took);
        if exit == Exit::OK {
            self.global.note(&summary);
            return Ok(exit);
        }
        say(&summary);
        let labelled: Vec<String> =
            hints.iter().map(|hint| format!("{}: {}", hint.label, hint.text)).collect();
        labelled.iter().for_each(|line| say(&format!("  {line}")));
        let _ = io::stdout().flush();
        debug_assert!(!self.args.dry_run);
        Ok(exit)
    }
}
