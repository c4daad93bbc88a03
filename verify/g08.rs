//! G8: a COMMIT that was lost and did not land is written again, once; also where the first lands
//! after all, behind the first re-read. What failed before its COMMIT is simply tried again.
use super::lab::{Halt, Lab, exit};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    for (at, step) in [(1, "reserve"), (2, "begin"), (3, "settle")] {
        once(lab, &format!("{step}-lost"), &format!("append:{at}:lose-request"))?;
        // The first try lands behind the re-read that found nothing of it: the second matches no
        // row, and only one more re-read tells that the row there is its own.
        once(lab, &format!("{step}-late"), &format!("append:{at}:late"))?;
        once(lab, &format!("{step}-busy"), &format!("append:{at}-{}:busy", at + 3))?;
    }
    // A second try that matches nothing, although what it expects is there: the store does not do
    // what it says. Only the re-read behind the second try sees that (CMT-11).
    let key = lab.key("swallowed")?;
    let mut worker = lab.run(&key).rigged("append:1:lose-request;append:2:refuse").start()?;
    let ended = worker.end()?;
    lab.window("swallowed", lab.fell(&worker));
    lab.ended(&key, &ended, &[exit::INTEGRITY])?;
    lab.executions(&key, 0)
}

fn once<'a>(lab: &'a Lab<'a>, name: &str, faults: &str) -> Result<(), Halt> {
    let key = lab.key(name)?;
    let mut worker = lab.run(&key).rigged(faults).start()?;
    let ended = worker.end()?;
    lab.window(name, lab.fell(&worker));
    // The faults are ours, and within tolerance: 69 would be wrong here.
    lab.demand(ended.code == Some(0), || {
        let said = ended.stderr.lines().next().unwrap_or("");
        format!("{key}: exit {:?} instead of 0 ({said})", ended.code)
    });
    lab.executions(&key, 1)?;
    lab.stands(&key, "committed")?;
    let history = lab.evidence(&key)?.history;
    let kinds: Vec<&str> = history.iter().map(|row| row.event.kind()).collect();
    let right = kinds == ["reserved", "began", "committed"];
    lab.demand(right, || format!("{key}: its history is {kinds:?}"));
    lab.count_round();
    Ok(())
}
