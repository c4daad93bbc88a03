//! `ctrlrun workflow start` and `run`: a run that is there already, or by another definition (WFL-3).
use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use ctrlrun::drive::host;
use ctrlrun::drive::workflow::Counters;
use ctrlrun::drive::workflow::coordinator::Coordinator;
use ctrlrun::plan::workflow::pace::Pace;
use ctrlrun::plan::workflow::tick::Loaded;
use ctrlrun::plan::workflow::write::{Aim, Done};
use ctrlrun::plan::workflow::{Definition, Difference, Name, Run, RunId, Wish, hash};

use super::work::{self, Jobs};
use super::{input, line, object, run_id, wish};
use crate::cli::Global;
use crate::cli::access::{Opened, for_running};
use crate::cli::error::{CliError, Deed, Exit, Hint, Kind};
use crate::cli::render::shell::{quote, store_flag};
use crate::cli::render::text::clean;
use crate::cli::terminal::answer;

/// What a run is made of.
#[derive(Debug, Args)]
pub struct Of {
    /// The workflow's file
    pub file: PathBuf,
    /// The run's name: the same name is the same run
    #[arg(long, value_name = "ID")]
    pub id: String,
    /// What the workflow takes
    #[arg(value_name = "NAME=VALUE", value_parser = input)]
    pub inputs: Vec<(Name, String)>,
    /// Go on by this file, where the run was started by another
    #[arg(long)]
    pub accept_new_definition: bool,
}

/// See the help of `start`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun workflow start nightly.toml --id nightly-2026-11-30 day=2026-11-30
  ctrlrun workflow work -j 4

The same line again is no second run: it says how the one that is there stands.")]
pub struct StartArgs {
    #[command(flatten)]
    of: Of,
}

/// See the help of `run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun workflow run nightly.toml --id nightly-2026-11-30 day=2026-11-30 -j 4

The same line again goes on with the run that is there.

Exit status: 0 every node is done; 1 it failed or was cancelled; 76 a node is AMBIGUOUS, or cannot be
dispatched; 65 the file, or what was given, differs from what the run was started with.")]
pub struct RunArgs {
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    jobs: Jobs,
}

/// Starts a run.
///
/// # Errors
/// 65 where there is one by another definition or with other inputs; what the store could not do.
pub fn start(args: &StartArgs, global: &Global) -> Result<Exit, CliError> {
    let begun = begin(&args.of, global)?;
    let (run, opened) = (&begun.run, &begun.opened);
    let drive = format!("ctrlrun workflow work{}", store_flag(&opened.place));
    let look = line("status", &run.id, "", &opened.place);
    if global.json {
        let next = [drive, look];
        answer(&format!("{}\n", object::of(run, None, &next, &opened.place)))?;
        return Ok(Exit::OK);
    }
    let what = match begun.was_there {
        true => format!("there already, {}", run.status.name()),
        false => "started".to_owned(),
    };
    answer(&format!("{}: {what}\n", clean(run.id.as_str())))?;
    if !run.status.is_end() {
        global.note(&format!("  drive it: {drive}"));
    }
    global.note(&format!("  look:     {look}"));
    Ok(Exit::OK)
}

/// Starts a run, or takes the one that is there, and drives it to its end.
///
/// # Errors
/// As [`start`]; 1 and 76 by how it ended.
pub fn run(args: &RunArgs, global: &Global) -> Result<Exit, CliError> {
    let begun = begin(&args.of, global)?;
    let mut words = format!(
        "ctrlrun workflow run {} --id {}",
        quote(&args.of.file),
        quote(begun.run.id.as_str())
    );
    for (name, value) in &args.of.inputs {
        words.push_str(&format!(" {}", quote(format!("{name}={value}"))));
    }
    words.push_str(&store_flag(&begun.opened.place));
    work::to_the_end(&begun.opened, &begun.run, &args.jobs, &words, global)
}

struct Begun {
    run: Run,
    was_there: bool,
    opened: Opened,
}

fn begin(of: &Of, global: &Global) -> Result<Begun, CliError> {
    let id = run_id(&of.id, Deed::Run)?;
    let definition = super::load(&of.file, global)?;
    let mut given = BTreeMap::new();
    for (name, value) in &of.inputs {
        if given.insert(name.clone(), value.clone()).is_some() {
            let message = format!("the input {name} is given twice; nothing was run");
            return Err(CliError::new(Kind::Usage, message));
        }
    }
    let inputs = definition.inputs_of(&given).map_err(|bad| bad_inputs(&bad))?;
    let opened = for_running(global)?;
    let pace = Pace::default();
    let counters = Counters::default();
    let within = global.store_timeout;
    let coordinator =
        Coordinator { store: opened.store.as_ref(), pace: &pace, counters: &counters, within };
    let aim = Aim::Start { definition: Box::new(definition.clone()), inputs: inputs.clone() };
    let done = coordinator.write(&id, aim, None);
    let found = match done {
        Done::Committed(append) => {
            let run = append.next;
            return Ok(Begun { run, was_there: false, opened });
        }
        Done::Exists(loaded) => *loaded,
        Done::Unknown(error) => return Err(CliError::unknown(&error, &opened.place, Deed::Run)),
        Done::CouldNot(error) => return Err(opened.could_not(&error)),
        Done::Conflicted(_) => match coordinator.look(&id) {
            Ok(Some(loaded)) => loaded,
            Ok(None) => return Err(raced(&id)),
            Err(error) => return Err(opened.could_not(&error)),
        },
        Done::Nothing(_) | Done::Dropped | Done::NoRun => return Err(raced(&id)),
    };
    let is_accepted = waits_for(&found, &definition);
    agree(of, &id, &definition, &inputs, (&found.run, is_accepted), &opened)?;
    let run = found.run;
    Ok(Begun { run, was_there: true, opened })
}

