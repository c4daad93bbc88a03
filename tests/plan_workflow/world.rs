//! One run in memory with its effects, dispatches, inbox and wakeups: a store as WFL says it, whose
//! every write is held against what must be true of it.
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ctrlrun::plan::effect::{
    Answer, Begin, Command, Decision, Ending, Event, HistoryRow, Holder, Labels, OutcomeId,
    ProbeAnswer, RanOn, Record, Reserve, Resolve, Settle, State, Verdict, WriteId, decide, evolve,
};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::{Captured, End, Found as EffectFound};
use ctrlrun::plan::retry::Budget;
use ctrlrun::plan::time::{Moment, Timestamp};
use ctrlrun::plan::workflow::fill::{fill, wanted};
use ctrlrun::plan::workflow::pace::Pace;
use ctrlrun::plan::workflow::tick::Loaded;
use ctrlrun::plan::workflow::write::{Aim, Done, Found, Input, Step, Write};
use ctrlrun::plan::workflow::{
    Definition, Dispatch, Expected, InboxId, InboxItem, Name, NodeState, Run, RunAppend, RunEvent,
    RunHistoryRow, RunId, Wakeup, Wish, evolve as evolve_run, is_transition,
};
use ctrlrun::store::runs::row::{RunEventRow, RunRow};
use uuid::Uuid;

/// The store.
#[derive(Default)]
pub struct World {
    pub run: Option<Run>,
    pub history: Vec<RunHistoryRow>,
    pub inbox: Vec<InboxItem>,
    pub dispatches: Vec<Dispatch>,
    pub wakeups: Vec<Wakeup>,
    pub records: BTreeMap<Key, Record>,
    pub events: BTreeMap<Key, Vec<HistoryRow>>,
    pub outputs: BTreeMap<Key, Captured>,
    pub now: i64,
    pub drawn: u128,
    /// Every start of a child, by key: the attempt.
    pub started: BTreeMap<Key, Vec<u64>>,
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn run_id() -> RunId {
    RunId::new("r").unwrap()
}

impl World {
    pub fn draw(&mut self) -> Uuid {
        self.drawn += 1;
        Uuid::from_u128(self.drawn)
    }

    pub fn started(definition: &Definition) -> Self {
        let mut world = Self::default();
        let inputs = definition.inputs_of(&BTreeMap::new()).unwrap();
        let aim = Aim::Start { definition: Box::new(definition.clone()), inputs };
        match world.write(aim) {
            Done::Committed(_) => world,
            other => panic!("{other:?}"),
        }
    }

    pub fn the_run(&self) -> &Run {
        self.run.as_ref().unwrap()
    }

    pub fn state(&self, node: &str) -> &NodeState {
        &self.the_run().progress.nodes[&name(node)].state
    }

    pub fn load(&self, run: Run) -> Loaded {
        let mut outputs = BTreeMap::new();
        loop {
            let wanted = wanted(&run, &outputs);
            let read: BTreeMap<Key, Captured> = wanted
                .with_output
                .iter()
                .filter(|key| {
                    let record = self.records.get(*key);
                    record.is_some_and(|record| matches!(record.state, State::Committed { .. }))
                })
                .filter_map(|key| Some((key.clone(), self.outputs.get(key)?.clone())))
                .collect();
            if read == outputs {
                let records = wanted.keys.iter();
                let records = records
                    .filter_map(|key| Some((key.clone(), self.records.get(key)?.clone())))
                    .collect();
                return Loaded {
                    run,
                    now: Timestamp(self.now),
                    inbox: self.inbox.clone(),
                    dispatches: self.dispatches.clone(),
                    wakeups: self
                        .wakeups
                        .iter()
                        .filter(|at| at.due.0 <= self.now)
                        .cloned()
                        .collect(),
                    records,
                    outputs,
                    attempt_floor: 0,
                };
            }
            outputs = read;
        }
    }

    /// One write of the run, without anybody between.
    pub fn write(&mut self, aim: Aim) -> Done {
        self.write_with(aim, |_, _| {})
    }

