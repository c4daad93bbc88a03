//! Stores for tests: real SQLite files in directories of their own.
#![allow(dead_code, reason = "each test file uses some of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ctrlrun::drive::Call;
use ctrlrun::plan::effect::{
    Answer, Begin, Command, Ending, Holder, Labels, OutcomeId, ProbeAnswer, RanOn, Record, Request,
    Reserve, Resolve, Settle, Verdict, evolve,
};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::protocol::Done;
use ctrlrun::store::{
    Ask, CouldNot, Filter, Flow, Listed, Location, Mode, Opened, Options, Store, open,
};
use tempfile::TempDir;

/// Long enough for every exchange of a test.
pub const WITHIN: Duration = Duration::from_secs(20);

/// A directory, and the path of a store in it that is not made yet.
pub struct Home {
    directory: TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("effects.db")
    }

    pub fn open(&self, mode: Mode) -> Result<Opened, CouldNot> {
        open_at(&self.path(), mode)
    }

    /// The store, made if it is not there.
    pub fn store(&self) -> Arc<dyn Store> {
        self.open(Mode::Create).unwrap().store.into()
    }

    /// The store as another process would find it if the last one that has it open died now: the
    /// index of its log is gone, and the log is read anew.
    pub fn after_a_crash(&self) -> Arc<dyn Store> {
        let other = self.directory().join("crashed");
        fs::create_dir_all(&other).unwrap();
        for name in ["effects.db", "effects.db-wal"] {
            fs::copy(self.directory().join(name), other.join(name)).unwrap();
        }
        let path = other.join("effects.db");
        open_at(&path, Mode::Write).unwrap().store.into()
    }
}

pub fn open_at(path: &Path, mode: Mode) -> Result<Opened, CouldNot> {
    open(&Location::file(path), &Options::new(mode, WITHIN))
}

/// A refund, reserved with this label.
pub fn reserve(attempt_id: &str) -> Command {
    Command::Reserve(Reserve {
        request: Request {
            fingerprint: Fingerprint([1; 32]),
            program: "refund.sh".to_owned(),
            arguments: 1,
            command: None,
        },
        attempt_id: attempt_id.to_owned(),
        lease: Duration::from_secs(600),
        max_attempts: None,
        rebind: false,
        run_id: None,
    })
}

pub fn begin(holder: Holder) -> Command {
    Command::Begin(Begin {
        holder,
        lease: Duration::from_secs(600),
        ran_on: RanOn {
            host: "h".to_owned(),
            pid: 1,
            user: "u".to_owned(),
            directory: "/".to_owned(),
        },
        labels: Labels::new(),
    })
}

pub fn settle(holder: Holder, outcome_id: OutcomeId, verdict: Verdict) -> Command {
    let exit_code = match verdict {
        Verdict::Committed => Some(0),
        Verdict::Failed => Some(11),
        Verdict::Ambiguous { .. } => Some(22),
        Verdict::NeverStarted => None,
    };
    Command::Settle(Settle {
        holder,
        outcome_id,
        verdict,
        ending: Ending { exit_code, signal: None, detail: "as told".to_owned() },
    })
}

pub fn resolve(decision: ProbeAnswer, looked_at: u64) -> Command {
    Command::Resolve(Resolve {
        decision,
        by: "oncall".to_owned(),
        reason: "looked".to_owned(),
        looked_at,
    })
}

/// Performs `command` on `store` to its end.
pub fn handle(store: &dyn Store, key: &Key, command: Command) -> Done {
    handle_within(store, key, command, WITHIN)
}

pub fn handle_within(store: &dyn Store, key: &Key, command: Command, within: Duration) -> Done {
    ctrlrun::drive::handle(
        store,
        Call {
            key: key.clone(),
            command,
            expect: StreamState::Any,
            within,
            exchange_max: within,
            outputs: Vec::new(),
        },
    )
}

/// The answer of a command that was answered, and the record beside it.
pub fn answered(done: Done) -> (Answer, Option<Record>) {
    match done {
        Done::Answered(answered) => (answered.answer, answered.record),
        Done::CouldNot(error) | Done::Unknown(error) => panic!("not answered: {error:?}"),
    }
}

/// Reserves and begins; who holds it now.
pub fn running(store: &dyn Store, key: &Key) -> Holder {
    let holder = granted(store, key, "first");
    assert_eq!(answered(handle(store, key, begin(holder))).0, Answer::Start);
    holder
}

/// Reserves; who holds it now.
pub fn granted(store: &dyn Store, key: &Key, attempt_id: &str) -> Holder {
    let (answer, record) = answered(handle(store, key, reserve(attempt_id)));
    assert_eq!(answer, Answer::Granted);
    holder_of(&record.unwrap())
}

pub fn holder_of(record: &Record) -> Holder {
    Holder { attempt: record.attempt, reservation_id: record.reservation_id }
}

pub fn record(store: &dyn Store, key: &Key) -> Option<Record> {
    store.load(key, Ask::Nothing, WITHIN).unwrap().record
}

/// The types of the key's events, in order; that they fold to the record is checked on the way.
pub fn events(store: &dyn Store, key: &Key) -> Vec<&'static str> {
    let history = store.history(key, 1, WITHIN).unwrap();
    let mut fold = None;
    for row in &history {
        fold = Some(evolve(key, fold, row).unwrap());
    }
    assert_eq!(fold, record(store, key));
    history.iter().map(|row| row.event.kind()).collect()
}

pub fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// This test binary again, running only its test `name`, which does its part where it finds
/// `CTRLRUN_TEST_STORE` set, and nothing otherwise.
pub fn child(name: &str, store: &Path) -> Process {
    let mut command = Process::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CHILD, store);
    command
}

/// The store that a parent test named.
pub fn child_store() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

const CHILD: &str = "CTRLRUN_TEST_STORE";

/// Every file of a directory: name, mode, and a digest of its content. SQLite's index is left out,
/// since readers lock in it, and so is an empty log, which may appear where a reader was.
pub fn files(directory: &Path) -> BTreeMap<PathBuf, (u32, u64)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy().into_owned();
        let content = fs::read(&path).unwrap_or_default();
        if name.ends_with("-shm") || (name.ends_with("-wal") && content.is_empty()) {
            continue;
        }
        let mut digest = DefaultHasher::new();
        content.hash(&mut digest);
        let mode = fs::metadata(&path).unwrap().mode();
        all.insert(path, (mode, digest.finish()));
    }
    all
}

/// The error of opening what must not be opened.
pub fn refused(path: &Path, mode: Mode) -> CouldNot {
    match open_at(path, mode) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

/// The keys of all its records.
pub fn list(store: &dyn Store) -> Vec<String> {
    let mut keys = Vec::new();
    let mut each = |listed| {
        keys.push(match listed {
            Listed::Record(shown) => shown.record.key.to_string(),
            Listed::Unreadable { key, why } => panic!("{key}: {why}"),
        });
        Flow::Continue
    };
    store.list(&Filter::default(), &mut each, WITHIN).unwrap();
    keys
}

/// A mount that is undone when it goes.
pub struct Mount(PathBuf);

impl Mount {
    /// `None` where this process may not mount.
    pub fn new(arguments: &[&str], at: &Path) -> Option<Self> {
        let mut command = Process::new("mount");
        command.args(arguments).arg(at).stderr(Stdio::null());
        let mounted = command.status().is_ok_and(|status| status.success());
        if !mounted {
            println!("inconclusive: nothing can be mounted here");
        }
        mounted.then(|| Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        Process::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}
