//! Values of a configuration, each read as the flag of its name is. What is wrong with one is told
//! at its place.
use std::fmt;
use std::time::Duration;

use ctrlrun::plan::verdict::NotExecuted;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::cli::values::{self, Capture};

/// What the store keeps of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecordCommand {
    /// Program and all arguments.
    Full,
    /// The program's name, and how many arguments it had.
    #[default]
    Program,
    /// Nothing.
    None,
}

impl<'de> Deserialize<'de> for RecordCommand {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "full" => Ok(Self::Full),
            "program" => Ok(Self::Program),
            "none" => Ok(Self::None),
            other => {
                let what = format!("{other:?} is none of \"full\", \"program\", \"none\"");
                Err(D::Error::custom(what))
            }
        }
    }
}

/// A duration that is not nothing.
#[derive(Debug, Clone, Copy)]
pub struct SomeTime(pub Duration);

/// A duration.
#[derive(Debug, Clone, Copy)]
pub struct Time(pub Duration);

/// A lease (EXE-7).
#[derive(Debug, Clone, Copy)]
pub struct Lease(pub Duration);

/// How much of each stream is kept.
#[derive(Debug, Clone, Copy)]
pub struct Kept(pub Capture);

/// Reads a text by the function that reads it behind a flag.
macro_rules! as_behind_a_flag {
    ($($field:ident: $read:path),*) => {$(
        impl<'de> Deserialize<'de> for $field {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $read(&String::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
            }
        }
    )*};
}

as_behind_a_flag!(
    SomeTime: values::some_time,
    Time: values::duration,
    Lease: values::lease,
    Kept: values::capture
);

/// Exit codes that prove that nothing happened: `[6, 11]`, `"6,11"` or `"nonzero"`.
#[derive(Debug, Clone)]
pub struct Codes(pub NotExecuted);

impl<'de> Deserialize<'de> for Codes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CodesVisitor).map(Self)
    }
}

struct CodesVisitor;

impl<'de> Visitor<'de> for CodesVisitor {
    type Value = NotExecuted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("exit codes, as in [6, 11], or \"nonzero\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<NotExecuted, E> {
        NotExecuted::parse(text).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut codes: A) -> Result<NotExecuted, A::Error> {
        let mut text = String::new();
        while let Some(code) = codes.next_element::<i64>()? {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&code.to_string());
        }
        // None at all is what is said where the field is left out.
        if text.is_empty() { Ok(NotExecuted::default()) } else { self.visit_str(&text) }
    }
}
