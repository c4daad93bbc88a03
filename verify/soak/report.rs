//! What came of a soak, as values (SOA-6).
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::measure::{Bound, MEASURES_MIN, Measure, bounds};
use crate::verify::report::Status;

/// Of so many operations one may find the store too slow.
const SLOW_SHARE: u64 = 20;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Soaked {
    /// The kind of store.
    pub store: &'static str,
    /// What the operations were dealt from.
    pub seed: u64,
    /// How long it took.
    pub duration: Duration,
    /// Operations.
    pub operations: u64,
    /// Those of them that nothing was done to.
    pub ordinary: u64,
    /// Executions, by the executors' ledger.
    pub executions: u64,
    /// Kills, by the wait status.
    pub kills: u64,
    /// Operations of each kind that was injected: how many were to fall, and how many did.
    pub injected: BTreeMap<String, (u64, u64)>,
    /// Operations that ended 69: the store did not answer in time.
    pub slow: u64,
    /// Keys that were AMBIGUOUS at any time, the controls among them.
    pub ambiguous: u64,
    /// Those of them that the ledger explains.
    pub explained: u64,
    /// Those that it does not, without the controls.
    pub unexplained: Vec<String>,
    /// Injected, and not recorded.
    pub controls: u64,
    /// Those of them that were found not to be explained.
    pub controls_caught: u64,
    /// What must not be.
    pub violations: Vec<String>,
    /// What was measured.
    pub measures: Vec<Measure>,
}

impl Soaked {
    /// What is held to a bound.
    #[must_use]
    pub fn bounds(&self) -> Vec<Bound> {
        bounds(&self.measures)
    }

    /// What is wrong, one sentence each.
    #[must_use]
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = self.violations.clone();
        wrong.extend(
            self.unexplained.iter().map(|key| format!("{key}: AMBIGUOUS, and nothing explains it")),
        );
        if self.controls_caught < self.controls {
            wrong.push(format!(
                "of {} doubts that were injected and not recorded, {} were found: what this soak does not find proves nothing",
                self.controls, self.controls_caught
            ));
        }
        if self.measures.len() >= MEASURES_MIN {
            let over = self.bounds().into_iter().filter(|bound| !bound.holds());
            wrong.extend(over.map(|bound| {
                format!(
                    "{} grew from {} to {}; at most {} is flat",
                    bound.name, bound.early, bound.late, bound.limit
                )
            }));
        }
        wrong
    }

    /// What was not shown, one sentence each.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.controls == 0 {
            doubts.push("no control was injected".to_owned());
        }
        if self.measures.len() < MEASURES_MIN {
            doubts.push(format!("{} measurements tell nothing of what grows", self.measures.len()));
        }
        if self.slow * SLOW_SHARE > self.operations {
            doubts.push(format!("{} operations found the store too slow", self.slow));
        }
        let missed = self.injected.iter().filter(|(_, (_, fell))| *fell == 0);
        doubts.extend(missed.map(|(name, _)| format!("no fault fell into its window: {name}")));
        doubts
    }

    /// The verdict.
    #[must_use]
    pub fn status(&self) -> Status {
        if !self.wrong().is_empty() {
            Status::Fail
        } else if !self.doubts().is_empty() {
            Status::Inconclusive
        } else {
            Status::Pass
        }
    }

    /// The object.
    #[must_use]
    pub fn json(&self) -> Value {
        let injected: BTreeMap<&String, Value> = self
            .injected
            .iter()
            .map(|(name, (planned, fell))| (name, json!({"planned": planned, "fell": fell})))
            .collect();
        let bounds: Vec<Value> = self
            .bounds()
            .iter()
            .map(|it| {
                json!({
                    "name": it.name, "early": it.early, "late": it.late, "limit": it.limit,
                    "holds": it.holds(),
                })
            })
            .collect();
        json!({
            "soak": true,
            "store": self.store,
            "seed": self.seed,
            "status": self.status().name(),
            "duration_ms": u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
            "operations": self.operations,
            "ordinary": self.ordinary,
            "executions": self.executions,
            "kills": self.kills,
            "injected": injected,
            "slow": self.slow,
            "ambiguous": self.ambiguous,
            "explained": self.explained,
            "unexplained": self.unexplained,
            "controls": self.controls,
            "controls_caught": self.controls_caught,
            "wrong": self.wrong(),
            "not_shown": self.doubts(),
            "bounds": bounds,
            "measures": self.measures.iter().map(Measure::json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Soaked {
        Soaked {
            operations: 100,
            ambiguous: 3,
            explained: 2,
            controls: 1,
            controls_caught: 1,
            injected: BTreeMap::from([("timed out".to_owned(), (2, 2))]),
            measures: vec![Measure::default(); MEASURES_MIN],
            ..Soaked::default()
        }
    }

    #[test]
    fn a_control_that_is_not_caught_fails_the_run() {
        // SOA-4
        assert_eq!(sound().status(), Status::Pass);
        let missed = Soaked { controls_caught: 0, ..sound() };
        assert_eq!(missed.status(), Status::Fail);
        assert!(missed.wrong()[0].contains("proves nothing"), "{:?}", missed.wrong());
        let none = Soaked { controls: 0, controls_caught: 0, ..sound() };
        assert_eq!(none.status(), Status::Inconclusive);
    }

    #[test]
    fn what_is_not_explained_fails_the_run_and_what_did_not_fall_shows_nothing() {
        // SOA-3, SOA-6
        let unexplained = Soaked { unexplained: vec!["k".to_owned()], ..sound() };
        assert_eq!(unexplained.status(), Status::Fail);
        let violated = Soaked { violations: vec!["k: ran twice".to_owned()], ..sound() };
        assert_eq!(violated.status(), Status::Fail);
        let unfallen = BTreeMap::from([("timed out".to_owned(), (2, 0))]);
        assert_eq!(Soaked { injected: unfallen, ..sound() }.status(), Status::Inconclusive);
        assert_eq!(Soaked { slow: 6, ..sound() }.status(), Status::Inconclusive);
        let short = Soaked { measures: vec![Measure::default(); 2], ..sound() };
        assert_eq!(short.status(), Status::Inconclusive);
    }
}
