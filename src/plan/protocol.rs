//! One conditional write, as a state machine without I/O: load, decide, append, and what to do
//! when the answer to a commit did not come (CMT clauses).
//!
//! | it says | the driver does | and answers with |
//! |---|---|---|
//! | [`Step::Load`] | `Store::load` | [`Input::Loaded`] |
//! | [`Step::Append`] | `Store::append` | [`Input::Ended`] |
//! | [`Step::Reread`] | `Store::reread`, on a fresh connection | [`Input::Reread`] |
//! | [`Step::Pause`] | sleeps for a random time up to it | [`Input::Paused`] |
//! | [`Step::Done`] | nothing more | |
//!
//! The two failures that are never merged: [`End::NotCommitted`] proves that nothing was written,
//! [`End::Unknown`] proves nothing. Once a try of an append is unknown the append stays unknown,
//! and only a re-read says otherwise.
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::effect::{
    Answer, BadStart, Command, Decision, Event, HistoryRow, Holder, OutcomeId, Record, Refusal,
    WriteId, decide, evolve,
};
use super::expect::{Conflict, StreamState};
use super::key::Key;
use super::retry::{Budget, Schedule};
use super::time::{Moment, Timestamp};

/// The one event of a key's history that a decision needs beside the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// None.
    Nothing,
    /// The event that carries this outcome.
    Outcome(OutcomeId),
    /// The `began` event of this attempt.
    Began(u64),
    /// The event at this revision.
    Revision(u64),
    /// The newest event.
    Last,
}

/// What a load found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The row, if there is one.
    pub record: Option<Record>,
    /// The store's clock.
    pub now: Timestamp,
    /// Attempts of a new key are numbered from this plus one.
    pub attempt_floor: u64,
    /// The event asked for, if it is there.
    pub event: Option<HistoryRow>,
}

impl Found {
    /// The revision found; `None` where there is no record.
    #[must_use]
    pub fn revision(&self) -> Option<u64> {
        self.record.as_ref().map(|record| record.revision)
    }
}

/// A child's stream as it is kept: its beginning, its end, and how much there was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Captured {
    /// The first bytes.
    #[serde(with = "super::bytes")]
    pub head: Vec<u8>,
    /// The last bytes, where something between was dropped.
    #[serde(with = "super::bytes")]
    pub tail: Vec<u8>,
    /// All that the child wrote.
    pub bytes: u64,
    /// Whether this is all of it.
    pub whole: bool,
}

/// Which output of an attempt it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// The child's standard output.
    Stdout,
    /// The child's standard error.
    Stderr,
    /// What a person gave as the output when resolving; the child's own stays as evidence.
    Stated,
}

/// One output to be kept, written in the transaction of the event that it belongs to. It replaces
/// what the same stream of the same attempt had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The attempt whose output it is.
    pub attempt: u64,
    /// Which output.
    pub stream: Stream,
    /// What is kept of it.
    pub captured: Captured,
}

/// One conditional write: the row and its history, in one transaction.
///
/// Every try of it carries this same value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// The row the decision was made on, and the condition of the write: it must still stand at
    /// this revision with this `write_id`. `None`: there must be no row.
    pub found: Option<Record>,
    /// The row to be written.
    pub next: Record,
    /// Its events, the last of which is at `next.revision`.
    pub history: Vec<HistoryRow>,
    /// The floor that a new key's attempt number was counted from; must still be the store's.
    pub attempt_floor: u64,
    /// Outputs to be kept with it.
    pub outputs: Vec<Kept>,
}

/// How one try of an append ended. There is no error beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a write's end decides whether a command may run"]
pub enum End {
    /// It is committed, every result was seen and every row count was right.
    Landed,
    /// The condition did not hold: nothing was written.
    Refused,
    /// It failed before any byte of COMMIT was sent, or in a way that proves an abort.
    NotCommitted(CouldNot),
    /// COMMIT may have been sent, and what came back proves nothing.
    Unknown(CouldNot),
}

/// Why a store could not do a thing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CouldNot {
    /// What kind of thing stood in the way.
    pub reason: Reason,
    /// What happened, for a person.
    pub message: String,
    /// What to do about it, if the store knows.
    pub hint: Option<String>,
}

