//! A list of records in columns, as wide as the terminal: a row that does not fit loses no key and no
//! state, only the end of its reason; where even that does not fit, a record takes two lines.
use std::io::{self, Write};

use ctrlrun::plan::effect::State;
use ctrlrun::store::Shown;

use super::event::began;
use super::state;
use super::text::{age, clean, cut, width};

/// The fewest columns that are left for reasons on their records' lines.
const WHY_MIN: usize = 10;
/// The fewest columns to which a long reason is cut; with less it takes a line of its own.
const WHY_CUT: usize = 30;
/// The most columns for a host's name.
const WHERE_MAX: usize = 16;
/// The most columns of a reason where there is no terminal whose width could say: a person who looks at
/// a list wants to see which, and `show` and `--json` have the rest.
const WHY_MAX: usize = 500;
const HEAD: [&str; 7] = ["KEY", "STATE", "REV", "ATTEMPT", "AGE", "WHERE", "WHY"];
const WHY: usize = 6;

/// One line of the list, as text.
#[derive(Debug, Clone)]
pub struct Row {
    cells: [String; 7],
    style: anstyle::Style,
}

impl Row {
    /// The row of a record.
    #[must_use]
    pub fn of(shown: &Shown) -> Self {
        let (record, now) = (&shown.record, shown.now);
        let host = match shown.began.as_ref().and_then(began) {
            Some(began) => cut(&clean(&began.ran_on.host), WHERE_MAX).into_owned(),
            None => "-".to_owned(),
        };
        let style = match record.state {
            // What went well is not coloured in a list: the eye is to go to the rest.
            State::Committed { .. } => anstyle::Style::new(),
            State::Reserved { .. }
            | State::Executing { .. }
            | State::Failed { .. }
            | State::Ambiguous { .. } => state::style(record, now),
        };
        Self {
            cells: [
                clean(record.key.as_str()).into_owned(),
                state::name_at(record, now),
                record.revision.to_string(),
                record.attempt.to_string(),
                age(now.since(record.updated_at)),
                host,
                state::why(record, now),
            ],
            style,
        }
    }
}

/// How the rows are laid out.
#[derive(Debug, Clone)]
pub struct Layout {
    widths: [usize; 7],
    kind: Kind,
    columns: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All on one line.
    One,
    /// The reason on a second line.
    Two,
    /// The key on a line of its own.
    Stacked,
}

impl Layout {
    /// A layout that suits the rows seen so far, on a terminal of so many columns or anywhere else.
    #[must_use]
    pub fn of(rows: &[Row], columns: Option<usize>) -> Self {
        let mut widths = HEAD.map(width);
        for row in rows {
            for (at, cell) in row.cells.iter().enumerate() {
                widths[at] = widths[at].max(width(cell));
            }
        }
        let facts: usize = widths[..WHY].iter().map(|width| width + 2).sum();
        let kind = match columns {
            None => Kind::One,
            Some(columns) if facts + widths[WHY].min(WHY_MIN) <= columns => Kind::One,
            Some(columns) if facts.saturating_sub(2) <= columns => Kind::Two,
            Some(_) => Kind::Stacked,
        };
        Self { widths, kind, columns }
    }

