//! A real PgBouncer in transaction mode, in front of a test's server.
#![expect(clippy::unwrap_used, reason = "a test ends where its stage cannot be set")]
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ctrlrun::store::postgres::connect::connect;
use ctrlrun::store::postgres::here;
use tempfile::TempDir;

use super::postgres::{LONG, Server, as_owner, folder, free_port, hand_over, info, unavailable};

/// A running pooler; it is killed when this is dropped.
pub struct PgBouncer {
    child: Child,
    folder: TempDir,
    pub port: u16,
}

impl PgBouncer {
    /// A pooler with this many server connections per database; `None` where there is no PgBouncer
    /// and this is not CI.
    pub fn start(server: &Server, pool: u32) -> Option<Self> {
        let places = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];
        let Some(program) = places.iter().map(PathBuf::from).find(|path| path.exists()) else {
            unavailable("PgBouncer is not installed (Debian: apt-get install pgbouncer)");
            return None;
        };
        let folder = folder();
        let port = free_port();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            hand_over(&path);
            path
        };
        let users = write("users.txt", "\"postgres\" \"\"\n");
        let dir = folder.path().display();
        let text = format!(
            "[databases]\n* = host={} port={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir = {dir}\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {pool}\nmax_client_conn = 200\n",
            server.socket_folder().display(),
            server.port,
            users.display(),
        );
        let settings = write("pgbouncer.ini", &text);
        let child = spawn(&program, &settings, &folder.path().join("log"));
        let mut pooler = Self { child, folder, port };
        pooler.wait_until_ready();
        Some(pooler)
    }

    /// The superuser's URL of a database, through the pooler.
    pub fn url(&self, dbname: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{dbname}?sslmode=disable", self.port)
    }

    /// What it wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn wait_until_ready(&mut self) {
        let until = Instant::now() + LONG;
        let info = info(&self.url("postgres"));
        while let Err(error) = connect(&info, &here::read, LONG) {
            let ended = self.child.try_wait().unwrap();
            let wait = ended.is_none() && Instant::now() < until;
            assert!(wait, "not ready: {error}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn spawn(program: &Path, settings: &Path, log: &Path) -> Child {
    let log = fs::File::create(log).unwrap();
    let mut command = as_owner(program);
    command.arg(settings).process_group(0).stdout(Stdio::null()).stderr(log);
    command.spawn().unwrap()
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