/// What kind of thing stood in a store's way; it decides the exit code, and whether trying again
/// can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Busy, locked, or a deadline of ours: it may pass.
    Busy,
    /// Out of reach: cannot be opened, I/O error, disk full.
    Unreachable,
    /// The store may not be written, or read, by this user.
    Denied,
    /// The store is not there.
    Missing,
    /// The store is there and must not be used as it is: its settings, place or schema.
    Unfit,
    /// What is stored cannot be read.
    Damaged,
}

impl Reason {
    /// Whether the same thing tried again may go well.
    #[must_use]
    pub fn may_pass(self) -> bool {
        match self {
            Self::Busy | Self::Unreachable => true,
            Self::Denied | Self::Missing | Self::Unfit | Self::Damaged => false,
        }
    }
}

/// What the driver is to do next. `within` is the longest that the step may take.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Read the row.
    Load {
        /// The history event to bring along.
        ask: Ask,
        /// The longest it may take.
        within: Duration,
    },
    /// Try the write.
    Append {
        /// What to write.
        append: Box<Append>,
        /// The longest it may take.
        within: Duration,
    },
    /// Read the row on a fresh connection.
    Reread {
        /// The history event to bring along.
        ask: Ask,
        /// The longest it may take.
        within: Duration,
    },
    /// Sleep for a random time between nothing and this.
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
    /// The re-read's answer.
    Reread(Result<Found, CouldNot>),
    /// The pause is over.
    Paused,
}

/// How a command to the store ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// Decided, and what it decided is written if there was anything to write.
    Answered(Box<Answered>),
    /// Nothing was written.
    CouldNot(CouldNot),
    /// It may have been written and nobody knows: run nothing.
    Unknown(CouldNot),
}

/// See [`Done::Answered`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The answer.
    pub answer: Answer,
    /// The record as it stands now; of a refusal, the one that was found.
    pub record: Option<Record>,
    /// The store's clock at the load that it was decided on.
    pub now: Timestamp,
    /// Our own clock before that load: leases granted by this answer are counted from here.
    pub read_at: Moment,
}

/// The state machine of one command to one effect.
#[derive(Debug)]
pub struct Handle {
    key: Key,
    command: Command,
    expect: StreamState,
    schedule: Schedule,
    budget: Budget,
    outputs: Vec<Kept>,
    /// The `write_id`s of this command's appends whose end was unknown at some time.
    maybe_written: Vec<WriteId>,
    unknown_reservation: Option<Holder>,
    read_at: Moment,
    /// What failed last in another way than by the end of the time.
    failed: Option<CouldNot>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Loading,
    Backoff,
    Appending(Pending),
    Settling(Pending),
    Over,
}

/// An append that is under way.
#[derive(Debug, Clone)]
struct Pending {
    append: Box<Append>,
    answer: Answer,
    now: Timestamp,
    /// Some try of it was unknown: from here on only a re-read tells.
    unknown: Option<CouldNot>,
    /// The second try was made and matched nothing.
    second_matched_nothing: bool,
    /// Whether the second try was made.
    tried_again: bool,
}

impl Handle {
    /// A machine for `command` on `key`, held to `expect`, within `budget`.
    #[must_use]
    pub fn new(key: Key, command: Command, expect: StreamState, budget: Budget) -> Self {
        Self {
            key,
            command,
            expect,
            schedule: Schedule::effects(),
            budget,
            outputs: Vec::new(),
            maybe_written: Vec::new(),
            failed: None,
            unknown_reservation: None,
            read_at: Moment(0),
            phase: Phase::Loading,
        }
    }

    /// Outputs to be written in the same transaction as the command's events.
    #[must_use]
    pub fn with_outputs(mut self, outputs: Vec<Kept>) -> Self {
        self.outputs = outputs;
        self
    }

    /// The effect it is about.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The reservation that this command may have made without seeing it land.
    ///
    /// Only an append that reserved counts: the row of a lapse that this command noticed carries the
    /// reservation of **another** holder, whose child may be running.
    #[must_use]
    pub fn unknown_reservation(&self) -> Option<Holder> {
        self.unknown_reservation
    }

