//! One tick: what a run does next, given all that was loaded (WFL-6). A pure function.
//!
//! | it looks at | and decides |
//! |---|---|
//! | the inbox | what is wanted, in the order in which it came |
//! | the records of its nodes' effects | what came of them: done, failed, in doubt, to be dispatched again |
//! | signals and the store's clock | what has been waited for |
//! | the definition | what can be dispatched now |
//! | all of that | how the run stands |
mod advance;
mod observe;

use std::collections::BTreeMap;

use crate::plan::effect::Record;
use crate::plan::key::Key;
use crate::plan::protocol::Captured;
use crate::plan::time::Timestamp;
use crate::plan::workflow::append::{Dispatch, InboxId, InboxItem, Taken, Wakeup};
use crate::plan::workflow::definition::{Definition, NodeSpec};
use crate::plan::workflow::event::RunEvent;
use crate::plan::workflow::fill::{Filled, fill};
use crate::plan::workflow::fold::apply;
use crate::plan::workflow::inbox;
use crate::plan::workflow::names::Name;
use crate::plan::workflow::types::{NodeState, Run, Status};

/// All that a tick looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The run.
    pub run: Run,
    /// The store's clock.
    pub now: Timestamp,
    /// Its inbox, the oldest first.
    pub inbox: Vec<InboxItem>,
    /// Its dispatches.
    pub dispatches: Vec<Dispatch>,
    /// Its wakeups that are due.
    pub wakeups: Vec<Wakeup>,
    /// The records of its nodes' effects that are there.
    pub records: BTreeMap<Key, Record>,
    /// The outputs that its nodes are fed by, as they are stored.
    pub outputs: BTreeMap<Key, Captured>,
    /// Attempts of a new key are numbered from this plus one.
    pub attempt_floor: u64,
}

/// What a tick decides; without events, nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decided {
    /// What happens, in this order.
    pub events: Vec<RunEvent>,
    /// Items of the inbox that are consumed.
    pub consumed: Vec<InboxId>,
    /// Dispatches that are taken away.
    pub taken: Vec<Taken>,
    /// Nodes of which a dispatch is put, as their state after the events says.
    pub put: Vec<Name>,
    /// When the run is to be woken, and the node it is for.
    pub due: Vec<(Name, Timestamp)>,
}

/// Decides.
#[must_use]
pub fn tick(loaded: &Loaded) -> Decided {
    let mut ticking = Ticking::new(loaded);
    ticking.consume();
    ticking.observe();
    ticking.pass();
    if !ticking.run.status.is_end() {
        if ticking.is_stopping() {
            ticking.withdraw();
        } else {
            ticking.advance();
        }
        ticking.judge();
    }
    ticking.reconcile();
    ticking.decided
}

/// What ends a run by force: the one terminal path of livelock and of the watchdog. Nodes in flight
/// are listed and stay in flight: nobody knows that they failed.
#[must_use]
pub fn force(loaded: &Loaded, why: &str) -> Decided {
    if loaded.run.status.is_end() {
        return Decided::default();
    }
    let mut ticking = Ticking::new(loaded);
    let in_flight = ticking.names(|state| matches!(state, NodeState::Dispatched { .. }));
    let doubtful = ticking.names(|state| matches!(state, NodeState::Ambiguous { .. }));
    let mut reason = format!("ended by force: {why}");
    for (what, names) in [("in flight", in_flight), ("AMBIGUOUS", doubtful)] {
        if !names.is_empty() {
            reason.push_str(&format!("; {what}: {}", names.join(", ")));
        }
    }
    ticking.emit(RunEvent::StatusChanged { status: Status::Failed, reason: Some(reason) });
    for dispatch in &loaded.dispatches {
        // Without asking whether it was started: a reserve by it holds only while it is there.
        ticking.decided.taken.push(Taken { id: dispatch.id.clone(), unstarted: None });
    }
    ticking.decided
}

/// Whether nothing that is under way, or expected, could ever move this run: of one that a tick left
/// as it was.
#[must_use]
pub fn waits_for_nothing(loaded: &Loaded) -> bool {
    loaded.run.status == Status::Running
        && !loaded.run.progress.nodes.values().any(|node| match &node.state {
            NodeState::Dispatched { .. } | NodeState::Waiting { .. } => true,
            NodeState::Pending
            | NodeState::Passed
            | NodeState::Committed { .. }
            | NodeState::Failed { .. }
            | NodeState::Ambiguous { .. }
            | NodeState::Unfit { .. }
            | NodeState::Skipped => false,
        })
}

struct Ticking<'l> {
    loaded: &'l Loaded,
    /// The run as the events so far have left it.
    run: Run,
    definition: Result<Definition, String>,
    decided: Decided,
}

impl<'l> Ticking<'l> {
    fn new(loaded: &'l Loaded) -> Self {
        let run = loaded.run.clone();
        let definition = Definition::read(&run.definition);
        Self { loaded, run, definition, decided: Decided::default() }
    }

    fn emit(&mut self, event: RunEvent) {
        // Every event here names a node that was just looked at, so it always applies.
        if apply(&mut self.run, &event).is_some() {
            self.decided.events.push(event);
        }
    }

