//! What may go, and when: the one rule of `prune` (OPS-1 to OPS-3).
use std::collections::BTreeMap;
use std::time::Duration;

use super::effect::{Event, HistoryRow, Record, State, Verdict, WriteId, evolve};
use super::time::Timestamp;
use super::workflow::{NodeState, Run};

/// Why something of an effect stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stays {
    /// It is not settled: RESERVED, EXECUTING or AMBIGUOUS, live or lapsed.
    Unsettled,
    /// It was settled too short a time ago.
    Young,
    /// It belongs to a workflow run that has not ended, whose tick may ask for it.
    OfARun,
    /// Nobody saw an attempt of it end: its process may still be at work, and may yet say so.
    Unseen,
    /// A late word says that something may have happened, and no person has decided since.
    InDoubt,
    /// The record is not the fold of its history: what is not understood is not thrown away.
    Damaged,
}

/// Whether the stored output of an effect may go: it is settled, and was `older_than` ago (OPS-1).
///
/// `history` is the whole history of the record, read at the same moment.
///
/// # Errors
/// Why it stays.
pub fn output(
    record: &Record,
    history: &[HistoryRow],
    now: Timestamp,
    older_than: Duration,
) -> Result<(), Stays> {
    match record.state {
        State::Committed { .. } | State::Failed { .. } => {}
        State::Reserved { .. } | State::Executing { .. } | State::Ambiguous { .. } => {
            return Err(Stays::Unsettled);
        }
    }
    if !is_fold(record, history) {
        return Err(Stays::Damaged);
    }
    let settled_at = settled_at(history).ok_or(Stays::Damaged)?;
    // Of a clock that was set back it is in the future, and so not old.
    if settled_at > now || now.since(settled_at) < older_than {
        return Err(Stays::Young);
    }
    Ok(())
}

/// What the run of an effect says to that, if there is one: it keeps what a tick may still ask for. One
/// that has ended asks for nothing more, and one that was forgotten, of which `run` is `None`, neither.
///
/// # Errors
/// It stays.
pub fn of_run(run: Option<&Run>) -> Result<(), Stays> {
    match run {
        Some(run) if !run.status.is_end() => Err(Stays::OfARun),
        Some(_) | None => Ok(()),
    }
}

/// Whether a run itself may be forgotten, so that its name is new again: it has ended, nothing has come
/// to it for `older_than`, and of none of its nodes something is still to be heard (OPS-14).
///
/// # Errors
/// Why it stays.
pub fn run(run: &Run, now: Timestamp, older_than: Duration) -> Result<(), Stays> {
    if !run.status.is_end() {
        return Err(Stays::OfARun);
    }
    let is_open = |state: &NodeState| {
        matches!(state, NodeState::Dispatched { .. } | NodeState::Ambiguous { .. })
    };
    if run.progress.nodes.values().any(|node| is_open(&node.state)) {
        return Err(Stays::Unsettled);
    }
    if run.updated_at > now || now.since(run.updated_at) < older_than {
        return Err(Stays::Young);
    }
    Ok(())
}

/// Whether the whole effect may be forgotten, so that its key is NEW again (OPS-3).
///
/// # Errors
/// Why it stays.
pub fn key(
    record: &Record,
    history: &[HistoryRow],
    now: Timestamp,
    older_than: Duration,
) -> Result<(), Stays> {
    output(record, history, now, older_than)?;
    if record.in_doubt {
        return Err(Stays::InDoubt);
    }
    if unseen(history) { Err(Stays::Unseen) } else { Ok(()) }
}

/// When the newest event that changed the state was recorded.
fn settled_at(history: &[HistoryRow]) -> Option<Timestamp> {
    let settles = |event: &Event| match event {
        Event::Committed(_) | Event::Failed(_) | Event::Resolved(_) => true,
        Event::Reserved(_)
        | Event::Began(_)
        | Event::LeaseRenewed(_)
        | Event::Ambiguated(_)
        | Event::LateOutcome(_)
        | Event::Probed(_)
        | Event::Reopened(_) => false,
    };
    history.iter().rev().find(|row| settles(&row.event)).map(|row| row.recorded_at)
}

/// Whether the record is what its history says, without gaps (HIS-1, HIS-2).
#[must_use]
pub fn is_fold(record: &Record, history: &[HistoryRow]) -> bool {
    let Some(first) = history.first() else {
        return false;
    };
    let mut fold = None;
    for (row, at) in history.iter().zip(first.revision..) {
        if row.revision != at {
            // One was taken out (HIS-1); the rest may fold to the same, and tells less.
            return false;
        }
        match evolve(&record.key, fold, row) {
            Ok(next) => fold = Some(next),
            Err(_) => return false,
        }
    }
    fold.as_ref() == Some(record)
}

