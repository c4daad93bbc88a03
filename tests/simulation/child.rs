//! The executor: commands, what comes of them in the world, and what they tell of it.
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ctrlrun::drive::host::Process;
use ctrlrun::exec::{
    Captured, ChildEnd, CommandLine, Delivery, Exit, NotStarted, NotStartedKind, Waited,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::turn::{When, micros};
use crate::verify::ledger::Line;
use crate::world::World;

/// The exit code that is declared to mean that nothing happened.
pub const DECLARED: i32 = 6;

/// What was started, and what comes of it. What comes of it is settled when it starts, unless it is
/// told to end before.
#[derive(Debug, Clone)]
pub struct Started {
    pub line: Line,
    pub at: u64,
    pub ends_at: u64,
    /// When its consequence comes about, if it does.
    pub happens_at: Option<u64>,
    /// What it tells at its end proves what came of it.
    pub tells: bool,
}

impl Started {
    /// Whether its consequence has come about by `now`.
    pub fn has_happened(&self, now: u64) -> bool {
        self.happens_at.is_some_and(|at| at <= now && at <= self.ends_at)
    }
}

/// A command that was started, as its holder sees it.
pub struct Child {
    world: Arc<World>,
    /// Among all that were started.
    number: usize,
    exit: Exit,
    said: Option<&'static str>,
    file: String,
    timeout_at: Option<u64>,
    kill_after: Duration,
    timed_out: bool,
    ended_by_us: bool,
}

impl World {
    pub fn spawn(self: &Arc<Self>, line: CommandLine) -> Result<Child, NotStarted> {
        let variable = |name: &str| {
            let found = line.env.iter().find(|(it, _)| it == name);
            found.map(|(_, value)| value.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let not_started = |kind, errno| NotStarted {
            kind,
            errno,
            program: "refund".to_owned(),
            text: "as the world has it".to_owned(),
        };
        let moment = self.moment();
        if line.not_after.is_some_and(|last| micros(last) < moment.0) {
            return Err(not_started(NotStartedKind::TooLate, 62));
        }
        let told = Line {
            key: variable("CTRLRUN_KEY"),
            attempt: variable("CTRLRUN_ATTEMPT").parse().unwrap_or(0),
            attempt_id: variable("CTRLRUN_ATTEMPT_ID"),
            idempotency_key: variable("CTRLRUN_IDEMPOTENCY_KEY"),
            pid: 0,
        };
        let (number, exit, said, timeout_at) = {
            let mut inside = self.turns.inside();
            let most = inside.shape.child_ms;
            let long = 1_000 * (1 + inside.draws.below(most));
            let (at, ends_at) = (inside.now, inside.now + long);
            let somewhen = at + inside.draws.below(long);
            let draws = &mut inside.draws;
            let (happens, tells, exit, said) = match draws.below(16) {
                0 => {
                    inside.say(&format!("{} cannot be started", told.attempt_id));
                    return Err(not_started(NotStartedKind::NotFound, 2));
                }
                1 | 2 => (false, true, Exit::Code(DECLARED), None),
                3 => (false, true, Exit::Code(3), Some("not-executed\n")),
                4 => (true, true, Exit::Code(1), Some("committed\n")),
                5 => (true, true, Exit::Signal { number: 9, core: false }, Some("committed\n")),
                6 => (draws.below(2) == 0, false, Exit::Code(1), None),
                7 => (draws.below(2) == 0, false, Exit::Signal { number: 11, core: false }, None),
                _ => (true, true, Exit::Code(0), None),
            };
            let timeout_at = line.timeout.map(|timeout| at.saturating_add(micros(timeout)));
            let text =
                format!("{} of {} starts, as attempt {}", told.attempt_id, told.key, told.attempt);
            inside.say(&text);
            drop(inside);
            self.has_begun(&told);
            let happens_at = happens.then_some(somewhen);
            let mut started = self.started();
            started.push(Started { line: told, at, ends_at, happens_at, tells });
            (started.len() - 1, exit, said, timeout_at)
        };
        Ok(Child {
            world: Arc::clone(self),
            number,
            exit,
            said,
            file: variable("CTRLRUN_OUTCOME_FILE"),
            timeout_at,
            kill_after: line.kill_after,
            timed_out: false,
            ended_by_us: false,
        })
    }
}

impl Child {
    fn ends_at(&self) -> u64 {
        self.world.started()[self.number].ends_at
    }

    /// TERM: it ends within its grace, whatever it was about to do or to say.
    fn terminate(&mut self) {
        let mut inside = self.world.turns.inside();
        let grace = inside.draws.below(micros(self.kill_after).max(1));
        let clean = inside.draws.below(3) == 0;
        let ends_at = inside.now + grace;
        drop(inside);
        let mut started = self.world.started();
        let it = &mut started[self.number];
        it.tells = false;
        if ends_at < it.ends_at {
            it.ends_at = ends_at;
            self.said = None;
            self.exit =
                if clean { Exit::Code(0) } else { Exit::Signal { number: 15, core: false } };
        }
    }

    fn end(&self) -> Box<ChildEnd> {
        if let Some(said) = self.said {
            // It may be gone: the holder's directory for it is not ours to keep.
            let _ = std::fs::write(&self.file, said);
        }
        let started = self.world.started()[self.number].clone();
        let text = format!("attempt {}\n", started.line.attempt).into_bytes();
        let bytes = text.len() as u64;
        let stdout = Captured { head: text, tail: Vec::new(), bytes, reader_gone: false };
        let exit = self.exit;
        let name = &started.line.attempt_id;
        self.world.turns.inside().say(&format!("{name} ends: {exit:?}, {:?}", self.said));
        Box::new(ChildEnd {
            exit,
            timed_out: self.timed_out,
            ended_by_us: self.ended_by_us,
            descendants_left: Vec::new(),
            descendants_unseen: false,
            stdout,
            stderr: Captured::default(),
            undelivered: 0,
            problems: Vec::new(),
            duration: Duration::from_micros(started.ends_at - started.at),
        })
    }
}

impl Process for Child {
    fn wait(&mut self, until: Option<Duration>, wake: Option<BorrowedFd<'_>>) -> Waited {
        let until_at = until
            .map_or(u64::MAX, |until| self.world.turns.inside().now.saturating_add(micros(until)));
        loop {
            let now = self.world.turns.inside().now;
            if self.ends_at() <= now {
                return Waited::Ended(self.end());
            }
            if self.timeout_at.is_some_and(|at| at <= now) {
                self.timeout_at = None;
                self.timed_out = true;
                self.terminate();
                continue;
            }
            // A signal that comes while it runs is the child's, and does not count as ours.
            if self.world.takes_signal() {
                self.terminate();
                continue;
            }
            if wake.is_some_and(is_readable) {
                return Waited::Woken;
            }
            if until_at <= now {
                return Waited::TimeReached;
            }
            let first = self.ends_at().min(until_at).min(self.timeout_at.unwrap_or(u64::MAX));
            let life = self.world.turns.my_life();
            let beside = life.and_then(|life| self.world.turns.inside().lives[life].beside);
            // It may be killed while it waits: that is where it is most of its time.
            self.world.turns.pass(Duration::ZERO);
            self.world.turns.wait(match beside.filter(|_| wake.is_some()) {
                Some(task) => When::AtOrOver(first, task),
                None => When::At(first),
            });
        }
    }

    fn end_group(&mut self) {
        if !std::mem::replace(&mut self.ended_by_us, true) {
            self.world.turns.inside().say(&"its holder ends it");
            self.terminate();
        }
    }

    fn deliver_rest(&mut self) -> Delivery {
        Delivery::default()
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
