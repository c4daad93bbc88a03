//! A state of the model: what is stored, what each process is about to do, and what has come about.
use std::sync::Arc;
use std::time::Duration;

use ctrlrun::plan::attempt::{Attempt, Do, Order, Undelivered};
use ctrlrun::plan::effect::{Labels, OutcomeId, RanOn, Request, Verdict, WriteId};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::protocol::{Append, Handle, Input, Known, Step};
use ctrlrun::plan::time::{Moment, Timestamp};
use ctrlrun::plan::verdict::NotExecuted;
use uuid::Uuid;

use crate::shelf::Rows;
use crate::verify::broken::{Break, Memory};

/// The full lease, which is that of a reservation too.
pub const LEASE: Duration = Duration::from_secs(3);
/// A leap of the clock, in half seconds: what was just seen may still be taken for so.
pub const MOMENT: u32 = 1;
/// A renewal is due.
pub const THIRD: u32 = 2;
/// Every lease has ended.
pub const WHOLE: u32 = 6;
/// The store time of one command.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// The code that the effect declares as proof that nothing happened.
pub const DECLARED: i32 = 6;

/// What may come about in a world, and how often.
#[derive(Debug, Clone)]
pub struct Bounds {
    pub name: &'static str,
    pub processes: usize,
    pub keys: usize,
    /// Runs that each process makes, one after another.
    pub runs: u8,
    pub faults: u8,
    /// Ends of processes without a word, and signals that end one that may end.
    pub crashes: u8,
    /// Leaps of the clock.
    pub leaps: u8,
    pub leap: &'static [u32],
    pub decisions: u8,
    pub probes: u8,
    pub forgets: u8,
    /// Keys are forgotten by hand, and their revisions come round again.
    pub by_hand: bool,
    /// How an exchange may go, besides well.
    pub hows: &'static [crate::shelf::How],
    pub asks: &'static [Asked],
    pub words: &'static [Word],
    /// The command may be one that cannot be started.
    pub unstartable: bool,
    /// A spool that may not take an outcome.
    pub spool_fails: bool,
    /// All processes are of one host, and have one spool.
    pub one_host: bool,
    /// The store is broken in this way.
    pub breaks: Option<Break>,
}

/// What a run asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asked {
    Plain,
    /// Another command under the same key.
    Other,
    /// The same, allowed after a decision.
    Rebind,
    /// With `--expect new`.
    New,
    /// Held to the process's own FAILED, as a retry is.
    Again,
    /// With `--max-attempts 1`.
    Once,
    /// The store has told its floor and its clock when it was opened: the key is guessed to be new.
    Guessing,
    /// One of a batch: it begins when there is a place for its child, or gives its key back.
    Gated,
}

/// How a child ends, and whether the effect came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Word {
    /// It exits 0, and it did.
    Committed,
    /// It exits with the declared code, and it did not.
    Failed,
    /// It exits otherwise, all of it is over, and it did.
    DoubtDid,
    /// The same, and it did not.
    DoubtDidNot,
    /// It exits otherwise and leaves something running, by which it may still come about.
    DoubtLeft,
    /// It died of a signal, and it did not.
    Signal,
    /// Our time-out ended it, and something of it may go on.
    TimedOut,
    /// It said "committed" with the declared code, and it did.
    Contradiction,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub rows: Vec<Part<Rows>>,
    pub processes: Vec<Part<Process>>,
    pub desk: Part<Option<Writing>>,
    pub rest: Part<Rest>,
}

/// One process after another, on one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Process {
    pub runs: u8,
    /// Appends that this run has made: the next one's name.
    pub drawn: u16,
    pub work: Work,
    /// The revision of its own FAILED, as it was told.
    pub failed_at: Option<u64>,
    pub memory: Memory,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Work {
    #[default]
    Idle,
    /// It delivers what is in the spool, and then runs what it was asked to.
    Delivering(Box<Delivering>),
    Running(Box<Running>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Delivering {
    pub write: Writing,
    pub outcome: Undelivered,
    pub left: Vec<Undelivered>,
    pub asked: Asked,
    /// What is to be run.
    pub key: usize,
    pub opened: Opened,
}

/// What the store has told when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opened {
    pub floor: u64,
    pub now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Running {
    pub key: usize,
    pub name: u32,
    pub asked: Asked,
    pub machine: Attempt,
    pub next: Do,
    /// The append that is under way.
    pub last: Option<Box<Append>>,
    /// How often it was tried.
    pub tries: u8,
    /// Some answer was lost, or a look at what became of it failed.
    pub doubt: bool,
    pub renewal: Option<Writing>,
    /// Where the child is among all of them.
    pub child: Option<usize>,
    /// The child's group was told to end.
    pub ended: bool,
    /// What the child's end was taken for.
    pub word: Option<Verdict>,
    pub is_kept: bool,
}

/// One conditional write of somebody, and the step that it is at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Writing {
    pub key: usize,
    pub handle: Handle,
    pub step: Step,
    pub last: Option<Box<Append>>,
    pub tries: u8,
    pub doubt: bool,
    /// Its appends are named from here, up to the next one's name.
    pub first: u16,
    pub drawn: u16,
    /// Names its appends, with that number.
    pub name: u32,
}

impl Writing {
    pub fn new(key: usize, mut handle: Handle, name: u32, drawn: u16, at: Moment) -> Self {
        let step = handle.step(Input::Start, at);
        Self { key, handle, step, last: None, tries: 0, doubt: false, first: drawn, drawn, name }
    }
}

/// What is neither stored nor of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rest {
    /// The clock, in half seconds.
    pub now: u32,
    pub faults: u8,
    pub crashes: u8,
    pub leaps: u8,
    pub decisions: u8,
    pub probes: u8,
    pub forgets: u8,
    /// Writes that may still land.
    pub on_the_way: Vec<(usize, Append)>,
    pub children: Vec<Child>,
    /// By host.
    pub spool: Vec<(usize, Undelivered)>,
    /// Outcomes that somebody has told, or kept.
    pub known: Vec<Told>,
    /// By key: a person has said that it did not happen, or the key was forgotten.
    pub freed: Vec<bool>,
}

