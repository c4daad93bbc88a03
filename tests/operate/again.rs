//! What a key may do once it was forgotten, and what must never be mistaken for it (OPS-5, OPS-6;
//! case 30).
use std::time::Duration;

use ctrlrun::plan::key::Key;
use ctrlrun::store::upkeep::{AsRead, Cut, Gone};
use ctrlrun::store::{Ask, Location, Mode, Options, Pruned, open};
use serde_json::Value;

use crate::at::{Kind, MARK, Place, on_every_store};
use crate::common::finish;

on_every_store!(
    numbers_of_an_earlier_life_never_come_round,
    an_insert_that_looked_before_is_too_late,
    a_late_word_about_what_is_gone_creates_nothing,
);

const FORGET: [&str; 5] = ["prune", "--older-than", "0s", "--forget-keys", "--yes"];

fn numbers_of_an_earlier_life_never_come_round(kind: Kind) {
    // OPS-5, EFF-6; case 30: typed from last month's mail, it would decide about another life.
    let at = Place::new(kind);
    let run =
        |flags: &[&str], end: &str| finish(&mut at.run("k", flags, &format!("{MARK} {end}"))).code;
    assert_eq!(run(&[], "exit 3"), Some(3));
    let old = at.show("k")["revision"].to_string();
    at.resolve("k", "--not-executed");
    let settled = at.show("k")["revision"].as_u64().unwrap();
    assert_eq!(at.ask(&FORGET).code, Some(0));
    assert_eq!(at.show("k"), Value::Null);

    // While it is gone, nothing that was looked at then holds.
    assert_eq!(run(&["--expect", &old], ""), Some(79));
    let resolve = |revision: &str, decision: &str| {
        at.ask(&["resolve", "k", decision, "--expect", revision, "--reason", "from the mail"]).code
    };
    assert_eq!(resolve(&old, "--committed"), Some(66));

    // It may run again, under numbers that it never had.
    assert_eq!(run(&["--expect", "new"], "exit 3"), Some(3));
    let new = at.show("k");
    assert_eq!((&new["revision"], &new["attempt"]), (&(settled + 3).into(), &(settled + 1).into()));
    let history = at.history("k");
    assert_eq!(history[0]["revision"], settled + 1);
    for revision in 1..=settled {
        for decision in ["--committed", "--not-executed", "--reopen"] {
            assert_eq!(resolve(&revision.to_string(), decision), Some(79), "{revision} {decision}");
        }
        assert_eq!(run(&["--expect", &revision.to_string()], ""), Some(79), "{revision}");
    }
    assert_eq!(at.show("k"), new);
    assert_eq!(at.marked(), ["1", &(settled + 1).to_string()]);
    // Attempts are counted from the first one of this life.
    at.resolve("k", "--not-executed");
    assert_eq!(run(&["--rebind", "--max-attempts", "1"], ""), Some(72));
    assert_eq!(run(&["--rebind", "--max-attempts", "2"], ""), Some(0));
    // Another key, that never was: above the floor as well.
    assert_eq!(finish(&mut at.run("other", &[], MARK)).code, Some(0));
    assert_eq!(at.show("other")["attempt"], settled + 1);
    let fold = at.ask(&["doctor", "--deep"]);
    assert_eq!(fold.code, Some(0), "{fold:?}");
}

fn an_insert_that_looked_before_is_too_late(kind: Kind) {
    // OPS-5, CMT-2: it found nothing, paused; the key came and went meanwhile.
    let at = Place::scratch(kind);
    let mut late = at.run("k", &[], MARK);
    let late = at.start(late.env("CTRLRUN_STOP_AT", "before-reserve"));
    late.stopped();
    assert_eq!(finish(&mut at.run("k", &[], MARK)).code, Some(0));
    assert_eq!(at.ask(&FORGET).code, Some(0));
    late.go_on();
    // Its INSERT was refused by the floor, and it looked anew.
    late.stopped();
    late.go_on();
    let end = late.end();
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(at.marked(), ["1", "4"], "an attempt's number was granted twice");

    // It waits for a prune that is under way, and finds the floor that this one leaves.
    let mut pruning = at.ctrlrun(&FORGET);
    let pruning = at.start(pruning.env("CTRLRUN_STOP_AT", "in-prune"));
    pruning.stopped();
    let waiting = at.start(&mut at.run("k", &[], MARK));
    pruning.go_on();
    assert_eq!(pruning.end().code, Some(0));
    let end = waiting.end();
    assert_eq!(end.code, Some(0), "{end:?}");
    // It looked before the prune ended, and then it replays; or after, and then it runs.
    let marked = at.marked();
    assert!(marked.len() == 2 || marked == ["1", "4", "7"], "{marked:?}");
}

fn a_late_word_about_what_is_gone_creates_nothing(kind: Kind) {
    // OPS-6, EFF-17. The rule of prune would not let this key go: its holder is alive.
    let at = Place::new(kind);
    let holder = at.holder("k", &[]);
    let location = Location::parse(at.store()).unwrap();
    let within = Duration::from_secs(20);
    let store = open(&location, &Options::new(Mode::Write, within)).unwrap().store;
    let key = Key::new("k").unwrap();
    let record = store.load(&key, Ask::Nothing, within).unwrap().record.unwrap();
    let row = AsRead {
        key: key.clone(),
        revision: record.revision,
        write_id: record.write_id,
        attempt: record.attempt,
    };
    let cut = Cut { outputs: Vec::new(), effects: vec![row] };
    assert_eq!(store.prune(&cut, within), Pruned::Done(Gone { outputs: 0, effects: 1 }));
    at.go();
    let end = holder.end();
    assert_eq!(end.code, Some(74), "{end:?}");
    assert_eq!(at.show("k"), Value::Null);
    assert_eq!(at.spooled(&at.spool()).len(), 1, "what may have happened is kept: {end:?}");
    // EXE-25: and stops its key here.
    assert_eq!(finish(&mut at.run("k", &[], MARK)).code, Some(69));
    assert_eq!(at.marks(), 1);
}
