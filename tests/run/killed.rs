//! SIGKILL at every point of a run; what is left, and what it refuses.
use std::thread;
use std::time::{Duration, Instant};

use ctrlrun::store::stop::Point;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::at::{HOLD, Kind, MARK, Place, error_of, number_in, on_every_store, text, until};
use crate::common::finish;

on_every_store!(
    t158_a_kill_at_any_point_never_frees_or_repeats_an_effect,
    stop_points_do_nothing_in_a_store_without_the_mark,
    t159_ambiguous_survives_a_restart_and_refuses,
    t161_a_holder_that_slept_before_its_begin_starts_nothing,
    a_holder_that_slept_after_its_begin_starts_nothing,
    what_was_killed_and_that_nobody_wants_is_listed_as_lapsed,
);

/// Long enough for a contender to find it live, on a busy machine.
const LEASE: [&str; 2] = ["--lease", "4s"];

fn t158_a_kill_at_any_point_never_frees_or_repeats_an_effect(kind: Kind) {
    // T158, case 3; STO-12, CMT-1, EFF-5, EFF-10, EXE-1, CLI-10
    thread::scope(|scope| {
        for point in Point::ALL {
            let named = thread::Builder::new().name(point.name().to_owned());
            named.spawn_scoped(scope, move || killed_at(kind, point)).unwrap();
        }
    });
}

/// What is in the store after the kill.
enum Left {
    /// Nothing: the next attempt runs.
    Nothing,
    /// A reservation that never began.
    Reserved,
    /// An attempt that began, and how often its command came about.
    Executing(usize),
    /// The outcome.
    Committed,
}

fn killed_at(kind: Kind, point: Point) {
    let at = Place::scratch(kind);
    let run = || at.run("k", &LEASE, MARK);
    let holder = at.start(run().env("CTRLRUN_STOP_AT", point.name()));
    holder.stopped();
    holder.kill();
    let left = match point {
        Point::BeforeReserve | Point::InReserve | Point::InPrune => Left::Nothing,
        Point::AfterReserve | Point::BeforeBegin => Left::Reserved,
        Point::AfterBegin => Left::Executing(0),
        Point::Running | Point::BeforeSettle | Point::InSettle => Left::Executing(1),
        Point::AfterSettle => Left::Committed,
    };
    match left {
        Left::Nothing => {
            assert_eq!(at.state("k"), "");
            assert_eq!(finish(&mut run()).code, Some(0));
            replayed(&at);
            assert_eq!(at.types("k"), ["reserved", "began", "committed"]);
        }
        Left::Reserved => {
            let told = stuck(&at, "reserved", 0);
            assert!(told.contains("nothing ever ran in this attempt"), "{told}");
            assert_eq!(at.types("k"), ["reserved", "ambiguated"]);
        }
        Left::Executing(marks) => {
            // The command was not killed: it comes to its own end.
            until("its command has ended", || at.marks() == marks);
            let told = stuck(&at, "executing", marks);
            assert!(told.contains("may still be running"), "{told}");
            assert_eq!(at.types("k"), ["reserved", "began", "ambiguated"]);
        }
        Left::Committed => {
            assert_eq!(at.state("k"), "committed");
            replayed(&at);
        }
    }
}

fn replayed(at: &Place) {
    let again = finish(&mut at.run("k", &LEASE, MARK));
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stderr.contains("nothing was run"), "{again:?}");
    assert_eq!(at.marked(), ["1"]);
}

/// Refused at once, and for ever after its lease has ended; returns what the first refusal after
/// that says.
fn stuck(at: &Place, state: &str, marks: usize) -> String {
    let run = || finish(&mut at.run("k", &LEASE, MARK));
    assert_eq!(at.state("k"), state);
    let at_once = run();
    assert_eq!(at_once.code, Some(75), "{at_once:?}");
    at.lapsed("k");
    assert_eq!(at.state("k"), state, "reading has changed it");
    let refused = run();
    assert_eq!(refused.code, Some(76), "{refused:?}");
    assert!(refused.stderr.contains("nothing was run"), "{}", refused.stderr);
    let shown = at.show("k");
    assert_eq!(
        (text(&shown["state"]), text(&shown["cause"])),
        ("ambiguous".into(), "lapsed".into())
    );
    assert_eq!(run().code, Some(76));
    assert_eq!(at.marks(), marks);
    refused.stderr
}

