//! Outcomes that the store does not take.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::at::{HOLD, Kind, MARK, Place, on_every_store, text};
use crate::common::{Output, finish};

on_every_store!(
    an_outcome_that_the_store_never_took_is_delivered_once,
    a_spooled_outcome_that_comes_late_is_a_late_outcome,
    a_look_mentions_the_spool_and_a_decision_delivers_it_first,
    what_was_spooled_elsewhere_is_delivered_too,
    a_spool_that_others_may_write_to_is_not_believed,
    what_is_damaged_is_set_aside_and_named,
    an_outcome_of_another_store_is_left_alone,
    a_spool_that_cannot_be_written_leaves_the_facts_on_stderr,
    an_outcome_that_cannot_be_delivered_stops_only_its_own_key,
    a_dry_run_counts_what_the_spool_would_settle_and_leaves_it_there,
);

/// How long the store is tried: a settle may take six times that, and no less than its lease. On a busy
/// machine a connection to a server takes longer than a file to open.
fn soon(at: &Place) -> [&'static str; 4] {
    let (within, lease) = match at.home.kind() {
        Kind::Sqlite => ("200ms", "2s"),
        Kind::Postgres => ("700ms", "3s"),
    };
    ["--store-timeout", within, "--lease", lease]
}

/// A run whose store is gone when its command ends, and comes back after.
fn unrecorded(at: &Place, key: &str, end: &str) -> Output {
    let _ = fs::remove_file(at.env.path("go"));
    let before = at.marks();
    let run = at.start(&mut at.run(key, &soon(at), &[MARK, HOLD, end].concat()));
    crate::at::until("it has marked", || at.marks() > before);
    at.home.away();
    at.go();
    let end = run.end();
    at.home.back();
    end
}

fn spooled(at: &Place) -> PathBuf {
    let files = at.spooled(&at.spool());
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

fn an_outcome_that_the_store_never_took_is_delivered_once(kind: Kind) {
    // Case 6; EXE-24, EXE-25, STO-9, EFF-15
    let at = Place::new(kind);
    let end = unrecorded(&at, "k", "echo out");
    assert_eq!((end.code, end.stdout.as_str()), (Some(74), "out\n"), "{end:?}");
    assert!(end.stderr.contains("exited 0") && end.stderr.contains("COMMITTED"), "{}", end.stderr);
    let file = spooled(&at);
    assert!(end.stderr.contains(file.to_str().unwrap()), "{}", end.stderr);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(at.state("k"), "executing");

    let copy = at.env.path("copy");
    fs::copy(&file, &copy).unwrap();
    // The next command that writes delivers it, whatever it is about.
    let other = finish(&mut at.run("other", &[], MARK));
    assert_eq!(other.code, Some(0), "{other:?}");
    assert!(other.stderr.contains("k: its spooled outcome is recorded"), "{}", other.stderr);
    assert_eq!(at.state("k"), "committed");
    assert!(!file.exists());

    let history = at.history("k");
    fs::copy(&copy, &file).unwrap();
    let again = finish(&mut at.run("k", &soon(&at), &[MARK, HOLD, "echo out"].concat()));
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "out\n"), "{again:?}");
    assert!(!file.exists());
    assert_eq!(at.history("k"), history, "delivered twice");
    assert_eq!(at.marks(), 2);
}

fn a_spooled_outcome_that_comes_late_is_a_late_outcome(kind: Kind) {
    // Case 6; EXE-25, EFF-17
    let at = Place::new(kind);
    assert_eq!(unrecorded(&at, "k", "").code, Some(74));
    let file = spooled(&at);
    let aside = at.env.path("elsewhere");
    fs::rename(&file, &aside).unwrap();
    at.lapsed("k");
    at.resolve("k", "--not-executed");
    fs::rename(&aside, &file).unwrap();
    let end = finish(&mut at.run("k", &soon(&at), &[MARK, HOLD].concat()));
    assert_eq!(end.code, Some(76), "{end:?}");
    assert_eq!(text(&at.show("k")["cause"]), "late_outcome");
    assert!(!file.exists());
    assert_eq!(at.marks(), 1);
}