    /// Writes the line of headings.
    ///
    /// # Errors
    /// The writer's.
    pub fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        let row = Row { cells: HEAD.map(ToOwned::to_owned), style: anstyle::Style::new() };
        match self.kind {
            Kind::One => self.line(out, &row, &row.cells[WHY]),
            Kind::Two => self.line(out, &row, ""),
            Kind::Stacked => Ok(()),
        }
    }

    /// Writes one row.
    ///
    /// # Errors
    /// The writer's.
    pub fn row(&self, out: &mut dyn Write, row: &Row) -> io::Result<()> {
        let [key, state, revision, attempt, age, host, why] = &row.cells;
        let fit = |text: &str, indent: usize| match self.columns {
            Some(columns) => cut(text, columns.saturating_sub(indent)).into_owned(),
            None => cut(text, WHY_MAX).into_owned(),
        };
        let facts: usize = self.widths[..WHY].iter().map(|width| width + 2).sum();
        match self.kind {
            Kind::One => {
                let left = self.columns.map_or(usize::MAX, |columns| columns - facts);
                if width(why) <= left || left >= WHY_CUT {
                    return self.line(out, row, &fit(why, facts));
                }
                self.line(out, row, "")?;
                writeln!(out, "  {}", fit(why, 2))
            }
            Kind::Two => {
                self.line(out, row, "")?;
                writeln!(out, "  {}", fit(why, 2))
            }
            Kind::Stacked => {
                let style = row.style;
                writeln!(out, "{key}")?;
                writeln!(out, "  {style}{state}{style:#}, {age}, {host}")?;
                writeln!(out, "  revision {revision}, attempt {attempt}")?;
                writeln!(out, "  {}", fit(why, 2))
            }
        }
    }

    fn line(&self, out: &mut dyn Write, row: &Row, why: &str) -> io::Result<()> {
        let mut line = String::new();
        for (at, cell) in row.cells[..WHY].iter().enumerate() {
            let gap = " ".repeat(self.widths[at].saturating_sub(width(cell)));
            let style = if at == 1 { row.style } else { anstyle::Style::new() };
            let cell = format!("{style}{cell}{style:#}");
            // Numbers stand to the right.
            let cell = if at == 2 || at == 3 {
                format!("{gap}{cell}  ")
            } else {
                format!("{cell}{gap}  ")
            };
            line.push_str(&cell);
        }
        line.push_str(why);
        writeln!(out, "{}", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, why: &str) -> Row {
        Row {
            cells: [key, "AMBIGUOUS", "3", "1", "2 h", "web-17", why].map(ToOwned::to_owned),
            style: anstyle::Style::new(),
        }
    }

    fn printed(rows: &[Row], columns: Option<usize>) -> String {
        let layout = Layout::of(rows, columns);
        let mut out = Vec::new();
        layout.head(&mut out).unwrap();
        for row in rows {
            layout.row(&mut out, row).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_key_is_cut() {
        let rows = [
            row("refund:txn_77", "exited 28; the remote closed the connection"),
            row("deploy:prod:881", "lease ended"),
        ];
        for columns in [30, 40, 50, 60, 80, 120] {
            let text = printed(&rows, Some(columns));
            assert!(text.contains("deploy:prod:881"), "{text}");
            for line in text.lines() {
                assert!(width(line) <= columns, "{columns}: {line}");
            }
        }
        insta::assert_snapshot!(printed(&rows, Some(80)), @r"
        KEY              STATE      REV  ATTEMPT  AGE  WHERE   WHY
        refund:txn_77    AMBIGUOUS    3        1  2 h  web-17
          exited 28; the remote closed the connection
        deploy:prod:881  AMBIGUOUS    3        1  2 h  web-17  lease ended
        ");
        insta::assert_snapshot!(printed(&rows, Some(60)), @r"
        KEY              STATE      REV  ATTEMPT  AGE  WHERE
        refund:txn_77    AMBIGUOUS    3        1  2 h  web-17
          exited 28; the remote closed the connection
        deploy:prod:881  AMBIGUOUS    3        1  2 h  web-17
          lease ended
        ");
        insta::assert_snapshot!(printed(&rows, Some(40)), @r"
        refund:txn_77
          AMBIGUOUS, 2 h, web-17
          revision 3, attempt 1
          exited 28; the remote closed the conn…
        deploy:prod:881
          AMBIGUOUS, 2 h, web-17
          revision 3, attempt 1
          lease ended
        ");
    }

    #[test]
    fn a_list_that_goes_to_a_pipe_is_not_cut() {
        // CLI-15
        let long = "x".repeat(300);
        assert!(printed(&[row("k", &long)], None).contains(&long));
        // OPS-12: but no reason fills the screen of whoever reads it.
        let endless = printed(&[row("k", &"x".repeat(100_000))], None);
        assert!(endless.len() < 1_000 && endless.trim_end().ends_with("x…"), "{}", endless.len());
    }
}
