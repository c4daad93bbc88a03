//! 2,000 times `true`: a batch, xargs, and GNU parallel with a job log.
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::super::{Arguments, Outcome, median};

const COMMANDS: usize = 2_000;

pub fn measure(arguments: &Arguments) -> Outcome<()> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let here = directory.path();
    let mut lines = String::new();
    for number in 0..COMMANDS {
        writeln!(lines, r#"{{"key":"refund:txn_{number}","command":["true"]}}"#)?;
    }
    std::fs::write(here.join("in.jsonl"), lines)?;
    let server = match arguments.postgres {
        true => Some(super::engine::server()?),
        false => None,
    };
    let parallel = Command::new("parallel").arg("--version").output().is_ok();
    if !parallel {
        println!("GNU parallel is not here: not compared");
    }
    println!("{COMMANDS} x true, {} rounds; seconds, medians", arguments.rounds);
    for jobs in [8, 2] {
        let (mut ours, mut xargs, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..arguments.rounds {
            xargs.push(timed(shell(here, &format!("seq {COMMANDS} | xargs -P{jobs} -n1 true")))?);
            let store = match &server {
                Some(server) => format!("{}&schema=j{jobs}r{round}", server.url("postgres")),
                None => here.join(format!("{jobs}-{round}.db")).to_string_lossy().into_owned(),
            };
            timed(ctrlrun(here, &["init", "--store", &store]))?;
            let jobs_flag = format!("-j{jobs}");
            ours.push(timed(ctrlrun(
                here,
                &["batch", "in.jsonl", "-q", &jobs_flag, "--store", &store],
            ))?);
            if parallel && round < 2 {
                let line = format!("seq {COMMANDS} | parallel -j{jobs} --joblog log true '#'");
                others.push(timed(shell(here, &line))?);
            }
        }
        let ratio = median(ours.iter().zip(&xargs).map(|(ours, xargs)| ours / xargs).collect());
        print!(
            "-j{jobs}: batch {:.3}, xargs {:.3}, median of ratios {ratio:.3}",
            median(ours.clone()),
            median(xargs)
        );
        if !others.is_empty() {
            print!("; parallel --joblog {:.2} times a batch", median(others) / median(ours));
        }
        println!();
    }
    Ok(())
}

fn ctrlrun(here: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ctrlrun"));
    command
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", here)
        .env("XDG_STATE_HOME", here)
        .current_dir(here);
    command
}

fn shell(here: &Path, line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(here);
    command
}

fn timed(mut command: Command) -> Outcome<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let status = command.status()?;
    let took = began.elapsed().as_secs_f64();
    if status.success() { Ok(took) } else { Err(format!("{command:?}: {status}").into()) }
}
