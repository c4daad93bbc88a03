//! One conditional write of a run, as a state machine without I/O: load, tick, append, and what to
//! do when the answer to a commit did not come (WFL-6, CMT-5 to CMT-11).
//!
//! | it says | the driver does | and answers with |
//! |---|---|---|
//! | [`Step::Load`] | `Runs::load_run`, then `Runs::load_effects` | [`Input::Loaded`] |
//! | [`Step::Append`] | `Runs::append_run` | [`Input::Ended`] |
//! | [`Step::Reread`] | `Runs::reread_run`, on a fresh connection | [`Input::Reread`] |
//! | [`Step::Pause`] | waits for as long | [`Input::Paused`] |
//! | [`Step::Done`] | nothing more | |
//!
//! As with effects two failures are never merged: [`End::NotCommitted`] proves that nothing was
//! written, [`End::Unknown`] proves nothing. A run's append that is unknown needs no spool: whatever
//! it put can be told from what it did not by the next load.
use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::append::{Claim, Dispatch, DispatchRef, RunAppend, Wakeup};
use super::definition::{Definition, hash};
use super::event::RunEvent;
use super::fold::evolve;
use super::names::{Name, RunId};
use super::pace::{Pace, Seen};
use super::tick::{Decided, Loaded, force, tick};
use super::types::{NodeState, Run, RunHistoryRow};
use crate::plan::effect::WriteId;
use crate::plan::protocol::{CouldNot, End, Reason};
use crate::plan::retry::{Budget, Schedule};
use crate::plan::time::{Moment, Timestamp};

/// What is to be done to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aim {
    /// Tick it.
    Tick,
    /// Start it, and tick it at once.
    Start {
        /// Its definition.
        definition: Box<Definition>,
        /// What it is started with.
        inputs: BTreeMap<Name, String>,
    },
    /// End it by force, unless it has progressed.
    Force {
        /// Its `last_transition_seq` when it was given up.
        since_seq: u64,
        /// Why.
        why: String,
    },
}

/// The writer takes dispatches that it puts for itself, in the same transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Its claim.
    pub claim: Uuid,
    /// For how long.
    pub hold: Duration,
    /// How many at most.
    pub limit: usize,
}

/// What the driver is to do next. `within` is the longest that the step may take.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Load the run and its effects.
    Load {
        /// The longest it may take.
        within: Duration,
    },
    /// Try the write.
    Append {
        /// What to write.
        append: Box<RunAppend>,
        /// The longest it may take.
        within: Duration,
    },
    /// Read the row on a fresh connection, and the event at this revision.
    Reread {
        /// Of our first event.
        revision: u64,
        /// The longest it may take.
        within: Duration,
    },
    /// Wait for exactly so long.
    Pause(Duration),
    /// It is over.
    Done(Done),
}

/// What the driver answers with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The first call.
    Start,
    /// The load's answer, and a fresh draw of the kernel's random source.
    Loaded(Result<Found, CouldNot>, WriteId),
    /// The append's end.
    Ended(End),
    /// The re-read's answer: the row, and the event asked for.
    Reread(Result<Box<Reread>, CouldNot>),
    /// The pause is over.
    Paused,
}

/// What a re-read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reread {
    /// The row, if there is one.
    pub run: Option<Run>,
    /// The event asked for, if it is there.
    pub event: Option<RunHistoryRow>,
}

/// What a load found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The run.
    Run(Box<Loaded>),
    /// There is none. Of a start: what a tick of the run as it would be started looks at.
    Absent(Option<Box<Loaded>>),
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// It is committed.
    Committed(Box<RunAppend>),
    /// There was nothing to write: what was looked at.
    Nothing(Box<Loaded>),
    /// There is a run of that name already: of a start.
    Exists(Box<Loaded>),
    /// The run has progressed meanwhile: of an end by force.
    Dropped,
    /// There is no such run.
    NoRun,
    /// Every try lost its race. It is no error.
    Conflicted(Seen),
    /// Nothing was written.
    CouldNot(CouldNot),
    /// It may have been written and nobody knows.
    Unknown(CouldNot),
}

