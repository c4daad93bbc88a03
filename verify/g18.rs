//! G18: a probe's "no" is not a licence: it means "not so far", and the old child may be alive.
//!
//! The probe's answers are given to the engine directly: what is shown is what it makes of them.
use ctrlrun::drive::{Call, handle};
use ctrlrun::plan::effect::{Answer, Command, Probe, ProbeAnswer};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::Done;
use ctrlrun::store::Store;
use ctrlrun::store::stop::Point;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::lab::{Halt, Lab, WITHIN, exit};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("alive")?;
    let mut hold = lab.gate()?;
    let file = hold.file();
    let job = || lab.run(&key).with(["--lease", "2s"]).doing(["--hold"]).doing([&file]);
    let mut holder = job().stopping_at(Point::Running).start()?;
    let halted = holder.halted()?;
    lab.until_ran(&key, 1)?;
    let killed = halted && holder.kill()?;
    lab.until_lapsed(&key)?;
    lab.ended(&key, &job().end()?, &[exit::AMBIGUOUS])?;
    let child = lab.ran(&key)?.first().and_then(|line| i32::try_from(line.pid).ok());
    let alive = child.is_some_and(|pid| kill(Pid::from_raw(pid), None).is_ok());
    lab.window("the old child was alive", killed && alive);

    let store = lab.rigged_store()?;
    let answered = probed(lab, store.as_ref(), &key, ProbeAnswer::NotExecuted)?;
    lab.demand(answered == Some(Answer::ProbeKept), || {
        format!("{key}: a probe's \"no\" was answered {answered:?}")
    });
    lab.stands(&key, "ambiguous")?;
    let history = lab.evidence(&key)?.history;
    let kept = history.last().is_some_and(|row| row.event.kind() == "probed");
    lab.demand(kept, || format!("{key}: the probe's answer is not in the history"));
    lab.ended(&key, &job().end()?, &[exit::AMBIGUOUS])?;
    lab.executions(&key, 1)?;
    hold.open();

    let answered = probed(lab, store.as_ref(), &key, ProbeAnswer::Committed)?;
    lab.demand(answered == Some(Answer::Resolved), || {
        format!("{key}: a probe's \"yes\" was answered {answered:?}")
    });
    lab.stands(&key, "committed")?;
    lab.ended(&key, &job().end()?, &[0])?;
    lab.count_round();
    lab.executions(&key, 1)
}

fn probed<'a>(
    lab: &'a Lab<'a>,
    store: &dyn Store,
    key: &Key,
    answer: ProbeAnswer,
) -> Result<Option<Answer>, Halt> {
    let looked_at = lab.record(key)?.map_or(0, |record| record.revision);
    let by = "reconcile:verify".to_owned();
    let probe = Probe { answer, by, reconcile_final: false, looked_at };
    let done = handle(
        store,
        Call {
            key: key.clone(),
            command: Command::Probed(probe),
            expect: StreamState::Any,
            within: WITHIN,
            exchange_max: WITHIN,
            outputs: Vec::new(),
        },
    );
    Ok(match done {
        Done::Answered(answered) => Some(answered.answer),
        Done::CouldNot(error) | Done::Unknown(error) => {
            lab.doubt(format!("{key}: {error}"));
            None
        }
    })
}
