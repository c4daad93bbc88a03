//! Coordinators and workers that are stopped and killed: case 18, and every point of a tick.
use crate::at::{HOLD, Kind, Running, on_every_store, until};
use crate::lab::{Lab, three};

on_every_store!(
    case_18_one_that_is_killed_in_a_node_leaves_it_in_doubt_for_the_other,
    case_18_one_that_is_stopped_in_a_node_comes_back_to_a_run_that_moved_on,
    a_worker_killed_between_the_settle_of_a_node_and_the_tick_holds_nothing_up,
    a_worker_killed_between_tick_and_dispatch_holds_nothing_up,
    a_worker_killed_inside_a_tick_leaves_the_run_as_it_was,
    a_worker_killed_before_its_node_began_leaves_it_to_be_decided,
);

/// A worker that stops at a point.
fn stops_at(lab: &Lab, point: &str) -> Running {
    let worker = lab.at.start(lab.command(&["work", "--hold", "1s"]).env("CTRLRUN_STOP_AT", point));
    worker.stopped();
    worker
}

/// A worker that goes on until the run stands so.
fn until_it_stands(lab: &Lab, id: &str, wanted: &str) {
    let worker = lab.at.start(&mut lab.command(&["work", "--hold", "1s"]));
    until("it stands so", || lab.stands(id) == wanted);
    drop(worker);
}

fn case_18_one_that_is_killed_in_a_node_leaves_it_in_doubt_for_the_other(kind: Kind) {
    // Case 18; WFL-8, WFL-16
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(HOLD));
    let first = lab.at.start(&mut lab.command(&["run", &file, "--id", "r", "--hold", "1s"]));
    until("two runs", || lab.marked().len() == 2);
    first.kill();
    let second = lab.ask(&["run", &file, "--id", "r", "--hold", "1s"]);
    assert_eq!(second.code, Some(76), "{second:?}");
    let told = "r: BLOCKED: two: AMBIGUOUS: its lease ended, and nobody has reported since";
    assert!(second.stderr.contains(told), "{second:?}");
    assert_eq!(lab.marked(), ["r/one 1", "r/two 1"], "no node twice");
    lab.at.go();
    lab.at.resolve("r/two", "--committed");
    lab.drain();
    assert_eq!(lab.stands("r"), "succeeded");
    assert_eq!(lab.marked(), ["r/one 1", "r/two 1", "r/three 1"]);
}

fn case_18_one_that_is_stopped_in_a_node_comes_back_to_a_run_that_moved_on(kind: Kind) {
    // Case 18; WFL-8, WFL-16, EFF-16, EFF-17
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(HOLD));
    let first = lab.at.start(&mut lab.command(&["run", &file, "--id", "r", "--hold", "1s"]));
    until("two runs", || lab.marked().len() == 2);
    first.stop();
    let second = lab.ask(&["run", &file, "--id", "r", "--hold", "1s"]);
    assert_eq!(second.code, Some(76), "{second:?}");
    assert_eq!(lab.stands("r"), "blocked");
    // It goes on where it was: its child ends, and its word comes too late to be the record's.
    lab.at.go();
    first.go_on();
    let came_back = first.end();
    assert_eq!(came_back.code, Some(76), "{came_back:?}");
    assert_eq!(lab.at.state("r/two"), "ambiguous");
    assert_eq!(lab.marked(), ["r/one 1", "r/two 1"], "no node twice");
    lab.at.resolve("r/two", "--committed");
    lab.drain();
    assert_eq!(lab.stands("r"), "succeeded");
    assert_eq!(lab.marked().len(), 3);
}

fn a_worker_killed_between_the_settle_of_a_node_and_the_tick_holds_nothing_up(kind: Kind) {
    // WFL-10, WFL-11
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    lab.start(&file, "r");
    let worker = stops_at(&lab, "after-settle");
    assert_eq!(lab.at.state("r/one"), "committed");
    assert_eq!(lab.node("r", "one"), "dispatched", "no tick has seen it");
    worker.kill();
    until_it_stands(&lab, "r", "succeeded");
    assert_eq!(lab.marked(), ["r/one 1", "r/two 1", "r/three 1"]);
}

fn a_worker_killed_between_tick_and_dispatch_holds_nothing_up(kind: Kind) {
    // WFL-6, WFL-8
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    lab.start(&file, "r");
    let worker = stops_at(&lab, "after-tick");
    assert_eq!(lab.node("r", "two"), "dispatched");
    assert_eq!(lab.at.state("r/two"), "");
    worker.kill();
    until_it_stands(&lab, "r", "succeeded");
    assert_eq!(lab.marked(), ["r/one 1", "r/two 1", "r/three 1"]);
}

fn a_worker_killed_inside_a_tick_leaves_the_run_as_it_was(kind: Kind) {
    // WFL-6
    for point in ["before-tick", "in-tick"] {
        let lab = Lab::new(kind);
        let file = lab.file("w", &three(""));
        lab.start(&file, "r");
        let worker = stops_at(&lab, point);
        let before = lab.status("r")["revision"].clone();
        worker.kill();
        assert_eq!(lab.status("r")["revision"], before, "{point}");
        until_it_stands(&lab, "r", "succeeded");
        assert_eq!(lab.marked(), ["r/one 1", "r/two 1", "r/three 1"], "{point}");
    }
}

fn a_worker_killed_before_its_node_began_leaves_it_to_be_decided(kind: Kind) {
    // WFL-8, WFL-16
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    lab.start(&file, "r");
    stops_at(&lab, "after-reserve").kill();
    until_it_stands(&lab, "r", "blocked");
    assert_eq!(lab.marked(), Vec::<String>::new());
    lab.at.resolve("r/one", "--not-executed");
    until_it_stands(&lab, "r", "succeeded");
    assert_eq!(lab.marked(), ["r/one 2", "r/two 1", "r/three 1"]);
}
