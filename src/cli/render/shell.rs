//! Command lines that can be typed: what a shell makes of them is what was meant (CLI-4).
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use super::text::is_unsafe;
use crate::cli::which::Place;

/// One word, quoted for a POSIX shell if it needs it.
///
/// A word that would do something to the terminal, or is not text, is written as `$'...'` with its
/// bytes escaped: every shell that people type into reads that.
#[must_use]
pub fn quote(word: impl AsRef<OsStr>) -> String {
    let bytes = word.as_ref().as_bytes();
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(is_unsafe));
    match text.map(shlex::try_quote) {
        Some(Ok(quoted)) => quoted.into_owned(),
        Some(Err(_)) | None => escaped(bytes),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut quoted = String::from("$'");
    for &byte in bytes {
        match byte {
            b'\'' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(byte));
            }
            b' '..=b'~' => quoted.push(char::from(byte)),
            // Three octal digits: a hexadecimal escape would swallow a digit that follows it in
            // some shells.
            _ => {
                let _ = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted.push('\'');
    quoted
}

/// A line of `ctrlrun` about a key: the subcommand, the key, flags, and `--store` unless the store is
/// the default. `flags` are given as they are to be typed.
#[must_use]
pub fn line(subcommand: &str, key: &str, flags: &str, place: &Place) -> String {
    let mut line = format!("ctrlrun {subcommand}");
    // A key that begins with a dash would be taken for a flag: it stands last, behind `--`.
    let dashed = key.starts_with('-');
    if !dashed && !key.is_empty() {
        line.push(' ');
        line.push_str(&quote(key));
    }
    if !flags.is_empty() {
        line.push(' ');
        line.push_str(flags);
    }
    line.push_str(&store_flag(place));
    if dashed {
        line.push_str(" -- ");
        line.push_str(&quote(key));
    }
    line
}

/// ` --store PATH`, or nothing for the default.
#[must_use]
pub fn store_flag(place: &Place) -> String {
    if place.is_default() { String::new() } else { format!(" --store {}", quote(place.argument())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::which::Why;

    fn place(why: Why) -> Place {
        Place { location: ctrlrun::store::Location::file("/srv/my store.db"), why }
    }

    #[test]
    fn what_is_quoted_comes_back_from_a_shell() {
        // CLI-4
        for word in [
            "plain",
            "refund:txn_1",
            "it's \"quoted\"",
            "a b",
            "$HOME `x` \\ !",
            "#x",
            "~",
            "",
            "*",
            "e\u{301}\u{5d0}",
            "a\u{202e}1b",
            "\u{200b}'\\",
        ] {
            let script = format!("printf %s {}", quote(word));
            let out = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(out.stdout).unwrap(), word, "{script}");
            assert!(!quote(word).chars().any(is_unsafe), "{word:?}");
        }
        let raw = OsStr::from_bytes(b"\xff7");
        assert_eq!(quote(raw), "$'\\3777'");
    }

    #[test]
    fn the_store_is_named_unless_it_is_the_default() {
        // CLI-4
        assert_eq!(line("show", "k", "", &place(Why::Default)), "ctrlrun show k");
        assert_eq!(
            line("show", "k", "", &place(Why::Variable)),
            "ctrlrun show k --store '/srv/my store.db'"
        );
    }

    #[test]
    fn a_key_with_a_dash_stands_behind_two() {
        // KEY-1, CLI-4
        assert_eq!(
            line("resolve", "-x", "--reopen", &place(Why::Default)),
            "ctrlrun resolve --reopen -- -x"
        );
    }
}
