//! Starting a command: what it gets, and what a failure proves.

#![expect(clippy::expect_used, reason = "helpers of tests, outside #[test]")]

mod exec_support;

use std::{
    ffi::OsString, os::unix::ffi::OsStringExt, os::unix::fs::PermissionsExt, time::Duration,
};

use ctrlrun::exec::{
    Child, Exit, NotStartedKind, OutcomeFile, OutcomeRead, Output, Signals, Stdin,
};
use exec_support::{end_of, kept, run, sh, start, stop, text, with_path};

fn refused(program: &str, args: Vec<OsString>) -> ctrlrun::exec::NotStarted {
    let mut line = sh("");
    line.program = program.into();
    line.args = args;
    Child::spawn(line, None).expect_err("it cannot start")
}

#[test]
fn every_exit_code_is_told() {
    for code in [0, 1, 2, 126, 127, 137, 255] {
        assert_eq!(run(sh(&format!("exit {code}"))).exit, Exit::Code(code));
    }
}

#[test]
fn a_signal_is_no_exit_code() {
    // 34 is a real-time signal, for which there is no name.
    for number in [1, 2, 3, 6, 9, 11, 13, 15, 34] {
        let script = format!("ulimit -c 0; exec perl -e 'kill {number}, $$; sleep 1000'");
        let mut line = sh("");
        // Whoever runs the tests may have had some ignored.
        line.program = "env".into();
        line.args = ["--default-signal", "sh", "-c", &script].map(Into::into).to_vec();
        let exit = run(line).exit;
        assert_eq!(exit, Exit::Signal { number, core: false });
    }
}

#[test]
fn a_program_that_is_not_there_is_127() {
    let error = refused("no-such-program-anywhere", vec![]);
    assert_eq!(error.kind, NotStartedKind::NotFound);
    assert_eq!((error.errno, error.exit_code()), (libc::ENOENT, 127));
    assert_eq!(error.to_string(), "no-such-program-anywhere: No such file or directory");
    assert_eq!(refused("", vec![]).exit_code(), 127);
}

#[test]
fn what_cannot_be_executed_is_126_and_no_shell_reads_it() {
    let dir = tempfile::tempdir().expect("dir");
    let marker = dir.path().join("marker");
    let script = dir.path().join("script");
    // No "#!": a shell would run it.
    std::fs::write(&script, format!("echo x >>{}\n", marker.display())).expect("write");
    let path = script.to_str().expect("UTF-8").to_owned();
    let error = refused(&path, vec![]);
    assert_eq!((error.errno, error.exit_code()), (libc::EACCES, 126));
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let error = refused(&path, vec![]);
    assert_eq!((error.errno, error.exit_code()), (libc::ENOEXEC, 126));
    assert_eq!(error.kind, NotStartedKind::NotExecutable);
    assert!(!marker.exists(), "nothing ran");
}

#[test]
fn too_many_arguments_and_a_nul_are_126() {
    let error = refused("true", vec![OsString::from("x".repeat(1 << 20))]);
    assert_eq!((error.errno, error.exit_code()), (libc::E2BIG, 126));
    assert_eq!(refused("true", vec![OsString::from("a\0b")]).exit_code(), 126);
}

#[test]
fn arguments_that_are_no_utf8_reach_it_unchanged() {
    let mut line = sh("printf %s \"$1\"");
    line.args.extend(["sh".into(), OsString::from_vec(vec![b'a', 0xff, b'\n'])]);
    assert_eq!(run(line).stdout.head, [b'a', 0xff, b'\n']);
}

#[test]
fn our_environment_is_its_environment_with_what_is_added() {
    let mut line = sh("echo \"$ADDED $HOME ${PATH:+path}\"");
    line.env = vec![("ADDED".into(), "yes".into()), ("HOME".into(), "/else".into())];
    assert_eq!(text(&run(line).stdout), "yes /else path\n");
    // Without a shell, which would hide a second one.
    let mut line = sh("");
    (line.program, line.args) = ("env".into(), Vec::new());
    line.env = vec![("HOME".into(), "/else".into())];
    let listed = text(&run(line).stdout);
    let homes: Vec<&str> = listed.lines().filter(|l| l.starts_with("HOME=")).collect();
    assert_eq!(homes, ["HOME=/else"]);
}

