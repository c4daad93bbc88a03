//! Commands of the tests, with their usual values.
use std::time::Duration;

use ctrlrun::plan::effect::{Begin, Command, Holder, Labels, OutcomeId, Reserve, Settle, Verdict};
use ctrlrun::plan::time::Timestamp;
use uuid::Uuid;

use crate::plan_common::{ending, ran_on, request};

/// Every lease that the tests ask for.
pub const LEASE: Duration = Duration::from_secs(60);

/// The store's clock in the tests, unless one moves it.
pub const NOW: Timestamp = Timestamp(1_000_000_000);

pub fn outcome_id(n: u128) -> OutcomeId {
    OutcomeId(Uuid::from_u128(n))
}

pub fn reserve(attempt_id: &str) -> Reserve {
    Reserve {
        request: request(1),
        attempt_id: attempt_id.to_owned(),
        lease: LEASE,
        max_attempts: None,
        rebind: false,
        run_id: None,
    }
}

pub fn begin(holder: Holder) -> Command {
    Command::Begin(Begin { holder, lease: LEASE, ran_on: ran_on(), labels: Labels::new() })
}

pub fn settle(holder: Holder, outcome: OutcomeId, verdict: Verdict) -> Command {
    Command::Settle(Settle {
        holder,
        outcome_id: outcome,
        verdict,
        ending: ending("the child's end"),
    })
}
