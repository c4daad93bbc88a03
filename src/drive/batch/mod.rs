//! Many effects at once (BAT clauses).
//!
//! ```text
//! lines -> feeder -> gate -> shard (by key) -> bus -> store
//!                             |
//!                             +-> its children         results -> the caller's thread
//! ```
//!
//! | file | about |
//! |---|---|
//! | [`gate`] | who may go on: places for children, lines let in, stopping |
//! | `lane` | one effect at work |
//! | [`shard`] | the thread that steps the effects of its keys |
//! | [`nursery`] | the children of a shard |
pub mod gate;
mod lane;
pub mod nursery;
pub mod shard;

use std::collections::{BinaryHeap, HashMap};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::scope;
use std::time::Duration;

use self::gate::{Gate, Stop};
pub use self::lane::file_name;
use self::nursery::{Nursery, Real};
use self::shard::{Message, Shard};
use crate::drive::bus::Bus;
use crate::drive::bus::mailbox::Mailbox;
use crate::drive::bus::route::shard_of;
use crate::drive::journal::Journal;
use crate::drive::run::{Ran, captured};
use crate::drive::spool::Spool;
use crate::exec::{ChildEnd, Signals};
use crate::plan::attempt::{Came, Outcome};
use crate::plan::effect::{Labels, RanOn, Request};
use crate::plan::key::Key;
use crate::plan::protocol::Captured;
use crate::plan::verdict::NotExecuted;
use crate::store::Store;

/// So many effects in a row to which the store gave no answer stop a batch (BAT-16).
const HOPELESS: u32 = 8;

/// How often the caller is told that time has passed.
const TICK: Duration = Duration::from_millis(100);

/// One line.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its number in the input, from 1.
    pub number: u64,
    /// The effect.
    pub key: Key,
    /// What its key is to be bound to.
    pub request: Request,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The exit codes that prove that nothing happened.
    pub not_executed: NotExecuted,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// The full lease.
    pub lease: Duration,
    /// The most attempts since the key was last forgotten.
    pub max_attempts: Option<u64>,
}

/// How effects are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many children run at once.
    pub places: usize,
    /// How many threads step effects.
    pub shards: usize,
    /// How long one store command may take.
    pub store_timeout: Duration,
    /// From TERM to KILL.
    pub kill_after: Duration,
    /// How much of each stream is stored, in bytes; `None`: nothing.
    pub capture: Option<usize>,
    /// What becomes of the children's output besides.
    pub show: Show,
    /// Where outcome files are made.
    pub outcome_dir: Option<PathBuf>,
    /// Where it runs: evidence.
    pub ran_on: RanOn,
    /// The caller's marks: evidence.
    pub labels: Labels,
}

/// What becomes of the children's output, besides being stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// Nothing.
    Nothing,
    /// It is handed over with the effect's end, as much as is kept of it.
    AtTheEnd,
    /// Each stream goes to a file in this directory, complete and live.
    Files(PathBuf),
}

/// What is kept to be shown where nothing is stored, in bytes.
const SHOWN: usize = 64 * 1024;

impl Settings {
    /// How much of a stream is kept.
    fn cap(&self) -> usize {
        match (self.capture, &self.show) {
            (Some(cap), _) => cap,
            (None, Show::AtTheEnd) => SHOWN,
            (None, Show::Nothing | Show::Files(_)) => 0,
        }
    }

    /// What is to be shown of a child that has ended.
    fn shown(&self, came: &Came, end: &mut ChildEnd) -> Option<(Captured, Captured)> {
        if self.show != Show::AtTheEnd {
            return None;
        }
        let (out, err) = match came {
            Came::Ended { stdout: Some(out), stderr: Some(err), .. } => (out.clone(), err.clone()),
            // Nothing of it is stored.
            Came::Ended { .. }
            | Came::Call
            | Came::Store(_)
            | Came::Begin
            | Came::Release { .. }
            | Came::UnderWay
            | Came::Started
            | Came::NotStarted { .. }
            | Came::TooLate
            | Came::Due
            | Came::Renewed(_)
            | Came::Spooled(_)
            | Came::GiveUp
            | Came::Unspooled => (
                captured(std::mem::take(&mut end.stdout)),
                captured(std::mem::take(&mut end.stderr)),
            ),
        };
        (out.bytes + err.bytes > 0).then_some((out, err))
    }
}

