//! What is stored: the rows of every key, and what each write does to them. It is as small as a store
//! can be; that it keeps to what all of them must is shown by the suite for stores (STO-1).
use std::collections::BTreeMap;

use ctrlrun::plan::effect::{Event, HistoryRow, Record};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::time::Timestamp;
use ctrlrun::store::upkeep::{AsRead, Gone, Whole};
use ctrlrun::store::{Append, Ask, Captured, Cut, End, Filter, Found, Shown, Sizes, Stream};

/// All that is stored.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub floor: u64,
    pub of: BTreeMap<Key, OfKey>,
    /// Events of effects that were forgotten: what stood there stays known to the laws.
    pub forgotten: Vec<(Key, HistoryRow)>,
    /// How often each was.
    pub forgets: BTreeMap<Key, usize>,
}

/// What is stored of one key.
#[derive(Debug, Clone)]
pub struct OfKey {
    pub record: Record,
    pub history: Vec<HistoryRow>,
    pub outputs: BTreeMap<(u64, u8), Captured>,
}

impl Rows {
    pub fn found(&self, key: &Key, ask: Ask, now: Timestamp) -> Found {
        let of = self.of.get(key);
        let mut rows = of.iter().flat_map(|of| of.history.iter().rev());
        let event = match ask {
            Ask::Nothing => None,
            Ask::Outcome(outcome) => rows.find(|row| row.outcome_id == Some(outcome)),
            Ask::Began(attempt) => {
                rows.find(|row| matches!(row.event, Event::Began(_)) && row.attempt == attempt)
            }
            Ask::Revision(revision) => rows.find(|row| row.revision == revision),
            Ask::Last => rows.next(),
            Ask::LastChange => rows.find(|row| {
                !matches!(
                    row.event,
                    Event::LateOutcome(_) | Event::Probed(_) | Event::LeaseRenewed(_)
                )
            }),
        };
        let event = event.cloned();
        let record = of.map(|of| of.record.clone());
        Found { record, now, attempt_floor: self.floor, event }
    }

    /// The row, its history and its output in one transaction, on its condition (CMT-2).
    pub fn append(&mut self, append: &Append) -> End {
        let key = &append.next.key;
        let holds = match (&append.found, self.of.get(key)) {
            (None, None) => append.attempt_floor == self.floor,
            (Some(found), Some(OfKey { record, .. })) => {
                (found.revision, found.write_id) == (record.revision, record.write_id)
            }
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !holds {
            return End::Refused;
        }
        let of = self.of.entry(key.clone()).or_insert_with(|| OfKey {
            record: append.next.clone(),
            history: Vec::new(),
            outputs: BTreeMap::new(),
        });
        of.record = append.next.clone();
        of.history.extend(append.history.iter().cloned());
        for kept in &append.outputs {
            of.outputs.insert((kept.attempt, number(kept.stream)), kept.captured.clone());
        }
        End::Landed
    }

    pub fn whole(&self, filter: &Filter, now: Timestamp) -> Vec<Whole> {
        let lets = |of: &&OfKey| {
            let there = filter.there_for.is_none_or(|age| of.record.created_at.plus(age) <= now);
            filter.lets(&of.record) && there
        };
        let each = self.of.values().filter(lets).map(|of| Whole {
            record: of.record.clone(),
            now,
            history: of.history.clone(),
            kept: of.outputs.values().map(|it| (it.head.len() + it.tail.len()) as u64).sum(),
        });
        each.collect()
    }

    /// Every record that `filter` lets through, as a listing shows it.
    pub fn listed(&self, filter: &Filter, now: Timestamp) -> Vec<Shown> {
        let fits = |of: &&OfKey| {
            let record = &of.record;
            filter.lets(record)
                && filter.key.as_ref().is_none_or(|key| record.key == *key)
                && (!filter.stuck || record.is_stuck(now))
                && filter.older_than.is_none_or(|age| record.updated_at.plus(age) <= now)
        };
        let shown = |of: &OfKey| {
            let attempt = of.record.attempt;
            let sizes = |stream| {
                let kept = of.outputs.get(&(attempt, number(stream)));
                kept.map_or(Sizes::default(), |it| Sizes { bytes: it.bytes, truncated: !it.whole })
            };
            let began =
                |row: &&HistoryRow| row.attempt == attempt && matches!(row.event, Event::Began(_));
            Shown {
                record: of.record.clone(),
                now,
                began: of.history.iter().rev().find(began).cloned(),
                stdout: sizes(Stream::Stdout),
                stderr: sizes(Stream::Stderr),
            }
        };
        self.of.values().filter(fits).map(shown).collect()
    }

    pub fn prune(&mut self, cut: &Cut) -> Gone {
        let mut gone = Gone::default();
        for asked in &cut.outputs {
            if self.stands(asked)
                && let Some(of) = self.of.get_mut(&asked.key)
            {
                let there = |it: &&mut Captured| !it.head.is_empty() || !it.tail.is_empty();
                let mut any = false;
                for captured in of.outputs.values_mut().filter(there) {
                    (captured.head, captured.tail) = (Vec::new(), Vec::new());
                    captured.whole = false;
                    any = true;
                }
                gone.outputs += u64::from(any);
            }
        }
        for asked in &cut.effects {
            if self.stands(asked)
                && let Some(of) = self.of.remove(&asked.key)
            {
                *self.forgets.entry(asked.key.clone()).or_default() += 1;
                self.floor = self.floor.max(asked.largest());
                self.forgotten.extend(of.history.into_iter().map(|row| (asked.key.clone(), row)));
                gone.effects += 1;
            }
        }
        gone
    }

    fn stands(&self, asked: &AsRead) -> bool {
        let record = self.of.get(&asked.key).map(|of| &of.record);
        record.is_some_and(|it| (it.revision, it.write_id) == (asked.revision, asked.write_id))
    }

    /// All events that a key has had, also those of an effect that was forgotten.
    pub fn ever(&self, key: &Key) -> Vec<HistoryRow> {
        let gone = self.forgotten.iter().filter(|(of, _)| of == key).map(|(_, row)| row);
        let there = self.of.get(key).into_iter().flat_map(|of| &of.history);
        gone.chain(there).cloned().collect()
    }
}

/// What listings and walks have in common.
trait Lets {
    fn lets(&self, record: &Record) -> bool;
}

impl Lets for Filter {
    fn lets(&self, record: &Record) -> bool {
        (self.states.is_empty() || self.states.iter().any(|it| it == record.state.name()))
            && record.key.as_str().starts_with(self.prefix.as_deref().unwrap_or_default())
            && self.after.as_ref().is_none_or(|after| record.key > *after)
    }
}

pub fn number(stream: Stream) -> u8 {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
        Stream::Stated => 2,
    }
}
