//! What each command may do to an effect, cell by cell (the tables of spec/effects.md).
//!
//! Every match over states is exhaustive, without a catch-all: a new state is a compile error in
//! every cell that has not thought of it.
use super::{
    Ambiguated, Answer, Began, Begin, Cause, Command, Committed, Decision, Ending, Event, Failed,
    FailedBy, Holder, LateOutcome, LeaseRenewed, Probe, ProbeAnswer, Probed, Record, Refusal,
    Reopened, Reserve, Reserved, Resolve, Resolved, Settle, State, Verdict, WriteId,
};
use crate::plan::expect::{Conflict, StreamState};
use crate::plan::protocol::Found;

/// Decides `command` on what was `found`.
///
/// `maybe_written` are the `write_id`s of earlier appends of this same command whose end was
/// unknown: a reservation that carries one of them is the caller's own, landed unseen.
pub fn decide(found: &Found, command: &Command, maybe_written: &[WriteId]) -> Decision {
    match command {
        Command::Reserve(reserve) => decide_reserve(found, reserve, maybe_written),
        Command::Begin(begin) => decide_begin(found, begin),
        Command::Renew { holder, lease } => match &found.record {
            Some(record) if executing(record) && record.is_held_by(*holder) => {
                let lease_expires_at = found.now.plus(*lease);
                append(
                    vec![Event::LeaseRenewed(LeaseRenewed { lease_expires_at })],
                    Answer::Renewed { lease_expires_at },
                )
            }
            Some(_) | None => nothing(Answer::Lost),
        },
        Command::Settle(settle) => decide_settle(found, settle),
        Command::Resolve(resolve) => decide_resolve(found, resolve),
        Command::Reopen { by, reason, looked_at } => decide_reopen(found, by, reason, *looked_at),
        Command::Contend => match &found.record {
            Some(record) if record.is_lapsed(found.now) => {
                append(vec![lapsed()], Answer::Contended)
            }
            Some(_) | None => nothing(Answer::Nothing),
        },
        Command::Probed(probe) => decide_probed(found, probe),
    }
}

fn decide_reserve(found: &Found, reserve: &Reserve, maybe_written: &[WriteId]) -> Decision {
    let Some(record) = &found.record else {
        return grant(found, reserve, found.attempt_floor.saturating_add(1));
    };
    let differs = record.request.fingerprint != reserve.request.fingerprint;
    let refuse_by = |refusal| refused(if differs { Refusal::Mismatch } else { refusal });
    match record.state {
        State::Reserved { .. } if maybe_written.contains(&record.reservation_id) => {
            nothing(Answer::Granted)
        }
        State::Reserved { .. } | State::Executing { .. } if record.is_lapsed(found.now) => {
            // Evidence is kept before anybody is refused.
            let refusal = if differs { Refusal::Mismatch } else { Refusal::Ambiguous };
            append(vec![lapsed()], Answer::Refused(refusal))
        }
        State::Reserved { .. } | State::Executing { .. } => refuse_by(Refusal::InProgress),
        State::Committed { .. } if differs => refused(Refusal::Mismatch),
        State::Committed { .. } => nothing(Answer::CommittedAlready),
        State::Ambiguous { .. } => refuse_by(Refusal::Ambiguous),
        State::Failed { by: FailedBy::Person | FailedBy::Probe } if differs && !reserve.rebind => {
            refused(Refusal::Mismatch)
        }
        State::Failed { .. } => {
            let attempt = record.attempt.saturating_add(1);
            let made = attempt.saturating_sub(record.first_attempt) + 1;
            if reserve.max_attempts.is_some_and(|most| made > most) {
                return refused(Refusal::MaxAttempts);
            }
            grant(found, reserve, attempt)
        }
    }
}

fn grant(found: &Found, reserve: &Reserve, attempt: u64) -> Decision {
    append(
        vec![Event::Reserved(Reserved {
            attempt,
            attempt_id: reserve.attempt_id.clone(),
            request: reserve.request.clone(),
            lease_expires_at: found.now.plus(reserve.lease),
            run_id: reserve.run_id.clone(),
        })],
        Answer::Granted,
    )
}

