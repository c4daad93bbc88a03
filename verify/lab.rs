//! What one guarantee is shown with: keys and a ledger of its own, workers, demands, and the windows
//! into which its faults must fall (VER-3, VER-6).
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ctrlrun::plan::effect::Record;
use ctrlrun::plan::key::Key;

use ctrlrun::store::{Ask, Mode, Options, Store, open};

use super::bench::Bench;
use super::check::{Evidence, violations};
use super::ledger::{self, Line};
use super::report::{Line as Reported, Status};
use super::rig::{FELL, Rig};
use super::scratch::argument;
use super::worker::{Ended, Gate, Job, Worker, broke};

/// How long verify itself waits for its scratch store.
pub const WITHIN: Duration = Duration::from_secs(20);

/// Exit codes that verify looks for, by their meaning (CLI-3).
pub mod exit {
    /// The key is bound to another command.
    pub const MISMATCH: i32 = 65;
    /// The store could not be used, or a commit stayed unknown: nothing was run.
    pub const STORE: i32 = 69;
    /// The store contradicts itself.
    pub const INTEGRITY: i32 = 70;
    /// Committed already.
    pub const COMMITTED: i32 = 73;
    /// It ran, and its outcome is not recorded as its own.
    pub const NOT_RECORDED: i32 = 74;
    /// Another attempt holds the key.
    pub const IN_PROGRESS: i32 = 75;
    /// AMBIGUOUS.
    pub const AMBIGUOUS: i32 = 76;
    /// The expected revision did not hold.
    pub const REVISION: i32 = 79;
}

/// Why a guarantee was not shown to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    /// Verify itself broke (exit 3).
    Broke(String),
    /// A signal ended it.
    Stopped,
    /// The store was too slow for this part to show anything; the doubt is recorded.
    Slow,
}

/// See the module.
pub struct Lab<'a> {
    /// What all guarantees share.
    pub bench: &'a Bench,
    /// The guarantee.
    pub id: &'static str,
    /// What its keys begin with.
    name: String,
    /// Its own directory.
    pub directory: PathBuf,
    /// The scratch store, sound whatever the workers' stores are.
    pub store: Box<dyn Store>,
    started: Instant,
    names: AtomicU32,
    kills: AtomicU64,
    rounds: AtomicU64,
    longest: Mutex<Duration>,
    findings: Mutex<Findings>,
}

#[derive(Default)]
struct Findings {
    keys: BTreeSet<Key>,
    violations: Vec<String>,
    doubts: Vec<String>,
    /// Each window, and how often a fault fell into it.
    windows: BTreeMap<String, u32>,
    notes: Vec<String>,
}

impl<'a> Lab<'a> {
    /// A lab for one guarantee, for the first time, the second, and so on.
    ///
    /// # Errors
    /// [`Halt`]: verify cannot set itself up.
    pub fn new(bench: &'a Bench, id: &'static str, time: u32) -> Result<Self, Halt> {
        let name = if time == 1 { id.to_owned() } else { format!("{id}.{time}") };
        let directory = bench.scratch().directory().join(&name);
        fs::create_dir_all(&directory).map_err(|error| broke("a lab's directory", &error))?;
        let options = Options::new(Mode::Write, WITHIN);
        let opened = open(bench.scratch().location(), &options)
            .map_err(|error| Halt::Broke(format!("the scratch store: {error}")))?;
        Ok(Self {
            bench,
            id,
            name,
            directory,
            store: opened.store,
            started: Instant::now(),
            names: AtomicU32::new(0),
            kills: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            longest: Mutex::new(Duration::ZERO),
            findings: Mutex::default(),
        })
    }

    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key of this guarantee; what happens to it is checked at the end.
    ///
    /// # Errors
    /// [`Halt`]: it cannot be one.
    pub fn key(&self, name: &str) -> Result<Key, Halt> {
        let key = Key::new(format!("verify:{}:{name}", self.name))
            .map_err(|error| Halt::Broke(error.to_string()))?;
        self.findings().keys.insert(key.clone());
        Ok(key)
    }

