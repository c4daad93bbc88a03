//! G1: a committed effect never runs again.
use super::lab::{Halt, Lab, exit};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("once")?;
    let output = "what it printed";
    let job = || lab.run(&key).doing(["--print", output]);
    let first = job().end()?;
    lab.ended(&key, &first, &[0])?;
    let again = job().end()?;
    lab.ended(&key, &again, &[0])?;
    let replayed = again.stdout == first.stdout && !first.stdout.is_empty();
    lab.demand(replayed, || format!("{key}: its stored output was not replayed"));
    let refused = job().with(["--on-committed", "refuse"]).end()?;
    lab.ended(&key, &refused, &[exit::COMMITTED])?;

    let mut gate = lab.gate()?;
    let mut many = (0..lab.bench.sizes.processes)
        .map(|_| job().at_gate(&gate, "load:1:gate").start())
        .collect::<Result<Vec<_>, _>>()?;
    lab.meet(&mut gate, &mut many)?;
    for mut worker in many {
        let ended = worker.end()?;
        lab.ended(&key, &ended, &[0])?;
    }
    lab.count_round();
    lab.executions(&key, 1)?;
    lab.stands(&key, "committed")
}
