//! The two queues: wakeups and dispatches, handed out by tier, and within a tier by workflow in turn
//! (WFL-12). Every question is one look into an index, however many wait.
use rusqlite::{Connection, OptionalExtension, params};

use super::super::error::Fault;
use super::super::read::Cells;
use crate::plan::time::Timestamp;
use crate::plan::workflow::{Claim, Dispatch, Tier, Wakeup};
use crate::store::row::Malformed;
use crate::store::runs::columns::{
    DispatchRow, WakeupRow, dispatch_columns, run_id, wakeup_columns,
};
use crate::store::runs::turns::{IDLE_MAX, Round};
use crate::store::runs::{OTHERS_MAX, Take, Woken};

/// A queue: its table, and the column that tells the rows of one run apart.
#[derive(Clone, Copy)]
pub struct Queue {
    table: &'static str,
    name: &'static str,
}

/// The wakeups.
pub const WAKEUPS: Queue = Queue { table: "wakeups", name: "wake_key" };
/// The dispatches.
pub const DISPATCHES: Queue = Queue { table: "dispatches", name: "node" };

/// Which row of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    run: String,
    name: String,
    tier: Tier,
}

/// What is claimed, until when, and by whom.
pub struct Claiming<'a> {
    /// As it was asked for.
    pub take: &'a Take<'a>,
    /// The store's clock.
    pub now: Timestamp,
}

impl Claiming<'_> {
    fn until(&self) -> Timestamp {
        self.now.plus(self.take.hold)
    }

    fn claim(&self) -> Claim {
        Claim { id: self.take.claim, until: self.until() }
    }
}

/// When the next one is due, or a claim ends; `None` if nothing waits.
pub fn next_due(connection: &Connection, queue: Queue) -> Result<Option<Timestamp>, Fault> {
    let mut next: Option<i64> = None;
    for tier in Tier::ALL {
        let free: Option<i64> = free_at(connection, queue, tier)?;
        next = next.into_iter().chain(free).min();
    }
    Ok(next.map(Timestamp))
}

fn free_at(connection: &Connection, queue: Queue, tier: Tier) -> Result<Option<i64>, Fault> {
    let sql = format!("SELECT free_at FROM {} WHERE tier=?1 ORDER BY free_at LIMIT 1", queue.table);
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_row([tier.number()], |row| row.get(0)).optional()?)
}

/// Takes from the queue, a row at a time, and calls `each` with every one that is taken.
fn in_turn(
    connection: &Connection,
    queue: Queue,
    round: &mut Round,
    claiming: &Claiming<'_>,
    mut each: impl FnMut(Place) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut left = claiming.take.limit;
    for tier in Tier::ALL {
        let mut idle = 0;
        while left > 0
            && free_at(connection, queue, tier)?.is_some_and(|free| free <= claiming.now.0)
        {
            let taken = if idle < IDLE_MAX {
                let Some(workflow) = next_workflow(connection, queue, tier, round.last(tier))?
                else {
                    break;
                };
                round.passed(tier, &workflow);
                first(connection, queue, tier, Some(&workflow), claiming.now)?
            } else {
                // Something is due, and not of any that were passed: the oldest of all.
                first(connection, queue, tier, None, claiming.now)?
            };
            let Some(place) = taken else {
                idle += 1;
                continue;
            };
            idle = 0;
            left -= 1;
            hold(connection, queue, &place, claiming)?;
            each(place)?;
        }
    }
    Ok(())
}

