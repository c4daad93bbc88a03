//! What is told of probes, and which one an effect has.
use std::sync::Arc;
use std::time::Duration;

use ctrlrun::drive::reconcile::{Probe, TIME_MAX};
use ctrlrun::plan::effect::{Cause, Record, State};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::template::Reading;

use super::error::{CliError, Kind};
use super::render::text::clean;
use crate::config::effect::Effect;
use crate::config::{self, Config};

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
    config: Arc<Config>,
    /// `--reconcile-timeout`.
    time_max: Option<Duration>,
}

/// The probe of a key.
pub enum Chosen {
    /// This one.
    Probe(Probe),
    /// None: why.
    None(String),
}

impl Probes {
    /// The probe that was given, or those that are declared.
    ///
    /// # Errors
    /// 64 where there is neither.
    pub fn find(
        given: Option<&str>,
        time_max: Option<Duration>,
        config: &Arc<Config>,
    ) -> Result<Self, CliError> {
        let given = given.map(|line| Probe::shell(line.into(), time_max.unwrap_or(TIME_MAX)));
        let declared = || config.effects.all().any(|effect| effect.reconcile.is_some());
        if given.is_none() && !declared() {
            let message = "no probe to ask: nothing was changed";
            return Err(CliError::new(Kind::Usage, message)
                .tell(
                    "give one",
                    "--reconcile CMD, which exits 0 with a last line `committed` or `not-executed`",
                )
                .tell("or declare one", "reconcile = [...] in [effect.NAME] of ctrlrun.toml"));
        }
        Ok(Self { given, config: Arc::clone(config), time_max })
    }

    /// The probe of `key`: that of the one effect whose key can be this one, with the only values that
    /// make it so (DEC-19).
    #[must_use]
    pub fn of(&self, key: &Key) -> Chosen {
        if let Some(probe) = &self.given {
            return Chosen::Probe(probe.clone());
        }
        let none = |why: &str| Chosen::None(why.to_owned());
        let fits = |effect: &&Effect| effect.key.read_back(key.as_str()) != Reading::No;
        let mut fitting = self.config.effects.all().filter(fits);
        let (Some(effect), other) = (fitting.next(), fitting.next()) else {
            return none("no effect that is declared has such a key");
        };
        if let Some(other) = other {
            let (one, other) = (clean(&effect.name), clean(&other.name));
            return Chosen::None(format!("it may be of the effect {one} or of {other}"));
        }
        let name = clean(&effect.name);
        let Reading::One(values) = effect.key.read_back(key.as_str()) else {
            return Chosen::None(format!("its key does not tell the values of effect {name}"));
        };
        if !values.is_empty() && has_period(key.as_str()) {
            return Chosen::None(format!(
                "its key ends in a period, which may not be a part of a value of effect {name}"
            ));
        }
        match effect.probe(&values) {
            Ok(Some(probe)) => Chosen::Probe(declared(probe, self.time_max)),
            Ok(None) => Chosen::None(format!("effect {name} declares no probe")),
            Err(bad) => Chosen::None(clean(&bad.to_string()).into_owned()),
        }
    }
}

/// The probe that an effect declares; `time_max` is what a flag says, which stands before what the
/// effect says.
#[must_use]
pub fn declared(probe: config::effect::Probe, time_max: Option<Duration>) -> Probe {
    let time_max = time_max.or(probe.time_max).unwrap_or(TIME_MAX);
    let words = probe.command.into_iter().map(Into::into).collect();
    Probe { name: probe.name, words, is_final: probe.is_final, time_max }
}

/// Whether a key may end in what `--per` appends: `@2026-11-30T10Z`, `@2026-11-30`, `@2026-W49`,
/// `@2026-11`. A value that was read with it would be another effect's.
fn has_period(key: &str) -> bool {
    let Some((_, end)) = key.rsplit_once('@') else {
        return false;
    };
    let shape: String = end.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    ["0000-00-00T00Z", "0000-00-00", "0000-W00", "0000-00"].contains(&shape.as_str())
}

#[cfg(test)]
mod tests {
    use super::has_period;

    #[test]
    fn a_period_at_the_end_of_a_key_is_seen() {
        // DEC-19
        for key in ["b:x@2026-11-30T10Z", "b:x@2026-11-30", "b:x@2026-W49", "b:x@2026-11"] {
            assert!(has_period(key), "{key}");
        }
        for key in ["b:x", "mail:me@example.com", "b@2026-11-30:x", "b:2026-11-30"] {
            assert!(!has_period(key), "{key}");
        }
    }
}
