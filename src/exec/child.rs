//! A child, and the one poll loop in which it is waited for.
//!
//! ```text
//! running --(its end is seen)--> lingering (only if we ended it: its group gets the rest of the grace, then KILL)
//!                            \-> ended: what is in the pipes is read, descendants are looked for
//! ```

mod ending;
mod many;

use std::{
    mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Once,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, getpid, kill_process, pidfd_open, set_child_subreaper},
};

pub use many::Children;

use ending::{Ending, KILL_TAKES_MAX, Left};

use super::{
    Captured, ChildEnd, CommandLine, Delivery, Exit, NotStarted, Output, Signals, boottime,
    controlling_terminal, output::Stream, reap, signals::Arrival, spawn,
};

/// poll(2) counts on a clock that stands still in suspend, so it is asked at least this often.
const POLL_MAX: Duration = Duration::from_secs(1);
/// How often a process is asked after where the kernel has no pidfd for it.
const WITHOUT_PIDFD: Duration = Duration::from_millis(20);
/// What ended a [`Child::wait`].
#[derive(Debug)]
pub enum Waited {
    /// The child has ended. Told once; do not wait again.
    Ended(Box<ChildEnd>),
    /// The time given has passed.
    TimeReached,
    /// The descriptor given is readable. Nothing was read from it.
    Woken,
}

/// A command that was started. Dropping it neither ends nor awaits the process.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: Option<OwnedFd>,
    own_group: bool,
    signals: Option<Signals>,
    streams: Vec<Stream>,
    started: Duration,
    timeout_at: Option<Duration>,
    kill_after: Duration,
    ending: Option<Ending>,
    exit: Option<Exit>,
    ended: Duration,
    timed_out: bool,
    ended_by_us: bool,
    problems: Vec<String>,
}

impl Child {
    /// Starts the command.
    ///
    /// With `signals`, it is the command this process stands for: it is passed the signals that
    /// we catch, at once those that have arrived already, and if we have a controlling terminal it
    /// stays in our process group, so that job control works on both of us together. Without, it
    /// works in the background: a process group of its own, and no signals.
    ///
    /// # Errors
    /// Where it could not be started, which proves that nothing of it ran.
    pub fn spawn(line: CommandLine, signals: Option<&Signals>) -> Result<Self, NotStarted> {
        static SUBREAPER: Once = Once::new();
        // Descendants whose parent ends become our children instead of init's: so we see them.
        SUBREAPER.call_once(|| {
            let _ = set_child_subreaper(Some(getpid()));
        });
        let own_group = signals.is_none() || !controlling_terminal();
        let started = boottime();
        let spawned = spawn::start(&line, own_group)?;
        // The system hands out positive pids.
        let pid = Pid::from_raw(spawned.pid).unwrap_or(Pid::INIT);
        let mut streams = Vec::new();
        if let Output::Capture { cap, stdout, stderr } = line.output {
            let out = spawned.stdout.map(|fd| Stream::new("stdout", fd, stdout, cap));
            let err = spawned.stderr.map(|fd| Stream::new("stderr", fd, stderr, cap));
            streams.extend(out.into_iter().chain(err));
        }
        let mut child = Self {
            pid,
            pidfd: pidfd_open(pid, PidfdFlags::empty()).ok(),
            own_group,
            signals: signals.copied(),
            streams,
            started,
            timeout_at: line.timeout.map(|timeout| started.saturating_add(timeout)),
            kill_after: line.kill_after,
            ending: None,
            exit: None,
            ended: started,
            timed_out: false,
            ended_by_us: false,
            problems: Vec::new(),
        };
        // Whatever has arrived until now, the terminal's signals too, came before there was a
        // child to receive it, or while it was not yet itself.
        if let Some(signals) = child.signals {
            let (arrivals, orphan_ended) = signals.arrivals();
            for arrival in arrivals {
                // But one that runs already may have made one itself.
                if own_group || !arrival.was_made_by(spawned.pid) {
                    child.send(arrival);
                }
            }
            // It may be one of a child that was faster than we: nobody is woken for it again.
            if orphan_ended {
                reap::strangers(child.group());
            }
        }
        Ok(child)
    }

    /// The child's process id. It is the child's until the end was told.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// Waits until the child has ended, `until` has passed from now (suspended time included), or
    /// `wake` is readable; meanwhile passes on output and signals, and keeps the time-out. With
    /// `until` of zero it does what there is to do and returns.
    pub fn wait(&mut self, until: Option<Duration>, wake: Option<BorrowedFd<'_>>) -> Waited {
        let until_at = until.map(|until| boottime().saturating_add(until));
        loop {
            let woken = self.poll_once(until_at, wake);
            if let Some(end) = self.go_on(woken.child, woken.member) {
                return Waited::Ended(end);
            }
            if woken.wake {
                return Waited::Woken;
            }
            if until_at.is_some_and(|at| at <= boottime()) {
                return Waited::TimeReached;
            }
        }
    }

