//! The fold of a run's history: its row (WFL-5).
use super::event::{DispatchedWhy, RunEvent};
use super::names::{Name, RunId};
use super::types::{Node, NodeState, Progress, Run, RunHistoryRow, Status};
use crate::plan::effect::WriteId;
use crate::plan::time::Timestamp;

/// A history that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {revision} ({kind}) cannot follow what stands before it")]
pub struct Unfolded {
    /// Which event.
    pub revision: u64,
    /// Its type.
    pub kind: &'static str,
}

/// The run after `row`.
///
/// # Errors
/// [`Unfolded`] where `row` cannot be the next event.
pub fn evolve(id: &RunId, found: Option<Run>, row: &RunHistoryRow) -> Result<Run, Unfolded> {
    let bad = || Unfolded { revision: row.revision, kind: row.event.kind() };
    let mut run = match (found, &row.event) {
        (None, RunEvent::Started { .. }) if row.revision == 1 => started(id, row),
        (Some(run), _) if row.revision == run.revision.saturating_add(1) => run,
        (None | Some(_), _) => return Err(bad()),
    };
    apply(&mut run, &row.event).ok_or_else(bad)?;
    run.revision = row.revision;
    run.write_id = row.write_id;
    run.updated_at = row.recorded_at;
    if is_transition(&row.event) {
        run.last_transition_seq = row.revision;
    }
    Ok(run)
}

/// A run of which only its first event is known.
fn started(id: &RunId, row: &RunHistoryRow) -> Run {
    blank(id, row.write_id, row.recorded_at)
}

/// What [`apply`] makes a run of with its `started`.
fn blank(id: &RunId, write_id: WriteId, now: Timestamp) -> Run {
    Run {
        id: id.clone(),
        revision: 0,
        write_id,
        workflow: Name::nothing(),
        tier: super::types::Tier::Normal,
        status: Status::Running,
        reason: None,
        definition: String::new(),
        definition_hash: super::names::Hash([0; 32]),
        inputs: std::collections::BTreeMap::new(),
        progress: Progress::default(),
        last_transition_seq: 0,
        created_at: now,
        updated_at: now,
    }
}

/// Whether an event moves a node or the status: progress.
#[must_use]
pub fn is_transition(event: &RunEvent) -> bool {
    match event {
        RunEvent::Started { .. }
        | RunEvent::NodeDispatched { .. }
        | RunEvent::NodeWithdrawn { .. }
        | RunEvent::NodeWaiting { .. }
        | RunEvent::NodePassed { .. }
        | RunEvent::NodeCommitted { .. }
        | RunEvent::NodeFailed { .. }
        | RunEvent::NodeAmbiguous { .. }
        | RunEvent::NodeUnfit { .. }
        | RunEvent::NodePending { .. }
        | RunEvent::StatusChanged { .. } => true,
        RunEvent::Signalled { .. }
        | RunEvent::CancelAsked { .. }
        | RunEvent::DefinitionAccepted { .. }
        | RunEvent::Noted { .. } => false,
    }
}

