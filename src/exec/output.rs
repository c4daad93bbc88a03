//! Passing a child's output on, live and in bounded memory, and keeping part of it.
//!
//! Nothing here ever blocks, whatever our own stdout is, and none of the caller's descriptors is
//! made non-blocking (that would change it for everybody who shares it):
//!
//! | our stdout is | written |
//! |---|---|
//! | a pipe, a terminal | through a private, non-blocking description of the same (`/proc/self/fd/N`) |
//! | the same, where that is not permitted | when poll says so, as much as then never blocks |
//! | a socket | with `MSG_DONTWAIT` |
//! | anything else (file, /dev/null) | plainly |

use std::{
    fs, io,
    io::IsTerminal,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, OFlags, fcntl_getfl, fstat},
    io::{Errno, ioctl_fionread},
    net::{SendFlags, send},
    process::getsid,
};

/// What is read at a time, in bytes.
const CHUNK: usize = 64 * 1024;
/// What a pipe that polls writable always has room for, in bytes.
const PIPE_ROOM: usize = 4096;
/// A terminal that polls writable promises no more, in bytes.
const TERMINAL_ROOM: usize = 1;

/// Where a captured stream is passed on to.
#[derive(Debug)]
pub enum Sink {
    /// The stream of the same name of this process.
    Ours,
    /// Nowhere: it is only kept.
    Nowhere,
    /// This descriptor.
    To(OwnedFd),
}

/// What was kept of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The first bytes, at most half of the cap.
    pub head: Vec<u8>,
    /// The last bytes after `head`, at most the other half.
    pub tail: Vec<u8>,
    /// How many bytes the child wrote, as far as they were read.
    pub bytes: u64,
    /// Whoever read our stream went away, so we closed the child's: it may have had more to say.
    pub reader_gone: bool,
}

impl Captured {
    /// Whether `head` and `tail` are all the child wrote.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.reader_gone && (self.head.len() + self.tail.len()) as u64 == self.bytes
    }

    fn push(&mut self, bytes: &[u8], cap: usize) {
        self.bytes += bytes.len() as u64;
        let head_max = cap / 2;
        let room = head_max - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let tail_max = cap - head_max;
        let rest = &rest[rest.len().saturating_sub(tail_max)..];
        self.tail.extend_from_slice(rest);
        // Cut now and then only: moving the tail for every small piece would be quadratic.
        if self.tail.len() > 2 * tail_max {
            self.cut(cap);
        }
    }

    fn cut(&mut self, cap: usize) {
        let tail_max = cap - cap / 2;
        let excess = self.tail.len().saturating_sub(tail_max);
        self.tail.drain(..excess);
    }
}

/// How to write to a sink without blocking.
#[derive(Debug)]
enum Way {
    Plain,
    Private(OwnedFd),
    Socket,
    /// At most so many bytes, each time that poll says "writable".
    Polled(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pipe,
    Terminal,
    Socket,
    Other,
}

#[derive(Debug)]
enum Target {
    Stdout(io::Stdout),
    Stderr(io::Stderr),
    Fd(OwnedFd),
}

impl Target {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stdout(out) => out.as_fd(),
            Self::Stderr(err) => err.as_fd(),
            Self::Fd(fd) => fd.as_fd(),
        }
    }
}

#[derive(Debug)]
struct Writer {
    target: Target,
    kind: Kind,
    /// Found at the first write.
    way: Option<Way>,
}

/// One stream of one child.
#[derive(Debug)]
pub(super) struct Stream {
    name: &'static str,
    /// None: at its end, or closed because our own reader went away.
    pipe: Option<OwnedFd>,
    writer: Option<Writer>,
    buffer: Vec<u8>,
    /// `buffer[from..to]` is read and not yet passed on.
    from: usize,
    to: usize,
    cap: usize,
    captured: Captured,
    problem: Option<String>,
}

impl Stream {
    pub(super) fn new(name: &'static str, pipe: OwnedFd, sink: Sink, cap: usize) -> Self {
        let target = match sink {
            Sink::Nowhere => None,
            Sink::To(fd) => Some(Target::Fd(fd)),
            Sink::Ours if name == "stdout" => Some(Target::Stdout(io::stdout())),
            Sink::Ours => Some(Target::Stderr(io::stderr())),
        };
        Self {
            name,
            pipe: Some(pipe),
            writer: target.map(Writer::new),
            buffer: Vec::new(),
            from: 0,
            to: 0,
            cap,
            captured: Captured::default(),
            problem: None,
        }
    }

