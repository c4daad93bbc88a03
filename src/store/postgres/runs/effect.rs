//! What an effect's append does for the run that the effect belongs to, in its own statement: most
//! effects belong to none, and theirs mentions no table of runs.
use super::super::literal::{self, Value};
use super::super::read::CLOCK;
use super::super::schema::Names;
use crate::plan::protocol::Append;
use crate::store::row::Malformed;
use crate::store::runs::columns::woken_by;

/// Holds the dispatch that the append acts on (WFL-9). It is written to, and not only locked: whoever
/// deletes it waits for us either way, but where a stricter isolation level than ours was forced upon
/// the server, only a row that was changed makes the deletion fail. A share lock would let it pass,
/// and the look at the effect behind it would be into the past.
const DISPATCHED: &str = "dispatch AS (UPDATE :schema.dispatches SET reserved_by = ";

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

/// The parts of the statement of an append that are about its run.
pub struct OfRun {
    /// What comes before the row.
    pub dispatched: String,
    /// What the row is held to.
    pub held: &'static str,
    /// What comes behind it.
    pub woken: String,
}

/// Those of `append`: all empty where it is of no run.
///
/// # Errors
/// [`Malformed`].
pub fn of_effect(append: &Append, names: &Names) -> Result<OfRun, Malformed> {
    let mut of = OfRun { dispatched: String::new(), held: "", woken: String::new() };
    let write_id = append.next.write_id.0.as_bytes();
    if let Some(id) = &append.dispatch {
        let sql = &mut of.dispatched;
        sql.push_str(&names.fill(DISPATCHED));
        literal::bytes(sql, write_id);
        for (before, cell) in [
            (" WHERE run_id = ", ("run_id", Value::Text(Some(id.run.as_str())))),
            (" AND node = ", ("node", Value::Text(Some(id.node.as_str())))),
            (" AND put_id = ", ("put_id", Value::Bytes(Some(id.put_id.0.as_bytes())))),
        ] {
            sql.push_str(before);
            literal::list(sql, &[cell], false)?;
        }
        sql.push_str(" RETURNING 1), ");
        of.held = HELD;
    }
    if let Some((run, key)) = woken_by(append) {
        let sql = &mut of.woken;
        // Nothing is replaced behind a value that was put in.
        let put = PUT_WAKEUP.replace(":behind", "written,");
        let (before, rest) = put.split_once(":from").unwrap_or_default();
        let (between, after) = rest.split_once(":run").unwrap_or_default();
        sql.push_str(", woken AS (");
        sql.push_str(&names.fill(before));
        let cells =
            [("wake_key", Value::Text(Some(&key))), ("put_id", Value::Bytes(Some(write_id)))];
        literal::list(sql, &cells, true)?;
        sql.push_str(&format!(", {CLOCK}, {CLOCK}, 0, 0,"));
        sql.push_str(&names.fill(between));
        literal::list(sql, &[("run_id", Value::Text(Some(run)))], false)?;
        sql.push_str(&names.fill(after));
        sql.push(')');
    }
    Ok(of)
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