fn a_look_mentions_the_spool_and_a_decision_delivers_it_first(kind: Kind) {
    // EXE-25
    let at = Place::new(kind);
    assert_eq!(unrecorded(&at, "k", "").code, Some(74));
    let file = spooled(&at);
    at.lapsed("k");
    let before = at.dump();
    for look in [vec!["show", "k"], vec!["effects"], vec!["history", "k"]] {
        let told = at.ask(&look);
        assert!(told.stderr.contains("k: an outcome of attempt 1 is in the spool"), "{told:?}");
    }
    assert!(file.exists());
    assert_eq!(at.dump(), before);
    // What the child said is so before a person can say otherwise.
    let revision = at.show("k")["revision"].to_string();
    let wrong = ["resolve", "k", "--not-executed", "--reason", "gone", "--expect", &revision];
    let refused = at.ask(&wrong);
    assert_eq!(refused.code, Some(79), "{refused:?}");
    assert_eq!(at.state("k"), "committed");
    assert!(!file.exists());
}

fn what_was_spooled_elsewhere_is_delivered_too(kind: Kind) {
    // EXE-23, EXE-25
    let at = Place::new(kind);
    // For a while, nobody can write to the first of its places: a file is in the way.
    fs::create_dir_all(at.spool().parent().unwrap()).unwrap();
    fs::write(at.spool(), "").unwrap();
    assert_eq!(unrecorded(&at, "k", "").code, Some(74));
    let elsewhere = at.env.path(&format!("tmp/ctrlrun-{}/spool", nix::unistd::geteuid()));
    assert_eq!(at.spooled(&elsewhere).len(), 1);
    fs::remove_file(at.spool()).unwrap();
    let end = finish(&mut at.run("k", &soon(&at), &[MARK, HOLD].concat()));
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stderr.contains("k: its spooled outcome is recorded"), "{}", end.stderr);
    assert_eq!((at.spooled(&elsewhere).len(), at.marks()), (0, 1));
}

fn a_spool_that_others_may_write_to_is_not_believed(kind: Kind) {
    // EXE-23
    let at = Place::new(kind);
    fs::create_dir_all(at.spool().parent().unwrap()).unwrap();
    fs::write(at.spool(), "").unwrap();
    let shared = at.env.path(&format!("tmp/ctrlrun-{}", nix::unistd::geteuid()));
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let end = unrecorded(&at, "k", "");
    assert_eq!(end.code, Some(74), "{end:?}");
    assert!(end.stderr.contains("THE SPOOL COULD NOT KEEP IT"), "{}", end.stderr);
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
}

fn what_is_damaged_is_set_aside_and_named(kind: Kind) {
    // EXE-26
    let at = Place::new(kind);
    assert_eq!(unrecorded(&at, "k", "").code, Some(74));
    let file = spooled(&at);
    let whole = fs::read_to_string(&file).unwrap();
    let changed = whole.replace("\"attempt\":1", "\"attempt\":2");
    assert_ne!(changed, whole);
    fs::write(&file, &changed).unwrap();
    let end = finish(&mut at.run("other", &[], "true"));
    assert_eq!(end.code, Some(0), "{end:?}");
    let aside = file.with_extension("damaged");
    assert!(end.stderr.contains(aside.to_str().unwrap()), "{}", end.stderr);
    assert_eq!(fs::read_to_string(&aside).unwrap(), changed);
    assert!(!file.exists());
    assert_eq!(at.types("k"), ["reserved", "began"], "it was guessed at");
    for cut in [0, 30, whole.len() - 1] {
        fs::write(&file, &whole[..cut]).unwrap();
        let end = finish(&mut at.run("other", &[], "true"));
        assert_eq!(end.code, Some(0), "{end:?}");
        assert!(!file.exists() && end.stderr.contains(".damaged"), "{}", end.stderr);
    }
    assert_eq!(at.types("k"), ["reserved", "began"], "it was guessed at");
}