    /// The same; `between` is called before each append.
    pub fn write_with(&mut self, aim: Aim, mut between: impl FnMut(&mut Self, u32)) -> Done {
        let budget = Budget::new(99, Moment(u64::MAX), Duration::from_secs(1));
        let mut write = Write::new(run_id(), aim, None, &Pace::default(), budget);
        let mut input = Input::Start;
        let mut appends = 0;
        loop {
            self.now += 1_000;
            input = match write.step(input, Moment(0)) {
                Step::Load { .. } => {
                    let fresh = WriteId(self.draw());
                    let found = match (&self.run, write.fresh(Timestamp(self.now), fresh)) {
                        (Some(run), _) => Found::Run(Box::new(self.load(run.clone()))),
                        (None, Some(run)) => Found::Absent(Some(Box::new(self.load(run)))),
                        (None, None) => Found::Absent(None),
                    };
                    Input::Loaded(Ok(found), fresh)
                }
                Step::Append { append, .. } => {
                    appends += 1;
                    between(self, appends);
                    Input::Ended(self.append(&append))
                }
                Step::Reread { .. } => panic!("nothing was unknown"),
                Step::Pause(pause) => {
                    self.now += i64::try_from(pause.as_micros()).unwrap();
                    Input::Paused
                }
                Step::Done(done) => return done,
            };
        }
    }

    pub fn tick(&mut self) -> Done {
        self.write(Aim::Tick)
    }

    /// A run's append, as every store performs it.
    pub fn append(&mut self, append: &RunAppend) -> End {
        let same = match (&self.run, &append.found) {
            (None, None) => true,
            (Some(there), Some(found)) => {
                (there.revision, there.write_id) == (found.revision, found.write_id)
            }
            (None, Some(_)) | (Some(_), None) => false,
        };
        let unstarted = append.dispatches_deleted.iter().all(|taken| match &taken.unstarted {
            Some((key, revision)) => {
                self.records.get(key).map(|record| record.revision) == *revision
            }
            None => true,
        });
        if !same || !unstarted {
            return End::Refused;
        }
        self.check(append);
        self.run = Some(append.next.clone());
        self.history.extend(append.history.iter().cloned());
        self.inbox.retain(|item| !append.consumed.contains(&item.id));
        self.dispatches
            .retain(|there| !append.dispatches_deleted.iter().any(|taken| taken.id == there.id));
        for put in &append.dispatches_put {
            self.dispatches.retain(|there| there.id.node != put.id.node);
            self.dispatches.push(put.clone());
        }
        self.wakeups
            .retain(|there| !append.wakeups_deleted.contains(&(there.key.clone(), there.put_id)));
        self.wakeups.extend(append.wakeups_put.iter().cloned());
        End::Landed
    }

