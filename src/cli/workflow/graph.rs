//! A drawing of a workflow: lanes for a terminal, or DOT.
use std::collections::BTreeMap;

use ctrlrun::plan::workflow::{Definition, Name, NodeSpec, What};

use crate::cli::render::text::{clean, span};

/// The drawing for a terminal: each node on a line of its own, below those that it needs.
#[must_use]
pub fn lanes(definition: &Definition) -> String {
    let mut followers: BTreeMap<&Name, Vec<&Name>> = BTreeMap::new();
    let order = definition.in_order();
    for node in &order {
        for need in definition.nodes.get(*node).into_iter().flat_map(|spec| &spec.needs) {
            followers.entry(need).or_default().push(node);
        }
    }
    let mut text = String::new();
    // Which node each lane leads to.
    let mut lanes: Vec<Option<&Name>> = Vec::new();
    for node in order {
        let coming: Vec<usize> =
            (0..lanes.len()).filter(|lane| lanes[*lane] == Some(node)).collect();
        let at = match coming.first() {
            Some(first) => *first,
            None => free(&mut lanes),
        };
        if let (Some(last), true) = (coming.last(), coming.len() > 1) {
            push(&mut text, &joint(&lanes, at, *last, &coming, '├', '╯', '┴'));
        }
        for lane in coming {
            lanes[lane] = None;
        }
        lanes[at] = Some(node);
        let line: String = (0..lanes.len())
            .map(|lane| match lanes[lane] {
                _ if lane == at => "● ",
                Some(_) => "│ ",
                None => "  ",
            })
            .collect();
        let spec = definition.nodes.get(node);
        let what = spec.map_or(String::new(), |spec| format!("  {}", told(spec)));
        push(&mut text, &format!("{}{node}{what}", line));
        lanes[at] = None;
        let next = followers.remove(node).unwrap_or_default();
        let mut begins = Vec::new();
        for (index, follower) in next.iter().enumerate() {
            let lane = if index == 0 { at } else { free(&mut lanes) };
            lanes[lane] = Some(*follower);
            begins.push(lane);
        }
        if let (Some(last), true) = (begins.iter().max(), begins.len() > 1) {
            push(&mut text, &joint(&lanes, at, *last, &begins, '├', '╮', '┬'));
        }
        while lanes.last() == Some(&None) {
            lanes.pop();
        }
    }
    text
}

/// The first lane that leads nowhere.
fn free(lanes: &mut Vec<Option<&Name>>) -> usize {
    match lanes.iter().position(Option::is_none) {
        Some(lane) => lane,
        None => {
            lanes.push(None);
            lanes.len() - 1
        }
    }
}

/// A line on which lanes part or meet, between the node's own and the last of them.
fn joint(
    lanes: &[Option<&Name>],
    at: usize,
    last: usize,
    those: &[usize],
    corner: char,
    end: char,
    between: char,
) -> String {
    let first = those.iter().copied().min().unwrap_or(at).min(at);
    let mut line = String::new();
    for (lane, leads) in lanes.iter().enumerate() {
        let inside = lane >= first && lane <= last.max(at);
        let ours = those.contains(&lane) || lane == at;
        let mark = match (inside, ours) {
            (true, true) if lane == at && lane == first => corner,
            (true, true) if lane == at => '┤',
            (true, true) if lane == first => {
                if end == '╯' {
                    '╰'
                } else {
                    '╭'
                }
            }
            (true, true) if lane == last.max(at) => end,
            (true, true) => between,
            (true, false) if leads.is_some() => '┼',
            (true, false) => '─',
            (false, _) if leads.is_some() => '│',
            (false, _) => ' ',
        };
        line.push(mark);
        line.push(if inside && lane < last.max(at) { '─' } else { ' ' });
    }
    line
}

fn push(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

/// What a node does, in a few words.
#[must_use]
pub fn told(spec: &NodeSpec) -> String {
    match &spec.what {
        What::Run(run) => match &run.effect {
            Some(effect) => format!("effect {}", clean(effect)),
            None => clean(&run.command.join(" ")).into_owned(),
        },
        What::Wait(wait) => {
            let mut parts = Vec::new();
            if let Some(signal) = &wait.signal {
                parts.push(format!("the signal {signal}"));
            }
            if let Some(ms) = wait.for_ms {
                parts.push(span(std::time::Duration::from_millis(ms)));
            }
            if let Some(until) = wait.until {
                let at = ctrlrun::plan::time::Timestamp(until);
                parts.push(crate::cli::render::text::second(at));
            }
            format!("waits for {}", parts.join(" or "))
        }
    }
}

/// The drawing in DOT, for Graphviz.
#[must_use]
pub fn dot(definition: &Definition) -> String {
    let mut text = format!("digraph {} {{\n  rankdir=LR;\n", quoted(definition.name.as_str()));
    for (node, spec) in &definition.nodes {
        let shape = match spec.what {
            What::Run(_) => "box",
            What::Wait(_) => "ellipse",
        };
        let label = format!("{node}\\n{}", told(spec).replace('\\', "\\\\").replace('"', "\\\""));
        text.push_str(&format!(
            "  {} [shape={shape}, label=\"{label}\"];\n",
            quoted(node.as_str())
        ));
    }
    for (node, spec) in &definition.nodes {
        for need in &spec.needs {
            text.push_str(&format!("  {} -> {};\n", quoted(need.as_str()), quoted(node.as_str())));
        }
    }
    text.push_str("}\n");
    text
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// The same for a program: the definition, its nodes in an order in which each comes behind what it
/// needs.
#[must_use]
pub fn object(definition: &Definition) -> serde_json::Value {
    let nodes = definition.in_order().into_iter().filter_map(|name| {
        let spec = definition.nodes.get(name)?;
        let mut node = serde_json::json!({ "name": name, "needs": spec.needs });
        match &spec.what {
            What::Run(run) => node["run"] = serde_json::json!(run),
            What::Wait(wait) => node["wait"] = serde_json::json!(wait),
        }
        Some(node)
    });
    serde_json::json!({
        "name": definition.name,
        "tier": definition.tier,
        "inputs": definition.inputs.keys().collect::<Vec<_>>(),
        "nodes": nodes.collect::<Vec<_>>(),
    })
}
