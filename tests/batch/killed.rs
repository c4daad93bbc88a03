//! SIGKILL at random points of a batch, and the same line again.
use std::os::unix::process::ExitStatusExt;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::at::{Kind, Place, on_every_store, until};
use crate::common::finish;
use crate::{batch, file, marking, marks, summary};

on_every_store!(
    killed_at_twenty_random_points_and_resumed_no_effect_comes_about_twice,
    no_child_starts_before_its_own_begin_is_durable,
);

const LINES: usize = 1_000;
const KILLS: usize = 20;

/// Short, so that what a kill leaves has lapsed soon; renewed as long as a command runs.
const FLAGS: [&str; 6] = ["-j8", "--lease", "3s", "--output", "none", "--json"];

fn killed_at_twenty_random_points_and_resumed_no_effect_comes_about_twice(kind: Kind) {
    // BAT-9, BAT-14, EXE-1
    let seed = seed();
    println!("seed {seed} (CTRLRUN_TEST_SEED)");
    let at = Place::new(kind);
    let file = file(&at, &marking(LINES));
    let mut random = seed;
    let mut points: Vec<usize> = (0..KILLS).map(|_| next(&mut random) % (LINES - 50)).collect();
    points.sort_unstable();
    let mut kills = 0;
    for point in points {
        let mut running = at.start(&mut batch(&at, &file, &FLAGS));
        until("so many have run, or it has ended", || at.marks() >= point || running.ended());
        if !running.ended() {
            // Somewhere in the next few writes.
            for _ in 0..next(&mut random) % 50_000 {
                std::hint::spin_loop();
            }
            // Unless it has ended by itself meanwhile.
            running.signal(Signal::SIGKILL);
            kills += usize::from(running.wait().signal() == Some(9));
        }
    }
    assert!(kills >= KILLS / 2, "seed {seed}: it was killed {kills} times");
    // What the kills have left lapses, and is met by a contender.
    let mut told = Value::Null;
    until("nothing is held any more", || {
        told = summary(&finish(&mut batch(&at, &file, &FLAGS)));
        told["in_progress"] == 0
    });
    assert_eq!(told["not_started"], 0);
    let stuck = stuck(&at);
    println!("{} of {LINES} are AMBIGUOUS after {kills} kills", stuck.len());
    assert_eq!(told["ambiguous"], stuck.len(), "{told}");
    let marks = marks(&at);
    for number in 0..LINES {
        let key = format!("k:{number}");
        let came = marks.get(&key).copied().unwrap_or(0);
        match stuck.contains(&key) {
            true => assert!(came <= 1, "seed {seed}: {key} is AMBIGUOUS and came {came} times"),
            false => assert_eq!(came, 1, "seed {seed}: {key} is COMMITTED"),
        }
    }
    // No more than what can be under way at once: running, and ahead of that (BAT-10).
    assert!(stuck.len() <= kills * 2 * 8, "seed {seed}: {}", stuck.len());
}

fn stuck(at: &Place) -> Vec<String> {
    let listed = at.ask(&["effects", "--stuck", "--json"]);
    let key = |line: &str| {
        let shown: Value = serde_json::from_str(line).unwrap();
        assert_eq!(shown["state"], "ambiguous", "{shown}");
        shown["key"].as_str().unwrap().to_owned()
    };
    listed.stdout.lines().map(key).collect()
}

fn seed() -> u64 {
    if let Ok(seed) = std::env::var("CTRLRUN_TEST_SEED") {
        return seed.parse().unwrap();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::from(now.subsec_nanos()) | 1
}

/// xorshift64
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 33).unwrap()
}

fn no_child_starts_before_its_own_begin_is_durable(kind: Kind) {
    // BAT-9, EXE-1, STO-12
    for (point, state) in [("before-begin", "reserved"), ("after-begin", "executing")] {
        let at = Place::scratch(kind);
        let file = file(&at, &marking(3));
        let mut command = batch(&at, &file, &["-j1"]);
        let running = at.start(command.env("CTRLRUN_STOP_AT", point));
        running.stopped();
        // It is killed, so what is seen afterwards is what was durable then.
        running.kill();
        assert_eq!((at.state("k:0").as_str(), at.marks()), (state, 0), "{point}");
    }
}
