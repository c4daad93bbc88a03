//! Words that come when the record is no longer theirs.
use nix::sys::signal::Signal;

use crate::at::{HOLD, Kind, MARK, Place, is_alive, number_in, on_every_store, text, until};
use crate::common::finish;

on_every_store!(
    a_holder_that_overslept_unnoticed_still_knows_best,
    a_history_has_no_gaps_and_ends_where_its_record_stands,
    a_late_committed_undoes_the_decision_that_it_did_not_happen,
    a_late_committed_stops_an_attempt_that_had_only_reserved,
    a_late_word_on_what_nobody_decided_keeps_it_ambiguous,
    a_late_failed_raises_no_doubt,
    a_declared_code_proves_nothing_once_we_have_ended_it,
    a_holder_that_had_only_reserved_starts_nothing_after_a_decision,
    a_holder_whose_record_stands_failed_ends_its_group,
    a_holder_whose_record_is_only_in_doubt_lets_its_command_run,
    a_decision_on_what_was_seen_does_not_hit_a_later_attempt,
    of_many_decisions_on_one_revision_one_counts,
);

const LEASE: [&str; 2] = ["--lease", "2s"];

/// A contender meets the lapse.
fn contend(at: &Place, script: &str) {
    at.lapsed("k");
    let contender = finish(&mut at.run("k", &LEASE, script));
    assert_eq!(contender.code, Some(76), "{contender:?}");
}

fn a_late_committed_undoes_the_decision_that_it_did_not_happen(kind: Kind) {
    // EFF-17, EXE-9, EFF-7; cases 29 and 30
    let at = Place::new(kind);
    let script = [MARK, HOLD].concat();
    let holder = at.holder("k", &LEASE);
    holder.stop();
    contend(&at, &script);
    at.resolve("k", "--not-executed");
    at.go();
    holder.go_on();
    let end = holder.end();
    assert_eq!(end.code, Some(74), "{end:?}");
    assert!(end.stderr.contains("it ran") && end.stderr.contains("late outcome"), "{}", end.stderr);
    let shown = at.show("k");
    assert_eq!(
        (text(&shown["state"]), text(&shown["cause"])),
        ("ambiguous".into(), "late_outcome".into())
    );
    assert_eq!(finish(&mut at.run("k", &LEASE, &script)).code, Some(76));
    let types = at.types("k");
    assert_eq!(
        types,
        ["reserved", "began", "ambiguated", "resolved", "late_outcome", "ambiguated"]
    );
    assert_eq!(at.marked(), ["1"]);
}

fn a_late_committed_stops_an_attempt_that_had_only_reserved(kind: Kind) {
    // EFF-13, EFF-17, EFF-7
    let at = Place::scratch(kind);
    let script = [MARK, HOLD].concat();
    let first = at.holder("k", &LEASE);
    first.stop();
    contend(&at, &script);
    at.resolve("k", "--not-executed");
    let second =
        at.start(at.run("k", &["--lease", "1h"], &script).env("CTRLRUN_STOP_AT", "after-reserve"));
    second.stopped();
    assert_eq!(at.state("k"), "reserved");
    at.go();
    first.go_on();
    let end = first.end();
    assert_eq!(end.code, Some(74), "{end:?}");
    second.go_on();
    let end = second.end();
    assert_eq!(end.code, Some(76), "{end:?}");
    assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
    assert_eq!(at.show("k")["cause"], "late_outcome");
    assert_eq!(at.marked(), ["1"]);
}

fn a_late_word_on_what_nobody_decided_keeps_it_ambiguous(kind: Kind) {
    // EFF-17; case 29
    let at = Place::new(kind);
    let script = [MARK, HOLD].concat();
    let holder = at.holder("k", &LEASE);
    holder.stop();
    contend(&at, &script);
    at.go();
    holder.go_on();
    let end = holder.end();
    assert_eq!(end.code, Some(74), "{end:?}");
    assert_eq!(at.types("k"), ["reserved", "began", "ambiguated", "late_outcome"]);
    let shown = finish(&mut at.ctrlrun(&["show", "k"]));
    assert!(shown.stdout.contains("happened"), "{}", shown.stdout);
    // A person has the last word, and it is one.
    at.resolve("k", "--committed");
    assert_eq!(finish(&mut at.run("k", &LEASE, &script)).code, Some(0));
    assert_eq!(at.marked(), ["1"]);
}

