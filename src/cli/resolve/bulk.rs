//! Decisions from a file or a pipe (DEC-12 to DEC-14).
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Seek};
use std::path::Path;

use ctrlrun::plan::effect::{Answer, Record};
use ctrlrun::plan::key::Key;
use serde_json::json;

use super::ResolveArgs;
use super::deciding::{Decided, Told, by};
use super::lines::{Lines, Read1, Wrong};
use crate::cli::Global;
use crate::cli::access::{Opened, for_writing, no_such_effect};
use crate::cli::error::{CliError, Deed, Exit, Kind};
use crate::cli::refusal::answered;
use crate::cli::render::text::{clean, count, number};
use crate::cli::spooled::Delivered;
use crate::cli::terminal::{Answer as Out, say};

/// The most wrong lines that are told.
const WRONG_MAX: usize = 20;
/// So many refusals are told with what to type next; further ones in one line each.
const FULL_MAX: u64 = 10;
/// So many keys are named for each reason in the summary.
const NAMED_MAX: usize = 5;

/// Records the decisions of `from`.
///
/// # Errors
/// 64 for lines that are wrong, 66 for a file that cannot be read; what the store could not do.
pub fn bulk(from: &Path, args: &ResolveArgs, global: &Global) -> Result<Exit, CliError> {
    let by = by(args.by.as_deref())?;
    if from == Path::new("-") {
        let lines = Lines::new(BufReader::new(io::stdin()), by);
        return decide_all(lines, "stdin", global);
    }
    let name = clean(&from.to_string_lossy()).into_owned();
    let unreadable = |error: &io::Error| {
        let message = format!("--from {name}: cannot be read; nothing was changed");
        CliError::new(Kind::NotFound, message).because(error)
    };
    let mut file = File::open(from).map_err(|error| unreadable(&error))?;
    let is_regular = file.metadata().map_err(|error| unreadable(&error))?.is_file();
    if is_regular {
        let lines = Lines::new(BufReader::new(&file), by.clone());
        check(lines, &name).map_err(|error| match error {
            Bad::Read(error) => unreadable(&error),
            Bad::Lines(error) => error,
        })?;
        file.rewind().map_err(|error| unreadable(&error))?;
    }
    decide_all(Lines::new(BufReader::new(file), by), &name, global)
}

/// Why a file is not decided.
enum Bad {
    Read(io::Error),
    Lines(CliError),
}

/// Looks at all of a file before the first change.
fn check<R: io::BufRead>(mut lines: Lines<R>, name: &str) -> Result<(), Bad> {
    let mut seen: HashMap<Key, u64> = HashMap::new();
    let mut wrong: Vec<Wrong> = Vec::new();
    let mut wrong_count: u64 = 0;
    let mut found = |bad: Wrong| {
        wrong_count += 1;
        if wrong.len() < WRONG_MAX {
            wrong.push(bad);
        }
    };
    loop {
        match lines.read().map_err(Bad::Read)? {
            Read1::End => break,
            Read1::Wrong(bad) => found(bad),
            Read1::Decision(number, decided) => {
                if let Some(first) = seen.get(&decided.key) {
                    let why = format!("the key of line {first} again: one of the two is a mistake");
                    found(Wrong { number, why });
                } else {
                    seen.insert(decided.key, number);
                }
            }
        }
    }
    if wrong_count == 0 {
        return Ok(());
    }
    let is = if wrong_count == 1 { "is" } else { "are" };
    let message = format!("{name}: {} {is} wrong; nothing was changed", count(wrong_count, "line"));
    let mut error = CliError::new(Kind::Usage, message);
    for Wrong { number, why } in &wrong {
        error = error.fact(format!("line {number}: {}", clean(why)));
    }
    let more = wrong_count - wrong.len() as u64;
    if more > 0 {
        error = error.fact(format!("and {} more", number(more)));
    }
    Err(Bad::Lines(error))
}

