//! What came of the nodes that stand for an effect.
use std::time::Duration;

use super::Ticking;
use crate::plan::effect::{Cause, FailedBy, Record, State};
use crate::plan::key::{Fingerprint, Key};
use crate::plan::workflow::definition::What;
use crate::plan::workflow::event::{DispatchedWhy, RunEvent};
use crate::plan::workflow::names::Name;
use crate::plan::workflow::types::{Expected, NodeState};

/// The longest pause after an attempt that never started.
const UNSTARTED_PAUSE_MAX: Duration = Duration::from_secs(60);

impl Ticking<'_> {
    /// What came of the nodes that stand for an effect.
    pub(super) fn observe(&mut self) {
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
    pub(super) fn dispatched(
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
}

pub(super) fn committed(node: &Name, record: &Record) -> RunEvent {
    RunEvent::NodeCommitted {
        node: node.clone(),
        key: record.key.clone(),
        attempt: record.attempt,
        revision: record.revision,
    }
}

pub(super) fn ambiguous(node: &Name, record: &Record, reopened: bool) -> RunEvent {
    RunEvent::NodeAmbiguous {
        node: node.clone(),
        key: record.key.clone(),
        attempt: record.attempt,
        revision: record.revision,
        detail: detail(record),
        reopened,
    }
}

pub(super) fn bound_otherwise(key: &Key) -> String {
    format!("its key {key} is bound to another command")
}

/// What a record says of its end, in one line.
fn detail(record: &Record) -> String {
    if let State::Ambiguous { cause, .. } = record.state {
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
