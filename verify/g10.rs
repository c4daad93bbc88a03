//! G10: an unknown outcome is AMBIGUOUS. Only what is declared, or said, proves that nothing happened.
use std::ffi::OsString;

use super::lab::{Halt, Lab, exit};
use super::worker::{Ended, Job};

/// How a command ends, and what is right then.
struct Case {
    name: &'static str,
    /// Words of ctrlrun's.
    with: &'static [&'static str],
    /// Words of the executor's.
    does: &'static [&'static str],
    /// The exit code; a signal as its negative number.
    status: i32,
    state: &'static str,
}

const fn case(
    name: &'static str,
    with: &'static [&'static str],
    does: &'static [&'static str],
    status: i32,
    state: &'static str,
) -> Case {
    Case { name, with, does, status, state }
}

const DECLARED: &[&str] = &["--not-executed", "7,137"];
const TIMED: &[&str] = &["--timeout", "500ms", "--kill-after", "2s", "--not-executed", "7", "-q"];

const CASES: [Case; 13] = [
    case("exit 0", DECLARED, &["--exit", "0"], 0, "committed"),
    case("exit 1", &[], &["--exit", "1"], 1, "ambiguous"),
    case("exit 255", DECLARED, &["--exit", "255"], 255, "ambiguous"),
    case("exit 137, not declared", &[], &["--exit", "137"], 137, "ambiguous"),
    case("declared", DECLARED, &["--exit", "7"], 7, "failed"),
    case("signal 9, 137 declared", DECLARED, &["--signal", "9"], -9, "ambiguous"),
    case("signal 15", &[], &["--signal", "15"], -15, "ambiguous"),
    case("said committed", &[], &["--say", "committed", "--exit", "1"], 0, "committed"),
    case("said not executed", &[], &["--say", "not-executed", "--exit", "1"], 1, "failed"),
    case(
        "both said",
        &[],
        &["--say", "committed", "--say", "not-executed", "--exit", "1"],
        1,
        "ambiguous",
    ),
    case(
        "committed, and declared",
        DECLARED,
        &["--say", "committed", "--exit", "7"],
        7,
        "ambiguous",
    ),
    case("not executed, and exit 0", &[], &["--say", "not-executed"], exit::AMBIGUOUS, "ambiguous"),
    case("timed out", TIMED, &["--linger", "20000"], 124, "ambiguous"),
];

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    // Those that take their time run beside the others.
    let mut slow = Vec::new();
    for code in ["0", "7"] {
        let name = format!("timed-out-then-exit-{code}");
        let key = lab.key(&name)?;
        slow.push((key.clone(), trapping(lab.run(&key).with(TIMED), code)?.start()?));
    }
    for case in &CASES {
        let key = lab.key(&case.name.replace(' ', "-"))?;
        let ended = lab.run(&key).with(case.with).doing(case.does).end()?;
        if ended.code == Some(exit::STORE) {
            lab.ended(&key, &ended, &[case.status])?;
        }
        lab.demand(status(&ended) == case.status, || {
            format!("{key}: ended {} instead of {}", status(&ended), case.status)
        });
        lab.executions(&key, 1)?;
        lab.stands(&key, case.state)?;
        lab.count_round();
    }
    for (name, command, code) in
        [("no-such-program", "/nonexistent/program", 127), ("no-program", "/", 126)]
    {
        let key = lab.key(name)?;
        lab.ended(&key, &lab.run(&key).running([command]).end()?, &[code])?;
        lab.executions(&key, 0)?;
        lab.stands(&key, "failed")?;
    }
    for (key, mut worker) in slow {
        lab.ended(&key, &worker.end()?, &[124])?;
        lab.executions(&key, 1)?;
        lab.stands(&key, "ambiguous")?;
        lab.count_round();
    }
    Ok(())
}

/// The exit code, or the signal as a negative number.
fn status(ended: &Ended) -> i32 {
    ended.code.unwrap_or_else(|| -ended.signal.unwrap_or(0))
}

/// The job with a command that, told to end, ends with this code.
fn trapping<'a>(job: Job<'a>, code: &str) -> Result<Job<'a>, Halt> {
    // A shell whose parent is gone before it looks takes another for it, which does not end: so it counts.
    let line = format!(
        "trap 'exit {code}' TERM; \"$@\"; n=0; \
         while kill -0 $PPID && [ $n -lt 1000 ]; do sleep 0.02; n=$((n+1)); done"
    );
    let executor = job.command().to_vec();
    let mut words: Vec<OsString> = ["sh", "-c", &line, "sh"].map(OsString::from).to_vec();
    words.extend(executor);
    Ok(job.running(words))
}
