//! What may come about next in a state.
use std::fmt;

use ctrlrun::plan::attempt::Do;
use ctrlrun::plan::effect::{ProbeAnswer, State};
use ctrlrun::plan::protocol::Step;

use crate::shelf::How;
use crate::world::{Asked, Bounds, Fate, Running, Word, Work, World};

/// Whose exchange with the store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Process(usize),
    Renewal(usize),
    Desk,
}

/// One step of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A process begins: `ctrlrun run`.
    Begins {
        process: usize,
        key: usize,
        asked: Asked,
    },
    /// A step with the store is performed, and answered.
    Store {
        whose: Whose,
        how: How,
    },
    /// The pause is over, the outcome is in the spool, its file is removed, the child is started.
    GoesOn {
        process: usize,
    },
    /// The spool takes nothing, or the command cannot be started.
    GoesWrong {
        process: usize,
    },
    /// The process is told to end, and need not try on.
    IsTold {
        process: usize,
    },
    /// A renewal is due.
    Due {
        process: usize,
    },
    ChildEnds {
        process: usize,
        word: Word,
    },
    /// The process ends without a word, at whatever it is.
    Crashes {
        process: usize,
    },
    /// What nobody watches comes about.
    Happens {
        child: usize,
    },
    /// A write whose answer was lost lands.
    Lands {
        at: usize,
    },
    /// The clock leaps, in half seconds.
    Leaps {
        by: u32,
    },
    /// A person decides; `None` takes a decision back. `stale`: an earlier revision was looked at.
    Decides {
        key: usize,
        decision: Option<ProbeAnswer>,
        stale: bool,
    },
    /// A probe was run, and said what was so.
    Probes {
        key: usize,
        last_word: bool,
    },
    /// Somebody only looks whether a lease has lapsed.
    Contends {
        key: usize,
    },
    Forgets {
        key: usize,
    },
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // People count from 1.
        let name = |process: &usize| ["A", "B", "C", "D"][*process];
        match self {
            Self::Begins { process, key, asked } => {
                write!(f, "{} runs key {key} ({asked:?})", name(process))
            }
            Self::Store { whose: Whose::Process(process), .. } => write!(f, "{}", name(process)),
            Self::Store { whose: Whose::Renewal(process), .. } => {
                write!(f, "{} renews", name(process))
            }
            Self::Store { whose: Whose::Desk, .. } => f.write_str("the desk"),
            Self::GoesOn { process } => write!(f, "{} goes on", name(process)),
            Self::GoesWrong { process } => write!(f, "{} cannot", name(process)),
            Self::IsTold { process } => write!(f, "{} is told to end", name(process)),
            Self::Due { process } => write!(f, "{}: a renewal is due", name(process)),
            Self::ChildEnds { process, word } => {
                write!(f, "{}: its child ends {word:?}", name(process))
            }
            Self::Crashes { process } => write!(f, "{} is killed", name(process)),
            Self::Happens { child } => write!(f, "child {} comes about after all", child + 1),
            Self::Lands { .. } => f.write_str("a write that was on its way"),
            Self::Leaps { by } => write!(f, "{by} half seconds pass"),
            Self::Decides { decision, stale, .. } => {
                write!(f, "a person decides {decision:?}{}", if *stale { ", stale" } else { "" })
            }
            Self::Probes { last_word, .. } => {
                write!(
                    f,
                    "a probe looks{}",
                    if *last_word { ", and has the last word" } else { "" }
                )
            }
            Self::Contends { .. } => f.write_str("somebody looks for a lapse"),
            Self::Forgets { .. } => f.write_str("the key is forgotten"),
        }
    }
}

impl World {
    /// Everything that may come about next.
    pub fn enabled(&self, bounds: &Bounds, acts: &mut Vec<Act>) {
        acts.clear();
        for process in 0..self.processes.len() {
            self.of_process(process, bounds, acts);
        }
        if let Some(writing) = &*self.desk {
            self.of_step(Whose::Desk, writing.key, &writing.step, bounds, acts);
        } else {
            self.of_desk(bounds, acts);
        }
        for (at, child) in self.rest.children.iter().enumerate() {
            if child.fate == Fate::Stray {
                acts.push(Act::Happens { child: at });
            }
        }
        acts.extend((0..self.rest.on_the_way.len()).map(|at| Act::Lands { at }));
        if self.rest.leaps > 0 {
            acts.extend(bounds.leap.iter().map(|by| Act::Leaps { by: *by }));
        }
    }

