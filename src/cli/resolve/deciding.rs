//! One decision, recorded and told.
use ctrlrun::drive::{Call, handle};
use ctrlrun::plan::effect::{Answer, Command, ProbeAnswer, Record, Refusal, Resolve, State};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::{Answered, Done, Kept};
use ctrlrun::store::{Captured, Shown, Stream};
use nix::unistd::{User, geteuid, gethostname};

use crate::cli::access::Opened;
use crate::cli::error::{CliError, Deed, Kind};
use crate::cli::history::told;
use crate::cli::refusal::{Refused, Started, ran_on};
use crate::cli::render::next::look;
use crate::cli::render::state::glossed;
use crate::cli::render::text::{clean, count};

/// The most bytes that can be stated as an output.
pub const OUTPUT_MAX: u64 = 16 << 20;

/// What is said to be so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It happened.
    Committed,
    /// It did not.
    NotExecuted,
    /// What was decided is taken back.
    Reopen,
}

/// A decision about the revision of a record.
#[derive(Debug, Clone)]
pub struct Decided {
    /// The effect.
    pub key: Key,
    /// What is so.
    pub decision: Decision,
    /// Who says so.
    pub by: String,
    /// How they know.
    pub reason: String,
    /// The revision that was looked at.
    pub looked_at: u64,
    /// What later runs print as its output.
    pub output: Option<Captured>,
}

impl Decided {
    /// Records it. `attempt` is the one that the output is stated for.
    pub fn perform(&self, opened: &Opened, attempt: u64) -> Done {
        let kept = |captured: &Captured| Kept {
            attempt,
            stream: Stream::Stated,
            captured: captured.clone(),
        };
        let call = Call {
            key: self.key.clone(),
            command: self.command(),
            // The decision itself compares the revision: so it can answer "so already" to one that is
            // repeated (EFF-18).
            expect: StreamState::Any,
            within: opened.within,
            exchange_max: opened.within,
            outputs: self.output.iter().map(kept).collect(),
        };
        handle(opened.store.as_ref(), call)
    }

    fn command(&self) -> Command {
        let (by, reason, looked_at) = (self.by.clone(), self.reason.clone(), self.looked_at);
        let decision = match self.decision {
            Decision::Committed => ProbeAnswer::Committed,
            Decision::NotExecuted => ProbeAnswer::NotExecuted,
            Decision::Reopen => return Command::Reopen { by, reason, looked_at },
        };
        Command::Resolve(Resolve { decision, by, reason, looked_at })
    }
}

/// A name that a person may sign with.
///
/// # Errors
/// Why it is none.
pub fn check_by(by: &str) -> Result<String, &'static str> {
    let by = by.trim();
    if by.is_empty() {
        Err("is empty: say who decides")
    } else if by.starts_with("reconcile:") {
        // The row tells a person's decision from a probe's by this (EFF-3).
        Err("reconcile:... is what a probe signs with")
    } else {
        Ok(by.to_owned())
    }
}

/// Who decides: what was given, else the user at this host.
///
/// # Errors
/// 64 for a name that is empty, or a probe's.
pub fn by(given: Option<&str>) -> Result<String, CliError> {
    if let Some(by) = given {
        return check_by(by)
            .map_err(|why| CliError::new(Kind::Usage, format!("--by {why}; nothing was changed")));
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("SUDO_USER")
        .or_else(|| variable("USER"))
        .or_else(|| User::from_uid(geteuid()).ok().flatten().map(|user| user.name))
        .unwrap_or_else(|| format!("uid {}", geteuid()));
    let host = gethostname()
        .map_or_else(|_| "an unnamed host".to_owned(), |host| host.to_string_lossy().into_owned());
    Ok(format!("{name}@{host}"))
}

/// What a person is told of the answer.
pub struct Told<'a> {
    /// The store.
    pub opened: &'a Opened,
    /// What was decided.
    pub decided: &'a Decided,
    /// The record as it stood before.
    pub before: &'a Shown,
}

