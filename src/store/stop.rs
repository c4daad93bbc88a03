//! Stop points: named places where a process halts itself, so that a test can kill it exactly there
//! (STO-12). They do nothing unless one was armed **and** the store carries the mark of a scratch
//! store, which only `init --scratch` gives.
use std::sync::OnceLock;

use nix::sys::signal::{Signal, raise};

use super::Append;
use crate::plan::effect::Event;

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

static ARMED: OnceLock<Point> = OnceLock::new();

/// Arms the point of that name, for this process; an unknown name arms nothing.
pub fn arm(name: &str) {
    let mut all = Point::ALL.into_iter().chain([Point::InPrune]);
    if let Some(point) = all.find(|point| point.name() == name) {
        let _ = ARMED.set(point);
    }
}

/// Halts this process here, by SIGSTOP, if `point` is armed and `scratch` says that the store is a
/// scratch store.
pub fn here(point: Point, scratch: bool) {
    if scratch && ARMED.get() == Some(&point) {
        let _ = raise(Signal::SIGSTOP);
    }
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
