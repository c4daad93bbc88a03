//! A machine that is stepped by hand: each answer names what was expected of it.
use std::time::Duration;

use ctrlrun::plan::effect::{
    Answer, Command, Event, HistoryRow, Holder, ProbeAnswer, Record, Refusal, Resolve, WriteId,
    evolve,
};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::protocol::{
    Answered, Append, Ask, CouldNot, Done, End, Found, Handle, Input, Reason, Step,
};
use ctrlrun::plan::retry::Budget;
use ctrlrun::plan::time::Moment;

use crate::ask::{NOW, reserve};
use crate::plan_common::{key, write_id};

/// No exchange of these tests may take longer.
pub const EXCHANGE: Duration = Duration::from_millis(100);

/// A machine and our clock, which moves by 1 ms between any two steps.
pub struct Machine {
    pub handle: Handle,
    pub at: u64,
    drawn: u128,
}

impl Machine {
    pub fn new(command: Command) -> Self {
        Self::held_to(command, StreamState::Any)
    }

    pub fn held_to(command: Command, expect: StreamState) -> Self {
        Self::within(command, expect, Budget::new(20, Moment(10_000_000), EXCHANGE))
    }

    pub fn within(command: Command, expect: StreamState, budget: Budget) -> Self {
        Self { handle: Handle::new(key(), command, expect, budget), at: 0, drawn: 0x1000 }
    }

    pub fn now(&self) -> Moment {
        Moment(self.at)
    }

    pub fn step(&mut self, input: Input) -> Step {
        self.at += 1_000;
        self.handle.step(input, Moment(self.at))
    }

    /// A load's answer, with the next `write_id` to be drawn: 0x1001, 0x1002, ...
    pub fn loaded(&mut self, found: Found) -> Step {
        self.drawn += 1;
        let step = self.loaded_once(found.clone());
        if matches!(step, Step::Load { .. }) {
            // The history has a say: the same once more, with the event.
            return self.loaded_once(found);
        }
        step
    }

    /// One load's answer.
    pub fn loaded_once(&mut self, found: Found) -> Step {
        self.step(Input::Loaded(Ok(found), write_id(self.drawn)))
    }

    /// From the start to the append that is decided on `found`.
    pub fn up_to_append(&mut self, found: Found) -> Append {
        load(self.step(Input::Start));
        append(self.loaded(found))
    }

    /// From the start to the first re-read: the append is unknown.
    pub fn up_to_reread(&mut self, found: Found) -> (Append, Ask) {
        let written = self.up_to_append(found);
        let ask = reread(self.unknown());
        (written, ask)
    }

    pub fn landed(&mut self) -> Step {
        self.step(Input::Ended(End::Landed))
    }

    pub fn refused(&mut self) -> Step {
        self.step(Input::Ended(End::Refused))
    }

    pub fn not_committed(&mut self) -> Step {
        self.step(Input::Ended(End::NotCommitted(why(Reason::Busy))))
    }

    pub fn unknown(&mut self) -> Step {
        self.step(Input::Ended(End::Unknown(why(Reason::Unreachable))))
    }

    pub fn reread(&mut self, found: Found) -> Step {
        self.step(Input::Reread(Ok(found)))
    }
}

pub fn why(reason: Reason) -> CouldNot {
    CouldNot { reason, message: format!("{reason:?}"), hint: None }
}

/// What is taken from a step, which must be of that kind.
macro_rules! must_be {
    ($step:expr, $pattern:pat => $taken:expr, $wanted:literal) => {{
        let step = $step;
        let seen = format!("{step:?}");
        let $pattern = step else { panic!("{} was expected: {seen}", $wanted) };
        $taken
    }};
}

pub fn load(step: Step) -> Ask {
    must_be!(step, Step::Load { ask, .. } => ask, "a load")
}

pub fn append(step: Step) -> Append {
    must_be!(step, Step::Append { append, .. } => *append, "an append")
}

pub fn reread(step: Step) -> Ask {
    must_be!(step, Step::Reread { ask, .. } => ask, "a re-read")
}

pub fn pause(step: Step) {
    must_be!(step, Step::Pause(_) => (), "a pause");
}

pub fn answered(step: Step) -> Answered {
    must_be!(step, Step::Done(Done::Answered(answered)) => *answered, "an answer")
}

pub fn refusal(step: Step) -> Refusal {
    must_be!(answered(step).answer, Answer::Refused(refusal) => refusal, "a refusal")
}

/// Nothing was written.
pub fn could_not(step: Step) -> Reason {
    must_be!(step, Step::Done(Done::CouldNot(error)) => error.reason, "\"could not\"")
}

/// Nobody knows: nothing runs.
pub fn unknown(step: Step) -> Reason {
    must_be!(step, Step::Done(Done::Unknown(error)) => error.reason, "\"unknown\"")
}

/// A load that finds `record`, and no event.
pub fn found(record: Option<Record>) -> Found {
    Found { record, now: NOW, attempt_floor: 0, event: None }
}

/// `record` after one more event, written by `by`.
pub fn after(record: Option<Record>, event: Event, by: WriteId) -> Record {
    let row = HistoryRow {
        revision: record.as_ref().map_or(1, |record| record.revision + 1),
        write_id: by,
        outcome_id: None,
        attempt: 0,
        recorded_at: NOW,
        event,
    };
    match evolve(&key(), record, &row) {
        Ok(record) => record,
        Err(error) => panic!("{error}"),
    }
}

/// The record after the machine of `command` met `record` and landed.
pub fn run(record: Option<Record>, command: Command) -> Record {
    let mut machine = Machine::new(command);
    machine.drawn = 0x2000 + record.as_ref().map_or(0, |record| u128::from(record.revision));
    machine.up_to_append(found(record)).next
}

/// RESERVED, from nothing.
pub fn reserved() -> Record {
    run(None, reserving())
}

/// EXECUTING, from nothing.
pub fn executing() -> Record {
    let record = reserved();
    let holder = holder(&record);
    run(Some(record), crate::ask::begin(holder))
}

pub fn holder(record: &Record) -> Holder {
    Holder { attempt: record.attempt, reservation_id: record.reservation_id }
}

/// A person says that it did not happen.
pub fn not_executed(looked_at: u64) -> Command {
    Command::Resolve(Resolve {
        decision: ProbeAnswer::NotExecuted,
        by: "oncall@bastion".to_owned(),
        reason: "the ledger has no line".to_owned(),
        looked_at,
    })
}

pub fn reserving() -> Command {
    Command::Reserve(reserve("label"))
}
