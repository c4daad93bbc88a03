//! One conditional write, stepped by hand: its order, its expectations, its retries and its budget
//! (CMT-1 to CMT-5, CMT-12 to CMT-14, EFF-12, EXE-8, HIS-3, HIS-4). What settles an unknown append
//! is in plan_settlement.rs.
#[path = "plan_common/ask.rs"]
mod ask;
#[path = "plan_common/budget.rs"]
mod budget;
mod plan_common;
#[path = "plan_common/stepping.rs"]
mod stepping;

use ask::{LEASE, NOW, begin, outcome_id, settle};
use ctrlrun::plan::effect::{
    Ambiguated, Answer, Cause, Command, Event, Holder, Probe, ProbeAnswer, Record, Refusal, State,
    Verdict, evolve,
};
use ctrlrun::plan::expect::{Conflict, StreamState};
use ctrlrun::plan::protocol::{
    Ask, Captured, End, Found, Input, Kept, Known, Reason, Step, Stream,
};
use ctrlrun::plan::retry::Budget;
use ctrlrun::plan::time::{Moment, Timestamp};
use plan_common::{key, write_id};
use stepping::*;

/// The store's clock once every lease of these tests has ended.
const LATER: Timestamp = Timestamp(NOW.0 + 60_000_000);

fn lapsed(record: Record) -> Found {
    Found { now: LATER, ..found(Some(record)) }
}

fn ambiguous() -> Record {
    let lapse = Event::Ambiguated(Ambiguated { cause: Cause::Lapsed, reaped: false, ending: None });
    after(Some(executing()), lapse, write_id(0xdead))
}

/// FAILED, by a person.
fn failed() -> Record {
    let record = ambiguous();
    let revision = record.revision;
    run(Some(record), not_executed(revision))
}

#[test]
fn a_command_loads_decides_appends_and_is_answered_once_that_landed() {
    // CMT-1, CMT-4, HIS-4
    let mut machine = Machine::new(reserving());
    assert_eq!(load(machine.step(Input::Start)), Ask::Nothing);
    let new = Found { attempt_floor: 41, ..found(None) };
    let written = append(machine.loaded(new));
    assert_eq!((written.found.as_ref(), written.attempt_floor), (None, 41));
    assert_eq!(written.next.write_id, write_id(0x1001));
    assert_eq!((written.next.attempt, written.next.revision), (42, 42));
    assert_eq!(written.history.len(), 1);
    let done = answered(machine.landed());
    assert_eq!(done.answer, Answer::Granted);
    assert_eq!(done.record, Some(written.next));
    assert_eq!(done.now, NOW);
}

#[test]
fn the_events_of_one_append_fold_into_its_row_and_bear_its_write_id() {
    // HIS-2, HIS-3, HIS-4
    let record = failed();
    let (revision, mut folded) = (record.revision, Some(record.clone()));
    let late = settle(holder(&record), outcome_id(1), Verdict::Committed);
    let written = Machine::new(late).up_to_append(lapsed(record));
    let kinds: Vec<&str> = written.history.iter().map(|row| row.event.kind()).collect();
    assert_eq!(kinds, ["late_outcome", "ambiguated"]);
    for (row, n) in written.history.iter().zip(1..) {
        assert_eq!(row.revision, revision + n);
        assert_eq!((row.write_id, row.recorded_at), (written.next.write_id, LATER));
        assert_eq!(row.outcome_id, Some(outcome_id(1)));
        folded = evolve(&key(), folded, row).ok();
    }
    assert_eq!(folded, Some(written.next));
}

#[test]
fn a_late_outcome_is_filed_under_the_attempt_whose_word_it_is() {
    // HIS-4
    let first = failed();
    let second = run(Some(first.clone()), reserving());
    assert_eq!((first.attempt, second.attempt), (1, 2));
    let late = settle(holder(&first), outcome_id(1), Verdict::Committed);
    let written = Machine::new(late).up_to_append(found(Some(second)));
    assert_eq!(written.history[0].attempt, 1);
    assert_eq!((written.next.attempt, written.next.in_doubt), (2, true));
}

