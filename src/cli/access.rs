//! Opening the store that was chosen, for looking, for writing, or to be made.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ctrlrun::drive::host;
use ctrlrun::plan::effect::HistoryRow;
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::Known;
use ctrlrun::store::stop::{inside_append, inside_run_append};
use ctrlrun::store::{
    self, Captured, CouldNot, Filter, Flow, Glimpse, Listed, Location, Mode, Options, Reason,
    Shown, Store, Stream,
};

use super::Global;
use super::error::{CliError, Deed, Hint, Kind};

use super::render::shell::{quote, store_flag};
use super::render::text::clean;
use super::spooled;
use super::terminal::say;
use super::which::{Place, Surroundings, which};

/// An open store, and where it is.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its place.
    pub place: Place,
    /// Whether it was made just now.
    pub created: bool,
    /// What gives other users of it no more than they need.
    pub grants: Option<String>,
    /// How long one command may take in all.
    pub within: Duration,
    /// That a key is new, as far as opening the store could tell (CMT-16).
    pub guess: Option<Known>,
    deed: Deed,
}

impl Opened {
    /// One record with its evidence.
    ///
    /// # Errors
    /// What the store could not do, or a record that cannot be read.
    pub fn look(&self, key: &Key) -> Result<Option<Shown>, CliError> {
        let filter = Filter { key: Some(key.clone()), ..Filter::default() };
        let mut found = None;
        let mut each = |listed| {
            found = Some(listed);
            Flow::Stop
        };
        self.store.list(&filter, &mut each, self.within).map_err(|error| self.could_not(&error))?;
        match found {
            None => Ok(None),
            Some(Listed::Record(shown)) => Ok(Some(*shown)),
            Some(Listed::Unreadable { key, why }) => Err(CliError::new(
                Kind::Internal,
                self.deed.undone_after(&format!(
                    "{}: its record cannot be read: {}",
                    clean(&key),
                    clean(&why)
                )),
            )
            .fact(format!("store: {}", self.place.named()))),
        }
    }

    /// One record that must be there.
    ///
    /// # Errors
    /// As [`Opened::look`]; 66 if there is none.
    pub fn find(&self, key: &Key) -> Result<Shown, CliError> {
        self.look(key)?.ok_or_else(|| no_such_effect(key, &self.place))
    }

    /// The history of a key from a revision on.
    ///
    /// # Errors
    /// What the store could not do.
    pub fn history(&self, key: &Key, from: u64) -> Result<Vec<HistoryRow>, CliError> {
        self.store.history(key, from, self.within).map_err(|error| self.could_not(&error))
    }

    /// What is stored of one stream of an attempt.
    ///
    /// # Errors
    /// What the store could not do.
    pub fn output(
        &self,
        key: &Key,
        attempt: u64,
        stream: Stream,
    ) -> Result<Option<Captured>, CliError> {
        self.store.output(key, attempt, stream, self.within).map_err(|error| self.could_not(&error))
    }

    /// What this store could not do, told for what it was opened for.
    #[must_use]
    pub fn could_not(&self, error: &CouldNot) -> CliError {
        CliError::could_not(error, &self.place, self.deed)
    }
}

/// 66: there is no such effect. Names the store, and why that one (STO-11).
#[must_use]
pub fn no_such_effect(key: &Key, place: &Place) -> CliError {
    let message = format!("no effect {} in {}", clean(key.as_str()), place.named());
    CliError::new(Kind::NotFound, message)
        .hint(Hint::command("look", format!("ctrlrun effects{}", store_flag(place))))
}

/// Which store it is.
///
/// # Errors
/// As [`which`].
pub fn place(global: &Global) -> Result<Place, CliError> {
    which(&Surroundings::of_process(global.store.clone(), global.settings.store.clone()))
}

/// The files of the store that would be used: nothing else may be written to them.
#[must_use]
pub fn parts_of_store(global: &Global) -> Vec<PathBuf> {
    match place(global).map(|place| place.location) {
        Ok(Location::Sqlite(at)) => ["", "-wal", "-shm", "-journal"]
            .iter()
            .map(|end| {
                let mut part = at.path.clone().into_os_string();
                part.push(end);
                PathBuf::from(part)
            })
            .collect(),
        Ok(Location::Postgres(_)) | Err(_) => Vec::new(),
    }
}

