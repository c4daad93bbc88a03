//! What waits in the spool, for a dry run: a run would deliver it first (EXE-25), and what it says may
//! settle a key, or stand in its way. Nothing is delivered here.
use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use ctrlrun::drive::deliver;
use ctrlrun::drive::spool::{Spool, Spooled};
use ctrlrun::plan::attempt::Undelivered;
use ctrlrun::plan::effect::{Command, HistoryRow, Recorded, WriteId, decide, evolve};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::{Ask, Found};
use ctrlrun::plan::time::Timestamp;
use ctrlrun::store::Reason;
use uuid::Uuid;

use super::Global;
use super::access::{Opened, place};
use super::error::{CliError, Deed, Kind};
use super::spooled::{candidates, in_the_way, made, not_of_a_lost_store};

/// The words of a spool, read once.
pub struct Waiting {
    spool: Option<Spool>,
    made: Option<SystemTime>,
    /// Words for this very store.
    words: HashMap<Key, Vec<Undelivered>>,
    /// Keys of words for a store that was here before this one.
    strays: HashSet<Key>,
}

impl Waiting {
    /// Reads what is there; `None` where the store would be made: it is younger than any word.
    #[must_use]
    pub fn read(opened: Option<&Opened>, global: &Global) -> Self {
        let store_id = opened.map_or_else(Uuid::nil, |opened| opened.store.identity().store_id);
        let spool = Spool::find(&candidates(global), store_id);
        let made = opened.and_then(|opened| made(&opened.place));
        // Only a store that is a file can have been made anew in another's place.
        let older = |written: SystemTime| match (opened, made) {
            (None, _) => true,
            (Some(_), made) => made.is_some_and(|made| written < made),
        };
        let mut words: HashMap<Key, Vec<Undelivered>> = HashMap::new();
        let mut strays = HashSet::new();
        if let Some(spool) = &spool {
            for file in spool.read(false) {
                if let Spooled::Outcome(word) = file {
                    words.entry(word.key.clone()).or_default().push(*word);
                }
            }
            let all = spool.all_strays().into_iter();
            strays.extend(all.filter(|(_, written)| older(*written)).map(|(key, _)| key));
        }
        Self { spool, made, words, strays }
    }

    /// What would be found under `key` once the words about it were delivered.
    ///
    /// # Errors
    /// 69: one of them stands in its way; a store that cannot be read.
    pub fn delivered(
        &self,
        opened: Option<&Opened>,
        key: &Key,
        mut found: Found,
        global: &Global,
    ) -> Result<Found, CliError> {
        let Some(spool) = &self.spool else {
            return Ok(found);
        };
        if let Some(opened) = opened {
            for word in self.words.get(key).into_iter().flatten() {
                found = after(word, opened, spool, found)?;
            }
        }
        if self.strays.contains(key) {
            let place = match opened {
                Some(opened) => opened.place.clone(),
                None => place(global)?,
            };
            not_of_a_lost_store(&place, spool, key, Deed::Run, self.made)?;
        }
        Ok(found)
    }
}

/// What would be found once `word` was delivered.
fn after(
    word: &Undelivered,
    opened: &Opened,
    spool: &Spool,
    mut found: Found,
) -> Result<Found, CliError> {
    let outcome_id = word.settle.outcome_id;
    found.event = load(opened, &word.key, Ask::Outcome(outcome_id))?.event;
    let decision = decide(&found, &Command::Settle(word.settle.clone()), &[]);
    let may_have_happened = word.settle.verdict.may_have_happened();
    if decision.answer.recorded() == Some(Recorded::Forgotten) && may_have_happened {
        let error = deliver::gone(&spool.path(outcome_id));
        return Err(in_the_way(opened, spool, &word.key, Deed::Run, &error));
    }
    let revision = found.revision().unwrap_or(0);
    for (event, revision) in decision.events.into_iter().zip(revision + 1..) {
        let row = HistoryRow {
            revision,
            write_id: WriteId(Uuid::nil()),
            outcome_id: Some(outcome_id),
            attempt: 0,
            recorded_at: found.now,
            event,
        };
        let next = evolve(&word.key, found.record.take(), &row);
        found.record = Some(
            next.map_err(|bad| CliError::new(Kind::Internal, "nothing was run").because(&bad))?,
        );
    }
    Ok(found)
}

/// What is found under a key, or nothing where there is no store yet.
///
/// # Errors
/// A store that cannot be read.
pub fn load(opened: &Opened, key: &Key, ask: Ask) -> Result<Found, CliError> {
    match opened.store.load(key, ask, opened.within) {
        Ok(found) => Ok(found),
        Err(error) if error.reason == Reason::Missing => Ok(nothing_found()),
        Err(error) => Err(opened.could_not(&error)),
    }
}

/// What a store that is not there yet would find.
#[must_use]
pub fn nothing_found() -> Found {
    Found { record: None, now: Timestamp(0), attempt_floor: 0, event: None }
}
