//! `ctrlrun verify`, from outside.
//!
//! | file | about |
//! |---|---|
//! | `soak` | operations for a long time |
//! | `shown` | what it shows and tells, and what it leaves alone |
//! | `ended` | a verify that is killed, or told to end |
//! | `server` | all of it on a Postgres server |
//! | `rig` | what is done on purpose inside a worker, and the self-test |
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails"))]
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/wait.rs"]
mod wait;

mod ended;
mod rig;
mod server;
mod shown;
mod soak;
