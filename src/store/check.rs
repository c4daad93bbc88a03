//! What can be said of a store without running anything in it: one line a question, with what was
//! found and, where that must not stay so, what mends it (CLI-23).
use std::time::Duration;

use super::columns::OLDEST;
use super::location::SqliteAt;
use super::{Location, postgres, sqlite};

/// What one look found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was looked at, in few words.
    pub about: &'static str,
    /// What was found.
    pub found: String,
    /// What is wrong with that, and what mends it; `None` if nothing is.
    pub finding: Option<String>,
}

impl Check {
    /// It is as it should be.
    #[must_use]
    pub fn fine(about: &'static str, found: impl Into<String>) -> Self {
        Self { about, found: found.into(), finding: None }
    }

    /// It is not.
    #[must_use]
    pub fn wrong(
        about: &'static str,
        found: impl Into<String>,
        finding: impl Into<String>,
    ) -> Self {
        Self { about, found: found.into(), finding: Some(finding.into()) }
    }
}

/// What a store was found to be.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    /// Every look, in the order of a table.
    pub checks: Vec<Check>,
    /// The store's id, where a store is there.
    pub store_id: Option<uuid::Uuid>,
}

/// Looks at the store at `location`; with `probe` also finds out by experiment, in a schema that is
/// made for it and dropped again, whether a server does what a store needs. Nothing of a store is
/// changed, and what cannot be asked is a finding.
#[must_use]
pub fn check(location: &Location, probe: bool, within: Duration) -> Checked {
    match location {
        Location::Postgres(at) => postgres::doctor::check(at, probe, within),
        Location::Sqlite(at) => embedded(at, probe, within),
    }
}

/// What is said of a schema whose version is `found`, and where, by a binary that knows versions up to
/// `newest`.
pub(super) fn version(found: i64, whereabouts: &str, newest: i64) -> String {
    let known = format!("version {found}{whereabouts}, this ctrlrun knows {OLDEST} to {newest}");
    match found < newest {
        true => format!("{known} (`ctrlrun init --upgrade` moves it)"),
        false => known,
    }
}

fn embedded(at: &SqliteAt, probe: bool, within: Duration) -> Checked {
    let mut checked = sqlite::doctor::check(at, within);
    if probe {
        let none = "not asked: what a server does is probed, and this is a file";
        checked.checks.push(Check::fine("probe", none));
    }
    checked
}
