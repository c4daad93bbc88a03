//! The shipped driver in a simulated world, under a seed (PRF-8 to PRF-11).
//!
//! Every process is a thread that runs only while it has the turn, so one seed is one order of
//! events, to the byte. Whatever the driver asks of its machine or its store is a place where time
//! passes, where others go on, and where the process may be killed or stand still.
//!
//! | file | what |
//! |---|---|
//! | `turn` | who goes on, when it is, and who dies |
//! | `machine` | the driver's host: clock, draws, pauses, the renewal's thread |
//! | `child` | the executor: commands, and what comes of them |
//! | `rows`, `store` | what is stored, and the store around it, with its faults |
//! | `shape` | what kind of world a seed makes |
//! | `life` | a process from its start to its end: what `ctrlrun run` does, an operator, a probe |
//! | `world` | one seed: all of them, and how it ends when the faults have stopped |
//! | `laws` | what must hold then |
//! | `many`, `tests` | many seeds, and what is said of them |
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails"))]
mod child;
mod laws;
mod life;
mod machine;
mod many;
mod rows;
mod shape;
mod store;
mod tests;
mod turn;
mod verify;
mod world;
