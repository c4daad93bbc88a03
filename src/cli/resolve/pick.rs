//! Picking what to decide from a list on a terminal (DEC-15, DEC-16).
use std::io::IsTerminal;

use dialoguer::console::Term;
use dialoguer::theme::SimpleTheme;
use dialoguer::{Confirm, Input, Select};

use ctrlrun::plan::effect::Answer;
use ctrlrun::plan::key::Key;
use ctrlrun::plan::time::Timestamp;
use ctrlrun::store::{Captured, Filter, Flow, Listed, Shown, Stream};

use super::ResolveArgs;
use super::deciding::{Decided, Decision, Told, by};
use super::guard::Guard;
use crate::cli::access::{Opened, for_writing};
use crate::cli::error::{CliError, Deed, Exit, Kind};
use crate::cli::history::told;
use crate::cli::refusal::answered;
use crate::cli::render::shell::line;
use crate::cli::render::state::{name_at, why};
use crate::cli::render::text::{age, clean, count, cut, number};
use crate::cli::spooled::Delivered;
use crate::cli::terminal::{a_person_is_there, columns_of_stderr, say};
use crate::cli::{Global, show};

/// So many of the oldest are offered. More than that is decided by `--from`.
const OFFERED_MAX: usize = 1_000;
/// So many of the last events are shown.
const EVENTS_MAX: usize = 8;
/// So many of the last lines of an output are shown.
const LINES_MAX: usize = 20;
/// Columns that stand before an item of a list.
const MARGIN: usize = 4;

/// Whether a list can be shown, and a person is there to pick from it.
pub fn can_pick() -> bool {
    a_person_is_there() && !is_dumb()
}

/// A terminal that knows no movement of the cursor.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb")
}

/// Lets a person pick from what is stuck, until nothing is left or they leave.
///
/// # Errors
/// 64 where nobody can pick; what the store could not do.
pub fn pick(args: &ResolveArgs, global: &Global) -> Result<Exit, CliError> {
    if global.json || !can_pick() {
        return Err(cannot_pick(global));
    }
    let picker = Picker::open(args, global)?;
    let mut exit = Exit::OK;
    let mut at = 0;
    loop {
        let (items, all) = picker.stuck()?;
        if items.is_empty() {
            say(&format!("nothing is stuck in {}", picker.opened.place.named()));
            return Ok(exit);
        }
        let Some(picked) = picker.choose_effect(&items, all, at)? else {
            return Ok(exit);
        };
        at = picked;
        if let Some(ended) = picker.decide(&items[picked].key)? {
            exit = ended;
        }
    }
}

/// Shows one effect, and lets a person decide about it.
///
/// # Errors
/// What the store could not do.
pub fn about(key: &Key, args: &ResolveArgs, global: &Global) -> Result<Exit, CliError> {
    let picker = Picker::open(args, global)?;
    picker.opened.find(key)?;
    Ok(picker.decide(key)?.unwrap_or(Exit::OK))
}

fn cannot_pick(global: &Global) -> CliError {
    let why = if global.json {
        "a list to pick from is not for --json"
    } else if !std::io::stdin().is_terminal() {
        "a list to pick from needs a terminal, and stdin is none"
    } else if a_person_is_there() {
        "a list to pick from needs a terminal that can move its cursor (TERM says it cannot)"
    } else {
        "a list to pick from needs a terminal, and stderr is none"
    };
    CliError::new(Kind::Usage, format!("{why}: nothing was changed"))
        .tell("what is stuck", "ctrlrun effects --stuck")
        .tell("decide one", "ctrlrun resolve KEY --committed --expect N --reason '...'")
        .tell("decide many", "ctrlrun resolve --from FILE")
}

/// One of the list.
struct Item {
    key: Key,
    since: Timestamp,
    label: String,
}

struct Picker<'a> {
    global: &'a Global,
    opened: Opened,
    delivered: Delivered,
    by: String,
    term: Term,
    guard: Guard,
}

impl<'a> Picker<'a> {
    fn open(args: &ResolveArgs, global: &'a Global) -> Result<Self, CliError> {
        let by = by(args.by.as_deref())?;
        let opened = for_writing(global, Deed::Change)?;
        let delivered = Delivered::all(&opened, global)?;
        let guard = Guard::set().map_err(|error| CliError::no_signals(&error))?;
        Ok(Self { global, opened, delivered, by, term: Term::stderr(), guard })
    }

    /// The oldest that are stuck, oldest first, and how many there are in all.
    fn stuck(&self) -> Result<(Vec<Item>, u64), CliError> {
        let filter = Filter { stuck: true, ..Filter::default() };
        let (mut items, mut all) = (Vec::new(), 0_u64);
        let mut each = |listed| {
            if let Listed::Record(shown) = listed {
                all += 1;
                items.push(Item::of(&shown));
                if items.len() >= 2 * OFFERED_MAX {
                    keep_oldest(&mut items);
                }
            }
            Flow::Continue
        };
        let listed = self.opened.store.list(&filter, &mut each, self.opened.within);
        listed.map_err(|error| self.opened.could_not(&error))?;
        keep_oldest(&mut items);
        // A person may look at it for an hour.
        self.opened.store.rest();
        Ok((items, all))
    }

