//! What comes before what on a server: durable before the command starts (case 15), and how long this
//! process stays where a settle is not answered and it is told to end (EXE-24).
mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::pgstore::{Stage, store_at, wait_until};
use common::postgres::{LONG, server, unavailable};
use common::{TestEnv, finish};
use ctrlrun::store::postgres::faultproxy::{Act, What, When, Which};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A call in a trace: when it began, to the microsecond, and its text; its end if it was interrupted.
struct Call {
    at: f64,
    text: String,
}

/// The calls of a trace by `strace -f -ttt`, those that were interrupted by another's put together and
/// dated by their end.
fn calls(trace: &Path) -> Vec<Call> {
    let text = fs::read_to_string(trace).unwrap_or_default();
    let mut begun: Vec<(String, String)> = Vec::new();
    let mut calls = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(2, char::is_whitespace);
        let (Some(pid), Some(rest)) = (words.next(), words.next()) else { continue };
        let Some((at, call)) = rest.trim_start().split_once(' ') else { continue };
        let Ok(at) = at.parse() else { continue };
        if let Some(start) = call.strip_suffix("<unfinished ...>") {
            begun.retain(|(of, _)| of != pid);
            begun.push((pid.to_owned(), start.to_owned()));
            continue;
        }
        let start = begun.iter().position(|(of, _)| of == pid).filter(|_| call.starts_with("<..."));
        let text = match start {
            Some(start) => begun.remove(start).1 + call,
            None => call.to_owned(),
        };
        calls.push(Call { at, text });
    }
    calls
}

fn traces(what: &str, into: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-ttt", "-s", "64", "-e", "signal=none", "-e"]);
    strace.arg(format!("trace={what}")).arg("-o").arg(into);
    strace
}

#[test]
fn case_15_each_commit_is_on_the_servers_disk_before_the_command_starts() {
    // Case 15; EXE-1, PGS-7: by the client's trace and the server's, on one clock.
    let Some(server) = server() else { return };
    let url = server.url("postgres");
    drop(store_at(&url));
    server.sql("CREATE ROLE hasty LOGIN SUPERUSER; ALTER ROLE hasty SET synchronous_commit = off");
    for (key, role) in [("plain", "postgres@"), ("hasty", "hasty@")] {
        let env = TestEnv::new();
        let (ours, theirs) = (env.path("ours"), env.path("theirs"));
        let mut attached = traces("fsync,fdatasync,recvfrom", &theirs);
        attached.arg("-p").arg(server.pid().to_string()).stderr(Stdio::null());
        let mut attached = attached.spawn().unwrap();
        // It follows whatever the server starts from here on.
        let traced = || {
            let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
            !status.contains("TracerPid:\t0\n")
        };
        let mut may_trace = true;
        wait_until("the server is traced", || {
            may_trace = attached.try_wait().unwrap().is_none();
            !may_trace || traced()
        });
        if !may_trace {
            return unavailable("strace may not trace here");
        }
        let url = url.replace("postgres@", role);
        let run = env.command(["run", "--store", &url, "--key", key, "--", "true"]);
        let mut strace = traces("sendto,recvfrom,execve", &ours);
        strace.arg(run.get_program()).args(run.get_args()).env_clear();
        strace.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let out = finish(strace.current_dir(run.get_current_dir().unwrap()));
        assert_eq!(out.code, Some(0), "{out:?}");
        kill(Pid::from_raw(attached.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        attached.wait().unwrap();

        let (ours, theirs) = (calls(&ours), calls(&theirs));
        let started = |call: &&Call| call.text.starts_with("execve") && call.text.ends_with("= 0");
        let command = ours.iter().filter(started).nth(1).expect("the command was started").at;
        let times = |call: &str, with: &str| -> Vec<f64> {
            let of_it =
                ours.iter().filter(|one| one.text.starts_with(call) && one.text.contains(with));
            of_it.map(|one| one.at).collect()
        };
        let asked = times("sendto", r"Q\0\0\0\vCOMMIT\0");
        let told = times("recvfrom", r"COMMIT\0Z");
        assert_eq!((asked.len(), told.len()), (3, 3), "{key}");
        assert!(told[1] < command && command < asked[2], "{key}: reserve and begin before it");
        let synced = |call: &&Call| call.text.contains("sync(") && call.text.ends_with("= 0");
        let synced: Vec<f64> = theirs.iter().filter(synced).map(|call| call.at).collect();
        for (asked, told) in asked.iter().zip(&told) {
            let between = synced.iter().any(|at| asked < at && at < told);
            assert!(between, "{key}: a COMMIT was answered before it was on the disk: {synced:?}");
        }
    }
}

/// A run whose command is done, whose settle does not get there, and whose store is not to be reached any more.
fn settling(stage: &Stage, spool: &Path) -> (Child, usize) {
    stage.on(Which::Any, When::Begin(3), Act::CutBeforeForward);
    stage.on(Which::From(2), When::Connect, Act::Refuse);
    let mut run = stage.command("k", &[], "echo x >>marker; exit 0");
    run.env("CTRLRUN_SPOOL", spool).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = run.spawn().unwrap();
    wait_until("it is tried again", || tries(stage) > 2);
    (child, tries(stage))
}

fn tries(stage: &Stage) -> usize {
    stage.proxy.seen().iter().filter(|event| event.what == What::Accepted).count()
}

fn tell_to_end(child: &Child) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
}

#[test]
fn an_outcome_that_only_this_process_knows_is_tried_on_after_it_was_told_to_end() {
    // EXE-24: no spool can be written, so every pause is waited out.
    let Some(stage) = Stage::new() else { return };
    // A file where the folder would be: nobody can write there, not even root.
    let nowhere = stage.env.path("file");
    fs::write(&nowhere, "").unwrap();
    let (child, before) = settling(&stage, &nowhere.join("spool"));
    tell_to_end(&child);
    wait_until("it goes on", || tries(&stage) > before + 3);
    stage.proxy.forget();
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status.code(), stage.marks()), (Some(0), 1), "{said}");
    assert_eq!(stage.events("k"), ["reserved", "began", "committed"]);
}

#[test]
fn with_the_outcome_in_the_spool_being_told_to_end_ends_the_tries() {
    // EXE-24: a settle may take a minute, and this takes no more than a pause of it.
    let Some(stage) = Stage::new() else { return };
    let spool = stage.env.path("spool");
    let (child, _) = settling(&stage, &spool);
    tell_to_end(&child);
    let mut ended = Some(child);
    let from = std::time::Instant::now();
    let out = ended.take().unwrap().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status.code(), stage.marks()), (Some(74), 1), "{said}");
    assert!(from.elapsed() < LONG, "every pause was waited out");
    assert_eq!(stage.events("k"), ["reserved", "began"]);
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 1);
    stage.proxy.forget();
    let mut next = stage.command("k", &[], "echo x >>marker; exit 0");
    let out = finish(next.env("CTRLRUN_SPOOL", &spool));
    assert_eq!((out.code, stage.marks()), (Some(0), 1), "{out:?}");
    assert_eq!(stage.events("k"), ["reserved", "began", "committed"]);
}