impl Told<'_> {
    /// Tells it: what was done in words, and a refusal as an error.
    ///
    /// # Errors
    /// The refusal.
    pub fn answer(&self, answered: &Answered) -> Result<String, CliError> {
        let record = answered.record.as_ref();
        match (&answered.answer, record) {
            (Answer::Resolved, Some(record)) => Ok(self.done(record, answered)),
            (Answer::AlreadySo, Some(record)) => {
                let key = clean(self.decided.key.as_str());
                let state = glossed(record, answered.now);
                Ok(format!(
                    "{key}: {state} already, revision {}; nothing was changed",
                    record.revision
                ))
            }
            (Answer::Refused(refusal), _) => Err(self.refused(*refusal, answered)?),
            (
                Answer::Granted
                | Answer::Start
                | Answer::Renewed { .. }
                | Answer::Lost
                | Answer::Settled
                | Answer::Delivered
                | Answer::KeptAsLate
                | Answer::Forgotten
                | Answer::Resolved
                | Answer::AlreadySo
                | Answer::Contended
                | Answer::ProbeKept
                | Answer::Nothing
                | Answer::CommittedAlready,
                _,
            ) => Err(CliError::new(
                Kind::Internal,
                format!("a decision was answered with {:?}", answered.answer),
            )),
        }
    }

    fn done(&self, record: &Record, answered: &Answered) -> String {
        let key = clean(self.decided.key.as_str());
        let revision = record.revision;
        if self.decided.decision == Decision::Reopen {
            return format!("{key}: AMBIGUOUS again, revision {revision}. Nothing will run.");
        }
        let state = glossed(record, answered.now);
        let by = clean(&self.decided.by);
        let size = self.decided.output.as_ref().map(|output| output.bytes);
        let then = match (self.decided.decision, size) {
            (Decision::NotExecuted | Decision::Reopen, _) => " It may run again.".to_owned(),
            (Decision::Committed, None) => String::new(),
            (Decision::Committed, Some(bytes)) => {
                format!(" Runs of this key now print the {} you gave.", count(bytes, "byte"))
            }
        };
        format!("{key}: {state}, revision {revision}, by {by}.{then}")
    }

    /// After a lapse the holder may be alive: nobody has seen its end (CLI-19).
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let unseen = match self.before.record.state {
            State::Executing { .. } => true,
            State::Ambiguous { reaped, .. } => !reaped && self.before.began.is_some(),
            State::Reserved { .. } | State::Committed { .. } | State::Failed { .. } => false,
        };
        (self.decided.decision == Decision::NotExecuted && unseen).then(|| {
            let on = ran_on(self.before.began.as_ref());
            format!(
                "warning: nobody saw the old process end{on}: if it is still running, the next run is a second one"
            )
        })
    }

    fn refused(&self, refusal: Refusal, answered: &Answered) -> Result<CliError, CliError> {
        let refused = Refused {
            key: &self.decided.key,
            place: &self.opened.place,
            deed: Deed::Change,
            record: answered.record.as_ref(),
            now: answered.now,
            started: Started::of(Some(self.before), answered.record.as_ref()),
            request: None,
        };
        let Refusal::Expectation(_) = refusal else {
            return Ok(refused.error(refusal));
        };
        self.moved(answered)
    }

    /// Somebody was faster: what came since (79).
    fn moved(&self, answered: &Answered) -> Result<CliError, CliError> {
        let at = answered.record.as_ref().map_or(0, |record| record.revision);
        let key = clean(self.decided.key.as_str());
        let looked_at = self.decided.looked_at;
        let error = if at < looked_at {
            CliError::new(
                Kind::RevisionConflict,
                format!(
                    "{key}: not changed: you looked at revision {looked_at}, it is only at {at}"
                ),
            )
        } else {
            let rows = self.opened.history(&self.decided.key, looked_at + 1)?;
            let message = format!(
                "{key}: not changed: you looked at revision {looked_at}, it is at {at} now:"
            );
            let error = CliError::new(Kind::RevisionConflict, message);
            told(&rows, None).into_iter().fold(error, CliError::fact)
        };
        Ok(error.hint(look(self.decided.key.as_str(), &self.opened.place)))
    }
}
