//! Many writes and reads together: each as if it were alone (BAT-1 to BAT-4).
use std::thread;

use super::{Check, Lab, WITHIN, began, committed, fold, land, renewed, reserved, same};
use crate::plan::key::Key;
use crate::plan::protocol::{Captured, CouldNot, Found, Kept};
use crate::store::{Append, Ask, End, Store, Stream};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a group lands whole, in any order it is given", whole_group),
    ("of a group each is refused or lands by itself", each_by_itself),
    ("a group that is refused whole leaves nothing", all_refused),
    ("of two writes to a key in a group the first alone is tried", one_a_key),
    ("a statement that fails takes the group apart and stops only its own", taken_apart),
    ("outputs land with their own write of a group", outputs_of_a_group),
    ("one of many groups at once wins each key", one_winner_a_key),
    ("a group of none and a group of one are answered", small_groups),
    ("many loads are answered in the order they were asked", loads_in_order),
    ("many re-reads bring the event of the revision asked for", rereads_with_events),
];

/// The append that reserves each of so many new keys.
fn reserves(lab: &Lab<'_>, many: usize) -> Result<Vec<Append>, String> {
    let keys: Result<Vec<Key>, String> = (0..many).map(|i| lab.key(&format!("k{i:03}"))).collect();
    keys?
        .iter()
        .map(|key| {
            let found = lab.load(key, Ask::Nothing)?;
            fold(key, &found, &[reserved(1, found.now)])
        })
        .collect()
}

fn all(lab: &Lab<'_>, appends: &[&Append]) -> Vec<End> {
    lab.store.append_many(appends, WITHIN)
}

fn ends(lab: &Lab<'_>, appends: &[&Append], wanted: &[End]) -> Result<(), String> {
    same(&all(lab, appends), &wanted.to_vec(), "the ends")
}

fn whole_group(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let appends = reserves(&lab, 40)?;
    let given: Vec<&Append> = appends.iter().rev().collect();
    ends(&lab, &given, &vec![End::Landed; 40])?;
    for append in &appends {
        lab.holds(&append.next.key, &append.next, 1)?;
    }
    let next: Result<Vec<Append>, String> = appends
        .iter()
        .map(|append| {
            let found = lab.load(&append.next.key, Ask::Nothing)?;
            fold(&append.next.key, &found, &[began(found.now), renewed(found.now)])
        })
        .collect();
    let next = next?;
    ends(&lab, &next.iter().collect::<Vec<_>>(), &vec![End::Landed; 40])?;
    for append in &next {
        lab.holds(&append.next.key, &append.next, 3)?;
    }
    Ok(())
}

fn each_by_itself(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let appends = reserves(&lab, 6)?;
    let [new, taken, stale, moves, floor, last] = appends.as_slice() else {
        return Err("six".to_owned());
    };
    for append in [taken, stale, moves] {
        land(store, append)?;
    }
    let on = |append: &Append| -> Result<Append, String> {
        let found = lab.load(&append.next.key, Ask::Nothing)?;
        fold(&append.next.key, &found, &[began(found.now)])
    };
    let (moved, outdated) = (on(moves)?, on(stale)?);
    let winner = on(stale)?;
    land(store, &winner)?;
    let mut floor = floor.clone();
    floor.attempt_floor += 1;
    ends(
        &lab,
        &[&outdated, new, taken, &moved, &floor, last],
        &[End::Refused, End::Landed, End::Refused, End::Landed, End::Refused, End::Landed],
    )?;
    lab.holds(&new.next.key, &new.next, 1)?;
    lab.holds(&taken.next.key, &taken.next, 1)?;
    lab.holds(&stale.next.key, &winner.next, 2)?;
    lab.holds(&moves.next.key, &moved.next, 2)?;
    lab.holds(&last.next.key, &last.next, 1)?;
    same(&lab.load(&floor.next.key, Ask::Nothing)?.record, &None, "a refused row")
}

fn all_refused(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let appends = reserves(&lab, 3)?;
    let others = reserves(&lab, 3)?;
    let (given, other): (Vec<&Append>, Vec<&Append>) =
        (appends.iter().collect(), others.iter().collect());
    ends(&lab, &given, &vec![End::Landed; 3])?;
    ends(&lab, &other, &vec![End::Refused; 3])?;
    // The second try of a group whose answer was lost.
    ends(&lab, &given, &vec![End::Refused; 3])?;
    appends.iter().try_for_each(|append| lab.holds(&append.next.key, &append.next, 1))
}

fn one_a_key(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let (first, second) = (reserves(&lab, 2)?, reserves(&lab, 2)?);
    let given = [&first[0], &second[0], &first[1]];
    let ends = all(&lab, &given);
    same(&ends[0], &End::Landed, "the first")?;
    same(&matches!(ends[1], End::NotCommitted(_)), &true, "the second was not tried")?;
    same(&ends[2], &End::Landed, "another key")?;
    lab.holds(&first[0].next.key, &first[0].next, 1)
}

fn taken_apart(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let appends = reserves(&lab, 4)?;
    land(store, &appends[1])?;
    let key = &appends[1].next.key;
    let found = lab.load(key, Ask::Nothing)?;
    // Its event is at a revision that is taken: the statement fails.
    let mut broken = fold(key, &found, &[began(found.now)])?;
    broken.history[0].revision = 1;
    let given = [&appends[0], &broken, &appends[2], &appends[3]];
    let ends = all(&lab, &given);
    for at in [0, 2, 3] {
        same(&ends[at], &End::Landed, "a good one")?;
        lab.holds(&given[at].next.key, &given[at].next, 1)?;
    }
    same(&matches!(ends[1], End::NotCommitted(_)), &true, "the broken one is not committed")?;
    lab.holds(key, &appends[1].next, 1)
}

