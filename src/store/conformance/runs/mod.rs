//! What every store must do with workflow runs (WFL clauses).
//!
//! A check of a queue claims what is due of others, too, should anything be: it is handed out again
//! after a second. So this part is for stores in which no workflows are driven.
mod dispatches;
mod effects;
mod forget;
mod inbox;
mod queue;
mod rows;
mod turns;

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::{Check, WITHIN, draw, ended, same};
use crate::plan::effect::WriteId;
use crate::plan::key::Key;
use crate::plan::time::Timestamp;
use crate::plan::workflow::{
    Dispatch, DispatchRef, Expected, Hash, InboxId, InboxItem, Name, Run, RunAppend, RunEvent,
    RunHistoryRow, RunId, Status, Tier, Wakeup, Wish, evolve,
};
use crate::store::runs::{Claimed, RunFound, Take, Woken};
use crate::store::{End, Runs, Store};

/// Every check of runs, with its name, which is the fact that it checks.
#[must_use]
pub fn suite() -> Vec<(&'static str, Check)> {
    [rows::CHECKS, inbox::CHECKS, queue::CHECKS, turns::CHECKS, dispatches::CHECKS, effects::CHECKS]
        .concat()
}

/// Checks of what only a role that forgets may do.
#[must_use]
pub fn forgetting() -> Vec<(&'static str, Check)> {
    forget::CHECKS.to_vec()
}

/// For how long a check holds what it claims: longer than any check, but where it waits for the end.
const HOLD: Duration = Duration::from_secs(60);

/// One check's corner of a store.
struct Desk<'a> {
    store: &'a dyn Store,
    runs: &'a dyn Runs,
    prefix: String,
}

impl<'a> Desk<'a> {
    fn new(store: &'a dyn Store) -> Result<Self, String> {
        Ok(Self { store, runs: store.runs(), prefix: format!("conformance:{}:", draw()?) })
    }

    /// A run's name that no other check and no other run has.
    fn run(&self, name: &str) -> Result<RunId, String> {
        RunId::new(format!("{}{name}", self.prefix)).map_err(|error| error.to_string())
    }

    fn key(&self, run: &RunId, node: &str) -> Result<Key, String> {
        Key::new(format!("{run}/{node}")).map_err(|error| error.to_string())
    }

    fn load(&self, run: &RunId) -> Result<RunFound, String> {
        self.runs.load_run(run, WITHIN).map_err(|error| format!("load_run: {error}"))
    }

    fn row(&self, run: &RunId) -> Result<Run, String> {
        self.load(run)?.run.ok_or_else(|| format!("{run} is not there"))
    }

    fn history(&self, run: &RunId) -> Result<Vec<RunHistoryRow>, String> {
        self.runs.run_history(run, 1, WITHIN).map_err(|error| format!("run_history: {error}"))
    }

    fn now(&self) -> Result<Timestamp, String> {
        Ok(self.load(&self.run("now")?)?.now)
    }

    /// A run that has just been started, of a workflow of its own.
    fn started(&self, run: &str) -> Result<Run, String> {
        self.started_as(run, "conformance", Tier::Normal)
    }

    fn started_as(&self, run: &str, workflow: &str, tier: Tier) -> Result<Run, String> {
        let id = self.run(run)?;
        let append = self.append(&id, &[start(workflow, tier)?])?;
        self.land(&append)?;
        Ok(append.next)
    }

    /// The append of `events` on what is there now.
    fn append(&self, run: &RunId, events: &[RunEvent]) -> Result<RunAppend, String> {
        let found = self.load(run)?;
        fold(run, found.run, found.now, events)
    }

    fn land(&self, append: &RunAppend) -> Result<(), String> {
        ended(self.runs.append_run(append, WITHIN), &End::Landed)
    }

    fn refused(&self, append: &RunAppend) -> Result<(), String> {
        ended(self.runs.append_run(append, WITHIN), &End::Refused)
    }

    fn wakeup(&self, run: &RunId, name: &str, due: Timestamp) -> Result<Wakeup, String> {
        Ok(Wakeup {
            key: format!("{run}/{name}"),
            put_id: WriteId(draw()?),
            run: run.clone(),
            due,
            count: 3,
            since_seq: 1,
        })
    }

    /// Puts a wakeup by itself.
    fn put(&self, wakeup: &Wakeup) -> Result<(), String> {
        ended(self.runs.requeue(&[], wakeup, WITHIN), &End::Landed)
    }

