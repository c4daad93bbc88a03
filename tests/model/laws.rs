//! What must hold in every state, and at every step (PRF-2).
use std::sync::Arc;

use ctrlrun::plan::attempt::{Attempt, Came, Do, NotRecorded, Outcome, Report};
use ctrlrun::plan::effect::{
    Event, FailedBy, Holder, OutcomeId, ProbeAnswer, Record, Refusal, Settle, State, Verdict,
};
use ctrlrun::plan::protocol::{Captured, Done, Input, Step};
use ctrlrun::plan::time::{Moment, Timestamp};
use ctrlrun::plan::verdict::{ChildEnd, Exit, Left, Said};

use crate::shelf::{How, Rows, exchange};
use crate::step::{Taking, Violation};
use crate::tally;
use crate::verify::check::{Evidence, violations};
use crate::verify::ledger::Line;
use crate::world::{
    Asked, Fate, Running, Told, World, Writing, is_of, key, moment_of, order, run_name, write_id,
};

fn must(holds: bool, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(what()) }
}

/// A command that was not the effect's is bound to it after a decision only if that was asked for
/// (EFF-11).
pub fn before_write(
    taking: &Taking<'_>,
    asked: Asked,
    key_at: usize,
    step: &Step,
) -> Result<(), Violation> {
    let Step::Append { append, .. } = step else {
        return Ok(());
    };
    let (Some(Event::Reserved(event)), Some(record)) =
        (append.history.first().map(|row| &row.event), &taking.world.rows[key_at].record)
    else {
        return Ok(());
    };
    let decided = matches!(record.state, State::Failed { by: FailedBy::Person | FailedBy::Probe });
    let other = event.request.fingerprint != record.request.fingerprint;
    let wrong =
        decided && other && asked != Asked::Rebind && taking.world.rows[key_at].lets(append);
    must(!wrong, || "another command is bound after a decision (EFF-11)".to_owned())
}

/// A child is about to be started.
pub fn starts(
    taking: &mut Taking<'_>,
    key_at: usize,
    holder: Holder,
    not_after: Moment,
) -> Result<(), Violation> {
    let world = &taking.world;
    let attempt = holder.attempt;
    let twice = world.rest.children.iter().any(|it| (it.key, it.attempt) == (key_at, attempt));
    must(!twice, || format!("attempt {attempt} is executed twice"))?;
    let record = world.rows[key_at].record.as_ref();
    let lease =
        record.filter(|record| record.is_held_by(holder)).and_then(|record| match record.state {
            State::Executing { lease_expires_at } => Some(lease_expires_at),
            State::Reserved { .. }
            | State::Committed { .. }
            | State::Failed { .. }
            | State::Ambiguous { .. } => None,
        });
    let Some(lease) = lease else {
        return Err(format!("attempt {attempt} is started, and the record does not say so"));
    };
    must(world.now() < lease, || format!("attempt {attempt} is started after its lease"))?;
    must(not_after <= moment_of(lease), || "its own lease is longer than the store's".to_owned())?;
    let before = world.rest.children.iter().any(|it| it.key == key_at);
    taking.saw(if before { "a start after another" } else { "a start" });
    Ok(())
}

/// Rows have changed from `before`.
pub fn landed(taking: &mut Taking<'_>, key_at: usize, before: &Rows) -> Result<(), Violation> {
    let rows = Arc::clone(&taking.world.rows[key_at].at);
    if let Some(record) = &rows.record {
        taking.saw(tally::state(record.state));
        if record.in_doubt {
            taking.saw("a record in doubt");
        }
    }
    let stood_at = before.record.as_ref().map(|record| record.revision);
    for row in rows.history.get(before.history.len()..).unwrap_or(&[]) {
        taking.saw(row.event.kind());
        let looked_at = match &row.event {
            Event::Resolved(event) => {
                if event.decision == ProbeAnswer::NotExecuted && !event.probe {
                    taking.world.rest.edit().freed[key_at] = true;
                }
                Some(event.looked_at)
            }
            Event::Reopened(event) => Some(event.looked_at),
            Event::Reserved(_)
            | Event::Began(_)
            | Event::LeaseRenewed(_)
            | Event::Committed(_)
            | Event::Failed(_)
            | Event::Ambiguated(_)
            | Event::LateOutcome(_)
            | Event::Probed(_) => None,
        };
        if let Some(looked_at) = looked_at {
            must(stood_at == Some(looked_at), || {
                format!("decided on revision {looked_at}, where {stood_at:?} stood (EFF-18)")
            })?;
        }
    }
    evidence(taking, key_at)?;
    known(taking, key_at)?;
    newcomer(taking, key_at, &rows)
}

