//! What an effect's append does for the run that the effect belongs to, in its own statement: most
//! effects belong to none, and theirs mentions no table of runs.
use tokio_postgres::types::Type;

use super::super::read::{CLOCK, Param};
use crate::plan::protocol::Append;
use crate::store::runs::columns::woken_by;

/// Holds the dispatch that the append acts on (WFL-9). It is written to, and not only locked: whoever
/// deletes it waits for us either way, but where a stricter isolation level than ours was forced upon
/// the server, only a row that was changed makes the deletion fail. A share lock would let it pass,
/// and the look at the effect behind it would be into the past.
const DISPATCHED: &str = "dispatch AS (
    UPDATE :schema.dispatches SET reserved_by = $3
    WHERE run_id = :1 AND node = :2 AND put_id = :3 AND :marked RETURNING 1),";

/// What the row is then also held to.
const HELD: &str = " AND EXISTS (SELECT 1 FROM dispatch)";

/// Puts a wakeup; `:from` is where run, key and the rest come from. Tier and workflow are the run's:
/// where there is none, nothing is put. One that is there already takes the earlier time, and whoever
/// has it in hand has it no more: what it is put for, they may not have seen (WFL-11).
pub const PUT_WAKEUP: &str = "INSERT INTO :schema.wakeups AS w(
      run_id, wake_key, put_id, due_at, free_at, requeues, since_seq, tier, workflow)
    SELECT r.run_id, :from r.tier, r.workflow FROM :behind :schema.runs r WHERE r.run_id = :run
    ON CONFLICT (run_id, wake_key) DO UPDATE SET put_id = excluded.put_id,
      due_at = LEAST(w.due_at, excluded.due_at), free_at = LEAST(w.due_at, excluded.due_at),
      claim_id = NULL, requeues = excluded.requeues, since_seq = excluded.since_seq,
      tier = excluded.tier, workflow = excluded.workflow
    RETURNING 1";

/// The parts of the statement of `append` that are about its run: what comes before the row, what the
/// row is held to, and what comes behind it. Their parameters begin behind the first `last`.
pub fn of_effect(append: &Append, last: usize) -> (String, &'static str, String) {
    let mut at = last;
    let mut next = || {
        at += 1;
        format!("${at}")
    };
    let woken = woken_by(append).map_or_else(String::new, |_| {
        let from = format!("{}, $3, {CLOCK}, {CLOCK}, 0, 0,", next());
        let put = PUT_WAKEUP
            .replace(":from", &from)
            .replace(":behind", "written,")
            .replace(":run", "$24");
        format!(",\n  woken AS ({put})")
    });
    let (dispatched, held) = match append.dispatch {
        None => (String::new(), ""),
        Some(_) => {
            let text =
                DISPATCHED.replace(":1", &next()).replace(":2", &next()).replace(":3", &next());
            (text, HELD)
        }
    };
    (dispatched, held, woken)
}

/// What wakes the runs of a group of appends (WFL-10), from its rows as they were `given` and the keys
/// that were `written`.
pub fn wake_all() -> String {
    let from =
        format!("g.effect_key || '/' || g.record_version, g.write_id, {CLOCK}, {CLOCK}, 0, 0,");
    PUT_WAKEUP.replace(":from", &from).replace(":behind", "given g,").replace(
        ":run",
        "g.run_id AND g.state NOT IN ('reserved', 'executing') \
         AND g.effect_key IN (SELECT effect_key FROM written)",
    )
}

/// The values of those parameters.
pub struct OfEffect<'a> {
    wake_key: Option<String>,
    dispatch: Option<(&'a str, &'a str, &'a [u8])>,
}

impl<'a> OfEffect<'a> {
    /// Those of `append`.
    pub fn of(append: &'a Append) -> Self {
        let dispatch = append.dispatch.as_ref();
        Self {
            wake_key: woken_by(append).map(|(_, key)| key),
            dispatch: dispatch
                .map(|id| (id.run.as_str(), id.node.as_str(), &id.put_id.0.as_bytes()[..])),
        }
    }

    /// Adds them behind the others.
    pub fn add<'b>(&'b self, params: &mut Vec<Param<'b>>) {
        if let Some(key) = &self.wake_key {
            params.push((key, Type::TEXT));
        }
        if let Some((run, node, put_id)) = &self.dispatch {
            let of_dispatch: [Param<'b>; 3] =
                [(run, Type::TEXT), (node, Type::TEXT), (put_id, Type::BYTEA)];
            params.extend(of_dispatch);
        }
    }
}
