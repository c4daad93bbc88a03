//! What a probe's end says of an effect, and what it may do to it.
use std::ffi::OsString;
use std::fs;

use ctrlrun::drive::reconcile::{Asking, Came, Probe, reconcile as ask};
use ctrlrun::plan::effect::ProbeAnswer;
use ctrlrun::plan::key::Key;
use ctrlrun::store::{Location, Mode, Options, open};
use nix::sys::signal::Signal;

use crate::at::{BOUND, HOLD, Kind, MARK, Place, is_alive, number_in, on_every_store, until};
use crate::common::finish;
use crate::real::{kill, lines};
use crate::{ASKED, asked, doubt, reconcile};

on_every_store!(
    nothing_but_exit_0_with_the_word_as_last_line_counts,
    committed_settles_it_and_names_the_probe,
    not_executed_frees_what_its_holder_saw_end,
    not_executed_frees_nothing_that_may_be_at_work,
    nothing_is_asked_while_a_holder_is_live,
    a_lapse_is_written_before_anything_is_asked,
    an_answer_that_the_store_does_not_take_changes_nothing,
    the_words_of_a_probe_are_kept_nowhere,
);

fn nothing_but_exit_0_with_the_word_as_last_line_counts(kind: Kind) {
    // Case 31; DEC-1, DEC-2
    let at = Place::new(kind);
    doubt(&at, "k");
    for probe in [
        "true",
        "echo maybe",
        "echo committed; exit 3",
        "echo not-executed; exit 255",
        "echo committed; kill -9 $$",
        "echo not-executed; kill -15 $$",
        "/nowhere/to/be/found",
        "echo committed; echo",
        "echo committed; echo done",
        "printf 'committed\\r\\n'",
        "printf '\\377committed\\n'",
        "printf 'not committed'",
        "echo committed >&2",
        "seq 200000",
        // What is kept ends with the word, and its line began before that.
        "head -c 1000000 /dev/zero | tr '\\0' x; echo committed",
    ] {
        let told = reconcile(&at, "k", probe);
        assert_eq!(told.code, Some(76), "{probe}: {told:?}");
        assert!(told.stderr.contains("could not tell"), "{probe}: {told:?}");
        assert_eq!(at.show("k")["revision"], 3, "{probe}");
    }
    // A lot, and then the word.
    let told = reconcile(&at, "k", "seq 200000; seq 200000 >&2; printf '\\377\\n'; echo committed");
    assert_eq!((told.code, at.state("k").as_str()), (Some(0), "committed"), "{told:?}");
    assert_eq!(at.marks(), 1);
}

fn committed_settles_it_and_names_the_probe(kind: Kind) {
    // DEC-6, DEC-1
    let at = Place::new(kind);
    doubt(&at, "k");
    let told = reconcile(&at, "k", "echo committed");
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.stderr.contains("k: COMMITTED (happened), revision 5"), "{told:?}");
    let shown = at.show("k");
    assert_eq!(shown["resolved_by"], "reconcile:command-line");
    let history = at.history("k");
    assert_eq!((&history[3]["type"], &history[3]["attempt"]), (&"probed".into(), &1.into()));
    assert_eq!(history[3]["data"]["answer"], "committed");
    // Settled: there is nothing to ask about.
    let told = reconcile(&at, "k", "echo not-executed");
    assert_eq!((told.code, at.state("k").as_str()), (Some(0), "committed"), "{told:?}");
}

fn not_executed_frees_what_its_holder_saw_end(kind: Kind) {
    // Case 31; DEC-6: the next attempt carries the idempotency key of the one in doubt.
    let at = Place::new(kind);
    doubt(&at, "k");
    let before = at.show("k")["idempotency_key"].clone();
    let told = reconcile(&at, "k", "echo not-executed");
    assert_eq!((told.code, at.state("k").as_str()), (Some(0), "failed"), "{told:?}");
    assert!(told.stderr.contains("It may run again."), "{told:?}");
    assert_eq!(at.show("k")["idempotency_key"], before);
    let script = [MARK, "exit 28"].concat();
    let ran = finish(&mut at.run("k", &["--rebind"], &script));
    assert_eq!((ran.code, at.marked()), (Some(28), vec!["1".to_owned(), "2".to_owned()]));
}