/// The checker of `verify` has its say (VER-6).
pub fn evidence(taking: &mut Taking<'_>, key_at: usize) -> Result<(), Violation> {
    let world = &taking.world;
    let rows = &world.rows[key_at];
    let ran = |child: &&crate::world::Child| child.key == key_at && child.attempt > rows.floor;
    let line = |child: &crate::world::Child| Line {
        key: key(key_at).to_string(),
        attempt: child.attempt,
        attempt_id: String::new(),
        idempotency_key: String::new(),
        pid: 0,
    };
    let wrong = violations(&Evidence {
        key: key(key_at),
        record: rows.record.clone(),
        history: rows.history.clone(),
        ledger: world.rest.children.iter().filter(ran).map(line).collect(),
    });
    match wrong.into_iter().next() {
        None => Ok(()),
        Some(first) => Err(first),
    }
}

/// An effect comes about twice only where a person, or a key that was forgotten, has let it.
pub fn happenings(taking: &mut Taking<'_>) -> Result<(), Violation> {
    let rest = &taking.world.rest;
    for (key_at, freed) in rest.freed.iter().enumerate() {
        let happened = |it: &&crate::world::Child| it.key == key_at && it.fate == Fate::Happened;
        let times = rest.children.iter().filter(happened).count();
        must(times < 2 || *freed, || format!("it came about {times} times"))?;
    }
    Ok(())
}

/// An outcome is in the spool, or its holder has told it: from here on it must not be lost.
pub fn is_known(taking: &mut Taking<'_>, key: usize, settle: &Settle) {
    if settle.holder.attempt <= taking.world.rows[key].floor {
        // It was forgotten meanwhile.
        return;
    }
    let known = Told { key, outcome: settle.outcome_id, word: settle.verdict };
    let rest = taking.world.rest.edit();
    if !rest.known.contains(&known) {
        rest.known.push(known);
    }
}

/// No known outcome is lost, and none is recorded twice.
pub fn known(taking: &mut Taking<'_>, key_at: usize) -> Result<(), Violation> {
    let world = &taking.world;
    for known in world.rest.known.iter().filter(|known| known.key == key_at) {
        is_there(world, known)?;
    }
    Ok(())
}

fn is_there(world: &World, known: &Told) -> Result<(), Violation> {
    let rows = &world.rows[known.key];
    let spooled = world.rest.spool.iter().any(|(_, kept)| kept.settle.outcome_id == known.outcome);
    let mut writes: Vec<_> = told_rows(rows, known.outcome).map(|row| row.write_id).collect();
    writes.dedup();
    must(writes.len() <= 1, || "one outcome is recorded twice (EFF-15)".to_owned())?;
    if writes.is_empty() {
        return must(spooled, || {
            format!("a known outcome ({:?}) is neither recorded nor spooled", known.word)
        });
    }
    let as_told = told_rows(rows, known.outcome).any(|row| says(&row.event, known.word));
    must(as_told, || format!("an outcome ({:?}) is recorded as another", known.word))
}

fn told_rows(
    rows: &Rows,
    outcome: OutcomeId,
) -> impl Iterator<Item = &ctrlrun::plan::effect::HistoryRow> {
    rows.history.iter().filter(move |row| row.outcome_id == Some(outcome))
}

