//! The worlds, and what is said of them.
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::explore::{Walked, walk};
use crate::tally;
use crate::world::Bounds;
use crate::worlds;

fn show(bounds: &Bounds, walked: &Walked) {
    let Walked { states, steps, depth, took, parts, .. } = walked;
    println!(
        "{}: {states} states, {steps} steps, depth {depth}, {took:.1?} (parts {parts:?})",
        bounds.name
    );
    if let Some((what, trace)) = &walked.counterexample {
        println!("{}: {what}\n{}", bounds.name, trace.join("\n"));
    }
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

/// All of them hold, and together they reach everything.
fn hold(worlds: &[Bounds]) {
    let started = Instant::now();
    let walked = walk_all(worlds);
    for one in &walked {
        if let Some((what, trace)) = &one.counterexample {
            panic!("{what}, after {} steps", trace.len());
        }
    }
    let states: usize = walked.iter().map(|one| one.states).sum();
    println!("{states} states in all, {:.1?}", started.elapsed());
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
    let only = std::env::var("ONLY").unwrap_or_default();
    let worlds: Vec<_> = worlds::two().into_iter().filter(|w| w.name.contains(&only)).collect();
    hold(&worlds);
}
