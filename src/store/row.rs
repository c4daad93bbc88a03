//! A record as flat columns, and back (EFF-2): the same on every store.
//!
//! The columns hold less than a [`Record`] says: the kinds of FAILED and COMMITTED are derived from
//! them (EFF-3). So a record that would come back as another is refused before it is written, and a
//! row that no record can be is a [`Malformed`] that stops only itself (STO-11).
use uuid::Uuid;

use crate::plan::effect::{
    Cause, CommittedBy, Ending, Event, FailedBy, HistoryRow, OutcomeId, Record, Request,
    Resolution, State, WriteId,
};
use crate::plan::key::{Fingerprint, Key};
use crate::plan::protocol::Stream;
use crate::plan::time::Timestamp;

/// What a probe's name begins with, and no person's (EFF-3).
pub const PROBE: &str = "reconcile:";

/// A stored value that this binary cannot read, or a record that cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {why}")]
pub struct Malformed {
    /// The column.
    pub column: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl Malformed {
    /// What is wrong with `column`.
    pub fn new(column: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { column, why }
    }
}

/// A record's columns, in the order of EFF-2. Times are microseconds since the Unix epoch, flags
/// are 0 or 1.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns of EFF-2, by their names there")]
pub struct Row {
    pub effect_key: String,
    pub record_version: i64,
    pub write_id: Uuid,
    pub reservation_id: Uuid,
    pub state: String,
    pub first_attempt: i64,
    pub attempt: i64,
    pub attempt_id: String,
    pub fingerprint: [u8; 32],
    pub program: String,
    pub arguments: i64,
    pub command: Option<String>,
    pub lease_expires_at: Option<i64>,
    pub cause: Option<String>,
    pub reaped: bool,
    pub in_doubt: bool,
    pub doubted: bool,
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub detail: Option<String>,
    pub resolved_by: Option<String>,
    pub reason: Option<String>,
    pub proven_failures: i64,
    pub run_id: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
}

impl Row {
    /// The columns of a record.
    ///
    /// # Errors
    /// [`Malformed`] for a record whose kind the columns would not tell (EFF-3): no command makes
    /// such a one.
    pub fn of(record: &Record) -> Result<Self, Malformed> {
        let ending = record.ending.as_ref();
        let resolution = record.resolution.as_ref();
        let row = Self {
            effect_key: record.key.as_str().to_owned(),
            record_version: integer("record_version", record.revision)?,
            write_id: record.write_id.0,
            reservation_id: record.reservation_id.0,
            state: record.state.name().to_owned(),
            first_attempt: integer("first_attempt", record.first_attempt)?,
            attempt: integer("attempt", record.attempt)?,
            attempt_id: record.attempt_id.clone(),
            fingerprint: record.request.fingerprint.0,
            program: record.request.program.clone(),
            arguments: i64::from(record.request.arguments),
            command: record.request.command.as_deref().map(words).transpose()?,
            lease_expires_at: record.lease_expires_at().map(|at| at.0),
            cause: cause_of(&record.state).map(|cause| cause.name().to_owned()),
            reaped: matches!(record.state, State::Ambiguous { reaped: true, .. }),
            in_doubt: record.in_doubt,
            doubted: record.doubted,
            exit_code: ending.and_then(|ending| ending.exit_code).map(i64::from),
            signal: ending.and_then(|ending| ending.signal).map(i64::from),
            detail: ending.map(|ending| ending.detail.clone()),
            resolved_by: resolution.map(|resolution| resolution.by.clone()),
            reason: resolution.map(|resolution| resolution.reason.clone()),
            proven_failures: integer("proven_failures", record.proven_failures)?,
            run_id: record.run_id.clone(),
            created_at: record.created_at.0,
            updated_at: record.updated_at.0,
        };
        if row.decided()? != record.state {
            return Err(Malformed::new(
                "state",
                format!(
                    "{:?} cannot be told from the other columns: {:?}, {:?}",
                    record.state, record.ending, record.resolution
                ),
            ));
        }
        Ok(row)
    }

