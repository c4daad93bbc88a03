//! What the tests of the whole binary share: a store of each kind, the marker that is the oracle,
//! and processes that are started, stopped, signalled and killed.
//!
//! The marker is a file to which a command appends one line per execution, in one write: whatever
//! the tool says of itself, the number of its lines is how often the effect came about.
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{BINARY, Output, TestEnv, finish};

#[path = "kinds.rs"]
mod kinds;
pub(crate) use kinds::on_every_store;
pub use kinds::{Home, Kind};

/// No condition takes longer, on however busy a machine.
pub const BOUND: Duration = Duration::from_secs(60);

/// A line of a script: the effect comes about. One line, one `O_APPEND` write: the attempt's number.
pub const MARK: &str = r#"echo "$CTRLRUN_ATTEMPT" >>"$PLACE/marker"; "#;

/// A line of a script: waits until the test says go, or its place is gone.
pub const HOLD: &str = r#"while [ -d "$PLACE" ] && [ ! -e "$PLACE/go" ]; do sleep 0.02; done; "#;

/// A place of its own with a named store in it.
pub struct Place {
    /// The surroundings of every process.
    pub env: TestEnv,
    /// Where its store is.
    pub home: Home,
    store: String,
    started: Cell<u32>,
}

impl Place {
    /// A place with a new store.
    pub fn new(kind: Kind) -> Self {
        let env = TestEnv::new();
        Self::with(Home::new(kind, &env), env, &[])
    }

    /// A place whose store carries the mark of a scratch store, in which stop points work (STO-12).
    pub fn scratch(kind: Kind) -> Self {
        let env = TestEnv::new();
        Self::with(Home::new(kind, &env), env, &["--scratch"])
    }

    /// A scratch store in something of its own, so that it can be restarted.
    pub fn apart(kind: Kind) -> Self {
        let env = TestEnv::new();
        Self::with(Home::own(kind, &env), env, &["--scratch"])
    }

    fn with(home: Home, env: TestEnv, flags: &[&str]) -> Self {
        let place = Self { env, store: home.store(), home, started: Cell::new(0) };
        let made = finish(place.ctrlrun(&["init"]).args(flags));
        assert_eq!(made.code, Some(0), "{made:?}");
        place
    }

    /// What `--store` takes.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// The file of an embedded store.
    pub fn file(&self) -> PathBuf {
        self.home.file()
    }

    /// Where the spool is, unless a test says otherwise.
    pub fn spool(&self) -> PathBuf {
        self.env.path("home/.local/state/ctrlrun/spool")
    }

