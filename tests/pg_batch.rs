//! Batches on a real server: a group is one transaction, and one whose COMMIT gave no answer is settled
//! as one (BAT-1 to BAT-3).
mod common;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use common::finish;
use common::pgstore::{Stage, store_at};
use common::postgres::{LONG, server};
use ctrlrun::drive::Call;
use ctrlrun::plan::effect::{Command, Request, Reserve};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::protocol::{Append, Ask, Input, Step};
use ctrlrun::plan::time::Moment;
use ctrlrun::store::postgres::faultproxy::{Act, When, Which};
use ctrlrun::store::{End, Store};

/// The append that reserves a key, as its machine makes it.
fn reserve(store: &dyn Store, key: &str) -> Append {
    let key = Key::new(key).unwrap();
    let command = Command::Reserve(Reserve {
        request: Request {
            fingerprint: Fingerprint([1; 32]),
            program: "p".to_owned(),
            arguments: 0,
            command: None,
        },
        attempt_id: "a".to_owned(),
        lease: Duration::from_secs(30),
        max_attempts: None,
        rebind: false,
        run_id: None,
    });
    let mut machine = Call {
        key: key.clone(),
        command,
        expect: StreamState::Any,
        within: LONG,
        exchange_max: LONG,
        outputs: Vec::new(),
    }
    .machine(&ctrlrun::drive::host::Here);
    let _ = machine.step(Input::Start, Moment(0));
    let found = store.load(&key, Ask::Nothing, LONG);
    let write_id = ctrlrun::drive::host::write_id();
    match machine.step(Input::Loaded(found, write_id), Moment(0)) {
        Step::Append { append, .. } => *append,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_group_is_one_transaction_and_each_of_it_has_an_end_of_its_own() {
    // BAT-1: it does not pass by being taken apart.
    let Some(server) = server() else { return };
    let store: Arc<dyn Store> = store_at(&server.url("postgres"));
    let appends: Vec<Append> = (0..60).map(|n| reserve(&*store, &format!("k{n}"))).collect();
    assert_eq!(store.append(&appends[7], LONG), End::Landed);
    let group: Vec<&Append> = appends.iter().collect();
    let ends = store.append_many(&group, LONG);
    for (at, end) in ends.iter().enumerate() {
        let wanted = if at == 7 { End::Refused } else { End::Landed };
        assert_eq!(*end, wanted, "k{at}");
    }
    for table in ["effects", "history"] {
        let of = |what: &str| {
            let sql = format!("SELECT {what} FROM ctrlrun.{table} WHERE effect_key <> 'k7'");
            server.sql(&sql)[0][0].clone().unwrap()
        };
        assert_eq!((of("count(*)"), of("count(DISTINCT xmin::text)")), ("59".into(), "1".into()));
    }
}

#[test]
fn a_group_of_which_one_waits_for_another_writer_yields_that_one() {
    // BAT-1, BAT-2: two groups that share keys, at once and in different orders.
    let Some(server) = server() else { return };
    let store = store_at(&server.url("postgres"));
    let other = store_at(&server.url("postgres"));
    for round in 0..10 {
        let keys: Vec<String> = (0..50).map(|n| format!("r{round}:{n}")).collect();
        let ours: Vec<Append> = keys.iter().map(|key| reserve(&*store, key)).collect();
        let theirs: Vec<Append> = keys.iter().rev().map(|key| reserve(&*other, key)).collect();
        let (ours_end, mut theirs_end) = std::thread::scope(|scope| {
            let one = scope.spawn(|| store.append_many(&ours.iter().collect::<Vec<_>>(), LONG));
            let two = scope.spawn(|| other.append_many(&theirs.iter().collect::<Vec<_>>(), LONG));
            (one.join().unwrap(), two.join().unwrap())
        });
        theirs_end.reverse();
        for ((key, one), two) in keys.iter().zip(&ours_end).zip(&theirs_end) {
            let landed = [one, two].iter().filter(|end| ***end == End::Landed).count();
            assert_eq!(landed, 1, "{key}: {one:?} and {two:?}");
        }
    }
}

#[test]
fn a_group_commit_whose_answer_is_lost_costs_no_second_execution_and_no_outcome() {
    // BAT-3, CMT-9 to CMT-11: one cut a batch, since a second try that is cut as well is given up.
    for act in [Act::CutBeforeForward, Act::CutAfterForward, Act::CutAfterAnswer] {
        for commit in [1, 5, 9, 14] {
            cut_at(commit, &act);
        }
    }
}

fn cut_at(commit: u32, act: &Act) {
    let Some(stage) = Stage::new() else { return };
    let mut lines = String::new();
    for number in 0..60 {
        let key = format!("k:{number}");
        let line = serde_json::json!({
            "key": key,
            "command": ["sh", "-c", "echo \"$CTRLRUN_KEY\" >>marker"],
        });
        writeln!(lines, "{line}").unwrap();
    }
    std::fs::write(stage.env.path("here/in.jsonl"), lines).unwrap();
    let rule = stage.add(Which::Any, When::Commit(commit), act.clone());
    let mut command = stage.env.command(["batch", "in.jsonl", "-j8"]);
    command.env("CTRLRUN_STORE", stage.url());
    let out = finish(&mut command);
    assert!(stage.proxy.acted(rule, LONG), "{act:?} at {commit}: nothing was cut");
    assert_eq!(out.code, Some(0), "{act:?} at {commit}: {out:?}");
    let marked = std::fs::read_to_string(stage.env.path("here/marker")).unwrap();
    let mut keys: Vec<&str> = marked.lines().collect();
    keys.sort_unstable();
    let all = keys.len();
    keys.dedup();
    assert_eq!((all, keys.len()), (60, 60), "{act:?} at {commit}");
    for key in keys {
        let events = stage.events(key);
        assert_eq!(events, ["reserved", "began", "committed"], "{act:?} at {commit}: {key}");
    }
    let rereads = stage.statements().iter().filter(|text| text.contains("FOR UPDATE")).count();
    assert!(rereads > 0, "{act:?} at {commit}: nothing was settled by a re-read");
}
