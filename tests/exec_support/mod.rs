//! What the tests of the exec room share.
#![expect(dead_code, reason = "each test file uses its own part of it")]

use std::{
    ffi::OsString,
    path::Path,
    time::{Duration, Instant},
};

use ctrlrun::exec::{Child, ChildEnd, CommandLine, Output, Signals, Sink, Stdin, Waited};

/// No test may take longer: it would hang.
pub const BOUND: Duration = Duration::from_secs(20);

/// `sh -c script` with nothing but `$0` = sh; output kept, not passed on.
pub fn sh(script: &str) -> CommandLine {
    CommandLine {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: Vec::new(),
        stdin: Stdin::Null,
        output: kept(64 * 1024),
        timeout: None,
        kill_after: Duration::from_secs(10),
        not_after: None,
    }
}

/// Keeps up to `cap` bytes of each stream and passes nothing on.
pub fn kept(cap: usize) -> Output {
    Output::Capture { cap, stdout: Sink::Nowhere, stderr: Sink::Nowhere }
}

/// Adds a variable that holds a path.
pub fn with_path(mut line: CommandLine, name: &str, path: &Path) -> CommandLine {
    line.env.push((name.into(), OsString::from(path)));
    line
}

/// Starts it in the background.
pub fn start(line: CommandLine) -> Child {
    Child::spawn(line, None).expect("it starts")
}

/// Starts it as the command this process stands for.
pub fn start_with(line: CommandLine, signals: &Signals) -> Child {
    Child::spawn(line, Some(signals)).expect("it starts")
}

/// Waits for the end.
pub fn end_of(child: &mut Child) -> ChildEnd {
    match child.wait(Some(BOUND), None) {
        Waited::Ended(end) => *end,
        other @ (Waited::TimeReached | Waited::Woken) => {
            panic!("no end within {BOUND:?}: {other:?}")
        }
    }
}

/// Runs it to its end.
pub fn run(line: CommandLine) -> ChildEnd {
    end_of(&mut start(line))
}

/// Ends a child that a test is done with.
pub fn stop(mut child: Child) {
    child.end_group();
    end_of(&mut child);
}

/// Waits for a condition while the child is served.
pub fn serve_until(child: &mut Child, what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < BOUND, "never so: {what}");
        match child.wait(Some(Duration::from_millis(5)), None) {
            Waited::TimeReached | Waited::Woken => {}
            Waited::Ended(end) => panic!("it ended before {what}: {end:?}"),
        }
    }
}

/// Waits for a condition.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < BOUND, "never so: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The whole of what was kept.
pub fn text(captured: &ctrlrun::exec::Captured) -> String {
    String::from_utf8([captured.head.as_slice(), &captured.tail].concat()).expect("UTF-8")
}

/// The number in a file that a child writes, when it is there whole.
pub fn number_in(path: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(path).ok()?;
    text.strip_suffix('\n')?.parse().ok()
}

/// Whether a process runs (a zombie does not).
pub fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit_once(") ").map(|(_, rest)| !rest.starts_with('Z')))
        .unwrap_or(false)
}