/// What a batch is performed with.
pub struct Tools<'a> {
    /// The store; its thread has it for as long as the batch runs.
    pub store: Arc<dyn Store>,
    /// Where outcomes go that it cannot take.
    pub spool: Option<&'a Spool>,
    /// The journal that every begin and settlement is written to.
    pub journal: Option<&'a Journal>,
    /// Signals that stop it: once so that it drains, twice so that it ends.
    pub signals: Option<&'a Signals>,
    /// What starts children instead of the real thing.
    pub nursery: Option<MakeNursery<'a>>,
}

/// Makes a nursery for a shard.
pub type MakeNursery<'a> = &'a dyn Fn() -> Box<dyn Nursery>;

/// An effect that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The line.
    pub item: Item,
    /// What came of it.
    pub ran: Ran,
    /// What it wrote, where that is to be shown.
    pub shown: Option<(Captured, Captured)>,
}

/// What happens in a batch, to be told.
#[derive(Debug)]
pub enum Tell<'a, E> {
    /// An effect has ended.
    Ended(Box<Ended>),
    /// A line is wrong; nothing after it is read.
    Wrong(E),
    /// It stops, and so far.
    Stops(Why, Stop),
    /// Time has passed, and so much is done.
    Tick(&'a Totals),
}

/// Why a batch stops before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A signal, by its number.
    Signal(i32),
    /// The store cannot be used.
    Store,
    /// A line is wrong.
    Line,
    /// A thread has panicked.
    Broken,
}

/// What a batch came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Lines read.
    pub read: u64,
    /// Effects that have ended, in whatever way.
    pub ended: u64,
    /// Lines read and not started.
    pub not_started: u64,
    /// Whether all lines were read.
    pub is_whole: bool,
    /// Why it stopped before its end.
    pub stopped: Option<Why>,
}

/// What the threads tell the one that called.
pub enum Event {
    /// An effect has ended.
    Ended(Box<Ended>),
    /// A line that was let in was not started.
    NotStarted,
    /// No more lines come: how many were read, and whether those were all.
    Fed {
        /// Read.
        read: u64,
        /// They were all.
        is_whole: bool,
    },
    /// A signal to stop.
    Signal(i32),
    /// A thread has panicked.
    Broken,
}

/// Performs every effect of `items`, and tells `tell`, on this thread, what happens.
///
/// # Errors
/// The system has no threads for it; then nothing was run.
pub fn run<E: Send + 'static>(
    items: impl Iterator<Item = Result<Item, E>> + Send + 'static,
    tools: &Tools<'_>,
    settings: &Settings,
    tell: &mut dyn FnMut(Tell<'_, E>),
) -> std::io::Result<Totals> {
    let shards = settings.shards.max(1);
    let post: Arc<[Arc<Mailbox<Message>>]> =
        (0..shards).map(|_| Mailbox::with_wake().map(Arc::new)).collect::<Result<_, _>>()?;
    let bus = Bus::start(Arc::clone(&tools.store))?;
    let gate = Arc::new(Gate::new(settings.places));
    let (events, happens) = channel();
    let (wrongs, wrong) = channel();
    let scratch = tools.store.identity().scratch;
    scope(|scope| {
        for (number, mailbox) in post.iter().enumerate() {
            let shard = Shard {
                number,
                mailbox: Arc::clone(mailbox),
                post: Arc::clone(&post),
                bus: bus.sender(),
                scratch,
                identity: tools.store.identity().clone(),
                spool: tools.spool,
                journal: tools.journal,
                gate: &gate,
                nursery: match tools.nursery {
                    Some(make) => make(),
                    None => Box::new(Real::default()),
                },
                settings,
                tell: events.clone(),
                lanes: HashMap::new(),
                keys: HashMap::new(),
                alarms: BinaryHeap::new(),
                next_lane: number as u64,
                guess: None,
            };
            let alarm = Alarm(events.clone());
            scope.spawn(move || {
                let _alarm = alarm;
                shard.run();
            });
        }
        // It is not waited for: it may sit at a pipe that nobody writes to, and once the batch stops
        // it lets nothing in.
        let feeding = (Arc::clone(&gate), Arc::clone(&post), events.clone());
        std::thread::Builder::new().name("lines".to_owned()).spawn(move || {
            let (gate, post, events) = feeding;
            let _alarm = Alarm(events.clone());
            feed(items, &gate, &post, &events, &wrongs);
        })?;
        let over = Arc::new(Mailbox::new());
        if let Some(signals) = tools.signals {
            let (events, over) = (events.clone(), Arc::clone(&over));
            scope.spawn(move || watch(signals, &events, &over));
        }
        drop(events);
        let totals = look_after(&happens, &wrong, &gate, &post, tell);
        over.close();
        post.iter().for_each(|mailbox| mailbox.close());
        Ok(totals)
    })
}