fn raced(id: &RunId) -> CliError {
    let message = format!(
        "{}: nothing was run: another start of it was faster every time",
        clean(id.as_str())
    );
    CliError::new(Kind::InProgress, message)
}

/// Whether this definition was accepted already, and only waits for the next tick: the line that
/// `--accept-new-definition` is followed by must not be refused because nobody has ticked in between.
fn waits_for(found: &Loaded, definition: &Definition) -> bool {
    let canonical = definition.canonical();
    let mut of = found.run.definition_hash;
    // Each replaces the one that it was compared with, as the tick will see it.
    for item in &found.inbox {
        if let Wish::Definition { from, definition, .. } = &item.wish
            && *from == of
        {
            of = hash(definition);
        }
    }
    of == hash(&canonical) && of != found.run.definition_hash
}

/// Holds what was asked for against the run that is there; another definition is put into its inbox
/// where that was asked for.
fn agree(
    of: &Of,
    id: &RunId,
    definition: &Definition,
    inputs: &BTreeMap<Name, String>,
    (found, is_accepted): (&Run, bool),
    opened: &Opened,
) -> Result<(), CliError> {
    let shown = clean(id.as_str());
    let canonical = definition.canonical();
    let differs = hash(&canonical) != found.definition_hash;
    // Another definition may have other inputs; those that both have must be the same all the same.
    let is_other = |name: &&Name| match (inputs.get(*name), found.inputs.get(*name)) {
        (Some(now), Some(then)) => now != then,
        (Some(_), None) | (None, Some(_)) => !differs,
        (None, None) => false,
    };
    let names = inputs.keys().chain(found.inputs.keys());
    let names: std::collections::BTreeSet<&str> =
        names.filter(is_other).map(Name::as_str).collect();
    if !names.is_empty() {
        let names: Vec<&str> = names.into_iter().collect();
        let message = format!(
            "{shown}: refused, nothing was run: it was started with another value of {}",
            names.join(", ")
        );
        return Err(CliError::new(Kind::Mismatch, message)
            .hint(Hint::command("look", line("status", id, "", &opened.place)))
            .tell("for another run", "another --id"));
    }
    if !differs || (is_accepted && !found.status.is_end()) {
        return Ok(());
    }
    if found.status.is_end() {
        let message = format!(
            "{shown}: refused, nothing was run: it has ended ({}), by another definition",
            found.status.name()
        );
        return Err(CliError::new(Kind::Mismatch, message)
            .fact(difference(found, definition))
            .tell("for another run", "another --id"));
    }
    if !of.accept_new_definition {
        let accept = format!(
            "--id {} {}--accept-new-definition",
            quote(id.as_str()),
            of.inputs
                .iter()
                .map(|(name, value)| format!("{} ", quote(format!("{name}={value}"))))
                .collect::<String>()
        );
        let words = format!(
            "ctrlrun workflow start {} {accept}{}",
            quote(&of.file),
            store_flag(&opened.place)
        );
        let message = format!(
            "{shown}: refused, nothing was run: it was started by another definition than {}",
            clean(&of.file.to_string_lossy())
        );
        return Err(CliError::new(Kind::Mismatch, message)
            .fact(difference(found, definition))
            .hint(Hint::command("look", line("status", id, "", &opened.place)))
            .hint(Hint::command("go on by the new one", words)));
    }
    let from = found.definition_hash;
    let wish = Wish::Definition { from, definition: canonical, by: wish::by() };
    wish::put(id, wish, host::draw(), opened)
}

/// In which nodes the two differ.
fn difference(found: &Run, new: &Definition) -> String {
    match Definition::read(&found.definition) {
        Ok(old) => format!("the difference: {}", Difference::of(&old, new).told()),
        Err(why) => format!("the run's own definition cannot be read: {}", clean(&why)),
    }
}

fn bad_inputs(bad: &ctrlrun::plan::workflow::BadInputs) -> CliError {
    let list = |names: &[Name]| names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
    let message = match (bad.missing.as_slice(), bad.unknown.as_slice()) {
        ([], unknown) => format!("the workflow has no input {}; nothing was run", list(unknown)),
        (missing, _) => format!("nothing was run: a value is missing for {}", list(missing)),
    };
    let error = CliError::new(Kind::Usage, message);
    match bad.missing.first() {
        Some(name) => error.tell("give it behind the file", format!("{name}=VALUE")),
        None => error,
    }
}
