//! Stop points: named places where a process halts itself, so that a test can kill it exactly there
//! (STO-12). They do nothing unless one was armed **and** the store carries the mark of a scratch
//! store, which only `init --scratch` gives.
use std::sync::OnceLock;

use nix::sys::signal::{Signal, raise};

use super::Append;
use crate::plan::effect::Event;
use crate::plan::workflow::RunAppend;

/// Where a process can be made to halt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Before the reserve's BEGIN.
    BeforeReserve,
    /// Inside the reserve's transaction, after its writes, before COMMIT.
    InReserve,
    /// The reserve is durable.
    AfterReserve,
    /// The begin was decided on what was loaded; its append has not started.
    BeforeBegin,
    /// The begin is durable; the child is not started.
    AfterBegin,
    /// The child runs.
    Running,
    /// The child has ended; the settle has not started.
    BeforeSettle,
    /// Inside the settle's transaction, after its writes, before COMMIT.
    InSettle,
    /// The settle is durable.
    AfterSettle,
    /// Inside a prune's transaction, after its writes, before COMMIT. No run passes it.
    InPrune,
}

impl Point {
    /// Every point, in the order in which a run passes them.
    pub const ALL: [Self; 9] = [
        Self::BeforeReserve,
        Self::InReserve,
        Self::AfterReserve,
        Self::BeforeBegin,
        Self::AfterBegin,
        Self::Running,
        Self::BeforeSettle,
        Self::InSettle,
        Self::AfterSettle,
    ];

    /// Its name in the environment variable.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeReserve => "before-reserve",
            Self::InReserve => "in-reserve",
            Self::AfterReserve => "after-reserve",
            Self::BeforeBegin => "before-begin",
            Self::AfterBegin => "after-begin",
            Self::Running => "running",
            Self::BeforeSettle => "before-settle",
            Self::InSettle => "in-settle",
            Self::AfterSettle => "after-settle",
            Self::InPrune => "in-prune",
        }
    }
}

/// Where a process can be made to halt in a tick of a workflow's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickPoint {
    /// It was decided on what was loaded; its append has not started.
    BeforeTick,
    /// Inside the append's transaction, after its writes, before COMMIT.
    InTick,
    /// The tick is durable; what it dispatched has not been looked at.
    AfterTick,
}

impl TickPoint {
    /// Every point, in the order in which a tick passes them.
    pub const ALL: [Self; 3] = [Self::BeforeTick, Self::InTick, Self::AfterTick];

    /// Its name in the environment variable.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeTick => "before-tick",
            Self::InTick => "in-tick",
            Self::AfterTick => "after-tick",
        }
    }
}

/// The name of the point that was armed.
static ARMED: OnceLock<&'static str> = OnceLock::new();

/// Arms the point of that name, for this process; an unknown name arms nothing.
pub fn arm(name: &str) {
    let of_run = Point::ALL.into_iter().chain([Point::InPrune]).map(Point::name);
    let of_tick = TickPoint::ALL.into_iter().map(TickPoint::name);
    if let Some(known) = of_run.chain(of_tick).find(|known| *known == name) {
        let _ = ARMED.set(known);
    }
}

/// Halts this process here, by SIGSTOP, if `point` is armed and `scratch` says that the store is a
/// scratch store.
pub fn here(point: Point, scratch: bool) {
    halt(point.name(), scratch);
}

/// The same in a tick.
pub fn at_tick(point: TickPoint, scratch: bool) {
    halt(point.name(), scratch);
}

fn halt(name: &'static str, scratch: bool) {
    if scratch && ARMED.get() == Some(&name) {
        let _ = raise(Signal::SIGSTOP);
    }
}

/// The stop point inside a run's append, for a store to be opened with.
pub fn inside_run_append(_: &RunAppend) {
    // The store calls this only if it carries the mark.
    at_tick(TickPoint::InTick, true);
}

/// The stop points inside an append, for a store to be opened with.
pub fn inside_append(append: &Append) {
    let point = match append.history.first().map(|row| &row.event) {
        Some(Event::Reserved(_)) => Point::InReserve,
        Some(Event::Committed(_) | Event::Failed(_) | Event::Ambiguated(_)) => Point::InSettle,
        _ => return,
    };
    // The store calls this only if it carries the mark.
    here(point, true);
}
