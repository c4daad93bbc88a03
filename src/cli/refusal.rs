//! A refusal by the engine, told to a person: what stands in the way, that nothing was done, and what
//! to type next.
use ctrlrun::plan::effect::{Cause, FailedBy, HistoryRow, RanOn, Record, Refusal, Request, State};
use ctrlrun::plan::expect::{Conflict, StreamState};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::{Answered, Done};
use ctrlrun::plan::time::Timestamp;

use super::access::no_such_effect;
use super::error::{CliError, Deed, Hint, Kind};
use super::render::event::{began, program};
use super::render::next::{decide, look, reopen};
use super::render::state::{glossed, why};
use super::render::text::{age, clean, count, span};
use super::which::Place;

/// What was refused.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    /// The effect.
    pub key: &'a Key,
    /// The store.
    pub place: &'a Place,
    /// What was about to be done.
    pub deed: Deed,
    /// The record that was found.
    pub record: Option<&'a Record>,
    /// The store's clock.
    pub now: Timestamp,
    /// The `began` event of the current attempt, if it began and was looked for.
    pub began: Option<&'a HistoryRow>,
    /// The request that was made, to say how it differs.
    pub request: Option<&'a Request>,
}

/// The answer of a command to the store, where there is one.
///
/// # Errors
/// What the store could not do, or a write whose end is unknown.
pub fn answered(done: Done, place: &Place, deed: Deed) -> Result<Box<Answered>, CliError> {
    match done {
        Done::Answered(answered) => Ok(answered),
        Done::CouldNot(error) => Err(CliError::could_not(&error, place, deed)),
        Done::Unknown(error) => Err(CliError::unknown(&error, place, deed)),
    }
}

