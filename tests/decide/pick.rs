//! Picking from a list on a real terminal.
use std::process::{Command, Stdio};

use crate::at::{Kind, MARK, Place, on_every_store, process_state};
use crate::common::{fill::Fill, finish};
use crate::doubt;
use crate::pty::Session;

const DOWN: &str = "\x1b[B";
const UP: &str = "\x1b[A";
const ENTER: &str = "\r";
const ESCAPE: &str = "\x1b";
const INTERRUPT: &str = "\x03";
/// What makes a hidden cursor seen again.
const SHOWN: &str = "\x1b[?25h";
const HIDDEN: &str = "\x1b[?25l";

on_every_store!(a_person_picks_looks_decides_and_confirms);

/// `ctrlrun resolve`, to be started on a terminal.
fn resolve(at: &Place) -> Command {
    let mut command = at.ctrlrun(&["resolve", "--by", "oncall"]);
    command.env("TERM", "xterm");
    command
}

/// Whether the terminal is as a shell wants it: lines, echo, and a cursor that is seen.
fn is_given_back(modes: &str, seen: &str) -> bool {
    let has = |mode: &str| modes.split([' ', ';', '\n']).any(|word| word == mode);
    has("icanon") && has("echo") && has("isig") && seen.rfind(SHOWN) >= seen.rfind(HIDDEN)
}

fn a_person_picks_looks_decides_and_confirms(kind: Kind) {
    // DEC-15
    let at = Place::new(kind);
    for key in ["a", "b", "c"] {
        doubt(&at, key);
    }
    let mut session = Session::start_sized(&resolve(&at), 24, 80);
    session.shows("3 effects need a decision");
    // Oldest first.
    session.shows("> a  AMBIGUOUS");
    session.types(DOWN);
    session.shows("> b  AMBIGUOUS");
    session.types(ENTER);
    // The evidence.
    session.shows("(may have happened)   revision 3");
    session.shows("no answer");
    session.shows("2  EXECUTING");
    session.shows("> Leave it");
    session.types(UP);
    session.shows("> Look at its output");
    session.types(ENTER);
    session.shows("some output");
    session.shows("> Leave it");
    session.types(UP);
    session.shows("> Look at its output");
    session.types(UP);
    session.shows("> It did not happen");
    session.types(ENTER);
    session.shows("Reason");
    session.types("provider has none, OPS-12");
    session.types(ENTER);
    session.shows("b, at revision 3, becomes FAILED (did not happen). It may run again.");
    session.shows("[y/N]");
    assert_eq!(at.show("b")["revision"], 3, "before the yes");
    session.types("y");
    session.types(ENTER);
    session.shows("b: FAILED (did not happen), revision 4, by oncall");
    session.shows("2 effects need a decision");
    let shown = at.show("b");
    assert_eq!(
        (&shown["state"], &shown["reason"]),
        (&"failed".into(), &"provider has none, OPS-12".into())
    );
    // Escape goes back to the list, and out.
    session.types(ENTER);
    session.shows("> Leave it");
    session.types(ESCAPE);
    session.shows("2 effects need a decision");
    session.shows("> c");
    session.types(ESCAPE);
    let pid = session.pid();
    session.sees("it has ended", || process_state(pid) == Some('Z'));
    let modes = session.modes();
    let ended = session.end();
    assert_eq!((ended.code, ended.signal), (Some(0), None), "{ended:?}");
    assert!(is_given_back(&modes, &ended.seen), "{modes}");
    assert!(["a", "c"].iter().all(|key| at.show(key)["revision"] == 3));
}

#[test]
fn no_is_no_and_nothing_is_nothing() {
    // DEC-15
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    let mut session = Session::start_sized(&resolve(&at), 24, 80);
    session.shows("> k");
    session.types(ENTER);
    for reason in ["", "seen"] {
        session.shows("> Leave it");
        session.types(DOWN);
        session.shows("> It happened");
        session.types(ENTER);
        session.shows("Reason");
        session.types(reason);
        session.types(ENTER);
        if !reason.is_empty() {
            session.shows("[y/N]");
            // Enter alone is the default.
            session.types(ENTER);
        }
        session.shows("nothing was changed");
    }
    session.shows("> Leave it");
    session.types(ENTER);
    session.shows("1 effect needs a decision");
    session.types(ESCAPE);
    assert_eq!((session.end().code, at.show("k")["revision"].clone()), (Some(0), 3.into()));
}

