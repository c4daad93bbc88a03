//! The conditional write: what lands, what is refused, and that what is refused leaves nothing.
use std::thread;

use super::{
    Check, Lab, WITHIN, began, committed, draw, fold, land, refused, renewed, reserved, same,
};
use crate::plan::effect::{HistoryRow, WriteId, evolve};
use crate::plan::protocol::{Captured, Kept};
use crate::store::{Ask, End, Store, Stream};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("an insert lands once and the second is refused", insert_once),
    ("the same insert again is refused", same_insert_again),
    ("an insert counted from another floor is refused", other_floor),
    ("an update lands on the row that was found", update_lands),
    ("an update of an older revision is refused", older_revision),
    ("the right revision of another write is refused", other_write),
    ("an update of a key that is not there is refused", update_of_nothing),
    ("a refused write leaves no row, event or output", refused_leaves_nothing),
    ("one of many inserts at once lands", one_winner),
    ("one of many updates at once lands", one_successor),
    ("an update does not ask for the floor", floor_of_an_update),
    ("revisions have no gaps and the row is their fold", fold_of_history),
];

fn insert_once(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let found = lab.load(&key, Ask::Nothing)?;
    same(&found.record, &None, "a new key's row")?;
    let first = fold(&key, &found, &[reserved(1, found.now)])?;
    let second = fold(&key, &found, &[reserved(1, found.now)])?;
    land(store, &first)?;
    refused(store, &second)?;
    lab.holds(&key, &first.next, 1)
}

fn same_insert_again(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let found = lab.load(&key, Ask::Nothing)?;
    let append = fold(&key, &found, &[reserved(1, found.now)])?;
    land(store, &append)?;
    // The second try of one whose answer was lost: only a re-read tells that it landed.
    refused(store, &append)?;
    lab.holds(&key, &append.next, 1)
}

fn other_floor(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let found = lab.load(&key, Ask::Nothing)?;
    let mut append = fold(&key, &found, &[reserved(1, found.now)])?;
    append.attempt_floor += 1;
    refused(store, &append)?;
    same(&lab.load(&key, Ask::Nothing)?.record, &None, "the row")?;
    append.attempt_floor -= 1;
    land(store, &append)
}

fn update_lands(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    lab.put(&key, &[reserved(1, now)])?;
    lab.put(&key, &[began(now)])?;
    let last = lab.put(&key, &[committed()])?;
    lab.holds(&key, &last, 3)
}

fn older_revision(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    lab.put(&key, &[reserved(1, now)])?;
    let old = lab.load(&key, Ask::Nothing)?;
    let newest = lab.put(&key, &[began(now)])?;
    refused(store, &fold(&key, &old, &[committed()])?)?;
    lab.holds(&key, &newest, 2)
}

/// A restored store, or a key that was forgotten and reserved anew, can stand at the revision that
/// was looked at and be another row all the same (ABA).
fn other_write(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    let stands = lab.put(&key, &[reserved(1, now)])?;
    let mut looked_at = lab.load(&key, Ask::Nothing)?;
    let other = WriteId(draw()?);
    if let Some(record) = &mut looked_at.record {
        record.write_id = other;
    }
    refused(store, &fold(&key, &looked_at, &[began(now)])?)?;
    lab.holds(&key, &stands, 1)
}

fn update_of_nothing(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let (key, gone) = (lab.key("k")?, lab.key("gone")?);
    let now = lab.load(&key, Ask::Nothing)?.now;
    lab.put(&key, &[reserved(1, now)])?;
    let mut found = lab.load(&key, Ask::Nothing)?;
    if let Some(record) = &mut found.record {
        record.key = gone.clone();
    }
    refused(store, &fold(&gone, &found, &[began(now)])?)?;
    same(&lab.load(&gone, Ask::Nothing)?.record, &None, "the row")?;
    same(&lab.history(&gone)?, &Vec::new(), "the history")
}

fn refused_leaves_nothing(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let found = lab.load(&key, Ask::Nothing)?;
    let first = lab.put(&key, &[reserved(1, found.now)])?;
    let mut late = fold(&key, &found, &[reserved(7, found.now), began(found.now)])?;
    late.outputs.push(Kept {
        attempt: 7,
        stream: Stream::Stdout,
        captured: Captured { head: b"lost".to_vec(), ..Captured::default() },
    });
    refused(store, &late)?;
    same(&lab.output(&key, 7, Stream::Stdout)?, &None, "the output")?;
    lab.holds(&key, &first, 1)
}

const CONTENDERS: usize = 8;

fn one_winner(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let found = lab.load(&key, Ask::Nothing)?;
    let appends = (0..CONTENDERS)
        .map(|_| fold(&key, &found, &[reserved(1, found.now)]))
        .collect::<Result<Vec<_>, _>>()?;
    one_of(&lab, appends, 1)
}

fn one_successor(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    lab.put(&key, &[reserved(1, now)])?;
    let found = lab.load(&key, Ask::Nothing)?;
    let appends = (0..CONTENDERS)
        .map(|_| fold(&key, &found, &[began(now)]))
        .collect::<Result<Vec<_>, _>>()?;
    one_of(&lab, appends, 2)
}

fn one_of(lab: &Lab<'_>, appends: Vec<crate::store::Append>, events: usize) -> Result<(), String> {
    let ends: Vec<End> = thread::scope(|scope| {
        let tries: Vec<_> =
            appends.iter().map(|append| scope.spawn(|| lab.store.append(append, WITHIN))).collect();
        tries.into_iter().filter_map(|each| each.join().ok()).collect()
    });
    let landed: Vec<_> =
        appends.iter().zip(&ends).filter(|(_, end)| **end == End::Landed).collect();
    let refusals = ends.iter().filter(|end| **end == End::Refused).count();
    same(&(landed.len(), refusals), &(1, CONTENDERS - 1), "landed and refused")?;
    let (winner, _) = landed[0];
    lab.holds(&winner.next.key, &winner.next, events)
}

fn floor_of_an_update(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    lab.put(&key, &[reserved(1, now)])?;
    let found = lab.load(&key, Ask::Nothing)?;
    let mut append = fold(&key, &found, &[began(now)])?;
    append.attempt_floor += 9;
    land(store, &append)
}

fn fold_of_history(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    lab.put(&key, &[reserved(1, now), began(now), renewed(now)])?;
    lab.put(&key, &[renewed(now)])?;
    let last = lab.put(&key, &[renewed(now), committed()])?;
    same(&last.revision, &6, "the revision")?;
    let history = lab.history(&key)?;
    let revisions: Vec<u64> = history.iter().map(|row| row.revision).collect();
    same(&revisions, &vec![1, 2, 3, 4, 5, 6], "the revisions")?;
    let mut record = None;
    for row in &history as &[HistoryRow] {
        record = Some(evolve(&key, record, row).map_err(|error| error.to_string())?);
    }
    same(&record, &Some(last.clone()), "the fold")?;
    lab.holds(&key, &last, 6)
}
