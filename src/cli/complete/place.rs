//! Where the cursor is in the tree of commands, and what can stand there.
use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

use super::keys::{self, Which};
use crate::cli::{command, help};
use crate::config;

/// The most that is offered at once.
pub const OFFERED_MAX: usize = 200;

/// What can stand at the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// One of these.
    Words(Vec<Word>),
    /// A file: the shell knows them.
    Files,
    /// A command of the shell's own.
    Commands,
}

/// A word, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// As it is meant, without quotes.
    pub text: String,
    /// A few words about it; may be empty.
    pub help: String,
}

impl Word {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), help: String::new() }
    }
}

/// What the words before the cursor have led to.
struct Walk<'a> {
    at: &'a Command,
    positionals: Vec<&'a str>,
    /// Long names that were given.
    given: Vec<&'a str>,
    store: Option<OsString>,
    config: Option<OsString>,
    /// The flag whose value stands at the cursor.
    open: Option<&'a Arg>,
    /// Words since `--`.
    behind: Option<usize>,
}

/// What can stand where `current` stands, behind `words`.
#[must_use]
pub fn offer(words: &[String], current: &str) -> Offer {
    let mut tree = command();
    tree.build();
    let walk = walk(&tree, words);
    if let Some(behind) = walk.behind {
        return match (walk.at.get_name(), behind) {
            ("run" | "batch", 0) => Offer::Commands,
            _ => Offer::Files,
        };
    }
    if let Some(flag) = walk.open {
        return values(&walk, flag, "", current);
    }
    if let Some((name, value)) = current.split_once('=').filter(|_| current.starts_with("--")) {
        return match long(walk.at, name.trim_start_matches('-')) {
            Some(flag) => values(&walk, flag, &format!("{name}="), value),
            None => Offer::Words(Vec::new()),
        };
    }
    if current.starts_with('-') {
        return Offer::Words(flags(&walk, current));
    }
    if walk.at.has_subcommands() {
        return Offer::Words(subcommands(walk.at, current));
    }
    let mut places = walk.at.get_positionals().filter(|arg| !arg.is_last_set());
    let mut last = None;
    for index in 0..=walk.positionals.len() {
        last = places.next().or(last.filter(|arg: &&Arg| index == 0 || many(arg)));
    }
    match last {
        Some(arg) => values(&walk, arg, "", current),
        None => Offer::Words(Vec::new()),
    }
}

fn walk<'a>(tree: &'a Command, words: &'a [String]) -> Walk<'a> {
    let mut walk = Walk {
        at: tree,
        positionals: Vec::new(),
        given: Vec::new(),
        store: None,
        config: None,
        open: None,
        behind: None,
    };
    for word in words {
        if let Some(behind) = walk.behind.as_mut() {
            *behind += 1;
        } else if let Some(flag) = walk.open.take() {
            walk.take(flag, word);
        } else if word == "--" {
            walk.behind = Some(0);
        } else if let Some(name) = word.strip_prefix("--") {
            let (name, value) = name.split_once('=').map_or((name, None), |(n, v)| (n, Some(v)));
            if let Some(flag) = long(walk.at, name) {
                walk.given.extend(flag.get_long());
                match value {
                    Some(value) => walk.take(flag, value),
                    None => walk.open = Some(flag).filter(|flag| takes_a_value(flag)),
                }
            }
        } else if let Some(cluster) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            let last = cluster.chars().next_back();
            let flag = walk.at.get_arguments().find(|arg| arg.get_short() == last);
            walk.given.extend(flag.and_then(Arg::get_long));
            walk.open = flag.filter(|flag| takes_a_value(flag));
        } else if let Some(found) = walk.at.find_subcommand(word) {
            walk.at = found;
        } else {
            walk.positionals.push(word);
        }
    }
    walk
}

impl Walk<'_> {
    /// What the line itself says of the store counts here as well.
    fn take(&mut self, flag: &Arg, value: &str) {
        match flag.get_id().as_str() {
            "store" => self.store = Some(value.into()),
            "config" => self.config = Some(value.into()),
            _ => {}
        }
    }
}

fn long<'a>(at: &'a Command, name: &str) -> Option<&'a Arg> {
    at.get_arguments().find(|arg| arg.get_long() == Some(name))
}

