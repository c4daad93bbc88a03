//! What goes, what stays, and that nothing is left by half (OPS-1 to OPS-7; case 59).
use serde_json::Value;

use crate::at::{Kind, MARK, Place, on_every_store, until};
use crate::common::{Output, finish};

on_every_store!(
    output_goes_first_and_a_replay_says_so,
    a_dry_run_counts_and_changes_nothing,
    only_what_was_settled_long_ago_goes,
    an_attempt_that_nobody_saw_end_keeps_its_key,
    forgetting_is_confirmed,
    killed_inside_its_transaction_it_leaves_all_as_it_was,
    what_is_in_the_spool_is_delivered_first,
    evidence_makes_nothing_younger,
    a_run_keeps_its_effects_until_it_has_ended,
    a_run_that_ended_is_forgotten_and_its_name_is_new_again,
    a_run_with_a_node_in_doubt_is_not_forgotten,
);

/// A run that marks, says something on both streams, and ends so.
fn ran(at: &Place, key: &str, end: &str) -> Output {
    let script = format!("{MARK} echo said; echo told >&2; {end}");
    finish(&mut at.run(key, &["--not-executed", "11"], &script))
}

fn prune(at: &Place, flags: &[&str]) -> Value {
    let out = at.ask(&[&["prune", "--json"], flags].concat());
    assert_eq!(out.code, Some(0), "{out:?}");
    serde_json::from_str(&out.stdout).unwrap()
}

const FORGET: [&str; 4] = ["--older-than", "10d", "--forget-keys", "--yes"];

fn output_goes_first_and_a_replay_says_so(kind: Kind) {
    // OPS-2, CLI-9
    let at = Place::new(kind);
    ran(&at, "k", "");
    let shown = at.show("k");
    let told = prune(&at, &["--older-than", "0s"]);
    assert_eq!((&told["outputs"], &told["output_bytes"]), (&1.into(), &10.into()), "{told}");
    assert_eq!(told["effects"], 0);
    let again = ran(&at, "k", "");
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""), "{again:?}");
    assert!(again.stderr.contains("nothing was run, its output is not printed: it was pruned"));
    assert!(!again.stderr.contains("told"), "{again:?}");
    assert_eq!(at.marks(), 1);
    for flags in [&["output", "k"][..], &["output", "k", "--stderr"]] {
        let out = at.ask(flags);
        assert_eq!((out.code, out.stdout.as_str()), (Some(66), ""));
        assert!(out.stderr.contains("the 5 bytes that attempt 1 wrote were pruned"), "{out:?}");
    }
    assert!(at.ask(&["show", "k"]).stdout.contains("  stdout   5 bytes, pruned\n"));
    let after = at.show("k");
    for same in ["state", "revision", "attempt", "updated_at", "stdout_bytes"] {
        assert_eq!(after[same], shown[same], "{same}");
    }
    assert_eq!(after["stdout_truncated"], true);
    assert_eq!(at.types("k"), ["reserved", "began", "committed"]);
    // There is nothing left to go.
    assert_eq!(prune(&at, &["--older-than", "0s"])["outputs"], 0);
}

fn a_dry_run_counts_and_changes_nothing(kind: Kind) {
    // OPS-7
    let at = Place::new(kind);
    ran(&at, "k", "");
    ran(&at, "l", "exit 11");
    let before = at.dump();
    for forget in [false, true] {
        let mut flags = vec!["--older-than", "0s", "--dry-run"];
        flags.extend(forget.then_some("--forget-keys"));
        let told = prune(&at, &flags);
        assert_eq!((&told["dry_run"], &told["looked_at"]), (&true.into(), &2.into()));
        let (outputs, effects) = if forget { (0, 2) } else { (2, 0) };
        assert_eq!((&told["outputs"], &told["effects"]), (&outputs.into(), &effects.into()));
        assert_eq!(at.dump(), before);
    }
    let out = at.ask(&["prune", "--older-than", "0s", "--dry-run"]);
    assert_eq!(
        (out.code, out.stdout.as_str()),
        (
            Some(0),
            "would drop    the output of 2 effects (20 bytes)\n\
             looked at     2 settled effects, first reserved at least 0 s ago\n"
        )
    );
}

