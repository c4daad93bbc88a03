//! What must hold at the end of every seed. Most of it is said by verify's own checker (VER-6).
use std::collections::BTreeSet;

use ctrlrun::plan::effect::{Cause, Event, FailedBy, HistoryRow, ProbeAnswer, State, Verdict};
use ctrlrun::plan::key::Key;

use crate::life::{Told, What};
use crate::verify::check::{Evidence, violations};
use crate::world::{Tally, World};

/// Everything that must hold.
pub fn hold(world: &World) {
    let mut wrong = Vec::new();
    for at in 0..world.shape().keys {
        let key = world.key(at);
        wrong.extend(checked(world, &key));
        wrong.extend(quiet(world, &key));
        wrong.extend(consequences(world, &key));
    }
    for told in world.told() {
        wrong.extend(kept(world, &told));
    }
    for what in wrong {
        world.fail(what);
    }
}

/// The checker of verify, on each key as it stands and on what was forgotten of it.
fn checked(world: &World, key: &Key) -> Vec<String> {
    let stored = world.store.stored();
    let of = stored.rows.of.get(key);
    let first = of.map_or(u64::MAX, |of| of.record.first_attempt);
    let started = world.started();
    let lines = started.iter().map(|it| &it.line).filter(|line| line.key == key.as_str());
    // A number that was granted before the key was forgotten is of another life of it.
    let (ledger, before): (Vec<_>, Vec<_>) = lines.cloned().partition(|it| it.attempt >= first);
    let evidence = Evidence {
        key: key.clone(),
        record: of.map(|of| of.record.clone()),
        history: of.map(|of| of.history.clone()).unwrap_or_default(),
        ledger,
    };
    let mut wrong = violations(&evidence);
    for line in &before {
        let times = before.iter().filter(|it| it.attempt == line.attempt).count();
        if times > 1 {
            wrong.push(format!("{key}: attempt {} ran {times} times", line.attempt));
        }
    }
    wrong
}

/// Nobody is left in progress, and every doubt has its reason.
fn quiet(world: &World, key: &Key) -> Option<String> {
    let stored = world.store.stored();
    let of = stored.rows.of.get(key)?;
    let record = &of.record;
    let label = &record.attempt_id;
    let decided =
        of.history.iter().any(|row| matches!(row.event, Event::Resolved(_) | Event::Reopened(_)));
    match record.state {
        State::Committed { .. } | State::Failed { .. } => None,
        State::Reserved { .. } | State::Executing { .. } => {
            Some(format!("{key} is still {} when all is over", record.state.name()))
        }
        State::Ambiguous { cause, .. } => {
            let explained = match cause {
                Cause::Lapsed => !hits(world, label).is_empty(),
                Cause::Exit | Cause::Signal | Cause::Timeout | Cause::Contradiction => {
                    let started = world.started();
                    started.iter().any(|it| it.line.attempt_id == *label && !it.tells)
                }
                Cause::LateOutcome | Cause::Reopened => decided,
            };
            let why =
                format!("{key} is AMBIGUOUS ({cause:?}), by {label}, and nothing was done to that");
            (!explained).then_some(why)
        }
    }
}

/// What was done to the process of an attempt.
fn hits(world: &World, label: &str) -> Vec<&'static str> {
    let name = label.split('#').next().unwrap_or_default();
    let inside = world.turns.inside();
    let life = inside.lives.iter().find(|life| life.name == name);
    life.map(|life| life.hits.clone()).unwrap_or_default()
}

/// It comes about once, and once more for each time that a person has said that it did not, or that
/// the key was forgotten.
fn consequences(world: &World, key: &Key) -> Option<String> {
    let now = world.turns.inside().now;
    let started = world.started();
    let of_key = started.iter().filter(|it| it.line.key == key.as_str());
    let times = of_key.filter(|it| it.has_happened(now)).count();
    let stored = world.store.stored();
    let lives = stored.rows.forgets.get(key).copied().unwrap_or(0);
    let allowed = 1 + decisions(&stored.rows.ever(key)) + lives;
    (times > allowed).then(|| format!("{key} came about {times} times, and {allowed} were allowed"))
}

