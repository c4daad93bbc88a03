//! `ctrlrun effects --watch`: the list, drawn again and again (DEC-17).
//!
//! It clears and overwrites, and changes no mode of the terminal: whatever ends it, a KILL too, leaves
//! the terminal as usable as before, with the last list on it.
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anstream::AutoStream;
use ctrlrun::exec::{Signals, die_of_signal};
use ctrlrun::plan::time::Timestamp;
use ctrlrun::store::{Filter, Flow, Listed};
use dialoguer::console::measure_text_width;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::Global;
use super::access::{Opened, for_reading};
use super::error::{CliError, Exit, Kind};
use super::render::table::{Layout, Row};
use super::render::text::{clean, count, cut, number, second};

/// Rows that are counted; beyond it is "more than".
const COUNTED_MAX: usize = 10_000;
/// What a terminal has that does not say.
const ROWS: usize = 24;
const COLUMNS: usize = 80;

/// To the first cell.
const HOME: &str = "\x1b[H";
/// All of the screen.
const CLEAR: &str = "\x1b[2J";
/// From here to the end of the line, and of the screen.
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

/// Draws what `filter` lets through every `every`, until a signal ends it.
///
/// # Errors
/// 64 where stdout is no terminal; what the store could not do at the first time.
pub fn watch(filter: &Filter, every: Duration, global: &Global) -> Result<Exit, CliError> {
    if global.json || !io::stdout().is_terminal() {
        return Err(CliError::new(
            Kind::Usage,
            "--watch draws on a terminal, and this is for a program: nothing was listed",
        )
        .tell("once", "ctrlrun effects --json")
        .tell("for an alarm", "ctrlrun effects --stuck --check"));
    }
    let signals = Signals::listen().map_err(|error| CliError::no_signals(&error))?;
    // What is wrong at the first look is a mistake of the caller's; later, it may pass.
    let mut list = look(&for_reading(global)?, filter)?;
    let mut told = None;
    let silent = Global { quiet: true, verbose: 0, ..global.clone() };
    let mut screen = Screen { drawn: false };
    loop {
        let next = Instant::now() + every;
        loop {
            screen
                .draw(&list, told.as_ref(), every)
                .map_err(|error| CliError::unwritten(&error))?;
            match wait(signals, next) {
                Woken::Time => break,
                Woken::Resized => screen.drawn = false,
                Woken::Ended(number) => {
                    let _ = writeln!(io::stdout());
                    die_of_signal(number)
                }
            }
        }
        // Opened anew each time: nothing is held in between, and a store that was moved away or
        // replaced is not looked at for ever after.
        match for_reading(&silent).and_then(|opened| look(&opened, filter)) {
            Ok(read) => (list, told) = (read, None),
            Err(error) => told = Some(error),
        }
    }
}

/// What was listed.
struct List {
    rows: Vec<Row>,
    unreadable: usize,
    more: bool,
    /// By this host's clock.
    read_at: Timestamp,
    place: String,
}