    /// Passes on the output that a slow reader had not taken when the end was told: after it was
    /// recorded, so that no reader can keep it from that. Returns when all is delivered, or the
    /// reader has gone, or a signal other than WINCH has arrived.
    pub fn deliver_rest(&mut self) -> Delivery {
        let mut delivery = Delivery::default();
        while delivery.stopped_by.is_none() && self.streams.iter().any(|s| s.undelivered() > 0) {
            let mut fds = Vec::new();
            let sinks: Vec<_> = self.streams.iter().map(|s| s.poll_fds().1).collect();
            let at: Vec<_> = sinks.into_iter().map(|fd| push(&mut fds, fd)).collect();
            let signals = self.signals.as_ref();
            push(&mut fds, signals.map(|s| PollFd::from_borrowed_fd(s.as_fd(), PollFlags::IN)));
            if self.signals.is_none_or(|signals| signals.pending().is_empty()) {
                let _ = poll(&mut fds, None);
            }
            let found: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
            drop(fds);
            let ready: Vec<_> = at.into_iter().map(|at| revents(&found, at)).collect();
            for (stream, ready) in self.streams.iter_mut().zip(ready) {
                if !ready.is_empty() {
                    stream.on_writable(ready);
                }
            }
            if let Some(signals) = self.signals {
                let arrived = signals.take();
                delivery.stopped_by = arrived.into_iter().find(|n| *n != libc::SIGWINCH);
            }
        }
        for stream in &mut self.streams {
            stream.give_up();
            delivery.problems.extend(stream.take_problem());
        }
        delivery
    }

    /// Polls everything once and lets the streams move.
    fn poll_once(&mut self, until_at: Option<Duration>, wake: Option<BorrowedFd<'_>>) -> Ready {
        let timeout = self.poll_timeout(until_at);
        let mut fds = Vec::with_capacity(8);
        let places = self.enter(&mut fds);
        let wake = push(&mut fds, wake.map(input));
        push(&mut fds, self.signals.as_ref().map(|s| input(s.as_fd())));
        // An interruption is a signal, which the caller of this looks for anyway.
        if poll(&mut fds, timeout.as_ref()).is_err() {
            fds.iter_mut().for_each(PollFd::clear_revents);
        }
        let found: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        let (child, member) = self.move_streams(&found, &places);
        Ready { child, member, wake: !revents(&found, wake).is_empty() }
    }

