//! What is told of each key, and of all together (DEC-10).
use std::time::Duration;

use ctrlrun::drive::reconcile::{self as asked, Reconciled};
use ctrlrun::plan::effect::{ProbeAnswer, Record, State};
use ctrlrun::plan::time::Timestamp;
use serde_json::{Map, Value, json};

use super::exit_of;
use crate::cli::Global;
use crate::cli::access::{Opened, no_such_effect};
use crate::cli::error::{CliError, Exit, Hint, Kind};
use crate::cli::probes::{could_not_tell, why_not};
use crate::cli::render::next::{decide, look};
use crate::cli::render::shell::store_flag;
use crate::cli::render::state::{glossed, name};
use crate::cli::render::text::{clean, number, span};
use crate::cli::terminal::{Answer as Out, say};

/// What came of one key.
pub enum Came {
    /// It was asked about, or needed not to be; and what signs the probe's answers.
    Asked(Box<Reconciled>, String),
    /// It has no probe: why.
    NoProbe(String),
    /// An outcome of it waits in the spool, and the store does not take it.
    Undelivered(CliError),
    /// Its record cannot be read.
    Unreadable(String),
    /// The store could not do a part of it.
    Failed(CliError),
}

impl Came {
    /// Whether the rest is not begun: the store would not take its answers either.
    pub fn ends_it(&self) -> bool {
        match self {
            Self::Failed(_) => true,
            Self::Asked(reconciled, _) => {
                matches!(reconciled.came, asked::Came::Interrupted(_))
            }
            Self::NoProbe(_) | Self::Undelivered(_) | Self::Unreadable(_) => false,
        }
    }
}

/// How often what came.
#[derive(Debug, Default)]
struct Counts {
    stuck: u64,
    committed: u64,
    not_executed: u64,
    unknown: u64,
    not_so_far: u64,
    settled_meanwhile: u64,
    not_asked: u64,
}

/// Tells each key as it comes, and counts.
pub struct Teller<'a> {
    opened: &'a Opened,
    global: &'a Global,
    /// Of many it tells only those that need somebody, a line each.
    many: bool,
    out: Out,
    counts: Counts,
    failed: Option<Exit>,
    missing: bool,
    left: bool,
    running: bool,
    interrupted: Option<i32>,
}

/// One key, in the words of [`Came`].
struct Line<'a> {
    result: &'static str,
    record: Option<&'a Record>,
    detail: Option<String>,
}

impl<'a> Teller<'a> {
    /// Nothing was told yet.
    pub fn new(opened: &'a Opened, global: &'a Global, many: bool) -> Self {
        Self {
            opened,
            global,
            many,
            out: Out::plain(),
            counts: Counts::default(),
            failed: None,
            missing: false,
            left: false,
            running: false,
            interrupted: None,
        }
    }

    /// The signal that ended it.
    pub fn interrupted(&self) -> Option<i32> {
        self.interrupted
    }

    /// Tells what came of one key.
    ///
    /// # Errors
    /// An answer that cannot be written.
    pub fn tell(&mut self, key: &str, came: Came) -> Result<(), CliError> {
        match came {
            Came::Asked(reconciled, by) => self.asked(key, &reconciled, &by),
            Came::NoProbe(why) => {
                self.left(|counts| counts.not_asked += 1);
                let told = format!("{}: not asked: {why}", clean(key));
                self.line(
                    key,
                    &Line { result: "no_probe", record: None, detail: Some(why) },
                    || CliError::new(Kind::Ambiguous, told).hint(look(key, &self.opened.place)),
                )
            }
            Came::Undelivered(error) => {
                self.left(|counts| counts.not_asked += 1);
                let detail = Some(error.message().to_owned());
                self.line(key, &Line { result: "failed", record: None, detail }, || error)
            }
            Came::Unreadable(why) => {
                self.failed.get_or_insert(Kind::Internal.exit());
                let told = format!("{}: its record cannot be read: {}", clean(key), clean(&why));
                self.line(key, &Line { result: "failed", record: None, detail: Some(why) }, || {
                    CliError::new(Kind::Internal, told)
                })
            }
            Came::Failed(error) => {
                self.failed.get_or_insert(error.exit());
                self.left(|_| ());
                let detail = Some(error.message().to_owned());
                self.line(key, &Line { result: "failed", record: None, detail }, || error)
            }
        }
    }

