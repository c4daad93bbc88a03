//! Lets go of what is old, a small transaction at a time (OPS-1 to OPS-7, OPS-14).
//!
//! | who | does what |
//! |---|---|
//! | `Store::walk` | hands over each settled record with its history, nothing locked meanwhile |
//! | [`retention`] | says of each what may go, or why it stays |
//! | here | gathers what may go until it is enough for a transaction |
//! | `Store::prune` | lets it go, each on the condition that it still is what was read |
//!
//! A crash between two transactions leaves what the next prune finds; one within a transaction
//! leaves all of it. So there is nothing to be settled afterwards, and nothing to be kept meanwhile.
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::plan::key::Key;
use crate::plan::retention::{self, Stays};
use crate::plan::workflow::{RunId, Status};
use crate::store::runs::{ListedRun, RunAsRead, RunFilter};
use crate::store::upkeep::{Cut, Gone, Pruned, Walked, Whole};
use crate::store::{CouldNot, End, Filter, Flow, Reason, Store};

/// What one transaction takes at most: effects, events of theirs, bytes of output.
const EFFECTS_MAX: usize = 256;
const EVENTS_MAX: usize = 4_096;
const BYTES_MAX: u64 = 4 << 20;

/// How many runs one transaction takes at most.
const RUNS_MAX: usize = 64;

/// So many runs are remembered: the keys of one run's nodes mostly lie side by side.
const ASKED_MAX: usize = 256;

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// How long ago it must have been settled.
    pub older_than: Duration,
    /// Whether keys go, and not their output only.
    pub forget_keys: bool,
    /// Only keys that start with this.
    pub prefix: Option<String>,
    /// Keys that stay whatever their records say: an outcome of them is still to be delivered.
    pub spare: BTreeSet<Key>,
    /// Only counts.
    pub dry_run: bool,
}

/// What came of it so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Settled effects that were looked at.
    pub looked_at: u64,
    /// Effects whose output was dropped; those that were forgotten are not among them.
    pub outputs: u64,
    /// Bytes of output that went, with their effects or without.
    pub output_bytes: u64,
    /// Effects that were forgotten.
    pub effects: u64,
    /// Effects that moved while they were looked at, and so stay.
    pub moved: u64,
    /// Records that cannot be read, and so stay.
    pub unreadable: u64,
    /// Keys that stay since an outcome of them is in the spool.
    pub spooled: u64,
    /// Effects that stay, by reason.
    pub stay: BTreeMap<Stays, u64>,
    /// Workflow runs that were forgotten.
    pub runs: u64,
    /// Workflow runs that have ended and stay: not long enough ago, or something of them is open.
    pub runs_stay: u64,
    /// Effects and runs of a transaction of which nobody knows whether it was committed.
    pub unknown: u64,
}

/// Why it ended before the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    /// The store could not; what the tally says went is gone.
    CouldNot(CouldNot),
    /// The end of the last transaction is not known: all of it went or nothing did.
    Unknown(CouldNot),
}

/// Prunes `store`; `told` is shown the tally now and then. `within` bounds each exchange.
pub fn prune(
    store: &dyn Store,
    terms: &Terms,
    within: Duration,
    told: &mut dyn FnMut(&Tally),
) -> (Tally, Result<(), Halt>) {
    let filter = Filter {
        prefix: terms.prefix.clone(),
        states: vec!["committed".to_owned(), "failed".to_owned()],
        // Nothing can be settled for longer than it has been there: the rest need not be read.
        there_for: Some(terms.older_than),
        ..Filter::default()
    };
    let mut batch = Batch::new(store, terms, within);
    let mut halt = None;
    let mut each = |walked| {
        let done = batch.take(walked);
        told(&batch.tally);
        match done {
            Ok(()) => Flow::Continue,
            Err(why) => {
                halt = Some(why);
                Flow::Stop
            }
        }
    };
    let walked = store.walk(&filter, &mut each, within);
    let end = match (halt, walked) {
        (Some(halt), _) => Err(halt),
        // What had been gathered when the store failed is found again by the next prune.
        (None, Err(error)) => Err(Halt::CouldNot(error)),
        (None, Ok(())) => batch.send(),
    };
    let mut tally = batch.tally;
    // A run goes after its effects: one that is gone keeps none of them.
    let end = match terms.forget_keys {
        true => end.and_then(|()| runs(store, terms, within, &mut tally)),
        false => end,
    };
    told(&tally);
    (tally, end)
}

