use super::{Named, parse};

fn none(_: &str) -> Option<Named> {
    None
}

fn lines(text: &str) -> Vec<(usize, String)> {
    match parse(text, &none) {
        Ok(definition) => panic!("nothing is wrong with {definition:?}"),
        Err(wrong) => wrong.into_iter().map(|wrong| (wrong.line, wrong.what)).collect(),
    }
}

#[test]
fn each_complaint_has_its_line() {
    // WFL-1
    let text = r#"name = "w"
tear = "x"

[node.a]
needs = ["c"]
command = ["x", "{nope}"]
lease = "10"

[node.b]
needs = [
  "a",
  "extrct",
]
command = ["x"]
timeout = 5

[node.c]
needs = ["b"]
wait = {}

[node.d]

[node.extract]
command = ["true"]
not_executed = [0]
retrys = 3
"#;
    let found: Vec<usize> = lines(text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(found, [2, 5, 6, 7, 12, 15, 19, 21, 25, 26], "{:#?}", lines(text));
}

#[test]
fn what_is_no_toml_has_its_line_too() {
    // WFL-1
    assert_eq!(lines("name = \"w\"\n[node.a\n")[0].0, 2);
    let twice = lines("name = \"w\"\n[node.a]\ncommand = [\"x\"]\ncommand = [\"y\"]\n");
    assert_eq!(twice.len(), 1);
    assert_eq!(twice[0].0, 4, "{twice:?}");
    assert_eq!(lines("[node.a]\ncommand = [\"x\"]\n")[0].1, "it has no name: name = \"...\"");
}

#[test]
fn comments_and_order_are_no_difference() {
    // WFL-3
    let one = "name = 'w'\n[node.a]\ncommand = ['x']\n[node.b]\nneeds = ['a']\ncommand = ['y']\n";
    let other = "# so\nname = \"w\"\n[node.b]\ncommand = [\"y\"]\nneeds = [\"a\"]\n\n[node.a]\ncommand = [\n \"x\" ]\n";
    assert_eq!(parse(one, &none).unwrap().canonical(), parse(other, &none).unwrap().canonical());
}

#[test]
fn a_named_effect_is_taken_with_its_own_key() {
    // WFL-1
    let named = |name: &str| {
        (name == "refund").then(|| Named {
            key: "refund:{id}".to_owned(),
            command: vec!["./refund.sh".to_owned(), "{id}".to_owned()],
            takes: ["id".to_owned()].into(),
            not_executed: Some("11".to_owned()),
            ..Named::default()
        })
    };
    let file = |rest: &str| {
        format!("name = 'w'\n[inputs]\nid = {{}}\n[node.a]\neffect = 'refund'\n{rest}\n")
    };
    let read = parse(&file("params = { id = '{id}' }\nretries = 2"), &named).unwrap();
    let text = read.canonical();
    assert!(text.contains("\"key\":\"refund:{id}\"") && text.contains("\"retries\":2"), "{text}");
    for (rest, what) in [
        ("", "node a: the effect needs the parameter id"),
        ("params = { id = '{id}', x = '' }", "node a: the effect has no parameter x"),
        ("params = { id = '{id}' }\nkey = 'x'", "node a: key is the named effect's own"),
    ] {
        let wrong = parse(&file(rest), &named).unwrap_err();
        assert!(wrong.iter().any(|wrong| wrong.what == what), "{rest}: {wrong:?}");
    }
    let unknown = parse(&file("params = { id = '{id}' }"), &none).unwrap_err();
    assert_eq!(
        (unknown[0].line, unknown[0].what.as_str()),
        (3, "the input id is used by no node: {id}")
    );
    assert!(
        unknown
            .iter()
            .any(|w| w.line == 5 && w.what == "node a: no effect \"refund\" is configured")
    );
}