    fn spec(&self, node: &Name) -> Option<&NodeSpec> {
        self.definition.as_ref().ok()?.nodes.get(node)
    }

    fn nodes(&self) -> Vec<(Name, NodeState)> {
        let nodes = self.run.progress.nodes.iter();
        nodes.map(|(name, node)| (name.clone(), node.state.clone())).collect()
    }

    fn names(&self, which: impl Fn(&NodeState) -> bool) -> Vec<String> {
        let nodes = self.run.progress.nodes.iter().filter(|(_, node)| which(&node.state));
        nodes.map(|(name, _)| name.as_str().to_owned()).collect()
    }

    fn is_stopping(&self) -> bool {
        self.run.progress.cancel.is_some()
            || self
                .run
                .progress
                .nodes
                .values()
                .any(|node| matches!(node.state, NodeState::Failed { .. }))
    }

    fn is_blocked(&self) -> bool {
        self.run
            .progress
            .nodes
            .values()
            .any(|node| matches!(node.state, NodeState::Ambiguous { .. } | NodeState::Unfit { .. }))
    }

    fn consume(&mut self) {
        for item in &self.loaded.inbox {
            let event = inbox::consume(&self.run, item);
            if matches!(event, RunEvent::DefinitionAccepted { .. }) {
                self.emit(event);
                self.definition = Definition::read(&self.run.definition);
            } else {
                self.emit(event);
            }
            self.decided.consumed.push(item.id);
        }
    }

    fn filled(&self, node: &Name) -> Result<Filled, String> {
        let definition = self.definition.as_ref().map_err(Clone::clone)?;
        fill(&self.run, definition, node, &self.loaded.outputs)
    }

    /// What was waited for and has come.
    fn pass(&mut self) {
        if self.run.status.is_end() {
            return;
        }
        for (node, state) in self.nodes() {
            if let NodeState::Waiting { signal, until } = &state
                && self.has_come(signal.as_ref(), *until)
            {
                self.emit(RunEvent::NodePassed { node });
            }
        }
    }

    fn has_come(&self, signal: Option<&Name>, until: Option<Timestamp>) -> bool {
        signal.is_some_and(|signal| self.run.progress.signals.contains_key(signal))
            || until.is_some_and(|until| until <= self.loaded.now)
    }

    /// Takes back what was dispatched and not started: the append holds only if that is so.
    fn withdraw(&mut self) {
        for (node, state) in self.nodes() {
            let NodeState::Dispatched { key, expect, .. } = &state else {
                continue;
            };
            let found = self.loaded.records.get(key).map(|record| record.revision);
            if found == expect.revision() {
                self.emit(RunEvent::NodeWithdrawn { node: node.clone() });
            }
        }
    }

    /// How the run stands.
    fn judge(&mut self) {
        let in_flight = self.names(|state| matches!(state, NodeState::Dispatched { .. }));
        let failed = self.told(|state| {
            if let NodeState::Failed { detail, .. } = state {
                return Some(format!("FAILED: {detail}"));
            }
            None
        });
        let blocked = self.told(|state| {
            if let NodeState::Ambiguous { detail, reopened, .. } = state {
                let what = if *reopened { "AMBIGUOUS again" } else { "AMBIGUOUS" };
                return Some(format!("{what}: {detail}"));
            }
            if let NodeState::Unfit { why } = state {
                return Some(format!("cannot be dispatched: {why}"));
            }
            None
        });
        let besides = |first: String| match &blocked {
            Some(blocked) => Some(format!("{first}; {blocked}")),
            None => Some(first),
        };
        let (status, reason) = if let Some(asked) = &self.run.progress.cancel {
            let why = asked.reason.as_deref().map_or(String::new(), |why| format!(": {why}"));
            let first = format!("by {}{why}", asked.by);
            let end = if in_flight.is_empty() { Status::Cancelled } else { Status::Cancelling };
            (end, besides(first))
        } else if let Some(failed) = failed {
            let end = if in_flight.is_empty() { Status::Failed } else { Status::Failing };
            (end, besides(failed))
        } else if blocked.is_some() {
            (Status::Blocked, blocked)
        } else if self.is_complete() {
            (Status::Succeeded, None)
        } else if let Err(why) = &self.definition {
            (Status::Blocked, Some(format!("its definition cannot be read: {why}")))
        } else {
            (Status::Running, None)
        };
        if self.run.status != status || self.run.reason != reason {
            self.emit(RunEvent::StatusChanged { status, reason });
        }
    }

    fn told(&self, what: impl Fn(&NodeState) -> Option<String>) -> Option<String> {
        let nodes = self.run.progress.nodes.iter();
        let told: Vec<String> = nodes
            .filter_map(|(name, node)| what(&node.state).map(|what| format!("{name}: {what}")))
            .collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    fn is_complete(&self) -> bool {
        // One that the definition dropped, and that nothing was started of, need not be done.
        let mut nodes = self.run.progress.nodes.iter();
        self.definition.is_ok()
            && nodes.all(|(name, node)| {
                node.state.is_done() || (self.spec(name).is_none() && node.state.key().is_none())
            })
    }
}