/// Applies an event to the fields that it is about; `None` where it names a node that is not there.
pub(super) fn apply(run: &mut Run, event: &RunEvent) -> Option<()> {
    match event {
        RunEvent::Started { workflow, tier, definition, hash, nodes, inputs } => {
            run.workflow = workflow.clone();
            run.tier = *tier;
            run.definition.clone_from(definition);
            run.definition_hash = *hash;
            run.inputs.clone_from(inputs);
            run.progress.nodes = nodes.iter().map(|node| (node.clone(), pending())).collect();
        }
        RunEvent::NodeDispatched { node, key, attempt, fingerprint, expect, due, why } => {
            let node = run.progress.nodes.get_mut(node)?;
            match why {
                DispatchedWhy::First | DispatchedWhy::NotExecuted => node.unstarted = 0,
                DispatchedWhy::Retry => {
                    node.retries = node.retries.saturating_add(1);
                    node.unstarted = 0;
                }
                DispatchedWhy::NeverStarted => node.unstarted = node.unstarted.saturating_add(1),
                DispatchedWhy::Moved => {}
            }
            node.state = NodeState::Dispatched {
                key: key.clone(),
                attempt: *attempt,
                fingerprint: *fingerprint,
                expect: *expect,
                due: *due,
            };
        }
        RunEvent::NodeWithdrawn { node } | RunEvent::NodePending { node } => {
            let ended = run.status.is_end();
            let node = run.progress.nodes.get_mut(node)?;
            node.state = if ended { NodeState::Skipped } else { NodeState::Pending };
        }
        RunEvent::NodeWaiting { node, signal, until } => {
            let state = NodeState::Waiting { signal: signal.clone(), until: *until };
            run.progress.nodes.get_mut(node)?.state = state;
        }
        RunEvent::NodePassed { node } => {
            run.progress.nodes.get_mut(node)?.state = NodeState::Passed;
        }
        RunEvent::NodeCommitted { node, key, attempt, revision } => {
            let (key, attempt, revision) = (key.clone(), *attempt, *revision);
            run.progress.nodes.get_mut(node)?.state =
                NodeState::Committed { key, attempt, revision };
        }
        RunEvent::NodeFailed { node, key, attempt, revision, detail } => {
            let (key, detail) = (key.clone(), detail.clone());
            let (attempt, revision) = (*attempt, *revision);
            run.progress.nodes.get_mut(node)?.state =
                NodeState::Failed { key, attempt, revision, detail };
        }
        RunEvent::NodeAmbiguous { node, key, attempt, revision, detail, reopened } => {
            run.progress.nodes.get_mut(node)?.state = NodeState::Ambiguous {
                key: key.clone(),
                attempt: *attempt,
                revision: *revision,
                detail: detail.clone(),
                reopened: *reopened,
            };
        }
        RunEvent::NodeUnfit { node, why } => {
            run.progress.nodes.get_mut(node)?.state = NodeState::Unfit { why: why.clone() };
        }
        RunEvent::Signalled { name, payload, .. } => {
            run.progress.signals.entry(name.clone()).or_insert_with(|| payload.clone());
        }
        RunEvent::CancelAsked { asked, .. } => {
            run.progress.cancel.get_or_insert_with(|| asked.clone());
        }
        RunEvent::DefinitionAccepted { definition, hash, nodes, .. } => {
            run.definition.clone_from(definition);
            run.definition_hash = *hash;
            accept(&mut run.progress, nodes);
        }
        RunEvent::Noted { .. } => {}
        RunEvent::StatusChanged { status, reason } => {
            run.status = *status;
            run.reason.clone_from(reason);
            if status.is_end() {
                skip(&mut run.progress);
            }
        }
    }
    Some(())
}

fn pending() -> Node {
    Node { retries: 0, unstarted: 0, state: NodeState::Pending }
}

/// The nodes of another definition. One that was dispatched stays, so that its effect is not lost
/// sight of: it may be at work, and nobody may know what came of it. What has not been dispatched is
/// looked at anew.
fn accept(progress: &mut Progress, nodes: &[Name]) {
    progress.nodes.retain(|name, node| node.state.key().is_some() || nodes.contains(name));
    for name in nodes {
        let node = progress.nodes.entry(name.clone()).or_insert_with(pending);
        if matches!(node.state, NodeState::Waiting { .. } | NodeState::Unfit { .. }) {
            node.state = NodeState::Pending;
        }
    }
}

/// What was not dispatched when the run ended never will be. What is in flight stays so.
fn skip(progress: &mut Progress) {
    for node in progress.nodes.values_mut() {
        match node.state {
            NodeState::Pending | NodeState::Waiting { .. } | NodeState::Unfit { .. } => {
                node.state = NodeState::Skipped;
            }
            NodeState::Dispatched { .. }
            | NodeState::Passed
            | NodeState::Committed { .. }
            | NodeState::Failed { .. }
            | NodeState::Ambiguous { .. }
            | NodeState::Skipped => {}
        }
    }
}
