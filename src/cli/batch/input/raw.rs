//! Bytes on their way to a parser: what they begin with, and what no parser bounds.
use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::LINE_BYTES_MAX;

/// The UTF-8 byte order mark.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Said of a file that is not UTF-8 from its first bytes on.
pub const UTF_16: &str =
    "this is UTF-16, not UTF-8: save it as UTF-8, or: iconv -f UTF-16 -t UTF-8";

/// How much the parsers read ahead.
pub const BUFFER_BYTES: usize = 64 << 10;

/// What is known of the bytes that a [`Raw`] has handed out; shared with whoever reads the records.
#[derive(Debug, Default)]
pub struct Meter {
    since_record: AtomicU64,
    too_long: AtomicBool,
    unclosed: AtomicBool,
    /// The lines on which the records begin that were handed out and not read yet.
    begins: Mutex<VecDeque<u64>>,
}

impl Meter {
    /// A record has ended: its bytes no longer count.
    pub fn record_ended(&self) {
        self.since_record.store(0, Ordering::Relaxed);
    }

    /// Whether reading was ended because a record was too long.
    pub fn too_long(&self) -> bool {
        self.too_long.load(Ordering::Relaxed)
    }

    /// Whether the source ended inside quotes: whatever stood behind the last one that was opened
    /// would be taken for one cell, and its rows for none.
    pub fn unclosed(&self) -> bool {
        self.unclosed.load(Ordering::Relaxed)
    }

    /// The line on which the next record of a table begins.
    pub fn next_begins(&self) -> Option<u64> {
        self.begins.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Where in a table a byte stands, as the parser sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    RecordStart,
    CellStart,
    Plain,
    Quoted,
    /// Behind a quote in quotes: the end of it, or the first half of a doubled one.
    Quote,
}

/// Follows the records of a table, as far as their parser does not tell: its line numbers are those
/// before the empty lines, and those before the second half of a CRLF.
#[derive(Debug)]
struct Rows {
    separator: u8,
    quoting: bool,
    at: At,
    line: u64,
    after_cr: bool,
}

impl Rows {
    fn follow(&mut self, bytes: &[u8], meter: &Meter) {
        let mut begins = meter.begins.lock().unwrap_or_else(PoisonError::into_inner);
        for byte in bytes {
            // Either half of a CRLF alone ends a line; both together end one.
            let ends = *byte == b'\r' || (*byte == b'\n' && !self.after_cr);
            self.after_cr = *byte == b'\r';
            if self.at == At::RecordStart && !matches!(byte, b'\r' | b'\n') {
                begins.push_back(self.line);
                self.at = At::CellStart;
            }
            self.at = match (self.at, *byte) {
                (At::CellStart | At::Quote, b'"') if self.quoting => At::Quoted,
                (At::Quoted, b'"') => At::Quote,
                (At::Quoted, _) => At::Quoted,
                (_, b'\n' | b'\r') => At::RecordStart,
                (_, other) if other == self.separator => At::CellStart,
                (_, _) => At::Plain,
            };
            self.line += u64::from(ends);
        }
    }
}

/// A source of bytes without its byte order mark, bounded by the record.
pub struct Raw {
    inner: Box<dyn Read + Send>,
    meter: Arc<Meter>,
    /// The first bytes, looked at and not handed out yet.
    first: Option<Vec<u8>>,
    rows: Option<Rows>,
}

impl Raw {
    /// Bytes of `inner`, which are lines.
    pub fn lines(inner: Box<dyn Read + Send>) -> Self {
        Self { inner, meter: Arc::default(), first: None, rows: None }
    }

    /// Bytes of `inner`, which are the records of a table.
    pub fn table(inner: Box<dyn Read + Send>, separator: u8, quoting: bool) -> (Self, Arc<Meter>) {
        let rows = Rows { separator, quoting, at: At::RecordStart, line: 1, after_cr: false };
        let raw = Self { rows: Some(rows), ..Self::lines(inner) };
        let meter = Arc::clone(&raw.meter);
        (raw, meter)
    }

    /// A new record begins: what was read ahead of it no longer counts.
    pub fn restart(&self) {
        self.meter.record_ended();
    }

    /// Looks at the first bytes, however few come at a time.
    fn begin(&mut self) -> io::Result<Vec<u8>> {
        let mut first = Vec::new();
        (&mut self.inner).take(BOM.len() as u64).read_to_end(&mut first)?;
        if first.starts_with(b"\xff\xfe") || first.starts_with(b"\xfe\xff") {
            return Err(io::Error::new(io::ErrorKind::InvalidData, UTF_16));
        }
        if first.starts_with(BOM) {
            first.clear();
        }
        Ok(first)
    }
}

impl Read for Raw {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if self.first.is_none() {
            let first = self.begin()?;
            self.first = Some(first);
        }
        let read = match &mut self.first {
            Some(first) if !first.is_empty() => {
                let take = first.len().min(into.len());
                into[..take].copy_from_slice(&first[..take]);
                first.drain(..take);
                take
            }
            Some(_) | None => self.inner.read(into)?,
        };
        if let Some(rows) = &mut self.rows {
            rows.follow(&into[..read], &self.meter);
            if read == 0 && rows.at == At::Quoted {
                self.meter.unclosed.store(true, Ordering::Relaxed);
            }
        }
        let so_far = self.meter.since_record.fetch_add(read as u64, Ordering::Relaxed);
        // What was read ahead of the record belongs to others.
        if so_far > (LINE_BYTES_MAX + BUFFER_BYTES) as u64 {
            self.meter.too_long.store(true, Ordering::Relaxed);
            return Err(io::Error::other("a record is too long"));
        }
        Ok(read)
    }
}
