//! What can happen to an effect: the events of its history (HIS clauses).
use serde::{Deserialize, Serialize};

use super::{Cause, Ending, FailedBy, Labels, OutcomeId, ProbeAnswer, Request, Verdict, WriteId};
use crate::plan::time::Timestamp;

/// One event, as `decide` names it and `evolve` folds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// An attempt was granted the key.
    Reserved(Reserved),
    /// The command is about to be started.
    Began(Began),
    /// The holder is alive.
    LeaseRenewed(LeaseRenewed),
    /// It happened.
    Committed(Committed),
    /// It provably did not.
    Failed(Failed),
    /// Nobody knows.
    Ambiguated(Ambiguated),
    /// A word of a holder that no longer held the record.
    LateOutcome(LateOutcome),
    /// A probe answered, and nothing moved by that alone.
    Probed(Probed),
    /// A person or a probe decided.
    Resolved(Resolved),
    /// A decision was taken back.
    Reopened(Reopened),
}

/// See [`Event::Reserved`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reserved {
    /// The number granted.
    pub attempt: u64,
    /// The caller's label for it.
    pub attempt_id: String,
    /// What the key is bound to from here on.
    pub request: Request,
    /// Until when the holder may begin.
    pub lease_expires_at: Timestamp,
    /// The workflow run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
}

/// See [`Event::Began`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Began {
    /// Until when the holder is presumed alive without a renewal.
    pub lease_expires_at: Timestamp,
    /// Where it runs: evidence for a person.
    pub ran_on: RanOn,
    /// The caller's marks.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// Where an attempt runs: evidence, read by no rule, since the store cannot know that a holder is gone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RanOn {
    /// The host's name.
    pub host: String,
    /// The process id of the wrapper on it.
    pub pid: u32,
    /// The user's name.
    pub user: String,
    /// The working directory.
    pub directory: String,
}

/// See [`Event::LeaseRenewed`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseRenewed {
    /// The lease's new end.
    pub lease_expires_at: Timestamp,
}

/// See [`Event::Committed`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Committed {
    /// How the child ended.
    pub ending: Ending,
}

/// See [`Event::Failed`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failed {
    /// `own_word` or `never_started`.
    pub by: FailedBy,
    /// How the child ended, or why it was not started.
    pub ending: Ending,
}

/// See [`Event::Ambiguated`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ambiguated {
    /// Why nobody knows.
    pub cause: Cause,
    /// Whether its holder recorded it after reaping the child, no time-out, no descendant left.
    pub reaped: bool,
    /// How the child ended, where its holder said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
}

/// See [`Event::LateOutcome`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LateOutcome {
    /// The attempt whose holder speaks.
    pub attempt: u64,
    /// Its reservation.
    pub reservation_id: WriteId,
    /// What it says.
    pub word: Verdict,
    /// Whether this word leaves the record in doubt (EFF doubt clause).
    pub doubt: bool,
    /// How its child ended.
    pub ending: Ending,
}

/// See [`Event::Probed`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Probed {
    /// What the probe said.
    pub answer: ProbeAnswer,
    /// `reconcile:NAME`.
    pub by: String,
}

/// See [`Event::Resolved`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resolved {
    /// What was decided.
    pub decision: ProbeAnswer,
    /// Who decided.
    pub by: String,
    /// How they know.
    pub reason: String,
    /// Whether a probe decided, not a person.
    #[serde(default)]
    pub probe: bool,
    /// The revision that was looked at.
    pub looked_at: u64,
}

/// See [`Event::Reopened`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reopened {
    /// Who took it back.
    pub by: String,
    /// Why.
    pub reason: String,
    /// The revision that was looked at.
    pub looked_at: u64,
}

/// One event as the store keeps it: revision N is the N-th event of its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HistoryRow {
    /// Its place in the stream, from 1.
    pub revision: u64,
    /// The append that wrote it.
    pub write_id: WriteId,
    /// The child whose word it is, on the events that settle.
    pub outcome_id: Option<OutcomeId>,
    /// The attempt it is about: of a late outcome the one whose word came late, else the record's.
    pub attempt: u64,
    /// When, by the store's clock.
    pub recorded_at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// A stored event that this binary cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stored event {kind:?} cannot be read: {why}")]
pub struct Unreadable {
    /// Its stored type.
    pub kind: String,
    /// What is wrong with it.
    pub why: String,
}

impl Event {
    /// The type as it is stored and printed.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Reserved(_) => "reserved",
            Self::Began(_) => "began",
            Self::LeaseRenewed(_) => "lease_renewed",
            Self::Committed(_) => "committed",
            Self::Failed(_) => "failed",
            Self::Ambiguated(_) => "ambiguated",
            Self::LateOutcome(_) => "late_outcome",
            Self::Probed(_) => "probed",
            Self::Resolved(_) => "resolved",
            Self::Reopened(_) => "reopened",
        }
    }

    /// The event's data as a JSON object.
    #[must_use]
    pub fn data(&self) -> String {
        let data = match self {
            Self::Reserved(data) => serde_json::to_string(data),
            Self::Began(data) => serde_json::to_string(data),
            Self::LeaseRenewed(data) => serde_json::to_string(data),
            Self::Committed(data) => serde_json::to_string(data),
            Self::Failed(data) => serde_json::to_string(data),
            Self::Ambiguated(data) => serde_json::to_string(data),
            Self::LateOutcome(data) => serde_json::to_string(data),
            Self::Probed(data) => serde_json::to_string(data),
            Self::Resolved(data) => serde_json::to_string(data),
            Self::Reopened(data) => serde_json::to_string(data),
        };
        #[expect(
            clippy::expect_used,
            reason = "plain structs of strings and numbers always serialise"
        )]
        data.expect("event data serialises")
    }

    /// Reads an event back from its stored type and data.
    ///
    /// # Errors
    /// [`Unreadable`] for a type this binary does not know, or data that is not of that type.
    pub fn parse(kind: &str, data: &str) -> Result<Self, Unreadable> {
        let event = match kind {
            "reserved" => serde_json::from_str(data).map(Self::Reserved),
            "began" => serde_json::from_str(data).map(Self::Began),
            "lease_renewed" => serde_json::from_str(data).map(Self::LeaseRenewed),
            "committed" => serde_json::from_str(data).map(Self::Committed),
            "failed" => serde_json::from_str(data).map(Self::Failed),
            "ambiguated" => serde_json::from_str(data).map(Self::Ambiguated),
            "late_outcome" => serde_json::from_str(data).map(Self::LateOutcome),
            "probed" => serde_json::from_str(data).map(Self::Probed),
            "resolved" => serde_json::from_str(data).map(Self::Resolved),
            "reopened" => serde_json::from_str(data).map(Self::Reopened),
            _ => {
                let why = "this ctrlrun does not know the type".to_owned();
                return Err(Unreadable { kind: kind.to_owned(), why });
            }
        };
        event.map_err(|error| Unreadable { kind: kind.to_owned(), why: error.to_string() })
    }
}
