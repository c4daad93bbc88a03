//! `ctrlrun init --config`: a commented configuration where there is none (CFG-12).
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::cli::Global;
use crate::cli::error::{CliError, Kind};
use crate::cli::render::text::clean;
use crate::cli::terminal::{Answer, say};

/// What is written: all of it commented, so that it changes nothing.
pub const TEMPLATE: &str = include_str!("template.toml");

/// Writes it to `path`, unless something is there.
///
/// # Errors
/// 66: it cannot be written.
pub fn write(path: &Path, global: &Global) -> Result<(), CliError> {
    let shown = path.to_string_lossy();
    let unwritable = |error: &std::io::Error| {
        let words = format!("{}: this configuration cannot be written", clean(&shown));
        CliError::new(Kind::NotFound, words).because(error)
    };
    // Not "is it there, then write": whatever is there, a dangling link included, stays.
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    let made = match opened {
        Ok(mut file) => {
            let written = file.write_all(TEMPLATE.as_bytes()).and_then(|()| file.sync_all());
            written.map_err(|error| unwritable(&error))?;
            true
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        Err(error) => return Err(unwritable(&error)),
    };
    if global.json {
        let mut out = Answer::plain();
        let object = serde_json::json!({ "config": shown, "made": made });
        out.put(|out| writeln!(out, "{object}"))?;
        return out.end();
    }
    let shown = clean(&shown);
    say(&if made {
        format!("made {shown}: all of it is commented out, so nothing has changed yet")
    } else {
        format!("{shown} is there already; nothing was written")
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::TEMPLATE;

    #[test]
    fn the_template_fits_a_terminal() {
        for line in TEMPLATE.lines() {
            assert!(line.chars().count() <= 90, "{line}");
        }
    }
}
