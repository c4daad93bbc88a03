//! The thread that starts children and waits for them, all of them together (BAT-9, BAT-11).
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::shard::{Message, OfChild};
use crate::drive::bus::mailbox::{Mailbox, Taken};
use crate::exec::{Child, ChildEnd, Children, CommandLine, NotStartedKind};

/// What starts children for the shards. The shards' mailboxes get what becomes of them.
pub trait Nursery: Send + Sync {
    /// Starts a child for a lane of a shard.
    fn start(&self, shard: usize, lane: u64, line: CommandLine);
    /// Ends the child of a lane, and its group: TERM, and KILL after its grace.
    fn end(&self, lane: u64);
    /// Ends all, and starts none any more.
    fn end_all(&self);
}

enum Order {
    Start(usize, u64, Box<CommandLine>),
    End(u64),
    EndAll,
}

/// Real children, on a thread of their own.
pub struct Real {
    orders: Arc<Orders>,
    post: Arc<[Arc<Mailbox<Message>>]>,
    thread: Option<JoinHandle<()>>,
}

struct Orders {
    queue: Mailbox<Order>,
    /// Readable when there is something in the queue.
    wake: OwnedFd,
}

impl Orders {
    /// Gives it back where the thread has ended.
    fn give(&self, order: Order) -> Option<Order> {
        let back = self.queue.push(order);
        self.wake();
        back
    }

    fn wake(&self) {
        // It fails only where the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Real {
    /// Starts the thread. `post`: the shards' mailboxes, by number.
    ///
    /// # Errors
    /// The system has no thread or descriptor for it.
    pub fn start(post: Arc<[Arc<Mailbox<Message>>]>) -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let orders = Arc::new(Orders { queue: Mailbox::new(), wake });
        let (taken, told) = (Arc::clone(&orders), Arc::clone(&post));
        let thread = std::thread::Builder::new().name("children".to_owned()).spawn(move || {
            Room {
                children: Children::new(),
                shards: HashMap::new(),
                ends_all: false,
                orders: taken,
                post: told,
            }
            .run();
        })?;
        Ok(Self { orders, post, thread: Some(thread) })
    }
}

impl Nursery for Real {
    fn start(&self, shard: usize, lane: u64, line: CommandLine) {
        if let Some(order) = self.orders.give(Order::Start(shard, lane, Box::new(line))) {
            refuse(&self.post, &order, "internal: the thread of the children has ended");
        }
    }

    fn end(&self, lane: u64) {
        drop(self.orders.give(Order::End(lane)));
    }

    fn end_all(&self) {
        drop(self.orders.give(Order::EndAll));
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.orders.queue.close();
        self.orders.wake();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Says of a child that was asked for that it was not started.
fn refuse(post: &[Arc<Mailbox<Message>>], order: &Order, detail: &str) {
    match order {
        Order::Start(shard, lane, _) => {
            let what = OfChild::NotStarted { detail: detail.to_owned(), why: None };
            tell(post, *shard, *lane, what);
        }
        Order::End(_) | Order::EndAll => {}
    }
}

fn tell(post: &[Arc<Mailbox<Message>>], shard: usize, lane: u64, what: OfChild) {
    if let Some(mailbox) = post.get(shard) {
        drop(mailbox.push(Message::Child(lane, what)));
    }
}

/// What the thread has.
struct Room {
    children: Children,
    /// Whose they are.
    shards: HashMap<u64, usize>,
    ends_all: bool,
    orders: Arc<Orders>,
    post: Arc<[Arc<Mailbox<Message>>]>,
}

impl Room {
    fn run(mut self) {
        loop {
            let mut counter = [0; 8];
            let _ = rustix::io::read(&self.orders.wake, &mut counter);
            match self.orders.queue.take(usize::MAX, Some(Duration::ZERO)) {
                Taken::Some(orders) => orders.into_iter().for_each(|order| self.perform(order)),
                // Whoever has closed it has been told of every child it started.
                Taken::Closed if self.children.is_empty() => return,
                Taken::Nothing | Taken::Closed => {}
            }
            for (lane, child, end) in self.children.wait(false, self.orders.wake.as_fd()) {
                if let Some(shard) = self.shards.remove(&lane) {
                    tell(&self.post, shard, lane, OfChild::Ended(delivered(child, end)));
                }
            }
        }
    }

    fn perform(&mut self, order: Order) {
        match order {
            Order::Start(..) if self.ends_all => {
                refuse(&self.post, &order, "the batch was told to stop before it could start");
            }
            Order::Start(shard, lane, line) => {
                let what = match Child::spawn(*line, None) {
                    Ok(child) => {
                        self.children.add(lane, child);
                        self.shards.insert(lane, shard);
                        OfChild::Started
                    }
                    Err(why) if why.kind == NotStartedKind::TooLate => OfChild::TooLate,
                    Err(why) => {
                        let detail = format!("could not be started: {why}");
                        OfChild::NotStarted { detail, why: Some(why) }
                    }
                };
                tell(&self.post, shard, lane, what);
            }
            Order::End(lane) => {
                if let Some(child) = self.children.get(lane) {
                    child.end_group();
                }
            }
            Order::EndAll => {
                self.ends_all = true;
                self.children.all().for_each(Child::end_group);
            }
        }
    }
}

impl Drop for Room {
    /// By a panic, children may run on: nobody will see how they end, and that is what is told.
    fn drop(&mut self) {
        self.orders.queue.close();
        while let Taken::Some(orders) = self.orders.queue.take(usize::MAX, Some(Duration::ZERO)) {
            for order in &orders {
                refuse(&self.post, order, "internal: the thread of the children has ended");
            }
        }
        for (lane, shard) in self.shards.drain() {
            tell(&self.post, shard, lane, OfChild::Unseen);
        }
    }
}

/// What is left to be passed on goes to files, which do not make anybody wait.
fn delivered(mut child: Child, mut end: Box<ChildEnd>) -> Box<ChildEnd> {
    if end.undelivered > 0 {
        end.problems.append(&mut child.deliver_rest().problems);
    }
    end
}
