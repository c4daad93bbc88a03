//! `ctrlrun verify --soak`: what it is told by, and what is told of it (SOA clauses).
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ctrlrun::store::Location;
use indicatif::{ProgressBar, ProgressStyle};

use super::{FAILED, Failure};
use crate::cli::Global;
use crate::cli::error::{CliError, Exit};
use crate::cli::render::text::{clean, count, number, size, span};
use crate::cli::terminal::{Answer, say};
use crate::cli::values;
use crate::verify::report::Status;
use crate::verify::soak::report::Soaked;
use crate::verify::soak::{Length, Measure, OPERATIONS_MIN, SoakAsk, TIME_MIN, Told, run};

/// Measurements in the table; `--json` has all.
const ROWS_MAX: usize = 24;
/// Sentences about what is wrong; `--json` has all.
const WRONG_MAX: usize = 20;

/// Reads `10m` or `5000`.
///
/// # Errors
/// What is wrong with it.
pub fn length(text: &str) -> Result<Length, String> {
    if let Ok(operations) = text.parse::<u64>() {
        return if operations < OPERATIONS_MIN {
            Err(format!(
                "{operations} operations tell nothing: at least {OPERATIONS_MIN}, or a time with its unit"
            ))
        } else {
            Ok(Length::Operations(operations))
        };
    }
    let time = values::duration(text)?;
    if time < TIME_MIN {
        return Err(format!("it tells nothing in less than {}s", TIME_MIN.as_secs()));
    }
    Ok(Length::For(time))
}

/// Soaks, and tells what came of it.
pub(super) fn soaked(
    location: &Location,
    binary: &Path,
    ask: &SoakAsk,
    global: &Global,
) -> Result<Exit, Failure> {
    let bar = bar(ask.length, global);
    let shown = bar.clone();
    let (quiet, by_time) = (global.quiet, matches!(ask.length, Length::For(_)));
    let said = if global.json { None } else { Some(()) };
    let soaked = run(
        location,
        binary,
        ask,
        Arc::new(move |told| match told {
            Told::Note(note) if !quiet => shown.suspend(|| say(&clean(note))),
            Told::Note(_) => {}
            Told::Operation if by_time => shown.set_position(shown.elapsed().as_secs()),
            Told::Operation => shown.inc(1),
            Told::Interval(so_far) => {
                shown.set_message(message(so_far));
                if let (false, Some(()), Some(measure)) = (quiet, said, so_far.measures.last()) {
                    shown.suspend(|| say(&line(so_far, measure)));
                }
            }
        }),
    );
    bar.finish_and_clear();
    let soaked = soaked.map_err(Failure::Trouble)?;
    tell(&soaked, global).map_err(Failure::Told)?;
    Ok(if soaked.status() == Status::Pass { Exit::OK } else { Exit(FAILED) })
}

