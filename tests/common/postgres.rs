//! A real server that a test starts for itself and ends when it is done.
#![expect(dead_code, reason = "each test file uses its own part of it")]
#![expect(clippy::unwrap_used, reason = "a test ends where its stage cannot be set")]
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ctrlrun::store::postgres::connect::connect;
use ctrlrun::store::postgres::conninfo::Conninfo;
use ctrlrun::store::postgres::faultproxy::Upstream;
use ctrlrun::store::postgres::here::{self, Here};
use ctrlrun::store::postgres::link::Link;
use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::statvfs;
use nix::unistd::{Pid, User, geteuid};
use tempfile::TempDir;
use tokio_postgres::SimpleQueryMessage;

/// Longest wait for anything that a server does.
pub const LONG: Duration = Duration::from_secs(30);

/// How a server is to be.
#[derive(Default, Clone)]
pub struct Options {
    /// Settings, `name=value`.
    pub settings: Vec<String>,
    /// Lines of `pg_hba.conf`; without any, everyone on this host is trusted.
    pub hba: Vec<String>,
    /// Certificate and key of the server, and the roots for client certificates; in PEM.
    pub tls: Option<ServerTls>,
    /// It is a standby that follows nobody: it answers reads and refuses writes.
    pub standby: bool,
    /// The addresses it listens on; without any, 127.0.0.1.
    pub listen: Option<String>,
    /// The folder with `postgres` and `initdb`; without one, the newest that is found.
    pub bin: Option<PathBuf>,
}

#[derive(Clone)]
pub struct ServerTls {
    pub cert: String,
    pub key: String,
    pub ca: Option<String>,
}

/// A running server. It is killed when this is dropped, and at the latest when the test ends.
pub struct Server {
    postmaster: Option<Child>,
    keeper: Option<Child>,
    folder: TempDir,
    bin: PathBuf,
    settings: Vec<String>,
    pub port: u16,
}

/// A server with everything as it comes; `None` where there is no Postgres and this is not CI. Then
/// it is said, and the test returns.
pub fn server() -> Option<Server> {
    server_with(&Options::default())
}

/// A server with some things different.
pub fn server_with(options: &Options) -> Option<Server> {
    let able = |bin: &PathBuf| options.tls.is_none() || has_tls(bin);
    let Some(bin) = options.bin.clone().or_else(|| binaries().into_iter().rfind(able)) else {
        unavailable(
            "no PostgreSQL server is installed (looked in PATH, /usr/lib/postgresql/*/bin)",
        );
        return None;
    };
    Some(Server::new(bin, options))
}

/// In CI a test that cannot be made is a failure; elsewhere it says so and is skipped.
pub fn unavailable(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("SKIPPED {name}: {why}");
}

/// Every version that is there, oldest first, as the folders of its programs.
/// `CTRLRUN_TEST_PG_BIN` adds folders, separated by colons.
pub fn binaries() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(added) = std::env::var_os("CTRLRUN_TEST_PG_BIN") {
        folders.extend(std::env::split_paths(&added));
    }
    for version in fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten() {
        folders.push(version.path().join("bin"));
    }
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    let mut found: BTreeMap<u32, PathBuf> = BTreeMap::new();
    for folder in folders {
        // A link in PATH leads to the folder where initdb is too.
        let Ok(program) = fs::canonicalize(folder.join("postgres")) else { continue };
        let Some(folder) = program.parent().filter(|folder| folder.join("initdb").exists()) else {
            continue;
        };
        if let Some(major) = major(&program) {
            found.entry(major).or_insert_with(|| folder.to_owned());
        }
    }
    found.into_values().collect()
}

fn major(program: &Path) -> Option<u32> {
    let said = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    said.split_whitespace().nth(2)?.split('.').next()?.parse().ok()
}

/// Some builds do without.
fn has_tls(bin: &Path) -> bool {
    let program = fs::read(bin.join("postgres")).unwrap_or_default();
    program.windows(9).any(|bytes| bytes == b"libssl.so")
}

/// The server refuses to run as root.
fn owner() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    ["postgres", "nobody"].iter().find_map(|name| {
        let user = User::from_name(name).unwrap()?;
        Some((user.uid.as_raw(), user.gid.as_raw()))
    })
}

