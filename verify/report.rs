//! What came of it, as values: the table, the JSON and the JUnit report are made of the same (VER-8).
use std::time::Duration;

use quick_junit::{NonSuccessKind, Report as Junit, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Value, json};

use super::catalogue::CATALOGUE;

/// A verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It holds.
    Pass,
    /// It is violated.
    Fail,
    /// Nothing was shown, for or against. That is no pass.
    Inconclusive,
    /// It cannot be shown here, for a reason that is told.
    NotApplicable,
}

impl Status {
    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Inconclusive => "inconclusive",
            Self::NotApplicable => "not_applicable",
        }
    }

    /// The verdict, for a person.
    #[must_use]
    pub fn verdict(self) -> &'static str {
        match self {
            Self::Pass => "holds",
            Self::Fail => "VIOLATED",
            Self::Inconclusive => "inconclusive",
            Self::NotApplicable => "not applicable",
        }
    }
}

/// What came of one guarantee.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its name.
    pub id: &'static str,
    /// What is guaranteed.
    pub title: &'static str,
    /// The verdict.
    pub status: Status,
    /// What is wrong, or why nothing was shown; else what else there is to say.
    pub detail: String,
    /// Executions, by the ledger.
    pub executions: u64,
    /// Kills, by the wait status.
    pub kills: u64,
    /// Rounds.
    pub rounds: u64,
    /// How long it took.
    pub duration: Duration,
}

/// What came of all of it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The kind of store.
    pub store: &'static str,
    /// What the random choices were drawn from.
    pub seed: u64,
    /// One line each.
    pub lines: Vec<Line>,
    /// How long it took.
    pub duration: Duration,
}

impl Report {
    /// How many have this verdict.
    #[must_use]
    pub fn count(&self, status: Status) -> usize {
        self.lines.iter().filter(|line| line.status == status).count()
    }

    /// Whether all that is applicable holds, and there is any: nothing shown is no success.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.count(Status::Pass) > 0
            && self.count(Status::Fail) == 0
            && self.count(Status::Inconclusive) == 0
    }

    /// Executions, kills and rounds of all.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        self.lines.iter().fold((0, 0, 0), |(executions, kills, rounds), line| {
            (executions + line.executions, kills + line.kills, rounds + line.rounds)
        })
    }

    /// The object.
    #[must_use]
    pub fn json(&self) -> Value {
        let guarantees: Vec<Value> = self
            .lines
            .iter()
            .map(|line| {
                json!({
                    "id": line.id,
                    "title": line.title,
                    "status": line.status.name(),
                    "detail": line.detail,
                    "executions": line.executions,
                    "kills": line.kills,
                    "rounds": line.rounds,
                    "duration_ms": u64::try_from(line.duration.as_millis()).unwrap_or(u64::MAX),
                })
            })
            .collect();
        json!({
            "catalogue": CATALOGUE,
            "store": self.store,
            "seed": self.seed,
            "guarantees": guarantees,
            "passed": self.count(Status::Pass),
            "failed": self.count(Status::Fail),
            "inconclusive": self.count(Status::Inconclusive),
            "not_applicable": self.count(Status::NotApplicable),
        })
    }

    /// The report that continuous integration reads. What is inconclusive is an error there: it is no
    /// pass, and no violation.
    ///
    /// # Errors
    /// What the XML cannot take.
    pub fn junit(&self) -> Result<String, quick_junit::SerializeError> {
        let mut suite = TestSuite::new(format!("ctrlrun verify ({})", self.store));
        suite.add_property(("seed", self.seed.to_string().as_str()));
        for line in &self.lines {
            let mut status = match line.status {
                Status::Pass => TestCaseStatus::success(),
                Status::Fail => TestCaseStatus::non_success(NonSuccessKind::Failure),
                Status::Inconclusive => TestCaseStatus::non_success(NonSuccessKind::Error),
                Status::NotApplicable => TestCaseStatus::skipped(),
            };
            if line.status != Status::Pass {
                status.set_message(line.detail.as_str());
            }
            let mut case = TestCase::new(format!("{} {}", line.id, line.title), status);
            case.set_classname("ctrlrun.verify");
            case.set_time(line.duration);
            for (name, count) in
                [("executions", line.executions), ("kills", line.kills), ("rounds", line.rounds)]
            {
                case.add_property((name, count.to_string().as_str()));
            }
            suite.add_test_case(case);
        }
        let mut report = Junit::new("ctrlrun verify");
        report.set_time(self.duration);
        report.add_test_suite(suite);
        report.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(statuses: &[Status]) -> Report {
        let line = |status: &Status| Line {
            id: "G1",
            title: "t",
            status: *status,
            detail: "a < b".to_owned(),
            executions: 2,
            kills: 1,
            rounds: 3,
            duration: Duration::from_millis(1_500),
        };
        let lines = statuses.iter().map(line).collect();
        Report { store: "sqlite", seed: 7, lines, duration: Duration::from_secs(2) }
    }

    #[test]
    fn nothing_shown_is_no_success() {
        // VER-1
        use Status::{Fail, Inconclusive, NotApplicable, Pass};
        assert!(report(&[Pass, NotApplicable]).holds());
        assert!(!report(&[]).holds());
        assert!(!report(&[NotApplicable]).holds());
        assert!(!report(&[Pass, Inconclusive]).holds());
        assert!(!report(&[Pass, Fail]).holds());
    }

    #[test]
    fn junit_tells_the_verdicts_apart() {
        // VER-8
        use Status::{Fail, Inconclusive, NotApplicable, Pass};
        let xml = report(&[Pass, Fail, Inconclusive, NotApplicable]).junit().unwrap();
        for part in ["tests=\"4\"", "failures=\"1\"", "errors=\"1\"", "<skipped", "a &lt; b"] {
            assert!(xml.contains(part), "{part}: {xml}");
        }
    }
}
