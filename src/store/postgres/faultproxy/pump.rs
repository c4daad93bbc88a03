//! One connection: a thread for what the client sends, and one for what the server answers.
//!
//! An exchange is what one ReadyForQuery ends. The start-up is exchange 0; each Query and each Sync
//! that is forwarded opens the next. So an answer is known by its number, also where the client
//! sends several statements without waiting.
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::wire::{Duplex, Message, Stream, starts_with};
use super::{Act, Reply, Shared, What, When};

const SSL_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();
const GSS_REQUEST: [u8; 4] = 80_877_104_u32.to_be_bytes();

/// What is to become of an answer.
enum Fate {
    SwallowAndCut,
    /// The client is gone; the server may finish.
    Swallow,
    /// After this many releases it was due.
    Hold(u64),
    CloseBehind,
    Forge(Reply),
}

#[derive(Default)]
struct Answers {
    fates: BTreeMap<u64, Fate>,
    /// Exchanges that ended.
    ended: u64,
    over: bool,
}

#[derive(Default)]
struct Meeting {
    answers: Mutex<Answers>,
    changed: Condvar,
}

impl Meeting {
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn start(number: u32, pair: Duplex, shared: &Arc<Shared>) {
    let Duplex { client, server: Some(server) } = pair else { return };
    let pair = Duplex { client, server: Some(server) };
    let (Ok(kept), Ok(other)) = (pair.try_clone(), pair.try_clone()) else { return };
    {
        let mut state = shared.state();
        if state.over {
            pair.close();
            return;
        }
        state.open.push((number, kept));
    }
    let meeting = Arc::<Meeting>::default();
    let (Some(to_server), Some(from_server)) = (pair.server, other.server) else { return };
    let forward = Forward {
        number,
        client: pair.client,
        server: to_server,
        shared: Arc::clone(shared),
        meeting: Arc::clone(&meeting),
        opened: 0,
    };
    let back = Back {
        number,
        client: other.client,
        server: from_server,
        shared: Arc::clone(shared),
        meeting,
    };
    thread::spawn(move || forward.run());
    thread::spawn(move || back.run());
}

enum Go {
    On,
    /// Both sides are closed.
    Cut,
    /// The server's side stays open for what it still does.
    Leave,
}

struct Forward {
    number: u32,
    client: Stream,
    server: Stream,
    shared: Arc<Shared>,
    meeting: Arc<Meeting>,
    opened: u64,
}

impl Forward {
    fn run(mut self) {
        let ended = self.pump();
        self.client.close();
        match ended {
            Ok(Go::Leave) => return,
            Ok(Go::On | Go::Cut) => {}
            Err(_) => self.shared.note(self.number, What::ClientGone),
        }
        self.server.close();
    }

    fn pump(&mut self) -> io::Result<Go> {
        loop {
            let first = Message::first(&mut self.client)?;
            if first.body == SSL_REQUEST || first.body == GSS_REQUEST {
                self.client.write_all(b"N")?;
                continue;
            }
            self.server.write_all(&first.bytes())?;
            break;
        }
        loop {
            let message = Message::read(&mut self.client)?;
            match self.message(message)? {
                Go::On => {}
                end @ (Go::Cut | Go::Leave) => return Ok(end),
            }
        }
    }

    fn message(&mut self, message: Message) -> io::Result<Go> {
        let Some(text) = message.statement() else { return self.send(&message) };
        self.shared.note(self.number, What::Statement(text.clone()));
        let due = self.shared.due(self.number, |when| match when {
            When::Connect => None,
            When::Begin(nth) => starts_with(&text, &["BEGIN", "START"]).then_some(*nth),
            When::Commit(nth) => starts_with(&text, &["COMMIT", "END"]).then_some(*nth),
            When::Rollback(nth) => starts_with(&text, &["ROLLBACK", "ABORT"]).then_some(*nth),
            When::Text(part, nth) => text.contains(part).then_some(*nth),
        });
        let (act, releases) = due.map_or((None, 0), |(act, releases)| (Some(act), releases));
        match act {
            None | Some(Act::Refuse | Act::BlackHole | Act::Reroute(_)) => self.send(&message),
            Some(Act::CutBeforeForward) => Ok(Go::Cut),
            Some(Act::CutAfterAnswer) => self.send_for(Fate::SwallowAndCut, &message),
            Some(Act::CutAfterForward) => {
                self.send_whole(Fate::Swallow, &message)?;
                Ok(Go::Leave)
            }
            Some(Act::CutAndForwardOnRelease) => {
                let rest = self.rest_of(&message)?;
                self.client.close();
                if !self.shared.hold(releases) {
                    return Ok(Go::Cut);
                }
                self.meeting.answers().fates.insert(self.opened + 1, Fate::Swallow);
                self.server.write_all(&rest)?;
                Ok(Go::Leave)
            }
            Some(Act::HoldRequest) => {
                if self.shared.hold(releases) {
                    self.send(&message)
                } else {
                    Ok(Go::Cut)
                }
            }
            Some(Act::HoldAnswer) => self.send_for(Fate::Hold(releases), &message),
            Some(Act::CloseBehindAnswer) => self.send_for(Fate::CloseBehind, &message),
            Some(Act::Rewrite { from, to }) => {
                self.send(&message.with_statement(&text.replace(&from, &to)))
            }
            Some(Act::Forge { reply, forward: true }) => {
                self.send_for(Fate::Forge(reply), &message)
            }
            Some(Act::Forge { reply, forward: false }) => self.answer(&reply, &message),
        }
    }

