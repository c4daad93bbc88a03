//! G6: a lapsed lease frees nothing, and reading moves nothing.
use ctrlrun::plan::key::Key;
use ctrlrun::store::stop::Point;

use super::lab::{Halt, Lab, exit, together};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    together(
        lab,
        &[
            |lab| lapse(lab, &lab.key("reserved")?, Point::AfterReserve, 0),
            |lab| lapse(lab, &lab.key("begun")?, Point::AfterBegin, 0),
            |lab| lapse(lab, &lab.key("running")?, Point::BeforeSettle, 1),
            overslept,
        ],
    )
}

fn lapse<'a>(lab: &'a Lab<'a>, key: &Key, point: Point, ran: usize) -> Result<(), Halt> {
    let job = || lab.run(key).with(["--lease", "2s"]);
    let mut holder = job().stopping_at(point).start()?;
    let halted = holder.halted()?;
    let killed = halted && holder.kill()?;
    lab.window(point.name(), killed);
    look(lab, key)?;
    lab.until_lapsed(key)?;
    look(lab, key)?;
    for _ in 0..2 {
        let refused = job().end()?;
        lab.ended(key, &refused, &[exit::AMBIGUOUS])?;
        lab.stands(key, "ambiguous")?;
    }
    look(lab, key)?;
    lab.count_round();
    lab.executions(key, ran)
}

/// A holder that sleeps through its own lease between its begin and its start does not start.
fn overslept<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("overslept")?;
    let job = || lab.run(&key).with(["--lease", "2s"]);
    let mut holder = job().stopping_at(Point::AfterBegin).start()?;
    let halted = holder.halted()?;
    lab.window("a holder that slept", halted);
    lab.until_lapsed(&key)?;
    lab.ended(&key, &job().end()?, &[exit::AMBIGUOUS])?;
    holder.go_on();
    // Whichever of "too late" and "no longer its own" it says: nothing was run.
    let nothing_run = [exit::STORE, exit::IN_PROGRESS, exit::AMBIGUOUS];
    lab.ended(&key, &holder.end()?, &nothing_run)?;
    lab.count_round();
    lab.executions(&key, 0)
}

/// Looks in every way there is, and at what that changed.
fn look<'a>(lab: &'a Lab<'a>, key: &Key) -> Result<(), Halt> {
    let before = lab.evidence(key)?;
    for words in [
        ["show", key.as_str()].as_slice(),
        &["history", key.as_str()],
        &["effects", "--prefix", key.as_str()],
        &["effects", "--stuck", "--check"],
        &["output", key.as_str()],
    ] {
        lab.tool(words).end()?;
    }
    lab.run(key).with(["--dry-run"]).end()?;
    let after = lab.evidence(key)?;
    let same = before.record == after.record && before.history == after.history;
    lab.demand(same, || format!("{key}: reading moved it"));
    Ok(())
}
