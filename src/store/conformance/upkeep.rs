//! Walking over all of a store, counting it, and letting go of what is old (OPS clauses).
use super::{
    Check, Flow, Lab, WITHIN, ambiguated, began, committed, failed, fold, land, refused, renewed,
    reserved, same,
};
use crate::plan::effect::{Cause, FailedBy, Record};
use crate::plan::key::Key;
use crate::plan::protocol::{Captured, Kept};
use crate::store::upkeep::{AsRead, Gone};
use crate::store::{Ask, Cut, Filter, Pruned, Store, Stream, Walked, Whole};
use std::time::Duration;

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a walk hands over each record with its whole history", walk_is_whole),
    ("a walk goes on over pages and long histories", walk_over_pages),
    ("a walk is restricted by state, prefix and age", walk_filters),
    ("what is pruned by the row as read is gone whole", forgotten_whole),
    ("a row that has moved stays whole", moved_stays),
    ("dropped output leaves its size and all else", output_dropped),
    ("forgetting raises the floor, and an older insert is refused", floor_rises),
    ("counting finds every state, live and lapsed", counted),
];

fn walked(lab: &Lab<'_>, filter: &Filter) -> Result<Vec<Whole>, String> {
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    let mut each = |walked| {
        match walked {
            Walked::Effect(whole) => all.push(*whole),
            Walked::Unreadable { key, why } => wrong.push(format!("{key}: {why}")),
        }
        Flow::Continue
    };
    lab.store.walk(filter, &mut each, WITHIN).map_err(|error| format!("walk: {error}"))?;
    same(&wrong, &Vec::new(), "what cannot be read")?;
    Ok(all)
}

fn ours(lab: &Lab<'_>) -> Filter {
    Filter { prefix: Some(lab.prefix.clone()), ..Filter::default() }
}

fn as_read(record: &Record) -> AsRead {
    AsRead {
        key: record.key.clone(),
        revision: record.revision,
        write_id: record.write_id,
        attempt: record.attempt,
    }
}

fn prune(lab: &Lab<'_>, cut: &Cut) -> Result<Gone, String> {
    match lab.store.prune(cut, WITHIN) {
        Pruned::Done(gone) => Ok(gone),
        Pruned::NotCommitted(error) | Pruned::Unknown(error) => Err(format!("prune: {error}")),
    }
}

fn forget(lab: &Lab<'_>, rows: &[&Record]) -> Result<Gone, String> {
    let effects = rows.iter().map(|record| as_read(record)).collect();
    prune(lab, &Cut { outputs: Vec::new(), effects })
}

/// A whole attempt that happened and wrote something.
fn settled(lab: &Lab<'_>, key: &Key) -> Result<Record, String> {
    let now = lab.load(key, Ask::Nothing)?.now;
    let captured =
        Captured { head: b"he".to_vec(), tail: b"tail".to_vec(), bytes: 99, whole: false };
    let kept = |stream| Kept { attempt: 1, stream, captured: captured.clone() };
    let outputs = vec![kept(Stream::Stdout), kept(Stream::Stderr), kept(Stream::Stated)];
    lab.put_with(key, &[reserved(1, now), began(now), committed()], outputs)
}

fn walk_is_whole(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let (one, two, bare) = (lab.key("one")?, lab.key("two")?, lab.key("three")?);
    let now = lab.load(&one, Ask::Nothing)?.now;
    let first = settled(&lab, &one)?;
    let second = lab.put(&two, &[reserved(1, now), began(now), renewed(now), renewed(now)])?;
    let third = lab.put(&bare, &[reserved(1, now)])?;
    let all = walked(&lab, &ours(&lab))?;
    let found: Vec<_> = all.iter().map(|whole| (&whole.record, whole.kept)).collect();
    same(&found, &vec![(&first, 18), (&third, 0), (&second, 0)], "the records")?;
    for whole in &all {
        same(&whole.history, &lab.history(&whole.record.key)?, "the history")?;
    }
    same(&(all[0].now >= now), &true, "the clock goes on")
}

