//! Service files: sections of parameters by name (`pg_service.conf`).
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::here::Here;
use super::params::{ConninfoError, Settings, Source};

/// Where a service may be defined: the user's file, then the system's.
fn places(named: Option<&str>, here: &Here<'_>) -> Vec<PathBuf> {
    let own = match named {
        Some(named) => Some(PathBuf::from(named)),
        None => here.at_home(".pg_service.conf"),
    };
    let system = match here.var("PGSYSCONFDIR") {
        Some(folder) => vec![Path::new(folder).join("pg_service.conf")],
        // Where Debian has it, and where an installation from source does.
        None => vec![
            PathBuf::from("/etc/postgresql-common/pg_service.conf"),
            PathBuf::from("/usr/local/pgsql/etc/pg_service.conf"),
        ],
    };
    own.into_iter().chain(system).collect()
}

/// Takes from the first file that defines the service what the URL did not give.
///
/// # Errors
/// No file defines it, one cannot be read, or has a line that is none.
pub fn offer(
    settings: &mut Settings,
    name: &str,
    file: Option<&str>,
    here: &Here<'_>,
) -> Result<(), ConninfoError> {
    for path in places(file, here) {
        let seen = match (here.files)(&path) {
            Ok(seen) => seen,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                continue;
            }
            Err(error) => {
                let text = format!("the service file {} cannot be read: {error}", path.display());
                return Err(ConninfoError::File(text));
            }
        };
        if section(settings, name, &path, &String::from_utf8_lossy(&seen.bytes))? {
            return Ok(());
        }
    }
    Err(ConninfoError::File(format!("the service \"{name}\" is defined in no service file")))
}

/// Whether the section was there. A line is shown by its number alone: it may hold a password.
fn section(
    settings: &mut Settings,
    wanted: &str,
    path: &Path,
    text: &str,
) -> Result<bool, ConninfoError> {
    let mut found = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix('[') {
            if found {
                return Ok(true);
            }
            found = title.strip_suffix(']') == Some(wanted);
            continue;
        }
        if !found {
            continue;
        }
        let wrong = |why: &str| {
            let (path, number) = (path.display(), number + 1);
            ConninfoError::File(format!("line {number} of the service file {path} {why}"))
        };
        let Some((name, value)) = line.split_once('=') else {
            return Err(wrong("is no NAME=VALUE"));
        };
        if matches!(name, "service" | "servicefile") {
            return Err(wrong("names a service inside a service"));
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(wrong(
                "has a name with other than letters, digits and _ (no spaces around =)",
            ));
        }
        settings.offer(name, value, Source::Service(wanted.to_owned()))?;
    }
    Ok(found)
}