fn not_executed_frees_nothing_that_may_be_at_work(kind: Kind) {
    // Case 31; DEC-6, EFF-20
    let at = Place::new(kind);
    let script = [MARK, "sleep 1000"].concat();
    let ran = finish(&mut at.run("timed", &["--timeout", "100ms"], &script));
    assert_eq!(ran.code, Some(124), "{ran:?}");
    doubt(&at, "reopened");
    at.resolve("reopened", "--committed");
    at.resolve("reopened", "--reopen");
    let left = [MARK, "setsid sleep 1000 & echo $! >$PLACE/left; exit 1"].concat();
    assert_eq!(finish(&mut at.run("left", &[], &left)).code, Some(1));
    for (key, why) in [
        ("timed", "ended by its time-out"),
        ("reopened", "a person took a decision back"),
        ("left", "it left something running"),
    ] {
        let before = at.history(key).len();
        for _ in 0..2 {
            let told = reconcile(&at, key, "echo not-executed");
            assert_eq!((told.code, at.state(key).as_str()), (Some(76), "ambiguous"), "{told:?}");
            assert!(told.stderr.contains("not so far") && told.stderr.contains(why), "{told:?}");
            // What is to be typed next is about the record as it stands now.
            let expect = format!("--expect {}", at.show(key)["revision"]);
            assert!(told.stderr.contains(&expect), "{told:?}");
        }
        // The answer is kept once.
        assert_eq!(at.history(key).len(), before + 1, "{key}");
        assert_eq!(at.history(key).pop().unwrap()["type"], "probed");
        let shown = at.ask(&["show", key]).stdout;
        assert!(shown.contains("probe    reconcile:command-line said not-executed"), "{shown}");
    }
    kill(number_in(&at.env.path("left")));
    assert_eq!(at.marks(), 3);
}

fn nothing_is_asked_while_a_holder_is_live(kind: Kind) {
    // Case 31; DEC-5
    let at = Place::new(kind);
    let holder = at.holder("k", &[]);
    let probe = [ASKED, "echo not-executed"].concat();
    let told = reconcile(&at, "k", &probe);
    assert_eq!(told.code, Some(75), "{told:?}");
    let ran = finish(&mut at.run("k", &["--reconcile", &probe], &[MARK, crate::at::HOLD].concat()));
    assert_eq!(ran.code, Some(75), "{ran:?}");
    assert_eq!((asked(&at), at.show("k")["revision"].clone()), (0, 2.into()));
    at.go();
    assert_eq!((holder.end().code, at.marks()), (Some(0), 1));
}

fn a_lapse_is_written_before_anything_is_asked(kind: Kind) {
    // Case 31; DEC-5: the old child lives, and "not executed" is only so far.
    let at = Place::new(kind);
    let holder = at.holder("k", &["--lease", "1s"]);
    holder.stop();
    at.lapsed("k");
    let told = reconcile(&at, "k", &[ASKED, "echo not-executed"].concat());
    assert_eq!((told.code, at.state("k").as_str()), (Some(76), "ambiguous"), "{told:?}");
    assert_eq!(at.types("k"), ["reserved", "began", "ambiguated", "probed"]);
    assert!(told.stderr.contains("may still be at work"), "{told:?}");
    let again =
        finish(&mut at.run("k", &["--reconcile", "echo not-executed"], &[MARK, HOLD].concat()));
    assert_eq!((again.code, at.marks()), (Some(76), 1), "{again:?}");
    // "Committed" settles it; the holder that wakes up has a late word, which agrees.
    let told = reconcile(&at, "k", "echo committed");
    assert_eq!((told.code, at.state("k").as_str()), (Some(0), "committed"), "{told:?}");
    holder.go_on();
    at.go();
    assert_eq!((holder.end().code, at.marks()), (Some(74), 1));
    assert_eq!(at.state("k"), "committed");
}

