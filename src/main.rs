//! `ctrlrun`: parse, dispatch, exit code. Everything that matters is in the library; the face of it
//! is in `cli/`, the proof that it holds in `verify/`.
#![cfg_attr(
    not(test),
    deny(clippy::wildcard_enum_match_arm, clippy::unwrap_used, clippy::expect_used)
)]

mod cli;
#[path = "../verify/mod.rs"]
mod verify;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(cli::main(std::env::args_os()).0)
}
