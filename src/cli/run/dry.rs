//! What a run would do (CLI-13): reads, decides, and writes nothing.
use ctrlrun::drive::deliver;
use ctrlrun::drive::spool::{Spool, Spooled};
use ctrlrun::plan::attempt::RESERVED_LEASE_MAX;
use ctrlrun::plan::effect::{
    Answer, Command, Event, HistoryRow, Recorded, Refusal, Reserve, WriteId, decide, evolve,
};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::{Ask, Found};
use ctrlrun::plan::time::Timestamp;
use ctrlrun::store::Reason;
use uuid::Uuid;

use super::args::{OnCommitted, OnRunning};
use super::request::Asked;
use super::{End, RunArgs};
use crate::cli::Global;
use crate::cli::access::{Opened, for_dry_run, place};
use crate::cli::error::{CliError, Deed, Kind};
use crate::cli::refusal::{Refused, Started};
use crate::cli::render::text::clean;
use crate::cli::spooled::{candidates, in_the_way, made, not_of_a_lost_store};
use crate::cli::terminal::{answer, say};

/// Says what would happen, and ends as a refusal would, or 0.
///
/// # Errors
/// A store that cannot be read.
pub fn dry_run(args: &RunArgs, asked: &Asked, global: &Global) -> Result<End, CliError> {
    let key = clean(asked.key.as_str());
    let Some(opened) = for_dry_run(global)? else {
        // The store that would be made is younger than any word in the spool.
        if let Some(spool) = Spool::find(&candidates(global), Uuid::nil()) {
            not_of_a_lost_store(&place(global)?, &spool, &asked.key, Deed::Run, None)?;
        }
        tell(
            global,
            &format!("{key}: would make the default store, and run as attempt 1; nothing was run"),
        );
        return Ok(End::silent());
    };
    let found = load(&opened, &asked.key, Ask::Nothing)?;
    let found = delivered(&opened, asked, found, global)?;
    if let Err(conflict) = args.expect.check(found.revision()) {
        let refusal = Refusal::Expectation(conflict);
        return Ok(End::refused(refused(asked, &opened, &found, refusal)));
    }
    let decision = decide(&found, &reserve(args, asked), &[]);
    let refused = |refusal| Ok(End::refused(refused(asked, &opened, &found, refusal)));
    if let Answer::Refused(refusal) = decision.answer {
        if refusal == Refusal::InProgress && args.on_running == OnRunning::Skip {
            tell(global, &format!("{key}: would be silent and end 0: another attempt is running"));
            return Ok(End::silent());
        }
        return refused(refusal);
    }
    if decision.answer == Answer::CommittedAlready {
        let what = match args.on_committed {
            OnCommitted::Refuse => return refused(Refusal::SettledOtherwise),
            OnCommitted::Replay => "would print its stored output",
            OnCommitted::Skip => "would be silent",
        };
        tell(global, &format!("{key}: COMMITTED (happened): {what} and end 0; nothing was run"));
        return Ok(End::silent());
    }
    let attempt = match decision.events.first() {
        Some(Event::Reserved(reserved)) => format!(" as attempt {}", reserved.attempt),
        Some(_) | None => String::new(),
    };
    tell(global, &format!("{key}: would run{attempt}; nothing was run"));
    Ok(End::silent())
}

fn load(opened: &Opened, key: &Key, ask: Ask) -> Result<Found, CliError> {
    match opened.store.load(key, ask, opened.within) {
        Ok(found) => Ok(found),
        Err(error) if error.reason == Reason::Missing => Ok(nothing_found()),
        Err(error) => Err(opened.could_not(&error)),
    }
}

/// What would be found once the spool's words about this key were delivered, as a run does first
/// (EXE-25).
fn delivered(
    opened: &Opened,
    asked: &Asked,
    mut found: Found,
    global: &Global,
) -> Result<Found, CliError> {
    let store_id = opened.store.identity().store_id;
    let Some(spool) = Spool::find(&candidates(global), store_id) else {
        return Ok(found);
    };
    for file in spool.read(false) {
        let word = match file {
            Spooled::Outcome(word) if word.key == asked.key => word,
            Spooled::Outcome(_) | Spooled::Damaged { .. } => continue,
        };
        let outcome_id = word.settle.outcome_id;
        let may_have_happened = word.settle.verdict.may_have_happened();
        found.event = load(opened, &asked.key, Ask::Outcome(outcome_id))?.event;
        let decision = decide(&found, &Command::Settle(word.settle), &[]);
        if decision.answer.recorded() == Some(Recorded::Forgotten) && may_have_happened {
            let error = deliver::gone(&spool.path(outcome_id));
            return Err(in_the_way(opened, &spool, &asked.key, Deed::Run, &error));
        }
        let revision = found.revision().unwrap_or(0);
        for (event, revision) in decision.events.into_iter().zip(revision + 1..) {
            let row = HistoryRow {
                revision,
                write_id: WriteId(Uuid::nil()),
                outcome_id: Some(outcome_id),
                attempt: 0,
                recorded_at: found.now,
                event,
            };
            let next = evolve(&asked.key, found.record.take(), &row);
            found.record =
                Some(next.map_err(|bad| {
                    CliError::new(Kind::Internal, "nothing was run").because(&bad)
                })?);
        }
    }
    let made = made(&opened.place);
    if made.is_some() {
        not_of_a_lost_store(&opened.place, &spool, &asked.key, Deed::Run, made)?;
    }
    Ok(found)
}

fn nothing_found() -> Found {
    Found { record: None, now: Timestamp(0), attempt_floor: 0, event: None }
}

fn reserve(args: &RunArgs, asked: &Asked) -> Command {
    Command::Reserve(Reserve {
        request: asked.request.clone(),
        attempt_id: String::new(),
        lease: args.lease().min(RESERVED_LEASE_MAX),
        max_attempts: args.max_attempts,
        rebind: args.rebind,
        run_id: None,
    })
}

fn refused(asked: &Asked, opened: &Opened, found: &Found, refusal: Refusal) -> CliError {
    let shown = opened.look(&asked.key).ok().flatten();
    Refused {
        key: &asked.key,
        place: &opened.place,
        deed: Deed::Run,
        record: found.record.as_ref(),
        now: found.now,
        started: Started::of(shown.as_ref(), found.record.as_ref()),
        request: Some(&asked.request),
    }
    .error(refusal)
}

/// What would happen: an answer with `--json`, else a line on stderr.
fn tell(global: &Global, line: &str) {
    if global.json {
        // A reader that left wants no answer.
        let _ = answer(&format!("{}\n", serde_json::json!({ "dry_run": line, "ran": false })));
    } else {
        say(line);
    }
}
