//! `ctrlrun stats`: the store in numbers, for a person, a program or Prometheus (OPS-8, OPS-9).
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use ctrlrun::drive::spool::{Spool, Spooled};
use ctrlrun::store::Stats;
use serde_json::{Value, json};

use super::Global;
use super::access::{Opened, for_reading, parts_of_store, place};
use super::error::{CliError, Exit, Kind};
use super::prometheus::Page;
use super::render::shell::store_flag;
use super::render::text::{age, clean, count, hung, number, rfc3339, safe_json, size};
use super::spooled::candidates;
use super::terminal::{Answer, answer, columns};

/// The states as they are counted: each effect is in one of these.
const STATES: [&str; 6] = ["reserved", "executing", "lapsed", "committed", "failed", "ambiguous"];

/// Count effects by state, and what needs a decision
///
/// What is lapsed (reserved or executing, and its lease has ended) is counted as such, and not as
/// running. Stuck are the AMBIGUOUS and the lapsed ones.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun stats
  ctrlrun stats --json | jq .stuck
  ctrlrun stats --prometheus --output /var/lib/node_exporter/ctrlrun.prom

Exit status: 0. With --prometheus a store that cannot be read is told as ctrlrun_up 0 as well.")]
pub struct StatsArgs {
    /// In Prometheus's text format
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
    /// Write it to this file: aside, then renamed
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    pub output: Option<PathBuf>,
}

/// Counts.
///
/// # Errors
/// What the store could not do; a file that cannot be written.
pub fn stats(args: &StatsArgs, global: &Global) -> Result<Exit, CliError> {
    let found = gather(global);
    if args.prometheus {
        let store = place(global).map_or_else(|_| String::new(), |it| it.location.to_string());
        let page = match &found {
            Ok((_, numbers)) => page(&store, Some(numbers)),
            Err(_) => page(&store, None),
        };
        match &args.output {
            Some(file) => write_aside(file, &page, global)?,
            None => answer(&page)?,
        }
        return found.map(|_| Exit::OK);
    }
    let (opened, numbers) = found?;
    if global.json {
        let line = object(&opened, &numbers);
        let mut out = Answer::plain();
        out.put(|out| writeln!(out, "{}", safe_json(&line)))?;
        out.end()?;
    } else {
        answer(&text(&opened, &numbers, columns()))?;
    }
    Ok(Exit::OK)
}

/// All that is counted.
struct Numbers {
    stats: Stats,
    /// Outcomes that wait in this host's spool, and files there that are damaged.
    waiting: u64,
    damaged: u64,
}

impl Numbers {
    /// How many are in one of [`STATES`].
    fn of(&self, state: &str) -> u64 {
        let counts = self.stats.counts.iter();
        let of = counts.filter(|one| match state {
            "lapsed" => one.lapsed,
            other => one.state == other && !one.lapsed,
        });
        of.map(|one| one.effects).sum()
    }

    fn stuck(&self) -> u64 {
        self.stats.stuck().map(|one| one.effects).sum()
    }
}

fn gather(global: &Global) -> Result<(Opened, Numbers), CliError> {
    let opened = for_reading(global)?;
    let stats = opened.store.stats(opened.within).map_err(|error| opened.could_not(&error))?;
    let files = Spool::find(&candidates(global), opened.store.identity().store_id)
        .map(|spool| spool.read(false))
        .unwrap_or_default();
    let waiting = files.iter().filter(|file| matches!(file, Spooled::Outcome(_))).count();
    let (waiting, damaged) = (waiting as u64, (files.len() - waiting) as u64);
    Ok((opened, Numbers { stats, waiting, damaged }))
}

fn object(opened: &Opened, numbers: &Numbers) -> Value {
    let states: serde_json::Map<String, Value> =
        STATES.iter().map(|state| ((*state).to_owned(), numbers.of(state).into())).collect();
    let stats = &numbers.stats;
    json!({
        "store": opened.place.location.to_string(),
        "at": stats.now.map(rfc3339),
        "effects": stats.effects(),
        "states": states,
        "stuck": numbers.stuck(),
        "oldest_stuck_seconds": stats.oldest_stuck().map(|age| age.as_secs()),
        "spool": { "outcomes": numbers.waiting, "damaged": numbers.damaged },
        "bytes": stats.bytes,
        "attempt_floor": stats.attempt_floor,
    })
}

