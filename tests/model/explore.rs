//! Walks through all states, breadth first: the first counterexample is a shortest one.
//!
//! A state is kept as the numbers of its parts, and each part once. Nothing is told apart by a hash
//! alone, so no state is taken for another that was seen.
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acts::Act;
use crate::shelf::Rows;
use crate::step::{Taking, Tally, Violation};
use crate::verify::broken::Break;
use crate::world::{Bounds, Part, Process, Rest, World, Writing};

/// What came of a walk.
#[derive(Debug, Clone)]
pub struct Walked {
    pub breaks: Option<Break>,
    pub states: usize,
    pub steps: u64,
    pub depth: u32,
    pub took: Duration,
    pub tally: Tally,
    /// Of how many parts the states are made: rows, processes, what is at the desk, the rest.
    pub parts: [usize; 4],
    /// What must not be, and how it came to it.
    pub counterexample: Option<(Violation, Vec<String>)>,
}

/// Keys, processes, the desk, the rest.
type Packed = [u32; 7];

/// Walks through every state that `bounds` lets come about, or up to the first that must not be.
pub fn walk(bounds: &Bounds) -> Walked {
    let started = Instant::now();
    let mut walker = Walker {
        bounds,
        parts: Parts::default(),
        states: Vec::new(),
        from: Vec::new(),
        seen: HashMap::default(),
        tally: Tally::new(),
        met: HashSet::new(),
    };
    let first = walker.parts.pack(World::fresh(bounds));
    walker.add(first, (0, 0));
    let (mut steps, mut depth, mut level) = (0, 0, 1);
    let mut counterexample = None;
    let (mut at, mut acts) = (0, Vec::new());
    'all: while at < walker.states.len() {
        if at == level {
            depth += 1;
            level = walker.states.len();
        }
        let world = walker.parts.unpack(&walker.states[at], bounds);
        world.enabled(bounds, &mut acts);
        for (number, act) in acts.iter().enumerate() {
            steps += 1;
            let mut taking = Taking {
                world: world.clone(),
                bounds,
                tally: &mut walker.tally,
                met: &mut walker.met,
                told: None,
            };
            if let Err(violation) = taking.take(*act) {
                let trace = walker.trace(at, *act);
                counterexample = Some((violation, trace));
                break 'all;
            }
            let next = walker.parts.pack(taking.world);
            walker.add(next, (at, number));
        }
        at += 1;
    }
    Walked {
        breaks: bounds.breaks,
        states: walker.states.len(),
        steps,
        depth,
        took: started.elapsed(),
        tally: walker.tally,
        counterexample,
        parts: walker.parts.sizes(),
    }
}

struct Walker<'a> {
    bounds: &'a Bounds,
    parts: Parts,
    states: Vec<Packed>,
    /// Of each state the one from which it was reached first, and by which of its acts.
    from: Vec<(u32, u16)>,
    seen: HashMap<Packed, (), Quick>,
    tally: Tally,
    met: HashSet<Rows>,
}

impl Walker<'_> {
    fn add(&mut self, state: Packed, (from, act): (usize, usize)) {
        if self.seen.insert(state, ()).is_none() {
            self.states.push(state);
            self.from.push((narrow(from), u16::try_from(act).unwrap_or(u16::MAX)));
        }
    }

    /// How it came to `last` in the state `at`.
    fn trace(&mut self, at: usize, last: Act) -> Vec<String> {
        let mut way = Vec::new();
        let mut back = at;
        while back != 0 {
            let (from, act) = self.from[back];
            way.push(act);
            back = from as usize;
        }
        way.reverse();
        let mut world = World::fresh(self.bounds);
        let (mut lines, mut acts) = (Vec::new(), Vec::new());
        for act in way {
            world.enabled(self.bounds, &mut acts);
            world = self.retell(world, acts[usize::from(act)], &mut lines);
        }
        self.retell(world, last, &mut lines);
        lines
    }

    fn retell(&mut self, world: World, act: Act, lines: &mut Vec<String>) -> World {
        let mut taking = Taking {
            world,
            bounds: self.bounds,
            tally: &mut Tally::new(),
            met: &mut self.met,
            told: Some(Vec::new()),
        };
        let _ = taking.take(act);
        let told = taking.told.take().unwrap_or_default();
        lines.push(format!(
            "{:2} {act}{}",
            lines.len() + 1,
            told.iter().fold(String::new(), |all, one| format!("{all}; {one}"),)
        ));
        taking.world
    }
}

/// Every part that any state has, once.
#[derive(Default)]
struct Parts {
    rows: Kept<Rows>,
    processes: Kept<Process>,
    desks: Kept<Option<Writing>>,
    rests: Kept<Rest>,
}

impl Parts {
    fn pack(&mut self, world: World) -> Packed {
        let mut packed = [u32::MAX; 7];
        let mut numbers = Vec::with_capacity(7);
        numbers.extend(world.rows.into_iter().map(|part| self.rows.number(part)));
        numbers.extend(world.processes.into_iter().map(|part| self.processes.number(part)));
        numbers.push(self.desks.number(world.desk));
        numbers.push(self.rests.number(world.rest));
        packed[..numbers.len()].copy_from_slice(&numbers);
        packed
    }

    fn sizes(&self) -> [usize; 4] {
        let Self { rows, processes, desks, rests } = self;
        [rows.all.len(), processes.all.len(), desks.all.len(), rests.all.len()]
    }

    fn unpack(&self, packed: &Packed, bounds: &Bounds) -> World {
        let (keys, processes) = (bounds.keys, bounds.processes);
        let behind = keys + processes;
        World {
            rows: packed[..keys].iter().map(|number| self.rows.part(*number)).collect(),
            processes: packed[keys..behind]
                .iter()
                .map(|number| self.processes.part(*number))
                .collect(),
            desk: self.desks.part(packed[behind]),
            rest: self.rests.part(packed[behind + 1]),
        }
    }
}

struct Kept<T> {
    all: Vec<Arc<T>>,
    numbers: HashMap<Arc<T>, u32, Quick>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: HashMap::default() }
    }
}

impl<T: Eq + Hash> Kept<T> {
    fn number(&mut self, part: Part<T>) -> u32 {
        if let Some(number) = part.number {
            return number;
        }
        if let Some(number) = self.numbers.get(&part.at) {
            return *number;
        }
        let number = narrow(self.all.len());
        self.all.push(Arc::clone(&part.at));
        self.numbers.insert(part.at, number);
        number
    }

    fn part(&self, number: u32) -> Part<T> {
        Part { number: Some(number), at: Arc::clone(&self.all[number as usize]) }
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or_else(|_| panic!("too many states for a number"))
}

/// A quick hash of words; what it takes for equal is compared.
#[derive(Default)]
pub struct QuickHasher(u64);

type Quick = BuildHasherDefault<QuickHasher>;

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
