//! What a batch has come to: counts by outcome, the summary, and the exit code (BAT-16, BAT-17).
use std::time::Duration;

use ctrlrun::drive::batch::{Totals, Why};
use ctrlrun::drive::run::Ran;
use ctrlrun::plan::attempt::Outcome;
use ctrlrun::plan::effect::{Refusal, Verdict};
use ctrlrun::plan::key::Key;
use serde_json::{Value, json};

use crate::cli::error::{Exit, Kind};
use crate::cli::render::text::{count, number, span};

/// After a signal, as of a shell.
const INTERRUPTED: Exit = Exit(130);

/// What came of a line, as far as the summary goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// COMMITTED by this batch.
    Now,
    /// COMMITTED before.
    Earlier,
    /// FAILED.
    Failed,
    /// AMBIGUOUS.
    Ambiguous,
    /// Another attempt holds the key.
    Held,
    /// Bound to another command.
    Mismatch,
    /// Refused in another way.
    Refused,
    /// It ran, and its outcome is not recorded as ours.
    NotRecorded,
    /// The store gave no answer.
    NoStore,
}

impl Came {
    /// Of an effect that has ended.
    #[must_use]
    pub fn of(ran: &Ran) -> Self {
        match &ran.report.result {
            Outcome::Settled { verdict, .. } => match verdict {
                Verdict::Committed => Self::Now,
                Verdict::Failed | Verdict::NeverStarted => Self::Failed,
                Verdict::Ambiguous { .. } => Self::Ambiguous,
            },
            Outcome::CommittedAlready => Self::Earlier,
            Outcome::Refused(refusal) => match refusal {
                Refusal::Ambiguous => Self::Ambiguous,
                Refusal::Mismatch => Self::Mismatch,
                Refusal::InProgress | Refusal::TooLate | Refusal::NotOurs | Refusal::Live => {
                    Self::Held
                }
                Refusal::MaxAttempts
                | Refusal::Expectation(_)
                | Refusal::SettledOtherwise
                | Refusal::NoSuchEffect => Self::Refused,
            },
            Outcome::NotRecorded { .. } if ran.report.ran => Self::NotRecorded,
            Outcome::NotRecorded { .. } | Outcome::CouldNot(_) | Outcome::Unknown(_) => {
                Self::NoStore
            }
        }
    }
}

/// The counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    counts: [u64; 9],
    /// What the keys of the AMBIGUOUS ones have in common.
    prefix: Option<String>,
}

impl Tally {
    /// One more.
    pub fn add(&mut self, key: &Key, came: Came) {
        self.counts[came as usize] += 1;
        if came == Came::Ambiguous {
            let shared = match self.prefix.take() {
                None => key.as_str().to_owned(),
                Some(prefix) => common(&prefix, key.as_str()).to_owned(),
            };
            self.prefix = Some(shared);
        }
    }

    /// How many.
    #[must_use]
    pub fn of(&self, came: Came) -> u64 {
        self.counts[came as usize]
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The prefix that finds the AMBIGUOUS ones, up to its last part; `None` where there is none that
    /// says anything.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        let prefix = self.prefix.as_deref()?;
        let prefix = match self.of(Came::Ambiguous) {
            1 => prefix,
            _ => prefix.rfind(':').map_or("", |at| &prefix[..=at]),
        };
        Some(prefix).filter(|prefix| !prefix.is_empty())
    }

    /// `988 committed now, 7 earlier, 2 did not happen, 3 AMBIGUOUS`, and what else there is.
    #[must_use]
    pub fn words(&self) -> String {
        let always = [
            (Came::Now, "committed now"),
            (Came::Earlier, "earlier"),
            (Came::Failed, "did not happen"),
            (Came::Ambiguous, "AMBIGUOUS"),
        ];
        let some = [
            (Came::Held, "held by another attempt"),
            (Came::Mismatch, "bound to another command"),
            (Came::Refused, "refused"),
            (Came::NotRecorded, "ran and not recorded"),
            (Came::NoStore, "without the store's answer"),
        ];
        let some = some.into_iter().filter(|(came, _)| self.of(*came) > 0);
        let words = always.into_iter().chain(some);
        let words = words.map(|(came, words)| format!("{} {words}", number(self.of(came))));
        words.collect::<Vec<_>>().join(", ")
    }

    /// The exit code.
    #[must_use]
    pub fn exit(&self, stopped: Option<Why>) -> Exit {
        match stopped {
            Some(Why::Signal(_)) => return INTERRUPTED,
            Some(Why::Store) => return Kind::Store.exit(),
            Some(Why::Broken) => return Kind::Internal.exit(),
            Some(Why::Line) | None => {}
        }
        if self.of(Came::Ambiguous) > 0 {
            Kind::Ambiguous.exit()
        } else if stopped.is_some() {
            Kind::Usage.exit()
        } else if self.all() == self.of(Came::Now) + self.of(Came::Earlier) {
            Exit::OK
        } else {
            Exit::FAILED
        }
    }

