//! One record for a person: what ran, how it ended, what to do (CLI-16).
use std::fmt::Write;

use ctrlrun::plan::effect::{Began, Event, HistoryRow, LateOutcome, State, Verdict};
use ctrlrun::plan::key::idempotency_key;
use ctrlrun::plan::time::Timestamp;
use ctrlrun::store::{Captured, Shown, was_pruned};

use super::event::{began, how, late, late_word, program};
use super::next;
use super::shell::line;
use super::state::{self, gloss, name_at, why};
use super::text::{age, clean, count, cut, folded, second, second_beside, width};
use crate::cli::which::Place;

/// How many of the last lines of standard error are shown.
const STDERR_LINES: usize = 5;
/// Where the text of a field begins.
const FIELD: usize = 11;
/// Where the text of an advice begins.
const LABEL: usize = 21;

/// Everything that is shown of a record.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// The record.
    pub shown: &'a Shown,
    /// Its history.
    pub history: &'a [HistoryRow],
    /// What is stored of the attempt's standard output.
    pub stdout: Option<&'a Captured>,
    /// What is stored of the attempt's standard error.
    pub stderr: Option<&'a Captured>,
    /// Where it was read.
    pub place: &'a Place,
    /// The line that asks the probe that is declared for it, if one is.
    pub to_ask: Option<String>,
    /// Columns of the terminal, if it goes to one.
    pub columns: Option<usize>,
}

