//! `ctrlrun man`: pages in roff, out of the same tree of commands (AFT-14).
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::{Args, Command};
use clap_mangen::Man;

use super::command;
use super::error::{CliError, Exit, Hint, Kind};
use super::help;
use super::render::text::clean;
use super::terminal::Answer;

/// Print a manual page
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun man | man -l -
  ctrlrun man run | man -l -
  ctrlrun man --output-dir /usr/local/share/man/man1")]
pub struct ManArgs {
    /// The page of this command, such as `run` or `workflow start` [default: ctrlrun's own]
    pub command: Vec<String>,
    /// Write all pages into this folder, which is made if it is not there
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub output_dir: Option<PathBuf>,
}

/// Prints a page, or writes all.
///
/// # Errors
/// 64 for no command; 66 for a folder that cannot be written to.
pub fn man(args: &ManArgs) -> Result<Exit, CliError> {
    // The help of a group of commands has the same commands once more, and no page.
    let mut tree = command().mut_subcommands(|of| of.disable_help_subcommand(true));
    tree.build();
    if let Some(dir) = &args.output_dir {
        return all(&tree, dir).map(|()| Exit::OK).map_err(|error| {
            let words = format!("{}: cannot be written", clean(&dir.to_string_lossy()));
            CliError::new(Kind::NotFound, words).because(&error)
        });
    }
    let deeper = |of: &'_ Command, name: &String| {
        of.find_subcommand(name).filter(|found| !found.is_hide_set()).cloned()
    };
    let found = args.command.iter().try_fold(tree, |of, name| deeper(&of, name));
    let Some(found) = &found else {
        let name = args.command.join(" ");
        return Err(CliError::new(Kind::Usage, format!("no page on {}", clean(&name)))
            .hint(Hint::command("commands", "ctrlrun --help")));
    };
    let page = page(found).map_err(|error| CliError::unwritten(&error))?;
    let mut out = Answer::plain();
    out.put(|out| out.write_all(&page))?;
    out.end()?;
    Ok(Exit::OK)
}

fn all(tree: &Command, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join(format!("{}.1", name(tree))), page(tree)?)?;
    let mut shown = tree.get_subcommands().filter(|found| !found.is_hide_set());
    shown.try_for_each(|found| all(found, dir))
}

/// `ctrlrun`, `ctrlrun-run`, `ctrlrun-workflow-start`
fn name(of: &Command) -> String {
    of.get_bin_name().unwrap_or("ctrlrun").replace(' ', "-")
}

fn page(of: &Command) -> io::Result<Vec<u8>> {
    let mut made = Vec::new();
    let after = of.get_after_help().map(ToString::to_string).unwrap_or_default();
    // Filled like prose, example lines could not be copied.
    Man::new(of.clone().after_help(Resettable::Reset)).render(&mut made)?;
    let made = String::from_utf8(made).map_err(io::Error::other)?;
    // Without a date, so that the same sources give the same page; the renderer would leave such an
    // argument out, and the version would stand in its place.
    let title = format!(
        ".TH \"{}\" \"1\" \"\" \"ctrlrun {}\" \"ctrlrun\"",
        name(of).to_uppercase(),
        env!("CARGO_PKG_VERSION")
    );
    let lines = made.lines().map(|line| if line.starts_with(".TH ") { &title } else { line });
    let mut page = lines.fold(String::new(), |page, line| page + line + "\n").into_bytes();
    if let Some(examples) = after.strip_prefix("Examples:\n") {
        verbatim(&mut page, "EXAMPLES", examples)?;
    } else if !after.is_empty() {
        verbatim(&mut page, "NOTES", &after)?;
    }
    if of.get_name() == "ctrlrun" {
        for (title, topic) in [("EXIT STATUS", "exit-codes"), ("OUTCOMES", "outcomes")] {
            if let Some(text) = help::topic(topic) {
                verbatim(&mut page, title, text)?;
            }
        }
    }
    Ok(page)
}

/// A text as it stands, in a section of its own.
fn verbatim(page: &mut Vec<u8>, title: &str, text: &str) -> io::Result<()> {
    write!(page, ".SH \"{title}\"\n.nf\n")?;
    for line in text.lines() {
        // A line that begins with one of these would be a request.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        writeln!(page, "{guard}{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
    }
    writeln!(page, ".fi")
}
