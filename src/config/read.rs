//! One file's text, checked and typed (CFG-6 to CFG-9).
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ctrlrun::plan::template::{CommandTemplate, Template};
use ctrlrun::store::Location;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use super::effect::{Effect, Settings};
use super::fields::{Codes, Kept, Lease, RecordCommand, SomeTime, Time};
use super::problem::Problem;
use super::{Defaults, Hooks};
use crate::cli::render::text::clean;
use crate::cli::suggest::nearest;

/// What a file that `cd` may have found can say: nothing that picks a store, or runs a program that
/// nobody asked for.
const HARMLESS: [&str; 2] = ["defaults", "effect"];

/// All tables.
const TABLES: [&str; 6] = ["store", "defaults", "hooks", "spool", "journal", "effect"];

/// What one file says.
#[derive(Debug, Default)]
pub struct Layer {
    /// `[store] url`.
    pub store: Option<Location>,
    /// `[defaults]`.
    pub defaults: Defaults,
    /// `[hooks]`.
    pub hooks: Hooks,
    /// `[spool] dir`.
    pub spool: Option<PathBuf>,
    /// `[journal] file`.
    pub journal: Option<PathBuf>,
    /// `[effect.*]`.
    pub effects: Vec<Effect>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    store: Option<StoreTable>,
    defaults: Option<DefaultsTable>,
    hooks: Option<HooksTable>,
    spool: Option<SpoolTable>,
    journal: Option<JournalTable>,
    #[serde(default)]
    effect: BTreeMap<Spanned<String>, EffectTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreTable {
    url: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DefaultsTable {
    lease: Option<Lease>,
    capture: Option<Kept>,
    record_command: Option<RecordCommand>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HooksTable {
    ambiguous: Option<Spanned<Vec<Spanned<String>>>>,
    failed: Option<Spanned<Vec<Spanned<String>>>>,
    committed: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpoolTable {
    dir: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalTable {
    file: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EffectTable {
    key: Spanned<String>,
    command: Spanned<Vec<Spanned<String>>>,
    not_executed: Option<Codes>,
    timeout: Option<SomeTime>,
    lease: Option<Lease>,
    retries: Option<u32>,
    backoff: Option<Time>,
    max_attempts: Option<Spanned<u64>>,
    reconcile: Option<Spanned<Vec<Spanned<String>>>>,
    reconcile_final: Option<Spanned<bool>>,
    reconcile_timeout: Option<Spanned<SomeTime>>,
}

/// Reads a file's text. `dir` is the file's own folder, from which its paths count; a file that was
/// `found` by walking may not say everything.
///
/// # Errors
/// The first mistake.
pub fn read(text: &str, dir: &Path, found: bool) -> Result<Layer, Problem> {
    let table = DeTable::parse(text)?;
    for (name, _) in table.get_ref().iter() {
        let (span, name) = (name.span(), name.get_ref().as_ref());
        if !TABLES.contains(&name) {
            let near = nearest(name, TABLES).map(|name| format!(": [{name}]?"));
            let near = near.unwrap_or_else(|| format!("; there are {}", TABLES.join(", ")));
            return Err(Problem::at(span, format!("unknown table [{name}]{near}")));
        }
        if found && !HARMLESS.contains(&name) {
            let what = format!(
                "[{name}] in a file that was found by the working directory, which may hold only \
                 [defaults] and [effect.*]; it belongs into ~/.config/ctrlrun/ctrlrun.toml or \
                 /etc/ctrlrun/ctrlrun.toml, or name this file by --config"
            );
            return Err(Problem::at(span, what));
        }
    }
    let file = File::deserialize(Deserializer::from(table))?;
    let at = In { text, dir };
    let defaults = file.defaults.as_ref();
    let mut layer = Layer {
        store: file.store.and_then(|table| table.url).map(|url| at.store(&url)).transpose()?,
        defaults: Defaults {
            lease: defaults.and_then(|table| table.lease).map(|lease| lease.0),
            capture: defaults.and_then(|table| table.capture).map(|kept| kept.0),
            record_command: defaults.and_then(|table| table.record_command),
        },
        spool: file.spool.and_then(|table| table.dir).map(|dir| at.path(&dir)).transpose()?,
        journal: file
            .journal
            .and_then(|table| table.file)
            .map(|file| at.path(&file))
            .transpose()?,
        ..Layer::default()
    };
    if let Some(hooks) = file.hooks {
        layer.hooks = Hooks {
            ambiguous: hooks.ambiguous.map(|words| at.hook(&words)).transpose()?,
            failed: hooks.failed.map(|words| at.hook(&words)).transpose()?,
            committed: hooks.committed.map(|words| at.hook(&words)).transpose()?,
        };
    }
    for (name, table) in file.effect {
        layer.effects.push(at.effect(&name, table)?);
    }
    Ok(layer)
}

/// What values of a file are read against.
struct In<'a> {
    text: &'a str,
    dir: &'a Path,
}

impl In<'_> {
    fn store(&self, url: &Spanned<String>) -> Result<Location, Problem> {
        not_empty(url, "an absent value must not mean another store")?;
        match Location::parse(url.get_ref()) {
            Ok(Location::Sqlite(mut at)) => {
                at.path = self.dir.join(at.path);
                Ok(Location::Sqlite(at))
            }
            Ok(location @ Location::Postgres(_)) => Ok(location),
            Err(error) => {
                let hint = error.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
                Err(Problem::at(url.span(), format!("{}{hint}", error.message)))
            }
        }
    }

    fn path(&self, path: &Spanned<String>) -> Result<PathBuf, Problem> {
        not_empty(path, "leave it out to have the default")?;
        if path.get_ref().contains('\0') {
            return Err(Problem::at(path.span(), "a path holds no NUL"));
        }
        Ok(self.dir.join(path.get_ref()))
    }

    /// A hook's words. It runs wherever the working directory is, so its program counts from the
    /// file, unless it is looked for in PATH.
    fn hook(&self, words: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<String>, Problem> {
        let mut texts = Vec::new();
        for word in words.get_ref() {
            if word.get_ref().contains('\0') {
                return Err(Problem::at(word.span(), "an argument holds no NUL"));
            }
            texts.push(word.get_ref().clone());
        }
        match texts.first_mut() {
            Some(program) if !program.is_empty() => {
                if program.contains('/') {
                    *program = self.dir.join(&*program).to_string_lossy().into_owned();
                }
                Ok(texts)
            }
            Some(_) | None => Err(Problem::at(words.span(), "the command names no program")),
        }
    }

    fn effect(&self, name: &Spanned<String>, table: EffectTable) -> Result<Effect, Problem> {
        let said = name.get_ref();
        let odd = |c: char| c.is_control() || c.is_whitespace() || c == '=';
        if said.is_empty() || said.starts_with('-') || said.contains(odd) {
            let what = "the name of an effect is a word for the command line: without spaces and \
                        `=`, and no `-` before it";
            return Err(Problem::at(name.span(), what));
        }
        let key = Template::parse(table.key.get_ref())
            .map_err(|bad| Problem::at(self.inside(&table.key, bad.column()), bad.to_string()))?;
        let command = self.command(&table.command)?;
        let reconcile = table.reconcile.as_ref().map(|words| self.command(words)).transpose()?;
        if let (Some(is_final), None) = (&table.reconcile_final, &reconcile) {
            return Err(Problem::at(is_final.span(), "`reconcile_final` without `reconcile`"));
        }
        if let (Some(time), None) = (&table.reconcile_timeout, &reconcile) {
            return Err(Problem::at(time.span(), "`reconcile_timeout` without `reconcile`"));
        }
        let max_attempts = table.max_attempts.as_ref();
        if let Some(none) = max_attempts.filter(|most| *most.get_ref() == 0) {
            return Err(Problem::at(none.span(), "no attempt at all would be allowed"));
        }
        let effect = Effect {
            name: said.clone(),
            key,
            command,
            settings: Settings {
                not_executed: table.not_executed.map(|codes| codes.0),
                timeout: table.timeout.map(|timeout| timeout.0),
                lease: table.lease.map(|lease| lease.0),
                retries: table.retries,
                backoff: table.backoff.map(|backoff| backoff.0),
                max_attempts: max_attempts.map(|most| *most.get_ref()),
            },
            reconcile,
            reconcile_final: table.reconcile_final.is_some_and(Spanned::into_inner),
            reconcile_timeout: table.reconcile_timeout.map(|time| time.get_ref().0),
        };
        self.check_parameters(&effect, &table.key, table.reconcile.as_ref())?;
        Ok(effect)
    }

    /// What can be seen of an effect's placeholders before any value is there.
    fn check_parameters(
        &self,
        effect: &Effect,
        key: &Spanned<String>,
        probe: Option<&Spanned<Vec<Spanned<String>>>>,
    ) -> Result<(), Problem> {
        if let Some(name) = effect.parameters().into_iter().find(|name| name.contains('=')) {
            let what = format!("{{{name}}} could not be given as NAME=VALUE: no `=` in its name");
            return Err(Problem::at(key.span(), what));
        }
        let (Some(template), Some(words)) = (&effect.reconcile, probe) else {
            return Ok(());
        };
        // A probe asks about an effect that is there: by its key, and by nothing else.
        let known: Vec<&str> = effect.key.placeholders().map(|(name, _)| name).collect();
        for (index, name, column) in template.placeholders() {
            if !known.contains(&name) {
                let span = words.get_ref().get(index).map(|word| self.inside(word, column));
                let what = format!(
                    "{{{name}}} is no part of the key, and the key is all that is known of an \
                     effect that is probed later"
                );
                return Err(Problem::at(span.unwrap_or_else(|| words.span()), what));
            }
        }
        Ok(())
    }

    fn command(&self, words: &Spanned<Vec<Spanned<String>>>) -> Result<CommandTemplate, Problem> {
        let list = words.get_ref();
        if let Some(word) = list.iter().find(|word| word.get_ref().contains('\0')) {
            return Err(Problem::at(word.span(), "an argument holds no NUL"));
        }
        let texts: Vec<&str> = list.iter().map(|word| word.get_ref().as_str()).collect();
        CommandTemplate::parse(&texts).map_err(|bad| {
            let place = bad.place().and_then(|(index, column)| Some((list.get(index)?, column)));
            let span = place.map_or_else(|| words.span(), |(word, at)| self.inside(word, at));
            Problem::at(span, bad.to_string())
        })
    }

    /// The place of a character of a string's value, where it stands in the text as it is; else that
    /// of the whole string.
    fn inside(&self, value: &Spanned<String>, column: usize) -> Range<usize> {
        let span = value.span();
        let written = self.text.get(span.clone()).unwrap_or_default();
        let bare = written.get(1..written.len().saturating_sub(1));
        let place = value.get_ref().char_indices().nth(column.saturating_sub(1));
        match place {
            Some((at, c)) if bare == Some(value.get_ref()) => {
                let start = span.start + 1 + at;
                start..start + c.len_utf8()
            }
            Some(_) | None => span,
        }
    }
}

fn not_empty(value: &Spanned<String>, why: &str) -> Result<(), Problem> {
    if value.get_ref().is_empty() {
        return Err(Problem::at(value.span(), format!("it is set but empty: {}", clean(why))));
    }
    Ok(())
}
