//! The JSON object of a record (CLI-17): of `show`, of each line of `effects`, and, with more
//! fields, of a report.
use ctrlrun::plan::effect::{Labels, RanOn, State};
use ctrlrun::plan::key::{Fingerprint, idempotency_key};
use ctrlrun::store::Shown;
use serde::Serialize;
use uuid::Uuid;

use super::event::began;
use super::next::next;
use super::text::{rfc3339, safe_json};
use crate::cli::which::Place;

/// See the module.
#[derive(Debug, Serialize)]
pub struct Object<'a> {
    key: &'a str,
    state: &'static str,
    revision: u64,
    attempt: u64,
    attempt_id: &'a str,
    lease_expires_at: Option<String>,
    lease_lapsed: bool,
    cause: Option<&'static str>,
    in_doubt: bool,
    program: &'a str,
    arguments: u32,
    command: Option<&'a [String]>,
    fingerprint: Fingerprint,
    idempotency_key: Uuid,
    exit_code: Option<i32>,
    signal: Option<i32>,
    detail: Option<&'a str>,
    stdout_bytes: u64,
    stdout_truncated: bool,
    stderr_bytes: u64,
    stderr_truncated: bool,
    resolved_by: Option<&'a str>,
    reason: Option<&'a str>,
    ran_on: Option<&'a RanOn>,
    labels: Labels,
    created_at: String,
    updated_at: String,
    store: String,
    next: Vec<String>,
}

impl<'a> Object<'a> {
    /// The object of what was read from the store at `place`.
    #[must_use]
    pub fn of(shown: &'a Shown, place: &Place) -> Self {
        let record = &shown.record;
        let ending = record.ending.as_ref();
        let resolution = record.resolution.as_ref();
        let began = shown.began.as_ref().and_then(began);
        let cause = if let State::Ambiguous { cause: why, .. } = record.state {
            Some(why.name())
        } else {
            None
        };
        Self {
            key: record.key.as_str(),
            state: record.state.name(),
            revision: record.revision,
            attempt: record.attempt,
            attempt_id: &record.attempt_id,
            lease_expires_at: record.lease_expires_at().map(rfc3339),
            lease_lapsed: record.is_lapsed(shown.now),
            cause,
            in_doubt: record.in_doubt,
            program: &record.request.program,
            arguments: record.request.arguments,
            command: record.request.command.as_deref(),
            fingerprint: record.request.fingerprint,
            idempotency_key: idempotency_key(&record.key, record.proven_failures),
            exit_code: ending.and_then(|ending| ending.exit_code),
            signal: ending.and_then(|ending| ending.signal),
            detail: ending.map(|ending| ending.detail.as_str()),
            stdout_bytes: shown.stdout.bytes,
            stdout_truncated: shown.stdout.truncated,
            stderr_bytes: shown.stderr.bytes,
            stderr_truncated: shown.stderr.truncated,
            resolved_by: resolution.map(|resolution| resolution.by.as_str()),
            reason: resolution.map(|resolution| resolution.reason.as_str()),
            ran_on: began.map(|began| &began.ran_on),
            labels: began.map(|began| began.labels.clone()).unwrap_or_default(),
            created_at: rfc3339(record.created_at),
            updated_at: rfc3339(record.updated_at),
            store: place.location.to_string(),
            next: next(record, shown.now, place).into_iter().map(|hint| hint.text).collect(),
        }
    }

    /// As one line.
    #[must_use]
    pub fn line(&self) -> String {
        #[expect(
            clippy::expect_used,
            reason = "a plain struct of strings and numbers always serialises"
        )]
        let line = serde_json::to_string(self).expect("a record's object serialises");
        safe_json(&line)
    }
}