    fn choose_effect(
        &self,
        items: &[Item],
        all: u64,
        at: usize,
    ) -> Result<Option<usize>, CliError> {
        let need = if all == 1 { "needs" } else { "need" };
        let cut = match items.len() as u64 {
            shown if shown < all => format!(" (the oldest {})", number(shown)),
            _ => String::new(),
        };
        let effects = count(all, "effect");
        self.print(&format!("{effects} {need} a decision{cut}. Enter looks at one, Esc leaves.\n"));
        let labels: Vec<String> = items.iter().map(|item| item.label.clone()).collect();
        self.select("Which one", &labels, at.min(items.len() - 1), false)
    }

    /// Shows an effect and asks; the exit status of a decision that was made or refused.
    fn decide(&self, key: &Key) -> Result<Option<Exit>, CliError> {
        self.delivered.check(&self.opened, key, Deed::Change)?;
        let Some(before) = self.opened.look(key)? else {
            say(&format!("{}: it is gone", clean(key.as_str())));
            return Ok(None);
        };
        self.show(&before)?;
        let stuck = before.record.is_stuck(before.now);
        let choices = if stuck {
            vec!["It happened", "It did not happen", "Look at its output", "Leave it"]
        } else {
            vec!["Take the decision back (AMBIGUOUS again)", "Look at its output", "Leave it"]
        };
        let choices: Vec<String> = choices.into_iter().map(ToOwned::to_owned).collect();
        let leave = choices.len() - 1;
        loop {
            let chosen = self.select("What is so", &choices, leave, true)?;
            let decision = match (chosen, stuck) {
                (Some(0), true) => Decision::Committed,
                (Some(1), true) => Decision::NotExecuted,
                (Some(0), false) => Decision::Reopen,
                (Some(at), _) if at + 1 == leave => {
                    self.show_output(&before)?;
                    continue;
                }
                (Some(_) | None, _) => return Ok(None),
            };
            if let Some(reason) = self.ask_reason()?
                && self.ask_yes(&before, decision)?
            {
                return self.record(&before, decision, reason).map(Some);
            }
            say("nothing was changed");
        }
    }

    fn record(&self, before: &Shown, decision: Decision, reason: String) -> Result<Exit, CliError> {
        let decided = Decided {
            key: before.record.key.clone(),
            decision,
            by: self.by.clone(),
            reason,
            looked_at: before.record.revision,
            output: None,
        };
        let attempt = before.record.attempt;
        let done = self.guard.while_recording(|| decided.perform(&self.opened, attempt));
        let answered = answered(done, &self.opened.place, Deed::Change)?;
        let told = Told { opened: &self.opened, decided: &decided, before };
        match told.answer(&answered) {
            Ok(text) => {
                say(&text);
                if let Some(warning) =
                    told.warning().filter(|_| answered.answer == Answer::Resolved)
                {
                    say(&warning);
                }
                Ok(Exit::OK)
            }
            Err(refused) => {
                refused.report(false);
                Ok(refused.exit())
            }
        }
    }

    /// What `show` shows, and the history.
    fn show(&self, shown: &Shown) -> Result<(), CliError> {
        let columns = columns_of_stderr();
        let text = show::text(&self.opened, self.global, shown, columns)?;
        let facts = text.split("\n\n").next().unwrap_or(&text);
        let rows = self.opened.history(&shown.record.key, 1)?;
        let lines = told(&rows, columns);
        let from = lines.len().saturating_sub(EVENTS_MAX);
        let mut text = format!("\n{}\n\n", facts.trim_end());
        if from > 0 {
            let before = line("history", shown.record.key.as_str(), "", &self.opened.place);
            text.push_str(&format!("({} before; {before})\n", count(from as u64, "line")));
        }
        for line in &lines[from..] {
            text.push_str(line);
            text.push('\n');
        }
        self.print(&format!("{text}\n"));
        self.opened.store.rest();
        Ok(())
    }

    fn show_output(&self, shown: &Shown) -> Result<(), CliError> {
        let record = &shown.record;
        let mut text = String::new();
        for (name, stream) in [("stdout", Stream::Stdout), ("stderr", Stream::Stderr)] {
            let kept = self.opened.output(&record.key, record.attempt, stream)?;
            match kept.filter(|kept| kept.bytes > 0) {
                None => text.push_str(&format!("{name}: nothing is stored\n")),
                Some(kept) => {
                    let whole = if kept.whole { "" } else { ", not stored whole" };
                    text.push_str(&format!("{name}: {}{whole}\n", count(kept.bytes, "byte")));
                    text.push_str(&last_lines(&kept));
                }
            }
        }
        let all = line("output", record.key.as_str(), "", &self.opened.place);
        self.print(&format!("\n{text}(all that is stored: {all})\n\n"));
        Ok(())
    }