    /// The one line at the end. `total`: how many lines there are, if that is known.
    #[must_use]
    pub fn summary(&self, totals: &Totals, total: Option<u64>, took: Duration) -> String {
        let not_started = not_started(totals, total);
        let more = if total.is_none() && !totals.is_whole { " of those read" } else { "" };
        format!(
            "{}: {}; {} not started{more}; {}",
            count(self.all() + not_started, "effect"),
            self.words(),
            number(not_started),
            span(took)
        )
    }

    /// The same as an object.
    #[must_use]
    pub fn object(
        &self,
        totals: &Totals,
        total: Option<u64>,
        took: Duration,
        next: &[String],
    ) -> Value {
        let not_started = not_started(totals, total);
        let input = match total {
            Some(_) => true,
            None => totals.is_whole,
        };
        json!({
            "effects": self.all() + not_started,
            "committed_now": self.of(Came::Now),
            "committed_earlier": self.of(Came::Earlier),
            "failed": self.of(Came::Failed),
            "ambiguous": self.of(Came::Ambiguous),
            "in_progress": self.of(Came::Held),
            "mismatch": self.of(Came::Mismatch),
            "refused": self.of(Came::Refused),
            "not_recorded": self.of(Came::NotRecorded),
            "store": self.of(Came::NoStore),
            "not_started": not_started,
            "input_read_whole": input,
            "interrupted": matches!(totals.stopped, Some(Why::Signal(_))),
            "exit_status": self.exit(totals.stopped).0,
            "duration_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "next": next,
        })
    }
}

/// What was not started: of the lines read, or of all where their number is known.
fn not_started(totals: &Totals, total: Option<u64>) -> u64 {
    total.map_or(totals.not_started, |total| total.saturating_sub(totals.ended))
}

fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one.char_indices().zip(other.chars()).find(|((_, a), b)| a != b);
    let end = same.map_or(one.len().min(other.len()), |((at, _), _)| at);
    &one[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(came: &[(&str, Came)]) -> Tally {
        let mut tally = Tally::default();
        for (key, came) in came {
            tally.add(&Key::new(*key).unwrap(), *came);
        }
        tally
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst() {
        // BAT-16
        let code = |came: &[(&str, Came)], why| tally(came).exit(why).0;
        assert_eq!(code(&[], None), 0);
        assert_eq!(code(&[("a", Came::Now), ("b", Came::Earlier)], None), 0);
        for not in [Came::Failed, Came::Held, Came::Mismatch, Came::Refused, Came::NotRecorded] {
            assert_eq!(code(&[("a", Came::Now), ("b", not)], None), 1);
            assert_eq!(code(&[("a", Came::Ambiguous), ("b", not)], None), 76);
        }
        assert_eq!(code(&[("a", Came::Ambiguous)], Some(Why::Signal(2))), 130);
        assert_eq!(code(&[("a", Came::NoStore)], Some(Why::Store)), 69);
        assert_eq!(code(&[("a", Came::Now)], Some(Why::Line)), 64);
        assert_eq!(code(&[("a", Came::Now)], Some(Why::Broken)), 70);
    }

    #[test]
    fn the_stuck_ones_are_found_by_what_their_keys_share() {
        // BAT-17
        let stuck = |keys: &[&str]| {
            let came: Vec<_> = keys.iter().map(|key| (*key, Came::Ambiguous)).collect();
            tally(&came).prefix().map(str::to_owned)
        };
        assert_eq!(stuck(&[]), None);
        assert_eq!(stuck(&["refund:txn_1"]), Some("refund:txn_1".to_owned()));
        assert_eq!(stuck(&["refund:txn_1", "refund:txn_2"]), Some("refund:".to_owned()));
        assert_eq!(stuck(&["a:b:1", "a:c:1"]), Some("a:".to_owned()));
        assert_eq!(stuck(&["é1", "è1"]), None);
        assert_eq!(stuck(&["plain1", "plain2"]), None);
    }

    #[test]
    fn what_was_not_started_is_counted_of_all_lines_where_they_are_known() {
        // BAT-15
        let counted = tally(&[("a", Came::Now)]);
        let totals = Totals { read: 3, ended: 1, not_started: 2, ..Totals::default() };
        let took = Duration::from_secs(41);
        assert_eq!(
            counted.summary(&totals, Some(10), took),
            "10 effects: 1 committed now, 0 earlier, 0 did not happen, 0 AMBIGUOUS; 9 not started; 41 s"
        );
        assert_eq!(
            counted.summary(&totals, None, took),
            "3 effects: 1 committed now, 0 earlier, 0 did not happen, 0 AMBIGUOUS; 2 not started of \
             those read; 41 s"
        );
    }
}
