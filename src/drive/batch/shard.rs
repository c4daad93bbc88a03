//! The thread that steps the effects of its keys (BAT-7): it does what their machines say, and never
//! waits for one of them.
mod turns;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender as Telling;
use std::time::Duration;

use super::gate::{Gate, Stop};
use super::lane::{GivenBack, Lane, Turn};
use super::nursery::Nursery;
use super::{Ended, Event, Item, Settings};
use crate::drive::bus::mailbox::{Mailbox, Taken};
use crate::drive::bus::{Ask, Sender};
use crate::drive::host;
use crate::drive::journal::Journal;
use crate::drive::run::{self, Ran};
use crate::drive::spool::Spool;
use crate::exec::{ChildEnd, NotStarted, OutcomeFile};
use crate::plan::attempt::{Attempt, Came, Do, Order, Outcome, Report};
use crate::plan::effect::{Holder, State};
use crate::plan::key::Key;
use crate::plan::protocol::{Done, End, Input, Known, Step};
use crate::plan::time::Moment;
use crate::store::Identity;
use crate::store::stop::{self, Point};

/// Said of a child that we ended.
const ENDED: &str = "ctrlrun ended it: its batch was told to stop, or its record was another's";

/// What a shard is told.
pub enum Message {
    /// A line of one of its keys.
    Item(Box<Item>),
    /// The store's answer to a lane, or to its renewal.
    Answer {
        /// The lane.
        lane: u64,
        /// Whether it is the renewal's.
        renewal: bool,
        /// The answer.
        input: Box<Input>,
    },
    /// A lane may begin.
    Turn(u64),
    /// A place for the child of a lane that has begun.
    Place(u64),
    /// The batch stops, so far.
    Stop(Stop),
}

/// What becomes of a child.
pub enum OfChild {
    /// It runs.
    Started,
    /// Its lease was over.
    TooLate,
    /// It could not be started: nothing ran.
    NotStarted {
        /// One line for a person.
        detail: String,
        /// Why, where the system said so.
        why: Option<NotStarted>,
    },
    /// It has ended.
    Ended(Box<ChildEnd>),
}

/// What a shard works with.
pub struct Shard<'a> {
    /// Its number.
    pub number: usize,
    /// Its messages.
    pub mailbox: Arc<Mailbox<Message>>,
    /// All shards' messages: a place may fall to a lane of another.
    pub post: Arc<[Arc<Mailbox<Message>>]>,
    /// The store.
    pub bus: Sender,
    /// Whether it is a scratch store.
    pub scratch: bool,
    /// Which store it is.
    pub identity: Identity,
    /// Outcomes that it cannot take.
    pub spool: Option<&'a Spool>,
    /// The journal.
    pub journal: Option<&'a Journal>,
    /// Who may go on.
    pub gate: &'a Gate,
    /// The children.
    pub nursery: Box<dyn Nursery>,
    /// How effects are run.
    pub settings: &'a Settings,
    /// Who is told what came of them.
    pub tell: Telling<Event>,
    /// The effects at work.
    pub lanes: HashMap<u64, Lane>,
    /// By their keys.
    pub keys: HashMap<Key, u64>,
    /// Moments at which to look at a lane.
    pub alarms: BinaryHeap<Reverse<(Moment, u64)>>,
    /// Numbers of lanes that were given out, in steps of the number of shards.
    pub next_lane: u64,
    /// What the last look at a key has told of the next one, where it found nothing: in a batch that
    /// is run for the first time no key is there (CMT-16).
    pub guess: Option<Known>,
}

