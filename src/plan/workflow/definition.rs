//! A workflow as its file says it, validated (WFL-1 to WFL-3).
//!
//! It is kept in the run's row as canonical JSON, so that every host runs by the same one whatever
//! files lie on it.
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::names::{Hash, Name};
use super::types::Tier;

/// How long a node's lease is where nothing is said.
pub const LEASE: Duration = Duration::from_secs(5 * 60);

/// The pause before the first retry where nothing is said.
pub const BACKOFF: Duration = Duration::from_secs(1);

/// The longest pause before a retry.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// What a placeholder that stands for a node's output ends with.
pub const STDOUT: &str = ".stdout";

/// The placeholder of the run's own name.
pub const RUN: &str = "run";

/// A workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Its name.
    pub name: Name,
    /// Which of its wakeups and dispatches go first.
    #[serde(default)]
    pub tier: Tier,
    /// What a run of it is started with.
    #[serde(default)]
    pub inputs: BTreeMap<Name, Given>,
    /// Its nodes.
    pub nodes: BTreeMap<Name, NodeSpec>,
}

/// An input of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// What it is where the start does not say; without one it must be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// The nodes that must be done before it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs: BTreeSet<Name>,
    /// What it is.
    pub what: What,
}

/// See [`NodeSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// It runs a command.
    Run(Box<RunSpec>),
    /// It waits.
    Wait(WaitSpec),
}

/// A node that runs a command as an effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The named effect that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The effect's key, with placeholders; without one it is `RUN/NODE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The command, with placeholders.
    pub command: Vec<String>,
    /// What the placeholders of key and command stand for, with placeholders of their own; without
    /// it they stand for the run's inputs and nodes' outputs at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<BTreeMap<String, String>>,
    /// The exit codes that prove that nothing happened, as `--not-executed` takes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_executed: Option<String>,
    /// How long it may run, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Its lease, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// How often it is dispatched again after FAILED.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// The pause before the first of these, in milliseconds; it doubles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl RunSpec {
    /// Its lease.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease_ms.map_or(LEASE, Duration::from_millis)
    }

    /// How long it may run.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }

    /// The pause before the next dispatch, of which `before` went before: it doubles, up to
    /// [`BACKOFF_MAX`] or the first pause if that is longer.
    #[must_use]
    pub fn pause(&self, before: u32) -> Duration {
        let first = self.backoff_ms.map_or(BACKOFF, Duration::from_millis);
        first.saturating_mul(2_u32.saturating_pow(before)).min(BACKOFF_MAX.max(first))
    }
}

/// A node that waits: for a signal, or a time, or whichever comes first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitSpec {
    /// The signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Name>,
    /// So long after its needs were done, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Until this moment, in microseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

impl Definition {
    /// Its canonical form: what is stored, and what the hash is taken over.
    #[must_use]
    pub fn canonical(&self) -> String {
        #[expect(clippy::expect_used, reason = "plain structs of strings and numbers serialise")]
        serde_json::to_string(self).expect("a definition serialises")
    }

    /// Reads the canonical form.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(canonical: &str) -> Result<Self, String> {
        serde_json::from_str(canonical).map_err(|error| error.to_string())
    }

    /// All nodes that must be done before `node`, directly or through others.
    #[must_use]
    pub fn ancestors(&self, node: &Name) -> BTreeSet<&Name> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&Name> =
            self.nodes.get(node).into_iter().flat_map(|spec| &spec.needs).collect();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(self.nodes.get(next).into_iter().flat_map(|spec| &spec.needs));
            }
        }
        found
    }

    /// Its nodes in an order in which each stands behind those that it needs; those of a cycle are
    /// left out.
    #[must_use]
    pub fn in_order(&self) -> Vec<&Name> {
        let mut done: BTreeSet<&Name> = BTreeSet::new();
        let mut order = Vec::with_capacity(self.nodes.len());
        loop {
            let ready: Vec<&Name> = self
                .nodes
                .iter()
                .filter(|(name, spec)| {
                    !done.contains(name) && spec.needs.iter().all(|need| done.contains(need))
                })
                .map(|(name, _)| name)
                .collect();
            if ready.is_empty() {
                return order;
            }
            done.extend(&ready);
            order.extend(ready);
        }
    }

    /// The inputs of a run: those given, and the defaults of the others.
    ///
    /// # Errors
    /// The names that are missing, and those that it does not take.
    pub fn inputs_of(
        &self,
        given: &BTreeMap<Name, String>,
    ) -> Result<BTreeMap<Name, String>, BadInputs> {
        let unknown: Vec<Name> =
            given.keys().filter(|name| !self.inputs.contains_key(*name)).cloned().collect();
        let mut missing = Vec::new();
        let mut inputs = BTreeMap::new();
        for (name, input) in &self.inputs {
            match given.get(name).or(input.default.as_ref()) {
                Some(value) => drop(inputs.insert(name.clone(), value.clone())),
                None => missing.push(name.clone()),
            }
        }
        if unknown.is_empty() && missing.is_empty() {
            Ok(inputs)
        } else {
            Err(BadInputs { unknown, missing })
        }
    }
}

/// Inputs that a workflow cannot be started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadInputs {
    /// It does not take these.
    pub unknown: Vec<Name>,
    /// It needs these.
    pub missing: Vec<Name>,
}

/// The hash of a canonical form (WFL-3).
#[must_use]
pub fn hash(canonical: &str) -> Hash {
    Hash(Sha256::digest(canonical.as_bytes()).into())
}

/// In which nodes two definitions differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Only the new one has these.
    pub added: Vec<Name>,
    /// Only the old one has these.
    pub removed: Vec<Name>,
    /// Both have them, and they are not the same.
    pub changed: Vec<Name>,
    /// What else differs: name, tier, inputs.
    pub besides: Vec<&'static str>,
}

impl Difference {
    /// The difference from `old` to `new`.
    #[must_use]
    pub fn of(old: &Definition, new: &Definition) -> Self {
        let only = |some: &Definition, other: &Definition| {
            some.nodes.keys().filter(|name| !other.nodes.contains_key(*name)).cloned().collect()
        };
        let differs = |(name, spec): &(&Name, &NodeSpec)| {
            old.nodes.get(*name).is_some_and(|before| before != *spec)
        };
        let mut besides = Vec::new();
        if old.name != new.name {
            besides.push("name");
        }
        if old.tier != new.tier {
            besides.push("tier");
        }
        if old.inputs != new.inputs {
            besides.push("inputs");
        }
        Self {
            added: only(new, old),
            removed: only(old, new),
            changed: new.nodes.iter().filter(differs).map(|(name, _)| name.clone()).collect(),
            besides,
        }
    }

    /// For a person: `changed load; added mail; removed x`.
    #[must_use]
    pub fn told(&self) -> String {
        let list = |what: &str, names: &[Name]| {
            let names: Vec<&str> = names.iter().map(Name::as_str).collect();
            (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
        };
        let besides =
            (!self.besides.is_empty()).then(|| format!("its {}", self.besides.join(" and its ")));
        let parts = [
            list("changed", &self.changed),
            list("added", &self.added),
            list("removed", &self.removed),
            besides,
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
    }
}
