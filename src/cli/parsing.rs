//! What is told of a command line that cannot be meant: 64, with our prefix, a hint, and the line
//! that explains more.
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::error::{CliError, Exit, Hint, Kind};
use super::render::text::clean;
use super::terminal::answer;

/// Tells of clap's error, or prints the help or version that it is.
pub fn report(error: &clap::Error, words: &[OsString]) -> Exit {
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    if error.kind() == ErrorKind::DisplayHelp || error.kind() == ErrorKind::DisplayVersion {
        return match answer(&error.render().ansi().to_string()) {
            Ok(()) => Exit::OK,
            Err(error) => {
                error.report(json);
                error.exit()
            }
        };
    }
    let told = told(error, words);
    if words.get(1).is_some_and(|word| word == "run") {
        super::run::report_usage(&told, flag(words, "--report"), flag(words, "--store"));
    }
    told.report(json);
    told.exit()
}

/// What stands behind a flag, on a command line that could not be read as a whole.
fn flag(words: &[OsString], name: &str) -> Option<OsString> {
    let mut ours = words.iter().take_while(|word| *word != "--");
    while let Some(word) = ours.next() {
        if word == name {
            return ours.next().cloned();
        }
        let with = word.as_bytes().strip_prefix(name.as_bytes());
        if let Some(value) = with.and_then(|rest| rest.strip_prefix(b"=")) {
            return Some(OsStr::from_bytes(value).to_owned());
        }
    }
    None
}

fn told(error: &clap::Error, words: &[OsString]) -> CliError {
    let text = error.render().to_string();
    let mut message = String::new();
    let mut tips = Vec::new();
    let mut usage = None;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(first) = line.strip_prefix("error: ") {
            message.push_str(first);
        } else if let Some(tip) = line.strip_prefix("tip: ") {
            tips.push(clean(tip).into_owned());
        } else if let Some(line) = line.strip_prefix("Usage: ") {
            usage = Some(clean(line).into_owned());
        } else if !line.starts_with("For more information") && usage.is_none() {
            // What is missing stands on lines of its own.
            message.push(' ');
            message.push_str(line);
        }
    }
    let sub = words
        .iter()
        .skip(1)
        .filter_map(|word| word.to_str())
        .find(|word| super::command().find_subcommand(word).is_some());
    let undone = if sub == Some("run") { "; nothing was run" } else { "" };
    let message = clean(message.trim()).into_owned();
    let mut told = CliError::new(Kind::Usage, format!("{message}{undone}"));
    let similar = |tip: &str| tip.starts_with("a similar ") || tip.starts_with("some similar ");
    let known = tips.iter().any(|tip| similar(tip));
    for tip in tips {
        told = match tip.split_once(": ") {
            Some((_, names)) if similar(&tip) => {
                // What is hidden is not meant.
                let names = names.replace('\'', "");
                let names: Vec<&str> =
                    names.split(", ").filter(|name| !name.starts_with("__")).collect();
                told.tell("did you mean", format!("{}?", names.join(" or ")))
            }
            // Of a misspelled flag that is no advice; and a command stands behind two dashes anyway.
            Some(_) | None if known || sub == Some("run") => told,
            Some(_) | None => told.tell("tip", tip),
        };
    }
    if sub == Some("run") && is_bare_word(error) && !words.iter().any(|word| word == "--") {
        told = told.tell("tip", "the command stands behind two dashes: -- CMD [ARG...]");
    } else if let Some(usage) = usage {
        told = told.tell("usage", usage);
    }
    let help = match sub {
        Some(sub) => format!("ctrlrun {sub} --help"),
        None => "ctrlrun --help".to_owned(),
    };
    told.hint(Hint::command("see", help))
}

/// Whether it is about a word that is no flag and has no place.
fn is_bare_word(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::UnknownArgument
        && match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(word)) => !word.starts_with('-'),
            Some(_) | None => false,
        }
}
