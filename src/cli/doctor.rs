//! `ctrlrun doctor`: what the store is like, and what about it has to be mended (CLI-23, OPS-10,
//! OPS-11).
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ctrlrun::drive::integrity::integrity;
use ctrlrun::drive::spool::{Spool, Spooled};
use ctrlrun::store::check::{Check, check};
use ctrlrun::store::{Mode, Options, Stats, Store, open};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::Global;
use super::access::place;
use super::error::{CliError, Exit};
use super::journal;
use super::render::shell::store_flag;
use super::render::text::{age, clean, count, cut, hung, number, safe_json, width};
use super::spooled::candidates;
use super::terminal::{Answer, Reader, columns};
use super::which::Place;

/// A record this far in the future says that a clock was set back.
const FUTURE_MAX: Duration = Duration::from_secs(10);

/// Look at the store and say what about it has to be mended
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun doctor
  ctrlrun doctor --store postgres://app@db/jobs --probe
  ctrlrun doctor --journal
  ctrlrun doctor --deep --json | jq '.checks[] | select(.ok | not)'

Exit status: 0, or 1 with a finding.")]
pub struct DoctorArgs {
    /// Find out by experiment whether the server does what a store needs; it makes a schema of its
    /// own and drops it
    #[arg(long)]
    pub probe: bool,
    /// Read every record with its history, and hold the one against the other
    #[arg(long)]
    pub deep: bool,
    /// Hold the journal against the store, and list what the store has forgotten; without FILE the
    /// configured one
    #[arg(long, value_name = "FILE", num_args = 0..)]
    pub journal: Option<Vec<PathBuf>>,
}

/// Looks, and prints what it found.
///
/// # Errors
/// 78: no store was named that could be meant.
pub fn doctor(args: &DoctorArgs, global: &Global) -> Result<Exit, CliError> {
    let place = place(global)?;
    let mut checks = vec![Check::fine("version", versions())];
    let checked = check(&place.location, args.probe, global.store_timeout);
    checks.extend(checked.checks);
    if let Some(exposed) = place.exposed() {
        checks.push(Check::wrong("password", "in an argument", exposed));
    }
    if checked.store_id.is_some() {
        checks.extend(contents(args, &place, global));
    }
    checks.push(spool(checked.store_id, global));
    checks.push(journal::check(global));
    checks.push(config(global));
    let mut told = Told::begin(&place, global)?;
    if !global.json {
        let mut rows = vec![Check::fine("store", place.named())];
        rows.append(&mut checks.clone());
        told.text(&table(&rows, columns()))?;
    }
    if let Some(files) = &args.journal {
        let check = against_store(files, checked.store_id.is_some(), &place, global, &mut told);
        if !global.json {
            told.text(&table(std::slice::from_ref(&check), columns()))?;
        }
        checks.push(check);
    }
    let findings = checks.iter().filter(|check| check.finding.is_some()).count();
    told.end(&checks, findings)?;
    Ok(if findings > 0 { Exit::FAILED } else { Exit::OK })
}

/// The most of what is forgotten that is shown on a terminal.
const SHOWN_MAX: usize = 200;

/// The answer, which may be long and is written as it is found.
struct Told {
    out: Answer,
    json: bool,
    listed: usize,
    most: usize,
    failed: Option<CliError>,
}

impl Told {
    fn begin(place: &Place, global: &Global) -> Result<Self, CliError> {
        let mut out = if global.json { Answer::plain() } else { Answer::styled() };
        if global.json {
            let [store, why] = [json!(place.location.to_string()), json!(place.why())];
            let head = format!("{{\"store\":{},\"why\":{}", safe_json(&store), safe_json(&why));
            out.put(|out| write!(out, "{head},\"journal\":["))?;
        }
        let to_terminal = !global.json && io::stdout().is_terminal();
        let most = if to_terminal { SHOWN_MAX } else { usize::MAX };
        Ok(Self { out, json: global.json, listed: 0, most, failed: None })
    }

