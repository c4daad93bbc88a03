//! One tick: what a run does next, given all that was loaded (WFL-6). A pure function.
//!
//! | it looks at | and decides |
//! |---|---|
//! | the inbox | what is wanted, in the order in which it came |
//! | the records of its nodes' effects | what came of them: done, failed, in doubt, to be dispatched again |
//! | signals and the store's clock | what has been waited for |
//! | the definition | what can be dispatched now |
//! | all of that | how the run stands |
use std::collections::BTreeMap;
use std::time::Duration;

use super::definition::{Definition, NodeSpec, What};
use super::event::{DispatchedWhy, RunEvent};
use super::fill::{Filled, fill};
use super::fold::apply;
use super::inbox;
use super::types::{
    Dispatch, Expected, InboxId, InboxItem, Name, NodeState, Run, Status, Taken, Wakeup,
};
use crate::plan::effect::{FailedBy, Record, State};
use crate::plan::key::{Fingerprint, Key};
use crate::plan::protocol::Captured;
use crate::plan::time::Timestamp;

/// The longest pause after an attempt that never started.
const UNSTARTED_PAUSE_MAX: Duration = Duration::from_secs(60);

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

    /// What came of the nodes that stand for an effect.
    fn observe(&mut self) {
        for (node, state) in self.nodes() {
            let Some(key) = state.key().cloned() else {
                continue;
            };
            if let Some(event) = self.observed(&node, &state, &key) {
                self.emit(event);
            }
        }
    }

    fn observed(&self, node: &Name, state: &NodeState, key: &Key) -> Option<RunEvent> {
        let record = self.loaded.records.get(key);
        if let NodeState::Dispatched { fingerprint, expect, .. } = state
            && record.map(|record| record.revision) == expect.revision()
            && !self.run.status.is_end()
            && self.is_another_now(node, *fingerprint)
        {
            // Another definition says otherwise, and nothing has been started.
            return Some(RunEvent::NodeWithdrawn { node: node.clone() });
        }
        let Some(record) = record else {
            return self.record_is_gone(node, state, key);
        };
        if let NodeState::Dispatched { fingerprint, .. } = state
            && *fingerprint != record.request.fingerprint
            && !matches!(record.state, State::Failed { .. })
        {
            // Whatever came of it, it is another command's.
            return Some(RunEvent::NodeUnfit { node: node.clone(), why: bound_otherwise(key) });
        }
        match record.state {
            State::Committed { .. } => match state {
                NodeState::Committed { .. } => None,
                NodeState::Dispatched { .. }
                | NodeState::Failed { .. }
                | NodeState::Ambiguous { .. }
                | NodeState::Pending
                | NodeState::Waiting { .. }
                | NodeState::Passed
                | NodeState::Unfit { .. }
                | NodeState::Skipped => Some(committed(node, record)),
            },
            State::Ambiguous { .. } => match state {
                NodeState::Ambiguous { .. } => None,
                NodeState::Committed { .. } => Some(ambiguous(node, record, true)),
                NodeState::Dispatched { .. }
                | NodeState::Failed { .. }
                | NodeState::Pending
                | NodeState::Waiting { .. }
                | NodeState::Passed
                | NodeState::Unfit { .. }
                | NodeState::Skipped => Some(ambiguous(node, record, false)),
            },
            State::Failed { by } => self.observed_failed(node, state, record, by),
            State::Reserved { .. } | State::Executing { .. } => match state {
                // Somebody runs it by hand after a decision: its end is waited for.
                NodeState::Ambiguous { .. } | NodeState::Committed { .. }
                    if !self.run.status.is_end() =>
                {
                    Some(self.dispatched(
                        node,
                        record,
                        record.request.fingerprint,
                        DispatchedWhy::Moved,
                    ))
                }
                NodeState::Dispatched { .. }
                | NodeState::Committed { .. }
                | NodeState::Failed { .. }
                | NodeState::Ambiguous { .. }
                | NodeState::Pending
                | NodeState::Waiting { .. }
                | NodeState::Passed
                | NodeState::Unfit { .. }
                | NodeState::Skipped => None,
            },
        }
    }

    /// There is no record: it has not been reserved yet, or was forgotten since.
    fn record_is_gone(&self, node: &Name, state: &NodeState, key: &Key) -> Option<RunEvent> {
        match state {
            NodeState::Dispatched { expect: Expected::NoStream, .. }
                if self.run.status.is_end() =>
            {
                // Its dispatch went with the end of the run.
                Some(RunEvent::NodeWithdrawn { node: node.clone() })
            }
            NodeState::Dispatched { expect: Expected::Revision(_), fingerprint, due, .. }
                if !self.run.status.is_end() =>
            {
                Some(RunEvent::NodeDispatched {
                    node: node.clone(),
                    key: key.clone(),
                    attempt: self.loaded.attempt_floor.saturating_add(1),
                    fingerprint: *fingerprint,
                    expect: Expected::NoStream,
                    due: *due,
                    why: DispatchedWhy::Moved,
                })
            }
            NodeState::Dispatched { .. }
            | NodeState::Pending
            | NodeState::Waiting { .. }
            | NodeState::Passed
            | NodeState::Committed { .. }
            | NodeState::Failed { .. }
            | NodeState::Ambiguous { .. }
            | NodeState::Unfit { .. }
            | NodeState::Skipped => None,
        }
    }

    fn observed_failed(
        &self,
        node: &Name,
        state: &NodeState,
        record: &Record,
        by: FailedBy,
    ) -> Option<RunEvent> {
        let failed = || RunEvent::NodeFailed {
            node: node.clone(),
            key: record.key.clone(),
            attempt: record.attempt,
            revision: record.revision,
            detail: detail(record),
        };
        let may_go_on = !self.run.status.is_end() && !self.is_stopping();
        match state {
            NodeState::Dispatched { attempt, expect, fingerprint, .. } => {
                if expect.revision() == Some(record.revision) {
                    // It has not been started yet; once the run has ended, it never will be.
                    let withdrawn = RunEvent::NodeWithdrawn { node: node.clone() };
                    return self.run.status.is_end().then_some(withdrawn);
                }
                if !may_go_on {
                    return Some(failed());
                }
                let ours = record.run_id.as_deref() == Some(self.run.id.as_str());
                if !ours || record.attempt < *attempt {
                    // A note came to the record, or somebody else's attempt.
                    return Some(self.dispatched(node, record, *fingerprint, DispatchedWhy::Moved));
                }
                let why = match by {
                    FailedBy::NeverStarted => DispatchedWhy::NeverStarted,
                    FailedBy::Person | FailedBy::Probe => DispatchedWhy::NotExecuted,
                    FailedBy::OwnWord => DispatchedWhy::Retry,
                };
                match self.spec(node).map(|spec| &spec.what) {
                    Some(What::Run(spec))
                        if why != DispatchedWhy::Retry || self.retries(node) < spec.retries =>
                    {
                        Some(self.dispatched(node, record, *fingerprint, why))
                    }
                    // Of a node that another definition dropped nothing is run any more.
                    Some(What::Run(_) | What::Wait(_)) | None => Some(failed()),
                }
            }
            NodeState::Ambiguous { .. } | NodeState::Committed { .. } => {
                if may_go_on && self.spec(node).is_some() {
                    let fingerprint = record.request.fingerprint;
                    Some(self.dispatched(node, record, fingerprint, DispatchedWhy::NotExecuted))
                } else {
                    Some(failed())
                }
            }
            NodeState::Failed { .. }
            | NodeState::Pending
            | NodeState::Waiting { .. }
            | NodeState::Passed
            | NodeState::Unfit { .. }
            | NodeState::Skipped => None,
        }
    }

    /// Whether the definition now has another command for a dispatched node, or does not have it.
    fn is_another_now(&self, node: &Name, fingerprint: Fingerprint) -> bool {
        if self.definition.is_err() {
            return false;
        }
        match self.filled(node) {
            Ok(filled) => filled.request().fingerprint != fingerprint,
            Err(_) => self.spec(node).is_none(),
        }
    }

    fn retries(&self, node: &Name) -> u32 {
        self.run.progress.nodes.get(node).map_or(0, |node| node.retries)
    }

    /// The node, dispatched upon a record that is there. Its command is filled anew if that can be
    /// done: a definition accepted meanwhile may have changed it.
    fn dispatched(
        &self,
        node: &Name,
        record: &Record,
        fingerprint: Fingerprint,
        why: DispatchedWhy,
    ) -> RunEvent {
        let filled = self.filled(node).ok().filter(|filled| filled.key == record.key);
        let unstarted = self.run.progress.nodes.get(node).map_or(0, |node| node.unstarted);
        let pause = match (why, self.spec(node).map(|spec| &spec.what)) {
            (DispatchedWhy::Retry, Some(What::Run(spec))) => spec.pause(self.retries(node)),
            (DispatchedWhy::NeverStarted, _) => Duration::from_secs(1)
                .saturating_mul(2_u32.saturating_pow(unstarted))
                .min(UNSTARTED_PAUSE_MAX),
            (DispatchedWhy::Retry, _)
            | (DispatchedWhy::First | DispatchedWhy::NotExecuted | DispatchedWhy::Moved, _) => {
                Duration::ZERO
            }
        };
        RunEvent::NodeDispatched {
            node: node.clone(),
            key: record.key.clone(),
            attempt: record.attempt.saturating_add(1),
            fingerprint: filled.map_or(fingerprint, |filled| filled.request().fingerprint),
            expect: Expected::Revision(record.revision),
            due: self.loaded.now.plus(pause),
            why,
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

    /// Dispatches what can be, until nothing more can.
    fn advance(&mut self) {
        for (node, state) in self.nodes() {
            if matches!(state, NodeState::Unfit { .. }) && self.fits(&node) {
                self.emit(RunEvent::NodePending { node });
            }
        }
        // Each round moves at least one node out of PENDING, so it ends.
        while !self.is_blocked() {
            let ready = self.ready();
            if ready.is_empty() {
                return;
            }
            for node in ready {
                let event = self.first(&node);
                self.emit(event);
            }
        }
    }

    /// Whether what made a node unfit is gone.
    fn fits(&self, node: &Name) -> bool {
        match self.filled(node) {
            Err(_) => false,
            Ok(filled) => self.loaded.records.get(&filled.key).is_none_or(|record| {
                matches!(record.state, State::Failed { .. })
                    || record.request.fingerprint == filled.request().fingerprint
            }),
        }
    }

    fn ready(&self) -> Vec<Name> {
        let nodes = &self.run.progress.nodes;
        let done = |name: &Name| nodes.get(name).is_some_and(|node| node.state.is_done());
        nodes
            .iter()
            .filter(|(name, node)| {
                matches!(node.state, NodeState::Pending)
                    && self.spec(name).is_some_and(|spec| spec.needs.iter().all(done))
            })
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The first thing that happens to a node whose needs are done.
    fn first(&self, node: &Name) -> RunEvent {
        let unfit = |why: String| RunEvent::NodeUnfit { node: node.clone(), why };
        match self.spec(node).map(|spec| &spec.what) {
            None => unfit("the definition does not have it".to_owned()),
            Some(What::Wait(wait)) => {
                let now = self.loaded.now;
                let after = wait.for_ms.map(|ms| now.plus(Duration::from_millis(ms)));
                let until = [after, wait.until.map(Timestamp)].into_iter().flatten().min();
                if self.has_come(wait.signal.as_ref(), until) {
                    return RunEvent::NodePassed { node: node.clone() };
                }
                RunEvent::NodeWaiting { node: node.clone(), signal: wait.signal.clone(), until }
            }
            Some(What::Run(_)) => match self.filled(node) {
                Err(why) => unfit(why),
                Ok(filled) => self.first_run(node, &filled),
            },
        }
    }

    fn first_run(&self, node: &Name, filled: &Filled) -> RunEvent {
        let fingerprint = filled.request().fingerprint;
        let due = self.loaded.now;
        let Some(record) = self.loaded.records.get(&filled.key) else {
            return RunEvent::NodeDispatched {
                node: node.clone(),
                key: filled.key.clone(),
                attempt: self.loaded.attempt_floor.saturating_add(1),
                fingerprint,
                expect: Expected::NoStream,
                due,
                why: DispatchedWhy::First,
            };
        };
        // It is there already: of a named effect, or by hand, or from before it was withdrawn.
        let same = record.request.fingerprint == fingerprint;
        match record.state {
            State::Failed { .. } => {}
            State::Committed { .. }
            | State::Ambiguous { .. }
            | State::Reserved { .. }
            | State::Executing { .. }
                if !same =>
            {
                return RunEvent::NodeUnfit {
                    node: node.clone(),
                    why: bound_otherwise(&filled.key),
                };
            }
            State::Committed { .. } => return committed(node, record),
            State::Ambiguous { .. } => return ambiguous(node, record, false),
            // Its end is waited for: the reserve is refused until then.
            State::Reserved { .. } | State::Executing { .. } => {}
        }
        self.dispatched(node, record, fingerprint, DispatchedWhy::First)
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

    /// What is dispatched is made what the nodes say: taken away, put, put in the place of another.
    fn reconcile(&mut self) {
        let mut standing: BTreeMap<&Name, &Dispatch> = BTreeMap::new();
        for dispatch in &self.loaded.dispatches {
            let node = &dispatch.id.node;
            let now = self.run.progress.nodes.get(node).map(|node| &node.state);
            // One that was decided anew is put anew, even if it looks the same: what a worker that
            // has the old one was about to run may be another command.
            let stands = !standing.contains_key(node) && !self.is_new(node);
            if stands && now.is_some_and(|state| stands_for(state, dispatch)) {
                standing.insert(node, dispatch);
                continue;
            }
            let withdrawn = self.decided.events.iter().any(
                |event| matches!(event, RunEvent::NodeWithdrawn { node: which } if which == node),
            );
            let unstarted = withdrawn.then(|| (dispatch.key.clone(), dispatch.expect.revision()));
            self.decided.taken.push(Taken { id: dispatch.id.clone(), unstarted });
        }
        if self.run.status.is_end() {
            return;
        }
        for (node, state) in self.nodes() {
            match &state {
                NodeState::Dispatched { .. } if !standing.contains_key(&node) => {
                    self.put_again(&node, &state);
                    self.decided.put.push(node);
                }
                NodeState::Waiting { until: Some(until), .. } if self.is_new(&node) => {
                    self.decided.due.push((node, *until));
                }
                NodeState::Pending
                | NodeState::Dispatched { .. }
                | NodeState::Waiting { .. }
                | NodeState::Passed
                | NodeState::Committed { .. }
                | NodeState::Failed { .. }
                | NodeState::Ambiguous { .. }
                | NodeState::Unfit { .. }
                | NodeState::Skipped => {}
            }
        }
    }

    fn is_new(&self, node: &Name) -> bool {
        self.decided.events.iter().any(|event| {
            matches!(
                event,
                RunEvent::NodeWaiting { node: which, .. }
                    | RunEvent::NodeDispatched { node: which, .. } if which == node
            )
        })
    }

    /// A dispatch that is not there although nobody took it away is put once more, and said to be.
    fn put_again(&mut self, node: &Name, state: &NodeState) {
        if let NodeState::Dispatched { key, attempt, fingerprint, expect, due } = state
            && !self.is_new(node)
        {
            self.emit(RunEvent::NodeDispatched {
                node: node.clone(),
                key: key.clone(),
                attempt: *attempt,
                fingerprint: *fingerprint,
                expect: *expect,
                due: *due,
                why: DispatchedWhy::Moved,
            });
        }
    }
}

fn stands_for(state: &NodeState, dispatch: &Dispatch) -> bool {
    match state {
        NodeState::Dispatched { key, attempt, expect, .. } => {
            *key == dispatch.key && *attempt == dispatch.attempt && *expect == dispatch.expect
        }
        NodeState::Pending
        | NodeState::Waiting { .. }
        | NodeState::Passed
        | NodeState::Committed { .. }
        | NodeState::Failed { .. }
        | NodeState::Ambiguous { .. }
        | NodeState::Unfit { .. }
        | NodeState::Skipped => false,
    }
}

fn committed(node: &Name, record: &Record) -> RunEvent {
    RunEvent::NodeCommitted {
        node: node.clone(),
        key: record.key.clone(),
        attempt: record.attempt,
        revision: record.revision,
    }
}

fn ambiguous(node: &Name, record: &Record, reopened: bool) -> RunEvent {
    RunEvent::NodeAmbiguous {
        node: node.clone(),
        key: record.key.clone(),
        attempt: record.attempt,
        revision: record.revision,
        detail: detail(record),
        reopened,
    }
}

fn bound_otherwise(key: &Key) -> String {
    format!("its key {key} is bound to another command")
}

/// What a record says of its end, in one line.
fn detail(record: &Record) -> String {
    if let State::Ambiguous { cause, .. } = record.state {
        use crate::plan::effect::Cause;
        let why = match cause {
            Cause::Lapsed => "its lease ended, and nobody has reported since",
            Cause::LateOutcome => "a late word says that it may have happened",
            Cause::Reopened => "a decision about it was taken back",
            Cause::Exit | Cause::Signal | Cause::Timeout | Cause::Contradiction => "",
        };
        if !why.is_empty() {
            return why.to_owned();
        }
    }
    match (&record.resolution, &record.ending) {
        (Some(resolution), _) => format!("resolved by {}: {}", resolution.by, resolution.reason),
        (None, Some(ending)) => ending.detail.clone(),
        (None, None) => "no word of its end".to_owned(),
    }
}