#[test]
fn no_descriptor_of_ours_is_in_the_child() {
    let _signals = Signals::install().expect("handlers");
    let other = start(sh("exec sleep 100"));
    let mut line = sh("exec ls /proc/self/fd");
    line.output = kept(4096);
    let listed = text(&run(line).stdout);
    let mut listed: Vec<&str> = listed.lines().collect();
    // The directory that ls itself reads.
    listed.pop();
    let ours = |fd: &&&str| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        let flags = info.lines().find_map(|l| l.strip_prefix("flags:")).unwrap_or("0");
        let flags = i32::from_str_radix(flags.trim(), 8).expect("octal");
        flags & libc::O_CLOEXEC != 0
    };
    let leaked: Vec<_> =
        listed.iter().filter(|fd| !["0", "1", "2"].contains(*fd)).filter(ours).collect();
    assert!(leaked.is_empty(), "{leaked:?} of {listed:?}");
    assert!(listed.len() < 3 + 8, "{listed:?}");
    stop(other);
}

#[test]
fn sigpipe_is_at_its_default_and_no_signal_is_blocked_or_ignored() {
    let end = run(sh("grep -E '^Sig(Blk|Ign)' /proc/self/status; yes | head -1"));
    let own = std::fs::read_to_string("/proc/thread-self/status").expect("status");
    let blocked = own.lines().find(|l| l.starts_with("SigBlk")).expect("line");
    let out = text(&end.stdout);
    assert!(out.contains(blocked), "{out}");
    let ignored = out.lines().find_map(|l| l.strip_prefix("SigIgn:")).expect("line");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("hex");
    assert_eq!(ignored & (1 << (libc::SIGPIPE - 1)), 0);
    assert!(out.ends_with("y\n"), "{out}");
}

#[test]
fn stdin_may_be_a_descriptor() {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile().expect("file");
    file.write_all(b"a report").expect("write");
    file.rewind().expect("rewind");
    let mut line = sh("cat");
    line.stdin = Stdin::From(file.into());
    assert_eq!(text(&run(line).stdout), "a report");
}

#[test]
fn without_capture_there_is_no_pipe() {
    let mut line = sh("test ! -p /proc/$$/fd/1 || test -p /proc/$PPID/fd/1");
    line.output = Output::Inherit;
    let end = run(line);
    assert_eq!(end.exit, Exit::Code(0));
    assert_eq!(end.stdout.bytes, 0);
}

#[test]
fn in_the_background_it_has_a_group_of_its_own() {
    let mut child = start(sh("ps -o pgid= -p $$"));
    let pid = child.pid();
    assert_eq!(text(&end_of(&mut child).stdout).trim(), pid.to_string());
}

#[test]
fn the_outcome_file_is_new_empty_private_and_gone_afterwards() {
    let dir = tempfile::tempdir().expect("dir");
    let file = OutcomeFile::create(Some(dir.path())).expect("file");
    let other = OutcomeFile::create(Some(dir.path())).expect("file");
    assert_ne!(file.path(), other.path());
    let mode = file.path().metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(file.read(), OutcomeRead::Bytes(vec![]));
    let end = run(with_path(sh("test ! -s \"$F\" && echo committed >\"$F\""), "F", file.path()));
    assert_eq!(end.exit, Exit::Code(0));
    assert_eq!(file.read(), OutcomeRead::Bytes(b"committed\n".to_vec()));
    let path = file.path().to_owned();
    drop(file);
    assert!(!path.exists());
}

#[test]
fn an_outcome_file_that_the_child_spoiled_is_told_so() {
    let said = |script: &str| {
        let file = OutcomeFile::create(None).expect("file");
        assert_eq!(run(with_path(sh(script), "F", file.path())).exit, Exit::Code(0));
        file.read()
    };
    assert_eq!(said("rm \"$F\""), OutcomeRead::Gone);
    assert_eq!(said("head -c 65536 /dev/zero >\"$F\""), OutcomeRead::Bytes(vec![0; 65536]));
    assert_eq!(said("head -c 65537 /dev/zero >\"$F\""), OutcomeRead::TooLong);
    let unreadable = |script: &str| matches!(said(script), OutcomeRead::Unreadable(_));
    assert!(unreadable("rm \"$F\"; mkfifo \"$F\""), "a pipe must not hang us");
    assert!(unreadable("echo committed >\"$F.x\"; ln -sf \"$F.x\" \"$F\"; rm \"$F.x\""));
    assert!(unreadable("rm \"$F\"; mkdir \"$F\"; "));
}

#[test]
fn the_duration_is_that_of_the_child() {
    let before = ctrlrun::exec::boottime();
    let end = run(sh("sleep 0.05"));
    assert!(end.duration >= Duration::from_millis(50));
    assert!(end.duration <= ctrlrun::exec::boottime() - before);
}
