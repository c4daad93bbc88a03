//! An event of a history, in words and in JSON (HIS-7).
use ctrlrun::plan::effect::{
    Began, Cause, Event, FailedBy, HistoryRow, LateOutcome, ProbeAnswer, Verdict,
};

use ctrlrun::plan::time::Timestamp;

use super::text::{clean, rfc3339, safe_json};

/// The `began` event that a row is, if it is one.
#[must_use]
pub fn began(row: &HistoryRow) -> Option<&Began> {
    if let Event::Began(began) = &row.event { Some(began) } else { None }
}

/// The `late_outcome` event that a row is, if it is one.
#[must_use]
pub fn late(row: &HistoryRow) -> Option<&LateOutcome> {
    if let Event::LateOutcome(late) = &row.event { Some(late) } else { None }
}

/// The object of one event, as one line.
#[must_use]
pub fn line(row: &HistoryRow) -> String {
    let line = format!(
        "{{\"revision\":{},\"type\":\"{}\",\"recorded_at\":\"{}\",\"attempt\":{},\"data\":{}}}",
        row.revision,
        row.event.kind(),
        rfc3339(row.recorded_at),
        row.attempt,
        data(row)
    );
    safe_json(&line)
}

/// An event's data, with its time as all times are told (CLI-6).
fn data(row: &HistoryRow) -> String {
    let stored = row.event.data();
    let Ok(serde_json::Value::Object(mut fields)) = serde_json::from_str(&stored) else {
        return stored;
    };
    if let Some(lease) = fields.get_mut("lease_expires_at")
        && let Some(micros) = lease.as_i64()
    {
        *lease = rfc3339(Timestamp(micros)).into();
    }
    serde_json::Value::Object(fields).to_string()
}

/// What it made of the record, in a word: `AMBIGUOUS`, `late word`.
#[must_use]
pub fn what(event: &Event) -> &'static str {
    match event {
        Event::Reserved(_) => "RESERVED",
        Event::Began(_) => "EXECUTING",
        Event::LeaseRenewed(_) => "renewed",
        Event::Committed(_) => "COMMITTED",
        Event::Failed(_) => "FAILED",
        Event::Ambiguated(_) | Event::Reopened(_) => "AMBIGUOUS",
        Event::LateOutcome(_) => "late word",
        Event::Probed(_) => "probed",
        Event::Resolved(event) => match event.decision {
            ProbeAnswer::Committed => "COMMITTED",
            ProbeAnswer::NotExecuted => "FAILED",
            ProbeAnswer::Unknown => "resolved",
        },
    }
}

/// How it came about, in one line of safe text.
#[must_use]
pub fn how(event: &Event) -> String {
    match event {
        Event::Reserved(event) => format!(
            "attempt {}: {}",
            event.attempt,
            program(&event.request.program, event.request.arguments)
        ),
        Event::Began(event) => format!(
            "on {} as {}, pid {}",
            clean(&event.ran_on.host),
            clean(&event.ran_on.user),
            event.ran_on.pid
        ),
        Event::LeaseRenewed(_) => "the holder is alive".to_owned(),
        Event::Committed(event) => clean(&event.ending.detail).into_owned(),
        Event::Failed(event) => match event.by {
            FailedBy::NeverStarted => {
                format!("never started: {}", clean(&event.ending.detail))
            }
            FailedBy::OwnWord | FailedBy::Person | FailedBy::Probe => {
                clean(&event.ending.detail).into_owned()
            }
        },
        Event::Ambiguated(event) => match (&event.ending, event.cause) {
            (Some(ending), _) => clean(&ending.detail).into_owned(),
            (None, Cause::Lapsed) => "its lease had ended".to_owned(),
            (None, Cause::LateOutcome) => {
                "a word that came late says it may have happened".to_owned()
            }
            (None, Cause::Reopened) => "reopened".to_owned(),
            (None, Cause::Exit | Cause::Signal | Cause::Timeout | Cause::Contradiction) => {
                "its end is not known".to_owned()
            }
        },
        Event::LateOutcome(event) => late_word(event),
        Event::Probed(event) => format!("{} said {}", clean(&event.by), answer(event.answer)),
        Event::Resolved(event) => {
            format!("resolved by {}: \"{}\"", clean(&event.by), clean(&event.reason))
        }
        Event::Reopened(event) => {
            format!("reopened by {}: \"{}\"", clean(&event.by), clean(&event.reason))
        }
    }
}

/// `attempt 1 said later: it happened (exited 0)`
#[must_use]
pub fn late_word(event: &LateOutcome) -> String {
    let word = match event.word {
        Verdict::Committed => "it happened",
        Verdict::Failed => "it did not happen",
        Verdict::NeverStarted => "it was never started",
        Verdict::Ambiguous { .. } => "it may have happened",
    };
    format!("attempt {} said later: {word} ({})", event.attempt, clean(&event.ending.detail))
}

/// `refund.sh, 2 arguments`; what was not to be recorded has no name.
#[must_use]
pub fn program(name: &str, arguments: u32) -> String {
    if name.is_empty() {
        return "a command that is not recorded".to_owned();
    }
    let arguments = super::text::count(arguments.into(), "argument");
    format!("{}, {arguments}", clean(name))
}

fn answer(answer: ProbeAnswer) -> &'static str {
    match answer {
        ProbeAnswer::Committed => "committed",
        ProbeAnswer::NotExecuted => "not-executed",
        ProbeAnswer::Unknown => "nothing it could be sure of",
    }
}