    /// The record of these columns.
    ///
    /// # Errors
    /// [`Malformed`], with the first column that cannot be read.
    pub fn record(self) -> Result<Record, Malformed> {
        let state = self.decided()?;
        let key = Key::new(self.effect_key)
            .map_err(|error| Malformed::new("effect_key", error.to_string()))?;
        let number = |column, value: Option<i64>| {
            value.map(i32::try_from).transpose().map_err(|_| Malformed::new(column, "out of range"))
        };
        let exit_code = number("exit_code", self.exit_code)?;
        let signal = number("signal", self.signal)?;
        let ending = match self.detail {
            Some(detail) => Some(Ending { exit_code, signal, detail }),
            None if exit_code.or(signal).is_some() => {
                return Err(Malformed::new("detail", "null beside an exit code or signal"));
            }
            None => None,
        };
        let resolution = match (self.resolved_by, self.reason) {
            (Some(by), Some(reason)) => Some(Resolution { by, reason }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(Malformed::new("reason", "it and resolved_by go together"));
            }
        };
        let command = self
            .command
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|error| Malformed::new("command", error.to_string()))?;
        Ok(Record {
            key,
            revision: natural("record_version", self.record_version)?,
            write_id: WriteId(self.write_id),
            reservation_id: WriteId(self.reservation_id),
            state,
            first_attempt: natural("first_attempt", self.first_attempt)?,
            attempt: natural("attempt", self.attempt)?,
            attempt_id: self.attempt_id,
            request: Request {
                fingerprint: Fingerprint(self.fingerprint),
                program: self.program,
                arguments: u32::try_from(self.arguments)
                    .map_err(|_| Malformed::new("arguments", "out of range"))?,
                command,
            },
            in_doubt: self.in_doubt,
            doubted: self.doubted,
            proven_failures: natural("proven_failures", self.proven_failures)?,
            ending,
            resolution,
            run_id: self.run_id,
            created_at: Timestamp(self.created_at),
            updated_at: Timestamp(self.updated_at),
        })
    }

    /// The state, with its kind told from the other columns (EFF-3).
    fn decided(&self) -> Result<State, Malformed> {
        let lease = || {
            self.lease_expires_at
                .map(Timestamp)
                .ok_or_else(|| Malformed::new("lease_expires_at", "null in this state"))
        };
        let by_probe = self.resolved_by.as_ref().map(|by| by.starts_with(PROBE));
        let state = match self.state.as_str() {
            "reserved" => State::Reserved { lease_expires_at: lease()? },
            "executing" => State::Executing { lease_expires_at: lease()? },
            "committed" => State::Committed {
                by: match by_probe {
                    None => CommittedBy::OwnWord,
                    Some(false) => CommittedBy::Person,
                    Some(true) => CommittedBy::Probe,
                },
            },
            "failed" => State::Failed {
                by: match (by_probe, self.exit_code) {
                    (Some(false), _) => FailedBy::Person,
                    (Some(true), _) => FailedBy::Probe,
                    (None, Some(_)) => FailedBy::OwnWord,
                    (None, None) => FailedBy::NeverStarted,
                },
            },
            "ambiguous" => {
                State::Ambiguous { cause: cause(self.cause.as_deref())?, reaped: self.reaped }
            }
            other => return Err(Malformed::new("state", format!("{other:?} is none"))),
        };
        Ok(state)
    }
}

/// One event as flat columns; its key stands beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns of HIS-4, by their names there")]
pub struct EventRow {
    pub revision: i64,
    pub write_id: Uuid,
    pub outcome_id: Option<Uuid>,
    pub kind: String,
    pub attempt: i64,
    pub recorded_at: i64,
    pub data: String,
}

impl EventRow {
    /// The columns of an event.
    ///
    /// # Errors
    /// [`Malformed`] for a number beyond what a store can hold.
    pub fn of(row: &HistoryRow) -> Result<Self, Malformed> {
        Ok(Self {
            revision: integer("revision", row.revision)?,
            write_id: row.write_id.0,
            outcome_id: row.outcome_id.map(|id| id.0),
            kind: row.event.kind().to_owned(),
            attempt: integer("attempt", row.attempt)?,
            recorded_at: row.recorded_at.0,
            data: row.event.data(),
        })
    }

    /// The event of these columns.
    ///
    /// # Errors
    /// [`Malformed`], with the first column that cannot be read.
    pub fn event(self) -> Result<HistoryRow, Malformed> {
        Ok(HistoryRow {
            revision: natural("revision", self.revision)?,
            write_id: WriteId(self.write_id),
            outcome_id: self.outcome_id.map(OutcomeId),
            attempt: natural("attempt", self.attempt)?,
            recorded_at: Timestamp(self.recorded_at),
            event: Event::parse(&self.kind, &self.data)
                .map_err(|error| Malformed::new("data", error.to_string()))?,
        })
    }
}

