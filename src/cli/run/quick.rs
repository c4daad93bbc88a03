//! The plain command lines of `run`, read without the parser that reads all others.
//!
//! That parser costs a run about as much as its three durable commits on a fast disk, most of it to
//! bring in code that is needed once. So what scripts call by the thousand, each flag at most once
//! and spelled out, is read here. Whatever is not understood at once, an error above all, is left to
//! the parser, whose words are the user's; a test holds the two against each other.
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::ValueEnum;
use ctrlrun::plan::expect::StreamState;

use super::args::{ExitAs, OnCommitted, OnRunning, RunArgs};
use crate::cli::Global;
use crate::cli::values::{self, Per};

/// Reads `ctrlrun run ...`; `None` where the parser is to read it.
#[must_use]
pub fn read(words: &[OsString]) -> Option<(Global, RunArgs)> {
    let mut words = words.iter().skip(1);
    if words.next()? != "run" {
        return None;
    }
    let (mut global, mut args) = (Global::bare(None), defaults());
    global.quiet = false;
    let mut seen: Vec<&str> = Vec::new();
    loop {
        let word = words.next()?.to_str()?;
        if word == "--" {
            break;
        }
        let (name, with) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(OsStr::new(value))),
            Some(_) | None => (word, None),
        };
        if seen.contains(&name) {
            return None;
        }
        seen.push(name);
        if with.is_none() && switch(name, &mut global, &mut args) {
            continue;
        }
        let value = match with {
            Some(value) => value,
            None => words.next()?.as_os_str(),
        };
        if value.is_empty() || value.as_encoded_bytes().starts_with(b"-") {
            return None;
        }
        option(name, value, &mut global, &mut args)?;
    }
    args.command = words.cloned().collect();
    let has_key = seen.contains(&"-k") != seen.contains(&"--key");
    (has_key && !args.command.is_empty()).then_some((global, args))
}

/// A flag without a value; false if it is none.
fn switch(name: &str, global: &mut Global, args: &mut RunArgs) -> bool {
    match name {
        "--key-as-is" => args.key_as_is = true,
        "--no-stdin" => args.no_stdin = true,
        "--rebind" => args.rebind = true,
        "--json" => global.json = true,
        "--quiet" => global.quiet = true,
        _ => return false,
    }
    true
}

/// A flag with its value.
fn option(name: &str, value: &OsStr, global: &mut Global, args: &mut RunArgs) -> Option<()> {
    match name {
        "--store" => {
            global.store = Some(value.to_owned());
            return Some(());
        }
        "--config" => {
            global.config = Some(value.to_owned());
            return Some(());
        }
        _ => {}
    }
    let text = value.to_str()?;
    match name {
        "-k" | "--key" => args.key = Some(text.to_owned()),
        "--per" => args.per = Some(Per::from_str(text, false).ok()?),
        "--not-executed" => args.not_executed = Some(values::not_executed(text).ok()?),
        "--timeout" => args.timeout = Some(values::some_time(text).ok()?),
        "--kill-after" => args.kill_after = values::duration(text).ok()?,
        "--lease" => args.lease = Some(values::lease(text).ok()?),
        "--capture" => args.capture = Some(values::capture(text).ok()?),
        "--on-committed" => args.on_committed = OnCommitted::from_str(text, false).ok()?,
        "--on-running" => args.on_running = OnRunning::from_str(text, false).ok()?,
        "--exit" => args.exit = ExitAs::from_str(text, false).ok()?,
        "--wait" => args.wait = Some(values::duration(text).ok()?),
        "--expect" => args.expect = values::expect(text).ok()?,
        "--store-timeout" => global.store_timeout = values::some_time(text).ok()?,
        _ => return None,
    }
    Some(())
}

/// What stands where no flag says otherwise.
fn defaults() -> RunArgs {
    RunArgs {
        key: None,
        per: None,
        key_as_is: false,
        not_executed: None,
        timeout: None,
        kill_after: Duration::from_secs(10),
        lease: None,
        capture: None,
        no_stdin: false,
        on_committed: OnCommitted::Replay,
        on_running: OnRunning::Refuse,
        wait: None,
        expect: StreamState::Any,
        max_attempts: None,
        reconcile: None,
        reconcile_timeout: None,
        rebind: false,
        retries: None,
        backoff: None,
        bind: Vec::new(),
        bind_file: Vec::new(),
        bind_env: Vec::new(),
        bind_only: Vec::new(),
        attempt_id: None,
        label: Vec::new(),
        report: None,
        exit: ExitAs::Child,
        dry_run: false,
        name: None,
        params: Vec::new(),
        probe: None,
        command: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Option<(Global, RunArgs)>;

    fn both(line: &str) -> (Read, Read) {
        let words: Vec<OsString> =
            line.split(' ').map(|word| word.replace('_', " ").into()).collect();
        (read(&words), crate::cli::parsed_run(&words))
    }

    #[test]
    fn what_is_read_quickly_is_read_as_by_the_parser() {
        // CLI-8
        for flags in [
            "-k a",
            "--key a",
            "--key=a",
            "-k it's",
            "-k a_b",
            "-k a --store /x/y.db",
            "-k a --config c.toml",
            "-k a --store=sqlite:/x?network=allow",
            "--json -k a --quiet --store-timeout 2s",
            "-k a --per week --key-as-is",
            "-k a --not-executed 6,11 --timeout 30s --kill-after 0s",
            "-k a --not-executed nonzero --lease 1h30m",
            "-k a --capture none --no-stdin --rebind",
            "-k a --capture 1MiB --on-committed skip --on-running skip",
            "-k a --exit outcome --wait 10m --expect new",
            "-k a --expect 7 --on-committed refuse",
        ] {
            let (quick, parser) = both(&format!("ctrlrun run {flags} -- cmd -x --key b --"));
            assert!(quick.is_some(), "{flags}");
            assert_eq!(quick, parser, "{flags}");
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_parser() {
        for line in [
            "ctrlrun",
            "ctrlrun show k",
            "ctrlrun run",
            "ctrlrun run -k a",
            "ctrlrun run -k a --",
            "ctrlrun run -- true",
            "ctrlrun run -k a -k b -- true",
            "ctrlrun run -k a --key b -- true",
            "ctrlrun run -k -x -- true",
            "ctrlrun run --key= -- true",
            "ctrlrun run -ka -- true",
            "ctrlrun run -nk a -- true",
            "ctrlrun run -k a --lease 30 -- true",
            "ctrlrun run -k a --lease 1ms -- true",
            "ctrlrun run -k a --per year -- true",
            "ctrlrun run -k a --help -- true",
            "ctrlrun run -k a --json=yes -- true",
            "ctrlrun run -k a --report r -- true",
            "ctrlrun run -k a --retries 2 -- true",
            "ctrlrun run -k a --reconcile true -- true",
            "ctrlrun run -k a true",
            "ctrlrun run refund payment_id=a",
            "ctrlrun run refund -k a -- true",
            "ctrlrun run --config= -k a -- true",
            "ctrlrun -q run -k a -- true",
        ] {
            assert_eq!(both(line).0, None, "{line}");
        }
    }
}
