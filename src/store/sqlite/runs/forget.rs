//! Forgets runs that have ended (OPS-14).
use rusqlite::{Connection, params};

use super::super::error::Fault;
use crate::store::row::integer;
use crate::store::runs::RunAsRead;

/// All of them go, or it is false and nothing may be committed.
pub fn forget(connection: &Connection, runs: &[RunAsRead]) -> Result<bool, Fault> {
    const ROW: &str = "DELETE FROM runs WHERE run_id=?1 AND record_version=?2 AND write_id=?3
        AND status IN ('succeeded','failed','cancelled')";
    for run in runs {
        let (name, write_id) = (run.run.as_str(), &run.write_id.0.as_bytes()[..]);
        let revision = integer("record_version", run.revision)?;
        let gone = connection.prepare_cached(ROW)?.execute(params![name, revision, write_id])?;
        if gone == 0 {
            return Ok(false);
        }
        for table in ["run_history", "inbox", "dispatches", "wakeups"] {
            let sql = format!("DELETE FROM {table} WHERE run_id=?1");
            connection.prepare_cached(&sql)?.execute([name])?;
        }
    }
    Ok(true)
}
