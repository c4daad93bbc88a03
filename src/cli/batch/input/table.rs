//! Comma- or tab-separated values whose header names the placeholders (INP-3).
use std::io::Read;
use std::sync::Arc;

use csv::{ByteRecord, ErrorKind, ReaderBuilder};

use super::raw::{BUFFER_BYTES, Meter, Raw};
use super::{Format, LINE_BYTES_MAX, Line, LineError, Reading, Separator, key_of};
use crate::cli::render::text::count;
use crate::cli::suggest::nearest;
use crate::config::effect::Settings;

/// The rows of a source.
pub struct Table {
    rows: csv::Reader<Raw>,
    meter: Arc<Meter>,
    file: String,
    reading: Arc<Reading>,
    row: ByteRecord,
    state: State,
}

enum State {
    /// The header has not been read.
    New,
    /// The placeholders, each with its column.
    Rows(Arc<[(String, usize)]>),
    /// Nothing more can be read.
    Ended,
}

impl Table {
    /// Rows of `source`.
    pub fn new(
        source: Box<dyn Read + Send>,
        file: &str,
        separator: Separator,
        reading: Arc<Reading>,
    ) -> Self {
        let (byte, quoting) = match separator {
            Separator::Comma => (b',', true),
            Separator::Tab => (b'\t', false),
        };
        let (raw, meter) = Raw::table(source, byte, quoting);
        let rows = ReaderBuilder::new()
            .delimiter(byte)
            .quoting(quoting)
            .has_headers(false)
            .buffer_capacity(BUFFER_BYTES)
            .from_reader(raw);
        Self {
            rows,
            meter,
            file: file.to_owned(),
            reading,
            row: ByteRecord::new(),
            state: State::New,
        }
    }

    fn error(&self, line: u64, what: impl Into<String>, mend: Option<String>) -> LineError {
        LineError { file: self.file.clone(), line, column: None, what: what.into(), mend }
    }

    /// Reads the next row into `self.row`; its line, if there was one. An error that ends the reading
    /// leaves the state so.
    fn read(&mut self) -> Result<Option<u64>, LineError> {
        self.meter.record_ended();
        let read = self.rows.read_byte_record(&mut self.row);
        let begins = self.meter.next_begins().unwrap_or(1);
        if self.meter.unclosed() {
            self.state = State::Ended;
            let what = "a quote is opened here, or below, and never closed";
            return Err(self.error(begins, what, None));
        }
        match read {
            Ok(false) => {
                self.state = State::Ended;
                Ok(None)
            }
            Ok(true) if self.row.as_slice().len() > LINE_BYTES_MAX => {
                Err(self.error(begins, too_long(), None))
            }
            Ok(true) => Ok(Some(begins)),
            Err(error) => Err(self.not_read(begins, &error)),
        }
    }

    fn not_read(&mut self, begins: u64, error: &csv::Error) -> LineError {
        if let ErrorKind::UnequalLengths { expected_len, len, .. } = error.kind() {
            let (has, wants) = (count(*len, "cell"), count(*expected_len, "cell"));
            return self.error(begins, format!("the row has {has}, and the header {wants}"), None);
        }
        // Nothing is read behind what cannot be read.
        self.state = State::Ended;
        if self.meter.too_long() {
            return self.error(begins, too_long(), None);
        }
        self.error(begins, error.to_string(), None)
    }

    /// Reads the header, and finds the column of each placeholder.
    fn header(&mut self) -> Result<Vec<(String, usize)>, LineError> {
        // Without its header no row means anything.
        self.state = State::Ended;
        let Some(line) = self.read()? else {
            return Err(self.error(
                1,
                "there is no header: the first line names the columns",
                None,
            ));
        };
        let mut names = Vec::with_capacity(self.row.len());
        for cell in &self.row {
            let name = std::str::from_utf8(cell)
                .map_err(|_| self.error(line, "the header is not UTF-8", None))?;
            names.push(name.trim());
        }
        let Format::Table { key, command, .. } = &self.reading.format else {
            return Err(self.error(line, "internal: this is no JSON", None));
        };
        let in_key = key.placeholders().map(|(name, _)| name);
        let mut wanted: Vec<&str> =
            in_key.chain(command.placeholders().map(|(_, name, _)| name)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut columns = Vec::with_capacity(wanted.len());
        for name in wanted {
            let mut found = names.iter().enumerate().filter(|(_, column)| **column == name);
            match (found.next(), found.next()) {
                (Some((at, _)), None) => columns.push((name.to_owned(), at)),
                (Some(_), Some(_)) => {
                    let what = format!("two columns are named {name:?}: which one is {{{name}}}?");
                    return Err(self.error(line, what, None));
                }
                (None, _) => {
                    let near = nearest(name, names.iter().copied());
                    let near = near.map(|name| format!(" ({{{name}}}?)")).unwrap_or_default();
                    let what = format!(
                        "no column is named {name:?}{near}; the columns: {}",
                        names.join(", ")
                    );
                    let mend = "a literal brace is written {{ or }}".to_owned();
                    return Err(self.error(line, what, Some(mend)));
                }
            }
        }
        Ok(columns)
    }

    /// The line of the row that was read.
    fn line(&self, number: u64, columns: &[(String, usize)]) -> Result<Line, LineError> {
        let Format::Table { key, command, .. } = &self.reading.format else {
            return Err(self.error(number, "internal: this is no JSON", None));
        };
        let mut cells = Vec::with_capacity(columns.len());
        for (name, at) in columns {
            let cell = std::str::from_utf8(self.row.get(*at).unwrap_or_default());
            let cell = cell
                .map_err(|_| self.error(number, format!("column {name:?} is not UTF-8"), None))?;
            cells.push((name.as_str(), cell));
        }
        let cell =
            |name: &str| cells.iter().find(|(column, _)| *column == name).map(|(_, cell)| *cell);
        let cannot =
            |why: ctrlrun::plan::template::CannotFill| self.error(number, why.to_string(), None);
        let text = key.key(cell).map_err(cannot)?;
        let words = command.fill(cell).map_err(cannot)?;
        Ok(Line {
            number,
            key: key_of(text, self.reading.key_as_is)
                .map_err(|(what, mend)| self.error(number, what, mend))?,
            command: words.into_iter().map(Into::into).collect(),
            settings: Settings::default(),
            bind: Vec::new(),
            effect: None,
            probe: None,
        })
    }
}

fn too_long() -> String {
    format!("the row is longer than {LINE_BYTES_MAX} bytes: a quote that is never closed?")
}

impl Iterator for Table {
    type Item = Result<Line, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let columns = match std::mem::replace(&mut self.state, State::Ended) {
            State::Ended => return None,
            State::Rows(columns) => columns,
            State::New => match self.header() {
                Ok(columns) => columns.into(),
                Err(error) => return Some(Err(error)),
            },
        };
        // Put back first: what ends the reading takes it away again.
        self.state = State::Rows(Arc::clone(&columns));
        match self.read() {
            Ok(None) => None,
            Ok(Some(number)) => Some(self.line(number, &columns)),
            Err(error) => Some(Err(error)),
        }
    }
}
