//! What the end of a child proves (EXE-3 to EXE-6).
use std::collections::BTreeSet;

use super::effect::{Cause, Ending, Verdict};

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It is gone, and nobody saw how.
    Unseen,
}

/// All that was seen of a child's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildEnd {
    /// How it ended.
    pub exit: Exit,
    /// Our TERM was sent before its exit was seen.
    pub timed_out: bool,
    /// The holder had lost its record, and its TERM was sent before the exit was seen (EXE-9).
    pub ended_by_holder: bool,
    /// What it started and left alive.
    pub left: Left,
    /// What it said in its outcome file.
    pub said: Said,
}

/// What a child left alive (EXE-12). Nothing that is not seen is claimed to be dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Processes by these numbers.
    Running(Vec<u32>),
    /// Something, or it could not be found out.
    Unseen,
}

/// What a child said of itself in its outcome file (EXE-5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The statement that stands.
    pub statement: Statement,
    /// Its notes, one a line.
    pub notes: Vec<String>,
}

/// The statement of an outcome file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// None.
    Nothing,
    /// It happened.
    Committed,
    /// It did not.
    NotExecuted,
    /// What is there cannot be taken for a statement: why.
    Unreadable(String),
}

impl Said {
    /// Nothing was said.
    #[must_use]
    pub fn nothing() -> Self {
        Self { statement: Statement::Nothing, notes: Vec::new() }
    }

    /// The file could not be read, or was gone: why.
    #[must_use]
    pub fn unreadable(why: impl Into<String>) -> Self {
        Self { statement: Statement::Unreadable(why.into()), notes: Vec::new() }
    }

    /// Reads an outcome file's bytes (EXE-5).
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Self::unreadable("the outcome file is not text");
        };
        let mut said = Self::nothing();
        for line in text.lines() {
            let word = match line {
                "clear" => {
                    said.statement = Statement::Nothing;
                    continue;
                }
                "committed" => Statement::Committed,
                "not-executed" => Statement::NotExecuted,
                _ => match line.strip_prefix("# ") {
                    Some(note) => {
                        // No text of a Postgres store may hold it, and a note must not cost the outcome.
                        said.notes.push(note.replace('\0', "\u{fffd}"));
                        continue;
                    }
                    None => Statement::Unreadable(format!(
                        "the outcome file holds {line:?}, which is no statement"
                    )),
                },
            };
            said.statement = match said.statement {
                Statement::Nothing => word,
                same if same == word => same,
                Statement::Unreadable(why) => Statement::Unreadable(why),
                Statement::Committed | Statement::NotExecuted => match word {
                    Statement::Unreadable(why) => Statement::Unreadable(why),
                    Statement::Nothing | Statement::Committed | Statement::NotExecuted => {
                        Statement::Unreadable(
                            "the outcome file says both committed and not-executed".to_owned(),
                        )
                    }
                },
            };
        }
        said
    }
}

/// The exit codes that an effect declares as proof that nothing happened (EXE-6).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NotExecuted(BTreeSet<i32>);

/// Exit codes that others than the command itself give it, with whose they are: declared as proof
/// that nothing happened they prove nothing (EXE-6).
const BORROWED: [(i32, &str); 7] = [
    (124, "`timeout` exits so after killing a command that ran"),
    (126, "a shell inside the command exits so when a later step cannot be started"),
    (127, "a shell inside the command exits so when a later step is not found"),
    (130, "a shell exits so after a step that ran was interrupted"),
    (137, "a shell exits so after a step that ran was killed"),
    (143, "a shell exits so after a step that ran was terminated"),
    (255, "`ssh` exits so also when the connection breaks after the remote command ran"),
];

/// As [`NotExecuted::parse`] reads it.
impl std::fmt::Display for NotExecuted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let codes: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&codes.join(","))
    }
}

