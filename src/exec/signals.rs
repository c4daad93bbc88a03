//! Signals that are passed on, and dying of one.
//!
//! A handler writes one small record to a pipe; everything else happens in the poll loop that
//! reads it. Handlers, not masks: a child inherits a mask, but never a handler.
#![expect(
    unsafe_code,
    reason = "a signal handler that is told who sent the signal has no safe interface"
)]

use std::{
    collections::VecDeque,
    ffi::{c_int, c_void},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicI32, Ordering::Relaxed},
    },
};

// Not rustix's: a group or session whose leader is outside of our PID namespace has the number 0.
use nix::unistd::{Pid, getpgid, getpgrp, getpid, getsid};
use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{DumpableBehavior, Resource, Rlimit, Signal, set_dumpable_behavior, setrlimit},
};

use super::{group, origin, reap};

/// The signals that are passed on to a child.
pub const PASSED_ON: [i32; 13] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    // Nobody sends these by hand, but they end a process that does not expect them, and then the
    // outcome is nobody's: an alarm that was set before we were started, a limit of CPU time.
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    libc::SIGIO,
    libc::SIGPWR,
];

/// Written whole by the handler: number, si_code, si_pid.
const RECORD_BYTES: usize = 12;
const SIGNALS_MAX: usize = 65;

static WRITE_END: AtomicI32 = AtomicI32::new(-1);
/// Signals for which the pipe had no room: thousands of them are waiting already.
static MISSED: [AtomicBool; SIGNALS_MAX] = [const { AtomicBool::new(false) }; SIGNALS_MAX];
static SHARED: OnceLock<Shared> = OnceLock::new();
static INSTALLING: Mutex<()> = Mutex::new(());

#[derive(Debug)]
struct Shared {
    read_end: OwnedFd,
    /// Kept open for the handler, which knows it by number.
    #[expect(dead_code, reason = "the handler knows it by its number")]
    write_end: OwnedFd,
    waiting: Mutex<VecDeque<Arrival>>,
}

/// One arrival of a signal, and where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) number: i32,
    code: i32,
    sender: i32,
}

/// The signals this process has caught and that nobody has dealt with yet.
///
/// Handlers belong to the process, so all values of this type are one and the same. Each arrival
/// is kept apart, where the kernel has not made one of several before the handler ran. A
/// [`Child`](super::Child) that was started with it takes the arrivals while it is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Signals(&'static Shared);

impl Signals {
    /// Catches TERM, INT, HUP, QUIT, USR1, USR2 and WINCH from now on, but those that the caller
    /// had ignored (nohup), which stay ignored here and in every child. Also makes this process
    /// the one that collects every process it inherits, as PID 1 of a container must.
    ///
    /// # Errors
    /// Where a pipe or a handler cannot be set up (out of descriptors).
    pub fn install() -> io::Result<Self> {
        let caught = Self::listen()?;
        origin::ignore_sigxfsz();
        // Only a wake-up: an orphan has ended and is to be collected.
        handle(libc::SIGCHLD, libc::SA_RESTART | libc::SA_SIGINFO | libc::SA_NOCLDSTOP)?;
        reap::adopt_strangers();
        // What had ended before there was a handler wakes nobody.
        reap::strangers(None);
        Ok(caught)
    }

