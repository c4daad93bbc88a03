//! The command that verify's workers run: it says in the ledger that it runs, by one write, and then
//! does as it is told (VER-4). The ledger is outside of every store, so that a store that lies cannot
//! hide a second execution.
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use nix::sys::signal::{Signal, raise};
use rustix::fs::{FlockOperation, flock};

use super::ledger::{self, Line, env};

/// What the command does.
#[derive(Debug, Args)]
pub struct ExecuteArgs {
    /// The ledger
    pub ledger: PathBuf,
    /// The exit code of the key's first execution, its second, and so on; the last holds for the rest
    #[arg(long, value_delimiter = ',', default_value = "0")]
    pub exit: Vec<u8>,
    /// Wait until nobody holds this file
    #[arg(long)]
    pub hold: Option<PathBuf>,
    /// Take so many milliseconds
    #[arg(long, default_value_t = 0)]
    pub linger: u64,
    /// Die of this signal
    #[arg(long)]
    pub signal: Option<i32>,
    /// Say so in the outcome file
    #[arg(long)]
    pub say: Vec<String>,
    /// Print this
    #[arg(long)]
    pub print: Option<OsString>,
}

/// Does it; the exit code.
///
/// # Errors
/// I/O, of the ledger above all: an execution that could not be told must not look like one that was.
pub fn execute(args: &ExecuteArgs) -> io::Result<u8> {
    let line = Line::of_process();
    let text = format!("{}\n", serde_json::to_string(&line).map_err(io::Error::other)?);
    let mut ledger = OpenOptions::new().append(true).create(true).open(&args.ledger)?;
    if ledger.write(text.as_bytes())? != text.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "the ledger took a part of a line"));
    }
    let told = ledger::read(&args.ledger)?;
    let nth = told.iter().filter(|told| told.key == line.key).count().max(1);
    if let Some(path) = &args.hold {
        // Verify holds it exclusively. Should verify die, nobody waits on.
        flock(File::open(path)?, FlockOperation::LockShared)?;
    }
    sleep(Duration::from_millis(args.linger));
    if let Some(text) = &args.print {
        println!("{}", text.to_string_lossy());
    }
    for word in &args.say {
        let path = env("CTRLRUN_OUTCOME_FILE");
        OpenOptions::new().append(true).open(path)?.write_all(format!("{word}\n").as_bytes())?;
    }
    if let Some(signal) = args.signal {
        raise(Signal::try_from(signal)?)?;
    }
    let code = args.exit.get(nth - 1).or(args.exit.last());
    Ok(code.copied().unwrap_or(0))
}