fn only_what_was_settled_long_ago_goes(kind: Kind) {
    // OPS-1, OPS-3; case 59
    let at = Place::new(kind);
    let mut holder = at.holder("old-running", &[]);
    let gone = at.holder("old-lapsed", &["--lease", "1s"]);
    gone.kill();
    ran(&at, "old-doubt", "exit 3");
    ran(&at, "old-doubt2", "exit 3");
    at.resolve("old-doubt2", "--committed");
    ran(&at, "old-did", "");
    ran(&at, "old-did-not", "exit 11");
    finish(&mut at.run_words("old-unstarted", &[], &["./no-such-command"]));
    ran(&at, "young", "");
    // It was there for long, failed long ago, and has just ended well.
    ran(&at, "old-just-ended", "exit 11");
    at.home.age("old-just-ended", 20);
    ran(&at, "old-just-ended", "");
    at.lapsed("old-lapsed");
    for key in [
        "old-running",
        "old-lapsed",
        "old-doubt",
        "old-doubt2",
        "old-did",
        "old-did-not",
        "old-unstarted",
    ] {
        at.home.age(key, 20);
    }
    let told = prune(&at, &FORGET);
    assert_eq!((&told["effects"], &told["looked_at"]), (&4.into(), &5.into()), "{told}");
    assert_eq!(told["stay"]["young"], 1, "{told}");
    for gone in ["old-did", "old-did-not", "old-unstarted", "old-doubt2"] {
        assert_eq!(at.show(gone), Value::Null, "{gone}");
        assert!(!at.dump().contains(&format!("{gone}\"")), "something of {gone} is left");
    }
    for (key, state) in [
        ("old-running", "executing"),
        ("old-lapsed", "executing"),
        ("old-doubt", "ambiguous"),
        ("old-just-ended", "committed"),
        ("young", "committed"),
    ] {
        assert_eq!(at.state(key), state, "{key}");
    }
    assert!(!holder.ended());
    at.go();
    assert_eq!(holder.end().code, Some(0));
}

fn an_attempt_that_nobody_saw_end_keeps_its_key(kind: Kind) {
    // OPS-3: the old process may be at work still; its word must find something to speak against.
    let at = Place::new(kind);
    at.holder("k", &["--lease", "1s"]).kill();
    at.lapsed("k");
    at.resolve("k", "--not-executed");
    at.home.age("k", 20);
    let told = prune(&at, &FORGET);
    assert_eq!((&told["effects"], &told["stay"]["unseen"]), (&0.into(), &1.into()), "{told}");
    // A later attempt that ended well changes nothing about the first.
    assert_eq!(finish(&mut at.run("k", &["--rebind"], &format!("{MARK} echo"))).code, Some(0));
    at.home.age("k", 20);
    let told = prune(&at, &FORGET);
    assert_eq!((&told["effects"], &told["stay"]["unseen"]), (&0.into(), &1.into()), "{told}");
    assert_eq!(told["outputs"], 1, "its output is old enough all the same: {told}");
    assert_eq!(at.state("k"), "committed");
    at.go();
}

fn forgetting_is_confirmed(kind: Kind) {
    // OPS-3
    let at = Place::new(kind);
    ran(&at, "k", "");
    at.home.age("k", 20);
    let before = at.dump();
    let out = at.ask(&["prune", "--older-than", "10d", "--forget-keys"]);
    assert_eq!((out.code, out.stdout.as_str()), (Some(64), ""), "{out:?}");
    assert!(out.stderr.contains("it needs --yes where nobody can be asked; nothing was changed"));
    assert!(out.stderr.contains("may run again"), "{out:?}");
    let out = at.ask(&["prune", "--older-than", "10d", "--yes"]);
    assert_eq!(out.code, Some(64), "{out:?}");
    assert_eq!(at.dump(), before);
}

fn killed_inside_its_transaction_it_leaves_all_as_it_was(kind: Kind) {
    // OPS-4
    let at = Place::scratch(kind);
    for key in ["a", "b", "c"] {
        ran(&at, key, "");
    }
    let before = at.dump();
    let arguments = ["prune", "--older-than", "0s", "--forget-keys", "--yes"];
    let pruning = at.start(at.ctrlrun(&arguments).env("CTRLRUN_STOP_AT", "in-prune"));
    pruning.stopped();
    pruning.kill();
    assert_eq!(at.dump(), before);
    // A server may not have noticed yet that its client is gone.
    until("the store is free again", || at.ask(&arguments).code == Some(0));
    let left = at.dump();
    assert_eq!(left.lines().count(), 1, "{left}");
}

fn what_is_in_the_spool_is_delivered_first(kind: Kind) {
    // OPS-7, OPS-3, EXE-25
    let at = Place::new(kind);
    let holder = at.holder("k", &["--store-timeout", "300ms", "--lease", "2s"]);
    at.home.away();
    at.go();
    let end = holder.end();
    assert_eq!(end.code, Some(74), "{end:?}");
    assert_eq!(at.spooled(&at.spool()).len(), 1);
    at.home.back();
    let told = prune(&at, &["--older-than", "0s", "--forget-keys", "--yes"]);
    assert_eq!(told["effects"], 1, "delivered, settled, and then forgotten: {told}");
    assert!(at.spooled(&at.spool()).is_empty());
    // One that cannot be delivered keeps its key.
    std::fs::remove_file(at.env.path("go")).unwrap();
    let holder = at.holder("l", &["--store-timeout", "300ms", "--lease", "2s"]);
    at.home.away();
    at.go();
    assert_eq!(holder.end().code, Some(74));
    at.home.back();
    at.home.refuse_updates_of("l");
    ran(&at, "m", "");
    let told = prune(&at, &["--older-than", "0s", "--forget-keys", "--yes"]);
    assert_eq!(told["effects"], 1, "{told}");
    assert_eq!(at.spooled(&at.spool()).len(), 1);
    assert_eq!(at.state("l"), "executing");
}

