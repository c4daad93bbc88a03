//! What happens while runs are driven: a line for each thing, and the hooks that are told (AFT-8).
use ctrlrun::drive::run::Ran;
use ctrlrun::drive::workflow::worker::Told;
use ctrlrun::exec::Exit;
use ctrlrun::plan::attempt::{NotRecorded, Outcome};
use ctrlrun::plan::effect::Verdict;
use ctrlrun::plan::workflow::Dispatch;
use serde_json::{Map, Value, json};

use crate::cli::Global;
use crate::cli::access::Opened;
use crate::cli::hooks::Hook;
use crate::cli::render::text::clean;
use crate::cli::run::report::object;
use crate::cli::terminal::say;

/// One line for each thing that happens, on stderr.
pub fn tell(told: &Told<'_>, opened: &Opened, global: &Global) {
    match told {
        Told::Ticked(before, now) => {
            let stood = before.map(|before| before.status);
            if stood != Some(now.status) && stood.is_some() {
                let reason = now
                    .reason
                    .as_deref()
                    .map_or(String::new(), |reason| format!(": {}", clean(reason)));
                let id = clean(now.id.as_str());
                global.note(&format!("{id}: {}{reason}", now.status.name().to_uppercase()));
            }
        }
        Told::Ran(dispatch, ran) => {
            let of = format!("{}: {}", clean(dispatch.id.run.as_str()), dispatch.id.node);
            for problem in &ran.problems {
                global.note(&format!("{of}: {}", clean(problem)));
            }
            match &ran.report.result {
                Outcome::Settled { verdict, ending } => {
                    let state = match verdict {
                        Verdict::Committed => "COMMITTED",
                        Verdict::Failed | Verdict::NeverStarted => "FAILED (did not happen)",
                        Verdict::Ambiguous { .. } => "AMBIGUOUS (may have happened)",
                    };
                    let why = match verdict {
                        Verdict::Committed => String::new(),
                        Verdict::Failed | Verdict::NeverStarted | Verdict::Ambiguous { .. } => {
                            format!(": {}", clean(&ending.detail))
                        }
                    };
                    global.note(&format!("{of}: {state}{why}"));
                }
                Outcome::CommittedAlready => global.note(&format!("{of}: COMMITTED earlier")),
                Outcome::NotRecorded { why, .. } => {
                    let why = match why {
                        NotRecorded::Late => "it came late, and is kept in the history".to_owned(),
                        NotRecorded::Forgotten => "the effect was forgotten".to_owned(),
                        NotRecorded::Store(error) => clean(&error.message).into_owned(),
                    };
                    let kept = match &ran.report.spooled {
                        Some(Ok(())) => "; it is in the spool, and will be delivered",
                        Some(Err(_)) => "; IT COULD NOT BE SPOOLED EITHER: look at the effect",
                        None => "",
                    };
                    say(&format!("{of}: it ran, and its outcome is not recorded: {why}{kept}"));
                }
                Outcome::CouldNot(error) | Outcome::Unknown(error) => {
                    say(&format!("{of}: nothing was run: {}", clean(&error.message)));
                }
                Outcome::Refused(_) => {}
            }
            hook(dispatch, ran, opened, global);
        }
        Told::Stale(_) => {}
        Told::InDoubtElsewhere(dispatch) => say(&format!(
            "{}: {}: nothing was run: a word of an older store about {} is in the spool",
            clean(dispatch.id.run.as_str()),
            dispatch.id.node,
            clean(dispatch.key.as_str()),
        )),
        Told::CouldNot(run, error) => {
            let run = run.map_or(String::new(), |run| format!("{}: ", clean(run.as_str())));
            say(&format!("{run}{}: {}", opened.place.shown(), clean(&error.message)));
        }
    }
}

/// Runs the hook of this outcome, if there is one. The nodes of other threads go on meanwhile.
fn hook(dispatch: &Dispatch, ran: &Ran, opened: &Opened, global: &Global) {
    let Some(hook) = Hook::after(ran, global) else {
        return;
    };
    let object = opened.look(&dispatch.key).ok().flatten().map(|shown| object(&shown, opened));
    let mut fields = match object {
        Some(Value::Object(fields)) => fields,
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
        )
        | None => Map::new(),
    };
    fields.entry("key").or_insert_with(|| json!(dispatch.key.as_str()));
    let child = ran.child.as_ref().filter(|_| ran.report.ran);
    let status = child.and_then(|child| match child.exit {
        Exit::Code(code) => Some(code),
        Exit::Signal { number, .. } => Some(128 + number),
        Exit::Lost => None,
    });
    let took = child.map_or(0, |child| child.duration.as_millis());
    fields.insert("run".to_owned(), json!(dispatch.id.run.as_str()));
    fields.insert("node".to_owned(), json!(dispatch.id.node.as_str()));
    fields.insert("ran".to_owned(), json!(ran.report.ran));
    fields.insert("exit_status".to_owned(), json!(status));
    fields.insert("duration_ms".to_owned(), json!(u64::try_from(took).unwrap_or(u64::MAX)));
    hook.run(&format!("{}\n", Value::Object(fields)), global);
}
