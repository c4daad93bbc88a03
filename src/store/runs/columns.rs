//! What both kinds of store write twice otherwise: the names of the columns in their order, and what
//! an append writes, as columns.
use uuid::Uuid;

use super::row::{RunEventRow, RunRow};
use crate::plan::effect::State;
use crate::plan::key::Key;
use crate::plan::protocol::Append;
use crate::plan::time::Timestamp;
use crate::plan::workflow::{
    Claim, Dispatch, DispatchRef, Expected, Name, RunAppend, RunId, Status, Wakeup,
};
use crate::store::row::{Malformed, integer, natural};
use crate::store::{CouldNot, Reason};

/// A run's columns, in the order of [`RunRow`], of a table that is called `r`.
macro_rules! run_columns {
    () => {
        "r.run_id, r.record_version, r.write_id, r.workflow, r.tier, r.status, r.reason, \
         r.definition, r.definition_hash, r.inputs, r.node_states, r.last_transition_seq, \
         r.created_at, r.updated_at, r.state_checksum"
    };
}
/// An event's columns, in the order of [`RunEventRow`], of a table that is called `h`.
macro_rules! run_event_columns {
    () => {
        "h.revision, h.write_id, h.type, h.recorded_at, h.data"
    };
}
/// A dispatch's columns, in the order of [`DispatchRow`], of a table that is called `d`.
macro_rules! dispatch_columns {
    () => {
        "d.run_id, d.node, d.put_id, d.effect_key, d.attempt, d.expected, d.due_at, d.free_at, d.claim_id"
    };
}
/// A wakeup's columns, in the order of [`WakeupRow`], of a table that is called `w`.
macro_rules! wakeup_columns {
    () => {
        "w.run_id, w.wake_key, w.put_id, w.due_at, w.requeues, w.since_seq"
    };
}
pub(in crate::store) use {dispatch_columns, run_columns, run_event_columns, wakeup_columns};

/// What a run's append writes, as columns: made before the transaction begins.
pub struct RunColumns {
    /// The row.
    pub row: RunRow,
    /// Its events.
    pub events: Vec<RunEventRow>,
    /// The dispatches put.
    pub dispatches: Vec<DispatchRow>,
    /// The wakeups put.
    pub wakeups: Vec<WakeupRow>,
}

impl RunColumns {
    /// The columns of what `append` writes.
    ///
    /// # Errors
    /// A run that no store can hold: nothing was written.
    pub fn of(append: &RunAppend) -> Result<Self, CouldNot> {
        Self::read(append).map_err(cannot_be_stored)
    }

    fn read(append: &RunAppend) -> Result<Self, Malformed> {
        let dispatches = append.dispatches_put.iter().map(DispatchRow::of);
        let wakeups = append.wakeups_put.iter().map(WakeupRow::of);
        Ok(Self {
            row: RunRow::of(&append.next)?,
            events: append.history.iter().map(RunEventRow::of).collect::<Result<_, _>>()?,
            dispatches: dispatches.collect::<Result<_, _>>()?,
            wakeups: wakeups.collect::<Result<_, _>>()?,
        })
    }
}

/// Something was to be stored that no store can hold.
pub fn cannot_be_stored(malformed: Malformed) -> CouldNot {
    CouldNot {
        reason: Reason::Damaged,
        message: format!("internal: a run that cannot be stored: {malformed}"),
        hint: None,
    }
}

/// A run whose row, or what waits for it, cannot be read: it stops, and no other (WFL-4).
pub fn damaged(place: &str, run: &str, malformed: &Malformed) -> CouldNot {
    CouldNot {
        reason: Reason::Damaged,
        message: format!("{place}: run {run:?} cannot be read: {malformed}"),
        hint: None,
    }
}

/// A dispatch's columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchRow {
    pub run_id: String,
    pub node: String,
    pub put_id: Uuid,
    pub effect_key: String,
    pub attempt: i64,
    pub expected: Option<i64>,
    pub due_at: i64,
    pub free_at: i64,
    pub claim_id: Option<Uuid>,
}

