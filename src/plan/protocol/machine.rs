//! The transitions of one conditional write.
use super::words::{both, faster, out_of_budget};
use super::{Answered, Append, Ask, CouldNot, Done, End, Found, Input, Kept, Known, Reason, Step};
use crate::plan::effect::{
    Answer, BadStart, Command, Decision, Event, HistoryRow, Holder, Record, Refusal, State,
    WriteId, decide, evolve,
};
use crate::plan::expect::{Conflict, StreamState};
use crate::plan::key::Key;
use crate::plan::retry::{Budget, Schedule};
use crate::plan::time::{Moment, Timestamp};
use crate::plan::workflow::DispatchRef;

/// The state machine of one command to one effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handle {
    key: Key,
    command: Command,
    expect: StreamState,
    schedule: Schedule,
    budget: Budget,
    outputs: Vec<Kept>,
    /// The dispatch that this command acts on.
    dispatch: Option<DispatchRef>,
    /// A write that was held to it was refused once.
    refused_once: bool,
    /// What the last decision to write was made on, where it was held to a dispatch.
    decided_on: Option<(Option<Record>, Timestamp)>,
    /// The `write_id`s of this command's appends whose end was unknown at some time.
    maybe_written: Vec<WriteId>,
    unknown_reservation: Option<Holder>,
    /// Whether loads bring the event along that this command's decision may hang on.
    wants_evidence: bool,
    /// The row, where it needs no load to be known.
    known: Option<Known>,
    /// The append under way says that the key is new, and nobody has looked (CMT-16).
    guessed: bool,
    read_at: Moment,
    seen_at: Moment,
    /// What failed last in another way than by the end of the time.
    failed: Option<CouldNot>,
    phase: Phase,
    /// What is known of appends of ours whose answer did not come.
    unseen: Option<Unseen>,
}

/// The appends of ours that were unknown at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Unseen {
    /// Our clock before the load that the first was decided on.
    read_at: Moment,
    /// How many are in the store, or may yet be: no re-read has shown that they cannot.
    may_stand: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Fresh,
    Loading,
    Drawing(Box<Found>),
    Backoff,
    Appending(Pending),
    AppendingAgain(Pending),
    Settling(Pending),
    SettlingAgain(Pending),
    Over,
}

