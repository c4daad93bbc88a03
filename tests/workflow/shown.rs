//! How a run is shown: live on a small terminal, whole in a pipe, and drawn for a program.
use crate::at::{Kind, on_every_store};
use crate::lab::Lab;
use crate::pty::Session;

on_every_store!(a_live_table_stays_on_the_screen, a_drawing_is_there_for_a_program);

/// Sixty nodes, one behind the other, each of which waits for a signal.
fn long() -> String {
    let mut text = "name = 'long'\n".to_owned();
    for node in 0..60_u32 {
        let needs = node.checked_sub(1).map_or(String::new(), |before| format!("'n{before:02}'"));
        let wait = format!("wait = {{ signal = 's{node:02}' }}");
        text.push_str(&format!("[node.n{node:02}]\nneeds = [{needs}]\n{wait}\n"));
    }
    text
}

/// How far up each new drawing goes.
fn ups(shown: &str) -> Vec<usize> {
    let parts = shown.split("\x1b[").filter_map(|part| part.strip_suffix('A'));
    parts.filter_map(|digits| digits.parse().ok()).collect()
}

fn a_live_table_stays_on_the_screen(kind: Kind) {
    // WFL-18: what is drawn over is on the screen; the last one is whole.
    const ROWS: u16 = 12;
    let lab = Lab::new(kind);
    let file = lab.file("w", &long());
    lab.start(&file, "r");
    lab.drain();
    let mut status = lab.command(&["status", "r"]);
    // Without colours, too, it is drawn over.
    status.env("TERM", "xterm").env("NO_COLOR", "1");
    let mut session = Session::start_sized(&status, ROWS, 60);
    for _ in 0..2 {
        session.shows("n00  ");
        session.shows("for the signal s00");
        session.shows("and 59 pending  (all of them: --once)");
    }
    assert_eq!(lab.ask(&["signal", "r", "s00"]).code, Some(0));
    lab.drain();
    session.shows("n01  ");
    session.shows("and 1 passed, 58 pending");
    assert!(!session.text().contains("n59"), "{}", session.text());
    assert_eq!(lab.ask(&["cancel", "r"]).code, Some(0));
    lab.drain();
    session.shows("CANCELLED");
    session.shows("n59");
    let ended = session.end();
    assert_eq!(ended.code, Some(0));
    let ups = ups(&ended.seen);
    assert!(!ups.is_empty(), "it was never drawn anew: {}", ended.seen);
    assert!(ups.iter().all(|up| *up < usize::from(ROWS)), "{ups:?}");
    // In a pipe all of it is there, once.
    let whole = lab.ask(&["status", "r"]).stdout;
    assert_eq!(whole.lines().filter(|line| line.starts_with("  n")).count(), 60, "{whole}");
    assert!(!whole.contains('\x1b'));
}

fn a_drawing_is_there_for_a_program(kind: Kind) {
    // WFL-1
    let lab = Lab::new(kind);
    let file = lab.file(
        "w",
        "name = 'w'\n[inputs]\nday = {}\n[node.a]\nneeds = ['z']\n\
        command = ['echo', '{day}']\n[node.z]\nwait = { signal = 'go' }\n",
    );
    let drawn = lab.ask(&["graph", &file, "--json"]);
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
    let drawn: serde_json::Value = serde_json::from_str(&drawn.stdout).unwrap();
    assert_eq!((&drawn["name"], &drawn["tier"]), (&"w".into(), &"normal".into()));
    assert_eq!(drawn["inputs"], serde_json::json!(["day"]));
    let names: Vec<_> = drawn["nodes"].as_array().unwrap().iter().map(|n| &n["name"]).collect();
    assert_eq!(names, ["z", "a"], "each behind what it needs");
    assert_eq!(drawn["nodes"][0]["wait"]["signal"], "go");
    assert_eq!(drawn["nodes"][1]["needs"], serde_json::json!(["z"]));
    assert_eq!(drawn["nodes"][1]["run"]["command"], serde_json::json!(["echo", "{day}"]));
}
