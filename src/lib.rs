//! The engine of `ctrlrun`: it runs a command as an **effect**, something that must happen in the
//! real world once, and never guesses what came of it.
//!
//! The rooms, in import order. An arrow never points back.
//!
//! | room | what it does | what it may not do |
//! |---|---|---|
//! | [`plan`] | decides: state machines that take answers and name the next step | clock, I/O, randomness, environment, threads |
//! | [`store`] | every byte that touches a database | know that commands exist |
//! | [`exec`] | every process: spawn, signals, time-outs, capture | know that a store exists |
//! | [`drive`] | performs the steps that `plan` names, on a store and an executor | decide |
//!
//! The binary mounts `cli/`, the face of the engine; the library cannot import it.
//!
//! The promise under all of it: it may cost availability, it never costs a second execution.
//! `spec/` is the normative text; code and tests cite its clauses (`EFF-3`).
#![cfg_attr(
    not(test),
    deny(clippy::wildcard_enum_match_arm, clippy::unwrap_used, clippy::expect_used)
)]

pub mod drive;
pub mod exec;
pub mod plan;
pub mod store;
