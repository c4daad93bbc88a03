//! A node in doubt blocks its run, and a decision wakes it.
use crate::at::{Kind, on_every_store};
use crate::common::finish;
use crate::lab::{Lab, MARK, three};

on_every_store!(
    a_node_in_doubt_blocks_the_run_with_that_reason_and_what_to_type,
    what_a_person_decides_wakes_the_run,
    a_decision_that_it_did_not_happen_runs_it_again,
    an_output_that_a_person_states_feeds_what_follows,
    a_node_that_is_reopened_after_the_end_is_seen,
    a_decision_about_an_effect_of_others_is_seen_by_the_next_run,
    a_node_that_cannot_be_dispatched_says_what_mends_it,
);

fn a_node_in_doubt_blocks_the_run_with_that_reason_and_what_to_type(kind: Kind) {
    // WFL-16
    let lab = Lab::new(kind);
    let file = lab.file("w", &three("exit 3"));
    let ran = lab.ask(&["run", &file, "--id", "r"]);
    assert_eq!(ran.code, Some(76), "{ran:?}");
    assert!(ran.stderr.contains("r: BLOCKED: two: AMBIGUOUS: exited 3"), "{ran:?}");
    for decision in ["--committed", "--not-executed"] {
        let line = format!("ctrlrun resolve r/two {decision} --expect 3 --reason ''");
        assert!(ran.stderr.contains(&line), "{line}: {ran:?}");
    }
    assert_eq!(lab.node("r", "three"), "pending");
    let again = lab.ask(&["run", &file, "--id", "r"]);
    assert_eq!(again.code, Some(76), "{again:?}");
    assert_eq!(lab.marked().len(), 2);
    let shown = lab.ask(&["status", "r"]);
    assert!(shown.stdout.contains("ctrlrun resolve r/two --committed --expect 3"), "{shown:?}");
}

fn what_a_person_decides_wakes_the_run(kind: Kind) {
    // WFL-10, WFL-16
    let lab = Lab::new(kind);
    let file = lab.file("w", &three("exit 3"));
    lab.start(&file, "r");
    lab.drain();
    assert_eq!(lab.stands("r"), "blocked");
    lab.at.resolve("r/two", "--committed");
    lab.drain();
    assert_eq!(lab.stands("r"), "succeeded");
    assert_eq!(lab.marked(), ["r/one 1", "r/two 1", "r/three 1"]);
}

