//! One operation: what is written down, what is done, and what must be so at once (SOA-2, SOA-3).
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use ctrlrun::plan::key::Key;
use ctrlrun::store::stop::Point;

use super::deck::{Doubt, Kind};
use super::judge::Injection;
use crate::verify::g04::points::{Left, left};
use crate::verify::lab::{Halt, Lab, exit};
use crate::verify::worker::{Job, Worker, broke};

/// The lease of a run that is to lose it.
const SHORT: [&str; 2] = ["--lease", "3s"];

/// What came of an operation.
pub struct Operated<'a> {
    /// What it was.
    pub kind: Kind,
    /// Its key.
    pub key: Key,
    /// Whether it was to be written down, and was not.
    pub is_control: bool,
    /// Whether what was to be done to it came to pass.
    pub fell: bool,
    /// Whether the store did not answer in time: what came after was not done.
    pub slow: bool,
    /// Whether its lease has to end before the next one may come.
    pub lapses: bool,
    /// A holder that is halted until then.
    pub asleep: Option<Worker<'a>>,
}

/// Writes an injection down. It is one write, and it is there before anything is done.
///
/// # Errors
/// [`Halt::Broke`]: a soak whose ledger has gaps shows nothing.
pub fn write_down(ledger: &Path, injection: &Injection) -> Result<(), Halt> {
    let text = serde_json::to_string(injection)
        .map_err(|error| Halt::Broke(format!("the soak's ledger: {error}")))?;
    let write = || {
        let mut file = OpenOptions::new().append(true).create(true).open(ledger)?;
        file.write_all(format!("{text}\n").as_bytes())
    };
    write().map_err(|error| broke("the soak's ledger", &error))
}

/// Does the operation of that number.
///
/// # Errors
/// [`Halt`].
pub fn operate<'a>(
    lab: &'a Lab<'a>,
    ledger: &Path,
    kind: Kind,
    number: u64,
    is_control: bool,
) -> Result<Operated<'a>, Halt> {
    let key = lab.key(&format!("op-{number}"))?;
    if kind.is_injected() && !is_control {
        let line = Injection {
            operation: number,
            key: key.as_str().to_owned(),
            what: kind.name(),
            leaves: kind.leaves(),
        };
        write_down(ledger, &line)?;
    }
    let mut done =
        Operated { kind, key, is_control, fell: true, slow: false, lapses: false, asleep: None };
    match perform(lab, &mut done) {
        Ok(()) => {}
        Err(Halt::Slow) => done.slow = true,
        Err(halt) => return Err(halt),
    }
    lab.bench.tell_progress();
    Ok(done)
}

fn perform<'a>(lab: &'a Lab<'a>, done: &mut Operated<'a>) -> Result<(), Halt> {
    let key = done.key.clone();
    let run = |job: Job<'a>, wanted: &[i32]| lab.ended(&key, &job.end()?, wanted);
    match done.kind {
        Kind::Commit => {
            run(lab.run(&key).doing(["--print", "done"]), &[0])?;
            lab.executions(&key, 1)
        }
        Kind::Replay => {
            for _ in 0..2 {
                run(lab.run(&key).doing(["--print", "done"]), &[0])?;
            }
            lab.executions(&key, 1)
        }
        Kind::Retry => {
            let job = || lab.run(&key).with(["--not-executed", "7"]).doing(["--exit", "7,0"]);
            run(job(), &[7])?;
            lab.stands(&key, "failed")?;
            run(job(), &[0])?;
            lab.executions(&key, 2)
        }
        Kind::NeverStarted => {
            run(lab.run(&key).running(["/nonexistent/program"]), &[127])?;
            lab.stands(&key, "failed")?;
            lab.executions(&key, 0)
        }
        Kind::Contend => contend(lab, &key),
        Kind::Mismatch => {
            run(lab.run(&key), &[0])?;
            run(lab.run(&key).doing(["--print", "another"]), &[exit::MISMATCH])?;
            lab.executions(&key, 1)
        }
        Kind::Doubt(doubt) => {
            let (job, code) = doubtful(lab.run(&key), doubt);
            let ended = job.end()?;
            match code {
                Some(code) => lab.ended(&key, &ended, &[code])?,
                None => lab.demand(ended.signal == Some(9), || format!("{key}: {ended:?}")),
            }
            lab.stands(&key, "ambiguous")?;
            run(again(lab, &key, doubt), &[exit::AMBIGUOUS])?;
            lab.executions(&key, 1)
        }
        Kind::Fault(words) => {
            let mut worker = lab.run(&key).rigged(words).start()?;
            let ended = worker.end()?;
            done.fell = lab.fell(&worker);
            lab.ended(&key, &ended, &[0])?;
            lab.stands(&key, "committed")?;
            lab.executions(&key, 1)
        }
        Kind::Away => {
            // Its tries to settle end with its lease; the outcome is in the spool from the first on.
            let short = ["--lease", "1s", "--store-timeout", "250ms"];
            let job = lab.run(&key).with(short).rigged("append:3-:fail");
            let mut worker = job.start()?;
            let ended = worker.end()?;
            done.fell = lab.fell(&worker);
            lab.ended(&key, &ended, &[exit::NOT_RECORDED])?;
            // Whoever comes next delivers it; that may be another operation, and then this one finds it.
            run(lab.run(&key), &[0])?;
            lab.stands(&key, "committed")?;
            lab.executions(&key, 1)
        }
        Kind::Kill(point) => killed(lab, done, point),
        Kind::Overslept => {
            let job = lab.run(&key).with(SHORT).stopping_at(Point::Running);
            let mut holder = job.start()?;
            done.fell = holder.halted()?;
            if done.fell {
                lab.until_ran(&key, 1)?;
                done.lapses = true;
            }
            done.asleep = Some(holder);
            Ok(())
        }
    }
}

