//! `ctrlrun`: parse, dispatch, exit code. Everything that matters is in the library; the face of it
//! is in `cli/`, its configuration in `config/`, the proof that it holds in `verify/`.
#![cfg_attr(
    not(test),
    deny(clippy::wildcard_enum_match_arm, clippy::unwrap_used, clippy::expect_used)
)]

mod cli;
mod config;
#[cfg(test)]
#[path = "../fuzz/mutated.rs"]
mod mutated;
#[path = "../verify/mod.rs"]
mod verify;

use std::process::ExitCode;

fn main() -> ExitCode {
    let run = || cli::main(std::env::args_os());
    // A panic is a bug of ours. It unwinds, so that the store is closed on this way out as well.
    let exit = std::panic::catch_unwind(run).unwrap_or_else(|_| cli::after_a_panic());
    ExitCode::from(exit.0)
}
