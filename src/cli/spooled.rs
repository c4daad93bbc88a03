//! Where the spool is, and what is delivered from it before a command that writes (EXE-23, EXE-25).
use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ctrlrun::drive::deliver::{Delivery, deliver};
use ctrlrun::drive::spool::{Spool, Spooled, unreadable};
use ctrlrun::plan::key::Key;
use ctrlrun::store::{CouldNot, Location};
use nix::unistd::geteuid;

use crate::cli::Global;
use crate::cli::access::Opened;
use crate::cli::error::{CliError, Deed, Hint, Kind};
use crate::cli::render::shell::quote;
use crate::cli::render::text::clean;
use crate::cli::terminal::say;
use crate::cli::which::{Place, state_dir};

/// The directories that the spool may be in, the best first (EXE-23).
#[must_use]
pub fn candidates(global: &Global) -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = variable("CTRLRUN_SPOOL") {
        return vec![PathBuf::from(named)];
    }
    if let Some(named) = &global.settings.spool {
        return vec![named.clone()];
    }
    let in_state = state_dir().map(|dir| dir.join("spool"));
    let in_runtime =
        variable("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("ctrlrun/spool"));
    // A directory that all users share: with our number in its name.
    let shared = std::env::temp_dir().join(format!("ctrlrun-{}", geteuid()));
    let temporary = is_ours(&shared).then(|| shared.join("spool"));
    in_state.into_iter().chain(in_runtime).chain(temporary).collect()
}

/// The spool of a store, for a command that writes; `None` where no directory for it can be written.
///
/// # Errors
/// 69: one that may hold a word of this store cannot be read (EXE-25).
pub fn spool(opened: &Opened, deed: Deed, global: &Global) -> Result<Option<Spool>, CliError> {
    let candidates = candidates(global);
    for dir in &candidates {
        if let Some(error) = unreadable(dir) {
            let shown = dir.to_string_lossy();
            let words = format!(
                "{}: the spool cannot be read, and may hold a word about what this is for: {}",
                clean(&shown),
                deed.undone()
            );
            let line = format!("ls -ld {}", quote(dir));
            let told = CliError::new(Kind::Store, words).because(&error);
            return Err(told.hint(Hint::command("look", line)));
        }
    }
    Ok(Spool::find(&candidates, opened.store.identity().store_id))
}

