//! Output: byte for byte, bounded, whatever our reader does.

#![expect(clippy::expect_used, reason = "helpers of tests, outside #[test]")]

mod exec_support;

use std::{
    fs::File,
    io::Read,
    os::fd::{AsFd, OwnedFd},
    os::unix::net::UnixStream,
    thread,
    time::Duration,
};

use ctrlrun::exec::{CommandLine, Exit, Output, Sink, Waited};
use exec_support::{
    BOUND, end_of, is_alive, kept, number_in, run, serve_until, sh, start, text, until, with_path,
};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    pipe::{PipeFlags, pipe_with},
};

fn to(mut line: CommandLine, stdout: impl Into<OwnedFd>) -> CommandLine {
    line.output =
        Output::Capture { cap: 64, stdout: Sink::To(stdout.into()), stderr: Sink::Nowhere };
    line
}

fn pipe() -> (File, OwnedFd) {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("pipe");
    (File::from(read), write)
}

/// Reads to the end on a thread, as the reader of our stdout.
fn reader(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).expect("read");
        all
    })
}

/// What `seq 1 n` prints.
fn seq(n: usize) -> Vec<u8> {
    (1..=n).flat_map(|i| format!("{i}\n").into_bytes()).collect()
}

#[test]
fn both_streams_of_10_mib_in_turn_and_one_alone() {
    let mut line =
        sh("for i in 1 2 3 4 5; do head -c 1048576 /dev/zero; head -c 1048576 /dev/zero >&2; done");
    line.output = kept(1000);
    let end = run(line);
    assert_eq!((end.stdout.bytes, end.stderr.bytes), (5 << 20, 5 << 20));
    let end = run(sh("head -c 10485760 /dev/zero >&2"));
    assert_eq!((end.exit, end.stdout.bytes, end.stderr.bytes), (Exit::Code(0), 0, 10 << 20));
    assert_eq!((end.stderr.head.len(), end.stderr.tail.len()), (32 * 1024, 32 * 1024));
    assert!(!end.stderr.is_whole());
}

#[test]
fn what_passes_through_a_pipe_is_the_same_byte_for_byte() {
    let (read, write) = pipe();
    let got = reader(read);
    let mut child = start(to(sh("seq 1 500000"), write));
    let end = end_of(&mut child);
    assert!(child.deliver_rest().problems.is_empty());
    drop(child);
    let expected = seq(500_000);
    assert!(got.join().expect("reader") == expected);
    assert_eq!(end.stdout.bytes, expected.len() as u64);
    assert_eq!(end.stdout.head, expected[..32]);
    assert_eq!(end.stdout.tail, expected[expected.len() - 32..]);
}

#[test]
fn a_socket_and_a_file_and_a_non_blocking_pipe_get_all_of_it() {
    let expected = seq(100_000);
    let (ours, theirs) = UnixStream::pair().expect("pair");
    let got = reader(theirs);
    let mut child = start(to(sh("seq 1 100000"), OwnedFd::from(ours)));
    end_of(&mut child);
    assert!(child.deliver_rest().problems.is_empty());
    drop(child);
    assert!(got.join().expect("reader") == expected, "socket");

    let mut file = tempfile::tempfile().expect("file");
    run(to(sh("seq 1 100000"), file.try_clone().expect("clone")));
    let mut all = Vec::new();
    use std::io::Seek;
    file.rewind().expect("rewind");
    file.read_to_end(&mut all).expect("read");
    assert!(all == expected, "file");

    let (read, write) = pipe();
    fcntl_setfl(&write, OFlags::NONBLOCK).expect("flags");
    let got = reader(read);
    let mut child = start(to(sh("seq 1 100000"), write));
    end_of(&mut child);
    child.deliver_rest();
    drop(child);
    assert!(got.join().expect("reader") == expected, "non-blocking pipe");
}

#[test]
fn the_callers_pipe_is_not_made_non_blocking() {
    let (read, write) = pipe();
    let shared = write.try_clone().expect("clone");
    let got = reader(read);
    run(to(sh("seq 1 100000"), write));
    assert!(!fcntl_getfl(&shared).expect("flags").contains(OFlags::NONBLOCK));
    drop(shared);
    got.join().expect("reader");
}

#[test]
fn a_reader_that_never_reads_keeps_neither_time_nor_end_from_being_seen() {
    let dir = tempfile::tempdir().expect("dir");
    let marker = dir.path().join("marker");
    let (mut read, write) = pipe();
    // More than two pipes and our buffer hold: 192 KiB.
    let line = to(sh("seq 1 50000; echo done >\"$M\"; exit 3"), write);
    let mut child = start(with_path(line, "M", &marker));
    // The pipe to the reader is full, ours is not empty: the wait comes back all the same.
    for _ in 0..3 {
        assert!(matches!(child.wait(Some(Duration::from_millis(20)), None), Waited::TimeReached));
    }
    assert!(!marker.exists(), "the child is held as it would be without us");
    // It reads a little now and then: the child can end, the rest is still in the pipes.
    let mut got = Vec::new();
    let end = loop {
        match child.wait(Some(Duration::from_millis(5)), None) {
            Waited::Ended(end) => break end,
            Waited::TimeReached | Waited::Woken => {
                let mut some = vec![0; 8 * 1024];
                read.read_exact(&mut some).expect("read");
                got.extend(some);
            }
        }
    };
    assert_eq!(end.exit, Exit::Code(3));
    assert_eq!(end.stdout.bytes as usize, seq(50_000).len());
    // Now the reader goes on, and nothing is lost.
    let rest = reader(read);
    let delivery = child.deliver_rest();
    assert!(delivery.problems.is_empty() && delivery.stopped_by.is_none(), "{delivery:?}");
    drop(child);
    got.extend(rest.join().expect("reader"));
    assert!(got == seq(50_000));
}

