//! Why there is no connection, and whether another try may have one.
use std::fmt;
use std::time::Duration;

use super::conninfo::Target;
use super::link::{ServerError, plain};
use super::params::ConninfoError;

/// No host could be used; what each of them said, in the order they were tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectError {
    /// One entry per try.
    pub tries: Vec<Try>,
}

/// One try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Try {
    /// The host, with its port and address as far as they were known.
    pub host: String,
    /// What went wrong.
    pub why: Why,
}

/// What went wrong with one try.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Our time was over.
    #[error("no answer within {0:.1?}")]
    Deadline(Duration),
    /// Nobody is there.
    #[error("{0}")]
    Unreachable(String),
    /// TLS failed, or is not to be had.
    #[error("TLS: {0}")]
    Tls(String),
    /// The server turned us away.
    #[error("{0}")]
    Server(ServerError),
    /// It asks for a password and there is none.
    #[error(
        "the server asks for a password and none was found (PGPASSWORD, ~/.pgpass of mode 0600, a service file)"
    )]
    NoPassword,
    /// It is not what was asked for.
    #[error("the server is {found}, and target_session_attrs is {wanted}")]
    Unfit {
        /// What was asked for.
        wanted: Target,
        /// What it is.
        found: &'static str,
    },
    /// What we were told to use cannot be used.
    #[error("{0}")]
    Settings(ConninfoError),
    /// The start-up went wrong in another way.
    #[error("{0}")]
    Odd(String),
}

/// What a failure to connect comes down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nobody reachable: try again later.
    Unreachable,
    /// Credentials or permission.
    Denied,
    /// Settings, or a database that does not exist: someone has to mend it.
    Settings,
}

impl ConnectError {
    /// What the last try comes down to.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.tries.last().map(|one| &one.why) {
            Some(Why::Server(error)) if error.code.starts_with("28") || error.code == "42501" => {
                Kind::Denied
            }
            Some(Why::Server(error)) if error.code == "3D000" => Kind::Settings,
            Some(Why::NoPassword) => Kind::Denied,
            Some(Why::Settings(_) | Why::Tls(_)) => Kind::Settings,
            Some(
                Why::Server(_)
                | Why::Deadline(_)
                | Why::Unreachable(_)
                | Why::Unfit { .. }
                | Why::Odd(_),
            )
            | None => Kind::Unreachable,
        }
    }
}

impl std::error::Error for ConnectError {}

impl fmt::Display for ConnectError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, one) in self.tries.iter().enumerate() {
            let between = if at == 0 { "" } else { "; " };
            write!(to, "{between}{}: {}", one.host, one.why)?;
        }
        Ok(())
    }
}

pub(super) fn unreachable_by(error: &std::io::Error) -> Why {
    Why::Unreachable(error.to_string())
}

pub(super) fn explained(error: &std::io::Error) -> String {
    error.get_ref().map_or_else(|| error.to_string(), |inner| plain(inner))
}

pub(super) fn refused(error: &tokio_postgres::Error) -> Why {
    if let Some(error) = error.as_db_error() {
        return Why::Server(ServerError::of(error));
    }
    let text = plain(error);
    if text.contains("password missing") {
        return Why::NoPassword;
    }
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    match source {
        // A server that wants a client certificate says so by a TLS alert once it is read.
        Some(source) if is_tls(source) => Why::Tls(explained(source)),
        Some(source) => unreachable_by(source),
        None => Why::Odd(text),
    }
}

fn is_tls(error: &std::io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// The other way is tried where TLS itself failed, or the server's rules turned this way down. A
/// wrong password is not sent again in the clear.
pub(super) fn other_encryption_may_help(why: &Why) -> bool {
    match why {
        Why::Tls(_) => true,
        Why::Server(error) => error.code == "28000",
        Why::Deadline(_)
        | Why::Unreachable(_)
        | Why::NoPassword
        | Why::Unfit { .. }
        | Why::Settings(_)
        | Why::Odd(_) => false,
    }
}

/// A server that answered and said no is not passed over, as in libpq: the next host might be
/// another database. One that is starting, stopping or full is.
pub(super) fn is_final(why: &Why) -> bool {
    match why {
        Why::Server(error) => !(error.code.starts_with("57P") || error.code == "53300"),
        Why::NoPassword | Why::Settings(_) => true,
        Why::Deadline(_) | Why::Unreachable(_) | Why::Tls(_) | Why::Unfit { .. } | Why::Odd(_) => {
            false
        }
    }
}
