//! Takes one step: what a driver would do, and what comes of it.
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ctrlrun::plan::attempt::{Attempt, Came, Do, Report};
use ctrlrun::plan::effect::Verdict;
use ctrlrun::plan::protocol::{Append, Done, End, Input, Step};

use crate::acts::{Act, Whose};
use crate::laws;
use crate::shelf::{self, How, Rows};
use crate::tally;
use crate::world::{
    Asked, Bounds, Child, Fate, Opened, Part, Running, Work, World, Writing, key, order, run_name,
    write_id,
};

/// What was reached, and how often.
pub type Tally = HashMap<&'static str, u64>;

/// A step under way: the state that it makes, what it reached, and how it would be told.
pub struct Taking<'a> {
    pub world: World,
    pub bounds: &'a Bounds,
    pub tally: &'a mut Tally,
    /// The rows that a newcomer has met.
    pub met: &'a mut HashSet<Rows>,
    /// For a trace.
    pub told: Option<Vec<String>>,
}

/// What must not be.
pub type Violation = String;

/// The most steps that a machine may take without anything coming about in the world.
const LOCAL_MAX: usize = 10;

impl Taking<'_> {
    pub fn saw(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    pub fn tell(&mut self, line: impl FnOnce(&World) -> String) {
        if let Some(told) = &mut self.told {
            told.push(line(&self.world));
        }
    }

    /// Takes `act`.
    pub fn take(&mut self, act: Act) -> Result<(), Violation> {
        match act {
            Act::Begins { process, key, asked } => self.begins(process, key, asked),
            Act::Store { whose: Whose::Process(process), how } => self.of_process(process, how),
            Act::Store { whose: Whose::Renewal(process), how } => self.of_renewal(process, how),
            Act::Store { whose: Whose::Desk, how } => self.of_desk(how),
            Act::GoesOn { process } => self.goes_on(process),
            Act::GoesWrong { process } => self.goes_wrong(process),
            Act::IsTold { process } => {
                self.world.rest.edit().crashes -= 1;
                self.machine(process, Came::GiveUp)
            }
            Act::Due { process } => self.machine(process, Came::Due),
            Act::ChildEnds { process, word } => self.child_ends(process, word),
            Act::Crashes { process } => self.crashes(process),
            Act::Happens { child } => {
                self.world.rest.edit().children[child].fate = Fate::Happened;
                laws::happenings(self)
            }
            Act::Lands { at } => self.lands(at),
            Act::Leaps { by } => {
                let rest = self.world.rest.edit();
                rest.leaps -= 1;
                rest.now += by;
                Ok(())
            }
            Act::Decides { key, decision, stale } => self.decides(key, decision, stale),
            Act::Probes { key, last_word } => self.probes(key, last_word),
            Act::Contends { key } => self.contends(key),
            Act::Forgets { key } => {
                self.world.rows[key].edit().forget(self.bounds.by_hand);
                let rest = self.world.rest.edit();
                rest.forgets -= 1;
                rest.freed[key] = true;
                rest.known.retain(|known| known.key != key);
                self.clear_the_way(key);
                Ok(())
            }
        }
    }

    pub fn runs(
        &mut self,
        process: usize,
        key: usize,
        asked: Asked,
        opened: Opened,
    ) -> Result<(), Violation> {
        let at = self.world.moment();
        let it = &self.world.processes[process];
        let name = run_name(process, it.runs);
        let order = order(key, asked, name, it.failed_at, Some(opened));
        let machine = match asked {
            Asked::Gated => Attempt::gated(order, at),
            _ => Attempt::new(order, at),
        };
        let it = Running {
            key,
            name,
            asked,
            machine,
            next: Do::EndChild,
            last: None,
            tries: 0,
            doubt: false,
            renewal: None,
            child: None,
            ended: false,
            word: None,
            is_kept: false,
        };
        self.stepped(process, Box::new(it), Came::Call)
    }

    /// Takes a process's work out, to be put back changed.
    pub fn take_out(&mut self, process: usize) -> Work {
        std::mem::take(&mut self.world.processes[process].edit().work)
    }

    fn of_process(&mut self, process: usize, how: How) -> Result<(), Violation> {
        match self.take_out(process) {
            Work::Idle => Err("the model: an idle process has no exchange".to_owned()),
            Work::Delivering(mut it) => {
                let done = self.write(Some(process), &mut it.write, how)?;
                self.world.processes[process].edit().drawn = it.write.drawn;
                match done {
                    None => {
                        self.world.processes[process].edit().work = Work::Delivering(it);
                        Ok(())
                    }
                    Some(done) => self.delivered(process, *it, &done),
                }
            }
            Work::Running(mut it) => {
                let Do::Store(step) = std::mem::replace(&mut it.next, Do::EndChild) else {
                    return Err("the model: no exchange is due".to_owned());
                };
                let drawn = self.world.processes[process].drawn;
                let fresh = (it.name, drawn);
                laws::before_write(self, it.asked, it.key, &step)?;
                let guesses = it.asked == Asked::Guessing && it.last.is_none();
                let (last, tries) = (it.last.take(), it.tries);
                let mut track = Track { last, tries, doubt: it.doubt };
                let input = self.exchange(Some(process), it.key, &step, how, fresh, &mut track)?;
                (it.last, it.tries, it.doubt) = (track.last, track.tries, track.doubt);
                match (guesses, &step, &input) {
                    (true, Step::Append { .. }, Input::Ended(End::Landed)) => {
                        self.saw("a guess that holds")
                    }
                    (true, Step::Append { .. }, Input::Ended(End::Refused)) => {
                        self.saw("a guess that does not hold")
                    }
                    _ => {}
                }
                self.stepped(process, it, Came::Store(Box::new(input)))
            }
        }
    }

    /// Steps a process's machine, and does at once what is done without the world.
    pub fn stepped(
        &mut self,
        process: usize,
        mut it: Box<Running>,
        came: Came,
    ) -> Result<(), Violation> {
        let at = self.world.moment();
        let mut came = came;
        for _ in 0..LOCAL_MAX {
            it.next = it.machine.step(came, at);
            came = match &it.next {
                Do::Renew(handle) => {
                    let drawn = self.world.processes[process].drawn;
                    it.renewal = Some(Writing::new(it.key, (**handle).clone(), it.name, drawn, at));
                    Came::UnderWay
                }
                Do::EndChild => {
                    self.saw("the child is ended by its holder");
                    it.ended = true;
                    Came::UnderWay
                }
                Do::Over(report) => {
                    let report = report.clone();
                    return self.over(process, &it, &report);
                }
                Do::Store(Step::Append { append, .. }) => {
                    self.draw(process, it.name, append);
                    break;
                }
                // The row is known, no load is needed.
                Do::Store(Step::Draw) => {
                    self.saw("a write on a row that is known");
                    let fresh = write_id(it.name, self.world.processes[process].drawn);
                    Came::Store(Box::new(Input::Drawn(fresh)))
                }
                // Nothing can come in between that matters.
                Do::Store(Step::Pause(_)) if self.is_quiet(it.is_kept && it.word.is_some()) => {
                    Came::Store(Box::new(Input::Paused))
                }
                Do::Store(_)
                | Do::Granted
                | Do::Start { .. }
                | Do::Watch { .. }
                | Do::Spool(_)
                | Do::Unspool(_) => break,
            };
        }
        self.world.processes[process].edit().work = Work::Running(it);
        Ok(())
    }

    /// Whether a pause is no occasion for anything: the clock does not leap any more, and nobody is
    /// told to end.
    fn is_quiet(&self, may_be_told: bool) -> bool {
        let rest = &self.world.rest;
        rest.leaps == 0 && (!may_be_told || rest.crashes == 0)
    }

    /// The fresh name was used: the next one is another.
    fn draw(&mut self, process: usize, name: u32, append: &Append) {
        let it = &self.world.processes[process];
        if append.next.write_id == write_id(name, it.drawn) {
            self.world.processes[process].edit().drawn += 1;
        }
    }

    fn machine(&mut self, process: usize, came: Came) -> Result<(), Violation> {
        match self.take_out(process) {
            Work::Running(it) => self.stepped(process, it, came),
            Work::Idle | Work::Delivering(_) => Err("the model: nothing runs".to_owned()),
        }
    }

    fn of_renewal(&mut self, process: usize, how: How) -> Result<(), Violation> {
        let Work::Running(mut it) = self.take_out(process) else {
            return Err("the model: nothing is renewed".to_owned());
        };
        let Some(mut writing) = it.renewal.take() else {
            return Err("the model: nothing is renewed".to_owned());
        };
        let done = self.write(Some(process), &mut writing, how)?;
        self.world.processes[process].edit().drawn = writing.drawn;
        match done {
            None => {
                it.renewal = Some(writing);
                self.world.processes[process].edit().work = Work::Running(it);
                Ok(())
            }
            Some(done) => {
                laws::told(self, &writing, &done)?;
                self.stepped(process, it, Came::Renewed(done))
            }
        }
    }

    /// One exchange of a write of somebody's; its end, if that was the last.
    pub fn write(
        &mut self,
        process: Option<usize>,
        writing: &mut Writing,
        how: How,
    ) -> Result<Option<Done>, Violation> {
        let fresh = (writing.name, writing.drawn);
        let last = writing.last.take();
        let mut track = Track { last, tries: writing.tries, doubt: writing.doubt };
        let step = std::mem::replace(&mut writing.step, Step::Pause(Duration::ZERO));
        let input = self.exchange(process, writing.key, &step, how, fresh, &mut track)?;
        (writing.last, writing.tries, writing.doubt) = (track.last, track.tries, track.doubt);
        let at = self.world.moment();
        let mut step = writing.handle.step(input, at);
        if matches!(step, Step::Pause(_)) && self.is_quiet(false) {
            step = writing.handle.step(Input::Paused, at);
        }
        if matches!(step, Step::Draw) {
            return Err("the model: nobody but an attempt knows a row".to_owned());
        }
        match step {
            Step::Done(done) => Ok(Some(done)),
            step => {
                if let Step::Append { append, .. } = &step {
                    let name = write_id(writing.name, writing.drawn);
                    writing.drawn += u16::from(append.next.write_id == name);
                }
                writing.step = step;
                Ok(None)
            }
        }
    }

    fn exchange(
        &mut self,
        process: Option<usize>,
        key_at: usize,
        step: &Step,
        how: How,
        (name, drawn): (u32, u16),
        track: &mut Track,
    ) -> Result<Input, Violation> {
        if how != How::Well {
            self.world.rest.edit().faults -= 1;
        }
        if let Step::Append { append, .. } = step {
            let same =
                track.last.as_ref().is_some_and(|last| last.next.write_id == append.next.write_id);
            track.tries = if same { track.tries + 1 } else { 1 };
            track.last = Some(append.clone());
            track.doubt |= matches!(how, How::Lost | How::LandsUnseen | How::LandsLater);
        }
        let is_reread = matches!(step, Step::Reread { .. });
        track.doubt |= is_reread && how != How::Well;
        if let (true, Some(last)) = (is_reread, &track.last) {
            let what = tally::settlement(&self.world.rows[key_at], last, track.tries, how);
            self.saw(what);
        }
        let memory = process.map(|at| self.world.processes[at].memory.clone()).unwrap_or_default();
        let breaks = self.bounds.breaks.map(|breaks| (breaks, memory));
        let before = Part::clone(&self.world.rows[key_at]);
        let now = self.world.now();
        let fresh = write_id(name, drawn);
        let came = shelf::exchange(&key(key_at), &before.at, now, step, how, fresh, breaks);
        if let Some(what) = tally::second_try(step, &came.input, track.tries, track.doubt) {
            self.saw(what);
        }
        if let (Some(at), true) = (process, self.bounds.breaks.is_some()) {
            self.world.processes[at].edit().memory = came.memory;
        }
        self.tell(|_| tally::exchange(step, &came.input, how));
        if let Some(append) = came.later {
            self.world.rest.edit().on_the_way.push((key_at, append));
        }
        if let Some(rows) = came.rows {
            self.changed(key_at, &before, rows)?;
        }
        Ok(came.input)
    }

    /// The rows of a key are these now.
    fn changed(&mut self, key_at: usize, before: &Rows, rows: Rows) -> Result<(), Violation> {
        if *before == rows {
            return Ok(());
        }
        *self.world.rows[key_at].edit() = rows;
        self.clear_the_way(key_at);
        laws::landed(self, key_at, before)
    }

    /// What cannot land any more is not waited for.
    fn clear_the_way(&mut self, key_at: usize) {
        let rows = Part::clone(&self.world.rows[key_at]);
        let stays = |(at, append): &(usize, Append)| *at != key_at || rows.lets(append);
        if !self.world.rest.on_the_way.iter().all(stays) {
            self.world.rest.edit().on_the_way.retain(stays);
        }
    }

    fn lands(&mut self, at: usize) -> Result<(), Violation> {
        let (key_at, append) = self.world.rest.edit().on_the_way.remove(at);
        let before = Part::clone(&self.world.rows[key_at]);
        let mut rows = (*before).clone();
        let _ = rows.append(&append);
        self.tell(|_| format!("it lands: {}", tally::events(&append)));
        self.saw("a write lands after its answer was lost");
        self.changed(key_at, &before, rows)
    }

    fn goes_on(&mut self, process: usize) -> Result<(), Violation> {
        let Work::Running(mut it) = self.take_out(process) else {
            return Err("the model: nothing runs".to_owned());
        };
        let came = match it.next.clone() {
            Do::Start { holder, not_after, .. } => {
                if self.world.moment() >= not_after {
                    self.saw("a start that comes too late");
                    Came::TooLate
                } else {
                    laws::starts(self, it.key, holder, not_after)?;
                    let children = &mut self.world.rest.edit().children;
                    it.child = Some(children.len());
                    let (key, attempt) = (it.key, holder.attempt);
                    children.push(Child { key, attempt, fate: Fate::Runs });
                    laws::evidence(self, it.key)?;
                    Came::Started
                }
            }
            Do::Granted => Came::Begin,
            Do::Spool(undelivered) => {
                let host = self.host(process);
                self.world.rest.edit().spool.push((host, (*undelivered).clone()));
                it.is_kept = true;
                laws::is_known(self, it.key, &undelivered.settle);
                Came::Spooled(Ok(()))
            }
            Do::Unspool(outcome) => {
                self.unspool(process, outcome);
                laws::known(self, it.key)?;
                Came::Unspooled
            }
            Do::Store(_) | Do::Watch { .. } | Do::Renew(_) | Do::EndChild | Do::Over(_) => {
                return Err("the model: that does not go on by itself".to_owned());
            }
        };
        self.stepped(process, it, came)
    }

    fn goes_wrong(&mut self, process: usize) -> Result<(), Violation> {
        let Work::Running(it) = self.take_out(process) else {
            return Err("the model: nothing runs".to_owned());
        };
        let came = match &it.next {
            Do::Start { .. } => Came::NotStarted { detail: "could not be started".to_owned() },
            Do::Granted => {
                self.saw("a key that is given back");
                Came::Release { detail: "no place".to_owned() }
            }
            _ => Came::Spooled(Err("full".to_owned())),
        };
        self.stepped(process, it, came)
    }

    fn over(&mut self, process: usize, it: &Running, report: &Report) -> Result<(), Violation> {
        self.gone(process);
        self.world.processes[process].edit().failed_at = None;
        self.tell(|_| tally::report(report));
        laws::over(self, it, report)?;
        if let (Some(Verdict::Failed | Verdict::NeverStarted), Some(record)) =
            (tally::settled(report), &report.record)
        {
            self.world.processes[process].edit().failed_at = Some(record.revision);
        }
        Ok(())
    }
}

/// What is remembered of a write between its exchanges.
struct Track {
    last: Option<Box<Append>>,
    tries: u8,
    doubt: bool,
}