    /// Takes an answer and names the next step. `at` is our own clock, read after the answer came
    /// and before the step is performed.
    pub fn step(&mut self, input: Input, at: Moment) -> Step {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        match (phase, input) {
            (Phase::Loading, Input::Start) | (Phase::Backoff, Input::Paused) => self.load(at),
            (Phase::Loading, Input::Loaded(Ok(found), fresh)) => self.decide(found, fresh, at),
            (Phase::Loading, Input::Loaded(Err(error), _)) => self.not_loaded(error, at),
            (Phase::Appending(pending), Input::Paused) => self.try_append(pending, at),
            (Phase::Appending(pending), Input::Ended(end)) => self.ended(pending, end, at),
            (Phase::Settling(pending), Input::Reread(Ok(found))) => {
                self.settle(pending, &found, at)
            }
            (Phase::Settling(pending), Input::Reread(Err(error))) => {
                // The re-read failed: run nothing, write nothing more now (CMT settlement table).
                unknown(pending.unknown.unwrap_or(error))
            }
            (Phase::Settling(pending), Input::Paused) => self.reread(pending, at),
            (
                Phase::Loading
                | Phase::Backoff
                | Phase::Appending(_)
                | Phase::Settling(_)
                | Phase::Over,
                Input::Start
                | Input::Loaded(..)
                | Input::Ended(_)
                | Input::Reread(_)
                | Input::Paused,
            ) => unknown(CouldNot {
                reason: Reason::Damaged,
                message: "internal: an answer to a step that was not asked for".to_owned(),
                hint: None,
            }),
        }
    }

    fn load(&mut self, at: Moment) -> Step {
        self.phase = Phase::Loading;
        // Taken before the load, so that a lease computed from the load's `now` is never counted
        // longer than the store counts it (EXE own lease).
        self.read_at = at;
        Step::Load { ask: self.ask(), within: self.budget.exchange(at) }
    }

    fn ask(&self) -> Ask {
        match &self.command {
            Command::Begin(begin) => Ask::Began(begin.holder.attempt),
            Command::Settle(settle) => Ask::Outcome(settle.outcome_id),
            Command::Resolve(_) | Command::Probed(_) => Ask::Last,
            Command::Reserve(_)
            | Command::Renew { .. }
            | Command::Reopen { .. }
            | Command::Contend => Ask::Nothing,
        }
    }

    fn not_loaded(&mut self, error: CouldNot, at: Moment) -> Step {
        if error.reason.may_pass() && self.budget.spend(at) {
            self.remember(error);
            return self.pause(Phase::Backoff);
        }
        self.could_not(error)
    }

    fn remember(&mut self, error: CouldNot) {
        if error.reason != Reason::Busy {
            self.failed = Some(error);
        }
    }

    /// The end without an answer. The last try often says only that the time was over: then what
    /// used it up is told, a full disk for example.
    fn could_not(&mut self, error: CouldNot) -> Step {
        let told = self.failed.take().filter(|_| error.reason == Reason::Busy);
        Step::Done(Done::CouldNot(told.unwrap_or(error)))
    }

    fn pause(&mut self, then: Phase) -> Step {
        self.phase = then;
        Step::Pause(self.schedule.wait())
    }

    fn decide(&mut self, found: Found, fresh: WriteId, at: Moment) -> Step {
        let Decision { events, answer } = match self.held_to(&found) {
            Ok(()) => decide(&found, &self.command, &self.maybe_written),
            Err(conflict) => Decision {
                events: Vec::new(),
                answer: Answer::Refused(Refusal::Expectation(conflict)),
            },
        };
        if events.is_empty() {
            return self.answered(answer, found.record, found.now);
        }
        let append = match self.fold(found.clone(), &events, fresh) {
            Ok(append) => append,
            Err(BadStart(_)) => {
                let message = format!("internal: no history of {} can begin so", self.key);
                let error = CouldNot { reason: Reason::Damaged, message, hint: None };
                return Step::Done(Done::CouldNot(error));
            }
        };
        let pending = Pending {
            append,
            answer,
            now: found.now,
            unknown: None,
            second_matched_nothing: false,
            tried_again: false,
        };
        self.try_append(pending, at)
    }

