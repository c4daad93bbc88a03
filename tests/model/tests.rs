//! The worlds.
use crate::explore::{Walked, walk};
use crate::shelf::How;
use crate::world::{Asked, Bounds, THIRD, WHOLE, Word};

const BASE: Bounds = Bounds {
    name: "base",
    processes: 2,
    keys: 1,
    runs: 1,
    faults: 1,
    crashes: 1,
    leaps: 1,
    leap: &[WHOLE],
    decisions: 1,
    probes: 0,
    forgets: 0,
    hows: &[How::Fails, How::LandsUnseen, How::Lost, How::LandsLater],
    asks: &[Asked::Plain],
    words: &[Word::Committed, Word::Failed, Word::DoubtLeft],
    unstartable: false,
    spool_fails: false,
    one_host: false,
    breaks: None,
};

fn show(bounds: &Bounds, walked: &Walked) {
    println!(
        "{}: {} states, {} steps, depth {}, {:.1?}",
        bounds.name, walked.states, walked.steps, walked.depth, walked.took
    );
    if let Some((what, trace)) = &walked.counterexample {
        println!("{}\n=> {what}", trace.join("\n"));
    }
}

#[test]
fn base() {
    let walked = walk(&BASE);
    show(&BASE, &walked);
    assert!(walked.counterexample.is_none());
    let _ = THIRD;
}
