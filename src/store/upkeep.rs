//! What is asked of a store to keep it: every record with its history, what is there in numbers, and
//! what is to go (OPS clauses).
use std::time::Duration;

use super::{CouldNot, Filter};
use crate::plan::effect::{HistoryRow, Record, WriteId};
use crate::plan::key::Key;
use crate::plan::time::Timestamp;

/// One record of a walk.
#[derive(Debug, Clone)]
pub enum Walked {
    /// It, with all that belongs to it.
    Effect(Box<Whole>),
    /// A record, or an event of it, that cannot be read: its key as stored, and why.
    Unreadable {
        /// The key's bytes, as text.
        key: String,
        /// What is wrong.
        why: String,
    },
}

/// A record and its whole history, of one moment.
#[derive(Debug, Clone)]
pub struct Whole {
    /// The record.
    pub record: Record,
    /// The store's clock when it was read.
    pub now: Timestamp,
    /// Its events, oldest first.
    pub history: Vec<HistoryRow>,
    /// Bytes that are stored of the output of all its attempts.
    pub kept: u64,
}

impl Whole {
    /// The row as it was read.
    #[must_use]
    pub fn as_read(&self) -> AsRead {
        AsRead {
            key: self.record.key.clone(),
            revision: self.record.revision,
            write_id: self.record.write_id,
            attempt: self.record.attempt,
        }
    }
}

/// The row that a decision was made on, and the condition of what is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsRead {
    /// Its key.
    pub key: Key,
    /// The revision that it stood at.
    pub revision: u64,
    /// The write that had put it there.
    pub write_id: WriteId,
    /// The attempt that it stood at.
    pub attempt: u64,
}

impl AsRead {
    /// The largest number of it that must never come round again (OPS-5).
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.revision.max(self.attempt)
    }
}

/// What is to go in one transaction (OPS-4). No effect is in both lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cut {
    /// Of these the stored output.
    pub outputs: Vec<AsRead>,
    /// These altogether.
    pub effects: Vec<AsRead>,
}

impl Cut {
    /// Whether it asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty() && self.effects.is_empty()
    }
}

/// What went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gone {
    /// Effects whose output was dropped.
    pub outputs: u64,
    /// Effects that were forgotten.
    pub effects: u64,
}

/// How a prune's transaction ended. There is no error beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "what is not known to have gone must not be counted"]
pub enum Pruned {
    /// It is committed. Rows that had moved stayed.
    Done(Gone),
    /// Nothing went.
    NotCommitted(CouldNot),
    /// All of it went, or nothing did, and nobody knows which.
    Unknown(CouldNot),
}

/// A store in numbers, of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// The store's clock.
    pub now: Option<Timestamp>,
    /// How many effects there are of each kind.
    pub counts: Vec<Count>,
    /// What the numbers of a new key lie above (OPS-5).
    pub attempt_floor: u64,
    /// How much room it takes, in bytes, its log included.
    pub bytes: u64,
}

/// The effects of one state, live or lapsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The state's stored name.
    pub state: String,
    /// Whether their leases have ended.
    pub lapsed: bool,
    /// How many.
    pub effects: u64,
    /// When the one that has not changed for longest did.
    pub oldest: Timestamp,
    /// When the newest did.
    pub newest: Timestamp,
}

impl Stats {
    /// Those that need a decision: AMBIGUOUS, or lapsed.
    pub fn stuck(&self) -> impl Iterator<Item = &Count> {
        self.counts.iter().filter(|count| count.lapsed || count.state == "ambiguous")
    }

    /// For how long the oldest of these has stood so; `None` if there is none.
    #[must_use]
    pub fn oldest_stuck(&self) -> Option<Duration> {
        let oldest = self.stuck().map(|count| count.oldest).min()?;
        self.now.map(|now| now.since(oldest))
    }

    /// All effects.
    #[must_use]
    pub fn effects(&self) -> u64 {
        self.counts.iter().map(|count| count.effects).sum()
    }

    /// When the newest change was recorded.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        self.counts.iter().map(|count| count.newest).max()
    }
}

/// Keys read at a time in a walk: each comes with its history.
pub(super) const WALK_KEYS: usize = 64;
/// Events after which no further key is begun in a page of a walk.
pub(super) const WALK_EVENTS: usize = 4_096;

/// Where a walk stands, on either store.
pub(super) struct Step {
    /// The key to start at or after, as its bytes.
    pub from: Vec<u8>,
    /// Whether that key itself is meant as well.
    pub inclusive: bool,
    /// Whether there is no more.
    pub over: bool,
}

impl Step {
    /// The start of a walk over what `filter` lets through.
    pub fn new(filter: &Filter) -> Self {
        let prefix = filter.prefix.as_deref().unwrap_or("").as_bytes();
        let (from, inclusive) = match filter.after.as_ref().map(|key| key.as_str().as_bytes()) {
            Some(after) if after >= prefix => (after, false),
            Some(_) | None => (prefix, true),
        };
        Self { from: from.to_vec(), inclusive, over: false }
    }
}
