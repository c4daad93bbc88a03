//! Where a store is, as a user writes it (CLI-1): a value is a path or a URL with a known scheme,
//! and an unknown scheme is never taken for a path.
use std::fmt;
use std::path::{Path, PathBuf};

use super::{CouldNot, Reason};

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file on this host.
    Sqlite(SqliteAt),
    /// A server.
    Postgres(PostgresAt),
}

/// A file on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteAt {
    /// The file, as it was named.
    pub path: PathBuf,
    /// `?network=allow`: on a network file system too, at the user's own risk (STO-8).
    pub network: bool,
}

/// A server. Its URL may hold a password, so it is never printed as it is.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresAt {
    url: String,
}

impl Location {
    /// The store in this file.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::Sqlite(SqliteAt { path, network: false })
    }

    /// Reads `sqlite:PATH`, a bare path, or `postgres://...`.
    ///
    /// # Errors
    /// [`Reason::Unfit`] for an empty value, an unknown scheme or an unknown option; the message
    /// holds no password.
    pub fn parse(text: &str) -> Result<Self, CouldNot> {
        if text.is_empty() {
            return Err(unfit(
                "the store's name is empty".to_owned(),
                "give a path, sqlite:PATH or postgres://...",
            ));
        }
        match scheme(text) {
            None => sqlite(text),
            Some("sqlite") => {
                let path = &text["sqlite:".len()..];
                match path.strip_prefix("//") {
                    // sqlite:///var/lib/x.db
                    Some(rest) if rest.starts_with('/') => sqlite(rest),
                    Some(rest) => Err(unfit(
                        format!("sqlite://{rest} names a host, and SQLite has none"),
                        "write sqlite:PATH, or sqlite:///PATH for an absolute one",
                    )),
                    None => sqlite(path),
                }
            }
            Some("postgres" | "postgresql") => {
                Ok(Self::Postgres(PostgresAt { url: text.to_owned() }))
            }
            Some(other) => Err(unfit(
                format!("{other:?} is not a kind of store"),
                "write sqlite:PATH or postgres://...; a path with a colon in its first part is ./PATH",
            )),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(at) => {
                let path = at.path.display();
                // A bare path with a colon in its first part would be read as a scheme.
                let named = path.to_string();
                match scheme(&named) {
                    Some(_) => write!(f, "sqlite:{named}")?,
                    None => f.write_str(&named)?,
                }
                f.write_str(if at.network { "?network=allow" } else { "" })
            }
            Self::Postgres(at) => f.write_str(&at.redacted()),
        }
    }
}

impl PostgresAt {
    /// The URL as it was given, with the password it may hold.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether the URL itself holds a password, which every process on the host can read if it was
    /// an argument.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.redacted() != self.url
    }

    /// The URL without any password: what can be shown, and typed again where the password comes from
    /// elsewhere.
    #[must_use]
    pub fn redacted(&self) -> String {
        super::postgres::url::redact(&self.url)
    }
}

impl fmt::Debug for PostgresAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresAt").field(&self.redacted()).finish()
    }
}

fn sqlite(text: &str) -> Result<Location, CouldNot> {
    let (path, options) = text.split_once('?').unwrap_or((text, ""));
    let mut network = false;
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option {
            "network=allow" => network = true,
            _ => {
                return Err(unfit(
                    format!("{option:?} is not an option of a SQLite store"),
                    "the only one is ?network=allow",
                ));
            }
        }
    }
    if path.is_empty() || path == ":memory:" {
        return Err(unfit(
            format!(
                "{text:?} names no file: what is not kept cannot keep anything from running twice"
            ),
            "write sqlite:PATH",
        ));
    }
    Ok(Location::Sqlite(SqliteAt { path: Path::new(path).to_owned(), network }))
}

/// What stands before the first colon, if it can be a scheme and no slash comes before it.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(':')?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some(scheme)
}

fn unfit(message: String, hint: &str) -> CouldNot {
    CouldNot { reason: Reason::Unfit, message, hint: Some(hint.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> String {
        match Location::parse(text).unwrap() {
            Location::Sqlite(at) => at.path.display().to_string(),
            Location::Postgres(at) => panic!("{at:?}"),
        }
    }

    #[test]
    fn a_path_is_a_path_and_an_unknown_scheme_is_none() {
        // CLI-1
        assert_eq!(path("a/b.db"), "a/b.db");
        assert_eq!(path("sqlite:b.db"), "b.db");
        assert_eq!(path("sqlite:///var/b.db"), "/var/b.db");
        assert_eq!(path("./a:b"), "./a:b");
        assert_eq!(path("/a:b"), "/a:b");
        for refused in [
            "",
            "mysql://x",
            "a:b",
            "sqlite:",
            "sqlite::memory:",
            ":memory:",
            "sqlite://host/x",
            "sqlite:x?mode=rw",
        ] {
            let error = Location::parse(refused).unwrap_err();
            assert_eq!(error.reason, Reason::Unfit, "{refused}");
            assert!(error.hint.is_some(), "{refused}");
        }
    }

    #[test]
    fn an_option_is_taken_and_shown_again() {
        // STO-8
        let location = Location::parse("sqlite:/nfs/x.db?network=allow").unwrap();
        let Location::Sqlite(at) = &location else { panic!("{location:?}") };
        assert!(at.network);
        assert_eq!(Location::parse(&location.to_string()).unwrap(), location);
    }

    #[test]
    fn a_location_typed_as_it_is_shown_is_the_same_location() {
        // CLI-4
        for text in ["x.db", "/a b/c.db", "sqlite:a:b.db"] {
            let location = Location::parse(text).unwrap();
            assert_eq!(Location::parse(&location.to_string()).unwrap(), location);
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        // CON-3
        for (url, shown) in [
            ("postgres://u:p@h/db", "postgres://u@h/db"),
            ("postgres://u:p@q@h/db?x=1", "postgres://u@..."),
            ("postgresql://h/db?password=p&sslmode=require", "postgresql://h/db?sslmode=require"),
            ("postgres://u:a/b@h/db", "postgres://u@..."),
            ("postgres://u@h/db", "postgres://u@h/db"),
            ("postgres:///db?host=/run", "postgres:///db?host=/run"),
        ] {
            let Location::Postgres(at) = Location::parse(url).unwrap() else { panic!("{url}") };
            assert_eq!(at.redacted(), shown);
            assert_eq!(at.has_password(), url != shown);
            assert!(!format!("{at:?}").contains("u:p"));
        }
    }
}