fn stop_points_do_nothing_in_a_store_without_the_mark(kind: Kind) {
    // STO-12
    let at = Place::new(kind);
    for point in Point::ALL {
        let key = format!("k:{}", point.name());
        let end = at.start(at.run(&key, &[], MARK).env("CTRLRUN_STOP_AT", point.name())).end();
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    assert_eq!(at.marks(), Point::ALL.len());
    let scratch = Place::scratch(kind);
    let end = scratch.start(scratch.run("k", &[], MARK).env("CTRLRUN_STOP_AT", "nowhere")).end();
    assert_eq!(end.code, Some(0), "{end:?}");
}

fn t159_ambiguous_survives_a_restart_and_refuses(kind: Kind) {
    // T159; EFF-11
    let at = Place::apart(kind);
    let script = [MARK, "exit 4"].concat();
    // Killed just after: nothing of it was tidied up.
    let holder = at.start(at.run("k", &[], &script).env("CTRLRUN_STOP_AT", "after-settle"));
    holder.stopped();
    holder.kill();
    at.home.restart();
    for _ in 0..2 {
        let refused = finish(&mut at.run("k", &[], &script));
        assert_eq!(refused.code, Some(76), "{refused:?}");
        assert!(refused.stderr.contains("nothing was run"), "{}", refused.stderr);
    }
    assert_eq!(at.types("k"), ["reserved", "began", "ambiguated"]);
    assert_eq!(at.marked(), ["1"]);
}

fn t161_a_holder_that_slept_before_its_begin_starts_nothing(kind: Kind) {
    // T161; EXE-8, EFF-13
    let at = Place::scratch(kind);
    let run = || at.run("k", &["--lease", "2s"], MARK);
    let holder = at.start(run().env("CTRLRUN_STOP_AT", "before-begin"));
    holder.stopped();
    // Its begin was decided before it stopped: that lease is over when as long has passed since.
    let since = Instant::now();
    until("its lease has passed", || since.elapsed() > Duration::from_secs(2));
    assert_eq!(at.state("k"), "reserved");
    holder.go_on();
    let end = holder.end();
    assert_eq!(end.code, Some(75), "{end:?}");
    assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
    let shown = at.show("k");
    assert_eq!((text(&shown["state"]), &shown["exit_code"]), ("failed".into(), &Value::Null));
    assert_eq!(at.marks(), 0);
    assert_eq!(finish(&mut run()).code, Some(0));
    assert_eq!(at.marked(), ["2"]);
}

fn a_holder_that_slept_after_its_begin_starts_nothing(kind: Kind) {
    // EXE-8, EFF-17. A contender has met the lapse meanwhile: its doubt stands until a person looks.
    let at = Place::scratch(kind);
    let run = || at.run("k", &["--lease", "2s"], MARK);
    let holder = at.start(run().env("CTRLRUN_STOP_AT", "after-begin"));
    holder.stopped();
    at.lapsed("k");
    assert_eq!(finish(&mut run()).code, Some(76));
    holder.go_on();
    let end = holder.end();
    assert_eq!(end.code, Some(76), "{end:?}");
    assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
    assert_eq!(at.types("k"), ["reserved", "began", "ambiguated", "late_outcome"]);
    assert_eq!(at.marks(), 0);
}

fn what_was_killed_and_that_nobody_wants_is_listed_as_lapsed(kind: Kind) {
    // Case 46; CLI-4, CLI-7, CLI-15, CLI-16
    let at = Place::new(kind);
    let script = [r#"echo $$ >"$PLACE/pid"; "#, MARK, HOLD].concat();
    let holder = at.start(&mut at.run("k", &["--lease", "2s"], &script));
    until("it has marked", || at.marks() == 1);
    holder.kill();
    kill(Pid::from_raw(number_in(&at.env.path("pid"))), Signal::SIGKILL).unwrap();
    at.lapsed("k");
    assert_eq!(finish(&mut at.run("other", &[], "exit 9")).code, Some(9));

    let stuck = at.ask(&["effects", "--stuck", "--json"]);
    let stuck: Vec<Value> =
        stuck.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(stuck.len(), 2);
    assert_eq!(
        (text(&stuck[0]["key"]), text(&stuck[0]["state"])),
        ("k".into(), "executing".into())
    );
    assert_eq!(at.ask(&["effects", "--stuck", "--check"]).code, Some(76));
    assert_eq!(at.ask(&["show", "k", "--check"]).code, Some(76));
    let bare = finish(at.env.command::<&str>([]).env("CTRLRUN_STORE", at.store()));
    assert_eq!(bare.code, Some(64));
    assert!(bare.stderr.contains("2 effects"), "{}", bare.stderr);

    let refused = finish(&mut at.run("k", &["--lease", "2s", "--json"], &script));
    assert_eq!(refused.code, Some(76), "{refused:?}");
    let next: Vec<String> = serde_json::from_value(error_of(&refused)["next"].clone()).unwrap();
    let line = next.iter().find(|line| line.contains("--committed")).unwrap();
    assert!(line.contains("--expect 3") && line.contains("--store"), "{line}");
    let typed = at.env.shell(&line.replace("--reason ''", "--reason 'saw it'"));
    assert_eq!(typed.code, Some(0), "{typed:?}");
    assert_eq!(at.state("k"), "committed");
    assert_eq!(at.marks(), 1);
}
