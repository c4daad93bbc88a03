//! What all tests of `plan` share: small values with names, nothing that decides.
use ctrlrun::plan::effect::{Ending, RanOn, Request, WriteId};
use ctrlrun::plan::key::{Fingerprint, Key};
use uuid::Uuid;

pub fn key() -> Key {
    match Key::new("refund:txn_1") {
        Ok(key) => key,
        Err(error) => panic!("{error}"),
    }
}

pub fn write_id(n: u128) -> WriteId {
    WriteId(Uuid::from_u128(n))
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
    Ending { exit_code: None, signal: None, detail: detail.to_owned() }
}

pub fn ran_on() -> RanOn {
    RanOn {
        host: "bastion".to_owned(),
        pid: 1,
        user: "deploy".to_owned(),
        directory: "/".to_owned(),
    }
}