fn an_outcome_of_another_store_is_left_alone(kind: Kind) {
    // EXE-26
    let at = Place::new(kind);
    let other = Place::new(kind);
    assert_eq!(unrecorded(&at, "k", "").code, Some(74));
    let file = spooled(&at);
    let end = finish(other.run("k", &[], MARK).env("CTRLRUN_SPOOL", at.spool()));
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    assert!(file.exists());
    assert_eq!((other.marks(), other.types("k").len()), (1, 3));
}

fn a_spool_that_cannot_be_written_leaves_the_facts_on_stderr(kind: Kind) {
    // EXE-23, EXE-26, CLI-4
    let at = Place::new(kind);
    // A file where the directory would be: nobody can write there, not even root.
    let nowhere = at.env.path("file");
    fs::write(&nowhere, "").unwrap();
    let mut run = at.run("k", &soon(&at), &[MARK, HOLD].concat());
    let run = at.start(run.env("CTRLRUN_SPOOL", nowhere.join("spool")));
    crate::at::until("it has marked", || at.marks() == 1);
    at.home.away();
    at.go();
    let end = run.end();
    at.home.back();
    assert_eq!(end.code, Some(74), "{end:?}");
    assert!(end.stderr.contains("warning") && end.stderr.contains("spool"), "{}", end.stderr);
    for fact in ["attempt 1", "exited 0", "reservation ", "outcome "] {
        assert!(end.stderr.contains(fact), "{fact}: {}", end.stderr);
    }
    // The line that records it does, once the lease has ended.
    at.lapsed("k");
    let line =
        end.stderr.lines().find_map(|line| line.find("ctrlrun resolve").map(|at| &line[at..]));
    let typed = at.env.shell(line.unwrap());
    assert_eq!(typed.code, Some(0), "{typed:?}");
    assert_eq!((at.state("k").as_str(), at.marks()), ("committed", 1));
}

fn an_outcome_that_cannot_be_delivered_stops_only_its_own_key(kind: Kind) {
    // EXE-25
    let at = Place::new(kind);
    assert_eq!(unrecorded(&at, "k", "").code, Some(74));
    let file = spooled(&at);
    at.home.refuse_updates_of("k");
    let end = finish(&mut at.run("k", &soon(&at), &[MARK, HOLD].concat()));
    assert_eq!(end.code, Some(69), "{end:?}");
    assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
    let end = finish(&mut at.run("other", &soon(&at), MARK));
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stderr.contains("warning: k: "), "{}", end.stderr);
    assert!(file.exists());
    assert_eq!(at.marks(), 2);
}

fn a_dry_run_counts_what_the_spool_would_settle_and_leaves_it_there(kind: Kind) {
    // CLI-13, EXE-25: it once said that it would run, where a run is refused.
    let at = Place::new(kind);
    assert_eq!(unrecorded(&at, "k", "").code, Some(74));
    let file = spooled(&at);
    let before = at.dump();
    let script = [MARK, HOLD].concat();
    let dry = || finish(&mut at.run("k", &["--dry-run"], &script));
    let told = dry();
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.stderr.contains("k: COMMITTED (happened): would print"), "{told:?}");
    assert_eq!(at.dump(), before);
    // The same word, late.
    let aside = at.env.path("elsewhere");
    fs::rename(&file, &aside).unwrap();
    at.lapsed("k");
    at.resolve("k", "--not-executed");
    let told = dry();
    assert!(told.stderr.contains("k: would run as attempt 2"), "{told:?}");
    fs::rename(&aside, &file).unwrap();
    let told = dry();
    assert_eq!(told.code, Some(76), "{told:?}");
    assert!(file.exists());
    assert_eq!(at.marks(), 1);
}

#[test]
fn a_dry_run_is_refused_where_a_run_would_be_for_the_word_of_a_lost_store() {
    // CLI-13, EXE-25
    let at = Place::new(Kind::Sqlite);
    assert_eq!(unrecorded(&at, "k", "").code, Some(74));
    spooled(&at);
    renamed(&at.file(), &at.env.path("lost.db"));
    // With no store there, the default that would be made is as young.
    let line = ["run", "--dry-run", "-k", "k", "--", "true"];
    let told = at.env.run(line);
    assert_eq!(told.code, Some(69), "{told:?}");
    assert_eq!(at.ask(&["init"]).code, Some(0));
    for flags in [&["--dry-run"][..], &[]] {
        let told = finish(&mut at.run("k", flags, MARK));
        assert_eq!(told.code, Some(69), "{flags:?}: {told:?}");
        assert!(told.stderr.contains("nothing was run"), "{told:?}");
    }
    assert_eq!(at.marks(), 1);
}

