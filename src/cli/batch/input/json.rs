//! JSON Lines: one object a line (INP-1, INP-2).
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::raw::{BUFFER_BYTES, Raw};
use super::{Format, LINE_BYTES_MAX, Line, LineError, Reading, key_of};
use crate::cli::suggest::nearest;
use crate::config::effect::{Effects, Settings};
use crate::config::{Codes, SomeTime};

/// The lines of a source.
pub struct JsonLines {
    source: BufReader<Raw>,
    file: String,
    reading: Arc<Reading>,
    number: u64,
    line: Vec<u8>,
    ended: bool,
}

/// What is wrong with a line, before it is known which one it is.
struct Wrong {
    column: Option<usize>,
    what: String,
    mend: Option<String>,
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Self { column: None, what, mend: None }
    }
}

impl JsonLines {
    /// Lines of `source`.
    pub fn new(source: Box<dyn Read + Send>, file: &str, reading: Arc<Reading>) -> Self {
        Self {
            source: BufReader::with_capacity(BUFFER_BYTES, Raw::lines(source)),
            file: file.to_owned(),
            reading,
            number: 0,
            line: Vec::new(),
            ended: false,
        }
    }

    /// Reads the next line into `self.line`; whether there was one.
    fn read(&mut self) -> io::Result<bool> {
        self.line.clear();
        // Raw counts bytes by the record: here the bound is the line's own.
        self.source.get_ref().restart();
        let most = LINE_BYTES_MAX as u64 + 1;
        let read = (&mut self.source).take(most).read_until(b'\n', &mut self.line)?;
        Ok(read > 0)
    }

    fn error(&self, wrong: Wrong) -> LineError {
        LineError {
            file: self.file.clone(),
            line: self.number,
            column: wrong.column,
            what: wrong.what,
            mend: wrong.mend,
        }
    }
}

impl Iterator for JsonLines {
    type Item = Result<Line, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            self.number += 1;
            match self.read() {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    return None;
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(self.error(error.to_string().into())));
                }
            }
            if self.line.len() > LINE_BYTES_MAX {
                // Where it ends is not looked for.
                self.ended = true;
                let what = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                return Some(Err(self.error(what.into())));
            }
            if self.line.trim_ascii().is_empty() {
                continue;
            }
            let line = read_line(&self.line, self.number, &self.reading);
            return Some(line.map_err(|wrong| self.error(wrong)));
        }
        None
    }
}

/// The fields of a line, as they are written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    key: Option<String>,
    command: Option<Vec<String>>,
    not_executed: Option<Codes>,
    timeout: Option<SomeTime>,
    bind: Option<Vec<String>>,
    effect: Option<String>,
    params: Option<Params>,
}

#[derive(Debug)]
struct Params(BTreeMap<String, String>);

fn read_line(bytes: &[u8], number: u64, reading: &Reading) -> Result<Line, Wrong> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        Wrong {
            column: Some(before.chars().count() + 1),
            what: "the line is not UTF-8".to_owned(),
            mend: None,
        }
    })?;
    let text = text.trim_end();
    // A struct could be read from an array as well, by the order of its fields.
    if !text.trim_start().starts_with('{') {
        let mend = (number == 1).then(|| "if it is a table: --csv, or --tsv".to_owned());
        let what = "a line is one JSON object".to_owned();
        return Err(Wrong { column: Some(1), what, mend });
    }
    let fields: Fields = serde_json::from_str(text).map_err(|error| not_read(text, &error))?;
    let Format::Json { effects } = &reading.format else {
        return Err("internal: this is no table".to_owned().into());
    };
    line_of(fields, number, effects, reading.key_as_is)
}

/// serde_json's error with its place taken out of the sentence, in characters.
fn not_read(text: &str, error: &serde_json::Error) -> Wrong {
    let told = error.to_string();
    let what = told.rsplit_once(" at line ").map_or(told.as_str(), |(what, _)| what);
    // Its columns count bytes.
    let before = text.get(..error.column().saturating_sub(1));
    let column = before.map(|before| before.chars().count() + 1);
    Wrong { column, what: what.to_owned(), mend: None }
}

fn line_of(fields: Fields, number: u64, effects: &Effects, key_as_is: bool) -> Result<Line, Wrong> {
    let bad_key = |(what, mend)| Wrong { column: None, what, mend };
    if let Some(name) = fields.effect {
        let aside = [
            ("key", fields.key.is_some()),
            ("command", fields.command.is_some()),
            ("not_executed", fields.not_executed.is_some()),
            ("timeout", fields.timeout.is_some()),
        ];
        if let Some((field, _)) = aside.into_iter().find(|(_, given)| *given) {
            return Err(format!("`{field}` beside `effect`: the effect's own holds").into());
        }
        let Some(effect) = effects.get(&name) else {
            let known = nearest(&name, effects.names()).map(|name| format!(" ({name}?)"));
            let known = known.unwrap_or_default();
            return Err(format!("no effect {name:?} is configured{known}").into());
        };
        let params = fields.params.map(|params| params.0).unwrap_or_default();
        let filled = effect.fill(&params).map_err(|bad| bad.to_string())?;
        return Ok(Line {
            number,
            key: key_of(filled.key, key_as_is).map_err(bad_key)?,
            command: command_of(filled.command)?,
            settings: effect.settings.clone(),
            bind: fields.bind.unwrap_or_default().into_iter().map(Into::into).collect(),
            effect: Some(name),
            probe: filled.probe,
        });
    }
    if fields.params.is_some() {
        return Err("`params` without `effect`".to_owned().into());
    }
    let (Some(key), Some(command)) = (fields.key, fields.command) else {
        let what = "a line has `key` and `command`, or `effect` and `params`";
        return Err(what.to_owned().into());
    };
    Ok(Line {
        number,
        key: key_of(key, key_as_is).map_err(bad_key)?,
        command: command_of(command)?,
        settings: Settings {
            not_executed: fields.not_executed.map(|codes| codes.0),
            timeout: fields.timeout.map(|timeout| timeout.0),
            ..Settings::default()
        },
        bind: fields.bind.unwrap_or_default().into_iter().map(Into::into).collect(),
        effect: None,
        probe: None,
    })
}

/// What can be started: a program that has a name, and no NUL, which ends an argument.
fn command_of(words: Vec<String>) -> Result<Vec<std::ffi::OsString>, Wrong> {
    if words.first().is_none_or(String::is_empty) {
        return Err("`command` names no program".to_owned().into());
    }
    if let Some(at) = words.iter().position(|word| word.contains('\0')) {
        return Err(format!("word {} of `command` holds a NUL", at + 1).into());
    }
    Ok(words.into_iter().map(Into::into).collect())
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ParamsVisitor)
    }
}

struct ParamsVisitor;

impl<'de> Visitor<'de> for ParamsVisitor {
    type Value = Params;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings and whole numbers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
        let mut params = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            let Text(value) = map.next_value()?;
            // The last one must not win quietly.
            if params.insert(name.clone(), value).is_some() {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
        }
        Ok(Params(params))
    }
}

/// A value of a parameter. A number that JSON readers round would name another payment: so whole
/// ones only, and only those that are kept whole.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a whole number (write any other value as a string)")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }
}
