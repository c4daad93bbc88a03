//! `ctrlrun verify`: the guarantees, shown on the user's own kind of store (VER clauses).
mod soak;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use clap::Args;
use ctrlrun::exec::{Signals, die_of_signal};
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::signal::Signal;

use super::Global;
use super::access::place;
use super::error::{CliError, Exit, Kind};
use super::render::text::{clean, cut};
use super::terminal::{Answer, say};
use crate::verify::bench::Sizes;
use crate::verify::catalogue::{ALL, Guarantee, named};
use crate::verify::report::{Line, Report, Status};
use crate::verify::self_test::{self, Caught};
use crate::verify::soak::{Length, SoakAsk};
use crate::verify::{Ask, Progress, Trouble, run};

/// A guarantee failed, or nothing could be shown of it.
const FAILED: u8 = 1;
/// The configuration cannot be used.
const UNUSABLE: u8 = 2;
/// Verify itself broke.
const BROKE: u8 = 3;

/// Show that the guarantees hold on your own store's kind, place and version
///
/// In a scratch store that it makes beside yours, and destroys, it contends real processes, kills them
/// with SIGKILL at every point of a run, loses answers of the store, and counts outside of the store how
/// often a command ran. Your store is not opened, read or made.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun verify
  ctrlrun verify --store /var/lib/ctrlrun/effects.db --junit verify.xml
  ctrlrun verify --only G4 --processes 32 --rounds 100
  ctrlrun verify --self-test
  ctrlrun verify --soak 8h --json > soak.json

Exit status: 0 all that is applicable holds; 1 one is violated, or inconclusive; 2 the configuration
cannot be used; 3 verify itself broke.")]
pub struct VerifyArgs {
    /// Only these guarantees
    #[arg(long, value_name = "G4,..", value_delimiter = ',', value_parser = guarantee)]
    only: Vec<Chosen>,
    /// Processes that contend for one key
    #[arg(long, value_name = "N", default_value_t = Sizes::default().processes, value_parser = count(2))]
    processes: usize,
    /// Rounds of contention
    #[arg(long, value_name = "N", default_value_t = Sizes::default().rounds, value_parser = count(1))]
    rounds: usize,
    /// What the random faults are drawn from; drawn, and printed, if it is not given
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write a JUnit report there
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// List the guarantees, and do nothing
    #[arg(long, conflicts_with_all = ["self_test", "junit"])]
    list: bool,
    /// Try the catalogue on stores that are broken on purpose: each must be caught
    #[arg(long, conflicts_with_all = ["only", "junit", "processes", "rounds"])]
    self_test: bool,
    /// Instead: run operations for so long (10m), or so many of them (5000), with faults that are
    /// written down before they happen; nothing else may be AMBIGUOUS at the end, and nothing may grow
    #[arg(long, value_name = "DURATION|N", value_parser = soak::length,
          conflicts_with_all = ["only", "junit", "processes", "rounds", "list", "self_test"])]
    soak: Option<Length>,
}

#[derive(Debug, Clone, Copy)]
struct Chosen(&'static Guarantee);

fn guarantee(text: &str) -> Result<Chosen, String> {
    named(text).map(Chosen).ok_or_else(|| {
        let first = ALL.first().map_or("", |guarantee| guarantee.id);
        let last = ALL.last().map_or("", |guarantee| guarantee.id);
        format!("there is no such guarantee; they are {first} to {last} (ctrlrun verify --list)")
    })
}

fn count(least: usize) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync {
    move |text| match text.parse() {
        Ok(count) if (least..=1_000).contains(&count) => Ok(count),
        Ok(_) | Err(_) => Err(format!("a number from {least} to 1000")),
    }
}

/// Shows the guarantees.
///
/// # Errors
/// 2 and 3.
pub fn verify(args: &VerifyArgs, global: &Global) -> Result<Exit, CliError> {
    let only: Vec<&'static Guarantee> = if args.only.is_empty() {
        ALL.iter().collect()
    } else {
        ALL.iter().filter(|it| args.only.iter().any(|chosen| chosen.0.id == it.id)).collect()
    };
    if args.list {
        return list(&only, global);
    }
    // Before anything is made: a report that cannot be written would be missed only at the end.
    let junit = args.junit.as_deref().map(|path| report_file(path).map(|()| path)).transpose()?;
    let place = place(global).map_err(|error| error.exiting(UNUSABLE))?;
    let binary = std::env::current_exe()
        .map_err(|error| broke("this program's own file").because(&error))?;
    let signals = Signals::listen().map_err(|error| broke("signals").because(&error))?;
    let seed = match args.seed {
        Some(seed) => seed,
        None => u64::from(getrandom::u32().map_err(|error| broke("a seed").because(&error))?),
    };
    let is_stopped = Box::new(move || ended_by(signals).is_some());
    global.note(&format!(
        "verify: seed {seed}, in a scratch store beside {} (which is left as it is)",
        place.shown()
    ));
    let sizes = Sizes { processes: args.processes, rounds: args.rounds };
    let ask = Ask { only, sizes, seed, is_stopped };
    let done = if let Some(length) = args.soak {
        let ask = SoakAsk { length, seed, is_stopped: ask.is_stopped };
        soak::soaked(&place.location, &binary, &ask, global)
    } else if args.self_test {
        self_tested(&place.location, &binary, &ask, global)
    } else {
        verified(&place.location, &binary, &ask, junit, global)
    };
    done.or_else(|trouble| match trouble {
        Failure::Told(error) => Err(error),
        Failure::Trouble(Trouble::Broke(what)) => Err(broke(&clean(&what))),
        Failure::Trouble(Trouble::Unusable(error)) => {
            let told = CliError::new(Kind::Config, clean(&error.message)).exiting(UNUSABLE);
            Err(match error.hint {
                Some(hint) => told.fact(clean(&hint)),
                None => told,
            })
        }
        // The scratch store is gone, and so are the workers.
        Failure::Trouble(Trouble::Stopped) => die_of_signal(ended_by(signals).unwrap_or(2)),
    })
}

