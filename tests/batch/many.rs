//! Several batches of one file at once, and one key that hangs.
use crate::at::{HOLD, Kind, Place, on_every_store, until};
use crate::common::finish;
use crate::{MARK_KEY, batch, file, line, marking, marks, summary};

on_every_store!(
    t53_two_batches_of_one_file_in_two_processes_run_each_key_once,
    t53_one_key_that_hangs_holds_up_no_other_and_not_its_own_place_for_others,
);

fn t53_two_batches_of_one_file_in_two_processes_run_each_key_once(kind: Kind) {
    // BAT-14, case 53
    let at = Place::new(kind);
    let file = file(&at, &marking(200));
    let flags = ["-j4", "--output", "none", "--json"];
    let both = [at.start(&mut batch(&at, &file, &flags)), at.start(&mut batch(&at, &file, &flags))];
    let ends = both.map(|running| running.end());
    let now: u64 = ends.iter().map(|end| summary(end)["committed_now"].as_u64().unwrap()).sum();
    assert_eq!(now, 200, "{ends:?}");
    let marks = marks(&at);
    assert_eq!(marks.len(), 200);
    assert!(marks.values().all(|marks| *marks == 1), "{marks:?}");
    let again = finish(&mut batch(&at, &file, &flags));
    assert_eq!(again.code, Some(0), "{again:?}");
}

fn t53_one_key_that_hangs_holds_up_no_other_and_not_its_own_place_for_others(kind: Kind) {
    // BAT-9, BAT-12, case 53
    let at = Place::new(kind);
    let hangs = line("hangs", &[MARK_KEY, HOLD].concat());
    // Its own key again, and many others behind it.
    let lines = [hangs.clone(), hangs.clone(), marking(40), hangs].concat();
    let file = file(&at, &lines);
    let running = at.start(&mut batch(&at, &file, &["-j2", "--json"]));
    until("all others have run", || at.marks() == 41);
    until("all others are recorded", || at.state("k:39") == "committed");
    assert_eq!(at.state("hangs"), "executing");
    at.go();
    let end = running.end();
    let told = summary(&end);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(
        (told["committed_now"].as_u64(), told["committed_earlier"].as_u64()),
        (Some(41), Some(2))
    );
    assert_eq!(marks(&at)["hangs"], 1);
}
