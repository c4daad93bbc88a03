//! What a store keeps of workflow runs (WFL clauses): the same few verbs on every store, each of
//! which names its condition and returns what it found.
//!
//! | file | what it does |
//! |---|---|
//! | [`row`] | a run as flat columns, the same on every store, and the checksum of its row |
//! | `columns` | what both kinds of store write twice otherwise |
//! | `turns` | whose turn it is |
pub(super) mod columns;
pub mod row;
pub(super) mod turns;

use std::time::Duration;

use uuid::Uuid;

use super::{CouldNot, End, Flow};
use crate::plan::effect::{Record, WriteId};
use crate::plan::key::Key;
use crate::plan::protocol::Captured;
use crate::plan::time::Timestamp;
use crate::plan::workflow::{
    Claim, Dispatch, DispatchRef, InboxItem, Name, Run, RunAppend, RunHistoryRow, RunId, Status,
    Tier, Wakeup,
};

/// So many wakeups of one run go with the one that is claimed, at most: a claim's cost must not grow
/// with how many wait.
pub(super) const OTHERS_MAX: usize = 256;

/// A store of runs, beside that of effects and in the same database; a [`Store`](super::Store) hands
/// out its own by `runs()`.
///
/// Beyond these verbs a store does two things of its own accord, in the transaction of an effect's
/// append (`Store::append`):
///
/// * An append that carries a dispatch (`Append::dispatch`) holds only while that dispatch is there,
///   by run, node and `put_id`; else it is refused, as one whose condition did not hold. The
///   dispatch's row is locked against deletion **before** the effect's row is written (on Postgres
///   `FOR SHARE`), so that a tick which withdraws it sees the effect, or this append sees it gone.
/// * An append whose row carries a run (`run_id`), and which leaves the record neither RESERVED nor
///   EXECUTING, puts that run's wakeup `KEY/REVISION`, due at once, count 0. A run that is not there
///   is no matter.
pub trait Runs: Send + Sync {
    /// All that a tick of `run` looks at, but for its effects.
    ///
    /// The wakeups are read **first**, or all in one snapshot: whoever deletes them afterwards has
    /// seen all that they were put for.
    ///
    /// # Errors
    /// [`CouldNot`]; [`Reason::Damaged`](super::Reason::Damaged), with the run's name, if its row
    /// cannot be read or its checksum is wrong.
    fn load_run(&self, run: &RunId, within: Duration) -> Result<RunFound, CouldNot>;

    /// The records of these keys and, of those in `with_output` that are COMMITTED, what replay
    /// prints of their standard output: of one committed by its own word what the attempt wrote, of
    /// one committed by a person or a probe what was stated, and nothing else. Read after the run.
    ///
    /// # Errors
    /// [`CouldNot`].
    fn load_effects(
        &self,
        keys: &[Key],
        with_output: &[Key],
        within: Duration,
    ) -> Result<EffectsFound, CouldNot>;

    /// Writes the row, its history and all that goes with it in one transaction, on the condition
    /// that the row found is still there, or that there is none, and that every dispatch withdrawn
    /// was not started ([`Taken::unstarted`](crate::plan::workflow::Taken)). A dispatch that is put
    /// replaces the node's. A wakeup that is put under a key that is there replaces it, takes the
    /// earlier due, and is claimed by nobody.
    fn append_run(&self, append: &RunAppend, within: Duration) -> End;

    /// The run's row, and the history event at `revision`, on a fresh connection to the same store,
    /// waiting for a writer that is still in flight: used to settle an unknown append.
    ///
    /// # Errors
    /// [`CouldNot`], also where what was read is not proven to be of the store that was written to.
    fn reread_run(
        &self,
        run: &RunId,
        revision: u64,
        within: Duration,
    ) -> Result<RunReread, CouldNot>;