    /// Catches the same signals, for a process that waits for its children by itself: none is
    /// collected here.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub fn listen() -> io::Result<Self> {
        let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = SHARED.get() {
            return Ok(Self(shared));
        }
        let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        WRITE_END.store(write_end.as_raw_fd(), Relaxed);
        let shared =
            SHARED.get_or_init(|| Shared { read_end, write_end, waiting: Mutex::default() });
        for signal in PASSED_ON {
            if !origin::is_ignored(signal) {
                handle(signal, libc::SA_RESTART | libc::SA_SIGINFO)?;
            }
        }
        Ok(Self(shared))
    }

    /// The numbers of the signals that have arrived and are still there to be passed on or taken,
    /// in order of arrival. Look here before polling [`AsFd::as_fd`], which shows only new ones.
    ///
    /// Orphans that have ended are collected by it: a wait without a child goes through here.
    #[must_use]
    pub fn pending(&self) -> Vec<i32> {
        if self.collect() {
            reap::strangers(None);
        }
        self.waiting().iter().map(|arrival| arrival.number).collect()
    }

    /// As [`Self::pending`], and they are dealt with: no child will be sent them.
    #[must_use]
    pub fn take(&self) -> Vec<i32> {
        self.arrivals().0.iter().map(|a| a.number).collect()
    }

    /// What has arrived, and whether a child or an orphan has ended meanwhile.
    pub(super) fn arrivals(self) -> (Vec<Arrival>, bool) {
        let child_ended = self.collect();
        (self.waiting().drain(..).collect(), child_ended)
    }

    fn waiting(self) -> MutexGuard<'static, VecDeque<Arrival>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves what the handler wrote into the queue. True: SIGCHLD was among it.
    fn collect(self) -> bool {
        let mut child_ended = false;
        let mut queue = self.waiting();
        let mut bytes = [0_u8; RECORD_BYTES * 64];
        // Writes of a record are atomic and the buffer holds whole ones, so no record is torn.
        while let Ok(got @ 1..) = rustix::io::read(&self.0.read_end, &mut bytes) {
            let (records, _) = bytes[..got].as_chunks::<RECORD_BYTES>();
            for record in records {
                let (words, _) = record.as_chunks::<4>();
                let [number, code, sender] = [0, 1, 2].map(|i| i32::from_ne_bytes(words[i]));
                if number == libc::SIGCHLD {
                    child_ended = true;
                } else {
                    queue.push_back(Arrival { number, code, sender });
                }
            }
        }
        for (number, missed) in (0..).zip(&MISSED) {
            if missed.swap(false, Relaxed) {
                if number == libc::SIGCHLD {
                    child_ended = true;
                } else {
                    queue.push_back(Arrival { number, code: libc::SI_USER, sender: 0 });
                }
            }
        }
        child_ended
    }
}

impl AsFd for Signals {
    /// Readable when a signal has arrived that [`Signals::pending`] has not seen.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.read_end.as_fd()
    }
}

impl Arrival {
    /// Whether the terminal sent it, and so to the whole foreground group.
    pub(super) fn came_to_our_group(self) -> bool {
        // A hang-up is the exception: the session leader alone gets it, and as the wrapper that may be us.
        let to_leader = || getsid(None).is_ok_and(|leader| leader == getpid());
        self.code == libc::SI_KERNEL && !(self.number == libc::SIGHUP && to_leader())
    }

    /// Whether the child, in our process group, or a descendant of it there sent it: `kill 0` in a
    /// script (`trap 'kill 0' EXIT`) means its group, and not itself once more.
    pub(super) fn was_made_by(self, child: i32) -> bool {
        self.code <= 0
            && self.sender > 0
            && group::is_in_tree_of(self.sender, child)
            && getpgid(Some(Pid::from_raw(self.sender))).is_ok_and(|group| group == getpgrp())
    }

    /// The signal to send; none of those we catch is unnamed.
    pub(super) fn signal(self) -> Option<Signal> {
        Signal::from_named_raw(self.number)
    }
}

fn handle(signal: c_int, flags: c_int) -> io::Result<()> {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
    // SAFETY: all-zero is a valid sigaction (an empty mask); the handler is async-signal-safe.
    let answer = unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags;
        libc::sigaction(signal, &raw const action, ptr::null_mut())
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Only write(2) and atomics, and errno as it was found: this interrupts anything.
extern "C" fn on_signal(number: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo_t (SA_SIGINFO); si_pid is a plain read of it,
    // meaningless unless a process has sent the signal. write(2) is async-signal-safe.
    unsafe {
        let errno = *libc::__errno_location();
        let mut record = [0_u8; RECORD_BYTES];
        record[..4].copy_from_slice(&number.to_ne_bytes());
        record[4..8].copy_from_slice(&(*info).si_code.to_ne_bytes());
        record[8..].copy_from_slice(&(*info).si_pid().to_ne_bytes());
        let fd = WRITE_END.load(Relaxed);
        if libc::write(fd, record.as_ptr().cast(), RECORD_BYTES) != RECORD_BYTES.cast_signed()
            && let Ok(at) = usize::try_from(number)
            && at < SIGNALS_MAX
        {
            MISSED[at].store(true, Relaxed);
        }
        *libc::__errno_location() = errno;
    }
}

/// Ends this process by signal `number`, as its child ended, so that a shell sees the same.
///
/// No core is written: the child's is the one that matters. Nothing is dropped or flushed. Where the signal does not end the
/// process (PID 1 of a container, a stop signal), it exits with 128 + `number`.
pub fn die_of_signal(number: i32) -> ! {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // A core_pattern that is a program is not stopped by the limit.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // SAFETY: plain libc calls on a set of our own; SIG_DFL is valid for every signal, and a
    // number that names none is refused. _exit does not return.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        if !stops.contains(&number) {
            libc::signal(number, libc::SIG_DFL);
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, number);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
            // To this thread, so that it has been acted on when the call returns.
            libc::raise(number);
        }
        libc::_exit(128 + number)
    }
}
