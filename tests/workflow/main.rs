//! `ctrlrun workflow`, whole: the built binary on real stores, real children, real kills.
//!
//! | file | about |
//! |---|---|
//! | `goes` | runs that go well, wait, fail, are cancelled; what is told of them |
//! | `edited` | a file that changed between start and resume |
//! | `blocked` | a node in doubt |
//! | `killed` | coordinators and workers that are stopped and killed |
//! | `races` | many at one run |
//! | `stale` | dispatches that are of the past |
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails"))]
#[expect(dead_code, reason = "the tests of `run` use the rest")]
#[path = "../common/run.rs"]
mod at;
#[path = "../common/mod.rs"]
mod common;

#[path = "../common/pty.rs"]
mod pty;
#[expect(unused, reason = "some of its helpers are enough here")]
#[path = "../common/real.rs"]
mod real;

mod blocked;
mod edited;
mod goes;
mod killed;
mod lab;
mod races;
mod shown;
mod stale;