    /// `None`: nothing was given, which goes back.
    fn ask_reason(&self) -> Result<Option<String>, CliError> {
        self.print("How do you know? A ticket, a page you looked at. Leave it empty to go back.\n");
        let input = Input::<String>::with_theme(&SimpleTheme)
            .with_prompt("Reason")
            .allow_empty(true)
            .report(true);
        let reason = self.answer(input.interact_text_on(&self.term))?;
        let reason = reason.trim();
        Ok((!reason.is_empty()).then(|| reason.to_owned()))
    }

    fn ask_yes(&self, before: &Shown, decision: Decision) -> Result<bool, CliError> {
        let what = match decision {
            Decision::Committed => "COMMITTED (happened). It will not run again",
            Decision::NotExecuted => "FAILED (did not happen). It may run again",
            Decision::Reopen => "AMBIGUOUS (may have happened) again. Nothing will run",
        };
        let key = clean(before.record.key.as_str());
        self.print(&format!("{key}, at revision {}, becomes {what}.\n", before.record.revision));
        let confirm = Confirm::with_theme(&SimpleTheme)
            .with_prompt("Record it")
            .default(false)
            .wait_for_newline(true);
        Ok(self.answer(confirm.interact_on_opt(&self.term))?.unwrap_or(false))
    }

    /// Lets one of `items` be picked, the one at `at` first. Escape picks none.
    fn select(
        &self,
        prompt: &str,
        items: &[String],
        at: usize,
        shows_choice: bool,
    ) -> Result<Option<usize>, CliError> {
        let width = self.width();
        let items: Vec<String> = items.iter().map(|item| fit(item, width)).collect();
        let rows = usize::from(self.term.size().0);
        let select = Select::with_theme(&SimpleTheme)
            .with_prompt(fit(prompt, width))
            .items(&items)
            .default(at)
            .report(shows_choice)
            .max_length(rows.saturating_sub(3).max(1));
        self.answer(select.interact_on_opt(&self.term))
    }

    fn answer<T>(&self, answer: dialoguer::Result<T>) -> Result<T, CliError> {
        answer.map_err(|dialoguer::Error::IO(error)| {
            // ^C comes as an error and as the signal, which ends us.
            self.guard.interrupted(&error);
            let message = "the terminal cannot be read: what was not confirmed was not changed";
            CliError::new(Kind::Internal, message).because(&error)
        })
    }

    fn width(&self) -> usize {
        usize::from(self.term.size().1)
    }

    fn print(&self, text: &str) {
        use std::io::Write;
        // Styles are dropped where they do not belong.
        let _ = anstream::stderr().lock().write_all(text.as_bytes());
    }
}

impl Item {
    fn of(shown: &Shown) -> Self {
        let (record, now) = (&shown.record, shown.now);
        let label = format!(
            "{}  {}, {}: {}",
            clean(record.key.as_str()),
            name_at(record, now),
            age(now.since(record.updated_at)),
            why(record, now)
        );
        Self { key: record.key.clone(), since: record.updated_at, label }
    }
}

fn keep_oldest(items: &mut Vec<Item>) {
    items.sort_by(|a, b| (a.since, &a.key).cmp(&(b.since, &b.key)));
    items.truncate(OFFERED_MAX);
}

/// `text` on one line of the terminal: what breaks a line would be drawn over wrongly. Its bytes are
/// counted too, since the drawing counts them.
fn fit(text: &str, width: usize) -> String {
    let room = width.saturating_sub(MARGIN).max(1);
    let mut columns = room;
    loop {
        let fitting = cut(text, columns).into_owned();
        if fitting.len() <= width || columns <= 1 {
            return fitting;
        }
        columns -= 1;
    }
}

fn last_lines(kept: &Captured) -> String {
    let mut bytes = kept.head.clone();
    bytes.extend_from_slice(&kept.tail);
    let all = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = all.lines().collect();
    let from = lines.len().saturating_sub(LINES_MAX);
    let before = if from > 0 {
        format!("  ({} before)\n", count(from as u64, "line"))
    } else {
        String::new()
    };
    let columns = columns_of_stderr();
    let shown = lines[from..].iter().map(|line| {
        let line = clean(line);
        let line = columns.map_or(line.clone(), |columns| {
            cut(&line, columns.saturating_sub(2)).into_owned().into()
        });
        format!("  {line}\n")
    });
    before + &shown.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::fit;
    use crate::cli::render::text::width;

    #[test]
    fn an_item_takes_one_line_in_columns_and_in_bytes() {
        // DEC-16
        for text in ["short", &"x".repeat(300), &"\u{6771}".repeat(300), &"e\u{301}".repeat(100)] {
            for columns in [10, 40, 80] {
                let item = fit(text, columns);
                assert!(width(&item) <= columns - 4 && item.len() <= columns, "{columns}: {item}");
            }
        }
        assert_eq!(fit("short", 80), "short");
    }
}
