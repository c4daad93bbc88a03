//! The commands that look: `effects`, `show`, `history`, `output`. They change nothing.
mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use common::fill::Fill;
use common::{TestEnv, finish};
use ctrlrun::plan::effect::{ProbeAnswer, Verdict};
use serde_json::Value;

/// A store with an effect in every state.
fn every_state(env: &TestEnv) -> PathBuf {
    let path = env.default_store();
    let fill = Fill::make(&path);
    fill.committed("mail:1", "sent\n");
    fill.failed("mail:2");
    fill.ambiguous("refund:txn_77");
    fill.running("deploy:prod:880");
    fill.lapsed("deploy:prod:881");
    fill.never_begun("deploy:prod:882");
    path
}

/// Days and times as `[DAY]` and `[TIME]`, ages of some seconds as of none: they differ from run to run.
fn timeless(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split(' ') {
        let inner = word.trim_matches(|c| "()\n,".contains(c));
        let is_time = inner.len() >= 9 && inner.ends_with('Z') && inner.contains(':');
        let is_date = inner.len() == 10 && inner.bytes().filter(|byte| *byte == b'-').count() == 2;
        let word = match (is_time, is_date) {
            (true, _) => word.replace(inner, "[TIME]"),
            (_, true) => word.replace(inner, "[DAY]"),
            (false, false) => word.to_owned(),
        };
        words.push(word);
    }
    let mut text = words.join(" ");
    for seconds in 1..10 {
        text = text
            .replace(&format!(" {seconds} s "), " 0 s ")
            .replace(&format!("({seconds} s "), "(0 s ");
    }
    text
}

fn lines(text: &str) -> Vec<Value> {
    let parsed = text.lines().map(|line| serde_json::from_str(line).unwrap());
    parsed.collect()
}

fn keys(out: &common::Output) -> Vec<String> {
    let key = |value: &Value| value["key"].as_str().unwrap().to_owned();
    lines(&out.stdout).iter().map(key).collect()
}

