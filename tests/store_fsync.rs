//! A failed fsync at COMMIT: the trap that a re-read does not see (CMT-6, CMT-8).
//!
//! This binary's own fsync stands before libc's, for the bundled SQLite too. It fails only on the
//! thread that asked for it.
#![expect(unsafe_code, reason = "it stands in for a libc function")]
mod common;

use std::cell::Cell;
use std::ffi::c_int;
use std::path::Path;

use common::store::{
    Home, WITHIN, answered, begin, events, granted, handle, key, open_at, record, reserve, running,
    settle,
};
use ctrlrun::drive::host;
use ctrlrun::plan::effect::{Answer, Command, State, Verdict};
use ctrlrun::plan::key::Key;
use ctrlrun::plan::protocol::{Ask, Done};
use ctrlrun::store::{Mode, Store};
use nix::errno::Errno;
use nix::libc;

thread_local! {
    /// How many fsyncs still go well, and how many fail after them.
    static PLAN: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

fn perform(call: libc::c_long, descriptor: c_int) -> c_int {
    CALLS.set(CALLS.get() + 1);
    match PLAN.get() {
        (0, 0) => {}
        (0, fail) => {
            PLAN.set((0, fail - 1));
            Errno::EIO.set();
            return -1;
        }
        (well, fail) => PLAN.set((well - 1, fail)),
    }
    // SAFETY: a system call on a descriptor of the caller; it takes no memory.
    let result = unsafe { libc::syscall(call, descriptor) };
    c_int::try_from(result).unwrap_or(-1)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(descriptor: c_int) -> c_int {
    perform(libc::SYS_fsync, descriptor)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    perform(libc::SYS_fdatasync, descriptor)
}

/// What `what` gives while `fail` fsyncs fail after `well` good ones; that they all fell is checked.
fn failing<T>(well: u32, fail: u32, what: impl FnOnce() -> T) -> T {
    PLAN.set((well, fail));
    let answer = what();
    let (_, left) = PLAN.replace((0, 0));
    assert!(left < fail, "no fsync failed: the window was not open");
    answer
}

/// How many fsyncs `what` makes.
fn counted<T>(what: impl FnOnce() -> T) -> (T, u32) {
    let before = CALLS.get();
    let answer = what();
    (answer, CALLS.get() - before)
}

/// A write of each kind, on keys of one store.
fn writes(store: &dyn Store) -> Vec<(Key, Command, Answer)> {
    let begun = granted(store, &key("begin"), "a");
    let holder = running(store, &key("settle"));
    vec![
        (key("reserve"), reserve("a"), Answer::Granted),
        (key("begin"), begin(begun), Answer::Start),
        (key("settle"), settle(holder, host::outcome_id(), Verdict::Committed), Answer::Settled),
    ]
}

#[test]
fn the_trap_is_real_and_the_re_read_closes_it() {
    // CMT-8: reads show nothing, yet after a crash the row would be there.
    let home = Home::new();
    let store = home.store();
    granted(&*store, &key("first"), "a");
    let done = failing(0, u32::MAX, || handle(&*store, &key("k"), reserve("a")));
    assert!(matches!(done, Done::Unknown(_)), "{done:?}");
    assert!(record(&*home.after_a_crash(), &key("k")).is_some());
    // With an fsync that works again the checkpoint goes through, and absence is stable.
    assert_eq!(store.reread(&key("k"), Ask::Nothing, WITHIN).unwrap().record, None);
    assert_eq!(record(&*home.after_a_crash(), &key("k")), None);
}

#[test]
fn one_failed_fsync_is_settled_by_the_second_try() {
    // CMT-8: seen as landed, written once, and still there afterwards.
    let home = Home::new();
    let store = home.store();
    for (key, command, good) in writes(&*store) {
        let before = events(&*store, &key).len();
        let done = failing(0, 1, || handle(&*store, &key, command));
        assert_eq!(answered(done).0, good, "{key}");
        assert_eq!(events(&*store, &key).len(), before + 1, "{key}");
        let here = record(&*store, &key);
        assert_eq!(record(&*home.after_a_crash(), &key), here, "{key}");
    }
    let last = record(&*store, &key("settle"));
    drop(store);
    assert_eq!(record(&*home.store(), &key("settle")), last);
}

#[test]
fn a_failed_fsync_of_a_new_log_is_settled_too() {
    // CMT-8: the first write of a connection makes the log: its header, its directory, its frames.
    for well in 0..3 {
        let home = Home::new();
        drop(home.store());
        let store = home.store();
        let done = failing(well, 1, || handle(&*store, &key("k"), reserve("a")));
        assert_eq!(answered(done).0, Answer::Granted, "fsync {well}");
        assert_eq!(events(&*store, &key("k")), ["reserved"], "fsync {well}");
    }
}

#[test]
fn fsyncs_that_fail_for_ever_are_unknown_and_nothing_may_run() {
    // CMT-8
    let home = Home::new();
    let store = home.store();
    for (key, command, _) in writes(&*store) {
        let done = failing(0, u32::MAX, || handle(&*store, &key, command));
        assert!(matches!(done, Done::Unknown(_)), "{key}: {done:?}");
    }
    drop(store);
    // Whatever is found of it later, nothing was granted twice: the reservation lapses in time.
    let store = home.store();
    if let Some(found) = record(&*store, &key("reserve")) {
        assert!(matches!(found.state, State::Reserved { .. }));
    }
    for name in ["begin", "settle", "reserve"] {
        events(&*store, &key(name));
    }
}

#[test]
fn a_settle_whose_fsync_failed_for_a_while_can_be_recorded_later() {
    // CMT-8, EFF-15: the outcome is in the spool meanwhile; the same outcome lands once.
    let home = Home::new();
    let store = home.store();
    let holder = running(&*store, &key("k"));
    let word = settle(holder, host::outcome_id(), Verdict::Committed);
    let done = failing(0, u32::MAX, || handle(&*store, &key("k"), word.clone()));
    assert!(matches!(done, Done::Unknown(_)));
    let (answer, _) = answered(handle(&*store, &key("k"), word));
    assert_eq!(answer, Answer::Settled);
    assert_eq!(events(&*store, &key("k")), ["reserved", "began", "committed"]);
}

#[test]
fn an_effect_costs_no_more_fsyncs_than_its_three_commits_need() {
    // STO-2: three for the first commit, which makes the log (header, directory, frames), one for
    // each further one, two for the close that checkpoints.
    let home = Home::new();
    drop(home.store());
    let run = |path: &Path| {
        let store = open_at(path, Mode::Write).unwrap().store;
        let holder = running(&*store, &key("k"));
        let word = settle(holder, host::outcome_id(), Verdict::Committed);
        answered(handle(&*store, &key("k"), word));
    };
    let ((), fsyncs) = counted(|| run(&home.path()));
    assert_eq!(fsyncs, 7);
}
