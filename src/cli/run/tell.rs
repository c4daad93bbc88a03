//! What came of a run, in words: whether anything ran, what is known, and what to type next (CLI-2,
//! CLI-4).
use std::time::Duration;

use ctrlrun::drive::run::Ran;
use ctrlrun::drive::spool::Spool;
use ctrlrun::plan::attempt::{NotRecorded, Outcome, Undelivered};
use ctrlrun::plan::effect::{Cause, Ending, Event, Record, Refusal, Verdict};
use ctrlrun::plan::time::Timestamp;
use ctrlrun::store::Shown;

use super::request::Asked;
use crate::cli::access::Opened;
use crate::cli::error::{CliError, Deed, Kind};
use crate::cli::refusal::{Refused, Started};
use crate::cli::render::event::program;
use crate::cli::render::next::{decide, look};
use crate::cli::render::shell::line;
use crate::cli::render::text::{age, clean};

/// Everything but a first COMMITTED and a replay. `declares`: some exit codes were declared as proof.
#[must_use]
pub fn result(
    declares: bool,
    asked: &Asked,
    opened: &Opened,
    spool: Option<&Spool>,
    ran: &Ran,
) -> CliError {
    match &ran.report.result {
        Outcome::Settled { verdict, ending } => {
            settled(declares, asked, opened, ran, *verdict, ending)
        }
        Outcome::Refused(refusal) => refused(asked, opened, ran, *refusal),
        Outcome::CommittedAlready => committed_already(asked, opened, ran),
        Outcome::CouldNot(error) => with_spool(opened.could_not(error), ran, spool),
        Outcome::Unknown(error) => {
            with_spool(CliError::unknown(error, &opened.place, Deed::Run), ran, spool)
        }
        Outcome::NotRecorded { undelivered, why } => {
            not_recorded(asked, opened, spool, ran, undelivered, why)
        }
    }
}

/// 73: it is committed, and the caller wanted to be told so.
#[must_use]
pub fn committed_already(asked: &Asked, opened: &Opened, ran: &Ran) -> CliError {
    let since = match (&ran.report.record, ran.report.now) {
        (Some(record), Some(now)) => format!(" {} ago", age(now.since(record.updated_at))),
        _ => String::new(),
    };
    let attempt = ran.report.record.as_ref().map_or(0, |record| record.attempt);
    let key = clean(asked.key.as_str());
    let message = format!(
        "{key}: refused, nothing was run: COMMITTED (happened){since} by attempt {attempt}"
    );
    CliError::new(Kind::Settled, message).hint(look(asked.key.as_str(), &opened.place))
}

/// A signal ended the wait for another attempt, or for a retry: nothing more is run.
#[must_use]
pub fn interrupted(asked: &Asked, opened: &Opened, ran: &Ran, signal: i32) -> CliError {
    let key = clean(asked.key.as_str());
    let what = if ran.report.ran { "it is not run again" } else { "nothing was run" };
    let name = nix::sys::signal::Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned());
    let kind = if ran.report.ran { Kind::Failed } else { Kind::InProgress };
    CliError::new(kind, format!("{key}: ended by {name} while waiting: {what}"))
        .hint(look(asked.key.as_str(), &opened.place))
}

/// What another attempt is doing, as a refusal would say it.
#[must_use]
pub fn live(asked: &Asked, opened: &Opened, ran: &Ran) -> String {
    let error = refused(asked, opened, ran, Refusal::InProgress);
    let told = error.message();
    told.rsplit_once("nothing was run: ").map_or(told, |(_, what)| what).to_owned()
}

/// Another command ran under the key than the one that had failed before, which is permitted after a
/// FAILED that needed nobody's decision, and may still be a mistake in a script (OPS-13).
#[must_use]
pub fn rebound(asked: &Asked, opened: &Opened, ran: &Ran) -> Option<String> {
    let record = ran.report.record.as_ref().filter(|_| ran.report.ran)?;
    if record.attempt == record.first_attempt {
        return None;
    }
    // What is told is not worth an error of its own.
    let history = opened.history(&asked.key, 1).ok()?;
    let mut before = None;
    let mut request = None;
    for row in &history {
        if let Event::Reserved(event) = &row.event {
            before = request.replace(&event.request);
        } else if let Event::Resolved(_) = &row.event {
            // A person decided, and then --rebind was asked for.
            request = None;
        }
    }
    let before = before.filter(|before| before.fingerprint != asked.request.fingerprint)?;
    Some(format!(
        "{}: attempt {} ran another command than the one before, which had failed: {}, before {}",
        clean(asked.key.as_str()),
        record.attempt,
        program(&asked.request.program, asked.request.arguments),
        program(&before.program, before.arguments)
    ))
}

