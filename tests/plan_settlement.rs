//! What a re-read proves of an append whose answer did not come, row by row (CMT-7, CMT-9 to
//! CMT-11, EXE-8, EFF-12), for an INSERT and for an UPDATE.
#[path = "plan_common/ask.rs"]
mod ask;
mod plan_common;
#[path = "plan_common/stepping.rs"]
mod stepping;
#[path = "plan_common/writes.rs"]
mod writes;

use ask::{NOW, outcome_id};
use ctrlrun::plan::effect::{
    Answer, Event, HistoryRow, ProbeAnswer, Probed, Record, Refusal, Resolution, State, Verdict,
};
use ctrlrun::plan::expect::{Conflict, StreamState};
use ctrlrun::plan::protocol::{Append, Ask, End, Found, Input, Reason, Step};
use ctrlrun::plan::retry::Budget;
use ctrlrun::plan::time::Moment;
use plan_common::{ending, request, write_id};
use stepping::*;
use writes::*;

/// A re-read that finds the row of `written` moved on by `events` of others, and the first event of
/// `written` in the history.
fn moved_on(written: &Append, events: &[Event]) -> Found {
    let mut record = written.next.clone();
    for event in events {
        record = after(Some(record), event.clone(), write_id(0xeeee));
    }
    Found { event: written.history.first().cloned(), ..found(Some(record)) }
}

/// A re-read that finds the row as it was loaded, or none where there was none.
fn unchanged(written: &Append) -> Found {
    Found { now: LATER, ..found(written.found.clone()) }
}

#[test]
fn a_re_read_asks_for_the_event_at_our_first_revision() {
    // CMT-10
    for (name, command, there, _) in every_write() {
        let (written, ask) = Machine::new(command).up_to_reread(there);
        assert_eq!(ask, Ask::Revision(written.history[0].revision), "{name}");
    }
}

#[test]
fn exactly_our_row_has_landed() {
    // CMT-9, CMT-10
    for (name, command, there, answer) in every_write() {
        let mut machine = Machine::new(command);
        let (written, _) = machine.up_to_reread(there);
        let done = answered(machine.reread(moved_on(&written, &[])));
        assert_eq!((done.answer, done.record), (answer, Some(written.next)), "{name}");
        // The columns alone are proof enough.
        let (_, command, there, answer) = every_write().find(|w| w.0 == name).expect("itself");
        let mut machine = Machine::new(command);
        let (written, _) = machine.up_to_reread(there);
        let done = answered(machine.reread(found(Some(written.next))));
        assert_eq!(done.answer, answer, "{name}");
    }
}

#[test]
fn what_landed_and_moved_on_is_done_where_it_stated_something() {
    // CMT-10, T164: exit as landed, no false late outcome, nothing is written again.
    for (name, command, there, answer) in statements() {
        let now = there.now;
        let mut machine = Machine::new(command);
        let (written, _) = machine.up_to_reread(there);
        let moved = moved_on(&written, &[note()]);
        let done = answered(machine.reread(moved.clone()));
        assert_eq!((done.answer, done.now), (answer, now), "{name}");
        assert_eq!(done.record, moved.record, "{name}: as it stands now");
    }
}

#[test]
fn what_landed_and_moved_on_is_the_planners_where_it_granted_something() {
    // CMT-10
    for (name, command, there, answer) in grants() {
        let mut machine = Machine::new(command);
        let (written, _) = machine.up_to_reread(there);
        let moved = moved_on(&written, &[note()]);
        load(machine.reread(moved.clone()));
        let next = machine.loaded(moved);
        if name == "renew" {
            let renewed = append(next);
            assert_ne!(renewed.next.write_id, written.next.write_id);
            assert_eq!(answered(machine.landed()).answer, answer);
        } else {
            // Granted, and started, on what is there: nothing is written twice (EFF-10, EFF-13).
            assert_eq!(answered(next).answer, answer, "{name}");
        }
    }
}

#[test]
fn a_grant_that_landed_and_was_taken_away_since_is_refused() {
    // CMT-10, EFF-10, EFF-13
    let taken = |refusals: &mut Vec<(&str, Refusal)>, events: &[Event]| {
        for (name, command, there, _) in grants() {
            let mut machine = Machine::new(command);
            let (written, _) = machine.up_to_reread(there);
            let moved = moved_on(&written, events);
            load(machine.reread(moved.clone()));
            let done = answered(machine.loaded(moved));
            if let Answer::Refused(refusal) = done.answer {
                refusals.push((name, refusal));
            } else {
                assert_eq!((name, done.answer), ("renew", Answer::Lost));
            }
        }
    };
    let mut refusals = Vec::new();
    taken(&mut refusals, &[lapse()]);
    assert_eq!(refusals.len(), 3);
    assert!(refusals.iter().all(|(_, refusal)| *refusal == Refusal::Ambiguous));
}

