//! Faults at random, by weight, under a seed: who is hit, by what, and after how long.
use ctrlrun::plan::effect::{Cause, Event, HistoryRow};
use ctrlrun::plan::key::Key;
use nix::sys::signal::Signal;

use crate::verify::lab::{Halt, Lab, exit};
use crate::verify::seed::Draws;
use crate::verify::worker::Worker;

/// Faults of one round.
const FAULTS: u64 = 40;
/// The longest pause before a fault, in ticks.
const PAUSE_MAX: u64 = 8;
/// How often each fault falls, against the others.
const WEIGHTS: [(u64, Signal); 3] =
    [(2, Signal::SIGKILL), (4, Signal::SIGSTOP), (5, Signal::SIGCONT)];

/// Who is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Whoever holds the key at that moment; anybody, if nobody does.
    Holder,
    /// Anybody.
    Any,
}

/// How often each is aimed at, against the other.
const TARGETS: [(u64, Target); 2] = [(1, Target::Holder), (2, Target::Any)];

/// Some rounds, and more of them until a kill has hit a holder.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let rounds = lab.bench.sizes.rounds;
    let mut hits = 0;
    for round in 0..rounds {
        if hits > 0 && round >= rounds.div_ceil(3) {
            break;
        }
        hits += one(lab, round)?;
    }
    lab.window("a random kill hit a holder", hits > 0);
    Ok(())
}

/// One round; how many holders were killed in it.
fn one<'a>(lab: &'a Lab<'a>, round: usize) -> Result<usize, Halt> {
    let key = lab.key(&format!("random-{round}"))?;
    let mut draws = Draws::of(lab.bench.seed, 1 + u64::try_from(round).unwrap_or(0));
    let mut gate = lab.gate()?;
    let names: Vec<String> = (0..lab.bench.sizes.processes).map(|_| lab.next_name()).collect();
    let mut workers = names
        .iter()
        .map(|name| {
            // Two attempts that are proven not to have happened, so that three numbers are fought for.
            lab.run_as(&key, name)
                .with(["--lease", "2s", "--wait", "1s", "--retries", "3", "--backoff", "5ms"])
                .with(["--not-executed", "7"])
                .doing(["--exit", "7,7,0", "--linger", "30"])
                .at_gate(&gate, "load:1:gate")
                .start()
        })
        .collect::<Result<Vec<_>, _>>()?;
    lab.meet(&mut gate, &mut workers)?;
    let killed = let_fall(lab, &key, &names, &mut workers, &mut draws)?;
    for worker in &workers {
        worker.go_on();
    }
    for worker in &mut workers {
        let ended = worker.end()?;
        let code = ended.code.unwrap_or(0);
        let known = [
            0,
            7,
            exit::STORE,
            exit::NOT_RECORDED,
            exit::IN_PROGRESS,
            exit::AMBIGUOUS,
            exit::REVISION,
        ];
        lab.demand(known.contains(&code), || format!("{key}: exit {code}: {}", ended.stderr));
    }
    lab.count_round();
    let history = lab.evidence(&key)?.history;
    Ok(killed.iter().filter(|at| was_holder(&history, &names[**at])).count())
}

/// Lets the faults fall; which workers were killed.
fn let_fall(
    lab: &Lab<'_>,
    key: &Key,
    names: &[String],
    workers: &mut [Worker<'_>],
    draws: &mut Draws,
) -> Result<Vec<usize>, Halt> {
    let mut killed = Vec::new();
    let count = u64::try_from(workers.len()).unwrap_or(1);
    for _ in 0..FAULTS {
        for _ in 0..draws.below(PAUSE_MAX) {
            lab.bench.pause()?;
        }
        let signal = draws.weighted(&WEIGHTS, Signal::SIGCONT);
        let mut at = usize::try_from(draws.below(count)).unwrap_or(0);
        if draws.weighted(&TARGETS, Target::Any) == Target::Holder {
            let record = lab.record(key)?.filter(|record| record.lease_expires_at().is_some());
            let holder = record.and_then(|it| names.iter().position(|name| *name == it.attempt_id));
            at = holder.unwrap_or(at);
        }
        if workers[at].has_ended()? {
            continue;
        }
        if signal != Signal::SIGKILL {
            workers[at].signal(signal);
        } else if killed.len() < workers.len() / 2 && workers[at].kill()? {
            killed.push(at);
        }
    }
    Ok(killed)
}

/// Whether an attempt of that name was reserved and its holder never told what came of it.
fn was_holder(history: &[HistoryRow], name: &str) -> bool {
    let reserved = |row: &&HistoryRow| matches!(&row.event, Event::Reserved(event) if event.attempt_id == name);
    history.iter().filter(reserved).map(|row| row.attempt).any(|attempt| {
        !history.iter().filter(|row| row.attempt == attempt).any(|row| match &row.event {
            Event::Committed(_) | Event::Failed(_) | Event::LateOutcome(_) => true,
            Event::Ambiguated(event) => event.cause != Cause::Lapsed,
            Event::Reserved(_)
            | Event::Began(_)
            | Event::LeaseRenewed(_)
            | Event::Probed(_)
            | Event::Resolved(_)
            | Event::Reopened(_) => false,
        })
    })
}