/// Whether an event is what a word must become (EFF-16, EFF-17).
fn says(event: &Event, word: Verdict) -> bool {
    match event {
        Event::Committed(_) => word == Verdict::Committed,
        Event::Failed(event) => match event.by {
            FailedBy::OwnWord => word == Verdict::Failed,
            FailedBy::NeverStarted => word == Verdict::NeverStarted,
            FailedBy::Person | FailedBy::Probe => false,
        },
        Event::Ambiguated(event) => match word {
            Verdict::Ambiguous { cause, reaped } => (event.cause, event.reaped) == (cause, reaped),
            Verdict::Failed | Verdict::NeverStarted => {
                event.cause == ctrlrun::plan::effect::Cause::LateOutcome
            }
            Verdict::Committed => false,
        },
        Event::LateOutcome(event) => event.word == word,
        Event::Reserved(_)
        | Event::Began(_)
        | Event::LeaseRenewed(_)
        | Event::Probed(_)
        | Event::Resolved(_)
        | Event::Reopened(_) => false,
    }
}

/// The end of a command that somebody else than an attempt's own steps gave.
pub fn told(taking: &mut Taking<'_>, writing: &Writing, done: &Done) -> Result<(), Violation> {
    taking.tell(|_| tally::done(done));
    let made = |id| (writing.first..writing.drawn).any(|n| id == write_id(writing.name, n));
    let world = &taking.world;
    match done {
        Done::Answered(answered) => {
            let rows = &world.rows[writing.key];
            let written = rows.history.iter().any(|row| made(row.write_id));
            let so = written || !tally::writes(&answered.answer) || rows.floor > 0;
            must(so, || format!("{:?}, and nothing is written", answered.answer))?;
            taking.saw(tally::answer(&answered.answer));
            Ok(())
        }
        Done::CouldNot(_) => {
            let stands = world.rows[writing.key].history.iter().any(|row| made(row.write_id));
            let may = world.rest.on_the_way.iter().any(|(_, it)| made(it.next.write_id));
            must(!stands && !may, || "\"nothing was written\", and it was".to_owned())?;
            taking.saw("a command that could not");
            Ok(())
        }
        Done::Unknown(error) => {
            must(writing.doubt, || format!("unknown, and nothing was lost: {error}"))?;
            taking.saw("a command whose end stays unknown");
            Ok(())
        }
    }
}

/// A process tells how it ended.
pub fn over(taking: &mut Taking<'_>, it: &Running, report: &Report) -> Result<(), Violation> {
    let end = tally::end(report);
    taking.saw(end);
    must(report.ran == it.child.is_some(), || "it does not say whether it ran".to_owned())?;
    let rows = Arc::clone(&taking.world.rows[it.key].at);
    let (mut forgotten, mut kept_nowhere) = (false, false);
    match &report.result {
        Outcome::Settled { .. } => {}
        Outcome::CommittedAlready => {
            let record = report.record.as_ref().map(|record| record.state);
            let so = matches!(record, Some(State::Committed { .. })) && !report.ran;
            must(so, || "committed already, and it is not".to_owned())?;
        }
        Outcome::Refused(refusal) => {
            taking.saw(tally::refusal(refusal));
            must(!report.ran, || "refused, and it ran".to_owned())?;
            if *refusal == Refusal::InProgress {
                in_progress(it, report, rows.record.as_ref())?;
            }
        }
        Outcome::CouldNot(_) => {
            must(!report.ran, || "nothing was run, and it was".to_owned())?;
            let mine = |row: &ctrlrun::plan::effect::HistoryRow| {
                matches!(row.event, Event::Reserved(_)) && is_of(row.write_id, it.name)
            };
            let stands = report.holder.is_none() && rows.history.iter().any(mine);
            must(!stands, || "it could not reserve, and it did".to_owned())?;
        }
        Outcome::Unknown(error) => {
            must(!report.ran, || "unknown before its start, and it ran".to_owned())?;
            must(it.doubt, || format!("unknown, and nothing was lost: {error}"))?;
        }
        Outcome::NotRecorded { why, .. } => {
            forgotten = matches!(why, NotRecorded::Forgotten);
            kept_nowhere = matches!(report.spooled, Some(Err(_)));
            if matches!(why, NotRecorded::Late) {
                let late = told_rows(&rows, outcome(it))
                    .any(|row| matches!(row.event, Event::LateOutcome(_)));
                must(late, || "kept as a late outcome, and it is not".to_owned())?;
            }
        }
    }
    // Its attempt may have been forgotten since it was recorded.
    forgotten |= report.holder.is_some_and(|holder| holder.attempt <= rows.floor);
    if let Some(word) = it.word.filter(|_| !forgotten && !kept_nowhere) {
        let known = Told { key: it.key, outcome: outcome(it), word };
        is_there(&taking.world, &known)?;
        let rest = taking.world.rest.edit();
        if !rest.known.contains(&known) {
            rest.known.push(known);
        }
    }
    Ok(())
}