/// Opens the store to look; changes and makes nothing (STO-10).
///
/// # Errors
/// What stands in the way; 78 if it is not there.
pub fn for_reading(global: &Global) -> Result<Opened, CliError> {
    let opened = open(global, place(global)?, Mode::Read, Deed::Look)?;
    spooled::mention(&opened, global);
    Ok(opened)
}

/// Opens a store that must be there, to write.
///
/// # Errors
/// What stands in the way; 78 if it is not there.
pub fn for_writing(global: &Global, deed: Deed) -> Result<Opened, CliError> {
    open(global, place(global)?, Mode::Write, deed)
}

/// Opens the store to run an effect: the default is made on first use, with a line that says where
/// (STO-6); no other is.
///
/// # Errors
/// What stands in the way; 78 if a named store is not there.
pub fn for_running(global: &Global) -> Result<Opened, CliError> {
    let place = place(global)?;
    let mode = if place.is_default() { Mode::Create } else { Mode::Write };
    let opened = open(global, place, mode, Deed::Run)?;
    if opened.created {
        global.note(&format!(
            "new store: {} (the default of this user; see `ctrlrun help stores`)",
            opened.place.shown()
        ));
    }
    Ok(opened)
}

/// Opens the store to say what a run would do; `None` where the run would make the default store.
///
/// # Errors
/// What stands in the way; 78 if a named store is not there.
pub fn for_dry_run(global: &Global) -> Result<Option<Opened>, CliError> {
    let place = place(global)?;
    let options = Options::new(Mode::Read, global.store_timeout);
    match store::open(&place.location, &options) {
        Err(error) if error.reason == Reason::Missing && place.is_default() => {
            if global.verbose > 0 {
                say(&format!("store: {}", place.named()));
            }
            Ok(None)
        }
        Ok(_) | Err(_) => open(global, place, Mode::Read, Deed::Run).map(Some),
    }
}

/// Opens `place` in `mode`, and passes on what a person ought to know of it.
///
/// # Errors
/// What stands in the way.
pub fn open(global: &Global, place: Place, mode: Mode, deed: Deed) -> Result<Opened, CliError> {
    let within = global.store_timeout;
    if global.verbose > 0 {
        say(&format!("store: {}", place.named()));
    }
    let mut options = Options::new(mode, within);
    options.before_commit = Some(Arc::new(inside_append));
    options.before_run_commit = Some(Arc::new(inside_run_append));
    let read_at = host::now();
    match store::open(&place.location, &options) {
        Ok(opened) => {
            for warning in &opened.warnings {
                global.note(&format!("warning: {}", clean(warning)));
            }
            if let Some(warning) = place.exposed() {
                global.note(&format!("warning: {warning}"));
            }
            let store::Opened { store, created, grants, .. } = opened;
            // Of a scratch store only: verify's workers meet their faults there (VER-5).
            let store: Arc<dyn Store> = crate::verify::rig::of_process(store).into();
            let seen_at = host::now();
            let guess = store.glimpse().map(|Glimpse { attempt_floor, now }| {
                Known::absent(attempt_floor, now, read_at, seen_at)
            });
            Ok(Opened { store, created, grants, place, within, guess, deed })
        }
        Err(error) if error.reason == Reason::Missing => Err(missing(&place, deed)),
        Err(error) => Err(CliError::could_not(&error, &place, deed)),
    }
}

/// 78: no such store (STO-7). Not the same as no such effect.
fn missing(place: &Place, deed: Deed) -> CliError {
    let message = deed.undone_after(&format!("no such store: {}", place.named()));
    let error = CliError::new(Kind::Config, message);
    if place.is_default() {
        error.tell("it is made", "by the first `ctrlrun run` of this user")
    } else {
        let line = format!("ctrlrun init --store {}", quote(place.argument()));
        error.hint(Hint::command("if it is to be made", line))
    }
}