    /// What to poll: our end of the child's pipe, and the sink.
    pub(super) fn poll_fds(&self) -> (Option<PollFd<'_>>, Option<PollFd<'_>>) {
        let full = self.from < self.to;
        let read = match &self.pipe {
            Some(pipe) if !full => Some(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)),
            Some(_) | None => None,
        };
        let write = match &self.writer {
            Some(writer) if full => {
                Some(PollFd::from_borrowed_fd(writer.target.fd(), PollFlags::OUT))
            }
            // Without events poll still tells that the reader went away.
            Some(writer) if writer.kind == Kind::Pipe && self.pipe.is_some() => {
                Some(PollFd::from_borrowed_fd(writer.target.fd(), PollFlags::empty()))
            }
            Some(_) | None => None,
        };
        (read, write)
    }

    /// The child's pipe is readable, or at its end.
    pub(super) fn on_readable(&mut self) {
        if self.from < self.to {
            return;
        }
        let Some(pipe) = &self.pipe else { return };
        if self.buffer.is_empty() {
            // Most commands say nothing: the end of the file needs no buffer.
            if ioctl_fionread(pipe).is_ok_and(|bytes| bytes == 0) {
                let mut probe = [0; 1];
                return match rustix::io::read(pipe, &mut probe) {
                    Ok(0) => self.pipe = None,
                    Ok(_) => self.take(&probe),
                    Err(_) => {}
                };
            }
            self.buffer = vec![0; CHUNK];
        }
        match rustix::io::read(pipe, &mut self.buffer[..CHUNK]) {
            Ok(0) => self.pipe = None,
            Ok(got) => {
                self.captured.push(&self.buffer[..got], self.cap);
                (self.from, self.to) = (0, got);
                self.pass_on();
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => {
                self.note(format!("{}: cannot be read: {error}", self.name));
                self.pipe = None;
            }
        }
    }

    /// Bytes that came before there was a buffer.
    fn take(&mut self, bytes: &[u8]) {
        self.captured.push(bytes, self.cap);
        self.buffer = vec![0; CHUNK];
        self.buffer[..bytes.len()].copy_from_slice(bytes);
        (self.from, self.to) = (0, bytes.len());
        self.pass_on();
    }

    /// The sink is writable, or in trouble.
    pub(super) fn on_writable(&mut self, events: PollFlags) {
        if self.from < self.to {
            self.pass_on();
        } else if events.contains(PollFlags::ERR) {
            // The child meets the closed pipe at its next write, as it would without us.
            self.reader_went_away();
        }
    }

    /// Reads what the child has written, now that it has ended: what is in the pipe at this
    /// moment and no more, however much a descendant goes on writing. Bounded by the pipe's size.
    pub(super) fn read_rest(&mut self) {
        let Some(pipe) = self.pipe.take() else { return };
        let mut left = ioctl_fionread(&pipe).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0));
        self.buffer.truncate(self.to);
        while left > 0 {
            let start = self.buffer.len();
            self.buffer.resize(start + left, 0);
            let got = match rustix::io::read(&pipe, &mut self.buffer[start..]) {
                Err(Errno::INTR) => 0,
                Ok(0) | Err(_) => {
                    self.buffer.truncate(start);
                    break;
                }
                Ok(got) => got,
            };
            self.buffer.truncate(start + got);
            self.captured.push(&self.buffer[start..], self.cap);
            left -= got;
        }
        self.to = self.buffer.len();
        self.pass_on();
    }

    /// What was read and is not passed on, in bytes.
    pub(super) fn undelivered(&self) -> usize {
        self.to - self.from
    }

    /// Gives up what is not passed on yet.
    pub(super) fn give_up(&mut self) {
        let lost = self.undelivered();
        if lost > 0 {
            self.note(format!("{}: {lost} bytes were not passed on", self.name));
        }
        self.from = self.to;
    }

    pub(super) fn take_captured(&mut self) -> Captured {
        self.captured.cut(self.cap);
        std::mem::take(&mut self.captured)
    }

    pub(super) fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }

    fn note(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    fn reader_went_away(&mut self) {
        // At its end already, nothing the child says is lost by it.
        self.captured.reader_gone |= self.pipe.take().is_some();
        self.writer = None;
        self.from = self.to;
    }

    /// Writes what is there, until all is gone or the sink is full.
    fn pass_on(&mut self) {
        while self.from < self.to {
            let Some(writer) = &mut self.writer else {
                self.from = self.to;
                return;
            };
            match writer.write(&self.buffer[self.from..self.to]) {
                Ok(written) => self.from += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(Errno::PIPE | Errno::CONNRESET) => self.reader_went_away(),
                // A full device, a terminal that hung up: the child is not to notice, and what it says is still kept.
                Err(error) => {
                    self.note(format!("{}: cannot be written: {error}", self.name));
                    self.writer = None;
                }
            }
        }
    }
}

