//! What a soak does: a deck of operations, dealt again and again, in an order that the seed gives
//! (SOA-2). Forty cards: thirty are what happens every day, ten are injected.
use ctrlrun::store::stop::Point;

use crate::verify::seed::Draws;

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A command that does its work.
    Commit,
    /// The same again: nothing runs.
    Replay,
    /// A declared failure, and the next attempt.
    Retry,
    /// A program that is not there.
    NeverStarted,
    /// Three at once on one key.
    Contend,
    /// Another command on a key.
    Mismatch,
    /// A command that leaves a doubt.
    Doubt(Doubt),
    /// An exchange with the store that fails in this way, in the rig's words.
    Fault(&'static str),
    /// The store is away when the outcome is known, and does not come back for this process.
    Away,
    /// `ctrlrun` is killed there.
    Kill(Point),
    /// `ctrlrun` sleeps for longer than its lease while its command runs.
    Overslept,
}

/// How a command can leave a doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// An exit code that is not declared.
    Exit,
    /// A signal.
    Signal,
    /// Too long.
    Timeout,
    /// It says two things.
    Contradiction,
}

/// Whether an operation leaves an AMBIGUOUS record behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaves {
    /// Never.
    Nothing,
    /// Always, if it fell.
    Doubt,
}

const DOUBTS: [Doubt; 4] = [Doubt::Exit, Doubt::Signal, Doubt::Timeout, Doubt::Contradiction];

/// Faults that must not be seen in how a run ends: the answer of each write lost, whether it landed, did
/// not, or lands later, and a store that is busy for a while.
const FAULTS: [&str; 12] = [
    "append:1:lose-answer",
    "append:2:lose-answer",
    "append:3:lose-answer",
    "append:1-3:lose-answer",
    "append:1:lose-request",
    "append:2:lose-request",
    "append:3:lose-request",
    "append:1:late",
    "append:2:late",
    "append:3:late",
    "append:1-3:busy",
    "append:3-6:fail",
];

/// Cards of a deck.
pub const CARDS: u64 = 40;

impl Kind {
    /// Its name in the ledger and in the report.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Commit => "commit".to_owned(),
            Self::Replay => "replay".to_owned(),
            Self::Retry => "retry".to_owned(),
            Self::NeverStarted => "never started".to_owned(),
            Self::Contend => "contend".to_owned(),
            Self::Mismatch => "mismatch".to_owned(),
            Self::Doubt(Doubt::Exit) => "undeclared exit".to_owned(),
            Self::Doubt(Doubt::Signal) => "died of a signal".to_owned(),
            Self::Doubt(Doubt::Timeout) => "timed out".to_owned(),
            Self::Doubt(Doubt::Contradiction) => "contradiction".to_owned(),
            Self::Fault(words) => words.to_owned(),
            Self::Away => "store away at the settle".to_owned(),
            Self::Kill(point) => format!("killed {}", point.name()),
            Self::Overslept => "overslept".to_owned(),
        }
    }

    /// Whether something is done to it on purpose.
    #[must_use]
    pub fn is_injected(self) -> bool {
        match self {
            Self::Commit
            | Self::Replay
            | Self::Retry
            | Self::NeverStarted
            | Self::Contend
            | Self::Mismatch => false,
            Self::Doubt(_) | Self::Fault(_) | Self::Away | Self::Kill(_) | Self::Overslept => true,
        }
    }

    /// What it leaves behind.
    #[must_use]
    pub fn leaves(self) -> Leaves {
        match self {
            Self::Doubt(_) | Self::Overslept => Leaves::Doubt,
            Self::Kill(point) => match point {
                Point::BeforeReserve | Point::InReserve | Point::AfterSettle | Point::InPrune => {
                    Leaves::Nothing
                }
                Point::AfterReserve
                | Point::BeforeBegin
                | Point::AfterBegin
                | Point::Running
                | Point::BeforeSettle
                | Point::InSettle => Leaves::Doubt,
            },
            Self::Commit
            | Self::Replay
            | Self::Retry
            | Self::NeverStarted
            | Self::Contend
            | Self::Mismatch
            | Self::Fault(_)
            | Self::Away => Leaves::Nothing,
        }
    }

    /// Whether its record can never be forgotten: it began, and nobody saw its command end with all that
    /// it had started (OPS-3), as after a time-out (EFF-21).
    #[must_use]
    pub fn stays(self) -> bool {
        match self {
            Self::Kill(point) => match point {
                Point::AfterBegin | Point::Running | Point::BeforeSettle | Point::InSettle => true,
                Point::BeforeReserve
                | Point::InReserve
                | Point::AfterReserve
                | Point::BeforeBegin
                | Point::AfterSettle
                | Point::InPrune => false,
            },
            Self::Doubt(Doubt::Timeout) => true,
            Self::Commit
            | Self::Replay
            | Self::Retry
            | Self::NeverStarted
            | Self::Contend
            | Self::Mismatch
            | Self::Doubt(Doubt::Exit | Doubt::Signal | Doubt::Contradiction)
            | Self::Fault(_)
            | Self::Away
            | Self::Overslept => false,
        }
    }
}