    /// The outcomes that wait in `dir`.
    pub fn spooled(&self, dir: &Path) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = fs::read_dir(dir)
            .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
            .unwrap_or_default();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        files
    }

    /// Any command on this store.
    pub fn ctrlrun<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = self.env.command(arguments);
        command.arg("--store").arg(&self.store);
        self.dress(&mut command);
        command
    }

    /// `ctrlrun run -k KEY FLAGS -- sh -c SCRIPT`, to be changed and started by the caller.
    pub fn run(&self, key: &str, flags: &[&str], script: &str) -> Command {
        self.run_words(key, flags, &["sh", "-c", script])
    }

    /// `ctrlrun run -k KEY FLAGS -- WORDS`.
    pub fn run_words(&self, key: &str, flags: &[&str], words: &[&str]) -> Command {
        let mut command = self.env.command(["run", "--store", &self.store, "-k", key]);
        command.args(flags).arg("--").args(words);
        self.dress(&mut command);
        command
    }

    fn dress(&self, command: &mut Command) {
        command.env("PLACE", self.env.path("")).env("CTRLRUN", BINARY);
    }

    /// Starts it; what it prints goes to files, so that it is never held up.
    pub fn start(&self, command: &mut Command) -> Running {
        let number = self.started.replace(self.started.get() + 1);
        let out = self.env.path(&format!("out-{number}"));
        let err = self.env.path(&format!("err-{number}"));
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        Running { child: command.spawn().unwrap(), out, err }
    }

    /// Starts a run that marks and then holds until [`Place::go`]; returns when it has marked.
    pub fn holder(&self, key: &str, flags: &[&str]) -> Running {
        let before = self.marks();
        let running = self.start(&mut self.run(key, flags, &[MARK, HOLD].concat()));
        until("the holder has marked", || self.marks() > before);
        running
    }

    /// Lets every script that holds go on.
    pub fn go(&self) {
        File::create(self.env.path("go")).unwrap();
    }

    /// How often the effect came about.
    pub fn marks(&self) -> usize {
        self.marked().len()
    }

    /// The lines of the marker: the numbers of the attempts that came about.
    pub fn marked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.env.path("marker")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// Runs a look or a decision to its end.
    pub fn ask(&self, arguments: &[&str]) -> Output {
        finish(&mut self.ctrlrun(arguments))
    }

    /// `ctrlrun show KEY --json`; null where there is no such effect.
    pub fn show(&self, key: &str) -> Value {
        let shown = self.ask(&["show", key, "--json"]);
        match shown.code {
            Some(0) => serde_json::from_str(&shown.stdout).unwrap(),
            Some(66) => Value::Null,
            _ => panic!("show: {shown:?}"),
        }
    }

    /// The state of a key; empty where there is no such effect.
    pub fn state(&self, key: &str) -> String {
        self.show(key)["state"].as_str().unwrap_or_default().to_owned()
    }

    /// The events of a key.
    pub fn history(&self, key: &str) -> Vec<Value> {
        let told = self.ask(&["history", key, "--json"]);
        told.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The types of a key's events, but for renewals, in order.
    pub fn types(&self, key: &str) -> Vec<String> {
        let types = self.history(key).into_iter().map(|event| text(&event["type"]));
        types.filter(|kind| kind != "lease_renewed").collect()
    }

    /// Waits until the lease of a key has ended by the store's clock.
    pub fn lapsed(&self, key: &str) {
        until("its lease has ended", || self.show(key)["lease_lapsed"] == true);
    }

    /// Decides, on the revision that stands now.
    pub fn resolve(&self, key: &str, decision: &str) {
        let revision = self.show(key)["revision"].to_string();
        let done = self.ask(&["resolve", key, decision, "--expect", &revision, "--reason", "seen"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }

    /// Every row of every table.
    pub fn dump(&self) -> String {
        self.home.dump()
    }

    /// A connection of another program to an embedded store.
    pub fn connect(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.file()).unwrap()
    }
}

/// A process that was started. Dropping it kills it.
pub struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// What it has printed to stderr so far.
    pub fn stderr(&self) -> String {
        read(&self.err)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits until it has stopped (`T` in its status).
    pub fn stopped(&self) {
        until("it has stopped", || process_state(self.pid()) == Some('T'));
    }

    /// Stops it, from outside.
    pub fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        self.stopped();
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills it with SIGKILL, and proves by the wait status that this is what ended it.
    pub fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        let status = self.wait();
        assert_eq!(status.signal(), Some(9), "it ended in another way: {status:?}");
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let err = self.err.clone();
        let child = &mut self.child;
        until_or("it has ended", || child.try_wait().unwrap().is_some(), || read(&err));
        self.child.wait().unwrap()
    }

    /// Waits for its end.
    pub fn end(mut self) -> Output {
        let status = self.wait();
        Output {
            stdout: read(&self.out),
            stderr: read(&self.err),
            code: status.code(),
            signal: status.signal(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The state letter of a process; none where it is gone.
pub fn process_state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process runs; a zombie does not.
pub fn is_alive(pid: i32) -> bool {
    process_state(pid).is_some_and(|state| state != 'Z')
}

/// The number that a script has written to a file, once it is there whole.
pub fn number_in(path: &Path) -> i32 {
    let number = || fs::read_to_string(path).ok()?.strip_suffix('\n')?.parse().ok();
    until("a number is written", || number().is_some());
    number().unwrap()
}

/// Waits for a condition, no longer than [`BOUND`].
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    until_or(what, condition, String::new);
}

fn until_or(what: &str, mut condition: impl FnMut() -> bool, told: impl Fn() -> String) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < BOUND, "never so: {what} {}", told());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts `command` with `input` on its stdin, and waits for its end.
pub fn fed(command: &mut Command, input: Vec<u8>) -> std::process::Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}

/// A JSON string.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The error object that a run with `--json` printed.
pub fn error_of(output: &Output) -> Value {
    let line = output.stderr.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no error object: {output:?}"))).unwrap()
}
