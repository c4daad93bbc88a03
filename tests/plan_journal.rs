//! What a line of the journal means, held against the store: every cell of AFT-6's table.
mod plan_common;

use ctrlrun::plan::effect::{
    self, Cause, CommittedBy, Event, FailedBy, HistoryRow, Labels, Record, Reserved, State,
    Verdict, WriteId,
};
use ctrlrun::plan::journal::{
    Began, Judged, Line, Settled, Stored, What, Word, judge, judge_by_history, taken_for,
};
use ctrlrun::plan::key::Fingerprint;
use ctrlrun::plan::time::Timestamp;
use plan_common::{ending, key, ran_on, request, write_id};
use uuid::Uuid;

const RESERVED: State = State::Reserved { lease_expires_at: Timestamp(9) };
const EXECUTING: State = State::Executing { lease_expires_at: Timestamp(9) };
const COMMITTED: State = State::Committed { by: CommittedBy::OwnWord };
const FAILED: State = State::Failed { by: FailedBy::OwnWord };

fn doubt(cause: Cause) -> State {
    State::Ambiguous { cause, reaped: true }
}

/// A line about attempt 5, which write 5 reserved.
fn line(what: What) -> Line {
    Line {
        v: 1,
        at: String::new(),
        store_id: Uuid::nil(),
        store: String::new(),
        key: key(),
        attempt: 5,
        reservation_id: write_id(5),
        what,
    }
}

fn began() -> Line {
    line(What::Began(Began {
        attempt_id: "a".to_owned(),
        idempotency_key: Uuid::nil(),
        fingerprint: Fingerprint([1; 32]),
        host: "bastion".to_owned(),
        pid: 1,
    }))
}

fn settled(word: Word, stored: Stored) -> Line {
    line(What::Settled(Settled { word, detail: String::new(), stored }))
}

/// A record at that attempt, which the write of that number reserved; its first attempt was 3.
fn record(attempt: u64, reservation: u128, state: State) -> Record {
    Record {
        key: key(),
        revision: 9,
        write_id: write_id(99),
        reservation_id: write_id(reservation),
        state,
        first_attempt: 3,
        attempt,
        attempt_id: "a".to_owned(),
        request: request(1),
        in_doubt: false,
        doubted: false,
        proven_failures: 0,
        ending: Some(ending("as it was told")),
        resolution: None,
        run_id: None,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
    }
}

fn happened() -> Line {
    settled(Word::Committed, Stored::Ours)
}

#[test]
fn what_did_not_happen_is_nothing_that_anybody_could_meet_a_second_time() {
    // AFT-6
    let line = settled(Word::Failed, Stored::Ours);
    assert_eq!(judge(&line, None, 0), Judged::Known);
    assert_eq!(judge(&line, Some(&record(4, 4, COMMITTED)), 0), Judged::Known);
    assert_eq!(Word::from(Verdict::NeverStarted), Word::Failed);
    assert_eq!(Word::from(Verdict::Failed), Word::Failed);
    assert_eq!(Word::from(Verdict::Committed), Word::Committed);
    let ambiguous = Verdict::Ambiguous { cause: Cause::Exit, reaped: true };
    assert_eq!(Word::from(ambiguous), Word::Ambiguous);
}

#[test]
fn an_attempt_whose_effect_is_gone_is_lost_unless_prune_may_have_let_go_of_it() {
    // AFT-6, OPS-5: what prune lets go of has an outcome, and a number at or below the floor.
    for (floor, judged) in [(4, Judged::Lost), (5, Judged::Pruned), (6, Judged::Pruned)] {
        assert_eq!(judge(&happened(), None, floor), judged, "{floor}");
        assert_eq!(judge(&began(), None, floor), Judged::Lost, "{floor}");
    }
}

#[test]
fn an_attempt_above_the_record_s_is_lost_and_one_below_is_the_history_s_to_tell() {
    // AFT-6
    for line in [began(), happened()] {
        assert_eq!(judge(&line, Some(&record(4, 4, COMMITTED)), 0), Judged::Lost);
        assert_eq!(judge(&line, Some(&record(6, 6, COMMITTED)), 0), Judged::AskHistory);
        let same = Record { first_attempt: 5, ..record(6, 6, COMMITTED) };
        assert_eq!(judge(&line, Some(&same), 5), Judged::AskHistory, "its life's first attempt");
    }
    // Of an earlier life of the key.
    let later = Record { first_attempt: 6, ..record(6, 6, COMMITTED) };
    assert_eq!(judge(&happened(), Some(&later), 5), Judged::Pruned);
    assert_eq!(judge(&happened(), Some(&later), 4), Judged::Lost);
    assert_eq!(judge(&began(), Some(&later), 5), Judged::Lost);
}