impl DispatchRow {
    /// The columns of one that is put; it may be whose tick puts it from the beginning.
    ///
    /// # Errors
    /// [`Malformed`] for a number beyond what a store can hold.
    pub fn of(dispatch: &Dispatch) -> Result<Self, Malformed> {
        let revision = dispatch.expect.revision();
        Ok(Self {
            run_id: dispatch.id.run.as_str().to_owned(),
            node: dispatch.id.node.as_str().to_owned(),
            put_id: dispatch.id.put_id.0,
            effect_key: dispatch.key.as_str().to_owned(),
            attempt: integer("attempt", dispatch.attempt)?,
            expected: revision.map(|at| integer("expected", at)).transpose()?,
            due_at: dispatch.due.0,
            free_at: dispatch.claim.map_or(dispatch.due, |claim| claim.until).0,
            claim_id: dispatch.claim.map(|claim| claim.id),
        })
    }

    /// The dispatch of these columns.
    ///
    /// # Errors
    /// [`Malformed`], with the first column that cannot be read.
    pub fn dispatch(self) -> Result<Dispatch, Malformed> {
        let until = Timestamp(self.free_at);
        let expected = self.expected.map(|at| natural("expected", at)).transpose()?;
        Ok(Dispatch {
            id: DispatchRef {
                run: run_id(self.run_id)?,
                node: Name::new(self.node)
                    .map_err(|error| Malformed::new("node", error.to_string()))?,
                put_id: crate::plan::effect::WriteId(self.put_id),
            },
            key: Key::new(self.effect_key)
                .map_err(|error| Malformed::new("effect_key", error.to_string()))?,
            attempt: natural("attempt", self.attempt)?,
            expect: expected.map_or(Expected::NoStream, Expected::Revision),
            due: Timestamp(self.due_at),
            claim: self.claim_id.map(|id| Claim { id, until }),
        })
    }
}

/// A wakeup's columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeupRow {
    pub run_id: String,
    pub wake_key: String,
    pub put_id: Uuid,
    pub due_at: i64,
    pub requeues: i64,
    pub since_seq: i64,
}

impl WakeupRow {
    /// The columns of one that is put: nobody has it.
    ///
    /// # Errors
    /// [`Malformed`] for a number beyond what a store can hold.
    pub fn of(wakeup: &Wakeup) -> Result<Self, Malformed> {
        Ok(Self {
            run_id: wakeup.run.as_str().to_owned(),
            wake_key: wakeup.key.clone(),
            put_id: wakeup.put_id.0,
            due_at: wakeup.due.0,
            requeues: i64::from(wakeup.count),
            since_seq: integer("since_seq", wakeup.since_seq)?,
        })
    }

    /// The wakeup of these columns.
    ///
    /// # Errors
    /// [`Malformed`], with the first column that cannot be read.
    pub fn wakeup(self) -> Result<Wakeup, Malformed> {
        Ok(Wakeup {
            run: run_id(self.run_id)?,
            key: self.wake_key,
            put_id: crate::plan::effect::WriteId(self.put_id),
            due: Timestamp(self.due_at),
            count: u32::try_from(self.requeues)
                .map_err(|_| Malformed::new("requeues", "out of range"))?,
            since_seq: natural("since_seq", self.since_seq)?,
        })
    }
}

/// A run's name as it was stored.
///
/// # Errors
/// [`Malformed`].
pub fn run_id(text: String) -> Result<RunId, Malformed> {
    RunId::new(text).map_err(|error| Malformed::new("run_id", error.to_string()))
}

/// The run that `append` wakes, and the key of that wakeup (WFL-10). It is due at once.
pub fn woken_by(append: &Append) -> Option<(&str, String)> {
    let run = append.next.run_id.as_deref()?;
    let over = match append.next.state {
        State::Reserved { .. } | State::Executing { .. } => false,
        State::Committed { .. } | State::Failed { .. } | State::Ambiguous { .. } => true,
    };
    over.then(|| (run, format!("{}/{}", append.next.key, append.next.revision)))
}

/// The key of the wakeup that goes with an item of an inbox.
pub fn inbox_key(item: &crate::plan::workflow::InboxItem) -> String {
    format!("inbox/{}", item.id.0)
}

/// Whether a listing of these statuses is of runs that have not ended, which an index holds.
pub fn unended(statuses: &[Status]) -> bool {
    !statuses.is_empty() && !statuses.iter().any(|status| status.is_end())
}

/// What a page of a listing is: the first is short, so that the first line comes at once.
pub const FIRST_PAGE: usize = 32;
/// The others save statements.
pub const PAGE: usize = 512;
