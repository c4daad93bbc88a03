//! What can name an effect, and what identifies a request (KEY-1 to KEY-7).
use std::fmt;

use jiff::civil::ISOWeekDate;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The most bytes a key may have.
pub const KEY_BYTES_MAX: usize = 512;

/// An effect's name: two attempts with one key are the same effect. Bytes decide (KEY-1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Key(String);

/// Why a text cannot be a key, or should not be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// It is empty.
    #[error("the key is empty: a variable that was not set?")]
    Empty,
    /// It has too many bytes.
    #[error("the key has {0} bytes; at most {KEY_BYTES_MAX} can name an effect")]
    TooLong(usize),
    /// It holds a control character.
    #[error(
        "the key holds a control character ({0:?}): a trailing newline, or a value from outside?"
    )]
    Control(char),
    /// White space at either end.
    #[error("the key begins or ends with a space")]
    Space,
    /// A part that no name has (KEY-2).
    #[error("part {position} of the key is {what}: a variable or a field that was not there?")]
    Part {
        /// From 1, between colons.
        position: usize,
        /// `empty`, or the text itself in quotes.
        what: String,
    },
    /// A variable or placeholder that was not filled in (KEY-2).
    #[error("the key holds {0}, which was not filled in: single quotes in a script?")]
    Unexpanded(String),
}

impl BadKey {
    /// Whether `--key-as-is` lets it through (KEY-3).
    #[must_use]
    pub fn is_hygiene(&self) -> bool {
        match self {
            Self::Part { .. } | Self::Unexpanded(_) => true,
            Self::Empty | Self::TooLong(_) | Self::Control(_) | Self::Space => false,
        }
    }
}

impl Key {
    /// A key of these bytes (KEY-1).
    ///
    /// # Errors
    /// [`BadKey`] for what cannot be one.
    pub fn new(text: impl Into<String>) -> Result<Self, BadKey> {
        let text = text.into();
        if text.is_empty() {
            return Err(BadKey::Empty);
        }
        if text.len() > KEY_BYTES_MAX {
            return Err(BadKey::TooLong(text.len()));
        }
        if let Some(control) = text.chars().find(|c| c.is_control()) {
            return Err(BadKey::Control(control));
        }
        if text.trim() != text {
            return Err(BadKey::Space);
        }
        Ok(Self(text))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Whether a key looks like one that a script built from something missing (KEY-2).
///
/// # Errors
/// [`BadKey::Part`] or [`BadKey::Unexpanded`].
pub fn check_hygiene(text: &str) -> Result<(), BadKey> {
    for (index, part) in text.split(':').enumerate() {
        let what = match part {
            "" => "empty".to_owned(),
            "null" | "undefined" => format!("{part:?}"),
            _ => continue,
        };
        return Err(BadKey::Part { position: index + 1, what });
    }
    match unexpanded(text) {
        Some(found) => Err(BadKey::Unexpanded(found.to_owned())),
        None => Ok(()),
    }
}

/// The first `$X`, `${X}` or `{x}` in a text.
fn unexpanded(text: &str) -> Option<&str> {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (at, c) in text.char_indices() {
        let rest = &text[at..];
        let (open, closed) = match c {
            '$' if rest[1..].starts_with('{') => (2, true),
            '$' => (1, false),
            '{' => (1, true),
            _ => continue,
        };
        let name = &rest[open..];
        if !name.starts_with(is_start) {
            continue;
        }
        let end = name.find(|c| !is_name(c)).unwrap_or(name.len());
        if !closed {
            return Some(&rest[..open + end]);
        }
        if name[end..].starts_with('}') {
            return Some(&rest[..=open + end]);
        }
    }
    None
}

/// How often a job comes round (KEY-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// `@2026-11-30T10Z`
    Hour,
    /// `@2026-11-30`
    Day,
    /// `@2026-W49`
    Week,
    /// `@2026-11`
    Month,
}

impl Period {
    /// What is appended to the key in this period, in UTC. `now` is this host's clock, in seconds
    /// since the Unix epoch.
    ///
    /// # Errors
    /// The clock's error if it is set outside the years that have names.
    pub fn suffix(self, now_seconds: i64) -> Result<String, jiff::Error> {
        let at = jiff::Timestamp::from_second(now_seconds)?;
        let day = jiff::tz::Offset::UTC.to_datetime(at);
        let (year, month) = (day.year(), day.month());
        Ok(match self {
            Self::Hour => format!("@{}T{:02}Z", day.date(), day.hour()),
            Self::Day => format!("@{}", day.date()),
            Self::Week => {
                let week = ISOWeekDate::from(day.date());
                format!("@{:04}-W{:02}", week.year(), week.week())
            }
            Self::Month => format!("@{year:04}-{month:02}"),
        })
    }
}

/// What identifies a request beside its key: two requests are the same if and only if these are
/// equal (KEY-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of five lists of bytes, in this order: the command and its arguments (empty
    /// with `--bind-only`, KEY-6), binds, contents of bind files, names and values of bound
    /// variables in turn, and values that stand instead of the arguments.
    #[must_use]
    pub fn of(lists: [&[&[u8]]; 5]) -> Self {
        let mut hash = Sha256::new();
        absorb(&mut hash, b"ctrlrun-fingerprint-v1");
        for list in lists {
            hash.update(length(list.len()));
            for element in list {
                absorb(&mut hash, element);
            }
        }
        Self(hash.finalize().into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parse = || {
            // Only digits: a number's parser would let a sign through.
            let digits = |hex: &&str| hex.len() == 64 && hex.bytes().all(|c| c.is_ascii_hexdigit());
            let hex = text.strip_prefix("sha256:").filter(digits)?;
            let mut bytes = [0; 32];
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = u8::from_str_radix(hex.get(at * 2..at * 2 + 2)?, 16).ok()?;
            }
            Some(Self(bytes))
        };
        parse().ok_or_else(|| serde::de::Error::custom("not a fingerprint"))
    }
}

