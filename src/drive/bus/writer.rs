//! The thread that owns the store.
use std::collections::HashSet;
use std::time::Duration;

use super::job::{Ask, Job, Ticket};
use super::mailbox::{Mailbox, Taken};
use crate::drive::host;
use crate::plan::key::Key;
use crate::plan::protocol::{self, Append, CouldNot, Found, Input};
use crate::store::Store;

/// The most that goes into one transaction: a lock that others wait for is not held for long.
const GROUP_MAX: usize = 512;

/// A store that nothing was asked of for so long gives up what it holds (PGS-5).
const IDLE: Duration = Duration::from_secs(1);

/// Closes the queue however the thread ends: whoever waits in it is answered, and whoever comes later.
struct Closing<'a>(&'a Mailbox<Job>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
        while let Taken::Some(jobs) = self.0.take(usize::MAX, Some(Duration::ZERO)) {
            drop(jobs);
        }
    }
}

/// Performs what is asked until the queue is closed and empty.
pub fn run(store: &dyn Store, queue: &Mailbox<Job>) {
    let _closing = Closing(queue);
    let mut rests = false;
    loop {
        match queue.take(GROUP_MAX, (!rests).then_some(IDLE)) {
            Taken::Some(jobs) => {
                rests = false;
                perform(store, jobs);
            }
            Taken::Nothing => {
                store.rest();
                rests = true;
            }
            Taken::Closed => return,
        }
    }
}

/// One question whose time was not over when its turn came.
struct Read {
    key: Key,
    ask: protocol::Ask,
    ticket: Ticket,
}

/// Loads first: they are quick, and what is decided on them joins the next group of appends.
fn perform(store: &dyn Store, jobs: Vec<Job>) {
    let (mut loads, mut rereads, mut appends) = (Vec::new(), Vec::new(), Vec::new());
    // A group takes no longer than its most pressed member may; renewals are asked for early enough
    // that this is long.
    let (mut reads_within, mut appends_within) = (Duration::MAX, Duration::MAX);
    for job in jobs {
        let left = job.left();
        if left.is_zero() {
            job.ticket.refuse("the time was over before the store could be asked");
            continue;
        }
        match job.ask {
            Ask::Append(append) => {
                appends_within = appends_within.min(left);
                appends.push((append, job.ticket));
            }
            Ask::Load(ask) => {
                reads_within = reads_within.min(left);
                loads.push(Read { key: job.key, ask, ticket: job.ticket });
            }
            Ask::Reread(ask) => {
                reads_within = reads_within.min(left);
                rereads.push(Read { key: job.key, ask, ticket: job.ticket });
            }
        }
    }
    let loaded = |answer| Input::Loaded(answer, host::write_id());
    read(loads, |asked| store.load_many(asked, reads_within), loaded);
    read(rereads, |asked| store.reread_many(asked, reads_within), Input::Reread);
    while !appends.is_empty() {
        appends = append(store, appends, appends_within);
    }
}

fn read(
    mut reads: Vec<Read>,
    of_store: impl FnOnce(&[(&Key, protocol::Ask)]) -> Vec<Result<Found, CouldNot>>,
    input: impl Fn(Result<Found, CouldNot>) -> Input,
) {
    if reads.is_empty() {
        return;
    }
    reads.iter_mut().for_each(|read| read.ticket.sent());
    let asked: Vec<(&Key, protocol::Ask)> =
        reads.iter().map(|read| (&read.key, read.ask)).collect();
    let answers = of_store(&asked);
    for (read, answer) in reads.into_iter().zip(answers) {
        read.ticket.answer(input(answer));
    }
}

/// Appends one group, at most one a key; gives back what has to wait for the next.
fn append(
    store: &dyn Store,
    appends: Vec<(Box<Append>, Ticket)>,
    within: Duration,
) -> Vec<(Box<Append>, Ticket)> {
    let mut keys = HashSet::new();
    let (mut group, later): (Vec<_>, Vec<_>) =
        appends.into_iter().partition(|(append, _)| keys.insert(append.next.key.clone()));
    // From here on a panic in the store leaves unknown what became of them.
    for (_, ticket) in &mut group {
        ticket.sent();
    }
    let given: Vec<&Append> = group.iter().map(|(append, _)| &**append).collect();
    let ends = store.append_many(&given, within);
    for ((_, ticket), end) in group.into_iter().zip(ends) {
        ticket.answer(Input::Ended(end));
    }
    later
}
