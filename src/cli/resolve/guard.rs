//! Gives the terminal back when a signal ends a dialogue (DEC-16).
//!
//! The prompts hide the cursor and read keys unbuffered; a process that simply died would leave both.
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;

use ctrlrun::exec::{PASSED_ON, Signals, die_of_signal};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};

use crate::cli::terminal::{prompt, say};

/// How far the dialogue is with what was confirmed: what may be said of it when it is ended.
static STAGE: AtomicU8 = AtomicU8::new(NOTHING);
/// Nothing was confirmed yet.
const NOTHING: u8 = 0;
/// A decision is on its way to the store.
const UNDER_WAY: u8 = 1;
/// Some were recorded, and none is on its way.
const RECORDED: u8 = 2;

/// Watches for signals as long as this process lives.
pub struct Guard {
    before: Option<Termios>,
}

impl Guard {
    /// Remembers the terminal as it is, and waits for signals beside the dialogue.
    ///
    /// # Errors
    /// Where signals cannot be caught, or no thread can be had.
    pub fn set() -> io::Result<Self> {
        let signals = Signals::listen()?;
        let before = tcgetattr(io::stdin()).ok();
        let theirs = before.clone();
        thread::Builder::new().spawn(move || watch(signals, theirs.as_ref()))?;
        // That thread takes them all. Here one would interrupt the reading of a key, which the prompts
        // take for ^C: a window that changes its size would end the dialogue.
        let mut caught = SigSet::empty();
        for number in PASSED_ON {
            caught.extend(Signal::try_from(number));
        }
        caught.thread_block()?;
        Ok(Self { before })
    }

    /// Records something by `record`, which may come to nothing: until its end, neither "nothing was
    /// changed" nor "it is recorded" would be known to be true.
    pub fn while_recording<T>(&self, record: impl FnOnce() -> T) -> T {
        STAGE.store(UNDER_WAY, Ordering::Relaxed);
        let came = record();
        STAGE.store(RECORDED, Ordering::Relaxed);
        came
    }

    /// The dialogue was interrupted by a key, and by nothing else, since no signal reaches it: the
    /// same as by the signal.
    pub fn interrupted(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::Interrupted {
            end_by(Signal::SIGINT as i32, self.before.as_ref());
        }
    }
}

fn watch(signals: Signals, before: Option<&Termios>) {
    loop {
        if let Some(number) = signals.pending().into_iter().find(|number| ends(*number)) {
            end_by(number, before);
        }
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        // An interrupted poll is only a reason to look again.
        let _ = poll(&mut fds, PollTimeout::NONE);
    }
}

/// All of those that are caught end a process, but for the one that tells of the window's size.
fn ends(number: i32) -> bool {
    number != Signal::SIGWINCH as i32
}

fn end_by(number: i32, before: Option<&Termios>) -> ! {
    static ENDING: AtomicBool = AtomicBool::new(false);
    while ENDING.swap(true, Ordering::Relaxed) {
        // The other thread is at it already: what is told is told once.
        thread::park();
    }
    let give_back = || before.map(|before| tcsetattr(io::stdin(), SetArg::TCSANOW, before));
    give_back();
    prompt("\x1b[?25h\n");
    say(match STAGE.load(Ordering::Relaxed) {
        NOTHING => "ended: nothing was changed",
        UNDER_WAY => {
            "ended while a decision was being recorded: look whether it was (ctrlrun show)"
        }
        _ => "ended: nothing was changed but what was told above",
    });
    // Once more: the dialogue may have begun to read another key meanwhile.
    give_back();
    die_of_signal(number)
}
