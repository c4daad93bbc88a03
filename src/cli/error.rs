//! What a person is told when it did not go well: kind, facts, causes, and what to type next.
//!
//! The kind decides the exit code, in one exhaustive match ([`Kind::exit`], CLI-3). No other place
//! in the code knows these numbers.
use std::error::Error;
use std::io::{self, Write};

use ctrlrun::plan::key::BadKey;
use ctrlrun::store::{CouldNot, Reason};
use serde::Serialize;

use super::render::text::{clean, safe_json};
use super::which::Place;

/// The exit status of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit(pub u8);

impl Exit {
    /// It happened, or what was asked was done.
    pub const OK: Self = Self(0);
    /// `--check`, `--exit outcome`: it did not happen.
    pub const FAILED: Self = Self(1);
}

/// The kind of a refusal or failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It was asked for in a way that cannot be meant.
    Usage,
    /// The key is bound to another command.
    Mismatch,
    /// No such effect, output or file.
    NotFound,
    /// The store could not be reached or written, or a commit stayed unknown.
    Store,
    /// A bug, or a store that contradicts itself.
    Internal,
    /// The attempts are used up.
    MaxAttempts,
    /// It is committed, or settled otherwise.
    Settled,
    /// It ran, and its outcome is not recorded as ours.
    NotRecorded,
    /// Another attempt holds the key.
    InProgress,
    /// Nobody knows whether it happened.
    Ambiguous,
    /// The store denies permission.
    Denied,
    /// Configuration, a store that is not there, or one that this binary does not know.
    Config,
    /// The expected revision did not hold.
    RevisionConflict,
    /// The command did not happen, provably (`--exit outcome`).
    Failed,
}

impl Kind {
    /// The exit code: the one place that decides it (CLI-3).
    #[must_use]
    pub fn exit(self) -> Exit {
        Exit(match self {
            Self::Usage => 64,
            Self::Mismatch => 65,
            Self::NotFound => 66,
            Self::Store => 69,
            Self::Internal => 70,
            Self::MaxAttempts => 72,
            Self::Settled => 73,
            Self::NotRecorded => 74,
            Self::InProgress => 75,
            Self::Ambiguous => 76,
            Self::Denied => 77,
            Self::Config => 78,
            Self::RevisionConflict => 79,
            Self::Failed => 1,
        })
    }
}

/// What a command was about to do: a refusal says whether it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Run a command.
    Run,
    /// Change a record or a store.
    Change,
    /// Only look.
    Look,
}

impl Deed {
    /// What did not happen; nothing to say where nothing could have.
    #[must_use]
    pub fn undone(self) -> &'static str {
        match self {
            Self::Run => "nothing was run",
            Self::Change => "nothing was changed",
            Self::Look => "",
        }
    }

    /// `text`, and what did not happen.
    #[must_use]
    pub fn undone_after(self, text: &str) -> String {
        match self.undone() {
            "" => text.to_owned(),
            undone => format!("{text}: {undone}"),
        }
    }
}

/// What to type next, or what to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// What it is for: "look", "it did".
    pub label: String,
    /// A whole command line, quoted for the shell; or words, where `is_command` is not set.
    pub text: String,
    /// Whether it can be typed as it is.
    pub is_command: bool,
}

impl Hint {
    /// A command line.
    #[must_use]
    pub fn command(label: &str, line: impl Into<String>) -> Self {
        Self { label: label.to_owned(), text: line.into(), is_command: true }
    }

    /// Words.
    #[must_use]
    pub fn words(label: &str, words: impl Into<String>) -> Self {
        Self { label: label.to_owned(), text: words.into(), is_command: false }
    }
}

/// A refusal or a failure of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    kind: Kind,
    message: String,
    facts: Vec<String>,
    causes: Vec<String>,
    hints: Vec<Hint>,
    exit: Option<u8>,
}

