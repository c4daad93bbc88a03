//! The worlds that are walked through: each has little of everything but of what it is about.
use crate::shelf::How;
use crate::verify::broken::Break;
use crate::world::{Asked, Bounds, MOMENT, THIRD, WHOLE, Word};

const LOST: &[How] = &[How::Fails, How::LandsUnseen, How::Lost, How::LandsLater];
const WORDS: &[Word] = &[
    Word::Committed,
    Word::Failed,
    Word::DoubtDid,
    Word::DoubtDidNot,
    Word::DoubtLeft,
    Word::Signal,
    Word::TimedOut,
    Word::Contradiction,
];

/// Two processes that run once, and nothing goes wrong.
pub const QUIET: Bounds = Bounds {
    name: "quiet",
    processes: 2,
    keys: 1,
    runs: 1,
    faults: 0,
    crashes: 0,
    leaps: 0,
    leap: &[WHOLE],
    decisions: 0,
    probes: 0,
    forgets: 0,
    by_hand: false,
    hows: LOST,
    asks: &[Asked::Plain],
    words: &[Word::Committed, Word::Failed, Word::DoubtLeft],
    unstartable: false,
    spool_fails: false,
    one_host: false,
    breaks: None,
};

const COMMANDS: &[Asked] =
    &[Asked::Plain, Asked::Other, Asked::Rebind, Asked::New, Asked::Again, Asked::Once];

/// What two processes can do to each other; the largest first, so that none is left to the end.
pub fn two() -> Vec<Bounds> {
    vec![
        Bounds {
            name: "one spool, and a key that is forgotten",
            runs: 2,
            faults: 1,
            crashes: 1,
            leaps: 1,
            forgets: 1,
            one_host: true,
            spool_fails: true,
            hows: &[How::Fails],
            words: &[Word::Committed],
            ..QUIET
        },
        Bounds {
            name: "renewals",
            faults: 1,
            leaps: 2,
            leap: &[THIRD, WHOLE],
            words: &[Word::Committed],
            ..QUIET
        },
        Bounds {
            name: "a probe and a person",
            leaps: 1,
            decisions: 1,
            probes: 1,
            words: &[Word::Committed, Word::DoubtDidNot, Word::DoubtLeft],
            ..QUIET
        },
        Bounds { name: "an end and a person", crashes: 1, leaps: 1, decisions: 1, ..QUIET },
        Bounds { name: "lost answers and an end", faults: 1, crashes: 1, leaps: 1, ..QUIET },
        Bounds { name: "two lost answers", faults: 2, ..QUIET },
        Bounds { name: "two keys", keys: 2, faults: 1, crashes: 1, ..QUIET },
        Bounds {
            name: "guesses, and what has just been seen",
            faults: 1,
            leaps: 1,
            leap: &[MOMENT, WHOLE],
            forgets: 1,
            asks: &[Asked::Plain, Asked::Guessing],
            words: &[Word::Committed],
            ..QUIET
        },
        Bounds {
            name: "a batch",
            leaps: 1,
            faults: 1,
            asks: &[Asked::Gated],
            words: &[Word::Committed],
            ..QUIET
        },
        Bounds {
            name: "every end of a child",
            leaps: 1,
            probes: 1,
            unstartable: true,
            words: WORDS,
            ..QUIET
        },
        Bounds {
            name: "other commands",
            processes: 1,
            runs: 3,
            decisions: 2,
            asks: COMMANDS,
            words: &[Word::Committed, Word::Failed, Word::DoubtDidNot],
            ..QUIET
        },
        Bounds {
            name: "three lost answers",
            processes: 1,
            runs: 2,
            faults: 3,
            crashes: 1,
            leaps: 1,
            words: &[Word::Committed, Word::Failed],
            ..QUIET
        },
        Bounds {
            name: "a store that swallows",
            processes: 1,
            faults: 3,
            hows: &[How::Fails, How::Lost, How::Swallowed],
            words: &[Word::Committed],
            ..QUIET
        },
    ]
}