/// Forgets runs that ended long ago (OPS-14).
fn runs(store: &dyn Store, terms: &Terms, within: Duration, tally: &mut Tally) -> Result<(), Halt> {
    if !has_runs(store) {
        return Ok(());
    }
    let filter = RunFilter {
        prefix: terms.prefix.clone(),
        statuses: vec![Status::Succeeded, Status::Failed, Status::Cancelled],
        ..RunFilter::default()
    };
    let (mut cut, mut halt) = (Vec::new(), None);
    let mut each = |listed| {
        match listed {
            ListedRun::Run(run, now) => match retention::run(&run, now, terms.older_than) {
                Ok(()) => cut.push(RunAsRead::of(&run)),
                Err(_) => tally.runs_stay += 1,
            },
            // What is not understood is not thrown away.
            ListedRun::Unreadable { .. } => tally.runs_stay += 1,
        }
        if cut.len() < RUNS_MAX {
            return Flow::Continue;
        }
        match send_runs(store, terms, within, &std::mem::take(&mut cut), tally) {
            Ok(()) => Flow::Continue,
            Err(why) => {
                halt = Some(why);
                Flow::Stop
            }
        }
    };
    let listed = store.runs().list_runs(&filter, &mut each, within);
    match (halt, listed) {
        (Some(halt), _) => Err(halt),
        (None, Err(error)) => Err(Halt::CouldNot(error)),
        (None, Ok(())) => send_runs(store, terms, within, &cut, tally),
    }
}

/// A store of before there were runs has none.
fn has_runs(store: &dyn Store) -> bool {
    store.identity().schema_version >= 2
}

/// One transaction; where one of them has moved, one for each.
fn send_runs(
    store: &dyn Store,
    terms: &Terms,
    within: Duration,
    cut: &[RunAsRead],
    tally: &mut Tally,
) -> Result<(), Halt> {
    if cut.is_empty() {
        return Ok(());
    }
    let end = match terms.dry_run {
        true => End::Landed,
        false => store.runs().forget_runs(cut, within),
    };
    match end {
        End::Landed => tally.runs += count(cut),
        End::Refused if cut.len() == 1 => tally.runs_stay += 1,
        End::Refused => {
            for one in cut.chunks(1) {
                send_runs(store, terms, within, one, tally)?;
            }
        }
        End::NotCommitted(error) => return Err(Halt::CouldNot(error)),
        End::Unknown(error) => {
            tally.unknown += count(cut);
            return Err(Halt::Unknown(error));
        }
    }
    Ok(())
}

/// What goes with the next transaction, and what went before.
struct Batch<'a> {
    store: &'a dyn Store,
    terms: &'a Terms,
    within: Duration,
    tally: Tally,
    cut: Cut,
    events: usize,
    bytes: u64,
    /// What was found of runs. One that has ended never goes on, so that stays true.
    asked: BTreeMap<String, Result<(), Stays>>,
}

impl<'a> Batch<'a> {
    fn new(store: &'a dyn Store, terms: &'a Terms, within: Duration) -> Self {
        let (tally, cut) = (Tally::default(), Cut::default());
        Self { store, terms, within, tally, cut, events: 0, bytes: 0, asked: BTreeMap::new() }
    }

