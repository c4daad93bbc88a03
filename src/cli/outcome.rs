//! `ctrlrun outcome`: a command says of itself what is so (CLI-21, EXE-5).
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use clap::{Args, ValueEnum};

use super::error::{CliError, Exit, Kind};
use super::render::text::clean;

/// The variable that names the file.
const OUTCOME_VARIABLE: &str = "CTRLRUN_OUTCOME_FILE";

/// Inside a command: say whether the effect happened
///
/// What the command says of itself counts more than its exit code. `committed` makes the outcome
/// COMMITTED however the command then ends; `not-executed` makes it FAILED, so that it may run again,
/// if the command then exits non-zero; `clear` takes back what was said before.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  curl -fsS ... && ctrlrun outcome committed \"refund re_5512\"
  ctrlrun outcome not-executed \"no such account\"; exit 1

See also: ctrlrun help outcomes")]
pub struct OutcomeArgs {
    /// What is so
    pub said: Word,
    /// A note for whoever looks at the record later
    pub note: Option<String>,
}

/// See [`OutcomeArgs::said`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Word {
    /// It happened
    Committed,
    /// Nothing happened, and nothing will
    NotExecuted,
    /// Take back what was said before
    Clear,
}

/// Appends the line in one write. It touches no store.
///
/// # Errors
/// 64 outside a command; 66 if the file is not there.
pub fn outcome(args: &OutcomeArgs) -> Result<Exit, CliError> {
    let Some(path) = std::env::var_os(OUTCOME_VARIABLE).filter(|path| !path.is_empty()) else {
        return Err(CliError::new(
            Kind::Usage,
            format!(
                "{OUTCOME_VARIABLE} is not set: `outcome` works inside a command of `ctrlrun run`; nothing was said"
            ),
        ));
    };
    append(Path::new(&path), args).map_err(|error| {
        let said = "the outcome file cannot be written: nothing was said, and the outcome may end AMBIGUOUS";
        CliError::new(Kind::NotFound, said).because(&error)
    })?;
    Ok(Exit::OK)
}

fn append(path: &Path, args: &OutcomeArgs) -> io::Result<()> {
    // Never created: a file that is gone means that the word would be lost, and must be heard of.
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    let text = lines(args, unfinished(&mut file)?);
    // One write with O_APPEND, so that two of these at once never mix their lines.
    let written = file.write(text.as_bytes())?;
    if written == text.len() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::WriteZero, "it was written in part"))
    }
}

/// Whether the file ends within a line, as after `printf committed >"$CTRLRUN_OUTCOME_FILE"`: our
/// line must not grow together with it.
fn unfinished(file: &mut std::fs::File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

fn lines(args: &OutcomeArgs, unfinished: bool) -> String {
    let mut text = String::new();
    if unfinished {
        text.push('\n');
    }
    // The note comes first: the statement is then the last line that anybody sees.
    for line in args.note.iter().flat_map(|note| note.lines()) {
        text.push_str("# ");
        text.push_str(&clean(line));
        text.push('\n');
    }
    text.push_str(match args.said {
        Word::Committed => "committed\n",
        Word::NotExecuted => "not-executed\n",
        Word::Clear => "clear\n",
    });
    text
}

#[cfg(test)]
mod tests {
    use ctrlrun::plan::verdict::{Said, Statement};

    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        // CLI-21, EXE-5
        let file = tempfile::NamedTempFile::new().unwrap();
        let say = |said, note: Option<&str>| {
            let args = OutcomeArgs { said, note: note.map(ToOwned::to_owned) };
            append(file.path(), &args).unwrap();
            Said::read(&std::fs::read(file.path()).unwrap())
        };
        let said = say(Word::Committed, Some("re_1\ncommitted\r\n"));
        assert_eq!(said.statement, Statement::Committed);
        assert_eq!(said.notes, ["re_1", "committed"]);
        assert_eq!(say(Word::Clear, None).statement, Statement::Nothing);
        assert_eq!(say(Word::NotExecuted, None).statement, Statement::NotExecuted);
    }

    #[test]
    fn a_line_that_was_not_finished_stays_a_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "committed").unwrap();
        let args = OutcomeArgs { said: Word::Committed, note: Some("again".to_owned()) };
        append(file.path(), &args).unwrap();
        let said = Said::read(&std::fs::read(file.path()).unwrap());
        assert_eq!(said.statement, Statement::Committed);
    }

    #[test]
    fn a_file_that_is_gone_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone");
        let args = OutcomeArgs { said: Word::Committed, note: None };
        assert!(append(&path, &args).is_err());
        assert!(!path.exists());
    }
}
