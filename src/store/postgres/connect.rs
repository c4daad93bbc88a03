//! Making a connection: the hosts in their order, each within its share of the time, until one is
//! what `target_session_attrs` asks for (CON-6).
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};
use rustix::net::sockopt;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;
use tokio::time::timeout;
use tokio_postgres::config::{self, Config, SslNegotiation};
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::{Client, Connection, SimpleQueryMessage};

use super::conninfo::{At, ChannelBinding, Conninfo, Host, Keepalives, Target};
use super::here::Files;
use super::line::{Line, Wire};
use super::link::{Fate, Link, Parts, Server, plain};
use super::refusal::{explained, is_final, other_encryption_may_help, refused, unreachable_by};
use super::tls::SslMode;

pub use super::refusal::{ConnectError, Kind, Try, Why};

use super::{certificate, params::ConninfoError};

/// Connects, within `within` and the connection string's own `connect_timeout` per host.
///
/// # Errors
/// What every host said.
pub fn connect(info: &Conninfo, files: &Files<'_>, within: Duration) -> Result<Link, ConnectError> {
    let mut tries = Vec::new();
    let runtime = match Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let why = Why::Odd(format!("no runtime: {error}"));
            return Err(ConnectError { tries: vec![Try { host: "this host".into(), why }] });
        }
    };
    let until = Instant::now() + within;
    let made = runtime.block_on(async {
        // The second round takes any server, where a standby is only preferred.
        let rounds: &[Target] = match info.target {
            Target::PreferStandby => &[Target::Standby, Target::Any],
            Target::Any
            | Target::ReadWrite
            | Target::ReadOnly
            | Target::Primary
            | Target::Standby => &[info.target],
        };
        for (round, target) in rounds.iter().enumerate() {
            for (at, host) in info.hosts.iter().enumerate() {
                let left = (rounds.len() - round - 1) * info.hosts.len() + info.hosts.len() - at;
                let one = Candidate { info, host, files, target: *target };
                match one.connect(until, left, &mut tries).await {
                    Go::On => {}
                    Go::Stop => return None,
                    Go::Made(parts, name) => return Some((parts, name)),
                }
            }
        }
        None
    });
    match made {
        Some((parts, host)) => Ok(Link::new(runtime, *parts, host)),
        None => {
            runtime.shutdown_background();
            Err(ConnectError { tries })
        }
    }
}

enum Go {
    On,
    Stop,
    Made(Box<Parts>, String),
}

struct Candidate<'a> {
    info: &'a Conninfo,
    host: &'a Host,
    files: &'a Files<'a>,
    target: Target,
}

enum Address {
    Tcp(SocketAddr),
    Socket(PathBuf),
}