/// A command that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Child {
    pub key: usize,
    pub attempt: u64,
    pub fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It runs, under a holder.
    Runs,
    /// It runs, and a probe has made it impossible that anything comes of it.
    Barred,
    /// Nobody watches it, and it may still come about.
    Stray,
    /// It came about.
    Happened,
    /// It is over, and nothing came about.
    Over,
}

/// An outcome that is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Told {
    pub key: usize,
    pub outcome: OutcomeId,
    pub word: Verdict,
}

impl World {
    /// Nothing has been done yet.
    pub fn fresh(bounds: &Bounds) -> Self {
        let rest = Rest {
            faults: bounds.faults,
            crashes: bounds.crashes,
            leaps: bounds.leaps,
            decisions: bounds.decisions,
            probes: bounds.probes,
            forgets: bounds.forgets,
            freed: vec![false; bounds.keys],
            ..Rest::default()
        };
        Self {
            rows: vec![Part::default(); bounds.keys],
            processes: vec![Part::default(); bounds.processes],
            desk: Part::default(),
            rest: Part::new(rest),
        }
    }

    /// The store's clock.
    pub fn now(&self) -> Timestamp {
        Timestamp(1_000_000_000 + i64::from(self.rest.now) * 500_000)
    }

    /// Every host's own clock, which runs as the store's does and shows something else.
    pub fn moment(&self) -> Moment {
        moment_of(self.now())
    }
}

/// What our own clocks show when the store's shows `at`.
pub fn moment_of(at: Timestamp) -> Moment {
    Moment(u64::try_from(at.0).unwrap_or(0) + 7_000_000)
}

pub fn key(at: usize) -> Key {
    Key::new(["k", "l"][at]).unwrap_or_else(|error| panic!("{error}"))
}

/// The name of the `drawn`-th append of a run, a renewal, a person.
pub fn write_id(name: u32, drawn: u16) -> WriteId {
    WriteId(Uuid::from_u128(u128::from(name) << 16 | u128::from(drawn)))
}

/// The name of a run's appends.
pub fn run_name(process: usize, runs: u8) -> u32 {
    (u32::try_from(process).unwrap_or(0) + 1) << 8 | u32::from(runs)
}

/// Whether an append of that name wrote it.
pub fn is_of(id: WriteId, name: u32) -> bool {
    id.0.as_u128() >> 16 == u128::from(name)
}

pub fn order(
    key_at: usize,
    asked: Asked,
    name: u32,
    failed_at: Option<u64>,
    opened: Option<Opened>,
) -> Order {
    let other = matches!(asked, Asked::Other | Asked::Rebind);
    Order {
        key: key(key_at),
        request: Request {
            fingerprint: Fingerprint([u8::from(other); 32]),
            program: String::new(),
            arguments: 0,
            command: None,
        },
        // One for all: a label proves nothing.
        attempt_id: String::new(),
        expect: match (asked, failed_at) {
            (Asked::New, _) => StreamState::NoStream,
            (Asked::Again, Some(revision)) => StreamState::Revision(revision),
            _ => StreamState::Any,
        },
        dispatch: None,
        max_attempts: (asked == Asked::Once).then_some(1),
        rebind: asked == Asked::Rebind,
        lease: LEASE,
        ran_on: RanOn {
            host: String::new(),
            pid: 0,
            user: String::new(),
            directory: String::new(),
        },
        labels: Labels::new(),
        not_executed: NotExecuted::parse("6").unwrap_or_default(),
        store_timeout: PATIENCE,
        outcome_id: OutcomeId(Uuid::from_u128(u128::from(name))),
        guess: opened
            .filter(|_| asked == Asked::Guessing)
            .map(|Opened { floor, now }| Known::absent(floor, now, moment_of(now), moment_of(now))),
    }
}

/// A part of a state, that states share; it knows the number under which it is kept, until it is
/// changed.
#[derive(Debug, Default)]
pub struct Part<T> {
    pub number: Option<u32>,
    pub at: Arc<T>,
}

impl<T> Part<T> {
    pub fn new(part: T) -> Self {
        Self { number: None, at: Arc::new(part) }
    }
}

impl<T: Clone> Part<T> {
    /// To be changed: from here on it is another.
    pub fn edit(&mut self) -> &mut T {
        self.number = None;
        Arc::make_mut(&mut self.at)
    }
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self { number: self.number, at: Arc::clone(&self.at) }
    }
}

impl<T> std::ops::Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.at
    }
}

impl<T: PartialEq> PartialEq for Part<T> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<T: Eq> Eq for Part<T> {}

impl<T: std::hash::Hash> std::hash::Hash for Part<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.at.hash(state);
    }
}