/// A world in which a store that is broken in this way is found out.
pub fn broken(how: Break) -> Bounds {
    let word = |words| Bounds { words, breaks: Some(how), ..QUIET };
    let committed = word(&[Word::Committed]);
    let faults = |faults, hows| Bounds { faults, hows, ..committed.clone() };
    match how {
        // What a run dispatches is not in this model; G19 shows that verify sees it.
        Break::DispatchIgnored
        | Break::LiveFreed
        | Break::NoHistory
        | Break::RevisionIgnored
        | Break::CommittedFreed
        | Break::OutcomeDropped => committed,
        Break::AmbiguousFailed => word(&[Word::DoubtLeft]),
        Break::RowCounts | Break::LapsedFreed | Break::LateDropped => {
            Bounds { leaps: 1, ..committed }
        }
        Break::RereadByAttemptId | Break::OwnedByAttemptId => faults(1, &[How::Lost]),
        Break::UnknownNotCommitted => faults(1, &[How::LandsUnseen]),
        Break::NotCommittedUnknown => faults(2, &[How::Fails]),
        Break::NoSecondReread => faults(1, &[How::LandsLater]),
        Break::AnswersEarly => faults(1, &[How::Fails]),
        Break::RereadGuessed => faults(2, &[How::Lost, How::Fails]),
        // A forgotten key's revisions do not come round: only by hand can a row be another one at
        // the same revision.
        Break::WriteIdIgnored => {
            Bounds { leaps: 1, decisions: 1, forgets: 1, by_hand: true, ..committed }
        }
        Break::DecisionAsWord => Bounds {
            decisions: 1,
            asks: &[Asked::Plain, Asked::Other],
            ..word(&[Word::DoubtDidNot])
        },
        Break::OutcomeIdIgnored => {
            Bounds { processes: 1, runs: 2, ..faults(2, &[How::LandsUnseen, How::Fails]) }
        }
        Break::ReapedAlways => Bounds { probes: 1, ..word(&[Word::DoubtLeft, Word::Committed]) },
    }
}

/// More of everything, and three processes: the long suite.
pub fn long() -> Vec<Bounds> {
    let three = Bounds { processes: 3, ..QUIET };
    vec![
        Bounds {
            name: "two: a lost answer, an end and a person",
            faults: 1,
            crashes: 1,
            leaps: 1,
            decisions: 1,
            ..QUIET
        },
        Bounds {
            name: "two: other commands",
            runs: 2,
            decisions: 1,
            asks: COMMANDS,
            words: &[Word::Committed, Word::Failed, Word::DoubtDidNot],
            ..QUIET
        },
        Bounds {
            name: "two: a probe and two decisions",
            leaps: 1,
            decisions: 2,
            probes: 1,
            ..QUIET
        },
        Bounds {
            name: "two: renewals and a person",
            leaps: 2,
            leap: &[THIRD, WHOLE],
            decisions: 1,
            words: &[Word::Committed, Word::DoubtDidNot],
            ..QUIET
        },
        Bounds {
            name: "two: guesses, and what has just been seen",
            faults: 1,
            leaps: 2,
            leap: &[MOMENT, WHOLE],
            forgets: 1,
            asks: &[Asked::Plain, Asked::Guessing],
            words: &[Word::Committed],
            ..QUIET
        },
        Bounds { name: "three", ..three.clone() },
        Bounds {
            name: "three: guesses and an end",
            crashes: 1,
            leaps: 1,
            leap: &[MOMENT, WHOLE],
            asks: &[Asked::Plain, Asked::Guessing],
            words: &[Word::Committed],
            ..three.clone()
        },
        Bounds {
            name: "three: a lost answer",
            faults: 1,
            words: &[Word::Committed, Word::Failed],
            ..three.clone()
        },
        Bounds {
            name: "three: an end and a lapse",
            crashes: 1,
            leaps: 1,
            words: &[Word::Committed, Word::Failed],
            ..three.clone()
        },
        Bounds {
            name: "three: a lapse and a person",
            leaps: 1,
            decisions: 1,
            words: &[Word::Committed],
            ..three
        },
    ]
}
