//! Performs the steps of one command to one effect on a real store (CMT-1).
use std::time::Duration;

use super::host::{Here, Host, drawn_up_to};
use crate::plan::effect::{Command, WriteId};
use crate::plan::expect::StreamState;
use crate::plan::key::Key;
use crate::plan::protocol::{Done, Handle, Input, Kept, Step};
use crate::plan::retry::Budget;
use crate::store::Store;

/// The most tries of one command, whatever time is left: more than any honest race needs.
const TRIES_MAX: u32 = 1_000;

/// A command to one effect, and what it is held to.
#[derive(Debug)]
pub struct Call {
    /// The effect.
    pub key: Key,
    /// The command.
    pub command: Command,
    /// The stream state that it is held to.
    pub expect: StreamState,
    /// How long it may take in all.
    pub within: Duration,
    /// How long one exchange with the store may take.
    pub exchange_max: Duration,
    /// Outputs to be written with it.
    pub outputs: Vec<Kept>,
}

impl Call {
    /// The machine of this call, with its one budget counted from `host`'s now.
    #[must_use]
    pub fn machine(self, host: &dyn Host) -> Handle {
        let budget = Budget::new(TRIES_MAX, host.now().plus(self.within), self.exchange_max);
        Handle::new(self.key, self.command, self.expect, budget).with_outputs(self.outputs)
    }
}

/// Performs `call` on `store` to its end.
pub fn handle(store: &dyn Store, call: Call) -> Done {
    handle_on(&Here, store, call)
}

/// As [`handle`], on `host`.
pub fn handle_on(host: &dyn Host, store: &dyn Store, call: Call) -> Done {
    drive(host, store, &mut call.machine(host))
}

/// Performs the steps of `machine` on `store` to its end.
pub fn drive(host: &dyn Host, store: &dyn Store, machine: &mut Handle) -> Done {
    let mut input = Input::Start;
    loop {
        let step = machine.step(input, host.now());
        match perform(host, store, machine.key(), step) {
            Performed::Answer(answer) => input = *answer,
            Performed::Over(done) => return done,
        }
    }
}

/// What came of a step.
#[derive(Debug)]
pub enum Performed {
    /// The answer that the machine waits for.
    Answer(Box<Input>),
    /// It was the last.
    Over(Done),
}

/// Performs one step of a machine on `key`.
pub fn perform(host: &dyn Host, store: &dyn Store, key: &Key, step: Step) -> Performed {
    Performed::Answer(Box::new(match step {
        Step::Load { ask, within } => {
            Input::Loaded(store.load(key, ask, within), WriteId(host.draw()))
        }
        Step::Draw => Input::Drawn(WriteId(host.draw())),
        Step::Append { append, within } => Input::Ended(store.append(&append, within)),
        Step::Reread { ask, within } => Input::Reread(store.reread(key, ask, within)),
        Step::Pause(most) => {
            host.idle(drawn_up_to(host.draw(), most));
            Input::Paused
        }
        Step::Done(done) => return Performed::Over(done),
    }))
}
