//! G12: the record is the fold of its history: of every record of the scratch store, at the end. A row
//! that was tampered with is found.
use ctrlrun::plan::key::Key;
use ctrlrun::store::stop::Point;
use ctrlrun::store::{Filter, Flow, Listed};

use super::check::{Evidence, violations};
use super::lab::{Halt, Lab, WITHIN, exit};

/// Workload and claims. It comes last, so that the other guarantees' records are there.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    every_event(lab)?;
    let mut keys = Vec::new();
    let mut each = |listed| {
        match listed {
            Listed::Record(shown) => keys.push(shown.record.key),
            Listed::Unreadable { key, why } => lab.violated(format!("{key}: {why}")),
        }
        Flow::Continue
    };
    let filter = Filter { prefix: Some("verify:".to_owned()), ..Filter::default() };
    lab.store
        .list(&filter, &mut each, WITHIN)
        .map_err(|error| Halt::Broke(format!("the scratch store: {error}")))?;
    for key in &keys {
        // What ran is their own guarantee's to judge.
        let evidence = Evidence { ledger: Vec::new(), ..lab.evidence(key)? };
        for violation in violations(&evidence) {
            lab.violated(violation);
        }
    }
    lab.note(format!("{} records", keys.len()));
    tampered(lab)
}

/// A record with nearly every kind of event.
fn every_event<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = lab.key("every-event")?;
    let job = || lab.run(&key).with(["--not-executed", "7"]).doing(["--exit", "7,1,0"]);
    lab.ended(&key, &job().end()?, &[7])?;
    lab.ended(&key, &job().end()?, &[1])?;
    lab.ended(&key, &lab.decide(&key, "--not-executed", "a-person")?, &[0])?;
    lab.ended(&key, &lab.decide(&key, "--reopen", "another")?, &[0])?;
    lab.ended(&key, &lab.decide(&key, "--committed", "a-third")?, &[0])?;
    let lapsed = lab.key("lapsed")?;
    let mut holder =
        lab.run(&lapsed).with(["--lease", "1s"]).stopping_at(Point::AfterBegin).start()?;
    let killed = holder.halted()? && holder.kill()?;
    lab.window("a holder that was killed", killed);
    lab.until_lapsed(&lapsed)?;
    lab.ended(&lapsed, &lab.run(&lapsed).end()?, &[exit::AMBIGUOUS])?;
    lab.count_round();
    lab.executions(&key, 2)
}

/// Not one of the lab's keys: what is wrong with it is what is looked for.
fn tampered<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let key = Key::new("verify:tampered").map_err(|error| Halt::Broke(error.to_string()))?;
    lab.ended(&key, &lab.run(&key).end()?, &[0])?;
    let wrong = || lab.evidence(&key).map(|evidence| violations(&evidence).len());
    let before = wrong()?;
    lab.bench.scratch().tamper(&key).map_err(Halt::Broke)?;
    let after = wrong()?;
    lab.demand(after > before, || "a row that was tampered with was not found".to_owned());
    lab.bench.scratch().forget(&key).map_err(Halt::Broke)
}
