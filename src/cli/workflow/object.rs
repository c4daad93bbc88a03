//! A run as JSON.
use std::collections::BTreeMap;

use ctrlrun::plan::effect::Record;
use ctrlrun::plan::key::Key;
use ctrlrun::plan::workflow::{Node, Run};
use serde_json::{Value, json};

use crate::cli::render::text::rfc3339;
use crate::cli::which::Place;

/// The run. `records` are those of its nodes' effects, where they were read.
#[must_use]
pub fn of(
    run: &Run,
    records: Option<&BTreeMap<Key, Record>>,
    next: &[String],
    place: &Place,
) -> Value {
    let nodes: serde_json::Map<String, Value> = run
        .progress
        .nodes
        .iter()
        .map(|(name, at)| (name.as_str().to_owned(), node(at, records)))
        .collect();
    json!({
        "run": run.id,
        "workflow": run.workflow,
        "status": run.status,
        "reason": run.reason,
        "revision": run.revision,
        "last_transition_seq": run.last_transition_seq,
        "definition_hash": run.definition_hash,
        "tier": run.tier,
        "inputs": run.inputs,
        "signals": run.progress.signals.keys().collect::<Vec<_>>(),
        "nodes": nodes,
        "created_at": rfc3339(run.created_at),
        "updated_at": rfc3339(run.updated_at),
        "store": place.shown(),
        "next": next,
    })
}

fn node(node: &Node, records: Option<&BTreeMap<Key, Record>>) -> Value {
    let mut object = json!({ "state": node.state.name(), "retries": node.retries });
    if let Value::Object(fields) = serde_json::to_value(&node.state).unwrap_or_default() {
        for field in ["key", "attempt", "revision", "detail", "why", "signal", "reopened"] {
            if let Some(value) = fields.get(field) {
                object[field] = value.clone();
            }
        }
    }
    let record = node.state.key().and_then(|key| records?.get(key));
    if let Some(record) = record {
        object["effect"] = json!({
            "state": record.state.name(),
            "revision": record.revision,
            "attempt": record.attempt,
        });
    }
    object
}
