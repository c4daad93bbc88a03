//! Turns to begin and places for children: taken, waited for, given back (BAT-9, BAT-10).
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

use super::{Message, Shard};
use crate::drive::batch::gate::{Stop, Waiter};
use crate::drive::batch::lane::{GivenBack, Lane, Turn};
use crate::drive::batch::{Event, Item};
use crate::drive::host;
use crate::plan::attempt::{Attempt, Came};
use crate::plan::effect::Holder;
use crate::plan::time::Moment;

/// How long what is reserved or begun waits before it is given back.
const PATIENCE: Duration = Duration::from_secs(10);

impl Shard<'_> {
    /// Reserved: it begins if there is a place, or waits for one (BAT-9, BAT-10).
    pub(super) fn granted(&mut self, number: u64, now: Moment) -> Option<Came> {
        let waiter = Waiter { shard: self.number, lane: number };
        let lane = self.lanes.get_mut(&number)?;
        if self.gate.stopped() != Stop::No {
            return Some(release(lane, GivenBack::Stopped));
        }
        if lane.turn == Turn::Has || self.gate.take_turn(waiter) {
            lane.turn = Turn::Has;
            return Some(Came::Begin);
        }
        lane.turn = Turn::Waits;
        self.is_patient(number, now);
        None
    }

    /// What it has is given back if it waits for too long.
    pub(super) fn is_patient(&mut self, number: u64, now: Moment) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let until = now.plus(PATIENCE.min(lane.item.lease / 3));
        lane.gives_back = Some(until);
        self.alarms.push(Reverse((until, number)));
    }

    /// Begun: its child is started if there is a place, or waits for one.
    pub(super) fn wants_place(
        &mut self,
        number: u64,
        start: (Holder, u64, Moment),
        now: Moment,
    ) -> Option<Came> {
        let lane = self.lanes.get_mut(&number)?;
        if self.gate.stopped() != Stop::No {
            return Some(not_started(lane, GivenBack::Stopped));
        }
        if self.gate.take_place(Waiter { shard: self.number, lane: number }) {
            lane.turn = Turn::HasPlace;
            return self.start_child(number, start);
        }
        lane.turn = Turn::WaitsForPlace;
        lane.starts = Some(start);
        self.is_patient(number, now);
        None
    }

    pub(super) fn has_place(&mut self, number: u64) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.turn = Turn::HasPlace;
        lane.gives_back = None;
        let Some(start) = lane.starts.take() else { return };
        let came = match self.gate.stopped() {
            Stop::No => self.start_child(number, start),
            Stop::Drain | Stop::End => Some(not_started(lane, GivenBack::Stopped)),
        };
        if let Some(came) = came {
            self.drive(number, came);
        }
    }

    pub(super) fn has_turn(&mut self, number: u64) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.turn = Turn::Has;
        lane.gives_back = None;
        match lane.attempt {
            Some(_) if self.gate.stopped() != Stop::No => {
                let came = release(lane, GivenBack::Stopped);
                self.drive(number, came);
            }
            Some(_) => self.drive(number, Came::Begin),
            // It was given back for want of a place, and is begun anew with one.
            None => {
                lane.attempt = Some(Attempt::gated(lane.order(self.settings), host::now()));
                self.drive(number, Came::Call);
            }
        }
    }

    /// Whatever turn and place it has are others' now.
    pub(super) fn frees_place(&mut self, number: u64, ran: Option<Duration>) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let had_place = match lane.turn {
            Turn::Has => false,
            Turn::HasPlace => true,
            Turn::None | Turn::Waits | Turn::WaitsForPlace | Turn::Had => return,
        };
        lane.turn = Turn::Had;
        let given = self.gate.give_back(had_place, ran);
        let tell = |waiter: Waiter, message: Message| {
            if let Some(mailbox) = self.post.get(waiter.shard) {
                drop(mailbox.push(message));
            }
        };
        // A child first: it is what all the others wait for.
        given.place.into_iter().for_each(|waiter| tell(waiter, Message::Place(waiter.lane)));
        given.turns.into_iter().for_each(|waiter| tell(waiter, Message::Turn(waiter.lane)));
    }

    pub(super) fn give_back(&mut self, number: u64, why: GivenBack) {
        let waiter = Waiter { shard: self.number, lane: number };
        if !self.gate.leave_queue(waiter) {
            // A place is on its way.
            return;
        }
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let came = match (lane.turn, &lane.attempt) {
            (Turn::WaitsForPlace, _) => {
                // The turn is still its own, until it is over.
                (lane.turn, lane.starts) = (Turn::Has, None);
                not_started(lane, why)
            }
            (_, Some(_)) => {
                lane.turn = Turn::None;
                release(lane, why)
            }
            (_, None) => return self.not_started(number),
        };
        self.drive(number, came);
    }

    /// The batch stops: whoever waits for a place does not get one, and whoever waits behind a key does
    /// not get a turn (BAT-15).
    pub(super) fn stop(&mut self) {
        let numbers: Vec<u64> = self.lanes.keys().copied().collect();
        for number in numbers {
            let Some(lane) = self.lanes.get_mut(&number) else { continue };
            let behind = std::mem::take(&mut lane.behind);
            let waits = matches!(lane.turn, Turn::Waits | Turn::WaitsForPlace);
            self.leave_behind(&behind);
            if waits {
                self.give_back(number, GivenBack::Stopped);
            }
        }
    }

    pub(super) fn leave_behind(&self, behind: &VecDeque<Item>) {
        for _ in behind {
            self.gate.comes_forth(true);
            let _ = self.tell.send(Event::NotStarted);
        }
    }

    /// A lane that has nothing reserved ends without a word of the store.
    pub(super) fn not_started(&mut self, number: u64) {
        let Some(lane) = self.lanes.remove(&number) else { return };
        self.keys.remove(&lane.item.key);
        self.gate.ended(false);
        let _ = self.tell.send(Event::NotStarted);
        self.leave_behind(&lane.behind);
    }

    /// Its reservation was given back for want of a place. It queues for one with nothing reserved.
    pub(super) fn begin_anew(&mut self, number: u64, lane: Lane) {
        let waiter = Waiter { shard: self.number, lane: number };
        if lane.turn == Turn::Had {
            self.gate.sets_out_again();
        }
        let mut lane = Lane::new(lane.item, lane.behind);
        lane.turn = Turn::Waits;
        self.lanes.insert(number, lane);
        if self.gate.take_turn(waiter) {
            self.has_turn(number);
        }
    }
}

fn release(lane: &mut Lane, why: GivenBack) -> Came {
    lane.given_back = Some(why);
    Came::Release { detail: why.detail().to_owned() }
}

/// The same of one that has begun.
fn not_started(lane: &mut Lane, why: GivenBack) -> Came {
    lane.given_back = Some(why);
    Came::NotStarted { detail: why.detail().to_owned() }
}

impl GivenBack {
    fn detail(self) -> &'static str {
        match self {
            Self::NoPlace => "not started: no place for it fell free for long",
            Self::Stopped => "not started: the batch was told to stop",
        }
    }
}
