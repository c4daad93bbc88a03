//! `ctrlrun init`: makes a store that is then named (CLI-22, STO-7), or a configuration (CFG-12).
pub mod config;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Args;
use ctrlrun::store::Mode;

use super::Global;
use super::access::{open, place};
use super::error::{CliError, Deed, Exit};
use super::render::text::safe_json;
use super::terminal::{Answer, say};

/// Make a store; changes nothing where it is there already
///
/// The default store is made by the first `run`. Any other is made with this, once: a name that was
/// mistyped, or a variable that was not set, must not become a second, empty store that runs everything
/// again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun init --store /var/lib/ctrlrun/effects.db
  ctrlrun init --store /var/lib/ctrlrun/effects.db --upgrade
  ctrlrun init --config")]
pub struct InitArgs {
    /// Write a commented configuration to FILE, or to ./ctrlrun.toml, and make no store unless one is
    /// named; a FILE that is there says which store, as everywhere
    // The same name as the flag of every command: with a file that is there it is that flag.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = HERE)]
    pub config: Option<OsString>,
    /// Move the schema of an older ctrlrun forward; the store must be there
    #[arg(long)]
    pub upgrade: bool,
    /// Mark it as a scratch store, in which stop points work
    #[arg(long, hide = true, conflicts_with = "upgrade")]
    pub scratch: bool,
}

/// Stands for `--config` without a value; no argument can hold it.
const HERE: &str = "\0";

impl InitArgs {
    /// Whether a configuration is to be written: where no file was named, or one that is not there.
    #[must_use]
    pub fn writes_config(&self) -> bool {
        self.config_path().is_some()
    }

    fn config_path(&self) -> Option<&Path> {
        match self.config.as_deref() {
            Some(here) if here == OsStr::new(HERE) => Some(Path::new("ctrlrun.toml")),
            // Empty is an error, and not a file that is not there.
            Some(named) if !named.is_empty() => {
                let path = Path::new(named);
                path.symlink_metadata().is_err().then_some(path)
            }
            Some(_) | None => None,
        }
    }
}

/// Makes the store, or says that it is there.
///
/// # Errors
/// What stands in the way.
pub fn init(args: &InitArgs, global: &Global) -> Result<Exit, CliError> {
    if let Some(path) = args.config_path() {
        config::write(path, global)?;
        if global.store.is_none() {
            return Ok(Exit::OK);
        }
    }
    let mode = if args.scratch {
        Mode::Scratch
    } else if args.upgrade {
        Mode::Upgrade
    } else {
        Mode::Create
    };
    let opened = open(global, place(global)?, mode, Deed::Change)?;
    let version = opened.store.identity().schema_version;
    if global.json {
        let mut object = serde_json::json!({
            "store": opened.place.location.to_string(),
            "made": opened.created,
            "schema_version": version,
        });
        if let Some(grants) = opened.grants {
            object["grants"] = grants.into();
        }
        let mut out = Answer::plain();
        out.put(|out| writeln!(out, "{}", safe_json(&object)))?;
        out.end()?;
    } else {
        let shown = opened.place.shown();
        say(&if opened.created {
            format!("made {shown} (schema version {version})")
        } else {
            format!("{shown} is there already (schema version {version})")
        });
        if let Some(grants) = opened.grants {
            let mut out = Answer::plain();
            out.put(|out| writeln!(out, "{grants}"))?;
            out.end()?;
        }
    }
    Ok(Exit::OK)
}
