//! What can happen to a run: the events of its history.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::append::InboxId;
use super::names::{Hash, Name};
use super::types::{Asked, Expected, Status, Tier};
use crate::plan::effect::Unreadable;
use crate::plan::key::{Fingerprint, Key};
use crate::plan::time::Timestamp;

/// One event of a run, as a tick names it and the fold reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum RunEvent {
    /// It exists.
    Started {
        /// The workflow's name.
        workflow: Name,
        /// Its tier.
        tier: Tier,
        /// The definition, in canonical JSON.
        definition: String,
        /// The hash of that.
        hash: Hash,
        /// Its nodes.
        nodes: Vec<Name>,
        /// What it was started with.
        inputs: BTreeMap<Name, String>,
    },
    /// A node is to be run.
    NodeDispatched {
        /// The node.
        node: Name,
        /// Its effect.
        key: Key,
        /// The attempt.
        attempt: u64,
        /// What the effect is to be bound to.
        fingerprint: Fingerprint,
        /// What the reserve is held to.
        expect: Expected,
        /// Not before.
        due: Timestamp,
        /// Why it is dispatched.
        why: DispatchedWhy,
    },
    /// A dispatch was taken back before anything had been started by it.
    NodeWithdrawn {
        /// The node.
        node: Name,
    },
    /// A node waits for a signal or a time.
    NodeWaiting {
        /// The node.
        node: Name,
        /// The signal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<Name>,
        /// The time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// What a node waited for has come.
    NodePassed {
        /// The node.
        node: Name,
    },
    /// A node's effect is COMMITTED.
    NodeCommitted {
        /// The node.
        node: Name,
        /// Its effect.
        key: Key,
        /// The attempt.
        attempt: u64,
        /// Where the record stood.
        revision: u64,
    },
    /// A node's effect is FAILED, and its retries are used up.
    NodeFailed {
        /// The node.
        node: Name,
        /// Its effect.
        key: Key,
        /// The attempt.
        attempt: u64,
        /// Where the record stood.
        revision: u64,
        /// What the record says.
        detail: String,
    },
    /// A node's effect is AMBIGUOUS.
    NodeAmbiguous {
        /// The node.
        node: Name,
        /// Its effect.
        key: Key,
        /// The attempt.
        attempt: u64,
        /// Where the record stood.
        revision: u64,
        /// What the record says.
        detail: String,
        /// It was done, and a person took that back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reopened: bool,
    },
    /// A node cannot be dispatched.
    NodeUnfit {
        /// The node.
        node: Name,
        /// Why.
        why: String,
    },
    /// What kept a node from being dispatched is gone.
    NodePending {
        /// The node.
        node: Name,
    },
    /// A signal has come.
    Signalled {
        /// The item of the inbox.
        item: InboxId,
        /// Its name.
        name: Name,
        /// What it carries.
        payload: String,
        /// Who sent it.
        by: String,
    },
    /// Somebody wants it to end.
    CancelAsked {
        /// The item of the inbox.
        item: InboxId,
        /// Who, and why.
        #[serde(flatten)]
        asked: Asked,
    },
    /// It goes on by another definition.
    DefinitionAccepted {
        /// The item of the inbox.
        item: InboxId,
        /// The definition, in canonical JSON.
        definition: String,
        /// The hash of that.
        hash: Hash,
        /// Its nodes.
        nodes: Vec<Name>,
        /// Who accepted it.
        by: String,
    },
    /// Something that changes nothing, kept for a person: a wish that came too late, a node that
    /// was reopened after the end.
    Noted {
        /// The item of the inbox, if it was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<InboxId>,
        /// What.
        what: String,
    },
    /// It stands otherwise now.
    StatusChanged {
        /// How.
        status: Status,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// Why a node is dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DispatchedWhy {
    /// For the first time.
    First,
    /// It is FAILED on its own word, and has a retry left: this one counts.
    Retry,
    /// Its last attempt never started.
    NeverStarted,
    /// A person or a probe said that it did not happen.
    NotExecuted,
    /// What the last dispatch expected no longer holds, and nothing had been started by it.
    Moved,
}

impl RunEvent {
    /// The type as it is stored and printed.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::NodeDispatched { .. } => "node_dispatched",
            Self::NodeWithdrawn { .. } => "node_withdrawn",
            Self::NodeWaiting { .. } => "node_waiting",
            Self::NodePassed { .. } => "node_passed",
            Self::NodeCommitted { .. } => "node_committed",
            Self::NodeFailed { .. } => "node_failed",
            Self::NodeAmbiguous { .. } => "node_ambiguous",
            Self::NodeUnfit { .. } => "node_unfit",
            Self::NodePending { .. } => "node_pending",
            Self::Signalled { .. } => "signalled",
            Self::CancelAsked { .. } => "cancel_asked",
            Self::DefinitionAccepted { .. } => "definition_accepted",
            Self::Noted { .. } => "noted",
            Self::StatusChanged { .. } => "status_changed",
        }
    }

    /// The event's data as a JSON object.
    #[must_use]
    pub fn data(&self) -> String {
        let whole = serde_json::to_value(self);
        #[expect(clippy::expect_used, reason = "plain structs of strings and numbers serialise")]
        let mut whole = whole.expect("an event serialises");
        whole["data"].take().to_string()
    }

    /// Reads an event back from its stored type and data.
    ///
    /// # Errors
    /// [`Unreadable`] for a type this binary does not know, or data that is not of that type.
    pub fn parse(kind: &str, data: &str) -> Result<Self, Unreadable> {
        let unreadable =
            |error: serde_json::Error| Unreadable { kind: kind.to_owned(), why: error.to_string() };
        let data: serde_json::Value = serde_json::from_str(data).map_err(unreadable)?;
        serde_json::from_value(serde_json::json!({"type": kind, "data": data})).map_err(unreadable)
    }
}
