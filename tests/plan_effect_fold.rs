//! What a history folds into (HIS-2): doubt, proofs, attempt numbers and the idempotency key
//! (EFF-2, EFF-6 to EFF-9, EFF-21, KEY-7).
#![expect(clippy::expect_used, reason = "what fails in a helper fails its test")]
mod plan_common;

use ctrlrun::plan::effect::{
    Ambiguated, Began, Cause, Committed, CommittedBy, Ending, Event, Failed, FailedBy, HistoryRow,
    Labels, LateOutcome, LeaseRenewed, ProbeAnswer, Probed, Record, Reopened, Reserved, Resolved,
    State, Verdict, evolve,
};
use ctrlrun::plan::key::idempotency_key;
use ctrlrun::plan::time::Timestamp;
use plan_common::{ending, key, ran_on, request, write_id};

/// Folds `events`, one an append: event N has revision N and `write_id` N.
fn fold(events: &[Event]) -> Record {
    steps(events).pop().expect("there is an event")
}

/// The record after each of `events`.
fn steps(events: &[Event]) -> Vec<Record> {
    let mut records = Vec::new();
    for (revision, event) in (1..).zip(events) {
        let row = HistoryRow {
            revision,
            write_id: write_id(u128::from(revision)),
            outcome_id: None,
            attempt: 0,
            recorded_at: Timestamp(revision.cast_signed() * 100),
            event: event.clone(),
        };
        let before = records.last().cloned();
        records.push(evolve(&key(), before, &row).expect("it begins with reserved"));
    }
    records
}

fn reserved(attempt: u64) -> Event {
    Event::Reserved(Reserved {
        attempt,
        attempt_id: format!("label {attempt}"),
        request: request(u8::try_from(attempt).expect("few attempts")),
        lease_expires_at: Timestamp(1_000),
        run_id: None,
    })
}

fn began() -> Event {
    Event::Began(Began {
        lease_expires_at: Timestamp(2_000),
        ran_on: ran_on(),
        labels: Labels::new(),
    })
}

fn renewed() -> Event {
    let lease_expires_at = Timestamp(3_000);
    Event::LeaseRenewed(LeaseRenewed { lease_expires_at })
}

fn committed() -> Event {
    let ending = ending("exited 0");
    Event::Committed(Committed { ending })
}

fn failed(by: FailedBy) -> Event {
    let ending = Ending { exit_code: Some(22), ..ending("exited 22") };
    Event::Failed(Failed { by, ending })
}

fn ambiguated(cause: Cause, reaped: bool, ending: Option<Ending>) -> Event {
    Event::Ambiguated(Ambiguated { cause, reaped, ending })
}

fn lapsed() -> Event {
    ambiguated(Cause::Lapsed, false, None)
}

fn late(doubt: bool) -> Event {
    Event::LateOutcome(LateOutcome {
        attempt: 1,
        reservation_id: write_id(1),
        word: Verdict::Committed,
        doubt,
        ending: ending("exited 0"),
    })
}

fn probed() -> Event {
    let by = "reconcile:ledger".to_owned();
    let answer = ProbeAnswer::NotExecuted;
    Event::Probed(Probed { answer, by })
}

fn resolved(decision: ProbeAnswer, probe: bool) -> Event {
    Event::Resolved(Resolved {
        decision,
        by: "oncall@bastion".to_owned(),
        reason: "the ledger shows it".to_owned(),
        probe,
        looked_at: 1,
    })
}

fn reopened() -> Event {
    Event::Reopened(Reopened {
        by: "lead@bastion".to_owned(),
        reason: "it was not so".to_owned(),
        looked_at: 1,
    })
}

const OWN: FailedBy = FailedBy::OwnWord;
const NEVER: FailedBy = FailedBy::NeverStarted;
const NOT: ProbeAnswer = ProbeAnswer::NotExecuted;