#[test]
fn what_did_not_land_is_the_very_same_append_once_more() {
    // CMT-4, CMT-10
    for (name, command, there, answer) in every_write() {
        let mut machine = Machine::new(command);
        let (written, _) = machine.up_to_reread(there);
        let second = append(machine.reread(unchanged(&written)));
        assert_eq!(second, written, "{name}");
        let done = answered(machine.landed());
        assert_eq!((done.answer, done.record), (answer, Some(written.next)), "{name}");
    }
}

#[test]
fn a_second_try_keeps_the_first_reading_of_both_clocks() {
    // EXE-8
    for (name, command, there, _) in every_write() {
        let now = there.now;
        let mut machine = Machine::new(command);
        load(machine.step(Input::Start));
        let mut before = machine.now();
        let mut next = machine.loaded_once(there.clone());
        if matches!(next, Step::Load { .. }) {
            // The load that the decision is made on is the one that brings the event.
            before = machine.now();
            next = machine.loaded_once(there.clone());
        }
        append(next);
        reread(machine.unknown());
        append(machine.reread(there));
        let done = answered(machine.landed());
        assert_eq!((done.read_at, done.now), (before, now), "{name}");
    }
}

#[test]
fn a_grant_that_landed_unseen_is_counted_from_the_load_that_it_was_computed_from() {
    // EXE-8: a holder that counted it from the planner's second load would believe in its lease
    // longer than the store does.
    for (name, command, there, _) in grants().into_iter().filter(|write| write.0 != "renew") {
        let mut machine = Machine::new(command);
        load(machine.step(Input::Start));
        let before = machine.now();
        let written = append(machine.loaded(there));
        reread(machine.unknown());
        let moved = moved_on(&written, &[note()]);
        load(machine.reread(moved.clone()));
        assert_eq!(answered(machine.loaded(moved)).read_at, before, "{name}");
    }
    // What is granted anew is counted anew.
    let (_, command, there, _) = grants().pop().expect("renew");
    let mut machine = Machine::new(command);
    let (written, _) = machine.up_to_reread(there);
    let moved = moved_on(&written, &[note()]);
    load(machine.reread(moved.clone()));
    let before = machine.now();
    append(machine.loaded(moved));
    assert_eq!(answered(machine.landed()).read_at, before);
}

#[test]
fn a_second_try_that_matched_nothing_is_read_once_more_and_finds_its_own_first() {
    // CMT-11, T155d
    for (name, command, there, answer) in every_write() {
        let mut machine = Machine::new(command);
        let (written, _) = machine.up_to_reread(there);
        append(machine.reread(unchanged(&written)));
        let ask = reread(machine.refused());
        assert_eq!(ask, Ask::Revision(written.history[0].revision), "{name}");
        let done = answered(machine.reread(found(Some(written.next))));
        assert_eq!(done.answer, answer, "{name}");
    }
}

#[test]
fn a_second_try_that_matched_nothing_and_finds_another_asks_the_planner() {
    // CMT-11
    let mut machine = Machine::new(reserving());
    let (written, _) = machine.up_to_reread(found(None));
    append(machine.reread(unchanged(&written)));
    reread(machine.refused());
    load(machine.reread(found(Some(executing()))));
    let refused = refusal(machine.loaded(found(Some(executing()))));
    assert_eq!(refused, Refusal::InProgress);
}

#[test]
fn a_row_that_is_there_and_was_not_matched_is_an_integrity_error_and_nothing_runs() {
    // CMT-11
    for (name, command, there, _) in every_write() {
        let mut machine = Machine::new(command);
        let (written, _) = machine.up_to_reread(there);
        append(machine.reread(unchanged(&written)));
        reread(machine.refused());
        let end = unknown(machine.reread(unchanged(&written)));
        assert_eq!(end, Reason::Damaged, "{name}");
    }
}

#[test]
fn a_floor_that_moved_is_the_planners_and_no_integrity_error() {
    // CMT-2, CMT-10, CMT-11: the INSERT holds at the floor that was loaded alone.
    let raised = || Found { attempt_floor: 7, ..found(None) };
    for second_try in [false, true] {
        let mut machine = Machine::new(reserving());
        let (written, _) = machine.up_to_reread(found(None));
        if second_try {
            append(machine.reread(unchanged(&written)));
            reread(machine.refused());
        }
        load(machine.reread(raised()));
        let anew = append(machine.loaded(raised()));
        assert_eq!((anew.next.attempt, anew.attempt_floor), (8, 7));
        assert_ne!(anew.next.write_id, written.next.write_id);
    }
    // An UPDATE does not depend on it.
    let mut machine = Machine::new(reserving());
    let (written, _) = machine.up_to_reread(found(Some(failed())));
    let raised = Found { attempt_floor: 7, ..unchanged(&written) };
    assert_eq!(append(machine.reread(raised)), written);
}