fn decide_begin(found: &Found, begin: &Begin) -> Decision {
    let Some(record) = &found.record else {
        return refused(Refusal::NotOurs);
    };
    let ours = record.is_held_by(begin.holder);
    match record.state {
        State::Reserved { .. } if !ours => refused(Refusal::NotOurs),
        State::Reserved { .. } if record.in_doubt => {
            // Somebody's late word says that an earlier attempt may have happened.
            append(vec![late_doubt()], Answer::Refused(Refusal::Ambiguous))
        }
        State::Reserved { .. } if record.is_lapsed(found.now) => append(
            vec![never_started(record, "its reservation had lapsed before it could begin")],
            Answer::Refused(Refusal::TooLate),
        ),
        State::Reserved { .. } => append(
            vec![Event::Began(Began {
                lease_expires_at: found.now.plus(begin.lease),
                ran_on: begin.ran_on.clone(),
                labels: begin.labels.clone(),
            })],
            Answer::Start,
        ),
        State::Executing { .. } if !ours => refused(Refusal::NotOurs),
        State::Executing { .. } if record.is_lapsed(found.now) => append(
            vec![never_started(record, "its lease had lapsed before it could start")],
            Answer::Refused(Refusal::TooLate),
        ),
        State::Executing { .. } if record.in_doubt => append(
            vec![never_started(
                record,
                "an earlier attempt was found to be in doubt before it could start",
            )],
            Answer::Refused(Refusal::NotOurs),
        ),
        State::Executing { .. } if began_by(found, begin.holder) => nothing(Answer::Start),
        State::Executing { .. } => append(
            vec![never_started(record, "its begin is not in the history")],
            Answer::Refused(Refusal::NotOurs),
        ),
        State::Ambiguous { .. } => refused(Refusal::Ambiguous),
        State::Committed { .. } | State::Failed { .. } => refused(Refusal::NotOurs),
    }
}

fn began_by(found: &Found, holder: Holder) -> bool {
    // Ours is the record, so its attempt has no other reservation, and the event no other holder.
    found
        .event
        .as_ref()
        .is_some_and(|row| matches!(row.event, Event::Began(_)) && row.attempt == holder.attempt)
}

fn decide_settle(found: &Found, settle: &Settle) -> Decision {
    let Some(record) = &found.record else {
        // Forgotten: a late word creates nothing.
        return nothing(Answer::Forgotten);
    };
    if found.event.as_ref().is_some_and(|row| row.outcome_id == Some(settle.outcome_id)) {
        return nothing(Answer::Delivered);
    }
    let ours = record.is_held_by(settle.holder);
    match record.state {
        State::Reserved { .. } | State::Executing { .. } if ours => settle_ours(record, settle),
        State::Reserved { .. } | State::Executing { .. } => {
            late(settle, settle.verdict.may_have_happened(), None)
        }
        State::Ambiguous { .. } => late(settle, settle.verdict.may_have_happened(), None),
        State::Failed { .. } if settle.verdict.may_have_happened() => {
            late(settle, true, Some(late_doubt()))
        }
        State::Failed { .. } => late(settle, false, None),
        // Evidence; `show` names a contradiction.
        State::Committed { .. } => late(settle, false, None),
    }
}

fn settle_ours(record: &Record, settle: &Settle) -> Decision {
    let event = outcome(record, settle.verdict, settle.ending.clone());
    append(vec![event], Answer::Settled)
}

/// What a holder's word makes of the record that it holds. In doubt nothing ends FAILED.
fn outcome(record: &Record, word: Verdict, ending: Ending) -> Event {
    match word {
        Verdict::Committed => Event::Committed(Committed { ending }),
        Verdict::Failed | Verdict::NeverStarted if record.in_doubt => {
            Event::Ambiguated(Ambiguated {
                cause: Cause::LateOutcome,
                reaped: false,
                ending: Some(ending),
            })
        }
        Verdict::Failed => Event::Failed(Failed { by: FailedBy::OwnWord, ending }),
        Verdict::NeverStarted => Event::Failed(Failed { by: FailedBy::NeverStarted, ending }),
        Verdict::Ambiguous { cause, reaped } => {
            Event::Ambiguated(Ambiguated { cause, reaped, ending: Some(ending) })
        }
    }
}

fn late(settle: &Settle, doubt: bool, then: Option<Event>) -> Decision {
    let mut events = vec![Event::LateOutcome(LateOutcome {
        attempt: settle.holder.attempt,
        reservation_id: settle.holder.reservation_id,
        word: settle.verdict,
        doubt,
        ending: settle.ending.clone(),
    })];
    events.extend(then);
    append(events, Answer::KeptAsLate)
}

fn decide_resolve(found: &Found, resolve: &Resolve) -> Decision {
    let Some(record) = &found.record else {
        return refused(Refusal::NoSuchEffect);
    };
    if resolve.decision == ProbeAnswer::Unknown {
        // It decides nothing; were it written, it would clear the doubt.
        return nothing(Answer::Nothing);
    }
    if was(found, |event| {
        matches!(event, Event::Resolved(last) if !last.probe
            && last.decision == resolve.decision
            && last.by == resolve.by
            && last.looked_at == resolve.looked_at)
    }) {
        return nothing(Answer::AlreadySo);
    }
    if let Err(conflict) = looked_at(record, resolve.looked_at) {
        return refused(conflict);
    }
    let decided = Event::Resolved(Resolved {
        decision: resolve.decision,
        by: resolve.by.clone(),
        reason: resolve.reason.clone(),
        probe: false,
        looked_at: resolve.looked_at,
    });
    match record.state {
        State::Ambiguous { .. } => append(vec![decided], Answer::Resolved),
        State::Reserved { .. } | State::Executing { .. } if record.is_lapsed(found.now) => {
            append(vec![lapsed(), decided], Answer::Resolved)
        }
        State::Reserved { .. } | State::Executing { .. } => refused(Refusal::Live),
        State::Committed { .. } | State::Failed { .. } => refused(Refusal::SettledOtherwise),
    }
}

