//! What is done on purpose inside a worker process of verify (VER-5): faults of its store, halts,
//! a gate at which all wait for each other, a store that is broken as a whole.
//!
//! `CTRLRUN_RIG` is a list of words with semicolons. It acts on a scratch store only, the mark of
//! which nothing but `verify` and the hidden `init --scratch` give; on any other store it is without
//! effect.
//!
//! | word | what it does |
//! |---|---|
//! | `leash:PID` | the process dies with the verify that started it |
//! | `break:NAME` | the store is broken in that way ([`Break`]) |
//! | `VERB:CALL:WHAT` | at that call of `load`, `append` or `reread` (`2`, `3-9`): a fault, `stop`, `gate` |
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctrlrun::store::faulty::{Fault, Faulty, Meanwhile, Planned, Verb};
use ctrlrun::store::{Reason, Store};
use nix::sys::signal::{Signal, raise};
use nix::unistd::getppid;
use rustix::fs::{FlockOperation, flock};
use rustix::process::set_parent_process_death_signal;

use super::broken::{Break, Broken};

/// The variable with the words.
pub const VARIABLE: &str = "CTRLRUN_RIG";
/// The variable with the directory in which what fell is told, and where the gate is.
pub const AT_VARIABLE: &str = "CTRLRUN_RIG_AT";

/// The file in which each thing that fell is told, one line each: process, verb, call, what.
pub const FELL: &str = "fell";
/// The file that everybody at the gate asks a shared lock of.
pub const GATE: &str = "gate";

/// The most calls that one word can be about: a word for all calls to come ends here.
const CALLS_MAX: u32 = 2_000;

/// Where something is done on purpose, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    verb: Verb,
    first: u32,
    last: u32,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Fault(Fault),
    Stop,
    Gate,
}

/// The words of a rig, read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rig {
    words: Vec<Word>,
    breaks: Option<Break>,
    leash: Option<i32>,
}

impl Rig {
    /// Reads the words; those that are none are left out, as a stop point with no name is.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut rig = Self::default();
        for part in text.split(';') {
            if let Some(pid) = part.strip_prefix("leash:") {
                rig.leash = pid.parse().ok();
            } else if let Some(name) = part.strip_prefix("break:") {
                rig.breaks = Break::named(name);
            } else if let Some(word) = word(part) {
                rig.words.push(word);
            }
        }
        rig
    }

    /// `store`, rigged. `at` is where what fell is told.
    #[must_use]
    pub fn around(self, store: Box<dyn Store>, at: Option<PathBuf>) -> Box<dyn Store> {
        let faults: Vec<Planned> = self.words.iter().flat_map(planned).collect();
        let words = self.words;
        let inner: Arc<dyn Store> = if words.is_empty() {
            store.into()
        } else {
            let meanwhile: Meanwhile = Box::new(move |verb, call| {
                for word in words.iter().filter(|word| word.is_at(verb, call)) {
                    if let Some(at) = &at {
                        act(at, word.what, verb, call);
                    }
                }
            });
            Arc::new(Faulty::new(store.into(), faults).meanwhile(meanwhile))
        };
        match self.breaks {
            Some(how) => Box::new(Broken::new(inner, how, Arc::default())),
            None => Box::new(Shared(inner)),
        }
    }
}

/// The store of this process, rigged if its environment says so and the store is a scratch store.
#[must_use]
pub fn of_process(store: Box<dyn Store>) -> Box<dyn Store> {
    if !store.identity().scratch {
        return store;
    }
    let Some(words) = std::env::var_os(VARIABLE) else {
        return store;
    };
    let rig = Rig::parse(&words.to_string_lossy());
    if let Some(verify) = rig.leash {
        leash(verify);
    }
    rig.around(store, std::env::var_os(AT_VARIABLE).map(PathBuf::from))
}

/// Has this process die with its verify. Where the kernel refuses, a worker that is left over ends by
/// its own bounds.
fn leash(verify: i32) {
    let _ = set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // It may have died before it was asked to tell.
    if getppid().as_raw() != verify {
        let _ = raise(Signal::SIGKILL);
    }
}

impl Word {
    fn is_at(&self, verb: Verb, call: u32) -> bool {
        self.verb == verb && (self.first..=self.last).contains(&call)
    }
}

fn word(text: &str) -> Option<Word> {
    let mut parts = text.split(':');
    let (verb, calls, what) = (parts.next()?, parts.next()?, parts.next()?);
    let verb = Verb::ALL.into_iter().find(|known| known.name() == verb)?;
    let (first, last) = calls.split_once('-').unwrap_or((calls, calls));
    let last = if last.is_empty() { CALLS_MAX } else { last.parse().ok()? };
    let what = match what {
        "busy" => What::Fault(Fault::Fail(Reason::Busy)),
        "fail" => What::Fault(Fault::Fail(Reason::Unreachable)),
        "refuse" => What::Fault(Fault::Refuse),
        "lose-answer" => What::Fault(Fault::LoseAnswer),
        "lose-request" => What::Fault(Fault::LoseRequest),
        "late" if verb == Verb::AppendRun => What::Fault(Fault::Late(Verb::RereadRun)),
        "late" => What::Fault(Fault::Late(Verb::Reread)),
        "stop" => What::Stop,
        "gate" => What::Gate,
        _ => return None,
    };
    Some(Word { verb, first: first.parse().ok()?, last, what })
}

fn planned(word: &Word) -> Vec<Planned> {
    match word.what {
        What::Fault(fault) => {
            (word.first..=word.last).map(|call| Planned { verb: word.verb, call, fault }).collect()
        }
        What::Stop | What::Gate => Vec::new(),
    }
}

/// Tells what falls, and halts or waits where that is what falls. Called before the fault itself.
fn act(at: &Path, what: What, verb: Verb, call: u32) {
    let name = match what {
        What::Fault(_) => "fault",
        What::Stop => "stop",
        What::Gate => "gate",
    };
    let verb = verb.name();
    let line = format!("{} {verb} {call} {name}\n", std::process::id());
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(at.join(FELL)) {
        // One write with O_APPEND: lines of many processes never mix.
        let _ = file.write(line.as_bytes());
    }
    match what {
        What::Fault(_) => {}
        What::Stop => {
            let _ = raise(Signal::SIGSTOP);
        }
        What::Gate => {
            if let Ok(gate) = OpenOptions::new().read(true).open(at.join(GATE)) {
                // Verify holds it exclusively until all are here. Should it die, nobody waits on.
                let _ = flock(&gate, FlockOperation::LockShared);
            }
        }
    }
}

/// A store that is handed on as it is.
struct Shared(Arc<dyn Store>);

impl Store for Shared {
    super::broken::forward!(0: load append reread list history output upkeep runs identity glimpse);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        // VER-5
        let rig = Rig::parse("leash:7;break:row-counts;append:2:lose-answer;reread:1-:stop;x:1:y");
        assert!(rig.leash == Some(7) && rig.breaks == Some(Break::RowCounts));
        assert_eq!(rig.words.len(), 2);
        assert_eq!(planned(&rig.words[0]).len(), 1);
        assert!(rig.words[1].is_at(Verb::Reread, 77) && !rig.words[1].is_at(Verb::Load, 77));
        assert_eq!(Rig::parse(""), Rig::default());
    }
}