#[test]
fn an_unknown_append_stays_unknown_whatever_a_later_try_says() {
    // CMT-7, CMT-11, T162
    for (name, command, there, answer) in every_write() {
        let mut machine = Machine::new(command);
        let (written, _) = machine.up_to_reread(there);
        append(machine.reread(unchanged(&written)));
        // A lock time-out: the old back end still holds the key. Only a re-read tells.
        pause(machine.not_committed());
        reread(machine.step(Input::Paused));
        assert_eq!(append(machine.reread(unchanged(&written))), written, "{name}");
        pause(machine.not_committed());
        reread(machine.step(Input::Paused));
        let done = answered(machine.reread(found(Some(written.next))));
        assert_eq!(done.answer, answer, "{name}");
    }
}

#[test]
fn an_unknown_append_whose_second_try_cannot_be_made_is_refused_as_unknown() {
    // CMT-7: never "nothing was written".
    let mut machine = Machine::new(reserving());
    let (written, _) = machine.up_to_reread(found(None));
    append(machine.reread(unchanged(&written)));
    let denied = Input::Ended(End::NotCommitted(why(Reason::Denied)));
    assert_eq!(unknown(machine.step(denied)), Reason::Unreachable);
    // Nor where the budget is used up.
    let budget = Budget::new(1, Moment(10_000_000), EXCHANGE);
    let mut machine = Machine::within(reserving(), StreamState::Any, budget);
    let (written, _) = machine.up_to_reread(found(None));
    append(machine.reread(unchanged(&written)));
    pause(machine.not_committed());
    reread(machine.step(Input::Paused));
    unknown(machine.reread(unchanged(&written)));
}

#[test]
fn a_second_try_that_is_unknown_too_is_refused() {
    // CMT-11
    for (name, command, there, _) in every_write() {
        let mut machine = Machine::new(command);
        let (written, _) = machine.up_to_reread(there);
        append(machine.reread(unchanged(&written)));
        assert_eq!(unknown(machine.unknown()), Reason::Unreachable, "{name}");
    }
}

#[test]
fn a_re_read_that_failed_runs_nothing_and_writes_nothing_more() {
    // CMT-10, T156: whichever re-read it is.
    for (name, command, there, _) in every_write() {
        for second_try in [false, true] {
            let mut machine = Machine::new(command.clone());
            let (written, _) = machine.up_to_reread(there.clone());
            if second_try {
                append(machine.reread(unchanged(&written)));
                reread(machine.refused());
            }
            let failed = Input::Reread(Err(why(Reason::Busy)));
            assert_eq!(unknown(machine.step(failed)), Reason::Unreachable, "{name}");
        }
    }
}

#[test]
fn a_row_with_our_attempt_id_and_number_is_another_processs_and_is_not_run() {
    // CMT-9, T155c: another reserved with the very same label at the very same instant.
    let mut machine = Machine::new(reserving());
    let (written, _) = machine.up_to_reread(found(None));
    let theirs =
        Record { write_id: write_id(0xbad), reservation_id: write_id(0xbad), ..written.next };
    let there = Found {
        event: Some(HistoryRow { write_id: write_id(0xbad), ..written.history[0].clone() }),
        ..found(Some(theirs))
    };
    load(machine.reread(there.clone()));
    assert_eq!(refusal(machine.loaded(there)), Refusal::InProgress);
}

