//! Where to connect, as whom and how: every parameter checked, before anything is connected to (CON-1, CON-2).
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::here::Here;
use super::params::{ConninfoError, Settings, Source, refuse};
use super::passfile::{self, Login};
use super::secret::Secret;
use super::tls::{SslMode, TlsSettings};
use super::{service, url};

/// Debian's folder of the server's socket, then the one of an installation from source.
const SOCKET_DIRS: [&str; 2] = ["/var/run/postgresql", "/tmp"];
const PORT: u16 = 5432;

/// A connection string, understood.
#[derive(Debug, Clone)]
pub struct Conninfo {
    /// The hosts, in the order they are tried; at least one.
    pub hosts: Vec<Host>,
    /// The database.
    pub dbname: String,
    /// The user.
    pub user: String,
    /// The schema that holds the store; ours, not libpq's.
    pub schema: String,
    /// TLS.
    pub tls: TlsSettings,
    /// How SCRAM is bound to the TLS session.
    pub channel_binding: ChannelBinding,
    /// Longest time for one host; `None` is no other bound than the caller's.
    pub connect_timeout: Option<Duration>,
    /// What a server must be to be taken.
    pub target: Target,
    /// What the server shows in `pg_stat_activity`.
    pub application_name: String,
    /// Settings that the server takes at start-up; a pooler may refuse them.
    pub options: Option<String>,
    /// The operating-system user that must own the server behind a unix socket.
    pub requirepeer: Option<String>,
    /// TCP's own watch over the connection.
    pub keepalives: Keepalives,
    /// A password stood in the URL itself, where `ps` may show it.
    pub password_in_url: bool,
    /// What was ignored, and why; for the user, once.
    pub warnings: Vec<String>,
}

/// One host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Where it listens.
    pub at: At,
    /// Its port; of a socket, the number in its name.
    pub port: u16,
    /// The password for it.
    pub password: Option<Secret>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// At an address, or at those that a name stands for.
    Tcp {
        /// The name, which a certificate must carry.
        name: Option<String>,
        /// The address; without one the name is looked up.
        addr: Option<IpAddr>,
    },
    /// At a socket in the first of these folders that has one.
    Socket(Vec<PathBuf>),
}

/// What a server must be to be taken (`target_session_attrs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Anything.
    Any,
    /// It takes writes. The default here, since a store writes; libpq's is `any`.
    ReadWrite,
    /// It takes none.
    ReadOnly,
    /// It is no standby.
    Primary,
    /// It is one.
    Standby,
    /// A standby if there is one.
    PreferStandby,
}

impl fmt::Display for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Any => "any",
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
            Self::Primary => "primary",
            Self::Standby => "standby",
            Self::PreferStandby => "prefer-standby",
        })
    }
}

/// Whether SCRAM is bound to the TLS session it runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// Where both sides can.
    Prefer,
    /// Or there is no connection.
    Require,
}

/// TCP's own watch over a connection; `None` leaves the system's setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keepalives {
    /// Off switches the others off.
    pub on: bool,
    /// Seconds of silence before the first probe.
    pub idle_s: Option<u32>,
    /// Seconds between probes.
    pub interval_s: Option<u32>,
    /// Probes lost before the connection is.
    pub count: Option<u32>,
    /// Milliseconds that sent data may stay unacknowledged.
    pub user_timeout_ms: Option<u32>,
}

impl Conninfo {
    /// Reads a URL, and what it leaves open from service file, environment and password file.
    ///
    /// # Errors
    /// What is wrong and where it stands; never a password.
    pub fn parse(text: &str, here: &Here<'_>) -> Result<Self, ConninfoError> {
        let mut settings = Settings::default();
        for (name, value) in url::parse(text)?.pairs {
            settings.offer(&name, &value, Source::Url)?;
        }
        let password_in_url = settings.get("password").is_some();
        let named = |name, env| settings.text(name).or_else(|| here.var(env)).map(str::to_owned);
        let (section, file) =
            (named("service", "PGSERVICE"), named("servicefile", "PGSERVICEFILE"));
        if let Some(section) = section {
            service::offer(&mut settings, &section, file.as_deref(), here)?;
        }
        settings.offer_env(here)?;
        Self::of(&settings, here, password_in_url)
    }

