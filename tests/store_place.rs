//! The file under the store: its place, its paths, its disk (STO-6, STO-8, STO-9, CMT-6).
mod common;

use std::fs;
use std::process::Command;
use std::sync::Arc;

use common::store::{
    Home, Mount, WITHIN, answered, begin, child, child_store, events, granted, handle_within, key,
    open_at, record, refused, reserve, running, settle,
};
use ctrlrun::drive::host;
use ctrlrun::plan::effect::{Answer, Verdict};
use ctrlrun::plan::protocol::{Captured, Done, Kept};
use ctrlrun::store::{Append, Ask, End, Mode, Reason, Store, Stream};
use nix::sys::resource::{Resource, setrlimit};

const SHORT: std::time::Duration = std::time::Duration::from_millis(300);

/// A reserve and a settle on a store whose file lost its place: neither writes anything.
fn writes_nothing(store: &dyn Store, holder: ctrlrun::plan::effect::Holder) {
    let word = settle(holder, host::outcome_id(), Verdict::Committed);
    for command in [reserve("late"), begin(holder), word] {
        let name =
            if matches!(command, ctrlrun::plan::effect::Command::Reserve(_)) { "new" } else { "k" };
        let done = handle_within(store, &key(name), command, SHORT);
        let Done::CouldNot(error) = done else {
            panic!("{done:?}");
        };
        assert_eq!(error.reason, Reason::Moved, "{error:?}");
    }
    // Nor does a re-read take what it finds at the path for the store.
    assert!(store.reread(&key("k"), Ask::Last, SHORT).is_err());
}

#[test]
fn t163_a_database_with_two_names_is_refused() {
    // STO-8: at open by either name, and by a handle that was open before.
    let home = Home::new();
    let store = home.store();
    let holder = granted(&*store, &key("k"), "a");
    let other = home.directory().join("other.db");
    fs::hard_link(home.path(), &other).unwrap();
    for path in [home.path(), other.clone()] {
        for mode in [Mode::Read, Mode::Write, Mode::Create] {
            let error = refused(&path, mode);
            assert_eq!(error.reason, Reason::Unfit);
            assert!(error.message.contains("hard link"), "{error:?}");
        }
    }
    writes_nothing(&*store, holder);
    fs::remove_file(other).unwrap();
    assert_eq!(events(&*store, &key("k")), ["reserved"]);
    let begun = handle_within(&*store, &key("k"), begin(holder), WITHIN);
    assert_eq!(answered(begun).0, Answer::Start);
}

#[test]
fn t163_a_database_replaced_under_the_open_handle_is_refused() {
    // STO-9, case 63: by another store, by a copy of this one, and by nothing.
    for replace in [true, false] {
        let home = Home::new();
        let store = home.store();
        let holder = granted(&*store, &key("k"), "a");
        let aside = home.directory().join("aside.db");
        fs::rename(home.path(), &aside).unwrap();
        if replace {
            fs::copy(&aside, home.path()).unwrap();
        }
        writes_nothing(&*store, holder);
        fs::rename(&aside, home.path()).unwrap();
        assert_eq!(events(&*store, &key("k")), ["reserved"]);
        assert_eq!(record(&*store, &key("new")), None);
    }
}

#[test]
fn t163_a_log_replaced_under_the_open_handle_is_refused() {
    // STO-9: by nothing, and by a copy; also where the store is named by a symbolic link.
    for (replace, by_link) in [(false, false), (true, false), (false, true)] {
        let home = Home::new();
        let mut path = home.path();
        if by_link {
            path = home.directory().join("link.db");
            drop(home.store());
            std::os::unix::fs::symlink(home.path(), &path).unwrap();
        }
        let store = open_at(&path, Mode::Create).unwrap().store;
        let holder = granted(&*store, &key("k"), "a");
        for name in ["one", "two"] {
            granted(&*store, &key(name), "a");
        }
        let (one, two) = (large(&*store, "one", 1), large(&*store, "two", 1));
        let log = home.directory().join(format!("{}-wal", home.path().display()));
        let aside = home.directory().join("aside");
        fs::rename(&log, &aside).unwrap();
        if replace {
            fs::copy(&aside, &log).unwrap();
        }
        let word = settle(holder, host::outcome_id(), Verdict::Committed);
        for (name, command) in [("new", reserve("late")), ("k", begin(holder)), ("k", word)] {
            let Done::CouldNot(error) = handle_within(&*store, &key(name), command, SHORT) else {
                panic!("it was written: {name}");
            };
            assert_eq!(error.reason, Reason::Moved, "{error:?}");
        }
        // Nor does a group of a batch, which is one transaction.
        for end in store.append_many(&[&one, &two], SHORT) {
            let End::NotCommitted(error) = end else {
                panic!("a group was written");
            };
            assert_eq!(error.reason, Reason::Moved, "{error:?}");
        }
        fs::rename(&aside, &log).unwrap();
        assert_eq!(events(&*store, &key("k")), ["reserved"]);
        let begun = handle_within(&*store, &key("k"), begin(holder), WITHIN);
        assert_eq!(answered(begun).0, Answer::Start);
    }
}