fn contend<'a>(lab: &'a Lab<'a>, key: &Key) -> Result<(), Halt> {
    let mut gate = lab.gate()?;
    let start = || lab.run(key).doing(["--linger", "5"]).at_gate(&gate, "load:1:gate").start();
    let mut workers = (0..3).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    lab.meet(&mut gate, &mut workers)?;
    for worker in &mut workers {
        lab.ended(key, &worker.end()?, &[0, exit::IN_PROGRESS])?;
    }
    lab.stands(key, "committed")?;
    lab.executions(key, 1)
}

/// A run that ends in doubt, and its exit code if it has one.
fn doubtful(job: Job<'_>, doubt: Doubt) -> (Job<'_>, Option<i32>) {
    match doubt {
        // Where a person decides that it did not happen, the next one does.
        Doubt::Exit => (job.doing(["--exit", "1,0"]), Some(1)),
        Doubt::Signal => (job.doing(["--signal", "9"]), None),
        Doubt::Timeout => (
            job.with(["--timeout", "500ms", "--kill-after", "2s"]).doing(["--linger", "20000"]),
            Some(124),
        ),
        Doubt::Contradiction => {
            (job.doing(["--say", "committed", "--say", "not-executed", "--exit", "1"]), Some(1))
        }
    }
}

/// The same command once more.
pub fn again<'a>(lab: &'a Lab<'a>, key: &Key, doubt: Doubt) -> Job<'a> {
    doubtful(lab.run(key), doubt).0
}

fn killed<'a>(lab: &'a Lab<'a>, done: &mut Operated<'a>, point: Point) -> Result<(), Halt> {
    let key = &done.key;
    let mut holder = lab.run(key).with(SHORT).stopping_at(point).start()?;
    done.fell = holder.halted()? && holder.kill()?;
    if !done.fell {
        return Ok(());
    }
    match left(point) {
        Left::Nothing | Left::Committed => {
            lab.ended(key, &lab.run(key).end()?, &[0])?;
            lab.executions(key, 1)
        }
        Left::Unrun => {
            done.lapses = true;
            Ok(())
        }
        Left::Ran if point != Point::Running && has_word(lab, key)? => {
            // The store was so slow that the settle was not its first: it falls where no doubt is left.
            (done.fell, done.slow) = (false, true);
            Ok(())
        }
        Left::Ran => {
            // The child outlives its ctrlrun.
            lab.until_ran(key, 1)?;
            done.lapses = true;
            Ok(())
        }
    }
}

/// Whether a run that was killed at its settle had nothing to tell but that it was too late, or has told
/// its outcome already: into the spool, at the first try that failed, from where anybody delivers it.
fn has_word(lab: &Lab<'_>, key: &Key) -> Result<bool, Halt> {
    if lab.ran(key)?.is_empty() {
        return Ok(true);
    }
    // The spool first: a word is in the store before it is taken from there.
    let found = fs::read_dir(lab.directory.join("spool")).into_iter().flatten().flatten();
    let mut texts = found.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let quoted = format!("\"{key}\"");
    Ok(texts.any(|text| text.contains(&quoted))
        || lab.record(key)?.is_none_or(|record| record.lease_expires_at().is_none()))
}
