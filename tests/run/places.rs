//! Which store, and stores that must not be used.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::at::{HOLD, Kind, MARK, Place, on_every_store};
use crate::common::{BINARY, TestEnv, finish};

on_every_store!(t160_no_read_command_changes_a_row);

/// Every command that only looks.
const LOOKS: [&[&str]; 10] = [
    &["effects"],
    &["effects", "--stuck", "--check", "--json"],
    &["show", "lapsed"],
    &["show", "reserved", "--check"],
    &["show", "done", "--json"],
    &["history", "lapsed"],
    &["history", "done", "--json"],
    &["output", "done"],
    &["output", "done", "--stderr"],
    &["help", "outcomes"],
];

/// A store with an effect in every state, two of them lapsed.
fn every_state(at: &Place) {
    finish(&mut at.run("done", &[], "echo out; echo err >&2"));
    finish(&mut at.run("failed", &["--not-executed", "3"], "exit 3"));
    finish(&mut at.run("ambiguous", &[], "exit 3"));
    let reserved = at.run("reserved", &["--lease", "1s"], MARK);
    let reserved = at.start({ reserved }.env("CTRLRUN_STOP_AT", "after-reserve"));
    reserved.stopped();
    reserved.kill();
    let lapsed = at.holder("lapsed", &["--lease", "1s"]);
    lapsed.kill();
    at.lapsed("lapsed");
    at.lapsed("reserved");
}

fn t160_no_read_command_changes_a_row(kind: Kind) {
    // T160; EFF-5, STO-10
    let at = Place::scratch(kind);
    every_state(&at);
    let before = at.dump();
    for look in LOOKS {
        let end = at.ask(look);
        assert!(matches!(end.code, Some(0 | 76)), "{look:?}: {end:?}");
        assert_eq!(at.dump(), before, "{look:?}");
    }
    finish(at.env.command::<&str>([]).env("CTRLRUN_STORE", at.store()));
    finish(&mut at.run("lapsed", &["--dry-run"], &[MARK, HOLD].concat()));
    assert_eq!(at.dump(), before);
}

#[test]
fn t160_who_may_only_read_can_look_at_everything_and_run_nothing() {
    // T160, case 44; STO-10, STO-11
    let at = Place::scratch(Kind::Sqlite);
    every_state(&at);
    let ours: Vec<_> = LOOKS.iter().map(|look| at.ask(look)).collect();
    let before = at.dump();
    let binary = at.env.path("ctrlrun");
    fs::copy(BINARY, &binary).unwrap();
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let root = at.env.path("");
    mode(&root, 0o755);
    mode(&at.file(), 0o444);
    let folder = at.env.path("store");
    mode(&folder, 0o555);
    let files = || {
        let mut names: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        let bytes: Vec<_> = names.iter().map(|path| fs::read(path).unwrap()).collect();
        (names, bytes)
    };
    let found = files();
    let as_another = |mut command: Command| {
        if nix::unistd::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        finish(command.current_dir("/"))
    };
    for (look, ours) in LOOKS.iter().zip(&ours) {
        let prepared = at.ctrlrun(look);
        let mut theirs = Command::new(&binary);
        theirs.args(prepared.get_args()).env_clear().env("LANG", "C.UTF-8").env("TZ", "UTC");
        let theirs = as_another(theirs);
        assert_eq!(theirs.code, ours.code, "{look:?}: {theirs:?}");
        assert_eq!(
            theirs.stdout.lines().count(),
            ours.stdout.lines().count(),
            "{look:?}: {theirs:?}"
        );
    }
    let prepared = at.run("new", &[], "true");
    let mut run = Command::new(&binary);
    run.args(prepared.get_args()).env_clear().env("TMPDIR", "/tmp");
    let run = as_another(run);
    assert_eq!(run.code, Some(77), "{run:?}");
    assert!(run.stderr.contains("nothing was run"), "{}", run.stderr);
    assert_eq!(files(), found, "reading left something behind");
    mode(&folder, 0o755);
    mode(&at.file(), 0o644);
    assert_eq!(at.dump(), before);
}

