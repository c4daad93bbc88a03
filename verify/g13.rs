//! G13: an expected revision is held to.
use super::lab::{Halt, Lab, exit};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    operators(lab)?;
    runs(lab)
}

/// Of many people who decide about one revision, one decides.
fn operators<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("decided")?;
    let doubt = lab.run(&key).doing(["--exit", "1"]).end()?;
    lab.ended(&key, &doubt, &[1])?;
    let revision = lab.record(&key)?.map_or(0, |record| record.revision);
    let mut gate = lab.gate()?;
    let mut many = (0..lab.bench.sizes.processes)
        .map(|person| {
            lab.decision(&key, "--not-executed", &format!("person-{person}"), revision)
                .at_gate(&gate, "append:1:gate")
                .start()
        })
        .collect::<Result<Vec<_>, _>>()?;
    // All have seen the revision, and decided on it: the write alone tells who wins.
    let met = lab.meet(&mut gate, &mut many)?;
    lab.window("all decided before one wrote", met);
    let mut won = 0;
    for mut worker in many {
        let ended = worker.end()?;
        lab.ended(&key, &ended, &[0, exit::REVISION])?;
        won += usize::from(ended.code == Some(0));
    }
    lab.demand(won == 1, || format!("{key}: {won} people decided about one revision"));
    lab.count_round();
    lab.stands(&key, "failed")
}

/// Of many runs held to one revision, one runs.
fn runs<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("held-to")?;
    let job = || lab.run(&key).with(["--not-executed", "7"]).doing(["--exit", "7,0"]);
    let first = job().with(["--expect", "new"]).end()?;
    lab.ended(&key, &first, &[7])?;
    let again = job().with(["--expect", "new"]).end()?;
    lab.ended(&key, &again, &[exit::REVISION])?;
    let revision = lab.record(&key)?.map_or(0, |record| record.revision).to_string();
    let mut gate = lab.gate()?;
    let mut many = (0..lab.bench.sizes.processes)
        .map(|_| job().with(["--expect", &revision]).at_gate(&gate, "append:1:gate").start())
        .collect::<Result<Vec<_>, _>>()?;
    let met = lab.meet(&mut gate, &mut many)?;
    lab.window("all decided before one wrote", met);
    for mut worker in many {
        let ended = worker.end()?;
        lab.ended(&key, &ended, &[0, exit::REVISION])?;
    }
    lab.count_round();
    lab.executions(&key, 2)?;
    lab.stands(&key, "committed")
}
