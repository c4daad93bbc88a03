//! The fields of a workflow's file.
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use ctrlrun::plan::workflow::check::Place;
use ctrlrun::plan::workflow::{Definition, Given, Name, NodeSpec, RunSpec, Tier, WaitSpec, What};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Effects, Lines, Spans, Wrong};
use crate::cli::values;

type Value<'t> = Spanned<DeValue<'t>>;

/// The fields of a node.
const NODE: [&str; 11] = [
    "needs",
    "command",
    "effect",
    "params",
    "key",
    "wait",
    "not_executed",
    "timeout",
    "lease",
    "retries",
    "backoff",
];

/// Reads a file's fields, and collects what is wrong with them.
pub struct Reader<'e> {
    effects: Effects<'e>,
    wrong: Vec<(usize, String)>,
    spans: Spans,
}

impl<'e> Reader<'e> {
    pub fn new(effects: Effects<'e>) -> Self {
        Self { effects, wrong: Vec::new(), spans: Spans::default() }
    }

    pub fn end(self, lines: &Lines) -> (Vec<Wrong>, Spans) {
        let wrong = self.wrong.into_iter();
        let wrong = wrong.map(|(at, what)| Wrong { line: lines.at(at), what }).collect();
        (wrong, self.spans)
    }

    fn complain(&mut self, span: &Range<usize>, what: impl Into<String>) {
        self.wrong.push((span.start, what.into()));
    }