    fn text(&mut self, text: &str) -> Result<(), CliError> {
        self.out.put(|out| out.write_all(text.as_bytes())).map(drop)
    }

    /// One that is forgotten; false if nobody reads on.
    fn one(&mut self, found: &journal::Found) -> bool {
        self.listed += 1;
        let text = if self.json {
            let comma = if self.listed > 1 { "," } else { "" };
            format!("{comma}\n{}", safe_json(&found.object))
        } else if self.listed <= self.most {
            found.lines.iter().fold(String::new(), |text, line| text + line + "\n")
        } else {
            return true;
        };
        match self.out.put(|out| out.write_all(text.as_bytes())) {
            Ok(reader) => reader == Reader::There,
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }

    fn end(mut self, checks: &[Check], findings: usize) -> Result<(), CliError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.json {
            let checks = Value::from(checks.iter().map(object).collect::<Vec<Value>>());
            let tail = format!("],\"checks\":{},\"findings\":{findings}}}", safe_json(&checks));
            self.out.put(|out| writeln!(out, "{tail}"))?;
        } else if self.listed > self.most {
            let more = number(self.listed as u64 - self.most as u64);
            self.text(&format!("    {more} more are not shown; a pipe gets all\n"))?;
        }
        self.out.end()
    }
}

/// What the journal knows and the store does not.
fn against_store(
    files: &[PathBuf],
    is_there: bool,
    place: &Place,
    global: &Global,
    told: &mut Told,
) -> Check {
    let mend = "without the store nothing can be compared: see above";
    if !is_there {
        return Check::wrong("journal against store", "there is no store to ask", mend);
    }
    match open(&place.location, &Options::new(Mode::Read, global.store_timeout)) {
        Ok(opened) => {
            let store = opened.store.as_ref();
            journal::compare(files, store, place, global, &mut |found| told.one(found))
        }
        Err(error) => Check::wrong("journal against store", error.message, mend),
    }
}

/// Which files say something; one with a mistake in it ends every command (CFG-6).
fn config(global: &Global) -> Check {
    let files: Vec<String> =
        global.settings.files.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    Check::fine("config", if files.is_empty() { "none".to_owned() } else { files.join(", ") })
}

fn versions() -> String {
    format!("ctrlrun {}, SQLite {}", env!("CARGO_PKG_VERSION"), ctrlrun::store::sqlite::version())
}

/// What is in the store: how much, from when, and with --deep whether it is sound.
fn contents(args: &DoctorArgs, place: &Place, global: &Global) -> Vec<Check> {
    let within = global.store_timeout;
    let store = match open(&place.location, &Options::new(Mode::Read, within)) {
        Ok(opened) => opened.store,
        Err(error) => return vec![Check::wrong("effects", "they cannot be read", error.message)],
    };
    let mut checks = match store.stats(within) {
        Ok(stats) => vec![effects(&stats, place), future(&stats)],
        Err(error) => vec![Check::wrong("effects", "they cannot be counted", error.message)],
    };
    if args.deep {
        checks.push(deep(store.as_ref(), within, global));
    }
    checks
}

/// How many there are. That some need a decision is no fault of the store: `effects --check` tells.
fn effects(stats: &Stats, place: &Place) -> Check {
    let stuck: u64 = stats.stuck().map(|count| count.effects).sum();
    let all = number(stats.effects());
    let found = match (stuck, stats.oldest_stuck()) {
        (0, _) | (_, None) => format!("{all}, none needs a decision"),
        (stuck, Some(oldest)) => format!(
            "{all}; {} stuck, the oldest for {} (ctrlrun effects --stuck{})",
            number(stuck),
            age(oldest),
            store_flag(place)
        ),
    };
    Check::fine("effects", found)
}

