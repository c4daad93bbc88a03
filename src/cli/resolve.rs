//! `ctrlrun resolve`: a person says what is so (CLI-19, EFF-18, EFF-19).
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use ctrlrun::drive::{Call, handle};
use ctrlrun::plan::effect::{Answer, Command, ProbeAnswer, Record, Refusal, Resolve, State};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::{Answered, Kept};
use ctrlrun::store::{Captured, Shown, Stream};
use nix::unistd::{User, geteuid, gethostname};

use super::access::{Opened, for_writing, place};
use super::error::{CliError, Deed, Exit, Kind};
use super::history::told;
use super::refusal::{Refused, Started, answered};
use super::render::next::look;
use super::render::object::Object;
use super::render::state::glossed;
use super::render::text::{clean, count};
use super::spooled::deliver_before_deciding;
use super::terminal::{self, a_person_is_there, say};
use super::{Global, existing_key, show};

/// The most bytes that can be stated as an output.
const OUTPUT_MAX: u64 = 16 << 20;

/// Say what is so of an effect that is stuck
///
/// Stuck is what is AMBIGUOUS, and what runs no more and never reported.
///
/// It is about the revision that was looked at (--expect, as `ctrlrun show` prints it): if the record
/// has moved since, nothing is changed, and what came since is listed.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("decision").required(true).args(["committed", "not_executed", "reopen"]),
    after_help = "Examples:
  ctrlrun resolve refund:txn_77 --committed --expect 3 --reason 're_5512 in the dashboard'
  ctrlrun resolve refund:txn_91 --not-executed --expect 3 --reason 'provider has none, OPS-12'
  ctrlrun resolve refund:txn_91 --reopen --expect 4 --reason 'looked at the wrong account'
  echo re_5512 | ctrlrun resolve refund:txn_77 --committed --output - --expect 3 --reason '...'

Exit status: 0 done, or so already; 66 no such effect; 73 settled otherwise; 75 running;
79 the record has moved."
)]
pub struct ResolveArgs {
    /// The effect's key
    pub key: String,
    /// It happened: it will not run again
    #[arg(long)]
    pub committed: bool,
    /// It did not happen: it may run again
    #[arg(long)]
    pub not_executed: bool,
    /// Take a decision back: AMBIGUOUS again, nothing will run
    #[arg(long)]
    pub reopen: bool,
    /// With --committed: what later runs print as its output; `-` is standard input
    #[arg(long, value_name = "FILE", requires = "committed")]
    pub output: Option<PathBuf>,
    /// How you know: a ticket, a page you looked at. It is kept
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// The revision that you looked at; at a terminal you are shown the record and asked
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub expect: Option<u64>,
    /// Who decides [default: SUDO_USER or USER, at this host]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Committed,
    NotExecuted,
    Reopen,
}

impl ResolveArgs {
    fn decision(&self) -> Decision {
        // Clap has seen to it that exactly one is set.
        if self.committed {
            Decision::Committed
        } else if self.not_executed {
            Decision::NotExecuted
        } else {
            Decision::Reopen
        }
    }
}

/// Records the decision.
///
/// # Errors
/// 64, 66, 73, 75, 79; what the store could not do. Nothing was changed.
pub fn resolve(args: &ResolveArgs, global: &Global) -> Result<Exit, CliError> {
    let key = existing_key(&args.key, Deed::Change)?;
    let reason = reason(args)?;
    let by = by(args)?;
    if args.expect.is_none() && !can_ask(args) {
        return Err(unlooked(args, global));
    }
    let stated = args.output.as_deref().map(stated).transpose()?;
    let opened = for_writing(global, Deed::Change)?;
    deliver_before_deciding(&opened, &key, global)?;
    let before = opened.find(&key)?;
    let looked_at = match args.expect {
        Some(revision) => revision,
        None => ask(&opened, &before, args.decision())?,
    };
    let size = stated.as_ref().map(|captured| captured.bytes);
    let call = Call {
        key: key.clone(),
        command: command(args.decision(), by.clone(), reason, looked_at),
        // The decision itself compares the revision: so it can answer "so already" to one that is
        // repeated (EFF-18).
        expect: StreamState::Any,
        within: opened.within,
        exchange_max: opened.within,
        outputs: stated
            .map(|captured| Kept {
                attempt: before.record.attempt,
                stream: Stream::Stated,
                captured,
            })
            .into_iter()
            .collect(),
    };
    let done = handle(opened.store.as_ref(), call);
    let answered = answered(done, &opened.place, Deed::Change)?;
    let told = Told {
        opened: &opened,
        key: &key,
        before: &before,
        looked_at,
        decision: args.decision(),
        by: &by,
        size,
    };
    told.answer(&answered)?;
    if global.json {
        print_json(&opened, &key)?;
    }
    Ok(Exit::OK)
}

