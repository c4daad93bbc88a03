//! Five GiB through `ctrlrun run`, which may use 256 MiB of address space (EXE-15), beside the same
//! bytes through `cat`.
//!
//! ```text
//! cargo bench --features bench --bench pipe [-- --gib 5]
//! ```
//!
//! It counts the bytes that come out, and prints how long each took and the ratio. The times are
//! the machine's; that nothing is lost and the limit is kept is checked.
use std::error::Error;
use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT_KIB: u64 = 256 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let gib: u64 = match std::env::args().skip_while(|word| word != "--gib").nth(1) {
        Some(number) => number.parse()?,
        None => 5,
    };
    let bytes = gib << 30;
    let child = format!("yes | head -c {bytes}");
    let home = tempfile::tempdir()?;
    let through_cat = timed(Command::new("sh").args(["-c", &format!("({child}) | cat")]), bytes)?;
    let limited = format!("ulimit -v {LIMIT_KIB}; exec \"$@\"");
    let mut ours = Command::new("sh");
    ours.args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_ctrlrun"), "run", "--key", "pipe", "--"]);
    ours.args(["sh", "-c", &child]).env("HOME", home.path()).env_remove("XDG_STATE_HOME");
    ours.env_remove("CTRLRUN_STORE");
    let through_us = timed(&mut ours, bytes)?;
    println!(
        "{gib} GiB: cat {:.1} s, ctrlrun within {} MiB {:.1} s, ratio {:.2}",
        through_cat.as_secs_f64(),
        LIMIT_KIB / 1024,
        through_us.as_secs_f64(),
        through_us.as_secs_f64() / through_cat.as_secs_f64()
    );
    Ok(())
}

/// Runs `command`, counts what it writes, and demands that it ends well.
fn timed(command: &mut Command, bytes: u64) -> Result<Duration, Box<dyn Error>> {
    let began = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut out = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
    let mut buffer = vec![0; 1 << 20];
    let mut seen = 0;
    loop {
        match out.read(&mut buffer)? {
            0 => break,
            got => seen += got as u64,
        }
    }
    let status = child.wait()?;
    if !status.success() || seen != bytes {
        return Err(format!("{command:?}: {status}, {seen} of {bytes} bytes").into());
    }
    Ok(began.elapsed())
}
