//! Processes that want one key at the same instant.
use crate::verify::lab::{Halt, Lab, exit};

/// In turns they meet before they look, and after all have looked and found nothing: then the write
/// alone decides.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    for round in 0..lab.bench.sizes.rounds {
        let at = if round % 2 == 0 { "load:1:gate" } else { "append:1:gate" };
        one(lab, round, at)?;
    }
    Ok(())
}

fn one<'a>(lab: &'a Lab<'a>, round: usize, at: &str) -> Result<(), Halt> {
    let key = lab.key(&format!("contended-{round}"))?;
    let mut gate = lab.gate()?;
    let mut many = (0..lab.bench.sizes.processes)
        .map(|_| lab.run(&key).doing(["--linger", "20"]).at_gate(&gate, at).start())
        .collect::<Result<Vec<_>, _>>()?;
    let met = lab.meet(&mut gate, &mut many)?;
    lab.window("all were released together", met);
    for mut worker in many {
        let ended = worker.end()?;
        // The winner, and whoever came when it was over, end 0.
        lab.ended(&key, &ended, &[0, exit::IN_PROGRESS])?;
    }
    lab.executions(&key, 1)?;
    lab.stands(&key, "committed")?;
    lab.count_round();
    Ok(())
}
