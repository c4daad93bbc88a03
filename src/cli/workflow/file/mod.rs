//! A workflow's file: TOML in, a definition out, or what is wrong with it and on which line (WFL-1).
//!
//! | file | about |
//! |---|---|
//! | [`read`] | the fields |
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use ctrlrun::plan::workflow::Definition;
use ctrlrun::plan::workflow::check::{Place, check};

use crate::cli::error::{CliError, Hint, Kind};
use crate::cli::render::text::clean;
use crate::config::effect::Effect;

/// An effect that a node can name, as the configuration has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Its key, with placeholders.
    pub key: String,
    /// Its command, with placeholders.
    pub command: Vec<String>,
    /// All its parameters; its probe may have more than key and command.
    pub takes: BTreeSet<String>,
    /// As `--not-executed` takes it.
    pub not_executed: Option<String>,
    /// In milliseconds.
    pub timeout_ms: Option<u64>,
    /// In milliseconds.
    pub lease_ms: Option<u64>,
    /// How often it is tried again.
    pub retries: u32,
    /// In milliseconds.
    pub backoff_ms: Option<u64>,
}

impl Named {
    /// Of an effect that the configuration has.
    #[must_use]
    pub fn of(effect: &Effect) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let settings = &effect.settings;
        Self {
            key: effect.key.to_string(),
            command: effect.command.words().iter().map(ToString::to_string).collect(),
            takes: effect.parameters().into_iter().map(str::to_owned).collect(),
            not_executed: settings
                .not_executed
                .as_ref()
                .filter(|codes| !codes.is_empty())
                .map(ToString::to_string),
            timeout_ms: settings.timeout.map(millis),
            lease_ms: settings.lease.map(millis),
            retries: settings.retries.unwrap_or(0),
            backoff_ms: settings.backoff.map(millis),
        }
    }
}

/// Finds a named effect.
pub type Effects<'e> = &'e dyn Fn(&str) -> Option<Named>;

/// Something that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The line, from 1.
    pub line: usize,
    /// What, for a person.
    pub what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Reads the file at `path`.
///
/// # Errors
/// 66 if it is not there, 78 with every complaint if it cannot be used.
pub fn load(path: &Path, effects: Effects<'_>) -> Result<Definition, CliError> {
    let shown = clean(&path.to_string_lossy()).into_owned();
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::new(Kind::NotFound, format!("{shown}: it cannot be read; nothing was run"))
            .because(&error)
    })?;
    parse(&text, effects).map_err(|wrong| {
        let many = match wrong.len() {
            1 => "1 thing is wrong with it".to_owned(),
            count => format!("{count} things are wrong with it"),
        };
        let mut error = CliError::new(Kind::Config, format!("{shown}: {many}; nothing was run"));
        for wrong in wrong {
            error = error.fact(format!("{shown}:{}: {}", wrong.line, clean(&wrong.what)));
        }
        error.hint(Hint::command("see", "ctrlrun workflow check --help"))
    })
}

/// Reads a definition.
///
/// # Errors
/// Everything that is wrong with it, in the order of its lines.
pub fn parse(text: &str, effects: Effects<'_>) -> Result<Definition, Vec<Wrong>> {
    let lines = Lines::of(text);
    let table = match toml::de::DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let line = lines.at(error.span().map_or(0, |span| span.start));
            return Err(vec![Wrong { line, what: error.message().to_owned() }]);
        }
    };
    let mut reader = read::Reader::new(effects);
    let definition = reader.definition(&table);
    let (mut wrong, spans) = reader.end(&lines);
    if let Some(definition) = &definition {
        for problem in check(definition) {
            let line = lines.at(spans.of(&problem.at).start);
            let what = match &problem.at {
                Place::Node(node) | Place::Field(node, ..) => {
                    format!("node {node}: {}", problem.what)
                }
                Place::Whole | Place::Input(_) => problem.what,
            };
            wrong.push(Wrong { line, what });
        }
    }
    wrong.sort_by_key(|wrong| wrong.line);
    match definition {
        Some(definition) if wrong.is_empty() => Ok(definition),
        Some(_) | None => Err(wrong),
    }
}

/// Where lines begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self(std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect())
    }

    /// The line, from 1, of the byte `at`.
    fn at(&self, at: usize) -> usize {
        self.0.partition_point(|begin| *begin <= at)
    }
}

/// Where the parts of a definition stand in its file.
#[derive(Debug, Default)]
struct Spans(Vec<(Place, Range<usize>)>);

impl Spans {
    /// Where `place` stands; else the nearest that is known around it.
    fn of(&self, place: &Place) -> Range<usize> {
        let exact =
            |place: &Place| self.0.iter().find(|(at, _)| at == place).map(|(_, span)| span.clone());
        let around = match place {
            Place::Field(node, field, Some(_)) => exact(&Place::Field(node.clone(), field, None))
                .or_else(|| exact(&Place::Node(node.clone()))),
            Place::Field(node, _, None) => exact(&Place::Node(node.clone())),
            Place::Whole | Place::Input(_) | Place::Node(_) => None,
        };
        exact(place).or(around).unwrap_or(0..0)
    }
}