fn outputs_of_a_group(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let kept = |text: &str| Kept {
        attempt: 1,
        stream: Stream::Stdout,
        captured: Captured {
            head: text.as_bytes().to_vec(),
            tail: vec![0, 0xff],
            bytes: 99,
            whole: false,
        },
    };
    let mut appends = reserves(&lab, 4)?;
    land(store, &appends[3])?;
    for (at, append) in appends.iter_mut().enumerate().skip(1) {
        append.outputs = vec![kept(&at.to_string())];
    }
    let given: Vec<&Append> = appends.iter().collect();
    ends(&lab, &given, &[End::Landed, End::Landed, End::Landed, End::Refused])?;
    let output = |at: usize| lab.output(&appends[at].next.key, 1, Stream::Stdout);
    same(&output(0)?, &None, "one without output")?;
    same(&output(1)?, &Some(kept("1").captured), "an output")?;
    same(&output(2)?, &Some(kept("2").captured), "another")?;
    same(&output(3)?, &None, "that of a refused one")
}

fn one_winner_a_key(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let groups: Result<Vec<Vec<Append>>, String> = (0..4).map(|_| reserves(&lab, 25)).collect();
    let groups = groups?;
    let ends: Vec<Vec<End>> = thread::scope(|scope| {
        let threads: Vec<_> = groups
            .iter()
            .map(|group| scope.spawn(|| all(&lab, &group.iter().collect::<Vec<_>>())))
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    same(&ends.len(), &4, "groups that ended")?;
    for at in 0..25 {
        let winners: Vec<usize> = (0..4).filter(|group| ends[*group][at] == End::Landed).collect();
        let [winner] = winners.as_slice() else {
            return Err(format!(
                "key {at} has winners {winners:?}: {:?}",
                ends.iter().map(|e| &e[at]).collect::<Vec<_>>()
            ));
        };
        let append = &groups[*winner][at];
        lab.holds(&append.next.key, &append.next, 1)?;
    }
    Ok(())
}

fn small_groups(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    ends(&lab, &[], &[])?;
    same(&store.load_many(&[], WITHIN).len(), &0, "no loads")?;
    same(&store.reread_many(&[], WITHIN).len(), &0, "no re-reads")?;
    let appends = reserves(&lab, 1)?;
    ends(&lab, &[&appends[0]], &[End::Landed])?;
    let key = &appends[0].next.key;
    let found = answered(store.load_many(&[(key, Ask::Nothing)], WITHIN))?;
    same(&found[0].record, &Some(appends[0].next.clone()), "the row")
}

fn answered(answers: Vec<Result<Found, CouldNot>>) -> Result<Vec<Found>, String> {
    answers.into_iter().map(|answer| answer.map_err(|error| error.to_string())).collect()
}

fn loads_in_order(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let appends = reserves(&lab, 5)?;
    for at in [4, 0, 2] {
        land(store, &appends[at])?;
    }
    // One key twice, and some that are not there.
    let asked: Vec<(&Key, Ask)> =
        [3, 4, 0, 4, 1, 2].map(|at| (&appends[at].next.key, Ask::Nothing)).to_vec();
    let found = answered(store.load_many(&asked, WITHIN))?;
    let records: Vec<_> = found.iter().map(|found| found.record.clone()).collect();
    let row = |at: usize| Some(appends[at].next.clone());
    same(&records, &vec![None, row(4), row(0), row(4), None, row(2)], "the rows")?;
    let alone = lab.load(&appends[0].next.key, Ask::Nothing)?;
    same(&found[0].attempt_floor, &alone.attempt_floor, "the floor")?;
    same(&(found[0].now <= alone.now), &true, "the clock")?;
    // Something that is not asked for in one query.
    let mixed = [(&appends[0].next.key, Ask::Last), (&appends[3].next.key, Ask::Nothing)];
    let found = answered(store.load_many(&mixed, WITHIN))?;
    same(&found[0].event.as_ref().map(|row| row.revision), &Some(1), "the newest event")?;
    same(&found[1].record, &None, "nothing")
}

fn rereads_with_events(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let appends = reserves(&lab, 3)?;
    land(store, &appends[0])?;
    let last = lab.put(&appends[1].next.key, &[reserved(1, crate::plan::time::Timestamp(1))])?;
    let last = lab.put(&last.key, &[began(last.updated_at), committed()])?;
    let asked = [
        (&appends[1].next.key, Ask::Revision(2)),
        (&appends[2].next.key, Ask::Revision(1)),
        (&appends[0].next.key, Ask::Revision(1)),
        (&appends[0].next.key, Ask::Revision(9)),
        (&appends[1].next.key, Ask::Nothing),
    ];
    let found = answered(store.reread_many(&asked, WITHIN))?;
    let events: Vec<_> =
        found.iter().map(|found| found.event.as_ref().map(|event| event.event.kind())).collect();
    let wanted = vec![Some("began"), None, Some("reserved"), None, None];
    same(&events, &wanted, "the events")?;
    same(&found[0].record, &Some(last), "the row")?;
    same(&found[1].record, &None, "no row")
}
