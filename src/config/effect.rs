//! An effect that a configuration names: what it takes to run it by its name (CFG-10).
use std::collections::BTreeMap;
use std::time::Duration;

use ctrlrun::plan::template::{CannotFill, CommandTemplate, Template};
use ctrlrun::plan::verdict::NotExecuted;

/// A named effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Its name, as in `[effect.NAME]`.
    pub name: String,
    /// Its key.
    pub key: Template,
    /// Its command.
    pub command: CommandTemplate,
    /// How it is run.
    pub settings: Settings,
    /// Finds out whether it happened; see [`Probe`].
    pub reconcile: Option<CommandTemplate>,
    /// The probe's "not-executed" also makes a later execution impossible.
    pub reconcile_final: bool,
    /// How long the probe may take, where that is said.
    pub reconcile_timeout: Option<Duration>,
}

/// How an effect is run, where its configuration says so. What is not said is left to flags,
/// `[defaults]` and our own defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Exit codes that prove that nothing happened.
    pub not_executed: Option<NotExecuted>,
    /// When the command is ended.
    pub timeout: Option<Duration>,
    /// How soon a crash is noticed.
    pub lease: Option<Duration>,
    /// How often it is run again in one process after FAILED.
    pub retries: Option<u32>,
    /// The pause before the first retry.
    pub backoff: Option<Duration>,
    /// The attempt after which no more is made.
    pub max_attempts: Option<u64>,
}

/// A command that finds out whether an effect happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The effect's name.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// See [`Effect::reconcile_final`].
    pub is_final: bool,
    /// See [`Effect::reconcile_timeout`].
    pub time_max: Option<Duration>,
}

/// An effect with its parameters put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// The key; not yet held to what a key may be (KEY-1, KEY-2).
    pub key: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its probe, if it has one.
    pub probe: Option<Probe>,
}

/// Why an effect cannot be run with these parameters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadParameters {
    /// It has no such parameter.
    #[error("effect {effect} has no parameter {name}{}", known(.takes))]
    Unknown {
        /// The effect.
        effect: String,
        /// What was given.
        name: String,
        /// What it takes.
        takes: Vec<String>,
    },
    /// Parameters that it needs were not given.
    #[error("effect {effect} needs a value for {}", .names.join(", "))]
    Missing {
        /// The effect.
        effect: String,
        /// Which are missing.
        names: Vec<String>,
    },
    /// A value that cannot be used.
    #[error("effect {effect}: {why}")]
    Value {
        /// The effect.
        effect: String,
        /// What is wrong.
        why: CannotFill,
    },
}

fn known(takes: &[String]) -> String {
    match takes {
        [] => "; it takes none".to_owned(),
        takes => format!("; it takes {}", takes.join(", ")),
    }
}

impl Effect {
    /// Its parameters, each once, in the order of key, command and probe.
    #[must_use]
    pub fn parameters(&self) -> Vec<&str> {
        let of_key = self.key.placeholders().map(|(name, _)| name);
        let of_command = self.command.placeholders().map(|(_, name, _)| name);
        let of_probe = self.reconcile.iter().flat_map(CommandTemplate::placeholders);
        let mut names = Vec::new();
        for name in of_key.chain(of_command).chain(of_probe.map(|(_, name, _)| name)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Key, command and probe with these parameters, each of which it must have, and no other.
    ///
    /// # Errors
    /// [`BadParameters`].
    pub fn fill(&self, given: &BTreeMap<String, String>) -> Result<Filled, BadParameters> {
        let takes = self.parameters();
        let effect = || self.name.clone();
        if let Some(name) = given.keys().find(|name| !takes.contains(&name.as_str())) {
            let takes = takes.iter().map(|name| (*name).to_owned()).collect();
            return Err(BadParameters::Unknown { effect: effect(), name: name.clone(), takes });
        }
        let missing: Vec<String> =
            takes.iter().filter(|name| !given.contains_key(**name)).map(|n| (*n).into()).collect();
        if !missing.is_empty() {
            return Err(BadParameters::Missing { effect: effect(), names: missing });
        }
        let value = |name: &str| given.get(name).map(String::as_str);
        let bad = |why| BadParameters::Value { effect: effect(), why };
        Ok(Filled {
            key: self.key.key(value).map_err(bad)?,
            command: self.command.fill(value).map_err(bad)?,
            probe: self.probe(given)?,
        })
    }

    /// The probe with these parameters, if there is one; its own are parameters of the key.
    ///
    /// # Errors
    /// [`BadParameters`].
    pub fn probe(&self, given: &BTreeMap<String, String>) -> Result<Option<Probe>, BadParameters> {
        let Some(probe) = &self.reconcile else {
            return Ok(None);
        };
        let value = |name: &str| given.get(name).map(String::as_str);
        let bad = |why| BadParameters::Value { effect: self.name.clone(), why };
        let command = probe.fill(value).map_err(bad)?;
        Ok(Some(Probe {
            name: self.name.clone(),
            command,
            is_final: self.reconcile_final,
            time_max: self.reconcile_timeout,
        }))
    }
}

/// The effects that have a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects(BTreeMap<String, Effect>);

impl Effects {
    /// Adds one; it stands instead of one of the same name.
    pub fn set(&mut self, effect: Effect) {
        self.0.insert(effect.name.clone(), effect);
    }

    /// The effect of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Effect> {
        self.0.get(name)
    }

    /// All, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = &Effect> {
        self.0.values()
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}