/// Whether nobody else has put a directory there, or may write to it: what is read from a spool is
/// believed, and what is kept there is the command's output.
fn is_ours(dir: &Path) -> bool {
    match std::fs::symlink_metadata(dir) {
        Ok(found) => {
            found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0
        }
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// What could not be delivered from the spool of a store: it stands in the way of its own keys, and of
/// no other.
pub struct Delivered {
    spool: Option<Spool>,
    failed: HashMap<Key, CouldNot>,
}

impl Delivered {
    /// Delivers what is in the spool before many keys are looked at, and tells what came of it.
    ///
    /// # Errors
    /// As [`spool`].
    pub fn all(opened: &Opened, global: &Global) -> Result<Self, CliError> {
        let spool = spool(opened, Deed::Change, global)?;
        let failed = match &spool {
            Some(spool) => deliver_and_tell(opened, spool, None, global),
            None => HashMap::new(),
        };
        Ok(Self { spool, failed })
    }

    /// Whether nothing of the spool stands in the way of `key`.
    ///
    /// # Errors
    /// 69: an outcome of this very key cannot be delivered.
    pub fn check(&self, opened: &Opened, key: &Key, deed: Deed) -> Result<(), CliError> {
        match &self.spool {
            Some(spool) => stands_in_the_way(opened, spool, key, deed, self.failed.get(key)),
            None => Ok(()),
        }
    }
}

/// Delivers what is there; what is left under `key` stands in its way, and only in its.
///
/// # Errors
/// 69: an outcome of this very key cannot be delivered.
pub fn deliver_first(
    opened: &Opened,
    spool: &Spool,
    key: &Key,
    deed: Deed,
    global: &Global,
) -> Result<(), CliError> {
    let failed = deliver_and_tell(opened, spool, Some(key), global);
    stands_in_the_way(opened, spool, key, deed, failed.get(key))
}

/// Delivers all of the spool, and tells what came of each outcome; not of one of `own` that failed,
/// which the caller tells as an error. Returns what failed.
fn deliver_and_tell(
    opened: &Opened,
    spool: &Spool,
    own: Option<&Key>,
    global: &Global,
) -> HashMap<Key, CouldNot> {
    let mut failed = HashMap::new();
    let within = global.store_timeout;
    for delivery in deliver(opened.store.as_ref(), spool, within, within) {
        match &delivery {
            Delivery::Failed(of, error) => {
                if own != Some(of) {
                    tell(&delivery, global);
                }
                failed.insert(of.clone(), error.clone());
            }
            Delivery::Recorded(_)
            | Delivery::Late(_)
            | Delivery::Forgotten(_)
            | Delivery::Damaged { .. } => tell(&delivery, global),
        }
    }
    failed
}

/// Delivers what is there before something is done to the whole store; the keys of what is left.
///
/// # Errors
/// As [`spool`].
pub fn deliver_all(opened: &Opened, global: &Global) -> Result<BTreeSet<Key>, CliError> {
    Ok(Delivered::all(opened, global)?.failed.into_keys().collect())
}

fn stands_in_the_way(
    opened: &Opened,
    spool: &Spool,
    key: &Key,
    deed: Deed,
    failed: Option<&CouldNot>,
) -> Result<(), CliError> {
    match failed {
        // Only a store that is a file can have been made anew in its place.
        None => match made(&opened.place) {
            None => Ok(()),
            made => not_of_a_lost_store(&opened.place, spool, key, deed, made),
        },
        Some(error) => Err(in_the_way(opened, spool, key, deed, error)),
    }
}

/// Says what came of a delivery.
pub fn tell(delivery: &Delivery, global: &Global) {
    match delivery {
        Delivery::Recorded(of) => {
            global.note(&format!("{}: its spooled outcome is recorded now", clean(of.as_str())));
        }
        Delivery::Late(of) => global.note(&format!(
            "{}: its spooled outcome came late, and is kept in its history",
            clean(of.as_str())
        )),
        Delivery::Forgotten(of) => global.note(&format!(
            "{}: its spooled outcome is of an effect that the store has forgotten; dropped",
            clean(of.as_str())
        )),
        Delivery::Failed(of, error) => say(&format!(
            "warning: {}: its spooled outcome cannot be delivered: {}",
            clean(of.as_str()),
            clean(&error.message)
        )),
        Delivery::Damaged { path, why } => say(&format!(
            "warning: {}: this file of the spool is damaged ({}): nothing is guessed from it; \
             look at it, then at the effect that it is about",
            clean(&path.to_string_lossy()),
            clean(why)
        )),
    }
}

/// 69: a word about this very key cannot be delivered.
#[must_use]
pub fn in_the_way(
    opened: &Opened,
    spool: &Spool,
    key: &Key,
    deed: Deed,
    error: &CouldNot,
) -> CliError {
    let words = format!(
        "{}: refused, {}: an outcome of it is in the spool, and the store does not take it: {}",
        clean(key.as_str()),
        deed.undone(),
        clean(&error.message)
    );
    CliError::new(Kind::Store, words)
        .fact(format!("spool: {}", clean(&spool.dir().to_string_lossy())))
        .fact(format!("store: {}", opened.place.named()))
}

/// When the file of an embedded store was made, where that can be told.
#[must_use]
pub fn made(place: &Place) -> Option<SystemTime> {
    match &place.location {
        Location::Sqlite(at) => std::fs::metadata(&at.path).and_then(|found| found.created()).ok(),
        Location::Postgres(_) => None,
    }
}

/// A word about this key that was spooled before this store was made (`None`: it would be made now):
/// the store that it is of was lost, and this one took its place. That must not run the effect again.
///
/// # Errors
/// 69.
pub fn not_of_a_lost_store(
    place: &Place,
    spool: &Spool,
    key: &Key,
    deed: Deed,
    made: Option<SystemTime>,
) -> Result<(), CliError> {
    let older = |written: SystemTime| made.is_none_or(|made| written < made);
    let Some((path, _)) = spool.strays(key).into_iter().find(|(_, written)| older(*written)) else {
        return Ok(());
    };
    Err(CliError::new(
        Kind::Store,
        format!(
            "{}: refused, {}: an outcome of this key, of a store that is older than this one, says \
             that it may have happened",
            clean(key.as_str()),
            deed.undone()
        ),
    )
    .fact(format!("spool: {}", clean(&path.to_string_lossy())))
    .fact(format!("store: {}", place.named()))
    .tell("if the other store is there", "run any command on it, which delivers the outcome to it")
    .tell("if this key is another effect there", "remove that file"))
}

/// Delivers what is there before a decision about `key` is made: what a child said may settle it.
///
/// # Errors
/// As [`deliver_first`].
pub fn deliver_before_deciding(
    opened: &Opened,
    key: &Key,
    global: &Global,
) -> Result<(), CliError> {
    match spool(opened, Deed::Change, global)? {
        Some(spool) => deliver_first(opened, &spool, key, Deed::Change, global),
        None => Ok(()),
    }
}

/// Says to a reader what is still to be delivered: the record may be about to change.
pub fn mention(opened: &Opened, global: &Global) {
    let Some(spool) = Spool::find(&candidates(global), opened.store.identity().store_id) else {
        return;
    };
    for file in spool.read(false) {
        match file {
            Spooled::Outcome(undelivered) => global.note(&format!(
                "{}: an outcome of attempt {} is in the spool, and not in the store yet; the next \
                 command that writes delivers it",
                clean(undelivered.key.as_str()),
                undelivered.settle.holder.attempt
            )),
            Spooled::Damaged { path, why } => {
                global.note(&format!(
                    "warning: {}: this file of the spool is damaged: {}",
                    clean(&path.to_string_lossy()),
                    clean(&why)
                ));
            }
        }
    }
}
