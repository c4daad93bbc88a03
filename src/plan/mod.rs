//! PURE: every decision, and nothing else. No clock, I/O, randomness, environment or thread.
//!
//! | file | decides |
//! |---|---|
//! | [`again`] | whether this process tries once more |
//! | [`effect`] | what a command may do to an effect, and what its history folds into |
//! | [`expect`] | what an expected stream state makes of the version found |
//! | [`protocol`] | one conditional write: load, decide, append, settle |
//! | [`attempt`] | one effect: reserve, begin, spawn, renew, settle |
//! | [`verdict`] | what the end of a child proves |
//! | [`probe`] | what a probe's end says |
//! | [`proof`] | what is said of a command line whose exit codes are taken as proof |
//! | [`retention`] | what may be forgotten, and when |
//! | [`pace`] | how many effects of a batch are reserved before there is a place for their child |
//! | [`retry`] | when to try again, and when to stop |
//! | [`template`] | keys and commands with placeholders, filled from values |
//! | [`journal`] | what a second memory says, held against the store |
//! | [`key`] | what can name an effect, and what identifies a request |
//! | [`time`] | the two clocks, which are never mixed |
//! | [`workflow`] | what a run of many effects does next: one tick |
pub mod again;
pub mod attempt;
mod bytes;
pub mod effect;
pub mod expect;
pub mod journal;
pub mod key;
pub mod pace;
pub mod probe;
pub mod proof;
pub mod protocol;
pub mod retention;
pub mod retry;
pub mod template;
pub mod time;
pub mod verdict;
pub mod workflow;
