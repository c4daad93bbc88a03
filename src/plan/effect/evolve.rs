//! The fold: what a record becomes by one event (HIS-1). Total, and deterministic: the same history
//! gives the same record on every host and in every version that knows its events.
use super::{
    Cause, CommittedBy, Event, FailedBy, HistoryRow, ProbeAnswer, Record, Resolution, State,
};
use crate::plan::key::Key;

/// Folds one event into the record; `None` is NEW.
///
/// # Errors
/// [`BadStart`] if the first event of a history is not `reserved`: no command writes such a one.
pub fn evolve(key: &Key, record: Option<Record>, row: &HistoryRow) -> Result<Record, BadStart> {
    let Some(mut next) = record else {
        return first(key, row);
    };
    next.revision = row.revision;
    next.write_id = row.write_id;
    next.updated_at = row.recorded_at;
    match &row.event {
        Event::Reserved(event) => {
            next.state = State::Reserved { lease_expires_at: event.lease_expires_at };
            next.reservation_id = row.write_id;
            next.attempt = event.attempt;
            next.attempt_id.clone_from(&event.attempt_id);
            next.request.clone_from(&event.request);
            next.run_id.clone_from(&event.run_id);
            next.ending = None;
            next.resolution = None;
        }
        Event::Began(event) => {
            next.state = State::Executing { lease_expires_at: event.lease_expires_at };
        }
        Event::LeaseRenewed(event) => {
            next.state = State::Executing { lease_expires_at: event.lease_expires_at };
        }
        Event::Committed(event) => {
            next.state = State::Committed { by: CommittedBy::OwnWord };
            next.ending = Some(event.ending.clone());
        }
        Event::Failed(event) => {
            next.state = State::Failed { by: event.by };
            next.ending = Some(event.ending.clone());
            if event.by == FailedBy::OwnWord && !next.doubted {
                next.proven_failures += 1;
            }
        }
        Event::Ambiguated(event) => {
            take_back_proof(&mut next);
            next.state = State::Ambiguous { cause: event.cause, reaped: event.reaped };
            next.doubted = true;
            if event.ending.is_some() {
                next.ending.clone_from(&event.ending);
            }
        }
        Event::LateOutcome(event) => next.in_doubt |= event.doubt,
        Event::Probed(_) => {}
        Event::Resolved(event) => {
            next.state = resolved(event.decision, event.probe, next.state);
            next.resolution =
                Some(Resolution { by: event.by.clone(), reason: event.reason.clone() });
            // Only a person clears the doubt.
            next.in_doubt &= event.probe;
        }
        Event::Reopened(event) => {
            take_back_proof(&mut next);
            next.state = State::Ambiguous { cause: Cause::Reopened, reaped: false };
            next.doubted = true;
            next.resolution =
                Some(Resolution { by: event.by.clone(), reason: event.reason.clone() });
        }
    }
    Ok(next)
}

/// A history whose first event is not `reserved`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a history begins with `reserved`, not with `{0}`")]
pub struct BadStart(pub &'static str);

fn first(key: &Key, row: &HistoryRow) -> Result<Record, BadStart> {
    let Event::Reserved(event) = &row.event else {
        return Err(BadStart(row.event.kind()));
    };
    Ok(Record {
        key: key.clone(),
        revision: row.revision,
        write_id: row.write_id,
        reservation_id: row.write_id,
        state: State::Reserved { lease_expires_at: event.lease_expires_at },
        first_attempt: event.attempt,
        attempt: event.attempt,
        attempt_id: event.attempt_id.clone(),
        request: event.request.clone(),
        in_doubt: false,
        doubted: false,
        proven_failures: 0,
        ending: None,
        resolution: None,
        run_id: event.run_id.clone(),
        created_at: row.recorded_at,
        updated_at: row.recorded_at,
    })
}

fn resolved(decision: ProbeAnswer, by_probe: bool, before: State) -> State {
    match (decision, by_probe) {
        (ProbeAnswer::Committed, false) => State::Committed { by: CommittedBy::Person },
        (ProbeAnswer::Committed, true) => State::Committed { by: CommittedBy::Probe },
        (ProbeAnswer::NotExecuted, false) => State::Failed { by: FailedBy::Person },
        (ProbeAnswer::NotExecuted, true) => State::Failed { by: FailedBy::Probe },
        // Never written; were it there, "unknown" decides nothing.
        (ProbeAnswer::Unknown, _) => before,
    }
}

/// An attempt that was proven not to have happened, and is doubtful after all, carried the
/// idempotency key of the proofs before it: so must every attempt that could repeat it.
fn take_back_proof(record: &mut Record) {
    let own_word = record.state == State::Failed { by: FailedBy::OwnWord };
    if own_word && !record.doubted {
        record.proven_failures = record.proven_failures.saturating_sub(1);
    }
}