/// The workflow after `last` that has anything in the queue; round again after the last of them.
fn next_workflow(
    connection: &Connection,
    queue: Queue,
    tier: Tier,
    last: &str,
) -> Result<Option<String>, Fault> {
    let sql = format!(
        "SELECT workflow FROM {} WHERE tier=?1 AND workflow>?2 ORDER BY workflow LIMIT 1",
        queue.table
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut after =
        |last: &str| statement.query_row(params![tier.number(), last], |row| row.get(0)).optional();
    Ok(match after(last)? {
        Some(next) => Some(next),
        // No name of a workflow is empty.
        None => after("")?,
    })
}

/// The oldest that is due: of one workflow, or of all.
fn first(
    connection: &Connection,
    queue: Queue,
    tier: Tier,
    workflow: Option<&str>,
    now: Timestamp,
) -> Result<Option<Place>, Fault> {
    let Queue { table, name } = queue;
    let of = |condition: &str| {
        format!(
            "SELECT run_id, {name} FROM {table} WHERE tier=?1 AND free_at<=?2{condition}
             ORDER BY free_at LIMIT 1"
        )
    };
    let place = |row: &rusqlite::Row<'_>| Ok(Place { run: row.get(0)?, name: row.get(1)?, tier });
    let found = match workflow {
        Some(workflow) => connection
            .prepare_cached(&of(" AND workflow=?3"))?
            .query_row(params![tier.number(), now.0, workflow], place),
        None => connection.prepare_cached(&of(""))?.query_row(params![tier.number(), now.0], place),
    };
    Ok(found.optional()?)
}

fn hold(
    connection: &Connection,
    queue: Queue,
    place: &Place,
    claiming: &Claiming<'_>,
) -> Result<(), Fault> {
    let Queue { table, name } = queue;
    let sql = format!("UPDATE {table} SET free_at=?3, claim_id=?4 WHERE run_id=?1 AND {name}=?2");
    let claim = &claiming.take.claim.as_bytes()[..];
    connection.prepare_cached(&sql)?.execute(params![
        place.run,
        place.name,
        claiming.until().0,
        claim
    ])?;
    Ok(())
}

/// What of one run is due and nobody has.
fn of_run(
    connection: &Connection,
    queue: Queue,
    run: &str,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<Place>, Fault> {
    let Queue { table, name } = queue;
    let sql = format!(
        "SELECT {name}, tier FROM {table} WHERE run_id=?1 AND free_at<=?2 ORDER BY free_at LIMIT ?3"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![run, now.0, limit])?;
    let mut places = Vec::new();
    while let Some(row) = rows.next()? {
        let tier = Tier::of(row.get(1)?).ok_or_else(|| Malformed::new("tier", "none"))?;
        places.push(Place { run: run.to_owned(), name: row.get(0)?, tier });
    }
    Ok(places)
}

/// Claims wakeups: with each go all others of its run that are due and that nobody has.
pub fn claim_wakeups(
    connection: &Connection,
    round: &mut Round,
    claiming: &Claiming<'_>,
) -> Result<Vec<Woken>, Fault> {
    let mut taken: Vec<Woken> = Vec::new();
    let mut wake = |run: &str, tier: Tier, first: Option<&Place>| -> Result<(), Fault> {
        let others = of_run(connection, WAKEUPS, run, claiming.now, OTHERS_MAX)?;
        let mut wakeups = Vec::new();
        for place in first.into_iter().chain(&others) {
            hold(connection, WAKEUPS, place, claiming)?;
            // One that cannot be read stays claimed, and in nobody's way.
            wakeups.extend(wakeup(connection, place)?);
        }
        let Ok(run) = run_id(run.to_owned()) else { return Ok(()) };
        if !wakeups.is_empty() {
            taken.push(Woken { run, tier, wakeups, claim: claiming.claim() });
        }
        Ok(())
    };
    if let Some(run) = claiming.take.only {
        let one = of_run(connection, WAKEUPS, run.as_str(), claiming.now, 1)?;
        if let (Some(place), true) = (one.first(), claiming.take.limit > 0) {
            wake(run.as_str(), place.tier, None)?;
        }
    } else {
        in_turn(connection, WAKEUPS, round, claiming, |place| {
            wake(&place.run, place.tier, Some(&place))
        })?;
    }
    Ok(taken)
}

fn wakeup(connection: &Connection, place: &Place) -> Result<Option<Wakeup>, Fault> {
    const SQL: &str =
        concat!("SELECT ", wakeup_columns!(), " FROM wakeups w WHERE run_id=?1 AND wake_key=?2");
    let mut statement = connection.prepare_cached(SQL)?;
    let mut rows = statement.query([&place.run, &place.name])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let row = wakeup_row(&mut Cells::new(row, 0));
    Ok(row.and_then(WakeupRow::wakeup).ok())
}

/// Claims dispatches.
pub fn claim_dispatches(
    connection: &Connection,
    round: &mut Round,
    claiming: &Claiming<'_>,
) -> Result<Vec<Dispatch>, Fault> {
    let mut places = Vec::new();
    if let Some(run) = claiming.take.only {
        let limit = claiming.take.limit;
        places = of_run(connection, DISPATCHES, run.as_str(), claiming.now, limit)?;
        for place in &places {
            hold(connection, DISPATCHES, place, claiming)?;
        }
    } else {
        in_turn(connection, DISPATCHES, round, claiming, |place| {
            places.push(place);
            Ok(())
        })?;
    }
    let mut taken = Vec::with_capacity(places.len());
    for place in &places {
        taken.extend(dispatch(connection, place)?);
    }
    Ok(taken)
}

fn dispatch(connection: &Connection, place: &Place) -> Result<Option<Dispatch>, Fault> {
    const SQL: &str =
        concat!("SELECT ", dispatch_columns!(), " FROM dispatches d WHERE run_id=?1 AND node=?2");
    let mut statement = connection.prepare_cached(SQL)?;
    let mut rows = statement.query([&place.run, &place.name])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let row = dispatch_row(&mut Cells::new(row, 0));
    Ok(row.and_then(DispatchRow::dispatch).ok())
}

/// The columns of a wakeup.
pub fn wakeup_row(cells: &mut Cells<'_>) -> Result<WakeupRow, Malformed> {
    Ok(WakeupRow {
        run_id: cells.text("run_id")?,
        wake_key: cells.text("wake_key")?,
        put_id: cells.id("put_id")?,
        due_at: cells.int("due_at")?,
        requeues: cells.int("requeues")?,
        since_seq: cells.int("since_seq")?,
    })
}

/// The columns of a dispatch.
pub fn dispatch_row(cells: &mut Cells<'_>) -> Result<DispatchRow, Malformed> {
    Ok(DispatchRow {
        run_id: cells.text("run_id")?,
        node: cells.text("node")?,
        put_id: cells.id("put_id")?,
        effect_key: cells.text("effect_key")?,
        attempt: cells.int("attempt")?,
        expected: cells.int_or_null("expected")?,
        due_at: cells.int("due_at")?,
        free_at: cells.int("free_at")?,
        claim_id: cells.id_or_null("claim_id")?,
    })
}