/// Records them one by one, as they come.
fn decide_all<R: io::BufRead>(
    mut lines: Lines<R>,
    name: &str,
    global: &Global,
) -> Result<Exit, CliError> {
    let opened = for_writing(global, Deed::Change)?;
    let delivered = Delivered::all(&opened, global)?;
    let mut teller = Teller::new(global);
    let stopped = loop {
        match lines.read() {
            Ok(Read1::End) => break None,
            Ok(Read1::Decision(number, decided)) => {
                let came = one(&opened, &delivered, &decided);
                let stop = came.as_ref().err().is_some_and(|error| error.ends_it);
                teller.tell(number, &decided, came)?;
                if stop {
                    break Some(None);
                }
            }
            Ok(Read1::Wrong(Wrong { number, why })) => {
                let message = format!("{name}: line {number}: {}", clean(&why));
                break Some(Some(CliError::new(Kind::Usage, message)));
            }
            Err(error) => {
                let message = format!("{name}: cannot be read further");
                break Some(Some(CliError::new(Kind::NotFound, message).because(&error)));
            }
        }
    };
    if let Some(Some(error)) = &stopped {
        let before = "the decisions before it are counted below; nothing behind it was read";
        error.clone().fact(before).report(global.json);
    }
    let broken = stopped.map(|error| error.map(|error| error.exit()));
    teller.end(broken)
}

/// One that was done, or was so already.
struct Done {
    text: String,
    already: bool,
    record: Option<Record>,
    warning: Option<String>,
}

/// One that was not.
struct NotDone {
    error: CliError,
    record: Option<Box<Record>>,
    /// The store does not answer: the next one would fare no better.
    ends_it: bool,
}

fn one(opened: &Opened, delivered: &Delivered, decided: &Decided) -> Result<Done, NotDone> {
    let key = &decided.key;
    let not_done = |error: CliError, ends_it| NotDone { error, record: None, ends_it };
    delivered.check(opened, key, Deed::Change).map_err(|error| not_done(error, false))?;
    let before = opened.look(key).map_err(|error| {
        // A record that cannot be read stands in the way of itself only.
        let ends_it = error.kind() != Kind::Internal;
        not_done(error, ends_it)
    })?;
    let Some(before) = before else {
        return Err(not_done(no_such_effect(key, &opened.place), false));
    };
    let done = decided.perform(opened, before.record.attempt);
    let answered =
        answered(done, &opened.place, Deed::Change).map_err(|error| not_done(error, true))?;
    let told = Told { opened, decided, before: &before };
    match told.answer(&answered) {
        Ok(text) => {
            let already = answered.answer == Answer::AlreadySo;
            let warning = told.warning().filter(|_| !already);
            Ok(Done { text, already, record: answered.record, warning })
        }
        Err(error) => {
            let record = answered.record.map(Box::new);
            Err(NotDone { error, record, ends_it: false })
        }
    }
}

/// Tells each decision as it comes, and counts.
struct Teller<'a> {
    global: &'a Global,
    out: Out,
    done: u64,
    already: u64,
    unseen: u64,
    not_done: u64,
    /// By reason, in the order of the exit status.
    reasons: Vec<Reason>,
    failed: Option<Exit>,
}

/// Why some were not done.
struct Reason {
    words: &'static str,
    exit: Exit,
    times: u64,
    keys: Vec<String>,
}

impl<'a> Teller<'a> {
    fn new(global: &'a Global) -> Self {
        let reason =
            |words, kind: Kind| Reason { words, exit: kind.exit(), times: 0, keys: Vec::new() };
        Self {
            global,
            out: Out::plain(),
            done: 0,
            already: 0,
            unseen: 0,
            not_done: 0,
            reasons: vec![
                reason("revision moved", Kind::RevisionConflict),
                reason("running", Kind::InProgress),
                reason("settled otherwise", Kind::Settled),
                reason("no such effect", Kind::NotFound),
            ],
            failed: None,
        }
    }

