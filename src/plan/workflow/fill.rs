//! What a node runs, with its placeholders filled (WFL-2).
use std::collections::{BTreeMap, BTreeSet};

use super::check::{Source, outer_placeholders};
use super::definition::{Definition, RunSpec, What};
use super::names::{Name, RunId};
use super::types::Run;
use crate::plan::effect::Request;
use crate::plan::key::{Fingerprint, Key};
use crate::plan::protocol::Captured;
use crate::plan::template::{CommandTemplate, Template};

/// A node's effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// Its key.
    pub key: Key,
    /// Program and arguments.
    pub command: Vec<String>,
}

impl Filled {
    /// What its key is bound to: the same as a `ctrlrun run` of that command line makes (KEY-5).
    #[must_use]
    pub fn request(&self) -> Request {
        let words: Vec<&[u8]> = self.command.iter().map(String::as_bytes).collect();
        let program = self.command.first().map_or("", String::as_str);
        Request {
            fingerprint: Fingerprint::of([&words, &[], &[], &[], &[]]),
            program: program.rsplit('/').next().unwrap_or(program).to_owned(),
            arguments: u32::try_from(self.command.len().saturating_sub(1)).unwrap_or(u32::MAX),
            command: None,
        }
    }
}

/// The key of a node that has none of its own.
///
/// # Errors
/// Why it cannot be one.
pub fn own_key(run: &RunId, node: &Name) -> Result<Key, String> {
    Key::new(format!("{run}/{node}")).map_err(|error| error.to_string())
}

/// The nodes whose output a node's placeholders stand for.
#[must_use]
pub fn feeders(spec: &RunSpec) -> BTreeSet<Name> {
    outer_placeholders(spec)
        .into_iter()
        .filter_map(|(_, _, placeholder)| match Source::of(&placeholder) {
            Some(Source::Stdout(node)) => Some(node),
            Some(Source::Run | Source::Input(_)) | None => None,
        })
        .collect()
}

/// Fills the placeholders of `node`. `outputs` are the standard outputs as they are stored, by the
/// keys of their effects.
///
/// # Errors
/// Why it cannot be done, for a person; it may be otherwise once an output is.
pub fn fill(
    run: &Run,
    definition: &Definition,
    node: &Name,
    outputs: &BTreeMap<Key, Captured>,
) -> Result<Filled, String> {
    let spec = match definition.nodes.get(node).map(|spec| &spec.what) {
        Some(What::Run(spec)) => spec,
        Some(What::Wait(_)) | None => return Err("internal: it runs nothing".to_owned()),
    };
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    for (_, _, placeholder) in outer_placeholders(spec) {
        let value = match Source::of(&placeholder) {
            Some(Source::Run) => run.id.as_str().to_owned(),
            Some(Source::Input(input)) => match run.inputs.get(&input) {
                Some(value) => value.clone(),
                // A default that came with a definition accepted later.
                None => definition
                    .inputs
                    .get(&input)
                    .and_then(|given| given.default.clone())
                    .ok_or_else(|| format!("the run was started without the input {input}"))?,
            },
            Some(Source::Stdout(from)) => output_of(run, &from, outputs)?,
            None => return Err(format!("nothing gives {{{placeholder}}}")),
        };
        values.insert(placeholder, value);
    }
    let outer = |name: &str| values.get(name).map(String::as_str);
    let inner: Option<BTreeMap<String, String>> = match &spec.params {
        None => None,
        Some(params) => Some(
            params
                .iter()
                .map(|(name, text)| {
                    let template = Template::parse(text).map_err(|error| error.to_string())?;
                    let value = template.argument(outer).map_err(|error| error.to_string())?;
                    Ok((name.clone(), value))
                })
                .collect::<Result<_, String>>()?,
        ),
    };
    let value = |name: &str| match &inner {
        Some(inner) => inner.get(name).map(String::as_str),
        None => outer(name),
    };
    let command = CommandTemplate::parse(&spec.command)
        .map_err(|error| error.to_string())?
        .fill(value)
        .map_err(|error| error.to_string())?;
    let key = match &spec.key {
        None => own_key(&run.id, node)?,
        Some(text) => {
            let template = Template::parse(text).map_err(|error| error.to_string())?;
            let text = template.key(value).map_err(|error| error.to_string())?;
            Key::new(text).map_err(|error| error.to_string())?
        }
    };
    Ok(Filled { key, command })
}

/// What a node wrote, without the line feeds at its end.
fn output_of(run: &Run, node: &Name, outputs: &BTreeMap<Key, Captured>) -> Result<String, String> {
    let key = run.progress.nodes.get(node).and_then(|node| node.state.key());
    let Some(captured) = key.and_then(|key| outputs.get(key)) else {
        return Err(format!("no output of {node} is stored"));
    };
    if !captured.whole {
        return Err(format!("the output of {node} was not stored whole"));
    }
    let bytes = [captured.head.as_slice(), captured.tail.as_slice()].concat();
    let text = String::from_utf8(bytes).map_err(|_| format!("the output of {node} is not text"))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// Which effects a tick of `run` looks at: their keys, and those whose output it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// All.
    pub keys: BTreeSet<Key>,
    /// Those of which a node is fed.
    pub with_output: BTreeSet<Key>,
}

/// Which effects a tick looks at, as far as `outputs` tells: a key may be made of an output.
#[must_use]
pub fn wanted(run: &Run, outputs: &BTreeMap<Key, Captured>) -> Wanted {
    let nodes = &run.progress.nodes;
    let mut keys: BTreeMap<&Name, Key> = BTreeMap::new();
    for (name, node) in nodes {
        if let Some(key) = node.state.key() {
            keys.insert(name, key.clone());
        }
    }
    let Ok(definition) = Definition::read(&run.definition) else {
        return Wanted { keys: keys.into_values().collect(), with_output: BTreeSet::new() };
    };
    let mut fed = BTreeSet::new();
    for (name, node) in nodes {
        let Some(What::Run(spec)) = definition.nodes.get(name).map(|spec| &spec.what) else {
            continue;
        };
        if !node.state.is_done() {
            fed.extend(feeders(spec));
        }
        if node.state.key().is_none()
            && let Some(key) = key_of(run, &definition, name, spec, outputs)
        {
            keys.insert(name, key);
        }
    }
    let with_output = fed.iter().filter_map(|name| keys.get(name).cloned()).collect();
    Wanted { keys: keys.into_values().collect(), with_output }
}

fn key_of(
    run: &Run,
    definition: &Definition,
    node: &Name,
    spec: &RunSpec,
    outputs: &BTreeMap<Key, Captured>,
) -> Option<Key> {
    match spec.key {
        None => own_key(&run.id, node).ok(),
        // Of a named effect the whole is filled, or nothing.
        Some(_) => fill(run, definition, node, outputs).ok().map(|filled| filled.key),
    }
}
