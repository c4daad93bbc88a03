//! What can stand behind a flag: durations, sizes, expectations, labels.
//!
//! Each parser's error is the second half of clap's sentence "invalid value '30' for '--lease
//! <DUR>': ...", so that it can be the question a person needs.
use std::time::Duration;

use clap::ValueEnum;
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::Period;
use ctrlrun::plan::verdict::NotExecuted;

/// The shortest lease that can be renewed in time (EXE-7).
const LEASE_MIN: Duration = Duration::from_secs(1);

/// Reads `10s`, `1h30m`, `250ms` (CLI-7).
///
/// # Errors
/// What is wrong with it.
pub fn duration(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("a duration needs a unit: {text}s?"));
    }
    let bad = || format!("{text:?} is no duration; write it as 500ms, 30s, 10m, 2h, 7d or 1h30m");
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let unit = &rest[digits..];
        let letters = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let count: u64 = rest[..digits].parse().map_err(|_| bad())?;
        let unit_ms = match &unit[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        let part = count.checked_mul(unit_ms).ok_or_else(bad)?;
        total = total.checked_add(Duration::from_millis(part)).ok_or_else(bad)?;
        rest = &unit[letters..];
    }
    if text.is_empty() {
        return Err(bad());
    }
    Ok(total)
}

/// A duration that is not nothing.
///
/// # Errors
/// As [`duration`].
pub fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than nothing".to_owned()),
        some => Ok(some),
    }
}

/// A lease: at least 1 s (EXE-7).
///
/// # Errors
/// As [`duration`], or that it is too short.
pub fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    if lease < LEASE_MIN {
        return Err("a lease is at least 1s: it is renewed every third of it".to_owned());
    }
    Ok(lease)
}

/// How much of each stream is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// Nothing: the child gets our own descriptors.
    Nothing,
    /// At most so many bytes of each stream.
    Bytes(u64),
}

impl Capture {
    /// How many bytes of each stream are kept; `None` if they are not even looked at.
    #[must_use]
    pub fn bytes(self) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::Bytes(bytes) => Some(usize::try_from(bytes).unwrap_or(usize::MAX)),
        }
    }
}

/// Reads `64KiB`, `1MiB`, `none`.
///
/// # Errors
/// What is wrong with it.
pub fn capture(text: &str) -> Result<Capture, String> {
    if text == "none" {
        return Ok(Capture::Nothing);
    }
    let bad = || format!("{text:?} is no size; write it as 512B, 64KiB, 1MiB, or none");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let count: u64 = text[..digits].parse().map_err(|_| bad())?;
    let unit: u64 = match &text[digits..] {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "" => return Err(format!("a size needs a unit: {text}B?")),
        _ => return Err(bad()),
    };
    let bytes = count.checked_mul(unit).ok_or_else(bad)?;
    Ok(match bytes {
        0 => Capture::Nothing,
        some => Capture::Bytes(some),
    })
}

/// Reads `any`, `new`, `exists` or a revision (CMT-12).
///
/// # Errors
/// What is wrong with it.
pub fn expect(text: &str) -> Result<StreamState, String> {
    match text {
        "any" => Ok(StreamState::Any),
        "new" => Ok(StreamState::NoStream),
        "exists" => Ok(StreamState::StreamExists),
        "0" => Err("revisions count from 1: new?".to_owned()),
        _ => text.parse().map(StreamState::Revision).map_err(|_| {
            "give any, new, exists, or a revision as `ctrlrun show` prints it".to_owned()
        }),
    }
}

/// Reads exit codes that prove that nothing happened (EXE-6).
///
/// # Errors
/// What is wrong with them.
pub fn not_executed(text: &str) -> Result<NotExecuted, String> {
    NotExecuted::parse(text)
}

/// Reads `K=V`.
///
/// # Errors
/// What is wrong with it.
pub fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("a label is NAME=VALUE".to_owned()),
    }
}

/// How often a job comes round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Per {
    /// Appends @2026-11-30T10Z
    Hour,
    /// Appends @2026-11-30
    Day,
    /// Appends @2026-W49
    Week,
    /// Appends @2026-11
    Month,
}

impl From<Per> for Period {
    fn from(per: Per) -> Self {
        match per {
            Per::Hour => Self::Hour,
            Per::Day => Self::Day,
            Per::Week => Self::Week,
            Per::Month => Self::Month,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit() {
        // CLI-7
        for (text, ms) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("0s", 0),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("1h30m", 5_400_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(duration("30"), Err("a duration needs a unit: 30s?".to_owned()));
        for bad in [
            "",
            "s",
            "-1s",
            "1.5s",
            "5 m",
            "1h30",
            "9x",
            "99999999999999999999s",
            "9999999999999999d",
        ] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_lease_under_a_second_cannot_be_renewed_in_time() {
        // EXE-7, CLI-8
        assert!(lease("999ms").is_err());
        assert_eq!(lease("1s"), Ok(LEASE_MIN));
    }

    #[test]
    fn a_size_has_a_unit() {
        assert_eq!(capture("64KiB"), Ok(Capture::Bytes(65_536)));
        assert_eq!(capture("1MiB"), Ok(Capture::Bytes(1_048_576)));
        assert_eq!(capture("none"), Ok(Capture::Nothing));
        assert_eq!(capture("0B"), Ok(Capture::Nothing));
        assert_eq!(capture("64"), Err("a size needs a unit: 64B?".to_owned()));
        for bad in ["", "KiB", "64KB", "-1B", "99999999999GiB"] {
            assert!(capture(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_expectation_is_a_word_or_a_revision() {
        // CLI-11
        assert_eq!(expect("any"), Ok(StreamState::Any));
        assert_eq!(expect("new"), Ok(StreamState::NoStream));
        assert_eq!(expect("exists"), Ok(StreamState::StreamExists));
        assert_eq!(expect("3"), Ok(StreamState::Revision(3)));
        for bad in ["0", "", "-1", "New", "3.0"] {
            assert!(expect(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_label_has_a_name() {
        assert_eq!(label("ticket=OPS-12=x"), Ok(("ticket".to_owned(), "OPS-12=x".to_owned())));
        assert!(label("=x").is_err() && label("x").is_err());
    }
}