impl CliError {
    /// An error with its one line: what happened, and whether anything was run or changed. Text from
    /// outside in it must have been cleaned.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            facts: Vec::new(),
            causes: Vec::new(),
            hints: Vec::new(),
            exit: None,
        }
    }

    /// Ends with the status of the command that ran, instead of its kind's (EXE-17).
    #[must_use]
    pub fn exiting(mut self, code: u8) -> Self {
        self.exit = Some(code);
        self
    }

    /// Adds a line below the first.
    #[must_use]
    pub fn fact(mut self, fact: impl Into<String>) -> Self {
        self.facts.push(fact.into());
        self
    }

    /// Adds an error and its sources as causes.
    #[must_use]
    pub fn because(mut self, error: &dyn Error) -> Self {
        let mut next = Some(error);
        while let Some(cause) = next {
            self.causes.push(clean(&cause.to_string()).into_owned());
            next = cause.source();
        }
        self
    }

    /// Adds what to type next.
    #[must_use]
    pub fn hint(mut self, hint: Hint) -> Self {
        self.hints.push(hint);
        self
    }

    /// Adds several.
    #[must_use]
    pub fn hints(mut self, hints: impl IntoIterator<Item = Hint>) -> Self {
        self.hints.extend(hints);
        self
    }

    /// Adds advice that is not a whole command line.
    #[must_use]
    pub fn tell(self, label: &str, words: impl Into<String>) -> Self {
        self.hint(Hint::words(label, words))
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its first line.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The command lines to type next.
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        self.hints.iter().filter(|hint| hint.is_command).map(|hint| hint.text.as_str())
    }

    /// The exit code of its kind, or the command's own.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit.map_or_else(|| self.kind.exit(), Exit)
    }

    /// A key that cannot be one, or looks like one that a script built from something missing
    /// (KEY-1, KEY-2).
    #[must_use]
    pub fn bad_key(text: &str, bad: &BadKey, deed: Deed) -> Self {
        let shown = match clean(text) {
            shown if shown.is_empty() => "''".into(),
            shown if shown.chars().count() > 60 => {
                let start: String = shown.chars().take(60).collect();
                format!("{start}...").into()
            }
            shown => shown,
        };
        let undone = deed.undone();
        let message = match undone {
            "" => format!("{shown}: {bad}"),
            undone => format!("{shown}: refused, {undone}: {bad}"),
        };
        let error = Self::new(Kind::Usage, message);
        if bad.is_hygiene() { error.tell("if that is the name", "--key-as-is") } else { error }
    }

    /// What a store could not do.
    #[must_use]
    pub fn could_not(error: &CouldNot, place: &Place, deed: Deed) -> Self {
        let kind = match error.reason {
            Reason::Busy | Reason::Unreachable | Reason::Moved => Kind::Store,
            Reason::Denied => Kind::Denied,
            Reason::Missing | Reason::Unfit => Kind::Config,
            Reason::Damaged => Kind::Internal,
        };
        let answer = Self::new(kind, deed.undone_after(&clean(&error.message)))
            .fact(format!("store: {}", place.named()));
        match &error.hint {
            Some(hint) => answer.fact(clean(hint)),
            None => answer,
        }
    }

    /// A commit whose end stayed unknown: it may have been written, nothing more was done.
    #[must_use]
    pub fn unknown(error: &CouldNot, place: &Place, deed: Deed) -> Self {
        let what = match deed {
            Deed::Run => "nothing was run",
            Deed::Change | Deed::Look => "look before you do it again",
        };
        // A store that contradicts itself is no passing trouble (CMT-11).
        let kind = if error.reason == Reason::Damaged { Kind::Internal } else { Kind::Store };
        Self::new(
            kind,
            format!(
                "whether the write to the store was kept is not known: {what} ({})",
                clean(&error.message)
            ),
        )
        .fact(format!("store: {}", place.named()))
    }

    /// Signals could not be caught, so they could not be passed on.
    #[must_use]
    pub fn no_signals(error: &io::Error) -> Self {
        Self::new(Kind::Internal, "nothing was run: signals cannot be caught here").because(error)
    }

    /// An answer that could not be written to stdout.
    #[must_use]
    pub fn unwritten(error: &io::Error) -> Self {
        Self::new(Kind::Internal, "the answer could not be written to stdout").because(error)
    }

    /// Writes it to stderr, for a person or, with `json`, as one object on one line (CLI-2, CLI-6).
    /// A stderr that is gone changes nothing: the exit code says the rest.
    pub fn report(&self, json: bool) {
        let mut err = anstream::stderr().lock();
        let _ =
            if json { writeln!(err, "{}", self.json()) } else { write!(err, "{}", self.human()) };
    }

    /// The lines for a person, each with its prefix.
    #[must_use]
    pub fn human(&self) -> String {
        let mut lines = vec![self.message.clone()];
        lines.extend(self.facts.iter().map(|fact| format!("  {fact}")));
        lines.extend(self.causes.iter().map(|cause| format!("  because: {cause}")));
        // Command lines stand below each other; advice in words would push them far to the right.
        let commands = self.hints.iter().filter(|hint| hint.is_command);
        let widest = commands.map(|hint| hint.label.len()).max().unwrap_or(0);
        for hint in &self.hints {
            let gap = if hint.is_command { widest.saturating_sub(hint.label.len()) } else { 0 };
            lines.push(format!("  {}: {}{}", hint.label, " ".repeat(gap), hint.text));
        }
        lines.iter().map(|line| format!("ctrlrun: {line}\n")).collect()
    }

    /// The object (CLI-6).
    #[must_use]
    pub fn json(&self) -> String {
        let object = serde_json::json!({
            "error": self.kind,
            "message": self.message,
            "facts": self.facts,
            "causes": self.causes,
            "advice": self.hints.iter().filter(|hint| !hint.is_command)
                .map(|hint| format!("{}: {}", hint.label, hint.text)).collect::<Vec<_>>(),
            "exit_status": self.exit().0,
            "next": self.commands().collect::<Vec<_>>(),
        });
        safe_json(&object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_carry_the_prefix_and_labels_line_up() {
        // CLI-2
        let error = CliError::new(Kind::Ambiguous, "k: AMBIGUOUS: nothing was run")
            .hint(Hint::command("look", "ctrlrun show k"))
            .hint(Hint::command("it did not", "ctrlrun resolve k"));
        assert_eq!(
            error.human(),
            "ctrlrun: k: AMBIGUOUS: nothing was run\n\
             ctrlrun:   look:       ctrlrun show k\n\
             ctrlrun:   it did not: ctrlrun resolve k\n"
        );
    }

    #[test]
    fn an_error_is_one_object_with_json() {
        // CLI-6
        let error = CliError::new(Kind::NotFound, "no effect k")
            .hint(Hint::command("look", "ctrlrun effects"))
            .tell("if that is the name", "--key-as-is");
        let object: serde_json::Value = serde_json::from_str(&error.json()).unwrap();
        assert_eq!(object["error"], "not_found");
        assert_eq!(object["message"], "no effect k");
        assert_eq!(object["exit_status"], 66);
        assert_eq!(object["next"], serde_json::json!(["ctrlrun effects"]));
        assert!(!error.json().contains('\n'));
    }

    #[test]
    fn every_kind_has_its_own_code() {
        // CLI-3
        use Kind::{
            Ambiguous, Config, Denied, Failed, InProgress, Internal, MaxAttempts, Mismatch,
            NotFound, NotRecorded, RevisionConflict, Settled, Store, Usage,
        };
        let kinds = [
            Usage,
            Mismatch,
            NotFound,
            Store,
            Internal,
            MaxAttempts,
            Settled,
            NotRecorded,
            InProgress,
            Ambiguous,
            Denied,
            Config,
            RevisionConflict,
            Failed,
        ];
        let codes: Vec<u8> = kinds.iter().map(|kind| kind.exit().0).collect();
        assert_eq!(codes, [64, 65, 66, 69, 70, 72, 73, 74, 75, 76, 77, 78, 79, 1]);
    }

    #[test]
    fn a_bad_key_says_that_nothing_was_run() {
        // KEY-2, case 51
        let bad = |text: &str| {
            let why = ctrlrun::plan::key::Key::new(text)
                .map(drop)
                .and_then(|()| ctrlrun::plan::key::check_hygiene(text))
                .unwrap_err();
            CliError::bad_key(text, &why, Deed::Run).human()
        };
        assert_eq!(
            bad("refund:null"),
            "ctrlrun: refund:null: refused, nothing was run: part 2 of the key is \"null\": a variable \
             or a field that was not there?\nctrlrun:   if that is the name: --key-as-is\n"
        );
        assert!(bad("").starts_with("ctrlrun: '': refused, nothing was run: the key is empty"));
        assert!(bad("a\n").starts_with("ctrlrun: a\\n: refused, nothing was run: the key holds"));
    }
}
