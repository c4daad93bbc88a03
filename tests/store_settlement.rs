//! The settling of an unknown commit, row by row, on the embedded store (CMT-7, CMT-9 to CMT-11).
//!
//! The windows are opened on purpose: the faulty store loses the answer of one append, and what
//! another process would do meanwhile is done before the re-read looks.
mod common;

use std::sync::Arc;

use common::store::{
    Home, WITHIN, answered, begin, events, granted, handle, holder_of, key, record, reserve,
    resolve, running, settle,
};
use ctrlrun::drive::host;
use ctrlrun::plan::effect::{Answer, Cause, Command, Holder, ProbeAnswer, Refusal, State, Verdict};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::Done;
use ctrlrun::store::faulty::{Fault, Faulty, Meanwhile, Planned, Verb};
use ctrlrun::store::{End, Reason, Store};

const LOST: Fault = Fault::LoseAnswer;
const GONE: Fault = Fault::LoseRequest;

fn append(call: u32, fault: Fault) -> Planned {
    Planned { verb: Verb::Append, call, fault }
}

fn reread(call: u32, fault: Fault) -> Planned {
    Planned { verb: Verb::Reread, call, fault }
}

/// Something that another process does before re-read number `call` looks.
fn before_reread(
    store: &Arc<dyn Store>,
    call: u32,
    what: impl Fn(&dyn Store) + Send + Sync + 'static,
) -> Meanwhile {
    let store = Arc::clone(store);
    Box::new(move |verb, number| {
        if (verb, number) == (Verb::Reread, call) {
            what(&*store);
        }
    })
}

/// The commands that can be settled, each on a key that it applies to, with its good answer and the
/// event it writes.
fn commands(store: &dyn Store) -> Vec<(Key, Command, Answer, &'static str)> {
    let new = key("reserve");
    let reserved = key("begin");
    let begun = granted(store, &reserved, "a");
    let settled = key("settle");
    let holder = running(store, &settled);
    let failing = key("fail");
    let failed = running(store, &failing);
    let doubtful = key("resolve");
    let doubted = running(store, &doubtful);
    let word = Verdict::Ambiguous { cause: Cause::Exit, reaped: true };
    let outcome = host::outcome_id();
    answered(handle(store, &doubtful, settle(doubted, outcome, word)));
    vec![
        (new, reserve("a"), Answer::Granted, "reserved"),
        (reserved, begin(begun), Answer::Start, "began"),
        (
            settled,
            settle(holder, host::outcome_id(), Verdict::Committed),
            Answer::Settled,
            "committed",
        ),
        (failing, settle(failed, host::outcome_id(), Verdict::Failed), Answer::Settled, "failed"),
        (doubtful, resolve(ProbeAnswer::NotExecuted, 3), Answer::Resolved, "resolved"),
    ]
}

/// Every command under `plan` ends well and has written its event once.
fn each_ends_well(plan: &[Planned], appends: u32) {
    let home = Home::new();
    let store = home.store();
    for (key, command, good, event) in commands(&*store) {
        let faulty = Faulty::new(Arc::clone(&store), plan.to_vec());
        let (answer, found) = answered(handle(&faulty, &key, command));
        assert_eq!(answer, good, "{key}");
        assert_eq!(faulty.fallen(), plan, "{key}: a fault did not fall");
        assert_eq!(faulty.calls(Verb::Append), appends, "{key}");
        assert_eq!(found, record(&*store, &key), "{key}");
        let written = events(&*store, &key);
        assert_eq!(written.last(), Some(&event), "{key}");
        assert_eq!(written.iter().filter(|kind| **kind == event).count(), 1, "{key}");
    }
}

/// Every command under `plan` is unknown in the end, and nobody may run anything.
fn each_stays_unknown(plan: &[Planned], appends: u32) {
    let home = Home::new();
    let store = home.store();
    for (key, command, _, _) in commands(&*store) {
        let faulty = Faulty::new(Arc::clone(&store), plan.to_vec());
        let done = handle(&faulty, &key, command);
        assert!(matches!(done, Done::Unknown(_)), "{key}: {done:?}");
        assert_eq!(faulty.fallen(), plan, "{key}: a fault did not fall");
        assert_eq!(faulty.calls(Verb::Append), appends, "{key}");
    }
}

#[test]
fn a_commit_that_landed_unseen_is_seen_as_landed() {
    // CMT-10, first row; T155b
    each_ends_well(&[append(1, LOST)], 1);
}

#[test]
fn a_commit_that_did_not_land_is_written_again_once() {
    // CMT-10, third row; T155e
    each_ends_well(&[append(1, GONE)], 2);
}

#[test]
fn the_re_read_failed_so_nothing_more_is_written() {
    // CMT-10, last row; T156
    let gone = Fault::Fail(Reason::Unreachable);
    each_stays_unknown(&[append(1, LOST), reread(1, gone)], 1);
    each_stays_unknown(&[append(1, GONE), reread(1, gone)], 1);
}

