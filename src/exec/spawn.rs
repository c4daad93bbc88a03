//! Starting a process, or proving that nothing ran.
//!
//! posix_spawn(3) starts it: no copy of our memory, no code of ours between fork and exec, and
//! the errno of a failing exec. Its one gap is a caller that had SIGCHLD ignored: then the child
//! must have it ignored and we must not, which only code between fork and exec can do.
#![expect(
    unsafe_code,
    reason = "the rare path through fork runs a closure in the child, and calls execve there"
)]

use std::{
    collections::HashSet,
    env,
    ffi::{CStr, CString, OsStr, OsString, c_char},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            process::CommandExt,
        },
    },
    process::{Command, Stdio},
    ptr,
};

use nix::{
    fcntl::OFlag,
    spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp},
    sys::{signal::SigSet, signal::Signal, stat::Mode},
    unistd::Pid as NixPid,
};
use rustix::{
    fs::{OFlags, fcntl_setfl},
    pipe::{PipeFlags, pipe_with},
};

use super::{CommandLine, Output, Stdin, origin, reap};

/// Why a command could not be started. It proves that nothing of it ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{program}: {text}")]
pub struct NotStarted {
    /// What kind of failure it was.
    pub kind: NotStartedKind,
    /// The error number of the system.
    pub errno: i32,
    /// What was to be run, as text.
    pub program: String,
    /// What the system says about the error.
    pub text: String,
}

/// The kinds of [`NotStarted`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStartedKind {
    /// No such program, or its interpreter is missing (ENOENT).
    NotFound,
    /// It is there and may not, or cannot, be executed (EACCES, EPERM, ENOEXEC).
    NotExecutable,
    /// Anything else: arguments too long, a NUL in an argument, out of processes, memory or descriptors.
    Other,
}

impl NotStarted {
    /// The exit status that shells and env(1) use for it: 127 where it was not found, else 126.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self.kind {
            NotStartedKind::NotFound => 127,
            NotStartedKind::NotExecutable | NotStartedKind::Other => 126,
        }
    }

    fn new(program: &OsStr, error: &io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        Self {
            kind: match errno {
                libc::ENOENT => NotStartedKind::NotFound,
                libc::EACCES | libc::EPERM | libc::ENOEXEC => NotStartedKind::NotExecutable,
                _ => NotStartedKind::Other,
            },
            errno,
            program: program.to_string_lossy().into_owned(),
            text: nix::errno::Errno::from_raw(errno).desc().to_owned(),
        }
    }
}

/// A process that runs, and our ends of its output pipes.
pub(super) struct Started {
    pub(super) pid: i32,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
}

/// Starts the command, in a process group of its own if `own_group`, and registers its pid.
pub(super) fn start(line: &CommandLine, own_group: bool) -> Result<Started, NotStarted> {
    try_start(line, own_group).map_err(|error| NotStarted::new(&line.program, &error))
}

fn try_start(line: &CommandLine, own_group: bool) -> io::Result<Started> {
    let program = c_string(&line.program)?;
    let mut argv = vec![program.clone()];
    for arg in &line.args {
        argv.push(c_string(arg)?);
    }
    let envp = environment(&line.env)?;
    let (stdout, child_stdout) = output_pipe(&line.output)?.unzip();
    let (stderr, child_stderr) = output_pipe(&line.output)?.unzip();
    let ends = [child_stdout.as_ref(), child_stderr.as_ref()];
    origin::stop_ignoring_sigchld();
    let starting = reap::starting();
    let pid = if origin::sigchld_ignored() {
        by_fork(line, &program, &argv, &envp, ends, own_group)?
    } else {
        by_posix_spawn(line, &program, &argv, &envp, ends, own_group)?
    };
    starting.register(pid);
    Ok(Started { pid, stdout, stderr })
}