fn evidence_makes_nothing_younger(kind: Kind) {
    // OPS-1: a word that came late is new, the settlement is old.
    let at = Place::new(kind);
    let holder = at.holder("k", &["--lease", "1s"]);
    holder.stop();
    at.lapsed("k");
    at.resolve("k", "--committed");
    at.home.age("k", 20);
    holder.go_on();
    at.go();
    assert_eq!(holder.end().code, Some(74));
    assert_eq!(at.types("k").last().unwrap(), "late_outcome");
    let told = prune(&at, &FORGET);
    assert_eq!(told["effects"], 1, "its holder has spoken, and it is old: {told}");
}

/// Drives a run of two nodes, the second of which runs `script`; its exit status.
fn drive(at: &Place, id: &str, script: &str) -> Option<i32> {
    let file = at.env.path("here/two.toml");
    let text = format!(
        "name = 'two'\n[node.a]\ncommand = ['sh', '-c', '''{MARK} echo said''']\n\
         [node.b]\nneeds = ['a']\ncommand = ['sh', '-c', '''{MARK} {script}''']\n"
    );
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let out = finish(&mut at.ctrlrun(&["workflow", "run", file, "--id", id]));
    assert!(!out.stderr.contains("usage"), "{out:?}");
    out.code
}

fn stands(at: &Place, id: &str) -> Value {
    let out = at.ask(&["workflow", "status", id, "--json"]);
    match out.code {
        Some(0) => serde_json::from_str::<Value>(&out.stdout).unwrap()["status"].clone(),
        code => {
            assert_eq!(code, Some(66), "{out:?}");
            Value::Null
        }
    }
}

const ALL: [&str; 4] = ["--older-than", "0s", "--forget-keys", "--yes"];

fn a_run_keeps_its_effects_until_it_has_ended(kind: Kind) {
    // OPS-1
    let at = Place::new(kind);
    assert_eq!(drive(&at, "r", "exit 3"), Some(76));
    for flags in [&["--older-than", "0s"][..], &ALL] {
        let told = prune(&at, flags);
        assert_eq!((&told["stay"]["of_a_run"], &told["looked_at"]), (&1.into(), &1.into()));
        let went = [&told["outputs"], &told["effects"], &told["runs"]];
        assert_eq!(went, [&Value::from(0); 3], "{told}");
    }
    assert_eq!((at.state("r/a"), stands(&at, "r")), ("committed".to_owned(), "blocked".into()));
    at.resolve("r/b", "--committed");
    assert_eq!(drive(&at, "r", "exit 3"), Some(0));
    let told = prune(&at, &["--older-than", "0s"]);
    assert_eq!((&told["outputs"], &told["output_bytes"]), (&1.into(), &5.into()), "{told}");
    assert_eq!((stands(&at, "r"), at.marks()), ("succeeded".into(), 2));
}

fn a_run_that_ended_is_forgotten_and_its_name_is_new_again(kind: Kind) {
    // OPS-3, OPS-14
    let at = Place::new(kind);
    assert_eq!(drive(&at, "r", "true"), Some(0));
    let told = prune(&at, &FORGET);
    assert_eq!((&told["effects"], &told["runs_stay"]), (&0.into(), &1.into()), "{told}");
    let before = at.dump();
    let told = prune(&at, &[&ALL[..], &["--dry-run"]].concat());
    assert_eq!((&told["effects"], &told["runs"]), (&2.into(), &1.into()), "{told}");
    assert_eq!(at.dump(), before);
    let out = at.ask(&[&["prune"], &ALL[..]].concat());
    assert!(out.stdout.contains("\nforgotten     1 workflow run\n"), "{out:?}");
    assert_eq!((stands(&at, "r"), at.show("r/a")), (Value::Null, Value::Null));
    assert!(!at.dump().contains("r/a"), "something of it is left");
    assert_eq!(drive(&at, "r", "true"), Some(0));
    assert_eq!(at.marks(), 4, "it was new");
}

fn a_run_with_a_node_in_doubt_is_not_forgotten(kind: Kind) {
    // OPS-14: it ended, and what it did is not known.
    let at = Place::new(kind);
    assert_eq!(drive(&at, "r", "exit 3"), Some(76));
    assert_eq!(at.ask(&["workflow", "cancel", "r"]).code, Some(0));
    assert_eq!(drive(&at, "r", "exit 3"), Some(1));
    let told = prune(&at, &ALL);
    assert_eq!((&told["runs"], &told["runs_stay"]), (&0.into(), &1.into()), "{told}");
    assert_eq!((stands(&at, "r"), at.state("r/b")), ("cancelled".into(), "ambiguous".to_owned()));
}