impl Shard<'_> {
    /// Works until the mailbox is closed.
    pub fn run(mut self) {
        let mailbox = Arc::clone(&self.mailbox);
        loop {
            let now = host::now();
            let wait = self.alarms.peek().map(|Reverse((at, _))| at.from_now(now));
            if let Some(wake) = mailbox.wake() {
                for (lane, end) in self.nursery.wait(wait, wake) {
                    self.child(lane, OfChild::Ended(end));
                }
            }
            mailbox.calm();
            match mailbox.take(usize::MAX, Some(Duration::ZERO)) {
                Taken::Some(messages) => messages.into_iter().for_each(|what| self.take(what)),
                Taken::Nothing => {}
                Taken::Closed => return,
            }
            self.ring(host::now());
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Item(item) => self.item(*item),
            Message::Answer { lane, renewal: false, input } => self.answered(lane, *input),
            Message::Answer { lane, renewal: true, input } => self.renew(lane, *input),
            Message::Turn(lane) => self.has_turn(lane),
            Message::Place(lane) => self.has_place(lane),
            Message::Stop(stop) => {
                if stop == Stop::End {
                    self.nursery.end_all();
                }
                self.stop();
            }
        }
    }

    /// A line: it starts, or waits behind its key (BAT-12).
    fn item(&mut self, item: Item) {
        if let Some(lane) = self.keys.get(&item.key).and_then(|lane| self.lanes.get_mut(lane)) {
            lane.behind.push_back(item);
            self.gate.goes_behind();
            return;
        }
        if self.gate.stopped() != Stop::No {
            self.gate.ended(false);
            let _ = self.tell.send(Event::NotStarted);
            return;
        }
        self.start(Lane::new(item, VecDeque::new()));
    }

    fn start(&mut self, mut lane: Lane) {
        let number = self.next_lane;
        self.next_lane += self.post.len() as u64;
        let order = Order { guess: self.guess.clone(), ..lane.order(self.settings) };
        lane.attempt = Some(Attempt::gated(order, host::now()));
        self.keys.insert(lane.item.key.clone(), number);
        self.lanes.insert(number, lane);
        self.drive(number, Came::Call);
    }

    /// Steps the machine of a lane until it waits for something.
    fn drive(&mut self, number: u64, came: Came) {
        let mut came = came;
        loop {
            let now = host::now();
            let Some(lane) = self.lanes.get_mut(&number) else { return };
            let Some(attempt) = lane.attempt.as_mut() else { return };
            let next = match attempt.step(came, now) {
                Do::Store(step) => self.store(number, step, now),
                Do::Granted => self.granted(number, now),
                Do::Start { holder, proven_failures, not_after } => {
                    self.wants_place(number, (holder, proven_failures, not_after), now)
                }
                Do::Watch { until } => {
                    let ended = lane.ended.take_if(|_| lane.renewal.is_none());
                    if ended.is_none() {
                        lane.watches = Some(until);
                        self.alarms.push(Reverse((until, number)));
                    }
                    ended
                }
                Do::Renew(write) => {
                    lane.renewal = Some(*write);
                    self.renew(number, Input::Start);
                    Some(Came::UnderWay)
                }
                Do::EndChild => {
                    self.nursery.end(number);
                    Some(Came::UnderWay)
                }
                Do::Spool(undelivered) => {
                    let kept = match self.spool {
                        Some(spool) => spool.keep(&undelivered).map_err(|error| error.to_string()),
                        None => Err("no spool directory can be written".to_owned()),
                    };
                    lane.is_kept = kept.is_ok();
                    Some(Came::Spooled(kept))
                }
                Do::Unspool(outcome_id) => {
                    if let Some(spool) = self.spool {
                        spool.discard(outcome_id);
                    }
                    Some(Came::Unspooled)
                }
                Do::Over(report) => {
                    self.over(number, *report);
                    None
                }
            };
            match next {
                Some(next) => came = next,
                None => return,
            }
        }
    }

    /// One step of a conditional write; an answer only where none has to be waited for.
    fn store(&mut self, number: u64, step: Step, now: Moment) -> Option<Came> {
        let lane = self.lanes.get_mut(&number)?;
        let (ask, within) = match step {
            Step::Load { ask, within } => {
                lane.asked = now;
                (Ask::Load(ask), within)
            }
            Step::Draw => return Some(Came::Store(Box::new(Input::Drawn(host::write_id())))),
            Step::Append { append, within } => {
                if let Some(before) = run::stops_before(&append) {
                    stop::here(before, self.scratch);
                }
                lane.reserves = matches!(append.next.state, State::Reserved { .. });
                (Ask::Append(append), within)
            }
            Step::Reread { ask, within } => (Ask::Reread(ask), within),
            // With the outcome in the spool nobody has to wait for the store longer than they want to.
            Step::Pause(_)
                if lane.is_kept && lane.end.is_some() && self.gate.stopped() != Stop::No =>
            {
                return Some(Came::GiveUp);
            }
            Step::Pause(most) => {
                let until = now.plus(host::up_to(most));
                lane.pause = Some(until);
                self.alarms.push(Reverse((until, number)));
                return None;
            }
            // The attempt never hands out the last step of a write.
            Step::Done(_) => return Some(Came::Store(Box::new(Input::Paused))),
        };
        let key = lane.item.key.clone();
        self.ask(number, &key, ask, within, false);
        None
    }

    fn ask(&self, lane: u64, key: &Key, ask: Ask, within: Duration, renewal: bool) {
        let mailbox = Arc::clone(&self.mailbox);
        let reply = Box::new(move |input| {
            drop(mailbox.push(Message::Answer { lane, renewal, input: Box::new(input) }));
        });
        self.bus.ask(key, ask, within, renewal, reply);
    }

    fn answered(&mut self, number: u64, input: Input) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        if let Input::Loaded(Ok(found), _) = &input {
            let absent = || Known::absent(found.attempt_floor, found.now, lane.asked, host::now());
            self.guess = found.record.is_none().then(absent);
        }
        if std::mem::take(&mut lane.reserves) && matches!(input, Input::Ended(End::Landed)) {
            stop::here(Point::AfterReserve, self.scratch);
        }
        self.drive(number, Came::Store(Box::new(input)));
    }

    fn start_child(&mut self, number: u64, granted: (Holder, u64, Moment)) -> Option<Came> {
        let lane = self.lanes.get_mut(&number)?;
        let made = OutcomeFile::create(self.settings.outcome_dir.as_deref())
            .or_else(|_| OutcomeFile::create(None));
        let said = match made {
            Ok(said) => said,
            Err(error) => {
                let detail = format!("could not be started: no outcome file can be made: {error}");
                return Some(Came::NotStarted { detail });
            }
        };
        let line = match lane.line(self.settings, granted, &said) {
            Ok(line) => line,
            Err(why) => {
                let detail = format!("could not be started: {why}");
                return Some(Came::NotStarted { detail });
            }
        };
        let (holder, proven_failures, _) = granted;
        if let (Some(journal), Some(attempt)) = (self.journal, &lane.attempt) {
            if let Err(error) = journal.begins(&self.identity, attempt, holder, proven_failures) {
                lane.unjournaled = true;
                let detail =
                    format!("could not be started: the journal cannot be written: {error}");
                return Some(Came::NotStarted { detail });
            }
            lane.journaled = Some(holder);
        }
        lane.said = Some(said);
        stop::here(Point::AfterBegin, self.scratch);
        let started = self.nursery.start(number, line);
        self.child_came(number, started)
    }

    /// What the machine is told of its child.
    fn child_came(&mut self, number: u64, what: OfChild) -> Option<Came> {
        let lane = self.lanes.get_mut(&number)?;
        Some(match what {
            OfChild::Started => {
                stop::here(Point::Running, self.scratch);
                Came::Started
            }
            OfChild::TooLate => Came::TooLate,
            OfChild::NotStarted { detail, why } => {
                lane.not_started = why;
                Came::NotStarted { detail }
            }
            OfChild::Ended(end) => {
                stop::here(Point::BeforeSettle, self.scratch);
                let captures = self.settings.capture.is_some();
                let (came, mut end) = run::child_ended(*end, lane.said.take(), captures, ENDED);
                lane.problems.append(&mut end.problems);
                lane.shown = self.settings.shown(&came, &mut end);
                let ran = end.duration;
                lane.end = Some(end);
                self.frees_place(number, Some(ran));
                came
            }
        })
    }

    /// A child has ended.
    fn child(&mut self, number: u64, what: OfChild) {
        let Some(came) = self.child_came(number, what) else { return };
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        if lane.end.is_some() {
            if lane.renewal.is_some() {
                lane.ended = Some(came);
                return;
            }
            lane.watches = None;
        }
        self.drive(number, came);
    }

    /// Steps the renewal beside the child.
    fn renew(&mut self, number: u64, input: Input) {
        let now = host::now();
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let Some(write) = lane.renewal.as_mut() else { return };
        let (ask, within) = match write.step(input, now) {
            Step::Load { ask, within } => (Ask::Load(ask), within),
            Step::Draw => return self.renew(number, Input::Drawn(host::write_id())),
            Step::Append { append, within } => (Ask::Append(append), within),
            Step::Reread { ask, within } => (Ask::Reread(ask), within),
            Step::Pause(most) => {
                let until = now.plus(host::up_to(most));
                lane.renewal_pause = Some(until);
                self.alarms.push(Reverse((until, number)));
                return;
            }
            Step::Done(done) => return self.renewed(number, done),
        };
        let key = lane.item.key.clone();
        self.ask(number, &key, ask, within, true);
    }

    fn renewed(&mut self, number: u64, done: Done) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.renewal = None;
        self.drive(number, Came::Renewed(done));
    }

    /// Looks at the lanes whose moment has come.
    fn ring(&mut self, now: Moment) {
        // Most moments never come: their lanes have ended long before.
        if self.alarms.len() > 256 + 8 * self.lanes.len() {
            self.alarms.retain(|Reverse((_, number))| self.lanes.contains_key(number));
        }
        while let Some(Reverse((at, number))) = self.alarms.peek().copied() {
            if at > now {
                return;
            }
            self.alarms.pop();
            let Some(lane) = self.lanes.get_mut(&number) else { continue };
            if lane.pause.take_if(|until| *until <= now).is_some() {
                self.drive(number, Came::Store(Box::new(Input::Paused)));
            } else if lane.renewal_pause.take_if(|until| *until <= now).is_some() {
                self.renew(number, Input::Paused);
            } else if lane.gives_back.take_if(|until| *until <= now).is_some() {
                self.give_back(number, GivenBack::NoPlace);
            } else if lane.end.is_none() && lane.watches.take_if(|until| *until <= now).is_some() {
                self.drive(number, Came::Due);
            }
        }
    }

    fn over(&mut self, number: u64, report: Report) {
        stop::here(Point::AfterSettle, self.scratch);
        self.frees_place(number, None);
        let Some(mut lane) = self.lanes.remove(&number) else { return };
        if let (Some(journal), Some(holder)) = (self.journal, lane.journaled.take()) {
            let key = &lane.item.key;
            journal.settles(&self.identity, key, holder, &report, &mut lane.problems);
        }
        let never_started = !report.ran && matches!(report.result, Outcome::Settled { .. });
        match lane.given_back {
            Some(GivenBack::NoPlace) if never_started && self.gate.stopped() == Stop::No => {
                return self.begin_anew(number, lane);
            }
            Some(_) if never_started => {
                self.gate.ended(lane.turn == Turn::Had);
                let _ = self.tell.send(Event::NotStarted);
            }
            Some(_) | None => {
                self.gate.ended(lane.turn == Turn::Had);
                let ran = Ran {
                    report,
                    child: lane.end.take(),
                    not_started: lane.not_started.take(),
                    unjournaled: lane.unjournaled,
                    problems: std::mem::take(&mut lane.problems),
                };
                let shown = lane.shown.take();
                let _ = self.tell.send(Event::Ended(Box::new(Ended {
                    item: lane.item.clone(),
                    ran,
                    shown,
                })));
            }
        }
        self.keys.remove(&lane.item.key);
        let mut behind = lane.behind;
        if self.gate.stopped() != Stop::No {
            return self.leave_behind(&behind);
        }
        if let Some(item) = behind.pop_front() {
            self.gate.comes_forth(false);
            self.start(Lane::new(item, behind));
        }
    }
}