/// The state machine of one write of one run.
#[derive(Debug)]
pub struct Write {
    run: RunId,
    aim: Aim,
    keep: Option<Keep>,
    /// The pauses before further tries that are left.
    again: std::vec::IntoIter<Duration>,
    schedule: Schedule,
    budget: Budget,
    conflicts: u32,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Fresh,
    Loading,
    Backoff,
    Appending(Pending),
    AppendingAgain(Pending),
    Settling(Pending),
    SettlingAgain(Pending),
    Over,
}

#[derive(Debug)]
struct Pending {
    append: Box<RunAppend>,
    now: Timestamp,
    /// Some try of it was unknown: from here on only a re-read tells.
    unknown: Option<CouldNot>,
    second_matched_nothing: bool,
    tried_again: bool,
}

impl Write {
    /// A machine for one write of `run`. `budget` bounds all of it.
    #[must_use]
    pub fn new(run: RunId, aim: Aim, keep: Option<Keep>, pace: &Pace, budget: Budget) -> Self {
        Self {
            run,
            aim,
            keep,
            again: pace.again.clone().into_iter(),
            schedule: Schedule::effects(),
            budget,
            conflicts: 0,
            phase: Phase::Fresh,
        }
    }

    /// The run it is about.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// How many races it has lost so far.
    #[must_use]
    pub fn conflicts(&self) -> u32 {
        self.conflicts
    }

    /// The run as this write would start it, at `now` of the store's clock; `None` if it starts none.
    #[must_use]
    pub fn fresh(&self, now: Timestamp, write_id: WriteId) -> Option<Run> {
        let row = self.started(now, write_id)?;
        evolve(&self.run, None, &row).ok()
    }

    fn started(&self, now: Timestamp, write_id: WriteId) -> Option<RunHistoryRow> {
        let Aim::Start { definition, inputs } = &self.aim else {
            return None;
        };
        let canonical = definition.canonical();
        let event = RunEvent::Started {
            workflow: definition.name.clone(),
            tier: definition.tier,
            hash: hash(&canonical),
            definition: canonical,
            nodes: definition.nodes.keys().cloned().collect(),
            inputs: inputs.clone(),
        };
        Some(RunHistoryRow { revision: 1, write_id, recorded_at: now, event })
    }

    /// Takes an answer and names the next step. `at` is our own clock, read after the answer came.
    pub fn step(&mut self, input: Input, at: Moment) -> Step {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        match (phase, input) {
            (Phase::Fresh, Input::Start) | (Phase::Backoff, Input::Paused) => self.load(at),
            (Phase::Loading, Input::Loaded(Ok(found), fresh)) => self.decide(found, fresh, at),
            (Phase::Loading, Input::Loaded(Err(error), _)) => {
                if error.reason.may_pass() && self.budget.spend(at) {
                    self.phase = Phase::Backoff;
                    return Step::Pause(self.schedule.wait());
                }
                Step::Done(Done::CouldNot(error))
            }
            (Phase::AppendingAgain(pending), Input::Paused) => self.try_append(pending, at),
            (Phase::Appending(pending), Input::Ended(end)) => self.ended(pending, end, at),
            (Phase::Settling(pending), Input::Reread(Ok(found))) => {
                self.settle(pending, found.run.as_ref(), found.event.as_ref(), at)
            }
            (Phase::Settling(pending), Input::Reread(Err(error))) => {
                Step::Done(Done::Unknown(pending.unknown.unwrap_or(error)))
            }
            (Phase::SettlingAgain(pending), Input::Paused) => self.reread(pending, at),
            (
                Phase::Fresh
                | Phase::Loading
                | Phase::Backoff
                | Phase::Appending(_)
                | Phase::AppendingAgain(_)
                | Phase::Settling(_)
                | Phase::SettlingAgain(_)
                | Phase::Over,
                Input::Start
                | Input::Loaded(..)
                | Input::Ended(_)
                | Input::Reread(_)
                | Input::Paused,
            ) => Step::Done(Done::Unknown(internal("an answer to a step that was not asked for"))),
        }
    }

    fn load(&mut self, at: Moment) -> Step {
        self.phase = Phase::Loading;
        Step::Load { within: self.budget.exchange(at) }
    }

