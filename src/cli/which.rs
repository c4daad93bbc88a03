//! Which store it is, and why that one (CLI-1). Nothing here opens or makes it.
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ctrlrun::store::Location;
use nix::unistd::{User, geteuid};

use super::error::{CliError, Kind};
use super::render::text::clean;

/// The variable that names a store.
pub const STORE_VARIABLE: &str = "CTRLRUN_STORE";

/// Why it is that store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// `--store` said so.
    Flag,
    /// `CTRLRUN_STORE` said so.
    Variable,
    /// `[store] url` of this file said so.
    File(PathBuf),
    /// Nothing was said.
    Default,
}

/// A store's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where it is; a file by its absolute path.
    pub location: Location,
    /// Why that one.
    pub why: Why,
}

impl Place {
    /// Whether it is the one that is made on first use and that no command has to name.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.why == Why::Default
    }

    /// What `--store` takes to mean this store, without a password.
    #[must_use]
    pub fn argument(&self) -> OsString {
        match &self.location {
            // An absolute path never looks like a scheme, and need not be text.
            Location::Sqlite(at) if !at.network => at.path.clone().into(),
            Location::Sqlite(_) | Location::Postgres(_) => self.location.to_string().into(),
        }
    }

    /// Where it is, for a person; never with a password.
    #[must_use]
    pub fn shown(&self) -> String {
        clean(&self.location.to_string()).into_owned()
    }

    /// What to say of a password that every user of this host can read, as an argument is.
    #[must_use]
    pub fn exposed(&self) -> Option<&'static str> {
        match &self.location {
            Location::Postgres(at) if at.has_password() && self.why == Why::Flag => Some(
                "the password in --store can be read by every user of this host; put it into \
                 ~/.pgpass (mode 0600), or PGPASSWORD",
            ),
            Location::Sqlite(_) | Location::Postgres(_) => None,
        }
    }

    /// Why it is that one, for a person (STO-11).
    #[must_use]
    pub fn why(&self) -> Cow<'static, str> {
        match &self.why {
            Why::Flag => "from --store".into(),
            Why::Variable => "from CTRLRUN_STORE".into(),
            Why::File(path) => format!("from {}", clean(&path.to_string_lossy())).into(),
            Why::Default => "the default; CTRLRUN_STORE is not set".into(),
        }
    }

    /// Place and reason: `/srv/effects.db (from --store)`.
    #[must_use]
    pub fn named(&self) -> String {
        format!("{} ({})", self.shown(), self.why())
    }
}

/// What a choice of store depends on; read once, so that it can be tested.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// `--store`.
    pub flag: Option<OsString>,
    /// `CTRLRUN_STORE`.
    pub variable: Option<OsString>,
    /// `[store] url` of a configuration, and the file that says so.
    pub file: Option<(Location, PathBuf)>,
    /// `XDG_STATE_HOME`.
    pub state_home: Option<OsString>,
    /// `HOME`.
    pub home: Option<OsString>,
}

impl Surroundings {
    /// The process's own, with what the flag and the configuration said.
    #[must_use]
    pub fn of_process(flag: Option<OsString>, file: Option<(Location, PathBuf)>) -> Self {
        Self {
            flag,
            variable: std::env::var_os(STORE_VARIABLE),
            file,
            state_home: std::env::var_os("XDG_STATE_HOME"),
            home: std::env::var_os("HOME"),
        }
    }
}

/// Chooses the store.
///
/// # Errors
/// 78: a value that is set and cannot be meant. An absent secret must not mean a new, empty store.
pub fn which(from: &Surroundings) -> Result<Place, CliError> {
    if let Some(value) = &from.flag {
        return named(value, Why::Flag, "--store");
    }
    if let Some(value) = &from.variable {
        return named(value, Why::Variable, STORE_VARIABLE);
    }
    if let Some((location, file)) = &from.file {
        return Ok(Place { location: location.clone(), why: Why::File(file.clone()) });
    }
    let path = state_directory(from)?.join("ctrlrun").join("effects.db");
    Ok(Place { location: Location::file(path), why: Why::Default })
}

fn named(value: &OsStr, why: Why, what: &str) -> Result<Place, CliError> {
    if value.is_empty() {
        let mend = match why {
            Why::Flag => "Leave it out to use the default store, or give it a value",
            Why::Variable | Why::File(_) | Why::Default => {
                "Unset it to use the default store, or give it a value"
            }
        };
        return Err(CliError::new(
            Kind::Config,
            format!("{what} is set but empty: nothing was done. {mend}"),
        ));
    }
    let parsed = match value.to_str() {
        Some(text) => Location::parse(text),
        // What is not text is no URL.
        None => Ok(Location::file(value)),
    };
    let refused = |message: String| {
        CliError::new(Kind::Config, format!("{what}: {}: nothing was done", clean(&message)))
    };
    match parsed {
        Ok(Location::Sqlite(mut at)) => {
            at.path = std::path::absolute(&at.path).map_err(|error| {
                refused("it cannot be made an absolute path".into()).because(&error)
            })?;
            let location = Location::Sqlite(at);
            Ok(Place { location, why })
        }
        Ok(location @ Location::Postgres(_)) => Ok(Place { location, why }),
        Err(error) => {
            let refused = refused(error.message);
            Err(match error.hint {
                Some(hint) => refused.fact(clean(&hint)),
                None => refused,
            })
        }
    }
}

/// `ctrlrun` in the state directory of this process's user, if that can be told.
#[must_use]
pub fn state_dir() -> Option<PathBuf> {
    state_directory(&Surroundings::of_process(None, None)).ok().map(|dir| dir.join("ctrlrun"))
}