/// While the command runs: the record is no longer this attempt's own (EXE-9).
#[must_use]
pub fn lost(asked: &Asked, record: Option<&Record>) -> String {
    let key = clean(asked.key.as_str());
    let how = record.map_or("it is gone".to_owned(), |record| {
        let state = crate::cli::render::state::name(record.state);
        format!("attempt {} stands {state}", record.attempt)
    });
    format!(
        "{key}: its record is no longer its own ({how}); what comes of the command is kept as a late \
         outcome"
    )
}

/// After the command has run, at the first try to record it that failed (EXE-24).
#[must_use]
pub fn trying(asked: &Asked, undelivered: &Undelivered, spooled: bool) -> String {
    let key = clean(asked.key.as_str());
    let word = word(undelivered.settle.verdict);
    let kept = if spooled { "kept in the spool, and " } else { "" };
    format!("{key}: it ran ({word}); the store does not take the outcome: {kept}still trying")
}

/// How the child ended, or why it was not started, in one line of safe text.
#[must_use]
pub fn ending(ran: &Ran) -> String {
    if let Outcome::Settled { ending, .. } = &ran.report.result {
        clean(&ending.detail).into_owned()
    } else {
        String::new()
    }
}

fn settled(
    declares: bool,
    asked: &Asked,
    opened: &Opened,
    ran: &Ran,
    verdict: Verdict,
    ending: &Ending,
) -> CliError {
    let key = clean(asked.key.as_str());
    let program = clean(&asked.program);
    let detail = clean(&ending.detail);
    match verdict {
        Verdict::Committed => CliError::new(Kind::Internal, format!("{key}: COMMITTED (happened)")),
        Verdict::Failed => CliError::new(
            Kind::Failed,
            format!("{key}: FAILED (did not happen): {program} {detail}; it may run again"),
        ),
        Verdict::NeverStarted => CliError::new(
            if ran.unjournaled { Kind::Store } else { Kind::Failed },
            format!("{key}: FAILED (did not happen): {detail}; it may run again"),
        ),
        Verdict::Ambiguous { cause, .. } => {
            let why = match cause {
                Cause::LateOutcome => {
                    ", and a word that came late says that an earlier attempt may have happened"
                }
                Cause::Lapsed
                | Cause::Exit
                | Cause::Signal
                | Cause::Timeout
                | Cause::Contradiction
                | Cause::Reopened => "",
            };
            let message = format!(
                "{key}: AMBIGUOUS (may have happened): {program} {detail}{why}; ctrlrun cannot know \
                 whether the effect happened, and will not run it again"
            );
            let mut error = CliError::new(Kind::Ambiguous, message)
                .hint(look(asked.key.as_str(), &opened.place));
            if let Some(record) = &ran.report.record {
                error = error.hints(decide(record, &opened.place));
            }
            declarable(error, declares, cause, ending)
        }
    }
}

/// How to say, next time, that this exit code proves something: where that can be true.
fn declarable(error: CliError, declares: bool, cause: Cause, ending: &Ending) -> CliError {
    match (cause, ending.exit_code) {
        (Cause::Exit, Some(code @ 1..=123)) if !declares => error.tell(
            &format!("if exit {code} always means \"nothing happened\" here"),
            format!("--not-executed {code} (see `ctrlrun help outcomes`)"),
        ),
        _ => error,
    }
}

fn refused(asked: &Asked, opened: &Opened, ran: &Ran, refusal: Refusal) -> CliError {
    // For the evidence only; a store that does not answer now changes nothing.
    let shown: Option<Shown> = opened.look(&asked.key).ok().flatten();
    Refused {
        key: &asked.key,
        place: &opened.place,
        deed: Deed::Run,
        record: ran.report.record.as_ref(),
        now: ran.report.now.unwrap_or(Timestamp(0)),
        started: Started::of(shown.as_ref(), ran.report.record.as_ref()),
        request: Some(&asked.request),
    }
    .error(refusal)
}

/// Adds where "never started" waits to be delivered, where there is such a thing.
fn with_spool(error: CliError, ran: &Ran, spool: Option<&Spool>) -> CliError {
    match (&ran.report.spooled, spool) {
        (Some(Ok(())), Some(spool)) => error.fact(format!(
            "that it was never started is kept in {}; the next command that writes delivers it",
            clean(&spool.dir().to_string_lossy())
        )),
        _ => error,
    }
}