impl NotExecuted {
    /// Reads `6,11` or `nonzero` (1 to 123).
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "nonzero" {
            return Ok(Self((1..=123).collect()));
        }
        let code = |word: &str| match word.trim().parse::<i32>() {
            Ok(0) => Err("exit code 0 means that it happened".to_owned()),
            Ok(code @ 1..=255) => Ok(code),
            _ => Err(format!(
                "{word:?} is no exit code; give codes from 1 to 255 (\"6,11\"), or \"nonzero\" for 1 to 123"
            )),
        };
        text.split(',').map(code).collect::<Result<_, _>>().map(Self)
    }

    /// Whether `code` is declared.
    #[must_use]
    pub fn has(&self, code: i32) -> bool {
        self.0.contains(&code)
    }

    /// Whether nothing is declared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The declared codes that prove nothing, with the reason.
    #[must_use]
    pub fn borrowed(&self) -> Vec<(i32, &'static str)> {
        BORROWED.into_iter().filter(|(code, _)| self.has(*code)).collect()
    }
}

/// Why a child's word that nothing happened does not count.
const GOES_ON: &str = "but what it left running may still do it";

/// What a child's end means (EXE-3, EXE-4), and how it is told.
#[must_use]
pub fn verdict(end: &ChildEnd, declared: &NotExecuted) -> (Verdict, Ending) {
    let is_declared = match end.exit {
        Exit::Code(code) => declared.has(code),
        Exit::Signal(_) | Exit::Unseen => false,
    };
    let ambiguous = |cause| Verdict::Ambiguous { cause, reaped: reaped(end) };
    // After our own TERM no exit proves anything: nobody knows how far it had come.
    let our_term = end.timed_out || end.ended_by_holder;
    let by_exit = if our_term {
        Cause::Timeout
    } else {
        match end.exit {
            Exit::Signal(_) => Cause::Signal,
            Exit::Code(_) | Exit::Unseen => Cause::Exit,
        }
    };
    let succeeded = end.exit == Exit::Code(0);
    let goes_on = end.left != Left::Nothing;
    let (word, aside) = match &end.said.statement {
        Statement::Unreadable(why) => (ambiguous(Cause::Contradiction), Some(why.clone())),
        Statement::Committed if is_declared => (
            ambiguous(Cause::Contradiction),
            Some("it said committed, and its code is declared as not executed".to_owned()),
        ),
        Statement::Committed => (Verdict::Committed, Some("it said committed".to_owned())),
        Statement::NotExecuted if succeeded && !our_term => {
            (ambiguous(Cause::Contradiction), Some("it said not-executed, and exited 0".to_owned()))
        }
        Statement::NotExecuted if goes_on && by_exit == Cause::Exit => {
            (ambiguous(by_exit), Some(format!("it said not-executed, {GOES_ON}")))
        }
        Statement::NotExecuted if by_exit == Cause::Exit && end.exit != Exit::Unseen => {
            (Verdict::Failed, Some("it said not-executed".to_owned()))
        }
        Statement::NotExecuted => (ambiguous(by_exit), Some("it said not-executed".to_owned())),
        Statement::Nothing if our_term => (ambiguous(Cause::Timeout), None),
        Statement::Nothing if succeeded => (Verdict::Committed, None),
        Statement::Nothing if is_declared && goes_on => {
            (ambiguous(by_exit), Some(format!("its code is declared as not executed, {GOES_ON}")))
        }
        Statement::Nothing if is_declared => (Verdict::Failed, None),
        Statement::Nothing => (ambiguous(by_exit), None),
    };
    (word, ending(end, aside))
}

/// Whether the holder saw all of it end: the child by itself, and nothing left that it started.
fn reaped(end: &ChildEnd) -> bool {
    !end.timed_out && !end.ended_by_holder && end.left == Left::Nothing && end.exit != Exit::Unseen
}