/// The operation of that number, from 0.
#[must_use]
pub fn dealt(seed: u64, number: u64) -> Kind {
    let (deck, at) = (number / CARDS, number % CARDS);
    let mut cards = cards(deck);
    // Fisher and Yates; a purpose of its own for each deck.
    let mut draws = Draws::of(seed, 1_000 + deck);
    for last in (1..cards.len()).rev() {
        let other = draws.below(u64::try_from(last + 1).unwrap_or(1));
        cards.swap(last, usize::try_from(other).unwrap_or(0));
    }
    usize::try_from(at).ok().and_then(|at| cards.get(at)).copied().unwrap_or(Kind::Commit)
}

/// A deck before it is shuffled: of what there are several ways, each deck has others.
fn cards(deck: u64) -> Vec<Kind> {
    let mut cards = Vec::new();
    let mut put = |kind, times| cards.extend(std::iter::repeat_n(kind, times));
    put(Kind::Commit, 14);
    put(Kind::Replay, 6);
    put(Kind::Retry, 3);
    put(Kind::NeverStarted, 2);
    put(Kind::Contend, 3);
    put(Kind::Mismatch, 2);
    for nth in 0..3 {
        put(Kind::Doubt(turn(&DOUBTS, deck * 3 + nth)), 1);
    }
    for nth in 0..4 {
        put(Kind::Fault(turn(&FAULTS, deck * 4 + nth)), 1);
    }
    put(Kind::Away, 1);
    put(Kind::Kill(turn(&Point::ALL, deck)), 1);
    put(Kind::Overslept, 1);
    cards
}

fn turn<T: Copy>(all: &[T], nth: u64) -> T {
    let count = u64::try_from(all.len()).unwrap_or(1);
    all[usize::try_from(nth % count).unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_deals_the_same_again_and_another_does_not() {
        // SOA-2
        let dealt = |seed| (0..CARDS * 2).map(|at| dealt(seed, at).name()).collect::<Vec<_>>();
        assert_eq!(dealt(7), dealt(7));
        assert_ne!(dealt(7), dealt(8));
    }

    #[test]
    fn every_deck_is_three_quarters_ordinary_and_few_decks_hold_every_kind() {
        // SOA-2
        for deck in 0..9 {
            let all = cards(deck);
            assert_eq!(all.len(), usize::try_from(CARDS).unwrap());
            assert_eq!(all.iter().filter(|kind| kind.is_injected()).count(), 10);
        }
        // Nine decks: as many as there are points at which a holder is killed.
        let names: BTreeSet<String> = (0..CARDS * 9).map(|at| dealt(1, at).name()).collect();
        let all = 6 + DOUBTS.len() + FAULTS.len() + Point::ALL.len() + 2;
        assert_eq!(names.len(), all, "{names:?}");
    }
}
