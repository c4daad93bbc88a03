//! What the journal outside the store says, and what it means where the store does not say it (AFT-1,
//! AFT-6).
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::effect::{Cause, Event, HistoryRow, Record, State, Verdict, WriteId};
use super::key::{Fingerprint, Key};

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The version of this format: 1.
    pub v: u32,
    /// When it was written, by the clock of the host that wrote it.
    pub at: String,
    /// The store's id.
    pub store_id: Uuid,
    /// Where the store is.
    pub store: String,
    /// The effect.
    pub key: Key,
    /// The attempt's number.
    pub attempt: u64,
    /// The reservation that granted it.
    pub reservation_id: WriteId,
    /// What is said of the attempt.
    #[serde(flatten)]
    pub what: What,
}

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// Its command is about to be started.
    Began(Began),
    /// Its outcome is known.
    Settled(Settled),
}

/// See [`What::Began`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Began {
    /// The caller's label.
    pub attempt_id: String,
    /// What a remote was given that deduplicates.
    pub idempotency_key: Uuid,
    /// What the key is bound to.
    pub fingerprint: Fingerprint,
    /// The host's name.
    pub host: String,
    /// The wrapper's process id.
    pub pid: u32,
}

/// See [`What::Settled`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// What came of it.
    pub word: Word,
    /// One line for a person.
    pub detail: String,
    /// How the store has it.
    pub stored: Stored,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// It happened.
    Committed,
    /// It did not happen.
    Failed,
    /// Nobody knows.
    Ambiguous,
}

impl From<Verdict> for Word {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Committed => Self::Committed,
            Verdict::Failed | Verdict::NeverStarted => Self::Failed,
            Verdict::Ambiguous { .. } => Self::Ambiguous,
        }
    }
}

/// How the store had an outcome when the line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stored {
    /// As the attempt's own.
    Ours,
    /// As a late outcome.
    Late,
    /// The store had no such effect any more.
    Forgotten,
    /// Not yet: it is in the spool.
    Spooled,
    /// Not at all.
    No,
}

/// What a line means, held against the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// The store knows it, or it did not happen.
    Known,
    /// The store has let go of it on purpose, most likely (OPS-5).
    Pruned,
    /// The store does not know this attempt.
    Lost,
    /// The store has granted its number again.
    GrantedAgain,
    /// The store knows the attempt, and no more what came of it.
    OutcomeLost,
    /// Its number is below the record's: only the key's history can tell.
    AskHistory,
}

/// The label of an attempt that does nothing but take the key again of one that was lost, so that it is
/// not asked about for ever. A label proves nothing, and here nothing hangs on it but a list.
#[must_use]
pub fn taken_for(line: &Line) -> String {
    format!("journal:{}", line.reservation_id.0)
}

/// What a line means where the store has this record of its key, and this attempt floor. A line that
/// says nothing of an outcome must be one that no other line says it for.
#[must_use]
pub fn judge(line: &Line, record: Option<&Record>, attempt_floor: u64) -> Judged {
    let settled = match &line.what {
        What::Began(_) => None,
        // Nothing that anybody could meet a second time.
        What::Settled(settled) if settled.word == Word::Failed => return Judged::Known,
        What::Settled(settled) => Some(settled),
    };
    // What prune lets go of has an outcome, and its number is at or below the floor for ever.
    let gone = || match settled {
        Some(_) if line.attempt <= attempt_floor => Judged::Pruned,
        Some(_) | None => Judged::Lost,
    };
    let Some(record) = record else {
        return gone();
    };
    if record.attempt_id == taken_for(line) {
        return Judged::Known;
    }
    if record.attempt < line.attempt {
        return Judged::Lost;
    }
    if record.attempt > line.attempt {
        return if line.attempt < record.first_attempt { gone() } else { Judged::AskHistory };
    }
    if record.reservation_id != line.reservation_id {
        return Judged::GrantedAgain;
    }
    let recorded = settled.filter(|settled| settled.stored == Stored::Ours);
    let unknown_to_store = match record.state {
        State::Reserved { .. } | State::Executing { .. } => true,
        State::Ambiguous { cause: Cause::Lapsed, .. } => {
            recorded.is_some_and(|settled| settled.word != Word::Ambiguous)
        }
        State::Ambiguous { .. } | State::Committed { .. } | State::Failed { .. } => false,
    };
    if recorded.is_some() && unknown_to_store { Judged::OutcomeLost } else { Judged::Known }
}

/// What a line means by the history of its key, after [`Judged::AskHistory`].
#[must_use]
pub fn judge_by_history(line: &Line, history: &[HistoryRow]) -> Judged {
    let taken_for = taken_for(line);
    let is_taken = history.iter().any(
        |row| matches!(&row.event, Event::Reserved(reserved) if reserved.attempt_id == taken_for),
    );
    if is_taken {
        return Judged::Known;
    }
    let granted = history.iter().find(
        |row| matches!(&row.event, Event::Reserved(reserved) if reserved.attempt == line.attempt),
    );
    match granted {
        Some(row) if row.write_id == line.reservation_id => Judged::Known,
        Some(_) => Judged::GrantedAgain,
        None => Judged::Lost,
    }
}