    /// A decision that is the record's last change already is "already so", whatever the revision:
    /// `decide` sees that before the expectation is held against what was found.
    fn held_to(&self, found: &Found) -> Result<(), Conflict> {
        match self.command {
            Command::Resolve(_) | Command::Reopen { .. } | Command::Probed(_) => Ok(()),
            Command::Reserve(_)
            | Command::Begin(_)
            | Command::Renew { .. }
            | Command::Settle(_)
            | Command::Contend => match found.record.as_ref() {
                // Our own reserve, landed unseen, is not a stranger's change.
                Some(record) if self.maybe_written.contains(&record.reservation_id) => Ok(()),
                _ => self.expect.check(found.revision()),
            },
        }
    }

    fn fold(
        &mut self,
        found: Found,
        events: &[Event],
        fresh: WriteId,
    ) -> Result<Box<Append>, BadStart> {
        let outcome_id = match &self.command {
            Command::Settle(settle) => Some(settle.outcome_id),
            Command::Reserve(_)
            | Command::Begin(_)
            | Command::Renew { .. }
            | Command::Resolve(_)
            | Command::Reopen { .. }
            | Command::Contend
            | Command::Probed(_) => None,
        };
        let mut record = found.record.clone();
        let mut history = Vec::with_capacity(events.len());
        let first = found.revision().unwrap_or(0).saturating_add(1);
        for (revision, event) in (first..).zip(events) {
            let mut row = HistoryRow {
                revision,
                write_id: fresh,
                outcome_id,
                attempt: 0,
                recorded_at: found.now,
                event: event.clone(),
            };
            let next = evolve(&self.key, record.take(), &row)?;
            row.attempt = next.attempt;
            record = Some(next);
            history.push(row);
        }
        let next = record.ok_or(BadStart("nothing"))?;
        // Of two holders of one attempt number (a restored store) only the record's own keeps its
        // output: the other's would pass for it.
        let stranger = match &self.command {
            Command::Settle(settle) => {
                next.attempt == settle.holder.attempt && !next.is_held_by(settle.holder)
            }
            Command::Reserve(_)
            | Command::Begin(_)
            | Command::Renew { .. }
            | Command::Resolve(_)
            | Command::Reopen { .. }
            | Command::Contend
            | Command::Probed(_) => false,
        };
        let outputs = if stranger { Vec::new() } else { self.outputs.clone() };
        Ok(Box::new(Append {
            found: found.record,
            next,
            history,
            attempt_floor: found.attempt_floor,
            outputs,
        }))
    }

    fn try_append(&mut self, pending: Pending, at: Moment) -> Step {
        let step =
            Step::Append { append: pending.append.clone(), within: self.budget.exchange(at) };
        self.phase = Phase::Appending(pending);
        step
    }

    fn ended(&mut self, mut pending: Pending, end: End, at: Moment) -> Step {
        match end {
            End::Landed => self.landed(pending),
            End::Refused if pending.unknown.is_some() => {
                // The first try may have landed while the second was waiting for it.
                pending.second_matched_nothing = true;
                self.reread(pending, at)
            }
            End::Refused => self.lost_race(at),
            End::NotCommitted(error) if pending.unknown.is_some() => {
                // It does not change that the first try is unknown (T162).
                if error.reason.may_pass() && self.budget.spend(at) {
                    return self.pause(Phase::Settling(pending));
                }
                unknown(pending.unknown.unwrap_or(error))
            }
            End::NotCommitted(error) => {
                if error.reason.may_pass() && self.budget.spend(at) {
                    // The same row again: nothing was committed.
                    self.remember(error);
                    return self.pause(Phase::Appending(pending));
                }
                self.could_not(error)
            }
            End::Unknown(error) if pending.tried_again => unknown(pending.unknown.unwrap_or(error)),
            End::Unknown(error) => {
                self.maybe_written.push(pending.append.next.write_id);
                let next = &pending.append.next;
                if next.reservation_id == next.write_id {
                    let (attempt, reservation_id) = (next.attempt, next.reservation_id);
                    self.unknown_reservation = Some(Holder { attempt, reservation_id });
                }
                pending.unknown = Some(error);
                self.reread(pending, at)
            }
        }
    }

