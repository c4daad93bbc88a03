//! Output and input, and descriptors that are closed, shared, full or slow.
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::at::{Kind, MARK, Place, fed, is_alive, number_in, until};
use crate::common::finish;
use crate::real::{behind, ends, kill, lines, script, words};

/// Bytes that repeat nowhere soon.
fn noise(len: u32) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn both_streams_at_the_same_time_and_stdin_pass_byte_for_byte() {
    // Case 22; EXE-15, EXE-19
    let at = Place::new(Kind::Sqlite);
    let bytes = noise(10 << 20);
    fs::write(at.env.path("big"), &bytes).unwrap();
    let child = "cat $PLACE/big >&2 & cat; wait";
    let end = fed(&mut at.run("k", &[], child), bytes.clone());
    assert!(end.status.success());
    assert!(end.stdout == bytes && end.stderr == bytes);
    let shown = at.show("k");
    for stream in ["stdout", "stderr"] {
        assert_eq!(shown[format!("{stream}_bytes")], 10 << 20);
        assert_eq!(shown[format!("{stream}_truncated")], true);
    }
}

#[test]
fn its_memory_does_not_grow_with_the_output_nor_with_a_slow_reader() {
    // Case 23; EXE-15
    let at = Place::new(Kind::Sqlite);
    let child = format!(
        "head -c 100000000 /dev/zero; head -c 100000000 /dev/zero >&2; {MARK} {}",
        crate::at::HOLD
    );
    let mut run = at.run("k", &["--capture", "1MiB"], &child);
    let (out, err) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let mut ours = run.stdout(out.1).stderr(err.1).spawn().unwrap();
    // Or it would hold the pipes' other ends.
    drop(run);
    let readers = [out.0, err.0].map(|mut from| {
        std::thread::spawn(move || {
            let (mut total, mut bytes) = (0, vec![0; 1 << 14]);
            while let Ok(got @ 1..) = from.read(&mut bytes) {
                total += got;
            }
            total
        })
    });
    until("all is written", || at.marks() == 1);
    let status = fs::read_to_string(format!("/proc/{}/status", ours.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u32 = peak.trim().strip_suffix(" kB").unwrap().trim().parse().unwrap();
    at.go();
    until("it has ended", || ours.try_wait().unwrap().is_some());
    assert!(ours.wait().unwrap().success());
    assert_eq!(readers.map(|reader| reader.join().unwrap()), [100_000_000; 2]);
    assert!(kilobytes < 48 << 10, "{kilobytes} kB");
}

#[test]
fn a_reader_that_leaves_early_ends_the_child_as_without_us() {
    // Case 7; EXE-16
    let at = Place::new(Kind::Sqlite);
    for (key, child, state) in [
        ("deaf", "trap '' PIPE; seq 100000 2>/dev/null; MARK exit 0", "committed"),
        ("cat", "seq 100000; MARK exit 0", "committed"),
        ("yes", "MARK exec yes", "ambiguous"),
    ] {
        script(&at, "child", &child.replace("MARK", MARK));
        let line = format!("ctrlrun run -k {key} -- sh child | head -1");
        let before = at.marks();
        let end = ends(&mut words(&at, &["sh", "-c", &line]));
        assert_eq!((end.code, at.marks()), (Some(0), before + 1), "{end:?}");
        until("it is recorded", || at.state(key) == state);
    }
    assert_eq!(at.show("yes")["signal"], 13);
}

#[test]
fn with_all_standard_descriptors_closed_nothing_of_ours_is_there() {
    // Case 7; EXE-16, EXE-19. A store's file on descriptor 2 would be written into by any message.
    let at = Place::new(Kind::Sqlite);
    let held = format!("{MARK} echo $$ >$PLACE/pid; echo $PPID >$PLACE/ours; {}", crate::at::HOLD);
    script(&at, "child", &held);
    for (key, flags) in [("a", ""), ("b", "--capture none")] {
        let _ = fs::remove_file(at.env.path("go"));
        let _ = fs::remove_file(at.env.path("ours"));
        let line = format!(
            "ctrlrun run {flags} -k {key} -- sh child <&- >&- 2>&-; echo $? >$PLACE/status"
        );
        let shell = at.start(&mut words(&at, &["sh", "-c", &line]));
        let ours = number_in(&at.env.path("ours"));
        for fd in 0..3 {
            let to = fs::read_link(format!("/proc/{ours}/fd/{fd}")).unwrap();
            assert_eq!(to.to_str(), Some("/dev/null"), "{fd}");
        }
        let child = number_in(&at.env.path("pid"));
        let of_child = |fd: u32| fs::read_link(format!("/proc/{child}/fd/{fd}"));
        // The script itself may be on what is free; nothing of ours is.
        let shown: Vec<String> =
            (0..10).filter_map(|fd| of_child(fd).ok()).map(|to| to.display().to_string()).collect();
        assert!(
            !shown.iter().any(|to| to.contains("store") || to.contains("anon_inode")),
            "{shown:?}"
        );
        at.go();
        assert_eq!(shell.end().code, Some(0));
        assert_eq!(
            (at.state(key).as_str(), lines(&at, "status")),
            ("committed", vec!["0".to_owned()])
        );
    }
}

#[test]
fn a_full_device_is_told_once_and_the_child_does_not_notice() {
    // Case 7; EXE-16
    let at = Place::new(Kind::Sqlite);
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut run = at.run("k", &[], &format!("seq 100000 && seq 100000 && {MARK}"));
    let end = run.stdout(full()).stderr(Stdio::piped()).output().unwrap();
    let told = String::from_utf8_lossy(&end.stderr).into_owned();
    assert_eq!((end.status.code(), at.marks(), told.lines().count()), (Some(0), 1, 1), "{told}");
    assert!(told.contains("stdout"), "{told}");
    // Where our own stderr is full, nobody can be told, and that is no reason to fail.
    let mut run = at.run("l", &[], &format!("seq 1000 >&2; {MARK}"));
    let end = run.stdout(full()).stderr(full()).output().unwrap();
    assert_eq!((end.status.code(), at.marks(), at.state("l").as_str()), (Some(0), 2, "committed"));
}

#[test]
fn a_stdout_that_another_process_has_made_non_blocking_gets_all_of_it_and_stays_so() {
    // Case 22; EXE-15
    let at = Place::new(Kind::Sqlite);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let writer = OwnedFd::from(writer);
    fcntl(writer.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let shared = writer.try_clone().unwrap();
    let mut run = at.run("k", &[], "seq 300000; seq 300000 | sed 's/$/e/' >&2");
    run.stdout(Stdio::from(writer.try_clone().unwrap())).stderr(Stdio::from(writer));
    let mut ours = run.spawn().unwrap();
    drop(run);
    let flags = fcntl(shared.as_fd(), FcntlArg::F_GETFL).unwrap();
    assert!(OFlag::from_bits_truncate(flags).contains(OFlag::O_NONBLOCK));
    drop(shared);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(ours.wait().unwrap().success());
    let mut expected: Vec<String> = (1..=300_000).map(|n: u32| n.to_string()).collect();
    expected.extend((1..=300_000).map(|n: u32| format!("{n}e")));
    assert!(text.lines().eq(expected.iter().map(String::as_str)), "{} lines", text.lines().count());
}

#[test]
fn a_daemon_that_holds_the_pipe_does_not_hold_ctrlrun_and_is_told_of() {
    // EXE-12, EXE-18
    let at = Place::new(Kind::Sqlite);
    let twice = "(setsid sh -c 'echo $$ >$PLACE/daemon; exec sleep 1000' &) ; while [ ! -s $PLACE/daemon ]; do sleep 0.01; done; echo out";
    let run = at.start(&mut at.run("k", &[], twice));
    let end = run.end();
    let daemon = number_in(&at.env.path("daemon"));
    let alive = is_alive(daemon);
    kill(daemon);
    assert_eq!((end.code, end.stdout.as_str(), alive), (Some(0), "out\n", true), "{end:?}");
    let shown = at.ask(&["show", "k"]);
    assert!(shown.stdout.contains(&daemon.to_string()), "{shown:?}");
}

#[test]
fn output_that_was_cut_is_never_replayed_as_if_it_were_whole() {
    // Case 49; CLI-9, EXE-15
    let at = Place::new(Kind::Sqlite);
    let run = |key: &str| at.run(key, &["--capture", "1KiB"], "seq 1000; echo err >&2");
    let first = finish(&mut run("k"));
    assert_eq!(first.stdout.lines().count(), 1000);
    let again = finish(&mut run("k"));
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""), "{again:?}");
    assert!(again.stderr.contains("its output is not printed"), "{}", again.stderr);
    let kept = at.ask(&["output", "k"]);
    assert_eq!(kept.stdout.len(), 1024);
    assert!(kept.stderr.contains("3,893"), "the total is not told: {}", kept.stderr);
    let shown = at.show("k");
    assert_eq!((&shown["stdout_bytes"], &shown["stdout_truncated"]), (&3893.into(), &true.into()));
    assert_eq!((&shown["stderr_bytes"], &shown["stderr_truncated"]), (&4.into(), &false.into()));
}

#[test]
fn what_a_child_leaves_of_its_input_is_there_for_the_next() {
    // EXE-19: `while read` loops feed on one stdin.
    let at = Place::new(Kind::Sqlite);
    let loop_ = "for i in 1 2 3; do ctrlrun run -k k:$i -- sh -c 'read x; echo \"$x\"'; done";
    let mut shell = words(&at, &["sh", "-c", loop_]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(b"a\nb\nc\n").unwrap();
    let end = shell.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&end.stdout), "a\nb\nc\n");
}