impl Refused<'_> {
    /// The error of a refusal. Which code it has is decided by its kind alone (CLI-3).
    #[must_use]
    pub fn error(&self, refusal: Refusal) -> CliError {
        match refusal {
            Refusal::Expectation(conflict) => self.conflict(conflict),
            Refusal::Mismatch => self.mismatch(),
            Refusal::InProgress => {
                let error = self.with(Kind::InProgress, &self.live());
                error.tell("wait for it", "--wait 10m").tell("succeed quietly", "--on-running skip")
            }
            Refusal::TooLate => self.with(
                Kind::InProgress,
                "its lease ended before it could be begun; it may run again",
            ),
            Refusal::NotOurs => {
                self.with(Kind::InProgress, "the attempt is no longer ours").hint(self.look())
            }
            Refusal::Ambiguous => self.ambiguous(),
            Refusal::MaxAttempts => {
                let made = self
                    .record
                    .map_or(0, |record| record.attempt.saturating_sub(record.first_attempt) + 1);
                let words =
                    format!("{} made already: no more by --max-attempts", count(made, "attempt"));
                self.with(Kind::MaxAttempts, &words).hint(self.look())
            }
            Refusal::Live => self.with(Kind::InProgress, &self.live()).hint(self.look()),
            Refusal::SettledOtherwise => self.settled(),
            Refusal::NoSuchEffect => no_such_effect(self.key, self.place),
        }
    }

    fn with(&self, kind: Kind, words: &str) -> CliError {
        let key = clean(self.key.as_str());
        CliError::new(
            kind,
            match self.deed {
                Deed::Run => format!("{key}: refused, nothing was run: {words}"),
                Deed::Change => format!("{key}: not changed: {words}"),
                Deed::Look => format!("{key}: {words}"),
            },
        )
    }

    fn look(&self) -> Hint {
        look(self.key.as_str(), self.place)
    }

    fn conflict(&self, conflict: Conflict) -> CliError {
        let actual = match conflict.actual {
            Some(revision) => format!("it is at revision {revision}"),
            None => "there is no such effect".to_owned(),
        };
        let words = match conflict.expected {
            StreamState::NoStream => format!("a new effect was expected, and {actual}"),
            StreamState::StreamExists => format!("an effect was expected, and {actual}"),
            StreamState::Revision(revision) if self.deed == Deed::Change => {
                format!("you looked at revision {revision}, {actual} now")
            }
            StreamState::Revision(revision) => {
                format!("revision {revision} was expected, and {actual}")
            }
            StreamState::Any => actual,
        };
        self.with(Kind::RevisionConflict, &words).hint(self.look())
    }

    fn mismatch(&self) -> CliError {
        let words = "this key is bound to another command";
        let error = match self.record {
            Some(record) => {
                let bound = &record.request;
                let differs = self.request.map(|asked| difference(bound, asked));
                let differs = differs.map_or_else(String::new, |text| format!("; {text}"));
                let bound = program(&bound.program, bound.arguments);
                self.with(Kind::Mismatch, &format!("{words} ({bound}{differs})"))
            }
            None => self.with(Kind::Mismatch, words),
        };
        let error = error.hint(self.look());
        let by_resolution = matches!(
            self.record.map(|record| record.state),
            Some(State::Failed { by: FailedBy::Person | FailedBy::Probe })
        );
        if by_resolution { error.tell("if the other command is meant", "--rebind") } else { error }
    }

    fn ambiguous(&self) -> CliError {
        let Some(record) = self.record else {
            return self.with(Kind::Ambiguous, "AMBIGUOUS");
        };
        let key = clean(self.key.as_str());
        let lapsed = matches!(record.state, State::Ambiguous { cause: Cause::Lapsed, .. });
        let told = match (lapsed, self.began) {
            (true, None) => {
                "its lease ended before it was begun: nothing ever ran in this attempt".to_owned()
            }
            (true, Some(_)) => {
                "its lease ended and nobody has reported; the old process may still be running"
                    .to_owned()
            }
            (false, _) => why(record, self.now),
        };
        let undone = match self.deed.undone() {
            "" => String::new(),
            undone => format!("; {undone}"),
        };
        let message = format!(
            "{key}: {} since {}, attempt {}{undone}: {told}",
            glossed(record, self.now),
            age(self.now.since(record.updated_at)),
            record.attempt
        );
        CliError::new(Kind::Ambiguous, message).hint(self.look()).hints(decide(record, self.place))
    }

    fn settled(&self) -> CliError {
        let Some(record) = self.record else {
            return self.with(Kind::Settled, "it is settled already");
        };
        let words =
            format!("it is {} already: {}", glossed(record, self.now), why(record, self.now));
        self.with(Kind::Settled, &words).hint(self.look()).hint(reopen(record, self.place))
    }

    /// `attempt 1 is running since 40 s (web-17, pid 4121); its lease ends in 4 m 20 s`
    fn live(&self) -> String {
        let Some(record) = self.record else {
            return "another attempt holds the key".to_owned();
        };
        let ends = record
            .lease_expires_at()
            .map(|end| format!("; its lease ends in {}", span(end.since(self.now))))
            .unwrap_or_default();
        let attempt = record.attempt;
        match self.began_here() {
            Some((at, on)) => format!(
                "attempt {attempt} is running since {} ({}, pid {}){ends}",
                span(self.now.since(at)),
                clean(&on.host),
                on.pid
            ),
            None if matches!(record.state, State::Reserved { .. }) => {
                format!("attempt {attempt} is about to start{ends}")
            }
            None => format!("attempt {attempt} is running{ends}"),
        }
    }

    fn began_here(&self) -> Option<(Timestamp, &RanOn)> {
        let row = self.began?;
        began(row).map(|began| (row.recorded_at, &began.ran_on))
    }
}

/// ` (web-17, pid 4121)`, or nothing where it is not known.
#[must_use]
pub fn ran_on(row: Option<&HistoryRow>) -> String {
    match row.and_then(began) {
        Some(began) => format!(" ({}, pid {})", clean(&began.ran_on.host), began.ran_on.pid),
        None => String::new(),
    }
}

/// What is known of how two requests differ; never a value (CLI-14).
fn difference(bound: &Request, asked: &Request) -> String {
    if bound.program != asked.program {
        format!("this is {}", clean(&asked.program))
    } else if bound.arguments != asked.arguments {
        format!("this has {}", count(asked.arguments.into(), "argument"))
    } else {
        "a value differs".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_program_or_count_and_never_a_value() {
        // CLI-14
        let request = |program: &str, arguments| Request {
            fingerprint: ctrlrun::plan::key::Fingerprint([0; 32]),
            program: program.to_owned(),
            arguments,
            command: None,
        };
        let bound = request("echo", 1);
        assert_eq!(difference(&bound, &request("printf", 1)), "this is printf");
        assert_eq!(difference(&bound, &request("echo", 2)), "this has 2 arguments");
        assert_eq!(difference(&bound, &request("echo", 1)), "a value differs");
    }
}
