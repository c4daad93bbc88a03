//! Delivers what is in the spool, before a command that writes does its own work (EXE-25).
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::handle::{Call, handle_on};
use super::host::{Here, Host};
use super::spool::{Spool, Spooled};
use crate::plan::effect::{Command, Recorded};
use crate::plan::expect::StreamState;
use crate::plan::key::Key;
use crate::plan::protocol::{CouldNot, Done, Reason};
use crate::store::Store;

/// What came of one file of the spool.
#[derive(Debug)]
pub enum Delivery {
    /// Its outcome is the record's, now or since an earlier delivery.
    Recorded(Key),
    /// Its record had moved on: it is kept in the history as a late outcome.
    Late(Key),
    /// Its effect was forgotten, and by this word nothing had happened: nothing was created.
    Forgotten(Key),
    /// It could not be delivered, and stays in the spool: nothing may run under this key.
    Failed(Key, CouldNot),
    /// It is damaged: set aside, and never guessed at.
    Damaged {
        /// Where it is now.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Delivers every outcome of the spool to its store. `within` bounds each.
pub fn deliver(
    store: &dyn Store,
    spool: &Spool,
    within: Duration,
    exchange_max: Duration,
) -> Vec<Delivery> {
    deliver_on(&Here, store, spool, within, exchange_max)
}

/// As [`deliver`], on `host`.
pub fn deliver_on(
    host: &dyn Host,
    store: &dyn Store,
    spool: &Spool,
    within: Duration,
    exchange_max: Duration,
) -> Vec<Delivery> {
    let files = spool.read(true).into_iter();
    files.map(|file| one(host, store, spool, file, within, exchange_max)).collect()
}

fn one(
    host: &dyn Host,
    store: &dyn Store,
    spool: &Spool,
    file: Spooled,
    within: Duration,
    exchange_max: Duration,
) -> Delivery {
    let undelivered = match file {
        Spooled::Outcome(undelivered) => undelivered,
        Spooled::Damaged { path, why } => return Delivery::Damaged { path, why },
    };
    let key = undelivered.key.clone();
    let outcome_id = undelivered.settle.outcome_id;
    let may_have_happened = undelivered.settle.verdict.may_have_happened();
    let done = handle_on(
        host,
        store,
        Call {
            key: key.clone(),
            command: Command::Settle(undelivered.settle),
            expect: StreamState::Any,
            within,
            exchange_max,
            outputs: undelivered.outputs,
        },
    );
    let delivery = match done {
        Done::Answered(answered) => match answered.answer.recorded() {
            Some(Recorded::Late) => Delivery::Late(key),
            Some(Recorded::Forgotten) if may_have_happened => {
                return Delivery::Failed(key, gone(&spool.path(outcome_id)));
            }
            Some(Recorded::Forgotten) => Delivery::Forgotten(key),
            Some(Recorded::Ours) => Delivery::Recorded(key),
            None => {
                let message = "internal: no answer to a settle".to_owned();
                let error = CouldNot { reason: Reason::Damaged, message, hint: None };
                return Delivery::Failed(key, error);
            }
        },
        Done::CouldNot(error) | Done::Unknown(error) => return Delivery::Failed(key, error),
    };
    spool.discard(outcome_id);
    delivery
}

/// What stands in the way of a word that something may have happened whose effect is not there: the
/// store was restored from a backup, most likely, and to drop the word would let the effect come about
/// a second time.
#[must_use]
pub fn gone(file: &Path) -> CouldNot {
    CouldNot {
        reason: Reason::Damaged,
        message: format!(
            "it says that the effect may have happened, and the store has no such effect (was it \
             restored from a backup?); if it is the file that is wrong, remove {}",
            file.display()
        ),
        hint: None,
    }
}
