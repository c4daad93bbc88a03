//! The transitions of one attempt.
use std::time::Duration;

use super::{Came, Do, NotRecorded, Order, Outcome, RESERVED_LEASE_MAX, Report, Undelivered};
use crate::plan::effect::{
    Answer, Begin, Command, Ending, Holder, RanOn, Record, Recorded, Refusal, Reserve, Settle,
    State, Verdict,
};
use crate::plan::expect::StreamState;
use crate::plan::key::{Fingerprint, Key};
use crate::plan::protocol::{
    Answered, Captured, CouldNot, Done, End, Handle, Input, Kept, Known, Reason, Stream,
};
use crate::plan::retry::Budget;
use crate::plan::time::{Moment, Timestamp};
use crate::plan::verdict::{ChildEnd, verdict};

/// How many times longer than a reserve a settle may take (CMT-14).
const SETTLE_PATIENCE: u32 = 6;

/// The most tries of one command to the store, whatever time is left.
const TRIES_MAX: u32 = 1_000;

/// The state machine of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attempt {
    order: Order,
    phase: Phase,
    held: Option<Held>,
    ran: bool,
    lost: bool,
    record: Option<Record>,
    now: Option<Timestamp>,
    /// The row as the last append of ours left it.
    known: Option<Known>,
    spooled: Option<Result<(), String>>,
    /// The begin waits until the driver has a place for the child (BAT-9).
    gated: bool,
}

/// What the holder knows of its right to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Held {
    holder: Holder,
    proven_failures: u64,
    lease_until: Moment,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Reserving(Box<Handle>),
    /// Reserved; the driver has no place for the child yet.
    Granted,
    Beginning(Box<Handle>),
    Starting,
    Watching {
        renewing: bool,
        renew_at: Moment,
        ending: bool,
    },
    Settling(Box<Settling>),
    /// The file is being written or removed, and then this is the end.
    Closing(Outcome),
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Settling {
    write: Handle,
    undelivered: Box<Undelivered>,
    /// Reported instead of the settled outcome: why nothing was started.
    refusal: Option<Refusal>,
    /// The answer that waits until the outcome is in the spool.
    stashed: Option<Input>,
}

impl Attempt {
    /// The machine of one attempt.
    #[must_use]
    pub fn new(mut order: Order, at: Moment) -> Self {
        let reserve = Command::Reserve(Reserve {
            request: order.request.clone(),
            attempt_id: order.attempt_id.clone(),
            lease: order.lease.min(RESERVED_LEASE_MAX),
            max_attempts: order.max_attempts,
            rebind: order.rebind,
            run_id: order.dispatch.as_ref().map(|dispatch| dispatch.run.as_str().to_owned()),
        });
        let budget = budget(order.store_timeout, order.store_timeout, order.lease, at);
        let write = Handle::new(order.key.clone(), reserve, order.expect, budget)
            .knowing(order.guess.take())
            .with_dispatch(order.dispatch.clone());
        Self {
            order,
            phase: Phase::Reserving(Box::new(write)),
            held: None,
            ran: false,
            lost: false,
            record: None,
            now: None,
            known: None,
            spooled: None,
            gated: false,
        }
    }

    /// The same, with [`Do::Granted`] between the reserve and the begin.
    #[must_use]
    pub fn gated(order: Order, at: Moment) -> Self {
        Self { gated: true, ..Self::new(order, at) }
    }

