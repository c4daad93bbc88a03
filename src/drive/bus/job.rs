//! One thing that is asked of the store, and the promise that it is answered.
use std::time::{Duration, Instant};

use super::{Reply, not_sent};
use crate::drive::host;
use crate::plan::key::Key;
use crate::plan::protocol::{self, Append, CouldNot, End, Input, Reason};

/// What can be asked.
#[derive(Debug)]
pub enum Ask {
    /// The row, and an event beside it.
    Load(protocol::Ask),
    /// One try of a conditional write.
    Append(Box<Append>),
    /// The row on a fresh connection.
    Reread(protocol::Ask),
}

/// One question.
pub struct Job {
    /// The effect.
    pub key: Key,
    /// What is asked.
    pub ask: Ask,
    asked: Instant,
    within: Duration,
    /// Who waits for the answer.
    pub ticket: Ticket,
}

impl Job {
    pub fn new(key: Key, ask: Ask, within: Duration, ticket: Ticket) -> Self {
        Self { key, ask, asked: Instant::now(), within, ticket }
    }

    /// What is left of its time.
    pub fn left(&self) -> Duration {
        self.within.saturating_sub(self.asked.elapsed())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Load,
    Append,
    Reread,
}

/// The right to give one answer. It is never lost: one that is dropped answers by itself what is
/// certain then (BAT-6).
pub struct Ticket {
    kind: Kind,
    /// The store has it: from here on only its answer tells.
    is_sent: bool,
    reply: Option<Reply>,
}

impl Ticket {
    pub fn new(ask: &Ask, reply: Reply) -> Self {
        let kind = match ask {
            Ask::Load(_) => Kind::Load,
            Ask::Append(_) => Kind::Append,
            Ask::Reread(_) => Kind::Reread,
        };
        Self { kind, is_sent: false, reply: Some(reply) }
    }

    /// Notes that the store is about to have it.
    pub fn sent(&mut self) {
        self.is_sent = true;
    }

    /// Answers.
    pub fn answer(mut self, answer: Input) {
        if let Some(reply) = self.reply.take() {
            reply(answer);
        }
    }

    /// The answer that nothing of it was sent.
    pub fn refuse(self, why: &str) {
        let answer = self.kind.failed(not_sent(why));
        self.answer(answer);
    }
}

impl Kind {
    fn failed(self, error: CouldNot) -> Input {
        match self {
            Self::Load => Input::Loaded(Err(error), host::write_id()),
            Self::Append => Input::Ended(End::NotCommitted(error)),
            Self::Reread => Input::Reread(Err(error)),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(reply) = self.reply.take() else {
            return;
        };
        let ended = |message: &str| CouldNot {
            // A bug: it does not pass by waiting.
            reason: Reason::Damaged,
            message: message.to_owned(),
            hint: None,
        };
        reply(match (self.kind, self.is_sent) {
            (Kind::Append, true) => Input::Ended(End::Unknown(ended(
                "internal: the store's thread ended while writing",
            ))),
            (kind, _) => kind.failed(ended("internal: the store's thread has ended")),
        });
    }
}
