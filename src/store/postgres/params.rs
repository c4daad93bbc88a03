//! The parameters of a connection by name, and which source of a value wins: the URL, then a
//! service file, then the environment, then the default.
use std::collections::BTreeMap;
use std::fmt;

use super::here::Here;

/// Where a value came from; shown in errors, so that the right thing gets mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The URL itself.
    Url,
    /// The section of a service file.
    Service(String),
    /// A variable of the environment.
    Env(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url => to.write_str("in the store's URL"),
            Self::Service(name) => write!(to, "in the service \"{name}\""),
            Self::Env(name) => write!(to, "in the environment, {name}"),
        }
    }
}

/// What is wrong with a connection string, or with what it refers to. No variant holds a password,
/// nor any part of a URL that may be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConninfoError {
    /// The URL has no such form.
    #[error("the store's URL cannot be read: {0}")]
    Url(&'static str),
    /// No parameter has this name.
    #[error("unknown parameter \"{name}\" {from}")]
    Unknown {
        /// The name.
        name: String,
        /// Where it was found.
        from: Source,
    },
    /// libpq knows it; ctrlrun does not do what it asks for.
    #[error("the parameter \"{name}\" {from} is not supported: {why}")]
    Unsupported {
        /// The name.
        name: &'static str,
        /// Where it was found.
        from: Source,
        /// Why not, or what to do instead.
        why: &'static str,
    },
    /// A value that the parameter does not take.
    #[error("\"{name}\" {from} is \"{got}\"; it takes {takes}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// Where it was found.
        from: Source,
        /// The value.
        got: String,
        /// What it could be.
        takes: &'static str,
    },
    /// Values that do not go together.
    #[error("{0}")]
    Together(String),
    /// A file that is needed and cannot be used.
    #[error("{0}")]
    File(String),
    /// A variable whose value is not text.
    #[error("the value of {0} is not UTF-8")]
    NotText(String),
}