fn outcome(it: &Running) -> OutcomeId {
    order(it.key, it.asked, it.name, None, None).outcome_id
}

/// Nobody waits for a dead holder, or for itself.
fn in_progress(it: &Running, report: &Report, stands: Option<&Record>) -> Result<(), Violation> {
    let (Some(record), Some(now)) = (&report.record, report.now) else {
        return Err("another attempt runs, and none is shown".to_owned());
    };
    let own = stands.is_some_and(|record| is_of(record.reservation_id, it.name));
    must(!own, || "refused because of its own reservation".to_owned())?;
    let live = record.lease_expires_at().is_some() && !record.is_lapsed(now);
    must(live, || "refused because of a lease that is not live".to_owned())
}

/// Whoever comes when all leases have ended is let through, answered, or refused for good: nobody
/// waits for ever without an AMBIGUOUS record that says why.
fn newcomer(taking: &mut Taking<'_>, key_at: usize, rows: &Rows) -> Result<(), Violation> {
    if !taking.met.insert(rows.clone()) {
        return Ok(());
    }
    let later = Timestamp(taking.world.now().0 + 100_000_000);
    let at = moment_of(later);
    let name = run_name(9, 0);
    let mut machine = Attempt::new(order(key_at, Asked::Plain, name, None, None), at);
    let mut rows = Arc::new(rows.clone());
    let mut came = Came::Call;
    for drawn in 0..40 {
        came = match machine.step(came, at) {
            Do::Store(Step::Draw) => Came::Store(Box::new(Input::Drawn(write_id(name, drawn)))),
            Do::Store(step) => {
                let fresh = write_id(name, drawn);
                let it = exchange(&key(key_at), &rows, later, &step, How::Well, fresh, None);
                if let Some(changed) = it.rows {
                    rows = Arc::new(changed);
                }
                Came::Store(Box::new(it.input))
            }
            Do::Start { .. } => Came::Started,
            Do::Watch { .. } => Came::Ended {
                end: ChildEnd {
                    exit: Exit::Code(0),
                    timed_out: false,
                    ended_by_holder: false,
                    left: Left::Nothing,
                    said: Said::nothing(),
                },
                stdout: Some(Captured::default()),
                stderr: Some(Captured::default()),
            },
            Do::Over(report) => {
                let state = rows.record.as_ref().map(|record| record.state);
                let well = match &report.result {
                    Outcome::Settled { .. } | Outcome::CommittedAlready => {
                        matches!(state, Some(State::Committed { .. }))
                    }
                    Outcome::Refused(Refusal::Ambiguous) => {
                        matches!(state, Some(State::Ambiguous { .. }))
                    }
                    Outcome::Refused(Refusal::Mismatch) => true,
                    Outcome::Refused(_)
                    | Outcome::CouldNot(_)
                    | Outcome::Unknown(_)
                    | Outcome::NotRecorded { .. } => false,
                };
                return must(well, || format!("a newcomer is told {:?}", report.result));
            }
            Do::Granted | Do::Renew(_) | Do::EndChild | Do::Spool(_) | Do::Unspool(_) => {
                return Err("a newcomer does what it was not asked to".to_owned());
            }
        };
    }
    Err("a newcomer does not come to an end".to_owned())
}