/// The stream's stored name.
#[must_use]
pub fn stream_name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
        Stream::Stated => "stated",
    }
}

fn cause_of(state: &State) -> Option<Cause> {
    match state {
        State::Ambiguous { cause, .. } => Some(*cause),
        State::Reserved { .. }
        | State::Executing { .. }
        | State::Committed { .. }
        | State::Failed { .. } => None,
    }
}

fn cause(name: Option<&str>) -> Result<Cause, Malformed> {
    Ok(match name {
        Some("lapsed") => Cause::Lapsed,
        Some("exit") => Cause::Exit,
        Some("signal") => Cause::Signal,
        Some("timeout") => Cause::Timeout,
        Some("contradiction") => Cause::Contradiction,
        Some("late_outcome") => Cause::LateOutcome,
        Some("reopened") => Cause::Reopened,
        Some(other) => return Err(Malformed::new("cause", format!("{other:?} is none"))),
        None => return Err(Malformed::new("cause", "null in this state")),
    })
}

fn words(command: &[String]) -> Result<String, Malformed> {
    serde_json::to_string(command).map_err(|error| Malformed::new("command", error.to_string()))
}

/// A count as a store holds it.
///
/// # Errors
/// [`Malformed`] beyond the range of 64 bits with a sign.
pub fn integer(column: &'static str, value: u64) -> Result<i64, Malformed> {
    i64::try_from(value).map_err(|_| Malformed::new(column, "too large for a store"))
}

/// A count as it was stored.
///
/// # Errors
/// [`Malformed`] below zero.
pub fn natural(column: &'static str, value: i64) -> Result<u64, Malformed> {
    u64::try_from(value).map_err(|_| Malformed::new(column, "below zero"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(state: State) -> Record {
        Record {
            key: Key::new("k").unwrap(),
            revision: 3,
            write_id: WriteId(Uuid::from_u128(1)),
            reservation_id: WriteId(Uuid::from_u128(2)),
            state,
            first_attempt: 1,
            attempt: 2,
            attempt_id: "a".to_owned(),
            request: Request {
                fingerprint: Fingerprint([7; 32]),
                program: "refund.sh".to_owned(),
                arguments: 2,
                command: Some(vec!["a \"b\"".to_owned(), "\u{e9}".to_owned()]),
            },
            in_doubt: false,
            doubted: true,
            proven_failures: 1,
            ending: None,
            resolution: None,
            run_id: None,
            created_at: Timestamp(-1),
            updated_at: Timestamp(1_796_033_700_123_456),
        }
    }

    #[test]
    fn a_record_that_the_columns_cannot_tell_is_refused_before_it_is_written() {
        // EFF-3: each of these would come back as another kind.
        let mut by_person = record(State::Failed { by: FailedBy::Person });
        assert!(Row::of(&by_person).is_err(), "nobody is named");
        by_person.resolution =
            Some(Resolution { by: "reconcile:x".to_owned(), reason: "r".to_owned() });
        assert!(Row::of(&by_person).is_err(), "a probe is named");
        let mut never_started = record(State::Failed { by: FailedBy::NeverStarted });
        never_started.ending = Some(Ending { exit_code: Some(127), ..Ending::default() });
        assert!(Row::of(&never_started).is_err(), "it has an exit code");
        let own_word = record(State::Failed { by: FailedBy::OwnWord });
        assert!(Row::of(&own_word).is_err(), "it has none");
    }

    #[test]
    fn a_malformed_column_is_named() {
        // STO-11
        let good = Row::of(&record(State::Committed { by: CommittedBy::OwnWord })).unwrap();
        let column = |change: fn(&mut Row)| {
            let mut row = good.clone();
            change(&mut row);
            row.record().unwrap_err().column
        };
        assert_eq!(column(|row| row.state = "done".to_owned()), "state");
        assert_eq!(column(|row| row.state = "reserved".to_owned()), "lease_expires_at");
        assert_eq!(column(|row| row.state = "ambiguous".to_owned()), "cause");
        assert_eq!(column(|row| row.effect_key = " k".to_owned()), "effect_key");
        assert_eq!(column(|row| row.record_version = -1), "record_version");
        assert_eq!(column(|row| row.exit_code = Some(1)), "detail");
        assert_eq!(column(|row| row.reason = Some(String::new())), "reason");
        assert_eq!(column(|row| row.command = Some("x".to_owned())), "command");
        assert_eq!(column(|row| row.arguments = -1), "arguments");
    }
}