#[test]
fn a_decision_without_events_writes_nothing() {
    // CMT-1
    let mut machine = Machine::new(reserving());
    load(machine.step(Input::Start));
    let done = answered(machine.loaded(found(Some(executing()))));
    assert_eq!(done.answer, Answer::Refused(Refusal::InProgress));
    assert_eq!(done.record, Some(executing()));
}

#[test]
fn a_refusal_that_writes_is_told_only_after_the_write_ended() {
    // CMT-1, EFF-10
    let mut machine = Machine::new(reserving());
    let written = machine.up_to_append(lapsed(executing()));
    assert!(matches!(written.next.state, State::Ambiguous { .. }));
    assert_eq!(refusal(machine.landed()), Refusal::Ambiguous);
    // And where the write could not be made, neither is the refusal.
    let mut machine = Machine::new(reserving());
    machine.up_to_append(lapsed(executing()));
    let denied = End::NotCommitted(why(Reason::Denied));
    assert_eq!(could_not(machine.step(Input::Ended(denied))), Reason::Denied);
}

#[test]
fn each_command_asks_for_the_event_that_it_must_know() {
    // CMT-1, EFF-13, EFF-15, EFF-18 to EFF-20
    let holder = holder(&executing());
    let reopen = Command::Reopen { by: String::new(), reason: String::new(), looked_at: 1 };
    let probed = Command::Probed(Probe {
        answer: ProbeAnswer::NotExecuted,
        by: String::new(),
        reconcile_final: false,
        looked_at: 1,
    });
    let renew = Command::Renew { holder, lease: LEASE };
    for (command, ask) in [
        (reserving(), Ask::Nothing),
        (begin(holder), Ask::Nothing),
        (renew, Ask::Nothing),
        (settle(holder, outcome_id(7), Verdict::Failed), Ask::Nothing),
        (not_executed(1), Ask::LastChange),
        (reopen, Ask::LastChange),
        (Command::Contend, Ask::Nothing),
        (probed, Ask::Last),
    ] {
        assert_eq!(load(Machine::new(command).step(Input::Start)), ask);
    }
    // A begin and a settle ask only where the record is not as they left it.
    let stranger = Holder { reservation_id: write_id(99), ..holder };
    for (command, ask) in [
        (begin(holder), Ask::Began(1)),
        (settle(stranger, outcome_id(7), Verdict::Failed), Ask::Outcome(outcome_id(7))),
    ] {
        let mut machine = Machine::new(command);
        let _ = load(machine.step(Input::Start));
        assert_eq!(load(machine.loaded_once(found(Some(executing())))), ask);
    }
}

#[test]
fn an_expectation_that_fails_is_told_before_anything_is_written_a_lapse_included() {
    // EFF-12, CMT-12
    let cases = [
        (StreamState::NoStream, Some(2)),
        (StreamState::Revision(1), Some(2)),
        (StreamState::Revision(3), Some(2)),
        (StreamState::StreamExists, None),
        (StreamState::Revision(1), None),
    ];
    for (expected, actual) in cases {
        let mut machine = Machine::held_to(reserving(), expected);
        load(machine.step(Input::Start));
        let there = match actual {
            Some(_) => lapsed(executing()),
            None => found(None),
        };
        let conflict = Conflict { expected, actual };
        assert_eq!(refusal(machine.loaded(there)), Refusal::Expectation(conflict));
    }
    for (expected, there) in [
        (StreamState::NoStream, found(None)),
        (StreamState::StreamExists, lapsed(executing())),
        (StreamState::Revision(2), lapsed(executing())),
    ] {
        Machine::held_to(reserving(), expected).up_to_append(there);
    }
}

