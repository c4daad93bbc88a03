//! G5: AMBIGUOUS blocks a blind retry, also after a restart.
use super::lab::{Halt, Lab, exit};

/// Workload and claims. Each worker is a process of its own, so each is a restart.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("doubt")?;
    let job = || lab.run(&key).doing(["--exit", "1"]);
    let first = job().end()?;
    lab.ended(&key, &first, &[1])?;
    lab.stands(&key, "ambiguous")?;
    let retried = job().with(["--retries", "2", "--backoff", "1ms"]).end()?;
    lab.ended(&key, &retried, &[exit::AMBIGUOUS])?;
    let mut gate = lab.gate()?;
    let mut many = (0..lab.bench.sizes.processes)
        .map(|_| job().at_gate(&gate, "load:1:gate").start())
        .collect::<Result<Vec<_>, _>>()?;
    lab.meet(&mut gate, &mut many)?;
    for mut worker in many {
        let refused = worker.end()?;
        lab.ended(&key, &refused, &[exit::AMBIGUOUS])?;
    }
    lab.count_round();
    lab.executions(&key, 1)?;
    lab.stands(&key, "ambiguous")?;
    // Only a person frees it.
    let decided = lab.decide(&key, "--not-executed", "a-person")?;
    lab.ended(&key, &decided, &[0])?;
    let freed = job().end()?;
    lab.ended(&key, &freed, &[1])?;
    lab.executions(&key, 2)
}
