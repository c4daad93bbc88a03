//! Every interleaving of a small world (PRF-1 to PRF-4).
//!
//! The walk is our own and not a library's: a state is a handful of parts that states share, so
//! that millions of them fit; the first counterexample is a shortest one; and there is nothing to
//! learn before it can be read. It is in `explore`, in a page.
//!
//! | file | what |
//! |---|---|
//! | `world` | a state, and the bounds within which a world is walked through |
//! | `acts` | what may come about next |
//! | `step` | what a driver would do, and what comes of it |
//! | `delivering`, `child`, `desk` | a process begins; children and processes end; a person and a probe |
//! | `shelf` | the store |
//! | `laws` | what must hold |
//! | `tally` | what must be reached, and names |
//! | `explore` | the walk |
//! | `worlds`, `tests` | the bounds of each world, and what is said of it |
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails"))]
mod acts;
mod child;
mod delivering;
mod desk;
mod explore;
mod laws;
mod shelf;
mod step;
mod tally;
mod tests;
mod verify;
mod world;
mod worlds;
