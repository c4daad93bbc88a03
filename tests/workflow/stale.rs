//! Dispatches that are of the past run nothing (WFL-8, WFL-9).
use crate::at::{Kind, on_every_store, until};
use crate::lab::{Lab, ends, three};

on_every_store!(
    a_worker_that_took_a_dispatch_before_the_end_of_the_run_runs_nothing_after_it,
    a_worker_that_comes_second_runs_nothing,
);

fn a_worker_that_took_a_dispatch_before_the_end_of_the_run_runs_nothing_after_it(kind: Kind) {
    // WFL-9: its expectation, "there is no such effect", holds all the while.
    for point in ["before-reserve", "in-reserve"] {
        let lab = Lab::new(kind);
        if point == "in-reserve" && kind == Kind::Sqlite {
            // It has the store's one lock there: nobody else can write.
            continue;
        }
        let file = lab.file("w", &three(""));
        lab.start(&file, "r");
        let worker =
            lab.at.start(lab.command(&["work", "--hold", "1s"]).env("CTRLRUN_STOP_AT", point));
        worker.stopped();
        assert_eq!(lab.ask(&["cancel", "r"]).code, Some(0));
        let other = lab.at.start(&mut lab.command(&["work", "--hold", "1s"]));
        if point == "before-reserve" {
            until("it has ended", || lab.stands("r") == "cancelled");
            worker.go_on();
        } else {
            // The dispatch is locked by the reserve: the tick waits, and then sees it.
            worker.go_on();
            until("it has ended", || lab.stands("r") == "cancelled");
        }
        assert_eq!(ends(worker).code, Some(0));
        drop(other);
        let expected = if point == "before-reserve" { 0 } else { 1 };
        assert_eq!(lab.marked().len(), expected, "{point}");
        let state = if point == "before-reserve" { "" } else { "committed" };
        assert_eq!(lab.at.state("r/one"), state, "{point}");
    }
}

fn a_worker_that_comes_second_runs_nothing(kind: Kind) {
    // WFL-8: both have the same dispatch in hand.
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    lab.start(&file, "r");
    let slow = lab
        .at
        .start(lab.command(&["work", "--hold", "1s"]).env("CTRLRUN_STOP_AT", "before-reserve"));
    slow.stopped();
    let quick = lab.at.start(&mut lab.command(&["work", "--hold", "1s"]));
    until("it has ended", || lab.stands("r") == "succeeded");
    assert_eq!(ends(slow).code, Some(0));
    drop(quick);
    assert_eq!(lab.marked(), ["r/one 1", "r/two 1", "r/three 1"]);
}
