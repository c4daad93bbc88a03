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
        Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::Exit;

static GATE: RwLock<()> = RwLock::new(());
static OURS: Mutex<Vec<i32>> = Mutex::new(Vec::new());
static ADOPTING: AtomicBool = AtomicBool::new(false);

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
        ours().push(pid);
    }
}

fn ours() -> MutexGuard<'static, Vec<i32>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a child that was collected, or is no longer waited for, out of the register.
pub(super) fn unregister(pid: i32) {
    let mut ours = ours();
    if let Some(at) = ours.iter().position(|p| *p == pid) {
        ours.swap_remove(at);
    }
}

/// Whether a `Child` in this process has that pid.
pub(super) fn is_registered(pid: i32) -> bool {
    ours().contains(&pid)
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

/// Whether this process has any child at all, running or not.
pub(super) fn any_children() -> bool {
    waitid(libc::P_ALL, 0, libc::WNOWAIT).is_ok()
}

/// Collects what has ended and is no `Child`: everything where this process is a wrapper, else
/// only what is in the child's own process group.
pub(super) fn strangers(own_group: Option<i32>) {
    // Somebody is starting or collecting: what is left here is collected the next time.
    let Ok(_gate) = GATE.try_write() else { return };
    let (kind, id) = match own_group {
        _ if ADOPTING.load(Relaxed) => (libc::P_ALL, 0),
        Some(group) => (libc::P_PGID, group),
        None => return,
    };
    // A look first: the end of a registered child is its owner's to collect.
    while let Ok(Some(found)) = waitid(kind, id, libc::WNOWAIT) {
        if is_registered(found.pid) || child(found.pid).is_err() {
            return;
        }
    }
}

/// The direct children of this process that no `Child` stands for, zombies included.
/// None: the kernel does not tell.
pub(super) fn inherited() -> Option<Vec<i32>> {
    // No child of ours is half started while we look.
    let _gate = GATE.write().unwrap_or_else(PoisonError::into_inner);
    let mut pids = list_children()?;
    // A child that is collected while the kernel lists can make it skip another: look twice.
    pids.extend(list_children()?);
    pids.sort_unstable();
    pids.dedup();
    let ours = ours();
    pids.retain(|pid| !ours.contains(pid));
    Some(pids)
}

fn list_children() -> Option<Vec<i32>> {
    let mut pids = Vec::new();
    for task in fs::read_dir("/proc/self/task").ok()? {
        match fs::read_to_string(task.ok()?.path().join("children")) {
            Ok(text) => pids.extend(text.split_whitespace().filter_map(|w| w.parse::<i32>().ok())),
            // A thread that has ended between the two readings hands its children to another one.
            Err(_) if fs::exists("/proc/thread-self/children").unwrap_or(false) => {}
            Err(_) => return None,
        }
    }
    Some(pids)
}
