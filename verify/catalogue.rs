//! The guarantees, in order (VER-1).
use super::lab::Part;
use super::{
    g01, g02, g03, g04, g05, g06, g07, g08, g09, g10, g11, g12, g13, g14, g15, g16, g17, g18, g19,
};

/// Which catalogue it is; it changes with what the guarantees mean.
pub const CATALOGUE: &str = "1";

/// One guarantee.
#[derive(Debug, Clone, Copy)]
pub struct Guarantee {
    /// Its name.
    pub id: &'static str,
    /// What is guaranteed.
    pub title: &'static str,
    /// How it is shown.
    pub shown: Shown,
}

/// How a guarantee is shown.
#[derive(Debug, Clone, Copy)]
pub enum Shown {
    /// By this, beside the others.
    By(Part),
    /// By this, when all others are through: it looks at what they have left.
    AtTheEnd(Part),
}

/// All of them.
pub const ALL: [Guarantee; 19] = [
    of("G1", "a committed effect never runs again", Shown::By(g01::show)),
    of("G2", "fail closed: a store that cannot be used runs nothing", Shown::By(g02::show)),
    of("G3", "a live reservation refuses others", Shown::By(g03::show)),
    of("G4", "one winner under contention, whoever is killed", Shown::By(g04::show)),
    of("G5", "AMBIGUOUS blocks a blind retry", Shown::By(g05::show)),
    of("G6", "a lapsed lease frees nothing", Shown::By(g06::show)),
    of("G7", "a COMMIT that landed unseen is seen as landed", Shown::By(g07::show)),
    of("G8", "a COMMIT that was lost is written again, once", Shown::By(g08::show)),
    of("G9", "identity is the whole row", Shown::By(g09::show)),
    of("G10", "an unknown outcome is AMBIGUOUS", Shown::By(g10::show)),
    of("G11", "a failed re-read runs nothing", Shown::By(g11::show)),
    of("G12", "the record is the fold of its history", Shown::AtTheEnd(g12::show)),
    of("G13", "an expected revision is held to", Shown::By(g13::show)),
    of("G14", "a key is bound to its command", Shown::By(g14::show)),
    of("G15", "a workflow tick commits once", Shown::By(g15::show)),
    of("G16", "a known outcome is not lost", Shown::By(g16::show)),
    of("G17", "a late \"it happened\" blocks", Shown::By(g17::show)),
    of("G18", "a probe's \"no\" is not a licence", Shown::By(g18::show)),
    of("G19", "a stale dispatch runs nothing", Shown::By(g19::show)),
];

const fn of(id: &'static str, title: &'static str, shown: Shown) -> Guarantee {
    Guarantee { id, title, shown }
}

/// The guarantee of that name, whatever its case.
#[must_use]
pub fn named(name: &str) -> Option<&'static Guarantee> {
    ALL.iter().find(|guarantee| guarantee.id.eq_ignore_ascii_case(name.trim()))
}