    fn send(&mut self, message: &Message) -> io::Result<Go> {
        // Counted before it is sent, or the answer might be there first.
        if matches!(message.kind, b'Q' | b'S' | b'F') {
            self.opened += 1;
        }
        self.server.write_all(&message.bytes())?;
        Ok(Go::On)
    }

    fn send_for(&mut self, fate: Fate, message: &Message) -> io::Result<Go> {
        self.meeting.answers().fates.insert(self.opened + 1, fate);
        self.send(message)
    }

    /// All that belongs to the exchange which `message` begins: itself, or all up to the Sync.
    fn rest_of(&mut self, message: &Message) -> io::Result<Vec<u8>> {
        let mut bytes = message.bytes();
        let mut kind = message.kind;
        while !matches!(kind, b'Q' | b'S') {
            let next = Message::read(&mut self.client)?;
            kind = next.kind;
            bytes.extend(next.bytes());
        }
        Ok(bytes)
    }

    fn send_whole(&mut self, fate: Fate, message: &Message) -> io::Result<()> {
        let whole = self.rest_of(message)?;
        self.meeting.answers().fates.insert(self.opened + 1, fate);
        self.opened += 1;
        self.server.write_all(&whole)
    }

    /// Answers in the server's place, once all before it is answered.
    fn answer(&mut self, reply: &Reply, message: &Message) -> io::Result<Go> {
        drop(self.rest_of(message)?);
        let mut answers = self.meeting.answers();
        while answers.ended <= self.opened && !answers.over {
            answers = self.meeting.changed.wait(answers).unwrap_or_else(PoisonError::into_inner);
        }
        drop(answers);
        self.client.write_all(&reply.bytes())?;
        Ok(if reply.is_last() { Go::Cut } else { Go::On })
    }
}

struct Back {
    number: u32,
    client: Stream,
    server: Stream,
    shared: Arc<Shared>,
    meeting: Arc<Meeting>,
}

impl Back {
    fn run(mut self) {
        if self.pump().is_err() {
            self.shared.note(self.number, What::ServerGone);
        }
        self.client.close();
        self.server.close();
        self.shared.state().open.retain(|(number, _)| *number != self.number);
        self.meeting.answers().over = true;
        self.meeting.changed.notify_all();
    }

    /// Ends where the connection was cut on purpose; an error is an end that the proxy did not make.
    fn pump(&mut self) -> io::Result<()> {
        let mut exchange = 0;
        // What is kept back of an answer that is under a rule.
        let mut kept = Vec::new();
        loop {
            let message = Message::read(&mut self.server)?;
            let under_rule = self.meeting.answers().fates.contains_key(&exchange);
            if under_rule {
                kept.extend(message.bytes());
            } else {
                self.client.write_all(&message.bytes())?;
            }
            if message.kind != b'Z' {
                continue;
            }
            let status = message.body.first().copied().map_or('?', char::from);
            self.shared.note(self.number, What::Answered(status));
            let fate = self.meeting.answers().fates.remove(&exchange);
            match fate {
                None => {}
                Some(Fate::SwallowAndCut | Fate::Swallow) => return Ok(()),
                Some(Fate::Hold(releases)) => {
                    if !self.shared.hold(releases) {
                        return Ok(());
                    }
                    self.client.write_all(&kept)?;
                }
                Some(Fate::CloseBehind) => {
                    self.client.write_all(&kept)?;
                    return Ok(());
                }
                Some(Fate::Forge(reply)) => {
                    self.client.write_all(&reply.bytes())?;
                    if reply.is_last() {
                        return Ok(());
                    }
                }
            }
            kept.clear();
            exchange += 1;
            self.meeting.answers().ended = exchange;
            self.meeting.changed.notify_all();
        }
    }
}