    /// Hands every run that `filter` lets through to `each`, in the order of their names, until
    /// `each` says to stop. A row that cannot be read is handed over as such and stops nothing.
    ///
    /// # Errors
    /// [`CouldNot`].
    fn list_runs(
        &self,
        filter: &RunFilter,
        each: &mut dyn FnMut(ListedRun) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot>;

    /// The history of `run` from revision `from` on, oldest first.
    ///
    /// # Errors
    /// [`CouldNot`].
    fn run_history(
        &self,
        run: &RunId,
        from: u64,
        within: Duration,
    ) -> Result<Vec<RunHistoryRow>, CouldNot>;

    /// Puts an item into the inbox of a run, and the wakeup `inbox/ID`, in one transaction.
    /// [`End::Refused`]: there is no such run. An item whose id is there already is landed.
    fn put_inbox(&self, item: &InboxItem, within: Duration) -> End;

    /// Takes wakeups that are due and that nobody has: the lowest tier first, within a tier the
    /// workflows in turn, however many each has. With a wakeup go all others of its run that are due
    /// and that nobody has (256 at most). None is handed out again before `take.hold` has passed, by the store's
    /// clock. Its cost does not grow with the number of wakeups.
    ///
    /// # Errors
    /// [`CouldNot`]. What was claimed by a call whose answer was lost is handed out again.
    fn claim_wakeups(&self, take: &Take<'_>, within: Duration) -> Result<Claimed<Woken>, CouldNot>;

    /// Deletes these wakeups, by key and `put_id`. One that is not there is no matter.
    fn finish_wakeups(&self, wakeups: &[Wakeup], within: Duration) -> End;

    /// Deletes these wakeups and puts `next`, in one transaction, as
    /// [`append_run`](Self::append_run) does.
    fn requeue(&self, wakeups: &[Wakeup], next: &Wakeup, within: Duration) -> End;

    /// Takes dispatches that are due and that nobody has, in the same order as wakeups.
    ///
    /// # Errors
    /// [`CouldNot`].
    fn claim_dispatches(
        &self,
        take: &Take<'_>,
        within: Duration,
    ) -> Result<Claimed<Dispatch>, CouldNot>;

    /// Gives a dispatch back, to be handed out `after` this long by the store's clock, if `claim`
    /// still has it. [`End::Refused`]: it has not, or the dispatch is gone.
    fn postpone_dispatch(
        &self,
        dispatch: &DispatchRef,
        claim: Uuid,
        after: Duration,
        within: Duration,
    ) -> End;

    /// Takes runs away that have ended, each with its history, its inbox and all that waits for it, in
    /// one transaction. [`End::Refused`]: one of them is not as it was read, or has not ended; then all
    /// of them stay. Their effects are no part of it.
    fn forget_runs(&self, runs: &[RunAsRead], within: Duration) -> End;
}

/// The row of a run that a decision was made on, and the condition of what is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAsRead {
    /// Its name.
    pub run: RunId,
    /// The revision that it stood at.
    pub revision: u64,
    /// The write that had put it there.
    pub write_id: WriteId,
}

impl RunAsRead {
    /// The row of `run`.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        Self { run: run.id.clone(), revision: run.revision, write_id: run.write_id }
    }
}

/// See [`Runs::load_run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFound {
    /// The row, if there is one.
    pub run: Option<Run>,
    /// The store's clock.
    pub now: Timestamp,
    /// Its inbox, the oldest first.
    pub inbox: Vec<InboxItem>,
    /// Its dispatches.
    pub dispatches: Vec<Dispatch>,
    /// Its wakeups that are due, claimed or not.
    pub wakeups: Vec<Wakeup>,
}

/// See [`Runs::load_effects`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectsFound {
    /// The records that are there.
    pub records: Vec<Record>,
    /// The outputs asked for that are there.
    pub outputs: Vec<(Key, Captured)>,
    /// Attempts of a new key are numbered from this plus one.
    pub attempt_floor: u64,
    /// The store's clock.
    pub now: Timestamp,
}

/// See [`Runs::reread_run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReread {
    /// The row, if there is one.
    pub run: Option<Run>,
    /// The event asked for, if it is there.
    pub event: Option<RunHistoryRow>,
}

/// Which runs a listing is about. Every condition must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only names that start with this.
    pub prefix: Option<String>,
    /// Only runs of this workflow.
    pub workflow: Option<Name>,
    /// Only these; empty means all.
    pub statuses: Vec<Status>,
    /// Only those whose newest event is at least this old and that no wakeup waits for, due or not:
    /// the watchdog's.
    pub quiet_for: Option<Duration>,
    /// Only names after this one: where an earlier listing stopped.
    pub after: Option<RunId>,
}

/// One run of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedRun {
    /// A run, and the store's clock when it was read.
    Run(Box<Run>, Timestamp),
    /// A row that cannot be read, or whose checksum is wrong: its name as stored, and why.
    Unreadable {
        /// The name's bytes, as text.
        run: String,
        /// What is wrong.
        why: String,
    },
}

/// What is to be claimed, by whom, for how long.
#[derive(Debug, Clone, Copy)]
pub struct Take<'a> {
    /// Of this run alone.
    pub only: Option<&'a RunId>,
    /// At most so many.
    pub limit: usize,
    /// The claim's id, drawn by the caller.
    pub claim: Uuid,
    /// For how long.
    pub hold: Duration,
}

/// What a claim got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed<T> {
    /// What is claimed now.
    pub taken: Vec<T>,
    /// The store's clock.
    pub now: Timestamp,
    /// When the next one is due that was not taken, or a claim ends; `None` if nothing waits. It may
    /// be told later than it is, never by more than a second.
    pub next_due: Option<Timestamp>,
}

/// A run that is to be ticked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Woken {
    /// The run.
    pub run: RunId,
    /// Its tier.
    pub tier: Tier,
    /// The wakeups that were claimed.
    pub wakeups: Vec<Wakeup>,
    /// The claim.
    pub claim: Claim,
}