    fn decide(&mut self, found: Found, fresh: WriteId, at: Moment) -> Step {
        let (loaded, started) = match (found, &self.aim) {
            (Found::Run(loaded), Aim::Start { .. }) => {
                return Step::Done(Done::Exists(loaded));
            }
            (Found::Run(loaded), Aim::Tick | Aim::Force { .. }) => (loaded, None),
            (Found::Absent(Some(loaded)), Aim::Start { .. }) => {
                let row = self.started(loaded.now, fresh);
                (loaded, row)
            }
            (Found::Absent(_), Aim::Tick | Aim::Force { .. } | Aim::Start { .. }) => {
                return Step::Done(Done::NoRun);
            }
        };
        let decided = match &self.aim {
            Aim::Force { since_seq, .. } if loaded.run.last_transition_seq > *since_seq => {
                return Step::Done(Done::Dropped);
            }
            Aim::Force { why, .. } => force(&loaded, why),
            Aim::Tick | Aim::Start { .. } => tick(&loaded),
        };
        if decided.events.is_empty() && started.is_none() {
            return Step::Done(Done::Nothing(loaded));
        }
        match fold(&loaded, started, &decided, fresh, self.keep) {
            Ok(append) => {
                let now = loaded.now;
                let append = Box::new(append);
                let unknown = None;
                let (second_matched_nothing, tried_again) = (false, false);
                let pending = Pending { append, now, unknown, second_matched_nothing, tried_again };
                self.try_append(pending, at)
            }
            Err(error) => Step::Done(Done::CouldNot(error)),
        }
    }

    fn try_append(&mut self, pending: Pending, at: Moment) -> Step {
        let append = pending.append.clone();
        self.phase = Phase::Appending(pending);
        Step::Append { append, within: self.budget.exchange(at) }
    }

    fn ended(&mut self, mut pending: Pending, end: End, at: Moment) -> Step {
        match end {
            End::Landed => Step::Done(Done::Committed(pending.append)),
            End::Refused if pending.unknown.is_some() => {
                // The first try may have landed while the second was waiting for it.
                pending.second_matched_nothing = true;
                self.reread(pending, at)
            }
            End::Refused => self.conflict(&pending, at),
            End::NotCommitted(error) if pending.unknown.is_some() => {
                if error.reason.may_pass() && self.budget.spend(at) {
                    self.phase = Phase::SettlingAgain(pending);
                    return Step::Pause(self.schedule.wait());
                }
                Step::Done(Done::Unknown(pending.unknown.unwrap_or(error)))
            }
            End::NotCommitted(error) => {
                if error.reason.may_pass() && self.budget.spend(at) {
                    self.phase = Phase::AppendingAgain(pending);
                    return Step::Pause(self.schedule.wait());
                }
                Step::Done(Done::CouldNot(error))
            }
            End::Unknown(error) if pending.tried_again => {
                Step::Done(Done::Unknown(pending.unknown.unwrap_or(error)))
            }
            End::Unknown(error) => {
                pending.unknown = Some(error);
                self.reread(pending, at)
            }
        }
    }

    /// Somebody else's write came between: the next try looks at what is there then (WFL-13).
    fn conflict(&mut self, pending: &Pending, at: Moment) -> Step {
        self.conflicts = self.conflicts.saturating_add(1);
        let seen = match &pending.append.found {
            Some(run) => Seen::of(run, pending.now),
            None => Seen { revision: 0, seq: 0, now: pending.now },
        };
        match self.again.next() {
            Some(pause) if self.budget.spend(at) => {
                self.phase = Phase::Backoff;
                Step::Pause(pause)
            }
            Some(_) | None => Step::Done(Done::Conflicted(seen)),
        }
    }

    fn reread(&mut self, pending: Pending, at: Moment) -> Step {
        let revision = pending.append.history.first().map_or(0, |row| row.revision);
        self.phase = Phase::Settling(pending);
        Step::Reread { revision, within: self.budget.exchange(at) }
    }