fn takes_a_value(flag: &Arg) -> bool {
    flag.get_action().takes_values()
}

fn many(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

fn flags(walk: &Walk<'_>, current: &str) -> Vec<Word> {
    let mut found = Vec::new();
    for arg in walk.at.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let Some(name) = arg.get_long() else { continue };
        let again = matches!(arg.get_action(), ArgAction::Append | ArgAction::Count);
        let text = format!("--{name}");
        if text.starts_with(current) && (again || !walk.given.contains(&name)) {
            found.push(Word { text, help: first_line(arg.get_help()) });
        }
    }
    found
}

fn subcommands(at: &Command, current: &str) -> Vec<Word> {
    at.get_subcommands()
        .filter(|found| !found.is_hide_set() && found.get_name().starts_with(current))
        .map(|found| Word {
            text: found.get_name().to_owned(),
            help: first_line(found.get_about()),
        })
        .collect()
}

fn first_line(help: Option<&clap::builder::StyledStr>) -> String {
    let text = help.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().replace('\t', " ")
}

/// What can stand as a value of `arg`, each behind `head`.
fn values(walk: &Walk<'_>, arg: &Arg, head: &str, current: &str) -> Offer {
    let words = match known(walk, arg, current) {
        Some(words) => words,
        None if is_a_file(arg) => return Offer::Files,
        None => Vec::new(),
    };
    let fit = words.into_iter().filter(|word| word.text.starts_with(current)).take(OFFERED_MAX);
    let fit = fit.map(|word| Word { text: format!("{head}{}", word.text), ..word });
    Offer::Words(fit.collect())
}

fn known(walk: &Walk<'_>, arg: &Arg, current: &str) -> Option<Vec<Word>> {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|value| !value.is_hide_set());
        let word = |value: &clap::builder::PossibleValue| Word {
            text: value.get_name().to_owned(),
            help: first_line(value.get_help()),
        };
        return Some(shown.map(word).collect());
    }
    let keys = |which| keys::like(current, which, walk.store.clone(), walk.config.clone());
    match (walk.at.get_name(), arg.get_id().as_str()) {
        ("resolve", "key") if walk.given.contains(&"reopen") => Some(keys(Which::All)),
        ("resolve" | "reconcile", "key") => Some(keys(Which::Stuck)),
        (_, "key") => Some(keys(Which::All)),
        ("status" | "run" | "start", "id") | ("work", "only") => Some(keys(Which::Runs)),
        ("cancel" | "signal", "id") => Some(keys(Which::Unended)),
        ("run", "name") => Some(names(walk)),
        ("run", "params") => Some(parameters(walk, current)),
        ("help", "topic") => {
            let topics = help::topics().map(Word::plain);
            Some(topics.chain(subcommands(&command(), current)).collect())
        }
        ("man", "command") => Some(subcommands(&command(), current)),
        _ => None,
    }
}

fn is_a_file(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    let file = |name: &str| ["FILE", "DIR", "URL"].iter().any(|part| name.contains(part));
    names.iter().any(|name| file(&name.to_uppercase()))
}

/// The names of effects, unless the line has a key.
fn names(walk: &Walk<'_>) -> Vec<Word> {
    if walk.given.contains(&"key") {
        return Vec::new();
    }
    let Ok(config) = config::load(walk.config.clone(), true) else {
        return Vec::new();
    };
    let word = |effect: &config::effect::Effect| Word {
        text: effect.name.clone(),
        help: effect.parameters().join(" "),
    };
    config.effects.all().map(word).collect()
}

/// `PARAM=` of each that is not given yet.
fn parameters(walk: &Walk<'_>, current: &str) -> Vec<Word> {
    if current.contains('=') {
        return Vec::new();
    }
    let Ok(config) = config::load(walk.config.clone(), true) else {
        return Vec::new();
    };
    let name = walk.positionals.first();
    let Some(effect) = name.and_then(|name| config.effects.get(name)) else {
        return Vec::new();
    };
    let given = |name: &str| {
        walk.positionals.iter().any(|word| word.split_once('=').is_some_and(|(n, _)| n == name))
    };
    let free = effect.parameters().into_iter().filter(|name| !given(name));
    free.map(|name| Word::plain(format!("{name}="))).collect()
}
