//! What is wrong with a definition, and where (WFL-1): found before anything is written.
use std::collections::BTreeSet;

use super::definition::{Definition, RUN, RunSpec, STDOUT, What};
use super::names::Name;
use crate::plan::template::{CommandTemplate, Template};
use crate::plan::verdict::NotExecuted;

/// Something that is wrong with a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub at: Place,
    /// What, for a person.
    pub what: String,
}

/// A place in a definition, to be found in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The whole of it.
    Whole,
    /// An input.
    Input(Name),
    /// A node.
    Node(Name),
    /// A field of a node, and which of its elements.
    Field(Name, &'static str, Option<usize>),
}

/// Whose value a placeholder stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The run's name.
    Run,
    /// An input of the run.
    Input(Name),
    /// A node's standard output.
    Stdout(Name),
}

impl Source {
    /// What `{placeholder}` stands for; `None`: nothing can have such a name.
    #[must_use]
    pub fn of(placeholder: &str) -> Option<Self> {
        if placeholder == RUN {
            return Some(Self::Run);
        }
        match placeholder.strip_suffix(STDOUT) {
            Some(node) => Name::new(node).ok().map(Self::Stdout),
            None => Name::new(placeholder).ok().map(Self::Input),
        }
    }
}

/// Everything that is wrong with `definition`, in the order of its nodes.
#[must_use]
pub fn check(definition: &Definition) -> Vec<Problem> {
    let mut found = Vec::new();
    if definition.nodes.is_empty() {
        found.push(Problem { at: Place::Whole, what: "it has no nodes".to_owned() });
    }
    needs(definition, &mut found);
    let mut used = BTreeSet::new();
    for (node, spec) in &definition.nodes {
        if let What::Run(run) = &spec.what {
            command(node, run, &mut found);
            placeholders(definition, node, run, &mut used, &mut found);
        }
        if let What::Wait(wait) = &spec.what
            && wait.signal.is_none()
            && wait.for_ms.is_none()
            && wait.until.is_none()
        {
            let what = "it waits for nothing: signal = \"...\", for = \"10m\" or until = \"...\"";
            let at = Place::Field(node.clone(), "wait", None);
            found.push(Problem { at, what: what.to_owned() });
        }
    }
    for input in definition.inputs.keys() {
        if input.as_str() == RUN {
            let what = "{run} is the run's own name, so no input can be called so".to_owned();
            found.push(Problem { at: Place::Input(input.clone()), what });
        } else if !used.contains(input) {
            let what = format!("the input {input} is used by no node: {{{input}}}");
            found.push(Problem { at: Place::Input(input.clone()), what });
        }
    }
    found
}

fn needs(definition: &Definition, found: &mut Vec<Problem>) {
    for (node, spec) in &definition.nodes {
        for (index, need) in spec.needs.iter().enumerate() {
            if !definition.nodes.contains_key(need) {
                let what = format!("there is no node {need}{}", like(definition, need));
                found.push(Problem { at: Place::Field(node.clone(), "needs", Some(index)), what });
            }
        }
    }
    let ordered: BTreeSet<&Name> = definition.in_order().into_iter().collect();
    let in_cycle =
        |node: &&Name| !ordered.contains(*node) && definition.ancestors(node).contains(*node);
    // One complaint a cycle, at its first node.
    let mut told: BTreeSet<&Name> = BTreeSet::new();
    for node in definition.nodes.keys().filter(in_cycle) {
        if told.contains(node) {
            continue;
        }
        let cycle = round(definition, node);
        told.extend(&cycle);
        let names: Vec<&str> = cycle.iter().map(|name| name.as_str()).collect();
        let what = format!("a cycle: {} -> {node}", names.join(" -> "));
        found.push(Problem { at: Place::Field(node.clone(), "needs", None), what });
    }
}

/// A way from `node` through what is needed back to it.
fn round<'d>(definition: &'d Definition, node: &'d Name) -> Vec<&'d Name> {
    let mut way = vec![node];
    let mut at = node;
    loop {
        let next = definition.nodes.get(at).into_iter().flat_map(|spec| &spec.needs).find(|need| {
            *need == node || (!way.contains(need) && definition.ancestors(need).contains(node))
        });
        match next {
            Some(next) if next != node => {
                way.push(next);
                at = next;
            }
            Some(_) | None => return way,
        }
    }
}

