//! Many at one run: one tick of a version commits, the others look again (WFL-6, WFL-13).
use crate::at::{Kind, on_every_store, until};
use crate::lab::{Lab, MARK, ends};

on_every_store!(
    of_two_that_tick_the_same_version_one_commits,
    many_workers_at_one_run_run_each_node_once
);

fn of_two_that_tick_the_same_version_one_commits(kind: Kind) {
    // WFL-6, WFL-13: the first is stopped between its load and its commit. It has run no node yet, so that
    // no other thread of it is in a transaction meanwhile.
    let lab = Lab::new(kind);
    let text = format!(
        "name = 'w'\n[node.go]\nwait = {{ signal = 'go' }}\n\
         [node.one]\nneeds = ['go']\ncommand = ['sh', '-c', '''{MARK}''']\n"
    );
    let file = lab.file("w", &text);
    lab.start(&file, "r");
    lab.drain();
    assert_eq!(lab.ask(&["signal", "r", "go"]).code, Some(0));
    let first =
        lab.at.start(lab.command(&["work", "--hold", "1s"]).env("CTRLRUN_STOP_AT", "before-tick"));
    first.stopped();
    let before = lab.status("r")["revision"].clone();
    let second = lab.at.start(&mut lab.command(&["work", "--hold", "1s"]));
    until("the second has ticked", || lab.status("r")["revision"] != before);
    until("it has ended", || lab.stands("r") == "succeeded");
    let ended = lab.status("r")["revision"].clone();
    let first = ends(first);
    assert_eq!(first.code, Some(0));
    assert!(first.stderr.contains("0 nodes run; 0 ticks, 1 lost and tried again"), "{first:?}");
    drop(second);
    assert_eq!(lab.status("r")["revision"], ended, "it added nothing");
    assert_eq!(lab.marked(), ["r/one 1"]);
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
