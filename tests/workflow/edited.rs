//! Case 55: a file that was edited between start and resume.
use crate::at::{HOLD, Kind, on_every_store, until};
use crate::lab::{Lab, MARK, three};

on_every_store!(
    another_definition_is_refused_with_the_nodes_that_differ,
    another_definition_is_gone_on_by_once_it_is_accepted,
    a_comment_is_no_difference,
    a_run_that_has_ended_is_no_other_run,
    another_definition_is_no_way_to_another_input,
);

fn another_definition_is_refused_with_the_nodes_that_differ(kind: Kind) {
    // Case 55; WFL-3
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    lab.start(&file, "r");
    lab.file("w", &three("exit 0; "));
    for command in ["run", "start"] {
        let refused = lab.ask(&[command, &file, "--id", "r"]);
        assert_eq!(refused.code, Some(65), "{refused:?}");
        assert!(refused.stderr.contains("the difference: changed two\n"), "{refused:?}");
        assert!(refused.stderr.contains("nothing was run"), "{refused:?}");
        assert!(refused.stderr.contains("--accept-new-definition"), "{refused:?}");
    }
    let more = format!("{}[node.four]\ncommand = ['true']\n", three("exit 0; "));
    lab.file("w", &more.replace("node.three]", "node.last]"));
    let refused = lab.ask(&["run", &file, "--id", "r"]);
    let told = "the difference: changed two; added four, last; removed three\n";
    assert!(refused.stderr.contains(told), "{refused:?}");
    assert_eq!(lab.marked(), Vec::<String>::new());
}

fn another_definition_is_gone_on_by_once_it_is_accepted(kind: Kind) {
    // Case 55; WFL-3
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(HOLD));
    let run = lab.at.start(&mut lab.command(&["run", &file, "--id", "r"]));
    until("two runs", || lab.marked().len() == 2);
    let new = three(HOLD).replace("node.three]\n", "node.last]\n");
    lab.file("w", &new);
    let accepted = lab.ask(&["start", &file, "--id", "r", "--accept-new-definition"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    lab.at.go();
    let ran = run.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(lab.marked(), ["r/one 1", "r/two 1", "r/last 1"]);
    let again = lab.ask(&["run", &file, "--id", "r"]);
    assert_eq!(again.code, Some(0), "it is its definition now: {again:?}");
}

fn a_comment_is_no_difference(kind: Kind) {
    // WFL-3
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    lab.start(&file, "r");
    lab.file("w", &format!("# why\n{}\n\n", three("")));
    assert_eq!(lab.ask(&["run", &file, "--id", "r"]).code, Some(0));
}

fn a_run_that_has_ended_is_no_other_run(kind: Kind) {
    // WFL-3
    let lab = Lab::new(kind);
    let file = lab.file("w", &three(""));
    assert_eq!(lab.ask(&["run", &file, "--id", "r"]).code, Some(0));
    lab.file("w", &format!("{}[node.four]\ncommand = ['sh', '-c', '''{MARK}''']\n", three("")));
    let refused = lab.ask(&["run", &file, "--id", "r", "--accept-new-definition"]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    assert!(refused.stderr.contains("it has ended (succeeded)"), "{refused:?}");
    assert_eq!(lab.marked().len(), 3);
}

fn another_definition_is_no_way_to_another_input(kind: Kind) {
    // WFL-3
    let lab = Lab::new(kind);
    let text = |more: &str| {
        format!(
            "name = 'w'\n[inputs]\nday = {{}}\n[node.a]\nwait = {{ signal = 'go' }}\n\
             [node.b]\nneeds = ['a']\ncommand = ['echo', '{{day}}'{more}]\n"
        )
    };
    let file = lab.file("w", &text(""));
    assert_eq!(lab.ask(&["start", &file, "--id", "r", "day=monday"]).code, Some(0));
    lab.file("w", &text(", 'x'"));
    let line = ["start", &file, "--id", "r", "--accept-new-definition"];
    let refused = lab.ask(&[&line[..], &["day=tuesday"]].concat());
    assert_eq!(refused.code, Some(65), "{refused:?}");
    assert!(refused.stderr.contains("it was started with another value of day"), "{refused:?}");
    assert_eq!(lab.ask(&[&line[..], &["day=monday"]].concat()).code, Some(0));
    // It is accepted, and nobody has ticked since: the line without the flag is that run.
    assert_eq!(lab.ask(&["start", &file, "--id", "r", "day=monday"]).code, Some(0));
    lab.drain();
    assert_eq!(lab.ask(&["signal", "r", "go"]).code, Some(0));
    assert_eq!(lab.ask(&["run", &file, "--id", "r", "day=monday"]).code, Some(0));
    assert_eq!(lab.stands("r"), "succeeded");
}
