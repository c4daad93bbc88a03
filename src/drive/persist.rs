//! One effect, as persistently as the caller wants: waits for another attempt, runs again after
//! FAILED (EXE-21, EXE-22). [`Again`] decides; this waits, and looks for signals meanwhile.
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::host;
use super::run::{Command, Ran, Tools, attempt};
use crate::exec::Signals;
use crate::plan::again::{Again, Next};
use crate::plan::attempt::Order;
use crate::plan::expect::StreamState;
use std::os::fd::AsFd;

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
        let pause = match again.next(&ran.report, host::now()) {
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
        if let Some(signal) = pause_for(pause, tools.signals) {
            return Persisted::Interrupted(Box::new(ran), signal);
        }
    }
}

/// Waits, unless a signal that ends a process comes: that one. Others stay for the child.
fn pause_for(pause: Duration, signals: Option<&Signals>) -> Option<i32> {
    let until = host::now().plus(pause);
    loop {
        if let Some(signal) = signals.and_then(ending) {
            return Some(signal);
        }
        let left = until.from_now(host::now());
        if left.is_zero() {
            return None;
        }
        // Rounded up: a wait that ends too early would spin for the last millisecond.
        let left = left.saturating_add(Duration::from_micros(999));
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds: Vec<PollFd<'_>> =
            signals.iter().map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN)).collect();
        // An interrupted poll is only a reason to look again.
        let _ = poll(&mut fds, left);
    }
}

/// A signal that ends a process and is not dealt with yet.
pub(super) fn ending(signals: &Signals) -> Option<i32> {
    const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
    let pending = signals.pending();
    pending.into_iter().find(|number| ENDING.iter().any(|signal| *signal as i32 == *number))
}
