//! Keys and runs of the store, for somebody who waits with a finger on TAB: soon, or none (AFT-13).
use std::ffi::OsString;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use ctrlrun::plan::workflow::Status;
use ctrlrun::store::runs::{ListedRun, RunFilter};
use ctrlrun::store::{Filter, Flow, Listed, Mode, Options, Store, open};

use super::place::{OFFERED_MAX, Word};
use crate::cli::render::state;
use crate::cli::which::{Surroundings, which};
use crate::config;

/// How long anybody waits for keys.
const TIME_MAX: Duration = Duration::from_millis(200);

/// Which keys or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// Those that need a decision.
    Stuck,
    /// Not keys, but the names of runs.
    Runs,
    /// Of runs that have not ended.
    Unended,
}

/// Keys that begin with `prefix`, with their states; none where the store does not answer in time.
pub fn like(
    prefix: &str,
    which: Which,
    store: Option<OsString>,
    config: Option<OsString>,
) -> Vec<Word> {
    let prefix = prefix.to_owned();
    let (sender, found) = sync_channel(1);
    // A store that hangs is left behind: this process ends, and its thread with it.
    thread::spawn(move || sender.send(read(prefix, which, store, config).unwrap_or_default()));
    found.recv_timeout(TIME_MAX).unwrap_or_default()
}

fn read(
    prefix: String,
    only: Which,
    store: Option<OsString>,
    config: Option<OsString>,
) -> Option<Vec<Word>> {
    let settings = config::load(config, false).ok()?;
    let place = which(&Surroundings::of_process(store, settings.store)).ok()?;
    let opened = open(&place.location, &Options::new(Mode::Read, TIME_MAX)).ok()?;
    let ended = match only {
        Which::All | Which::Stuck => None,
        Which::Runs => Some(true),
        Which::Unended => Some(false),
    };
    if let Some(ended) = ended {
        return runs(prefix, ended, opened.store.as_ref());
    }
    let filter = Filter { prefix: Some(prefix), stuck: only == Which::Stuck, ..Filter::default() };
    let mut words = Vec::new();
    let mut each = |listed| {
        if let Listed::Record(shown) = listed {
            let help = state::name_at(&shown.record, shown.now);
            words.push(Word { text: shown.record.key.as_str().to_owned(), help });
        }
        if words.len() < OFFERED_MAX { Flow::Continue } else { Flow::Stop }
    };
    opened.store.list(&filter, &mut each, TIME_MAX).ok()?;
    Some(words)
}

fn runs(prefix: String, ended: bool, store: &dyn Store) -> Option<Vec<Word>> {
    let statuses = Status::ALL.into_iter().filter(|status| ended || !status.is_end()).collect();
    let filter = RunFilter { prefix: Some(prefix), statuses, ..RunFilter::default() };
    let mut words = Vec::new();
    let mut each = |listed| {
        if let ListedRun::Run(run, _) = listed {
            let help = format!("{}, {}", run.workflow, run.status.name());
            words.push(Word { text: run.id.as_str().to_owned(), help });
        }
        if words.len() < OFFERED_MAX { Flow::Continue } else { Flow::Stop }
    };
    store.runs().list_runs(&filter, &mut each, TIME_MAX).ok()?;
    Some(words)
}