fn an_answer_that_the_store_does_not_take_changes_nothing(kind: Kind) {
    // DEC-9, DEC-11
    let at = Place::new(kind);
    doubt(&at, "k");
    at.home.refuse_updates_of("k");
    for answer in ["echo committed", "echo not-executed"] {
        let told = reconcile(&at, "k", answer);
        assert!(matches!(told.code, Some(69 | 70)), "{told:?}");
        assert_eq!(
            (at.state("k").as_str(), at.show("k")["revision"].clone()),
            ("ambiguous", 3.into())
        );
        let ran = finish(&mut at.run(
            "k",
            &["--reconcile", answer],
            &[MARK, "echo some output; echo no answer >&2; exit 28"].concat(),
        ));
        assert!(matches!(ran.code, Some(69 | 70)), "{ran:?}");
    }
    assert_eq!(at.marks(), 1);
}

fn the_words_of_a_probe_are_kept_nowhere(kind: Kind) {
    // Case 58; DEC-8
    let at = Place::new(kind);
    doubt(&at, "k");
    let secret = "hunter2";
    let probe = format!(": {secret}; echo out-{secret}; exit 7");
    let report = at.env.path("report");
    let flags = ["--reconcile", probe.as_str(), "--report", report.to_str().unwrap()];
    let script = [MARK, "echo some output; echo no answer >&2; exit 28"].concat();
    let ran = finish(&mut at.run("k", &flags, &script));
    assert_eq!(ran.code, Some(76), "{ran:?}");
    let told = reconcile(&at, "k", &probe);
    let json = at.ask(&["reconcile", "k", "--json", "--reconcile", &probe]);
    let settled = reconcile(&at, "k", &format!(": {secret}; echo committed"));
    assert_eq!((told.code, json.code, settled.code), (Some(76), Some(76), Some(0)));
    let shown = at.ask(&["show", "k"]);
    for text in [
        format!("{ran:?}{told:?}{json:?}{settled:?}{shown:?}"),
        fs::read_to_string(report).unwrap(),
        at.dump(),
    ] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn a_final_probe_frees_what_may_be_at_work_and_never_what_is_in_doubt() {
    // DEC-1, DEC-6, EFF-20: it has made a later execution impossible, says its declaration.
    let at = Place::new(Kind::Sqlite);
    let slow = [MARK, "sleep 1000"].concat();
    for key in ["timed", "reopened"] {
        assert_eq!(finish(&mut at.run(key, &["--timeout", "100ms"], &slow)).code, Some(124));
    }
    at.resolve("reopened", "--committed");
    at.resolve("reopened", "--reopen");
    let options = Options::new(Mode::Write, BOUND);
    let store = open(&Location::file(at.file()), &options).unwrap().store;
    let probe = Probe {
        name: "refund".to_owned(),
        words: ["echo", "not-executed"].map(OsString::from).to_vec(),
        is_final: true,
        time_max: BOUND,
    };
    let asking = Asking { store: &*store, probe: &probe, signals: None, within: BOUND };
    let ask = |key: &str| ask(&Key::new(key).unwrap(), asking).came;
    assert_eq!(ask("timed"), Came::Decided(ProbeAnswer::NotExecuted));
    assert_eq!(at.show("timed")["resolved_by"], "reconcile:refund");
    assert_eq!(ask("timed"), Came::NotInDoubt);
    assert_eq!((ask("reopened"), ask("nobody")), (Came::NotSoFar, Came::NoSuchEffect));
    assert_eq!(at.state("reopened"), "ambiguous");
}

#[test]
fn a_probe_that_hangs_is_ended_with_its_group() {
    // Case 31; DEC-4
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    let probe = "trap '' TERM; sleep 1000 & echo $! >$PLACE/background; echo $$ >$PLACE/probe; \
                 echo committed; while :; do sleep 0.05; done";
    let told = at.ask(&["reconcile", "k", "--reconcile", probe, "--reconcile-timeout", "300ms"]);
    assert_eq!(told.code, Some(76), "{told:?}");
    assert!(told.stderr.contains("it took longer than 0.3 s"), "{told:?}");
    let pids = ["background", "probe"].map(|file| number_in(&at.env.path(file)));
    assert_eq!(pids.map(is_alive), [false, false]);
    assert_eq!(at.show("k")["revision"], 3);
}

#[test]
fn killed_while_a_probe_runs_it_can_be_asked_again() {
    // DEC-4
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    let probe = [ASKED, HOLD, "echo committed"].concat();
    let asking = at.start(&mut at.ctrlrun(&["reconcile", "k", "--reconcile", &probe]));
    until("it was asked", || asked(&at) == 1);
    asking.kill();
    assert_eq!((at.state("k").as_str(), at.show("k")["revision"].clone()), ("ambiguous", 3.into()));
    // The old probe answers, and nobody listens.
    at.go();
    let told = reconcile(&at, "k", &[ASKED, "exit 1"].concat());
    assert_eq!((told.code, asked(&at), at.show("k")["revision"].clone()), (Some(76), 2, 3.into()));
    assert_eq!(
        (reconcile(&at, "k", "echo committed").code, at.state("k").as_str()),
        (Some(0), "committed")
    );
}

#[test]
fn a_signal_ends_the_probe_and_changes_nothing() {
    // DEC-4, DEC-11
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    let probe = ["echo $$ >$PLACE/probe; ", ASKED, HOLD, "echo committed"].concat();
    let script = [MARK, "echo some output; echo no answer >&2; exit 28"].concat();
    let mut commands = [
        at.ctrlrun(&["reconcile", "k", "--reconcile", &probe]),
        at.run("k", &["--reconcile", &probe], &script),
    ];
    for (times, command) in (1..).zip(&mut commands) {
        let asking = at.start(command);
        until("it was asked", || asked(&at) == times);
        asking.signal(Signal::SIGTERM);
        let ended = asking.end();
        assert_eq!((ended.code, ended.signal), (None, Some(15)), "{ended:?}");
        assert!(ended.stderr.contains("nothing was"), "{ended:?}");
        assert!(!is_alive(number_in(&at.env.path("probe"))));
        fs::remove_file(at.env.path("probe")).unwrap();
        assert_eq!(
            (at.state("k").as_str(), at.show("k")["revision"].clone()),
            ("ambiguous", 3.into())
        );
    }
    assert_eq!(at.marks(), 1);
}

#[test]
fn a_probe_is_told_of_the_attempt_and_can_speak_for_no_command() {
    // DEC-3
    let at = Place::new(Kind::Sqlite);
    doubt(&at, "k");
    let probe = "env | grep ^CTRLRUN_ >$PLACE/env; cat >$PLACE/stdin; \
                 (: </dev/tty) 2>/dev/null && echo tty >>$PLACE/env; pwd >$PLACE/pwd; \
                 ps -o pgid= -p $$ >$PLACE/group; echo $$ >$PLACE/pid; \
                 $CTRLRUN outcome committed && echo said >>$PLACE/env; \
                 $CTRLRUN run --store \"$STORE\" -k k -- true; echo $? >$PLACE/nested; exit 1";
    let mut command = at.ctrlrun(&["reconcile", "k", "--reconcile", probe]);
    command.env("STORE", at.store());
    // As inside the command of another effect.
    command.env("CTRLRUN_OUTCOME_FILE", at.env.path("outer"));
    fs::write(at.env.path("outer"), "").unwrap();
    assert_eq!(finish(&mut command).code, Some(76));
    let shown = at.show("k");
    let text = |name: &str| shown[name].as_str().unwrap().to_owned();
    let env = lines(&at, "env");
    for line in [
        "CTRLRUN_KEY=k".to_owned(),
        "CTRLRUN_ATTEMPT=1".to_owned(),
        format!("CTRLRUN_ATTEMPT_ID={}", text("attempt_id")),
        format!("CTRLRUN_IDEMPOTENCY_KEY={}", text("idempotency_key")),
        "CTRLRUN_OUTCOME_FILE=".to_owned(),
    ] {
        assert!(env.contains(&line), "{line}: {env:?}");
    }
    assert!(!env.contains(&"tty".to_owned()) && !env.contains(&"said".to_owned()), "{env:?}");
    assert_eq!((lines(&at, "stdin").len(), lines(&at, "outer").len()), (0, 0));
    assert_eq!(lines(&at, "pwd"), [at.env.path("here").canonicalize().unwrap().to_str().unwrap()]);
    let number = |name| lines(&at, name)[0].trim().to_owned();
    assert_eq!(number("group"), number("pid"));
    // It is not the effect's command either: that would wait for itself.
    assert_eq!((number("nested"), at.marks()), ("64".to_owned(), 1));
}