fn command(decision: Decision, by: String, reason: String, looked_at: u64) -> Command {
    let decision = match decision {
        Decision::Committed => ProbeAnswer::Committed,
        Decision::NotExecuted => ProbeAnswer::NotExecuted,
        Decision::Reopen => {
            return Command::Reopen { by, reason, looked_at };
        }
    };
    Command::Resolve(Resolve { decision, by, reason, looked_at })
}

fn reason(args: &ResolveArgs) -> Result<String, CliError> {
    let given = args.reason.as_deref().map(str::trim);
    let what = match given {
        Some("") => "--reason is empty",
        None => "--reason is missing",
        Some(reason) => return Ok(reason.to_owned()),
    };
    Err(CliError::new(
        Kind::Usage,
        format!("{what}: say how you know (a ticket, a page you looked at); nothing was changed"),
    ))
}

fn by(args: &ResolveArgs) -> Result<String, CliError> {
    if let Some(by) = &args.by {
        let by = by.trim();
        if by.is_empty() {
            let message = "--by is empty: say who decides; nothing was changed";
            return Err(CliError::new(Kind::Usage, message));
        }
        if by.starts_with("reconcile:") {
            // The row tells a person's decision from a probe's by this (EFF-3).
            let message = "--by reconcile:... is what a probe signs with; nothing was changed";
            return Err(CliError::new(Kind::Usage, message));
        }
        return Ok(by.to_owned());
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("SUDO_USER")
        .or_else(|| variable("USER"))
        .or_else(|| User::from_uid(geteuid()).ok().flatten().map(|user| user.name))
        .unwrap_or_else(|| format!("uid {}", geteuid()));
    let host = gethostname()
        .map_or_else(|_| "an unnamed host".to_owned(), |host| host.to_string_lossy().into_owned());
    Ok(format!("{name}@{host}"))
}

/// Whether a person can be asked; not where the answer would be taken from the output's stream.
fn can_ask(args: &ResolveArgs) -> bool {
    args.output.as_deref() != Some(Path::new("-")) && a_person_is_there()
}

fn unlooked(args: &ResolveArgs, global: &Global) -> CliError {
    let key = clean(&args.key);
    let message = format!(
        "{key}: --expect is missing: a decision is about the revision that was looked at; nothing was changed"
    );
    let error = CliError::new(Kind::Usage, message);
    match place(global) {
        Ok(place) => error.hint(look(&args.key, &place)),
        Err(_) => error,
    }
}

/// Reads the bytes that are to become the output.
fn stated(from: &Path) -> Result<Captured, CliError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let most = OUTPUT_MAX + 1;
        if from == Path::new("-") {
            io::stdin().lock().take(most).read_to_end(&mut bytes)?;
        } else {
            File::open(from)?.take(most).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    let shown = from.to_string_lossy();
    let head = read().map_err(|error| {
        let message = format!("--output {}: cannot be read; nothing was changed", clean(&shown));
        CliError::new(Kind::NotFound, message).because(&error)
    })?;
    let bytes = head.len() as u64;
    if bytes > OUTPUT_MAX {
        return Err(CliError::new(
            Kind::Usage,
            format!(
                "--output {}: more than {}, which is the most that is kept; nothing was changed",
                clean(&shown),
                count(OUTPUT_MAX, "byte")
            ),
        ));
    }
    Ok(Captured { head, tail: Vec::new(), bytes, whole: true })
}

/// Shows the record and asks; returns the revision that was shown.
fn ask(opened: &Opened, before: &Shown, decision: Decision) -> Result<u64, CliError> {
    let text = show::text(opened, before, terminal::columns_of_stderr())?;
    let facts = text.split("\n\n").next().unwrap_or(&text);
    let what = match decision {
        Decision::Committed => "Record that it happened (COMMITTED; it will not run again)?",
        Decision::NotExecuted => "Record that it did not happen (FAILED; it may run again)?",
        Decision::Reopen => "Make it AMBIGUOUS again?",
    };
    terminal::prompt(&format!("{}\n\n{what} [y/N] ", facts.trim_end()));
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    let yes = matches!(line.trim(), "y" | "Y" | "yes");
    if read.is_ok() && yes {
        return Ok(before.record.revision);
    }
    let key = clean(before.record.key.as_str());
    Err(CliError::new(Kind::Usage, format!("{key}: not confirmed: nothing was changed")))
}

/// What a person is told of the answer.
struct Told<'a> {
    opened: &'a Opened,
    key: &'a Key,
    before: &'a Shown,
    looked_at: u64,
    decision: Decision,
    by: &'a str,
    size: Option<u64>,
}