/// The directory below which this user's state is kept.
fn state_directory(from: &Surroundings) -> Result<PathBuf, CliError> {
    // An empty XDG_STATE_HOME counts as unset: the XDG specification says so.
    if let Some(state_home) = from.state_home.as_ref().filter(|value| !value.is_empty()) {
        let path = PathBuf::from(state_home);
        if path.is_absolute() {
            return Ok(path);
        }
        return refuse(
            "XDG_STATE_HOME",
            &path,
            "is not an absolute path, so the store would depend on the working directory",
        );
    }
    let (home, what) = match &from.home {
        Some(home) => (PathBuf::from(home), "HOME"),
        None => (password_entry_home()?, "the password entry's home"),
    };
    if home.as_os_str().is_empty() {
        return refuse(what, &home, "is set but empty");
    }
    if !home.is_absolute() {
        return refuse(what, &home, "is not an absolute path");
    }
    if home == Path::new("/") {
        return refuse(what, &home, "is the root directory, which is nobody's home");
    }
    match std::fs::metadata(&home) {
        Ok(found) if found.uid() == geteuid().as_raw() => Ok(home.join(".local").join("state")),
        Ok(found) => {
            let owner = User::from_uid(found.uid().into())
                .ok()
                .flatten()
                .map_or_else(|| format!("uid {}", found.uid()), |user| user.name);
            refuse(what, &home, &format!("belongs to {owner}, and this runs as another user"))
        }
        Err(error) => refuse(what, &home, &format!("cannot be used: {error}")),
    }
}

fn refuse<T>(what: &str, path: &Path, why: &str) -> Result<T, CliError> {
    let path = path.to_string_lossy();
    Err(CliError::new(
        Kind::Config,
        format!(
            "{what} ({}) {why}: no default store can be chosen, nothing was done",
            clean(&path)
        ),
    )
    .tell("name the store", "--store PATH, or CTRLRUN_STORE=PATH"))
}

fn password_entry_home() -> Result<PathBuf, CliError> {
    match User::from_uid(geteuid()) {
        Ok(Some(user)) => Ok(user.dir),
        Ok(None) | Err(_) => Err(CliError::new(
            Kind::Config,
            "HOME is not set and this user has no password entry: no default store can be chosen, \
             nothing was done",
        )
        .tell("name the store", "--store PATH, or CTRLRUN_STORE=PATH")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> OsString {
        // A directory of our own, as HOME must be.
        std::env::current_dir().unwrap().into()
    }

    fn refusal(from: &Surroundings) -> String {
        let error = which(from).unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        error.message().to_owned()
    }

    #[test]
    fn flag_then_variable_then_default() {
        // CLI-1
        let mut from = Surroundings {
            flag: Some("/a.db".into()),
            variable: Some("sqlite:/b.db".into()),
            file: None,
            state_home: Some("/state".into()),
            home: Some(home()),
        };
        let path = |from: &Surroundings| {
            let place = which(from).unwrap();
            (place.shown(), place.why)
        };
        assert_eq!(path(&from), ("/a.db".to_owned(), Why::Flag));
        from.flag = None;
        assert_eq!(path(&from), ("/b.db".to_owned(), Why::Variable));
        from.variable = None;
        from.file = Some((Location::file("/c.db"), "/etc/c.toml".into()));
        assert_eq!(path(&from), ("/c.db".to_owned(), Why::File("/etc/c.toml".into())));
        assert_eq!(which(&from).unwrap().named(), "/c.db (from /etc/c.toml)");
        from.file = None;
        let state = ("/state/ctrlrun/effects.db".to_owned(), Why::Default);
        assert_eq!(path(&from), state);
        from.state_home = Some("".into());
        let by_home = Path::new(&home()).join(".local/state/ctrlrun/effects.db");
        assert_eq!(which(&from).unwrap().location, Location::file(by_home));
    }

    #[test]
    fn a_value_that_is_set_and_cannot_be_meant_is_refused() {
        // CLI-1, case 61
        let base = Surroundings::default();
        for (from, part) in [
            (Surroundings { flag: Some("".into()), ..base.clone() }, "--store is set but empty"),
            (
                Surroundings { variable: Some("".into()), ..base.clone() },
                "CTRLRUN_STORE is set but empty",
            ),
            (Surroundings { flag: Some("sqlite:".into()), ..base.clone() }, "names no file"),
            (
                Surroundings { flag: Some("mysql://u:hush@h/db".into()), ..base.clone() },
                "\"mysql\"",
            ),
            (
                Surroundings {
                    state_home: Some("state".into()),
                    home: Some(home()),
                    ..base.clone()
                },
                "XDG_STATE_HOME (state) is not an absolute path",
            ),
            (
                Surroundings { home: Some("/".into()), ..base.clone() },
                "HOME (/) is the root directory",
            ),
            (Surroundings { home: Some("".into()), ..base.clone() }, "set but empty"),
            (Surroundings { home: Some("/nonexistent".into()), ..base.clone() }, "cannot be used"),
        ] {
            let message = refusal(&from);
            assert!(message.contains(part), "{message}");
            assert!(message.contains("nothing was done"), "{message}");
            assert!(!message.contains("hush"), "{message}");
        }
    }

    #[test]
    fn a_place_typed_as_it_is_printed_is_that_place() {
        // CLI-4
        for value in ["./a:b", "sqlite:a:b", "sqlite:///srv/e.db", "/n.db?network=allow"] {
            let place =
                which(&Surroundings { flag: Some(value.into()), ..Surroundings::default() })
                    .unwrap();
            let again =
                which(&Surroundings { flag: Some(place.argument()), ..Surroundings::default() });
            assert_eq!(again.unwrap(), place, "{value}");
        }
    }
}