#[test]
fn a_history_begins_with_reserved_and_with_nothing_else() {
    // HIS-1
    let others = [
        began(),
        renewed(),
        committed(),
        failed(OWN),
        lapsed(),
        late(true),
        probed(),
        resolved(NOT, false),
        reopened(),
    ];
    for event in others {
        let row = HistoryRow {
            revision: 1,
            write_id: write_id(1),
            outcome_id: None,
            attempt: 1,
            recorded_at: Timestamp(0),
            event,
        };
        let bad = evolve(&key(), None, &row).expect_err("it is no beginning");
        assert_eq!(bad.0, row.event.kind());
    }
}

#[test]
fn the_first_reservation_makes_the_record_from_the_floor_on() {
    // EFF-2, EFF-6
    let record = fold(&[reserved(42)]);
    let state = State::Reserved { lease_expires_at: Timestamp(1_000) };
    assert_eq!(record.state, state);
    assert_eq!((record.first_attempt, record.attempt), (42, 42));
    assert_eq!((record.revision, record.proven_failures), (1, 0));
    assert_eq!((record.write_id, record.reservation_id), (write_id(1), write_id(1)));
    assert!(!record.in_doubt && !record.doubted);
    assert_eq!((record.created_at, record.updated_at), (Timestamp(100), Timestamp(100)));
}

#[test]
fn every_event_moves_the_revision_the_write_and_the_time_and_only_a_reservation_the_holder() {
    // HIS-2, EFF-4
    let records = steps(&[reserved(1), began(), renewed(), late(false), failed(OWN), reserved(2)]);
    for (n, record) in (1..).zip(&records) {
        assert_eq!((record.revision, record.write_id), (n, write_id(u128::from(n))));
        assert_eq!(record.updated_at, Timestamp(n.cast_signed() * 100));
        assert_eq!(record.created_at, Timestamp(100));
    }
    let held: Vec<_> = records.iter().map(|r| (r.attempt, r.reservation_id)).collect();
    assert_eq!(held[..5], vec![(1, write_id(1)); 5]);
    assert_eq!(held[5], (2, write_id(6)));
    assert_eq!(records[5].first_attempt, 1);
}

#[test]
fn each_event_leads_to_its_state() {
    // EFF-1, EFF-3, EFF-21
    let executing = |at| State::Executing { lease_expires_at: Timestamp(at) };
    let after = |events: &[Event]| {
        let before = [reserved(1), began()];
        fold(&[&before, events].concat()).state
    };
    assert_eq!(after(&[]), executing(2_000));
    assert_eq!(after(&[renewed()]), executing(3_000));
    let by = CommittedBy::OwnWord;
    assert_eq!(after(&[committed()]), State::Committed { by });
    for by in [OWN, NEVER] {
        assert_eq!(after(&[failed(by)]), State::Failed { by });
    }
    for (cause, reaped) in [(Cause::Exit, true), (Cause::Timeout, false)] {
        let state = State::Ambiguous { cause, reaped };
        assert_eq!(after(&[ambiguated(cause, reaped, None)]), state);
    }
    let decided = |decision, probe| after(&[lapsed(), resolved(decision, probe)]);
    let committed_by = |by| State::Committed { by };
    let failed_by = |by| State::Failed { by };
    let yes = ProbeAnswer::Committed;
    assert_eq!(decided(yes, false), committed_by(CommittedBy::Person));
    assert_eq!(decided(yes, true), committed_by(CommittedBy::Probe));
    assert_eq!(decided(NOT, false), failed_by(FailedBy::Person));
    assert_eq!(decided(NOT, true), failed_by(FailedBy::Probe));
    let reopened_from = State::Ambiguous { cause: Cause::Reopened, reaped: false };
    assert_eq!(after(&[committed(), reopened()]), reopened_from);
}

#[test]
fn evidence_changes_no_state() {
    // EFF-1
    let before = [reserved(1), began(), ambiguated(Cause::Exit, true, None)];
    let stands = fold(&before).state;
    for evidence in [late(true), late(false), probed()] {
        assert_eq!(fold(&[&before[..], &[evidence]].concat()).state, stands);
    }
}