fn a_late_failed_raises_no_doubt(kind: Kind) {
    // EFF-17
    let at = Place::new(kind);
    let script = [r#"echo $$ >"$PLACE/pid"; "#, MARK, HOLD, "exit 3"].concat();
    let flags = ["--lease", "2s", "--not-executed", "3"];
    let holder = at.start(&mut at.run("k", &flags, &script));
    until("it has marked", || at.marks() == 1);
    holder.stop();
    contend(&at, &script);
    at.resolve("k", "--not-executed");
    at.go();
    let child = number_in(&at.env.path("pid"));
    until("its command has ended by itself", || !is_alive(child));
    holder.go_on();
    assert_eq!(holder.end().code, Some(74));
    assert_eq!(at.state("k"), "failed");
    assert_eq!(at.types("k").last().unwrap(), "late_outcome");
}

fn a_declared_code_proves_nothing_once_we_have_ended_it(kind: Kind) {
    // EXE-9, EXE-3: as after a time-out
    let at = Place::new(kind);
    let script = [r#"trap 'exit 3' TERM; "#, MARK, HOLD].concat();
    let flags = ["--lease", "2s", "--not-executed", "3"];
    let holder = at.start(&mut at.run("k", &flags, &script));
    until("it has marked", || at.marks() == 1);
    holder.stop();
    contend(&at, &script);
    at.resolve("k", "--not-executed");
    holder.go_on();
    let end = holder.end();
    assert_eq!(end.code, Some(74), "{end:?}");
    assert_eq!(
        (at.state("k").as_str(), &at.show("k")["cause"]),
        ("ambiguous", &"late_outcome".into())
    );
    assert_eq!(finish(&mut at.run("k", &flags, &script)).code, Some(76));
    assert_eq!(at.marks(), 1);
}

fn a_holder_that_had_only_reserved_starts_nothing_after_a_decision(kind: Kind) {
    // EFF-13, EXE-8
    for another in [false, true] {
        let at = Place::scratch(kind);
        let run = || at.run("k", &LEASE, MARK);
        let holder = at.start(run().env("CTRLRUN_STOP_AT", "after-reserve"));
        holder.stopped();
        contend(&at, MARK);
        at.resolve("k", "--not-executed");
        if another {
            assert_eq!(finish(&mut run()).code, Some(0));
        }
        holder.go_on();
        let end = holder.end();
        assert_eq!(end.code, Some(75), "{end:?}");
        assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
        assert_eq!(at.marks(), usize::from(another));
    }
}

fn a_holder_whose_record_stands_failed_ends_its_group(kind: Kind) {
    // EXE-9
    let at = Place::new(kind);
    let script = [
        r#"sh -c 'echo $$ >"$PLACE/pid"; while [ -d "$PLACE" ]; do sleep 0.1; done' & "#,
        MARK,
        HOLD,
    ]
    .concat();
    let holder = at.start(&mut at.run("k", &["--lease", "2s", "--kill-after", "300ms"], &script));
    until("it has marked", || at.marks() == 1);
    let grandchild = number_in(&at.env.path("pid"));
    holder.stop();
    contend(&at, &script);
    at.resolve("k", "--not-executed");
    assert!(is_alive(grandchild));
    holder.go_on();
    let end = holder.end();
    assert_eq!(end.code, Some(74), "{end:?}");
    until("its group has ended", || !is_alive(grandchild));
    // That it was ended proves nothing about what it had done.
    assert_eq!(at.show("k")["cause"], "late_outcome");
    assert_eq!(finish(&mut at.run("k", &LEASE, &script)).code, Some(76));
    assert_eq!(at.marks(), 1);
}

fn a_holder_whose_record_is_only_in_doubt_lets_its_command_run(kind: Kind) {
    // EXE-9
    let at = Place::new(kind);
    let script = [MARK, HOLD, r#"echo >"$PLACE/done""#].concat();
    let holder = at.start(&mut at.run("k", &LEASE, &script));
    until("it has marked", || at.marks() == 1);
    holder.stop();
    contend(&at, &script);
    holder.go_on();
    until("it says that it has lost", || holder.stderr().contains("no longer"));
    at.go();
    let end = holder.end();
    assert_eq!(end.code, Some(74), "{end:?}");
    assert!(at.env.path("done").exists(), "its command was ended");
    assert_eq!(at.state("k"), "ambiguous");
}

fn a_decision_on_what_was_seen_does_not_hit_a_later_attempt(kind: Kind) {
    // Case 30; EFF-18, CLI-19, CLI-4
    let at = Place::new(kind);
    let flags = ["--not-executed", "3"];
    finish(&mut at.run("k", &flags, "exit 4"));
    let seen = at.show("k")["revision"].to_string();
    at.resolve("k", "--not-executed");
    finish(&mut at.run("k", &flags, "exit 4"));
    assert_eq!(at.show("k")["attempt"], 2);
    let late = at.ask(&["resolve", "k", "--committed", "--expect", &seen, "--reason", "saw it"]);
    assert_eq!(late.code, Some(79), "{late:?}");
    let shown = at.show("k");
    assert_eq!((text(&shown["state"]), &shown["attempt"]), ("ambiguous".into(), &2.into()));
    let unlooked = at.ask(&["resolve", "k", "--committed", "--reason", "saw it"]);
    assert_eq!(unlooked.code, Some(64), "{unlooked:?}");
    let next = text(&shown["next"][0]);
    assert!(next.contains(&format!("--expect {}", shown["revision"])), "{next}");
    // Nor does it hit one that runs.
    at.resolve("k", "--not-executed");
    let holder = at.start(&mut at.run("k", &["--rebind"], &[MARK, HOLD].concat()));
    until("it has marked", || at.marks() == 1);
    let now = at.show("k")["revision"].to_string();
    let live = at.ask(&["resolve", "k", "--committed", "--expect", &now, "--reason", "saw it"]);
    assert_eq!(live.code, Some(75), "{live:?}");
    holder.signal(Signal::SIGTERM);
}

fn a_holder_that_overslept_unnoticed_still_knows_best(kind: Kind) {
    // EFF-16: the version counts, not the clock.
    let at = Place::new(kind);
    let holder = at.holder("k", &LEASE);
    holder.stop();
    at.lapsed("k");
    at.go();
    holder.go_on();
    let end = holder.end();
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    assert_eq!(at.types("k"), ["reserved", "began", "committed"]);
    let again = finish(&mut at.run("k", &LEASE, &[MARK, HOLD].concat()));
    assert_eq!((again.code, at.marks()), (Some(0), 1), "{again:?}");
}

fn a_history_has_no_gaps_and_ends_where_its_record_stands(kind: Kind) {
    // HIS-1, HIS-2, HIS-6, HIS-7
    let at = Place::new(kind);
    let script = [MARK, r#"echo "out $CTRLRUN_ATTEMPT"; exit "$(cat "$PLACE/code")""#].concat();
    for (code, decision) in [("3", ""), ("4", "--not-executed"), ("4", "--committed")] {
        std::fs::write(at.env.path("code"), code).unwrap();
        let end = finish(&mut at.run("k", &["--not-executed", "3"], &script));
        assert_eq!(end.code, Some(code.parse().unwrap()), "{end:?}");
        if !decision.is_empty() {
            at.resolve("k", decision);
        }
    }
    let history = at.history("k");
    for (revision, event) in (1..).zip(&history) {
        assert_eq!(event["revision"], revision);
    }
    assert_eq!(at.show("k")["revision"], history.len());
    assert_eq!(history.len(), 11);
    let times: Vec<String> = history.iter().map(|event| text(&event["recorded_at"])).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(text(&at.show("k")["updated_at"]), *times.last().unwrap());
    // Each attempt keeps its own output.
    for attempt in ["1", "2", "3"] {
        let kept = at.ask(&["output", "k", "--attempt", attempt]);
        assert_eq!(kept.stdout, format!("out {attempt}\n"));
    }
    assert_eq!(at.marked(), ["1", "2", "3"]);
}

fn of_many_decisions_on_one_revision_one_counts(kind: Kind) {
    // Case 56; CMT-2, CMT-12, HIS-2
    let at = Place::new(kind);
    finish(&mut at.run("k", &[], &[MARK, "exit 4"].concat()));
    let seen = at.show("k")["revision"].to_string();
    let decisions = ["--committed", "--not-executed"].into_iter().cycle().take(8);
    let decide = |decision| {
        let words = ["resolve", "k", decision, "--expect", &seen, "--reason", "saw it"];
        at.start(&mut at.ctrlrun(&words))
    };
    let all: Vec<_> = decisions.map(decide).collect();
    let ends: Vec<_> = all.into_iter().map(crate::at::Running::end).collect();
    // Who says the same as the one that counted is told that it is so, and writes nothing.
    let (won, lost): (Vec<_>, Vec<_>) = ends.iter().partition(|end| end.code == Some(0));
    let wrote = won.iter().filter(|end| !end.stderr.contains("nothing was changed"));
    assert_eq!((wrote.count(), won.len()), (1, 4), "{ends:?}");
    for late in lost {
        assert_eq!(late.code, Some(79), "{late:?}");
        assert!(late.stderr.contains("looked at revision 3, it is at 4 now"), "{late:?}");
    }
    assert_eq!(at.types("k"), ["reserved", "began", "ambiguated", "resolved"]);
    let revisions: Vec<_> = at.history("k").iter().map(|event| event["revision"].clone()).collect();
    assert_eq!(revisions, [1, 2, 3, 4]);
}