#[test]
fn a_store_of_root_is_denied_to_a_user_before_anything_runs_and_shared_by_those_who_may_write() {
    // Case 44; STO-11
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let at = Place::new(Kind::Sqlite);
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let binary = at.env.path("ctrlrun");
    fs::copy(BINARY, &binary).unwrap();
    assert_eq!(finish(&mut at.run("by-root", &[], "echo said")).code, Some(0));
    mode(&at.env.path(""), 0o777);
    mode(&at.env.path("store"), 0o777);
    let as_user = |key: &str| {
        let mut command = Command::new(&binary);
        let script = format!("echo {key} >>{}", at.env.path("by-user").display());
        command.args(["run", "-q", "--store", at.store(), "-k", key, "--", "sh", "-c", &script]);
        command.env_clear().env("TMPDIR", "/tmp").env("PATH", "/usr/bin:/bin").current_dir("/");
        finish(command.uid(65_534).gid(65_534))
    };
    let ran = as_user("k");
    assert_eq!(ran.code, Some(77), "{ran:?}");
    assert!(ran.stderr.contains("nothing was run"), "{ran:?}");
    assert!(!at.env.path("by-user").exists() && at.history("k").is_empty());
    // Who is given the file runs on it, and root after it: one store, whoever made its log.
    for part in fs::read_dir(at.env.path("store")).unwrap() {
        mode(&part.unwrap().path(), 0o666);
    }
    let ran = as_user("k");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(fs::read_to_string(at.env.path("by-user")).unwrap(), "k\n");
    assert_eq!(finish(&mut at.run("by-root-again", &[], "true")).code, Some(0));
    let ran = as_user("k2");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!((at.state("k").as_str(), at.state("k2").as_str()), ("committed", "committed"));
}

#[test]
fn no_such_store_and_no_such_effect_are_told_apart() {
    // Case 32; STO-7, STO-11, STO-4, CLI-1
    let at = Place::new(Kind::Sqlite);
    let unknown = at.ask(&["show", "nobody"]);
    assert_eq!(unknown.code, Some(66), "{unknown:?}");
    assert!(unknown.stderr.contains(at.store()), "{}", unknown.stderr);
    let nowhere = at.env.path("nowhere/effects.db");
    let empty = at.env.path("empty.db");
    fs::write(&empty, "").unwrap();
    let newer = at.env.path("newer.db");
    fs::copy(at.file(), &newer).unwrap();
    let connection = rusqlite::Connection::open(&newer).unwrap();
    connection.execute_batch("PRAGMA user_version=99; UPDATE store SET schema_version=99").unwrap();
    drop(connection);
    let foreign = at.env.path("foreign.db");
    let connection = rusqlite::Connection::open(&foreign).unwrap();
    connection.execute_batch("CREATE TABLE theirs(a)").unwrap();
    drop(connection);
    let text = at.env.path("text.db");
    fs::write(&text, "not a database, and long enough to be looked at as if it were one").unwrap();
    for path in [&nowhere, &empty, &newer, &foreign, &text] {
        let before = fs::read(path).ok();
        for words in [
            vec!["show", "k"],
            vec!["effects"],
            vec!["run", "-k", "k", "--", "sh", "-c", MARK],
            vec!["resolve", "k", "--committed", "--expect", "1", "--reason", "x"],
        ] {
            let split = words.iter().position(|word| *word == "--").unwrap_or(words.len());
            let mut command = at.env.command(&words[..split]);
            command.arg("--store").arg(path).args(&words[split..]);
            let end = finish(command.env("PLACE", at.env.path("")));
            assert_eq!(end.code, Some(78), "{words:?} on {}: {end:?}", path.display());
            assert!(end.stderr.contains(path.to_str().unwrap()), "{}", end.stderr);
            if words[0] == "run" {
                assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
            }
        }
        assert_eq!(fs::read(path).ok(), before, "{} was changed", path.display());
    }
    assert!(!at.env.path("nowhere").exists());
    assert_eq!(at.marks(), 0);
}

