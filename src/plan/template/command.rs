//! A command whose arguments have placeholders (CFG-2, CFG-4).
use super::{BadTemplate, CannotFill, Template};

/// Shells: the argument behind `-c` is code.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish"];

/// Other programs that read an argument as code, each with the letters of the options before it.
const INTERPRETERS: [(&str, &str); 6] = [
    ("python", "c"),
    ("python3", "c"),
    ("perl", "eE"),
    ("ruby", "e"),
    ("node", "ep"),
    ("php", "r"),
];

/// A command with placeholders: each argument stays one argument, whatever its values hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandTemplate(Vec<Template>);

/// Why words are no command with placeholders. Words count from 0, the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    /// There is no program.
    #[error("the command is empty")]
    Empty,
    /// A word is no template.
    #[error("{why}")]
    Word {
        /// Which one.
        index: usize,
        /// What is wrong with it.
        why: BadTemplate,
    },
    /// A value would be read as code (CFG-4).
    #[error(
        "{{{name}}} stands in a script, where its value would be read as code: give it to the \
         script as an argument, as in sh -c './refund.sh \"$1\"' sh {{{name}}}"
    )]
    Script {
        /// Which one.
        index: usize,
        /// Where the placeholder stands in it, in characters from 1.
        column: usize,
        /// The placeholder.
        name: String,
    },
}

impl BadCommand {
    /// Which word it is about, from 0, and the column in it, from 1.
    #[must_use]
    pub fn place(&self) -> Option<(usize, usize)> {
        match self {
            Self::Empty => None,
            Self::Word { index, why } => Some((*index, why.column())),
            Self::Script { index, column, .. } => Some((*index, *column)),
        }
    }
}

impl CommandTemplate {
    /// Reads a command: the program, then its arguments.
    ///
    /// # Errors
    /// [`BadCommand`].
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self, BadCommand> {
        if words.first().is_none_or(|program| program.as_ref().is_empty()) {
            return Err(BadCommand::Empty);
        }
        let mut templates = Vec::with_capacity(words.len());
        for (index, word) in words.iter().enumerate() {
            let template = Template::parse(word.as_ref());
            templates.push(template.map_err(|why| BadCommand::Word { index, why })?);
        }
        for index in scripts(words) {
            let filled = templates.get(index).and_then(|script| script.placeholders().next());
            if let Some((name, column)) = filled {
                return Err(BadCommand::Script { index, column, name: name.to_owned() });
            }
        }
        Ok(Self(templates))
    }

    /// Its words, the program first.
    #[must_use]
    pub fn words(&self) -> &[Template] {
        &self.0
    }

    /// Its placeholders: word, name, column.
    pub fn placeholders(&self) -> impl Iterator<Item = (usize, &str, usize)> {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            word.placeholders().map(move |(name, column)| (index, name, column))
        })
    }

    /// The command, each placeholder by its value.
    ///
    /// # Errors
    /// As [`Template::argument`].
    pub fn fill<'v>(
        &self,
        values: impl Fn(&str) -> Option<&'v str>,
    ) -> Result<Vec<String>, CannotFill> {
        self.0.iter().map(|word| word.argument(&values)).collect()
    }
}

/// The words that an interpreter among the words would read as code.
fn scripts<S: AsRef<str>>(words: &[S]) -> Vec<usize> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let name = word.rsplit('/').next().unwrap_or(word);
        if SHELLS.contains(&name) {
            found.extend(script(&words, at + 1, "c", "oO"));
        } else if let Some((_, letters)) = INTERPRETERS.iter().find(|(known, _)| *known == name) {
            found.extend(script(&words, at + 1, letters, ""));
        }
    }
    found
}

/// The script of an interpreter whose options begin at `at`: the first word behind them that is
/// none, where one of `letters` was among them. An option with one of `valued` has a word of its own.
fn script(words: &[&str], mut at: usize, letters: &str, valued: &str) -> Option<usize> {
    let mut is_code = false;
    while let Some(word) = words.get(at) {
        // A single one of them is none, and shells go on to the script behind it as they do with `--`.
        if !word.starts_with(['-', '+']) {
            return is_code.then_some(at);
        }
        if word.starts_with("--") {
            at += usize::from(["--rcfile", "--init-file"].contains(word));
        } else {
            is_code |= word.contains(|c| letters.contains(c));
            at += usize::from(word.contains(|c| valued.contains(c)));
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(words: &[&str], value: &'static str) -> Vec<String> {
        CommandTemplate::parse(words).unwrap().fill(|_| Some(value)).unwrap()
    }

    #[test]
    fn whatever_a_value_holds_its_argument_stays_one() {
        // CFG-2
        let value = "a b'\"$(x);{y}*";
        assert_eq!(
            filled(&["./r.sh", "{id}", "--id={id}"], value),
            ["./r.sh", value, &format!("--id={value}")]
        );
    }

    #[test]
    fn a_command_has_a_program() {
        assert_eq!(CommandTemplate::parse::<&str>(&[]), Err(BadCommand::Empty));
        assert_eq!(CommandTemplate::parse(&["", "a"]), Err(BadCommand::Empty));
    }

    #[test]
    fn a_bad_word_is_named_by_its_place() {
        // CFG-1
        let bad = CommandTemplate::parse(&["awk", "{print $1"]).unwrap_err();
        assert_eq!(bad.place(), Some((1, 1)));
    }

    #[test]
    fn a_placeholder_is_told_with_its_word_and_its_column() {
        // CFG-1
        let command = CommandTemplate::parse(&["./r.sh", "-q", "--id={id}", "{a}{b}"]).unwrap();
        let told: Vec<_> = command.placeholders().collect();
        assert_eq!(told, [(2, "id", 6), (3, "a", 1), (3, "b", 4)]);
        assert_eq!(command.words().len(), 4);
    }

    #[test]
    fn a_value_never_becomes_code() {
        // CFG-4
        for words in [
            &["sh", "-c", "./refund.sh {id}"][..],
            &["/bin/bash", "-euo", "pipefail", "-c", "./refund.sh {id}"],
            &["bash", "--norc", "-ec", "{id}"],
            &["env", "A=1", "dash", "-c", "-e", "x {id}"],
            &["python3", "-c", "print('{id}')"],
            &["perl", "-ne", "print {id}"],
            &["bash", "--rcfile", "rc", "-c", "{id}"],
            &["sh", "-c", "-", "{id}"],
            &["bash", "-c", "+", "{id}"],
            &["sh", "-c", "--", "{id}"],
            &["bash", "-o", "errexit", "+O", "extglob", "-c", "{id}"],
        ] {
            let bad = CommandTemplate::parse(words).unwrap_err();
            assert!(matches!(bad, BadCommand::Script { .. }), "{words:?}: {bad}");
            assert_eq!(bad.place().unwrap().0, words.len() - 1, "{words:?}");
        }
        for words in [
            &["sh", "-c", "./refund.sh \"$1\"", "sh", "{id}"][..],
            &["sh", "./refund.sh", "-c", "{id}"],
            &["./sh.sh", "-c", "{id}"],
            &["curl", "-c", "{id}"],
            &["bash", "-e", "{id}"],
            &["sh", "-", "{id}"],
            &["sh", "-c"],
        ] {
            assert!(CommandTemplate::parse(words).is_ok(), "{words:?}");
        }
    }
}