fn ending(end: &ChildEnd, aside: Option<String>) -> Ending {
    let (exit_code, signal, mut detail) = match end.exit {
        Exit::Code(code) => (Some(code), None, format!("exited {code}")),
        Exit::Signal(number) => (None, Some(number), format!("killed by signal {number}")),
        Exit::Unseen => (None, None, "it ended, and nobody saw how".to_owned()),
    };
    if end.timed_out {
        detail = format!("timed out, then {detail}");
    } else if end.ended_by_holder {
        detail = format!("ended because its record was no longer its own, {detail}");
    }
    let left = match &end.left {
        Left::Nothing => None,
        Left::Running(pids) => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            Some(format!("it left running: pid {}", pids.join(", ")))
        }
        Left::Unseen => Some("it may have left something running".to_owned()),
    };
    for part in aside.into_iter().chain(left).chain(end.said.notes.iter().cloned()) {
        detail.push_str("; ");
        detail.push_str(&part);
    }
    Ending { exit_code, signal, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(exit: Exit, timed_out: bool, said: &str) -> ChildEnd {
        ChildEnd {
            exit,
            timed_out,
            ended_by_holder: false,
            left: Left::Nothing,
            said: Said::read(said.as_bytes()),
        }
    }

    fn word(exit: Exit, timed_out: bool, said: &str) -> Verdict {
        verdict(&end(exit, timed_out, said), &NotExecuted::parse("6,137").unwrap()).0
    }

    fn doubt(cause: Cause) -> Verdict {
        Verdict::Ambiguous { cause, reaped: cause != Cause::Timeout }
    }

    #[test]
    fn what_an_exit_proves_when_nothing_was_said() {
        // EXE-3, case 8
        assert_eq!(word(Exit::Code(0), false, ""), Verdict::Committed);
        assert_eq!(word(Exit::Code(6), false, ""), Verdict::Failed);
        assert_eq!(word(Exit::Code(137), false, ""), Verdict::Failed);
        assert_eq!(word(Exit::Code(1), false, ""), doubt(Cause::Exit));
        for signal in [6, 9, 15] {
            assert_eq!(word(Exit::Signal(signal), false, ""), doubt(Cause::Signal));
        }
        for exit in [Exit::Code(0), Exit::Code(6), Exit::Code(1), Exit::Signal(15)] {
            assert_eq!(word(exit, true, ""), doubt(Cause::Timeout));
        }
    }

    #[test]
    fn what_a_statement_proves() {
        // EXE-4
        for (exit, timed_out) in [
            (Exit::Code(0), false),
            (Exit::Code(1), false),
            (Exit::Signal(9), false),
            (Exit::Code(0), true),
            (Exit::Signal(9), true),
        ] {
            assert_eq!(word(exit, timed_out, "committed\n"), Verdict::Committed);
        }
        assert_eq!(word(Exit::Code(6), false, "committed\n"), doubt(Cause::Contradiction));
        assert_eq!(word(Exit::Code(1), false, "not-executed\n"), Verdict::Failed);
        assert_eq!(word(Exit::Code(6), false, "not-executed\n"), Verdict::Failed);
        assert_eq!(word(Exit::Code(0), false, "not-executed\n"), doubt(Cause::Contradiction));
        assert_eq!(word(Exit::Signal(9), false, "not-executed\n"), doubt(Cause::Signal));
        for exit in [Exit::Code(0), Exit::Code(1), Exit::Code(6), Exit::Signal(15)] {
            assert_eq!(word(exit, true, "not-executed\n"), doubt(Cause::Timeout));
        }
    }

    #[test]
    fn an_outcome_file_is_read_line_by_line() {
        // EXE-5
        let statement = |text: &str| Said::read(text.as_bytes()).statement;
        assert_eq!(statement(""), Statement::Nothing);
        assert_eq!(statement("committed"), Statement::Committed);
        assert_eq!(statement("committed\ncommitted\n"), Statement::Committed);
        assert_eq!(statement("committed\nclear\nnot-executed\n"), Statement::NotExecuted);
        assert_eq!(statement("nonsense\nclear\n"), Statement::Nothing);
        assert_eq!(statement("# half way\nclear\n"), Statement::Nothing);
        for bad in [
            "committed\nnot-executed\n",
            "not-executed\ncommitted\n",
            "Committed\n",
            "#x\n",
            "\n",
            "committed \n",
        ] {
            assert!(matches!(statement(bad), Statement::Unreadable(_)), "{bad:?}");
        }
        assert!(matches!(Said::read(b"\xff").statement, Statement::Unreadable(_)));
        assert_eq!(Said::read(b"# re_12\ncommitted\n# done\n").notes, ["re_12", "done"]);
        assert_eq!(Said::read(b"# a\0b\n").notes, ["a\u{fffd}b"]);
    }

    #[test]
    fn an_unreadable_statement_is_in_doubt_however_the_child_ended() {
        let mut end = end(Exit::Code(0), false, "");
        end.said = Said::unreadable("the outcome file is gone");
        let (word, ending) = verdict(&end, &NotExecuted::default());
        assert_eq!(word, doubt(Cause::Contradiction));
        assert_eq!(ending.detail, "exited 0; the outcome file is gone");
    }

    #[test]
    fn a_doubt_with_something_left_alive_is_not_reaped() {
        // EFF-21
        let mut end = end(Exit::Code(1), false, "");
        end.left = Left::Running(vec![7, 8]);
        let (word, ending) = verdict(&end, &NotExecuted::default());
        assert_eq!(ending.detail, "exited 1; it left running: pid 7, 8");
        assert_eq!(word, Verdict::Ambiguous { cause: Cause::Exit, reaped: false });
    }

    #[test]
    fn what_is_still_running_takes_the_proof_from_a_word_that_nothing_happened() {
        // EXE-3, EXE-4, EXE-12
        for said in ["", "not-executed\n"] {
            let mut end = end(Exit::Code(6), false, said);
            let declared = NotExecuted::parse("6").unwrap();
            assert_eq!(verdict(&end, &declared).0, Verdict::Failed);
            end.left = Left::Unseen;
            let doubt = Verdict::Ambiguous { cause: Cause::Exit, reaped: false };
            assert_eq!(verdict(&end, &declared).0, doubt);
            end.left = Left::Running(vec![7]);
            let (word, ending) = verdict(&end, &declared);
            assert_eq!(word, doubt);
            assert!(ending.detail.contains("but what it left running may still do it"));
            assert!(ending.detail.ends_with("; it left running: pid 7"), "{}", ending.detail);
        }
        let mut end = end(Exit::Code(0), false, "");
        end.left = Left::Running(vec![7]);
        assert_eq!(verdict(&end, &NotExecuted::default()).0, Verdict::Committed);
    }

    #[test]
    fn a_child_that_its_holder_ended_proves_nothing_by_its_exit() {
        // EXE-9
        for exit in [Exit::Code(0), Exit::Code(6), Exit::Signal(15)] {
            let mut end = end(exit, false, "");
            end.ended_by_holder = true;
            let (word, _) = verdict(&end, &NotExecuted::parse("6").unwrap());
            assert_eq!(word, Verdict::Ambiguous { cause: Cause::Timeout, reaped: false });
        }
    }

    #[test]
    fn an_end_that_nobody_saw_proves_nothing() {
        for said in ["", "not-executed\n"] {
            let (word, _) = verdict(&end(Exit::Unseen, false, said), &NotExecuted::default());
            assert_eq!(word, Verdict::Ambiguous { cause: Cause::Exit, reaped: false });
        }
        assert_eq!(word(Exit::Unseen, false, "committed\n"), Verdict::Committed);
    }

    #[test]
    fn declared_codes_are_checked() {
        // EXE-6
        assert!(NotExecuted::parse("nonzero").unwrap().has(123));
        assert!(!NotExecuted::parse("nonzero").unwrap().has(124));
        assert!(NotExecuted::parse("6, 11").unwrap().has(11));
        for bad in ["0", "256", "-1", "", "6,", "x", "1-3"] {
            assert!(NotExecuted::parse(bad).is_err(), "{bad:?}");
        }
        let borrowed = NotExecuted::parse("1,124,126,127,130,137,143,255").unwrap().borrowed();
        assert_eq!(
            borrowed.iter().map(|(code, _)| *code).collect::<Vec<_>>(),
            [124, 126, 127, 130, 137, 143, 255]
        );
    }

    #[test]
    fn declared_codes_are_read_and_0_is_none_of_them() {
        // EXE-6
        assert!(NotExecuted::default().is_empty());
        let declared = NotExecuted::parse("6, 11").unwrap();
        assert!(declared.has(6) && declared.has(11) && !declared.has(7) && !declared.is_empty());
        let nonzero = NotExecuted::parse("nonzero").unwrap();
        assert!(nonzero.has(1) && nonzero.has(123) && !nonzero.has(0) && !nonzero.has(124));
        assert!(NotExecuted::parse("0").unwrap_err().contains("means that it happened"));
        for bad in ["", "256", "-1", "x", "6,,7"] {
            assert!(NotExecuted::parse(bad).unwrap_err().contains("is no exit code"), "{bad:?}");
        }
    }
}
