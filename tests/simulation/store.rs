//! The store around the rows: every exchange takes its time, and may fail, be cut off, or land when
//! nobody waits for it any more.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctrlrun::plan::effect::HistoryRow;
use ctrlrun::plan::key::Key;
use ctrlrun::plan::time::Timestamp;
use ctrlrun::store::upkeep::Gone;
use ctrlrun::store::{
    Append, Ask, Captured, CouldNot, Cut, End, Filter, Flow, Found, Identity, Listed, Pruned,
    Reason, Runs, Stats, Store, Stream, Walked,
};
use uuid::Uuid;

use crate::rows::{Rows, number};
use crate::turn::{Turns, micros};

/// What is stored, and what is still on its way there.
#[derive(Default)]
pub struct Stored {
    pub rows: Rows,
    /// Writes whose writer has given up waiting, and when they land.
    on_the_way: Vec<(u64, Append)>,
    /// Until then nobody reaches it.
    away_until: u64,
}

pub struct SimStore {
    turns: Arc<Turns>,
    stored: Mutex<Stored>,
    identity: Identity,
}

/// How an exchange goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Well,
    /// It fails before anything was done.
    Fails,
    /// It is done, and the answer is lost.
    Unseen,
    /// It is never done, and there is no answer.
    Lost,
    /// It is done later than anybody waits for.
    Later(u64),
}

impl SimStore {
    pub fn new(turns: Arc<Turns>, store_id: Uuid) -> Self {
        let place = "simulated".to_owned();
        let identity = Identity { store_id, schema_version: 1, scratch: false, place };
        Self { turns, stored: Mutex::default(), identity }
    }

