//! Where a thread's messages wait for it.
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

/// A queue with a door: once it is closed nothing more comes in, and what is in it is still taken.
pub struct Mailbox<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    /// Readable when there is something to be taken, for a thread that waits for other things too.
    wake: Option<OwnedFd>,
}

struct State<T> {
    /// Taken before the others.
    first: VecDeque<T>,
    others: VecDeque<T>,
    is_closed: bool,
}

/// What a look into a mailbox found.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<T> {
    /// All that was in it, or as many as were wanted.
    Some(Vec<T>),
    /// Nothing, for as long as was waited.
    Nothing,
    /// Nothing, and nothing will come any more.
    Closed,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Mailbox<T> {
    /// An empty one, open.
    #[must_use]
    pub fn new() -> Self {
        let state = State { first: VecDeque::new(), others: VecDeque::new(), is_closed: false };
        Self { state: Mutex::new(state), filled: Condvar::new(), wake: None }
    }

    /// The same, with a descriptor that is readable when something is in it: see [`Mailbox::calm`].
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn with_wake() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { wake: Some(wake), ..Self::new() })
    }

    /// The descriptor of [`Mailbox::with_wake`].
    #[must_use]
    pub fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(AsFd::as_fd)
    }

    /// Makes the descriptor wait for the next message; to be called before a look into the mailbox.
    pub fn calm(&self) {
        if let Some(wake) = &self.wake {
            let _ = rustix::io::read(wake, &mut [0_u8; 8]);
        }
    }

    fn stir(&self) {
        match &self.wake {
            // It fails only where the counter is full, and then it is readable.
            Some(wake) => drop(rustix::io::write(wake, &1_u64.to_ne_bytes())),
            None => self.filled.notify_all(),
        }
    }

    /// Puts a message in; gives it back if the door is closed.
    pub fn push(&self, message: T) -> Option<T> {
        self.put(message, false)
    }

    /// The same, before everything that was put in plainly.
    pub fn push_first(&self, message: T) -> Option<T> {
        self.put(message, true)
    }

    fn put(&self, message: T, first: bool) -> Option<T> {
        let mut state = self.state();
        if state.is_closed {
            return Some(message);
        }
        // Whoever takes takes all: only the first message finds somebody asleep.
        let was_empty = state.first.is_empty() && state.others.is_empty();
        let queue = if first { &mut state.first } else { &mut state.others };
        queue.push_back(message);
        drop(state);
        if was_empty {
            self.stir();
        }
        None
    }

    /// Closes the door.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.stir();
    }

    /// At most `most` messages, waited for until `wait` has passed; `None`: for as long as it takes.
    pub fn take(&self, most: usize, wait: Option<Duration>) -> Taken<T> {
        let empty = |state: &mut State<T>| {
            state.first.is_empty() && state.others.is_empty() && !state.is_closed
        };
        let state = self.state();
        let mut state = match wait {
            None => self.filled.wait_while(state, empty).unwrap_or_else(PoisonError::into_inner),
            Some(Duration::ZERO) => state,
            Some(wait) => {
                let waited = self.filled.wait_timeout_while(state, wait, empty);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(message) = state.first.pop_front().or_else(|| state.others.pop_front())
        {
            taken.push(message);
        }
        match (taken.is_empty(), state.is_closed) {
            (false, _) => Taken::Some(taken),
            (true, true) => Taken::Closed,
            (true, false) => Taken::Nothing,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // No code of others runs under the lock, so a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_first_goes_first_and_each_kind_in_order() {
        // BAT-5
        let mailbox = Mailbox::new();
        for (message, first) in [(1, false), (2, true), (3, false), (4, true)] {
            assert_eq!(mailbox.put(message, first), None);
        }
        assert_eq!(mailbox.take(3, None), Taken::Some(vec![2, 4, 1]));
        assert_eq!(mailbox.take(3, None), Taken::Some(vec![3]));
        assert_eq!(mailbox.take(3, Some(Duration::ZERO)), Taken::Nothing);
    }

    #[test]
    fn a_closed_door_lets_nothing_in_and_everything_out() {
        let mailbox = Mailbox::new();
        assert_eq!(mailbox.push(1), None);
        mailbox.close();
        assert_eq!(mailbox.push(2), Some(2));
        assert_eq!(mailbox.take(9, None), Taken::Some(vec![1]));
        assert_eq!(mailbox.take(9, None), Taken::Closed);
    }
}