fn not_recorded(
    asked: &Asked,
    opened: &Opened,
    spool: Option<&Spool>,
    ran: &Ran,
    undelivered: &Undelivered,
    why: &NotRecorded,
) -> CliError {
    let key = clean(asked.key.as_str());
    let (word, detail) = (word(undelivered.settle.verdict), &undelivered.settle.ending.detail);
    let detail = clean(detail);
    let what = if ran.report.ran { "it ran" } else { "nothing was run" };
    let kind = if ran.report.ran { Kind::NotRecorded } else { Kind::Store };
    let is = format!("{key}: {what} ({detail}: {word})");
    match why {
        NotRecorded::Late => {
            let record = ran.report.record.as_ref();
            let stands = record.map_or(String::new(), |record| stands(record, ran.report.now));
            let error = CliError::new(
                kind,
                format!("{is}, but the record was no longer its own{stands}: kept in the history as a late outcome"),
            )
            .hint(look(asked.key.as_str(), &opened.place));
            let stuck =
                record.filter(|record| ran.report.now.is_some_and(|now| record.is_stuck(now)));
            match stuck {
                Some(record) => error.hints(decide(record, &opened.place)),
                None => error,
            }
        }
        NotRecorded::Forgotten => {
            let told = CliError::new(
                kind,
                format!("{is}, but the store has no such effect any more (was it restored from a backup?)"),
            )
            .fact(format!("store: {}", opened.place.named()));
            match (&ran.report.spooled, spool) {
                (Some(Ok(())), Some(spool)) => told.fact(format!(
                    "kept in {}: nothing runs under this key while that file is there",
                    clean(&spool.path(undelivered.settle.outcome_id).to_string_lossy())
                )),
                _ => told,
            }
        }
        NotRecorded::Store(error) => {
            let message = format!("{is}, but the store did not take it: {}", clean(&error.message));
            let told =
                CliError::new(kind, message).fact(format!("store: {}", opened.place.named()));
            match (&ran.report.spooled, spool) {
                (Some(Ok(())), Some(spool)) => told
                    .fact(format!(
                        "kept in {}; the next command that writes delivers it",
                        clean(&spool.path(undelivered.settle.outcome_id).to_string_lossy())
                    ))
                    .hint(look(asked.key.as_str(), &opened.place)),
                (spooled, _) => by_hand(told, asked, opened, ran, undelivered, spooled.as_ref()),
            }
        }
    }
}

/// Nothing has kept it but this line: all that a person needs to record it (EXE-26).
fn by_hand(
    told: CliError,
    asked: &Asked,
    opened: &Opened,
    ran: &Ran,
    undelivered: &Undelivered,
    spooled: Option<&Result<(), String>>,
) -> CliError {
    let settle = &undelivered.settle;
    let why = match spooled {
        Some(Err(why)) => clean(why).into_owned(),
        Some(Ok(())) | None => "there is none".to_owned(),
    };
    let told = told
        .fact(format!("THE SPOOL COULD NOT KEEP IT EITHER ({why}): these lines are all there is"))
        .fact(format!(
            "attempt {}, reservation {}, outcome {}",
            settle.holder.attempt, settle.holder.reservation_id.0, settle.outcome_id.0
        ));
    let decision = match settle.verdict {
        Verdict::Committed => "--committed",
        Verdict::Failed | Verdict::NeverStarted => "--not-executed",
        Verdict::Ambiguous { .. } => return told.hint(look(asked.key.as_str(), &opened.place)),
    };
    let revision = ran.report.record.as_ref().map_or(0, |record| record.revision);
    let flags = format!(
        "{decision} --expect {revision} --reason 'ctrlrun saw: {}'",
        clean(&settle.ending.detail).replace('\'', "")
    );
    told.hint(crate::cli::error::Hint::command(
        "once the store is back and the lease has ended",
        line("resolve", asked.key.as_str(), &flags, &opened.place),
    ))
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Committed => "COMMITTED, happened",
        Verdict::Failed | Verdict::NeverStarted => "FAILED, did not happen",
        Verdict::Ambiguous { .. } => "AMBIGUOUS, may have happened",
    }
}

fn stands(record: &Record, now: Option<Timestamp>) -> String {
    let since = now.map_or(Duration::ZERO, |now| now.since(record.updated_at));
    format!(
        " (attempt {}, {} for {})",
        record.attempt,
        crate::cli::render::state::name(record.state),
        age(since)
    )
}
