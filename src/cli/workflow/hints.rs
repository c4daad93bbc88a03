//! What to type about a run that waits for a person.
use std::collections::BTreeMap;

use ctrlrun::plan::effect::{Record, State};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::workflow::fill::feeders;
use ctrlrun::plan::workflow::{Definition, Name, Node, NodeState, Run, What};

use super::line;
use crate::cli::access::Opened;
use crate::cli::error::Hint;
use crate::cli::render::shell::{quote, store_flag};
use crate::cli::render::{next, shell};

/// What decides the nodes that a run waits for, and what mends those that cannot be dispatched.
#[must_use]
pub fn hints(run: &Run, records: &BTreeMap<Key, Record>, opened: &Opened) -> Vec<Hint> {
    let definition = Definition::read(&run.definition).ok();
    let mut hints = Vec::new();
    for (node, at) in &run.progress.nodes {
        if let NodeState::Ambiguous { key, .. } = &at.state
            && let Some(record) = records.get(key)
        {
            let decide = match feeds(definition.as_ref(), node) {
                true => next::decide_with_output(record, &opened.place),
                false => next::decide(record, &opened.place),
            };
            hints.extend(decide.into_iter().map(|mut hint| {
                hint.label = format!("{node}: {}", hint.label);
                hint
            }));
        }
    }
    let is_unfit = |node: &Node| matches!(node.state, NodeState::Unfit { .. });
    if run.progress.nodes.values().any(is_unfit) && !run.status.is_end() {
        for feeder in unfit_feeders(run, definition.as_ref()) {
            hints.extend(other_output(&feeder, run, records, opened).into_iter().flatten());
        }
        let id = match run.id.as_str() {
            dashed if dashed.starts_with('-') => format!("--id={}", quote(dashed)),
            name => format!("--id {}", quote(name)),
        };
        let mended = format!(
            "ctrlrun workflow start FILE {id} --accept-new-definition{}",
            store_flag(&opened.place)
        );
        hints.push(Hint::command("with the file mended", mended));
        hints.push(Hint::command("give it up", line("cancel", &run.id, "", &opened.place)));
    }
    hints
}

/// The nodes by whose output this one is fed.
fn fed_by(definition: Option<&Definition>, node: &Name) -> Vec<Name> {
    match definition.and_then(|it| it.nodes.get(node)).map(|spec| &spec.what) {
        Some(What::Run(spec)) => feeders(spec).into_iter().collect(),
        Some(What::Wait(_)) | None => Vec::new(),
    }
}

/// Whether another node is fed by this one's output.
fn feeds(definition: Option<&Definition>, node: &Name) -> bool {
    let mut nodes = definition.iter().flat_map(|it| it.nodes.keys());
    nodes.any(|other| fed_by(definition, other).contains(node))
}

/// The nodes whose output is what keeps others from being dispatched.
fn unfit_feeders(run: &Run, definition: Option<&Definition>) -> Vec<Name> {
    let nodes = run.progress.nodes.iter();
    let unfit = nodes.filter(
        |(_, at)| matches!(&at.state, NodeState::Unfit { why } if why.contains("output of ")),
    );
    let mut all: Vec<Name> = unfit.flat_map(|(node, _)| fed_by(definition, node)).collect();
    all.sort();
    all.dedup();
    all
}

/// What gives a node that is done another output: it is taken back, and said once more.
fn other_output(
    node: &Name,
    run: &Run,
    records: &BTreeMap<Key, Record>,
    opened: &Opened,
) -> Option<[Hint; 2]> {
    let key = run.progress.nodes.get(node)?.state.key()?;
    let record = records.get(key).filter(|it| matches!(it.state, State::Committed { .. }))?;
    let resolve = |decision: &str, revision: u64| {
        let flags = format!("{decision} --expect {revision} --reason ''");
        shell::line("resolve", key.as_str(), &flags, &opened.place)
    };
    Some([
        Hint::command(
            &format!("{node}: it wrote something else"),
            resolve("--reopen", record.revision),
        ),
        Hint::command(
            &format!("{node}: and then"),
            resolve("--committed --output FILE", record.revision.saturating_add(1)),
        ),
    ])
}