#[test]
fn a_reservation_clears_the_outcome_and_never_the_counts() {
    // EFF-2
    let before = [reserved(1), began(), failed(OWN), reserved(2), began(), lapsed()];
    let decided = fold(&[&before[..], &[resolved(NOT, false)]].concat());
    assert!(decided.resolution.is_some() && decided.ending.is_none());
    let again = fold(&[&before[..], &[resolved(NOT, false), reserved(3)]].concat());
    assert_eq!((again.ending, again.resolution), (None, None));
    assert_eq!((again.first_attempt, again.attempt), (1, 3));
    assert_eq!((again.proven_failures, again.doubted), (1, true));
    assert_eq!(again.request, request(3));
    assert_eq!(fold(&[reserved(1), began(), failed(OWN), reserved(2)]).ending, None);
}

#[test]
fn a_known_ending_outlives_the_events_that_know_none() {
    let exited = Ending { exit_code: Some(22), ..ending("exited 22") };
    let record = fold(&[reserved(1), began(), failed(OWN), late(true), lapsed()]);
    assert_eq!(record.ending, Some(exited));
    let told = Some(ending("killed by 9"));
    let ambiguous = ambiguated(Cause::Signal, true, told.clone());
    assert_eq!(fold(&[reserved(1), began(), ambiguous]).ending, told);
}

#[test]
fn doubt_is_set_by_a_late_word_and_cleared_by_a_person_alone() {
    // EFF-7
    let before = [reserved(1), began(), lapsed(), late(true)];
    let after = |events: &[Event]| fold(&[&before[..], events].concat()).in_doubt;
    assert!(after(&[]));
    assert!(after(&[late(false)]), "a later \"no\" takes nothing back");
    assert!(after(&[probed()]));
    assert!(after(&[resolved(ProbeAnswer::Committed, true)]));
    assert!(after(&[resolved(ProbeAnswer::Committed, true), reopened()]));
    assert!(!after(&[resolved(NOT, false)]));
    assert!(!after(&[resolved(ProbeAnswer::Committed, false)]));
    let running = [reserved(1), lapsed(), resolved(NOT, false), reserved(2), late(true)];
    assert!(fold(&[&running[..], &[began(), renewed()]].concat()).in_doubt);
    assert!(!fold(&[reserved(1), began(), late(false)]).in_doubt);
}

#[test]
fn every_way_into_ambiguous_leaves_its_mark_for_good() {
    // EFF-8
    let attempt = [reserved(1), began()];
    let ways: [&[Event]; 4] = [
        &[lapsed()],
        &[ambiguated(Cause::Exit, true, None)],
        &[committed(), reopened()],
        &[failed(OWN), late(true), ambiguated(Cause::LateOutcome, false, None)],
    ];
    for way in ways {
        let on = [&attempt[..], way].concat();
        assert!(fold(&on).doubted);
        let later = [resolved(NOT, false), reserved(2), began(), committed()];
        assert!(fold(&[&on[..], &later].concat()).doubted);
    }
    assert!(!fold(&[&attempt[..], &[failed(OWN), reserved(2)]].concat()).doubted);
}

#[test]
fn only_failures_on_the_own_word_before_any_doubt_are_proofs() {
    // EFF-8
    let proofs = |events: &[Event]| fold(events).proven_failures;
    let once = [reserved(1), began(), failed(OWN)];
    assert_eq!(proofs(&once), 1);
    let twice = [&once[..], &[reserved(2), began(), failed(OWN)]].concat();
    assert_eq!(proofs(&twice), 2);
    assert_eq!(proofs(&[reserved(1), failed(NEVER)]), 0);
    for probe in [false, true] {
        assert_eq!(proofs(&[reserved(1), lapsed(), resolved(NOT, probe)]), 0);
    }
    let doubted = [reserved(1), began(), lapsed(), resolved(NOT, false)];
    let later = [reserved(2), began(), failed(OWN), reserved(3), began(), failed(OWN)];
    assert_eq!(proofs(&[&doubted[..], &later].concat()), 0);
}

