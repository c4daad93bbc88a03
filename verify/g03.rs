//! G3: a live reservation refuses others, for as long as its command runs.
use super::lab::{Halt, Lab, exit};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("held")?;
    let mut hold = lab.gate()?;
    let file = hold.file();
    let job = || lab.run(&key).with(["--lease", "2s"]).doing(["--hold"]).doing([&file]);
    let mut holder = job().start()?;
    lab.until_ran(&key, 1)?;
    contend(lab, &key, &job)?;
    // Longer than its lease: it is renewed.
    let renewed = lab.until(|| {
        let events = lab.evidence(&key)?.history;
        Ok(events.iter().filter(|row| row.event.kind() == "lease_renewed").count() >= 3)
    })?;
    lab.window("the first lease was over", renewed);
    contend(lab, &key, &job)?;
    lab.executions(&key, 1)?;
    hold.open();
    let ended = holder.end()?;
    lab.ended(&key, &ended, &[0])?;
    lab.executions(&key, 1)?;
    lab.stands(&key, "committed")
}

fn contend<'a>(
    lab: &'a Lab<'a>,
    key: &ctrlrun::plan::key::Key,
    job: &dyn Fn() -> super::worker::Job<'a>,
) -> Result<(), Halt> {
    for _ in 0..3 {
        let refused = job().end()?;
        lab.ended(key, &refused, &[exit::IN_PROGRESS])?;
    }
    let skipped = job().with(["--on-running", "skip"]).end()?;
    lab.ended(key, &skipped, &[0])?;
    lab.demand(skipped.stderr.is_empty(), || format!("{key}: a skip was not silent"));
    lab.count_round();
    Ok(())
}