    pub fn stored(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store's clock.
    pub fn now(&self) -> Timestamp {
        let inside = self.turns.inside();
        Timestamp(
            1_700_000_000_000_000 + i64::try_from(inside.now).unwrap_or(0) + inside.store_clock,
        )
    }

    /// How long after now the last of what is on its way lands.
    pub fn settles_within(&self) -> Duration {
        let now = self.turns.inside().now;
        let last = self.stored().on_the_way.iter().map(|(at, _)| *at).max().unwrap_or(now);
        Duration::from_micros(last.saturating_sub(now))
    }

    /// Draws how an exchange goes, and lets the time pass that the request takes.
    fn request(&self, within: Duration) -> How {
        let life = self.turns.my_life();
        self.is_spooled();
        let most = micros(within);
        let (how, long) = {
            let away_until = self.stored().away_until;
            let mut inside = self.turns.inside();
            let shape = inside.shape.clone();
            let latency = 50 + inside.draws.below(shape.latency_us);
            let loud = !inside.quiet;
            if loud && shape.clock_jump != 0 && inside.one_in(shape.clock_jump) {
                let far = i64::try_from(inside.draws.below(4_000 * shape.lease_ms)).unwrap_or(0);
                inside.store_clock += far - far / 4;
                if inside.one_in(4) {
                    inside.store_clock -= far;
                }
                let lives = inside.lives.len();
                (0..lives).for_each(|life| inside.hit(life, "the store's clock was set"));
            }
            if loud && shape.outage != 0 && inside.one_in(shape.outage) {
                let until = inside.now + 1_000 * (1 + inside.draws.below(4 * shape.lease_ms));
                self.stored().away_until = until;
                inside.say(&"the store is away");
            }
            let how = if loud && inside.now < away_until {
                How::Fails
            } else if loud && shape.fault != 0 && inside.one_in(shape.fault) {
                match inside.draws.below(4) {
                    0 => How::Fails,
                    1 => How::Unseen,
                    2 => How::Lost,
                    // Just when its writer has looked and tries again, half of the time.
                    _ if inside.one_in(2) => {
                        let soon = inside.draws.below(6 * shape.latency_us);
                        How::Later(inside.now + latency + most + soon)
                    }
                    _ => How::Later(inside.now + inside.draws.below(4_000 * shape.lease_ms)),
                }
            } else if loud && shape.slow != 0 && inside.one_in(shape.slow) {
                How::Later(inside.now + most + inside.draws.below(1_000 * shape.lease_ms))
            } else {
                How::Well
            };
            if how != How::Well
                && let Some(life) = life
            {
                let what = match how {
                    How::Well | How::Fails => "the store failed",
                    How::Unseen | How::Lost => "an answer of the store was lost",
                    How::Later(_) => "the store was too slow",
                };
                inside.hit(life, what);
            }
            // Nobody waits for longer than they may; who has no time left has no answer.
            let waits = match how {
                How::Well | How::Fails => latency.min(most),
                How::Unseen => latency.min(most / 2),
                How::Lost | How::Later(_) => latency.min(most),
            };
            let how = if how == How::Well && latency > most {
                How::Later(inside.now + latency)
            } else {
                how
            };
            (how, waits)
        };
        self.turns.pass(Duration::from_micros(long));
        self.land_what_is_due();
        how
    }

    /// Whoever tries once more to have an outcome recorded has it in the spool (EXE-24), unless another
    /// process has delivered it meanwhile.
    fn is_spooled(&self) {
        let Some(life) = self.turns.my_life() else { return };
        let (spool, not_taken, name) = {
            let mut inside = self.turns.inside();
            let life = &mut inside.lives[life];
            (life.spool.clone(), life.not_taken.take(), life.name.clone())
        };
        let (Some(spool), Some(outcome)) = (spool, not_taken) else { return };
        let store = self.identity.store_id.simple();
        let file = spool.join(format!("{store}-{}.json", outcome.simple()));
        let stored = self.stored();
        let gone = stored.rows.forgotten.iter().map(|(_, row)| row);
        let mut rows = stored.rows.of.values().flat_map(|of| &of.history).chain(gone);
        let recorded = rows.any(|row| row.outcome_id.is_some_and(|it| it.0 == outcome));
        if !recorded && !file.exists() {
            self.turns.inside().fail(format!("{name} tries on, and what it knows is in no spool"));
        }
    }

    /// Notes the outcome that an append could not bring.
    fn was_not_taken(&self, append: &Append, end: &End) {
        let outcome = append.history.iter().find_map(|row| row.outcome_id);
        let failed = matches!(end, End::NotCommitted(_) | End::Unknown(_));
        if let (Some(outcome), Some(life), true) = (outcome, self.turns.my_life(), failed) {
            self.turns.inside().lives[life].not_taken = Some(outcome.0);
        }
    }

    /// Lets the time pass that the answer takes; where there is none, all that its asker waits.
    fn answer(&self, how: How, within: Duration) {
        let mut inside = self.turns.inside();
        let most = inside.shape.latency_us;
        let latency = 50 + inside.draws.below(most);
        let long = match how {
            How::Well | How::Fails => Duration::from_micros(latency),
            How::Unseen | How::Lost | How::Later(_) => within,
        };
        drop(inside);
        self.turns.pass(long);
    }

    fn land_what_is_due(&self) {
        let now = self.turns.inside().now;
        let mut stored = self.stored();
        loop {
            let due = stored.on_the_way.iter().enumerate().filter(|(_, (at, _))| *at <= now);
            let Some((first, _)) = due.min_by_key(|(_, (at, _))| *at) else {
                return;
            };
            let (_, append) = stored.on_the_way.remove(first);
            let end = stored.rows.append(&append);
            let text = format!("{} lands late: {}", named(&append), told(&end));
            self.turns.inside().say(&text);
        }
    }

    fn read(&self, what: &str, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot> {
        let how = self.request(within);
        let found = if how == How::Well {
            let now = self.now();
            Ok(self.stored().rows.found(key, ask, now))
        } else {
            Err(why(how))
        };
        let text = match &found {
            Ok(Found { record: Some(record), .. }) => format!(
                "{} at revision {}, attempt {}",
                record.state.name(),
                record.revision,
                record.attempt
            ),
            Ok(_) => "nothing".to_owned(),
            Err(error) => error.message.clone(),
        };
        self.say(&format!("{what} {key}: {text}"));
        self.answer(how, within);
        found
    }

    fn say(&self, what: &str) {
        let life = self.turns.my_life();
        let mut inside = self.turns.inside();
        let name = life.map_or("the end", |life| inside.lives[life].name.as_str()).to_owned();
        inside.say(&format!("{name} {what}"));
    }
}

/// What a write brings, as the trace has it.
fn named(append: &Append) -> String {
    let events: Vec<&str> = append.history.iter().map(|row| row.event.kind()).collect();
    let next = &append.next;
    format!("{} of {} at {} by {}", events.join("+"), next.key, next.revision, next.write_id.0)
}

fn told(end: &End) -> String {
    match end {
        End::Landed => "landed".to_owned(),
        End::Refused => "refused".to_owned(),
        End::NotCommitted(error) => format!("not committed, {error}"),
        End::Unknown(error) => format!("unknown, {error}"),
    }
}

fn why(how: How) -> CouldNot {
    let (reason, message) = match how {
        How::Well | How::Fails => (Reason::Unreachable, "it cannot be reached"),
        How::Unseen | How::Lost => (Reason::Unreachable, "the connection was lost"),
        How::Later(_) => (Reason::Busy, "it did not answer in time"),
    };
    CouldNot { reason, message: message.to_owned(), hint: None }
}

impl Store for SimStore {
    fn load(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot> {
        self.read("load", key, ask, within)
    }

    fn append(&self, append: &Append, within: Duration) -> End {
        let how = self.request(within);
        let end = match how {
            How::Well => self.stored().rows.append(append),
            How::Fails => End::NotCommitted(why(how)),
            How::Lost => End::Unknown(why(how)),
            How::Unseen => {
                let _ = self.stored().rows.append(append);
                End::Unknown(why(how))
            }
            How::Later(at) => {
                self.stored().on_the_way.push((at, append.clone()));
                End::Unknown(why(how))
            }
        };
        self.say(&format!("append {}: {}{}", named(append), told(&end), unseen(how)));
        self.was_not_taken(append, &end);
        self.answer(how, within);
        end
    }

    fn reread(&self, key: &Key, ask: Ask, within: Duration) -> Result<Found, CouldNot> {
        self.read("re-read", key, ask, within)
    }

    fn list(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Listed) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        let how = self.request(within);
        self.answer(how, within);
        if how != How::Well {
            return Err(why(how));
        }
        let now = self.now();
        let all = self.stored().rows.listed(filter, now);
        for shown in all {
            if each(Listed::Record(Box::new(shown))) == Flow::Stop {
                break;
            }
        }
        Ok(())
    }

    fn history(&self, key: &Key, from: u64, _: Duration) -> Result<Vec<HistoryRow>, CouldNot> {
        let stored = self.stored();
        let rows = stored.rows.of.get(key).into_iter().flat_map(|of| &of.history);
        Ok(rows.filter(|row| row.revision >= from).cloned().collect())
    }

    fn output(
        &self,
        key: &Key,
        attempt: u64,
        stream: Stream,
        _: Duration,
    ) -> Result<Option<Captured>, CouldNot> {
        let stored = self.stored();
        let of = stored.rows.of.get(key);
        Ok(of.and_then(|of| of.outputs.get(&(attempt, number(stream))).cloned()))
    }

    fn walk(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Walked) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        let how = self.request(within);
        self.answer(how, within);
        if how != How::Well {
            return Err(why(how));
        }
        let now = self.now();
        let all = self.stored().rows.whole(filter, now);
        for whole in all {
            if each(Walked::Effect(Box::new(whole))) == Flow::Stop {
                break;
            }
        }
        Ok(())
    }

    fn prune(&self, cut: &Cut, within: Duration) -> Pruned {
        let how = self.request(within);
        let pruned = match how {
            How::Well => Pruned::Done(self.stored().rows.prune(cut)),
            How::Fails => Pruned::NotCommitted(why(how)),
            How::Lost | How::Later(_) => Pruned::Unknown(why(how)),
            How::Unseen => {
                let Gone { .. } = self.stored().rows.prune(cut);
                Pruned::Unknown(why(how))
            }
        };
        self.say(&format!("prune: {pruned:?}"));
        self.answer(how, within);
        pruned
    }

    fn stats(&self, _: Duration) -> Result<Stats, CouldNot> {
        Ok(Stats::default())
    }

    fn runs(&self) -> &dyn Runs {
        panic!("the simulation is of effects: no run is asked for")
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}

fn unseen(how: How) -> &'static str {
    if how == How::Unseen { " (and it was done)" } else { "" }
}
