//! The readers of untrusted bytes, with the corpus and mutations of it: the same ones in every run
//! (FUZ-2). It is the part of the fuzzing that needs no fuzzer.
mod readers;

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngSeed, TestRunner};

/// One change.
#[derive(Debug, Clone)]
enum Change {
    Flip(Index, u8),
    Remove(Index, Index),
    Double(Index, Index),
    Insert(Index, Vec<u8>),
    /// Bytes of another file of the corpus.
    Splice(Index, Index, Index),
}

/// What breaks readers: ends, quotes, braces, other alphabets, and long runs.
const TOKENS: [&str; 28] = [
    "\0",
    "\n",
    "\r\n",
    "\u{feff}",
    "\"",
    "\\",
    "{",
    "}",
    "{{",
    "}}",
    "{}",
    "[",
    "]",
    ",",
    "\t",
    ":",
    "//",
    "@",
    "%",
    "%00",
    "=",
    "null",
    "-1",
    "99999999999999999999",
    "\u{1b}[31m",
    "\u{202e}",
    "\u{e9}",
    "#",
];

fn change() -> impl Strategy<Value = Change> {
    let token = (0..TOKENS.len()).prop_map(|at| TOKENS[at].as_bytes().to_vec());
    let bytes = prop_oneof![4 => token, 1 => vec(any::<u8>(), 1..8)];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, with)| Change::Flip(at, with)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Change::Remove(from, to)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Change::Double(from, to)),
        (any::<Index>(), bytes).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (any::<Index>(), any::<Index>(), any::<Index>())
            .prop_map(|(file, from, at)| Change::Splice(file, from, at)),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change], corpus: &[Vec<u8>]) -> Vec<u8> {
    for change in changes {
        let length = bytes.len();
        let place = |at: &Index| at.index(length + 1);
        let span = |from: &Index, to: &Index| {
            let (from, to) = (place(from), place(to));
            (from.min(to), from.max(to).min(from.min(to) + 64))
        };
        match change {
            Change::Flip(at, with) if length > 0 => bytes[at.index(length)] ^= *with,
            Change::Flip(..) => {}
            Change::Remove(from, to) => {
                let (from, to) = span(from, to);
                bytes.drain(from..to);
            }
            Change::Double(from, to) => {
                let (from, to) = span(from, to);
                let part = bytes[from..to].to_vec();
                bytes.splice(to..to, part);
            }
            Change::Insert(at, part) => {
                let at = place(at);
                bytes.splice(at..at, part.iter().copied());
            }
            Change::Splice(file, from, at) => {
                let other = &corpus[file.index(corpus.len())];
                let from = from.index(other.len() + 1);
                let at = place(at);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    bytes
}

/// The corpus of a reader.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut files: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn whatever_the_bytes_a_reader_reads_or_refuses() {
    // FUZ-1, FUZ-2
    for (name, reader) in readers::all() {
        let corpus = corpus(name);
        assert!(corpus.len() >= 3, "{name}: its corpus is {}", corpus.len());
        for bytes in &corpus {
            reader(bytes);
        }
        let config = Config {
            cases: 1_000,
            rng_seed: RngSeed::Fixed(u64::from_le_bytes(*b"untruste")),
            failure_persistence: None,
            ..Config::default()
        };
        let strategy = (any::<Index>(), vec(change(), 1..6));
        let tried = TestRunner::new(config).run(&strategy, |(file, changes)| {
            let bytes = corpus[file.index(corpus.len())].clone();
            reader(&changed(bytes, &changes, &corpus));
            Ok(())
        });
        if let Err(error) = tried {
            panic!("{name}: {error}");
        }
    }
}