#[test]
fn a_symbolic_link_is_another_spelling_of_one_path() {
    // STO-8: SQLite follows it, so there is one log; both see the same.
    let home = Home::new();
    let link = home.directory().join("link.db");
    std::os::unix::fs::symlink("effects.db", &link).unwrap();
    let (one, other) = (home.store(), open_at(&link, Mode::Write).unwrap().store);
    granted(&*one, &key("k"), "a");
    assert_eq!(record(&*other, &key("k")), record(&*one, &key("k")));
    let answer = handle_within(&*other, &key("k"), reserve("b"), WITHIN);
    assert_ne!(answered(answer).0, Answer::Granted);
}

#[test]
fn t163_a_database_that_is_a_mount_point_is_refused() {
    // STO-8: the same inode by another path, with another log beside it.
    let home = Home::new();
    let store = home.store();
    let holder = granted(&*store, &key("k"), "a");
    let elsewhere = home.directory().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let other = elsewhere.join("effects.db");
    fs::write(&other, b"").unwrap();
    let from = home.path();
    let Some(_mount) = Mount::new(&["--bind", from.to_str().unwrap()], &other) else {
        return;
    };
    for mode in [Mode::Read, Mode::Write, Mode::Create] {
        let error = refused(&other, mode);
        assert_eq!(error.reason, Reason::Unfit);
        assert!(error.message.contains("mount point"), "{error:?}");
    }
    // And one that is mounted over the open file.
    let Some(_over) = Mount::new(&["--bind", other.to_str().unwrap()], &home.path()) else {
        return;
    };
    writes_nothing(&*store, holder);
}

#[test]
fn a_store_that_is_gone_at_the_next_boot_is_warned_about() {
    // STO-6
    let home = Home::new();
    assert_eq!(home.open(Mode::Create).unwrap().warnings, Vec::<String>::new());
    let view = home.directory().join("tmpfs");
    fs::create_dir(&view).unwrap();
    let Some(_mount) = Mount::new(&["-t", "tmpfs", "none"], &view) else {
        return;
    };
    let warnings = open_at(&view.join("x.db"), Mode::Create).unwrap().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("tmpfs"), "{warnings:?}");
}

/// An append of `bytes` of output to a running effect.
fn large(store: &dyn Store, name: &str, bytes: usize) -> Append {
    let found = store.load(&key(name), Ask::Last, WITHIN);
    let (Ok(found), name) = (found, key(name)) else {
        panic!("it cannot be read");
    };
    let (Some(mut next), Some(mut row)) = (found.record.clone(), found.event.clone()) else {
        panic!("{name} is not there");
    };
    next.revision += 1;
    next.write_id = host::write_id();
    row.revision = next.revision;
    row.write_id = next.write_id;
    Append {
        found: found.record,
        next,
        history: vec![row],
        attempt_floor: found.attempt_floor,
        outputs: vec![Kept {
            attempt: 1,
            stream: Stream::Stdout,
            captured: Captured { head: vec![7; bytes], ..Captured::default() },
        }],
        dispatch: None,
    }
}

#[test]
fn a_full_disk_is_not_committed_and_says_so() {
    // CMT-6, STO-11, case 42
    let home = Home::new();
    let view = home.directory().join("small");
    fs::create_dir(&view).unwrap();
    let Some(_mount) = Mount::new(&["-t", "tmpfs", "-o", "size=512k", "none"], &view) else {
        return;
    };
    let path = view.join("effects.db");
    let store: Arc<dyn Store> = open_at(&path, Mode::Create).unwrap().store.into();
    running(&*store, &key("k"));
    let before = record(&*store, &key("k"));
    let End::NotCommitted(error) = store.append(&large(&*store, "k", 1 << 20), WITHIN) else {
        panic!("a disk of 512 KiB took 1 MiB");
    };
    assert_eq!(error.reason, Reason::Unreachable);
    assert!(error.message.contains("full"), "{error:?}");
    assert_eq!(record(&*store, &key("k")), before);
    assert_eq!(events(&*store, &key("k")), ["reserved", "began"]);
    // With room again the same store goes on.
    assert_eq!(store.append(&large(&*store, "k", 10), WITHIN), End::Landed);
}

#[test]
fn part_of_a_failed_write() {
    let Some(path) = child_store() else { return };
    let store = open_at(&path, Mode::Create).unwrap().store;
    running(&*store, &key("k"));
    let before = record(&*store, &key("k"));
    let append = large(&*store, "k", 1 << 20);
    let (soft, hard) = nix::sys::resource::getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 300 << 10, hard).unwrap();
    let end = store.append(&append, WITHIN);
    setrlimit(Resource::RLIMIT_FSIZE, soft, hard).unwrap();
    let End::NotCommitted(error) = end else {
        panic!("{end:?}");
    };
    assert_eq!(error.reason, Reason::Unreachable, "{error:?}");
    assert_eq!(record(&*store, &key("k")), before);
    assert_eq!(store.append(&append, WITHIN), End::Landed);
    println!("not committed");
}

#[test]
fn a_failed_write_is_not_committed() {
    // CMT-6: IOERR_WRITE, by a limit on the size of files.
    let home = Home::new();
    // The default action of SIGXFSZ would end the process before write(2) could fail: the shell
    // ignores it for the child.
    let part = child("part_of_a_failed_write", &home.path());
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]);
    shell.arg(part.get_program()).args(part.get_args());
    shell.envs(part.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("not committed"), "{output:?}");
    assert_eq!(record(&*home.store(), &key("k")).unwrap().revision, 3);
}