    /// What must be true of every append of a run.
    fn check(&self, append: &RunAppend) {
        assert!(!append.history.is_empty(), "a tick that changes nothing wrote");
        // WFL-5: the row is the fold of its history.
        let mut folded = append.found.clone();
        for row in self.history.iter().chain(&append.history).skip(self.history.len()) {
            folded = Some(evolve_run(&append.next.id, folded, row).unwrap());
        }
        assert_eq!(folded.as_ref(), Some(&append.next));
        let newest = self.history.iter().chain(&append.history);
        let newest = newest.filter(|row| is_transition(&row.event)).map(|row| row.revision).max();
        assert_eq!(Some(append.next.last_transition_seq), newest);
        // WFL-4: and comes back from its columns.
        let row = RunRow::of(&append.next).unwrap();
        assert_eq!(row.run().unwrap(), append.next);
        for row in &append.history {
            assert_eq!(&RunEventRow::of(row).unwrap().event().unwrap(), row);
        }
        let ended = append.found.as_ref().is_some_and(|run| run.status.is_end());
        let definition = Definition::read(&append.next.definition).unwrap();
        for row in &append.history {
            if let RunEvent::NodeDispatched { node, key, expect, .. } = &row.event {
                assert!(!ended, "a run that has ended dispatched {node}");
                for need in definition.nodes.get(node).into_iter().flat_map(|spec| &spec.needs) {
                    let state = &append.next.progress.nodes[need].state;
                    let found = append.found.as_ref().and_then(|run| run.progress.nodes.get(need));
                    // One that was dispatched goes on, also where what it needed was reopened.
                    let went_on = found.is_some_and(|node| !node.state.is_done())
                        || *expect != Expected::NoStream;
                    assert!(state.is_done() || went_on, "{node} before {need}");
                }
                if let Expected::Revision(revision) = expect {
                    let record = self.records.get(key).unwrap();
                    assert!(*revision <= record.revision);
                }
            }
        }
        // What is dispatched is what the nodes say.
        if append.next.status.is_end() {
            assert_eq!(append.dispatches_put, Vec::new());
        }
        for put in &append.dispatches_put {
            let state = &append.next.progress.nodes[&put.id.node].state;
            let NodeState::Dispatched { key, attempt, expect, .. } = state else {
                panic!("{} is {}", put.id.node, state.name());
            };
            assert_eq!((key, attempt, expect), (&put.key, &put.attempt, &put.expect));
        }
    }

    /// A command to an effect; `dispatch` is what a reserve is held to.
    pub fn act(&mut self, key: &Key, command: &Command, dispatch: Option<&Dispatch>) -> Answer {
        let record = self.records.get(key).cloned();
        let found = EffectFound {
            record: record.clone(),
            now: Timestamp(self.now),
            attempt_floor: 0,
            event: self.event(key, command),
        };
        let Decision { events, answer } = decide(&found, command, &[]);
        if events.is_empty() {
            return answer;
        }
        if let Some(dispatch) = dispatch
            && !self.dispatches.iter().any(|there| there.id == dispatch.id)
        {
            // WFL-9: the append is refused.
            return Answer::Lost;
        }
        let write_id = WriteId(self.draw());
        let mut next = record;
        for event in events {
            let outcome_id = command.settle().map(|settle| settle.outcome_id);
            let revision = next.as_ref().map_or(0, |record: &Record| record.revision) + 1;
            let row = HistoryRow {
                revision,
                write_id,
                outcome_id,
                attempt: next.as_ref().map_or(1, |record| record.attempt),
                recorded_at: Timestamp(self.now),
                event,
            };
            next = Some(evolve(key, next, &row).unwrap());
            self.events.entry(key.clone()).or_default().push(row);
        }
        let next = next.unwrap();
        let settled = !matches!(next.state, State::Reserved { .. } | State::Executing { .. });
        if settled && next.run_id.as_deref() == Some("r") {
            // WFL-10
            self.wakeups.push(Wakeup {
                key: format!("{key}/{}", next.revision),
                put_id: write_id,
                run: run_id(),
                due: Timestamp(self.now),
                count: 0,
                since_seq: 0,
            });
        }
        self.records.insert(key.clone(), next);
        answer
    }

    fn event(&self, key: &Key, command: &Command) -> Option<HistoryRow> {
        let rows = self.events.get(key)?;
        match command {
            Command::Settle(settle) => {
                rows.iter().find(|row| row.outcome_id == Some(settle.outcome_id)).cloned()
            }
            Command::Begin(begin) => rows
                .iter()
                .find(|row| {
                    matches!(row.event, Event::Began(_)) && row.attempt == begin.holder.attempt
                })
                .cloned(),
            Command::Resolve(_) | Command::Reopen { .. } => rows.last().cloned(),
            Command::Reserve(_) | Command::Renew { .. } | Command::Contend | Command::Probed(_) => {
                None
            }
        }
    }

