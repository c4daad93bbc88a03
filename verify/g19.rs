//! G19: a stale dispatch runs nothing: a worker that took it goes on only when its node has failed, its
//! run has ended, or another attempt has settled it.
use ctrlrun::plan::workflow::Status;
use ctrlrun::store::stop::Point;

use super::flow::{Flow, Node};
use super::lab::{Halt, Lab, together};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    together(lab, &[settled, failed, ended])
}

/// Another worker was handed it meanwhile, and has run it.
fn settled<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    late(lab, "settled", ("only", "", &[]), 1, Status::Succeeded, false)
}

/// Its node failed, and was run again: the dispatch is of the attempt before.
fn failed<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let fields = "not_executed = [7]\nretries = 1\nbackoff = \"10ms\"";
    late(lab, "failed", ("only", fields, &["--exit", "7,0"]), 2, Status::Succeeded, false)
}

/// Its run has ended: what the dispatch expects, that there is no such effect, holds all the while.
fn ended<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    late(lab, "ended", ("only", "", &[]), 0, Status::Cancelled, true)
}

fn late<'a>(
    lab: &'a Lab<'a>,
    name: &str,
    node: Node<'_>,
    executions: usize,
    status: Status,
    is_cancelled: bool,
) -> Result<(), Halt> {
    let flow = Flow::start(lab, name, &[node])?;
    let key = flow.key("only")?;
    let mut slow = flow.worker().stopping_at(Point::BeforeReserve).start()?;
    let halted = slow.halted()?;
    if is_cancelled {
        lab.ended(&key, &flow.cancel()?, &[0])?;
    }
    flow.drain()?;
    flow.stands(status)?;
    lab.executions(&key, executions)?;
    lab.window(format!("a worker went on behind it: {name}"), halted && !slow.has_ended()?);
    let late = flow.see_out(slow)?;
    lab.ended(&key, &late, &[0])?;
    lab.count_round();
    lab.executions(&key, executions)?;
    flow.stands(status)
}