    fn take(&mut self, walked: Walked) -> Result<(), Halt> {
        let whole = match walked {
            Walked::Effect(whole) => whole,
            Walked::Unreadable { .. } => {
                self.tally.unreadable += 1;
                return Ok(());
            }
        };
        self.tally.looked_at += 1;
        if self.terms.spare.contains(&whole.record.key) {
            self.tally.spooled += 1;
            return Ok(());
        }
        let of_run = self.of_run(&whole)?;
        match of_run.and_then(|()| self.judge(&whole)) {
            Ok(Goes::Effect) => self.cut.effects.push(whole.as_read()),
            Ok(Goes::Output) => self.cut.outputs.push(whole.as_read()),
            Ok(Goes::Nothing) => return Ok(()),
            Err(why) => {
                *self.tally.stay.entry(why).or_default() += 1;
                // Its key stays; its output may be old enough all the same.
                if why != Stays::Unseen && why != Stays::InDoubt || whole.kept == 0 {
                    return Ok(());
                }
                self.cut.outputs.push(whole.as_read());
            }
        }
        self.events += whole.history.len();
        self.bytes += whole.kept;
        let effects = self.cut.effects.len() + self.cut.outputs.len();
        if effects >= EFFECTS_MAX || self.events >= EVENTS_MAX || self.bytes >= BYTES_MAX {
            return self.send();
        }
        Ok(())
    }

    /// What the effect's run says to it, if it has one.
    fn of_run(&mut self, whole: &Whole) -> Result<Result<(), Stays>, Halt> {
        let Some(name) = &whole.record.run_id else {
            return Ok(Ok(()));
        };
        if let Some(said) = self.asked.get(name) {
            return Ok(*said);
        }
        let said = match RunId::new(name.as_str()) {
            Ok(id) => match self.store.runs().load_run(&id, self.within) {
                Ok(found) => retention::of_run(found.run.as_ref()),
                // A run that cannot be read may have to go on.
                Err(error) if error.reason == Reason::Damaged => Err(Stays::OfARun),
                Err(error) => return Err(Halt::CouldNot(error)),
            },
            // No run has such a name.
            Err(_) => Ok(()),
        };
        if self.asked.len() >= ASKED_MAX {
            self.asked.clear();
        }
        self.asked.insert(name.clone(), said);
        Ok(said)
    }

    fn judge(&self, whole: &Whole) -> Result<Goes, Stays> {
        let Whole { record, now, history, kept } = whole;
        if self.terms.forget_keys {
            retention::key(record, history, *now, self.terms.older_than)?;
            return Ok(Goes::Effect);
        }
        retention::output(record, history, *now, self.terms.older_than)?;
        Ok(if *kept > 0 { Goes::Output } else { Goes::Nothing })
    }

    /// One transaction.
    fn send(&mut self) -> Result<(), Halt> {
        let cut = std::mem::take(&mut self.cut);
        let bytes = std::mem::take(&mut self.bytes);
        self.events = 0;
        if cut.is_empty() {
            return Ok(());
        }
        let asked = Gone { outputs: count(&cut.outputs), effects: count(&cut.effects) };
        let pruned = match self.terms.dry_run {
            true => Pruned::Done(asked),
            false => self.store.prune(&cut, self.within),
        };
        match pruned {
            Pruned::Done(gone) => {
                self.tally.outputs += gone.outputs;
                self.tally.effects += gone.effects;
                self.tally.output_bytes += bytes;
                let asked = asked.outputs + asked.effects;
                self.tally.moved += asked.saturating_sub(gone.outputs + gone.effects);
                Ok(())
            }
            Pruned::NotCommitted(error) => Err(Halt::CouldNot(error)),
            Pruned::Unknown(error) => {
                self.tally.unknown += asked.outputs + asked.effects;
                Err(Halt::Unknown(error))
            }
        }
    }
}

/// What goes of an effect.
enum Goes {
    Effect,
    Output,
    Nothing,
}

fn count<T>(of: &[T]) -> u64 {
    u64::try_from(of.len()).unwrap_or(u64::MAX)
}