#[test]
fn a_dry_run_is_refused_where_a_run_would_be_for_an_effect_that_was_restored_away() {
    // CLI-13, EXE-25
    let at = Place::new(Kind::Sqlite);
    assert_eq!(unrecorded(&at, "k", "").code, Some(74));
    for table in ["history", "effects"] {
        at.connect().execute(&format!("DELETE FROM {table}"), []).unwrap();
    }
    for flags in [&["--dry-run"][..], &[]] {
        let told = finish(&mut at.run("k", flags, MARK));
        assert_eq!(told.code, Some(69), "{flags:?}: {told:?}");
        assert!(told.stderr.contains("was it restored from a backup?"), "{told:?}");
    }
    let other = finish(&mut at.run("other", &["--dry-run"], MARK));
    assert_eq!(other.code, Some(0), "{other:?}");
    assert_eq!(at.marks(), 1);
}

/// The store's file and what belongs to it, by another name.
fn renamed(from: &Path, to: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let with = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        if with(from).exists() {
            fs::rename(with(from), with(to)).unwrap();
        }
    }
}

#[test]
fn t163_a_file_put_in_its_place_while_a_command_runs_takes_no_outcome() {
    // T163, case 63; STO-9, EXE-24, EXE-26
    let at = Place::new(Kind::Sqlite);
    let first = at.holder("k", &soon(&at));
    let away = at.env.path("away.db");
    renamed(&at.file(), &away);
    assert_eq!(at.ask(&["init"]).code, Some(0));
    // Another store, in use: closing the first must not take its log away.
    let hold_two = HOLD.replace("/go", "/two");
    let script = [MARK, &hold_two].concat();
    let second = at.start(&mut at.run("there", &[], &script));
    crate::at::until("the second has marked", || at.marks() == 2);
    at.go();
    let end = first.end();
    assert_eq!(end.code, Some(74), "{end:?}");
    assert!(end.stderr.contains("another file was put in its place"), "{}", end.stderr);
    let file = spooled(&at);
    assert_eq!(at.state("k"), "");
    let twin = finish(&mut at.run("there", &[], &script));
    assert_eq!(twin.code, Some(75), "{twin:?}");
    fs::write(at.env.path("two"), "").unwrap();
    assert_eq!(second.end().code, Some(0));
    assert!(file.exists(), "another store took it");

    renamed(&at.file(), &at.env.path("second.db"));
    renamed(&away, &at.file());
    let end = finish(&mut at.run("k", &soon(&at), &[MARK, HOLD].concat()));
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!((at.state("k").as_str(), at.marks()), ("committed", 2));
}

#[test]
fn t163_a_log_that_is_removed_while_a_command_runs_takes_no_outcome_and_lets_nobody_in() {
    // T163; STO-9, EXE-24: the log, its index, and both.
    for gone in [&["-wal"][..], &["-shm"], &["-wal", "-shm"]] {
        let at = Place::new(Kind::Sqlite);
        let first = at.holder("k", &soon(&at));
        for suffix in gone {
            fs::remove_file(format!("{}{suffix}", at.file().display())).unwrap();
        }
        // It would make a log of its own, and not see in it who runs what.
        let rival = finish(&mut at.run("k", &soon(&at), MARK));
        assert_eq!((rival.code, at.marks()), (Some(69), 1), "{gone:?}: {rival:?}");
        assert!(rival.stderr.contains("nothing was run"), "{}", rival.stderr);
        assert!(rival.stderr.contains("it was removed"), "{}", rival.stderr);
        assert_eq!(at.ask(&["show", "k"]).code, Some(69));
        at.go();
        let end = first.end();
        assert_eq!(end.code, Some(74), "{gone:?}: {end:?}");
        assert!(end.stderr.contains("was removed or replaced"), "{}", end.stderr);
        spooled(&at);
        // It was the last that had it open, and has put its log into the store.
        let end = finish(&mut at.run("k", &soon(&at), &[MARK, HOLD].concat()));
        assert_eq!((end.code, at.marks()), (Some(0), 1), "{gone:?}: {end:?}");
        assert_eq!(at.state("k"), "committed");
    }
}

