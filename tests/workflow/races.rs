//! Many at one run: one tick of a version commits, the others look again (WFL-6, WFL-13).
use crate::at::{Kind, on_every_store, until};
use crate::lab::{Lab, MARK, ends, three};

on_every_store!(
    of_two_that_tick_the_same_version_one_commits,
    many_workers_at_one_run_run_each_node_once
);

fn of_two_that_tick_the_same_version_one_commits(kind: Kind) {
    // WFL-6, WFL-13: the first is stopped between its load and its commit.
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    lab.start(&file, "r");
    let first =
        lab.at.start(lab.command(&["work", "--hold", "1s"]).env("CTRLRUN_STOP_AT", "before-tick"));
    first.stopped();
    assert_eq!(lab.marked(), ["r/one 1"]);
    let before = lab.status("r")["revision"].clone();
    let second = lab.at.start(&mut lab.command(&["work", "--hold", "1s"]));
    until("the second has ticked", || lab.status("r")["revision"] != before);
    until("it has ended", || lab.stands("r") == "succeeded");
    let ended = lab.status("r")["revision"].clone();
    let first = ends(first);
    assert_eq!(first.code, Some(0));
    // One of its threads, or two of them, had loaded that version; neither committed anything.
    assert!(first.stderr.contains("0 ticks, "), "{first:?}");
    assert!(!first.stderr.contains(" 0 lost"), "{first:?}");
    drop(second);
    assert_eq!(lab.status("r")["revision"], ended, "it added nothing");
    assert_eq!(lab.marked(), ["r/one 1", "r/two 1", "r/three 1"]);
}

fn many_workers_at_one_run_run_each_node_once(kind: Kind) {
    // WFL-6, WFL-8
    let lab = Lab::new(kind);
    let mut text = "name = 'wide'\n".to_owned();
    for node in 0..12 {
        text.push_str(&format!("[node.n{node}]\ncommand = ['sh', '-c', '''{MARK}''']\n"));
    }
    text.push_str(&format!(
        "[node.end]\nneeds = [{}]\ncommand = ['sh', '-c', '''{MARK}''']\n",
        (0..12).map(|n| format!("'n{n}'")).collect::<Vec<_>>().join(", ")
    ));
    let file = lab.file("w", &text);
    lab.start(&file, "r");
    let workers: Vec<_> =
        (0..4).map(|_| lab.at.start(&mut lab.command(&["work", "-j", "2"]))).collect();
    until("it has ended", || lab.stands("r") == "succeeded");
    drop(workers);
    let mut marked = lab.marked();
    marked.sort();
    marked.dedup();
    assert_eq!((marked.len(), lab.marked().len()), (13, 13));
}