impl Candidate<'_> {
    async fn connect(&self, until: Instant, hosts_left: usize, tries: &mut Vec<Try>) -> Go {
        // A host that swallows packets must not take the time of those behind it.
        let share = |of: usize| {
            let left = until.saturating_duration_since(Instant::now());
            left / u32::try_from(of.max(1)).unwrap_or(u32::MAX)
        };
        let bounded = |time: Duration| self.info.connect_timeout.map_or(time, |own| own.min(time));
        let fail = |why| Try { host: self.host.to_string(), why };
        let time = bounded(share(hosts_left));
        let addresses = match timeout(time, self.addresses()).await {
            Ok(Ok(addresses)) => addresses,
            Ok(Err(why)) => {
                tries.push(fail(why));
                return Go::On;
            }
            Err(_) => {
                tries.push(fail(Why::Deadline(time)));
                return Go::On;
            }
        };
        for (at, address) in addresses.iter().enumerate() {
            let time = bounded(share(hosts_left - 1 + addresses.len() - at));
            let end = Instant::now() + time;
            let mut encryptions = self.encryptions(address).into_iter().peekable();
            while let Some(encryption) = encryptions.next() {
                let left = end.saturating_duration_since(Instant::now());
                let made = timeout(left, self.start(address, encryption)).await;
                let why = match made {
                    Ok(Ok(parts)) => return Go::Made(Box::new(parts), self.shown(address)),
                    Ok(Err(why)) => why,
                    Err(_) => Why::Deadline(time),
                };
                let again = encryptions.peek().is_some() && other_encryption_may_help(&why);
                let stop = is_final(&why);
                tries.push(Try { host: self.shown(address), why });
                if again {
                    continue;
                }
                if stop {
                    return Go::Stop;
                }
                break;
            }
        }
        Go::On
    }

    fn shown(&self, address: &Address) -> String {
        let host = self.host.to_string();
        match address {
            Address::Tcp(address) if !host.contains(&address.ip().to_string()) => {
                format!("{host} ({})", address.ip())
            }
            Address::Tcp(_) => host,
            Address::Socket(path) => path.display().to_string(),
        }
    }

    async fn addresses(&self) -> Result<Vec<Address>, Why> {
        match &self.host.at {
            At::Tcp { addr: Some(addr), .. } => {
                Ok(vec![Address::Tcp(SocketAddr::new(*addr, self.host.port))])
            }
            At::Tcp { name, addr: None } => {
                let name = name.as_deref().unwrap_or_default();
                let found = tokio::net::lookup_host((name, self.host.port)).await;
                let found = found.map_err(|error| {
                    Why::Unreachable(format!("the name cannot be looked up: {error}"))
                })?;
                Ok(found.map(Address::Tcp).collect())
            }
            At::Socket(dirs) => {
                let sockets =
                    dirs.iter().map(|dir| dir.join(format!(".s.PGSQL.{}", self.host.port)));
                let mut there: Vec<PathBuf> =
                    sockets.clone().filter(|path| path.exists()).collect();
                there.truncate(1);
                if there.is_empty() {
                    // The error of the connection says best what is missing.
                    there.extend(sockets.take(1));
                }
                Ok(there.into_iter().map(Address::Socket).collect())
            }
        }
    }

    fn encryptions(&self, address: &Address) -> Vec<Encryption> {
        if matches!(address, Address::Socket(_)) {
            return vec![Encryption::None];
        }
        match self.info.tls.mode {
            SslMode::Disable => vec![Encryption::None],
            SslMode::Allow => vec![Encryption::None, Encryption::Must],
            SslMode::Prefer => vec![Encryption::IfOffered, Encryption::None],
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => vec![Encryption::Must],
        }
    }

    /// One connection by one way, up to a server that fits.
    async fn start(&self, address: &Address, encryption: Encryption) -> Result<Parts, Why> {
        let (wire, end_point) = match address {
            Address::Socket(path) => (self.socket(path).await?, None),
            Address::Tcp(address) => self.tcp(*address, encryption).await?,
        };
        let (line, tap) = Line::new(wire, end_point);
        // TLS is made already, or is not wanted. The driver is told that it is, since only then it
        // asks the stream what SCRAM can be bound to.
        let made = self.config().connect_raw(tokio::io::empty(), Ready(line)).await;
        let (client, connection) = made.map_err(|error| refused(&error))?;
        let server = introduced(&connection);
        let fate: Fate = Arc::default();
        let told = Arc::clone(&fate);
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(plain(&error));
            }
        });
        let server = self.fits(&client, server).await?;
        Ok(Parts { client, task, tap, fate, server })
    }

    fn config(&self) -> Config {
        let mut config = Config::new();
        config
            .user(&self.info.user)
            .dbname(&self.info.dbname)
            .application_name(&self.info.application_name)
            .ssl_mode(config::SslMode::Require)
            .ssl_negotiation(SslNegotiation::Direct)
            .channel_binding(match self.info.channel_binding {
                ChannelBinding::Disable => config::ChannelBinding::Disable,
                ChannelBinding::Prefer => config::ChannelBinding::Prefer,
                ChannelBinding::Require => config::ChannelBinding::Require,
            });
        if let Some(password) = &self.host.password {
            config.password(password.reveal());
        }
        if let Some(options) = &self.info.options {
            config.options(options);
        }
        config
    }

    async fn socket(&self, path: &PathBuf) -> Result<Wire, Why> {
        let stream = UnixStream::connect(path).await.map_err(|error| unreachable_by(&error))?;
        if let Some(wanted) = &self.info.requirepeer {
            let peer = stream.peer_cred().map_err(|error| unreachable_by(&error))?;
            let owner = User::from_uid(Uid::from_raw(peer.uid())).ok().flatten();
            if owner.is_none_or(|owner| owner.name != *wanted) {
                let text = format!("requirepeer is \"{wanted}\", and another user runs the server");
                return Err(Why::Settings(ConninfoError::Together(text)));
            }
        }
        Ok(Wire::Unix(stream))
    }

    async fn tcp(
        &self,
        address: SocketAddr,
        encryption: Encryption,
    ) -> Result<(Wire, Option<Vec<u8>>), Why> {
        let mut stream =
            TcpStream::connect(address).await.map_err(|error| unreachable_by(&error))?;
        tune(&stream, &self.info.keepalives).map_err(|error| unreachable_by(&error.into()))?;
        if encryption == Encryption::None {
            return Ok((Wire::Tcp(stream), None));
        }
        if !self.info.tls.direct && !asks_for_tls(&mut stream).await? {
            return match encryption {
                Encryption::Must => {
                    Err(Why::Tls("the server does not do TLS, and sslmode asks for it".into()))
                }
                Encryption::IfOffered | Encryption::None => Ok((Wire::Tcp(stream), None)),
            };
        }
        let (tls, name) = self.tls()?;
        let made = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
        let made = made.map_err(|error| Why::Tls(explained(&error)))?;
        let (_, session) = made.get_ref();
        if self.info.tls.direct && session.alpn_protocol() != Some(b"postgresql") {
            return Err(Why::Tls("the server does not take TLS from the first byte".into()));
        }
        let end_point = session
            .peer_certificates()
            .and_then(|chain| chain.first())
            .and_then(certificate::end_point);
        Ok((Wire::Tls(Box::new(made)), end_point))
    }

    fn tls(&self) -> Result<(ClientConfig, ServerName<'static>), Why> {
        let At::Tcp { name, addr } = &self.host.at else {
            return Err(Why::Tls("a unix socket has none".into()));
        };
        let name = name.as_deref().unwrap_or_default();
        if name.is_empty() && self.info.verifies_name() {
            let text = "sslmode=verify-full needs a host name, hostaddr alone is not enough";
            return Err(Why::Settings(ConninfoError::Together(text.into())));
        }
        let mut tls = self.info.tls.client(self.files, name).map_err(Why::Settings)?;
        let shown = ServerName::try_from(name.to_owned()).unwrap_or_else(|_| {
            // A name that no certificate can carry; the verifier judges by `name`, not by this.
            tls.enable_sni = false;
            let addr = addr.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
            ServerName::IpAddress(addr.into())
        });
        Ok((tls, shown))
    }

    /// Whether the server is what was asked for, and what is now known of it.
    async fn fits(&self, client: &Client, mut server: Server) -> Result<Server, Why> {
        if self.target == Target::Any {
            return Ok(server);
        }
        if server.standby.is_none() || server.read_only.is_none() {
            // Servers before version 14, and others that speak the protocol, have to be asked.
            (server.standby, server.read_only) = ask(client).await?;
        }
        let (standby, read_only) = (server.standby == Some(true), server.read_only == Some(true));
        let unfit = match self.target {
            Target::ReadWrite => {
                (standby || read_only).then_some(if standby { "a standby" } else { "read-only" })
            }
            Target::ReadOnly => (!standby && !read_only).then_some("open for writes"),
            Target::Primary => standby.then_some("a standby"),
            Target::Standby => (!standby).then_some("no standby"),
            Target::Any | Target::PreferStandby => None,
        };
        match unfit {
            Some(found) => Err(Why::Unfit { wanted: self.info.target, found }),
            None => Ok(server),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    None,
    IfOffered,
    Must,
}

/// A stream on which all that TLS needs has been done.
struct Ready(Line);

impl<S> TlsConnect<S> for Ready {
    type Stream = Line;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Line, Self::Error>>;

    fn connect(self, _none: S) -> Self::Future {
        std::future::ready(Ok(self.0))
    }
}

async fn asks_for_tls(stream: &mut TcpStream) -> Result<bool, Why> {
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    stream.write_all(&SSL_REQUEST).await.map_err(|error| unreachable_by(&error))?;
    // One byte and no more: what a stranger may have put behind it in the clear would be taken for
    // part of the session. The handshake then fails on it.
    match stream.read_u8().await.map_err(|error| unreachable_by(&error))? {
        b'S' => Ok(true),
        b'N' => Ok(false),
        _other => Err(Why::Tls("what answers is no Postgres server".into())),
    }
}

fn introduced<T>(connection: &Connection<tokio::io::Empty, T>) -> Server
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let said = |name| connection.parameter(name);
    Server {
        version: said("server_version").map(str::to_owned),
        encoding: said("server_encoding").map(str::to_owned),
        standby: said("in_hot_standby").map(|is| is == "on"),
        read_only: said("default_transaction_read_only").map(|is| is == "on"),
    }
}

