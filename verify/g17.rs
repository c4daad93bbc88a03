//! G17: a late "it happened" blocks, whatever was decided meanwhile.
use ctrlrun::plan::key::Key;
use ctrlrun::store::stop::Point;

use super::lab::{Halt, Lab, exit, together};
use super::worker::Worker;

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    together(lab, &[after_a_decision, after_a_reservation])
}

/// A holder that was stopped while its command ran, until a person decided that it had not run.
fn overslept<'a>(lab: &'a Lab<'a>, key: &Key) -> Result<Worker<'a>, Halt> {
    let mut holder = lab.run(key).with(["--lease", "2s"]).stopping_at(Point::Running).start()?;
    let halted = holder.halted()?;
    lab.window(format!("{key}: the holder was stopped"), halted);
    lab.until_ran(key, 1)?;
    lab.until_lapsed(key)?;
    lab.ended(key, &lab.run(key).end()?, &[exit::AMBIGUOUS])?;
    lab.ended(key, &lab.decide(key, "--not-executed", "a-person")?, &[0])?;
    Ok(holder)
}

fn after_a_decision<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("decided")?;
    let mut holder = overslept(lab, &key)?;
    lab.stands(&key, "failed")?;
    holder.go_on();
    lab.ended(&key, &holder.end()?, &[exit::NOT_RECORDED])?;
    blocked(lab, &key)
}

fn after_a_reservation<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("reserved-again")?;
    let mut holder = overslept(lab, &key)?;
    let mut next = lab.run(&key).stopping_at(Point::AfterReserve).start()?;
    let halted = next.halted()?;
    lab.window("the next had only reserved", halted);
    holder.go_on();
    lab.ended(&key, &holder.end()?, &[exit::NOT_RECORDED])?;
    next.go_on();
    lab.ended(&key, &next.end()?, &[exit::AMBIGUOUS])?;
    blocked(lab, &key)
}

fn blocked<'a>(lab: &'a Lab<'a>, key: &Key) -> Result<(), Halt> {
    lab.stands(key, "ambiguous")?;
    lab.ended(key, &lab.run(key).end()?, &[exit::AMBIGUOUS])?;
    let history = lab.evidence(key)?.history;
    let late = history.iter().any(|row| row.event.kind() == "late_outcome");
    lab.demand(late, || format!("{key}: the late word is not in the history"));
    lab.count_round();
    lab.executions(key, 1)
}
