//! A mistake in a configuration, shown in its line (CFG-6).
use std::ops::Range;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::cli::error::{CliError, Kind};
use crate::cli::render::text::clean;
use crate::cli::terminal::columns_of_stderr;

/// What is wrong, and where in the text: in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub what: String,
    /// Which part of the text it is about; none where all of it is.
    pub span: Option<Range<usize>>,
}

impl Problem {
    /// A mistake at `span`.
    #[must_use]
    pub fn at(span: Range<usize>, what: impl Into<String>) -> Self {
        Self { what: what.into(), span: Some(span) }
    }

    /// What is told of it: `FILE:LINE:COLUMN: what`, and the line with a caret.
    #[must_use]
    pub fn error(&self, path: &Path, text: &str) -> CliError {
        let file = path.to_string_lossy();
        let what = clean(&self.what);
        let Some(span) = &self.span else {
            let words = format!("{}: {what}: nothing was done", clean(&file));
            return CliError::new(Kind::Config, words);
        };
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let words = format!("{}:{line}:{column}: {what}: nothing was done", clean(&file));
        let shown = shown(text, span);
        shown.iter().fold(CliError::new(Kind::Config, words), |error, line| {
            error.fact(clean(line).into_owned())
        })
    }
}

impl From<toml::de::Error> for Problem {
    fn from(error: toml::de::Error) -> Self {
        let what = error.message().lines().collect::<Vec<_>>().join("; ");
        Self { what, span: error.span() }
    }
}

/// The line of `span` with a caret below, in lines for a person.
fn shown(text: &str, span: &Range<usize>) -> Vec<String> {
    // A caret at the end of a text stands on its last character, and a span over several lines, as
    // that of a whole table, on its first.
    let end = text[span.start..].find('\n').map_or(text.len(), |at| span.start + at);
    let span = span.start..span.end.min(end).max(span.start);
    let snippet = Snippet::source(text).annotation(AnnotationKind::Primary.span(span));
    let report = [Group::with_level(Level::ERROR).element(snippet)];
    // A line that is longer than the terminal is cut around the caret, so that it stays below it.
    let prefix = "ctrlrun:   ".len();
    let columns = columns_of_stderr().unwrap_or(140).saturating_sub(prefix).max(40);
    let rendered = Renderer::plain().term_width(columns).render(&report);
    rendered.lines().map(str::trim_end).filter(|line| *line != "|").map(str::to_owned).collect()
}
