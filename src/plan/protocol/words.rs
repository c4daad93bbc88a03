//! What is said where a command could not be carried through.
use super::{CouldNot, Reason};

/// The commit whose answer did not come, and why nobody could look: that one names the mend.
pub fn both(first: CouldNot, reread: CouldNot) -> CouldNot {
    CouldNot {
        reason: first.reason,
        message: format!(
            "{}; then the store could not be read again: {}",
            first.message, reread.message
        ),
        hint: reread.hint.or(first.hint),
    }
}

/// Every try met a row that another had written meanwhile.
pub fn faster() -> CouldNot {
    CouldNot {
        reason: Reason::Busy,
        message: "other writers of this key were faster every time".to_owned(),
        hint: None,
    }
}

/// No try is left; the first one tells why, where there was one.
pub fn out_of_budget(first: Option<CouldNot>) -> CouldNot {
    first.unwrap_or(CouldNot {
        reason: Reason::Busy,
        message: "no time was left".to_owned(),
        hint: None,
    })
}
