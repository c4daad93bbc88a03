//! Forgets runs that have ended (OPS-14).
use tokio_postgres::types::Type;

use super::super::error::Fault;
use super::super::link::Link;
use super::super::read::Param;
use super::super::write::{Try, Writing, end};
use super::write::{Weight, one_statement};
use crate::store::row::integer;
use crate::store::runs::RunAsRead;

/// All of them go, or none: whoever has written one since keeps them all. What somebody puts for a run
/// meanwhile and commits later wakes nobody: it is taken away by whoever finds no run behind it.
const FORGET: &str = ",
  mine AS MATERIALIZED (
    SELECT r.run_id
    FROM store, unnest($4::text[], $5::bigint[], $6::bytea[]) t(run_id, at, write_id)
    JOIN :schema.runs r
      ON r.run_id = t.run_id AND r.record_version = t.at AND r.write_id = t.write_id
    WHERE fits AND r.status IN ('succeeded', 'failed', 'cancelled') FOR UPDATE OF r),
  them AS MATERIALIZED (
    SELECT run_id FROM mine
    WHERE (SELECT pg_catalog.count(*) FROM mine) = pg_catalog.cardinality($4::text[])),
  history AS (DELETE FROM :schema.run_history x USING them WHERE x.run_id = them.run_id),
  inbox AS (DELETE FROM :schema.inbox x USING them WHERE x.run_id = them.run_id),
  dispatches AS (DELETE FROM :schema.dispatches x USING them WHERE x.run_id = them.run_id),
  wakeups AS (DELETE FROM :schema.wakeups x USING them WHERE x.run_id = them.run_id),
  gone AS (DELETE FROM :schema.runs x USING them WHERE x.run_id = them.run_id RETURNING 1)
  SELECT :answer, (SELECT pg_catalog.count(*) FROM gone) FROM store s";

/// In one statement.
pub fn forget(link: &Link, runs: &[RunAsRead], mark: &String, writing: &Writing<'_>) -> Try {
    let names: Vec<&str> = runs.iter().map(|run| run.run.as_str()).collect();
    let ids: Vec<&[u8]> = runs.iter().map(|run| &run.write_id.0.as_bytes()[..]).collect();
    let revisions: Result<Vec<i64>, _> =
        runs.iter().map(|run| integer("record_version", run.revision)).collect();
    let written = revisions.map_err(Fault::from).and_then(|revisions| {
        let params: [Param<'_>; 3] =
            [(&names, Type::TEXT_ARRAY), (&revisions, Type::INT8_ARRAY), (&ids, Type::BYTEA_ARRAY)];
        one_statement(link, writing, (Weight::Full, mark), FORGET, &params)
    });
    end(link, written, None, writing).0
}
