//! `ctrlrun workflow cancel` and `signal`: what is wanted of a run waits in its inbox for a tick
//! (WFL-7).
use std::time::Duration;

use clap::Args;
use ctrlrun::drive::host;
use ctrlrun::plan::time::Timestamp;
use ctrlrun::plan::workflow::{Asked, InboxId, InboxItem, Name, Run, RunId, Wish};
use ctrlrun::store::End;
use nix::unistd::gethostname;
use uuid::Uuid;

use super::{line, no_such_run, run_id};
use crate::cli::Global;
use crate::cli::access::{Opened, for_writing};
use crate::cli::error::{CliError, Deed, Exit, Hint, Kind};
use crate::cli::render::shell::store_flag;
use crate::cli::render::text::clean;
use crate::cli::terminal::answer;

/// How often an item is put again whose answer did not come.
const TRIES: u32 = 5;

/// See the help of `cancel`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun workflow cancel nightly-2026-11-30 --reason 'wrong day'

Nothing more is dispatched; what has been started is waited for, and recorded.")]
pub struct CancelArgs {
    /// The run
    pub id: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// See the help of `signal`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun workflow signal release-7 approved

A signal stays with the run, whether or not a node waits for it yet. The first of a name counts.")]
pub struct SignalArgs {
    /// The run
    pub id: String,
    /// The signal
    pub name: String,
    /// What it carries
    #[arg(default_value = "")]
    pub payload: String,
}

/// Asks a run to end.
///
/// # Errors
/// 66 if there is none, 73 if it has ended.
pub fn cancel(args: &CancelArgs, global: &Global) -> Result<Exit, CliError> {
    let asked = Asked { by: by(), reason: args.reason.clone() };
    send(&args.id, Wish::Cancel(asked), "cancel is asked for", global)
}

/// Sends a run a signal.
///
/// # Errors
/// As [`cancel`].
pub fn signal(args: &SignalArgs, global: &Global) -> Result<Exit, CliError> {
    let name = Name::new(&args.name)
        .map_err(|bad| CliError::new(Kind::Usage, format!("{bad}; nothing was changed")))?;
    let what = format!("the signal {name} is sent");
    let wish = Wish::Signal { name, payload: args.payload.clone(), by: by() };
    send(&args.id, wish, &what, global)
}

fn send(id: &str, wish: Wish, what: &str, global: &Global) -> Result<Exit, CliError> {
    let id = run_id(id, Deed::Change)?;
    let opened = for_writing(global, Deed::Change)?;
    let found = opened.store.runs().load_run(&id, opened.within);
    let found = found.map_err(|error| opened.could_not(&error))?;
    let Some(run) = found.run else {
        return Err(no_such_run(&id, &opened.place));
    };
    ended(&run, &opened)?;
    put(&id, wish, host::draw(), &opened)?;
    let look = line("status", &id, "", &opened.place);
    if global.json {
        let object = serde_json::json!({"run": id, "sent": true, "next": [look]});
        answer(&format!("{object}\n"))?;
    } else {
        answer(&format!("{}: {what}; the next tick sees to it\n", clean(id.as_str())))?;
        global.note(&format!("  look: {look}"));
        let drive = format!("ctrlrun workflow work{}", store_flag(&opened.place));
        global.note(&format!("  if no worker is about: {drive}"));
    }
    Ok(Exit::OK)
}

fn ended(run: &Run, opened: &Opened) -> Result<(), CliError> {
    if !run.status.is_end() {
        return Ok(());
    }
    let message = format!(
        "{}: it has ended already: {}; nothing was changed",
        clean(run.id.as_str()),
        run.status.name()
    );
    let look = line("status", &run.id, "", &opened.place);
    Err(CliError::new(Kind::Settled, message).hint(Hint::command("look", look)))
}

/// Puts a wish into a run's inbox. The same item may be put again and again, so an answer that did
/// not come needs no re-read.
///
/// # Errors
/// 66 if there is no such run; what the store could not do.
pub fn put(id: &RunId, wish: Wish, item: Uuid, opened: &Opened) -> Result<(), CliError> {
    let item = InboxItem { id: InboxId(item), run: id.clone(), wish, at: Timestamp(0) };
    let mut unknown = false;
    for left in (0..TRIES).rev() {
        match opened.store.runs().put_inbox(&item, opened.within) {
            End::Landed => return Ok(()),
            End::Refused => return Err(no_such_run(id, &opened.place)),
            End::NotCommitted(error) if left == 0 || !error.reason.may_pass() => {
                return Err(if unknown {
                    CliError::unknown(&error, &opened.place, Deed::Change)
                } else {
                    opened.could_not(&error)
                });
            }
            End::Unknown(error) if left == 0 => {
                return Err(CliError::unknown(&error, &opened.place, Deed::Change));
            }
            End::NotCommitted(_) => {}
            End::Unknown(_) => unknown = true,
        }
        std::thread::sleep(host::up_to(Duration::from_millis(50)));
    }
    Ok(())
}

/// Who asks: as in decisions, the user at the host.
#[must_use]
pub fn by() -> String {
    let user = ["SUDO_USER", "USER"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|user| !user.is_empty())
        .unwrap_or_else(|| format!("uid {}", nix::unistd::geteuid()));
    let host =
        gethostname().map_or_else(|_| "?".to_owned(), |name| name.to_string_lossy().into_owned());
    format!("{user}@{host}")
}
