//! `ctrlrun help`: topics, and the commands' own help. It opens no store (CLI-22).
use clap::{Args, Command};

use super::command;
use super::error::{CliError, Exit, Hint, Kind};
use super::render::text::{clean, folded, width};
use super::terminal::{answer, columns};

/// The topics and their texts.
const TOPICS: [(&str, &str); 7] = [
    ("outcomes", include_str!("help/outcomes.txt")),
    ("exit-codes", include_str!("help/exit-codes.txt")),
    ("probes", include_str!("help/probes.txt")),
    ("keys", include_str!("help/keys.txt")),
    ("stores", include_str!("help/stores.txt")),
    ("config", include_str!("help/config.txt")),
    ("json", include_str!("help/json.txt")),
];

/// The text of a topic.
#[must_use]
pub fn topic(name: &str) -> Option<&'static str> {
    TOPICS.iter().find(|(topic, _)| *topic == name).map(|(_, text)| *text)
}

/// The names of the topics.
pub fn topics() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|(name, _)| *name)
}

/// Explain a topic, or a command
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// outcomes, exit-codes, probes, keys, stores, config, json, or a command
    pub topic: Vec<String>,
}

/// Prints it.
///
/// # Errors
/// 64 for what is neither topic nor command.
pub fn help(args: &HelpArgs) -> Result<Exit, CliError> {
    let topic = args.topic.join(" ");
    if let Some(text) = self::topic(&topic) {
        answer(&wrapped(text, columns()))?;
        return Ok(Exit::OK);
    }
    let mut all = command();
    all.build();
    let deeper = |of, name| Command::find_subcommand_mut(of, name);
    if let Some(found) = args.topic.iter().try_fold(&mut all, deeper) {
        answer(&found.render_long_help().ansi().to_string())?;
        return Ok(Exit::OK);
    }
    let names: Vec<&str> = topics().collect();
    Err(CliError::new(Kind::Usage, format!("no help on {}", clean(&topic)))
        .tell("topics", names.join(", "))
        .hint(Hint::command("commands", "ctrlrun --help")))
}

/// A page as it fits the terminal: prose is set anew, a row of a table goes on below its last column,
/// and a command line stays whole, so that it can be copied.
fn wrapped(text: &str, columns: Option<usize>) -> String {
    let widest = text.lines().map(width).max().unwrap_or(0);
    let Some(columns) = columns.filter(|columns| *columns < widest) else {
        return text.to_owned();
    };
    let mut lines = Vec::new();
    for block in text.split("\n\n") {
        let block: Vec<&str> = block.lines().collect();
        if block.iter().all(|line| !line.starts_with(' ')) {
            lines.extend(folded(&block.join(" "), columns));
        } else {
            block.iter().for_each(|line| lines.extend(row(line, columns)));
        }
        lines.push(String::new());
    }
    lines.pop();
    lines.join("\n") + "\n"
}

/// One line that is no prose.
fn row(line: &str, columns: usize) -> Vec<String> {
    let words = line.trim_start();
    let indent = line.len() - words.len();
    if width(line) <= columns || words.starts_with("ctrlrun ") || words.contains('"') {
        return vec![line.to_owned()];
    }
    // Where the last column begins; if too little is left of it, a little to the right of the line, and
    // no further than where its longest word still fits.
    let column = line.rfind("  ").map_or(indent, |at| at + 2);
    let longest = |words: &str| words.split(' ').map(width).max().unwrap_or(0);
    let (head, rest, hang) = if column + longest(&line[column..]).max(20) <= columns {
        (line[..column].to_owned(), &line[column..], column)
    } else {
        let room = columns.saturating_sub(longest(words));
        (" ".repeat(indent.min(room)), words, (indent + 2).min(room))
    };
    let most = columns.saturating_sub(hang.max(width(&head)));
    let mut parts = folded(rest, most).into_iter();
    let mut lines = vec![format!("{head}{}", parts.next().unwrap_or_default())];
    lines.extend(parts.map(|part| format!("{}{part}", " ".repeat(hang))));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_narrow_terminal_and_loses_no_word() {
        // CLI-22
        let words = |text: &str| -> Vec<String> {
            text.split_whitespace().map(ToOwned::to_owned).collect()
        };
        for (name, text) in TOPICS {
            assert_eq!(wrapped(text, Some(200)), text);
            for columns in [79, 60, 40] {
                let narrow = wrapped(text, Some(columns));
                assert_eq!(words(&narrow), words(text), "{name} at {columns}");
                for line in narrow.lines() {
                    let words = line.trim_start();
                    let whole = words.starts_with("ctrlrun ") || words.contains('"');
                    let whole = whole || !words.contains(' ');
                    assert!(whole || width(line) <= columns, "{name} at {columns}: {line}");
                }
            }
        }
        assert_eq!(
            wrapped(
                "  --not-executed 6,11      these codes prove that nothing happened\n",
                Some(48)
            ),
            "  --not-executed 6,11      these codes prove\n                           that nothing happened\n"
        );
    }

    #[test]
    fn help_fits_a_terminal() {
        for (name, text) in TOPICS {
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
        }
    }
}