#[test]
fn a_lost_race_under_any_or_exists_decides_again_on_what_is_there_now() {
    // CMT-12
    for expect in [StreamState::Any, StreamState::StreamExists] {
        let mut machine = Machine::held_to(reserving(), expect);
        let first = machine.up_to_append(found(Some(failed())));
        pause(machine.refused());
        load(machine.step(Input::Paused));
        let again = run(Some(failed()), reserving());
        assert_eq!(refusal(machine.loaded(found(Some(again)))), Refusal::InProgress);
        // Or it may go on, with a row and a `write_id` of its own (CMT-4).
        let mut machine = Machine::held_to(reserving(), expect);
        machine.up_to_append(found(Some(failed())));
        pause(machine.refused());
        load(machine.step(Input::Paused));
        let second = append(machine.loaded(found(Some(failed()))));
        assert_ne!(first.next.write_id, second.next.write_id);
        assert_eq!(answered(machine.landed()).record, Some(second.next));
    }
}

#[test]
fn a_strangers_note_costs_the_holder_a_reload_and_not_the_reservation() {
    // CMT-13: begin, renew and settle run as any, and who holds the record is decided anew.
    let (reserved, executing) = (reserved(), executing());
    let renew = Command::Renew { holder: holder(&executing), lease: LEASE };
    let committed = settle(holder(&executing), outcome_id(1), Verdict::Committed);
    let stranger = Holder { attempt: 9, reservation_id: write_id(0x9) };
    for (command, record) in
        [(begin(holder(&reserved)), reserved), (renew, executing.clone()), (committed, executing)]
    {
        let mut machine = Machine::new(command);
        let first = machine.up_to_append(found(Some(record.clone())));
        pause(machine.refused());
        load(machine.step(Input::Paused));
        let noted = run(Some(record), settle(stranger, outcome_id(9), Verdict::Failed));
        let second = append(machine.loaded(found(Some(noted))));
        assert_eq!(second.history[0].event, first.history[0].event);
        assert_eq!(second.next.revision, first.next.revision + 1);
    }
}

#[test]
fn a_lost_race_under_new_or_a_revision_is_the_conflict_at_once() {
    // CMT-12: no pause, no second append.
    let reserved = found(Some(reserved()));
    let mut machine = Machine::held_to(reserving(), StreamState::NoStream);
    machine.up_to_append(found(None));
    load(machine.refused());
    let (expected, actual) = (StreamState::NoStream, Some(1));
    let conflict = Refusal::Expectation(Conflict { expected, actual });
    assert_eq!(refusal(machine.loaded(reserved.clone())), conflict);

    let record = failed();
    let expected = StreamState::Revision(record.revision);
    let mut machine = Machine::held_to(reserving(), expected);
    machine.up_to_append(found(Some(record)));
    load(machine.refused());
    let conflict = Refusal::Expectation(Conflict { expected, actual });
    assert_eq!(refusal(machine.loaded(reserved)), conflict);
}

#[test]
fn a_decision_about_a_revision_that_has_moved_is_never_made_about_another() {
    // EFF-18, CMT-12
    let record = ambiguous();
    let expected = StreamState::Revision(record.revision);
    let mut machine = Machine::new(not_executed(record.revision));
    machine.up_to_append(found(Some(record.clone())));
    load(machine.refused());
    let note = settle(holder(&record), outcome_id(1), Verdict::Failed);
    let moved = run(Some(record), note);
    let actual = Some(moved.revision);
    let conflict = Refusal::Expectation(Conflict { expected, actual });
    assert_eq!(refusal(machine.loaded(found(Some(moved)))), conflict);
}

#[test]
fn what_was_not_committed_is_the_very_same_append_again() {
    // CMT-3, CMT-4, CMT-5
    let mut machine = Machine::new(reserving());
    let first = machine.up_to_append(found(None));
    for _ in 0..3 {
        pause(machine.not_committed());
        assert_eq!(append(machine.step(Input::Paused)), first);
    }
    assert_eq!(answered(machine.landed()).record, Some(first.next));
}