/// What a remote that deduplicates is given: the same for every attempt that could repeat one in
/// doubt, another after every proven failure (KEY-7).
#[must_use]
pub fn idempotency_key(key: &Key, proven_failures: u64) -> Uuid {
    let mut hash = Sha256::new();
    absorb(&mut hash, b"ctrlrun-idempotency-key-v1");
    absorb(&mut hash, key.as_str().as_bytes());
    hash.update(proven_failures.to_be_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::new_v8(bytes)
}

fn absorb(hash: &mut Sha256, bytes: &[u8]) {
    hash.update(length(bytes.len()));
    hash.update(bytes);
}

fn length(of: usize) -> [u8; 8] {
    (of as u64).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_decide_what_is_a_key() {
        // KEY-1, and case 51: what differs in bytes is another key, what cannot be one is refused.
        for good in
            ["a", "K", "k", "refund:txn_1", "it's \"quoted\"", "-x", "a b", "e\u{301}", "\u{e9}"]
        {
            assert_eq!(Key::new(good).unwrap().as_str(), good);
        }
        assert_ne!(Key::new("e\u{301}").unwrap(), Key::new("\u{e9}").unwrap());
        assert_ne!(Key::new("K").unwrap(), Key::new("k").unwrap());
        assert!(Key::new("x".repeat(512)).is_ok());
        assert_eq!(Key::new("x".repeat(513)), Err(BadKey::TooLong(513)));
        assert_eq!(Key::new(""), Err(BadKey::Empty));
        assert_eq!(Key::new(" a"), Err(BadKey::Space));
        assert_eq!(Key::new("a\u{a0}"), Err(BadKey::Space));
        assert_eq!(Key::new("a\n"), Err(BadKey::Control('\n')));
        assert_eq!(Key::new("a\u{85}b"), Err(BadKey::Control('\u{85}')));
    }

    #[test]
    fn a_key_built_from_something_missing_is_named_by_its_part() {
        // KEY-2
        let part = |text: &str| match check_hygiene(text) {
            Err(BadKey::Part { position, .. }) => position,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(part("refund:"), 2);
        assert_eq!(part(":txn"), 1);
        assert_eq!(part("refund:null"), 2);
        assert_eq!(part("a::b"), 2);
        assert_eq!(part("a:b:undefined"), 3);
        for fine in
            ["refund:txn_1", "nullable:x", "a:NULL", "cost:$5", "a:{", "a:{}", "a:{1}", "$", "a:}{"]
        {
            assert_eq!(check_hygiene(fine), Ok(()), "{fine}");
        }
    }

    #[test]
    fn an_unexpanded_variable_or_placeholder_is_named() {
        // KEY-2
        for (text, found) in [
            ("refund:$TXN", "$TXN"),
            ("refund:${TXN}", "${TXN}"),
            ("a$_b-c", "$_b"),
            ("refund:{payment_id}", "{payment_id}"),
            ("\u{e9}{x}", "{x}"),
        ] {
            assert_eq!(check_hygiene(text), Err(BadKey::Unexpanded(found.to_owned())));
        }
    }

    #[test]
    fn only_hygiene_can_be_lifted() {
        // KEY-3
        assert!(check_hygiene("refund:null").unwrap_err().is_hygiene());
        assert!(check_hygiene("a:$X").unwrap_err().is_hygiene());
        assert!(!Key::new("").unwrap_err().is_hygiene());
        assert!(!Key::new(" a").unwrap_err().is_hygiene());
    }

    #[test]
    fn periods_are_named_in_utc() {
        // KEY-4: 2026-11-30T10:15:00Z, a Monday of ISO week 49
        let at = 1_796_033_700;
        let suffixes = [Period::Hour, Period::Day, Period::Week, Period::Month]
            .map(|period| period.suffix(at).unwrap());
        assert_eq!(suffixes, ["@2026-11-30T10Z", "@2026-11-30", "@2026-W49", "@2026-11"]);
        // The last days of a year may be in the first week of the next: 2024-12-30
        assert_eq!(Period::Week.suffix(1_735_516_800).unwrap(), "@2025-W01");
    }

    #[test]
    fn moving_a_byte_between_arguments_changes_the_fingerprint() {
        // KEY-6
        let of =
            |command: &[&[u8]], binds: &[&[u8]]| Fingerprint::of([command, binds, &[], &[], &[]]);
        let one = of(&[b"ab", b"c"], &[]);
        assert_eq!(one, of(&[b"ab", b"c"], &[]));
        assert_ne!(one, of(&[b"a", b"bc"], &[]));
        assert_ne!(one, of(&[b"ab"], &[b"c"]));
        assert_ne!(one, of(&[b"ab", b"c", b""], &[]));
        assert_ne!(of(&[b"\xff"], &[]), of(&[b"\xfe"], &[]));
    }

    #[test]
    fn the_fingerprint_is_the_documented_one() {
        // KEY-5: computed by hand from the clause, so that no release changes it unnoticed.
        let fingerprint = Fingerprint::of([&[b"true"], &[], &[], &[], &[]]);
        let mut by_hand = Sha256::new();
        by_hand.update([0, 0, 0, 0, 0, 0, 0, 22]);
        by_hand.update(b"ctrlrun-fingerprint-v1");
        by_hand.update([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4]);
        by_hand.update(b"true");
        by_hand.update([0; 32]);
        let digest: [u8; 32] = by_hand.finalize().into();
        assert_eq!(fingerprint.0, digest);
        let json = serde_json::to_string(&fingerprint).unwrap();
        assert!(json.starts_with("\"sha256:") && json.len() == 73);
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), fingerprint);
        assert!(serde_json::from_str::<Fingerprint>("\"sha256:00\"").is_err());
    }

    #[test]
    fn the_idempotency_key_depends_on_key_and_proven_failures_alone() {
        // KEY-7
        let key = Key::new("refund:txn_1").unwrap();
        let id = idempotency_key(&key, 0);
        assert_eq!((id.get_version_num(), id.get_variant()), (8, uuid::Variant::RFC4122));
        assert_eq!(id, idempotency_key(&key, 0));
        assert_ne!(id, idempotency_key(&key, 1));
        assert_ne!(id, idempotency_key(&Key::new("refund:txn_2").unwrap(), 0));
    }

    #[test]
    fn a_fingerprint_is_read_only_as_it_is_written() {
        // KEY-5
        let read = |text: &str| serde_json::from_str::<Fingerprint>(&format!("\"{text}\""));
        let whole = format!("sha256:{}", "0f".repeat(32));
        assert_eq!(read(&whole).unwrap(), Fingerprint([0x0f; 32]));
        for bad in [
            "0f".repeat(32),
            format!("{whole}0f"),
            whole[..whole.len() - 2].to_owned(),
            whole.replacen("0f", "+f", 1),
            whole.replacen("0f", "0g", 1),
            format!("sha256:{}", "\u{e9}".repeat(32)),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }
}
