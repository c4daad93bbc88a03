//! `ctrlrun run`, whole: the built binary on real stores, real children, real kills. One target, so
//! that it links once and its waits overlap.
//!
//! | file | about |
//! |---|---|
//! | `once` | many processes, one effect |
//! | `killed` | SIGKILL at every point; what is left, and what it refuses |
//! | `outcome` | what a child's end means, and what we end with |
//! | `report` | the JSON report |
//! | `streams` | output, and what the child inherits |
//! | `signals` | signals and time-outs |
//! | `again` | what is there already; waiting, retries |
//! | `late` | words that come when the record is no longer theirs |
//! | `spool` | outcomes that the store does not take |
//! | `keys` | what names an effect and what it is bound to |
//! | `places` | which store, and stores that must not be used |
//! | `order` | what is durable before what |
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails"))]
#[path = "../common/run.rs"]
mod at;
#[path = "../common/mod.rs"]
mod common;

mod again;
mod keys;
mod killed;
mod late;
mod once;
mod order;
mod outcome;
mod places;
mod report;
mod signals;
mod spool;
mod streams;
