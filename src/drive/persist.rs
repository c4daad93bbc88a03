//! One effect, as persistently as the caller wants: waits for another attempt, runs again after
//! FAILED (EXE-21, EXE-22). [`Again`] decides; this waits, and looks for signals meanwhile.
use std::time::Duration;

use super::run::{Command, Ran, Tools, attempt};
use crate::plan::again::{Again, Next};
use crate::plan::attempt::Order;
use crate::plan::expect::StreamState;

/// What is told between two attempts.
#[derive(Debug)]
pub enum Between<'a> {
    /// Another attempt holds the key: this process waits for it. Told once.
    Waiting(&'a Ran),
    /// It did not happen: once more after this long.
    Retrying(&'a Ran, Duration),
}

/// How it ended.
#[derive(Debug)]
pub enum Persisted {
    /// By itself.
    Ended(Box<Ran>),
    /// By this signal, while nothing ran: the last attempt's report stands.
    Interrupted(Box<Ran>, i32),
}

/// Performs attempts until `again` says to stop. `order` makes the order of each, held to the stream
/// state it is given.
pub fn persist(
    expect: StreamState,
    order: &mut dyn FnMut(StreamState) -> Order,
    command: &Command,
    tools: Tools<'_>,
    again: &mut Again,
    tell: &mut dyn FnMut(Between<'_>),
) -> Persisted {
    let mut expect = expect;
    let mut told_waiting = false;
    loop {
        let ran = attempt(order(expect), command, tools);
        let pause = match again.next(&ran.report, tools.host.now()) {
            Next::Stop => return Persisted::Ended(Box::new(ran)),
            Next::LookAgain(pause) => {
                if !std::mem::replace(&mut told_waiting, true) {
                    tell(Between::Waiting(&ran));
                }
                pause
            }
            Next::Retry { after, expect: ours } => {
                tell(Between::Retrying(&ran, after));
                expect = ours;
                after
            }
        };
        if let Some(signal) = tools.host.pause(pause, tools.signals) {
            return Persisted::Interrupted(Box::new(ran), signal);
        }
    }
}
