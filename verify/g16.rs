//! G16: a known outcome is not lost when the store goes away while the command runs: it is spooled,
//! and delivered later, once.
use std::fs;
use std::path::PathBuf;

use ctrlrun::plan::key::Key;

use super::lab::{Halt, Lab, exit, together};
use super::worker::broke;

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    together(
        lab,
        &[
            |lab| away(lab, &lab.key("away")?, "append:3-:fail", "executing"),
            // The outcome has landed, and its holder could not know.
            |lab| {
                let faults = "append:3:lose-answer;append:4-:fail;reread:1-:fail";
                away(lab, &lab.key("landed-unseen")?, faults, "committed")
            },
            back_in_time,
            died_trying,
        ],
    )
}

/// The store goes away and does not come back for this process.
fn away<'a>(lab: &'a Lab<'a>, key: &Key, faults: &str, stands: &str) -> Result<(), Halt> {
    // A spool of its own: what is in it is delivered by every run that writes.
    let spool = lab.directory.join(format!("spool-{}", lab.next_name()));
    let job = || {
        let mut job = lab.run(key).with(["--lease", "1s", "--store-timeout", "250ms"]);
        job.spool = Some(spool.clone());
        job
    };
    let mut worker = job().rigged(faults).start()?;
    let ended = worker.end()?;
    lab.window(format!("{key}: the store was away at the settle"), lab.fell(&worker));
    lab.ended(key, &ended, &[exit::NOT_RECORDED])?;
    lab.stands(key, stands)?;
    let spooled = files(&spool);
    lab.demand(spooled.len() == 1, || format!("{key}: {} outcomes are spooled", spooled.len()));
    let kept = copies(&spooled)?;

    let deliver = || {
        let mut job = lab.run(key);
        job.spool = Some(spool.clone());
        job.end()
    };
    lab.ended(key, &deliver()?, &[0])?;
    lab.stands(key, "committed")?;
    lab.demand(files(&spool).is_empty(), || format!("{key}: it is still in the spool"));
    let once = lab.evidence(key)?.history;
    // The same file again, as after a crash between the delivery and its removal.
    for (path, bytes) in kept {
        fs::write(path, bytes).map_err(|error| broke("a spool file", &error))?;
    }
    lab.ended(key, &deliver()?, &[0])?;
    let twice = lab.evidence(key)?.history;
    lab.demand(once == twice, || format!("{key}: an outcome was delivered twice"));
    let committed = twice.iter().filter(|row| row.event.kind() == "committed").count();
    lab.demand(committed == 1, || format!("{key}: it is recorded {committed} times"));
    lab.count_round();
    lab.executions(key, 1)
}

/// The store is away at the first try to record it, and its holder dies before the second: it is in
/// the spool by then.
fn died_trying<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("died-trying")?;
    let spool = lab.directory.join(format!("spool-{}", lab.next_name()));
    let mut job = lab.run(&key).rigged("append:3:fail;append:4:stop");
    job.spool = Some(spool.clone());
    let mut worker = job.start()?;
    let halted = lab.until(|| worker.halted())?;
    let spooled = files(&spool);
    let killed = halted && worker.kill()?;
    lab.window(format!("{key}: killed before the second try to record it"), killed);
    if !killed {
        return Ok(());
    }
    lab.count_kill();
    lab.demand(spooled.len() == 1, || {
        format!("{key}: {} outcomes were spooled before the second try", spooled.len())
    });
    let mut job = lab.run(&key);
    job.spool = Some(spool.clone());
    lab.ended(&key, &job.end()?, &[0])?;
    lab.stands(&key, "committed")?;
    lab.count_round();
    lab.executions(&key, 1)
}

/// The store is away for a while.
fn back_in_time<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("back-in-time")?;
    let mut worker = lab.run(&key).rigged("append:3-6:fail").start()?;
    let ended = worker.end()?;
    lab.window("the store was away for a while", lab.fell(&worker));
    lab.ended(&key, &ended, &[0])?;
    lab.stands(&key, "committed")?;
    lab.count_round();
    lab.executions(&key, 1)
}

fn files(spool: &PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(spool).map(|entries| entries.flatten().collect::<Vec<_>>());
    let paths = entries.unwrap_or_default().into_iter().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|it| it == "json")).collect()
}

fn copies(paths: &[PathBuf]) -> Result<Vec<(PathBuf, Vec<u8>)>, Halt> {
    let read = |path: &PathBuf| fs::read(path).map(|bytes| (path.clone(), bytes));
    paths.iter().map(|path| read(path).map_err(|error| broke("a spool file", &error))).collect()
}
