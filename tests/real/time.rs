//! Time-outs.
use crate::at::{Kind, MARK, Place, is_alive, number_in};
use crate::real::{ends, kill};

const SOON: [&str; 6] =
    ["--timeout", "500ms", "--kill-after", "300ms", "--not-executed", "nonzero"];

/// The state, the cause, and whether all was seen to end.
fn recorded(at: &Place, key: &str) -> (String, String, bool) {
    let shown = at.show(key);
    let word = |name: &str| shown[name].as_str().unwrap_or_default().to_owned();
    let reaped = at.history(key).pop().unwrap()["data"]["reaped"] == true;
    (word("state"), word("cause"), reaped)
}

#[test]
fn a_child_that_exits_0_on_our_term_was_timed_out() {
    // Case 28; EXE-3, EXE-11
    let at = Place::new(Kind::Sqlite);
    let end = ends(&mut at.run(
        "k",
        &SOON,
        &format!("trap 'exit 0' TERM; {MARK} while :; do sleep 0.01; done"),
    ));
    assert_eq!((end.code, at.marks()), (Some(124), 1), "{end:?}");
    assert_eq!(recorded(&at, "k").0, "ambiguous");
    assert_eq!(recorded(&at, "k").1, "timeout");
}

#[test]
fn a_child_that_says_committed_on_our_term_is_committed() {
    // EXE-4, EXE-11, EXE-17
    let at = Place::new(Kind::Sqlite);
    for (key, last) in [("a", "exit 1"), ("b", "exit 0"), ("c", "trap - TERM; kill -9 $$")] {
        let said = format!(
            "trap 'echo committed >\"$CTRLRUN_OUTCOME_FILE\"; {last}' TERM; while :; do sleep 0.01; done"
        );
        let flags = ["--timeout", "500ms", "--kill-after", "30s"];
        let end = ends(&mut at.run(key, &flags, &said));
        assert_eq!((end.code, at.state(key).as_str()), (Some(0), "committed"), "{key}: {end:?}");
    }
}

#[test]
fn a_child_that_says_not_executed_on_our_term_is_in_doubt() {
    // EXE-4
    let at = Place::new(Kind::Sqlite);
    let said = "trap 'echo not-executed >\"$CTRLRUN_OUTCOME_FILE\"; exit 1' TERM; while :; do sleep 0.01; done";
    let end = ends(&mut at.run("k", &SOON, said));
    assert_eq!((end.code, recorded(&at, "k").1.as_str()), (Some(124), "timeout"), "{end:?}");
}

#[test]
fn a_grandchild_that_left_the_group_is_named_and_not_claimed_dead() {
    // Case 28; EXE-11, EXE-12
    let at = Place::new(Kind::Sqlite);
    let script = "(setsid sh -c 'echo $$ >$PLACE/left; exec sleep 1000' &); exec sleep 1000";
    let end = ends(&mut at.run("k", &SOON, script));
    let left = number_in(&at.env.path("left"));
    let alive = is_alive(left);
    kill(left);
    assert_eq!((end.code, alive), (Some(124), true), "{end:?}");
    assert!(end.stderr.contains(&format!("pid {left}")), "{end:?}");
    assert_eq!(recorded(&at, "k"), ("ambiguous".into(), "timeout".into(), false));
}

#[test]
fn a_child_that_has_stopped_itself_is_ended() {
    // EXE-11
    let at = Place::new(Kind::Sqlite);
    let end = ends(&mut at.run("k", &SOON, "kill -STOP $$; exit 0"));
    assert_eq!(end.code, Some(124), "{end:?}");
    assert_eq!(recorded(&at, "k").1, "timeout");
}

#[test]
fn a_child_that_moved_to_another_group_is_ended() {
    // EXE-11. Once it was only its old group that was signalled, which was empty.
    let at = Place::new(Kind::Sqlite);
    for (key, deaf) in [("polite", ""), ("deaf", "$SIG{TERM} = 'IGNORE';")] {
        let perl = format!(
            "{deaf} setpgrp(0, getpgrp(getppid())) or die; open(F, \">$ENV{{PLACE}}/moved\"); sleep 1000"
        );
        let end = ends(&mut at.run_words(key, &SOON, &["perl", "-e", &perl]));
        assert!(at.env.path("moved").exists(), "{end:?}");
        std::fs::remove_file(at.env.path("moved")).unwrap();
        assert_eq!(end.code, Some(124), "{key}: {end:?}");
        assert_eq!(recorded(&at, key).1, "timeout");
    }
}

#[test]
fn a_time_out_within_a_time_out_ends_all_or_names_what_it_left() {
    // EXE-11, EXE-12: the inner command is in a group of its own.
    let at = Place::new(Kind::Sqlite);
    let inner = r#""$CTRLRUN" run --store "$STORE" -k inner -- sh -c 'echo $$ >$PLACE/inner; exec sleep 1000'"#;
    let mut run = at.run("outer", &SOON, inner);
    let end = ends(run.env("STORE", at.store()));
    let child = number_in(&at.env.path("inner"));
    assert_eq!(end.code, Some(124), "{end:?}");
    assert!(!is_alive(child), "TERM was not passed down");
    let inner = at.show("inner");
    assert_eq!((&inner["state"], &inner["signal"]), (&"ambiguous".into(), &15.into()));
}
