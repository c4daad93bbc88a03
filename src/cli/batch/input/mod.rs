//! The lines of a batch: from a file or a pipe, JSON Lines or a table, checked (INP clauses).
//!
//! A file is read twice: [`Input::open`] checks it as a whole, so that its last line's mistake is told
//! before its first line runs. A pipe is read once, as it comes. Either way the iterator checks each
//! line, ends after the first that cannot be used, and holds one line in memory.
//!
//! | file | about |
//! |---|---|
//! | [`json`] | JSON Lines |
//! | [`table`] | comma- or tab-separated values with a header |
//! | [`raw`] | bytes: byte order marks, bounds, quotes that are never closed |
mod json;
mod raw;
mod table;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctrlrun::plan::key::{Key, check_hygiene};
use ctrlrun::plan::template::{BadCommand, CommandTemplate, Template};

use crate::cli::error::{CliError, Kind};
use crate::cli::render::text::{clean, count};
use crate::config::effect::{Effects, Probe, Settings};

/// The longest line, in bytes; a record of a table may go over several.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// How many lines that cannot be used are told of one file.
const TOLD_MAX: usize = 10;

/// One effect of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The line it stands on, from 1; of a record that goes over several, the first.
    pub number: u64,
    /// Its key, held to KEY-1 and, unless told otherwise, KEY-2.
    pub key: Key,
    /// Program and arguments; never empty, and without a NUL.
    pub command: Vec<OsString>,
    /// How it is run, where the line or its effect says so.
    pub settings: Settings,
    /// More that identifies the request.
    pub bind: Vec<OsString>,
    /// The configured effect that it is of, if it is.
    pub effect: Option<String>,
    /// What finds out whether it happened, if its effect has such a thing.
    pub probe: Option<Probe>,
}

/// A line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// The file, as it was given; `-` for standard input.
    pub file: String,
    /// Which line, from 1.
    pub line: u64,
    /// Where in the line, in characters from 1, if that is known.
    pub column: Option<usize>,
    /// What is wrong, without a full stop.
    pub what: String,
    /// What would mend it, if that can be told in a few words.
    pub mend: Option<String>,
}

impl fmt::Display for LineError {
    /// `refunds.csv:418: what`, safe to print.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", clean(&self.file), self.line)?;
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        write!(f, ": {}", clean(&self.what))
    }
}

/// Where the lines come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file, which may be a pipe.
    File(PathBuf),
    /// Standard input, which may be a file.
    Stdin,
}

impl Source {
    /// Of `[FILE|-]`.
    #[must_use]
    pub fn of(argument: Option<&Path>) -> Self {
        match argument {
            Some(path) if path != Path::new("-") => Self::File(path.to_owned()),
            Some(_) | None => Self::Stdin,
        }
    }

    /// As it is told: the path, or `-`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.to_string_lossy().into_owned(),
            Self::Stdin => "-".to_owned(),
        }
    }
}

/// How the cells of a row are parted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Separator {
    /// `--csv`: commas, with quotes as in RFC 4180.
    Comma,
    /// `--tsv`: tabs; a quote is a character like any other.
    Tab,
}

/// What the lines look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    Json {
        /// What `"effect"` may name.
        effects: Arc<Effects>,
    },
    /// A table with a header, whose names are placeholders.
    Table {
        /// Between its cells.
        separator: Separator,
        /// `-k`.
        key: Template,
        /// What stands behind `--`.
        command: CommandTemplate,
    },
}

impl Format {
    /// A table's, from the words of a command line.
    ///
    /// # Errors
    /// 64 for what is no template; the message says where.
    pub fn table(separator: Separator, key: &str, command: &[OsString]) -> Result<Self, CliError> {
        let usage = |what: String| CliError::new(Kind::Usage, format!("{what}; nothing was run"));
        let key_template = Template::parse(key).map_err(|bad| {
            usage(format!("--key {}: character {}: {bad}", clean(key), bad.column()))
        })?;
        let mut words = Vec::with_capacity(command.len());
        for word in command {
            let text = word.to_str().ok_or_else(|| {
                usage(format!("the command: {}: not UTF-8", clean(&word.to_string_lossy())))
            })?;
            words.push(text);
        }
        let command = CommandTemplate::parse(&words).map_err(|bad: BadCommand| {
            let place = bad.place().and_then(|(index, column)| Some((words.get(index)?, column)));
            match place {
                Some((word, column)) => {
                    usage(format!("the command: {}: character {column}: {bad}", clean(word)))
                }
                None => usage(bad.to_string()),
            }
        })?;
        Ok(Self::Table { separator, key: key_template, command })
    }
}

/// How lines are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// What they look like.
    pub format: Format,
    /// Whether KEY-2 is lifted (KEY-3).
    pub key_as_is: bool,
}

