//! One dispatch: the node's effect, run with the same machinery as any other (EXE-1), and held to
//! what the dispatch expects (WFL-8, WFL-9).
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::coordinator::Coordinator;
use crate::drive::handle::{Call, handle};
use crate::drive::host::{self, Here};
use crate::drive::journal::Journal;
use crate::drive::run::{Command, Ran, Tools, attempt};
use crate::drive::spool::Spool;
use crate::plan::attempt::{Order, Outcome};
use crate::plan::effect::{Command as Ask, Labels, RanOn, Record, Refusal, State};
use crate::plan::expect::StreamState;
use crate::plan::key::Key;
use crate::plan::verdict::NotExecuted;
use crate::plan::workflow::fill::{Filled, fill};
use crate::plan::workflow::tick::Loaded;
use crate::plan::workflow::{Definition, Dispatch, NodeState, RunSpec, What};

/// How often an effect is looked at that others than the run hold.
const STRANGER_EVERY: Duration = Duration::from_secs(5);

/// With what nodes are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where they run: evidence.
    pub ran_on: RanOn,
    /// How much of each stream is kept, in bytes.
    pub capture: usize,
    /// The grace between TERM and KILL.
    pub kill_after: Duration,
    /// Where outcome files are made.
    pub outcome_dir: Option<PathBuf>,
    /// The second memory, where there is one (AFT-1).
    pub journal: Option<Journal>,
    /// How long one store command of an attempt may take.
    pub store_timeout: Duration,
    /// When the store was made, where that can be told: a word in the spool that is older, of another
    /// store, may be about the very effect (EXE-25).
    pub store_made: Option<SystemTime>,
}

/// What came of a dispatch.
#[derive(Debug)]
pub enum Came {
    /// An attempt was made; its report says how it ended. The run is to be ticked.
    Attempted(Box<Ran>),
    /// Nothing was run: what the dispatch expects does not hold, or it is gone. The run is to be
    /// ticked.
    Stale,
    /// Nothing was run: another attempt holds the key. The dispatch was put off.
    Held,
    /// Nothing was run: a word of an older store about this key is in the spool, and says that it may
    /// have happened. The dispatch was put off.
    InDoubtElsewhere,
    /// Nothing was run: the store could not be read. The dispatch is handed out again.
    Unreadable(crate::store::CouldNot),
}

/// Runs the node of `dispatch`, which `claim` has.
pub fn perform(
    of: Coordinator<'_>,
    dispatch: &Dispatch,
    claim: Uuid,
    settings: &Settings,
    spool: Option<&Spool>,
) -> Came {
    let loaded = match of.look(&dispatch.id.run) {
        Ok(Some(loaded)) => loaded,
        Ok(None) => return Came::Stale,
        Err(error) => return Came::Unreadable(error),
    };
    // The reserve asks that too; here it spares a child's preparation.
    if !loaded.dispatches.iter().any(|there| there.id == dispatch.id) {
        return Came::Stale;
    }
    let record = loaded.records.get(&dispatch.key);
    if record.map(|record| record.revision) != dispatch.expect.revision() {
        return contend(of, dispatch, claim, record, loaded.now);
    }
    if let (Some(spool), Some(made)) = (spool, settings.store_made)
        && spool.strays(&dispatch.key).iter().any(|(_, written)| *written < made)
    {
        put_off(of, dispatch, claim, Duration::from_secs(10));
        return Came::InDoubtElsewhere;
    }
    let Some((spec, filled)) = asked(&loaded, dispatch) else {
        // Another definition, or another output: the next tick puts another dispatch.
        put_off(of, dispatch, claim, Duration::from_secs(1));
        return Came::Stale;
    };
    let command = command(&spec, &filled, settings);
    let tools = Tools {
        host: &Here,
        store: of.store,
        spool,
        journal: settings.journal.as_ref(),
        signals: None,
        lost: &|_| {},
        kept: &|_, _| {},
    };
    let ran = attempt(order(dispatch, &spec, &filled, settings), &command, tools);
    match &ran.report.result {
        Outcome::Refused(refusal) => match refusal {
            Refusal::InProgress
            | Refusal::TooLate
            | Refusal::Expectation(_)
            | Refusal::NotOurs
            | Refusal::Ambiguous
            | Refusal::Mismatch
            | Refusal::MaxAttempts
            | Refusal::Live
            | Refusal::SettledOtherwise
            | Refusal::NoSuchEffect => {
                let record = ran.report.record.clone();
                let now = ran.report.now.unwrap_or(loaded.now);
                contend(of, dispatch, claim, record.as_ref(), now)
            }
        },
        Outcome::CommittedAlready
        | Outcome::Settled { .. }
        | Outcome::CouldNot(_)
        | Outcome::Unknown(_)
        | Outcome::NotRecorded { .. } => Came::Attempted(Box::new(ran)),
    }
}