/// An append that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
            dispatch: None,
            refused_once: false,
            decided_on: None,
            maybe_written: Vec::new(),
            failed: None,
            unknown_reservation: None,
            wants_evidence: false,
            known: None,
            guessed: false,
            read_at: Moment(0),
            seen_at: Moment(0),
            phase: Phase::Fresh,
            unseen: None,
        }
    }

    /// Outputs to be written in the same transaction as the command's events.
    #[must_use]
    pub fn with_outputs(mut self, outputs: Vec<Kept>) -> Self {
        self.outputs = outputs;
        self
    }

    /// The row as it was just written, or that there is none: the first decision is made on it,
    /// without a load (CMT-15, CMT-16).
    #[must_use]
    pub fn knowing(mut self, known: Option<Known>) -> Self {
        self.known = known;
        self
    }

    /// Holds this command's writes to a dispatch: they are refused once it is gone.
    #[must_use]
    pub fn with_dispatch(mut self, dispatch: Option<DispatchRef>) -> Self {
        self.dispatch = dispatch;
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
            (Phase::Fresh, Input::Start) => self.start(at),
            (Phase::Backoff, Input::Paused) => self.load(at),
            (Phase::Loading, Input::Loaded(Ok(found), fresh)) => {
                self.seen_at = at;
                self.decide(found, fresh, at)
            }
            (Phase::Drawing(found), Input::Drawn(fresh)) => self.decide(*found, fresh, at),
            (Phase::Loading, Input::Loaded(Err(error), _)) => self.not_loaded(error, at),
            (Phase::AppendingAgain(pending), Input::Paused) => self.try_append(pending, at),
            (Phase::Appending(pending), Input::Ended(end)) => self.ended(pending, end, at),
            (Phase::Settling(pending), Input::Reread(Ok(found))) => {
                self.settle(pending, &found, at)
            }
            (Phase::Settling(pending), Input::Reread(Err(error))) => {
                // The re-read failed: run nothing, write nothing more now (CMT settlement table).
                unknown(match pending.unknown {
                    Some(first) => both(first, error),
                    None => error,
                })
            }
            (Phase::SettlingAgain(pending), Input::Paused) => self.reread(pending, at),
            (
                Phase::Fresh
                | Phase::Loading
                | Phase::Drawing(_)
                | Phase::Backoff
                | Phase::Appending(_)
                | Phase::AppendingAgain(_)
                | Phase::Settling(_)
                | Phase::SettlingAgain(_)
                | Phase::Over,
                Input::Start
                | Input::Loaded(..)
                | Input::Drawn(_)
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

    fn start(&mut self, at: Moment) -> Step {
        // A key that has to be there is not new.
        let may_be = |known: &Known| !known.is_absent() || self.expect.check(None).is_ok();
        let known = self.known.take().filter(may_be);
        let Some((found, read_at)) = known.and_then(|known| known.at(at)) else {
            return self.load(at);
        };
        self.guessed = found.record.is_none();
        self.read_at = read_at;
        self.seen_at = at;
        self.phase = Phase::Drawing(Box::new(found));
        Step::Draw
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
            Command::Begin(_) | Command::Settle(_) if !self.wants_evidence => Ask::Nothing,
            Command::Begin(begin) => Ask::Began(begin.holder.attempt),
            Command::Settle(settle) => Ask::Outcome(settle.outcome_id),
            Command::Resolve(_) | Command::Reopen { .. } => Ask::LastChange,
            Command::Probed(_) => Ask::Last,
            Command::Reserve(_) | Command::Renew { .. } | Command::Contend => Ask::Nothing,
        }
    }

    /// Whether the history has a say in what comes next. In a run without mishap it has none: a
    /// reservation of ours has not begun, and a record that still waits for our word has not got it.
    fn history_matters(&self, found: &Found) -> bool {
        let Some(record) = &found.record else {
            return false;
        };
        match (&self.command, record.state) {
            (Command::Begin(begin), State::Executing { .. }) => record.is_held_by(begin.holder),
            (Command::Settle(settle), State::Reserved { .. } | State::Executing { .. }) => {
                !record.is_held_by(settle.holder)
            }
            (
                Command::Settle(_),
                State::Committed { .. } | State::Failed { .. } | State::Ambiguous { .. },
            ) => true,
            (
                Command::Begin(_),
                State::Reserved { .. }
                | State::Committed { .. }
                | State::Failed { .. }
                | State::Ambiguous { .. },
            )
            | (
                Command::Reserve(_)
                | Command::Renew { .. }
                | Command::Resolve(_)
                | Command::Reopen { .. }
                | Command::Contend
                | Command::Probed(_),
                _,
            ) => false,
        }
    }

    fn not_loaded(&mut self, error: CouldNot, at: Moment) -> Step {
        if error.reason.may_pass() && self.budget.spend(at) {
            self.remember(error);
            return self.pause(Phase::Backoff);
        }
        self.could_not(error)
    }

    /// Nothing more can be done. "Nothing was written" is said only where it is so: an append of
    /// this command that is in the store, or may be, stays unknown (CMT-7). The last try often says
    /// only that the time was over: then what used it up is told, a full disk for example.
    fn could_not(&mut self, error: CouldNot) -> Step {
        let told = self.failed.take().filter(|_| error.reason == Reason::Busy).unwrap_or(error);
        if self.unseen.is_some_and(|unseen| unseen.may_stand > 0) {
            return unknown(told);
        }
        Step::Done(Done::CouldNot(told))
    }

    fn remember(&mut self, error: CouldNot) {
        if error.reason != Reason::Busy {
            self.failed = Some(error);
        }
    }

    fn pause(&mut self, then: Phase) -> Step {
        self.phase = then;
        Step::Pause(self.schedule.wait())
    }

    fn decide(&mut self, found: Found, fresh: WriteId, at: Moment) -> Step {
        if !self.wants_evidence && self.history_matters(&found) {
            // The same load again, with the one event that decides. From here on always so.
            self.wants_evidence = true;
            return self.load(at);
        }
        let Decision { events, answer } = match self.held_to(&found) {
            Ok(()) => decide(&found, &self.command, &self.maybe_written),
            Err(conflict) => Decision {
                events: Vec::new(),
                answer: Answer::Refused(Refusal::Expectation(conflict)),
            },
        };
        if events.is_empty() {
            // A grant that is not written now was written by an append of ours that nobody saw
            // land: its lease is counted from the load of that one (EXE-8).
            self.read_at = self.unseen.map_or(self.read_at, |unseen| unseen.read_at);
            return self.answered(answer, found.record, found.now);
        }
        if self.dispatch.is_some() {
            self.decided_on = Some((found.record.clone(), found.now));
        }
        let append = match self.fold(found.clone(), &events, fresh) {
            Ok(append) => append,
            Err(BadStart(_)) => {
                let message = format!("internal: no history of {} can begin so", self.key);
                return self.could_not(CouldNot { reason: Reason::Damaged, message, hint: None });
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
                // Our own reserve, landed unseen, is not a stranger's change. What came of it since
                // is: one that was resolved is never reserved again under `new`.
                Some(record)
                    if matches!(record.state, State::Reserved { .. })
                        && self.maybe_written.contains(&record.reservation_id) =>
                {
                    Ok(())
                }
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
        let settle = self.command.settle();
        let outcome_id = settle.map(|settle| settle.outcome_id);
        let mut record = found.record.clone();
        let mut history = Vec::with_capacity(events.len());
        // The revisions of a new life of a key lie above those of every earlier one, so that nothing
        // that was looked at then can be taken for what stands now (OPS-5).
        let first = found.revision().unwrap_or(found.attempt_floor).saturating_add(1);
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
            row.attempt = match event {
                Event::LateOutcome(late) => late.attempt,
                Event::Reserved(_)
                | Event::Began(_)
                | Event::LeaseRenewed(_)
                | Event::Committed(_)
                | Event::Failed(_)
                | Event::Ambiguated(_)
                | Event::Probed(_)
                | Event::Resolved(_)
                | Event::Reopened(_) => next.attempt,
            };
            record = Some(next);
            history.push(row);
        }
        let next = record.ok_or(BadStart("nothing"))?;
        // Of two holders of one attempt number (a restored store) only the record's own keeps its
        // output: the other's would pass for it.
        let stranger = settle.is_some_and(|settle| {
            next.attempt == settle.holder.attempt && !next.is_held_by(settle.holder)
        });
        let outputs = if stranger { Vec::new() } else { self.outputs.clone() };
        Ok(Box::new(Append {
            found: found.record,
            next,
            history,
            attempt_floor: found.attempt_floor,
            outputs,
            dispatch: self.dispatch.clone(),
        }))
    }

    fn try_append(&mut self, pending: Pending, at: Moment) -> Step {
        let step =
            Step::Append { append: pending.append.clone(), within: self.budget.exchange(at) };
        self.phase = Phase::Appending(pending);
        step
    }

    fn ended(&mut self, mut pending: Pending, end: End, at: Moment) -> Step {
        let guessed = std::mem::take(&mut self.guessed);
        match end {
            // The key is not new, or may not be written by this user: nothing was written, and one
            // look tells what is there.
            End::Refused | End::NotCommitted(_) if guessed && self.budget.spend(at) => {
                self.load(at)
            }
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
                    return self.pause(Phase::SettlingAgain(pending));
                }
                unknown(pending.unknown.unwrap_or(error))
            }
            End::NotCommitted(error) => {
                if error.reason.may_pass() && self.budget.spend(at) {
                    // The same row again: nothing was committed.
                    self.remember(error);
                    return self.pause(Phase::AppendingAgain(pending));
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
                let unseen =
                    self.unseen.get_or_insert(Unseen { read_at: self.read_at, may_stand: 0 });
                unseen.may_stand += 1;
                self.reread(pending, at)
            }
        }
    }

    fn lost_race(&mut self, at: Moment) -> Step {
        if self.dispatch.is_some() && std::mem::replace(&mut self.refused_once, true) {
            // The row was loaded anew, and what was expected of it still held: so it is the dispatch
            // that is gone.
            return self.dispatch_gone();
        }
        if !self.expect.may_decide_again() || pinned(&self.command) {
            // Nothing is retried: the caller looked at a state that is gone. One more load tells
            // which state is there now, and it is refused by that.
            if self.budget.spend(at) {
                return self.load(at);
            }
        } else if self.budget.spend(at) {
            return self.pause(Phase::Backoff);
        }
        self.could_not(faster())
    }

    /// Nothing was written and nothing is started: the tick that took the dispatch away says so.
    fn dispatch_gone(&mut self) -> Step {
        match self.decided_on.take() {
            Some((record, now)) => self.answered(Answer::Refused(Refusal::NotOurs), record, now),
            None => self.could_not(faster()),
        }
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
            return self.load_anew(at);
        }
        let floor_stands = append.found.is_some() || found.attempt_floor == append.attempt_floor;
        if found.record == append.found && floor_stands {
            if pending.second_matched_nothing && append.dispatch.is_some() {
                // The dispatch's row is locked until its reserve has ended (WFL-9): gone, with the
                // effect as it was, it proves that the first try did not land.
                return self.dispatch_gone();
            }
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
        // Somebody else's row, or another floor for a new one: ours can no longer land, the planner
        // says what that means. (Under another floor ours may have landed and been forgotten.)
        if floor_stands && let Some(unseen) = self.unseen.as_mut() {
            unseen.may_stand = unseen.may_stand.saturating_sub(1);
        }
        self.load_anew(at)
    }

    /// Loads again after a settlement. It takes from the budget, so that answers which are lost
    /// again and again end the command.
    fn load_anew(&mut self, at: Moment) -> Step {
        if self.budget.spend(at) {
            return self.load(at);
        }
        self.could_not(faster())
    }

    fn landed(&mut self, pending: Pending) -> Step {
        let record = Some(pending.append.next);
        self.answered(pending.answer, record, pending.now)
    }

    fn answered(&mut self, answer: Answer, record: Option<Record>, now: Timestamp) -> Step {
        let (read_at, seen_at) = (self.read_at, self.seen_at);
        Step::Done(Done::Answered(Box::new(Answered { answer, record, now, read_at, seen_at })))
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