    /// The effect it is about.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.order.key
    }

    /// The label of this attempt.
    #[must_use]
    pub fn attempt_id(&self) -> &str {
        &self.order.attempt_id
    }

    /// What its key is to be bound to, and where it runs.
    #[must_use]
    pub fn evidence(&self) -> (Fingerprint, &RanOn) {
        (self.order.request.fingerprint, &self.order.ran_on)
    }

    /// Takes what came and names the next thing to do. `at` is our own clock, read after it came.
    pub fn step(&mut self, came: Came, at: Moment) -> Do {
        match (std::mem::replace(&mut self.phase, Phase::Over), came) {
            (Phase::Reserving(write), Came::Call) => self.reserving(write, Input::Start, at),
            (Phase::Reserving(write), Came::Store(input)) => self.reserving(write, *input, at),
            (Phase::Granted, Came::Begin) => self.begin(at),
            (Phase::Granted, Came::Release { detail }) => self.never_started(detail, None, at),
            (Phase::Beginning(write), Came::Store(input)) => self.beginning(write, *input, at),
            (Phase::Starting, Came::Started) => {
                self.ran = true;
                // Not from now: a start that took long has used up some of the lease.
                self.watch(false, self.renewal_due(), false)
            }
            (Phase::Starting, Came::NotStarted { detail }) => self.never_started(detail, None, at),
            (Phase::Starting, Came::TooLate) => {
                let detail = "its lease had ended before it could start".to_owned();
                self.never_started(detail, Some(Refusal::TooLate), at)
            }
            (Phase::Watching { renewing, renew_at, ending }, Came::Due) => {
                if renewing || at < renew_at {
                    return self.watch(renewing, renew_at, ending);
                }
                self.renew(renew_at, ending, at)
            }
            (Phase::Watching { ending, .. }, Came::Renewed(done)) => self.renewed(done, ending, at),
            (Phase::Watching { renewing, renew_at, ending }, Came::UnderWay) => {
                self.watch(renewing, renew_at, ending)
            }
            (Phase::Watching { .. }, Came::Ended { end, stdout, stderr }) => {
                self.ended(&end, stdout, stderr, at)
            }
            (Phase::Settling(settling), Came::Store(input)) => self.settling(settling, *input, at),
            (Phase::Settling(settling), Came::GiveUp) => match self.spooled {
                Some(Ok(())) => self.over(Outcome::NotRecorded {
                    undelivered: settling.undelivered,
                    why: NotRecorded::Store(CouldNot {
                        reason: Reason::Busy,
                        message: "this process was told to end before the store took it".to_owned(),
                        hint: None,
                    }),
                }),
                // Nothing but this process knows of it: it is tried on.
                Some(Err(_)) | None => self.settling(settling, Input::Paused, at),
            },
            (Phase::Settling(mut settling), Came::Spooled(kept)) => {
                self.spooled = Some(kept);
                match settling.stashed.take() {
                    Some(input) => self.settling(settling, input, at),
                    None => self.out_of_step(),
                }
            }
            (Phase::Closing(outcome), Came::Spooled(kept)) => {
                self.spooled = Some(kept);
                self.over(outcome)
            }
            (Phase::Closing(outcome), Came::Unspooled) => self.over(outcome),
            (
                Phase::Reserving(_)
                | Phase::Granted
                | Phase::Beginning(_)
                | Phase::Starting
                | Phase::Watching { .. }
                | Phase::Settling(_)
                | Phase::Closing(_)
                | Phase::Over,
                Came::Call
                | Came::Store(_)
                | Came::Begin
                | Came::Release { .. }
                | Came::UnderWay
                | Came::Started
                | Came::NotStarted { .. }
                | Came::TooLate
                | Came::Due
                | Came::Renewed(_)
                | Came::Ended { .. }
                | Came::Spooled(_)
                | Came::GiveUp
                | Came::Unspooled,
            ) => self.out_of_step(),
        }
    }

    fn reserving(&mut self, mut write: Box<Handle>, input: Input, at: Moment) -> Do {
        let done = match write.step(input, at).done() {
            Ok(done) => done,
            Err(step) => {
                self.phase = Phase::Reserving(write);
                return Do::Store(*step);
            }
        };
        match done {
            Done::Answered(answered) => {
                self.see(&answered);
                match (answered.answer, answered.record) {
                    (Answer::Granted, Some(record)) => self.granted(&record, answered.read_at, at),
                    (Answer::CommittedAlready, _) => self.over(Outcome::CommittedAlready),
                    (Answer::Refused(refusal), _) => self.over(Outcome::Refused(refusal)),
                    _ => self.out_of_step(),
                }
            }
            // The reservation may have landed unseen. Nothing runs and nothing more is written now;
            // "never started" goes to the spool, so that a delivery before the lease ends settles
            // it without a person (CMT-10).
            Done::CouldNot(error) => {
                self.nothing_ran(write.unknown_reservation(), Outcome::CouldNot(error))
            }
            Done::Unknown(error) => {
                self.nothing_ran(write.unknown_reservation(), Outcome::Unknown(error))
            }
        }
    }

    fn granted(&mut self, record: &Record, read_at: Moment, at: Moment) -> Do {
        let reserved_lease = self.order.lease.min(RESERVED_LEASE_MAX);
        let holder = Holder { attempt: record.attempt, reservation_id: record.reservation_id };
        self.held = Some(Held {
            holder,
            proven_failures: record.proven_failures,
            lease_until: read_at.plus(reserved_lease),
        });
        if self.gated {
            self.phase = Phase::Granted;
            return Do::Granted;
        }
        self.begin(at)
    }

    fn begin(&mut self, at: Moment) -> Do {
        let Some(Held { holder, .. }) = self.held else {
            return self.out_of_step();
        };
        let reserved_lease = self.order.lease.min(RESERVED_LEASE_MAX);
        let begin = Command::Begin(Begin {
            holder,
            lease: self.order.lease,
            ran_on: self.order.ran_on.clone(),
            labels: self.order.labels.clone(),
        });
        let timeout = self.order.store_timeout;
        let budget = budget(timeout, timeout, reserved_lease, at);
        let write = Handle::new(self.order.key.clone(), begin, StreamState::Any, budget)
            .knowing(self.known.take());
        self.beginning(Box::new(write), Input::Start, at)
    }

    fn beginning(&mut self, mut write: Box<Handle>, input: Input, at: Moment) -> Do {
        let done = match write.step(input, at).done() {
            Ok(done) => done,
            Err(step) => {
                self.phase = Phase::Beginning(write);
                return Do::Store(*step);
            }
        };
        let holder = self.held.map(|held| held.holder);
        match done {
            Done::Answered(answered) => {
                self.see(&answered);
                match (answered.answer, self.held.as_mut()) {
                    (Answer::Start, Some(held)) => {
                        held.lease_until = answered.read_at.plus(self.order.lease);
                        let Held { holder, proven_failures, lease_until } = *held;
                        self.phase = Phase::Starting;
                        Do::Start { holder, proven_failures, not_after: lease_until }
                    }
                    (Answer::Refused(refusal), _) => self.over(Outcome::Refused(refusal)),
                    _ => self.out_of_step(),
                }
            }
            // Reserved, and not begun: a delivery settles it as never started.
            Done::CouldNot(error) => self.nothing_ran(holder, Outcome::CouldNot(error)),
            Done::Unknown(error) => self.nothing_ran(holder, Outcome::Unknown(error)),
        }
    }

    /// Spools "never started" for a reservation that is, or may be, in the store, and ends.
    fn nothing_ran(&mut self, holder: Option<Holder>, outcome: Outcome) -> Do {
        let Some(holder) = holder else {
            return self.over(outcome);
        };
        let settle = Settle {
            holder,
            outcome_id: self.order.outcome_id,
            verdict: Verdict::NeverStarted,
            ending: Ending {
                exit_code: None,
                signal: None,
                detail: "the store failed before it could start".to_owned(),
            },
        };
        self.phase = Phase::Closing(outcome);
        let key = self.order.key.clone();
        Do::Spool(Box::new(Undelivered { key, settle, outputs: Vec::new() }))
    }

    fn renewal_due(&self) -> Moment {
        // A third of the lease after the reading that it is counted from.
        let lease = self.order.lease;
        self.held.map_or(Moment(0), |held| {
            let until = held.lease_until.0;
            let two_thirds = u64::try_from((lease - lease / 3).as_micros()).unwrap_or(u64::MAX);
            Moment(until.saturating_sub(two_thirds))
        })
    }

    fn watch(&mut self, renewing: bool, renew_at: Moment, ending: bool) -> Do {
        self.phase = Phase::Watching { renewing, renew_at, ending };
        Do::Watch { until: if renewing { Moment(u64::MAX) } else { renew_at } }
    }

    fn renew(&mut self, renew_at: Moment, ending: bool, at: Moment) -> Do {
        let Some(held) = self.held else {
            return self.out_of_step();
        };
        let lease = self.order.lease;
        let command = Command::Renew { holder: held.holder, lease };
        let timeout = self.order.store_timeout;
        let budget = budget(timeout, timeout, lease, at);
        let write = Handle::new(self.order.key.clone(), command, StreamState::Any, budget);
        self.phase = Phase::Watching { renewing: true, renew_at, ending };
        Do::Renew(Box::new(write))
    }

    fn renewed(&mut self, done: Done, ending: bool, at: Moment) -> Do {
        let lease = self.order.lease;
        let Done::Answered(answered) = done else {
            // The lease may still hold: soon again, the child is not told.
            return self.watch(false, at.plus(lease / 12), ending);
        };
        self.see(&answered);
        let Some(held) = self.held.as_mut() else {
            return self.out_of_step();
        };
        if let Answer::Renewed { .. } = answered.answer {
            held.lease_until = answered.read_at.plus(lease);
            let due = self.renewal_due();
            return self.watch(false, due, ending);
        }
        // Lost: the child goes on, and whatever it does is told (EXE-9). It is ended only where
        // somebody else may run, or has run, the same effect.
        self.lost = true;
        let others = answered.record.as_ref().is_some_and(|record| {
            !record.is_held_by(held.holder) || matches!(record.state, State::Failed { .. })
        });
        let again = at.plus(lease / 3);
        if others && !ending {
            self.phase = Phase::Watching { renewing: false, renew_at: again, ending: true };
            return Do::EndChild;
        }
        self.watch(false, again, ending)
    }

    fn ended(
        &mut self,
        end: &ChildEnd,
        stdout: Option<Captured>,
        stderr: Option<Captured>,
        at: Moment,
    ) -> Do {
        let Some(held) = self.held else {
            return self.out_of_step();
        };
        let (verdict, ending) = verdict(end, &self.order.not_executed);
        let attempt = held.holder.attempt;
        let outputs = [(Stream::Stdout, stdout), (Stream::Stderr, stderr)]
            .into_iter()
            .filter_map(|(stream, captured)| kept(attempt, stream, captured))
            .collect();
        self.settle(verdict, ending, outputs, None, at)
    }

    fn never_started(&mut self, detail: String, refusal: Option<Refusal>, at: Moment) -> Do {
        let ending = Ending { exit_code: None, signal: None, detail };
        self.settle(Verdict::NeverStarted, ending, Vec::new(), refusal, at)
    }

    fn settle(
        &mut self,
        verdict: Verdict,
        ending: Ending,
        outputs: Vec<Kept>,
        refusal: Option<Refusal>,
        at: Moment,
    ) -> Do {
        let Some(held) = self.held else {
            return self.out_of_step();
        };
        let outcome_id = self.order.outcome_id;
        let settle = Settle { holder: held.holder, outcome_id, verdict, ending };
        // A settle may take longer than a reserve: an outcome is worth waiting for (CMT-14).
        let patience = self.order.store_timeout * SETTLE_PATIENCE;
        let within = patience.max(held.lease_until.from_now(at));
        let budget = budget(within, self.order.store_timeout, self.order.lease, at);
        let key = self.order.key.clone();
        let command = Command::Settle(settle.clone());
        let write = Handle::new(key.clone(), command, StreamState::Any, budget)
            .with_outputs(outputs.clone())
            .knowing(self.known.take());
        let undelivered = Box::new(Undelivered { key, settle, outputs });
        self.settling(
            Box::new(Settling { write, undelivered, refusal, stashed: None }),
            Input::Start,
            at,
        )
    }

    fn settling(&mut self, mut settling: Box<Settling>, input: Input, at: Moment) -> Do {
        if self.spooled.is_none() && is_failure(&input) {
            // Before any retry: this process may be killed while it retries (EXE-24).
            let undelivered = settling.undelivered.clone();
            settling.stashed = Some(input);
            self.phase = Phase::Settling(settling);
            return Do::Spool(undelivered);
        }
        let done = match settling.write.step(input, at).done() {
            Ok(done) => done,
            Err(step) => {
                self.phase = Phase::Settling(settling);
                return Do::Store(*step);
            }
        };
        let Settling { undelivered, refusal, .. } = *settling;
        let why = match done {
            Done::Answered(answered) => {
                self.see(&answered);
                match answered.answer.recorded() {
                    Some(Recorded::Ours) => {
                        let outcome = match refusal {
                            Some(refusal) => Outcome::Refused(refusal),
                            None => settled(undelivered.settle, self.record.as_ref()),
                        };
                        return self.recorded(outcome);
                    }
                    // Nothing ran: there is no outcome that could be missing, only a record that is
                    // no longer ours, as Begin would have found it (EFF-13).
                    Some(Recorded::Late | Recorded::Forgotten) if !self.ran => {
                        let outcome = Outcome::Refused(not_ours(self.record.as_ref()));
                        return self.recorded(outcome);
                    }
                    Some(Recorded::Late) => NotRecorded::Late,
                    Some(Recorded::Forgotten) => NotRecorded::Forgotten,
                    None => return self.out_of_step(),
                }
            }
            Done::CouldNot(error) | Done::Unknown(error) => NotRecorded::Store(error),
        };
        // A word whose effect is gone: the store was restored, most likely. If it may have happened
        // it goes to the spool, and stays there, where it keeps this key from running again (EXE-25).
        let (unrecorded, gone) = match &why {
            NotRecorded::Late => (false, false),
            NotRecorded::Forgotten => {
                let may_have_happened = undelivered.settle.verdict.may_have_happened();
                (may_have_happened, may_have_happened)
            }
            NotRecorded::Store(_) => (true, false),
        };
        // No try of it need have failed: where others were faster every time until the time was over,
        // nothing has been spooled yet (EXE-24).
        let to_keep = (gone || unrecorded).then(|| undelivered.clone());
        let outcome = Outcome::NotRecorded { undelivered, why };
        match to_keep.filter(|_| self.spooled.is_none()) {
            Some(undelivered) => {
                self.phase = Phase::Closing(outcome);
                Do::Spool(undelivered)
            }
            None if unrecorded => self.over(outcome),
            None => self.recorded(outcome),
        }
    }

    /// The store has the last word on it: what was spooled is no longer needed.
    fn recorded(&mut self, outcome: Outcome) -> Do {
        if let Some(Ok(())) = self.spooled {
            self.spooled = None;
            self.phase = Phase::Closing(outcome);
            return Do::Unspool(self.order.outcome_id);
        }
        self.over(outcome)
    }

    fn see(&mut self, answered: &Answered) {
        self.record.clone_from(&answered.record);
        self.now = Some(answered.now);
        self.known = Known::of(answered);
    }

    fn over(&mut self, result: Outcome) -> Do {
        self.phase = Phase::Over;
        Do::Over(Box::new(Report {
            ran: self.ran,
            holder: self.held.map(|held| held.holder),
            result,
            record: self.record.take(),
            now: self.now,
            spooled: self.spooled.take(),
            lost: self.lost,
        }))
    }

    fn out_of_step(&mut self) -> Do {
        self.over(Outcome::Unknown(CouldNot {
            reason: Reason::Damaged,
            message: "internal: an answer came that was not asked for".to_owned(),
            hint: None,
        }))
    }
}