/// Tells of a panic on the thread that has it.
struct Alarm(Sender<Event>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send(Event::Broken);
        }
    }
}

/// Lets lines in as there is room for them.
fn feed<E>(
    items: impl Iterator<Item = Result<Item, E>>,
    gate: &Gate,
    post: &[Arc<Mailbox<Message>>],
    events: &Sender<Event>,
    wrongs: &Sender<E>,
) {
    let (mut read, mut is_whole) = (0, true);
    for item in items {
        let item = match item {
            Ok(item) => item,
            Err(wrong) => {
                let _ = wrongs.send(wrong);
                is_whole = false;
                break;
            }
        };
        read += 1;
        if !gate.let_in() {
            is_whole = false;
            break;
        }
        if let Some(mailbox) = post.get(shard_of(&item.key, post.len())) {
            drop(mailbox.push(Message::Item(Box::new(item))));
        }
    }
    let _ = events.send(Event::Fed { read, is_whole });
}

/// Looks for signals until it is over. On a thread of its own: whoever shows what happens may be held
/// up by a reader that does not read.
fn watch(signals: &Signals, events: &Sender<Event>, over: &Mailbox<()>) {
    use crate::drive::bus::mailbox::Taken;
    loop {
        for signal in signals.take() {
            if [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal) {
                let _ = events.send(Event::Signal(signal));
            }
        }
        match over.take(1, Some(TICK)) {
            Taken::Closed => return,
            Taken::Nothing | Taken::Some(_) => {}
        }
    }
}

fn look_after<E>(
    happens: &std::sync::mpsc::Receiver<Event>,
    wrong: &std::sync::mpsc::Receiver<E>,
    gate: &Gate,
    post: &[Arc<Mailbox<Message>>],
    tell: &mut dyn FnMut(Tell<'_, E>),
) -> Totals {
    let mut totals = Totals::default();
    let mut is_fed = false;
    let mut hopeless = 0;
    let stops = |why: Why, stop: Stop, tell: &mut dyn FnMut(Tell<'_, E>)| {
        gate.stop(stop);
        post.iter().for_each(|mailbox| drop(mailbox.push(Message::Stop(stop))));
        tell(Tell::Stops(why, stop));
    };
    loop {
        let all_done = totals.ended + totals.not_started >= gate.let_in_so_far();
        if all_done && is_fed {
            break;
        }
        // A feeder that sits at a silent pipe will not say so.
        let stopped = gate.stopped() != Stop::No;
        match happens.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) if all_done && stopped => break,
            Ok(Event::Ended(ended)) => {
                totals.ended += 1;
                hopeless = match ended.ran.report.result {
                    Outcome::CouldNot(_) | Outcome::Unknown(_) => hopeless + 1,
                    Outcome::Settled { .. }
                    | Outcome::CommittedAlready
                    | Outcome::Refused(_)
                    | Outcome::NotRecorded { .. } => 0,
                };
                tell(Tell::Ended(ended));
                gate.looked_at();
                if hopeless >= HOPELESS && totals.stopped.is_none() {
                    totals.stopped = Some(Why::Store);
                    stops(Why::Store, Stop::Drain, tell);
                }
            }
            Ok(Event::NotStarted) => {
                totals.not_started += 1;
                gate.looked_at();
            }
            Ok(Event::Fed { read, is_whole }) => {
                is_fed = true;
                totals.read = read;
                totals.is_whole = is_whole;
                if let Ok(wrong) = wrong.try_recv() {
                    totals.stopped.get_or_insert(Why::Line);
                    tell(Tell::Wrong(wrong));
                }
            }
            Ok(Event::Signal(signal)) => {
                let stop = if gate.stopped() == Stop::No { Stop::Drain } else { Stop::End };
                totals.stopped = Some(Why::Signal(signal));
                stops(Why::Signal(signal), stop, tell);
            }
            Ok(Event::Broken) | Err(RecvTimeoutError::Disconnected) => {
                totals.stopped = Some(Why::Broken);
                stops(Why::Broken, Stop::End, tell);
                return totals;
            }
            Err(RecvTimeoutError::Timeout) => tell(Tell::Tick(&totals)),
        }
    }
    // A line that was read and not let in is one that was not started.
    let let_in = gate.let_in_so_far();
    totals.read = totals.read.max(let_in);
    totals.not_started += totals.read - let_in;
    totals
}
