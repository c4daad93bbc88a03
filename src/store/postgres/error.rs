//! What an error of a connection or a server means to the one who asked (STO-11, PGS-9).
use super::connect::{ConnectError, Kind};
use super::link::{LinkError, ServerError};
use crate::store::row::Malformed;
use crate::store::{CouldNot, Reason};

/// What can go wrong on a connection.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The exchange gave no answer that counts.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A stored value cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It is known already what it means.
    #[error(transparent)]
    Known(#[from] CouldNot),
}

/// SQLSTATE, if the server gave one.
pub fn code(fault: &Fault) -> Option<&str> {
    match fault {
        Fault::Link(LinkError::Server(error)) => Some(&error.code),
        Fault::Link(LinkError::Deadline(_) | LinkError::Lost(_) | LinkError::Odd(_))
        | Fault::Malformed(_)
        | Fault::Known(_) => None,
    }
}

/// Whether the server has thrown the transaction away to let another one through: at any statement,
/// COMMIT included, that proves that nothing was committed (PGS-4).
pub fn is_victim(error: &LinkError) -> bool {
    matches!(error, LinkError::Server(error) if matches!(&*error.code, "40001" | "40P01"))
}

/// What a fault means, at the store that a person calls `place`.
pub fn could_not(fault: Fault, place: &str) -> CouldNot {
    let error = match fault {
        Fault::Known(known) => return known,
        Fault::Malformed(malformed) => {
            return CouldNot {
                reason: Reason::Damaged,
                message: format!("{place}: what is stored cannot be read: {malformed}"),
                hint: None,
            };
        }
        Fault::Link(error) => error,
    };
    let (reason, hint) = match &error {
        LinkError::Deadline(_) => (Reason::Busy, "try again, or wait longer with --store-timeout"),
        LinkError::Lost(_) | LinkError::Odd(_) => (Reason::Unreachable, ""),
        LinkError::Server(error) => by_server(error),
    };
    let what = match &error {
        LinkError::Deadline(within) if within.is_zero() => "no time was left to ask it".to_owned(),
        LinkError::Deadline(_) | LinkError::Lost(_) | LinkError::Server(_) | LinkError::Odd(_) => {
            error.to_string()
        }
    };
    CouldNot {
        reason,
        message: format!("{place}: {what}"),
        hint: (!hint.is_empty()).then(|| hint.to_owned()),
    }
}

fn by_server(error: &ServerError) -> (Reason, &'static str) {
    match &*error.code {
        "42501" => (
            Reason::Denied,
            "grant it to this role: `ctrlrun init` on this store prints the statements",
        ),
        "25006" => (
            Reason::Unreachable,
            "the server takes no writes (a standby, or read-only): name the primary, or several \
             hosts with target_session_attrs=read-write",
        ),
        "42P01" | "3F000" => (Reason::Missing, ""),
        // Another's lock, or our own time-outs.
        "55P03" | "57014" | "40001" | "40P01" => (Reason::Busy, ""),
        "53100" => (Reason::Unreachable, "the server's disk is full: make room"),
        code => match code.get(..2) {
            Some("28") => (Reason::Denied, ""),
            // Connection, resources, an operator's or the pooler's doing, the server's own disk.
            Some("08" | "53" | "57" | "58" | "25") => (Reason::Unreachable, ""),
            // Everything else is a statement that does not fit what is stored.
            Some(_) | None => (Reason::Damaged, ""),
        },
    }
}

/// What it means that no connection could be made.
pub fn not_connected(error: &ConnectError, place: &str) -> CouldNot {
    let (reason, hint) = match error.kind() {
        Kind::Unreachable => (Reason::Unreachable, None),
        Kind::Denied => (Reason::Denied, None),
        Kind::Settings => (Reason::Unfit, Some("mend the store's URL, or the server".to_owned())),
    };
    CouldNot { reason, message: format!("{place}: {error}"), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: &str) -> LinkError {
        LinkError::Server(ServerError {
            code: code.to_owned(),
            severity: None,
            message: "m".to_owned(),
            detail: None,
            hint: None,
        })
    }

    #[test]
    fn only_two_codes_prove_an_abort() {
        // CMT-5, PGS-4
        assert!(is_victim(&server("40001")) && is_victim(&server("40P01")));
        for code in ["40003", "57014", "08006", "08P01", "25P02", "55P03", "57P01", "XX000"] {
            assert!(!is_victim(&server(code)), "{code}");
        }
        assert!(!is_victim(&LinkError::Lost("40001".to_owned())));
    }

    #[test]
    fn each_error_has_its_reason() {
        // STO-11, PGS-9
        let reason = |code| could_not(server(code).into(), "p").reason;
        for (code, expected) in [
            ("42501", Reason::Denied),
            ("28P01", Reason::Denied),
            ("25006", Reason::Unreachable),
            ("42P01", Reason::Missing),
            ("3F000", Reason::Missing),
            ("55P03", Reason::Busy),
            ("57014", Reason::Busy),
            ("40001", Reason::Busy),
            ("57P01", Reason::Unreachable),
            ("53100", Reason::Unreachable),
            ("08P01", Reason::Unreachable),
            ("58030", Reason::Unreachable),
            ("42703", Reason::Damaged),
            ("23505", Reason::Damaged),
            ("", Reason::Damaged),
        ] {
            assert_eq!(reason(code), expected, "{code}");
        }
        assert_eq!(
            could_not(LinkError::Lost(String::new()).into(), "p").reason,
            Reason::Unreachable
        );
    }
}