#[test]
fn a_commit_that_lands_after_the_first_re_read_is_found_by_the_second() {
    // CMT-11; T155d: the second try matches no row, since the first one has landed by then.
    each_ends_well(&[append(1, Fault::Late(Verb::Reread))], 2);
}

#[test]
fn t162_a_second_try_that_met_a_lock_does_not_make_the_first_one_known() {
    // CMT-7, CMT-11
    let busy = Fault::Fail(Reason::Busy);
    each_ends_well(&[append(1, Fault::Late(Verb::Reread)), append(2, busy)], 2);
    // It has not landed either: the row is written by the third try.
    each_ends_well(&[append(1, GONE), append(2, busy)], 3);
    // Nor does an error that will not pass: "not committed" of the second is not said of the first.
    let denied = Fault::Fail(Reason::Denied);
    each_stays_unknown(&[append(1, Fault::Held), append(2, denied)], 2);
}

#[test]
fn a_second_try_that_is_unknown_too_runs_nothing() {
    // CMT-11
    for second in [LOST, GONE, Fault::Held] {
        each_stays_unknown(&[append(1, GONE), append(2, second)], 2);
    }
}

#[test]
fn what_was_not_committed_is_tried_again_and_is_not_unknown() {
    // CMT-5
    let (busy, denied) = (Fault::Fail(Reason::Busy), Fault::Fail(Reason::Denied));
    each_ends_well(&[append(1, busy), append(2, busy)], 3);
    let store = Home::new();
    let faulty = Faulty::new(store.store(), [append(1, denied)]);
    let done = handle(&faulty, &key("k"), reserve("a"));
    assert!(matches!(done, Done::CouldNot(error) if error.reason == Reason::Denied));
    assert_eq!(faulty.calls(Verb::Reread), 0);
    assert_eq!(record(&faulty, &key("k")), None);
}

#[test]
fn a_second_try_without_rows_and_without_a_row_is_an_integrity_error() {
    // CMT-11: a trigger swallows the write, so it matches nothing though nothing is there.
    let home = Home::new();
    let store = home.store();
    let swallow = "CREATE TRIGGER swallow BEFORE INSERT ON effects BEGIN SELECT RAISE(IGNORE); END";
    let tool = rusqlite::Connection::open(home.path()).unwrap();
    tool.execute_batch(swallow).unwrap();
    let faulty = Faulty::new(Arc::clone(&store), [append(1, GONE)]);
    let done = handle(&faulty, &key("k"), reserve("a"));
    assert!(matches!(&done, Done::Unknown(error) if error.reason == Reason::Damaged), "{done:?}");
    assert_eq!(faulty.calls(Verb::Reread), 2);
    assert!(events(&*store, &key("k")).is_empty());
}

#[test]
fn t155c_another_s_reservation_with_our_attempt_id_is_not_ours() {
    // CMT-9, CMT-10, fourth row: same label, same command, same attempt number, same moment.
    let home = Home::new();
    let store = home.store();
    let other = before_reread(&store, 1, |store| {
        granted(store, &key("k"), "same");
    });
    let faulty = Faulty::new(Arc::clone(&store), [append(1, GONE)]).meanwhile(other);
    let (answer, found) = answered(handle(&faulty, &key("k"), reserve("same")));
    assert_eq!(answer, Answer::Refused(Refusal::InProgress));
    assert_eq!(found.unwrap().attempt_id, "same");
    assert_eq!(events(&*store, &key("k")), ["reserved"]);
}

#[test]
fn t164_a_settle_that_landed_unseen_stays_landed_when_the_record_has_moved_on() {
    // CMT-10, second row: attempt 2 was reserved before the re-read of attempt 1's settle.
    let home = Home::new();
    let store = home.store();
    let holder = running(&*store, &key("k"));
    let next = before_reread(&store, 1, |store| {
        granted(store, &key("k"), "second");
    });
    let faulty = Faulty::new(Arc::clone(&store), [append(1, LOST)]).meanwhile(next);
    let word = settle(holder, host::outcome_id(), Verdict::Failed);
    let (answer, found) = answered(handle(&faulty, &key("k"), word));
    assert_eq!(answer, Answer::Settled);
    assert_eq!(found.unwrap().attempt, 2);
    assert_eq!(events(&*store, &key("k")), ["reserved", "began", "failed", "reserved"]);
}

