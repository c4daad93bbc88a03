//! What the machines of `plan` may not read by themselves, and what their driver asks of the machine
//! it runs on: a clock, a random source, children, a thread for a renewal, and pauses.
//!
//! [`Host`] is all of it in one place, so that the shipped loop also runs in a simulated world
//! (PRF-8). [`Here`] is the real one, and there is no other outside of the tests.
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use uuid::{Builder, Uuid};

use crate::exec::{Child, CommandLine, Delivery, NotStarted, Signals, Waited};
use crate::plan::effect::{OutcomeId, WriteId};
use crate::plan::protocol::Done;
use crate::plan::time::Moment;

/// A renewal's work, on a thread of its own.
pub type Work<'scope> = Box<dyn FnOnce() -> Done + Send + 'scope>;

/// What one process is given by the machine it runs on. Whatever is not overridden is the real one's.
pub trait Host: Sync {
    /// Now, on the clock that runs in suspend (EXE-8).
    fn now(&self) -> Moment {
        now()
    }

    /// Sixteen fresh bytes, marked as a random UUID.
    fn draw(&self) -> Uuid {
        draw()
    }

    /// Does nothing for so long.
    fn idle(&self, long: Duration) {
        std::thread::sleep(long);
    }

    /// Waits, unless a signal that ends a process comes: that one. Others stay for the child.
    fn pause(&self, long: Duration, signals: Option<&Signals>) -> Option<i32> {
        pause(long, signals)
    }

    /// A signal that ends a process and is not dealt with yet.
    fn told_to_end(&self, signals: Option<&Signals>) -> Option<i32> {
        signals.and_then(ending)
    }

    /// Starts a command.
    ///
    /// # Errors
    /// As [`Child::spawn`].
    fn spawn(
        &self,
        line: CommandLine,
        signals: Option<&Signals>,
    ) -> Result<Box<dyn Process>, NotStarted> {
        Ok(Box::new(Child::spawn(line, signals)?))
    }

    /// Runs `work` beside the caller.
    fn beside<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        work: Work<'scope>,
    ) -> ScopedJoinHandle<'scope, Done> {
        scope.spawn(work)
    }

    /// Waits for what runs beside.
    ///
    /// # Errors
    /// What it panicked with.
    fn join(&self, thread: ScopedJoinHandle<'_, Done>) -> std::thread::Result<Done> {
        thread.join()
    }
}

/// The machine that this process runs on.
#[derive(Debug, Clone, Copy)]
pub struct Here;

impl Host for Here {}

/// A command that was started. See [`Child`].
pub trait Process {
    /// As [`Child::wait`].
    fn wait(&mut self, until: Option<Duration>, wake: Option<BorrowedFd<'_>>) -> Waited;

    /// As [`Child::end_group`].
    fn end_group(&mut self);

    /// As [`Child::deliver_rest`].
    fn deliver_rest(&mut self) -> Delivery;
}

impl Process for Child {
    fn wait(&mut self, until: Option<Duration>, wake: Option<BorrowedFd<'_>>) -> Waited {
        self.wait(until, wake)
    }

    fn end_group(&mut self) {
        self.end_group();
    }

    fn deliver_rest(&mut self) -> Delivery {
        self.deliver_rest()
    }
}

/// Now, on the clock that runs in suspend (EXE-8).
#[must_use]
pub fn now() -> Moment {
    // CLOCK_BOOTTIME exists on every Linux that this runs on; were it refused, the monotonic clock
    // is the next best, and one of the two is always there.
    let read =
        clock_gettime(ClockId::CLOCK_BOOTTIME).or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC));
    let Ok(at) = read else {
        return Moment(u64::MAX);
    };
    Moment(u64::try_from(Duration::from(at).as_micros()).unwrap_or(u64::MAX))
}

/// Sixteen fresh bytes of the kernel's random source, marked as a random UUID.
///
/// # Panics
/// If the kernel gives no random bytes: without them no write could be told from another.
#[must_use]
pub fn draw() -> Uuid {
    let mut bytes = [0; 16];
    #[expect(clippy::expect_used, reason = "no identity can be drawn without the kernel's help")]
    getrandom::fill(&mut bytes).expect("the kernel's random source answers");
    Builder::from_random_bytes(bytes).into_uuid()
}

/// A fresh identity for one append.
#[must_use]
pub fn write_id() -> WriteId {
    WriteId(draw())
}

/// A fresh identity for what came of one child.
#[must_use]
pub fn outcome_id() -> OutcomeId {
    OutcomeId(draw())
}

/// A random length between nothing and `most`.
#[must_use]
pub fn up_to(most: Duration) -> Duration {
    drawn_up_to(draw(), most)
}

/// The length between nothing and `most` that a draw stands for.
pub(super) fn drawn_up_to(draw: Uuid, most: Duration) -> Duration {
    let (draw, _) = draw.as_u64_pair();
    let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(draw % micros.saturating_add(1))
}

/// Waits, unless a signal that ends a process comes: that one. Others stay for the child.
fn pause(long: Duration, signals: Option<&Signals>) -> Option<i32> {
    let until = now().plus(long);
    loop {
        if let Some(signal) = signals.and_then(ending) {
            return Some(signal);
        }
        let left = until.from_now(now());
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
