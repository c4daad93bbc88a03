//! Workflow runs for tests of stores.
#![allow(dead_code, reason = "each test file uses some of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]
use std::collections::BTreeMap;
use std::time::Duration;

use ctrlrun::plan::effect::{Event, HistoryRow, Request, Reserved, WriteId, evolve as fold_effect};
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::workflow::{
    Dispatch, DispatchRef, Expected, Hash, Name, Run, RunAppend, RunEvent, RunHistoryRow, RunId,
    Taken, Tier, Wakeup, evolve,
};
use ctrlrun::store::runs::{Claimed, Take, Woken};
use ctrlrun::store::{Append, Ask, End, Store};
use uuid::Uuid;

pub const WITHIN: Duration = Duration::from_secs(20);
pub const HOLD: Duration = Duration::from_secs(60);

pub fn draw() -> Uuid {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    Uuid::from_bytes(bytes)
}

pub fn run_id(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn noted(what: &str) -> RunEvent {
    RunEvent::Noted { item: None, what: what.to_owned() }
}

/// The append of `events` on what is there now.
pub fn tick(store: &dyn Store, run: &RunId, events: &[RunEvent]) -> RunAppend {
    let found = store.runs().load_run(run, WITHIN).unwrap();
    let write_id = WriteId(draw());
    let (mut next, mut history) = (found.run.clone(), Vec::new());
    for event in events {
        let revision = next.as_ref().map_or(0, |run| run.revision) + 1;
        let event = event.clone();
        let row = RunHistoryRow { revision, write_id, recorded_at: found.now, event };
        next = Some(evolve(run, next.take(), &row).unwrap());
        history.push(row);
    }
    RunAppend {
        found: found.run,
        next: next.unwrap(),
        history,
        consumed: Vec::new(),
        dispatches_deleted: Vec::new(),
        dispatches_put: Vec::new(),
        wakeups_deleted: Vec::new(),
        wakeups_put: Vec::new(),
    }
}

/// A run that has just been started.
pub fn started(store: &dyn Store, run: &str, workflow: &str) -> Run {
    let start = RunEvent::Started {
        workflow: name(workflow),
        tier: Tier::Normal,
        definition: "{}".to_owned(),
        hash: Hash([7; 32]),
        nodes: vec![name("a"), name("b")],
        inputs: BTreeMap::new(),
    };
    let append = tick(store, &run_id(run), &[start]);
    assert_eq!(store.runs().append_run(&append, WITHIN), End::Landed);
    append.next
}

pub fn row(store: &dyn Store, run: &RunId) -> Run {
    store.runs().load_run(run, WITHIN).unwrap().run.unwrap()
}

pub fn wakeup(store: &dyn Store, run: &RunId, name: &str) -> Wakeup {
    let wakeup = Wakeup {
        key: format!("{run}/{name}"),
        put_id: WriteId(draw()),
        run: run.clone(),
        due: store.runs().load_run(run, WITHIN).unwrap().now,
        count: 0,
        since_seq: 0,
    };
    assert_eq!(store.runs().requeue(&[], &wakeup, WITHIN), End::Landed);
    wakeup
}

pub fn claim(store: &dyn Store, limit: usize) -> Claimed<Woken> {
    let take = Take { only: None, limit, claim: draw(), hold: HOLD };
    store.runs().claim_wakeups(&take, WITHIN).unwrap()
}

/// Puts a dispatch of the node; its effect's key is `RUN/NODE`.
pub fn dispatched(store: &dyn Store, run: &RunId, node: &str) -> Dispatch {
    let mut put = tick(store, run, &[noted("dispatched")]);
    let dispatch = Dispatch {
        id: DispatchRef { run: run.clone(), node: name(node), put_id: put.next.write_id },
        key: Key::new(format!("{run}/{node}")).unwrap(),
        attempt: 1,
        expect: Expected::NoStream,
        due: put.next.updated_at,
        claim: None,
    };
    put.dispatches_put = vec![dispatch.clone()];
    assert_eq!(store.runs().append_run(&put, WITHIN), End::Landed);
    dispatch
}

/// A reserve by a dispatch, of an effect that is not there.
pub fn reserve(store: &dyn Store, dispatch: &Dispatch) -> Append {
    let found = store.load(&dispatch.key, Ask::Nothing, WITHIN).unwrap();
    let history = vec![HistoryRow {
        revision: 1,
        write_id: WriteId(draw()),
        outcome_id: None,
        attempt: 1,
        recorded_at: found.now,
        event: Event::Reserved(Reserved {
            attempt: 1,
            attempt_id: "a".to_owned(),
            request: Request {
                fingerprint: Fingerprint([1; 32]),
                program: "true".to_owned(),
                arguments: 0,
                command: None,
            },
            lease_expires_at: found.now.plus(HOLD),
            run_id: Some(dispatch.id.run.as_str().to_owned()),
        }),
    }];
    Append {
        next: fold_effect(&dispatch.key, None, &history[0]).unwrap(),
        found: None,
        history,
        attempt_floor: found.attempt_floor,
        outputs: Vec::new(),
        dispatch: Some(dispatch.id.clone()),
    }
}

/// A tick that withdraws a dispatch as not started.
pub fn withdraw(store: &dyn Store, dispatch: &Dispatch) -> RunAppend {
    let mut append = tick(store, &dispatch.id.run, &[noted("withdrawn")]);
    let unstarted = Some((dispatch.key.clone(), None));
    append.dispatches_deleted = vec![Taken { id: dispatch.id.clone(), unstarted }];
    append
}