fn walk_over_pages(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let now = lab.load(&lab.key("now")?, Ask::Nothing)?.now;
    // More keys than a page has, and among them a history longer than a page may be.
    let mut wanted = Vec::new();
    for number in 0..150 {
        let key = lab.key(&format!("{number:03}"))?;
        let renewals = if number == 70 { 4_500 } else { 0 };
        let mut events = vec![reserved(1, now), began(now)];
        events.extend((0..renewals).map(|_| renewed(now)));
        for some in events.chunks(900) {
            lab.put(&key, some)?;
        }
        wanted.push((key, events.len()));
    }
    let all = walked(&lab, &ours(&lab))?;
    let found: Vec<_> =
        all.iter().map(|whole| (whole.record.key.clone(), whole.history.len())).collect();
    same(&found, &wanted, "keys and events")?;
    let mut first = 0;
    let mut each = |_| {
        first += 1;
        if first == 3 { Flow::Stop } else { Flow::Continue }
    };
    store.walk(&ours(&lab), &mut each, WITHIN).map_err(|error| format!("walk: {error}"))?;
    same(&first, &3, "records before it was told to stop")
}

fn walk_filters(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let (did, running) = (lab.key("did")?, lab.key("running")?);
    settled(&lab, &did)?;
    let now = lab.load(&running, Ask::Nothing)?.now;
    lab.put(&running, &[reserved(1, now)])?;
    let keys = |filter: &Filter| -> Result<Vec<Key>, String> {
        Ok(walked(&lab, filter)?.into_iter().map(|whole| whole.record.key).collect())
    };
    let states = vec!["committed".to_owned(), "failed".to_owned()];
    same(&keys(&Filter { states, ..ours(&lab) })?, &vec![did.clone()], "by state")?;
    let after = Filter { after: Some(did), ..ours(&lab) };
    same(&keys(&after)?, &vec![running.clone()], "after a key")?;
    let there_for = Some(Duration::from_secs(3_600));
    same(&keys(&Filter { there_for, ..ours(&lab) })?, &Vec::new(), "by age")?;
    let prefix = Some(running.as_str().to_owned());
    same(&keys(&Filter { prefix, ..Filter::default() })?, &vec![running], "by prefix")
}

fn nothing_left(lab: &Lab<'_>, key: &Key) -> Result<(), String> {
    same(&lab.load(key, Ask::Nothing)?.record, &None, "the row")?;
    same(&lab.history(key)?, &Vec::new(), "the history")?;
    for stream in [Stream::Stdout, Stream::Stderr, Stream::Stated] {
        same(&lab.output(key, 1, stream)?, &None, "the output")?;
    }
    Ok(())
}

fn forgotten_whole(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let (gone, other, stays) = (lab.key("gone")?, lab.key("gone2")?, lab.key("stays")?);
    let (first, second) = (settled(&lab, &gone)?, settled(&lab, &other)?);
    let kept = settled(&lab, &stays)?;
    let went = forget(&lab, &[&first, &second])?;
    same(&went, &Gone { outputs: 0, effects: 2 }, "what went")?;
    nothing_left(&lab, &gone)?;
    nothing_left(&lab, &other)?;
    lab.holds(&stays, &kept, 3)?;
    let output = lab.output(&stays, 1, Stream::Stdout)?.map(|captured| captured.bytes);
    same(&output, &Some(99), "what stays keeps its output")?;
    // Asked for again it is nothing, and no error.
    same(&forget(&lab, &[&first])?, &Gone::default(), "a second time")
}

fn moved_stays(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let (key, never, other) = (lab.key("k")?, lab.key("never")?, lab.key("other")?);
    let old = settled(&lab, &key)?;
    let goes = settled(&lab, &other)?;
    let moved = lab.put(&key, &[failed(FailedBy::OwnWord)])?;
    let mut stranger = moved.clone();
    stranger.write_id = old.write_id;
    let mut absent = old.clone();
    absent.key = never;
    let went = forget(&lab, &[&old, &stranger, &absent, &goes])?;
    same(&went, &Gone { outputs: 0, effects: 1 }, "what went")?;
    nothing_left(&lab, &other)?;
    lab.holds(&key, &moved, 4)?;
    let outputs = vec![as_read(&old), as_read(&stranger)];
    same(&prune(&lab, &Cut { outputs, effects: Vec::new() })?, &Gone::default(), "of its output")?;
    let output = lab.output(&key, 1, Stream::Stdout)?.map(|captured| captured.head);
    same(&output, &Some(b"he".to_vec()), "its output")
}

