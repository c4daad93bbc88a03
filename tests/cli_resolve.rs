//! `resolve`: a person says what is so, about the revision that was looked at.
mod common;

use std::os::fd::OwnedFd;
use std::process::Stdio;

use common::fill::Fill;
use common::{Output, TestEnv};
use ctrlrun::plan::effect::ProbeAnswer;

fn stuck(env: &TestEnv) -> Fill {
    let fill = Fill::make(&env.default_store());
    fill.ambiguous("refund:txn_77");
    fill
}

fn resolve(env: &TestEnv, words: &[&str]) -> Output {
    let mut all = vec!["resolve", "--by", "oncall@bastion"];
    all.extend(words);
    env.run(all)
}

fn field(env: &TestEnv, key: &str, name: &str) -> serde_json::Value {
    let out = env.run(["show", key, "--json"]);
    let object: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    object[name].clone()
}

#[test]
fn a_person_cannot_sign_as_a_probe() {
    // EFF-3: the row tells the one from the other by the name.
    let env = TestEnv::new();
    let output = env.run([
        "resolve",
        "k",
        "--committed",
        "--expect",
        "3",
        "--reason",
        "r",
        "--by",
        "reconcile:x",
    ]);
    assert_eq!(output.code, Some(64));
    assert!(output.stderr.contains("nothing was changed"));
}

