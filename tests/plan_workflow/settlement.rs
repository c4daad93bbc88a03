//! An append of a run whose answer did not come: what a re-read proves (CMT-5 to CMT-11, WFL-6).
use std::collections::BTreeMap;
use std::time::Duration;

use ctrlrun::plan::effect::WriteId;
use ctrlrun::plan::protocol::{CouldNot, End, Reason};
use ctrlrun::plan::retry::Budget;
use ctrlrun::plan::time::{Moment, Timestamp};
use ctrlrun::plan::workflow::pace::Pace;
use ctrlrun::plan::workflow::write::{Aim, Done, Found, Input, Reread, Step, Write};
use ctrlrun::plan::workflow::{Run, RunAppend, RunHistoryRow};
use uuid::Uuid;

use crate::world::{World, run_id};
use crate::{definition, runs};

fn lost() -> CouldNot {
    could_not(Reason::Unreachable)
}

fn could_not(reason: Reason) -> CouldNot {
    CouldNot { reason, message: "lost".to_owned(), hint: None }
}

/// A start's machine, as far as its first append.
fn appending() -> (Write, Box<RunAppend>) {
    let definition = definition(&[("a", runs(&[], &["a"], 0))]);
    let inputs = definition.inputs_of(&BTreeMap::new()).unwrap();
    let aim = Aim::Start { definition: Box::new(definition), inputs };
    let budget = Budget::new(9, Moment(1_000), Duration::from_secs(1));
    let mut write = Write::new(run_id(), aim, None, &Pace::default(), budget);
    assert!(matches!(write.step(Input::Start, Moment(0)), Step::Load { .. }));
    let fresh = WriteId(Uuid::from_u128(7));
    let run = write.fresh(Timestamp(5), fresh).unwrap();
    let loaded = World::default().load(run);
    let found = Found::Absent(Some(Box::new(loaded)));
    match write.step(Input::Loaded(Ok(found), fresh), Moment(0)) {
        Step::Append { append, .. } => (write, append),
        other => panic!("{other:?}"),
    }
}

fn ended(write: &mut Write, end: End) -> Step {
    write.step(Input::Ended(end), Moment(1))
}

fn reread(write: &mut Write, run: Option<Run>, event: Option<RunHistoryRow>) -> Step {
    write.step(Input::Reread(Ok(Box::new(Reread { run, event }))), Moment(1))
}

fn is_reread(step: &Step) -> bool {
    matches!(step, Step::Reread { revision: 1, .. })
}

