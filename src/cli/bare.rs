//! `ctrlrun` alone: short help, and what is stuck (CLI-7).
use std::io::Write;

use ctrlrun::store::{Filter, Flow, Listed};

use super::access::{Opened, for_reading};
use super::error::{CliError, Exit, Kind};
use super::help::topics;
use super::render::shell::store_flag;
use super::render::text::{age, count, hung};
use super::terminal::{columns_of_stderr, say};
use super::{Global, command};

/// Where more is.
const MORE: &str = "More: ctrlrun --help, and ctrlrun help";

/// Prints to stderr and ends 64.
///
/// # Errors
/// None: what cannot be read here is told by the commands that need it.
pub fn bare(global: &Global) -> Result<Exit, CliError> {
    if global.json {
        let hint = "a subcommand is missing: nothing was done";
        return Err(CliError::new(Kind::Usage, hint).tell("see", "ctrlrun --help"));
    }
    if let Ok(opened) = for_reading(global)
        && let Some(line) = stuck(&opened)
    {
        say(&line);
    }
    let help = command().help_template("{usage-heading} {usage}\n\n{subcommands}\n").render_help();
    let mut err = anstream::stderr().lock();
    let _ = write!(err, "{}\n\n", help.ansi().to_string().trim_end());
    let topics: Vec<&str> = topics().collect();
    let more = hung(&format!("{MORE} "), &topics.join(" | "), columns_of_stderr());
    let _ = err.write_all(more.as_bytes());
    Ok(Kind::Usage.exit())
}

/// `3 effects need a decision in ...; oldest 2 h`
fn stuck(opened: &Opened) -> Option<String> {
    let filter = Filter { stuck: true, ..Filter::default() };
    let mut found: u64 = 0;
    let mut oldest = std::time::Duration::ZERO;
    let mut each = |listed| {
        found += 1;
        if let Listed::Record(shown) = listed {
            oldest = oldest.max(shown.now.since(shown.record.updated_at));
        }
        Flow::Continue
    };
    opened.store.list(&filter, &mut each, opened.within).ok()?;
    (found > 0).then(|| {
        let need = if found == 1 { "needs" } else { "need" };
        format!(
            "{} {need} a decision in {}; oldest {} (try: ctrlrun effects --stuck{})",
            count(found, "effect"),
            opened.place.shown(),
            age(oldest),
            store_flag(&opened.place)
        )
    })
}
