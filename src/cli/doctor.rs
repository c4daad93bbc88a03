//! `ctrlrun doctor`: what the store is like, and what about it has to be mended (CLI-23).
use clap::Args;
use ctrlrun::drive::spool::Spool;
use ctrlrun::store::check::{Check, check};
use serde_json::{Value, json};

use super::Global;
use super::access::place;
use super::error::{CliError, Exit};
use super::render::text::{clean, width};
use super::spooled::candidates;
use super::terminal::{Answer, answer};

/// Look at the store and say what about it has to be mended
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun doctor
  ctrlrun doctor --store postgres://app@db/jobs --probe

Exit status: 0, or 1 with a finding.")]
pub struct DoctorArgs {
    /// Find out by experiment whether the server does what a store needs; it makes a schema of its
    /// own and drops it
    #[arg(long)]
    pub probe: bool,
}

/// Looks, and prints what it found.
///
/// # Errors
/// 78: no store was named that could be meant.
pub fn doctor(args: &DoctorArgs, global: &Global) -> Result<Exit, CliError> {
    let place = place(global)?;
    let checked = check(&place.location, args.probe, global.store_timeout);
    let mut checks = checked.checks;
    if let Some(exposed) = place.exposed() {
        checks.push(Check::wrong("password", "in an argument", exposed));
    }
    checks.push(spool(checked.store_id, global));
    checks.push(config(global));
    let findings = checks.iter().filter(|check| check.finding.is_some()).count();
    if global.json {
        let line = json!({
            "store": place.location.to_string(),
            "why": place.why(),
            "findings": findings,
            "checks": checks.iter().map(object).collect::<Vec<Value>>(),
        });
        let mut out = Answer::plain();
        out.put(|out| writeln!(out, "{line}"))?;
        out.end()?;
    } else {
        let mut rows = vec![Check::fine("store", place.named())];
        rows.extend(checks);
        answer(&table(&rows))?;
    }
    Ok(if findings > 0 { Exit::FAILED } else { Exit::OK })
}

/// Which files say something; one with a mistake in it ends every command (CFG-6).
fn config(global: &Global) -> Check {
    let files: Vec<String> =
        global.settings.files.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    Check::fine("config", if files.is_empty() { "none".to_owned() } else { files.join(", ") })
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
    match spool.read(false).len() {
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
fn table(checks: &[Check]) -> String {
    let widest = checks.iter().map(|check| width(check.about)).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let gap = " ".repeat(widest.saturating_sub(width(check.about)));
        let mark = if check.finding.is_some() { "!!" } else { "ok" };
        let line = format!("{mark}  {}{gap}  {}", check.about, clean(&check.found));
        text.push_str(line.trim_end());
        text.push('\n');
        if let Some(finding) = &check.finding {
            text.push_str(&format!("    {}\n", clean(finding)));
        }
    }
    text
}