#[test]
fn an_interruption_at_any_point_changes_nothing_and_gives_the_terminal_back() {
    // DEC-16
    let steps: [(&str, &str); 6] = [
        ("> k  AMBIGUOUS", ENTER),
        ("> Leave it", DOWN),
        ("> It happened", ENTER),
        ("Reason", "seen"),
        ("seen", ENTER),
        ("[y/N]", ""),
    ];
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    for length in 1..=steps.len() {
        for how in ["key", "TERM", "HUP"] {
            let mut session = Session::start_sized(&resolve(&at), 24, 80);
            for (at_step, (shown, typed)) in steps[..length].iter().enumerate() {
                session.shows(shown);
                if at_step + 1 < length {
                    session.types(typed);
                }
            }
            let signal = match how {
                "key" => {
                    session.types(INTERRUPT);
                    2
                }
                name => {
                    let signal: nix::sys::signal::Signal = format!("SIG{name}").parse().unwrap();
                    let pid = nix::unistd::Pid::from_raw(session.pid());
                    nix::sys::signal::kill(pid, signal).unwrap();
                    signal as i32
                }
            };
            session.shows("ended: nothing was changed");
            let modes = session.modes();
            let ended = session.end();
            assert_eq!(
                (ended.code, ended.signal),
                (None, Some(signal)),
                "{length} {how}: {ended:?}"
            );
            assert!(is_given_back(&modes, &ended.seen), "{length} {how}: {modes} {}", ended.seen);
            assert_eq!(at.show("k")["revision"], 3, "{length} {how}");
        }
    }
}

#[test]
fn a_change_of_the_windows_size_is_no_interruption() {
    // DEC-16
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    let mut session = Session::start_sized(&resolve(&at), 24, 80);
    session.shows("> k  AMBIGUOUS");
    session.resize(60);
    session.types(ENTER);
    session.shows("> Leave it");
    session.resize(70);
    session.types(UP);
    session.shows("> Look at its output");
    session.types(ESCAPE);
    session.shows("> k  AMBIGUOUS");
    session.types(ESCAPE);
    assert_eq!(session.end().code, Some(0));
}

#[test]
fn a_hang_up_changes_nothing() {
    // DEC-16: what was typed and not confirmed is gone with the connection.
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    let mut session = Session::start_sized(&resolve(&at), 24, 80);
    session.shows("> k  AMBIGUOUS");
    session.types(ENTER);
    session.shows("> Leave it");
    session.types(DOWN);
    session.shows("> It happened");
    session.types(ENTER);
    session.shows("Reason");
    session.types("seen");
    session.types(ENTER);
    session.shows("[y/N]");
    session.hang_up();
    let ended = session.end();
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert_eq!(at.show("k")["revision"], 3);
}

#[test]
fn somebody_was_faster_while_it_was_looked_at() {
    // Case 30; DEC-15: the decision is about the revision that was shown.
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    doubt(&at, "l");
    let mut session = Session::start_sized(&resolve(&at), 24, 80);
    session.shows("> k");
    session.types(ENTER);
    session.shows("> Leave it");
    // The key moves on to another attempt.
    at.resolve("k", "--not-executed");
    let script = [MARK, "echo some output; echo no answer >&2; exit 28"].concat();
    assert_eq!(finish(&mut at.run("k", &[], &script)).code, Some(28));
    session.types(DOWN);
    session.shows("> It happened");
    session.types(ENTER);
    session.shows("Reason");
    session.types("seen");
    session.types(ENTER);
    session.shows("[y/N]");
    session.types("y");
    session.types(ENTER);
    session.shows("k: not changed: you looked at revision 3, it is at 7 now:");
    session.shows("> ");
    session.types(ESCAPE);
    assert_eq!((session.end().code, at.state("k").as_str()), (Some(79), "ambiguous"));
}