    fn of(
        settings: &Settings,
        here: &Here<'_>,
        password_in_url: bool,
    ) -> Result<Self, ConninfoError> {
        let own = |name: &str| settings.text(name).map(str::to_owned);
        let Some(user) = own("user").or_else(|| Some((here.account)()?.name)) else {
            return Err(ConninfoError::Together(
                "no user is named, and this process's user has no name: write postgres://USER@..."
                    .into(),
            ));
        };
        let dbname = own("dbname").unwrap_or_else(|| user.clone());
        let mut warnings = Vec::new();
        let mut hosts = hosts(settings)?;
        passwords(&mut hosts, settings, here, (&dbname, &user), &mut warnings);
        let timeout = settings.int("connect_timeout")?.and_then(|s| u64::try_from(s).ok());
        Ok(Self {
            hosts,
            schema: schema(settings)?,
            tls: TlsSettings::of(settings, here)?,
            channel_binding: match settings.text("channel_binding") {
                Some("disable") => ChannelBinding::Disable,
                Some("require") => ChannelBinding::Require,
                Some(_) | None => ChannelBinding::Prefer,
            },
            connect_timeout: timeout.filter(|s| *s > 0).map(Duration::from_secs),
            target: target(settings)?,
            application_name: own("application_name")
                .or_else(|| own("fallback_application_name"))
                .unwrap_or_else(|| "ctrlrun".into()),
            options: own("options"),
            requirepeer: own("requirepeer"),
            keepalives: keepalives(settings)?,
            password_in_url,
            warnings,
            dbname,
            user,
        })
    }
}

/// The place without a password: `postgres://app@db1,db2:6432/ops?schema=ctrlrun`.
impl fmt::Display for Conninfo {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sockets: Vec<String> = self.hosts.iter().filter_map(socket_shown).collect();
        write!(to, "postgres://{}@", encoded(&self.user))?;
        let all_sockets = sockets.len() == self.hosts.len();
        if !all_sockets {
            let shown: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
            to.write_str(&shown.join(","))?;
        }
        write!(to, "/{}?", encoded(&self.dbname))?;
        if all_sockets {
            write!(to, "host={}&", sockets.join(","))?;
            if let Some(host) = self.hosts.first().filter(|host| host.port != PORT) {
                write!(to, "port={}&", host.port)?;
            }
        }
        write!(to, "schema={}", encoded(&self.schema))
    }
}

/// `db1`, `db1:6432`, `[::1]:6432`, or the socket's folder.
impl fmt::Display for Host {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::Tcp { name, addr } => match (name, addr) {
                (Some(name), _) if name.contains(':') => write!(to, "[{name}]")?,
                (Some(name), _) => to.write_str(name)?,
                (None, Some(IpAddr::V6(addr))) => write!(to, "[{addr}]")?,
                (None, Some(IpAddr::V4(addr))) => write!(to, "{addr}")?,
                (None, None) => {}
            },
            At::Socket(_) => to.write_str(&socket_shown(self).unwrap_or_default())?,
        }
        if self.port == PORT { Ok(()) } else { write!(to, ":{}", self.port) }
    }
}

fn socket_shown(host: &Host) -> Option<String> {
    match &host.at {
        At::Tcp { .. } => None,
        At::Socket(dirs) => Some(dirs.first()?.display().to_string()),
    }
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut shown = String::new();
    for byte in text.bytes() {
        if plain(byte) {
            shown.push(char::from(byte));
        } else {
            shown.push_str(&format!("%{byte:02X}"));
        }
    }
    shown
}

fn hosts(settings: &Settings) -> Result<Vec<Host>, ConninfoError> {
    let list = |name| -> Vec<&str> {
        settings.text(name).map(|text| text.split(',').map(str::trim).collect()).unwrap_or_default()
    };
    let (names, addrs, ports) = (list("host"), list("hostaddr"), list("port"));
    let count = if addrs.is_empty() { names.len().max(1) } else { addrs.len() };
    if !addrs.is_empty() && !names.is_empty() && names.len() != addrs.len() {
        let (names, addrs) = (names.len(), addrs.len());
        let text = format!("{names} hosts and {addrs} values of hostaddr do not match");
        return Err(ConninfoError::Together(text));
    }
    if ports.len() > 1 && ports.len() != count {
        let text = format!("{} ports do not match {count} hosts", ports.len());
        return Err(ConninfoError::Together(text));
    }
    let mut hosts = Vec::with_capacity(count);
    for at in 0..count {
        let port = ports.get(at).or(ports.first().filter(|_| ports.len() == 1));
        let port = match port.filter(|text| !text.is_empty()) {
            None => PORT,
            Some(text) => match text.parse::<u16>() {
                Ok(port) if port > 0 => port,
                Ok(_) | Err(_) => return Err(value(settings, "port", "ports from 1 to 65535")),
            },
        };
        let name = names.get(at).copied().filter(|name| !name.is_empty());
        let addr = addrs.get(at).copied().filter(|addr| !addr.is_empty());
        hosts.push(Host { at: place(name, addr, settings)?, port, password: None });
    }
    Ok(hosts)
}