#[test]
fn a_reader_that_never_reads_does_not_stop_the_time_out() {
    let (_read, write) = pipe();
    let mut line = to(sh("yes"), write);
    line.timeout = Some(Duration::from_millis(300));
    let end = run(line);
    assert!(end.timed_out);
}

#[test]
fn a_socket_that_nobody_reads_does_not_stop_the_time_out() {
    let (ours, _theirs) = UnixStream::pair().expect("pair");
    let mut line = to(sh("exec yes"), OwnedFd::from(ours));
    line.timeout = Some(Duration::from_millis(300));
    assert!(run(line).timed_out);
}

#[test]
fn a_reader_that_goes_away_is_met_by_the_child_as_without_us() {
    let (mut read, write) = pipe();
    let mut child = start(to(sh("exec yes"), write));
    let mut some = [0; 10];
    serve_until(&mut child, "some output", || {
        rustix::io::ioctl_fionread(&read).is_ok_and(|n| n > 0)
    });
    read.read_exact(&mut some).expect("read");
    drop(read);
    let end = end_of(&mut child);
    assert_eq!(end.exit, Exit::Signal { number: libc::SIGPIPE, core: false });
    assert!(end.stdout.reader_gone && !end.stdout.is_whole());
    assert!(end.problems.is_empty(), "{:?}", end.problems);
}

#[test]
fn a_reader_that_has_gone_before_the_first_byte_is_met_too() {
    let (read, write) = pipe();
    drop(read);
    let dir = tempfile::tempdir().expect("dir");
    let go = dir.path().join("go");
    rustix::fs::mknodat(rustix::fs::CWD, &go, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .expect("fifo");
    // The first write of the child fails, not a later one.
    let line = with_path(
        to(sh("read x <\"$GO\"; trap '' PIPE; echo a 2>/dev/null || exit 9"), write),
        "GO",
        &go,
    );
    let mut child = start(line);
    assert!(matches!(child.wait(Some(Duration::from_millis(10)), None), Waited::TimeReached));
    std::fs::write(&go, "x\n").expect("go");
    assert_eq!(end_of(&mut child).exit, Exit::Code(9));
}

#[test]
fn output_that_ended_before_the_reader_went_is_whole() {
    let (read, write) = pipe();
    drop(read);
    let end = run(to(sh("trap '' PIPE; exec >&-"), write));
    assert_eq!(end.exit, Exit::Code(0));
    assert_eq!(end.stdout.bytes, 0);
}

#[test]
fn a_full_device_is_noted_once_and_the_child_does_not_notice() {
    let full = File::options().write(true).open("/dev/full").expect("open");
    let end = run(to(sh("seq 1 100000 && echo last >&2"), full));
    assert_eq!(end.exit, Exit::Code(0));
    assert_eq!(end.stdout.bytes as usize, seq(100_000).len());
    assert_eq!(text(&end.stderr), "last\n");
    assert_eq!(end.problems, ["stdout: cannot be written: No space left on device (os error 28)"]);
}

#[test]
fn a_descendant_that_holds_the_pipe_holds_nobody() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("pid");
    let end = run(with_path(sh("sleep 1000 & echo $! >\"$F\"; echo said"), "F", &file));
    let left = number_in(&file).expect("pid");
    assert_eq!(text(&end.stdout), "said\n");
    assert_eq!(end.descendants_left, [left.cast_unsigned()]);
    assert!(is_alive(left));
    kill(left);
}

#[test]
fn a_descendant_that_writes_for_ever_holds_nobody() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("pid");
    let end = run(with_path(sh("yes & echo $! >\"$F\"; sleep 0.1; exit 4"), "F", &file));
    let left = number_in(&file).expect("pid");
    assert_eq!(end.exit, Exit::Code(4));
    assert_eq!(end.descendants_left.len(), 1);
    // It meets the closed pipe and ends by itself; nobody is left behind as a zombie of its group.
    until("yes has ended", || !is_alive(left));
}

#[test]
fn stdin_passes_through_a_child() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("in");
    std::fs::write(&path, seq(300_000)).expect("write");
    let mut line = to(sh("cat"), File::create(dir.path().join("out")).expect("create"));
    line.stdin = ctrlrun::exec::Stdin::From(File::open(&path).expect("open").into());
    assert_eq!(run(line).exit, Exit::Code(0));
    assert!(std::fs::read(dir.path().join("out")).expect("read") == seq(300_000));
}

#[test]
fn waiting_ends_when_the_other_descriptor_is_readable() {
    let (read, write) = pipe();
    let mut child = start(sh("exec sleep 1000"));
    rustix::io::write(&write, b"x").expect("write");
    assert!(matches!(child.wait(Some(BOUND), Some(read.as_fd())), Waited::Woken));
    exec_support::stop(child);
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
}
