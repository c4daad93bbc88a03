//! A refusal by the engine, told to a person: what stands in the way, that nothing was done, and what
//! to type next.
use ctrlrun::plan::effect::{Cause, FailedBy, HistoryRow, RanOn, Record, Refusal, Request, State};
use ctrlrun::plan::expect::{Conflict, StreamState};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::{Answered, Done};
use ctrlrun::plan::time::Timestamp;
use ctrlrun::store::Shown;

use super::access::no_such_effect;
use super::error::{CliError, Deed, Hint, Kind};
use super::render::event::{began, program};
use super::render::next::{decide, look, reopen};
use super::render::state::{glossed, why};
use super::render::text::{age, clean, count, span};
use super::which::Place;

/// What is known of the start of the record's current attempt. "It never began" frees a person to say
/// that nothing happened, so it is told only by whoever looked.
#[derive(Debug, Clone, Copy)]
pub enum Started<'a> {
    /// Nobody looked.
    Unknown,
    /// It was looked for, and it never began.
    Never,
    /// Its `began` event.
    At(&'a HistoryRow),
}

impl<'a> Started<'a> {
    /// What `shown` knows of the attempt that `record` stands at.
    #[must_use]
    pub fn of(shown: Option<&'a Shown>, record: Option<&Record>) -> Self {
        match (shown, record) {
            // The record may have moved on since it was shown.
            (Some(shown), Some(record))
                if shown.record.attempt == record.attempt
                    && shown.record.reservation_id == record.reservation_id =>
            {
                match &shown.began {
                    Some(row) => Self::At(row),
                    None if shown.record.revision == record.revision => Self::Never,
                    // It may have begun since.
                    None => Self::Unknown,
                }
            }
            (Some(_) | None, Some(_) | None) => Self::Unknown,
        }
    }
}

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
    /// Whether and where the current attempt began.
    pub started: Started<'a>,
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
        let told = match self.started {
            // With a doubt from outside, an earlier attempt may have happened: that comes first.
            Started::Never if lapsed && !record.in_doubt => {
                "its lease ended before it was begun: nothing ever ran in this attempt".to_owned()
            }
            Started::At(_) if lapsed => {
                "its lease ended and nobody has reported; the old process may still be running"
                    .to_owned()
            }
            Started::Unknown | Started::Never | Started::At(_) => why(record, self.now),
        };
        let undone = match self.deed.undone() {
            "" => String::new(),
            undone => format!("; {undone}"),
        };
        let message = format!(
            "{key}: {} for {}, attempt {}{undone}: {told}",
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
                "attempt {attempt} has been running for {} ({}, pid {}){ends}",
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
        let Started::At(row) = self.started else {
            return None;
        };
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
    if let (Some(bound), Some(asked)) = (&bound.command, &asked.command)
        && bound.len() == asked.len()
        && let Some(at) = bound.iter().zip(asked).position(|(bound, asked)| bound != asked)
        && at > 0
    {
        return format!("argument {at} differs");
    }
    if bound.program.is_empty() || asked.program.is_empty() {
        return "how they differ is not recorded".to_owned();
    }
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

    use ctrlrun::plan::effect::{Ambiguated, Began, Event, Labels, Reserved, WriteId, evolve};
    use ctrlrun::plan::key::Fingerprint;
    use ctrlrun::store::Location;
    use uuid::Uuid;

    use crate::cli::which::Why;

    const SECOND: i64 = 1_000_000;

    fn request(program: &str, arguments: u32) -> Request {
        Request {
            fingerprint: Fingerprint([0; 32]),
            program: program.to_owned(),
            arguments,
            command: None,
        }
    }

    fn row(revision: u64, event: Event) -> HistoryRow {
        HistoryRow {
            revision,
            write_id: WriteId(Uuid::from_u128(revision.into())),
            outcome_id: None,
            attempt: 1,
            recorded_at: Timestamp(0),
            event,
        }
    }

    fn reserved() -> HistoryRow {
        row(
            1,
            Event::Reserved(Reserved {
                attempt: 1,
                attempt_id: "a".to_owned(),
                request: request("echo", 1),
                lease_expires_at: Timestamp(300 * SECOND),
                run_id: None,
            }),
        )
    }

    fn began_row() -> HistoryRow {
        let ran_on = RanOn {
            host: "web-17".to_owned(),
            pid: 4121,
            user: "deploy".to_owned(),
            directory: "/".to_owned(),
        };
        row(
            2,
            Event::Began(Began {
                lease_expires_at: Timestamp(300 * SECOND),
                ran_on,
                labels: Labels::new(),
            }),
        )
    }

    fn lapsed(revision: u64) -> HistoryRow {
        row(
            revision,
            Event::Ambiguated(Ambiguated { cause: Cause::Lapsed, reaped: false, ending: None }),
        )
    }

    /// What is told of `refusal` on the record that `history` folds into, 40 s later.
    fn told(history: &[HistoryRow], refusal: Refusal) -> String {
        let started = match history.iter().find(|row| began(row).is_some()) {
            Some(row) => Started::At(row),
            None => Started::Never,
        };
        told_as(history, refusal, started)
    }

    fn told_as(history: &[HistoryRow], refusal: Refusal, started: Started<'_>) -> String {
        let key = Key::new("k").unwrap();
        let fold = |record, row| Some(evolve(&key, record, row).unwrap());
        let record = history.iter().fold(None, fold);
        let place = Place { location: Location::file("/e.db"), why: Why::Default };
        let asked = request("echo", 2);
        let refused = Refused {
            key: &key,
            place: &place,
            deed: Deed::Run,
            record: record.as_ref(),
            now: Timestamp(40 * SECOND),
            started,
            request: Some(&asked),
        };
        refused.error(refusal).human()
    }

    #[test]
    fn a_live_attempt_is_told_with_its_host_and_its_lease() {
        // CLI-10
        insta::assert_snapshot!(told(&[reserved(), began_row()], Refusal::InProgress), @r"
        ctrlrun: k: refused, nothing was run: attempt 1 has been running for 40 s (web-17, pid 4121); its lease ends in 4 m 20 s
        ctrlrun:   wait for it: --wait 10m
        ctrlrun:   succeed quietly: --on-running skip
        ");
        insta::assert_snapshot!(told(&[reserved()], Refusal::InProgress), @r"
        ctrlrun: k: refused, nothing was run: attempt 1 is about to start; its lease ends in 4 m 20 s
        ctrlrun:   wait for it: --wait 10m
        ctrlrun:   succeed quietly: --on-running skip
        ");
    }

    #[test]
    fn a_lapse_is_told_by_whether_anything_ever_ran() {
        // CLI-10, case 46: the retry prints the commands that resolve it.
        insta::assert_snapshot!(told(&[reserved(), began_row(), lapsed(3)], Refusal::Ambiguous), @r"
        ctrlrun: k: AMBIGUOUS (may have happened) for 40 s, attempt 1; nothing was run: its lease ended and nobody has reported; the old process may still be running
        ctrlrun:   look:       ctrlrun show k
        ctrlrun:   it did:     ctrlrun resolve k --committed --expect 3 --reason ''
        ctrlrun:   it did not: ctrlrun resolve k --not-executed --expect 3 --reason ''
        ");
        insta::assert_snapshot!(told(&[reserved(), lapsed(2)], Refusal::Ambiguous), @r"
        ctrlrun: k: AMBIGUOUS (may have happened) for 40 s, attempt 1; nothing was run: its lease ended before it was begun: nothing ever ran in this attempt
        ctrlrun:   look:       ctrlrun show k
        ctrlrun:   it did:     ctrlrun resolve k --committed --expect 2 --reason ''
        ctrlrun:   it did not: ctrlrun resolve k --not-executed --expect 2 --reason ''
        ");
    }

    #[test]
    fn that_nothing_ever_ran_is_not_said_by_one_who_did_not_look() {
        // CLI-16: it would lead a person to run it a second time.
        let history = [reserved(), lapsed(2)];
        let text = told_as(&history, Refusal::Ambiguous, Started::Unknown);
        assert!(!text.contains("nothing ever ran"), "{text}");
    }

    #[test]
    fn what_was_shown_of_an_older_record_does_not_prove_that_it_never_began() {
        // It was looked at, and began, and then the refusal came.
        let key = Key::new("k").unwrap();
        let first = evolve(&key, None, &reserved()).unwrap();
        let later = evolve(&key, Some(first.clone()), &began_row()).unwrap();
        let shown = Shown {
            record: first.clone(),
            now: Timestamp(0),
            began: None,
            stdout: ctrlrun::store::Sizes::default(),
            stderr: ctrlrun::store::Sizes::default(),
        };
        assert!(matches!(Started::of(Some(&shown), Some(&first)), Started::Never));
        assert!(matches!(Started::of(Some(&shown), Some(&later)), Started::Unknown));
        assert!(matches!(Started::of(None, Some(&later)), Started::Unknown));
    }

    #[test]
    fn every_refusal_of_a_run_says_that_nothing_was_run_and_has_its_code() {
        // CLI-2, CLI-3
        let history = [reserved(), began_row()];
        insta::assert_snapshot!(told(&history, Refusal::Mismatch), @r"
        ctrlrun: k: refused, nothing was run: this key is bound to another command (echo, 1 argument; this has 2 arguments)
        ctrlrun:   look: ctrlrun show k
        ");
        insta::assert_snapshot!(told(&history, Refusal::MaxAttempts), @r"
        ctrlrun: k: refused, nothing was run: 1 attempt made already: no more by --max-attempts
        ctrlrun:   look: ctrlrun show k
        ");
        let conflict =
            Refusal::Expectation(Conflict { expected: StreamState::NoStream, actual: Some(2) });
        insta::assert_snapshot!(told(&history, conflict), @r"
        ctrlrun: k: refused, nothing was run: a new effect was expected, and it is at revision 2
        ctrlrun:   look: ctrlrun show k
        ");
        for refusal in [
            conflict,
            Refusal::Mismatch,
            Refusal::InProgress,
            Refusal::TooLate,
            Refusal::NotOurs,
            Refusal::Ambiguous,
            Refusal::MaxAttempts,
            Refusal::Live,
            Refusal::SettledOtherwise,
        ] {
            let text = told(&history, refusal);
            assert!(text.contains("nothing was run"), "{text}");
        }
    }

    #[test]
    fn a_difference_names_program_or_count_and_never_a_value() {
        // CLI-14
        let bound = request("echo", 1);
        assert_eq!(difference(&bound, &request("printf", 1)), "this is printf");
        assert_eq!(difference(&bound, &request("echo", 2)), "this has 2 arguments");
        assert_eq!(difference(&bound, &request("echo", 1)), "a value differs");
        assert_eq!(difference(&bound, &request("", 0)), "how they differ is not recorded");
        let full = |words: [&str; 3]| Request {
            command: Some(words.map(str::to_owned).into()),
            ..request("echo", 2)
        };
        let bound = full(["echo", "a", "hush"]);
        assert_eq!(difference(&bound, &full(["echo", "a", "b"])), "argument 2 differs");
        assert_eq!(difference(&bound, &bound), "a value differs");
    }
}
