//! What runs, nodes, workflows, inputs and signals are called, and the hashes.
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::plan::key::Key;

/// The most bytes a run's name may have: with a slash and a node's name it is still a key (KEY-1).
pub const RUN_BYTES_MAX: usize = 256;

/// The most bytes a node's, a workflow's, an input's or a signal's name may have.
pub const NAME_BYTES_MAX: usize = 128;

/// A run's name. It is a key (KEY-1) of at most [`RUN_BYTES_MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RunId(String);

/// The name of a node, a workflow, an input or a signal: letters, digits, `_` and `-`, beginning
/// with a letter or a digit (WFL-1). It holds no slash, so that `RUN/NODE` is one run's node only,
/// and no dot, so that `{NODE.stdout}` is no input's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// A text that cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadName(String);

impl RunId {
    /// A run's name of these bytes.
    ///
    /// # Errors
    /// [`BadName`] for what cannot be one.
    pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
        let text = text.into();
        if text.len() > RUN_BYTES_MAX {
            let why =
                format!("it has {} bytes; a run's name has at most {RUN_BYTES_MAX}", text.len());
            return Err(BadName(why));
        }
        match Key::new(text.clone()) {
            Ok(_) => Ok(Self(text)),
            Err(error) => Err(BadName(error.to_string().replace("the key", "the run's name"))),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Name {
    /// A name of these bytes.
    ///
    /// # Errors
    /// [`BadName`] for what cannot be one.
    pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
        let text = text.into();
        if text.len() > NAME_BYTES_MAX {
            let why = format!("it has {} bytes; a name has at most {NAME_BYTES_MAX}", text.len());
            return Err(BadName(why));
        }
        let is_first = |c: char| c.is_ascii_alphanumeric();
        let is_rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if text.starts_with(is_first) && text.chars().all(is_rest) {
            Ok(Self(text))
        } else {
            let why = format!(
                "{text:?} cannot be a name: letters, digits, _ and - only, a letter or a digit first"
            );
            Err(BadName(why))
        }
    }

    /// The name of a workflow that is not known yet.
    pub(super) fn nothing() -> Self {
        Self(String::new())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A SHA-256, in hexadecimal where it is text: of a definition, or of a run's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = text
            .strip_prefix("sha256:")
            .and_then(|hex| data_encoding::HEXLOWER.decode(hex.as_bytes()).ok())
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| serde::de::Error::custom("no hash"))
    }
}
