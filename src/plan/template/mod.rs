//! Keys and commands with placeholders (CFG-1 to CFG-4).
//!
//! `{name}` stands for a value, `{{` and `}}` for a brace; any other brace is an error. What a value
//! holds is put in as it is: it is never split, unquoted or read again, so no value can add an
//! argument or another placeholder. No shell is involved.
//!
//! | here | is |
//! |---|---|
//! | [`Template`] | one text with placeholders: a key, or one argument |
//! | [`CommandTemplate`] | a command of such arguments |
//! | [`Reading`] | what a key says of the values that it was made of |
mod command;
mod reading;

pub use command::{BadCommand, CommandTemplate};
pub use reading::Reading;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value {
        name: String,
        /// Where its brace stands.
        column: usize,
    },
}

/// Why a text is no template. Columns count characters of the template, from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    /// A `{` without its `}`.
    #[error("`{{` begins no placeholder: it is not closed; a literal brace is written `{{{{`")]
    NotClosed {
        /// Of the brace.
        column: usize,
    },
    /// A `}` without its `{`.
    #[error("`}}` ends no placeholder; a literal brace is written `}}}}`")]
    NotOpened {
        /// Of the brace.
        column: usize,
    },
    /// `{}`, `{ x}`, or a control character in the name.
    #[error("`{{{name}}}` is no placeholder: {why}; a literal brace is written `{{{{`")]
    Name {
        /// Of the opening brace.
        column: usize,
        /// What stands between the braces, with control characters escaped.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl BadTemplate {
    /// Where, in characters from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        match self {
            Self::NotClosed { column } | Self::NotOpened { column } | Self::Name { column, .. } => {
                *column
            }
        }
    }
}

/// Why a value may not stand in a placeholder (CFG-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadValue {
    /// It is empty.
    #[error("it is empty: a field that was not there?")]
    Empty,
    /// It holds a control character.
    #[error("it holds a control character ({0:?})")]
    Control(char),
    /// In a key: white space at either end, which would make it another effect.
    #[error("it begins or ends with a space, which would make the key another effect's")]
    Space,
}

/// Why a template could not be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotFill {
    /// There is no value for this placeholder.
    #[error("there is no value for {{{name}}}")]
    Missing {
        /// The placeholder.
        name: String,
        /// Where it stands in the template, in characters from 1.
        column: usize,
    },
    /// The value may not stand there.
    #[error("the value of {{{name}}} cannot be used: {why}")]
    Value {
        /// The placeholder.
        name: String,
        /// What is wrong with the value.
        why: BadValue,
    },
}

impl CannotFill {
    /// The placeholder that it is about.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Missing { name, .. } | Self::Value { name, .. } => name,
        }
    }
}

/// As it was written, but for the spelling of braces.
impl std::fmt::Display for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(plain) => f.write_str(&plain.replace('{', "{{").replace('}', "}}")),
            Piece::Value { name, .. } => write!(f, "{{{name}}}"),
        })
    }
}

impl Template {
    /// Reads a template (CFG-1).
    ///
    /// # Errors
    /// [`BadTemplate`] for a brace that is neither doubled nor a placeholder's.
    pub fn parse(text: &str) -> Result<Self, BadTemplate> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut chars = text.chars().zip(1..).peekable();
        while let Some((c, column)) = chars.next() {
            let doubled = matches!(chars.peek(), Some((next, _)) if *next == c);
            match c {
                '{' | '}' if doubled => {
                    chars.next();
                    plain.push(c);
                }
                '}' => return Err(BadTemplate::NotOpened { column }),
                '{' => {
                    let mut name = String::new();
                    loop {
                        match chars.next() {
                            Some(('}', _)) => break,
                            Some(('{', _)) | None => return Err(BadTemplate::NotClosed { column }),
                            Some((c, _)) => name.push(c),
                        }
                    }
                    check_name(&name, column)?;
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Value { name, column });
                }
                _ => plain.push(c),
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// Its placeholders, in order, each with its column; one that comes twice is named twice.
    pub fn placeholders(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Value { name, column } => Some((name.as_str(), *column)),
        })
    }

    /// Whether no value is needed.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.placeholders().next().is_none()
    }

    /// The text of an argument, each placeholder by its value (CFG-3).
    ///
    /// # Errors
    /// [`CannotFill`]: a value that is not there, or may not stand there.
    pub fn argument<'v>(
        &self,
        values: impl Fn(&str) -> Option<&'v str>,
    ) -> Result<String, CannotFill> {
        self.fill(values, check_value)
    }

    /// The text of a key: a value must not begin or end with white space either (CFG-3). That the
    /// whole can be a key is for [`Key`](crate::plan::key::Key) to say.
    ///
    /// # Errors
    /// As [`Template::argument`].
    pub fn key<'v>(&self, values: impl Fn(&str) -> Option<&'v str>) -> Result<String, CannotFill> {
        self.fill(values, |value| {
            check_value(value)?;
            if value.trim() == value { Ok(()) } else { Err(BadValue::Space) }
        })
    }

    fn fill<'v>(
        &self,
        values: impl Fn(&str) -> Option<&'v str>,
        check: impl Fn(&str) -> Result<(), BadValue>,
    ) -> Result<String, CannotFill> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Value { name, column } => {
                    let missing = || CannotFill::Missing { name: name.clone(), column: *column };
                    let value = values(name).ok_or_else(missing)?;
                    check(value).map_err(|why| CannotFill::Value { name: name.clone(), why })?;
                    text.push_str(value);
                }
            }
        }
        Ok(text)
    }
}