#[test]
fn a_number_that_another_reservation_has_was_granted_again() {
    // AFT-6, EFF-17
    for line in [began(), happened()] {
        assert_eq!(judge(&line, Some(&record(5, 6, COMMITTED)), 0), Judged::GrantedAgain);
        assert_eq!(judge(&line, Some(&record(5, 5, COMMITTED)), 0), Judged::Known);
    }
}

#[test]
fn an_outcome_that_the_store_had_and_has_no_more_is_lost() {
    // AFT-6
    let lapsed = doubt(Cause::Lapsed);
    for (word, stored, state, judged) in [
        (Word::Committed, Stored::Ours, RESERVED, Judged::OutcomeLost),
        (Word::Committed, Stored::Ours, EXECUTING, Judged::OutcomeLost),
        (Word::Committed, Stored::Ours, lapsed, Judged::OutcomeLost),
        (Word::Committed, Stored::Ours, doubt(Cause::Exit), Judged::Known),
        (Word::Committed, Stored::Ours, COMMITTED, Judged::Known),
        (Word::Committed, Stored::Ours, FAILED, Judged::Known),
        (Word::Ambiguous, Stored::Ours, EXECUTING, Judged::OutcomeLost),
        // That nobody knows is what the record says as well.
        (Word::Ambiguous, Stored::Ours, lapsed, Judged::Known),
        // The store never had it as the attempt's own.
        (Word::Committed, Stored::Spooled, EXECUTING, Judged::Known),
        (Word::Committed, Stored::No, lapsed, Judged::Known),
        (Word::Committed, Stored::Late, lapsed, Judged::Known),
        (Word::Committed, Stored::Forgotten, lapsed, Judged::Known),
    ] {
        let found = judge(&settled(word, stored), Some(&record(5, 5, state)), 0);
        assert_eq!(found, judged, "{word:?} {stored:?} {state:?}");
    }
    assert_eq!(judge(&began(), Some(&record(5, 5, EXECUTING)), 0), Judged::Known);
}

/// A reservation of that attempt, by the write of that number.
fn reserved(attempt: u64, by: u128, attempt_id: &str) -> HistoryRow {
    let event = Event::Reserved(Reserved {
        attempt,
        attempt_id: attempt_id.to_owned(),
        request: request(1),
        lease_expires_at: Timestamp(9),
        run_id: None,
    });
    let (write_id, recorded_at) = (write_id(by), Timestamp(0));
    HistoryRow { revision: 1, write_id, outcome_id: None, attempt, recorded_at, event }
}

fn begun(attempt: u64) -> HistoryRow {
    let event = Event::Began(effect::Began {
        lease_expires_at: Timestamp(9),
        ran_on: ran_on(),
        labels: Labels::new(),
    });
    HistoryRow { event, write_id: write_id(99), ..reserved(attempt, 0, "a") }
}

#[test]
fn the_history_tells_of_an_attempt_below_the_record_s() {
    // AFT-6
    let line = began();
    let around = |row: HistoryRow| vec![reserved(4, 4, "a"), begun(4), row, reserved(6, 6, "a")];
    assert_eq!(judge_by_history(&line, &around(reserved(5, 5, "a"))), Judged::Known);
    assert_eq!(judge_by_history(&line, &around(reserved(5, 7, "a"))), Judged::GrantedAgain);
    assert_eq!(judge_by_history(&line, &around(reserved(7, 5, "a"))), Judged::Lost);
    assert_eq!(judge_by_history(&line, &[]), Judged::Lost);
}

#[test]
fn an_attempt_whose_key_was_taken_for_it_is_asked_about_no_more() {
    // AFT-6
    let line = began();
    let label = taken_for(&line);
    assert_eq!(label, format!("journal:{}", Uuid::from_u128(5)));
    let taken = Record { attempt_id: label.clone(), ..record(4, 4, FAILED) };
    assert_eq!(judge(&line, Some(&taken), 0), Judged::Known);
    assert_eq!(judge_by_history(&line, &[reserved(4, 4, &label)]), Judged::Known);
    let of_another = taken_for(&Line { reservation_id: WriteId(Uuid::nil()), ..began() });
    let taken = Record { attempt_id: of_another.clone(), ..record(4, 4, FAILED) };
    assert_eq!(judge(&line, Some(&taken), 0), Judged::Lost);
    assert_eq!(judge_by_history(&line, &[reserved(4, 4, &of_another)]), Judged::Lost);
}
