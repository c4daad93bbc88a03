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
    /// Places that are taken: children that run, or are about to.
    taken: usize,
    /// Begun for a place that is to fall free; the first comes first.
    begun: VecDeque<Waiter>,
    /// Turns that are taken: effects that begin, have begun, or run.
    turns: usize,
    /// For a turn to begin; the first comes first.
    waiters: VecDeque<Waiter>,
    /// Let in, and neither with a turn nor ended nor waiting behind their key.
    on_the_way: usize,
    /// Behind a key that is at work.
    behind: usize,
    /// Ended, and not looked at.
    told: usize,
    let_in: u64,
    pace: Pace,
    stop: Stop,
}

impl State {
    fn has_turn(&self) -> bool {
        self.turns < self.places + self.pace.begun_ahead()
    }
}

/// Who goes on, now that somebody is through.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Has begun, and has a place now.
    pub place: Option<Waiter>,
    /// May begin.
    pub turns: Vec<Waiter>,
}

impl Gate {
    /// With so many places.
    #[must_use]
    pub fn new(places: usize) -> Self {
        let places = places.max(1);
        let state = State {
            places,
            taken: 0,
            begun: VecDeque::new(),
            turns: 0,
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
            let room = state.places.saturating_sub(state.turns) + state.pace.ahead();
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

    /// A turn to begin, or a place in the queue for one: then it is told later.
    #[must_use]
    pub fn take_turn(&self, waiter: Waiter) -> bool {
        let mut state = self.state();
        if state.has_turn() && state.waiters.is_empty() {
            state.turns += 1;
            state.on_the_way = state.on_the_way.saturating_sub(1);
            return true;
        }
        state.waiters.push_back(waiter);
        false
    }

    /// A place for the child of one that has begun, or a place in the queue for one.
    #[must_use]
    pub fn take_place(&self, waiter: Waiter) -> bool {
        let mut state = self.state();
        if state.taken < state.places && state.begun.is_empty() {
            state.taken += 1;
            return true;
        }
        state.begun.push_back(waiter);
        false
    }

    /// Leaves the queues; false if what it waited for was given to it meanwhile.
    #[must_use]
    pub fn leave_queue(&self, waiter: Waiter) -> bool {
        let mut state = self.state();
        let State { waiters, begun, .. } = &mut *state;
        [waiters, begun].into_iter().any(|queue| {
            let at = queue.iter().position(|other| *other == waiter);
            at.is_some_and(|at| queue.remove(at).is_some())
        })
    }

    /// Gives a turn back, and the place if there was one, after a child that ran so long, if one did;
    /// whose they are now.
    #[must_use]
    pub fn give_back(&self, had_place: bool, ran: Option<Duration>) -> Given {
        let mut state = self.state();
        if let Some(ran) = ran {
            state.pace.ended(ran);
        }
        state.turns = state.turns.saturating_sub(1);
        let mut given = Given::default();
        if had_place {
            given.place = state.begun.pop_front();
            state.taken -= usize::from(given.place.is_none()).min(state.taken);
        }
        // More than one, where the children have become quicker.
        while state.has_turn()
            && let Some(waiter) = state.waiters.pop_front()
        {
            state.turns += 1;
            state.on_the_way = state.on_the_way.saturating_sub(1);
            given.turns.push(waiter);
        }
        self.moved.notify_all();
        given
    }

    /// One that had a turn, and gave it back, is on its way again.
    pub fn sets_out_again(&self) {
        self.state().on_the_way += 1;
    }

    /// One has ended, and will be looked at. `had_turn`: it has had one, and gave it back.
    pub fn ended(&self, had_turn: bool) {
        let mut state = self.state();
        if !had_turn {
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
        let slow = Some(Duration::from_secs(9));
        assert!(gate.take_turn(waiter(1)) && gate.take_turn(waiter(2)));
        assert!(gate.take_place(waiter(1)) && gate.take_place(waiter(2)));
        assert!(!gate.take_turn(waiter(3)) && !gate.take_turn(waiter(4)));
        let given = gate.give_back(true, slow);
        assert_eq!((given.place, given.turns.as_slice()), (None, &[waiter(3)][..]));
        assert!(!gate.leave_queue(waiter(3)), "it has a turn");
        assert!(gate.take_place(waiter(3)));
        assert!(gate.leave_queue(waiter(4)));
        assert_eq!(gate.give_back(true, slow), Given::default());
        assert!(gate.take_turn(waiter(5)));
        assert!(!gate.take_turn(waiter(6)));
    }

    #[test]
    fn of_very_quick_children_some_begin_ahead_and_none_of_them_runs() {
        // BAT-9, BAT-10
        let gate = Gate::new(2);
        let quick = Some(Duration::from_millis(1));
        for lane in [1, 2] {
            assert!(gate.take_turn(waiter(lane)) && gate.take_place(waiter(lane)));
        }
        assert!(
            !gate.take_turn(waiter(3)) && !gate.take_turn(waiter(4)) && !gate.take_turn(waiter(5))
        );
        let given = gate.give_back(true, quick);
        assert_eq!((given.place, given.turns.len()), (None, 3));
        assert!(gate.take_place(waiter(3)));
        assert!(!gate.take_place(waiter(4)) && !gate.take_place(waiter(5)));
        let given = gate.give_back(true, quick);
        assert_eq!((given.place, given.turns.len()), (Some(waiter(4)), 0));
        assert!(gate.leave_queue(waiter(5)));
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
