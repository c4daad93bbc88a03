//! G7: a COMMIT whose answer was lost but landed is seen as landed.
use super::lab::{Halt, Lab};

/// Workload and claims: the answer is lost at the reserve, the begin, the settle, and at each two.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    for (name, faults) in [
        ("reserve", "append:1:lose-answer"),
        ("begin", "append:2:lose-answer"),
        ("settle", "append:3:lose-answer"),
        ("all", "append:1-3:lose-answer"),
    ] {
        let key = lab.key(name)?;
        let mut worker = lab.run(&key).rigged(faults).start()?;
        let ended = worker.end()?;
        lab.window(name, lab.fell(&worker));
        lab.ended(&key, &ended, &[0])?;
        lab.executions(&key, 1)?;
        lab.stands(&key, "committed")?;
        let again = lab.run(&key).end()?;
        lab.ended(&key, &again, &[0])?;
        lab.executions(&key, 1)?;
        lab.count_round();
    }
    let key = lab.key("failed")?;
    let mut worker = lab
        .run(&key)
        .with(["--not-executed", "7"])
        .doing(["--exit", "7"])
        .rigged("append:3:lose-answer")
        .start()?;
    let ended = worker.end()?;
    lab.window("a settle as FAILED", lab.fell(&worker));
    lab.ended(&key, &ended, &[7])?;
    lab.stands(&key, "failed")
}
