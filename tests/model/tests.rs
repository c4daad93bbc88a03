//! The worlds, and what is said of them.
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::explore::{Walked, walk};
use crate::tally;
use crate::verify::broken::Break;
use crate::world::Bounds;
use crate::worlds;

fn show(bounds: &Bounds, walked: &Walked) {
    let Walked { states, steps, depth, took, parts, .. } = walked;
    let about = bounds.breaks.map_or(bounds.name, |how| how.about().1);
    let mut lines = format!(
        "{about}: {states} states, {steps} steps, depth {depth}, {took:.1?} (parts {parts:?})"
    );
    if let Some((what, trace)) = &walked.counterexample {
        lines = format!("{lines}\n{}\n=> {what}", trace.join("\n"));
    }
    // At once, since worlds are walked side by side.
    println!("{lines}");
}

/// Walks through all of them, two at a time.
fn walk_all(worlds: &[Bounds]) -> Vec<Walked> {
    let (next, walked) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(bounds) = worlds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let one = walk(bounds);
                    show(bounds, &one);
                    walked.lock().unwrap().push(one);
                }
            });
        }
    });
    walked.into_inner().unwrap()
}

/// All of them hold.
fn hold(worlds: &[Bounds]) -> Vec<Walked> {
    let started = Instant::now();
    let walked = walk_all(worlds);
    for one in &walked {
        if let Some((what, trace)) = &one.counterexample {
            panic!("{what}, after {} steps", trace.len());
        }
    }
    let states: usize = walked.iter().map(|one| one.states).sum();
    println!("{states} states in all, {:.1?}", started.elapsed());
    walked
}

/// A world in which a thing cannot come about says nothing of it.
fn reach_everything(walked: &[Walked]) {
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    for (what, times) in walked.iter().flat_map(|one| &one.tally) {
        *reached.entry(what).or_default() += times;
    }
    let missed: Vec<_> = tally::ALL.iter().filter(|what| !reached.contains_key(*what)).collect();
    assert!(missed.is_empty(), "never reached: {missed:#?}\nreached: {reached:#?}");
}

#[test]
fn two_processes_in_every_order() {
    // PRF-1, PRF-2, PRF-3
    reach_everything(&hold(&worlds::two()));
}

#[test]
fn every_store_that_is_broken_on_purpose_has_a_counterexample() {
    // PRF-4
    let of_effects = Break::ALL.into_iter().filter(|how| *how != Break::DispatchIgnored);
    let worlds: Vec<_> = of_effects.map(worlds::broken).collect();
    let missed: Vec<_> = walk_all(&worlds)
        .into_iter()
        .filter(|one| one.counterexample.is_none())
        .map(|one| one.breaks)
        .collect();
    assert!(missed.is_empty(), "no counterexample: {missed:?}");
}

#[test]
fn three_processes_in_every_order() {
    // PRF-1, PRF-2
    if std::env::var_os("CTRLRUN_LONG").is_none() {
        println!("not run: the long suite is asked for by CTRLRUN_LONG=1");
        return;
    }
    hold(&worlds::long());
}
