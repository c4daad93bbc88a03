//! A stored output, printed again (CLI-9): half a document is worse than none.
use std::io::{self, Write};
use std::time::Duration;

use ctrlrun::drive::run::Ran;
use ctrlrun::plan::effect::{CommittedBy, Record, State};
use ctrlrun::store::{Captured, Stream, was_pruned};

use super::RunArgs;
use super::request::Asked;
use crate::cli::Global;
use crate::cli::access::Opened;
use crate::cli::render::text::{age, clean};
use crate::cli::terminal::say;

/// From this age on a replay is more likely a mistake than a retry.
const OLD: Duration = Duration::from_secs(12 * 60 * 60);

/// What is there to be printed of one stream.
enum Stored {
    /// All of it.
    Whole(Vec<u8>),
    /// Not all, so nothing: why.
    Kept(&'static str),
}

/// Says that it is committed and that nothing was run, and prints what is stored whole.
pub fn replay(args: &RunArgs, asked: &Asked, opened: &Opened, ran: &Ran, global: &Global) {
    let Some(record) = &ran.report.record else {
        return;
    };
    let stdout = stdout(opened, record);
    let stderr = of(opened, record, Stream::Stderr);
    let since = ran.report.now.map_or(Duration::ZERO, |now| now.since(record.updated_at));
    let key = clean(asked.key.as_str());
    let attempt = record.attempt;
    let what = match (&stdout, &stderr) {
        (Stored::Kept(why), _) => format!("its output is not printed: {why}"),
        (Stored::Whole(_), Stored::Kept(why)) => {
            format!("its stored output follows, its stderr does not: {why}")
        }
        (Stored::Whole(out), Stored::Whole(err)) if out.is_empty() && err.is_empty() => {
            "it had no output".to_owned()
        }
        (Stored::Whole(_), Stored::Whole(_)) => "its stored output follows".to_owned(),
    };
    if since < OLD || args.per.is_some() {
        let line = format!(
            "{key}: COMMITTED {} ago by attempt {attempt}; nothing was run, {what}",
            age(since)
        );
        say(&line);
    } else {
        say(&format!(
            "{key}: COMMITTED {} ago by attempt {attempt}; NOTHING WAS RUN, {what}",
            age(since)
        ));
        global.note("  a key names one effect for ever; for a job that comes round again: --per day (or hour, week, month)");
    }
    // A reader that has gone away does not make it less committed.
    if let Stored::Whole(bytes) = stderr {
        let _ = io::stderr().write_all(&bytes);
    }
    if let Stored::Whole(bytes) = stdout {
        let mut out = io::stdout().lock();
        match out.write_all(&bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                global.note(&format!("{key}: stdout: cannot be written: {error}"));
            }
            Ok(()) | Err(_) => {}
        }
    }
}

fn stdout(opened: &Opened, record: &Record) -> Stored {
    match record.state {
        State::Committed { by: CommittedBy::Person | CommittedBy::Probe } => {
            match opened.output(&record.key, record.attempt, Stream::Stated) {
                Ok(Some(stated)) => whole(stated),
                Ok(None) => Stored::Kept("it was resolved as committed, without an output"),
                Err(_) => Stored::Kept("the store did not hand it out"),
            }
        }
        State::Committed { by: CommittedBy::OwnWord }
        | State::Reserved { .. }
        | State::Executing { .. }
        | State::Failed { .. }
        | State::Ambiguous { .. } => of(opened, record, Stream::Stdout),
    }
}

fn of(opened: &Opened, record: &Record, stream: Stream) -> Stored {
    if let (State::Committed { by: CommittedBy::Person | CommittedBy::Probe }, Stream::Stderr) =
        (record.state, stream)
    {
        // What the child wrote before anybody knew is evidence, not the effect's output.
        return Stored::Whole(Vec::new());
    }
    match opened.output(&record.key, record.attempt, stream) {
        Ok(Some(captured)) => whole(captured),
        // No row: it was captured, and stayed empty.
        Ok(None) => Stored::Whole(Vec::new()),
        Err(_) => Stored::Kept("the store did not hand it out"),
    }
}

fn whole(captured: Captured) -> Stored {
    if !captured.whole {
        let why = if was_pruned(&captured) {
            "it was pruned (ctrlrun prune)"
        } else if captured.bytes == 0 {
            "it was not stored (--capture none)"
        } else {
            "it was longer than --capture, and only its beginning and end are stored"
        };
        return Stored::Kept(why);
    }
    let mut bytes = captured.head;
    bytes.extend(captured.tail);
    Stored::Whole(bytes)
}