/// Whether an attempt began of which no holder has said, having seen its child to the end, what
/// came of it.
fn unseen(history: &[HistoryRow]) -> bool {
    let mut at_large: BTreeMap<u64, WriteId> = BTreeMap::new();
    let mut reservation = None;
    for row in history {
        match &row.event {
            Event::Reserved(_) => reservation = Some(row.write_id),
            Event::Began(_) => {
                if let Some(reservation) = reservation {
                    at_large.insert(row.attempt, reservation);
                }
            }
            Event::Committed(_) | Event::Failed(_) => {
                at_large.remove(&row.attempt);
            }
            Event::Ambiguated(event) if event.reaped => {
                at_large.remove(&row.attempt);
            }
            // Of a stranger with the same number (a restored store) it says nothing about ours.
            Event::LateOutcome(event)
                if ended(event.word)
                    && at_large.get(&event.attempt) == Some(&event.reservation_id) =>
            {
                at_large.remove(&event.attempt);
            }
            Event::LeaseRenewed(_)
            | Event::Ambiguated(_)
            | Event::LateOutcome(_)
            | Event::Probed(_)
            | Event::Resolved(_)
            | Event::Reopened(_) => {}
        }
    }
    !at_large.is_empty()
}

/// Whether whoever says this has seen the child to its end, descendants and all.
fn ended(word: Verdict) -> bool {
    match word {
        Verdict::Committed | Verdict::Failed | Verdict::NeverStarted => true,
        Verdict::Ambiguous { reaped, .. } => reaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::effect::{
        Ambiguated, Began, Cause, Committed, Ending, Failed, FailedBy, LateOutcome, ProbeAnswer,
        RanOn, Reopened, Request, Reserved, Resolved,
    };
    use crate::plan::key::{Fingerprint, Key};
    use crate::plan::workflow::{
        self, DispatchedWhy, Expected, Hash, Name, RunEvent, RunHistoryRow, RunId, Status, Tier,
    };
    use uuid::Uuid;

    /// Every event takes a second; a `reserved` or later begins a write of its own.
    fn told(events: &[Event]) -> (Record, Vec<HistoryRow>) {
        let key = Key::new("k").unwrap();
        let (mut record, mut history) = (None, Vec::new());
        let mut attempt = 0;
        for (at, event) in (1_u32..).zip(events) {
            if let Event::Reserved(event) = event {
                attempt = event.attempt;
            }
            let about = if let Event::LateOutcome(late) = event { late.attempt } else { attempt };
            let row = HistoryRow {
                revision: at.into(),
                write_id: write(at),
                outcome_id: None,
                attempt: about,
                recorded_at: Timestamp(i64::from(at) * 1_000_000),
                event: event.clone(),
            };
            record = Some(evolve(&key, record, &row).unwrap());
            history.push(row);
        }
        (record.unwrap(), history)
    }

    fn write(at: u32) -> WriteId {
        WriteId(Uuid::from_u128(at.into()))
    }

    fn reserved(attempt: u64) -> Event {
        Event::Reserved(Reserved {
            attempt,
            attempt_id: "a".to_owned(),
            request: Request {
                fingerprint: Fingerprint([0; 32]),
                program: "p".to_owned(),
                arguments: 0,
                command: None,
            },
            lease_expires_at: Timestamp(0),
            run_id: None,
        })
    }

    fn began() -> Event {
        let ran_on =
            RanOn { host: "h".to_owned(), pid: 1, user: "u".to_owned(), directory: "/".to_owned() };
        Event::Began(Began { lease_expires_at: Timestamp(0), ran_on, labels: Default::default() })
    }

    fn exited() -> Ending {
        Ending { exit_code: Some(0), ..Ending::default() }
    }

    fn committed() -> Event {
        Event::Committed(Committed { ending: exited() })
    }

    fn failed(by: FailedBy) -> Event {
        let ending = match by {
            FailedBy::NeverStarted => Ending::default(),
            FailedBy::OwnWord | FailedBy::Person | FailedBy::Probe => exited(),
        };
        Event::Failed(Failed { by, ending })
    }

    fn doubt(cause: Cause, reaped: bool) -> Event {
        Event::Ambiguated(Ambiguated { cause, reaped, ending: None })
    }

    fn resolved(decision: ProbeAnswer, probe: bool) -> Event {
        Event::Resolved(Resolved {
            decision,
            by: "x".to_owned(),
            reason: "r".to_owned(),
            probe,
            looked_at: 1,
        })
    }

    fn late(reservation: u32, word: Verdict) -> Event {
        Event::LateOutcome(LateOutcome {
            attempt: 1,
            reservation_id: write(reservation),
            word,
            doubt: false,
            ending: Ending::default(),
        })
    }

    fn may_go(events: &[Event]) -> (Result<(), Stays>, Result<(), Stays>) {
        let (record, history) = told(events);
        let (now, old) = (Timestamp(1_000_000_000), Duration::from_secs(60));
        (output(&record, &history, now, old), key(&record, &history, now, old))
    }

    #[test]
    fn what_is_settled_before_its_holder_s_eyes_may_go() {
        // OPS-3
        use ProbeAnswer::{Committed as Did, NotExecuted as DidNot};
        let reaped = || doubt(Cause::Exit, true);
        for events in [
            vec![reserved(1), began(), committed()],
            vec![reserved(1), began(), failed(FailedBy::OwnWord)],
            vec![reserved(1), failed(FailedBy::NeverStarted)],
            vec![reserved(1), began(), failed(FailedBy::NeverStarted)],
            vec![reserved(1), began(), reaped(), resolved(Did, false)],
            vec![reserved(1), began(), reaped(), resolved(DidNot, true)],
            // It never began, so nobody was ever at work.
            vec![reserved(1), doubt(Cause::Lapsed, false), resolved(DidNot, false)],
            // The holder came back and said what came of it.
            vec![
                reserved(1),
                began(),
                doubt(Cause::Lapsed, false),
                resolved(Did, false),
                late(1, Verdict::Committed),
            ],
        ] {
            assert_eq!(may_go(&events), (Ok(()), Ok(())), "{events:?}");
        }
    }

    #[test]
    fn what_is_not_settled_stays_however_old_it_is() {
        // OPS-1
        let reopened =
            Event::Reopened(Reopened { by: "x".to_owned(), reason: "r".to_owned(), looked_at: 3 });
        for events in [
            vec![reserved(1)],
            vec![reserved(1), began()],
            vec![reserved(1), began(), doubt(Cause::Exit, true)],
            vec![reserved(1), began(), committed(), reopened],
        ] {
            let stays = Err(Stays::Unsettled);
            assert_eq!(may_go(&events), (stays, stays), "{events:?}");
        }
    }

    #[test]
    fn an_attempt_that_nobody_saw_end_keeps_its_key() {
        // OPS-3
        use ProbeAnswer::{Committed as Did, NotExecuted as DidNot};
        let unseen = (Ok(()), Err(Stays::Unseen));
        let lapsed = || doubt(Cause::Lapsed, false);
        for events in [
            vec![reserved(1), began(), lapsed(), resolved(Did, false)],
            vec![reserved(1), began(), lapsed(), resolved(DidNot, false)],
            vec![reserved(1), began(), doubt(Cause::Timeout, false), resolved(DidNot, false)],
            // A later attempt that was committed says nothing of the first one's process.
            vec![
                reserved(1),
                began(),
                lapsed(),
                resolved(DidNot, false),
                reserved(2),
                began(),
                committed(),
            ],
            // A word of another holder of the same number, and one of a holder that left somebody.
            vec![reserved(1), began(), lapsed(), resolved(Did, false), late(9, Verdict::Committed)],
            vec![
                reserved(1),
                began(),
                lapsed(),
                resolved(Did, false),
                late(1, Verdict::Ambiguous { cause: Cause::Timeout, reaped: false }),
            ],
        ] {
            assert_eq!(may_go(&events), unseen, "{events:?}");
        }
    }

    #[test]
    fn a_doubt_a_run_and_damage_keep_it() {
        // OPS-1, OPS-3
        let (now, old) = (Timestamp(1_000_000_000), Duration::from_secs(60));
        let in_doubt = Event::LateOutcome(LateOutcome {
            attempt: 1,
            reservation_id: write(9),
            word: Verdict::Committed,
            doubt: true,
            ending: Ending::default(),
        });
        let by_probe = resolved(ProbeAnswer::Committed, true);
        let events = [reserved(1), began(), doubt(Cause::Exit, true), in_doubt, by_probe];
        assert_eq!(may_go(&events), (Ok(()), Err(Stays::InDoubt)));

        let (record, history) = told(&[reserved(1), began(), committed()]);
        let mut other = record.clone();
        other.attempt_id = "b".to_owned();
        assert_eq!(output(&other, &history, now, old), Err(Stays::Damaged));
        assert_eq!(output(&record, &history[..2], now, old), Err(Stays::Damaged));
        assert_eq!(output(&record, &[], now, old), Err(Stays::Damaged));
        let gap = [history[0].clone(), history[2].clone()];
        assert_eq!(output(&record, &gap, now, old), Err(Stays::Damaged), "HIS-1");
    }

    #[test]
    fn the_settlement_s_time_counts_and_no_other() {
        // OPS-1: settled in second 3; created in second 1, touched in second 4.
        let word = late(9, Verdict::Failed);
        let (record, history) = told(&[reserved(1), began(), committed(), word]);
        let judge = |now: i64, secs| {
            output(&record, &history, Timestamp(now * 1_000_000), Duration::from_secs(secs))
        };
        assert_eq!(judge(13, 10), Ok(()));
        assert_eq!(judge(12, 10), Err(Stays::Young));
        assert_eq!(judge(4, 0), Ok(()));
        assert_eq!(judge(2, 0), Err(Stays::Young), "a clock that was set back");
    }

    #[test]
    fn what_was_settled_at_this_very_moment_is_not_in_the_future() {
        // OPS-1
        let (record, history) =
            told(&[reserved(1), began(), Event::Committed(Committed { ending: exited() })]);
        let settled_at = history[2].recorded_at;
        assert_eq!(output(&record, &history, settled_at, Duration::ZERO), Ok(()));
        let before = Timestamp(settled_at.0 - 1);
        assert_eq!(output(&record, &history, before, Duration::ZERO), Err(Stays::Young));
    }

    /// A run of one node, after these events, each of which takes a second.
    fn run_of(events: Vec<RunEvent>) -> Run {
        let (id, node) = (RunId::new("r").unwrap(), Name::new("a").unwrap());
        let start = RunEvent::Started {
            workflow: Name::new("w").unwrap(),
            tier: Tier::Normal,
            definition: "{}".to_owned(),
            hash: Hash([7; 32]),
            nodes: vec![node],
            inputs: BTreeMap::new(),
        };
        let mut run = None;
        for (revision, event) in (1_u32..).zip([vec![start], events].concat()) {
            let row = RunHistoryRow {
                revision: revision.into(),
                write_id: write(revision),
                recorded_at: Timestamp(i64::from(revision) * 1_000_000),
                event,
            };
            run = Some(workflow::evolve(&id, run, &row).unwrap());
        }
        run.unwrap()
    }

    fn stands(status: Status) -> RunEvent {
        RunEvent::StatusChanged { status, reason: None }
    }

    #[test]
    fn a_run_keeps_its_effects_until_it_has_ended() {
        // OPS-1
        for status in Status::ALL {
            let wanted = if status.is_end() { Ok(()) } else { Err(Stays::OfARun) };
            let run = run_of(vec![stands(Status::Blocked), stands(status)]);
            assert_eq!(of_run(Some(&run)), wanted, "{status:?}");
        }
        assert_eq!(of_run(None), Ok(()), "one that was forgotten");
    }

    #[test]
    fn a_run_goes_that_ended_long_ago_and_of_which_nothing_is_open() {
        // OPS-14
        let (now, old) = (Timestamp(100_000_000), Duration::from_secs(97));
        let ended = run_of(vec![stands(Status::Failed)]);
        assert_eq!(run(&ended, Timestamp(98_999_999), old), Err(Stays::Young));
        assert_eq!(run(&ended, Timestamp(99_000_000), old), Ok(()));
        assert_eq!(run(&ended, Timestamp(0), Duration::ZERO), Err(Stays::Young));
        assert_eq!(run(&run_of(vec![]), now, Duration::ZERO), Err(Stays::OfARun));
        let open = RunEvent::NodeDispatched {
            node: Name::new("a").unwrap(),
            key: Key::new("r/a").unwrap(),
            attempt: 1,
            fingerprint: Fingerprint([0; 32]),
            expect: Expected::NoStream,
            due: Timestamp(0),
            why: DispatchedWhy::First,
        };
        let ended = run_of(vec![open, stands(Status::Failed)]);
        assert_eq!(run(&ended, now, Duration::ZERO), Err(Stays::Unsettled));
    }
}