#[test]
fn a_child_that_closes_its_streams_and_works_on_is_waited_for_in_peace() {
    // EXE-15, EXE-16. A poll on what has ended would burn a processor.
    let at = Place::new(Kind::Sqlite);
    let child = format!("exec >&- 2>&-; {MARK} {}", crate::at::HOLD);
    let run = at.start(&mut behind(&["env"], &at.run("k", &[], &child)));
    until("it has marked", || at.marks() == 1);
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", run.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    // By another process's clock: as soon as that one has used half a second, this one could have.
    let mut burner =
        std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let before = ticks();
    let burnt = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", burner.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(11).unwrap().parse::<u64>().unwrap()
    };
    until("somebody has used half a second", || burnt() >= 50);
    let used = ticks() - before;
    burner.kill().unwrap();
    burner.wait().unwrap();
    at.go();
    assert_eq!(run.end().code, Some(0));
    assert!(used <= 5, "{used} ticks");
}

#[test]
fn a_limit_on_the_size_of_files_ends_the_child_or_the_copy_and_never_the_record() {
    // Case 42's neighbour; EXE-16, EXE-19. SIGXFSZ once ended ctrlrun, and the outcome was lost.
    let at = Place::new(Kind::Sqlite);
    let limited = "ulimit -f 1024; exec \"$@\"";
    let log = || File::create(at.env.path("log")).unwrap();
    let child = format!("seq 400000; {MARK}");
    let mut run = behind(&["sh", "-c", limited, "sh"], &at.run("k", &[], &child));
    let end = run.stdout(log()).output().unwrap();
    let told = String::from_utf8_lossy(&end.stderr).into_owned();
    assert_eq!((end.status.code(), at.marks(), at.state("k").as_str()), (Some(0), 1, "committed"));
    assert!(told.contains("stdout") && told.lines().count() == 1, "{told}");
    assert_eq!(at.show("k")["stdout_bytes"], 2_688_895);
    // The child itself meets the limit as it would without us.
    let mut run = behind(
        &["sh", "-c", limited, "sh"],
        &at.run("l", &["--capture", "none"], "exec seq 400000"),
    );
    let end = run.stdout(log()).output().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&end.status), Some(25), "{end:?}");
    assert_eq!(at.show("l")["signal"], 25);
}

#[test]
fn a_limit_on_descriptors_refuses_before_anything_runs_or_runs_it_whole() {
    // EXE-2, EXE-19
    let at = Place::new(Kind::Sqlite);
    let mut ran = 0;
    // From what a loader needs, up to more than a run does.
    for limit in 5..32 {
        let line = format!("ulimit -n {limit}; exec \"$@\"");
        let key = format!("n:{limit}");
        let end = ends(&mut behind(&["sh", "-c", &line, "sh"], &at.run(&key, &[], MARK)));
        if end.code == Some(0) {
            ran += 1;
            assert_eq!(at.state(&key), "committed", "{limit}: {end:?}");
        } else {
            let told = ["nothing was run", "could not be started"]
                .iter()
                .any(|words| end.stderr.contains(words));
            assert!(told && !end.stderr.contains("panicked"), "{limit}: {end:?}");
            assert!(["", "failed"].contains(&at.state(&key).as_str()), "{limit}: {end:?}");
        }
        assert_eq!(at.marks(), ran, "{limit}: {end:?}");
    }
    assert!((1..27).contains(&ran), "no limit was met: {ran}");
}
