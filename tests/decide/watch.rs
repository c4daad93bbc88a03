//! The list that is drawn again and again.
use std::process::Command;

use crate::at::{Kind, Place, on_every_store};
use crate::common::{fill::Fill, finish};
use crate::doubt;
use crate::pty::Session;

on_every_store!(what_changes_is_drawn_and_a_lost_store_is_tried_again);

fn watch(at: &Place, more: &[&str]) -> Command {
    let words = [&["effects", "--watch=100ms"], more].concat();
    let mut command = at.ctrlrun(&words);
    command.env("TERM", "xterm");
    command
}

fn what_changes_is_drawn_and_a_lost_store_is_tried_again(kind: Kind) {
    // DEC-17
    let at = Place::new(kind);
    doubt(&at, "a");
    let mut session = Session::start_sized(&watch(&at, &["--stuck"]), 24, 80);
    let before = session.modes();
    session.shows("1 effect, ");
    session.shows("AMBIGUOUS");
    doubt(&at, "b");
    session.shows("2 effects, ");
    at.home.away();
    session.shows("STORE NOT READ, trying again");
    // The last list stays.
    session.shows("AMBIGUOUS");
    at.home.back();
    session.shows("2 effects, ");
    at.resolve("a", "--committed");
    session.shows("1 effect, ");
    assert_eq!(session.modes(), before);
    session.types("\x03");
    let ended = session.end();
    assert_eq!((ended.code, ended.signal), (None, Some(2)), "{ended:?}");
    // It has changed nothing that would have to be given back.
    for mode in ["\x1b[?25l", "\x1b[?1049h"] {
        assert!(!ended.seen.contains(mode));
    }
}

#[test]
fn what_does_not_fit_is_counted_and_a_change_of_size_is_followed() {
    // DEC-17
    let at = Place::new(Kind::Sqlite);
    let fill = Fill::open(&at.file(), ctrlrun::store::Mode::Write);
    for number in 0..50 {
        fill.ambiguous(&format!("k{number:02}"));
    }
    let mut command = at.ctrlrun(&["effects", "--watch=1h"]);
    let mut session = Session::start_sized(command.env("TERM", "xterm"), 10, 80);
    session.shows("and 43 more");
    session.resize(40);
    session.shows("more");
    session.types("\x03");
    let ended = session.end();
    let frames: Vec<&str> = ended.seen.split("\x1b[H").skip(1).collect();
    assert_eq!(frames.len(), 2, "{frames:?}");
    for frame in frames {
        assert!(frame.matches("\x1b[K").count() <= 10, "{frame:?}");
    }
}

#[test]
fn nothing_from_outside_reaches_the_terminal() {
    // DEC-17, CLI-5
    let at = Place::new(Kind::Sqlite);
    let fill = Fill::open(&at.file(), ctrlrun::store::Mode::Write);
    fill.ambiguous("a\u{202e}b\u{6771}");
    let mut session = Session::start_sized(&watch(&at, &[]), 10, 80);
    session.shows("a\\u{202e}b");
    session.types("\x03");
    assert!(!session.end().seen.contains('\u{202e}'));
}

#[test]
fn what_is_for_a_program_is_not_drawn() {
    // DEC-17
    let at = Place::new(Kind::Sqlite);
    for more in [&[][..], &["--json"], &["--check"], &["--limit", "3"]] {
        let told = finish(&mut watch(&at, more));
        assert_eq!((told.code, told.stdout.as_str()), (Some(64), ""), "{told:?}");
    }
    let ended = Session::start_sized(&watch(&at, &["--json"]), 10, 80).end();
    assert_eq!(ended.code, Some(64), "{ended:?}");
    // A store that is not there at the first look is a mistake, and no passing trouble.
    let mut elsewhere = at.env.command(["effects", "--watch", "--store", "/nowhere/e.db"]);
    let ended = Session::start_sized(elsewhere.env("TERM", "xterm"), 10, 80).end();
    assert_eq!(ended.code, Some(78), "{ended:?}");
}