    fn finish(&self, wakeups: &[Wakeup]) -> Result<(), String> {
        ended(self.runs.finish_wakeups(wakeups, WITHIN), &End::Landed)
    }

    /// Claims wakeups of one run.
    fn claim_of(&self, run: &RunId, hold: Duration) -> Result<Claimed<Woken>, String> {
        let take = Take { only: Some(run), limit: 1, claim: draw()?, hold };
        self.runs.claim_wakeups(&take, WITHIN).map_err(|error| format!("claim_wakeups: {error}"))
    }

    /// The wakeups of a run that are claimed now, by their keys.
    fn taken_of(&self, run: &RunId) -> Result<Vec<String>, String> {
        Ok(keys(&self.claim_of(run, HOLD)?))
    }

    fn dispatches_of(&self, run: &RunId, hold: Duration) -> Result<Claimed<Dispatch>, String> {
        let take = Take { only: Some(run), limit: 100, claim: draw()?, hold };
        let claimed = self.runs.claim_dispatches(&take, WITHIN);
        claimed.map_err(|error| format!("claim_dispatches: {error}"))
    }

    /// Waits until it is so, by the store's own clock; what never comes is an error.
    fn until(
        &self,
        what: &str,
        mut so: impl FnMut() -> Result<bool, String>,
    ) -> Result<(), String> {
        let began = self.now()?;
        while !so()? {
            if self.now()?.since(began) > WITHIN {
                return Err(format!("never: {what}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// The keys of the wakeups that were claimed, in the order of their names.
fn keys(claimed: &Claimed<Woken>) -> Vec<String> {
    let all = claimed.taken.iter().flat_map(|woken| &woken.wakeups);
    let mut keys: Vec<String> = all.map(|wakeup| wakeup.key.clone()).collect();
    keys.sort();
    keys
}

fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

fn start(workflow: &str, tier: Tier) -> Result<RunEvent, String> {
    Ok(RunEvent::Started {
        workflow: name(workflow)?,
        tier,
        definition: "{\"nodes\": \"\u{e9} 'a' \\\"b\\\"\"}".to_owned(),
        hash: Hash([0xfe; 32]),
        nodes: vec![name("a")?, name("b")?],
        inputs: BTreeMap::from([(name("day")?, "\u{e9}\t".to_owned())]),
    })
}

fn blocked(reason: &str) -> RunEvent {
    RunEvent::StatusChanged { status: Status::Blocked, reason: Some(reason.to_owned()) }
}

fn noted(what: &str) -> RunEvent {
    RunEvent::Noted { item: None, what: what.to_owned() }
}

fn signal(run: &RunId, payload: &str) -> Result<InboxItem, String> {
    Ok(InboxItem {
        id: InboxId(draw()?),
        run: run.clone(),
        wish: Wish::Signal {
            name: name("go")?,
            payload: payload.to_owned(),
            by: "me@here".to_owned(),
        },
        at: Timestamp(0),
    })
}

/// A dispatch of one node, as a tick that ends in `put_id` puts it.
fn dispatch(run: &RunId, node: &str, put_id: WriteId, due: Timestamp) -> Result<Dispatch, String> {
    Ok(Dispatch {
        id: DispatchRef { run: run.clone(), node: name(node)?, put_id },
        key: Key::new(format!("{run}/{node}")).map_err(|error| error.to_string())?,
        attempt: 1,
        expect: Expected::NoStream,
        due,
        claim: None,
    })
}

fn fold(
    run: &RunId,
    found: Option<Run>,
    now: Timestamp,
    events: &[RunEvent],
) -> Result<RunAppend, String> {
    let write_id = WriteId(draw()?);
    let mut next = found.clone();
    let mut history = Vec::new();
    for event in events {
        let revision = next.as_ref().map_or(0, |run| run.revision) + 1;
        let row = RunHistoryRow { revision, write_id, recorded_at: now, event: event.clone() };
        next = Some(evolve(run, next.take(), &row).map_err(|error| error.to_string())?);
        history.push(row);
    }
    Ok(RunAppend {
        found,
        next: next.ok_or("no events")?,
        history,
        consumed: Vec::new(),
        dispatches_deleted: Vec::new(),
        dispatches_put: Vec::new(),
        wakeups_deleted: Vec::new(),
        wakeups_put: Vec::new(),
    })
}

/// Of all the claims of others none is ours.
fn claim_id() -> Result<Uuid, String> {
    draw()
}
