//! The same durable writes, made by hand: three groups of prepared statements, each one transaction, and
//! nothing is decided, folded or checked but the row counts.
use std::path::Path;

use rusqlite::{Connection, params};

use super::super::Outcome;

const INSERT: &str =
    "INSERT INTO effects(effect_key, record_version, write_id, reservation_id, state,
    first_attempt, attempt, attempt_id, fingerprint, program, arguments, lease_expires_at, reaped,
    in_doubt, doubted, proven_failures, created_at, updated_at)
  VALUES(?1, 1, ?2, ?2, 'reserved', 1, 1, 'a', ?3, 'true', 0, 9, 0, 0, 0, 0, 1, 1)
  ON CONFLICT DO NOTHING";
const UPDATE: &str = "UPDATE effects SET record_version=?2+1, write_id=?3, state=?4,
    lease_expires_at=NULL, exit_code=0, detail='exited 0', updated_at=1
  WHERE effect_key=?1 AND record_version=?2 AND write_id=?5";
const EVENT: &str = "INSERT INTO history(
    effect_key, revision, write_id, outcome_id, type, attempt, recorded_at, data)
  VALUES (?1, ?2, ?3, ?4, ?5, 1, 1, ?6)";

/// Writes so many effects in groups of `group`; an effect's key is `PREFIX:NUMBER`.
pub fn write(path: &Path, prefix: &str, effects: usize, group: usize) -> Outcome<()> {
    let database = Connection::open(path)?;
    database.query_row("PRAGMA journal_mode=WAL", [], |_| Ok(()))?;
    database.execute_batch("PRAGMA synchronous=FULL")?;
    let data = [
        format!(r#"{{"attempt":1,"attempt_id":"{0:036}","request":{{"fingerprint":"sha256:{0:064}","program":"true","arguments":0,"command":null}},"lease_expires_at":1}}"#, 0),
        r#"{"lease_expires_at":1,"ran_on":{"host":"host","pid":1,"user":"user","directory":"/"},"labels":{}}"#.to_owned(),
        r#"{"ending":{"exit_code":0,"signal":null,"detail":"exited 0"}}"#.to_owned(),
    ];
    let kinds = ["reserved", "began", "committed"];
    let states = ["reserved", "executing", "committed"];
    for first in (0..effects).step_by(group) {
        for step in 0..3_i64 {
            let at = usize::try_from(step)?;
            database.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            for number in first..(first + group).min(effects) {
                let key = format!("{prefix}:{number}");
                let id = |step: i64| {
                    let mut id = [0_u8; 16];
                    id[..8].copy_from_slice(&number.to_le_bytes());
                    id[8..].copy_from_slice(&step.to_le_bytes());
                    id
                };
                let changed = match step {
                    0 => {
                        database.prepare_cached(INSERT)?.execute(params![key, id(0), [0_u8; 32]])?
                    }
                    _ => database.prepare_cached(UPDATE)?.execute(params![
                        key,
                        step,
                        id(step),
                        states[at],
                        id(step - 1)
                    ])?,
                };
                if changed != 1 {
                    return Err("a write changed another number of rows".into());
                }
                let outcome = (step == 2).then(|| id(9));
                database.prepare_cached(EVENT)?.execute(params![
                    key,
                    step + 1,
                    id(step),
                    outcome,
                    kinds[at],
                    data[at]
                ])?;
            }
            database.prepare_cached("COMMIT")?.execute([])?;
        }
    }
    database.close().map_err(|(_, error)| error)?;
    Ok(())
}
