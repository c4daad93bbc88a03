//! `ctrlrun show`: one record, and what to do about it (CLI-16).
use std::sync::Arc;

use clap::Args;
use ctrlrun::plan::effect::State;
use ctrlrun::store::{Shown, Stream};

use super::access::{Opened, for_reading};
use super::error::{CliError, Deed, Exit, Kind};
use super::probes::{Chosen, Probes};
use super::render::object::Object;
use super::render::record::Evidence;
use super::render::shell::{line, quote};
use super::terminal::{Answer, answer, columns};
use super::{Global, existing_key};
use crate::config;

/// Show one effect: where it ran, why it stands so, what to do next
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun show refund:txn_77
  ctrlrun show refund:txn_77 --json | jq -r '.next[]'
  if ctrlrun show --check deploy:prod:881 >/dev/null; then ...

Exit status with --check: 0 COMMITTED, 1 FAILED, 75 running, 76 AMBIGUOUS or its lease has
ended, 66 no such effect.")]
pub struct ShowArgs {
    /// The effect's key
    pub key: String,
    /// Let the exit status say the state
    #[arg(long)]
    pub check: bool,
}

/// Prints the record.
///
/// # Errors
/// 66 if there is none; what the store could not do.
pub fn show(args: &ShowArgs, global: &Global) -> Result<Exit, CliError> {
    let key = existing_key(&args.key, Deed::Look)?;
    let opened = for_reading(global)?;
    let shown = opened.find(&key)?;
    if global.json {
        let line = Object::of(&shown, &opened.place).line();
        let mut out = Answer::plain();
        out.put(|out| writeln!(out, "{line}"))?;
        out.end()?;
    } else {
        answer(&text(&opened, global, &shown, columns())?)?;
    }
    Ok(if args.check { check(&shown) } else { Exit::OK })
}

/// The record with its evidence, for a person.
///
/// # Errors
/// What the store could not do.
pub fn text(
    opened: &Opened,
    global: &Global,
    shown: &Shown,
    columns: Option<usize>,
) -> Result<String, CliError> {
    let record = &shown.record;
    let history = opened.history(&record.key, 1)?;
    let stdout = opened.output(&record.key, record.attempt, Stream::Stdout)?;
    let stderr = opened.output(&record.key, record.attempt, Stream::Stderr)?;
    let evidence = Evidence {
        shown,
        history: &history,
        stdout: stdout.as_ref(),
        stderr: stderr.as_ref(),
        place: &opened.place,
        to_ask: to_ask(opened, global, shown),
        columns,
    };
    Ok(evidence.text())
}

/// What asks the probe that is declared for what is stuck. A configuration that cannot be read is in
/// nobody's way who looks (CFG-5); then there is none.
fn to_ask(opened: &Opened, global: &Global, shown: &Shown) -> Option<String> {
    if !shown.record.is_stuck(shown.now) {
        return None;
    }
    // The file above the working directory may declare it: `reconcile` would read that too.
    let config = Arc::new(config::load(global.config.clone(), true).ok()?);
    let Chosen::Probe(_) = Probes::find(None, None, &config).ok()?.of(&shown.record.key) else {
        return None;
    };
    let flag = global.config.as_ref().map(|file| format!("--config {}", quote(file)));
    let key = shown.record.key.as_str();
    Some(line("reconcile", key, &flag.unwrap_or_default(), &opened.place))
}

fn check(shown: &Shown) -> Exit {
    match shown.record.state {
        State::Committed { .. } => Exit::OK,
        State::Failed { .. } => Exit::FAILED,
        State::Ambiguous { .. } => Kind::Ambiguous.exit(),
        State::Reserved { .. } | State::Executing { .. } if shown.record.is_lapsed(shown.now) => {
            Kind::Ambiguous.exit()
        }
        State::Reserved { .. } | State::Executing { .. } => Kind::InProgress.exit(),
    }
}
