//! A proxy on loopback that stands between a client and a server and fails exactly where a rule
//! says: at the n-th BEGIN, COMMIT or statement with a given text, or at the n-th connection.
//!
//! It reads the protocol as far as statements and answers are concerned, in the clear only (it
//! answers a request for TLS with no). What it saw is in a log that can be waited on, so that a
//! test knows that its fault fell into its window.
mod pump;
mod wire;

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use wire::Duplex;

/// Where the proxy forwards to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstream {
    /// A server on TCP.
    Tcp(SocketAddr),
    /// The socket of a server, `.../.s.PGSQL.5432`.
    Unix(PathBuf),
}

/// Which connections a rule is about. They are counted from 1 as they are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All.
    Any,
    /// One.
    Nth(u32),
    /// This one and all later ones.
    From(u32),
}

/// At which message a rule acts. Numbers count from 1, over all connections that the rule is about;
/// 0 is every time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// A connection is accepted.
    Connect,
    /// BEGIN or START TRANSACTION.
    Begin(u32),
    /// COMMIT or END.
    Commit(u32),
    /// ROLLBACK or ABORT.
    Rollback(u32),
    /// A statement with this text in it.
    Text(String, u32),
}

/// What happens there. "Both sides" are the client's connection and the server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// The message is not forwarded; both sides are closed.
    CutBeforeForward,
    /// It is forwarded, the server answers, nothing of that reaches the client; both are closed.
    CutAfterAnswer,
    /// It is forwarded and the client's side is closed at once, whatever the server still does.
    CutAfterForward,
    /// The client's side is closed; the message reaches the server on [`Proxy::release`].
    CutAndForwardOnRelease,
    /// The message waits for [`Proxy::release`].
    HoldRequest,
    /// The server answers; the answer waits for [`Proxy::release`].
    HoldAnswer,
    /// The answer is delivered whole, and the client's side closed right behind it.
    CloseBehindAnswer,
    /// In the statement, every occurrence of one text becomes another.
    Rewrite {
        /// The text that is there.
        from: String,
        /// The text that the server gets.
        to: String,
    },
    /// The client gets this answer.
    Forge {
        /// What it is told.
        reply: Reply,
        /// Whether the server gets the message; its true answer is swallowed.
        forward: bool,
    },
    /// At [`When::Connect`]: closed at once.
    Refuse,
    /// At [`When::Connect`]: accepted, never read and never answered.
    BlackHole,
    /// At [`When::Connect`]: this server instead.
    Reroute(Upstream),
}

/// An answer that the server did not give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// An error. A severity of FATAL or PANIC closes both sides behind it.
    Error {
        /// `ERROR`, `FATAL` or `PANIC`.
        severity: String,
        /// SQLSTATE.
        code: String,
    },
    /// Success with a tag; for a statement sent by the simple protocol.
    Tag(String),
}

/// A fault on purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// On which connections.
    pub connection: Which,
    /// At which message.
    pub when: When,
    /// What happens.
    pub act: Act,
}

/// What the proxy saw or did, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// On the n-th connection.
    pub connection: u32,
    /// What.
    pub what: What,
}

/// See [`Event`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The connection was accepted.
    Accepted,
    /// The client sent a statement.
    Statement(String),
    /// A rule acted, the n-th that was set, from 0.
    Acted(usize),
    /// The server has answered a whole exchange; its transaction status (`I`, `T`, `E`).
    Answered(char),
    /// The client went.
    ClientGone,
    /// The server went.
    ServerGone,
}

struct Set {
    rule: Rule,
    met: u32,
}

#[derive(Default)]
struct State {
    rules: Vec<Set>,
    seen: Vec<Event>,
    open: Vec<(u32, Duplex)>,
    accepted: u32,
    releases: u64,
    over: bool,
}

