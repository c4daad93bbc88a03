//! Collecting ended children, and telling ours from those we inherited.
//!
//! | who | collects |
//! |---|---|
//! | [`Child`](super::Child) | its own process, by pid |
//! | [`strangers`] | what we inherited: orphaned descendants, and all of a container's as its PID 1 |
//!
//! A pid is entered in the register under the read half of the gate before any stranger can be
//! collected under the write half, so a child that ends at once is never taken for one.
#![expect(
    unsafe_code,
    reason = "no safe waitid(2) tells the pid of what it found without failing on real-time signals"
)]

use std::{
    fs, io,
    mem::MaybeUninit,
    sync::{
        Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::Exit;

static GATE: RwLock<()> = RwLock::new(());
static OURS: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static ADOPTING: AtomicBool = AtomicBool::new(false);

/// A child that a `Child` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    pid: i32,
    /// Its pid may be another's by now. As the number of its group it stands while that has members.
    collected: bool,
}

/// Held while a child is started and entered in the register.
pub(super) struct Starting(
    #[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>,
);

/// From here to [`Starting::register`] no stranger is collected or listed.
pub(super) fn starting() -> Starting {
    Starting(GATE.read().unwrap_or_else(PoisonError::into_inner))
}

impl Starting {
    /// Enters a new child.
    pub(super) fn register(self, pid: i32) {
        ours().push(Entry { pid, collected: false });
    }
}

fn ours() -> MutexGuard<'static, Vec<Entry>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that the child was collected: its pid is free.
pub(super) fn note_collected(pid: i32) {
    let mut ours = ours();
    let running = |entry: &&mut Entry| entry.pid == pid && !entry.collected;
    if let Some(entry) = ours.iter_mut().find(running) {
        entry.collected = true;
    }
}

/// Takes a child out of the register: its end is told, or it is no longer waited for.
pub(super) fn unregister(pid: i32, collected: bool) {
    let mut ours = ours();
    if let Some(at) = ours.iter().position(|e| *e == Entry { pid, collected }) {
        ours.swap_remove(at);
    }
}

/// Whether a `Child` in this process stands for that pid.
pub(super) fn is_registered(pid: i32) -> bool {
    let ours = ours();
    ours.iter().any(|entry| entry.pid == pid && !entry.collected)
}

/// This process is a wrapper: every child of it that no `Child` stands for is inherited.
pub(super) fn adopt_strangers() {
    ADOPTING.store(true, Relaxed);
}

/// What waitid(2) found: a process that has ended.
struct Found {
    pid: i32,
    exit: Exit,
}

/// None: there are such children, and none has ended. ECHILD: there is no such child.
fn waitid(kind: libc::idtype_t, id: i32, flags: i32) -> io::Result<Option<Found>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: `info` has room for the answer; an id that names nothing is an ordinary error.
        let answer = unsafe {
            libc::waitid(
                kind,
                id.cast_unsigned(),
                info.as_mut_ptr(),
                libc::WEXITED | libc::WNOHANG | flags,
            )
        };
        if answer == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeroes are a valid siginfo_t, and the kernel fills in the fields of a SIGCHLD.
    let (pid, status, code) = unsafe {
        let info = info.assume_init();
        (info.si_pid(), info.si_status(), info.si_code)
    };
    if pid == 0 {
        return Ok(None);
    }
    let exit = match code {
        libc::CLD_EXITED => Exit::Code(status),
        libc::CLD_DUMPED => Exit::Signal { number: status, core: true },
        _ => Exit::Signal { number: status, core: false },
    };
    Ok(Some(Found { pid, exit }))
}

/// Collects the child `pid` if it has ended.
///
/// # Errors
/// ECHILD: somebody else has collected it, and its end is lost.
pub(super) fn child(pid: i32) -> io::Result<Option<Exit>> {
    waitid(libc::P_PID, pid, 0).map(|found| found.map(|found| found.exit))
}

/// Whether no process has fallen to us, as far as can be seen without keeping anybody from starting a
/// child. False says nothing: it may be one that is just being entered.
pub(super) fn nobody_inherited() -> bool {
    let is_known = |pid: &i32| ours().iter().any(|entry| entry.pid == *pid);
    // A child that is collected while the kernel lists can make it skip another: look twice.
    (0..2).all(|_| list_children().is_some_and(|pids| pids.iter().all(is_known)))
}

/// Whether this process has any child at all, running or not.
pub(super) fn any_children() -> bool {
    waitid(libc::P_ALL, 0, libc::WNOWAIT).is_ok()
}

/// Collects what has ended and is no `Child`: everything where this process is a wrapper, else
/// only what is in the child's own process group.
pub(super) fn strangers(own_group: Option<i32>) {
    let (kind, id) = match own_group {
        _ if ADOPTING.load(Relaxed) => (libc::P_ALL, 0),
        Some(group) => (libc::P_PGID, group),
        None => return,
    };
    // Mostly there is none, or one of ours stands before it: that is seen without keeping anybody from
    // starting a child.
    match waitid(kind, id, libc::WNOWAIT) {
        Ok(Some(found)) if !is_registered(found.pid) => {}
        Ok(_) | Err(_) => return,
    }
    let _quiet = quiet();
    // A look first: the end of a registered child is its owner's to collect.
    while let Ok(Some(found)) = waitid(kind, id, libc::WNOWAIT) {
        if is_registered(found.pid) || child(found.pid).is_err() {
            return;
        }
    }
}

/// While this is held no child of ours is started and nothing inherited is collected.
pub(super) struct Quiet(
    #[expect(dead_code, reason = "held, not read")] RwLockWriteGuard<'static, ()>,
);

/// See [`Quiet`]; waits for what is being started.
pub(super) fn quiet() -> Quiet {
    Quiet(GATE.write().unwrap_or_else(PoisonError::into_inner))
}

impl Quiet {
    /// The pids of all children whose `Child` still exists, collected ones too: their groups may stand.
    pub(super) fn known(&self) -> Vec<i32> {
        ours().iter().map(|entry| entry.pid).collect()
    }

    /// Whether any direct child of this process, zombies included, is not among `known`. None: the
    /// kernel does not tell.
    pub(super) fn any_inherited(&self, known: &[i32]) -> Option<bool> {
        // A child that is collected while the kernel lists can make it skip another: look twice.
        let (first, second) = (list_children()?, list_children()?);
        Some(first.iter().chain(&second).any(|pid| !known.contains(pid)))
    }
}

/// Those that fell to us, and what the main thread has started.
///
/// The kernel hands an orphan to the first living thread of the process that inherits it
/// (find_new_reaper, since Linux 3.18), which is the main thread for as long as the process is not
/// ending. What other threads have started is in lists of their own, and needs no looking for: it
/// was registered. One file instead of two for each thread: a batch has several.
fn list_children() -> Option<Vec<i32>> {
    let us = std::process::id();
    match fs::read_to_string(format!("/proc/self/task/{us}/children")) {
        Ok(text) => Some(text.split_whitespace().filter_map(|w| w.parse::<i32>().ok()).collect()),
        Err(_) => None,
    }
}
