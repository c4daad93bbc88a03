//! G9: identity is the whole row: never the attempt id, the version or the row count's absence alone.
use std::time::{Duration, Instant};

use ctrlrun::plan::effect::Event;
use ctrlrun::plan::key::Key;
use ctrlrun::store::conformance::suite;
use ctrlrun::store::stop::Point;

use super::broken::Break;
use super::lab::{Halt, Lab, exit, together};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    together(
        lab,
        &[
            one_attempt_id,
            another_reservation,
            |lab| overslept(lab, &lab.key("overslept-write")?, "append:2:stop"),
            |lab| {
                overslept(lab, &lab.key("overslept-reread")?, "append:2:lose-request;reread:1:stop")
            },
            conformance,
        ],
    )
}

/// Many processes with one attempt id, at the same instant.
fn one_attempt_id<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("one-attempt-id")?;
    let mut gate = lab.gate()?;
    let mut many = (0..lab.bench.sizes.processes)
        .map(|_| lab.run_as(&key, "same").at_gate(&gate, "append:1:gate").start())
        .collect::<Result<Vec<_>, _>>()?;
    let met = lab.meet(&mut gate, &mut many)?;
    lab.window("all were released together", met);
    for mut worker in many {
        lab.ended(&key, &worker.end()?, &[0, exit::IN_PROGRESS])?;
    }
    lab.count_round();
    lab.executions(&key, 1)
}

/// The re-read of a reserve that was lost finds another process's reservation with its attempt id.
fn another_reservation<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("another-reservation")?;
    let mut gate = lab.gate()?;
    let lost = "append:1:gate;append:1:lose-request";
    let mut second = lab.run_as(&key, "same").at_gate(&gate, lost).start()?;
    lab.until(|| Ok(gate.here() == 1))?;
    let mut first = lab.run_as(&key, "same").stopping_at(Point::AfterReserve).start()?;
    let halted = first.halted()?;
    lab.window("a reservation with the same attempt id", halted);
    gate.open();
    lab.ended(&key, &second.end()?, &[exit::IN_PROGRESS])?;
    lab.executions(&key, 0)?;
    first.go_on();
    lab.ended(&key, &first.end()?, &[0])?;
    lab.count_round();
    lab.executions(&key, 1)
}

/// A holder that is held up between deciding to begin and knowing that it has, for so long that its
/// reservation lapses, a person decides and another attempt runs; and that goes on while the lease
/// which it asked for would still be good. Only the row tells it that it has lost.
fn overslept<'a>(lab: &'a Lab<'a>, key: &Key, held_up: &str) -> Result<(), Halt> {
    let lease = Duration::from_secs(4);
    let job = || lab.run_as(key, "same").with(["--lease", "4s"]);
    let mut holder = job().stopping_at(Point::AfterReserve).rigged(held_up).start()?;
    let halted = holder.halted()?;
    // Most of the reservation passes before it loads what it begins on.
    let reserved = Instant::now();
    lab.until(|| Ok(reserved.elapsed() >= lease * 5 / 8))?;
    let loading = Instant::now();
    holder.go_on();
    let held_up = halted && holder.halted()?;
    lab.until_lapsed(key)?;
    lab.ended(key, &job().end()?, &[exit::AMBIGUOUS])?;
    lab.ended(key, &lab.decide(key, "--not-executed", "a-person")?, &[0])?;
    lab.ended(key, &job().end()?, &[0])?;
    lab.window(format!("{key}: held up in time"), held_up && loading.elapsed() < lease);
    holder.go_on();
    lab.ended(key, &holder.end()?, &[exit::IN_PROGRESS])?;
    lab.count_round();
    lab.executions(key, 1)
}

/// A write that was decided on a record that has since been forgotten, and whose key stands at the
/// same revision again: not the same row.
fn forgotten<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("forgotten")?;
    let job = || lab.run(&key).with(["--lease", "2s"]);
    let mut holder = job().stopping_at(Point::AfterReserve).start()?;
    let reserved = holder.halted()?;
    lab.until_lapsed(&key)?;
    let mut contender = job().rigged("append:1:stop").start()?;
    let decided = contender.halted()?;
    holder.go_on();
    // It sees that it is too late, and that nothing ran: such a key may be forgotten.
    lab.ended(&key, &holder.end()?, &[exit::IN_PROGRESS])?;
    let first = lab.record(&key)?.map_or(0, |record| record.attempt);
    lab.bench.scratch().forget(&key).map_err(Halt::Broke)?;
    let mut next = lab.run(&key).stopping_at(Point::AfterReserve).start()?;
    let again = next.halted()?;
    lab.window("the same revision of another row", reserved && decided && again);
    contender.go_on();
    lab.ended(&key, &contender.end()?, &[exit::IN_PROGRESS])?;
    next.go_on();
    lab.ended(&key, &next.end()?, &[0])?;
    let history = lab.evidence(&key)?.history;
    let later = |event: &Event| matches!(event, Event::Reserved(event) if event.attempt > first);
    let fenced = history.first().is_some_and(|row| later(&row.event));
    lab.demand(fenced, || format!("{key}: attempt {first} was granted twice"));
    lab.count_round();
    lab.executions(&key, 1)
}

/// What every store must do, check by check; then a key that is forgotten.
fn conformance<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    // Before anything is forgotten: that moves the floor from which new keys are numbered, and a
    // check which writes by itself does not look again.
    // In the self-test the processes alone must find what is wrong, but for what they cannot meet: a
    // revision never comes round, so only a check that makes one up sees that the write_id is left out.
    let made_up = lab.bench.breaks(Break::WriteIdIgnored);
    let checks = if lab.bench.is_broken() && !made_up { Vec::new() } else { suite() };
    // The other guarantees work in the same store meanwhile, so that nothing in it can be counted.
    let checks = checks.into_iter().filter(|(name, _)| !name.starts_with("counting "));
    let store = lab.rigged_store()?;
    for (name, check) in checks {
        if let Err(why) = check(store.as_ref()) {
            lab.violated(format!("conformance, {name}: {why}"));
        }
    }
    forgotten(lab)
}