    fn left(&mut self, also: impl FnOnce(&mut Counts)) {
        self.left = true;
        self.counts.stuck += 1;
        also(&mut self.counts);
    }

    fn asked(&mut self, key: &str, reconciled: &Reconciled, by: &str) -> Result<(), CliError> {
        let record = reconciled.record.as_ref();
        let now = reconciled.now.unwrap_or(Timestamp(0));
        let (shown, by) = (clean(key), clean(by));
        let line = |result, detail| Line { result, record, detail };
        match &reconciled.came {
            asked::Came::Decided(answer) => {
                self.counts.stuck += 1;
                let result = match answer {
                    ProbeAnswer::Committed => "committed",
                    ProbeAnswer::NotExecuted | ProbeAnswer::Unknown => "not_executed",
                };
                match answer {
                    ProbeAnswer::Committed => self.counts.committed += 1,
                    ProbeAnswer::NotExecuted | ProbeAnswer::Unknown => {
                        self.counts.not_executed += 1;
                    }
                }
                let again = if result == "not_executed" { " It may run again." } else { "" };
                let told = record.map_or_else(String::new, |record| {
                    let state = glossed(record, now);
                    format!("{shown}: {state}, revision {}, by {by}.{again}", record.revision)
                });
                self.settled(key, &line(result, None), &told)
            }
            asked::Came::NotSoFar => {
                self.left(|counts| counts.not_so_far += 1);
                let why = record.map_or("", why_not);
                let detail = format!("{by} says not-executed, which means not so far: {why}");
                self.doubtful(key, &line("not_so_far", Some(detail)))
            }
            asked::Came::Unknown { why, said } => {
                self.left(|counts| counts.unknown += 1);
                let detail = could_not_tell(&by, why, said.as_deref());
                self.doubtful(key, &line("unknown", Some(detail)))
            }
            asked::Came::Moved => {
                let detail = format!("it moved while {by} was asked; the answer is dropped");
                let stuck = record.is_some_and(|record| record.is_stuck(now));
                if stuck {
                    self.left(|counts| counts.unknown += 1);
                    return self.doubtful(key, &line("moved", Some(detail)));
                }
                self.counts.stuck += 1;
                self.counts.settled_meanwhile += 1;
                let state = record.map_or("gone", |record| name(record.state));
                let told = format!("{shown}: {detail}: {state} now");
                self.settled(key, &line("moved", Some(detail)), &told)
            }
            asked::Came::NotInDoubt => {
                let live = record.is_some_and(|record| {
                    matches!(record.state, State::Reserved { .. } | State::Executing { .. })
                });
                self.running |= live && !self.many;
                let state = record.map_or_else(String::new, |record| glossed(record, now));
                let told = format!("{shown}: {state}; there is nothing to ask about");
                let result = if live { "running" } else { "settled" };
                self.settled(key, &line(result, None), &told)
            }
            asked::Came::NoSuchEffect => {
                self.missing |= !self.many;
                let place = &self.opened.place;
                self.line(
                    key,
                    &line("no_such_effect", None),
                    || match ctrlrun::plan::key::Key::new(key) {
                        Ok(key) => no_such_effect(&key, place),
                        Err(_) => CliError::new(Kind::NotFound, format!("no effect {shown}")),
                    },
                )
            }
            asked::Came::Interrupted(signal) => {
                self.interrupted = Some(*signal);
                self.left(|counts| counts.not_asked += 1);
                let told = format!(
                    "{shown}: ended by signal {signal} while {by} was asked: nothing was changed"
                );
                self.line(key, &line("interrupted", None), || CliError::new(Kind::Ambiguous, told))
            }
            asked::Came::CouldNot(error) | asked::Came::Unsure(error) => {
                self.failed.get_or_insert(Kind::Store.exit());
                let detail = Some(error.message.clone());
                let told = format!("{shown}: {}", clean(&error.message));
                self.line(key, &line("failed", detail), || CliError::new(Kind::Store, told))
            }
        }
    }