/// What the expectation met instead: of an attempt whose lease has ended this is the one that
/// notices (WFL-8).
fn contend(
    of: Coordinator<'_>,
    dispatch: &Dispatch,
    claim: Uuid,
    record: Option<&Record>,
    now: crate::plan::time::Timestamp,
) -> Came {
    let Some(record) = record else {
        return Came::Stale;
    };
    match record.state {
        State::Reserved { lease_expires_at } | State::Executing { lease_expires_at }
            if !record.is_lapsed(now) =>
        {
            // Somebody is at it. Again when its lease could have ended; of one that others than this
            // run hold, and whose end wakes nobody here, sooner.
            let lapse = lease_expires_at.since(now).saturating_add(Duration::from_millis(50));
            let ours = record.run_id.as_deref() == Some(dispatch.id.run.as_str());
            put_off(of, dispatch, claim, if ours { lapse } else { lapse.min(STRANGER_EVERY) });
            Came::Held
        }
        State::Reserved { .. } | State::Executing { .. } => {
            // Whatever becomes of it: the tick looks at what is there.
            let _ = handle(of.store, notice(dispatch.key.clone(), of.within));
            Came::Stale
        }
        State::Committed { .. } | State::Failed { .. } | State::Ambiguous { .. } => Came::Stale,
    }
}

fn notice(key: Key, within: Duration) -> Call {
    Call {
        key,
        command: Ask::Contend,
        expect: StreamState::Any,
        within,
        exchange_max: within,
        outputs: Vec::new(),
    }
}

fn put_off(of: Coordinator<'_>, dispatch: &Dispatch, claim: Uuid, after: Duration) {
    // One that could not be put off is handed out again when the claim ends.
    let _ = of.store.runs().postpone_dispatch(&dispatch.id, claim, after, of.within);
}

/// What the node is to run, if that is still what it was dispatched for.
fn asked(loaded: &Loaded, dispatch: &Dispatch) -> Option<(RunSpec, Filled)> {
    let node = &dispatch.id.node;
    let definition = Definition::read(&loaded.run.definition).ok()?;
    let state = &loaded.run.progress.nodes.get(node)?.state;
    let NodeState::Dispatched { fingerprint, .. } = state else {
        return None;
    };
    let filled = fill(&loaded.run, &definition, node, &loaded.outputs).ok()?;
    let same = filled.key == dispatch.key && filled.request().fingerprint == *fingerprint;
    match &definition.nodes.get(node)?.what {
        What::Run(spec) if same => Some((spec.as_ref().clone(), filled)),
        What::Run(_) | What::Wait(_) => None,
    }
}

fn order(dispatch: &Dispatch, spec: &RunSpec, filled: &Filled, settings: &Settings) -> Order {
    let not_executed = spec.not_executed.as_deref().map(NotExecuted::parse);
    let labels = [("run", dispatch.id.run.as_str()), ("node", dispatch.id.node.as_str())];
    Order {
        key: dispatch.key.clone(),
        request: filled.request(),
        attempt_id: Uuid::now_v7().to_string(),
        expect: dispatch.expect.stream_state(),
        max_attempts: None,
        // Another command than before is there only because a person accepted it, or resolved what
        // feeds it.
        rebind: true,
        lease: spec.lease(),
        ran_on: settings.ran_on.clone(),
        labels: labels
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<Labels>(),
        not_executed: not_executed.and_then(Result::ok).unwrap_or_default(),
        store_timeout: settings.store_timeout,
        dispatch: Some(dispatch.id.clone()),
        outcome_id: host::outcome_id(),
        // What it expects of the effect its run has seen, and it looks at that.
        guess: None,
    }
}

fn command(spec: &RunSpec, filled: &Filled, settings: &Settings) -> Command {
    let mut words = filled.command.iter().map(Into::into);
    Command {
        program: words.next().unwrap_or_default(),
        args: words.collect(),
        no_stdin: true,
        capture: Some(settings.capture),
        is_shown: false,
        timeout: spec.timeout(),
        kill_after: settings.kill_after,
        outcome_dir: settings.outcome_dir.clone(),
    }
}