impl Writer {
    fn new(target: Target) -> Self {
        let kind = fstat(target.fd()).map_or(Kind::Other, |stat| {
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Fifo => Kind::Pipe,
                FileType::Socket => Kind::Socket,
                FileType::CharacterDevice if target.fd().is_terminal() => Kind::Terminal,
                FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::RegularFile
                | FileType::Directory
                | FileType::Symlink
                | FileType::Unknown => Kind::Other,
            }
        });
        Self { target, kind, way: None }
    }

    fn way(&self) -> Way {
        let room = match self.kind {
            Kind::Other => return Way::Plain,
            Kind::Socket => return Way::Socket,
            Kind::Pipe => PIPE_ROOM,
            Kind::Terminal => TERMINAL_ROOM,
        };
        let fd = self.target.fd();
        if fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)) {
            return Way::Plain;
        }
        let private = open_privately(&format!("/proc/self/fd/{}", fd.as_raw_fd()));
        // After su(1) the terminal is another user's file, but still ours to speak to by this name.
        let private = private.or_else(|_| match self.kind {
            Kind::Terminal if is_controlling(fd) => open_privately("/dev/tty"),
            Kind::Terminal | Kind::Pipe | Kind::Socket | Kind::Other => {
                Err(io::ErrorKind::PermissionDenied.into())
            }
        });
        private.map_or(Way::Polled(room), Way::Private)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.way.is_none() {
            self.way = Some(self.way());
        }
        let fd = self.target.fd();
        match &self.way {
            Some(Way::Private(private)) => rustix::io::write(private, bytes),
            Some(Way::Socket) => send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Some(Way::Polled(room)) => {
                let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                if poll(&mut ready, Some(&now))? == 0 {
                    return Err(Errno::AGAIN);
                }
                rustix::io::write(fd, &bytes[..bytes.len().min(*room)])
            }
            Some(Way::Plain) | None => rustix::io::write(fd, bytes),
        }
    }
}

/// Another description of what is open already, so that "non-blocking" is ours alone.
fn open_privately(path: &str) -> io::Result<OwnedFd> {
    let mut options = fs::OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(path).map(OwnedFd::from)
}

/// Whether this terminal is the one that /dev/tty stands for.
fn is_controlling(terminal: BorrowedFd<'_>) -> bool {
    let ours = getsid(None).map(|session| session.as_raw_pid());
    nix::sys::termios::tcgetsid(terminal).is_ok_and(|session| ours == Ok(session.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(cap: usize, pieces: &[&[u8]]) -> Captured {
        let mut captured = Captured::default();
        for piece in pieces {
            captured.push(piece, cap);
        }
        captured.cut(cap);
        captured
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let captured = kept(8, &[b"abc", b"", b"defgh"]);
        assert_eq!([captured.head.as_slice(), &captured.tail].concat(), b"abcdefgh");
        assert!(captured.is_whole());
    }

    #[test]
    fn of_what_does_not_fit_the_first_and_the_last_half_are_kept() {
        for size in [1, 2, 3, 5, 100] {
            let text: Vec<u8> = (0..100).collect();
            let pieces: Vec<&[u8]> = text.chunks(size).collect();
            let captured = kept(9, &pieces);
            assert_eq!(captured.head, [0, 1, 2, 3]);
            assert_eq!(captured.tail, [95, 96, 97, 98, 99]);
            assert_eq!(captured.bytes, 100);
            assert!(!captured.is_whole());
        }
    }

    #[test]
    fn a_cap_of_nothing_still_counts() {
        let captured = kept(0, &[b"abc"]);
        assert_eq!((captured.bytes, captured.is_whole()), (3, false));
        assert!(kept(0, &[]).is_whole());
    }
}