#[test]
fn what_cannot_pass_is_not_tried_again() {
    for reason in [Reason::Denied, Reason::Missing, Reason::Unfit, Reason::Damaged] {
        let mut machine = Machine::new(reserving());
        machine.up_to_append(found(None));
        let end = Input::Ended(End::NotCommitted(why(reason)));
        assert_eq!(could_not(machine.step(end)), reason);
        let mut machine = Machine::new(reserving());
        load(machine.step(Input::Start));
        let end = Input::Loaded(Err(why(reason)), write_id(1));
        assert_eq!(could_not(machine.step(end)), reason);
    }
}

#[test]
fn a_load_that_failed_and_may_pass_is_tried_again() {
    let mut machine = Machine::new(reserving());
    load(machine.step(Input::Start));
    pause(machine.step(Input::Loaded(Err(why(Reason::Busy)), write_id(1))));
    load(machine.step(Input::Paused));
    append(machine.loaded(found(None)));
}

#[test]
fn what_used_the_time_up_is_told_and_not_that_it_is_over() {
    // CMT-14
    let told = |reasons: &[Reason], on_append: bool| {
        let tries = u32::try_from(reasons.len()).unwrap() - 1;
        let budget = Budget::new(tries, Moment(10_000_000), EXCHANGE);
        let mut machine = Machine::within(reserving(), StreamState::Any, budget);
        load(machine.step(Input::Start));
        if on_append {
            append(machine.loaded(found(None)));
        }
        for (nth, reason) in reasons.iter().enumerate() {
            let step = machine.step(if on_append {
                Input::Ended(End::NotCommitted(why(*reason)))
            } else {
                Input::Loaded(Err(why(*reason)), write_id(1))
            });
            if nth + 1 == reasons.len() {
                return could_not(step);
            }
            pause(step);
            let _ = machine.step(Input::Paused);
        }
        panic!("no try at all")
    };
    for on_append in [false, true] {
        let told = |reasons| told(reasons, on_append);
        assert_eq!(told(&[Reason::Unreachable, Reason::Busy, Reason::Busy]), Reason::Unreachable);
        assert_eq!(told(&[Reason::Busy, Reason::Busy]), Reason::Busy);
        // What the last try says is told where it says more than that.
        assert_eq!(told(&[Reason::Unreachable, Reason::Denied]), Reason::Denied);
        assert_eq!(told(&[Reason::Busy, Reason::Unreachable]), Reason::Unreachable);
    }
}

#[test]
fn the_reading_of_our_clock_is_that_before_the_load_that_was_decided_on() {
    // EXE-8: neither the time of the answer nor that of a retry.
    let mut machine = Machine::new(reserving());
    load(machine.step(Input::Start));
    let before = machine.now();
    append(machine.loaded(found(None)));
    pause(machine.not_committed());
    append(machine.step(Input::Paused));
    assert_eq!(answered(machine.landed()).read_at, before);

    // A decision made anew is counted from its own load.
    let mut machine = Machine::new(reserving());
    machine.up_to_append(found(Some(failed())));
    pause(machine.refused());
    load(machine.step(Input::Paused));
    let before = machine.now();
    append(machine.loaded(lapsed(failed())));
    let done = answered(machine.landed());
    assert_eq!((done.read_at, done.now), (before, LATER));
}