#[test]
fn a_resolution_that_landed_unseen_stays_when_the_record_has_moved_on() {
    // CMT-10, second row
    let home = Home::new();
    let store = home.store();
    let holder = running(&*store, &key("k"));
    let word = Verdict::Ambiguous { cause: Cause::Exit, reaped: true };
    answered(handle(&*store, &key("k"), settle(holder, host::outcome_id(), word)));
    let next = before_reread(&store, 1, |store| {
        granted(store, &key("k"), "second");
    });
    let faulty = Faulty::new(Arc::clone(&store), [append(1, LOST)]).meanwhile(next);
    let decision = resolve(ProbeAnswer::NotExecuted, 3);
    let (answer, _) = answered(handle(&faulty, &key("k"), decision));
    assert_eq!(answer, Answer::Resolved);
}

/// A key whose attempt 1 FAILED on its own word, and the one who held it: his late words are notes
/// that strangers leave on attempt 2.
fn failed_once(store: &dyn Store) -> Holder {
    let holder = running(store, &key("k"));
    let word = settle(holder, host::outcome_id(), Verdict::Failed);
    assert_eq!(answered(handle(store, &key("k"), word)).0, Answer::Settled);
    holder
}

fn note(store: &Arc<dyn Store>, old: Holder, word: Verdict) -> Meanwhile {
    before_reread(store, 1, move |store| {
        let late = settle(old, host::outcome_id(), word);
        assert_eq!(answered(handle(store, &key("k"), late)).0, Answer::KeptAsLate);
    })
}

#[test]
fn a_reserve_that_landed_and_was_noted_upon_is_still_granted() {
    // CMT-10, second row: the planner finds the reservation of this very append (EFF-10).
    let home = Home::new();
    let store = home.store();
    let old = failed_once(&*store);
    let meanwhile = note(&store, old, Verdict::Failed);
    let faulty = Faulty::new(Arc::clone(&store), [append(1, LOST)]).meanwhile(meanwhile);
    let (answer, found) = answered(handle(&faulty, &key("k"), reserve("second")));
    assert_eq!(answer, Answer::Granted);
    assert_eq!(holder_of(&found.unwrap()).attempt, 2);
    let all = events(&*store, &key("k"));
    assert_eq!(all, ["reserved", "began", "failed", "reserved", "late_outcome"]);
}

#[test]
fn a_begin_that_landed_and_came_into_doubt_starts_nothing() {
    // CMT-10, second row: what grants something is the planner's to judge.
    for (word, good) in
        [(Verdict::Failed, Answer::Start), (Verdict::Committed, Answer::Refused(Refusal::NotOurs))]
    {
        let home = Home::new();
        let store = home.store();
        let old = failed_once(&*store);
        let holder = granted(&*store, &key("k"), "second");
        let meanwhile = note(&store, old, word);
        let faulty = Faulty::new(Arc::clone(&store), [append(1, LOST)]).meanwhile(meanwhile);
        let (answer, _) = answered(handle(&faulty, &key("k"), begin(holder)));
        assert_eq!(answer, good, "{word:?}");
    }
}

#[test]
fn a_held_back_commit_that_lands_in_the_end_is_one_reservation() {
    // CMT-8: unknown, so nothing ran; what lands later is a reservation that lapses, never a run.
    let home = Home::new();
    let store = home.store();
    let plan = [append(1, Fault::Held), append(2, GONE)];
    let faulty = Faulty::new(Arc::clone(&store), plan);
    let done = handle(&faulty, &key("k"), reserve("a"));
    assert!(matches!(done, Done::Unknown(_)));
    faulty.perform_late(WITHIN);
    assert_eq!(faulty.late_ends(), [End::Landed]);
    let found = record(&*store, &key("k")).unwrap();
    assert!(matches!(found.state, State::Reserved { .. }));
    let (answer, _) = answered(handle(&*store, &key("k"), reserve("b")));
    assert_eq!(answer, Answer::Refused(Refusal::InProgress));
}

#[test]
fn t159_ambiguous_survives_a_restart_and_still_refuses() {
    // EFF-11
    let home = Home::new();
    let store = home.store();
    let holder = running(&*store, &key("k"));
    let word = Verdict::Ambiguous { cause: Cause::Signal, reaped: true };
    answered(handle(&*store, &key("k"), settle(holder, host::outcome_id(), word)));
    drop(store);
    let (answer, _) = answered(handle(&*home.store(), &key("k"), reserve("b")));
    assert_eq!(answer, Answer::Refused(Refusal::Ambiguous));
}

#[test]
fn a_load_that_fails_for_a_moment_is_tried_again() {
    // CMT-14
    let load = |reason| Planned { verb: Verb::Load, call: 1, fault: Fault::Fail(reason) };
    let home = Home::new();
    let busy = Faulty::new(home.store(), [load(Reason::Busy)]);
    assert_eq!(answered(handle(&busy, &key("k"), reserve("a"))).0, Answer::Granted);
    let denied = Faulty::new(home.store(), [load(Reason::Denied)]);
    let done = handle(&denied, &key("k"), reserve("a"));
    assert!(matches!(done, Done::CouldNot(_)));
    assert_eq!(denied.calls(Verb::Load), 1);
}
