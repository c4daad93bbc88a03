//! What the tests of `plan` share: small values with names, nothing that decides.
use std::time::Duration;

use ctrlrun::plan::effect::{
    Begin, Command, Ending, Holder, Labels, OutcomeId, RanOn, Request, Reserve, Settle, Verdict,
    WriteId,
};
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::time::Timestamp;
use uuid::Uuid;

/// Every lease that the tests ask for.
pub const LEASE: Duration = Duration::from_secs(60);

/// The store's clock in the tests, unless one moves it.
pub const NOW: Timestamp = Timestamp(1_000_000_000);

pub fn key() -> Key {
    match Key::new("refund:txn_1") {
        Ok(key) => key,
        Err(error) => panic!("{error}"),
    }
}

pub fn write_id(n: u128) -> WriteId {
    WriteId(Uuid::from_u128(n))
}

pub fn outcome_id(n: u128) -> OutcomeId {
    OutcomeId(Uuid::from_u128(n))
}

/// Requests are the same if and only if `n` is.
pub fn request(n: u8) -> Request {
    Request {
        fingerprint: Fingerprint([n; 32]),
        program: "refund.sh".to_owned(),
        arguments: 1,
        command: None,
    }
}

pub fn ending(detail: &str) -> Ending {
    Ending {
        exit_code: None,
        signal: None,
        detail: detail.to_owned(),
    }
}

pub fn ran_on() -> RanOn {
    RanOn {
        host: "bastion".to_owned(),
        pid: 1,
        user: "deploy".to_owned(),
        directory: "/".to_owned(),
    }
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
    Command::Begin(Begin {
        holder,
        lease: LEASE,
        ran_on: ran_on(),
        labels: Labels::new(),
    })
}

pub fn settle(holder: Holder, outcome: OutcomeId, verdict: Verdict) -> Command {
    Command::Settle(Settle {
        holder,
        outcome_id: outcome,
        verdict,
        ending: ending("the child's end"),
    })
}