/// How often a person has said that it did not happen.
fn decisions(ever: &[HistoryRow]) -> usize {
    let decided = |row: &&HistoryRow| match &row.event {
        Event::Resolved(event) => event.decision == ProbeAnswer::NotExecuted,
        _ => false,
    };
    ever.iter().filter(decided).count()
}

/// What was told of an outcome is in the history, as what it was.
fn kept(world: &World, told: &Told) -> Option<String> {
    let Told { label, key, outcome, what } = told;
    let ever = world.store.stored().rows.ever(key);
    let of_outcome = || ever.iter().filter(|row| row.outcome_id == Some(*outcome));
    match what {
        What::Settled(verdict) | What::Kept(verdict) => {
            // A late word that leaves a doubt is two events of one write.
            let writes: BTreeSet<_> = of_outcome().map(|row| row.write_id.0).collect();
            let times = writes.len();
            // Whoever comes with it after the key was forgotten is not known again.
            let most = 1 + world.store.stored().rows.forgets.get(key).copied().unwrap_or(0);
            if times == 0 || times > most {
                return Some(format!("what {label} told of {key} is recorded {times} times"));
            }
            let is = of_outcome().any(|row| stands_for(row, *verdict));
            (!is)
                .then(|| format!("what {label} told of {key}, {verdict:?}, is recorded as another"))
        }
        What::Already => {
            let committed = |row: &HistoryRow| match &row.event {
                Event::Committed(_) => true,
                Event::Resolved(event) => event.decision == ProbeAnswer::Committed,
                _ => false,
            };
            (!ever.iter().any(committed))
                .then(|| format!("{label} was told that {key} had happened, and it had not"))
        }
        What::Shouted | What::DidNotRun => None,
    }
}

fn stands_for(row: &HistoryRow, verdict: Verdict) -> bool {
    match (&row.event, verdict) {
        // What came late is told as the doubt that its record is in, or as the word that it was.
        (Event::LateOutcome(late), verdict) => {
            late.word == verdict || matches!(verdict, Verdict::Ambiguous { .. })
        }
        (Event::Committed(_), Verdict::Committed) => true,
        (Event::Failed(failed), Verdict::Failed) => failed.by == FailedBy::OwnWord,
        (Event::Failed(failed), Verdict::NeverStarted) => failed.by == FailedBy::NeverStarted,
        (Event::Ambiguated(doubt), Verdict::Ambiguous { cause, .. }) => doubt.cause == cause,
        _ => false,
    }
}

/// What came about.
pub fn tally(world: &World) -> Tally {
    let mut tally = Tally { executions: world.started().len() as u64, ..Tally::default() };
    for at in 0..world.shape().keys {
        let key = world.key(at);
        let ever = world.store.stored().rows.ever(&key);
        let ran = world.started().iter().filter(|it| it.line.key == key.as_str()).count() as u64;
        tally.second_executions += ran.saturating_sub(1);
        for row in &ever {
            match &row.event {
                Event::LeaseRenewed(_) => tally.renewals += 1,
                Event::LateOutcome(_) => tally.late += 1,
                Event::Resolved(_) | Event::Reopened(_) => tally.decisions += 1,
                _ => {}
            }
        }
        match world.store.stored().rows.of.get(&key).map(|of| of.record.state) {
            Some(State::Committed { .. }) => tally.committed += 1,
            Some(State::Failed { .. }) => tally.failed += 1,
            Some(State::Ambiguous { .. }) => tally.ambiguous += 1,
            Some(State::Reserved { .. } | State::Executing { .. }) | None => {}
        }
    }
    tally.spooled =
        world.told().iter().filter(|it| matches!(it.what, What::Kept(_))).count() as u64;
    tally.forgotten = world.store.stored().rows.forgotten.len() as u64;
    let inside = world.turns.inside();
    tally.kills = u64::from(inside.kills);
    tally.freezes = u64::from(inside.freezes);
    tally.faults = inside.lives.iter().map(|life| life.hits.len() as u64).sum();
    tally.delivered = inside.trace.matches("delivers: recorded").count() as u64;
    tally
}
