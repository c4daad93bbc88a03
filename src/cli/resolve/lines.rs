//! The lines of a file of decisions (DEC-12).
use std::io::{self, BufRead, Read};

use ctrlrun::plan::key::Key;
use ctrlrun::store::Captured;
use serde::Deserialize;
use serde_json::Value;

use super::deciding::{Decided, Decision, OUTPUT_MAX, check_by};

/// The longest line, in bytes: one with the longest output, each byte of it escaped.
const LINE_MAX: u64 = OUTPUT_MAX * 6 + (1 << 20);

/// Reads decisions one by one.
pub struct Lines<R> {
    from: R,
    number: u64,
    by: String,
}

/// A line that is no decision.
#[derive(Debug)]
pub struct Wrong {
    /// The line's number, from 1.
    pub number: u64,
    /// What is wrong with it. It may hold text from outside.
    pub why: String,
}

/// What the next line is.
pub enum Read1 {
    /// A decision, and its line's number.
    Decision(u64, Box<Decided>),
    /// None.
    Wrong(Wrong),
    /// There is no more.
    End,
}

/// The fields as they come: each at most once, of whatever type. Others are ignored, so that what
/// `effects --json` prints can be passed on with a few fields added.
#[derive(Deserialize)]
struct Raw {
    key: Option<Value>,
    revision: Option<Value>,
    decision: Option<Value>,
    reason: Option<Value>,
    by: Option<Value>,
    output: Option<Value>,
}

impl<R: BufRead> Lines<R> {
    /// The lines of `from`; who decides, where a line does not say, is `by`.
    pub fn new(from: R, by: String) -> Self {
        Self { from, number: 0, by }
    }

    /// The next decision. Empty lines are skipped.
    ///
    /// # Errors
    /// The reader's.
    pub fn read(&mut self) -> io::Result<Read1> {
        loop {
            let mut line = Vec::new();
            let got = self.from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)?;
            if got == 0 {
                return Ok(Read1::End);
            }
            self.number += 1;
            let number = self.number;
            if got as u64 == LINE_MAX && !line.ends_with(b"\n") {
                return Ok(Read1::Wrong(Wrong { number, why: "it is too long".to_owned() }));
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return Ok(match decision(&line, &self.by) {
                Ok(decided) => Read1::Decision(number, Box::new(decided)),
                Err(why) => Read1::Wrong(Wrong { number, why }),
            });
        }
    }
}

fn decision(line: &[u8], by: &str) -> Result<Decided, String> {
    // A list of values would be read as the fields in their order.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("it is no JSON object".to_owned());
    }
    let raw: Raw = serde_json::from_slice(line).map_err(|error| {
        let (text, column) = (error.to_string(), error.column());
        let text = text.split(" at line ").next().unwrap_or(&text).to_owned();
        if column == 0 { text } else { format!("column {column}: {text}") }
    })?;
    let key = text("key", raw.key)?.ok_or("`key` is missing")?;
    let key = Key::new(key).map_err(|bad| format!("`key`: {bad}"))?;
    let looked_at = match raw.revision {
        Some(Value::Number(number)) => number.as_u64().filter(|number| *number > 0),
        Some(_) => None,
        None => return Err("`revision` is missing: the one that was looked at".to_owned()),
    };
    let looked_at = looked_at.ok_or("`revision` is a whole number from 1")?;
    let decision = match text("decision", raw.decision)?.as_deref() {
        Some("committed") => Decision::Committed,
        Some("not-executed") => Decision::NotExecuted,
        Some("reopen") => Decision::Reopen,
        Some(_) => {
            return Err("`decision` is `committed`, `not-executed` or `reopen`".to_owned());
        }
        None => return Err("`decision` is missing".to_owned()),
    };
    let reason = text("reason", raw.reason)?.map(|reason| reason.trim().to_owned());
    let reason = reason.filter(|reason| !reason.is_empty());
    let reason = reason.ok_or("`reason` is missing: say how you know")?;
    let by = match text("by", raw.by)? {
        Some(given) => check_by(&given).map_err(|why| format!("`by` {why}"))?,
        None => by.to_owned(),
    };
    let output = text("output", raw.output)?;
    if output.is_some() && decision != Decision::Committed {
        return Err("`output` goes with `committed`".to_owned());
    }
    if output.as_ref().is_some_and(|output| output.len() as u64 > OUTPUT_MAX) {
        return Err("`output` is longer than what is kept".to_owned());
    }
    let output = output.map(|output| {
        let head = output.into_bytes();
        let bytes = head.len() as u64;
        Captured { head, tail: Vec::new(), bytes, whole: true }
    });
    Ok(Decided { key, decision, by, reason, looked_at, output })
}

fn text(name: &str, value: Option<Value>) -> Result<Option<String>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(format!("`{name}` is not a text"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Decided, String> {
        decision(line.as_bytes(), "me@here")
    }

    #[test]
    fn a_line_is_a_decision() {
        // DEC-12
        let line = r#"{"key":"k","revision":3,"decision":"committed","reason":" seen ","x":[1]}"#;
        let decided = read(line).unwrap();
        assert_eq!((decided.key.as_str(), decided.looked_at), ("k", 3));
        assert_eq!((decided.decision, decided.reason.as_str()), (Decision::Committed, "seen"));
        assert_eq!(decided.by, "me@here");
        let line = line.replace("\"x\":[1]", r#""by":"oncall","output":"re_1\n""#);
        let decided = read(&line).unwrap();
        assert_eq!(decided.by, "oncall");
        assert_eq!(decided.output.unwrap().head, b"re_1\n");
    }

    #[test]
    fn a_line_that_cannot_be_meant_says_why() {
        // DEC-12
        for (line, why) in [
            ("", "it is no JSON object"),
            ("nonsense", "it is no JSON object"),
            (r#"["k",3,"committed","r",null,null]"#, "it is no JSON object"),
            ("{\"key\": nonsense}", "column 10: expected ident"),
            ("{", "EOF"),
            ("{}", "`key` is missing"),
            (r#"{"key":7}"#, "`key` is not a text"),
            (r#"{"key":""}"#, "`key`: the key is empty"),
            (r#"{"key":"k","key":"l"}"#, "duplicate field `key`"),
            (r#"{"key":"k"}"#, "`revision` is missing"),
            (r#"{"key":"k","revision":0}"#, "`revision` is a whole number from 1"),
            (r#"{"key":"k","revision":"3"}"#, "`revision` is a whole number from 1"),
            (r#"{"key":"k","revision":1.5}"#, "`revision` is a whole number from 1"),
            (r#"{"key":"k","revision":3}"#, "`decision` is missing"),
            (r#"{"key":"k","revision":3,"decision":"yes"}"#, "`decision` is `committed`"),
            (r#"{"key":"k","revision":3,"decision":"reopen"}"#, "`reason` is missing"),
            (
                r#"{"key":"k","revision":3,"decision":"reopen","reason":null}"#,
                "`reason` is missing",
            ),
            (r#"{"key":"k","revision":3,"decision":"reopen","reason":" "}"#, "`reason` is missing"),
            (
                r#"{"key":"k","revision":3,"decision":"reopen","reason":"r","by":"reconcile:x"}"#,
                "`by` ",
            ),
            (
                r#"{"key":"k","revision":3,"decision":"not-executed","reason":"r","output":"x"}"#,
                "`output` goes with `committed`",
            ),
        ] {
            let said = read(line).unwrap_err();
            assert!(said.contains(why), "{line}: {said}");
        }
    }
}
