//! Completion at TAB: `ctrlrun completions SHELL` prints a script for the shell, which asks
//! `ctrlrun __complete` what can stand where the cursor is (AFT-12, AFT-13).
//!
//! | file | about |
//! |---|---|
//! | [`line`](mod@line) | what has been typed, as the shell reads it, and how a word goes back into it |
//! | [`place`](mod@place) | where the cursor is in the tree of commands |
//! | [`keys`] | keys and runs of the store, in time |
mod keys;
mod line;
mod place;

use std::ffi::OsString;

use clap::{Args, ValueEnum};

use super::error::{CliError, Exit};
use super::render::text::is_unsafe;
use super::terminal::answer;
use line::Typed;
use place::Offer;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  eval \"$(ctrlrun completions bash)\"                          # in ~/.bashrc
  ctrlrun completions zsh >~/.zfunc/_ctrlrun                  # a folder of $fpath
  ctrlrun completions fish >~/.config/fish/completions/ctrlrun.fish")]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: Shell,
}

/// What completion scripts ask.
#[derive(Debug, Args)]
pub struct CompleteArgs {
    shell: Shell,
    /// bash: the characters that end a word for it, and the line up to the cursor. Else: the words up
    /// to the cursor
    #[arg(last = true)]
    words: Vec<OsString>,
}

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// bash 4 and later
    Bash,
    /// zsh 5 and later
    Zsh,
    /// fish 3.4 and later
    Fish,
}

impl Shell {
    fn script(self) -> &'static str {
        match self {
            Self::Bash => include_str!("ctrlrun.bash"),
            Self::Zsh => include_str!("ctrlrun.zsh"),
            Self::Fish => include_str!("ctrlrun.fish"),
        }
    }
}

/// Prints the script.
///
/// # Errors
/// It could not be written.
pub fn completions(args: &CompletionsArgs) -> Result<Exit, CliError> {
    answer(args.shell.script())?;
    Ok(Exit::OK)
}

/// Prints what fits: a line that says how it is meant, then one word a line. Never an error (AFT-13).
pub fn complete(args: &CompleteArgs) -> Exit {
    let text: Vec<String> =
        args.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let typed = match (args.shell, text.as_slice()) {
        (Shell::Bash, [breaks, line]) => line::of_bash(line, breaks),
        (Shell::Bash, _) => None,
        (Shell::Zsh | Shell::Fish, words) => line::of_words(words),
    };
    let Some(typed) = typed else {
        return Exit::OK;
    };
    let said = match place::offer(&typed.words, &typed.current) {
        Offer::Files => "files\n".to_owned(),
        Offer::Commands => "commands\n".to_owned(),
        Offer::Words(words) => {
            let goes_on = words.iter().all(|word| word.text.ends_with('='));
            let head = if goes_on && !words.is_empty() { "nospace\n" } else { "words\n" };
            let words = words.iter().filter(|word| !word.text.chars().any(is_unsafe));
            words.fold(head.to_owned(), |said, word| said + &shown(args.shell, &typed, word))
        }
    };
    // A shell that is gone wants no answer.
    let _ = answer(&said);
    Exit::OK
}

/// One word as its shell takes it.
fn shown(shell: Shell, typed: &Typed, word: &place::Word) -> String {
    match shell {
        Shell::Bash => typed.reply(&word.text).map_or(String::new(), |reply| format!("{reply}\n")),
        // Neither a word nor a sentence of help holds a tab.
        Shell::Zsh | Shell::Fish => format!("{}\t{}\n", word.text, word.help),
    }
}
