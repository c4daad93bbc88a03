//! Whether every record is what its history says (OPS-11): the one thing that all decisions rest on.
use std::time::Duration;

use crate::plan::retention::is_fold;
use crate::store::upkeep::{Walked, Whole};
use crate::store::{CouldNot, Filter, Flow, Store};

/// How many are named.
const NAMED_MAX: usize = 10;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Integrity {
    /// Records that were read.
    pub looked_at: u64,
    /// How many of them are not right.
    pub wrong: u64,
    /// The first of these: key, and what is wrong.
    pub named: Vec<(String, String)>,
}

/// Reads every record with its history; `told` is called with the number so far.
///
/// # Errors
/// [`CouldNot`]: not all of it was read.
pub fn integrity(
    store: &dyn Store,
    within: Duration,
    told: &mut dyn FnMut(u64),
) -> Result<Integrity, CouldNot> {
    let mut found = Integrity::default();
    let mut each = |walked| {
        found.looked_at += 1;
        told(found.looked_at);
        let wrong = match walked {
            Walked::Unreadable { key, why } => Some((key, why)),
            Walked::Effect(whole) => wrong(&whole).map(|why| (whole.record.key.to_string(), why)),
        };
        if let Some(wrong) = wrong {
            found.wrong += 1;
            if found.named.len() < NAMED_MAX {
                found.named.push(wrong);
            }
        }
        Flow::Continue
    };
    store.walk(&Filter::default(), &mut each, within)?;
    Ok(found)
}

fn wrong(whole: &Whole) -> Option<String> {
    let Some(first) = whole.history.first() else {
        return Some("it has no history".to_owned());
    };
    let gap = whole.history.iter().zip(first.revision..).find(|(row, at)| row.revision != *at);
    if let Some((row, at)) = gap {
        return Some(format!("revision {} stands where {at} should", row.revision));
    }
    let record = &whole.record;
    (!is_fold(record, &whole.history))
        .then(|| format!("the record is not what its {} events say", whole.history.len()))
}