fn place(name: Option<&str>, addr: Option<&str>, settings: &Settings) -> Result<At, ConninfoError> {
    if let Some(addr) = addr {
        let Ok(addr) = addr.parse() else {
            return Err(value(settings, "hostaddr", "IP addresses"));
        };
        return Ok(At::Tcp { name: name.map(str::to_owned), addr: Some(addr) });
    }
    Ok(match name {
        None => At::Socket(SOCKET_DIRS.iter().map(PathBuf::from).collect()),
        Some(dir) if dir.starts_with('/') => At::Socket(vec![PathBuf::from(dir)]),
        Some(name) if name.starts_with('@') => {
            return Err(value(settings, "host", "no abstract sockets"));
        }
        Some(name) => At::Tcp { name: Some(name.to_owned()), addr: name.parse().ok() },
    })
}

fn value(settings: &Settings, name: &'static str, takes: &'static str) -> ConninfoError {
    settings.get(name).map_or_else(
        || ConninfoError::Together(format!("{name} takes {takes}")),
        |value| refuse(name, value, takes),
    )
}

/// A password that was given is for every host; else each is looked up in the password file.
fn passwords(
    hosts: &mut [Host],
    settings: &Settings,
    here: &Here<'_>,
    (dbname, user): (&str, &str),
    warnings: &mut Vec<String>,
) {
    if let Some(given) = settings.text("password") {
        for host in hosts {
            host.password = Some(Secret::new(given));
        }
        return;
    }
    let path = settings.text("passfile").map(PathBuf::from).or_else(|| here.at_home(".pgpass"));
    let Some(text) = path.and_then(|path| passfile::read(&path, here, warnings)) else { return };
    for host in hosts {
        let name = match &host.at {
            At::Tcp { name: Some(name), .. } => name.clone(),
            At::Tcp { name: None, addr } => addr.map(|addr| addr.to_string()).unwrap_or_default(),
            At::Socket(dirs) => match dirs.first() {
                Some(dir) if dir != Path::new(SOCKET_DIRS[0]) => dir.display().to_string(),
                Some(_) | None => "localhost".into(),
            },
        };
        host.password =
            passfile::find(&text, &Login { host: &name, port: host.port, dbname, user });
    }
}

fn schema(settings: &Settings) -> Result<String, ConninfoError> {
    let Some(given) = settings.given("schema") else { return Ok("ctrlrun".into()) };
    let name = &given.text;
    let odd = name.is_empty()
        || name.len() > 63
        || name.chars().any(char::is_control)
        || name.starts_with("pg_")
        || name == "information_schema";
    if odd {
        return Err(refuse(
            "schema",
            given,
            "a name of 1 to 63 bytes that is not the server's own (pg_..., information_schema)",
        ));
    }
    Ok(name.clone())
}

fn target(settings: &Settings) -> Result<Target, ConninfoError> {
    let Some(value) = settings.get("target_session_attrs") else { return Ok(Target::ReadWrite) };
    Ok(match value.text.as_str() {
        "any" => Target::Any,
        "read-write" => Target::ReadWrite,
        "read-only" => Target::ReadOnly,
        "primary" => Target::Primary,
        "standby" => Target::Standby,
        "prefer-standby" => Target::PreferStandby,
        _ => {
            return Err(refuse(
                "target_session_attrs",
                value,
                "any, read-write, read-only, primary, standby or prefer-standby",
            ));
        }
    })
}

fn keepalives(settings: &Settings) -> Result<Keepalives, ConninfoError> {
    let mut read = BTreeMap::new();
    for name in ["keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"] {
        let number = settings.int(name)?.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        read.insert(name, number);
    }
    let get = |name: &str| read.get(name).copied().flatten();
    Ok(Keepalives {
        on: settings.int("keepalives")? != Some(0),
        idle_s: get("keepalives_idle"),
        interval_s: get("keepalives_interval"),
        count: get("keepalives_count"),
        user_timeout_ms: get("tcp_user_timeout"),
    })
}

impl Conninfo {
    /// The schema as an SQL identifier, quoted.
    #[must_use]
    pub fn quoted_schema(&self) -> String {
        format!("\"{}\"", self.schema.replace('"', "\"\""))
    }

    /// Whether the server's certificate must carry its name.
    #[must_use]
    pub fn verifies_name(&self) -> bool {
        self.tls.mode == SslMode::VerifyFull
    }
}
