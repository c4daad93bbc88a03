//! How far it is: a bar on a terminal, else a line every few seconds (BAT-17).
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::tally::{Came, Tally};
use crate::cli::Global;
use crate::cli::render::text::{count, number, span};
use crate::cli::terminal::columns_of_stderr;

/// Between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(5);

/// Columns from which on there is room for a bar beside the counts.
const WIDE: usize = 70;

/// What is shown while it runs.
pub struct Progress {
    bar: Option<ProgressBar>,
    total: Option<u64>,
    began: Instant,
    told: Instant,
    quiet: bool,
    json: bool,
}

impl Progress {
    /// With nothing done, of so many lines if that is known.
    #[must_use]
    pub fn new(total: Option<u64>, global: &Global) -> Self {
        let shows = std::io::stderr().is_terminal() && !global.json && !global.quiet;
        let bar = shows.then(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(8));
            bar.set_style(style(total.is_some()));
            bar
        });
        let now = Instant::now();
        let (quiet, json) = (global.quiet, global.json);
        Self { bar, total, began: now, told: now, quiet, json }
    }

    /// So much is done.
    pub fn show(&mut self, tally: &Tally) {
        if let Some(bar) = &self.bar {
            bar.set_position(tally.all());
            bar.set_message(short(tally));
        } else if self.told.elapsed() >= EVERY {
            self.told = Instant::now();
            if !self.quiet {
                let line = self.line(tally);
                let mut err = anstream::stderr().lock();
                let _ = match self.json {
                    true => writeln!(err, "{}", serde_json::json!({ "note": line })),
                    false => writeln!(err, "ctrlrun: {line}"),
                };
            }
        }
    }

    /// `400 of 1,000 effects: ...; 97 a second, 6 s left`
    fn line(&self, tally: &Tally) -> String {
        let done = tally.all();
        let of = match self.total {
            Some(total) => format!("{} of {}", number(done), count(total, "effect")),
            None => count(done, "effect"),
        };
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = if seconds > 0.0 { done as f64 / seconds } else { 0.0 };
        let left = match self.total {
            Some(total) if rate > 0.0 && total > done => {
                let left = Duration::from_secs_f64((total - done) as f64 / rate);
                format!(", {} left", span(left))
            }
            Some(_) | None => String::new(),
        };
        format!("{of}: {}; {} a second{left}", tally.words(), number(rate.round() as u64))
    }

    /// Writes something, with the bar out of the way.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// It is over: the bar goes.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(knows_total: bool) -> ProgressStyle {
    let wide = columns_of_stderr().is_none_or(|columns| columns >= WIDE);
    let template = match (knows_total, wide) {
        (true, true) => "{bar:20} {pos}/{len} {rate} {left} {msg}",
        (true, false) => "{pos}/{len} {left} {msg}",
        (false, _) => "{pos} {rate} {msg}",
    };
    let rate = |state: &ProgressState, to: &mut dyn std::fmt::Write| {
        let _ = write!(to, "{}/s", number(state.per_sec().round() as u64));
    };
    let left = |state: &ProgressState, to: &mut dyn std::fmt::Write| {
        let _ = write!(to, "{} left", span(state.eta()));
    };
    let style = ProgressStyle::with_template(template);
    // The templates are ours, and fit.
    style
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", rate)
        .with_key("left", left)
        .progress_chars("=> ")
}

/// The counts in few columns: those that are not nothing.
fn short(tally: &Tally) -> String {
    let words = [
        (Came::Now, "ok"),
        (Came::Earlier, "earlier"),
        (Came::Failed, "failed"),
        (Came::Ambiguous, "AMBIGUOUS"),
        (Came::Held, "held"),
        (Came::Mismatch, "mismatch"),
        (Came::Refused, "refused"),
        (Came::NotRecorded, "unrecorded"),
        (Came::NoStore, "no store"),
    ];
    let some = words.into_iter().filter(|(came, _)| tally.of(*came) > 0);
    some.map(|(came, word)| format!("{} {word}", number(tally.of(came))))
        .collect::<Vec<_>>()
        .join(", ")
}