#[test]
fn it_did_not_happen_and_may_run_again() {
    // CLI-19, EFF-18
    let env = TestEnv::new();
    stuck(&env);
    let words = ["refund:txn_77", "--not-executed", "--expect", "3", "--reason", "OPS-12"];
    insta::assert_snapshot!(resolve(&env, &words).all(&env), @r"
    exit 0
    --- stderr
    ctrlrun: refund:txn_77: FAILED (did not happen), revision 4, by oncall@bastion. It may run again.
    ");
    assert_eq!(field(&env, "refund:txn_77", "state"), "failed");
    assert_eq!(field(&env, "refund:txn_77", "reason"), "OPS-12");
    assert_eq!(field(&env, "refund:txn_77", "resolved_by"), "oncall@bastion");
    // The same decision again is 0, and changes nothing.
    insta::assert_snapshot!(resolve(&env, &words).all(&env), @r"
    exit 0
    --- stderr
    ctrlrun: refund:txn_77: FAILED (did not happen) already, revision 4; nothing was changed
    ");
    assert_eq!(field(&env, "refund:txn_77", "revision"), 4);
}

#[test]
fn it_happened_and_later_runs_print_what_was_given() {
    // CLI-19
    let env = TestEnv::new();
    stuck(&env);
    let words = [
        "resolve",
        "refund:txn_77",
        "--committed",
        "--expect",
        "3",
        "--reason",
        "re_5512",
        "--output",
        "-",
        "--by",
        "oncall@bastion",
    ];
    let out = env.run_with(words, b"re_5512\n");
    insta::assert_snapshot!(out.all(&env), @r"
    exit 0
    --- stderr
    ctrlrun: refund:txn_77: COMMITTED (happened), revision 4, by oncall@bastion. Runs of this key now print the 8 bytes you gave.
    ");
    assert_eq!(env.run(["output", "refund:txn_77"]).stdout, "re_5512\n");
    assert_eq!(
        env.run(["output", "refund:txn_77", "--stderr"]).stdout,
        "curl: (28) Operation timed out\n"
    );
}

#[test]
fn a_decision_is_taken_back() {
    // CLI-19, EFF-19
    let env = TestEnv::new();
    let fill = stuck(&env);
    fill.resolve("refund:txn_77", ProbeAnswer::Committed, 3);
    let words = ["refund:txn_77", "--reopen", "--expect", "4", "--reason", "wrong account"];
    insta::assert_snapshot!(resolve(&env, &words).all(&env), @r"
    exit 0
    --- stderr
    ctrlrun: refund:txn_77: AMBIGUOUS again, revision 5. Nothing will run.
    ");
    assert_eq!(field(&env, "refund:txn_77", "cause"), "reopened");
}

#[test]
fn somebody_was_faster_and_what_came_since_is_listed() {
    // Case 30, CLI-19: what was looked at is not what stands there now.
    let env = TestEnv::new();
    let fill = stuck(&env);
    fill.resolve("refund:txn_77", ProbeAnswer::Committed, 3);
    let words = ["refund:txn_77", "--not-executed", "--expect", "3", "--reason", "no refund"];
    let out = resolve(&env, &words);
    assert_eq!(out.code, Some(79));
    assert!(out.stderr.starts_with(
        "ctrlrun: refund:txn_77: not changed: you looked at revision 3, it is at 4 now:\n"
    ));
    assert!(out.stderr.contains("resolved by oncall@bastion: \"seen live\""), "{}", out.stderr);
    assert!(out.stderr.ends_with("ctrlrun:   look: ctrlrun show refund:txn_77\n"));
    assert_eq!(field(&env, "refund:txn_77", "state"), "committed");
}

#[test]
fn the_key_moved_on_to_another_attempt_and_nothing_is_decided() {
    // Case 30: attempt 1 was looked at, attempt 2 runs.
    let env = TestEnv::new();
    let fill = Fill::make(&env.default_store());
    fill.failed("k");
    fill.running("k");
    for decision in ["--not-executed", "--committed", "--reopen"] {
        let out = resolve(&env, &["k", decision, "--expect", "3", "--reason", "r"]);
        assert_eq!(out.code, Some(79), "{out:?}");
    }
    assert_eq!(field(&env, "k", "attempt"), 2);
    assert_eq!(field(&env, "k", "state"), "executing");
}

#[test]
fn a_decision_needs_a_revision_and_a_reason() {
    // CLI-19, case 30
    let env = TestEnv::new();
    stuck(&env);
    let no_expect = ["refund:txn_77", "--committed", "--reason", "r"];
    insta::assert_snapshot!(resolve(&env, &no_expect).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: refund:txn_77: --expect is missing: a decision is about the revision that was looked at; nothing was changed
    ctrlrun:   look: ctrlrun show refund:txn_77
    ");
    let empty = ["refund:txn_77", "--committed", "--expect", "3", "--reason", " "];
    insta::assert_snapshot!(resolve(&env, &empty).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: --reason is empty: say how you know (a ticket, a page you looked at); nothing was changed
    ");
    let none = ["refund:txn_77", "--committed", "--expect", "3"];
    assert_eq!(resolve(&env, &none).code, Some(64));
    let both = ["refund:txn_77", "--committed", "--reopen", "--expect", "3", "--reason", "r"];
    assert_eq!(resolve(&env, &both).code, Some(64));
    let neither = ["refund:txn_77", "--expect", "3", "--reason", "r"];
    assert_eq!(resolve(&env, &neither).code, Some(64));
    assert_eq!(field(&env, "refund:txn_77", "revision"), 3);
}

#[test]
fn what_runs_or_is_settled_is_not_decided() {
    // CLI-3, EFF-18
    let env = TestEnv::new();
    let fill = Fill::make(&env.default_store());
    fill.running("live");
    fill.committed("done", "x");
    let live = resolve(&env, &["live", "--committed", "--expect", "2", "--reason", "r"]);
    assert_eq!(live.code, Some(75));
    assert!(
        live.stderr.contains("live: not changed: attempt 1 has been running for"),
        "{}",
        live.stderr
    );
    assert!(live.stderr.contains("(web-17, pid 4121); its lease ends in"), "{}", live.stderr);
    let done = resolve(&env, &["done", "--not-executed", "--expect", "3", "--reason", "r"]);
    insta::assert_snapshot!(done.all(&env), @r"
    exit 73
    --- stderr
    ctrlrun: done: not changed: it is COMMITTED (happened) already: exited 0
    ctrlrun:   look:             ctrlrun show done
    ctrlrun:   if that is wrong: ctrlrun resolve done --reopen --expect 3 --reason ''
    ");
    assert_eq!(
        resolve(&env, &["nobody", "--reopen", "--expect", "1", "--reason", "r"]).code,
        Some(66)
    );
}

#[test]
fn after_a_lapse_not_executed_warns_that_the_old_process_may_run() {
    // CLI-19
    let env = TestEnv::new();
    let fill = Fill::make(&env.default_store());
    fill.lapsed("k");
    fill.never_begun("n");
    let out = resolve(&env, &["k", "--not-executed", "--expect", "2", "--reason", "host is gone"]);
    insta::assert_snapshot!(out.all(&env), @r"
    exit 0
    --- stderr
    ctrlrun: k: FAILED (did not happen), revision 4, by oncall@bastion. It may run again.
    ctrlrun: warning: nobody saw the old process end (web-17, pid 4121): if it is still running, the next run is a second one
    ");
    let out = resolve(&env, &["n", "--not-executed", "--expect", "1", "--reason", "never begun"]);
    assert_eq!(out.code, Some(0));
    assert!(!out.stderr.contains("warning"), "{}", out.stderr);
}

#[test]
fn the_lines_that_are_printed_do_what_they_say() {
    // Case 46, CLI-4: typed as printed, with a reason filled in, for keys that a shell would mangle
    // and for a store that is not the default.
    let env = TestEnv::new();
    let store = env.path("here/my store.db");
    let fill = Fill::make(&store);
    for key in ["it's \"$HOME\" `x`", "-k", "a\u{202e}b", "plain"] {
        fill.lapsed(key);
        let mut show = env.command(["show", "--json", "--store", "my store.db", "--", key]);
        let shown: serde_json::Value =
            serde_json::from_slice(&show.output().unwrap().stdout).unwrap();
        let line = shown["next"][0].as_str().unwrap();
        let typed = line.replace("--reason ''", "--reason 'seen live'");
        // A person types into bash, zsh or a busybox shell; `$'...'` is what they all read.
        let out = env.shell(&format!("cat >t.sh <<'END_OF_LINE'\n{typed}\nEND_OF_LINE\nbash t.sh"));
        assert_eq!(out.code, Some(0), "{typed}: {}", out.stderr);
        let again = env.run(["show", "--check", "--store", "my store.db", "--", key]);
        assert_eq!(again.code, Some(0), "{key}");
    }
}

#[test]
fn an_output_that_cannot_be_read_changes_nothing() {
    let env = TestEnv::new();
    stuck(&env);
    let words =
        ["refund:txn_77", "--committed", "--expect", "3", "--reason", "r", "--output", "nowhere"];
    insta::assert_snapshot!(resolve(&env, &words).all(&env), @r"
    exit 66
    --- stderr
    ctrlrun: --output nowhere: cannot be read; nothing was changed
    ctrlrun:   because: No such file or directory (os error 2)
    ");
    assert_eq!(field(&env, "refund:txn_77", "revision"), 3);
}

/// Runs `resolve` at a terminal, where a person answers; returns what they saw and the exit code.
fn at_a_terminal(env: &TestEnv, answer: &str) -> (String, Option<i32>) {
    let pty = nix::pty::openpty(None, None).unwrap();
    let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
    let mut child = env
        .command(["resolve", "refund:txn_77", "--committed", "--reason", "seen"])
        .stdin(end(&pty.slave))
        .stdout(Stdio::null())
        .stderr(end(&pty.slave))
        .spawn()
        .unwrap();
    drop(pty.slave);
    // The terminal keeps what is typed until it is read: no need to wait for the question.
    nix::unistd::write(&pty.master, answer.as_bytes()).unwrap();
    let code = child.wait().unwrap().code();
    let mut seen = Vec::new();
    let mut part = [0; 4096];
    // A terminal whose other side is closed ends in EIO.
    while let Ok(count @ 1..) = nix::unistd::read(&pty.master, &mut part) {
        seen.extend_from_slice(&part[..count]);
    }
    (String::from_utf8(seen).unwrap(), code)
}

#[test]
fn at_a_terminal_a_person_is_shown_the_record_and_asked() {
    // CLI-19
    let env = TestEnv::new();
    stuck(&env);
    let (seen, code) = at_a_terminal(&env, "n\n");
    assert_eq!(code, Some(64), "{seen}");
    assert!(seen.contains("AMBIGUOUS") && seen.contains("[y/N]"), "{seen}");
    assert!(seen.contains("nothing was changed"), "{seen}");
    assert_eq!(field(&env, "refund:txn_77", "revision"), 3);
    let (seen, code) = at_a_terminal(&env, "y\n");
    assert_eq!(code, Some(0), "{seen}");
    assert_eq!(field(&env, "refund:txn_77", "state"), "committed");
}
