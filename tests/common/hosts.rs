//! Two hosts and one server: two network namespaces with addresses of their own, a link each to where
//! the server is.
//!
//! A namespace lives as long as the process that holds it, and its link with it: whatever ends the
//! test, nothing is left.
#![allow(dead_code, reason = "each test file uses some of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]
use std::fs;
use std::io;
use std::process::{Child, Command, Stdio};

use ctrlrun::store::Mode;

use super::TestEnv;
use super::pgstore::open_url;
use super::postgres::{Options, Server, server_with};

/// A host: a network namespace, and the process that holds it.
pub struct Host {
    holder: Child,
    /// Its link, as it is named on our side.
    link: String,
}

impl Host {
    /// A host that reaches us at `198.19.NET.1` and is `198.19.NET.2` itself.
    fn new(net: u8) -> io::Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo; read -r never"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = command.spawn()?;
        // It is in its namespace once it speaks.
        let spoken = io::Read::read(holder.stdout.as_mut().unwrap(), &mut [0])?;
        let mut host = Self { holder, link: String::new() };
        if spoken == 0 {
            return Err(io::Error::other("unshare --net is not permitted"));
        }
        let pid = host.holder.id().to_string();
        let link = format!("ctrlrun{net}");
        let (ours, theirs) = (format!("198.19.{net}.1/24"), format!("198.19.{net}.2/24"));
        let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        done(&mut ip(&words(format!("link add {link} type veth peer name eth netns {pid}"))))?;
        // Only now is it ours to be taken away.
        host.link.clone_from(&link);
        done(&mut ip(&words(format!("addr add {ours} dev {link}"))))?;
        done(&mut ip(&words(format!("link set {link} up"))))?;
        done(&mut host.inside(&mut ip(&words(format!("addr add {theirs} dev eth")))))?;
        done(&mut host.inside(&mut ip(&words("link set eth up".to_owned()))))?;
        Ok(host)
    }

    /// Two of them, at addresses that no other test has at this time, of whatever process: the names of
    /// the links are taken by one at a time.
    fn two() -> io::Result<([u8; 2], [Self; 2])> {
        let mut taken = io::Error::other("no addresses");
        for nth in 0..120 {
            let first = u8::try_from(2 * ((std::process::id() + nth) % 120)).unwrap();
            let nets = [first, first + 1];
            match (Self::new(nets[0]), Self::new(nets[1])) {
                (Ok(one), Ok(two)) => return Ok((nets, [one, two])),
                (Err(error), _) | (_, Err(error)) if error.to_string().contains("exists") => {
                    taken = error;
                }
                (Err(error), _) | (_, Err(error)) => return Err(error),
            }
        }
        Err(taken)
    }

    /// The same command on this host.
    pub fn inside(&self, command: &mut Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg("--net").arg(format!("--target={}", self.holder.id())).arg("--");
        inside.arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            inside.current_dir(folder).env_clear();
            for (name, value) in command.get_envs() {
                inside.env(name, value.unwrap());
            }
        }
        inside.stdin(Stdio::null());
        inside
    }

    /// Its own link goes down, or comes up again.
    pub fn set_link(&self, state: &str) {
        let words = ["link", "set", "eth", state].map(str::to_owned);
        done(&mut self.inside(&mut ip(&words))).unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The namespace ends with its last process, and takes the link along.
        drop((self.holder.kill(), self.holder.wait()));
        if self.link.is_empty() {
            return;
        }
        drop(ip(&["link", "del", &self.link].map(str::to_owned)).stderr(Stdio::null()).status());
    }
}

/// `ip` with these words.
pub fn ip(words: &[String]) -> Command {
    let mut command = Command::new("ip");
    command.args(words).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    command
}

/// Runs it, and is content with nothing but success.
pub fn done(command: &mut Command) -> io::Result<()> {
    let out = command.output()?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    if out.status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("{command:?}: {said}")))
    }
}

/// Two hosts, the server, and the folder that stands for what the commands bring about.
pub struct Hosts {
    pub server: Server,
    pub hosts: [Host; 2],
    pub nets: [u8; 2],
    pub env: TestEnv,
}

impl Hosts {
    /// `None` where no namespaces can be made: then the test has shown nothing, and says so.
    pub fn new() -> Option<Self> {
        let (nets, hosts) = match Host::two() {
            Ok(two) => two,
            Err(error) => {
                eprintln!("INCONCLUSIVE: two hosts cannot be built here: {error}");
                let may = Command::new("unshare").args(["--net", "true"]).status();
                let may = may.is_ok_and(|status| status.success());
                let ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
                assert!(!(ci && may), "network namespaces are permitted here: {error}");
                return None;
            }
        };
        let server = server_with(&Options {
            listen: Some("*".to_owned()),
            hba: [
                "local all all trust",
                "host all all 127.0.0.1/32 trust",
                "host all all 198.19.0.0/16 trust",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..Options::default()
        })?;
        // Stop points work in it (STO-12).
        drop(open_url(&server.url("postgres"), Mode::Scratch).unwrap());
        Some(Self { server, hosts, nets, env: TestEnv::new() })
    }

    /// `ctrlrun` on a host, with a home of that host's own.
    pub fn on(&self, host: usize, words: &[&str]) -> Command {
        let url = format!(
            "postgres://postgres@198.19.{}.1:{}/postgres?sslmode=disable",
            self.nets[host], self.server.port
        );
        let home = self.env.path(&format!("home/{host}"));
        fs::create_dir_all(&home).unwrap();
        let mut command = self.env.command(words);
        command.env("CTRLRUN_STORE", url).env("HOME", home);
        self.hosts[host].inside(&mut command)
    }
}
