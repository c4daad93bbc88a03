//! G14: a key is bound to its command.
use super::lab::{Halt, Lab, exit};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("committed")?;
    let mine = || lab.run(&key).doing(["--print", "10 EUR"]);
    let other = || lab.run(&key).doing(["--print", "99 EUR"]);
    lab.ended(&key, &mine().end()?, &[0])?;
    lab.ended(&key, &other().end()?, &[exit::MISMATCH])?;
    lab.executions(&key, 1)?;

    let key = lab.key("executing")?;
    let mut hold = lab.gate()?;
    let file = hold.file();
    let mut holder = lab.run(&key).doing(["--hold"]).doing([&file]).start()?;
    lab.until_ran(&key, 1)?;
    lab.ended(&key, &lab.run(&key).end()?, &[exit::MISMATCH])?;
    hold.open();
    lab.ended(&key, &holder.end()?, &[0])?;
    lab.executions(&key, 1)?;

    // After FAILED on its own word another may be bound.
    let key = lab.key("failed")?;
    let failing = lab.run(&key).with(["--not-executed", "7"]).doing(["--exit", "7"]);
    lab.ended(&key, &failing.end()?, &[7])?;
    lab.ended(&key, &lab.run(&key).end()?, &[0])?;
    lab.executions(&key, 2)?;

    // After a person's decision only if it is asked for: the doubt was about that command.
    let key = lab.key("decided")?;
    lab.ended(&key, &lab.run(&key).doing(["--exit", "1"]).end()?, &[1])?;
    lab.ended(&key, &lab.run(&key).end()?, &[exit::MISMATCH])?;
    lab.ended(&key, &lab.decide(&key, "--not-executed", "a-person")?, &[0])?;
    lab.ended(&key, &lab.run(&key).end()?, &[exit::MISMATCH])?;
    lab.executions(&key, 1)?;
    lab.ended(&key, &lab.run(&key).with(["--rebind"]).end()?, &[0])?;
    lab.count_round();
    lab.executions(&key, 2)
}
