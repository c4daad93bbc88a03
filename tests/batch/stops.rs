//! Signals: once drains, twice ends.
use nix::sys::signal::Signal;

use crate::at::{HOLD, Kind, Place, on_every_store, until};
use crate::{MARK_KEY, batch, file, line, marking, summary};

on_every_store!(
    t53_interrupted_once_it_waits_for_what_runs_and_counts_what_was_not_started,
    t53_interrupted_twice_it_ends_what_runs_and_records_it,
);

/// Two that hold, and many behind them; both have marked.
fn holding(at: &Place) -> crate::at::Running {
    let hold = [MARK_KEY, HOLD].concat();
    let lines = [line("h:1", &hold), line("h:2", &hold), marking(500)].concat();
    let file = file(at, &lines);
    let running = at.start(&mut batch(at, &file, &["-j2", "--json", "--kill-after", "1s"]));
    until("both have marked", || at.marks() == 2);
    running
}

fn t53_interrupted_once_it_waits_for_what_runs_and_counts_what_was_not_started(kind: Kind) {
    // BAT-15, case 53
    let at = Place::new(kind);
    let running = holding(&at);
    running.signal(Signal::SIGINT);
    until("it says so", || running.stderr().contains("nothing more is begun"));
    at.go();
    let end = running.end();
    let told = summary(&end);
    assert_eq!(end.code, Some(130), "{end:?}");
    assert_eq!(
        (told["committed_now"].as_u64(), told["not_started"].as_u64()),
        (Some(2), Some(500))
    );
    assert_eq!(at.marks(), 2, "something more was begun");
    assert_eq!((at.state("h:1"), at.state("h:2")), ("committed".into(), "committed".into()));
    assert_eq!(at.ask(&["effects", "--stuck"]).stdout, "");
}

fn t53_interrupted_twice_it_ends_what_runs_and_records_it(kind: Kind) {
    // BAT-15, case 53
    let at = Place::new(kind);
    let running = holding(&at);
    running.signal(Signal::SIGINT);
    until("it says so", || running.stderr().contains("nothing more is begun"));
    running.signal(Signal::SIGINT);
    let end = running.end();
    let told = summary(&end);
    assert_eq!(end.code, Some(130), "{end:?}");
    assert_eq!((told["ambiguous"].as_u64(), told["not_started"].as_u64()), (Some(2), Some(500)));
    for key in ["h:1", "h:2"] {
        assert_eq!(at.state(key), "ambiguous");
        assert_eq!(at.types(key), ["reserved", "began", "ambiguated"]);
    }
}

#[test]
fn a_batch_that_reads_from_a_silent_pipe_can_be_interrupted() {
    // BAT-15
    let at = Place::new(Kind::Sqlite);
    let mut command = at.ctrlrun(&["batch", "-j2", "--json"]);
    let (reader, mut writer) = std::io::pipe().unwrap();
    command.stdin(reader);
    let running = at.start(&mut command);
    drop(command);
    std::io::Write::write_all(&mut writer, line("k", MARK_KEY).as_bytes()).unwrap();
    until("it has run what there was", || at.state("k") == "committed");
    running.signal(Signal::SIGTERM);
    let end = running.end();
    assert_eq!(end.code, Some(130), "{end:?}");
    let told = summary(&end);
    assert_eq!((&told["committed_now"], &told["not_started"]), (&1.into(), &0.into()));
    assert_eq!(told["input_read_whole"], false);
}