#[test]
fn a_row_that_differs_in_any_column_is_not_ours() {
    // CMT-9: its event at our revision is another's, so only the columns could say so.
    type Change = (&'static str, fn(&mut Record));
    let changes: [Change; 18] = [
        ("record_version", |r| r.revision += 1),
        ("write_id", |r| r.write_id = write_id(0xbad)),
        ("reservation_id", |r| r.reservation_id = write_id(0xbad)),
        ("state", |r| {
            r.state = State::Reserved { lease_expires_at: NOW };
        }),
        ("first_attempt", |r| r.first_attempt += 1),
        ("attempt", |r| r.attempt += 1),
        ("attempt_id", |r| r.attempt_id.push('x')),
        ("fingerprint", |r| r.request = request(9)),
        ("program", |r| r.request.program.push('x')),
        ("arguments", |r| r.request.arguments += 1),
        ("command", |r| r.request.command = Some(Vec::new())),
        ("in_doubt", |r| r.in_doubt = true),
        ("doubted", |r| r.doubted = true),
        ("proven_failures", |r| r.proven_failures += 1),
        ("detail", |r| r.ending = Some(ending("exited 0"))),
        ("resolved_by", |r| {
            let (by, reason) = (String::new(), String::new());
            r.resolution = Some(Resolution { by, reason });
        }),
        ("run_id", |r| r.run_id = Some("run".to_owned())),
        ("updated_at", |r| r.updated_at = LATER),
    ];
    for (column, change) in changes {
        let mut machine = Machine::new(reserving());
        let (written, _) = machine.up_to_reread(found(None));
        let mut theirs = written.next;
        change(&mut theirs);
        let step = machine.reread(found(Some(theirs)));
        assert!(matches!(step, Step::Load { .. }), "{column}: {step:?}");
    }
}

#[test]
fn our_write_id_at_another_revision_of_the_row_alone_proves_nothing() {
    // CMT-10: it is looked for in the history, at our revision.
    let mut machine = Machine::new(settling(&executing(), Verdict::Committed));
    let (written, _) = machine.up_to_reread(found(Some(executing())));
    let by = "reconcile:ledger".to_owned();
    let answer = ProbeAnswer::NotExecuted;
    let stranger = HistoryRow {
        write_id: write_id(0xbad),
        event: Event::Probed(Probed { answer, by }),
        ..written.history[0].clone()
    };
    let there = Found { event: Some(stranger), ..found(Some(ambiguous())) };
    load(machine.reread(there));
    // The planner keeps the known outcome, late.
    let late = append(machine.loaded(found(Some(ambiguous()))));
    assert_eq!(late.history[0].event.kind(), "late_outcome");
    assert_eq!(answered(machine.landed()).answer, Answer::KeptAsLate);
}

#[test]
fn our_own_landing_is_no_conflict_with_what_was_expected_but_what_came_of_it_is() {
    // EFF-12
    let resolved = [lapse(), freed(2)];
    let (expected, actual) = (StreamState::NoStream, Some(3));
    let conflict = Refusal::Expectation(Conflict { expected, actual });
    for (events, answer) in
        [(&[note()][..], Answer::Granted), (&resolved[..], Answer::Refused(conflict))]
    {
        let mut machine = Machine::held_to(reserving(), expected);
        let (written, _) = machine.up_to_reread(found(None));
        let moved = moved_on(&written, events);
        load(machine.reread(moved.clone()));
        assert_eq!(answered(machine.loaded(moved)).answer, answer);
    }
}

#[test]
fn nothing_was_written_is_not_said_while_an_append_of_ours_may_stand() {
    // CMT-7
    let cannot = || Input::Loaded(Err(why(Reason::Denied)), write_id(1));
    let mut machine = Machine::new(reserving());
    let (written, _) = machine.up_to_reread(found(None));
    load(machine.reread(moved_on(&written, &[note()])));
    assert_eq!(unknown(machine.step(cannot())), Reason::Denied);
    // Under another floor it may have landed and been forgotten.
    let mut machine = Machine::new(reserving());
    machine.up_to_reread(found(None));
    load(machine.reread(Found { attempt_floor: 7, ..found(None) }));
    assert_eq!(unknown(machine.step(cannot())), Reason::Denied);
    // Where somebody else's row stands it can no longer land.
    let mut machine = Machine::new(reserving());
    machine.up_to_reread(found(None));
    load(machine.reread(found(Some(executing()))));
    assert_eq!(could_not(machine.step(cannot())), Reason::Denied);
}

#[test]
fn a_reserve_that_lost_to_its_own_late_landing_is_granted_it() {
    // EFF-10, EXE-8: the floor moved, the planner wrote anew, and the first one landed after all.
    let mut machine = Machine::new(reserving());
    load(machine.step(Input::Start));
    let before = machine.now();
    let first = append(machine.loaded(found(None)));
    reread(machine.unknown());
    let raised = Found { attempt_floor: 7, ..found(None) };
    load(machine.reread(raised.clone()));
    append(machine.loaded(raised));
    pause(machine.refused());
    load(machine.step(Input::Paused));
    let done = answered(machine.loaded(found(Some(first.next.clone()))));
    assert_eq!((done.answer, done.record), (Answer::Granted, Some(first.next)));
    assert_eq!(done.read_at, before);
}

#[test]
fn a_settle_that_was_delivered_by_another_is_done() {
    // EFF-15: our spool file was delivered while we settled.
    let record = executing();
    let mut machine = Machine::new(settling(&record, Verdict::Committed));
    machine.up_to_reread(found(Some(record.clone())));
    let delivered = run(Some(record.clone()), settling(&record, Verdict::Committed));
    load(machine.reread(found(Some(delivered.clone()))));
    let told = HistoryRow {
        revision: delivered.revision,
        write_id: delivered.write_id,
        outcome_id: Some(outcome_id(1)),
        attempt: 1,
        recorded_at: NOW,
        event: note(),
    };
    let there = Found { event: Some(told), ..found(Some(delivered)) };
    assert_eq!(answered(machine.loaded(there)).answer, Answer::Delivered);
}