impl Told<'_> {
    fn answer(&self, answered: &Answered) -> Result<(), CliError> {
        let record = answered.record.as_ref();
        match (&answered.answer, record) {
            (Answer::Resolved, Some(record)) => {
                say(&self.done(record, answered));
                self.warn();
                Ok(())
            }
            (Answer::AlreadySo, Some(record)) => {
                let key = clean(self.key.as_str());
                let state = glossed(record, answered.now);
                say(&format!(
                    "{key}: {state} already, revision {}; nothing was changed",
                    record.revision
                ));
                Ok(())
            }
            (Answer::Refused(refusal), _) => Err(self.refused(*refusal, answered)?),
            (
                Answer::Granted
                | Answer::Start
                | Answer::Renewed { .. }
                | Answer::Lost
                | Answer::Settled
                | Answer::Delivered
                | Answer::KeptAsLate
                | Answer::Forgotten
                | Answer::Resolved
                | Answer::AlreadySo
                | Answer::Contended
                | Answer::ProbeKept
                | Answer::Nothing
                | Answer::CommittedAlready,
                _,
            ) => Err(CliError::new(
                Kind::Internal,
                format!("a decision was answered with {:?}", answered.answer),
            )),
        }
    }

    fn done(&self, record: &Record, answered: &Answered) -> String {
        let key = clean(self.key.as_str());
        let revision = record.revision;
        if self.decision == Decision::Reopen {
            return format!("{key}: AMBIGUOUS again, revision {revision}. Nothing will run.");
        }
        let state = glossed(record, answered.now);
        let by = clean(self.by);
        let then = match (self.decision, self.size) {
            (Decision::NotExecuted | Decision::Reopen, _) => " It may run again.".to_owned(),
            (Decision::Committed, None) => String::new(),
            (Decision::Committed, Some(bytes)) => {
                format!(" Runs of this key now print the {} you gave.", count(bytes, "byte"))
            }
        };
        format!("{key}: {state}, revision {revision}, by {by}.{then}")
    }

    /// After a lapse the holder may be alive: nobody has seen its end (CLI-19).
    fn warn(&self) {
        let unseen = match self.before.record.state {
            State::Executing { .. } => true,
            State::Ambiguous { reaped, .. } => !reaped && self.before.began.is_some(),
            State::Reserved { .. } | State::Committed { .. } | State::Failed { .. } => false,
        };
        if self.decision == Decision::NotExecuted && unseen {
            let on = super::refusal::ran_on(self.before.began.as_ref());
            say(&format!(
                "warning: nobody saw the old process end{on}: if it is still running, the next run is a second one"
            ));
        }
    }

    fn refused(&self, refusal: Refusal, answered: &Answered) -> Result<CliError, CliError> {
        let refused = Refused {
            key: self.key,
            place: &self.opened.place,
            deed: Deed::Change,
            record: answered.record.as_ref(),
            now: answered.now,
            started: Started::of(Some(self.before), answered.record.as_ref()),
            request: None,
        };
        let Refusal::Expectation(_) = refusal else {
            return Ok(refused.error(refusal));
        };
        self.moved(answered)
    }

    /// Somebody was faster: what came since (79).
    fn moved(&self, answered: &Answered) -> Result<CliError, CliError> {
        let at = answered.record.as_ref().map_or(0, |record| record.revision);
        let key = clean(self.key.as_str());
        let looked_at = self.looked_at;
        let error = if at < looked_at {
            CliError::new(
                Kind::RevisionConflict,
                format!(
                    "{key}: not changed: you looked at revision {looked_at}, it is only at {at}"
                ),
            )
        } else {
            let rows = self.opened.history(self.key, looked_at + 1)?;
            let message = format!(
                "{key}: not changed: you looked at revision {looked_at}, it is at {at} now:"
            );
            let error = CliError::new(Kind::RevisionConflict, message);
            told(&rows, None).into_iter().fold(error, CliError::fact)
        };
        Ok(error.hint(look(self.key.as_str(), &self.opened.place)))
    }
}

fn print_json(opened: &Opened, key: &Key) -> Result<(), CliError> {
    let shown = opened.find(key)?;
    let line = Object::of(&shown, &opened.place).line();
    let mut out = terminal::Answer::plain();
    out.put(|out| writeln!(out, "{line}"))?;
    out.end()
}