    fn of_process(&self, process: usize, bounds: &Bounds, acts: &mut Vec<Act>) {
        let it = &self.processes[process];
        match &it.work {
            Work::Idle => {
                // They are all alike: the first runs begin in order.
                let turn = process == 0 || self.processes[process - 1].runs > 0;
                if it.runs < bounds.runs && turn {
                    for key in 0..bounds.keys {
                        let can = |asked: &Asked| *asked != Asked::Again || it.failed_at.is_some();
                        let asks = bounds.asks.iter().copied().filter(can);
                        acts.extend(asks.map(|asked| Act::Begins { process, key, asked }));
                    }
                }
                return;
            }
            Work::Delivering(it) => {
                self.of_step(Whose::Process(process), it.write.key, &it.write.step, bounds, acts)
            }
            Work::Running(it) => self.of_running(process, it, bounds, acts),
        }
        if self.rest.crashes > 0 {
            acts.push(Act::Crashes { process });
        }
    }

    fn of_running(&self, process: usize, it: &Running, bounds: &Bounds, acts: &mut Vec<Act>) {
        match &it.next {
            Do::Store(step) => {
                let told = matches!(step, Step::Pause(_)) && it.is_kept && it.word.is_some();
                if told && self.rest.crashes > 0 {
                    acts.push(Act::IsTold { process });
                }
                self.of_step(Whose::Process(process), it.key, step, bounds, acts);
            }
            Do::Start { .. } => {
                acts.push(Act::GoesOn { process });
                if bounds.unstartable {
                    acts.push(Act::GoesWrong { process });
                }
            }
            Do::Watch { until } => {
                if let Some(writing) = &it.renewal {
                    let whose = Whose::Renewal(process);
                    self.of_step(whose, writing.key, &writing.step, bounds, acts);
                } else {
                    if self.moment() >= *until {
                        acts.push(Act::Due { process });
                    }
                    let fits = |word: &Word| fits(self.fate(process, it), it.ended, *word);
                    let words = bounds.words.iter().copied().filter(fits);
                    acts.extend(words.map(|word| Act::ChildEnds { process, word }));
                }
            }
            Do::Granted => {
                acts.extend([Act::GoesOn { process }, Act::GoesWrong { process }]);
            }
            Do::Spool(_) => {
                acts.push(Act::GoesOn { process });
                if bounds.spool_fails {
                    acts.push(Act::GoesWrong { process });
                }
            }
            Do::Unspool(_) => acts.push(Act::GoesOn { process }),
            // Done at once, where they come up.
            Do::Renew(_) | Do::EndChild | Do::Over(_) => {}
        }
    }

    fn of_step(&self, whose: Whose, key: usize, step: &Step, bounds: &Bounds, acts: &mut Vec<Act>) {
        acts.push(Act::Store { whose, how: How::Well });
        if self.rest.faults == 0 {
            return;
        }
        let can = |how: &How| match (step, how) {
            (Step::Load { .. } | Step::Reread { .. }, How::Fails) => true,
            (Step::Append { .. }, How::Fails | How::Lost | How::Swallowed) => true,
            // A write whose condition does not hold any more never lands.
            (Step::Append { append, .. }, How::LandsUnseen | How::LandsLater) => {
                self.rows[key].lets(append)
            }
            _ => false,
        };
        let hows = bounds.hows.iter().copied().filter(can);
        acts.extend(hows.map(|how| Act::Store { whose, how }));
    }

    fn of_desk(&self, bounds: &Bounds, acts: &mut Vec<Act>) {
        for key in 0..bounds.keys {
            let record = self.rows[key].record.as_ref();
            if self.rest.decisions > 0 {
                for decision in [None, Some(ProbeAnswer::NotExecuted), Some(ProbeAnswer::Committed)]
                {
                    let stales: &[bool] = if record.is_some() { &[false, true] } else { &[false] };
                    let decides = |stale: &bool| Act::Decides { key, decision, stale: *stale };
                    acts.extend(stales.iter().map(decides));
                }
                acts.push(Act::Contends { key });
            }
            let ambiguous =
                record.is_some_and(|record| matches!(record.state, State::Ambiguous { .. }));
            if self.rest.probes > 0 && ambiguous {
                acts.extend([false, true].map(|last_word| Act::Probes { key, last_word }));
            }
            let settled = record.is_some_and(|record| {
                matches!(record.state, State::Committed { .. } | State::Failed { .. })
            });
            if self.rest.forgets > 0 && settled {
                acts.push(Act::Forgets { key });
            }
        }
    }

    /// What has become of the child that a process watches.
    fn fate(&self, process: usize, it: &Running) -> Fate {
        let child = it.child.map(|at| self.rest.children[at].fate);
        child.unwrap_or_else(|| panic!("process {process} watches nothing"))
    }
}

/// Whether a child can end so.
fn fits(fate: Fate, told_to_end: bool, word: Word) -> bool {
    let comes_about = match word {
        Word::Committed
        | Word::DoubtDid
        | Word::DoubtLeft
        | Word::TimedOut
        | Word::Contradiction => true,
        Word::Failed | Word::DoubtDidNot | Word::Signal => false,
    };
    // Of a child that was told to end no exit proves anything; only what it said does.
    let said = matches!(word, Word::Committed | Word::DoubtDid | Word::DoubtDidNot);
    (fate != Fate::Barred || !comes_about) && (!told_to_end || said)
}
