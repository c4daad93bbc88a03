//! What the process was given, read before Rust's runtime changes it.
//!
//! The runtime ignores SIGPIPE and opens /dev/null on a closed standard descriptor before `main`
//! runs. A child must get what the *caller* gave us, so both are read in a constructor, which the
//! loader calls before the runtime starts.
#![expect(
    unsafe_code,
    reason = "a constructor has to be placed in .init_array, and sigaction(2) has no safe reader"
)]

use std::{
    ffi::c_int,
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static SIGXFSZ_IGNORED: AtomicBool = AtomicBool::new(false);
static SIGCHLD_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

#[used]
#[unsafe(link_section = ".init_array")]
static READ_ORIGIN: extern "C" fn() = read_origin;

extern "C" fn read_origin() {
    SIGPIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Relaxed);
    SIGXFSZ_IGNORED.store(is_ignored(libc::SIGXFSZ), Relaxed);
    SIGCHLD_IGNORED.store(is_ignored(libc::SIGCHLD), Relaxed);
    for (fd, closed) in (0..).zip(&CLOSED) {
        // SAFETY: F_GETFD only asks; a descriptor that is not open is an ordinary error.
        closed.store(unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1, Relaxed);
    }
}

/// Whether this process ignores the signal now.
pub(super) fn is_ignored(signal: c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action asks only, and `now` has room for the answer (and is valid as zeroes).
    unsafe {
        libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Whether the caller had SIGPIPE ignored.
pub(super) fn sigpipe_ignored() -> bool {
    SIGPIPE_IGNORED.load(Relaxed)
}

/// Whether the caller had SIGXFSZ ignored.
pub(super) fn sigxfsz_ignored() -> bool {
    SIGXFSZ_IGNORED.load(Relaxed)
}

/// From now on a write beyond the limit of a file's size (`ulimit -f`) is an error like a full
/// disk, and ends nobody: the child's outcome must not be lost because its log was too long.
pub(super) fn ignore_sigxfsz() {
    // SAFETY: SIG_IGN is a valid disposition; nothing of Rust's is touched.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether the caller had SIGCHLD ignored, which loses the exit status of every child.
pub(super) fn sigchld_ignored() -> bool {
    SIGCHLD_IGNORED.load(Relaxed)
}

/// Whether standard descriptor 0, 1 or 2 was closed when the process was started.
pub(super) fn was_closed(fd: usize) -> bool {
    CLOSED.get(fd).is_some_and(|closed| closed.load(Relaxed))
}

/// Takes SIGCHLD out of "ignored", without which the kernel throws exit statuses away.
pub(super) fn stop_ignoring_sigchld() {
    if sigchld_ignored() && is_ignored(libc::SIGCHLD) {
        // SAFETY: SIG_DFL is a valid disposition; nothing of Rust's is touched.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}
