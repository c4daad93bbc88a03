//! Who descends from a child, as /proc tells it.

use std::{collections::HashSet, fs, os::fd::OwnedFd, time::Duration};

use nix::unistd::{SysconfVar, getsid, sysconf};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

use super::reap;

/// A process, as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// It runs or could run again: no zombie.
    alive: bool,
    parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// In ticks since boot: with the pid it names a process for good.
    started: u64,
}

/// What is known of a child's living descendants.
#[derive(Debug, Default)]
pub(super) struct Descendants {
    pub(super) seen: Vec<Process>,
    /// There are some that /proc does not show.
    pub(super) unseen: bool,
}

/// Which processes count as a child's.
pub(super) struct Family {
    pub(super) child: i32,
    /// The child's own process group, if it has one.
    pub(super) own_group: Option<i32>,
    /// Its end was collected: its pid may be another's, and all its children are orphans.
    pub(super) collected: bool,
    /// When it was started, on [`boottime`](super::boottime)'s clock.
    pub(super) started: Duration,
}

/// The fields of /proc/PID/stat. None: there is no such process.
fn read_stat(pid: i32) -> Option<Process> {
    parse_stat(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(pid: i32, stat: &[u8]) -> Option<Process> {
    // The name in parentheses may hold anything, closing parentheses too.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let alive = !matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let started = fields.nth(15)?.parse().ok()?;
    Some(Process { pid, alive, parent, group, session, started })
}

/// Whether /proc is that of our own PID namespace: in a foreign one every number is another process's.
fn is_our_proc() -> bool {
    let us = getpid().as_raw_pid().to_string();
    fs::read_link("/proc/self").is_ok_and(|name| name.as_os_str() == us.as_str())
}

fn read_all() -> Option<Vec<Process>> {
    if !is_our_proc() {
        return None;
    }
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").ok()? {
        let name = entry.ok()?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
            all.extend(read_stat(pid));
        }
    }
    Some(all)
}

/// Whether `pid` is `ancestor` or descends from it.
pub(super) fn is_in_tree_of(pid: i32, ancestor: i32) -> bool {
    if !is_our_proc() {
        return false;
    }
    let mut at = pid;
    // Bounded: pids that are reused while we climb could make a ring.
    for _ in 0..1000 {
        if at == ancestor {
            return true;
        }
        match read_stat(at) {
            Some(process) if process.parent > 0 => at = process.parent,
            Some(_) | None => return false,
        }
    }
    false
}

/// The unit of /proc's start times. Rounded down, as they are.
fn ticks(since_boot: Duration) -> u64 {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let per_second = per_second.and_then(|n| u64::try_from(n).ok()).unwrap_or(100);
    let of_the_second = u64::from(since_boot.subsec_nanos()) * per_second / 1_000_000_000;
    since_boot.as_secs() * per_second + of_the_second
}

impl Family {
    /// The living descendants of the child, without itself: those it is the ancestor of, and
    /// those that fell to us when their parent ended (we are their subreaper).
    ///
    /// Where other children run in this process too, an orphan that has left its group may be
    /// theirs: it is listed all the same, because "none left" is the claim that must be true.
    pub(super) fn descendants(&self) -> Descendants {
        if !reap::any_children() || (self.collected && reap::nobody_inherited()) {
            return Descendants::default();
        }
        let quiet = reap::quiet();
        let known = quiet.known();
        if self.collected && quiet.any_inherited(&known) == Some(false) {
            return Descendants::default();
        }
        // /proc is read one process after the other: one that was forked, or lost its parent, just
        // then can be missed. So only the second empty reading is believed.
        let first = self.look(&known);
        if first.seen.is_empty() && !first.unseen {
            return self.look(&known);
        }
        first
    }

    fn look(&self, known: &[i32]) -> Descendants {
        let Some(all) = read_all() else {
            return Descendants { seen: Vec::new(), unseen: true };
        };
        let us = getpid().as_raw_pid();
        // Nobody descends from a child who is older: as PID 1 we inherit such.
        let started = ticks(self.started);
        // An orphan still in the group of another child of ours is that one's.
        let anothers = |p: &Process| p.group != self.child && known.contains(&p.group);
        let orphans = all.iter().filter(|p| {
            p.parent == us && !known.contains(&p.pid) && p.started >= started && !anothers(p)
        });
        let mut tree: HashSet<i32> = orphans.map(|p| p.pid).collect();
        if !self.collected {
            tree.insert(self.child);
        }
        loop {
            let size = tree.len();
            let found = all.iter().filter(|p| tree.contains(&p.parent));
            let found: Vec<i32> = found.map(|p| p.pid).collect();
            tree.extend(found);
            if tree.len() == size {
                break;
            }
        }
        if !self.collected {
            tree.remove(&self.child);
        }
        let seen = all.into_iter().filter(|p| p.alive && tree.contains(&p.pid));
        Descendants { seen: seen.collect(), unseen: false }
    }

    /// Those of [`Self::descendants`] that are ended with the child: its own group, or, where it
    /// shares ours, our session (a shell's jobs have groups of their own). The rest has escaped.
    pub(super) fn within_reach(&self) -> Vec<Process> {
        // 0 is a session whose leader is outside of our PID namespace. rustix has no such number.
        let session = getsid(None).map_or(0, nix::unistd::Pid::as_raw);
        let mut seen = self.descendants().seen;
        seen.retain(|p| match self.own_group {
            Some(group) => p.group == group,
            None => p.session == session,
        });
        seen
    }
}

impl Process {
    /// A descriptor that stands for exactly this process. None: it has ended, or the kernel has none.
    pub(super) fn pidfd(&self) -> Option<OwnedFd> {
        let fd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Between the reading and the opening the pid may have gone to another process.
        (read_stat(self.pid)?.started == self.started).then_some(fd)
    }

    /// Sends a signal to exactly this process. One that has ended already is no error.
    pub(super) fn send(&self, signal: Signal) -> rustix::io::Result<()> {
        let sent = match self.pidfd() {
            Some(fd) => pidfd_send_signal(fd, signal),
            None if read_stat(self.pid).is_some_and(|now| now.started == self.started) => {
                match Pid::from_raw(self.pid) {
                    Some(pid) => kill_process(pid, signal),
                    None => Ok(()),
                }
            }
            None => Ok(()),
        };
        match sent {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            sent => sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_forge_the_fields_of_stat() {
        let stat = b"7 (a) Z 1 1 (x)) S 3 4 5 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0";
        let process = parse_stat(7, stat).expect("it runs");
        assert_eq!(
            (process.parent, process.group, process.session, process.started),
            (3, 4, 5, 99)
        );
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let stat = b"7 (a) Z 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0";
        assert!(!parse_stat(7, stat).expect("it is there").alive);
    }

    #[test]
    fn this_process_descends_from_its_parent() {
        let us = getpid().as_raw_pid();
        let parent = rustix::process::getppid().map_or(0, Pid::as_raw_pid);
        assert!(is_in_tree_of(us, parent));
        assert!(!is_in_tree_of(parent, us));
    }
}