#[test]
fn outputs_travel_with_the_settle_and_never_under_another_holders_number() {
    // HIS-6, EFF-4
    let kept = Kept {
        attempt: 1,
        stream: Stream::Stdout,
        captured: Captured { head: b"paid".to_vec(), tail: Vec::new(), bytes: 4, whole: true },
    };
    let record = executing();
    let ours = holder(&record);
    let mut twin = ours;
    twin.reservation_id = write_id(0xbad);
    for (holder, outputs) in [(ours, vec![kept.clone()]), (twin, Vec::new())] {
        let command = settle(holder, outcome_id(1), Verdict::Committed);
        let mut machine = Machine::new(command);
        machine.handle = machine.handle.with_outputs(vec![kept.clone()]);
        assert_eq!(machine.up_to_append(found(Some(record.clone()))).outputs, outputs);
    }
}

/// What a reserve that landed tells of its row, and when its load was sent and answered.
fn just_reserved() -> (Known, Holder, Moment, Moment) {
    let mut machine = Machine::new(reserving());
    load(machine.step(Input::Start));
    let sent = machine.now();
    let written = append(machine.loaded(found(None)));
    let seen = machine.now();
    let holder =
        Holder { attempt: written.next.attempt, reservation_id: written.next.reservation_id };
    let answered = answered(machine.landed());
    assert_eq!(answered.record.as_ref(), Some(&written.next));
    (Known::of(&answered).expect("it has a record"), holder, sent, seen)
}

/// A begin that knows the row of its reserve, at `at`.
fn knowing(at: u64) -> (Machine, Holder, Moment, Moment) {
    let (known, holder, sent, seen) = just_reserved();
    let mut machine = Machine::new(begin(holder));
    machine.handle = machine.handle.knowing(Some(known));
    machine.at = at;
    (machine, holder, sent, seen)
}

fn drawing() -> Machine {
    let (mut machine, ..) = knowing(0);
    assert_eq!(machine.step(Input::Start), Step::Draw);
    machine
}

#[test]
fn what_was_just_written_is_decided_on_without_a_load_and_a_guess_that_fails_costs_one() {
    // CMT-15, EXE-8
    let (mut machine, holder, sent, seen) = knowing(500_000);
    assert_eq!(machine.step(Input::Start), Step::Draw);
    let passed = machine.now().from_now(seen);
    let written = append(machine.step(Input::Drawn(write_id(7))));
    // The write is held to the row that was written, at the time that has become of it.
    assert_eq!(written.found.as_ref().map(|row| row.reservation_id), Some(holder.reservation_id));
    assert_eq!(written.next.write_id, write_id(7));
    assert_eq!(written.next.updated_at, NOW.plus(passed));
    // The lease never ends later for the holder than for the store: it is counted from as long
    // before now as the load took.
    let granted = answered(machine.landed());
    assert_eq!(granted.answer, Answer::Start);
    assert_eq!(granted.read_at, sent.plus(passed));

    // Somebody's note moved the row on: 0 rows, and from there all is as ever.
    let (mut machine, ..) = knowing(500_000);
    assert_eq!(machine.step(Input::Start), Step::Draw);
    append(machine.step(Input::Drawn(write_id(7))));
    pause(machine.refused());
    load(machine.step(Input::Paused));
}

#[test]
fn what_was_written_more_than_a_second_ago_is_loaded_again() {
    // CMT-15: the last moment that it is taken for fresh at, and the first that it is not.
    let (.., seen) = just_reserved();
    let (mut fresh, ..) = knowing(seen.0 + 998_999);
    assert_eq!(fresh.step(Input::Start), Step::Draw);
    let (mut stale, ..) = knowing(seen.0 + 999_000);
    load(stale.step(Input::Start));
}