fn future(stats: &Stats) -> Check {
    let newest = stats.newest().zip(stats.now);
    match newest.map(|(newest, now)| newest.since(now)) {
        Some(ahead) if ahead > FUTURE_MAX => Check::wrong(
            "newest record",
            format!("{} in the future", age(ahead)),
            "the store's clock was set back, or was wrong then: leases end late, and prune waits \
             longer; set it by a time server",
        ),
        Some(_) => Check::fine(
            "newest record",
            newest.map_or_else(String::new, |(newest, now)| {
                format!("{} ago", age(now.since(newest)))
            }),
        ),
        None => Check::fine("newest record", "none"),
    }
}

fn deep(store: &dyn Store, within: Duration, global: &Global) -> Check {
    let bar = match global.quiet || global.json || !io::stderr().is_terminal() {
        true => ProgressBar::hidden(),
        false => ProgressBar::new_spinner(),
    };
    let bar = match ProgressStyle::with_template("{spinner} {human_pos} records read") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    };
    let found = integrity(store, within, &mut |looked_at| bar.set_position(looked_at));
    bar.finish_and_clear();
    match found {
        Err(error) => Check::wrong("histories", "not all were read", error.message),
        Ok(found) if found.wrong == 0 => {
            let records = count(found.looked_at, "record");
            Check::fine("histories", format!("{records}, each the fold of its history"))
        }
        Ok(found) => {
            let named: Vec<String> = found
                .named
                .iter()
                .map(|(key, why)| format!("{} ({})", cut(&clean(key), 80), cut(&clean(why), 120)))
                .collect();
            let more = if found.wrong > named.len() as u64 { ", ..." } else { "" };
            Check::wrong(
                "histories",
                format!("{} of {} are not right", number(found.wrong), number(found.looked_at)),
                format!(
                    "another program wrote to the store, or the disk lost something: run none of \
                     these before you know what is so: {}{more}",
                    named.join(", ")
                ),
            )
        }
    }
}

fn spool(store_id: Option<uuid::Uuid>, global: &Global) -> Check {
    // Without a store its own outcomes cannot be told from others', but the directory can.
    let found = Spool::find(&candidates(global), store_id.unwrap_or_default());
    let Some(spool) = found else {
        let mend = "an outcome that the store does not take would be told on stderr alone: name a \
                    directory that this user may write to in CTRLRUN_SPOOL";
        return Check::wrong("spool", "no directory can be written", mend);
    };
    let dir = spool.dir().to_string_lossy().into_owned();
    let files = spool.read(false);
    let waiting = files.iter().filter(|file| matches!(file, Spooled::Outcome(_))).count();
    let damaged: Vec<String> = files
        .iter()
        .filter_map(|file| match file {
            Spooled::Damaged { path, why } => Some(format!("{} ({why})", path.to_string_lossy())),
            Spooled::Outcome(_) => None,
        })
        .collect();
    if !damaged.is_empty() {
        return Check::wrong(
            "spool",
            format!("{waiting} waiting, {} damaged in {dir}", damaged.len()),
            format!(
                "look at the effects that these are about, resolve them, and remove the files: {}",
                damaged.join(", ")
            ),
        );
    }
    match waiting {
        0 => Check::fine("spool", format!("empty ({dir})")),
        waiting => Check::wrong(
            "spool",
            format!("{waiting} waiting in {dir}"),
            "outcomes that the store has not taken yet: the next command that writes delivers them",
        ),
    }
}

fn object(check: &Check) -> Value {
    json!({
        "check": check.about,
        "found": check.found,
        "ok": check.finding.is_none(),
        "finding": check.finding,
    })
}

/// A line a check: whether it is well, what was looked at, what was found; below it what is wrong.
fn table(checks: &[Check], columns: Option<usize>) -> String {
    let widest = checks.iter().map(|check| width(check.about)).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let gap = " ".repeat(widest.saturating_sub(width(check.about)));
        let mark = if check.finding.is_some() { "!!" } else { "ok" };
        let about = format!("{mark}  {}{gap}  ", check.about);
        text.push_str(&hung(&about, &clean(&check.found), columns));
        // A mend may be something to copy: it stays whole.
        if let Some(finding) = &check.finding {
            text.push_str(&format!("    {}\n", clean(finding)));
        }
    }
    text
}
