//! Values as the text of a statement: so BEGIN and a write with all of its values are one message,
//! that stops at its first error (PGS-2).
//!
//! What is written is ASCII, whatever the value: a server that takes the bytes for those of another
//! encoding reads the same. And it is written with `E''`, in which a backslash means the same whatever
//! `standard_conforming_strings` says.
use std::fmt::Write;

use data_encoding::HEXLOWER;

use crate::store::row::Malformed;

/// The value of a column.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// text
    Text(Option<&'a str>),
    /// bytea
    Bytes(Option<&'a [u8]>),
    /// bigint
    Int(Option<i64>),
    /// boolean
    Flag(bool),
}

/// A column and its value.
pub type Cell<'a> = (&'static str, Value<'a>);

impl Value<'_> {
    fn kind(self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytea",
            Self::Int(_) => "int8",
            Self::Flag(_) => "bool",
        }
    }

    fn put(self, to: &mut String) -> Result<(), &'static str> {
        match self {
            Self::Text(Some(value)) => return text(to, value),
            Self::Bytes(Some(value)) => bytes(to, value),
            // In brackets: `-1::int8` is minus the cast.
            Self::Int(Some(value)) if value < 0 => put(to, format_args!("({value})")),
            Self::Int(Some(value)) => put(to, format_args!("{value}")),
            Self::Flag(value) => to.push_str(if value { "true" } else { "false" }),
            Self::Text(None) | Self::Bytes(None) | Self::Int(None) => to.push_str("NULL"),
        }
        Ok(())
    }
}

/// The values, with commas between them. `typed` where nothing else tells the server their types.
///
/// # Errors
/// [`Malformed`]: text with a NUL in it, which no statement can hold.
pub fn list(to: &mut String, cells: &[Cell<'_>], typed: bool) -> Result<(), Malformed> {
    for (at, (column, value)) in cells.iter().enumerate() {
        if at > 0 {
            to.push_str(", ");
        }
        value.put(to).map_err(|why| Malformed::new(column, why))?;
        if typed {
            put(to, format_args!("::pg_catalog.{}", value.kind()));
        }
    }
    Ok(())
}

/// `column = value`, with commas between them.
///
/// # Errors
/// As [`list`].
pub fn assignments(to: &mut String, cells: &[Cell<'_>]) -> Result<(), Malformed> {
    for (at, (column, value)) in cells.iter().enumerate() {
        put(to, format_args!("{}{column} = ", if at > 0 { ", " } else { "" }));
        value.put(to).map_err(|why| Malformed::new(column, why))?;
    }
    Ok(())
}

/// A text.
///
/// # Errors
/// It has a NUL in it: the server would read no further.
pub fn text(to: &mut String, value: &str) -> Result<(), &'static str> {
    to.push_str("E'");
    for letter in value.chars() {
        match letter {
            '\0' => return Err("it has a NUL in it"),
            '\'' => to.push_str("''"),
            '\\' => to.push_str("\\\\"),
            ' '..='~' => to.push(letter),
            other => match u32::from(other) {
                code @ ..=0xffff => put(to, format_args!("\\u{code:04X}")),
                code => put(to, format_args!("\\U{code:08X}")),
            },
        }
    }
    to.push('\'');
    Ok(())
}

/// Bytes.
pub fn bytes(to: &mut String, value: &[u8]) {
    to.push_str("E'\\\\x");
    HEXLOWER.encode_append(value, to);
    to.push('\'');
}

/// Writing to a string does not fail.
fn put(to: &mut String, what: std::fmt::Arguments<'_>) {
    let _never_fails = to.write_fmt(what);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(value: &str) -> String {
        let mut to = String::new();
        text(&mut to, value).unwrap();
        to
    }

    #[test]
    fn what_is_written_is_ascii_and_ends_where_it_should() {
        // PGS-2
        assert_eq!(quoted("it's"), "E'it''s'");
        assert_eq!(quoted("a\\'; DROP"), "E'a\\\\''; DROP'");
        assert_eq!(quoted("\u{e9}\n\u{1f600}"), "E'\\u00E9\\u000A\\U0001F600'");
        assert!(text(&mut String::new(), "a\0b").is_err());
        let mut to = String::new();
        bytes(&mut to, b"\x00'\\");
        assert_eq!(to, "E'\\\\x00275c'");
        let mut to = String::new();
        let cells = [("a", Value::Int(Some(i64::MIN))), ("b", Value::Bytes(None))];
        list(&mut to, &cells, true).unwrap();
        assert_eq!(to, "(-9223372036854775808)::pg_catalog.int8, NULL::pg_catalog.bytea");
    }
}
