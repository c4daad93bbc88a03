//! A disk that remembers what is durable: what was synced is, and of what was not any part may be.
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::record::Op;

/// Of a write that is torn whole sectors are there or not.
const SECTORS: [usize; 2] = [512, 4096];
/// Images drawn at random at each point, of each sector size.
const DRAWN: usize = 6;

/// Files by name.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What may be found after a power failure.
#[derive(Debug)]
pub struct Image {
    /// What became of what was not synced.
    pub how: String,
    pub files: Files,
}

/// Files and their names, as they are durable, and what has been done to them since.
#[derive(Debug, Default)]
pub struct Disk {
    files: Vec<Vec<u8>>,
    /// Since they were synced, in order.
    changes: Vec<Change>,
    durable_names: BTreeMap<PathBuf, usize>,
    names: BTreeMap<PathBuf, usize>,
    renames: Vec<Naming>,
}

#[derive(Debug, Clone)]
struct Change {
    file: usize,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Write(usize, Vec<u8>),
    Size(usize),
}

/// A name is given, or taken away.
#[derive(Debug, Clone)]
struct Naming(PathBuf, Option<usize>);

impl Disk {
    /// Performs a call.
    pub fn perform(&mut self, op: &Op) {
        match op {
            Op::Create(path) if !self.names.contains_key(path) => {
                self.files.push(Vec::new());
                self.name(path.clone(), Some(self.files.len() - 1));
            }
            Op::Create(_) | Op::Started(_) => {}
            Op::Write { path, at, bytes } => self.change(path, What::Write(*at, bytes.clone())),
            Op::Size(path, size) => self.change(path, What::Size(*size)),
            Op::Unlink(path) => self.name(path.clone(), None),
            Op::Rename(from, to) => {
                let file = self.names.get(from).copied();
                self.name(to.clone(), file);
                self.name(from.clone(), None);
            }
            Op::Sync(path) => match self.names.get(path).copied() {
                Some(file) => {
                    let (synced, rest) = std::mem::take(&mut self.changes)
                        .into_iter()
                        .partition(|it| it.file == file);
                    self.changes = rest;
                    let synced: Vec<Change> = synced;
                    synced.iter().for_each(|it| change(&mut self.files[file], &it.what));
                }
                // The directory: a name is durable only by this.
                None => {
                    self.durable_names.clone_from(&self.names);
                    self.renames.clear();
                }
            },
        }
    }

    fn name(&mut self, path: PathBuf, file: Option<usize>) {
        give(&mut self.names, &path, file);
        self.renames.push(Naming(path, file));
    }

    fn change(&mut self, path: &PathBuf, what: What) {
        let Some(file) = self.names.get(path).copied() else {
            panic!("{} was never made", path.display());
        };
        self.changes.push(Change { file, what });
    }

    /// What may be found if the power fails now. Names come in the order in which they were given, to
    /// any point; changes of files in any order.
    pub fn images(&self, seed: u64) -> Vec<Image> {
        let mut images = Vec::new();
        let last = self.renames.len();
        for named in 0..=last {
            let names = self.named(named);
            let mut add = |how: String, kept: Vec<Change>| {
                let how = format!("{named} of {last} names, {how}");
                images.push(Image { how, files: self.files_with(&names, &kept) });
            };
            let count = self.changes.len();
            for first in 0..=count {
                add(format!("the first {first} of {count}"), self.changes[..first].to_vec());
            }
            for one in 0..count {
                let mut others = self.changes.clone();
                let alone = others.remove(one);
                add(format!("all but change {one} of {count}"), others);
                add(format!("only change {one} of {count}"), vec![alone]);
                for sector in SECTORS {
                    let torn = |keep: &dyn Fn(usize) -> bool| {
                        let mut kept = self.changes[..one].to_vec();
                        kept.extend(pieces(&self.changes[one], sector, keep));
                        kept
                    };
                    add(format!("change {one} of {count}, its first {sector}"), torn(&|n| n == 0));
                    add(format!("change {one} of {count}, not that"), torn(&|n| n > 0));
                }
            }
            for sector in SECTORS {
                for draw in 0..DRAWN {
                    let mut random =
                        Random(seed << 8 | (draw as u64) << 4 | named as u64 | 1 << 60);
                    let mut kept = Vec::new();
                    for it in &self.changes {
                        let odds = 1 + random.below(8);
                        let mut bits = Vec::new();
                        for _ in 0..sectors(it, sector) {
                            bits.push(random.below(8) < odds);
                        }
                        kept.extend(pieces(it, sector, &|n| bits[n]));
                    }
                    add(format!("drawn {draw}, {sector}"), kept);
                }
            }
        }
        images
    }

    fn named(&self, renames: usize) -> BTreeMap<PathBuf, usize> {
        let mut names = self.durable_names.clone();
        for Naming(path, file) in &self.renames[..renames] {
            give(&mut names, path, *file);
        }
        names
    }

    fn files_with(&self, names: &BTreeMap<PathBuf, usize>, kept: &[Change]) -> Files {
        let content = |file: usize| {
            let mut bytes = self.files[file].clone();
            kept.iter().filter(|it| it.file == file).for_each(|it| change(&mut bytes, &it.what));
            bytes
        };
        names.iter().map(|(path, file)| (path.clone(), content(*file))).collect()
    }
}

fn give(names: &mut BTreeMap<PathBuf, usize>, path: &PathBuf, file: Option<usize>) {
    match file {
        Some(file) => names.insert(path.clone(), file),
        None => names.remove(path),
    };
}

fn change(bytes: &mut Vec<u8>, what: &What) {
    match what {
        What::Size(size) => bytes.resize(*size, 0),
        What::Write(at, new) => {
            let end = at + new.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*at..end].copy_from_slice(new);
        }
    }
}

/// Over how many sectors of the disk a change goes.
fn sectors(change: &Change, sector: usize) -> usize {
    match &change.what {
        What::Size(_) => 1,
        What::Write(at, bytes) => (at + bytes.len()).div_ceil(sector) - at / sector,
    }
}

/// The parts of a change in those of its sectors that `keep` says, by their number.
fn pieces(change: &Change, sector: usize, keep: &dyn Fn(usize) -> bool) -> Vec<Change> {
    let (at, bytes) = match &change.what {
        What::Size(_) => return if keep(0) { vec![change.clone()] } else { Vec::new() },
        What::Write(at, bytes) => (*at, bytes),
    };
    let piece = |n: usize| {
        let from = (at / sector + n) * sector;
        let (from, to) = (from.max(at), (from + sector).min(at + bytes.len()));
        Change { file: change.file, what: What::Write(from, bytes[from - at..to - at].to_vec()) }
    };
    (0..sectors(change, sector)).filter(|n| keep(*n)).map(piece).collect()
}

/// Numbers that a seed decides.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}