enum Failure {
    Trouble(Trouble),
    Told(CliError),
}

fn ended_by(signals: Signals) -> Option<i32> {
    const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
    let pending = signals.pending();
    pending.into_iter().find(|number| ENDING.iter().any(|signal| *signal as i32 == *number))
}

fn broke(what: &str) -> CliError {
    CliError::new(Kind::Internal, format!("verify itself broke: {what}")).exiting(BROKE)
}

fn report_file(path: &Path) -> Result<(), CliError> {
    std::fs::File::create(path).map(drop).map_err(|error| {
        let shown = path.to_string_lossy();
        CliError::new(Kind::NotFound, format!("--junit {}: it cannot be written", clean(&shown)))
            .because(&error)
            .exiting(UNUSABLE)
    })
}

fn verified(
    location: &ctrlrun::store::Location,
    binary: &Path,
    ask: &Ask,
    junit: Option<&Path>,
    global: &Global,
) -> Result<Exit, Failure> {
    let bar = bar(ask.only.len());
    let shown = bar.clone();
    let quiet = global.quiet;
    let report = run(
        location,
        binary,
        ask,
        Arc::new(move |progress| match progress {
            Progress::Note(note) if !quiet => shown.suspend(|| say(&clean(note))),
            Progress::Note(_) => {}
            Progress::Round => shown.tick(),
            Progress::Through(line) => {
                shown.set_message(format!("{} {}", line.id, line.status.verdict()));
                shown.inc(1);
            }
        }),
    );
    bar.finish_and_clear();
    let report = report.map_err(Failure::Trouble)?;
    if let Some(path) = junit {
        let xml = report
            .junit()
            .map_err(|error| Failure::Told(broke("the JUnit report").because(&error)))?;
        std::fs::write(path, xml)
            .map_err(|error| Failure::Told(broke("the JUnit report").because(&error)))?;
    }
    tell(&report, global).map_err(Failure::Told)?;
    Ok(if report.holds() { Exit::OK } else { Exit(FAILED) })
}

