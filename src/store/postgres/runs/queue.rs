//! Claims of wakeups and dispatches: one statement in a transaction of its own, in one exchange. It
//! waits for nobody's lock (WFL-12).
//!
//! What it costs if the answer is lost is that the rows are handed out once more when the claim has
//! ended, so nothing is settled here.
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::super::cells::Cells;
use super::super::error::Fault;
use super::super::link::Link;
use super::super::read::{CLOCK, Param};
use super::super::schema::{self, Names};
use super::super::transaction::{Deadline, begin_light, both};
use crate::plan::time::Timestamp;
use crate::plan::workflow::{Claim, Dispatch, Tier};
use crate::store::row::Malformed;
use crate::store::runs::columns::{
    DispatchRow, WakeupRow, dispatch_columns, run_id, wakeup_columns,
};
use crate::store::runs::turns::{IDLE_MAX, Round};
use crate::store::runs::{Claimed, OTHERS_MAX, Take, Woken};

/// A queue: its table, the column that tells the rows of one run apart, and what is read of it.
#[derive(Clone, Copy)]
pub struct Queue {
    table: &'static str,
    name: &'static str,
    columns: &'static str,
    alias: &'static str,
}

/// The wakeups.
pub const WAKEUPS: Queue =
    Queue { table: "wakeups", name: "wake_key", columns: wakeup_columns!(), alias: "w" };
/// The dispatches.
pub const DISPATCHES: Queue =
    Queue { table: "dispatches", name: "node", columns: dispatch_columns!(), alias: "d" };

/// Whose turn it is, tier by tier: a walk from workflow to workflow, each found by one look into an
/// index, round and round until the limit is reached. What of a workflow was taken in an earlier lap is
/// locked by us and passed over; what others hold is skipped. It is evaluated row by row, so nothing is
/// locked that is not taken. That a row is of one workflow is said by its place in that index, from its
/// first row to its last one that is due: told that the workflow is equal, a server that counts on few
/// rows goes through the index of all by time instead, past every row of a workflow that has a million.
/// Behind it, for where so many workflows with nothing due were passed that
/// the walk ended: the oldest of the tier.
const IN_TURN: &str = "SELECT p.* FROM unnest($1::bigint[], $2::text[]) t(tier, last), LATERAL (
      WITH RECURSIVE ring(workflow, step, lap) AS (
        SELECT t.last COLLATE pg_catalog.\"C\", 0, 0 WHERE (
          SELECT q.free_at FROM :q q WHERE q.tier = t.tier ORDER BY q.free_at LIMIT 1
        ) <= (SELECT at FROM clock)
        UNION ALL
        SELECT COALESCE(s.next, (
            SELECT q.workflow FROM :q q WHERE q.tier = t.tier ORDER BY q.workflow LIMIT 1)),
          r.step + 1, r.lap + (s.next IS NULL)::integer
        FROM ring r, LATERAL (
          SELECT (SELECT q.workflow FROM :q q WHERE q.tier = t.tier AND q.workflow > r.workflow
                  ORDER BY q.workflow LIMIT 1) AS next OFFSET 0) s
        WHERE r.step < :steps + $3)
      SELECT t.tier, r.workflow, c.run_id, c.name FROM ring r, LATERAL (
        SELECT q.run_id, q.:name AS name FROM :q q
        WHERE q.tier = t.tier AND q.workflow >= r.workflow
          AND (q.workflow, q.free_at) <= (r.workflow, (SELECT at FROM clock))
        ORDER BY q.workflow, q.free_at OFFSET r.lap - (r.workflow <= t.last)::integer LIMIT 1
        FOR UPDATE SKIP LOCKED) c
      WHERE r.step > 0
      UNION ALL
      SELECT t.tier, (SELECT r.workflow FROM ring r ORDER BY r.step DESC LIMIT 1), c.run_id, c.name
      FROM (SELECT q.run_id, q.:name AS name FROM :q q
            WHERE q.tier = t.tier AND q.free_at <= (SELECT at FROM clock)
            ORDER BY q.free_at LIMIT 1 FOR UPDATE SKIP LOCKED) c
    ) p LIMIT $3";

/// Of one run alone.
const OF_RUN: &str = "SELECT c.tier, c.workflow, c.run_id, c.name FROM (
      SELECT q.tier, q.workflow, q.run_id, q.:name AS name FROM :q q
      WHERE q.run_id = $6 AND q.free_at <= (SELECT at FROM clock)
      ORDER BY q.free_at LIMIT $3 FOR UPDATE SKIP LOCKED) c";

