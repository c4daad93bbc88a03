//! What `ctrlrun.toml` says (CFG clauses): which files, whether they are trusted, and their values.
//!
//! Flags and the environment stand above it; whoever reads a value puts them in that order.
//!
//! | file | about |
//! |---|---|
//! | [`find`] | which files there are |
//! | [`read`] | one file's text, checked |
//! | [`fields`] | its values |
//! | [`effect`] | effects that have a name |
//! | [`problem`] | a mistake, shown in its line |
pub mod effect;
mod fields;
pub mod find;
mod problem;
pub mod read;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ctrlrun::store::Location;

use crate::cli::error::CliError;
use crate::cli::values::Capture;
use effect::Effects;
pub use fields::{Codes, RecordCommand, SomeTime};
use find::Surroundings;

/// All files together. Nothing in it where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The files that were read, the weakest first.
    pub files: Vec<PathBuf>,
    /// `[store] url`, and the file that says so; a path is absolute.
    pub store: Option<(Location, PathBuf)>,
    /// `[defaults]`.
    pub defaults: Defaults,
    /// `[hooks]`.
    pub hooks: Hooks,
    /// `[spool] dir`, absolute.
    pub spool: Option<PathBuf>,
    /// `[journal] file`, absolute.
    pub journal: Option<PathBuf>,
    /// `[effect.*]`.
    pub effects: Arc<Effects>,
}

/// What stands where no flag says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Defaults {
    /// How soon a crash is noticed.
    pub lease: Option<Duration>,
    /// How much of each stream is kept.
    pub capture: Option<Capture>,
    /// What the store keeps of a command line.
    pub record_command: Option<RecordCommand>,
}

/// Commands that are told of an outcome after the fact: program and arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hooks {
    /// Of an AMBIGUOUS one.
    pub ambiguous: Option<Vec<String>>,
    /// Of a FAILED one.
    pub failed: Option<Vec<String>>,
    /// Of a COMMITTED one.
    pub committed: Option<Vec<String>>,
}

/// Reads the configuration of this process; `walk` where `[defaults]` or effects are wanted, which a
/// file above the working directory may hold.
///
/// # Errors
/// 78: a mistake in a file, shown in its line, or a file that is not to be used.
pub fn load(flag: Option<OsString>, walk: bool) -> Result<Config, CliError> {
    load_from(&Surroundings::of_process(flag, walk))
}

fn load_from(from: &Surroundings) -> Result<Config, CliError> {
    let mut config = Config::default();
    let mut effects = Effects::default();
    for file in find::files(from)? {
        let dir = file.path.parent().unwrap_or(Path::new("/"));
        let layer = read::read(&file.text, dir, file.by_walking)
            .map_err(|problem| problem.error(&file.path, &file.text))?;
        if let Some(store) = layer.store {
            config.store = Some((store, file.path.clone()));
        }
        let (over, under) = (layer.defaults, config.defaults);
        config.defaults = Defaults {
            lease: over.lease.or(under.lease),
            capture: over.capture.or(under.capture),
            record_command: over.record_command.or(under.record_command),
        };
        let (over, under) = (layer.hooks, config.hooks);
        config.hooks = Hooks {
            ambiguous: over.ambiguous.or(under.ambiguous),
            failed: over.failed.or(under.failed),
            committed: over.committed.or(under.committed),
        };
        config.spool = layer.spool.or(config.spool);
        config.journal = layer.journal.or(config.journal);
        layer.effects.into_iter().for_each(|effect| effects.set(effect));
        config.files.push(file.path);
    }
    config.effects = Arc::new(effects);
    Ok(config)
}