/// A bar on a terminal, nothing elsewhere.
fn bar(length: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::try_from(length).unwrap_or(0));
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {elapsed}  {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn tell(report: &Report, global: &Global) -> Result<(), CliError> {
    let mut out = if global.json { Answer::plain() } else { Answer::styled() };
    if global.json {
        let object = report.json();
        out.put(|out| writeln!(out, "{object}"))?;
        return out.end();
    }
    let widest = report.lines.iter().map(|line| line.title.len()).max().unwrap_or(0);
    out.put(|out| {
        writeln!(
            out,
            "{:4} {:widest$}  {:14} {:>5} {:>5} {:>6} {:>7}",
            "", "GUARANTEE", "VERDICT", "RAN", "KILLS", "ROUNDS", "TIME"
        )
    })?;
    for line in &report.lines {
        out.put(|out| writeln!(out, "{}", row(line, widest)))?;
        if line.status != Status::Pass {
            let mut told = line.detail.split("; ");
            for what in told.by_ref().take(DETAILS_MAX) {
                out.put(|out| writeln!(out, "       {}", clean(what)))?;
            }
            let more = told.count();
            if more > 0 {
                out.put(|out| writeln!(out, "       and {more} more (--json has all)"))?;
            }
        }
    }
    out.put(|out| writeln!(out, "{}", summary(report)))?;
    out.end()
}

/// The most sentences about one guarantee in the table.
const DETAILS_MAX: usize = 4;

fn row(line: &Line, widest: usize) -> String {
    let style = match line.status {
        Status::Pass => Style::new().fg_color(Some(AnsiColor::Green.into())),
        Status::Fail => Style::new().fg_color(Some(AnsiColor::Red.into())).bold(),
        Status::Inconclusive => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
        Status::NotApplicable => Style::new().dimmed(),
    };
    let head = format!(
        "{:4} {:widest$}  {style}{:14}{style:#}",
        line.id,
        line.title,
        line.status.verdict()
    );
    if line.status == Status::NotApplicable {
        return head;
    }
    format!(
        "{head} {:>5} {:>5} {:>6} {:>5.1} s",
        line.executions,
        line.kills,
        line.rounds,
        line.duration.as_secs_f64()
    )
}

fn summary(report: &Report) -> String {
    let (executions, kills, rounds) = report.totals();
    let count = |status| report.count(status);
    let others: String = [
        (count(Status::Fail), "violated"),
        (count(Status::Inconclusive), "inconclusive"),
        (count(Status::NotApplicable), "not applicable"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!(", {count} {what}"))
    .collect();
    format!(
        "{} hold{others}: {executions} executions, {kills} kills, {rounds} rounds on {} in {:.1} s (seed {})",
        count(Status::Pass),
        report.store,
        report.duration.as_secs_f64(),
        report.seed
    )
}

fn list(only: &[&'static Guarantee], global: &Global) -> Result<Exit, CliError> {
    let mut out = Answer::plain();
    for guarantee in only {
        let line = if global.json {
            serde_json::json!({
                "id": guarantee.id, "title": guarantee.title, "not_applicable": null,
            })
            .to_string()
        } else {
            format!("{:4} {}", guarantee.id, guarantee.title)
        };
        out.put(|out| writeln!(out, "{line}"))?;
    }
    out.end()?;
    Ok(Exit::OK)
}

fn self_tested(
    location: &ctrlrun::store::Location,
    binary: &Path,
    ask: &Ask,
    global: &Global,
) -> Result<Exit, Failure> {
    // What also fails on a sound store catches nothing.
    match verified(location, binary, ask, None, global)? {
        Exit::OK => {}
        failed => return Ok(failed),
    }
    let bar = bar(crate::verify::broken::Break::ALL.len());
    let caught = self_test::run(location, binary, ask, &|one| {
        bar.set_message(one.how.about().0.to_owned());
        bar.inc(1);
    });
    bar.finish_and_clear();
    let caught = caught.map_err(Failure::Trouble)?;
    let all = caught.iter().all(Caught::is_caught);
    tell_caught(&caught, global).map_err(Failure::Told)?;
    Ok(if all { Exit::OK } else { Exit(FAILED) })
}

/// One line of what a guarantee said.
fn short(said: &str) -> String {
    cut(&clean(said), SAID_MAX).into_owned()
}

/// The most columns of it.
const SAID_MAX: usize = 72;

fn tell_caught(caught: &[Caught], global: &Global) -> Result<(), CliError> {
    let mut out = if global.json { Answer::plain() } else { Answer::styled() };
    let count = caught.iter().filter(|one| one.is_caught()).count();
    if global.json {
        let told = |pairs: &[(&str, String)]| {
            let pairs =
                pairs.iter().map(|(id, said)| serde_json::json!({"id": id, "detail": said}));
            pairs.collect::<Vec<_>>()
        };
        let stores: Vec<_> = caught
            .iter()
            .map(|one| {
                let (name, what, _) = one.how.about();
                serde_json::json!({
                    "name": name, "broken": what, "caught": one.is_caught(),
                    "by": told(&one.by), "missed": told(&one.missed),
                    "duration_ms": u64::try_from(one.duration.as_millis()).unwrap_or(u64::MAX),
                })
            })
            .collect();
        let object = serde_json::json!({
            "broken_stores": stores, "caught": count, "missed": caught.len() - count,
        });
        out.put(|out| writeln!(out, "{object}"))?;
        return out.end();
    }
    let widest = caught.iter().map(|one| one.how.about().1.len()).max().unwrap_or(0);
    out.put(|out| writeln!(out, "{:widest$}  {:10} HOW", "BROKEN ON PURPOSE", "CAUGHT BY"))?;
    for one in caught {
        let what = one.how.about().1;
        for (id, said) in &one.by {
            out.put(|out| writeln!(out, "{what:widest$}  {id:10} {}", short(said)))?;
        }
        for (id, said) in &one.missed {
            out.put(|out| writeln!(out, "{what:widest$}  NOT BY {id:3} {}", short(said)))?;
        }
    }
    out.put(|out| writeln!(out, "{count} of {} broken stores were caught", caught.len()))?;
    out.end()
}
