//! What the guarantees about workflows are shown with: a file, its run, and workers at it.
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use ctrlrun::plan::key::Key;
use ctrlrun::plan::workflow::{Run, RunId, Status, evolve};

use super::lab::{Halt, Lab, WITHIN};
use super::worker::{Ended, Job, Worker, broke};

/// A run of a workflow whose nodes are executors.
pub struct Flow<'a> {
    lab: &'a Lab<'a>,
    /// Its name, which its nodes' keys begin with.
    pub id: RunId,
    file: PathBuf,
}

/// A node: its name, the fields that the file has of it beside the command, and the executor's words.
pub type Node<'n> = (&'n str, &'n str, &'n [&'n str]);

impl<'a> Flow<'a> {
    /// Writes the file, and starts the run.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn start(lab: &'a Lab<'a>, name: &str, nodes: &[Node<'_>]) -> Result<Self, Halt> {
        let id =
            RunId::new(lab.key(name)?.as_str()).map_err(|error| Halt::Broke(error.to_string()))?;
        let file = lab.directory.join(format!("{name}.toml"));
        let mut text = "name = \"verify\"\n".to_owned();
        for (node, fields, doing) in nodes {
            let binary = lab.bench.binary().as_os_str();
            let ledger = lab.directory.join("ledger");
            let words: Vec<String> = [binary, OsStr::new("__execute"), ledger.as_os_str()]
                .into_iter()
                .chain(doing.iter().map(OsStr::new))
                .map(|word| format!("{:?}", word.to_string_lossy()))
                .collect();
            text.push_str(&format!("[node.{node}]\n{fields}\ncommand = [{}]\n", words.join(", ")));
        }
        fs::write(&file, text).map_err(|error| broke("a workflow's file", &error))?;
        let flow = Self { lab, id, file };
        let started = flow.words(&["start"]).with([flow.file.as_os_str()]);
        let started = started.with(["--id", flow.id.as_str()]).end()?;
        lab.ended(&flow.key_of(name)?, &started, &[0])?;
        Ok(flow)
    }

    fn key_of(&self, name: &str) -> Result<Key, Halt> {
        self.lab.key(name)
    }

    /// A node's effect, which is checked at the end.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn key(&self, node: &str) -> Result<Key, Halt> {
        let prefix = format!("verify:{}:", self.lab.id);
        let name = self.id.as_str();
        // A guarantee that is tried again has another prefix; the lab knows it.
        let short = name.rsplit(':').next().unwrap_or(name);
        debug_assert!(name.starts_with(prefix.trim_end_matches(':')));
        self.lab.key(&format!("{short}/{node}"))
    }

    fn words(&self, words: &[&str]) -> Job<'a> {
        self.lab.tool(["workflow"]).with(words)
    }

    /// A worker at this run alone, which ends when there is nothing to do.
    pub fn worker(&self) -> Job<'a> {
        let only = ["work", "--only", self.id.as_str(), "--until-idle", "--hold", "1s"];
        self.words(&only)
    }

    /// Asks it to end.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn cancel(&self) -> Result<Ended, Halt> {
        self.words(&["cancel", self.id.as_str()]).end()
    }

    /// Works until there is nothing to do.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn drain(&self) -> Result<(), Halt> {
        let ended = self.worker().end()?;
        let key = Key::new(self.id.as_str()).map_err(|error| Halt::Broke(error.to_string()))?;
        self.lab.ended(&key, &ended, &[0])
    }

    /// The run's row.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn run(&self) -> Result<Run, Halt> {
        let broke =
            |error: ctrlrun::store::CouldNot| Halt::Broke(format!("the scratch store: {error}"));
        let found = self.lab.store.runs().load_run(&self.id, WITHIN).map_err(broke)?;
        found.run.ok_or_else(|| Halt::Broke(format!("{} is not there", self.id)))
    }

    /// So it must stand, and be the fold of its history.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn stands(&self, status: Status) -> Result<(), Halt> {
        let run = self.run()?;
        self.lab.demand(run.status == status, || {
            format!("{}: it is {} instead of {}", self.id, run.status.name(), status.name())
        });
        let history = self.lab.store.runs().run_history(&self.id, 1, WITHIN);
        let history =
            history.map_err(|error| Halt::Broke(format!("the scratch store: {error}")))?;
        let folded = history.iter().try_fold(None, |run, row| evolve(&self.id, run, row).map(Some));
        self.lab.demand(folded == Ok(Some(run)), || {
            format!("{}: its row is not the fold of its history", self.id)
        });
        Ok(())
    }

    /// Lets a worker that was halted go on to its end, wherever it halts again.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn see_out(&self, mut worker: Worker<'_>) -> Result<Ended, Halt> {
        self.lab.until(|| {
            worker.go_on();
            worker.has_ended()
        })?;
        worker.end()
    }
}
