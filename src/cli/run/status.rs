//! The exit status of a run (EXE-17).
use ctrlrun::drive::run::Ran;
use ctrlrun::exec::Exit;
use ctrlrun::plan::attempt::Outcome;
use ctrlrun::plan::effect::Verdict;

use super::args::ExitAs;
use crate::cli::error::CliError;

/// What a timed out command ends with, as of timeout(1).
const TIMED_OUT: u8 = 124;
/// A command that could not be started, as of a shell.
const NOT_STARTED: u8 = 126;

/// How this process is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

/// A status, or the one that goes with what is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// This.
    Status(Status),
    /// That of the refusal's kind.
    OfKind,
}

impl Found {
    /// The status, which may be that of `told`.
    #[must_use]
    pub fn unwrap_or_kind(self, told: &CliError) -> Status {
        match self {
            Self::Status(status) => status,
            Self::OfKind => Status::Code(told.exit().0),
        }
    }
}

/// The status of an attempt.
#[must_use]
pub fn of(ran: &Ran, whose: ExitAs) -> Found {
    let Outcome::Settled { verdict, .. } = &ran.report.result else {
        return Found::OfKind;
    };
    let outcome = whose == ExitAs::Outcome;
    match verdict {
        Verdict::Committed => Found::Status(Status::Code(0)),
        // A fact of this host, and none of the command (AFT-3).
        Verdict::NeverStarted if ran.unjournaled => Found::OfKind,
        Verdict::Failed | Verdict::NeverStarted if outcome => Found::Status(Status::Code(1)),
        Verdict::NeverStarted => {
            let code = ran.not_started.as_ref().map(|why| why.exit_code());
            Found::Status(Status::Code(code.map_or(NOT_STARTED, code_of)))
        }
        Verdict::Ambiguous { .. } if outcome => Found::OfKind,
        Verdict::Failed | Verdict::Ambiguous { .. } => of_child(ran),
    }
}

/// The child's own, but never 0 for what is not COMMITTED.
fn of_child(ran: &Ran) -> Found {
    let Some(child) = &ran.child else {
        return Found::OfKind;
    };
    if child.timed_out {
        return Found::Status(Status::Code(TIMED_OUT));
    }
    match child.exit {
        Exit::Code(0) | Exit::Lost => Found::OfKind,
        Exit::Code(code) => Found::Status(Status::Code(code_of(code))),
        Exit::Signal { number, .. } => Found::Status(Status::Signal(number)),
    }
}

fn code_of(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}
