//! Every kind of write whose answer can be lost: a part of plan_settlement.rs.
use ctrlrun::plan::effect::{
    Ambiguated, Answer, Cause, Command, Event, LateOutcome, Probe, ProbeAnswer, Record, Refusal,
    Resolved, Verdict,
};
use ctrlrun::plan::protocol::Found;
use ctrlrun::plan::time::Timestamp;

use crate::ask::{LEASE, NOW, begin, outcome_id, settle};
use crate::plan_common::{ending, write_id};
use crate::stepping::{after, executing, found, holder, not_executed, reserved, reserving};

/// The store's clock once every lease of these tests has ended.
pub const LATER: Timestamp = Timestamp(NOW.0 + 60_000_000);

/// A stranger's word, which changes nothing but the revision.
pub fn note() -> Event {
    Event::LateOutcome(LateOutcome {
        attempt: 9,
        reservation_id: write_id(0x9),
        word: Verdict::Failed,
        doubt: false,
        ending: ending("exited 22"),
    })
}

pub fn lapse() -> Event {
    Event::Ambiguated(Ambiguated { cause: Cause::Lapsed, reaped: false, ending: None })
}

pub fn freed(looked_at: u64) -> Event {
    Event::Resolved(Resolved {
        decision: ProbeAnswer::NotExecuted,
        by: "oncall@bastion".to_owned(),
        reason: "the ledger has no line".to_owned(),
        probe: false,
        looked_at,
    })
}

pub fn ambiguous() -> Record {
    after(Some(executing()), lapse(), write_id(0xdead))
}

pub fn failed() -> Record {
    after(Some(ambiguous()), freed(3), write_id(0xdeaf))
}

pub fn settling(record: &Record, verdict: Verdict) -> Command {
    settle(holder(record), outcome_id(1), verdict)
}

fn renewing(record: &Record) -> Command {
    Command::Renew { holder: holder(record), lease: LEASE }
}

fn probing(record: &Record) -> Command {
    Command::Probed(Probe {
        answer: ProbeAnswer::Committed,
        by: "reconcile:ledger".to_owned(),
        reconcile_final: false,
        looked_at: record.revision,
    })
}

fn reopening(record: &Record) -> Command {
    Command::Reopen {
        by: "oncall@bastion".to_owned(),
        reason: "it was not so".to_owned(),
        looked_at: record.revision,
    }
}

/// A command, what it is decided on, and its answer once it landed.
pub type Write = (&'static str, Command, Found, Answer);

/// The writes that grant something: landed and moved on, the planner judges what is left of it.
pub fn grants() -> Vec<Write> {
    let (reserved, executing) = (reserved(), executing());
    let renewed = Answer::Renewed { lease_expires_at: NOW.plus(LEASE) };
    vec![
        ("reserve, INSERT", reserving(), found(None), Answer::Granted),
        ("reserve, UPDATE", reserving(), found(Some(failed())), Answer::Granted),
        ("begin", begin(holder(&reserved)), found(Some(reserved)), Answer::Start),
        ("renew", renewing(&executing), found(Some(executing)), renewed),
    ]
}

/// The writes that state something: landed and moved on, they are done.
pub fn statements() -> Vec<Write> {
    let (executing, ambiguous, failed) = (executing(), ambiguous(), failed());
    let lapsed = Found { now: LATER, ..found(Some(executing.clone())) };
    let reserved_lapsed = Found { now: LATER, ..found(Some(reserved())) };
    let on = |record: &Record| found(Some(record.clone()));
    let committed = settling(&executing, Verdict::Committed);
    vec![
        ("settle committed", committed.clone(), on(&executing), Answer::Settled),
        ("settle failed", settling(&executing, Verdict::Failed), on(&executing), Answer::Settled),
        ("late outcome", committed.clone(), on(&ambiguous), Answer::KeptAsLate),
        ("late outcome that blocks", committed, on(&failed), Answer::KeptAsLate),
        ("resolve", not_executed(ambiguous.revision), on(&ambiguous), Answer::Resolved),
        (
            "resolve a lapsed one",
            not_executed(executing.revision),
            lapsed.clone(),
            Answer::Resolved,
        ),
        ("reopen", reopening(&failed), on(&failed), Answer::Resolved),
        ("probe", probing(&ambiguous), on(&ambiguous), Answer::Resolved),
        ("contend", Command::Contend, lapsed.clone(), Answer::Contended),
        ("a reserve's lapse", reserving(), lapsed, Answer::Refused(Refusal::Ambiguous)),
        (
            "a begin that came too late",
            begin(holder(&reserved())),
            reserved_lapsed,
            Answer::Refused(Refusal::TooLate),
        ),
    ]
}

pub fn every_write() -> impl Iterator<Item = Write> {
    grants().into_iter().chain(statements())
}