    /// One that is settled: of many, nobody has to read it.
    fn settled(&mut self, key: &str, line: &Line<'_>, told: &str) -> Result<(), CliError> {
        if self.global.json {
            return self.json(key, line);
        }
        if !self.many || self.global.verbose > 0 {
            self.global.note(told);
        }
        Ok(())
    }

    /// One that is as doubtful as before.
    fn doubtful(&mut self, key: &str, line: &Line<'_>) -> Result<(), CliError> {
        let place = &self.opened.place;
        let detail = line.detail.as_deref().unwrap_or_default();
        let told = format!("{}: AMBIGUOUS (may have happened) still: {detail}", clean(key));
        let record = line.record;
        self.line(key, line, || {
            let error = CliError::new(Kind::Ambiguous, told).hint(look(key, place));
            match record {
                Some(record) => error.hints(decide(record, place)),
                None => error,
            }
        })
    }

    /// One that needs somebody.
    fn line(
        &mut self,
        key: &str,
        line: &Line<'_>,
        error: impl FnOnce() -> CliError,
    ) -> Result<(), CliError> {
        if self.global.json {
            return self.json(key, line);
        }
        let error = error();
        if self.many {
            say(error.message())
        } else {
            error.report(false)
        }
        Ok(())
    }

    fn json(&mut self, key: &str, line: &Line<'_>) -> Result<(), CliError> {
        let mut object = Map::new();
        object.insert("key".to_owned(), json!(key));
        object.insert("result".to_owned(), json!(line.result));
        let record = line.record;
        object.insert("state".to_owned(), json!(record.map(|record| record.state.name())));
        object.insert("revision".to_owned(), json!(record.map(|record| record.revision)));
        object.insert("attempt".to_owned(), json!(record.map(|record| record.attempt)));
        object.insert("detail".to_owned(), json!(line.detail));
        let text = Value::Object(object).to_string();
        // Each as it comes: somebody may wait for it.
        self.out.put(|out| writeln!(out, "{text}").and_then(|()| out.flush()))?;
        Ok(())
    }

    /// Tells all of it in one line; returns the exit status.
    ///
    /// # Errors
    /// An answer that cannot be written.
    pub fn end(&mut self, took: Duration) -> Result<Exit, CliError> {
        self.out.put(|out| out.flush())?;
        let counts = &self.counts;
        if self.global.json {
            let summary = json!({"summary": {
                "stuck": counts.stuck,
                "committed": counts.committed,
                "not_executed": counts.not_executed,
                "unknown": counts.unknown,
                "not_so_far": counts.not_so_far,
                "settled_meanwhile": counts.settled_meanwhile,
                "not_asked": counts.not_asked,
                "duration_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            }});
            eprintln_line(&summary.to_string());
        } else if self.many && counts.stuck == 0 && self.failed.is_none() {
            self.global.note(&format!("nothing is stuck in {}", self.opened.place.named()));
        } else if self.many {
            say(&self.summary(took));
            if self.left {
                let line = format!("ctrlrun effects --stuck{}", store_flag(&self.opened.place));
                let hint = Hint::command("decide", line);
                say(&format!("  {}: {}", hint.label, hint.text));
            }
        }
        Ok(exit_of(self.failed, self.missing, self.left, self.running))
    }

    /// `400 stuck: 371 committed, 22 not executed, 7 unknown; probes 6 s`
    fn summary(&self, took: Duration) -> String {
        let counts = &self.counts;
        let mut text = format!(
            "{} stuck: {} committed, {} not executed, {} unknown",
            number(counts.stuck),
            number(counts.committed),
            number(counts.not_executed),
            number(counts.unknown)
        );
        for (of, what) in [
            (counts.not_so_far, "not so far"),
            (counts.settled_meanwhile, "settled meanwhile"),
            (counts.not_asked, "not asked"),
        ] {
            if of > 0 {
                text.push_str(&format!(", {} {what}", number(of)));
            }
        }
        format!("{text}; probes {}", span(took))
    }
}

fn eprintln_line(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