fn output_dropped(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let (key, empty) = (lab.key("k")?, lab.key("empty")?);
    let record = settled(&lab, &key)?;
    let now = lab.load(&empty, Ask::Nothing)?.now;
    let nothing = Captured { whole: true, ..Captured::default() };
    let kept = Kept { attempt: 1, stream: Stream::Stdout, captured: nothing.clone() };
    let silent = lab.put_with(&empty, &[reserved(1, now), began(now), committed()], vec![kept])?;
    let outputs = vec![as_read(&record), as_read(&silent)];
    let went = prune(&lab, &Cut { outputs, effects: Vec::new() })?;
    same(&went, &Gone { outputs: 1, effects: 0 }, "what went")?;
    lab.holds(&key, &record, 3)?;
    let dropped = Captured { bytes: 99, whole: false, ..Captured::default() };
    for stream in [Stream::Stdout, Stream::Stderr, Stream::Stated] {
        same(&lab.output(&key, 1, stream)?, &Some(dropped.clone()), "the output")?;
    }
    same(&lab.output(&empty, 1, Stream::Stdout)?, &Some(nothing), "an output of nothing")?;
    let kept: Vec<u64> = walked(&lab, &ours(&lab))?.iter().map(|whole| whole.kept).collect();
    same(&kept, &vec![0, 0], "bytes that are still stored")
}

fn floor_rises(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let (key, new) = (lab.key("k")?, lab.key("new")?);
    let before = lab.load(&new, Ask::Nothing)?;
    let floor = before.attempt_floor;
    let late = fold(&new, &before, &[reserved(floor + 1, before.now)])?;
    // As the machine numbers it: attempts and revisions above the floor (OPS-5).
    let mut append =
        fold(&key, &before, &[reserved(floor + 1, before.now), began(before.now), committed()])?;
    append.next.revision += floor;
    for row in &mut append.history {
        row.revision += floor;
    }
    land(store, &append)?;
    same(&forget(&lab, &[&append.next])?.effects, &1, "what went")?;
    let after = lab.load(&new, Ask::Nothing)?;
    same(&after.attempt_floor, &(floor + 3), "the floor")?;
    refused(store, &late)?;
    same(&lab.load(&new, Ask::Nothing)?.record, &None, "the row of an insert that was too late")?;
    land(store, &fold(&new, &after, &[reserved(floor + 4, after.now)])?)
}

fn counted(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let stats = || store.stats(WITHIN).map_err(|error| format!("stats: {error}"));
    let before = stats()?;
    let now = lab.load(&lab.key("now")?, Ask::Nothing)?.now;
    let later = now.plus(Duration::from_secs(3_600));
    let put = |name: &str, events: &[crate::plan::effect::Event]| {
        lab.key(name).and_then(|key| lab.put(&key, events))
    };
    put("reserved", &[reserved(1, later)])?;
    put("lapsed", &[reserved(1, now)])?;
    put("executing", &[reserved(1, later), began(later)])?;
    put("gone", &[reserved(1, later), began(now)])?;
    put("did", &[reserved(1, now), began(now), committed()])?;
    put("did not", &[reserved(1, now), began(now), failed(FailedBy::OwnWord)])?;
    let last = put("doubt", &[reserved(1, now), began(now), ambiguated(Cause::Exit)])?;
    let after = stats()?;
    let count = |stats: &crate::store::Stats, state: &str, lapsed: bool| -> u64 {
        let of = |one: &&crate::store::upkeep::Count| one.state == state && one.lapsed == lapsed;
        stats.counts.iter().filter(of).map(|one| one.effects).sum()
    };
    for (state, lapsed) in [
        ("reserved", false),
        ("reserved", true),
        ("executing", false),
        ("executing", true),
        ("committed", false),
        ("failed", false),
        ("ambiguous", false),
    ] {
        let more = count(&after, state, lapsed) - count(&before, state, lapsed);
        same(&(state, lapsed, more), &(state, lapsed, 1), "one more of each")?;
    }
    same(&(after.effects() - before.effects()), &7, "all")?;
    let newest = after.newest().ok_or("no newest record")?;
    same(&(newest >= last.updated_at), &true, "the newest")?;
    same(&(after.bytes > 0), &true, "its size")?;
    same(&after.oldest_stuck().is_some(), &true, "something is stuck")
}