#[test]
fn what_was_not_committed_is_tried_again_with_the_same_row() {
    // CMT-4, CMT-5
    let (mut write, first) = appending();
    let step = ended(&mut write, End::NotCommitted(could_not(Reason::Busy)));
    assert!(matches!(step, Step::Pause(_)), "{step:?}");
    match write.step(Input::Paused, Moment(1)) {
        Step::Append { append, .. } => assert_eq!(append, first),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_append_is_settled_by_a_re_read() {
    // CMT-9, CMT-10
    let (mut write, append) = appending();
    assert!(is_reread(&ended(&mut write, End::Unknown(lost()))));
    let landed = reread(&mut write, Some(append.next.clone()), append.history.first().cloned());
    assert_eq!(landed, Step::Done(Done::Committed(append)));
}

#[test]
fn one_that_landed_and_moved_on_is_done() {
    // CMT-10
    let (mut write, append) = appending();
    assert!(is_reread(&ended(&mut write, End::Unknown(lost()))));
    let mut later = append.next.clone();
    later.revision += 1;
    later.write_id = WriteId(Uuid::from_u128(8));
    let moved = reread(&mut write, Some(later), append.history.first().cloned());
    assert_eq!(moved, Step::Done(Done::Committed(append)));
}

#[test]
fn one_that_did_not_land_is_tried_once_more_and_looked_for_if_refused() {
    // CMT-10, CMT-11
    let (mut write, first) = appending();
    assert!(is_reread(&ended(&mut write, End::Unknown(lost()))));
    match reread(&mut write, None, None) {
        Step::Append { append, .. } => assert_eq!(append, first),
        other => panic!("{other:?}"),
    }
    assert!(is_reread(&ended(&mut write, End::Refused)), "the first may have landed");
    let landed = reread(&mut write, Some(first.next.clone()), first.history.first().cloned());
    assert_eq!(landed, Step::Done(Done::Committed(first)));
}

#[test]
fn one_that_matches_nothing_although_its_row_is_there_is_no_passing_trouble() {
    // CMT-11
    let (mut write, _) = appending();
    assert!(is_reread(&ended(&mut write, End::Unknown(lost()))));
    assert!(matches!(reread(&mut write, None, None), Step::Append { .. }));
    assert!(is_reread(&ended(&mut write, End::Refused)));
    match reread(&mut write, None, None) {
        Step::Done(Done::Unknown(error)) => assert_eq!(error.reason, Reason::Damaged),
        other => panic!("{other:?}"),
    }
}

#[test]
fn once_unknown_it_stays_so_whatever_a_later_try_says() {
    // CMT-7
    let (mut write, append) = appending();
    assert!(is_reread(&ended(&mut write, End::Unknown(lost()))));
    assert!(matches!(reread(&mut write, None, None), Step::Append { .. }));
    let step = ended(&mut write, End::NotCommitted(could_not(Reason::Busy)));
    assert!(matches!(step, Step::Pause(_)), "{step:?}");
    assert!(is_reread(&write.step(Input::Paused, Moment(1))));
    let landed = reread(&mut write, Some(append.next.clone()), None);
    assert_eq!(landed, Step::Done(Done::Committed(append)));
}

#[test]
fn a_re_read_that_fails_leaves_it_unknown() {
    // CMT-10
    let (mut write, _) = appending();
    assert!(is_reread(&ended(&mut write, End::Unknown(lost()))));
    let step = write.step(Input::Reread(Err(could_not(Reason::Busy))), Moment(1));
    assert_eq!(step, Step::Done(Done::Unknown(lost())));
}

#[test]
fn a_second_try_that_is_unknown_ends_it() {
    // CMT-11
    let (mut write, _) = appending();
    assert!(is_reread(&ended(&mut write, End::Unknown(lost()))));
    assert!(matches!(reread(&mut write, None, None), Step::Append { .. }));
    assert!(matches!(ended(&mut write, End::Unknown(lost())), Step::Done(Done::Unknown(_))));
}

#[test]
fn a_conflict_is_no_error_and_is_tried_again_after_the_documented_pauses() {
    // WFL-13
    let (mut write, _) = appending();
    let mut pauses = Vec::new();
    loop {
        match ended(&mut write, End::Refused) {
            Step::Pause(pause) => pauses.push(pause.as_millis()),
            Step::Done(Done::Conflicted(_)) => break,
            other => panic!("{other:?}"),
        }
        assert!(
            matches!(write.step(Input::Paused, Moment(1)), Step::Load { .. }),
            "freshly loaded"
        );
        let fresh = WriteId(Uuid::from_u128(9));
        let run = write.fresh(Timestamp(5), fresh).unwrap();
        let found = Found::Absent(Some(Box::new(World::default().load(run))));
        let step = write.step(Input::Loaded(Ok(found), fresh), Moment(1));
        assert!(matches!(step, Step::Append { .. }));
    }
    assert_eq!(pauses, [0, 10, 20, 40, 1_000]);
    assert_eq!(write.conflicts(), 6);
}

#[test]
fn what_cannot_pass_and_what_has_no_time_left_is_not_tried_again() {
    // CMT-14, WFL-13
    let over = Moment(1_000);
    let not_committed = |reason| Input::Ended(End::NotCommitted(could_not(reason)));
    for (reason, at) in [(Reason::Denied, Moment(1)), (Reason::Busy, over)] {
        let (mut write, _) = appending();
        let step = write.step(not_committed(reason), at);
        assert!(matches!(step, Step::Done(Done::CouldNot(_))), "{step:?}");
        // Once unknown it stays so.
        let (mut write, _) = appending();
        assert!(is_reread(&ended(&mut write, End::Unknown(lost()))));
        let _ = reread(&mut write, None, None);
        let step = write.step(not_committed(reason), at);
        assert!(matches!(step, Step::Done(Done::Unknown(_))), "{step:?}");
        let mut write = {
            let budget = Budget::new(9, over, Duration::from_secs(1));
            Write::new(run_id(), Aim::Tick, None, &Pace::default(), budget)
        };
        assert!(matches!(write.step(Input::Start, Moment(0)), Step::Load { .. }));
        let failed = Input::Loaded(Err(could_not(reason)), WriteId(Uuid::nil()));
        let step = write.step(failed, at);
        assert!(matches!(step, Step::Done(Done::CouldNot(_))), "{step:?}");
    }
    // Somebody was faster, and there is no time to look what is there now.
    let (mut write, _) = appending();
    let step = write.step(Input::Ended(End::Refused), over);
    assert!(matches!(step, Step::Done(Done::Conflicted(_))), "{step:?}");
}