/// What all threads share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, connection: u32, what: What) {
        self.state().seen.push(Event { connection, what });
        self.changed.notify_all();
    }

    /// The act of the first rule that is due, which is noted; and how often there was a release
    /// until then, so that one right behind the note is not missed.
    fn due(&self, connection: u32, fits: impl Fn(&When) -> Option<u32>) -> Option<(Act, u64)> {
        let mut state = self.state();
        let mut due = None;
        for (at, set) in state.rules.iter_mut().enumerate() {
            let ours = match set.rule.connection {
                Which::Any => true,
                Which::Nth(n) => connection == n,
                Which::From(n) => connection >= n,
            };
            let Some(nth) = fits(&set.rule.when).filter(|_| ours) else { continue };
            set.met += 1;
            if (nth == 0 || nth == set.met) && due.is_none() {
                due = Some((at, set.rule.act.clone()));
            }
        }
        let (at, act) = due?;
        state.seen.push(Event { connection, what: What::Acted(at) });
        let releases = state.releases;
        drop(state);
        self.changed.notify_all();
        Some((act, releases))
    }

    /// Waits for a [`Proxy::release`] after the first `releases`; false if the proxy ended instead.
    fn hold(&self, releases: u64) -> bool {
        let mut state = self.state();
        while state.releases == releases && !state.over {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.over
    }
}

/// The proxy; it ends when it is dropped, and so do its connections.
pub struct Proxy {
    /// Where clients connect to.
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port of loopback.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn start(upstream: Upstream) -> io::Result<Self> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = socket.local_addr()?;
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let listener = thread::spawn(move || listen(&socket, &upstream, &theirs));
        Ok(Self { addr, shared, listener: Some(listener) })
    }

    /// Adds a rule. Of those that are due at one message the first acts.
    pub fn on(&self, rule: Rule) {
        self.shared.state().rules.push(Set { rule, met: 0 });
    }

    /// From now on no rule that was set acts any more.
    pub fn forget(&self) {
        for set in &mut self.shared.state().rules {
            set.rule.connection = Which::From(u32::MAX);
        }
    }

    /// Lets go of everything whose rule has acted by now.
    pub fn release(&self) {
        self.shared.state().releases += 1;
        self.shared.changed.notify_all();
    }

    /// Closes both sides of every connection that is open.
    pub fn cut_all(&self) {
        let open: Vec<_> = self.shared.state().open.drain(..).collect();
        for (_, pair) in open {
            pair.close();
        }
    }

    /// What happened so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Event> {
        self.shared.state().seen.clone()
    }

    /// Waits until what happened so far is as wanted; false if it was not within `within`.
    #[must_use]
    pub fn wait(&self, within: Duration, wanted: impl Fn(&[Event]) -> bool) -> bool {
        let until = Instant::now() + within;
        let mut state = self.shared.state();
        loop {
            if wanted(&state.seen) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the n-th rule (from 0) has acted.
    #[must_use]
    pub fn acted(&self, rule: usize, within: Duration) -> bool {
        self.wait(within, |seen| seen.iter().any(|event| event.what == What::Acted(rule)))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().over = true;
        self.shared.changed.notify_all();
        self.cut_all();
        // A last connection wakes the listener, which finds that it is over.
        drop(TcpStream::connect(self.addr));
        if let Some(listener) = self.listener.take() {
            drop(listener.join());
        }
    }
}

fn listen(socket: &TcpListener, upstream: &Upstream, shared: &Arc<Shared>) {
    for client in socket.incoming() {
        let Ok(client) = client else { continue };
        let number = {
            let mut state = shared.state();
            if state.over {
                return;
            }
            state.accepted += 1;
            state.accepted
        };
        shared.note(number, What::Accepted);
        let act = shared.due(number, |when| (*when == When::Connect).then_some(0));
        let server = match act.map(|(act, _)| act) {
            Some(Act::Refuse) => {
                drop(client.shutdown(Shutdown::Both));
                continue;
            }
            Some(Act::BlackHole) => {
                shared.state().open.push((number, Duplex::half(client)));
                continue;
            }
            Some(Act::Reroute(other)) => Duplex::to(client, &other),
            Some(
                Act::CutBeforeForward
                | Act::CutAfterAnswer
                | Act::CutAfterForward
                | Act::CutAndForwardOnRelease
                | Act::HoldRequest
                | Act::HoldAnswer
                | Act::CloseBehindAnswer
                | Act::Rewrite { .. }
                | Act::Forge { .. },
            )
            | None => Duplex::to(client, upstream),
        };
        // A server that is not there: the client sees its connection end.
        let Ok(pair) = server else {
            shared.note(number, What::ServerGone);
            continue;
        };
        pump::start(number, pair, shared);
    }
}