    /// A worker takes a dispatch: the holder, if a child was started.
    pub fn start(&mut self, dispatch: &Dispatch) -> Option<Holder> {
        let run = self.run.clone()?;
        let record = self.records.get(&dispatch.key);
        if record.map(|record| record.revision) != dispatch.expect.revision() {
            self.act(&dispatch.key, &Command::Contend, None);
            return None;
        }
        let definition = Definition::read(&run.definition).unwrap();
        let loaded = self.load(run.clone());
        let filled = fill(&run, &definition, &dispatch.id.node, &loaded.outputs).ok()?;
        let state = &run.progress.nodes.get(&dispatch.id.node)?.state;
        let NodeState::Dispatched { fingerprint, .. } = state else {
            return None;
        };
        if filled.request().fingerprint != *fingerprint {
            return None;
        }
        let reserve = Reserve {
            request: filled.request(),
            attempt_id: "a".to_owned(),
            lease: Duration::from_secs(10),
            max_attempts: None,
            rebind: true,
            run_id: Some("r".to_owned()),
        };
        let answer = self.act(&dispatch.key, &Command::Reserve(reserve), Some(dispatch));
        if answer != Answer::Granted {
            return None;
        }
        assert!(!self.the_run().status.is_end(), "WFL-9: reserved after the end of the run");
        let record = &self.records[&dispatch.key];
        let holder = Holder { attempt: record.attempt, reservation_id: record.reservation_id };
        let begin = Begin {
            holder,
            lease: Duration::from_secs(10),
            ran_on: RanOn {
                host: "h".to_owned(),
                pid: 1,
                user: "u".to_owned(),
                directory: "/".to_owned(),
            },
            labels: Labels::new(),
        };
        assert_eq!(self.act(&dispatch.key, &Command::Begin(begin), None), Answer::Start);
        self.started.entry(dispatch.key.clone()).or_default().push(holder.attempt);
        Some(holder)
    }

    pub fn settle(&mut self, key: &Key, holder: Holder, verdict: Verdict, output: &str) {
        let outcome_id = OutcomeId(self.draw());
        let ending = Ending {
            exit_code: (verdict != Verdict::NeverStarted).then_some(match verdict {
                Verdict::Committed => 0,
                _ => 9,
            }),
            signal: None,
            detail: "ended".to_owned(),
        };
        if verdict == Verdict::Committed {
            let captured = Captured {
                head: output.as_bytes().to_vec(),
                tail: Vec::new(),
                bytes: output.len() as u64,
                whole: true,
            };
            self.outputs.insert(key.clone(), captured);
        }
        let settle = Settle { holder, outcome_id, verdict, ending };
        self.act(key, &Command::Settle(settle), None);
    }

    pub fn resolve(&mut self, key: &Key, happened: bool) -> Answer {
        let looked_at = self.records.get(key).map_or(0, |record| record.revision);
        let decision = if happened { ProbeAnswer::Committed } else { ProbeAnswer::NotExecuted };
        let resolve =
            Resolve { decision, by: "me@here".to_owned(), reason: "seen".to_owned(), looked_at };
        self.act(key, &Command::Resolve(resolve), None)
    }

    pub fn reopen(&mut self, key: &Key) -> Answer {
        let looked_at = self.records.get(key).map_or(0, |record| record.revision);
        let (by, reason) = ("me@here".to_owned(), "no".to_owned());
        self.act(key, &Command::Reopen { by, reason, looked_at }, None)
    }

    pub fn wish(&mut self, wish: Wish) {
        let id = InboxId(self.draw());
        let at = Timestamp(self.now);
        self.inbox.push(InboxItem { id, run: run_id(), wish, at });
        let put_id = WriteId(self.draw());
        let key = format!("inbox/{}", id.0);
        self.wakeups.push(Wakeup { key, put_id, run: run_id(), due: at, count: 0, since_seq: 0 });
    }

    /// Nodes in flight, by their dispatches.
    pub fn due(&self) -> Vec<Dispatch> {
        self.dispatches.iter().filter(|at| at.due.0 <= self.now).cloned().collect()
    }

    pub fn keys(&self) -> BTreeSet<Key> {
        self.records.keys().cloned().collect()
    }
}
