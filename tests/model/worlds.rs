//! The worlds that are walked through: each has little of everything but of what it is about.
use crate::shelf::How;
use crate::world::{Asked, Bounds, THIRD, WHOLE, Word};

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
