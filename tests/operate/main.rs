//! What an operator does with a store, whole: the built binary on real stores. One target, so that it
//! links once.
//!
//! | file | about |
//! |---|---|
//! | `prune` | letting go of what is old |
//! | `again` | what a forgotten key may do, and what it may not |
//! | `stats` | counting |
//! | `doctor` | what must be mended |
//! | `lists` | order, cuts, advice, and safe text |
//! | `many` | a store with many effects |
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails"))]
#[expect(unused, reason = "some of its helpers are enough here")]
#[path = "../common/run.rs"]
mod at;
#[path = "../common/mod.rs"]
mod common;

mod again;
mod alter;
mod doctor;
mod lists;
mod many;
mod prune;
mod stats;
