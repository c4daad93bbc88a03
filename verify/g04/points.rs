//! The holder killed at every point that a run passes.
use ctrlrun::store::stop::Point;

use crate::verify::lab::{Halt, Lab, exit, worst};

/// What the holder has left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing: the next attempt runs.
    Nothing,
    /// A reservation or a begin, and nothing ran.
    Unrun,
    /// An execution of which nobody will hear.
    Ran,
    /// A committed effect.
    Committed,
}

/// What a holder that is killed there leaves behind.
#[must_use]
pub fn left(point: Point) -> Left {
    match point {
        // No run passes the last one.
        Point::BeforeReserve | Point::InReserve | Point::InPrune => Left::Nothing,
        Point::AfterReserve | Point::BeforeBegin | Point::AfterBegin => Left::Unrun,
        Point::Running | Point::BeforeSettle | Point::InSettle => Left::Ran,
        Point::AfterSettle => Left::Committed,
    }
}

/// All points at once, each with a key of its own.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    std::thread::scope(|scope| {
        let running: Vec<_> =
            Point::ALL.iter().map(|point| scope.spawn(|| killed_at(lab, *point))).collect();
        let mut all = Ok(());
        for point in running {
            let ended = point.join();
            let ended = ended.unwrap_or_else(|_| Err(Halt::Broke("a part panicked".into())));
            all = worst(all, ended);
        }
        all
    })
}

fn killed_at<'a>(lab: &'a Lab<'a>, point: Point) -> Result<(), Halt> {
    let key = lab.key(&format!("killed-{}", point.name()))?;
    let job = || lab.run(&key).with(["--lease", "3s"]);
    let mut holder = job().stopping_at(point).start()?;
    let killed = holder.halted()? && holder.kill()?;
    lab.window(format!("killed at {}", point.name()), killed);
    if left(point) == Left::Ran {
        // The child outlives its ctrlrun.
        lab.until_ran(&key, 1)?;
    }
    let ran = lab.ran(&key)?.len();
    let at_once = job().end()?;
    match left(point) {
        Left::Nothing => {
            lab.demand(ran == 0, || format!("{key}: it ran before it was reserved"));
            lab.ended(&key, &at_once, &[0])?;
            lab.executions(&key, 1)?;
        }
        Left::Committed => {
            lab.ended(&key, &at_once, &[0])?;
            lab.executions(&key, 1)?;
        }
        left @ (Left::Unrun | Left::Ran) => {
            // 76 only where the lease is over already, which the checker sees from the history.
            lab.ended(&key, &at_once, &[exit::IN_PROGRESS, exit::AMBIGUOUS])?;
            lab.until_lapsed(&key)?;
            for _ in 0..2 {
                lab.ended(&key, &job().end()?, &[exit::AMBIGUOUS])?;
            }
            lab.stands(&key, "ambiguous")?;
            let before = usize::from(left == Left::Ran);
            lab.executions(&key, before)?;
            // A person has looked, and says what is so.
            let decision = if before == 0 { "--not-executed" } else { "--committed" };
            lab.ended(&key, &lab.decide(&key, decision, "a-person")?, &[0])?;
            lab.ended(&key, &job().end()?, &[0])?;
            lab.executions(&key, 1)?;
        }
    }
    lab.stands(&key, "committed")?;
    lab.count_round();
    Ok(())
}