/// The lines of a batch, in order. After a line that cannot be used it ends.
pub struct Input {
    lines: Lines,
    total: Option<u64>,
    ended: bool,
}

enum Lines {
    Json(json::JsonLines),
    Table(Box<table::Table>),
}

impl Input {
    /// Opens the source; a file is checked as a whole (INP-5).
    ///
    /// # Errors
    /// 66 if it cannot be read, 64 for lines that cannot be used, each by its number.
    pub fn open(source: &Source, reading: &Arc<Reading>) -> Result<Self, CliError> {
        let name = source.name();
        let unreadable = |error: &io::Error| {
            let words = format!("nothing was run: {}: it cannot be read", clean(&name));
            CliError::new(Kind::NotFound, words).because(error)
        };
        let mut file = match source {
            Source::File(path) => File::open(path),
            // The descriptor itself: what the library had read ahead would be lost to nobody.
            Source::Stdin => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        }
        .map_err(|error| unreadable(&error))?;
        let found = file.metadata().map_err(|error| unreadable(&error))?;
        if found.is_dir() {
            return Err(unreadable(&io::ErrorKind::IsADirectory.into()));
        }
        let mut total = None;
        if found.is_file() {
            // Standard input may stand in the middle of its file.
            let start = file.stream_position().map_err(|error| unreadable(&error))?;
            let again = file.try_clone().map_err(|error| unreadable(&error))?;
            total = Some(check(Lines::of(again, &name, reading), &name)?);
            file.seek(SeekFrom::Start(start)).map_err(|error| unreadable(&error))?;
        }
        Ok(Self { lines: Lines::of(file, &name, reading), total, ended: false })
    }

    /// How many lines there are to run, where the source is a file that was checked.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total
    }
}

impl Iterator for Input {
    type Item = Result<Line, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.lines.next();
        // What comes behind a line that cannot be read is not run: the person is to look first.
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Lines {
    fn of(file: File, name: &str, reading: &Arc<Reading>) -> Self {
        let source: Box<dyn io::Read + Send> = Box::new(file);
        match &reading.format {
            Format::Json { .. } => {
                Self::Json(json::JsonLines::new(source, name, Arc::clone(reading)))
            }
            Format::Table { separator, .. } => {
                let table = table::Table::new(source, name, *separator, Arc::clone(reading));
                Self::Table(Box::new(table))
            }
        }
    }
}

impl Iterator for Lines {
    type Item = Result<Line, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Json(lines) => lines.next(),
            Self::Table(lines) => lines.next(),
        }
    }
}

/// Reads all lines and runs none: how many there are (INP-5).
fn check(lines: Lines, name: &str) -> Result<u64, CliError> {
    let (mut good, mut bad) = (0_u64, 0_u64);
    let mut told: Vec<LineError> = Vec::new();
    for line in lines {
        match line {
            Ok(_) => good += 1,
            Err(error) => {
                bad += 1;
                if told.len() < TOLD_MAX {
                    told.push(error);
                }
            }
        }
    }
    let Some(first) = told.first() else {
        return Ok(good);
    };
    let mut error = if bad == 1 {
        CliError::new(Kind::Usage, format!("nothing was run: {first}"))
    } else {
        let lines = count(bad, "line");
        let words = format!("nothing was run: {}: {lines} cannot be used", clean(name));
        let facts = told.iter().map(ToString::to_string);
        facts.fold(CliError::new(Kind::Usage, words), CliError::fact)
    };
    if bad > TOLD_MAX as u64 {
        error = error.fact(format!("and {} more", bad - TOLD_MAX as u64));
    }
    // Many lines have one mistake: its mend is told once.
    let mut mends: Vec<&String> = told.iter().filter_map(|error| error.mend.as_ref()).collect();
    mends.dedup();
    Err(mends.into_iter().fold(error, |error, mend| error.tell("mend", clean(mend))))
}

/// The key of a line (KEY-1, KEY-2), or what is wrong with it and how it is mended.
fn key_of(text: String, as_is: bool) -> Result<Key, (String, Option<String>)> {
    let checked = if as_is { Ok(()) } else { check_hygiene(&text) };
    let told = |bad: &ctrlrun::plan::key::BadKey| {
        let mend = bad.is_hygiene().then(|| "if that is the name: --key-as-is".to_owned());
        let shown: String = text.chars().take(60).collect();
        (format!("key {shown:?}: {bad}"), mend)
    };
    // What can never be one first: no flag would help.
    match (Key::new(text.as_str()), checked) {
        (Err(bad), _) | (Ok(_), Err(bad)) => Err(told(&bad)),
        (Ok(key), Ok(())) => Ok(key),
    }
}
