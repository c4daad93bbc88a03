//! The password file: lines of `host:port:database:user:password`.
use std::path::Path;

use super::here::{Here, Seen};
use super::secret::Secret;

/// What a password is looked up for.
pub struct Login<'a> {
    /// The host as it was given; `localhost` for the default socket.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The database.
    pub dbname: &'a str,
    /// The user.
    pub user: &'a str,
}

/// Reads the file, unless it is one that libpq would not use; then a warning says why. A file that
/// is not there is no fault.
pub fn read(path: &Path, here: &Here<'_>, warnings: &mut Vec<String>) -> Option<String> {
    let shown = path.display();
    let seen: Seen = match (here.files)(path) {
        Ok(seen) => seen,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            warnings.push(format!("the password file {shown} cannot be read and is ignored"));
            return None;
        }
        Err(_) => return None,
    };
    if !seen.regular {
        warnings.push(format!("the password file {shown} is no plain file and is ignored"));
        return None;
    }
    if seen.mode & 0o077 != 0 {
        warnings.push(format!(
            "the password file {shown} can be read by others and is ignored: chmod 0600 {shown}"
        ));
        return None;
    }
    Some(String::from_utf8_lossy(&seen.bytes).into_owned())
}

/// The password of the first line that fits.
#[must_use]
pub fn find(text: &str, login: &Login<'_>) -> Option<Secret> {
    let port = login.port.to_string();
    let wanted = [login.host, &port, login.dbname, login.user];
    for line in text.lines() {
        if line.starts_with('#') {
            continue;
        }
        let Some((fields, password)) = fields(line) else { continue };
        let fits = |(field, wanted): (&Field, &&str)| field.any || field.text == **wanted;
        if fields.iter().zip(&wanted).all(fits) {
            return Some(Secret::new(password)).filter(|found| !found.reveal().is_empty());
        }
    }
    None
}

struct Field {
    text: String,
    /// It is a bare `*`; an escaped one is a star.
    any: bool,
}

/// Four fields and the password, which ends at a further bare colon or with the line.
fn fields(line: &str) -> Option<([Field; 4], String)> {
    let mut found: Vec<Field> = Vec::with_capacity(5);
    let (mut text, mut escaped) = (String::new(), false);
    let mut chars = line.trim_end_matches('\r').chars();
    loop {
        let next = chars.next();
        match next {
            Some('\\') => {
                escaped = true;
                text.extend(chars.next());
            }
            Some(':') | None => {
                let any = text == "*" && !escaped;
                found.push(Field { text: std::mem::take(&mut text), any });
                escaped = false;
                if next.is_none() || found.len() == 5 {
                    break;
                }
            }
            Some(other) => text.push(other),
        }
    }
    let password = found.pop().filter(|_| found.len() == 4)?;
    let fields: [Field; 4] = found.try_into().ok()?;
    Some((fields, password.text))
}
