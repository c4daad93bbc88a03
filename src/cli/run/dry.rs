//! What a run would do (CLI-13): reads, decides, and writes nothing.
use ctrlrun::plan::attempt::RESERVED_LEASE_MAX;
use ctrlrun::plan::effect::{Answer, Command, Event, Refusal, Reserve, decide};
use ctrlrun::plan::protocol::{Ask, Found};

use super::args::{OnCommitted, OnRunning};
use super::request::Asked;
use super::{End, RunArgs};
use crate::cli::access::{Opened, for_dry_run};
use crate::cli::error::{CliError, Deed};
use crate::cli::refusal::{Refused, Started};
use crate::cli::render::text::clean;
use crate::cli::terminal::{answer, say};
use crate::cli::waiting::{Waiting, load, nothing_found};
use crate::cli::{Global, journal};

/// Says what would happen, and ends as a refusal would, or 0.
///
/// # Errors
/// A store that cannot be read.
pub fn dry_run(args: &RunArgs, asked: &Asked, global: &Global) -> Result<End, CliError> {
    let key = clean(asked.key.as_str());
    journal::foresee(global, asked.key.as_str())?;
    let opened = for_dry_run(global)?;
    let waiting = Waiting::read(opened.as_ref(), global);
    let Some(opened) = opened else {
        waiting.delivered(None, &asked.key, nothing_found(), global)?;
        tell(
            global,
            &format!("{key}: would make the default store, and run as attempt 1; nothing was run"),
        );
        return Ok(End::silent());
    };
    let found = load(&opened, &asked.key, Ask::Nothing)?;
    let found = waiting.delivered(Some(&opened), &asked.key, found, global)?;
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