enum Support {
    Yes,
    /// Supported as far as these values go.
    Only(&'static [&'static str], &'static str),
    No(&'static str),
}
use Support::{No, Only, Yes};

struct Param {
    name: &'static str,
    env: Option<&'static str>,
    support: Support,
}

const fn param(name: &'static str, env: Option<&'static str>, support: Support) -> Param {
    Param { name, env, support }
}

const CRL: &str = "revocation lists are not checked; leave it out to go on without";
const GSS: &str = "GSSAPI is not built in; use TLS (sslmode)";

/// Every parameter that libpq has, and `schema`, which is ours.
#[rustfmt::skip]
const KNOWN: &[Param] = &[
    param("service", Some("PGSERVICE"), Yes),
    param("host", Some("PGHOST"), Yes),
    param("hostaddr", Some("PGHOSTADDR"), Yes),
    param("port", Some("PGPORT"), Yes),
    param("dbname", Some("PGDATABASE"), Yes),
    param("user", Some("PGUSER"), Yes),
    param("password", Some("PGPASSWORD"), Yes),
    param("passfile", Some("PGPASSFILE"), Yes),
    param("schema", None, Yes),
    param("connect_timeout", Some("PGCONNECT_TIMEOUT"), Yes),
    param("target_session_attrs", Some("PGTARGETSESSIONATTRS"), Yes),
    param("application_name", Some("PGAPPNAME"), Yes),
    param("fallback_application_name", None, Yes),
    param("options", Some("PGOPTIONS"), Yes),
    param("requirepeer", Some("PGREQUIREPEER"), Yes),
    param("keepalives", None, Yes),
    param("keepalives_idle", None, Yes),
    param("keepalives_interval", None, Yes),
    param("keepalives_count", None, Yes),
    param("tcp_user_timeout", None, Yes),
    param("sslmode", Some("PGSSLMODE"), Yes),
    param("sslnegotiation", Some("PGSSLNEGOTIATION"), Yes),
    param("sslrootcert", Some("PGSSLROOTCERT"), Yes),
    param("sslcert", Some("PGSSLCERT"), Yes),
    param("sslkey", Some("PGSSLKEY"), Yes),
    param("sslcertmode", Some("PGSSLCERTMODE"), Only(&["disable", "allow"], "disable or allow")),
    param("sslsni", Some("PGSSLSNI"), Only(&["0", "1"], "0 or 1")),
    param("ssl_min_protocol_version", Some("PGSSLMINPROTOCOLVERSION"),
        Only(&["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"], "TLSv1, TLSv1.1, TLSv1.2 or TLSv1.3 (older than 1.2 is never used)")),
    param("ssl_max_protocol_version", Some("PGSSLMAXPROTOCOLVERSION"),
        Only(&["TLSv1.2", "TLSv1.3"], "TLSv1.2 or TLSv1.3")),
    param("channel_binding", Some("PGCHANNELBINDING"), Only(&["disable", "prefer", "require"], "disable, prefer or require")),
    param("sslcompression", Some("PGSSLCOMPRESSION"), Only(&["0"], "0: compression does not exist here")),
    param("gssencmode", Some("PGGSSENCMODE"), Only(&["disable", "prefer"], "disable or prefer: GSSAPI is not built in")),
    param("client_encoding", None, Only(&["UTF8", "utf8", "UTF-8", "utf-8", "auto"], "UTF8")),
    param("load_balance_hosts", Some("PGLOADBALANCEHOSTS"), Only(&["disable"], "disable: a store has one primary")),
    param("min_protocol_version", Some("PGMINPROTOCOLVERSION"), Only(&["3.0"], "3.0")),
    param("max_protocol_version", Some("PGMAXPROTOCOLVERSION"), Only(&["3.0", "3.2", "latest"], "3.0, 3.2 or latest")),
    param("sslpassword", None, No("keep the key unencrypted in a file of mode 0600")),
    param("sslcrl", Some("PGSSLCRL"), No(CRL)),
    param("sslcrldir", Some("PGSSLCRLDIR"), No(CRL)),
    param("require_auth", Some("PGREQUIREAUTH"), No("use sslmode=verify-full and channel_binding=require")),
    param("krbsrvname", None, No(GSS)),
    param("gsslib", None, No(GSS)),
    param("gssdelegation", None, No(GSS)),
    param("replication", None, No("a store is no replica")),
    param("sslkeylogfile", None, No("the keys of a session are not written down")),
    param("scram_client_key", None, No("give a password")),
    param("scram_server_key", None, No("give a password")),
    param("oauth_issuer", None, No("OAuth is not built in")),
    param("oauth_client_id", None, No("OAuth is not built in")),
    param("oauth_client_secret", None, No("OAuth is not built in")),
    param("oauth_scope", None, No("OAuth is not built in")),
    param("servicefile", Some("PGSERVICEFILE"), Yes),
];

/// A value and where it came from.
#[derive(Clone, PartialEq, Eq)]
pub struct Value {
    /// The text.
    pub text: String,
    /// Its source.
    pub from: Source,
}

/// The parameters that were given, by name.
#[derive(Default)]
pub struct Settings(BTreeMap<&'static str, Value>);

impl Settings {
    /// Takes a parameter, unless a source that wins gave it already.
    ///
    /// # Errors
    /// The name or the value is not one that ctrlrun does.
    pub fn offer(&mut self, name: &str, text: &str, from: Source) -> Result<(), ConninfoError> {
        let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
            return Err(ConninfoError::Unknown { name: name.to_owned(), from });
        };
        match known.support {
            Yes => {}
            Only(values, takes) => {
                if !text.is_empty() && !values.contains(&text) {
                    let got = text.to_owned();
                    return Err(ConninfoError::Value { name: known.name, from, got, takes });
                }
            }
            No(why) => return Err(ConninfoError::Unsupported { name: known.name, from, why }),
        }
        self.0.entry(known.name).or_insert_with(|| Value { text: text.to_owned(), from });
        Ok(())
    }

    /// Takes from the environment what no other source gave.
    ///
    /// # Errors
    /// A variable that asks for what ctrlrun does not do, or is not text. One that another source
    /// outdoes is not looked at.
    pub fn offer_env(&mut self, here: &Here<'_>) -> Result<(), ConninfoError> {
        for known in KNOWN {
            let Some(env) = known.env else { continue };
            if self.0.contains_key(known.name) {
                continue;
            }
            if here.unreadable.iter().any(|name| name == env) {
                return Err(ConninfoError::NotText(env.to_owned()));
            }
            if let Some(text) = here.var(env) {
                self.offer(known.name, text, Source::Env(env))?;
            }
        }
        Ok(())
    }

    /// A value that was given, also an empty one.
    #[must_use]
    pub fn given(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A value that was given and is not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.given(name).filter(|value| !value.text.is_empty())
    }

    /// Its text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).map(|value| value.text.as_str())
    }

    /// A whole number.
    ///
    /// # Errors
    /// It is none.
    pub fn int(&self, name: &'static str) -> Result<Option<i32>, ConninfoError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(refuse(name, value, "a whole number")),
        }
    }
}

/// The error that `value` is none of what `name` takes.
#[must_use]
pub fn refuse(name: &'static str, value: &Value, takes: &'static str) -> ConninfoError {
    ConninfoError::Value { name, from: value.from.clone(), got: value.text.clone(), takes }
}
