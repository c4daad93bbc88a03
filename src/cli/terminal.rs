//! Where it speaks: what is a terminal, how wide it is, and writing that survives a reader who left.
use std::io::{self, BufWriter, IsTerminal, Write};

use super::error::CliError;

/// Columns of the terminal that stdout is, if it is one.
#[must_use]
pub fn columns() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into())
}

/// Columns of the terminal that stderr is, if it is one.
#[must_use]
pub fn columns_of_stderr() -> Option<usize> {
    terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| width.0.into())
}

/// Whether a person can be asked: stdin and stderr are terminals.
#[must_use]
pub fn a_person_is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// One line on stderr with our prefix (CLI-2). A stderr that is gone changes nothing.
pub fn say(line: &str) {
    let mut err = anstream::stderr().lock();
    let _ = writeln!(err, "ctrlrun: {line}");
}

/// A question on stderr, whose answer comes on the same line.
pub fn prompt(text: &str) {
    let mut err = anstream::stderr().lock();
    let _ = write!(err, "{text}");
    let _ = err.flush();
}

/// Whether the reader of our answer is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// It is.
    There,
    /// It closed the pipe: enough for it. That is no error.
    Gone,
}

/// The answer's way to stdout.
pub struct Answer {
    out: BufWriter<Box<dyn Write>>,
    gone: bool,
}

impl Answer {
    /// For text with colours, which are dropped where they do not belong.
    #[must_use]
    pub fn styled() -> Self {
        Self::to(Box::new(anstream::stdout()))
    }

    /// For bytes as they are.
    #[must_use]
    pub fn plain() -> Self {
        Self::to(Box::new(io::stdout()))
    }

    fn to(out: Box<dyn Write>) -> Self {
        Self { out: BufWriter::new(out), gone: false }
    }

    /// Writes a part of the answer by `write`.
    ///
    /// # Errors
    /// Any but a reader that left.
    pub fn put(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Reader, CliError> {
        if self.gone {
            return Ok(Reader::Gone);
        }
        match write(&mut self.out) {
            Ok(()) => Ok(Reader::There),
            Err(error) => self.failed(&error),
        }
    }

    /// Sees the answer out.
    ///
    /// # Errors
    /// As [`Answer::put`].
    pub fn end(mut self) -> Result<(), CliError> {
        self.put(|out| out.flush()).map(drop)
    }

    fn failed(&mut self, error: &io::Error) -> Result<Reader, CliError> {
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.gone = true;
            Ok(Reader::Gone)
        } else {
            Err(CliError::unwritten(error))
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // What a closed pipe did not take must not be tried again by the buffer's own drop, whose
        // error nobody would see: nothing is left to say.
        if !self.gone {
            let _ = self.out.flush();
        }
    }
}

/// Writes one text as the whole answer.
///
/// # Errors
/// As [`Answer::put`].
pub fn answer(text: &str) -> Result<(), CliError> {
    let mut out = Answer::styled();
    out.put(|out| out.write_all(text.as_bytes()))?;
    out.end()
}