/// A bar on a terminal, nothing elsewhere.
fn bar(length: Length, global: &Global) -> ProgressBar {
    if global.quiet || global.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (all, unit) = match length {
        Length::For(time) => (time.as_secs(), "s"),
        Length::Operations(operations) => (operations, ""),
    };
    let bar = ProgressBar::new(all);
    let template = format!("{{bar:24}} {{human_pos}}/{{human_len}}{unit}  {{msg}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn message(so_far: &Soaked) -> String {
    let wrong = so_far.violations.len() + so_far.unexplained.len();
    if wrong == 0 {
        format!("{} AMBIGUOUS explained", number(so_far.explained))
    } else {
        format!("{wrong} WRONG")
    }
}

/// What is said of each interval.
fn line(so_far: &Soaked, measure: &Measure) -> String {
    format!(
        "{}: {}, {}; {}, {} fds, log {}, {}",
        span(measure.at),
        count(so_far.operations, "operation"),
        message(so_far),
        size(measure.memory),
        measure.descriptors,
        measure.held.log.map_or("-".to_owned(), size),
        count(measure.held.effects, "row"),
    )
}

fn tell(soaked: &Soaked, global: &Global) -> Result<(), CliError> {
    let mut out = if global.json { Answer::plain() } else { Answer::styled() };
    if global.json {
        let object = soaked.json();
        out.put(|out| writeln!(out, "{object}"))?;
        return out.end();
    }
    for line in table(soaked) {
        out.put(|out| writeln!(out, "{line}"))?;
    }
    out.end()
}

fn table(soaked: &Soaked) -> Vec<String> {
    let mut lines = vec![format!(
        "{:>8} {:>9} {:>9} {:>4} {:>9} {:>4} {:>9} {:>9} {:>6}",
        "AFTER", "DONE", "MEMORY", "FDS", "LONG RUN", "FDS", "LOG", "STORE", "ROWS"
    )];
    let step = soaked.measures.len().div_ceil(ROWS_MAX).max(1);
    let last = soaked.measures.len().saturating_sub(1);
    let shown = soaked.measures.iter().enumerate();
    for (_, it) in shown.filter(|(at, _)| at % step == 0 || *at == last) {
        lines.push(format!(
            "{:>8} {:>9} {:>9} {:>4} {:>9} {:>4} {:>9} {:>9} {:>6}",
            span(it.at),
            number(it.operations),
            size(it.memory),
            it.descriptors,
            size(it.long_memory),
            it.long_descriptors,
            it.held.log.map_or("-".to_owned(), size),
            size(it.held.bytes),
            number(it.held.effects),
        ));
    }
    let injected: u64 = soaked.injected.values().map(|(_, fell)| fell).sum();
    lines.push(format!(
        "{}, {} of them ordinary; {}, {}",
        count(soaked.operations, "operation"),
        number(soaked.ordinary),
        count(soaked.executions, "execution"),
        count(soaked.kills, "kill"),
    ));
    lines.push(format!(
        "{} fell, of {} kinds; {} AMBIGUOUS of them explained, {} not",
        count(injected, "injection"),
        soaked.injected.len(),
        number(soaked.explained),
        soaked.unexplained.len(),
    ));
    lines.push(format!(
        "{} of {} controls (injected, and not written down) were found out",
        number(soaked.controls_caught),
        number(soaked.controls),
    ));
    let last = soaked.measures.last();
    if let Some(it) = last.filter(|it| it.rows_due > 1) {
        lines.push(format!(
            "{} stayed when all else was forgotten: nobody saw their commands end",
            count(it.rows_due, "record"),
        ));
    }
    let (wrong, doubts) = (soaked.wrong(), soaked.doubts());
    for what in wrong.iter().chain(&doubts).take(WRONG_MAX) {
        lines.push(format!("       {}", clean(what)));
    }
    let more = (wrong.len() + doubts.len()).saturating_sub(WRONG_MAX);
    if more > 0 {
        lines.push(format!("       and {more} more (--json has all)"));
    }
    let status = soaked.status();
    let style = match status {
        Status::Pass => Style::new().fg_color(Some(AnsiColor::Green.into())),
        Status::Fail => Style::new().fg_color(Some(AnsiColor::Red.into())).bold(),
        Status::Inconclusive => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
        Status::NotApplicable => Style::new().dimmed(),
    };
    lines.push(format!(
        "{style}{}{style:#}: {} on {} in {} (seed {})",
        status.verdict(),
        count(soaked.operations, "operation"),
        soaked.store,
        span(soaked.duration),
        soaked.seed,
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_a_time_with_its_unit_or_a_number_of_operations() {
        // SOA-1
        assert_eq!(length("10m"), Ok(Length::For(Duration::from_secs(600))));
        assert_eq!(length("5000"), Ok(Length::Operations(5_000)));
        for refused in ["", "30", "5s", "0", "-1", "1 h", "x"] {
            assert!(length(refused).is_err(), "{refused:?}");
        }
    }
}