#[test]
fn the_default_store_is_made_at_first_use_and_is_the_same_from_everywhere() {
    // Case 61; STO-6, CLI-1
    let env = TestEnv::new();
    let first = env.run(["run", "-k", "k", "--", "echo", "out"]);
    assert_eq!((first.code, first.stdout.as_str()), (Some(0), "out\n"), "{first:?}");
    let store = env.default_store();
    assert!(first.stderr.contains(store.to_str().unwrap()), "{}", first.stderr);
    let folder = store.parent().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(folder), mode(&store)), (0o700, 0o600));
    let again = finish(env.command(["run", "-k", "k", "--", "echo", "out"]).current_dir("/"));
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "out\n"));
    assert!(again.stderr.contains("nothing was run"), "{}", again.stderr);
    // HOME that is not set: the password entry's.
    let entry = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap();
    if let Some(entry) = entry {
        let mut command = env.command(["run", "--dry-run", "-v", "-k", "k", "--", "true"]);
        let end = finish(command.env_remove("HOME"));
        let home = entry.dir.to_str().unwrap().to_owned();
        assert!(end.stderr.contains(&home) || home == "/", "{end:?}");
    }
}

#[test]
fn a_store_that_cannot_be_meant_is_refused_and_nothing_is_made() {
    // Case 61; CLI-1
    let env = TestEnv::new();
    let run = || env.command(["run", "-k", "k", "--", "touch", "ran"]);
    let foreign = env.path("foreign");
    fs::create_dir(&foreign).unwrap();
    let mut wrong = vec![
        ("CTRLRUN_STORE", ""),
        ("CTRLRUN_STORE", "mysql://h/db"),
        ("HOME", "/"),
        ("HOME", "relative"),
        ("XDG_STATE_HOME", "relative"),
    ];
    if nix::unistd::geteuid().is_root() {
        nix::unistd::chown(&foreign, Some(65_534.into()), None).unwrap();
        wrong.push(("HOME", foreign.to_str().unwrap()));
    }
    for (name, value) in wrong {
        let end = finish(run().env(name, value));
        assert_eq!(end.code, Some(78), "{name}={value}: {end:?}");
        assert!(end.stderr.contains("nothing was done"), "{}", end.stderr);
    }
    let made: Vec<_> = ["here", "home", "foreign"]
        .iter()
        .flat_map(|folder| fs::read_dir(env.path(folder)).unwrap())
        .collect();
    assert_eq!(made.len(), 0, "{made:?}");
}

#[test]
fn sixteen_processes_make_one_store_and_all_run() {
    // Case 41; STO-5
    let env = TestEnv::new();
    let ends: Vec<_> = (0..16)
        .map(|number| {
            let mut run = env.command(["run", "-k", &format!("k:{number}"), "--", "echo", "out"]);
            run.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            run.spawn().unwrap()
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|child| child.wait_with_output().unwrap())
        .collect();
    for end in &ends {
        assert_eq!(
            (end.status.code(), end.stdout.as_slice()),
            (Some(0), b"out\n".as_slice()),
            "{end:?}"
        );
    }
    let made = ends.iter().filter(|end| String::from_utf8_lossy(&end.stderr).contains("new store"));
    assert_eq!(made.count(), 1);
    assert_eq!(env.run(["effects", "--json"]).stdout.lines().count(), 16);
}

#[test]
fn t163_one_file_by_two_paths_is_refused() {
    // T163, case 63; STO-8
    let at = Place::new(Kind::Sqlite);
    let second = at.env.path("store/second.db");
    fs::hard_link(at.file(), &second).unwrap();
    let refused = |path: &Path| {
        let mut run = at.env.command(["run", "-k", "k", "--store"]);
        let end =
            finish(run.arg(path).args(["--", "sh", "-c", MARK]).env("PLACE", at.env.path("")));
        assert_eq!(end.code, Some(78), "{end:?}");
        assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
        end.stderr
    };
    assert!(refused(&second).contains("more than one name"));
    assert!(refused(&at.file()).contains("more than one name"));
    fs::remove_file(&second).unwrap();

    let mounted = at.env.path("mounted.db");
    fs::write(&mounted, "").unwrap();
    let mount = Command::new("mount").arg("--bind").arg(at.file()).arg(&mounted).output();
    if mount.is_ok_and(|mount| mount.status.success()) {
        let told = refused(&mounted);
        let done = Command::new("umount").arg(&mounted).status().unwrap();
        assert!(done.success());
        assert!(told.contains("mount point"), "{told}");
    } else {
        eprintln!("skipped in part: this user may not mount a file");
    }
    assert_eq!(at.marks(), 0);
    assert_eq!(finish(&mut at.run("k", &[], MARK)).code, Some(0));
}