    fn tell(
        &mut self,
        number: u64,
        decided: &Decided,
        came: Result<Done, NotDone>,
    ) -> Result<(), CliError> {
        let key = decided.key.as_str();
        match came {
            Ok(done) => {
                let result = if done.already {
                    self.already += 1;
                    "already"
                } else {
                    self.done += 1;
                    "done"
                };
                self.unseen += u64::from(done.warning.is_some());
                if self.global.json {
                    self.json(number, key, result, done.record.as_ref(), None)?;
                } else if self.global.verbose > 0 {
                    say(&done.text);
                    if let Some(warning) = &done.warning {
                        say(warning);
                    }
                }
                Ok(())
            }
            Err(NotDone { error, record, .. }) => {
                self.not_done += 1;
                let exit = error.exit();
                let result = match error.kind() {
                    Kind::RevisionConflict => "moved",
                    Kind::InProgress => "running",
                    Kind::Settled => "settled",
                    Kind::NotFound => "no_such_effect",
                    Kind::Usage
                    | Kind::Mismatch
                    | Kind::Store
                    | Kind::Internal
                    | Kind::MaxAttempts
                    | Kind::NotRecorded
                    | Kind::Ambiguous
                    | Kind::Denied
                    | Kind::Config
                    | Kind::Failed => "failed",
                };
                match self.reasons.iter_mut().find(|reason| reason.exit == exit) {
                    Some(reason) => {
                        reason.times += 1;
                        if reason.keys.len() < NAMED_MAX {
                            reason.keys.push(clean(key).into_owned());
                        }
                    }
                    None => {
                        self.failed.get_or_insert(exit);
                    }
                }
                if self.global.json {
                    let message = Some(error.message());
                    self.json(number, key, result, record.as_deref(), message)?;
                } else if self.not_done <= FULL_MAX {
                    error.report(false);
                } else {
                    say(error.message());
                }
                Ok(())
            }
        }
    }

    fn json(
        &mut self,
        number: u64,
        key: &str,
        result: &str,
        record: Option<&Record>,
        message: Option<&str>,
    ) -> Result<(), CliError> {
        let object = json!({
            "line": number,
            "key": key,
            "result": result,
            "revision": record.map(|record| record.revision),
            "state": record.map(|record| record.state.name()),
            "message": message,
        });
        self.out.put(|out| writeln!(out, "{object}").and_then(|()| out.flush()))?;
        Ok(())
    }

    /// Counts; returns the exit status. `broken`: it stopped before the end, with this status if that
    /// was not told with a decision.
    fn end(&mut self, broken: Option<Option<Exit>>) -> Result<Exit, CliError> {
        self.out.put(|out| out.flush())?;
        if self.global.json {
            let summary = json!({"summary": {
                "decisions": self.done + self.already + self.not_done,
                "done": self.done,
                "already": self.already,
                "not_done": self.not_done,
                "complete": broken.is_none(),
            }});
            use std::io::Write;
            let _ = writeln!(io::stderr().lock(), "{summary}");
        } else {
            say(&self.summary(broken.is_some()));
            if self.unseen > 0 {
                say(&format!(
                    "warning: of {} nobody saw the old process end: if it is still running, the \
                     next run is a second one",
                    count(self.unseen, "effect")
                ));
            }
        }
        let first = self.reasons.iter().find(|reason| reason.times > 0);
        let exit = self.failed.or(broken.flatten()).or(first.map(|reason| reason.exit));
        Ok(exit.unwrap_or(Exit::OK))
    }

    /// `7 decisions: 6 done, 1 not (revision moved): deploy:prod:881`
    fn summary(&self, broken: bool) -> String {
        let all = self.done + self.already + self.not_done;
        let mut text = format!("{}: {} done", count(all, "decision"), number(self.done));
        if self.already > 0 {
            text.push_str(&format!(", {} so already", number(self.already)));
        }
        let mut named = 0;
        let mut separator = ", ";
        for reason in self.reasons.iter().filter(|reason| reason.times > 0) {
            named += reason.times;
            let keys = reason.keys.join(", ");
            let more = if reason.times > reason.keys.len() as u64 { ", ..." } else { "" };
            let times = number(reason.times);
            text.push_str(&format!("{separator}{times} not ({}): {keys}{more}", reason.words));
            separator = "; ";
        }
        if self.not_done > named {
            text.push_str(&format!("{separator}{} not", number(self.not_done - named)));
        }
        if broken {
            text.push_str("; the rest was not read");
        }
        text
    }
}
