//! The checker's own cells: what it lets through, and each thing that it must see (VER-6).
use ctrlrun::plan::effect::{
    Ambiguated, Committed, Ending, Event, Failed, Labels, RanOn, Request, Resolved, WriteId,
};
use ctrlrun::plan::key::Fingerprint;
use uuid::Uuid;

use super::*;

fn reserved(attempt: u64) -> Event {
    Event::Reserved(Reserved {
        attempt,
        attempt_id: "a".to_owned(),
        request: Request {
            fingerprint: Fingerprint([1; 32]),
            program: "p".to_owned(),
            arguments: 0,
            command: None,
        },
        lease_expires_at: Timestamp(100),
        run_id: None,
    })
}

fn began() -> Event {
    let text = String::new;
    Event::Began(Began {
        lease_expires_at: Timestamp(100),
        ran_on: RanOn { host: text(), pid: 1, user: text(), directory: text() },
        labels: Labels::new(),
    })
}

fn committed() -> Event {
    Event::Committed(Committed { ending: Ending::default() })
}

fn failed(by: FailedBy) -> Event {
    let exit_code = (by == FailedBy::OwnWord).then_some(7);
    let ending = Ending { exit_code, ..Ending::default() };
    Event::Failed(Failed { by, ending })
}

fn lapsed() -> Event {
    Event::Ambiguated(Ambiguated { cause: Cause::Lapsed, reaped: false, ending: None })
}

fn not_executed() -> Event {
    Event::Resolved(Resolved {
        decision: ProbeAnswer::NotExecuted,
        by: "p".to_owned(),
        reason: "r".to_owned(),
        probe: false,
        looked_at: 1,
    })
}

/// Evidence of these events, at the time 200 each, and of one execution of each attempt named.
fn evidence(events: &[Event], ran: &[u64]) -> Evidence {
    let key = Key::new("k").unwrap();
    let mut attempt = 0;
    let mut record = None;
    let mut history = Vec::new();
    // Above all that an earlier life of the key had (OPS-5).
    let first = match events.first() {
        Some(Event::Reserved(event)) => event.attempt,
        _ => 1,
    };
    for (event, revision) in events.iter().zip(first..) {
        if let Event::Reserved(event) = event {
            attempt = event.attempt;
        }
        let row = HistoryRow {
            revision,
            write_id: WriteId(Uuid::from_u128(revision.into())),
            outcome_id: None,
            attempt,
            recorded_at: Timestamp(200),
            event: event.clone(),
        };
        record = evolve(&key, record, &row).ok();
        history.push(row);
    }
    let line = |attempt: &u64| Line {
        key: "k".to_owned(),
        attempt: *attempt,
        attempt_id: "a".to_owned(),
        idempotency_key: String::new(),
        pid: 1,
    };
    Evidence { key, record, history, ledger: ran.iter().map(line).collect() }
}

#[track_caller]
fn finds(evidence: &Evidence, part: &str) {
    let found = violations(evidence);
    assert!(found.iter().any(|what| what.contains(part)), "{part}: {found:?}");
}

#[test]
fn what_may_be_is_let_through() {
    // VER-6
    let own = || failed(FailedBy::OwnWord);
    let never = || failed(FailedBy::NeverStarted);
    for (events, ran) in [
        (vec![], vec![]),
        (vec![reserved(1), began(), committed()], vec![1]),
        (vec![reserved(3), began(), own(), reserved(4), never()], vec![3]),
        (vec![reserved(1), began(), lapsed(), not_executed(), reserved(2), began()], vec![1, 2]),
    ] {
        assert_eq!(violations(&evidence(&events, &ran)), Vec::<String>::new());
    }
}

#[test]
fn a_second_execution_is_seen() {
    // VER-6
    finds(&evidence(&[reserved(1), began(), committed()], &[1, 1]), "ran 2 times");
    finds(&evidence(&[reserved(1)], &[1]), "had not begun");
    finds(&evidence(&[], &[1]), "had not begun");
    let never = failed(FailedBy::NeverStarted);
    finds(&evidence(&[reserved(1), began(), never], &[1]), "recorded as never started");
    let over = [reserved(1), began(), committed(), reserved(2), began()];
    finds(&evidence(&over, &[1, 2]), "on a record that was Committed");
    let over = [reserved(1), began(), lapsed(), reserved(2)];
    finds(&evidence(&over, &[1]), "on a record that was Ambiguous");
    finds(&evidence(&[reserved(1), reserved(2)], &[]), "on a record that was Reserved");
}

#[test]
fn numbers_that_are_not_in_order_are_seen() {
    let again = [reserved(1), began(), failed(FailedBy::OwnWord), reserved(1)];
    finds(&evidence(&again, &[]), "granted after attempt 1");
    let mut gap = evidence(&[reserved(1), began()], &[]);
    gap.history[1].revision = 3;
    finds(&gap, "revision 3 stands where 2 should");
    let mut below = evidence(&[reserved(3)], &[]);
    below.history[0].revision = 1;
    finds(&below, "revision 1 stands where 3 should");
    let mut foreign = evidence(&[reserved(1), began()], &[]);
    foreign.history[1].attempt = 2;
    finds(&foreign, "in the time of attempt 1");
}

#[test]
fn a_lapse_within_the_lease_is_seen() {
    let mut early = evidence(&[reserved(1), lapsed()], &[]);
    early.history[1].recorded_at = Timestamp(99);
    finds(&early, "within its lease");
}

#[test]
fn a_row_that_is_not_the_fold_of_its_history_is_seen() {
    let whole = evidence(&[reserved(1), began()], &[]);
    let mut tampered = whole.clone();
    tampered.record.as_mut().unwrap().proven_failures = 1;
    finds(&tampered, "is not the fold");
    finds(&Evidence { record: None, ..whole.clone() }, "a history and no record");
    finds(&Evidence { history: Vec::new(), ..whole }, "a record and no history");
}
