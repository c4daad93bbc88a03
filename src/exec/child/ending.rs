//! Ending a child: TERM to its group, a grace, KILL, and nobody of the group left behind.

use std::{os::fd::OwnedFd, time::Duration};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::Child;
use crate::exec::{boottime, group::Family, reap};

/// How long processes that were sent KILL are waited for; longer only if the kernel holds them.
pub(super) const KILL_TAKES_MAX: Duration = Duration::from_secs(2);

/// We have sent TERM.
#[derive(Debug)]
pub(super) struct Ending {
    /// When KILL is due; once it was sent: when that was.
    pub(super) kill_at: Duration,
    pub(super) killed: bool,
    /// Of the group members left behind by the child: what to poll for.
    pub(super) left: Left,
}

#[derive(Debug)]
pub(super) enum Left {
    LookAgain,
    /// One of them, which is waited for before looking again.
    Member(OwnedFd),
    /// Some, and no pidfd.
    Some,
}

impl Child {
    /// Ends the child and its group: TERM now, KILL after the grace. Wait for it afterwards as
    /// before. Nothing happens where it has ended, or is being ended, already.
    pub fn end_group(&mut self) {
        if self.exit.is_none() {
            self.collect();
        }
        if self.exit.is_none() && self.ending.is_none() {
            self.ended_by_us = true;
            self.terminate();
        }
    }

    /// Sends TERM when the time is out, and KILL when the grace is. `member_ended`: see [`Left::Member`].
    pub(super) fn keep_deadlines(&mut self, member_ended: bool) {
        let now = boottime();
        if self.exit.is_none() && self.ending.is_none() {
            if self.timeout_at.is_some_and(|at| at <= now) {
                // It may have ended while we were not looking: then it was in time.
                self.collect();
                if self.exit.is_none() {
                    self.timed_out = true;
                    self.terminate();
                }
            }
            return;
        }
        let kill_now = match &mut self.ending {
            Some(ending) if !ending.killed && ending.kill_at <= now => {
                ending.killed = true;
                // From here counts how long KILL takes.
                ending.kill_at = now;
                true
            }
            Some(_) | None => false,
        };
        if kill_now {
            self.signal_all(Signal::KILL);
        }
        if self.exit.is_some() {
            self.linger(now, member_ended || kill_now);
        }
    }

    /// The child has ended and we had sent TERM: the rest of its group may have ignored that.
    fn linger(&mut self, now: Duration, look: bool) {
        let Some(ending) = &self.ending else { return };
        if matches!(ending.left, Left::Member(_))
            && !look
            && !(ending.killed && ending.kill_at.saturating_add(KILL_TAKES_MAX) <= now)
        {
            return;
        }
        let (killed, give_up_at) = (ending.killed, ending.kill_at.saturating_add(KILL_TAKES_MAX));
        reap::strangers(self.group());
        let members = self.family().within_reach();
        let Some(first) = members.first() else {
            self.ending = None;
            return;
        };
        if killed && give_up_at <= now {
            self.ending = None;
            return;
        }
        let left = first.pidfd().map_or(Left::Some, Left::Member);
        if killed {
            // What was forked while we looked for whom to kill.
            for member in &members {
                let _ = member.send(Signal::KILL);
            }
        }
        if let Some(ending) = &mut self.ending {
            ending.left = left;
        }
    }

    /// TERM, and CONT for what is stopped and could not act on it; the grace begins.
    fn terminate(&mut self) {
        self.signal_all(Signal::TERM);
        self.signal_all(Signal::CONT);
        self.ending = Some(Ending {
            kill_at: boottime().saturating_add(self.kill_after),
            killed: false,
            left: Left::LookAgain,
        });
    }

    /// Signals the child's group: the real one if it has its own, else the child and what descends from it in our session.
    fn signal_all(&mut self, signal: Signal) {
        if self.own_group && self.exit.is_none() {
            // The child is not collected, so the group's number is still the child's.
            let sent = kill_process_group(self.pid, signal);
            self.note_signal(sent, self.pid);
            if !self.is_in_its_group() {
                let sent = kill_process(self.pid, signal);
                self.note_signal(sent, self.pid);
            }
            return;
        }
        if self.exit.is_none() {
            let sent = kill_process(self.pid, signal);
            self.note_signal(sent, self.pid);
        }
        for process in self.family().within_reach() {
            let sent = process.send(signal);
            if let Some(pid) = Pid::from_raw(process.pid) {
                self.note_signal(sent, pid);
            }
        }
    }

    /// Whether the child is still in the group that was made for it. It may have moved to another
    /// one, and then a signal to the group reaches what it left there, or nobody.
    fn is_in_its_group(&self) -> bool {
        let child = nix::unistd::Pid::from_raw(self.pid.as_raw_pid());
        nix::unistd::getpgid(Some(child)).is_ok_and(|group| group == child)
    }

    pub(super) fn group(&self) -> Option<i32> {
        self.own_group.then(|| self.pid.as_raw_pid())
    }

    pub(super) fn family(&self) -> Family {
        Family {
            child: self.pid.as_raw_pid(),
            own_group: self.group(),
            collected: self.exit.is_some(),
            started: self.started,
        }
    }
}