#[test]
fn t163_a_file_put_in_its_place_between_reserve_and_begin_runs_nothing() {
    // T163; STO-9
    let at = Place::scratch(Kind::Sqlite);
    let mut run = at.run("k", &soon(&at), MARK);
    let run = at.start(run.env("CTRLRUN_STOP_AT", "after-reserve"));
    run.stopped();
    renamed(&at.file(), &at.env.path("away.db"));
    assert_eq!(at.ask(&["init"]).code, Some(0));
    run.go_on();
    let end = run.end();
    assert_eq!(end.code, Some(69), "{end:?}");
    assert!(end.stderr.contains("nothing was run"), "{}", end.stderr);
    assert_eq!(at.marks(), 0);
}

#[test]
fn no_store_is_made_beside_a_log_that_holds_commits() {
    // STO-7. A new database would take the log away, and with it the reservation in it.
    let at = Place::new(Kind::Sqlite);
    let run = at.holder("k", &soon(&at));
    at.home.away();
    let made = at.ask(&["init"]);
    assert_eq!(made.code, Some(78), "{made:?}");
    assert!(made.stderr.contains("-wal"), "{}", made.stderr);
    at.home.back();
    at.go();
    assert_eq!(run.end().code, Some(0));
    assert_eq!((at.state("k").as_str(), at.marks()), ("committed", 1));
}

/// A small file system of its own, for as long as this lives; `None` where none may be mounted.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path, kilobytes: u32) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let size = format!("size={kilobytes}k");
        let mut mount = std::process::Command::new("mount");
        let done = mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        let mounted = done.is_ok_and(|done| done.status.success());
        if !mounted {
            eprintln!("skipped: this user may not mount a file system");
        }
        mounted.then(|| Self(at.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_runs_nothing_before_and_loses_nothing_after() {
    // Case 42; STO-6, STO-11, CMT-6, EXE-24
    let at = Place::new(Kind::Sqlite);
    let Some(small) = Small::mount(&at.env.path("small"), 512) else {
        return;
    };
    let store = small.0.join("effects.db");
    let ours = |arguments: &[&str]| {
        let mut command = at.env.command(arguments);
        command.arg("--store").arg(&store).env("PLACE", at.env.path("")).env("SMALL", &small.0);
        command
    };
    let run = |key: &str, script: &str| {
        let mut command = at.env.command(["run", "-k", key, "--store"]);
        command.arg(&store).args(soon(&at)).args(["--", "sh", "-c", script]);
        // The spool's first place is on the full disk too.
        command.env("XDG_STATE_HOME", small.0.join("state"));
        finish(command.env("PLACE", at.env.path("")).env("SMALL", &small.0))
    };
    let elsewhere = at.env.path(&format!("tmp/ctrlrun-{}/spool", nix::unistd::geteuid()));
    let made = finish(&mut ours(&["init"]));
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stderr.contains("tmpfs"), "no warning: {}", made.stderr);
    let fill = r#"cat /dev/zero >"$SMALL/fill" 2>/dev/null; "#;

    let end = run("k", &[MARK, fill, "exit 0"].concat());
    assert_eq!(end.code, Some(74), "{end:?}");
    assert!(end.stderr.contains("full"), "{}", end.stderr);
    assert_eq!(at.spooled(&elsewhere).len(), 1);
    let full = run("other", MARK);
    assert_eq!(full.code, Some(69), "{full:?}");
    assert!(full.stderr.contains("nothing was run"), "{}", full.stderr);
    assert_eq!(at.marks(), 1);

    fs::remove_file(small.0.join("fill")).unwrap();
    let after = run("other", MARK);
    assert_eq!(after.code, Some(0), "{after:?}");
    let shown = finish(&mut ours(&["show", "k", "--check"]));
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert_eq!((at.spooled(&elsewhere).len(), at.marks()), (0, 2));
}