fn command(node: &Name, run: &RunSpec, found: &mut Vec<Problem>) {
    let mut complain = |field, index, what: String| {
        found.push(Problem { at: Place::Field(node.clone(), field, index), what });
    };
    if let Err(bad) = CommandTemplate::parse(&run.command) {
        complain("command", bad.place().map(|(word, _)| word), bad.to_string());
    }
    if let Some(Err(bad)) = run.key.as_deref().map(Template::parse) {
        complain("key", None, bad.to_string());
    }
    if let Some(Err(bad)) = run.not_executed.as_deref().map(NotExecuted::parse) {
        complain("not_executed", None, bad);
    }
    for value in run.params.iter().flat_map(|params| params.values()) {
        if let Err(bad) = Template::parse(value) {
            complain("params", None, bad.to_string());
        }
    }
    if run.lease_ms.is_some_and(|lease| lease < 1_000) {
        complain("lease", None, "a lease is at least 1s: it is renewed every third of it".into());
    }
    if run.timeout_ms == Some(0) {
        complain("timeout", None, "it must be longer than nothing".to_owned());
    }
}

fn placeholders(
    definition: &Definition,
    node: &Name,
    run: &RunSpec,
    used: &mut BTreeSet<Name>,
    found: &mut Vec<Problem>,
) {
    let ancestors = definition.ancestors(node);
    for (field, index, placeholder) in outer_placeholders(run) {
        let what = match Source::of(&placeholder) {
            Some(Source::Run) => continue,
            Some(Source::Input(input)) => {
                if used.insert(input.clone()) && definition.inputs.contains_key(&input) {
                    continue;
                }
                if definition.inputs.contains_key(&input) {
                    continue;
                }
                format!("nothing gives {{{placeholder}}}: no [inputs] {placeholder}")
            }
            Some(Source::Stdout(from)) => match definition.nodes.get(&from) {
                None => format!("there is no node {from}{}", like(definition, &from)),
                Some(_) if !ancestors.contains(&from) => {
                    format!("{{{placeholder}}} needs the node {from} to be done: add it to needs")
                }
                Some(spec) if matches!(spec.what, What::Wait(_)) => {
                    format!("the node {from} waits, and has no output")
                }
                Some(_) => continue,
            },
            None => format!("nothing gives {{{placeholder}}}: an input, NODE{STDOUT}, or {RUN}"),
        };
        found.push(Problem { at: Place::Field(node.clone(), field, index), what });
    }
}

/// The placeholders of a node that stand for the run's inputs and nodes' outputs.
pub(super) fn outer_placeholders(run: &RunSpec) -> Vec<(&'static str, Option<usize>, String)> {
    let mut all = Vec::new();
    let mut add = |field, index, text: &str| {
        if let Ok(template) = Template::parse(text) {
            all.extend(template.placeholders().map(|(name, _)| (field, index, name.to_owned())));
        }
    };
    if let Some(params) = &run.params {
        for value in params.values() {
            add("params", None, value);
        }
        return all;
    }
    for (index, word) in run.command.iter().enumerate() {
        add("command", Some(index), word);
    }
    if let Some(key) = &run.key {
        add("key", None, key);
    }
    all
}

/// The name that was meant, perhaps: one that differs in a letter or two.
fn like(definition: &Definition, name: &Name) -> String {
    let near = |other: &&Name| {
        let same = |(a, b): (char, char)| a.eq_ignore_ascii_case(&b);
        let (a, b) = (name.as_str(), other.as_str());
        let ahead = a.chars().zip(b.chars()).take_while(|pair| same(*pair)).count();
        let behind = a.chars().rev().zip(b.chars().rev()).take_while(|pair| same(*pair)).count();
        a.len().abs_diff(b.len()) <= 1
            && ahead + behind + 2 >= a.len().max(b.len())
            && ahead + behind > 0
    };
    match definition.nodes.keys().find(near) {
        Some(other) => format!("; did you mean {other}?"),
        None => String::new(),
    }
}
