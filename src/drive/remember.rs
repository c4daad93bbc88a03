//! Holds a journal against its store: what does the one know that the other has forgotten (AFT-6,
//! AFT-7)? [`journal::judge`] decides; this reads, and asks the store.
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use super::journal::{self, Stands};
use crate::plan::effect::{Record, WriteId};
use crate::plan::journal::{Judged, Line, What, judge, judge_by_history};
use crate::plan::key::Key;
use crate::plan::protocol::{Ask, CouldNot, Found};
use crate::plan::time::Timestamp;
use crate::store::Store;

/// Something that the store has forgotten.
#[derive(Debug)]
pub struct Forgotten {
    /// The line that knows it.
    pub line: Box<Line>,
    /// What of it is forgotten.
    pub judged: Judged,
    /// What the store has of its key now.
    pub record: Option<Box<Record>>,
    /// The store's clock.
    pub now: Timestamp,
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Attempts that began, as far as the journal knows.
    pub attempts: u64,
    /// Those of other stores, which were not looked at.
    pub elsewhere: u64,
    /// Those that the store has let go of on purpose, most likely.
    pub pruned: u64,
    /// Lines that were cut off.
    pub torn: u64,
    /// Lines that cannot be read: file and number, of the first of them.
    pub unreadable: Vec<(PathBuf, u64)>,
    /// How many there are of them.
    pub unreadables: u64,
}

/// Why it could not be done to the end.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// A file cannot be read.
    #[error("it cannot be read: {0}")]
    File(#[from] io::Error),
    /// The store does not answer.
    #[error("the store does not answer: {}", .0.message)]
    Store(CouldNot),
    /// Whoever was told wants no more.
    #[error("enough")]
    Enough,
}

/// How many places of damage are named.
const NAMED_MAX: usize = 10;

type Attempt = (Uuid, Key, u64, WriteId);

/// Reads `files` and hands over what `store` has forgotten of them: first what began and has no
/// outcome, then the rest as it comes. Two passes, so that only the former has to be held in memory.
///
/// # Errors
/// [`Failed`].
pub fn forgotten(
    files: &[PathBuf],
    store: &dyn Store,
    within: Duration,
    each: &mut dyn FnMut(Forgotten) -> bool,
) -> Result<Tally, Failed> {
    let files = in_order(files)?;
    let mut tally = Tally::default();
    let mut open: HashMap<Attempt, Box<Line>> = HashMap::new();
    let identity = store.identity();
    let ours = |line: &Line| line.store_id == identity.store_id || line.store == identity.place;
    for file in &files {
        journal::read::<Failed>(file, &mut |stands| {
            match stands {
                Stands::Line(line) => match &line.what {
                    What::Began(_) if ours(&line) => {
                        tally.attempts += 1;
                        open.insert(attempt(&line), line);
                    }
                    What::Began(_) => tally.elsewhere += 1,
                    What::Settled(_) => {
                        open.remove(&attempt(&line));
                    }
                },
                Stands::Torn { .. } => tally.torn += 1,
                Stands::Unreadable { number } => {
                    tally.unreadables += 1;
                    if tally.unreadable.len() < NAMED_MAX {
                        tally.unreadable.push((file.clone(), number));
                    }
                }
            }
            Ok(())
        })?;
    }
    let mut open: Vec<Box<Line>> = open.into_values().collect();
    open.sort_by(|a, b| (&a.at, &a.key, a.attempt).cmp(&(&b.at, &b.key, b.attempt)));
    let mut look = |line: Box<Line>| -> Result<(), Failed> {
        match compare(line, store, within)? {
            Compared::Forgotten(found) => {
                if each(found) {
                    Ok(())
                } else {
                    Err(Failed::Enough)
                }
            }
            Compared::Pruned => {
                tally.pruned += 1;
                Ok(())
            }
            Compared::Known => Ok(()),
        }
    };
    for line in open {
        look(line)?;
    }
    for file in &files {
        journal::read::<Failed>(file, &mut |stands| match stands {
            Stands::Line(line) if matches!(line.what, What::Settled(_)) && ours(&line) => {
                look(line)
            }
            Stands::Line(_) | Stands::Torn { .. } | Stands::Unreadable { .. } => Ok(()),
        })?;
    }
    Ok(tally)
}

enum Compared {
    Known,
    Pruned,
    Forgotten(Forgotten),
}

/// Asks the store after the line was read: it is then at least as new as the line.
fn compare(line: Box<Line>, store: &dyn Store, within: Duration) -> Result<Compared, Failed> {
    let found = store.load(&line.key, Ask::Nothing, within).map_err(Failed::Store)?;
    let Found { record, now, attempt_floor, .. } = found;
    let mut judged = judge(&line, record.as_ref(), attempt_floor);
    if judged == Judged::AskHistory {
        let history = store.history(&line.key, 1, within).map_err(Failed::Store)?;
        judged = judge_by_history(&line, &history);
    }
    Ok(match judged {
        Judged::Known => Compared::Known,
        Judged::Pruned => Compared::Pruned,
        Judged::Lost | Judged::GrantedAgain | Judged::OutcomeLost | Judged::AskHistory => {
            Compared::Forgotten(Forgotten { line, judged, record: record.map(Box::new), now })
        }
    })
}

fn attempt(line: &Line) -> Attempt {
    (line.store_id, line.key.clone(), line.attempt, line.reservation_id)
}

/// The files by the time of their first line: an attempt may have begun in one that was renamed away,
/// and have ended in the next.
fn in_order(files: &[PathBuf]) -> Result<Vec<PathBuf>, Failed> {
    let mut dated = Vec::new();
    for file in files {
        let mut first = None;
        let read = journal::read::<Failed>(file, &mut |stands| match stands {
            Stands::Line(line) => {
                first = Some(line.at);
                Err(Failed::Enough)
            }
            Stands::Torn { .. } | Stands::Unreadable { .. } => Ok(()),
        });
        match read {
            Ok(()) | Err(Failed::Enough) => dated.push((first, file.clone())),
            Err(failed) => return Err(failed),
        }
    }
    dated.sort();
    dated.dedup();
    Ok(dated.into_iter().map(|(_, file)| file).collect())
}
