//! `ctrlrun help`: topics, and the commands' own help. It opens no store (CLI-22).
use clap::Args;

use super::command;
use super::error::{CliError, Exit, Hint, Kind};
use super::render::text::clean;
use super::terminal::answer;

/// The topics and their texts.
const TOPICS: [(&str, &str); 6] = [
    ("outcomes", include_str!("help/outcomes.txt")),
    ("exit-codes", include_str!("help/exit-codes.txt")),
    ("keys", include_str!("help/keys.txt")),
    ("stores", include_str!("help/stores.txt")),
    ("config", include_str!("help/config.txt")),
    ("json", include_str!("help/json.txt")),
];

/// Explain a topic, or a command
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// outcomes, exit-codes, keys, stores, config, json, or a command
    pub topic: Option<String>,
}

/// Prints it.
///
/// # Errors
/// 64 for what is neither topic nor command.
pub fn help(args: &HelpArgs) -> Result<Exit, CliError> {
    let Some(topic) = &args.topic else {
        answer(&command().render_long_help().ansi().to_string())?;
        return Ok(Exit::OK);
    };
    if let Some((_, text)) = TOPICS.iter().find(|(name, _)| name == topic) {
        answer(text)?;
        return Ok(Exit::OK);
    }
    let mut all = command();
    all.build();
    if let Some(found) = all.find_subcommand_mut(topic) {
        answer(&found.render_long_help().ansi().to_string())?;
        return Ok(Exit::OK);
    }
    let names: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
    Err(CliError::new(Kind::Usage, format!("no help on {}", clean(topic)))
        .tell("topics", names.join(", "))
        .hint(Hint::command("commands", "ctrlrun --help")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_terminal() {
        for (name, text) in TOPICS {
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
        }
    }
}
