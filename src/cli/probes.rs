//! What is told of probes, and which one an effect has.
use std::time::Duration;

use ctrlrun::drive::reconcile::Probe;
use ctrlrun::plan::effect::{Cause, Record, State};
use ctrlrun::plan::key::Key;

use super::error::{CliError, Kind};
use super::render::text::clean;

/// Why a "not executed" of a probe does not free this record (DEC-6, EFF-20).
#[must_use]
pub fn why_not(record: &Record) -> &'static str {
    let State::Ambiguous { cause, .. } = record.state else {
        return "it is not in doubt";
    };
    if record.in_doubt {
        return "a word that came late says that it may have happened; a person decides";
    }
    match cause {
        Cause::LateOutcome => {
            "a word that came late says that it may have happened; a person decides"
        }
        Cause::Reopened => "a person took a decision back, and a person decides",
        Cause::Lapsed => "nobody saw its process end, and it may still be at work",
        Cause::Timeout => "it was ended by its time-out, and what it began may still be at work",
        Cause::Exit | Cause::Signal | Cause::Contradiction => {
            "it left something running, or nobody saw all of it end"
        }
    }
}

/// `reconcile:refund could not tell: it exited 3: curl: (3) ...`
#[must_use]
pub fn could_not_tell(name: &str, why: &str, said: Option<&str>) -> String {
    let said = said.map_or_else(String::new, |said| format!(" ({})", clean(said)));
    format!("{name} could not tell: {}{said}", clean(why))
}

/// The probes that a command may ask.
pub struct Probes {
    /// The one that was given on the command line: it is asked about every key.
    given: Option<Probe>,
}

/// The probe of a key.
pub enum Chosen<'a> {
    /// This one.
    Probe(&'a Probe),
    /// None: why.
    None(String),
}

impl Probes {
    /// The probe that was given, or those that are declared.
    ///
    /// # Errors
    /// 64 where there is neither.
    pub fn find(given: Option<&str>, time_max: Duration) -> Result<Self, CliError> {
        let Some(line) = given else {
            let message = "no probe to ask: nothing was changed";
            return Err(CliError::new(Kind::Usage, message).tell(
                "give one",
                "--reconcile CMD, which exits 0 with a last line `committed` or `not-executed`",
            ));
        };
        Ok(Self { given: Some(Probe::shell(line.into(), time_max)) })
    }

    /// The probe of `key`.
    #[must_use]
    pub fn of(&self, _key: &Key) -> Chosen<'_> {
        match &self.given {
            Some(probe) => Chosen::Probe(probe),
            None => Chosen::None("it has no probe".to_owned()),
        }
    }
}