    /// The keys so far.
    pub fn keys(&self) -> Vec<Key> {
        self.findings().keys.iter().cloned().collect()
    }

    /// A name that no other worker of this guarantee has.
    pub fn next_name(&self) -> String {
        format!("w{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// `ctrlrun run` of the executor under `key`.
    #[must_use]
    pub fn run(&'a self, key: &Key) -> Job<'a> {
        self.run_as(key, &self.next_name())
    }

    /// The same, with a label of the caller's for the attempt.
    #[must_use]
    pub fn run_as(&'a self, key: &Key, attempt_id: &str) -> Job<'a> {
        let binary = self.bench.binary().as_os_str().to_owned();
        let ledger = self.directory.join("ledger").into_os_string();
        self.tool(["run", "-n", "--attempt-id", attempt_id, "--key", key.as_str()]).running([
            binary,
            "__execute".into(),
            ledger,
        ])
    }

    /// Another command.
    #[must_use]
    pub fn tool<S: AsRef<OsStr>>(&'a self, words: impl IntoIterator<Item = S>) -> Job<'a> {
        Job {
            lab: self,
            store: argument(self.bench.scratch().location()),
            words: words.into_iter().map(|word| word.as_ref().to_owned()).collect(),
            command: Vec::new(),
            rig: Vec::new(),
            rig_at: self.directory.clone(),
            stop_at: None,
            file_limit: None,
            spool: None,
        }
    }

    /// A person's decision about the record as it stands.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn decide(&'a self, key: &Key, decision: &str, by: &str) -> Result<Ended, Halt> {
        let revision = self.record(key)?.map_or(0, |record| record.revision);
        self.decision(key, decision, by, revision).end()
    }

    /// A person's decision about a revision.
    #[must_use]
    pub fn decision(&'a self, key: &Key, decision: &str, by: &str, revision: u64) -> Job<'a> {
        let revision = revision.to_string();
        let words = ["resolve", key.as_str(), decision, "--by", by, "--reason", "verify"];
        self.tool(words).with(["--expect", &revision])
    }

    /// A closed gate.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn gate(&self) -> Result<Gate, Halt> {
        Gate::closed(self.directory.join(format!("gate-{}", self.next_name())))
    }

    /// What ran under a key so far.
    ///
    /// # Errors
    /// [`Halt`]: the ledger cannot be read.
    pub fn ran(&self, key: &Key) -> Result<Vec<Line>, Halt> {
        let mut lines = self.ledger()?;
        lines.retain(|line| line.key == key.as_str());
        Ok(lines)
    }

    /// What ran, under whatever key.
    ///
    /// # Errors
    /// [`Halt`]: the ledger cannot be read.
    pub fn ledger(&self) -> Result<Vec<Line>, Halt> {
        ledger::read(&self.directory.join("ledger")).map_err(|error| broke("the ledger", &error))
    }

    /// The record of a key.
    ///
    /// # Errors
    /// [`Halt`]: the scratch store cannot be read.
    pub fn record(&self, key: &Key) -> Result<Option<Record>, Halt> {
        match self.store.load(key, Ask::Nothing, WITHIN) {
            Ok(found) => Ok(found.record),
            Err(error) => Err(Halt::Broke(format!("the scratch store: {error}"))),
        }
    }

    /// The state of a key, by its stored name; `new` where there is no record.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn state(&self, key: &Key) -> Result<&'static str, Halt> {
        Ok(self.record(key)?.map_or("new", |record| record.state.name()))
    }

    /// All that is known of a key.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn evidence(&self, key: &Key) -> Result<Evidence, Halt> {
        let history = self.store.history(key, 1, WITHIN);
        let history =
            history.map_err(|error| Halt::Broke(format!("the scratch store: {error}")))?;
        let (record, ledger) = (self.record(key)?, self.ran(key)?);
        Ok(Evidence { key: key.clone(), record, history, ledger })
    }

    /// The scratch store as a worker would have it, rig and all.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn rigged_store(&self) -> Result<Box<dyn Store>, Halt> {
        let opened = open(self.bench.scratch().location(), &Options::new(Mode::Write, WITHIN))
            .map_err(|error| Halt::Broke(format!("the scratch store: {error}")))?;
        let words = self.bench.rig_words(&[]);
        Ok(Rig::parse(&words).around(opened.store, None))
    }

    /// Waits for a condition; false if it does not come about within the bound.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn until(&self, mut is_so: impl FnMut() -> Result<bool, Halt>) -> Result<bool, Halt> {
        let until = Instant::now() + self.bench.bound();
        while !is_so()? {
            if Instant::now() > until {
                return Ok(false);
            }
            self.bench.pause()?;
        }
        Ok(true)
    }