fn a_decision_that_it_did_not_happen_runs_it_again(kind: Kind) {
    // WFL-16
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(r#"[ "$CTRLRUN_ATTEMPT" = 2 ] || exit 3"#));
    lab.start(&file, "r");
    lab.drain();
    lab.at.resolve("r/two", "--not-executed");
    lab.drain();
    assert_eq!(lab.stands("r"), "succeeded");
    assert_eq!(lab.marked(), ["r/one 1", "r/two 1", "r/two 2", "r/three 1"]);
    assert_eq!(lab.status("r")["nodes"]["two"]["retries"], 0, "that is no retry");
}

fn an_output_that_a_person_states_feeds_what_follows(kind: Kind) {
    // WFL-2
    let lab = Lab::new(kind);
    let text = format!(
        "name = 'w'\n[node.a]\ncommand = ['sh', '-c', '''{MARK}echo half; exit 3''']\n\
         [node.b]\nneeds = ['a']\ncommand = ['sh', '-c', 'echo \"<$1>\" >>\"$PLACE/marker\"', 'sh', '{{a.stdout}}']\n"
    );
    let file = lab.file("w", &text);
    lab.start(&file, "r");
    lab.drain();
    // Who says that it happened is told to say what it wrote, since others are fed by that.
    let told = lab.ask(&["run", &file, "--id", "r"]).stderr;
    let line =
        "a: it did:     ctrlrun resolve r/a --committed --output FILE --expect 3 --reason ''";
    assert!(told.contains(line), "{told}");
    lab.at.resolve("r/a", "--committed");
    lab.drain();
    let told = lab.ask(&["run", &file, "--id", "r"]).stderr;
    for line in [
        "ctrlrun resolve r/a --reopen --expect 4 --reason ''",
        "ctrlrun resolve r/a --committed --output FILE --expect 5 --reason ''",
    ] {
        assert!(told.contains(line), "{told}");
    }
    assert_eq!(lab.stands("r"), "blocked", "what it wrote in doubt is not its output");
    let reason = lab.status("r")["reason"].to_string();
    assert!(reason.contains("b: cannot be dispatched: no output of a is stored"), "{reason}");
    let revision = || lab.at.show("r/a")["revision"].to_string();
    let reopened = lab.at.ask(&[
        "resolve",
        "r/a",
        "--reopen",
        "--expect",
        &revision(),
        "--reason",
        "its output",
    ]);
    assert_eq!(reopened.code, Some(0), "{reopened:?}");
    std::fs::write(lab.at.env.path("here/stated"), "whole\n").unwrap();
    let stated = lab.at.ask(&[
        "resolve",
        "r/a",
        "--committed",
        "--output",
        "stated",
        "--expect",
        &revision(),
        "--reason",
        "seen",
    ]);
    assert_eq!(stated.code, Some(0), "{stated:?}");
    lab.drain();
    assert_eq!(lab.stands("r"), "succeeded");
    assert_eq!(lab.marked(), ["r/a 1", "<whole>"]);
}

fn a_node_that_is_reopened_after_the_end_is_seen(kind: Kind) {
    // WFL-16
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    assert_eq!(lab.ask(&["run", &file, "--id", "r"]).code, Some(0));
    lab.at.resolve("r/two", "--reopen");
    lab.drain();
    assert_eq!((lab.stands("r"), lab.node("r", "two")), ("succeeded".into(), "ambiguous".into()));
    lab.at.resolve("r/two", "--not-executed");
    lab.drain();
    assert_eq!((lab.stands("r"), lab.node("r", "two")), ("succeeded".into(), "failed".into()));
    assert_eq!(lab.marked().len(), 3, "nothing runs after the end");
}

fn a_decision_about_an_effect_of_others_is_seen_by_the_next_run(kind: Kind) {
    // WFL-10: it carries no run, so that nobody is woken; the same line looks before it says anything.
    let lab = Lab::new(kind);
    let file =
        lab.file("w", "name = 'w'\n[node.a]\nkey = 'shared'\ncommand = ['sh', '-c', 'exit 3']\n");
    let mut by_hand = lab.at.run_words("shared", &[], &["sh", "-c", "exit 3"]);
    assert_eq!(finish(&mut by_hand).code, Some(3));
    for _ in 0..2 {
        let ran = lab.ask(&["run", &file, "--id", "r"]);
        assert_eq!(ran.code, Some(76), "{ran:?}");
        assert!(ran.stderr.contains("ctrlrun resolve shared --committed --expect 3"), "{ran:?}");
    }
    lab.at.resolve("shared", "--committed");
    let ran = lab.ask(&["run", &file, "--id", "r"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(lab.stands("r"), "succeeded");
}

fn a_node_that_cannot_be_dispatched_says_what_mends_it(kind: Kind) {
    // WFL-2, WFL-3
    let lab = Lab::new(kind);
    let file = lab.file("w", "name = 'w'\n[node.a]\nkey = 'taken'\ncommand = ['true']\n");
    let mut by_hand = lab.at.run_words("taken", &[], &["echo", "other"]);
    assert_eq!(finish(&mut by_hand).code, Some(0));
    let ran = lab.ask(&["run", &file, "--id", "r"]);
    assert_eq!(ran.code, Some(76), "{ran:?}");
    for line in [
        "a: cannot be dispatched: its key taken is bound to another command",
        "with the file mended: ctrlrun workflow start FILE --id r --accept-new-definition",
        "give it up:           ctrlrun workflow cancel r",
    ] {
        assert!(ran.stderr.contains(line), "{line}: {ran:?}");
    }
    let mended = lab.file("w", "name = 'w'\n[node.a]\nkey = 'free'\ncommand = ['true']\n");
    let line = ["start", &mended, "--id", "r", "--accept-new-definition"];
    assert_eq!(lab.ask(&line).code, Some(0));
    assert_eq!(lab.ask(&["run", &mended, "--id", "r"]).code, Some(0));
    assert_eq!(lab.at.state("free"), "committed");
}
