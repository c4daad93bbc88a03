//! A run that meets AMBIGUOUS asks its probe, and decides anew if that settles it (DEC-7).
use ctrlrun::drive::reconcile::{Asking, Came, Probe, TIME_MAX, ask_about};
use ctrlrun::drive::run::Ran;
use ctrlrun::exec::Signals;
use ctrlrun::plan::attempt::Outcome;
use ctrlrun::plan::effect::{ProbeAnswer, Refusal, State, Verdict};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::time::Timestamp;

use super::{End, RunArgs};
use crate::cli::Global;
use crate::cli::access::Opened;
use crate::cli::error::{CliError, Deed};
use crate::cli::probes::{could_not_tell, declared, why_not};
use crate::cli::render::state::glossed;
use crate::cli::render::text::clean;

/// The probe that was given with the run, or that its effect declares.
pub fn probe(args: &RunArgs) -> Option<Probe> {
    let time_max = args.reconcile_timeout;
    match &args.reconcile {
        Some(line) => Some(Probe::shell(line.into(), time_max.unwrap_or(TIME_MAX))),
        None => args.probe.clone().map(|probe| declared(probe, time_max)),
    }
}

/// What is done after a probe was asked, or need not be.
pub enum Then {
    /// The doubt is settled: once more, from the start.
    DecideAnew,
    /// What came of the attempt stands.
    End,
    /// This signal ended it.
    Interrupted(i32),
}

/// A run's probe, and what it was asked already.
pub struct Inquiry {
    probe: Option<Probe>,
    expect: StreamState,
    /// The attempt that was asked about last. Numbers only rise, and no attempt is asked about twice:
    /// so this ends.
    asked_about: u64,
    /// What is told with a refusal: why the probe did not help.
    fact: Option<String>,
    /// What the store could not do; it stands for the refusal.
    failed: Option<Came>,
}

impl Inquiry {
    /// Nothing was asked yet.
    pub fn new(probe: Option<Probe>, expect: StreamState) -> Self {
        Self { probe, expect, asked_about: 0, fact: None, failed: None }
    }

    /// What the next reserve is held to.
    pub fn expect(&self) -> StreamState {
        self.expect
    }

    /// Asks about the doubt that `ran` was refused for, if there is one and there is a probe.
    pub fn ask(
        &mut self,
        ran: &mut Ran,
        opened: &Opened,
        signals: &Signals,
        global: &Global,
    ) -> Then {
        let Some(probe) = &self.probe else {
            return Then::End;
        };
        if let Outcome::Settled { verdict: Verdict::Ambiguous { .. }, .. } = ran.report.result {
            self.fact = Some("run again, the same line asks the probe first".to_owned());
        }
        // The fingerprint has matched, or the refusal would be another one.
        let Outcome::Refused(Refusal::Ambiguous) = ran.report.result else {
            return Then::End;
        };
        let Some(record) = ran.report.record.clone() else {
            return Then::End;
        };
        if !matches!(record.state, State::Ambiguous { .. }) || record.attempt <= self.asked_about {
            return Then::End;
        }
        self.asked_about = record.attempt;
        let asking = Asking {
            store: opened.store.as_ref(),
            probe,
            signals: Some(signals),
            within: opened.within,
        };
        let now = ran.report.now.unwrap_or(Timestamp(0));
        let key = clean(record.key.as_str()).into_owned();
        let name = clean(&probe.signature()).into_owned();
        let reconciled = ask_about(&record, now, asking);
        if let Some(record) = reconciled.record {
            // What is told next is about the record as it stands now: its revision above all.
            ran.report.record = Some(record);
            ran.report.now = reconciled.now.or(ran.report.now);
        }
        let (Some(record), Some(now)) = (&ran.report.record, ran.report.now) else {
            return Then::DecideAnew;
        };
        match reconciled.came {
            Came::Decided(answer) => {
                let says = match answer {
                    ProbeAnswer::Committed => "committed",
                    ProbeAnswer::NotExecuted | ProbeAnswer::Unknown => "not-executed",
                };
                global.note(&format!(
                    "{key}: {name} says {says}: {}, revision {}",
                    glossed(record, now),
                    record.revision
                ));
                if self.expect != StreamState::Any {
                    // Held to our own change, as a retry is.
                    self.expect = StreamState::Revision(record.revision);
                }
                Then::DecideAnew
            }
            Came::NotSoFar => {
                self.fact = Some(format!(
                    "{name} says not-executed, which means not so far: {}",
                    why_not(record)
                ));
                Then::End
            }
            Came::Unknown { why, said } => {
                self.fact = Some(could_not_tell(&name, &why, said.as_deref()));
                Then::End
            }
            Came::Moved | Came::NotInDoubt | Came::NoSuchEffect => {
                global.note(&format!(
                    "{key}: it moved while {name} was asked; the answer is dropped"
                ));
                Then::DecideAnew
            }
            Came::Interrupted(signal) => Then::Interrupted(signal),
            came @ (Came::CouldNot(_) | Came::Unsure(_)) => {
                self.failed = Some(came);
                Then::End
            }
        }
    }

    /// `end`, and with it what is to be told of the probe.
    pub fn told_with(self, end: End, opened: &Opened) -> End {
        match self.failed {
            Some(Came::CouldNot(error)) => End::refused(opened.could_not(&error)),
            Some(Came::Unsure(error)) => {
                End::refused(CliError::unknown(&error, &opened.place, Deed::Run))
            }
            Some(_) | None => match (end.told, self.fact) {
                (Some(told), Some(fact)) => End { told: Some(told.fact(fact)), ..end },
                (told, _) => End { told, ..end },
            },
        }
    }
}
