//! Runs that go well, wait, fail, are cancelled; what is told of them.
use std::fs;

use serde_json::Value;

use crate::at::{Kind, on_every_store, until};
use crate::common::finish;
use crate::lab::{Lab, MARK, three};

on_every_store!(
    a_run_goes_to_its_end_and_each_node_runs_once,
    the_same_line_again_is_the_same_run,
    an_output_feeds_a_later_argument,
    a_start_is_driven_by_a_worker,
    a_signal_and_a_time_are_waited_for,
    failed_is_retried_and_then_fails_the_run,
    a_command_that_cannot_be_started_is_tried_again_and_no_retry,
    cancel_waits_for_what_runs,
    a_worker_that_is_told_to_end_waits_for_its_node,
    a_damaged_run_stops_itself_and_no_other,
    a_named_effect_is_the_same_effect_everywhere,
    a_run_of_a_name_that_cannot_be_one_is_refused,
    nodes_are_journaled_and_call_hooks,
);

fn a_run_goes_to_its_end_and_each_node_runs_once(kind: Kind) {
    // WFL-6, WFL-16, WFL-18
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    let ran = lab.ask(&["run", &file, "--id", "r"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(lab.marked(), ["r/one 1", "r/two 1", "r/three 1"]);
    let status = lab.status("r");
    assert_eq!(status["status"], "succeeded");
    assert_eq!(status["nodes"]["two"]["state"], "committed");
    assert_eq!(status["workflow"], "three");
    let shown = lab.at.show("r/two");
    assert_eq!(shown["labels"]["run"], "r");
    assert_eq!(shown["labels"]["node"], "two");
}

fn the_same_line_again_is_the_same_run(kind: Kind) {
    // WFL-3
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    lab.start(&file, "r");
    let again = lab.ask(&["start", &file, "--id", "r"]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "r: there already, running\n"));
    assert_eq!(lab.ask(&["run", &file, "--id", "r"]).code, Some(0));
    assert_eq!(lab.ask(&["run", &file, "--id", "r"]).code, Some(0));
    assert_eq!(lab.marked().len(), 3);
}

fn an_output_feeds_a_later_argument(kind: Kind) {
    // WFL-2
    let lab = Lab::new(kind);
    let text = "name = 'w'\n[inputs]\nday = {}\n\
        [node.a]\ncommand = ['printf', 'rows of %s\\n\\n', '{day}']\n\
        [node.b]\nneeds = ['a']\ncommand = ['sh', '-c', 'echo \"<$1>\" >>\"$PLACE/marker\"', 'sh', '{run}: {a.stdout}']\n";
    let file = lab.file("w", text);
    let missing = lab.ask(&["run", &file, "--id", "r"]);
    assert_eq!(missing.code, Some(64), "{missing:?}");
    assert!(missing.stderr.contains("a value is missing for day"), "{missing:?}");
    let ran = lab.ask(&["run", &file, "--id", "r", "day=$(x) 'y'"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(lab.marked(), ["<r: rows of $(x) 'y'>"]);
    let other = lab.ask(&["run", &file, "--id", "r", "day=2"]);
    assert_eq!(other.code, Some(65), "another value is not the same run: {other:?}");
    let unused = lab.ask(&["run", &file, "--id", "r2", "day=2", "night=3"]);
    assert_eq!(unused.code, Some(64), "{unused:?}");
}

fn a_start_is_driven_by_a_worker(kind: Kind) {
    // WFL-8, WFL-12
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    lab.start(&file, "r1");
    lab.start(&file, "r2");
    assert_eq!(lab.marked(), Vec::<String>::new(), "start runs nothing");
    lab.drain();
    assert_eq!((lab.stands("r1"), lab.stands("r2")), ("succeeded".into(), "succeeded".into()));
    assert_eq!(lab.marked().len(), 6);
    let listed = lab.ask(&["list"]);
    assert_eq!(listed.stdout.lines().count(), 3, "{listed:?}");
    let json = lab.ask(&["list", "--json", "--status", "succeeded", "--prefix", "r2"]);
    assert_eq!(json.stdout.lines().count(), 1, "{json:?}");
    let none = lab.ask(&["list", "--status", "blocked"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    let gone = lab.ask(&["status", "r3"]);
    assert_eq!(gone.code, Some(66), "{gone:?}");
    assert!(gone.stderr.contains("ctrlrun workflow list"), "{gone:?}");
}

fn a_signal_and_a_time_are_waited_for(kind: Kind) {
    // WFL-1, WFL-7
    let lab = Lab::new(kind);
    let text = format!(
        "name = 'w'\n[node.ok]\nwait = {{ signal = 'go' }}\n[node.soon]\nneeds = ['ok']\nwait = {{ for = '300ms' }}\n\
         [node.end]\nneeds = ['soon']\ncommand = ['sh', '-c', '''{MARK}''']\n"
    );
    let file = lab.file("w", &text);
    lab.start(&file, "r");
    lab.drain();
    assert_eq!(lab.node("r", "ok"), "waiting");
    let sent = lab.ask(&["signal", "r", "go", "by the boss"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(lab.ask(&["signal", "r", "go", "again"]).code, Some(0));
    let ran = lab.ask(&["run", &file, "--id", "r"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(lab.marked(), ["r/end 1"]);
    let late = lab.ask(&["signal", "r", "go"]);
    assert_eq!(late.code, Some(73), "it has ended: {late:?}");
    assert_eq!(lab.ask(&["signal", "nobody", "go"]).code, Some(66));
    assert_eq!(lab.ask(&["signal", "r", "no name"]).code, Some(64));
}

fn failed_is_retried_and_then_fails_the_run(kind: Kind) {
    // WFL-16
    let lab = Lab::new(kind);
    let text = format!(
        "name = 'w'\n[node.a]\ncommand = ['sh', '-c', '''{MARK}exit 9''']\nnot_executed = [9]\nretries = 2\nbackoff = '20ms'\n\
         [node.b]\nneeds = ['a']\ncommand = ['sh', '-c', '''{MARK}''']\n"
    );
    let file = lab.file("w", &text);
    let ran = lab.ask(&["run", &file, "--id", "r"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(lab.marked(), ["r/a 1", "r/a 2", "r/a 3"]);
    assert!(ran.stderr.contains("r: FAILED: a: FAILED: exited 9"), "{ran:?}");
    assert_eq!((lab.stands("r"), lab.node("r", "b")), ("failed".into(), "skipped".into()));
}

fn a_command_that_cannot_be_started_is_tried_again_and_no_retry(kind: Kind) {
    // WFL-16
    let lab = Lab::new(kind);
    let text = "name = 'w'\n[node.a]\ncommand = ['./tool']\n";
    let file = lab.file("w", text);
    let mut worker = lab.at.start(&mut lab.command(&["run", &file, "--id", "r"]));
    until("it was tried", || lab.at.types("r/a").len() >= 2);
    assert!(!worker.ended());
    let tool = lab.at.env.path("here/tool");
    std::fs::write(&tool, format!("#!/bin/sh\n{MARK}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&tool, mode).unwrap();
    let ran = worker.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(lab.marked().len(), 1);
    assert_eq!(lab.status("r")["nodes"]["a"]["retries"], 0);
}

fn cancel_waits_for_what_runs(kind: Kind) {
    // WFL-7, WFL-16
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(crate::at::HOLD));
    let run = lab.at.start(&mut lab.command(&["run", &file, "--id", "r"]));
    until("two runs", || lab.marked().len() == 2);
    let asked = lab.ask(&["cancel", "r", "--reason", "wrong day"]);
    assert_eq!(asked.code, Some(0), "{asked:?}");
    until("the wish is seen", || lab.stands("r") == "cancelling");
    lab.at.go();
    let ran = run.end();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("wrong day"), "{ran:?}");
    assert_eq!(lab.node("r", "two"), "committed");
    assert_eq!(lab.node("r", "three"), "skipped");
    assert_eq!(lab.marked().len(), 2);
}

fn a_worker_that_is_told_to_end_waits_for_its_node(kind: Kind) {
    // WFL-17
    use nix::sys::signal::Signal;
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(crate::at::HOLD));
    lab.start(&file, "r");
    let mut worker = lab.at.start(&mut lab.command(&["work"]));
    until("two runs", || lab.marked().len() == 2);
    worker.signal(Signal::SIGTERM);
    lab.ask(&["list"]);
    assert!(!worker.ended(), "it waits for its node");
    lab.at.go();
    assert_eq!(worker.end().code, Some(0));
    assert_eq!(lab.at.state("r/two"), "committed");
    assert_eq!(lab.marked().len(), 2, "and starts nothing more");
    lab.drain();
    assert_eq!(lab.stands("r"), "succeeded");
}

fn a_damaged_run_stops_itself_and_no_other(kind: Kind) {
    // WFL-4
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    lab.start(&file, "good");
    lab.start(&file, "bad");
    lab.at.home.write("UPDATE {runs} SET status = 'blocked' WHERE run_id = 'bad'");
    let worked = lab.ask(&["work", "--until-idle", "--only", "good"]);
    assert_eq!(worked.code, Some(0), "{worked:?}");
    assert_eq!(lab.stands("good"), "succeeded");
    let shown = lab.ask(&["status", "bad"]);
    assert_eq!(shown.code, Some(70), "{shown:?}");
    assert!(shown.stderr.contains("bad"), "{shown:?}");
    let listed = lab.ask(&["list"]);
    assert_eq!(listed.code, Some(70));
    assert!(listed.stdout.contains("good") && listed.stderr.contains("bad"), "{listed:?}");
    assert_eq!(lab.marked().len(), 3);
}

fn a_named_effect_is_the_same_effect_everywhere(kind: Kind) {
    // WFL-1, WFL-8
    let lab = Lab::new(kind);
    let config = lab.at.env.path("here/ctrlrun.toml");
    let effect = format!(
        "[effect.refund]\nkey = 'refund:{{id}}'\ncommand = ['sh', '-c', '''{MARK}echo done-$1''', 'sh', '{{id}}']\n"
    );
    std::fs::write(&config, effect).unwrap();
    let text = "name = 'w'\n[inputs]\nid = {}\n[node.a]\neffect = 'refund'\nparams = { id = '{id}' }\n\
        [node.b]\nneeds = ['a']\ncommand = ['sh', '-c', 'echo \"$1\" >>\"$PLACE/marker\"', 'sh', '{a.stdout}']\n";
    let file = lab.file("w", text);
    let mut by_hand = lab.at.ctrlrun(&["run", "refund", "id=7"]);
    assert_eq!(crate::common::finish(&mut by_hand).code, Some(0));
    let ran = lab.ask(&["run", &file, "--id", "r", "id=7"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(lab.marked(), ["refund:7 1", "done-7"], "it had happened before");
    assert_eq!(lab.ask(&["run", &file, "--id", "r2", "id=8"]).code, Some(0));
    assert_eq!(lab.marked()[2..], ["refund:8 1", "done-8"]);
}

fn a_run_of_a_name_that_cannot_be_one_is_refused(kind: Kind) {
    // WFL-1
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    for bad in ["", " r", "r\n"] {
        let refused = lab.ask(&["start", &file, "--id", bad]);
        assert_eq!(refused.code, Some(64), "{bad:?}: {refused:?}");
    }
    let dashed = lab.ask(&["start", &file, "--id=-r"]);
    assert_eq!(dashed.code, Some(0), "{dashed:?}");
    assert!(dashed.stderr.contains(" -- -r"), "{dashed:?}");
}

fn nodes_are_journaled_and_call_hooks(kind: Kind) {
    // AFT-1, AFT-3, AFT-8
    let lab = Lab::new(kind);
    let env = &lab.at.env;
    let hook = r#"cat >>"$PLACE/hooked""#;
    let config = format!(
        "[journal]\nfile = \"journal.jsonl\"\n[hooks]\ncommitted = ['sh', '-c', '{hook}']\n"
    );
    fs::write(env.path("c.toml"), config).unwrap();
    let file = lab.file("w", &three(""));
    let run = |id: &str| {
        let mut command = lab.command(&["run", &file, "--id", id]);
        finish(command.env("CTRLRUN_CONFIG", env.path("c.toml")))
    };
    let ran = run("r");
    assert_eq!((ran.code, lab.marked().len()), (Some(0), 3), "{ran:?}");
    let lines = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(env.path(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let journal = lines("journal.jsonl");
    for key in ["r/one", "r/two", "r/three"] {
        let of_key = journal.iter().filter(|line| line["key"] == key);
        let types: Vec<_> = of_key.map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(types, ["began", "settled"], "{journal:?}");
    }
    let told: Vec<_> = lines("hooked")
        .iter()
        .map(|line| {
            let of = |name: &str| line[name].as_str().unwrap().to_owned();
            format!("{} {} {} {}", of("run"), of("node"), of("key"), of("state"))
        })
        .collect();
    let node = |name: &str| format!("r {name} r/{name} committed");
    assert_eq!(told, ["one", "two", "three"].map(node));
    // A journal that is a folder cannot be written: nothing is run.
    fs::remove_file(env.path("journal.jsonl")).unwrap();
    fs::create_dir(env.path("journal.jsonl")).unwrap();
    let ran = run("s");
    assert_eq!((ran.code, lab.marked().len()), (Some(69), 3), "{ran:?}");
}
