//! PURE: what was injected, and what stands in the store, in; what is not explained, out (SOA-3, SOA-4).
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::deck::Leaves;

/// A line of the ledger: written before what it tells of is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injection {
    /// The operation's number, from 0.
    pub operation: u64,
    /// The key that it is about.
    pub key: String,
    /// What is done.
    pub what: String,
    /// What that leaves behind.
    pub leaves: Leaves,
}

/// What stands in the store about one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stands {
    /// The key.
    pub key: String,
    /// Whether its history has a doubt in it, resolved or not.
    pub was_ambiguous: bool,
}

/// What came of one interval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judged {
    /// Keys that were AMBIGUOUS.
    pub ambiguous: u64,
    /// Those of them that an injection explains.
    pub explained: u64,
    /// Those of them that none explains.
    pub unexplained: Vec<String>,
    /// Keys on which an injection fell that leaves a doubt, and which have none: one sentence each.
    pub missing: Vec<String>,
}

/// Holds the store against the ledger. `fell` tells of a key whether its injection came to pass.
#[must_use]
pub fn judge(ledger: &[Injection], store: &[Stands], fell: impl Fn(&str) -> bool) -> Judged {
    let told: BTreeMap<&str, &Injection> =
        ledger.iter().map(|line| (line.key.as_str(), line)).collect();
    let mut judged = Judged::default();
    for stands in store {
        let injection = told.get(stands.key.as_str());
        let leaves = injection.map(|line| line.leaves);
        match (stands.was_ambiguous, leaves) {
            (true, Some(Leaves::Doubt)) => {
                judged.ambiguous += 1;
                judged.explained += 1;
            }
            // An injection that leaves no doubt explains none.
            (true, Some(Leaves::Nothing) | None) => {
                judged.ambiguous += 1;
                judged.unexplained.push(stands.key.clone());
            }
            (false, Some(Leaves::Doubt)) if fell(&stands.key) => {
                let what = injection.map_or("", |line| line.what.as_str());
                judged.missing.push(format!("{}: {what}, and no doubt is recorded", stands.key));
            }
            (false, Some(Leaves::Doubt | Leaves::Nothing) | None) => {}
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: &str, leaves: Leaves) -> Injection {
        Injection { operation: 1, key: key.to_owned(), what: "w".to_owned(), leaves }
    }

    fn stands(key: &str, was_ambiguous: bool) -> Stands {
        Stands { key: key.to_owned(), was_ambiguous }
    }

    #[test]
    fn a_doubt_without_an_injection_that_leaves_one_is_not_explained() {
        // SOA-3
        let ledger = [line("a", Leaves::Doubt), line("b", Leaves::Nothing)];
        let store = [stands("a", true), stands("b", true), stands("c", true), stands("d", false)];
        let judged = judge(&ledger, &store, |_| true);
        assert_eq!((judged.ambiguous, judged.explained), (3, 1));
        assert_eq!(judged.unexplained, ["b", "c"]);
        assert!(judged.missing.is_empty());
    }

    #[test]
    fn an_injection_that_fell_and_left_nothing_is_told() {
        // SOA-3: a doubt that was swallowed is worse than one too many.
        let ledger = [line("a", Leaves::Doubt), line("b", Leaves::Doubt)];
        let store = [stands("a", false), stands("b", false)];
        let judged = judge(&ledger, &store, |key| key == "a");
        assert_eq!(judged.missing, ["a: w, and no doubt is recorded"]);
        assert_eq!(judged.ambiguous, 0);
    }
}