    fn lost_race(&mut self, at: Moment) -> Step {
        if !self.expect.may_decide_again() || pinned(&self.command) {
            // Nothing is retried: the caller looked at a state that is gone. One more load tells
            // which state is there now, and it is refused by that.
            if self.budget.spend(at) {
                return self.load(at);
            }
        } else if self.budget.spend(at) {
            return self.pause(Phase::Backoff);
        }
        Step::Done(Done::CouldNot(CouldNot {
            reason: Reason::Busy,
            message: "other writers of this key were faster every time".to_owned(),
            hint: None,
        }))
    }

    fn reread(&mut self, pending: Pending, at: Moment) -> Step {
        // The event at the revision of our first event: it carries our `write_id` if and only if
        // our append landed.
        let ask = Ask::Revision(pending.append.history.first().map_or(0, |row| row.revision));
        self.phase = Phase::Settling(pending);
        Step::Reread { ask, within: self.budget.exchange(at) }
    }

    /// What the re-read proves (CMT settlement table).
    fn settle(&mut self, mut pending: Pending, found: &Found, at: Moment) -> Step {
        let append = &pending.append;
        if found.record.as_ref() == Some(&append.next) {
            return self.landed(pending);
        }
        let in_history =
            found.event.as_ref().is_some_and(|row| row.write_id == append.next.write_id);
        if in_history {
            if done_once_landed(&append.history) {
                // It landed, and the record moved on: that is the others' business (T164).
                let now = pending.now;
                return self.answered(pending.answer, found.record.clone(), now);
            }
            return self.load(at);
        }
        if found.record == append.found {
            if pending.second_matched_nothing {
                return unknown(CouldNot {
                    reason: Reason::Damaged,
                    message:
                        "the write matched no row, yet the row it expects is there: the store \
                              does not do what it says (a trigger, or row security?)"
                            .to_owned(),
                    hint: None,
                });
            }
            if pending.tried_again && !self.budget.spend(at) {
                return unknown(out_of_budget(pending.unknown));
            }
            // It did not land, or has not yet: the same row again, on the same condition.
            pending.tried_again = true;
            return self.try_append(pending, at);
        }
        // Somebody else's row: ours can no longer land, the planner says what that means.
        self.load(at)
    }

    fn landed(&mut self, pending: Pending) -> Step {
        let record = Some(pending.append.next);
        self.answered(pending.answer, record, pending.now)
    }

    fn answered(&mut self, answer: Answer, record: Option<Record>, now: Timestamp) -> Step {
        let read_at = self.read_at;
        Step::Done(Done::Answered(Box::new(Answered { answer, record, now, read_at })))
    }
}

/// Whether a command names the revision that was looked at: such a one is never decided again on
/// another.
fn pinned(command: &Command) -> bool {
    match command {
        Command::Resolve(_) | Command::Reopen { .. } | Command::Probed(_) => true,
        Command::Reserve(_)
        | Command::Begin(_)
        | Command::Renew { .. }
        | Command::Settle(_)
        | Command::Contend => false,
    }
}

/// Whether an append that landed is done even where the record has moved on since. What grants
/// something (reserve, begin, renew) is not: the planner judges what is left of it.
fn done_once_landed(history: &[HistoryRow]) -> bool {
    history.first().is_none_or(|row| match row.event {
        Event::Reserved(_) | Event::Began(_) | Event::LeaseRenewed(_) => false,
        Event::Committed(_)
        | Event::Failed(_)
        | Event::Ambiguated(_)
        | Event::LateOutcome(_)
        | Event::Probed(_)
        | Event::Resolved(_)
        | Event::Reopened(_) => true,
    })
}

fn unknown(error: CouldNot) -> Step {
    Step::Done(Done::Unknown(error))
}

fn out_of_budget(first: Option<CouldNot>) -> CouldNot {
    first.unwrap_or(CouldNot {
        reason: Reason::Busy,
        message: "no time was left".to_owned(),
        hint: None,
    })
}