    /// Waits until so many executions of a key have started.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn until_ran(&self, key: &Key, times: usize) -> Result<bool, Halt> {
        let come = self.until(|| Ok(self.ran(key)?.len() >= times))?;
        self.demand(come, || format!("{key}: it was not started"));
        Ok(come)
    }

    /// Waits until the lease of a key has lapsed, by the store's clock.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn until_lapsed(&self, key: &Key) -> Result<(), Halt> {
        let lapsed = self.until(|| {
            let found = self
                .store
                .load(key, Ask::Nothing, WITHIN)
                .map_err(|error| Halt::Broke(format!("the scratch store: {error}")))?;
            Ok(found.record.is_none_or(|record| record.is_lapsed(found.now)))
        })?;
        self.demand(lapsed, || format!("{key}: its lease did not lapse"));
        Ok(())
    }

    /// Waits until all are at the gate, and releases them at once; false if one ended before.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn meet(&self, gate: &mut Gate, workers: &mut [Worker<'_>]) -> Result<bool, Halt> {
        let mut met = false;
        self.until(|| {
            met = gate.here() == workers.len();
            for worker in workers.iter_mut() {
                if worker.has_ended()? {
                    return Ok(true);
                }
            }
            Ok(met)
        })?;
        gate.open();
        Ok(met)
    }

    /// What must be so.
    pub fn demand(&self, is_so: bool, otherwise: impl FnOnce() -> String) {
        if !is_so {
            self.violated(otherwise());
        }
    }

    /// What must not be, and is.
    pub fn violated(&self, what: String) {
        self.findings().violations.push(what);
    }

    /// What could not be shown.
    pub fn doubt(&self, what: String) {
        self.findings().doubts.push(what);
    }

    /// What the report is to say beside the verdict.
    pub fn note(&self, what: String) {
        self.findings().notes.push(what);
    }

    /// A window, and whether a fault fell into it. One that stays empty makes the guarantee
    /// inconclusive.
    pub fn window(&self, name: impl Into<String>, hit: bool) {
        *self.findings().windows.entry(name.into()).or_default() += u32::from(hit);
    }

    /// A worker must have ended with one of these codes.
    ///
    /// # Errors
    /// [`Halt::Slow`] where the store did not answer in time: that shows nothing, for or against, and
    /// neither would what comes after it.
    pub fn ended(&self, key: &Key, ended: &Ended, wanted: &[i32]) -> Result<(), Halt> {
        if ended.code.is_some_and(|code| wanted.contains(&code)) {
            return Ok(());
        }
        // The second line often says why.
        let said = ended.stderr.lines().take(2).collect::<Vec<_>>().join("; ");
        let how = match (ended.code, ended.signal) {
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no end".to_owned(),
        };
        let what = format!("{key}: {how} instead of {wanted:?} ({said})");
        if ended.code == Some(exit::STORE) {
            self.doubt(what);
            return Err(Halt::Slow);
        }
        self.violated(what);
        Ok(())
    }

    /// So often it must have run, in all.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn executions(&self, key: &Key, times: usize) -> Result<(), Halt> {
        let ran = self.ran(key)?.len();
        self.demand(ran == times, || format!("{key}: it ran {ran} times instead of {times}"));
        Ok(())
    }

    /// So it must stand.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn stands(&self, key: &Key, state: &str) -> Result<(), Halt> {
        let found = self.state(key)?;
        self.demand(found == state, || format!("{key}: it is {found} instead of {state}"));
        Ok(())
    }

    /// Whether a fault of the rig fell in a worker.
    #[must_use]
    pub fn fell(&self, worker: &Worker<'_>) -> bool {
        let fell = fs::read_to_string(self.directory.join(FELL)).unwrap_or_default();
        let of_worker = format!("{} ", worker.id());
        fell.lines().any(|line| line.starts_with(&of_worker) && line.ends_with(" fault"))
    }

    /// Counts a round.
    pub fn count_round(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.bench.tell_progress();
    }

    /// Counts a kill that its wait status has proven.
    pub fn count_kill(&self) {
        self.kills.fetch_add(1, Ordering::Relaxed);
    }

    /// How long a worker took.
    pub fn took(&self, took: Duration) {
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        *longest = took.max(*longest);
    }

    /// The longest that any worker took.
    #[must_use]
    pub fn longest(&self) -> Duration {
        *self.longest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Violations that were found so far, and kills: for a workload that gives its own verdict.
    #[must_use]
    pub fn found(&self) -> (Vec<String>, u64) {
        (self.findings().violations.clone(), self.kills.load(Ordering::Relaxed))
    }

    /// Holds all keys against the checker, and gives the verdict.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn verdict(self, title: &'static str) -> Result<Reported, Halt> {
        for key in self.keys() {
            for violation in violations(&self.evidence(&key)?) {
                self.violated(violation);
            }
        }
        let executions = u64::try_from(self.ledger()?.len()).unwrap_or(u64::MAX);
        let duration = self.started.elapsed();
        let findings = self.findings.into_inner().unwrap_or_else(PoisonError::into_inner);
        let empty = findings.windows.iter().filter(|(_, hits)| **hits == 0);
        let missed = empty.map(|(name, _)| format!("no fault fell into its window: {name}"));
        let doubts: Vec<String> = findings.doubts.into_iter().chain(missed).collect();
        let (status, lines) = if !findings.violations.is_empty() {
            (Status::Fail, findings.violations)
        } else if !doubts.is_empty() {
            (Status::Inconclusive, doubts)
        } else {
            (Status::Pass, findings.notes)
        };
        Ok(Reported {
            id: self.id,
            title,
            status,
            detail: lines.join("; "),
            executions,
            kills: self.kills.into_inner(),
            rounds: self.rounds.into_inner(),
            duration,
        })
    }
}

/// A guarantee's workload and claims, or a part of them.
pub type Part = for<'a> fn(&'a Lab<'a>) -> Result<(), Halt>;

/// Of two ends the one that is to be told: that a part was too slow hides no other.
///
/// # Errors
/// That one.
pub fn worst(one: Result<(), Halt>, other: Result<(), Halt>) -> Result<(), Halt> {
    match one {
        Ok(()) | Err(Halt::Slow) => other.and(one),
        Err(Halt::Broke(_) | Halt::Stopped) => one,
    }
}

/// Runs several parts of a guarantee at once; the first that broke is told.
///
/// # Errors
/// [`Halt`].
pub fn together(lab: &Lab<'_>, parts: &[Part]) -> Result<(), Halt> {
    std::thread::scope(|scope| {
        let running: Vec<_> = parts.iter().map(|part| scope.spawn(move || part(lab))).collect();
        let mut all = Ok(());
        for part in running {
            let ended = part.join().unwrap_or_else(|_| Err(Halt::Broke("a part panicked".into())));
            all = worst(all, ended);
        }
        all
    })
}