/// A command that runs as the server's user.
pub fn as_owner(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    if let Some((uid, gid)) = owner() {
        command.uid(uid).gid(gid);
    }
    command.current_dir("/").env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

/// Gives a file to the server's user.
pub fn hand_over(path: &Path) {
    if let Some((uid, gid)) = owner() {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
}

fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Where servers live: in memory if there is room, since a data folder is a thousand files. The
/// server still syncs; what its crash may lose is what its processes hold, here as on a disk.
fn base() -> PathBuf {
    let room =
        statvfs("/dev/shm").map_or(0, |found| found.blocks_available() * found.fragment_size());
    PathBuf::from(if room > 2 << 30 { "/dev/shm" } else { "/tmp" })
}

/// A folder whose name is short enough for a socket in it.
pub fn folder() -> TempDir {
    let folder = tempfile::Builder::new().prefix("ctrlrun-pg-").tempdir_in(base()).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    hand_over(folder.path());
    folder
}

/// A fresh data folder, made once a version and copied from then on.
fn template(bin: &Path) -> PathBuf {
    let major = major(&bin.join("postgres")).unwrap();
    let place = base().join(format!("ctrlrun-pg-template-{major}-{}", geteuid()));
    if !place.exists() {
        let fresh = folder();
        let data = fresh.path().join("data");
        run(as_owner(bin.join("initdb"))
            .args(["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C"])
            .args(["--wal-segsize=1", "-D"])
            .arg(&data));
        // Of two tests that get here at once, one finds the place taken, by the same thing.
        drop(fs::rename(&data, &place));
    }
    assert!(place.join("PG_VERSION").exists(), "{} is no data folder", place.display());
    place
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

impl Server {
    fn new(bin: PathBuf, options: &Options) -> Self {
        let folder = folder();
        let data = folder.path().join("data");
        run(as_owner("/bin/cp").arg("-a").arg(template(&bin)).arg(&data));
        let write = |name: &str, text: &str, mode: u32| {
            let path = data.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            hand_over(&path);
        };
        let mut settings = options.settings.clone();
        let listen = options.listen.as_deref().unwrap_or("127.0.0.1");
        settings.push(format!("listen_addresses={listen}"));
        if !options.hba.is_empty() {
            write("pg_hba.conf", &(options.hba.join("\n") + "\n"), 0o600);
        }
        if let Some(tls) = &options.tls {
            write("server.crt", &tls.cert, 0o600);
            write("server.key", &tls.key, 0o600);
            settings.push("ssl=on".into());
            if let Some(ca) = &tls.ca {
                write("ca.crt", ca, 0o600);
                settings.push("ssl_ca_file=ca.crt".into());
            }
        }
        if options.standby {
            write("standby.signal", "", 0o600);
        }
        let mut server =
            Self { postmaster: None, keeper: None, folder, bin, settings, port: free_port() };
        server.start();
        server
    }

    /// The first of its processes.
    pub fn pid(&self) -> u32 {
        self.postmaster.as_ref().unwrap().id()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts it again where it was, after [`Server::kill9`] or [`Server::stop`].
    pub fn start(&mut self) {
        assert!(self.postmaster.is_none(), "it runs");
        let log = fs::File::options().append(true).create(true).open(self.log_path()).unwrap();
        let mut command = as_owner(self.bin.join("postgres"));
        command.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string());
        command.arg("-k").arg(self.folder.path());
        // Shared memory in the data folder goes with it, whatever the server's end was.
        let own = [
            "shared_buffers=16MB",
            "dynamic_shared_memory_type=mmap",
            "recovery_init_sync_method=syncfs",
        ];
        for setting in own {
            command.arg("-c").arg(setting);
        }
        for setting in &self.settings {
            command.arg("-c").arg(setting);
        }
        command.process_group(0).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        self.keep(child.id());
        self.postmaster = Some(child);
        self.wait_until_ready();
    }

    /// Ends the server when this process ends in a way that drops nothing.
    fn keep(&mut self, postmaster: u32) {
        let script = format!(
            "trap '' INT HUP TERM; read -r never; kill -9 {postmaster}; \
             while kill -0 {postmaster} 2>&-; do sleep 0.1; done; sleep 1; \
             segment=$(sed -n '7s/.* //p' '{0}/data/postmaster.pid'); \
             [ -z \"$segment\" ] || ipcrm -m \"$segment\"; rm -rf '{0}'",
            self.folder.path().display()
        );
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script).process_group(0).stdin(Stdio::piped());
        self.keeper = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }

    fn wait_until_ready(&mut self) {
        let until = Instant::now() + LONG;
        let info = self.info_at_socket();
        loop {
            if connect(&info, &here::read, LONG).is_ok() {
                return;
            }
            let ended = self.postmaster.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "not ready:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn info_at_socket(&self) -> Conninfo {
        let dir = self.folder.path().display().to_string().replace('/', "%2F");
        let port = self.port;
        info(&format!(
            "postgres://postgres@/postgres?host={dir}&port={port}&target_session_attrs=any"
        ))
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// What the server wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The folder of its socket.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The same for a proxy.
    pub fn upstream(&self) -> Upstream {
        Upstream::Tcp(self.addr())
    }

    /// The superuser's URL of a database, over TCP in the clear.
    pub fn url(&self, dbname: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{dbname}?sslmode=disable", self.port)
    }

    /// Runs statements as the superuser, in the database `postgres`, over the socket.
    pub fn sql(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.sql_in("postgres", sql)
    }

    /// The same in another database. The rows of all statements.
    pub fn sql_in(&self, dbname: &str, sql: &str) -> Vec<Vec<Option<String>>> {
        let info = Conninfo { dbname: dbname.into(), ..self.info_at_socket() };
        let link = connect(&info, &here::read, LONG).unwrap();
        rows(&link, sql)
    }

    /// Waits until `sql` returns one row with `true`.
    pub fn wait_for(&self, sql: &str) {
        let until = Instant::now() + LONG;
        while self.sql(sql) != [[Some("t".to_owned())]] {
            assert!(Instant::now() < until, "never true: {sql}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The processes of the server but the first. They are in sessions of their own.
    fn children(&self) -> Vec<i32> {
        let Some(postmaster) = &self.postmaster else { return Vec::new() };
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            if stat(pid).is_some_and(|(_, parent)| parent == postmaster.id()) {
                found.push(pid);
            }
        }
        found
    }

    /// SIGKILL for every process of the server, as a crash of the machine would have it but for
    /// the caches of the file system.
    pub fn kill9(&mut self) {
        let postmaster =
            Pid::from_raw(i32::try_from(self.postmaster.as_ref().unwrap().id()).unwrap());
        // Stopped first, so that it has no time to tell the others or to start new ones.
        let _ended = kill(postmaster, Signal::SIGSTOP);
        let children = self.children();
        for pid in &children {
            // It may have ended just now.
            let _ended = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        let _ended = kill(postmaster, Signal::SIGKILL);
        self.gone(&children);
    }

    /// Ends it at once, with notice to its clients.
    pub fn stop(&mut self) {
        let children = self.children();
        let postmaster = self.postmaster.as_ref().unwrap().id();
        kill(Pid::from_raw(i32::try_from(postmaster).unwrap()), Signal::SIGINT).unwrap();
        self.gone(&children);
    }

    fn gone(&mut self, children: &[i32]) {
        self.postmaster.take().unwrap().wait().unwrap();
        if let Some(mut keeper) = self.keeper.take() {
            keeper.kill().unwrap();
            keeper.wait().unwrap();
        }
        let until = Instant::now() + LONG;
        // A process that nobody reaped yet holds nothing any more.
        while children.iter().any(|pid| stat(*pid).is_some_and(|(state, _)| state != 'Z')) {
            assert!(Instant::now() < until, "a process of the server does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// SIGKILL, and up again, with recovery.
    pub fn restart_after_kill9(&mut self) {
        self.kill9();
        self.start();
    }
}

/// State and parent of a process.
fn stat(pid: i32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut postmaster) = self.postmaster.take() {
            // An immediate shutdown: nothing is saved, and the system's shared memory is given back.
            let pid = Pid::from_raw(i32::try_from(postmaster.id()).unwrap_or(i32::MAX));
            let _ended = kill(pid, Signal::SIGQUIT);
            let until = Instant::now() + LONG;
            while matches!(postmaster.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            drop((postmaster.kill(), postmaster.wait()));
        }
        if let Some(mut keeper) = self.keeper.take() {
            drop((keeper.kill(), keeper.wait()));
        }
        // A server that was killed left it behind: the last number of line 7.
        let pid_file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let segment = pid_file.lines().nth(6).and_then(|line| line.split_whitespace().last());
        if let Some(segment) = segment {
            drop(Command::new("ipcrm").args(["-m", segment]).stderr(Stdio::null()).status());
        }
    }
}

/// A URL read in an empty environment.
pub fn info(url: &str) -> Conninfo {
    Conninfo::parse(url, &nowhere()).unwrap()
}

/// No environment, no user; files are those of the file system.
pub fn nowhere() -> Here<'static> {
    let (env, unreadable) = (BTreeMap::new(), Vec::new());
    Here { env, unreadable, account: &|| None, files: &here::read }
}

/// A connection by a URL.
pub fn link(url: &str) -> Link {
    connect(&info(url), &here::read, LONG).unwrap()
}

/// The rows of all statements.
pub fn rows(link: &Link, sql: &str) -> Vec<Vec<Option<String>>> {
    let answer = link.run(LONG, async |client| client.simple_query(sql).await).unwrap();
    let mut rows = Vec::new();
    for message in answer {
        if let SimpleQueryMessage::Row(row) = message {
            rows.push((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect());
        }
    }
    rows
}
