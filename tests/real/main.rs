//! `ctrlrun run` between real programs: terminals, shells, signals, wrappers, limits. One target, so
//! that it links once and its waits overlap.
//!
//! | file | about |
//! |---|---|
//! | `dying` | its end as its caller sees it |
//! | `terminal` | prompts, job control, pipelines, hang-ups, on real terminals |
//! | `passing` | signals that are passed on |
//! | `first` | PID 1 of a container |
//! | `flow` | both streams, descriptors that are closed, shared, full |
//! | `inherits` | what a child is given, compared with what it gets without us |
//! | `time` | time-outs |
//! | `kept` | the spool, while and after the store is not to be had |
//! | `around` | programs that run ctrlrun, and commands that do odd things |
//! | `advice` | warnings |
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails"))]
#[expect(unused, reason = "one kind of store is enough here, and some of its helpers")]
#[path = "../common/run.rs"]
mod at;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/pty.rs"]
mod pty;
#[path = "../common/real.rs"]
mod real;

mod advice;
mod around;
mod dying;
mod first;
mod flow;
mod inherits;
mod kept;
mod passing;
mod terminal;
mod time;