    /// Enters what is polled for this child.
    fn enter<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) -> Places {
        let streams = self
            .streams
            .iter()
            .map(|stream| {
                let (read, write) = stream.poll_fds();
                (push(fds, read), push(fds, write))
            })
            .collect();
        let running = self.pidfd.as_ref().filter(|_| self.exit.is_none());
        let child = push(fds, running.map(|fd| input(fd.as_fd())));
        let member = push(fds, self.member().map(input));
        Places { streams, child, member }
    }

    /// Lets the streams move as the poll found them; whether the child has ended, and a member of its
    /// group that is waited for.
    fn move_streams(&mut self, found: &[PollFlags], places: &Places) -> (bool, bool) {
        for (stream, (read, write)) in self.streams.iter_mut().zip(&places.streams) {
            let (read, write) = (revents(found, *read), revents(found, *write));
            if !write.is_empty() {
                stream.on_writable(write);
            }
            if !read.is_empty() {
                stream.on_readable();
            }
        }
        (!revents(found, places.child).is_empty(), !revents(found, places.member).is_empty())
    }

    /// Does what is due after a poll; the end, once it can be told.
    fn go_on(&mut self, child_ready: bool, member_ready: bool) -> Option<Box<ChildEnd>> {
        self.pass_signals();
        if self.exit.is_none() && (self.pidfd.is_none() || child_ready) {
            self.collect();
        }
        self.keep_deadlines(member_ready);
        let exit = self.exit.filter(|_| self.ending.is_none())?;
        Some(Box::new(self.end(exit)))
    }

    /// How long to sleep at most. None: until something happens.
    fn poll_timeout(&self, until_at: Option<Duration>) -> Option<Timespec> {
        let ending_at = self.ending.as_ref().map(|ending| {
            if ending.killed {
                ending.kill_at.saturating_add(KILL_TAKES_MAX)
            } else {
                ending.kill_at
            }
        });
        // Once it was killed and is still there, only its end is waited for.
        let ending_at = ending_at.filter(|_| {
            self.exit.is_some() || self.ending.as_ref().is_some_and(|ending| !ending.killed)
        });
        let timeout_at = self.timeout_at.filter(|_| self.ending.is_none());
        let next = [until_at, ending_at, timeout_at].into_iter().flatten().min();
        let mut sleep = next.map(|at| at.saturating_sub(boottime()).min(POLL_MAX));
        let blind = match &self.ending {
            Some(ending) if self.exit.is_some() => match ending.left {
                Left::LookAgain => Some(Duration::ZERO),
                Left::Some => Some(WITHOUT_PIDFD),
                Left::Member(_) => None,
            },
            Some(_) | None if self.exit.is_some() => Some(Duration::ZERO),
            Some(_) | None => self.pidfd.is_none().then_some(WITHOUT_PIDFD),
        };
        if let Some(blind) = blind {
            sleep = Some(sleep.map_or(blind, |sleep| sleep.min(blind)));
        }
        sleep.and_then(|sleep| Timespec::try_from(sleep).ok())
    }

    fn member(&self) -> Option<BorrowedFd<'_>> {
        match &self.ending.as_ref()?.left {
            Left::Member(fd) if self.exit.is_some() => Some(fd.as_fd()),
            Left::Member(_) | Left::LookAgain | Left::Some => None,
        }
    }

    /// Deals with the signals that have arrived, and with the orphans that have ended.
    fn pass_signals(&mut self) {
        let Some(signals) = self.signals else { return };
        let (arrivals, child_ended) = signals.arrivals();
        let pid = self.pid.as_raw_pid();
        for arrival in arrivals {
            if self.exit.is_some() {
                // There is only the rest of a grace left to cut short.
                if arrival.number != libc::SIGWINCH
                    && let Some(ending) = &mut self.ending
                    && !ending.killed
                {
                    ending.kill_at = boottime();
                }
            } else if self.own_group || !(arrival.came_to_our_group() || arrival.was_made_by(pid)) {
                self.send(arrival);
            }
        }
        if child_ended {
            reap::strangers(self.group());
        }
    }

    /// Passes a signal on to the child alone, which has not been collected.
    fn send(&mut self, arrival: Arrival) {
        if let Some(signal) = arrival.signal() {
            let sent = kill_process(self.pid, signal);
            self.note_signal(sent, self.pid);
        }
    }

    fn note_signal(&mut self, sent: rustix::io::Result<()>, pid: Pid) {
        match sent {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => {
                let problem = format!("process {pid} cannot be signalled: {error}");
                if !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
            }
        }
    }

    /// Collects the child if it has ended.
    fn collect(&mut self) {
        let pid = self.pid.as_raw_pid();
        match reap::child(pid) {
            Ok(None) => return,
            Ok(Some(exit)) => self.exit = Some(exit),
            Err(_) => self.exit = Some(Exit::Lost),
        }
        reap::note_collected(pid);
        self.ended = boottime();
        reap::strangers(self.group());
    }

    /// The child is collected and its group is at peace: what it has left is read and told.
    fn end(&mut self, exit: Exit) -> ChildEnd {
        reap::strangers(self.group());
        // Before the pipes are closed, which is the end of some.
        let left = self.family().descendants();
        let mut captured = Vec::new();
        for stream in &mut self.streams {
            stream.read_rest();
            captured.push(stream.take_captured());
            self.problems.extend(stream.take_problem());
        }
        let stderr = captured.pop().unwrap_or_default();
        let stdout: Captured = captured.pop().unwrap_or_default();
        ChildEnd {
            exit,
            timed_out: self.timed_out,
            ended_by_us: self.ended_by_us,
            descendants_left: left.seen.iter().map(|p| p.pid.cast_unsigned()).collect(),
            descendants_unseen: left.unseen,
            stdout,
            stderr,
            undelivered: self.streams.iter().map(|s| s.undelivered() as u64).sum(),
            problems: mem::take(&mut self.problems),
            duration: self.ended.saturating_sub(self.started),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // If it runs, nobody waits for it any more: it is collected like an inherited one.
        reap::unregister(self.pid.as_raw_pid(), self.exit.is_some());
    }
}

/// Where in a poll what belongs to one child is.
struct Places {
    streams: Vec<(Option<usize>, Option<usize>)>,
    child: Option<usize>,
    member: Option<usize>,
}

/// What a poll has found, beside output and signals.
struct Ready {
    child: bool,
    member: bool,
    wake: bool,
}

fn push<'a>(fds: &mut Vec<PollFd<'a>>, fd: Option<PollFd<'a>>) -> Option<usize> {
    let fd = fd?;
    fds.push(fd);
    Some(fds.len() - 1)
}

fn revents(found: &[PollFlags], at: Option<usize>) -> PollFlags {
    at.and_then(|at| found.get(at)).copied().unwrap_or(PollFlags::empty())
}

fn input(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}