#[test]
fn effects_lists_every_state_with_its_reason() {
    // CLI-15
    let env = TestEnv::new();
    every_state(&env);
    let out = env.run(["effects", "--state", "committed,failed,ambiguous"]);
    insta::assert_snapshot!(timeless(&out.all(&env)), @r"
    exit 0
    --- stdout
    KEY            STATE      REV  ATTEMPT  AGE  WHERE   WHY
    mail:1         COMMITTED    3        1  0 s  web-17  exited 0
    mail:2         FAILED       3        1  0 s  web-17  exited 11
    refund:txn_77  AMBIGUOUS    3        1  0 s  web-17  exited 28
    ");
    let out = env.run(["ls", "--stuck"]);
    insta::assert_snapshot!(timeless(&out.all(&env)), @r"
    exit 0
    --- stdout
    KEY              STATE              REV  ATTEMPT  AGE  WHERE   WHY
    deploy:prod:881  EXECUTING, lapsed    2        1  0 s  web-17  lease ended, nobody has reported since
    deploy:prod:882  RESERVED, lapsed     1        1  0 s  -       lease ended before it was begun: nothing ever ran
    refund:txn_77    AMBIGUOUS            3        1  0 s  web-17  exited 28
    ");
}

#[test]
fn effects_that_lapsed_are_stuck_and_no_one_had_to_contend() {
    // Case 46, EFF-5, CLI-15
    let env = TestEnv::new();
    every_state(&env);
    let stuck = env.run(["effects", "--stuck", "--json"]);
    assert_eq!(keys(&stuck), ["deploy:prod:881", "deploy:prod:882", "refund:txn_77"]);
    assert_eq!(lines(&stuck.stdout)[0]["lease_lapsed"], true);
    assert_eq!(lines(&stuck.stdout)[0]["state"], "executing");
    assert_eq!(env.run(["effects", "--stuck", "--check"]).code, Some(76));
    let none = env.run(["effects", "--stuck", "--check", "--prefix", "mail:"]);
    assert_eq!((none.code, none.stdout.as_str(), none.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn effects_are_filtered_and_a_cut_list_says_so() {
    // CLI-15
    let env = TestEnv::new();
    every_state(&env);
    let list = |arguments: &[&str]| {
        let mut all = vec!["effects", "--json"];
        all.extend(arguments);
        env.run(all)
    };
    assert_eq!(keys(&list(&["--prefix", "mail:"])), ["mail:1", "mail:2"]);
    assert_eq!(keys(&list(&["--state", "executing"])).len(), 2);
    assert_eq!(keys(&list(&["--older-than", "1h"])).len(), 0);
    let cut = list(&["--limit", "2"]);
    assert_eq!(keys(&cut).len(), 2);
    assert_eq!(cut.stderr, "{\"note\":\"the list is cut after 2 effects\"}\n");
    let exact = list(&["--limit", "6"]);
    assert_eq!((keys(&exact).len(), exact.stderr.as_str()), (6, ""));
}

#[test]
fn a_list_to_a_pipe_is_never_cut_and_a_reader_that_leaves_is_no_error() {
    // CLI-15
    let env = TestEnv::new();
    let fill = Fill::make(&env.default_store());
    for number in 0..700 {
        fill.never_begun(&format!("k:{number:04}"));
    }
    let all = env.run(["effects"]);
    assert_eq!(all.stdout.lines().count(), 701);
    assert_eq!(all.stderr, "");
    let left = env.shell("{ ctrlrun effects --json --check; echo \"status $?\" >&2; } | head -n 1");
    assert_eq!(left.stdout.lines().count(), 1);
    assert_eq!(left.stderr, "status 76\n");
    let full = env.shell("ctrlrun effects --json >/dev/full");
    assert_eq!(full.code, Some(70));
    assert!(full.stderr.contains("could not be written"), "{}", full.stderr);
}

#[test]
fn two_rows_that_cannot_be_read_do_not_blind_the_list() {
    // STO-11. One bad row once kept every reader from the rest.
    let env = TestEnv::new();
    let path = every_state(&env);
    let store = rusqlite::Connection::open(&path).unwrap();
    let spoil = |sql: &str| assert_eq!(store.execute(sql, []).unwrap(), 1);
    spoil("UPDATE effects SET state='sideways' WHERE effect_key='mail:1'");
    spoil("UPDATE effects SET fingerprint=x'00' WHERE effect_key='refund:txn_77'");
    drop(store);
    let out = env.run(["effects"]);
    assert_eq!(out.stdout.lines().count(), 5, "{}", out.stdout);
    assert!(out.stderr.contains("mail:1: its record cannot be read"), "{}", out.stderr);
    assert!(out.stderr.contains("refund:txn_77: its record cannot be read"));
    // "None is stuck" would be more than is known.
    assert_eq!(out.code, Some(70));
    let alarm = env.run(["effects", "--prefix", "refund:", "--stuck", "--check"]);
    assert_ne!(alarm.code, Some(0), "{alarm:?}");
    let show = env.run(["show", "mail:1"]);
    assert_eq!(show.code, Some(70), "{show:?}");
}

#[test]
fn show_says_what_ran_and_what_to_type() {
    // CLI-16, CLI-4
    let env = TestEnv::new();
    every_state(&env);
    let show = |key: &str| timeless(&env.run(["show", key]).all(&env));
    insta::assert_snapshot!(show("refund:txn_77"), @r"
    exit 0
    --- stdout
    refund:txn_77   AMBIGUOUS (may have happened)   revision 3   attempt 1
      ran      ./refund.sh, 2 arguments, on web-17 as deploy, pid 4121, in /srv, from [DAY] [TIME] to [TIME] (0 s ago)
      ended    exited 28
      stderr   curl: (28) Operation timed out
      remote   22a25eac-f7c8-85b2-8334-a7e23c2abb93  (idempotency key: look for it at the remote)
      labels   ticket=OPS-12

    If it happened:      ctrlrun resolve refund:txn_77 --committed --expect 3 --reason ''
    If it did not:       ctrlrun resolve refund:txn_77 --not-executed --expect 3 --reason ''
    If you cannot tell:  leave it. It will not run by itself.
    ");
    insta::assert_snapshot!(show("deploy:prod:881"), @r"
    exit 0
    --- stdout
    deploy:prod:881   EXECUTING, lapsed (may have happened)   revision 2   attempt 1
      ran      ./refund.sh, 2 arguments, on web-17 as deploy, pid 4121, in /srv, since [DAY] [TIME] (0 s ago)
      now      lease ended, nobody has reported since
      remote   843c4765-a507-82b9-9fd4-1d47b092785f  (idempotency key: look for it at the remote)
      labels   ticket=OPS-12

    Look first:          the old process may still be running.
    If it happened:      ctrlrun resolve deploy:prod:881 --committed --expect 2 --reason ''
    If it did not:       ctrlrun resolve deploy:prod:881 --not-executed --expect 2 --reason ''
    If you cannot tell:  leave it. It will not run by itself.
    ");
    insta::assert_snapshot!(show("deploy:prod:882"), @r"
    exit 0
    --- stdout
    deploy:prod:882   RESERVED, lapsed (never started)   revision 1   attempt 1
      ran      ./refund.sh, 2 arguments, never started
      now      lease ended before it was begun: nothing ever ran
      remote   cdea5fec-b6ac-830f-8aec-9f1330f0744c  (idempotency key: look for it at the remote)

    Nothing ever ran:    ctrlrun resolve deploy:prod:882 --not-executed --expect 1 --reason ''
    ");
    insta::assert_snapshot!(show("mail:1"), @r"
    exit 0
    --- stdout
    mail:1   COMMITTED (happened)   revision 3   attempt 1
      ran      ./refund.sh, 2 arguments, on web-17 as deploy, pid 4121, in /srv, from [DAY] [TIME] to [TIME] (0 s ago)
      ended    exited 0
      stdout   5 bytes  (ctrlrun output mail:1)
      remote   39320e00-f6bb-8d49-a5a7-70b9ab96d381  (idempotency key: look for it at the remote)
      labels   ticket=OPS-12

    If that is wrong:    ctrlrun resolve mail:1 --reopen --expect 3 --reason ''
    ");
}

#[test]
fn show_in_json_has_every_field() {
    // CLI-17
    let env = TestEnv::new();
    every_state(&env);
    let out = env.run(["show", "refund:txn_77", "--json"]);
    let object = lines(&out.stdout).remove(0);
    for field in [
        "key",
        "state",
        "revision",
        "attempt",
        "attempt_id",
        "lease_expires_at",
        "lease_lapsed",
        "program",
        "arguments",
        "command",
        "fingerprint",
        "idempotency_key",
        "exit_code",
        "signal",
        "detail",
        "stdout_bytes",
        "stdout_truncated",
        "stderr_bytes",
        "stderr_truncated",
        "resolved_by",
        "reason",
        "ran_on",
        "labels",
        "created_at",
        "updated_at",
        "store",
        "next",
    ] {
        assert!(object.get(field).is_some(), "{field}");
    }
    assert_eq!(object["state"], "ambiguous");
    assert_eq!(object["ran_on"]["host"], "web-17");
    assert_eq!(object["labels"]["ticket"], "OPS-12");
    assert_eq!(object["stderr_bytes"], 31);
    assert_eq!(object["exit_code"], 28);
    assert_eq!(object["store"], env.default_store().to_str().unwrap());
    assert_eq!(object["next"].as_array().unwrap().len(), 2);
    let listed = env.run(["effects", "--json", "--prefix", "refund:"]);
    assert_eq!(lines(&listed.stdout), [object]);
}

#[test]
fn show_check_tells_the_state_by_its_exit_status() {
    // CLI-16
    let env = TestEnv::new();
    every_state(&env);
    for (key, code) in [
        ("mail:1", 0),
        ("mail:2", 1),
        ("deploy:prod:880", 75),
        ("refund:txn_77", 76),
        ("deploy:prod:881", 76),
        ("nobody", 66),
    ] {
        assert_eq!(env.run(["show", "--check", key]).code, Some(code), "{key}");
    }
}

#[test]
fn no_such_store_and_no_such_effect_are_told_apart_and_nothing_is_made() {
    // Case 32, STO-7, STO-11
    let env = TestEnv::new();
    let absent = env.path("here/absent.db");
    for command in [
        vec!["show", "k"],
        vec!["effects"],
        vec!["history", "k"],
        vec!["output", "k"],
        vec!["resolve", "k", "--reopen", "--expect", "1", "--reason", "r"],
    ] {
        let mut named = command.clone();
        named.extend(["--store", absent.to_str().unwrap()]);
        assert_eq!(env.run(&named).code, Some(78), "{command:?}");
        assert_eq!(env.run(&command).code, Some(78), "{command:?}");
    }
    assert!(!absent.exists());
    assert!(std::fs::read_dir(env.path("home")).unwrap().next().is_none());
    let out = env.run(["show", "k", "--store", "absent.db"]);
    insta::assert_snapshot!(out.all(&env), @r"
    exit 78
    --- stderr
    ctrlrun: no such store: [ROOT]/here/absent.db (from --store)
    ctrlrun:   if it is to be made: ctrlrun init --store [ROOT]/here/absent.db
    ");
    insta::assert_snapshot!(env.run(["show", "k"]).all(&env), @r"
    exit 78
    --- stderr
    ctrlrun: no such store: [ROOT]/home/.local/state/ctrlrun/effects.db (the default; CTRLRUN_STORE is not set)
    ctrlrun:   it is made: by the first `ctrlrun run` of this user
    ");
    every_state(&env);
    insta::assert_snapshot!(env.run(["show", "refund:txn_78"]).all(&env), @r"
    exit 66
    --- stderr
    ctrlrun: no effect refund:txn_78 in [ROOT]/home/.local/state/ctrlrun/effects.db (the default; CTRLRUN_STORE is not set)
    ctrlrun:   look: ctrlrun effects
    ");
}

#[test]
fn a_file_that_is_no_store_is_refused_and_left_as_it_was() {
    // STO-7, case 32
    let env = TestEnv::new();
    let path = env.path("here/notes.txt");
    for content in ["", "these are my notes, and they are no store at all\n"] {
        std::fs::write(&path, content).unwrap();
        let out = env.run(["effects", "--store", "notes.txt"]);
        assert_eq!(out.code, Some(78), "{out:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
}

#[test]
fn t160_looking_changes_no_row_and_needs_only_the_right_to_read() {
    // T160, STO-10
    let env = TestEnv::new();
    let path = every_state(&env);
    let rows = || {
        let store = rusqlite::Connection::open_with_flags(
            &path,
            rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY,
        )
        .unwrap();
        ["effects", "history", "output", "store"].map(|table| {
            let sql = format!("SELECT * FROM {table}");
            let mut query = store.prepare(&sql).unwrap();
            let columns = query.column_count();
            let row = |row: &rusqlite::Row<'_>| {
                let cells = (0..columns).map(|at| row.get::<_, rusqlite::types::Value>(at));
                cells.collect::<Result<Vec<_>, _>>()
            };
            let all = query.query_map([], row).unwrap();
            format!("{:?}", all.collect::<Result<Vec<_>, _>>().unwrap())
        })
    };
    let before = rows();
    let bytes = std::fs::read(&path).unwrap();
    // Somebody else's store, in a directory that we may not write.
    let folder = env.path("theirs");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(&path, folder.join("effects.db")).unwrap();
    std::fs::copy(common::BINARY, folder.join("ctrlrun")).unwrap();
    let mode = |path: PathBuf, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(env.path(""), 0o755);
    mode(folder.join("effects.db"), 0o444);
    mode(folder.join("ctrlrun"), 0o555);
    mode(folder.clone(), 0o555);
    let theirs = folder.join("effects.db");
    for (command, code) in [
        (vec!["effects", "--stuck"], 0),
        (vec!["show", "deploy:prod:881"], 0),
        (vec!["show", "--check", "deploy:prod:881"], 76),
        (vec!["history", "refund:txn_77"], 0),
        (vec!["output", "mail:1"], 0),
    ] {
        let ours = env.run(&command);
        assert_eq!(ours.code, Some(code), "{ours:?}");
        let mut named = command.clone();
        named.extend(["--store", theirs.to_str().unwrap()]);
        let prepared = env.command(&named);
        let mut command = std::process::Command::new(folder.join("ctrlrun"));
        command.args(prepared.get_args()).env_clear().current_dir("/");
        if nix::unistd::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        let out = finish(&mut command);
        assert_eq!((out.code, out.stderr.as_str()), (Some(code), ""), "{named:?}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(rows(), before);
    mode(folder, 0o755);
}

#[test]
fn history_is_told_in_order() {
    // HIS-7
    let env = TestEnv::new();
    every_state(&env);
    let out = env.run(["history", "refund:txn_77"]);
    insta::assert_snapshot!(timeless(&out.all(&env)), @r"
    exit 0
    --- stdout
    1  RESERVED   [DAY] [TIME]  attempt 1: ./refund.sh, 2 arguments
    2  EXECUTING             [TIME]  on web-17 as deploy, pid 4121
    3  AMBIGUOUS             [TIME]  exited 28
    ");
    let out = env.run(["history", "refund:txn_77", "--json", "--from", "2"]);
    let events = lines(&out.stdout);
    assert_eq!(events.len(), 2);
    assert_eq!(events[0]["revision"], 2);
    assert_eq!(events[0]["type"], "began");
    assert_eq!(events[0]["data"]["ran_on"]["host"], "web-17");
    assert_eq!(events[1]["type"], "ambiguated");
    assert_eq!(events[1]["attempt"], 1);
    assert_eq!(env.run(["history", "nobody"]).code, Some(66));
}

#[test]
fn renewals_that_follow_each_other_are_one_line() {
    let env = TestEnv::new();
    let fill = Fill::make(&env.default_store());
    let holder = fill.running("k");
    for _ in 0..5 {
        fill.renew("k", holder);
    }
    let out = env.run(["history", "k"]);
    assert_eq!(out.stdout.lines().count(), 3, "{}", out.stdout);
    assert!(out.stdout.contains("5 times, the holder was alive"));
}

#[test]
fn output_is_byte_for_byte_and_says_when_it_is_not_all() {
    // CLI-18
    let env = TestEnv::new();
    let path = every_state(&env);
    let out = env.run(["output", "mail:1"]);
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("sent\n", ""));
    let err = env.run(["logs", "refund:txn_77", "--stderr"]);
    assert_eq!(err.stdout, "curl: (28) Operation timed out\n");
    let none = env.run(["output", "deploy:prod:881"]);
    insta::assert_snapshot!(none.all(&env), @r"
    exit 66
    --- stderr
    ctrlrun: deploy:prod:881: no stdout is stored in [ROOT]/home/.local/state/ctrlrun/effects.db (the default; CTRLRUN_STORE is not set)
    ctrlrun:   the other stream: ctrlrun output deploy:prod:881 --stderr
    ");
    assert_eq!(env.run(["output", "mail:1", "--attempt", "2"]).code, Some(66));
    let fill = Fill::open(&path, ctrlrun::store::Mode::Write);
    fill.truncated("big");
    insta::assert_snapshot!(env.run(["output", "big"]).all(&env), @r"
    exit 0
    --- stdout
    beginend
    --- stderr
    ctrlrun: big: attempt 1 wrote 5,000 bytes; 9 bytes of them are stored: the rest, from the middle, is NOT here
    ");
}

#[test]
fn text_from_outside_cannot_move_the_cursor() {
    // CLI-5
    let env = TestEnv::new();
    let fill = Fill::make(&env.default_store());
    fill.ambiguous("a\u{202e}b");
    fill.noted("mail:1", "\u{1b}[2J\rgone");
    for command in [
        vec!["effects"],
        vec!["show", "mail:1"],
        vec!["show", "a\u{202e}b"],
        vec!["history", "mail:1"],
    ] {
        let out = env.run(&command);
        assert!(!out.stdout.contains(['\u{1b}', '\r', '\u{202e}']), "{}", out.stdout);
    }
    let shown = env.run(["show", "a\u{202e}b"]).stdout;
    assert!(shown.contains("a\\u{202e}b"), "{shown}");
    assert!(shown.contains("resolve $'a\\342\\200\\256b' --committed"), "{shown}");
}

#[test]
fn a_late_word_that_contradicts_the_record_is_named() {
    // CLI-16, EFF-17
    let env = TestEnv::new();
    let fill = Fill::make(&env.default_store());
    let holder = fill.lapsed("k");
    fill.resolve("k", ProbeAnswer::Committed, 2);
    fill.settle("k", holder, Verdict::Failed, 11, "", "");
    let shown = env.run(["show", "k"]).stdout;
    assert!(shown.contains("it did not happen (exited 11); that CONTRADICTS"), "{shown}");
}

#[test]
fn an_attempt_that_never_began_is_no_proof_where_an_earlier_one_is_in_doubt() {
    // CLI-16, EFF-7: "nothing ever ran" would lead a person to run it a second time.
    let env = TestEnv::new();
    let fill = Fill::make(&env.default_store());
    let first = fill.lapsed("k");
    fill.resolve("k", ProbeAnswer::NotExecuted, 2);
    fill.never_begun("k");
    fill.settle("k", first, Verdict::Committed, 0, "", "");
    let shown = env.run(["show", "k"]).stdout;
    assert!(shown.contains("may have happened"), "{shown}");
    assert!(!shown.contains("othing ever ran"), "{shown}");
    assert!(shown.contains("--committed"), "{shown}");
}
