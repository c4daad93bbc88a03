//! The face of `ctrlrun`, mounted for its readers.
#![expect(dead_code, reason = "most of the face is mounted for the sake of its readers")]
#[path = "../src/cli/mod.rs"]
mod cli;
#[path = "../src/config/mod.rs"]
mod config;
pub mod readers;
#[path = "../verify/mod.rs"]
mod verify;