fn text(opened: &Opened, numbers: &Numbers, columns: Option<usize>) -> String {
    let stats = &numbers.stats;
    let stuck = match (numbers.stuck(), stats.oldest_stuck()) {
        (0, _) | (_, None) => "none".to_owned(),
        (stuck, Some(oldest)) => format!(
            "{}, the oldest for {}  (ctrlrun effects --stuck{})",
            number(stuck),
            age(oldest),
            store_flag(&opened.place)
        ),
    };
    let mut lines = vec![("store", opened.place.named()), ("effects", number(stats.effects()))];
    let names = ["  RESERVED", "  EXECUTING", "  lapsed", "  COMMITTED", "  FAILED", "  AMBIGUOUS"];
    lines.extend(names.into_iter().zip(STATES.map(|state| number(numbers.of(state)))));
    lines.push(("stuck", stuck));
    let mut spool = format!("{} on this host", count(numbers.waiting, "outcome"));
    if numbers.damaged > 0 {
        spool.push_str(&format!(", {} damaged", count(numbers.damaged, "file")));
    }
    lines.push(("spool", spool));
    lines.push(("size", size(stats.bytes)));
    let line = |(name, value): (&str, String)| hung(&format!("{name:<12} "), &value, columns);
    lines.into_iter().map(line).collect()
}

/// The page for Prometheus; without numbers only that there are none.
fn page(store: &str, numbers: Option<&Numbers>) -> String {
    let store = clean(store);
    let mut page = Page::default();
    let here = [("store", &*store)];
    page.gauge(
        "ctrlrun_up",
        "Whether the store could be read.",
        &[(&here, f64::from(u8::from(numbers.is_some())))],
    );
    let Some(numbers) = numbers else {
        return page.text();
    };
    let stats = &numbers.stats;
    let counted = STATES.map(|state| ([("store", &*store), ("state", state)], numbers.of(state)));
    let series: Vec<(&[(&str, &str)], f64)> =
        counted.iter().map(|(labels, effects)| (&labels[..], float(*effects))).collect();
    page.gauge(
        "ctrlrun_effects",
        "Effects by state; a reserved or executing one whose lease has ended counts as lapsed.",
        &series,
    );
    let seconds = stats.oldest_stuck().unwrap_or_default().as_secs_f64();
    for (name, help, value) in [
        (
            "ctrlrun_effects_stuck",
            "Effects that need a decision: ambiguous or lapsed.",
            float(numbers.stuck()),
        ),
        (
            "ctrlrun_effects_stuck_oldest_seconds",
            "Time since the last change of the stuck effect that has not changed for longest; 0 if \
             there is none.",
            seconds,
        ),
        (
            "ctrlrun_spool_outcomes",
            "Outcomes in this host's spool that the store has not taken yet.",
            float(numbers.waiting),
        ),
        (
            "ctrlrun_spool_damaged_files",
            "Files in this host's spool that cannot be read.",
            float(numbers.damaged),
        ),
        ("ctrlrun_store_size_bytes", "Room that the store takes.", float(stats.bytes)),
        (
            "ctrlrun_store_attempt_floor",
            "Numbers of new keys lie above it; it rises when effects are forgotten.",
            float(stats.attempt_floor),
        ),
        (
            "ctrlrun_store_time_seconds",
            "The store's clock when this was counted.",
            stats.now.map_or(0.0, |now| float(now.0.unsigned_abs()) / 1e6),
        ),
    ] {
        page.gauge(name, help, &[(&here, value)]);
    }
    page.text()
}

#[expect(clippy::cast_precision_loss, reason = "the format knows no other numbers")]
fn float(of: u64) -> f64 {
    of as f64
}

/// Writes beside the file and renames: a collector that reads meanwhile sees the old page or the new.
fn write_aside(file: &Path, page: &str, global: &Global) -> Result<(), CliError> {
    let shown = clean(&file.to_string_lossy()).into_owned();
    let is_store = fs::metadata(file).is_ok_and(|found| {
        let same = |part: &PathBuf| {
            fs::metadata(part).is_ok_and(|it| (it.dev(), it.ino()) == (found.dev(), found.ino()))
        };
        parts_of_store(global).iter().any(same)
    });
    if is_store {
        let words = format!("--output {shown}: that is the store itself; nothing was written");
        return Err(CliError::new(Kind::Usage, words));
    }
    let write = || -> io::Result<()> {
        let folder = file.parent().filter(|folder| *folder != Path::new(""));
        let mut aside = tempfile::Builder::new()
            .prefix(".ctrlrun-stats-")
            .tempfile_in(folder.unwrap_or(Path::new(".")))?;
        aside.write_all(page.as_bytes())?;
        // A collector runs as another user.
        aside.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        aside.persist(file).map(drop).map_err(|error| error.error)
    };
    write().map_err(|error| {
        let words = format!("--output {shown}: cannot be written");
        CliError::new(Kind::NotFound, words).because(&error)
    })
}
