//! The command bus: what many effects of one process ask of their store, gathered (BAT-5 to BAT-7).
//!
//! One thread owns the store. While it is at work, what is asked meanwhile collects; then all of it
//! is performed together: the loads as one query, the appends as one transaction. So a thousand
//! effects do not pay for three thousand commits, and nobody ever waits for company.
//!
//! | file | about |
//! |---|---|
//! | [`mailbox`] | where a thread's messages wait for it |
//! | `job` | one thing that is asked, and the promise that it is answered |
//! | `writer` | the thread |
//! | [`client`] | the bus as a store, for who asks and waits |
//! | [`route`] | which shard a key belongs to |
pub mod client;
mod job;
pub mod mailbox;
pub mod route;
mod writer;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub use self::client::Client;
pub use self::job::Ask;
use self::job::{Job, Ticket};
use self::mailbox::Mailbox;
use crate::plan::key::Key;
use crate::plan::protocol::{CouldNot, Input, Reason};
use crate::store::Store;

/// The bus of one store. Dropping it ends its thread, once everything that was asked is answered.
pub struct Bus {
    queue: Arc<Mailbox<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// Where questions go; every thread has its own.
#[derive(Clone)]
pub struct Sender {
    queue: Arc<Mailbox<Job>>,
}

/// Takes the answer to one question. It is called on the bus's thread, and must not wait there.
pub type Reply = Box<dyn FnOnce(Input) + Send>;

impl Bus {
    /// Starts the thread that owns `store`.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(store: Arc<dyn Store>) -> std::io::Result<Self> {
        let queue = Arc::new(Mailbox::new());
        let jobs = Arc::clone(&queue);
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer::run(&*store, &jobs))?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Asks on behalf of the caller's thread.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender { queue: Arc::clone(&self.queue) }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported, and has answered everybody (BAT-6).
            drop(thread.join());
        }
    }
}

impl Sender {
    /// Asks, for an answer within `within` from now. `first`: before everything else that waits, as
    /// a renewal must. The answer always comes (BAT-6); it may come before this returns.
    pub fn ask(&self, key: &Key, ask: Ask, within: Duration, first: bool, reply: Reply) {
        let ticket = Ticket::new(&ask, reply);
        let job = Job::new(key.clone(), ask, within, ticket);
        // A queue that is closed gives it back, and dropping it answers.
        drop(if first { self.queue.push_first(job) } else { self.queue.push(job) });
    }
}

/// The bus has ended, or did not come to it in time: nothing of it was sent.
fn not_sent(message: &str) -> CouldNot {
    CouldNot { reason: Reason::Busy, message: message.to_owned(), hint: None }
}