#[test]
fn a_proof_that_becomes_a_doubt_is_taken_back_once() {
    // EFF-9
    let proofs = |events: &[Event]| fold(events).proven_failures;
    let twice = [reserved(1), began(), failed(OWN), reserved(2), began(), failed(OWN)];
    let doubt = [late(true), ambiguated(Cause::LateOutcome, false, None)];
    for back in [&[reopened()][..], &doubt] {
        let once = [&twice[..], back].concat();
        assert_eq!(proofs(&once), 1, "{back:?}");
        // Decided, and taken back again: there is nothing left of it to take.
        let again = [&once[..], &[resolved(NOT, false), reopened()]].concat();
        assert_eq!(proofs(&again), 1, "{back:?}");
    }
    // What was never counted is not taken back.
    let uncounted = [&twice[..4], &[failed(NEVER), reopened()]].concat();
    assert_eq!(proofs(&uncounted), 1);
    let happened = [&twice[..5], &[committed(), reopened()]].concat();
    assert_eq!(proofs(&happened), 1);
    // A failure after a doubt was not counted either.
    let doubted = [
        &twice[..3],
        &[reserved(2), lapsed(), resolved(NOT, false)],
        &[reserved(3), began(), failed(OWN), reopened()],
    ]
    .concat();
    assert_eq!(proofs(&doubted), 1);
}

#[test]
fn an_attempt_that_could_repeat_a_doubtful_one_carries_its_idempotency_key() {
    // EFF-9, KEY-7
    let key_of = |events: &[Event]| idempotency_key(&key(), fold(events).proven_failures);
    let before = [reserved(1), began(), failed(OWN), reserved(2), began()];
    let doubtful = key_of(&before);
    assert_ne!(doubtful, key_of(&before[..2]), "a proof makes a fresh key");
    let late = [late(true), ambiguated(Cause::LateOutcome, false, None)];
    let doubts: [&[Event]; 4] = [
        &[lapsed()],
        &[ambiguated(Cause::Signal, true, None)],
        &[failed(OWN), reopened()],
        &[&[failed(OWN)][..], &late].concat(),
    ];
    for doubt in doubts {
        let next = [resolved(NOT, false), reserved(3), began()];
        let repeat = [&before[..], doubt, &next].concat();
        assert_eq!(key_of(&repeat), doubtful, "{doubt:?}");
        // And so does every one after it, however those in between ended.
        let later = [failed(OWN), reserved(4), failed(NEVER), reserved(5), began()];
        assert_eq!(key_of(&[&repeat[..], &later].concat()), doubtful, "{doubt:?}");
    }
    let never = [&before[..4], &[failed(NEVER), reserved(3), began()]].concat();
    assert_eq!(key_of(&never), doubtful, "what never started proves nothing new");
}

#[test]
fn two_folds_of_one_history_are_one_record() {
    // HIS-2: also through the stored form of the events (HIS-5).
    let events = [
        reserved(1),
        began(),
        renewed(),
        ambiguated(Cause::Exit, true, Some(ending("exited 3"))),
        probed(),
        resolved(NOT, false),
        late(true),
        lapsed(),
        resolved(ProbeAnswer::Committed, true),
        reopened(),
        resolved(NOT, false),
        reserved(2),
        failed(NEVER),
        reserved(3),
        began(),
        committed(),
    ];
    let stored: Vec<Event> = events
        .iter()
        .map(|event| Event::parse(event.kind(), &event.data()).expect("it reads back"))
        .collect();
    assert_eq!(stored, events);
    assert_eq!(steps(&stored), steps(&events));
    assert!(Event::parse("swept", "{}").is_err(), "EFF-1: there are no others");
}