async fn ask(client: &Client) -> Result<(Option<bool>, Option<bool>), Why> {
    const ASK: &str = "SELECT pg_catalog.pg_is_in_recovery(), \
                       pg_catalog.current_setting('transaction_read_only')::boolean";
    let answer = client.simple_query(ASK).await.map_err(|error| refused(&error))?;
    for message in answer {
        if let SimpleQueryMessage::Row(row) = message {
            let is = |at| row.try_get(at).ok().flatten().map(|is: &str| is == "t");
            return Ok((is(0), is(1)));
        }
    }
    Err(Why::Odd("the server does not say whether it is a standby".into()))
}

fn tune(stream: &TcpStream, keepalives: &Keepalives) -> rustix::io::Result<()> {
    let seconds = |s: u32| Duration::from_secs(u64::from(s));
    stream.set_nodelay(true).map_err(|_| rustix::io::Errno::INVAL)?;
    if !keepalives.on {
        return Ok(());
    }
    sockopt::set_socket_keepalive(stream, true)?;
    if let Some(idle) = keepalives.idle_s {
        sockopt::set_tcp_keepidle(stream, seconds(idle))?;
    }
    if let Some(interval) = keepalives.interval_s {
        sockopt::set_tcp_keepintvl(stream, seconds(interval))?;
    }
    if let Some(count) = keepalives.count {
        sockopt::set_tcp_keepcnt(stream, count)?;
    }
    if let Some(timeout) = keepalives.user_timeout_ms {
        sockopt::set_tcp_user_timeout(stream, timeout)?;
    }
    Ok(())
}