/// Whether a value may stand in a placeholder (CFG-3).
///
/// # Errors
/// [`BadValue`].
pub fn check_value(value: &str) -> Result<(), BadValue> {
    if value.is_empty() {
        return Err(BadValue::Empty);
    }
    match value.chars().find(|c| c.is_control()) {
        Some(control) => Err(BadValue::Control(control)),
        None => Ok(()),
    }
}

fn check_name(name: &str, column: usize) -> Result<(), BadTemplate> {
    let why = if name.is_empty() {
        "it has no name"
    } else if name.chars().any(char::is_control) {
        "its name holds a control character"
    } else if name.trim() != name {
        "its name begins or ends with a space"
    } else {
        return Ok(());
    };
    Err(BadTemplate::Name { column, name: name.escape_debug().to_string(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(name: &str) -> Option<&'static str> {
        match name {
            "id" => Some("txn_1"),
            "Payment ID" => Some("p 1"),
            "braces" => Some("{id}"),
            "empty" => Some(""),
            "control" => Some("a\nb"),
            "space" => Some("txn_1 "),
            _ => None,
        }
    }

    fn key(text: &str) -> Result<String, CannotFill> {
        Template::parse(text).unwrap().key(values)
    }

    #[test]
    fn a_placeholder_is_filled_and_a_doubled_brace_is_one() {
        // CFG-1
        for (template, text) in [
            ("refund:{id}", "refund:txn_1"),
            ("{id}", "txn_1"),
            ("{id}{id}", "txn_1txn_1"),
            ("{Payment ID}!", "p 1!"),
            ("", ""),
            ("plain", "plain"),
            ("{{id}}", "{id}"),
            ("{{{id}}}", "{txn_1}"),
            ("{{}}", "{}"),
            ("é{id}", "étxn_1"),
        ] {
            assert_eq!(key(template).as_deref(), Ok(text), "{template}");
        }
    }

    #[test]
    fn a_brace_that_is_no_placeholders_is_an_error_with_its_column() {
        // CFG-1
        for (template, column) in [
            ("{", 1),
            ("a:{id", 3),
            ("a:{i{d}}", 3),
            ("é{id", 2),
            ("a}", 2),
            ("{id}}", 5),
            ("{}", 1),
            ("x{ id}", 2),
            ("{id }", 1),
            ("{i\nd}", 1),
        ] {
            assert_eq!(Template::parse(template).unwrap_err().column(), column, "{template}");
        }
        let told = Template::parse("awk {print").unwrap_err().to_string();
        assert_eq!(
            told,
            "`{` begins no placeholder: it is not closed; a literal brace is written `{{`"
        );
        let told = Template::parse("{i\u{1b}d}").unwrap_err().to_string();
        assert!(told.starts_with("`{i\\u{1b}d}` is no placeholder"), "{told}");
    }

    #[test]
    fn a_value_is_never_read_again() {
        // CFG-2
        assert_eq!(key("a:{braces}").as_deref(), Ok("a:{id}"));
    }

    #[test]
    fn a_value_that_is_missing_empty_or_holds_a_control_character_is_refused() {
        // CFG-3
        let why = |name: &str, why| Err(CannotFill::Value { name: name.to_owned(), why });
        assert_eq!(key("a:{empty}"), why("empty", BadValue::Empty));
        assert_eq!(key("a:{control}"), why("control", BadValue::Control('\n')));
        let missing = CannotFill::Missing { name: "ID".to_owned(), column: 3 };
        assert_eq!(key("a:{ID}"), Err(missing));
        // A space would make it another effect; in an argument it is data.
        assert_eq!(key("a:{space}:b"), why("space", BadValue::Space));
        let argument = Template::parse("{space}").unwrap().argument(values);
        assert_eq!(argument.as_deref(), Ok("txn_1 "));
    }

    #[test]
    fn placeholders_are_told_in_order() {
        let template = Template::parse("{a}:{b c}:{a}").unwrap();
        let found: Vec<_> = template.placeholders().collect();
        assert_eq!(found, [("a", 1), ("b c", 5), ("a", 11)]);
        assert!(!template.is_literal());
        assert!(Template::parse("{{a}}").unwrap().is_literal());
    }

    #[test]
    fn what_cannot_be_filled_names_its_placeholder() {
        // CFG-3
        for (template, name) in [("a:{none}", "none"), ("{empty}", "empty"), ("{space}", "space")] {
            assert_eq!(key(template).unwrap_err().name(), name);
        }
    }
}
