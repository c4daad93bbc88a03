//! What can be dispatched now, and what stands dispatched.
use std::collections::BTreeMap;
use std::time::Duration;

use super::Ticking;
use super::observe::{ambiguous, bound_otherwise, committed};
use crate::plan::effect::State;
use crate::plan::time::Timestamp;
use crate::plan::workflow::append::{Dispatch, Taken};
use crate::plan::workflow::definition::What;
use crate::plan::workflow::event::{DispatchedWhy, RunEvent};
use crate::plan::workflow::fill::Filled;
use crate::plan::workflow::names::Name;
use crate::plan::workflow::types::{Expected, NodeState};

impl Ticking<'_> {
    /// Dispatches what can be, until nothing more can.
    pub(super) fn advance(&mut self) {
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

    /// What is dispatched is made what the nodes say: taken away, put, put in the place of another.
    pub(super) fn reconcile(&mut self) {
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
