//! What a batch would do: reads, decides, and writes nothing (BAT-18).
use ctrlrun::plan::effect::{Answer, Command, Refusal, Reserve, decide};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::{Ask, Found};
use serde_json::json;

use super::input::{Input, LineError};
use super::items::Defaults;
use super::seen::Seen;
use super::{BatchArgs, wrong};
use crate::cli::access::{Opened, for_dry_run};
use crate::cli::error::{CliError, Exit, Kind};
use crate::cli::render::text::{clean, number};
use crate::cli::terminal::{answer, say};
use crate::cli::waiting::{Waiting, nothing_found};
use crate::cli::{Global, journal};
use ctrlrun::drive::batch::Item;

/// How many lines are asked about together.
const TOGETHER: usize = 256;

#[derive(Default)]
struct Would {
    run: u64,
    replay: u64,
    leave: u64,
    held: u64,
    refuse: u64,
}

/// Says what would happen.
///
/// # Errors
/// A line that cannot be used, a store that cannot be read.
pub fn dry_run(
    args: &BatchArgs,
    input: Input,
    defaults: &Defaults,
    name: &str,
    global: &Global,
) -> Result<Exit, CliError> {
    journal::foresee(global, name)?;
    let opened = for_dry_run(global)?;
    let waiting = Waiting::read(opened.as_ref(), global);
    let own = std::env::var("CTRLRUN_KEY").ok();
    let mut would = Would::default();
    // Of the lines so far: which command its key would be bound to, and where.
    let mut seen = Seen::new();
    let mut input = input.peekable();
    while input.peek().is_some() {
        let lines: Result<Vec<Item>, LineError> = input
            .by_ref()
            .take(TOGETHER)
            .map(|line| line.map(|line| defaults.item(line)))
            .collect();
        let items = lines.map_err(|error| wrong(&error, 0))?;
        let found = load(opened.as_ref(), &items)?;
        for (item, found) in items.into_iter().zip(found) {
            let first = seen.first(&item.key);
            let refused = match first {
                Some((fingerprint, line)) if fingerprint != item.request.fingerprint => {
                    Some(format!("same key as line {line}, other command"))
                }
                Some(_) => {
                    would.replay += 1;
                    continue;
                }
                None if own.as_deref() == Some(item.key.as_str()) => Some(
                    "this is a command of that very effect, which would wait for itself".to_owned(),
                ),
                None => match waiting.delivered(opened.as_ref(), &item.key, found, global) {
                    Ok(found) => one(&item, &found, &mut would),
                    Err(error) if error.exit() == Kind::Store.exit() => Some(
                        "an outcome of it is in the spool, and the store does not take it"
                            .to_owned(),
                    ),
                    Err(error) => return Err(error),
                },
            };
            if first.is_none() {
                seen.add(&item.key, item.request.fingerprint, item.number);
            }
            if let Some(why) = refused {
                would.refuse += 1;
                tell(
                    &format!(
                        "{}:{}: {}: {why}: would refuse",
                        clean(name),
                        item.number,
                        clean(item.key.as_str())
                    ),
                    args,
                    global,
                );
            }
        }
    }
    if let Some(reach) = seen.reach() {
        global.note(&format!(
            "keys that come again more than {} lines later are counted as other keys",
            number(u64::try_from(reach).unwrap_or(u64::MAX))
        ));
    }
    end(&would, global)
}

/// What would become of one line; why it would be refused.
fn one(item: &Item, found: &Found, would: &mut Would) -> Option<String> {
    let reserve = Command::Reserve(Reserve {
        request: item.request.clone(),
        attempt_id: String::new(),
        lease: item.lease,
        max_attempts: item.max_attempts,
        rebind: false,
        run_id: None,
    });
    let answer = decide(found, &reserve, &[]).answer;
    if answer == Answer::Granted {
        would.run += 1;
    } else if answer == Answer::CommittedAlready {
        would.replay += 1;
    } else if answer == Answer::Refused(Refusal::Ambiguous) {
        would.leave += 1;
    } else if answer == Answer::Refused(Refusal::InProgress) {
        would.held += 1;
    } else if answer == Answer::Refused(Refusal::Mismatch) {
        return Some("the key is bound to another command".to_owned());
    } else {
        return Some("no attempt is left".to_owned());
    }
    None
}

fn load(opened: Option<&Opened>, items: &[Item]) -> Result<Vec<Found>, CliError> {
    let Some(opened) = opened else {
        return Ok(vec![nothing_found(); items.len()]);
    };
    let asked: Vec<(&Key, Ask)> = items.iter().map(|item| (&item.key, Ask::Nothing)).collect();
    let answers = opened.store.load_many(&asked, opened.within);
    answers.into_iter().map(|found| found.map_err(|error| opened.could_not(&error))).collect()
}

fn tell(line: &str, args: &BatchArgs, global: &Global) {
    debug_assert!(args.dry_run);
    if global.json {
        eprintln!("{}", json!({ "would_refuse": line }));
    } else {
        say(line);
    }
}

fn end(would: &Would, global: &Global) -> Result<Exit, CliError> {
    let exit = if would.leave > 0 {
        Kind::Ambiguous.exit()
    } else if would.refuse + would.held > 0 {
        Exit::FAILED
    } else {
        Exit::OK
    };
    if global.json {
        let object = json!({
            "dry_run": true, "ran": false, "would_run": would.run, "would_replay": would.replay,
            "would_leave": would.leave, "in_progress": would.held, "would_refuse": would.refuse,
            "exit_status": exit.0,
        });
        answer(&format!("{object}\n"))?;
        return Ok(exit);
    }
    let held = match would.held {
        0 => String::new(),
        held => format!(", find {} held by another attempt", number(held)),
    };
    say(&format!(
        "would run {}, replay {}, leave {} AMBIGUOUS{held}, refuse {}; nothing was run",
        number(would.run),
        number(would.replay),
        number(would.leave),
        number(would.refuse)
    ));
    Ok(exit)
}