/// With a wakeup go all others of its run.
const WITH_OTHERS: &str =
    "SELECT o.run_id, o.name FROM (SELECT DISTINCT run_id FROM picked) p, LATERAL (
      SELECT q.run_id, q.wake_key AS name FROM :q q
      WHERE q.run_id = p.run_id AND q.free_at <= (SELECT at FROM clock)
      LIMIT :others FOR UPDATE SKIP LOCKED) o";

const ALONE: &str = "SELECT DISTINCT run_id, name FROM picked";

const CLAIM: &str = "WITH clock(at) AS MATERIALIZED (SELECT :clock),
  picked AS MATERIALIZED (
    SELECT x.*, pg_catalog.row_number() OVER () AS step FROM (:pick) x),
  them AS MATERIALIZED (:them),
  taken AS (
    UPDATE :q :a SET free_at = (SELECT at FROM clock) + $5, claim_id = $4
    FROM them WHERE :a.run_id = them.run_id AND :a.:name = them.name
    RETURNING :a.tier AS of_tier, :columns),
  next(due) AS (
    SELECT min(f.free_at) FROM unnest($1::bigint[]) t(tier), LATERAL (
      SELECT q.free_at FROM :q q WHERE q.tier = t.tier
        AND (q.run_id, q.:name) NOT IN (SELECT them.run_id, them.name FROM them)
      ORDER BY q.free_at LIMIT 1) f)
  SELECT s.schema_version, s.store_id, (SELECT at FROM clock), (SELECT due FROM next),
    ARRAY(SELECT (SELECT p.workflow FROM picked p WHERE p.tier = t.tier ORDER BY p.step DESC LIMIT 1)
          FROM unnest($1::bigint[]) WITH ORDINALITY t(tier, at) ORDER BY t.at), taken.*
  FROM :schema.store s LEFT JOIN taken ON true";

/// What a claim is made with.
pub struct Claiming<'a> {
    /// The names of the tables.
    pub names: &'a Names,
    /// The store that must be there.
    pub store_id: Uuid,
    /// As it was asked for.
    pub take: &'a Take<'a>,
    /// When it has to be over.
    pub deadline: Deadline,
}

/// Claims wakeups: with each go all others of its run that are due and that nobody has.
pub fn claim_wakeups(
    link: &Link,
    round: &mut Round,
    claiming: &Claiming<'_>,
) -> Result<Claimed<Woken>, Fault> {
    let rows = claim(link, WAKEUPS, round, claiming)?;
    let mut claimed = head(&rows, round, claiming)?;
    let claim = claiming.claim(claimed.now);
    for row in &rows {
        // One that cannot be read stays claimed, and in nobody's way.
        let Some((tier, wakeup)) = woken(row) else { continue };
        let run = wakeup.run.clone();
        match claimed.taken.iter_mut().find(|woken: &&mut Woken| woken.run == run) {
            Some(woken) => woken.wakeups.push(wakeup),
            None => claimed.taken.push(Woken { run, tier, wakeups: vec![wakeup], claim }),
        }
    }
    Ok(claimed)
}

/// Claims dispatches.
pub fn claim_dispatches(
    link: &Link,
    round: &mut Round,
    claiming: &Claiming<'_>,
) -> Result<Claimed<Dispatch>, Fault> {
    let rows = claim(link, DISPATCHES, round, claiming)?;
    let mut claimed = head(&rows, round, claiming)?;
    for row in &rows {
        let mut cells = Cells::new(row, 6);
        claimed.taken.extend(dispatch_row(&mut cells).and_then(DispatchRow::dispatch).ok());
    }
    Ok(claimed)
}

impl Claiming<'_> {
    fn claim(&self, now: Timestamp) -> Claim {
        Claim { id: self.take.claim, until: now.plus(self.take.hold) }
    }
}