    pub fn definition(&mut self, file: &Spanned<DeTable<'_>>) -> Option<Definition> {
        let table = file.get_ref();
        let mut name = None;
        let mut tier = Tier::default();
        let mut inputs = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "name" => name = self.name(value),
                "tier" => tier = self.tier(value).unwrap_or_default(),
                "inputs" => inputs = self.inputs(value),
                "node" => nodes = self.nodes(value),
                other => {
                    let what = format!("there is no field {other:?}: name, tier, inputs, node");
                    self.complain(&key.span(), what);
                }
            }
        }
        if table.get("name").is_none() {
            self.complain(&(0..0), "it has no name: name = \"...\"");
        }
        // A name that is missing need not keep the nodes from being checked.
        let name = name.or_else(|| Name::new("unnamed").ok())?;
        Some(Definition { name, tier, inputs, nodes })
    }

    fn text<'v>(&mut self, value: &'v Value<'_>) -> Option<&'v str> {
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.complain(&value.span(), format!("a text is wanted, not {}", kind(value)));
        }
        text
    }

    fn name(&mut self, value: &Value<'_>) -> Option<Name> {
        let text = self.text(value)?.to_owned();
        self.name_of(&text, &value.span())
    }

    fn name_of(&mut self, text: &str, span: &Range<usize>) -> Option<Name> {
        match Name::new(text) {
            Ok(name) => Some(name),
            Err(bad) => {
                self.complain(span, bad.to_string());
                None
            }
        }
    }

    fn tier(&mut self, value: &Value<'_>) -> Option<Tier> {
        match self.text(value)? {
            "urgent" => Some(Tier::Urgent),
            "normal" => Some(Tier::Normal),
            "background" => Some(Tier::Background),
            other => {
                let what = format!("{other:?} is no tier: urgent, normal, background");
                self.complain(&value.span(), what);
                None
            }
        }
    }

    fn table<'v, 't>(&mut self, value: &'v Value<'t>) -> Option<&'v DeTable<'t>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.complain(&value.span(), format!("a table is wanted, not {}", kind(value)));
        }
        table
    }

    fn inputs(&mut self, value: &Value<'_>) -> BTreeMap<Name, Given> {
        let mut inputs = BTreeMap::new();
        for (key, value) in self.table(value).into_iter().flatten() {
            let Some(name) = self.name_of(key.get_ref(), &key.span()) else {
                continue;
            };
            let mut default = None;
            for (field, value) in self.table(value).into_iter().flatten() {
                if field.get_ref() == "default" {
                    default = self.text(value).map(str::to_owned);
                } else {
                    let what = format!("an input has no field {:?}: default", field.get_ref());
                    self.complain(&field.span(), what);
                }
            }
            self.spans.0.push((Place::Input(name.clone()), key.span()));
            inputs.insert(name, Given { default });
        }
        inputs
    }

    fn nodes(&mut self, value: &Value<'_>) -> BTreeMap<Name, NodeSpec> {
        let mut nodes = BTreeMap::new();
        for (key, value) in self.table(value).into_iter().flatten() {
            let Some(name) = self.name_of(key.get_ref(), &key.span()) else {
                continue;
            };
            self.spans.0.push((Place::Node(name.clone()), key.span()));
            // One that cannot be read is there all the same, for those that name it.
            let unread = || NodeSpec { needs: BTreeSet::new(), what: What::Run(unread()) };
            let node = self.node(&name, &key.span(), value).unwrap_or_else(unread);
            nodes.insert(name, node);
        }
        nodes
    }

    fn node(&mut self, name: &Name, at: &Range<usize>, value: &Value<'_>) -> Option<NodeSpec> {
        let table = self.table(value)?;
        for (key, _) in table {
            if !NODE.contains(&key.get_ref().as_ref()) {
                let fields = NODE.join(", ");
                let what = format!("node {name}: there is no field {:?}: {fields}", key.get_ref());
                self.complain(&key.span(), what);
            }
        }
        let mut needs = BTreeSet::new();
        if let Some(value) = table.get("needs") {
            self.span(name, "needs", None, value);
            let mut spans = BTreeMap::new();
            for (text, span) in self.texts(value) {
                if let Some(need) = self.name_of(&text, &span) {
                    if !needs.insert(need.clone()) {
                        self.complain(&span, format!("node {name}: {need} is needed twice"));
                    }
                    spans.insert(need, span);
                }
            }
            // In the order in which the definition has them.
            for (index, span) in spans.into_values().enumerate() {
                self.spans.0.push((Place::Field(name.clone(), "needs", Some(index)), span));
            }
        }
        let kinds: Vec<&str> =
            ["command", "effect", "wait"].into_iter().filter(|f| table.contains_key(*f)).collect();
        let what = match kinds.as_slice() {
            ["wait"] => What::Wait(self.wait(name, table)?),
            ["command" | "effect"] => What::Run(Box::new(self.run(name, table)?)),
            [] => {
                let what = format!("node {name}: it does nothing: command = [...], effect or wait");
                self.complain(at, what);
                return None;
            }
            several => {
                let what = format!("node {name}: one of {} is enough", several.join(" and "));
                self.complain(at, what);
                return None;
            }
        };
        Some(NodeSpec { needs, what })
    }

    fn span(&mut self, node: &Name, field: &'static str, index: Option<usize>, value: &Value<'_>) {
        self.spans.0.push((Place::Field(node.clone(), field, index), value.span()));
    }

    fn texts(&mut self, value: &Value<'_>) -> Vec<(String, Range<usize>)> {
        let Some(array) = value.get_ref().as_array() else {
            self.complain(&value.span(), format!("a list is wanted, not {}", kind(value)));
            return Vec::new();
        };
        array
            .iter()
            .filter_map(|value| Some((self.text(value)?.to_owned(), value.span())))
            .collect()
    }

    fn run(&mut self, node: &Name, table: &DeTable<'_>) -> Option<RunSpec> {
        let mut run = RunSpec::default();
        if let Some(value) = table.get("effect") {
            let name = self.text(value)?.to_owned();
            let Some(named) = (self.effects)(&name) else {
                let what = format!("node {node}: no effect {name:?} is configured");
                self.complain(&value.span(), what);
                return None;
            };
            run = RunSpec {
                effect: Some(name),
                key: Some(named.key),
                command: named.command,
                params: Some(BTreeMap::new()),
                not_executed: named.not_executed,
                timeout_ms: named.timeout_ms,
                lease_ms: named.lease_ms,
                retries: named.retries,
                backoff_ms: named.backoff_ms,
            };
            for field in ["key", "command", "not_executed"] {
                if let Some(value) = table.get(field) {
                    let what = format!("node {node}: {field} is the named effect's own");
                    self.complain(&value.span(), what);
                }
            }
        }
        for field in ["params"] {
            if let (Some(value), false) = (table.get(field), run.effect.is_some()) {
                self.complain(&value.span(), format!("node {node}: params are a named effect's"));
            }
        }
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "command" if run.effect.is_none() => {
                    self.span(node, "command", None, value);
                    let words = self.texts(value);
                    for (index, (_, span)) in words.iter().enumerate() {
                        let place = Place::Field(node.clone(), "command", Some(index));
                        self.spans.0.push((place, span.clone()));
                    }
                    run.command = words.into_iter().map(|(word, _)| word).collect();
                }
                "key" if run.effect.is_none() => {
                    self.span(node, "key", None, value);
                    run.key = self.text(value).map(str::to_owned);
                }
                "params" if run.effect.is_some() => {
                    self.span(node, "params", None, value);
                    let params = self.table(value).into_iter().flatten();
                    let params: Vec<(String, &Value<'_>)> =
                        params.map(|(name, value)| (name.get_ref().to_string(), value)).collect();
                    let mut read = BTreeMap::new();
                    for (name, value) in params {
                        if let Some(text) = self.text(value) {
                            read.insert(name, text.to_owned());
                        }
                    }
                    run.params = Some(read);
                }
                "not_executed" if run.effect.is_none() => {
                    self.span(node, "not_executed", None, value);
                    run.not_executed = self.codes(value);
                }
                "timeout" => {
                    self.span(node, "timeout", None, value);
                    run.timeout_ms = self.duration(value).or(run.timeout_ms);
                }
                "lease" => {
                    self.span(node, "lease", None, value);
                    run.lease_ms = self.duration(value).or(run.lease_ms);
                }
                "backoff" => {
                    self.span(node, "backoff", None, value);
                    run.backoff_ms = self.duration(value).or(run.backoff_ms);
                }
                "retries" => run.retries = self.count(value).unwrap_or(run.retries),
                _ => {}
            }
        }
        self.check_params(node, &run, table);
        Some(run)
    }

    /// A named effect must have all its parameters, and no other.
    fn check_params(&mut self, node: &Name, run: &RunSpec, table: &DeTable<'_>) {
        let (Some(params), Some(at)) = (&run.params, table.get("effect")) else {
            return;
        };
        let name = run.effect.as_deref().unwrap_or_default();
        let takes = (self.effects)(name).unwrap_or_default().takes;
        let at = table.get("params").unwrap_or(at).span();
        for name in takes.iter().filter(|name| !params.contains_key(*name)) {
            self.complain(&at, format!("node {node}: the effect needs the parameter {name}"));
        }
        for name in params.keys().filter(|name| !takes.contains(*name)) {
            self.complain(&at, format!("node {node}: the effect has no parameter {name}"));
        }
    }

    fn wait(&mut self, node: &Name, table: &DeTable<'_>) -> Option<WaitSpec> {
        let value = table.get("wait")?;
        self.span(node, "wait", None, value);
        for (key, value) in table {
            if !["needs", "wait"].contains(&key.get_ref().as_ref()) {
                let what = format!("node {node}: one that waits has no {}", key.get_ref());
                self.complain(&value.span(), what);
            }
        }
        let mut wait = WaitSpec::default();
        for (key, value) in self.table(value)? {
            match key.get_ref().as_ref() {
                "signal" => wait.signal = self.name(value),
                "for" => wait.for_ms = self.duration(value),
                "until" => wait.until = self.moment(value),
                other => {
                    let what = format!("a wait has no field {other:?}: signal, for, until");
                    self.complain(&key.span(), what);
                }
            }
        }
        Some(wait)
    }

    fn codes(&mut self, value: &Value<'_>) -> Option<String> {
        if let Some(array) = value.get_ref().as_array() {
            let codes: Vec<String> = array
                .iter()
                .map(|code| match code.get_ref().as_integer() {
                    Some(code) => code.as_str().to_owned(),
                    None => code.get_ref().as_str().unwrap_or("?").to_owned(),
                })
                .collect();
            return Some(codes.join(","));
        }
        match value.get_ref().as_integer() {
            Some(code) => Some(code.as_str().to_owned()),
            None => self.text(value).map(str::to_owned),
        }
    }

    fn count(&mut self, value: &Value<'_>) -> Option<u32> {
        let count = value.get_ref().as_integer().and_then(|count| count.as_str().parse().ok());
        if count.is_none() {
            self.complain(&value.span(), "a count is wanted: 3");
        }
        count
    }

    fn duration(&mut self, value: &Value<'_>) -> Option<u64> {
        if let Some(bare) = value.get_ref().as_integer() {
            let what = format!("a duration needs a unit: \"{}s\"?", bare.as_str());
            self.complain(&value.span(), what);
            return None;
        }
        let text = self.text(value)?;
        match values::duration(text) {
            Ok(duration) => Some(millis(duration)),
            Err(bad) => {
                self.complain(&value.span(), bad);
                None
            }
        }
    }

    fn moment(&mut self, value: &Value<'_>) -> Option<i64> {
        let text = match value.get_ref().as_datetime() {
            Some(datetime) => datetime.to_string(),
            None => self.text(value)?.to_owned(),
        };
        match text.parse::<jiff::Timestamp>() {
            Ok(at) => Some(at.as_microsecond()),
            Err(_) => {
                let what = "a moment is wanted, with its offset: 2026-11-30T10:00:00Z";
                self.complain(&value.span(), what);
                None
            }
        }
    }
}

/// Stands for a node that was complained of.
fn unread() -> Box<RunSpec> {
    Box::new(RunSpec { command: vec!["true".to_owned()], ..RunSpec::default() })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn kind(value: &Value<'_>) -> &'static str {
    match value.get_ref().type_str() {
        "string" => "a text",
        "integer" | "float" => "a number",
        "boolean" => "true or false",
        "datetime" => "a moment",
        "array" => "a list",
        _ => "a table",
    }
}