impl Evidence<'_> {
    /// The lines.
    #[must_use]
    pub fn text(&self) -> String {
        let (record, now) = (&self.shown.record, self.shown.now);
        let style = state::style(record, now);
        let (key, name, gloss) =
            (clean(record.key.as_str()), name_at(record, now), gloss(record, now));
        let place = format!("revision {}   attempt {}", record.revision, record.attempt);
        let all = width(&key) + name.len() + gloss.len() + place.len() + "    ()   ".len();
        let gap = if self.fits(all) { "   " } else { "\n  " };
        let mut text = format!("{key}   {style}{name}{style:#} ({gloss}){gap}{place}\n");
        self.field(&mut text, "ran", &self.ran());
        let why = why(record, now);
        match record.state {
            State::Reserved { .. } | State::Executing { .. } => {
                self.field(&mut text, "now", &[why]);
            }
            State::Committed { .. } | State::Failed { .. } | State::Ambiguous { .. } => {
                let ended = record.ending.as_ref().map(|ending| clean(&ending.detail));
                if let Some(ended) = &ended {
                    self.field(&mut text, "ended", &[ended.as_ref().to_owned()]);
                }
                if ended.is_none_or(|ended| ended != why) {
                    self.field(&mut text, "because", &[why]);
                }
            }
        }
        for late in self.late_words() {
            let contradicts = if contradicts(record.state, late.word) {
                "; that CONTRADICTS the record"
            } else {
                ""
            };
            let said = format!("{}{contradicts}", late_word(late));
            self.field(&mut text, "late", &[said]);
        }
        match (self.probed(), &self.to_ask) {
            (Some(probed), _) => self.field(&mut text, "probe", &[probed]),
            // Not "never run": an answer that could not tell leaves no trace (EFF-20).
            (None, Some(_)) => push(&mut text, "probe", "declared, and none has answered"),
            (None, None) => {}
        }
        self.stdout_size(&mut text);
        self.stderr_lines(&mut text);
        let remote = idempotency_key(&record.key, record.proven_failures);
        let remote = format!("{remote}  (idempotency key: look for it at the remote)");
        self.field(&mut text, "remote", &[remote]);
        self.labels(&mut text);
        self.advice(&mut text);
        text
    }

    fn ran(&self) -> Vec<String> {
        let record = &self.shown.record;
        let mut pieces = vec![program(&record.request.program, record.request.arguments)];
        let Some((began, at)) = self.began() else {
            pieces.push("never started".to_owned());
            return pieces;
        };
        pieces.push(format!("on {} as {}", clean(&began.ran_on.host), clean(&began.ran_on.user)));
        pieces.push(format!("pid {}", began.ran_on.pid));
        pieces.push(format!("in {}", clean(&began.ran_on.directory)));
        let now = self.shown.now;
        pieces.push(match self.ended_at() {
            Some(end) => format!(
                "from {} to {} ({} ago)",
                second(at),
                second_beside(end, at),
                age(now.since(end))
            ),
            None => format!("since {} ({} ago)", second(at), age(now.since(at))),
        });
        pieces
    }

    fn began(&self) -> Option<(&Began, Timestamp)> {
        let row = self.shown.began.as_ref()?;
        began(row).map(|began| (began, row.recorded_at))
    }

    /// When the current attempt's holder said that it had ended.
    fn ended_at(&self) -> Option<Timestamp> {
        let attempt = self.shown.record.attempt;
        let ends = |event: &Event| match event {
            Event::Committed(_) | Event::Failed(_) => true,
            Event::Ambiguated(event) => event.ending.is_some(),
            Event::Reserved(_)
            | Event::Began(_)
            | Event::LeaseRenewed(_)
            | Event::LateOutcome(_)
            | Event::Probed(_)
            | Event::Resolved(_)
            | Event::Reopened(_) => false,
        };
        self.history
            .iter()
            .rev()
            .find(|row| row.attempt == attempt && ends(&row.event))
            .map(|row| row.recorded_at)
    }

    fn late_words(&self) -> impl Iterator<Item = &LateOutcome> {
        self.history.iter().filter_map(late)
    }

    /// What a probe said last of the current attempt (DEC-6).
    fn probed(&self) -> Option<String> {
        let attempt = self.shown.record.attempt;
        let probed =
            |row: &&HistoryRow| row.attempt == attempt && matches!(row.event, Event::Probed(_));
        let row = self.history.iter().rev().find(probed)?;
        Some(format!("{}, {} ago", how(&row.event), age(self.shown.now.since(row.recorded_at))))
    }

    fn stdout_size(&self, text: &mut String) {
        let sizes = self.shown.stdout;
        if self.stdout.is_some_and(was_pruned) {
            self.field(text, "stdout", &[format!("{}, pruned", count(sizes.bytes, "byte"))]);
            return;
        }
        if sizes.bytes > 0 {
            let key = self.shown.record.key.as_str();
            let cut = if sizes.truncated { ", not stored whole" } else { "" };
            let size = format!("{}{cut}", count(sizes.bytes, "byte"));
            let line = line("output", key, "", self.place);
            self.field(text, "stdout", &[format!("{size}  ({line})")]);
        }
    }

    fn stderr_lines(&self, text: &mut String) {
        let Some(kept) = self.stderr.filter(|kept| kept.bytes > 0) else {
            return;
        };
        if was_pruned(kept) {
            self.field(text, "stderr", &[format!("{}, pruned", count(kept.bytes, "byte"))]);
            return;
        }
        let mut bytes = kept.head.clone();
        bytes.extend_from_slice(&kept.tail);
        let all = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = all.lines().collect();
        let from = lines.len().saturating_sub(STDERR_LINES);
        for (at, last) in lines[from..].iter().enumerate() {
            let name = if at == 0 { "stderr" } else { "" };
            let line = match self.columns {
                Some(columns) => cut(&clean(last), columns.saturating_sub(FIELD)).into_owned(),
                None => clean(last).into_owned(),
            };
            push(text, name, &line);
        }
        let more = if kept.whole { "" } else { "; not stored whole" };
        if from > 0 || !kept.whole {
            let note =
                format!("(the last {} of {}{more})", lines.len() - from, count(kept.bytes, "byte"));
            push(text, "", &note);
        }
    }

    fn labels(&self, text: &mut String) {
        if let Some((began, _)) = self.began() {
            let labels = began
                .labels
                .iter()
                .map(|(name, value)| format!("{}={}", clean(name), clean(value)));
            let labels: Vec<String> = labels.collect();
            if !labels.is_empty() {
                self.field(text, "labels", &labels);
            }
        }
    }

    fn advice(&self, text: &mut String) {
        let (record, now) = (&self.shown.record, self.shown.now);
        text.push('\n');
        if !record.is_stuck(now) {
            for hint in next::next(record, now, self.place) {
                self.advise(text, "If that is wrong:", &hint.text);
            }
            return;
        }
        let [did, did_not] = next::decide(record, self.place);
        if matches!(record.state, State::Reserved { .. }) && !record.in_doubt {
            self.advise(text, "Nothing ever ran:", &did_not.text);
            return;
        }
        if record.is_lapsed(now) {
            self.advise(text, "Look first:", "the old process may still be running.");
        }
        if let Some(to_ask) = &self.to_ask {
            self.advise(text, "Ask the probe:", to_ask);
        }
        self.advise(text, "If it happened:", &did.text);
        self.advise(text, "If it did not:", &did_not.text);
        self.advise(text, "If you cannot tell:", "leave it. It will not run by itself.");
    }

    /// A label and a line to type; below each other where they do not fit, so that no terminal breaks
    /// a command that could have stood whole.
    fn advise(&self, text: &mut String, label: &str, words: &str) {
        let _ = if self.fits(LABEL + width(words)) {
            writeln!(text, "{label:<LABEL$}{words}")
        } else {
            writeln!(text, "{label}\n  {words}")
        };
    }

    fn fits(&self, width: usize) -> bool {
        self.columns.is_none_or(|columns| width <= columns)
    }

    /// A field whose pieces are joined by commas, broken between them where a line would be too long.
    fn field(&self, text: &mut String, name: &str, pieces: &[String]) {
        let most = self.columns.map_or(usize::MAX, |columns| columns.saturating_sub(FIELD).max(20));
        let mut name = name;
        let mut line = String::new();
        for (at, piece) in pieces.iter().enumerate() {
            let comma = if at + 1 < pieces.len() { "," } else { "" };
            let piece = format!("{piece}{comma}");
            if !line.is_empty() && width(&line) + 1 + width(&piece) > most {
                push(text, name, &line);
                name = "";
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&piece);
        }
        for part in folded(&line, most) {
            push(text, name, &part);
            name = "";
        }
    }
}

fn push(text: &mut String, name: &str, value: &str) {
    let line = format!("  {name:<8} {value}");
    let _ = writeln!(text, "{}", line.trim_end());
}

/// Whether a word that came late says otherwise than the record (CLI-16).
#[must_use]
pub fn contradicts(state: State, word: Verdict) -> bool {
    match state {
        State::Committed { .. } => match word {
            Verdict::Failed | Verdict::NeverStarted => true,
            Verdict::Committed | Verdict::Ambiguous { .. } => false,
        },
        State::Failed { .. } => word.may_have_happened(),
        State::Reserved { .. } | State::Executing { .. } | State::Ambiguous { .. } => false,
    }
}
