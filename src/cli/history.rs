//! `ctrlrun history`: the events of one effect (HIS-7).
use clap::Args;
use ctrlrun::plan::effect::{Event, HistoryRow};

use super::access::for_reading;
use super::error::{CliError, Deed, Exit};
use super::render::event::{how, line, what};
use super::render::text::{count, cut, second, second_beside, width};
use super::terminal::{Answer, Reader, columns};
use super::{Global, existing_key};

/// The most columns of what is said of an event where there is no terminal whose width could say.
const HOW_MAX: usize = 500;

/// List what happened to one effect, oldest first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun history refund:txn_77
  ctrlrun history refund:txn_77 --from 3 --json")]
pub struct HistoryArgs {
    /// The effect's key
    pub key: String,
    /// Start at this revision
    #[arg(long, value_name = "REV", default_value_t = 1, hide_default_value = true)]
    pub from: u64,
}

/// Prints the events.
///
/// # Errors
/// 66 if there is no such effect; what the store could not do.
pub fn history(args: &HistoryArgs, global: &Global) -> Result<Exit, CliError> {
    let key = existing_key(&args.key, Deed::Look)?;
    let opened = for_reading(global)?;
    opened.find(&key)?;
    let rows = opened.history(&key, args.from)?;
    let mut out = if global.json { Answer::plain() } else { Answer::styled() };
    let lines: Box<dyn Iterator<Item = String>> = if global.json {
        Box::new(rows.iter().map(line))
    } else {
        Box::new(told(&rows, columns()).into_iter())
    };
    for line in lines {
        if out.put(|out| writeln!(out, "{line}"))? == Reader::Gone {
            break;
        }
    }
    out.end()?;
    Ok(Exit::OK)
}

/// The events for a person: `  3 AMBIGUOUS  02:41:10Z  its lease had ended`. Renewals that follow each
/// other are one line, or a long command's history would be nothing else.
#[must_use]
pub fn told(rows: &[HistoryRow], columns: Option<usize>) -> Vec<String> {
    let digits = rows.last().map_or(1, |row| row.revision.to_string().len());
    let mut lines = Vec::new();
    let mut before: Option<&HistoryRow> = None;
    let mut rest = rows;
    while let Some((row, more)) = rest.split_first() {
        let renewals = rest.iter().take_while(|row| is_renewal(row)).count();
        let (newest, how, more) = if renewals > 1 {
            let how = format!("{}, the holder was alive", count(renewals as u64, "time"));
            (&rest[renewals - 1], how, &rest[renewals..])
        } else {
            (row, how(&row.event), more)
        };
        let at = match before {
            None => second(newest.recorded_at),
            Some(before) => second_beside(newest.recorded_at, before.recorded_at),
        };
        let facts = format!("{:>digits$}  {:<9}  {at:>20}", newest.revision, what(&newest.event));
        match columns {
            Some(columns) if width(&facts) + 2 + width(&how) > columns => {
                let indent = " ".repeat(digits + 2);
                lines.push(facts);
                lines.push(cut(&format!("{indent}{how}"), columns).into_owned());
            }
            Some(_) => lines.push(format!("{facts}  {how}")),
            // A list to be looked at: `--json` has all of it (OPS-12).
            None => lines.push(format!("{facts}  {}", cut(&how, HOW_MAX))),
        }
        before = Some(newest);
        rest = more;
    }
    lines
}

fn is_renewal(row: &HistoryRow) -> bool {
    matches!(row.event, Event::LeaseRenewed(_))
}
