//! `ctrlrun run NAME PARAM=VALUE...` (CFG-10, CFG-11): an effect of the configuration becomes a key
//! and a command, as if they had been typed.
use std::collections::BTreeMap;

use super::RunArgs;
use crate::cli::error::{CliError, Hint, Kind};
use crate::cli::render::text::clean;
use crate::cli::suggest::nearest;
use crate::config::Config;
use crate::config::effect::{BadParameters, Effect};

/// Puts in what the flags leave open: the named effect, and what the configuration says. A flag
/// stands before the effect, the effect before `[defaults]`.
///
/// # Errors
/// 64: no such effect, or parameters that it cannot be run with.
pub fn fill(args: &mut RunArgs, config: &Config) -> Result<(), CliError> {
    if let Some(name) = args.name.take() {
        if args.key.is_some() || !args.command.is_empty() {
            return Err(beside(args, &name));
        }
        let effect = config.effects.get(&name).ok_or_else(|| unknown(&name, config))?;
        let given = parameters(args, effect)?;
        let filled = effect.fill(&given).map_err(|bad| refused(&bad, effect))?;
        args.key = Some(filled.key);
        args.command = filled.command.into_iter().map(Into::into).collect();
        args.probe = filled.probe;
        let settings = &effect.settings;
        args.not_executed = args.not_executed.take().or_else(|| settings.not_executed.clone());
        args.timeout = args.timeout.or(settings.timeout);
        args.lease = args.lease.or(settings.lease);
        args.retries = args.retries.or(settings.retries);
        args.backoff = args.backoff.or(settings.backoff);
        args.max_attempts = args.max_attempts.or(settings.max_attempts);
    }
    args.lease = args.lease.or(config.defaults.lease);
    args.capture = args.capture.or(config.defaults.capture);
    Ok(())
}

/// A name beside a key or a command: one of them is a slip.
fn beside(args: &RunArgs, name: &str) -> CliError {
    let name = clean(name);
    let error = if args.command.is_empty() {
        let words = format!("unexpected argument '{name}' found; nothing was run");
        CliError::new(Kind::Usage, words)
            .tell("tip", "the command stands behind two dashes: -- CMD [ARG...]")
    } else {
        let words = format!(
            "unexpected argument '{name}' found before the two dashes; nothing was run: a command \
             has a --key, and a named effect its own command"
        );
        CliError::new(Kind::Usage, words)
    };
    error.hint(Hint::command("see", "ctrlrun run --help"))
}

fn unknown(name: &str, config: &Config) -> CliError {
    let near = nearest(name, config.effects.names());
    let near = near.map(|name| format!(" ({}?)", clean(name))).unwrap_or_default();
    let words = format!("no effect {} is configured{near}; nothing was run", clean(name));
    let mut error = CliError::new(Kind::Usage, words);
    let names: Vec<_> = config.effects.names().map(clean).collect();
    if !names.is_empty() {
        error = error.tell("configured", names.join(", "));
    }
    let files: Vec<_> =
        config.files.iter().map(|path| clean(&path.to_string_lossy()).into_owned()).collect();
    let files = if files.is_empty() { "none was found".to_owned() } else { files.join(", ") };
    error
        .tell("configuration", files)
        .tell("to run a command", "ctrlrun run --key KEY -- CMD [ARG...]")
}

fn parameters(args: &RunArgs, effect: &Effect) -> Result<BTreeMap<String, String>, CliError> {
    let mut given = BTreeMap::new();
    for word in &args.params {
        let shown = word.to_string_lossy();
        let usage = |what: &str| {
            let words = format!("{}: {what}; nothing was run", clean(&shown));
            CliError::new(Kind::Usage, words).hint(usage(effect))
        };
        let text = word.to_str().ok_or_else(|| usage("a value of a named effect is UTF-8"))?;
        let (name, value) =
            text.split_once('=').ok_or_else(|| usage("a parameter is NAME=VALUE"))?;
        // The last one must not win quietly.
        if given.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(usage("this parameter is given twice"));
        }
    }
    Ok(given)
}

fn refused(bad: &BadParameters, effect: &Effect) -> CliError {
    let mut words = bad.to_string();
    if let BadParameters::Unknown { effect, name, takes } = bad
        && let Some(near) = nearest(name, takes.iter().map(String::as_str))
    {
        words = format!("effect {effect} has no parameter {name} ({near}?)");
    }
    CliError::new(Kind::Usage, format!("{}; nothing was run", clean(&words))).hint(usage(effect))
}

/// How it is typed.
fn usage(effect: &Effect) -> Hint {
    let mut line = format!("ctrlrun run {}", clean(&effect.name));
    for name in effect.parameters() {
        line.push_str(&format!(" {}=...", crate::cli::render::shell::quote(name)));
    }
    Hint::words("usage", line)
}