fn decide_reopen(found: &Found, by: &str, reason: &str, at: u64) -> Decision {
    let Some(record) = &found.record else {
        return refused(Refusal::NoSuchEffect);
    };
    if was(
        found,
        |event| matches!(event, Event::Reopened(last) if last.by == by && last.looked_at == at),
    ) {
        return nothing(Answer::AlreadySo);
    }
    if let Err(conflict) = looked_at(record, at) {
        return refused(conflict);
    }
    let reopened =
        Event::Reopened(Reopened { by: by.to_owned(), reason: reason.to_owned(), looked_at: at });
    match record.state {
        State::Ambiguous { .. } => nothing(Answer::AlreadySo),
        State::Committed { .. } | State::Failed { .. } => append(vec![reopened], Answer::Resolved),
        State::Reserved { .. } | State::Executing { .. } if record.is_lapsed(found.now) => {
            append(vec![lapsed()], Answer::Resolved)
        }
        State::Reserved { .. } | State::Executing { .. } => refused(Refusal::Live),
    }
}

fn decide_probed(found: &Found, probe: &Probe) -> Decision {
    let Some(record) = &found.record else {
        return nothing(Answer::Nothing);
    };
    let State::Ambiguous { cause, reaped } = record.state else {
        return nothing(Answer::Nothing);
    };
    if record.revision != probe.looked_at {
        // It moved while the probe ran: what it saw may not be of this doubt.
        return nothing(Answer::Nothing);
    }
    let probed = Event::Probed(Probed { answer: probe.answer, by: probe.by.clone() });
    let resolved = Event::Resolved(Resolved {
        decision: probe.answer,
        by: probe.by.clone(),
        reason: "the probe's answer".to_owned(),
        probe: true,
        looked_at: probe.looked_at,
    });
    match probe.answer {
        ProbeAnswer::Committed => append(vec![probed, resolved], Answer::Resolved),
        ProbeAnswer::NotExecuted if frees(record, cause, reaped, probe) => {
            append(vec![probed, resolved], Answer::Resolved)
        }
        ProbeAnswer::NotExecuted if was(found, |event| *event == probed) => {
            nothing(Answer::ProbeKept)
        }
        ProbeAnswer::NotExecuted => append(vec![probed], Answer::ProbeKept),
        ProbeAnswer::Unknown => nothing(Answer::Nothing),
    }
}

/// Whether a probe's "not executed", which means "not so far", may free the key.
fn frees(record: &Record, cause: Cause, reaped: bool, probe: &Probe) -> bool {
    let about_this_attempt = match cause {
        Cause::LateOutcome | Cause::Reopened => false,
        Cause::Lapsed | Cause::Exit | Cause::Signal | Cause::Timeout | Cause::Contradiction => true,
    };
    about_this_attempt && !record.in_doubt && (reaped || probe.reconcile_final)
}

/// Whether the event that was asked for is there, and such a one.
fn was(found: &Found, such: impl Fn(&Event) -> bool) -> bool {
    found.event.as_ref().is_some_and(|row| such(&row.event))
}

fn looked_at(record: &Record, at: u64) -> Result<(), Refusal> {
    StreamState::Revision(at)
        .check(Some(record.revision))
        .map_err(|conflict: Conflict| Refusal::Expectation(conflict))
}

fn executing(record: &Record) -> bool {
    match record.state {
        State::Executing { .. } => true,
        State::Reserved { .. }
        | State::Committed { .. }
        | State::Failed { .. }
        | State::Ambiguous { .. } => false,
    }
}

fn lapsed() -> Event {
    Event::Ambiguated(Ambiguated { cause: Cause::Lapsed, reaped: false, ending: None })
}

fn late_doubt() -> Event {
    Event::Ambiguated(Ambiguated { cause: Cause::LateOutcome, reaped: false, ending: None })
}

fn never_started(record: &Record, why: &str) -> Event {
    let ending = Ending { exit_code: None, signal: None, detail: why.to_owned() };
    outcome(record, Verdict::NeverStarted, ending)
}

fn append(events: Vec<Event>, answer: Answer) -> Decision {
    Decision { events, answer }
}

fn nothing(answer: Answer) -> Decision {
    Decision { events: Vec::new(), answer }
}

fn refused(refusal: Refusal) -> Decision {
    nothing(Answer::Refused(refusal))
}
