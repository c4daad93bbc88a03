//! Stores on a real server, and runs of the binary on them.
#![allow(dead_code, reason = "each test file uses its own part of it")]
#![expect(clippy::unwrap_used, reason = "a test ends where its stage cannot be set")]
use std::cell::Cell;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctrlrun::store::postgres::faultproxy::{Act, Event, Proxy, Rule, What, When, Which};
use ctrlrun::store::{CouldNot, Location, Mode, Opened, Options, Store, open};

use super::postgres::{LONG, Server, server};
use super::{Output, TestEnv};

/// Opens the store at a URL.
pub fn open_url(url: &str, mode: Mode) -> Result<Opened, CouldNot> {
    open(&Location::parse(url).unwrap(), &Options::new(mode, LONG))
}

/// The store at a URL, made if it is not there.
pub fn store_at(url: &str) -> Arc<dyn Store> {
    open_url(url, Mode::Create).unwrap().store.into()
}

/// A server with a store, a proxy in front of it, and a place to run the binary in.
pub struct Stage {
    pub server: Server,
    pub proxy: Proxy,
    pub env: TestEnv,
    rules: Cell<usize>,
}

impl Stage {
    pub fn new() -> Option<Self> {
        let server = server()?;
        drop(store_at(&server.url("postgres")));
        let proxy = Proxy::start(server.upstream()).unwrap();
        Some(Self { server, proxy, env: TestEnv::new(), rules: Cell::new(0) })
    }

    /// A fault on purpose.
    pub fn on(&self, connection: Which, when: When, act: Act) {
        self.add(connection, when, act);
    }

    /// The same; its number, to wait for it.
    pub fn add(&self, connection: Which, when: When, act: Act) -> usize {
        self.proxy.on(Rule { connection, when, act });
        self.rules.replace(self.rules.get() + 1)
    }

    /// Every transaction through the proxy begins with another isolation level. Rules that came
    /// before win.
    pub fn isolate(&self, level: &str) {
        if level != "READ COMMITTED" {
            let act = Act::Rewrite { from: "READ COMMITTED".into(), to: level.into() };
            self.on(Which::Any, When::Begin(0), act);
        }
    }

    /// The store's URL through the proxy.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres?sslmode=disable", self.proxy.addr)
    }

    /// `ctrlrun run` of a command that marks its execution, on the store behind the proxy.
    pub fn run(&self, key: &str, more: &[&str], script: &str) -> Output {
        super::finish(&mut self.command(key, more, script))
    }

    /// The same, not started yet.
    pub fn command(&self, key: &str, more: &[&str], script: &str) -> Command {
        let mut arguments = vec!["run", "--key", key];
        arguments.extend(more);
        arguments.extend(["--", "sh", "-c", script]);
        let mut command = self.env.command(arguments);
        command.env("CTRLRUN_STORE", self.url());
        command
    }

    /// The same, started.
    pub fn start(&self, key: &str, more: &[&str], script: &str) -> Child {
        let mut command = self.command(key, more, script);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// How often the command ran.
    pub fn marks(&self) -> usize {
        std::fs::read_to_string(self.env.path("here/marker")).unwrap_or_default().lines().count()
    }

    /// One column of the key's row, as text; empty where there is none.
    pub fn column(&self, key: &str, column: &str) -> String {
        let sql = format!("SELECT {column} FROM ctrlrun.effects WHERE effect_key = '{key}'");
        self.server.sql(&sql).first().and_then(|row| row[0].clone()).unwrap_or_default()
    }

    /// The kinds of the key's events, in order.
    pub fn events(&self, key: &str) -> Vec<String> {
        let sql = format!(
            "SELECT type FROM ctrlrun.history WHERE effect_key = '{key}' ORDER BY revision"
        );
        self.server.sql(&sql).into_iter().map(|row| row[0].clone().unwrap()).collect()
    }

    /// Every statement that went by.
    pub fn statements(&self) -> Vec<String> {
        statements(&self.proxy.seen())
    }
}

/// The statements among what a proxy saw.
pub fn statements(seen: &[Event]) -> Vec<String> {
    let text = |event: &Event| match &event.what {
        What::Statement(text) => Some(text.clone()),
        _ => None,
    };
    seen.iter().filter_map(text).collect()
}

/// Waits until it is so.
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A command that leaves a line for each execution.
pub const MARK: &str = "echo x >>marker";

/// Lets a drawn length of time pass, so that a fault falls somewhere: nothing is waited for, and
/// nothing is claimed of where it falls.
pub fn let_pass(millis: u64) {
    std::thread::sleep(std::time::Duration::from_millis(millis));
}