/// A pipe whose read end does not block; the write end, the child's, does.
fn output_pipe(output: &Output) -> io::Result<Option<(OwnedFd, OwnedFd)>> {
    match output {
        Output::Inherit => Ok(None),
        Output::Capture { .. } => {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            fcntl_setfl(&read, OFlags::NONBLOCK)?;
            Ok(Some((read, write)))
        }
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Our environment as `NAME=VALUE`, with `added` in place of what has the same name.
fn environment(added: &[(OsString, OsString)]) -> io::Result<Vec<CString>> {
    let names: HashSet<&OsStr> = added.iter().map(|(name, _)| name.as_os_str()).collect();
    env::vars_os()
        .filter(|(name, _)| !names.contains(name.as_os_str()))
        .chain(added.iter().cloned())
        .map(|(name, value)| {
            let mut entry = name.into_vec();
            entry.push(b'=');
            entry.extend_from_slice(value.as_bytes());
            CString::new(entry).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
        })
        .collect()
}

fn by_posix_spawn(
    line: &CommandLine,
    program: &CStr,
    argv: &[CString],
    envp: &[CString],
    ends: [Option<&OwnedFd>; 2],
    own_group: bool,
) -> io::Result<i32> {
    let mut actions = PosixSpawnFileActions::init()?;
    match &line.stdin {
        Stdin::Inherit if origin::was_closed(0) => actions.add_close(0)?,
        Stdin::Inherit => {}
        Stdin::Null => actions.add_open(0, "/dev/null", OFlag::O_RDONLY, Mode::empty())?,
        Stdin::From(fd) => actions.add_dup2(fd.as_raw_fd(), 0)?,
    }
    for (fd, end) in [(1, ends[0]), (2, ends[1])] {
        match end {
            Some(end) => actions.add_dup2(end.as_raw_fd(), fd)?,
            None if origin::was_closed(fd.cast_unsigned() as usize) => actions.add_close(fd)?,
            None => {}
        }
    }
    let mut attributes = PosixSpawnAttr::init()?;
    let mut flags = PosixSpawnFlags::empty();
    if own_group {
        attributes.set_pgroup(NixPid::from_raw(0))?;
        flags |= PosixSpawnFlags::POSIX_SPAWN_SETPGROUP;
    }
    // Signals we catch are back at their default in the child; those that were ignored stay so.
    // Two are ignored by us and not by the caller: SIGPIPE by Rust's runtime, SIGXFSZ by `Signals`.
    let mut defaults = SigSet::empty();
    if !origin::sigpipe_ignored() {
        defaults.add(Signal::SIGPIPE);
    }
    if !origin::sigxfsz_ignored() {
        defaults.add(Signal::SIGXFSZ);
    }
    attributes.set_sigdefault(&defaults)?;
    flags |= PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
    attributes.set_flags(flags)?;
    Ok(posix_spawnp(program, &actions, &attributes, argv, envp)?.as_raw())
}

/// A null-terminated array of strings for execve(2), made before the fork.
struct Pointers(Vec<*const c_char>);

// SAFETY: the strings outlive the array (`by_fork` keeps both), and nothing writes to them.
unsafe impl Send for Pointers {}
// SAFETY: as above.
unsafe impl Sync for Pointers {}

impl Pointers {
    fn new(strings: &[CString]) -> Self {
        let pointers = strings.iter().map(|string| string.as_ptr());
        Self(pointers.chain([ptr::null()]).collect())
    }
}

/// As `by_posix_spawn`, with SIGCHLD ignored in the child. Slower, and only for such callers.
fn by_fork(
    line: &CommandLine,
    program: &CStr,
    argv: &[CString],
    envp: &[CString],
    ends: [Option<&OwnedFd>; 2],
    own_group: bool,
) -> io::Result<i32> {
    let candidates = candidates(program)?;
    let (argv, envp) = (Pointers::new(argv), Pointers::new(envp));
    let as_caller = |ignored: bool| if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
    let sigpipe = as_caller(origin::sigpipe_ignored());
    let sigxfsz = as_caller(origin::sigxfsz_ignored());
    let mut mask = SigSet::empty();
    mask.clone_from(&SigSet::thread_get_mask()?);
    let close: Vec<i32> = (0..3)
        .filter(|fd| origin::was_closed(*fd))
        .filter(|fd| match fd {
            0 => matches!(line.stdin, Stdin::Inherit),
            _ => ends[fd - 1].is_none(),
        })
        .filter_map(|fd| i32::try_from(fd).ok())
        .collect();
    let mut command = Command::new(&line.program);
    command.stdin(match &line.stdin {
        Stdin::Inherit => Stdio::inherit(),
        Stdin::Null => Stdio::null(),
        Stdin::From(fd) => fd.try_clone()?.into(),
    });
    let [stdout, stderr] = ends;
    if let (Some(stdout), Some(stderr)) = (stdout, stderr) {
        command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    }
    if own_group {
        command.process_group(0);
    }
    let exec = move || {
        let _ = mask.thread_set_mask();
        // SAFETY: between fork and exec only async-signal-safe calls are made: signal, close and
        // execve, on memory that was made ready before the fork.
        unsafe {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            libc::signal(libc::SIGPIPE, sigpipe);
            libc::signal(libc::SIGXFSZ, sigxfsz);
            for fd in &close {
                libc::close(*fd);
            }
        }
        let (argv, envp) = (&argv, &envp);
        let mut worst = libc::ENOENT;
        for path in &candidates {
            // SAFETY: as above; both arrays end with a null pointer. It returns only when it failed.
            unsafe { libc::execve(path.as_ptr(), argv.0.as_ptr(), envp.0.as_ptr()) };
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EACCES) => worst = libc::EACCES,
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                other => return Err(io::Error::from_raw_os_error(other.unwrap_or(libc::EINVAL))),
            }
        }
        Err(io::Error::from_raw_os_error(worst))
    };
    // SAFETY: see the closure.
    unsafe { command.pre_exec(exec) };
    // Not collected by dropping it: `reap` does that, by its pid.
    let child = command.spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// Where the program may be, as execvp(3) looks for it.
fn candidates(program: &CStr) -> io::Result<Vec<CString>> {
    if program.to_bytes().contains(&b'/') {
        return Ok(vec![program.to_owned()]);
    }
    if program.is_empty() {
        return Ok(Vec::new());
    }
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    env::split_paths(&path)
        .map(|dir| c_string(dir.join(OsStr::from_bytes(program.to_bytes())).as_os_str()))
        .collect()
}
