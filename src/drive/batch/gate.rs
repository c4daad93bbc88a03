//! Who may go on: the places for children, the lines that are let in, and whether the batch stops.
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::plan::pace::Pace;

/// The most lines that wait behind a key that is at work (BAT-12).
pub const WAITING_MAX: usize = 4_096;

/// The most effects whose end was told and not looked at yet: whoever looks may be slow, and memory is
/// not to grow with that (BAT-13).
const TOLD_MAX: usize = 1_024;

/// Whether it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// It does.
    No,
    /// Nothing more is begun; what runs is waited for.
    Drain,
    /// What runs is ended too.
    End,
}

/// Who waits for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    /// The shard it belongs to.
    pub shard: usize,
    /// Its lane there.
    pub lane: u64,
}

/// What all threads of a batch share. Every number in it is small, and none is looked at for long.
pub struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    places: usize,
    /// Places that are taken.
    taken: usize,
    /// For a place; the first comes first.
    waiters: VecDeque<Waiter>,
    /// Let in, and neither with a place nor ended nor waiting behind their key.
    on_the_way: usize,
    /// Behind a key that is at work.
    behind: usize,
    /// Ended, and not looked at.
    told: usize,
    let_in: u64,
    pace: Pace,
    stop: Stop,
}

impl Gate {
    /// With so many places.
    #[must_use]
    pub fn new(places: usize) -> Self {
        let places = places.max(1);
        let state = State {
            places,
            taken: 0,
            waiters: VecDeque::new(),
            on_the_way: 0,
            behind: 0,
            told: 0,
            let_in: 0,
            pace: Pace::new(places),
            stop: Stop::No,
        };
        Self { state: Mutex::new(state), moved: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more line may be let in; false if there is to be none.
    #[must_use]
    pub fn let_in(&self) -> bool {
        let mut state = self.state();
        loop {
            if state.stop != Stop::No {
                return false;
            }
            let room = state.places.saturating_sub(state.taken) + state.pace.ahead();
            if state.on_the_way < room && state.behind < WAITING_MAX && state.told < TOLD_MAX {
                state.on_the_way += 1;
                state.let_in += 1;
                return true;
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// How many were let in. Once it stops there will be no more.
    #[must_use]
    pub fn let_in_so_far(&self) -> u64 {
        self.state().let_in
    }

    /// One that was let in waits behind its key.
    pub fn goes_behind(&self) {
        let mut state = self.state();
        state.on_the_way = state.on_the_way.saturating_sub(1);
        state.behind += 1;
        self.moved.notify_all();
    }

    /// One that waited behind its key has its turn, or, with `ends`, will not have it.
    pub fn comes_forth(&self, ends: bool) {
        let mut state = self.state();
        state.behind = state.behind.saturating_sub(1);
        if ends {
            state.told += 1;
        } else {
            state.on_the_way += 1;
        }
        self.moved.notify_all();
    }

    /// A place for a child, or a place in the queue for one: then it is told later.
    #[must_use]
    pub fn take_place(&self, waiter: Waiter) -> bool {
        let mut state = self.state();
        if state.taken < state.places && state.waiters.is_empty() {
            state.taken += 1;
            state.on_the_way = state.on_the_way.saturating_sub(1);
            return true;
        }
        state.waiters.push_back(waiter);
        false
    }

    /// Leaves the queue; false if its place was given to it meanwhile.
    #[must_use]
    pub fn leave_queue(&self, waiter: Waiter) -> bool {
        let mut state = self.state();
        let at = state.waiters.iter().position(|other| *other == waiter);
        at.is_some_and(|at| state.waiters.remove(at).is_some())
    }

    /// Gives a place back, after a child that ran so long, if there was one; whose it is now.
    #[must_use]
    pub fn give_place(&self, ran: Option<Duration>) -> Option<Waiter> {
        let mut state = self.state();
        if let Some(ran) = ran {
            state.pace.ended(ran);
        }
        let next = state.waiters.pop_front();
        match next {
            Some(_) => state.on_the_way = state.on_the_way.saturating_sub(1),
            None => state.taken = state.taken.saturating_sub(1),
        }
        self.moved.notify_all();
        next
    }

    /// One has ended, and will be looked at. `had_place`: it has had one, and gave it back.
    pub fn ended(&self, had_place: bool) {
        let mut state = self.state();
        if !had_place {
            state.on_the_way = state.on_the_way.saturating_sub(1);
        }
        state.told += 1;
        self.moved.notify_all();
    }

    /// One that ended was looked at.
    pub fn looked_at(&self) {
        let mut state = self.state();
        state.told = state.told.saturating_sub(1);
        self.moved.notify_all();
    }

    /// Stops, at least so far.
    pub fn stop(&self, stop: Stop) {
        let mut state = self.state();
        state.stop = state.stop.max(stop);
        self.moved.notify_all();
    }

    /// Whether it goes on.
    #[must_use]
    pub fn stopped(&self) -> Stop {
        self.state().stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(lane: u64) -> Waiter {
        Waiter { shard: 0, lane }
    }

    #[test]
    fn no_more_children_than_places_and_the_first_who_waits_is_next() {
        // BAT-9
        let gate = Gate::new(2);
        assert!(gate.take_place(waiter(1)) && gate.take_place(waiter(2)));
        assert!(!gate.take_place(waiter(3)) && !gate.take_place(waiter(4)));
        assert_eq!(gate.give_place(None), Some(waiter(3)));
        assert!(!gate.leave_queue(waiter(3)), "it has a place");
        assert!(gate.leave_queue(waiter(4)));
        assert_eq!(gate.give_place(None), None);
        assert!(gate.take_place(waiter(5)));
        assert!(!gate.take_place(waiter(6)));
    }

    #[test]
    fn nobody_is_let_in_once_it_stops() {
        // BAT-15
        let gate = Gate::new(1);
        assert!(gate.let_in());
        gate.stop(Stop::End);
        gate.stop(Stop::Drain);
        assert!(!gate.let_in());
        assert_eq!(gate.stopped(), Stop::End);
    }
}