fn look(opened: &Opened, filter: &Filter) -> Result<List, CliError> {
    let mut list = List {
        rows: Vec::new(),
        unreadable: 0,
        more: false,
        read_at: now(),
        place: opened.place.named(),
    };
    let mut each = |listed| {
        if list.rows.len() + list.unreadable == COUNTED_MAX {
            list.more = true;
            return Flow::Stop;
        }
        match listed {
            Listed::Record(shown) => list.rows.push(Row::of(&shown)),
            Listed::Unreadable { .. } => list.unreadable += 1,
        }
        Flow::Continue
    };
    let listed = opened.store.list(filter, &mut each, opened.within);
    listed.map_err(|error| opened.could_not(&error))?;
    Ok(list)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

enum Woken {
    Time,
    Resized,
    Ended(i32),
}

fn wait(signals: Signals, until: Instant) -> Woken {
    loop {
        let arrived = signals.take();
        let winch = Signal::SIGWINCH as i32;
        if let Some(number) = arrived.iter().find(|number| **number != winch) {
            return Woken::Ended(*number);
        }
        if !arrived.is_empty() {
            return Woken::Resized;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Woken::Time;
        }
        // Rounded up, or the last millisecond would be spent spinning.
        let left = left.saturating_add(Duration::from_micros(999));
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
    }
}

struct Screen {
    /// What is there was drawn by us, for the size that it has.
    drawn: bool,
}

impl Screen {
    fn draw(&mut self, list: &List, failed: Option<&CliError>, every: Duration) -> io::Result<()> {
        let (columns, rows) = terminal_size::terminal_size_of(io::stdout())
            .map_or((COLUMNS, ROWS), |(width, height)| (width.0.into(), height.0.into()));
        let mut frame = String::from(HOME);
        if !std::mem::replace(&mut self.drawn, true) {
            frame.push_str(CLEAR);
        }
        let lines = lines(list, failed, every, columns.max(1), rows);
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                frame.push_str("\r\n");
            }
            frame.push_str(line);
            frame.push_str(REST_OF_LINE);
        }
        frame.push_str(REST_OF_SCREEN);
        // In one piece, so that it does not flicker.
        let mut out = io::stdout().lock();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }
}

/// The frame's lines, no more than fit.
fn lines(
    list: &List,
    failed: Option<&CliError>,
    every: Duration,
    columns: usize,
    rows: usize,
) -> Vec<String> {
    let at = second(list.read_at);
    let at = at.split(' ').next_back().unwrap_or(&at);
    let all = (list.rows.len() + list.unreadable) as u64;
    let than = if list.more { "more than " } else { "" };
    let head = match failed {
        Some(error) => {
            format!("STORE NOT READ, trying again; this is of {at}: {}", error.message())
        }
        None => format!(
            "{than}{}, {at}, every {} s: {}",
            count(all, "effect"),
            every.as_secs_f64(),
            list.place
        ),
    };
    let mut lines = vec![cut(&clean(&head), columns).into_owned()];
    if list.unreadable > 0 {
        let unreadable = count(list.unreadable as u64, "record");
        lines.push(cut(&format!("{unreadable} cannot be read"), columns).into_owned());
    }
    // Of those that can be on the screen: a long key far down is no reason to stack all.
    let layout = Layout::of(&list.rows[..list.rows.len().min(rows)], Some(columns));
    let mut left = rows.saturating_sub(lines.len());
    let mut put = |lines: &mut Vec<String>, text: &[String], keep: usize| {
        let tall: usize = text.iter().map(|line| height(line, columns)).sum();
        let fits = tall + keep <= left;
        if fits {
            left -= tall;
            lines.extend_from_slice(text);
        }
        fits
    };
    if !list.rows.is_empty() {
        put(&mut lines, &written(|out| layout.head(out)), 1);
    }
    for (at, row) in list.rows.iter().enumerate() {
        // The last line is kept for how many there are besides, unless this is the last of them.
        let keep = usize::from(at + 1 < list.rows.len());
        if !put(&mut lines, &written(|out| layout.row(out, row)), keep) {
            let hidden = number((list.rows.len() - at) as u64);
            let more = format!("and {than}{hidden} more: the same line without --watch | less");
            put(&mut lines, &[cut(&more, columns).into_owned()], 0);
            break;
        }
    }
    lines
}

/// How many rows of the terminal a line takes.
fn height(line: &str, columns: usize) -> usize {
    measure_text_width(line).div_ceil(columns).max(1)
}

/// What `write` writes, line by line, with its colours if stdout takes them.
fn written(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Vec<String> {
    let choice = AutoStream::choice(&io::stdout());
    let mut out = AutoStream::new(Vec::new(), choice);
    // Memory takes everything.
    let _ = write(&mut out);
    String::from_utf8_lossy(&out.into_inner()).lines().map(ToOwned::to_owned).collect()
}