/// A budget of `within`, no exchange longer than `exchange_max` or a quarter of the lease in force
/// (CMT-14).
fn budget(within: Duration, exchange_max: Duration, lease: Duration, at: Moment) -> Budget {
    Budget::new(TRIES_MAX, at.plus(within), exchange_max.min(lease / 4))
}

/// What was recorded as this attempt's. That is its word, but for a doubt that others had raised
/// meanwhile: then "failed" stands as AMBIGUOUS, and must be told, and retried, as that (EFF-7).
fn settled(settle: Settle, record: Option<&Record>) -> Outcome {
    let ours = record.filter(|record| record.is_held_by(settle.holder));
    let verdict = match ours.map(|record| record.state) {
        Some(State::Ambiguous { cause, reaped }) => Verdict::Ambiguous { cause, reaped },
        Some(
            State::Reserved { .. }
            | State::Executing { .. }
            | State::Committed { .. }
            | State::Failed { .. },
        )
        | None => settle.verdict,
    };
    Outcome::Settled { verdict, ending: settle.ending }
}

/// Why nothing runs where the record has moved on.
fn not_ours(record: Option<&Record>) -> Refusal {
    match record.map(|record| record.state) {
        Some(State::Ambiguous { .. }) => Refusal::Ambiguous,
        Some(
            State::Reserved { .. }
            | State::Executing { .. }
            | State::Committed { .. }
            | State::Failed { .. },
        )
        | None => Refusal::NotOurs,
    }
}

fn is_failure(input: &Input) -> bool {
    match input {
        Input::Loaded(Err(_), _)
        | Input::Reread(Err(_))
        | Input::Ended(End::NotCommitted(_) | End::Unknown(_)) => true,
        Input::Start
        | Input::Loaded(Ok(_), _)
        | Input::Reread(Ok(_))
        | Input::Drawn(_)
        | Input::Ended(End::Landed | End::Refused)
        | Input::Paused => false,
    }
}

/// What is kept of a stream. A stream that was captured and stayed empty needs no row: no row means
/// "empty, and that is all of it". One that was not captured has a row that says so.
fn kept(attempt: u64, stream: Stream, captured: Option<Captured>) -> Option<Kept> {
    match captured {
        Some(captured) if captured.bytes == 0 => None,
        Some(captured) => Some(Kept { attempt, stream, captured }),
        None => Some(Kept { attempt, stream, captured: Captured::default() }),
    }
}
