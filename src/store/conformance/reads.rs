//! What is read of one key.
use super::{
    Ask, Check, Lab, WITHIN, ambiguated, began, committed, draw, failed, fold, land, renewed,
    reserved, same,
};
use crate::plan::effect::{Cause, FailedBy, OutcomeId};
use crate::store::Store;

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("each event that can be asked for is brought along", each_ask),
    ("the began event is that of the attempt asked for", began_of_an_attempt),
    ("an outcome is found anywhere in the history, of its key only", outcome_of_a_key),
    ("a re-read finds what a load finds", reread_is_a_load),
    ("the history is read from a revision on", history_from),
    ("a key that is not there has nothing", nothing_there),
    ("the store's clock goes on, in microseconds", clock),
];

fn each_ask(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    lab.put(&key, &[reserved(1, now)])?;
    lab.put(&key, &[began(now), renewed(now)])?;
    let history = lab.history(&key)?;
    let event = |ask| lab.load(&key, ask).map(|found| found.event);
    same(&event(Ask::Nothing)?, &None, "nothing was asked for")?;
    for row in &history {
        let found = event(Ask::Revision(row.revision))?;
        same(&found.as_ref(), &Some(row), "the event at a revision")?;
    }
    same(&event(Ask::Revision(4))?, &None, "a revision that is not there")?;
    same(&event(Ask::Revision(0))?, &None, "revision 0")?;
    same(&event(Ask::Last)?.as_ref(), &history.last(), "the last event")?;
    same(&event(Ask::LastChange)?.as_ref(), &history.get(1), "the last change, not a renewal")?;
    same(&event(Ask::Began(1))?.as_ref(), &history.get(1), "the began event")?;
    same(&event(Ask::Began(2))?, &None, "of an attempt that is not there")?;
    let none = OutcomeId(draw()?);
    same(&event(Ask::Outcome(none))?, &None, "an outcome that is not there")
}

fn began_of_an_attempt(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    lab.put(&key, &[reserved(1, now), began(now), renewed(now)])?;
    lab.put(&key, &[failed(FailedBy::OwnWord), reserved(2, now)])?;
    let began_at = |attempt| -> Result<Option<u64>, String> {
        let found = lab.load(&key, Ask::Began(attempt))?;
        Ok(found.event.map(|event| event.revision))
    };
    same(&began_at(2)?, &None, "before the second attempt began")?;
    lab.put(&key, &[began(now), renewed(now)])?;
    same(&began_at(1)?, &Some(2), "the first attempt's")?;
    same(&began_at(2)?, &Some(6), "the second attempt's")
}

fn outcome_of_a_key(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let (key, other) = (lab.key("k")?, lab.key("other")?);
    let now = lab.load(&key, Ask::Nothing)?.now;
    let outcome = OutcomeId(draw()?);
    lab.put(&key, &[reserved(1, now), began(now)])?;
    let found = lab.load(&key, Ask::Nothing)?;
    let mut append = fold(&key, &found, &[ambiguated(Cause::Exit)])?;
    for row in &mut append.history {
        row.outcome_id = Some(outcome);
    }
    land(store, &append)?;
    let told = append.history.first().cloned();
    lab.put(&key, &[committed()])?;
    lab.put(&other, &[reserved(1, now)])?;
    let event = |key| lab.load(key, Ask::Outcome(outcome)).map(|found| found.event);
    same(&event(&key)?, &told, "the event of the outcome")?;
    same(&event(&other)?, &None, "the outcome under another key")
}

fn reread_is_a_load(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    for round in 0..3 {
        for ask in [Ask::Nothing, Ask::Last, Ask::Revision(1), Ask::Began(1)] {
            let loaded = lab.load(&key, ask)?;
            let mut reread =
                store.reread(&key, ask, WITHIN).map_err(|error| format!("reread: {error}"))?;
            reread.now = loaded.now;
            same(&reread, &loaded, "the re-read")?;
        }
        let now = lab.load(&key, Ask::Nothing)?.now;
        let event = match round {
            0 => reserved(1, now),
            1 => began(now),
            _ => committed(),
        };
        lab.put(&key, &[event])?;
    }
    Ok(())
}

fn history_from(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    lab.put(&key, &[reserved(1, now), began(now), committed()])?;
    let all = lab.history(&key)?;
    for (from, wanted) in [(0, &all[..]), (1, &all[..]), (3, &all[2..]), (4, &[])] {
        let found = store.history(&key, from, WITHIN).map_err(|error| error.to_string())?;
        same(&found.as_slice(), &wanted, "the history")?;
    }
    Ok(())
}

fn nothing_there(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let found = lab.load(&key, Ask::Last)?;
    same(&(found.record, found.event), &(None, None), "the load")?;
    same(&lab.history(&key)?, &Vec::new(), "the history")?;
    same(&lab.output(&key, 1, super::Stream::Stdout)?, &None, "the output")
}

fn clock(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let first = lab.load(&key, Ask::Nothing)?.now;
    // A year of microseconds after 2020: a clock in another unit is off by a thousand.
    if first.0 < 1_577_836_800_000_000 || first.0 > 4_102_444_800_000_000 {
        return Err(format!("{} is no time in microseconds", first.0));
    }
    let second = lab.load(&key, Ask::Nothing)?.now;
    if second < first {
        return Err(format!("the clock went from {} back to {}", first.0, second.0));
    }
    Ok(())
}