#[test]
fn a_key_is_guessed_to_be_new_only_where_that_could_be_what_is_expected() {
    // CMT-16
    let guessing = |expect| {
        let mut machine = Machine::held_to(reserving(), expect);
        let known = Known::absent(41, NOW, Moment(0), Moment(0));
        machine.handle = machine.handle.knowing(Some(known));
        machine
    };
    for expect in [StreamState::Any, StreamState::NoStream] {
        let mut machine = guessing(expect);
        assert_eq!(machine.step(Input::Start), Step::Draw, "{expect:?}");
        let written = append(machine.step(Input::Drawn(write_id(7))));
        assert_eq!((written.found, written.next.attempt), (None, 42));
    }
    for expect in [StreamState::StreamExists, StreamState::Revision(3)] {
        load(guessing(expect).step(Input::Start));
    }
    // One that was wrong costs a look at once: whether the key is not new, or this user may look and
    // not write.
    for end in [End::Refused, End::NotCommitted(why(Reason::Denied))] {
        let mut machine = guessing(StreamState::Any);
        assert_eq!(machine.step(Input::Start), Step::Draw);
        append(machine.step(Input::Drawn(write_id(7))));
        load(machine.step(Input::Ended(end)));
        assert_eq!(refusal(machine.loaded(found(Some(executing())))), Refusal::InProgress);
    }
    // A row that is known is no guess of that kind.
    let (known, holder, ..) = just_reserved();
    let mut machine = Machine::held_to(begin(holder), StreamState::StreamExists);
    machine.handle = machine.handle.knowing(Some(known));
    machine.at = 500_000;
    assert_eq!(machine.step(Input::Start), Step::Draw);
}

/// A machine in each of its phases, and the answer that the phase waits for.
fn phases() -> Vec<(&'static str, Machine, &'static str)> {
    let new = || Machine::new(reserving());
    let at = |steps: &dyn Fn(&mut Machine)| {
        let mut machine = new();
        steps(&mut machine);
        machine
    };
    vec![
        ("fresh", new(), "start"),
        ("loading", at(&|m| drop(m.step(Input::Start))), "loaded"),
        ("drawing", drawing(), "drawn"),
        (
            "waiting to load",
            at(&|m| {
                load(m.step(Input::Start));
                pause(m.step(Input::Loaded(Err(why(Reason::Busy)), write_id(1))));
            }),
            "paused",
        ),
        ("appending", at(&|m| drop(m.up_to_append(found(None)))), "ended"),
        (
            "waiting to append",
            at(&|m| {
                m.up_to_append(found(None));
                pause(m.not_committed());
            }),
            "paused",
        ),
        ("settling", at(&|m| drop(m.up_to_reread(found(None)))), "reread"),
        (
            "waiting to settle",
            at(&|m| {
                m.up_to_reread(found(None));
                append(m.reread(found(None)));
                pause(m.not_committed());
            }),
            "paused",
        ),
        (
            "over",
            at(&|m| {
                m.up_to_append(found(None));
                answered(m.landed());
            }),
            "nothing",
        ),
    ]
}

#[test]
fn an_answer_to_a_step_that_was_not_asked_for_ends_in_a_refusal() {
    type Answered = (&'static str, fn() -> Input);
    let inputs: [Answered; 9] = [
        ("start", || Input::Start),
        ("loaded", || Input::Loaded(Ok(found(None)), write_id(5))),
        ("loaded", || Input::Loaded(Err(why(Reason::Busy)), write_id(5))),
        ("drawn", || Input::Drawn(write_id(5))),
        ("ended", || Input::Ended(End::Landed)),
        ("ended", || Input::Ended(End::Refused)),
        ("ended", || Input::Ended(End::Unknown(why(Reason::Busy)))),
        ("reread", || Input::Reread(Ok(found(None)))),
        ("paused", || Input::Paused),
    ];
    let mut wrong = 0;
    for (name, input) in inputs {
        for (phase, mut machine, waits_for) in phases() {
            if name == waits_for {
                continue;
            }
            assert_eq!(unknown(machine.step(input())), Reason::Damaged, "{phase}, {name}");
            // And there is no way back from there.
            assert_eq!(unknown(machine.landed()), Reason::Damaged, "{phase}, {name}");
            wrong += 1;
        }
    }
    // 9 phases x 9 answers, but for the 11 that a phase waits for.
    assert_eq!(wrong, 70);
}