fn claim(
    link: &Link,
    queue: Queue,
    round: &Round,
    claiming: &Claiming<'_>,
) -> Result<Vec<Row>, Fault> {
    let take = claiming.take;
    let Queue { table, name, columns, alias } = queue;
    let sql = CLAIM
        .replace(":pick", if take.only.is_some() { OF_RUN } else { IN_TURN })
        .replace(":them", if name == WAKEUPS.name { WITH_OTHERS } else { ALONE })
        .replace(":columns", columns)
        .replace(":others", &OTHERS_MAX.to_string())
        .replace(":steps", &IDLE_MAX.to_string())
        .replace(":clock", CLOCK)
        .replace(":name", name)
        .replace(":q", &format!(":schema.{table}"))
        .replace(":a", alias);
    let sql = claiming.names.fill(&sql);
    let tiers = Tier::ALL.map(Tier::number).to_vec();
    let last: Vec<&str> = Tier::ALL.iter().map(|tier| round.last(*tier)).collect();
    let limit = i64::try_from(take.limit).unwrap_or(i64::MAX / 4);
    let limit = if take.only.is_some() && name == WAKEUPS.name { limit.min(1) } else { limit };
    let id = &take.claim.as_bytes()[..];
    let hold = i64::try_from(take.hold.as_micros()).unwrap_or(i64::MAX / 4);
    let run = take.only.map(crate::plan::workflow::RunId::as_str);
    let mut params: Vec<Param<'_>> = vec![
        (&tiers, Type::INT8_ARRAY),
        (&last, Type::TEXT_ARRAY),
        (&limit, Type::INT8),
        (&id, Type::BYTEA),
        (&hold, Type::INT8),
    ];
    if let Some(run) = &run {
        params.push((run, Type::TEXT));
    }
    let opening = begin_light(claiming.deadline.left(), "");
    let rows = link.run(claiming.deadline.left(), async |client| {
        let (begun, (rows, ended)) = both(
            client.batch_execute(&opening),
            both(client.query_typed(&sql, &params), client.batch_execute("COMMIT")),
        )
        .await;
        begun?;
        let rows = rows?;
        ended?;
        Ok(rows)
    })?;
    Ok(rows)
}

/// What every row begins with; and the round goes on.
fn head<T>(rows: &[Row], round: &mut Round, claiming: &Claiming<'_>) -> Result<Claimed<T>, Fault> {
    let Some(row) = rows.first() else {
        return Err(Malformed::new("store_id", "the store has lost its row").into());
    };
    let mut cells = Cells::new(row, 0);
    schema::check(cells.get("schema_version")?, claiming.names)?;
    if cells.id("store_id")? != claiming.store_id {
        return Err(claiming.names.another_store().into());
    }
    let now = Timestamp(cells.get("clock")?);
    let next: Option<i64> = cells.or_null("free_at")?;
    let served: Vec<Option<&str>> = cells.get("workflow")?;
    if claiming.take.only.is_none() {
        for (tier, workflow) in Tier::ALL.into_iter().zip(served) {
            if let Some(workflow) = workflow {
                round.passed(tier, workflow);
            }
        }
    }
    // Our own claim ends, too.
    let took = row.try_get::<_, Option<i64>>(5).ok().flatten().is_some();
    let ours = took.then(|| claiming.claim(now).until.0);
    let next_due = next.into_iter().chain(ours).min().map(Timestamp);
    Ok(Claimed { taken: Vec::new(), now, next_due })
}

fn woken(row: &Row) -> Option<(Tier, crate::plan::workflow::Wakeup)> {
    let mut cells = Cells::new(row, 5);
    let tier = Tier::of(cells.get("tier").ok()?)?;
    let row = wakeup_row(&mut cells).ok()?;
    run_id(row.run_id.clone()).ok()?;
    Some((tier, row.wakeup().ok()?))
}

/// The columns of a wakeup.
pub fn wakeup_row(cells: &mut Cells<'_>) -> Result<WakeupRow, Malformed> {
    Ok(WakeupRow {
        run_id: cells.get("run_id")?,
        wake_key: cells.get("wake_key")?,
        put_id: cells.id("put_id")?,
        due_at: cells.get("due_at")?,
        requeues: cells.get("requeues")?,
        since_seq: cells.get("since_seq")?,
    })
}

/// The columns of a dispatch.
pub fn dispatch_row(cells: &mut Cells<'_>) -> Result<DispatchRow, Malformed> {
    Ok(DispatchRow {
        run_id: cells.get("run_id")?,
        node: cells.get("node")?,
        put_id: cells.id("put_id")?,
        effect_key: cells.get("effect_key")?,
        attempt: cells.get("attempt")?,
        expected: cells.or_null("expected")?,
        due_at: cells.get("due_at")?,
        free_at: cells.get("free_at")?,
        claim_id: cells.id_or_null("claim_id")?,
    })
}
