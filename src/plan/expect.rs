//! What a caller may expect of an effect's stream before writing to it (CMT-2, CMT-3).
use std::fmt;

/// The stream state that a command is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StreamState {
    /// Whatever was found; the write is still conditional on the version just loaded.
    #[default]
    Any,
    /// The effect must not exist.
    NoStream,
    /// The effect must exist when it is loaded; after that as [`StreamState::Any`].
    StreamExists,
    /// The effect must stand at this revision.
    Revision(u64),
}

/// An expectation that did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conflict {
    /// What the caller expected.
    pub expected: StreamState,
    /// The revision found; `None` where there is no such effect.
    pub actual: Option<u64>,
}

impl StreamState {
    /// Holds this expectation against the revision found.
    ///
    /// # Errors
    /// The conflict, with what was expected and what was found.
    pub fn check(self, found: Option<u64>) -> Result<(), Conflict> {
        let holds = match self {
            Self::Any => true,
            Self::NoStream => found.is_none(),
            Self::StreamExists => found.is_some(),
            Self::Revision(expected) => found == Some(expected),
        };
        if holds { Ok(()) } else { Err(Conflict { expected: self, actual: found }) }
    }

    /// Whether a write that lost to another may look again and decide anew. `NoStream` and
    /// `Revision` say which state was looked at, so a lost race is the caller's to judge.
    #[must_use]
    pub fn may_decide_again(self) -> bool {
        match self {
            Self::Any | Self::StreamExists => true,
            Self::NoStream | Self::Revision(_) => false,
        }
    }
}

impl fmt::Display for StreamState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::NoStream => f.write_str("new"),
            Self::StreamExists => f.write_str("exists"),
            Self::Revision(revision) => write!(f, "{revision}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expectation_against_every_state_found() {
        let found = [None, Some(1), Some(2)];
        let holds = |state: StreamState| found.map(|revision| state.check(revision).is_ok());
        assert_eq!(holds(StreamState::Any), [true, true, true]);
        assert_eq!(holds(StreamState::NoStream), [true, false, false]);
        assert_eq!(holds(StreamState::StreamExists), [false, true, true]);
        assert_eq!(holds(StreamState::Revision(2)), [false, false, true]);
    }

    #[test]
    fn a_conflict_tells_expected_and_actual() {
        let conflict = StreamState::Revision(3).check(Some(5));
        assert_eq!(conflict, Err(Conflict { expected: StreamState::Revision(3), actual: Some(5) }));
    }

    #[test]
    fn only_loose_expectations_decide_again_after_a_lost_race() {
        assert!(
            StreamState::Any.may_decide_again() && StreamState::StreamExists.may_decide_again()
        );
        assert!(!StreamState::NoStream.may_decide_again());
        assert!(!StreamState::Revision(1).may_decide_again());
    }
}
