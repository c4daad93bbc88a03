//! G11: a re-read that fails runs nothing and writes nothing.
use super::lab::{Halt, Lab, exit};

/// Workload and claims: at the reserve and at the begin, landed and not.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    for (name, faults, state) in [
        ("reserve-landed", "append:1:lose-answer;reread:1-:fail", "reserved"),
        ("reserve-lost", "append:1:lose-request;reread:1-:fail", "new"),
        ("begin-landed", "append:2:lose-answer;reread:1-:fail", "executing"),
        ("begin-lost", "append:2:lose-request;reread:1-:fail", "reserved"),
    ] {
        let key = lab.key(name)?;
        let mut worker = lab.run(&key).rigged(faults).start()?;
        let ended = worker.end()?;
        lab.window(name, lab.fell(&worker));
        lab.ended(&key, &ended, &[exit::STORE])?;
        lab.executions(&key, 0)?;
        // Whatever the fault left is there, and nothing more.
        lab.stands(&key, state)?;
        // It is spooled that nothing ran: the next run delivers that, and runs.
        let next = lab.run(&key).end()?;
        lab.ended(&key, &next, &[0])?;
        lab.executions(&key, 1)?;
        lab.stands(&key, "committed")?;
        lab.count_round();
    }
    Ok(())
}