#[test]
fn nothing_from_outside_reaches_the_terminal_and_nothing_is_too_wide() {
    // DEC-16
    let at = Place::new(Kind::Sqlite);
    let fill = Fill::open(&at.file(), ctrlrun::store::Mode::Write);
    for number in 0..30 {
        fill.ambiguous(&format!("k{number:02}:{}", "\u{202e}x\u{6771}".repeat(40)));
    }
    let script = [MARK, r"printf '\033[2J\033]0;title\007\233' | tee /dev/stderr; exit 1"].concat();
    assert_eq!(finish(&mut at.run("a", &[], &script)).code, Some(1));
    for (rows, columns) in [(24, 80), (10, 40)] {
        let mut session = Session::start_sized(&resolve(&at), rows, columns);
        session.shows("31 effects need a decision");
        session.shows("> k00");
        session.types(UP);
        session.shows("> a  AMBIGUOUS");
        session.types(ENTER);
        session.shows("> Leave it");
        session.types(UP);
        session.shows("> Look at");
        session.types(ENTER);
        session.shows("stdout: ");
        session.shows("> Leave it");
        session.types(INTERRUPT);
        let ended = session.end();
        for bad in ["\x1b]", "\x07", "\u{202e}", "\u{9b}"] {
            assert!(!ended.seen.contains(bad), "{bad:?}: {}", ended.seen);
        }
        let drawn = ended.seen.split("Which one").nth(1).unwrap().split(HIDDEN).next().unwrap();
        for line in drawn.lines().filter(|line| !line.contains('\x1b')) {
            assert!(line.chars().count() <= columns.into(), "{line}");
        }
    }
}

#[test]
fn one_key_is_shown_and_asked_about_and_a_decision_is_taken_back() {
    // DEC-15
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    at.resolve("k", "--committed");
    let mut command = at.ctrlrun(&["resolve", "k"]);
    let mut session = Session::start_sized(command.env("TERM", "xterm"), 24, 80);
    session.shows("(happened)   revision 4");
    session.shows("> Leave it");
    session.types(DOWN);
    session.shows("> Take the decision back");
    session.types(ENTER);
    session.shows("Reason");
    session.types("wrong account");
    session.types(ENTER);
    session.shows("k, at revision 4, becomes AMBIGUOUS");
    session.shows("[y/N]");
    session.types("y");
    session.types(ENTER);
    session.shows("AMBIGUOUS again, revision 5");
    assert_eq!((session.end().code, at.state("k").as_str()), (Some(0), "ambiguous"));
}

#[test]
fn where_nobody_can_pick_it_says_what_to_type() {
    // DEC-16
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    let told = at.ask(&["resolve"]);
    assert_eq!(told.code, Some(64), "{told:?}");
    assert!(told.stderr.contains("stdin is none: nothing was changed"), "{told:?}");
    assert!(told.stderr.contains("ctrlrun resolve KEY --committed --expect N"), "{told:?}");
    let mut dumb = at.ctrlrun(&["resolve"]);
    let session = Session::start_sized(dumb.env("TERM", "dumb"), 24, 80);
    let ended = session.end();
    assert!(ended.code == Some(64) && ended.seen.contains("TERM says it cannot"), "{ended:?}");
    for words in [&["resolve", "--committed"][..], &["resolve", "--reason", "r"], &["resolve", "k"]]
    {
        assert_eq!(at.ask(words).code, Some(64), "{words:?}");
    }
    let mut piped = at.ctrlrun(&["resolve", "--json"]);
    assert_eq!(finish(piped.stdin(Stdio::null())).code, Some(64));
}

#[test]
fn nothing_is_stuck_and_that_is_told() {
    // DEC-15
    let at = Place::new(Kind::Sqlite);
    let session = Session::start_sized(&resolve(&at), 24, 80);
    let ended = session.end();
    assert!(ended.code == Some(0) && ended.seen.contains("nothing is stuck in "), "{ended:?}");
}