    /// What the re-read proves (CMT settlement table).
    fn settle(
        &mut self,
        mut pending: Pending,
        run: Option<&Run>,
        event: Option<&RunHistoryRow>,
        at: Moment,
    ) -> Step {
        let append = &pending.append;
        let in_history = event.is_some_and(|row| row.write_id == append.next.write_id);
        if run == Some(&append.next) || in_history {
            // It landed; what became of the run since is the next tick's business.
            return Step::Done(Done::Committed(pending.append));
        }
        if run != append.found.as_ref() {
            // Another stands there, so this one can land no more.
            return self.conflict(&pending, at);
        }
        let withdraws = append.dispatches_deleted.iter().any(|taken| taken.unstarted.is_some());
        if pending.second_matched_nothing && !withdraws {
            return Step::Done(Done::Unknown(CouldNot {
                reason: Reason::Damaged,
                message: "the write matched no row, yet the run that it expects is there: the \
                          store does not do what it says (a trigger, or row security?)"
                    .to_owned(),
                hint: None,
            }));
        }
        if pending.second_matched_nothing {
            // What it would have withdrawn was started meanwhile.
            return self.conflict(&pending, at);
        }
        if pending.tried_again && !self.budget.spend(at) {
            let error = pending.unknown.unwrap_or_else(|| internal("no time was left"));
            return Step::Done(Done::Unknown(error));
        }
        // It did not land, or has not yet: the same row again, on the same condition.
        pending.tried_again = true;
        self.try_append(pending, at)
    }
}

fn internal(what: &str) -> CouldNot {
    CouldNot { reason: Reason::Damaged, message: format!("internal: {what}"), hint: None }
}

/// The append of what was decided.
///
/// # Errors
/// Events that do not fold, which no tick decides.
pub fn fold(
    loaded: &Loaded,
    started: Option<RunHistoryRow>,
    decided: &Decided,
    write_id: WriteId,
    keep: Option<Keep>,
) -> Result<RunAppend, CouldNot> {
    let id = &loaded.run.id;
    let bad = |error: super::fold::Unfolded| internal(&format!("{id}: {error}"));
    let (found, mut run, mut history) = match started {
        Some(row) => (None, evolve(id, None, &row).map_err(bad)?, vec![row]),
        None => (Some(loaded.run.clone()), loaded.run.clone(), Vec::new()),
    };
    for event in &decided.events {
        let row = RunHistoryRow {
            revision: run.revision.saturating_add(1),
            write_id,
            recorded_at: loaded.now,
            event: event.clone(),
        };
        run = evolve(id, Some(run), &row).map_err(bad)?;
        history.push(row);
    }
    let mut left = keep.map_or(0, |keep| keep.limit);
    let mut dispatches_put = Vec::new();
    for node in &decided.put {
        if let Some(mut dispatch) = dispatch(&run, node, write_id) {
            if let Some(keep) = keep.filter(|_| left > 0 && dispatch.due <= loaded.now) {
                left -= 1;
                let until = loaded.now.plus(keep.hold);
                dispatch.claim = Some(Claim { id: keep.claim, until });
            }
            dispatches_put.push(dispatch);
        }
    }
    let due = decided.due.iter().map(|(node, due)| Wakeup {
        key: format!("{id}/{}/due/{node}", run.revision),
        put_id: write_id,
        run: id.clone(),
        due: *due,
        count: 0,
        since_seq: 0,
    });
    Ok(RunAppend {
        wakeups_put: due.collect(),
        found,
        next: run,
        history,
        consumed: decided.consumed.clone(),
        dispatches_deleted: decided.taken.clone(),
        dispatches_put,
        wakeups_deleted: loaded
            .wakeups
            .iter()
            .map(|wakeup| (wakeup.key.clone(), wakeup.put_id))
            .collect(),
    })
}

fn dispatch(run: &Run, node: &Name, put_id: WriteId) -> Option<Dispatch> {
    match &run.progress.nodes.get(node)?.state {
        NodeState::Dispatched { key, attempt, expect, due, .. } => Some(Dispatch {
            id: DispatchRef { run: run.id.clone(), node: node.clone(), put_id },
            key: key.clone(),
            attempt: *attempt,
            expect: *expect,
            due: *due,
            claim: None,
        }),
        NodeState::Pending
        | NodeState::Waiting { .. }
        | NodeState::Passed
        | NodeState::Committed { .. }
        | NodeState::Failed { .. }
        | NodeState::Ambiguous { .. }
        | NodeState::Unfit { .. }
        | NodeState::Skipped => None,
    }
}
