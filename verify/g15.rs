//! G15: a workflow tick commits once: of many coordinators at one version one commits, and the others
//! look again; a run that can only lose is ended by the bound.
use std::sync::Arc;
use std::time::Duration;

use ctrlrun::drive::host;
use ctrlrun::drive::workflow::Counters;
use ctrlrun::drive::workflow::coordinator::Coordinator;
use ctrlrun::plan::workflow::Status;
use ctrlrun::plan::workflow::pace::Pace;
use ctrlrun::store::faulty::{Fault, Faulty, Planned, Verb};
use ctrlrun::store::runs::Take;
use ctrlrun::store::{Mode, Options, Store, open};

use super::flow::{Flow, Node};
use super::lab::{Halt, Lab, WITHIN, together};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    together(lab, &[many, livelock])
}

/// Every coordinator has run a node, and ticks what it loaded, before one of them commits.
fn many<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    for round in 0..lab.bench.sizes.rounds.min(4) {
        let names: Vec<String> =
            (0..lab.bench.sizes.processes).map(|index| format!("n{index}")).collect();
        let needs = format!("needs = {names:?}");
        let mut nodes: Vec<Node<'_>> =
            names.iter().map(|name| (name.as_str(), "", &[][..])).collect();
        nodes.push(("last", &needs, &[]));
        let flow = Flow::start(lab, &format!("many{round}"), &nodes)?;
        let mut gate = lab.gate()?;
        let mut workers = names
            .iter()
            .map(|_| flow.worker().at_gate(&gate, "append-run:1:gate").start())
            .collect::<Result<Vec<_>, _>>()?;
        let met = lab.meet(&mut gate, &mut workers)?;
        lab.window("all ticked one version before one committed", met);
        for mut worker in workers {
            let ended = worker.end()?;
            lab.ended(&flow.key("last")?, &ended, &[0])?;
        }
        // What a worker that ended early had taken.
        flow.drain()?;
        for node in names.iter().map(String::as_str).chain(["last"]) {
            let key = flow.key(node)?;
            lab.executions(&key, 1)?;
            lab.stands(&key, "committed")?;
        }
        flow.stands(Status::Succeeded)?;
        lab.count_round();
    }
    Ok(())
}

/// Every try of every tick loses; nothing else moves the run. In this process, with the numbers of the
/// default in a shorter time.
fn livelock<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let flow = Flow::start(lab, "livelock", &[("only", "", &[])])?;
    // Something to tick for: the wish to end, which is never seen.
    let asked = flow.cancel()?;
    lab.ended(&flow.key("only")?, &asked, &[0])?;
    let pace = Pace {
        again: [0, 1, 1, 1, 2].map(Duration::from_millis).to_vec(),
        requeue_first: Duration::from_millis(1),
        requeue_max: Duration::from_millis(10),
        ..Pace::default()
    };
    let tries = u32::try_from(pace.again.len()).unwrap_or(u32::MAX).saturating_add(1);
    let lost = pace.requeues_max.saturating_add(1).saturating_mul(tries);
    let plan = (1..=lost).map(|call| Planned { verb: Verb::AppendRun, call, fault: Fault::Refuse });
    let opened = open(lab.bench.scratch().location(), &Options::new(Mode::Write, WITHIN))
        .map_err(|error| Halt::Broke(format!("the scratch store: {error}")))?;
    let inner: Arc<dyn Store> = opened.store.into();
    let store = Faulty::new(inner, plan);
    let counters = Counters::default();
    let of = Coordinator { store: &store, pace: &pace, counters: &counters, within: WITHIN };
    let ended = lab.until(|| {
        let take = Take {
            only: Some(&flow.id),
            limit: 1,
            claim: host::draw(),
            hold: Duration::from_millis(500),
        };
        let taken = store.runs().claim_wakeups(&take, WITHIN);
        let taken = taken.map_err(|error| Halt::Broke(format!("the scratch store: {error}")))?;
        for woken in &taken.taken {
            of.wake(woken, None);
        }
        Ok(flow.run()?.status.is_end())
    })?;
    lab.window("every try of every tick lost", store.fallen().len() == lost as usize);
    lab.demand(ended && counters.livelocks.get() == 1, || {
        format!("{}: the bound did not end it", flow.id)
    });
    let reason = flow.run()?.reason.unwrap_or_default();
    lab.demand(reason.contains("livelock") && reason.contains("in flight: only"), || {
        format!("{}: it ended otherwise: {reason}", flow.id)
    });
    flow.stands(Status::Failed)?;
    flow.drain()?;
    lab.executions(&flow.key("only")?, 0)
}
