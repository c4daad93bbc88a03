//! Lines from real files and pipes.
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use super::*;
use crate::config::effect::Effect;

fn refund() -> Effect {
    Effect {
        name: "refund".to_owned(),
        key: Template::parse("refund:{payment_id}").unwrap(),
        command: CommandTemplate::parse(&["./refund.sh", "{payment_id}", "{amount}"]).unwrap(),
        settings: Settings { timeout: Some(Duration::from_secs(30)), ..Settings::default() },
        reconcile: Some(CommandTemplate::parse(&["./was-it.sh", "{payment_id}"]).unwrap()),
        reconcile_final: true,
        reconcile_timeout: None,
    }
}

fn json() -> Arc<Reading> {
    let mut effects = Effects::default();
    effects.set(refund());
    Arc::new(Reading { format: Format::Json { effects: Arc::new(effects) }, key_as_is: false })
}

fn table(separator: Separator, key: &str, command: &[&str]) -> Arc<Reading> {
    let words: Vec<OsString> = command.iter().map(Into::into).collect();
    let format = Format::table(separator, key, &words).unwrap();
    Arc::new(Reading { format, key_as_is: false })
}

fn csv() -> Arc<Reading> {
    table(Separator::Comma, "refund:{payment_id}", &["./refund.sh", "{payment_id}", "{amount}"])
}

/// A file's lines, after the check of the whole.
fn of_file(bytes: &[u8], reading: &Arc<Reading>) -> Result<Vec<Line>, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in");
    std::fs::write(&path, bytes).unwrap();
    let source = Source::File(path);
    let told = |error: CliError| error.human().replace(dir.path().to_str().unwrap(), "");
    let input = Input::open(&source, reading).map_err(told)?;
    let total = input.total().unwrap();
    let lines: Vec<Line> = input.collect::<Result<_, _>>().unwrap();
    assert_eq!(total, lines.len() as u64);
    Ok(lines)
}

/// A pipe's lines: those that could be used, and what ended them.
fn of_pipe(bytes: &[u8], reading: &Arc<Reading>) -> (Vec<Line>, Option<LineError>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fifo = path.clone();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || {
        // A reader that stops early is no fault of the writer's.
        let _ = File::options().write(true).open(fifo).unwrap().write_all(&bytes);
    });
    let input = Input::open(&Source::File(path), reading).unwrap();
    assert_eq!(input.total(), None);
    let (mut lines, mut error) = (Vec::new(), None);
    for line in input {
        match line {
            Ok(line) => lines.push(line),
            Err(wrong) => assert!(error.replace(wrong).is_none(), "it went on after an error"),
        }
    }
    writer.join().unwrap();
    (lines, error)
}

fn keys(lines: &[Line]) -> Vec<(u64, &str)> {
    lines.iter().map(|line| (line.number, line.key.as_str())).collect()
}

fn words(line: &Line) -> Vec<&str> {
    line.command.iter().map(|word| word.to_str().unwrap()).collect()
}

/// What is told of the one line, with its place.
fn wrong(bytes: &[u8], reading: &Arc<Reading>) -> String {
    let (_, error) = of_pipe(bytes, reading);
    let told = error.unwrap();
    let of_file = of_file(bytes, reading).unwrap_err();
    let shown = told.to_string();
    let (_, from_line) = shown.split_once("pipe:").unwrap();
    assert!(of_file.contains(&format!("/in:{from_line}")), "{of_file}\n{shown}");
    from_line.to_owned()
}

#[test]
fn a_json_line_has_key_and_command_and_how_it_is_run() {
    // INP-1
    let text = br#"{"key":"a:1","command":["echo","x y",""],"not_executed":[6,11],"timeout":"30s","bind":["v"]}
{"command":["true"],"key":"a:2","not_executed":"nonzero"}"#;
    let lines = of_file(text, &json()).unwrap();
    assert_eq!(keys(&lines), [(1, "a:1"), (2, "a:2")]);
    assert_eq!(words(&lines[0]), ["echo", "x y", ""]);
    let declared = lines[0].settings.not_executed.as_ref().unwrap();
    assert!(declared.has(6) && declared.has(11) && !declared.has(7));
    assert_eq!(lines[0].settings.timeout, Some(Duration::from_secs(30)));
    assert_eq!(lines[0].bind, ["v"]);
    assert!(lines[1].settings.not_executed.as_ref().unwrap().has(123));
    assert_eq!(lines[1].settings.timeout, None);
}

#[test]
fn a_json_line_may_name_an_effect() {
    // INP-2
    let text = br#"{"effect":"refund","params":{"payment_id":"txn_1","amount":500}}"#;
    let lines = of_file(text, &json()).unwrap();
    assert_eq!(keys(&lines), [(1, "refund:txn_1")]);
    assert_eq!(words(&lines[0]), ["./refund.sh", "txn_1", "500"]);
    assert_eq!(lines[0].settings.timeout, Some(Duration::from_secs(30)));
    assert_eq!(lines[0].effect.as_deref(), Some("refund"));
    let probe = lines[0].probe.as_ref().unwrap();
    assert_eq!((probe.command.join(" "), probe.is_final), ("./was-it.sh txn_1".to_owned(), true));
    for (line, told) in [
        (r#"{"effect":"refnud"}"#, "no effect \"refnud\" is configured (refund?)"),
        (r#"{"effect":"refund","params":{"amount":1}}"#, "needs a value for payment_id"),
        (r#"{"effect":"refund","params":{"payment_id":"a","amount":1,"x":"y"}}"#, "no parameter x"),
        (r#"{"effect":"refund","params":{"payment_id":"","amount":1}}"#, "it is empty"),
        (r#"{"effect":"refund","params":{"payment_id":"a","payment_id":"b"}}"#, "duplicate field"),
        (
            r#"{"effect":"refund","params":{"payment_id":1.0}}"#,
            "expected a string or a whole number",
        ),
        (r#"{"effect":"refund","params":{"payment_id":18446744073709551616}}"#, "whole number"),
        (r#"{"effect":"refund","params":{"payment_id":null}}"#, "expected a string"),
        (r#"{"effect":"refund","key":"k"}"#, "`key` beside `effect`"),
        (r#"{"key":"k","command":["x"],"params":{}}"#, "`params` without `effect`"),
    ] {
        let found = wrong(line.as_bytes(), &json());
        assert!(found.contains(told), "{line}: {found}");
    }
}

#[test]
fn what_a_json_line_may_not_be_is_told_with_its_place() {
    // INP-1, INP-4
    for (line, told) in [
        (r#"{"key":"k","command":["x"],"comand":1}"#, "1:35: unknown field `comand`"),
        (r#"{"key":"k","key":"l","command":["x"]}"#, "1:16: duplicate field `key`"),
        (r#"{"key":"k"}"#, "1: a line has `key` and `command`"),
        (r#"{"key":null,"command":["x"]}"#, "1: a line has `key` and `command`"),
        (r#"{"key":"k","command":[]}"#, "1: `command` names no program"),
        (r#"{"key":"k","command":[""]}"#, "1: `command` names no program"),
        (r#"{"key":"k","command":["x","a\u0000b"]}"#, "1: word 2 of `command` holds a NUL"),
        (r#"{"key":"k","command":"x"}"#, "invalid type: string \"x\""),
        (r#"{"key":"k","command":["x"],"timeout":"30"}"#, "a duration needs a unit: 30s?"),
        (r#"{"key":"k","command":["x"],"timeout":30}"#, "invalid type: integer `30`"),
        (r#"{"key":"k","command":["x"],"not_executed":[0]}"#, "exit code 0 means that it happened"),
        (r#"{"key":"","command":["x"]}"#, "1: key \"\": the key is empty"),
        (r#"{"key":"refund:null","command":["x"]}"#, "part 2 of the key is \"null\""),
        (r#"{"key":"k\u001b[2J","command":["x"]}"#, "the key holds a control character"),
        (r#"["k",["x"]]"#, "1:1: a line is one JSON object"),
        (r#"{"key":"k","command":["x"]"#, "1:26: EOF while parsing"),
        (r#"{"key":"k","command":["x"]} x"#, "1:29: trailing characters"),
        (r#"{"key":"é","command":[x]}"#, "1:23: expected value"),
    ] {
        let found = wrong(line.as_bytes(), &json());
        assert!(found.contains(told), "{line}: {found}");
    }
    assert_eq!(wrong(b"{\"key\":\"a\xff\"}", &json()), "1:10: the line is not UTF-8");
}

#[test]
fn a_key_may_be_taken_as_it_is() {
    // INP-4, KEY-3
    let Format::Json { effects } = &json().format else { panic!() };
    let format = Format::Json { effects: Arc::clone(effects) };
    let as_is = Arc::new(Reading { format, key_as_is: true });
    let line = br#"{"key":"refund:null","command":["x"]}"#;
    assert_eq!(keys(&of_file(line, &as_is).unwrap()), [(1, "refund:null")]);
    assert!(of_file(line, &json()).unwrap_err().contains("if that is the name: --key-as-is"));
    assert!(of_file(br#"{"key":" ","command":["x"]}"#, &as_is).is_err());
}

#[test]
fn the_header_of_a_table_names_the_placeholders() {
    // INP-3
    let text = b"payment_id,amount,memo\ntxn_1,500,\n\"txn,2\",\"a \"\"b\"\" $(x)\",\"two\nlines\"\ntxn_3,1,x\n";
    let lines = of_file(text, &csv()).unwrap();
    assert_eq!(keys(&lines), [(2, "refund:txn_1"), (3, "refund:txn,2"), (5, "refund:txn_3")]);
    assert_eq!(words(&lines[1]), ["./refund.sh", "txn,2", "a \"b\" $(x)"]);
    let tabs = table(Separator::Tab, "k:{ID}", &["x", "{Full Name}"]);
    let lines = of_file(b" ID \tFull Name\n1\t\"A\" B\n", &tabs).unwrap();
    assert_eq!((keys(&lines), words(&lines[0])), (vec![(2, "k:1")], vec!["x", "\"A\" B"]));
}

#[test]
fn a_table_that_cannot_be_meant_is_told_with_its_place() {
    // INP-3, INP-4
    for (text, told) in [
        (&b""[..], "1: there is no header"),
        (
            b"payment,amount\na,1\n",
            "1: no column is named \"payment_id\" ({payment}?); the columns: payment, amount",
        ),
        (b"Payment-ID,amount\na,1\n", "1: no column is named \"payment_id\" ({Payment-ID}?)"),
        (b"payment_id,amount,amount\na,1,2\n", "1: two columns are named \"amount\""),
        (b"payment_id,amount\na,1\nb\n", "3: the row has 1 cell, and the header 2 cells"),
        (b"payment_id,amount\na,1,2\n", "2: the row has 3 cells, and the header 2 cells"),
        (b"payment_id,amount\n,1\n", "2: the value of {payment_id} cannot be used: it is empty"),
        (
            b"payment_id,amount\na,\"1\n2\"\n",
            "2: the value of {amount} cannot be used: it holds a control",
        ),
        (
            b"payment_id,amount\na ,1\n",
            "2: the value of {payment_id} cannot be used: it begins or ends with a space",
        ),
        (b"payment_id,amount\nnull,1\n", "2: key \"refund:null\": part 2 of the key is \"null\""),
        (b"payment_id,amount\n\xff,1\n", "2: column \"payment_id\" is not UTF-8"),
        (b"payment_id,\xff\na,1\n", "1: the header is not UTF-8"),
        (b"\xff\xfep\0a\0", "1: this is UTF-16"),
    ] {
        let found = wrong(text, &csv());
        assert!(found.starts_with(told), "{found}");
    }
    // What no placeholder names is nobody's business.
    let text = b"payment_id,amount,memo,memo,\na,1,,\xff,\n";
    assert_eq!(keys(&of_file(text, &csv()).unwrap()), [(2, "refund:a")]);
}

#[test]
fn a_quote_that_is_never_closed_swallows_no_row() {
    // INP-4: in a column that no placeholder names it would pass for one long memo.
    let text = b"payment_id,amount,memo\na,1,fine\nb,2,\"oops\nc,3,x\nd,4,y\n";
    assert_eq!(wrong(text, &csv()), "3: a quote is opened here, or below, and never closed");
    for fine in
        [&b"payment_id,amount\na,5\" pipe\nb,1\n"[..], b"payment_id,amount\na,\"1\"\nb,\"2\""]
    {
        assert_eq!(of_file(fine, &csv()).unwrap().len(), 2);
    }
}

#[test]
fn marks_line_ends_and_empty_lines_mean_nothing() {
    // INP-4
    let text = b"\xef\xbb\xbf{\"key\":\"a\",\"command\":[\"x\"]}\r\n\r\n  \n{\"key\":\"b\",\"command\":[\"x\"]}";
    let expected = [(1, "a"), (4, "b")];
    assert_eq!(keys(&of_file(text, &json()).unwrap()), expected);
    assert_eq!(keys(&of_pipe(text, &json()).0), expected);
    let text = b"\xef\xbb\xbfpayment_id,amount\r\na,1\r\n\r\nb,2";
    let expected = [(2, "refund:a"), (4, "refund:b")];
    assert_eq!(keys(&of_file(text, &csv()).unwrap()), expected);
    assert_eq!(keys(&of_pipe(text, &csv()).0), expected);
    let text = b"\n\npayment_id,amount\n\r\n\na,\"1\"\r\r\nb,2";
    let expected = [(6, "refund:a"), (8, "refund:b")];
    assert_eq!(keys(&of_file(text, &csv()).unwrap()), expected);
    assert_eq!(of_file(b"", &json()).unwrap(), []);
    assert_eq!(of_file(b"payment_id,amount", &csv()).unwrap(), []);
}

#[test]
fn a_line_without_end_is_not_read_to_its_end() {
    // INP-4: the pipe would go on for ever.
    struct Endless(&'static [u8], usize);
    impl io::Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            assert!(self.1 < 4 * LINE_BYTES_MAX, "it was read on and on");
            let first = self.0.get(self.1).copied();
            let byte = first.unwrap_or(b'x');
            let more = if first.is_some() { 1 } else { into.len() };
            into[..more].fill(byte);
            self.1 += more;
            Ok(more)
        }
    }
    let told = "longer than 1048576 bytes";
    let mut lines = json::JsonLines::new(Box::new(Endless(b"{", 0)), "-", json());
    let error = lines.next().unwrap().unwrap_err();
    assert!(error.what.contains(told) && error.line == 1, "{error}");
    assert!(lines.next().is_none());
    let source = Box::new(Endless(b"payment_id,amount\na,1\nb,\"", 0));
    let mut rows = table::Table::new(source, "-", Separator::Comma, csv());
    assert!(rows.next().unwrap().is_ok());
    let error = rows.next().unwrap().unwrap_err();
    assert!(error.what.contains(told) && error.line == 3, "{error}");
    assert!(rows.next().is_none());
}

#[test]
fn the_longest_line_is_read() {
    // INP-4
    let value = "x".repeat(LINE_BYTES_MAX - 40);
    let line = format!("{{\"key\":\"a\",\"command\":[\"x\",\"{value}\"]}}\n");
    let text = line.repeat(3);
    assert_eq!(of_file(text.as_bytes(), &json()).unwrap().len(), 3);
    let row = format!("a,{value}\n");
    let text = format!("payment_id,amount\n{}", row.repeat(3));
    assert_eq!(of_file(text.as_bytes(), &csv()).unwrap().len(), 3);
}

#[test]
fn a_file_is_checked_whole_and_a_pipe_as_it_comes() {
    // INP-5
    let good = "{\"key\":\"a\",\"command\":[\"x\"]}\n";
    let text = format!("{good}oops\n{good}{{}}\n");
    let told = of_file(text.as_bytes(), &json()).unwrap_err();
    assert_eq!(
        told,
        "ctrlrun: nothing was run: /in: 2 lines cannot be used\n\
         ctrlrun:   /in:2:1: a line is one JSON object\n\
         ctrlrun:   /in:4: a line has `key` and `command`, or `effect` and `params`\n"
    );
    let (lines, error) = of_pipe(text.as_bytes(), &json());
    assert_eq!((lines.len(), error.unwrap().line), (1, 2));
    let many = "oops\n".repeat(1_000);
    let told = of_file(many.as_bytes(), &json()).unwrap_err();
    assert!(told.contains("1,000 lines cannot be used") && told.contains("and 990 more"), "{told}");
    assert!(told.contains("if it is a table: --csv, or --tsv"), "{told}");
    assert!(told.lines().count() < 15, "{told}");
}

#[test]
fn a_source_that_is_not_there_is_told() {
    // INP-5
    let missing = Input::open(&Source::File("/nowhere/in".into()), &json()).err().unwrap();
    assert_eq!(missing.kind(), Kind::NotFound);
    let folder = Input::open(&Source::File("/".into()), &json()).err().unwrap();
    assert_eq!(folder.kind(), Kind::NotFound);
    assert_eq!(Source::of(None), Source::Stdin);
    assert_eq!(Source::of(Some(Path::new("-"))), Source::Stdin);
    assert_eq!(Source::of(Some(Path::new("./-"))), Source::File("./-".into()));
}

#[test]
fn words_that_are_no_template_are_told_with_their_place() {
    // CFG-1, CFG-4
    let told = |key: &str, command: &[&str]| {
        let words: Vec<OsString> = command.iter().map(Into::into).collect();
        let error = Format::table(Separator::Comma, key, &words).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        error.message().to_owned()
    };
    let bad = told("refund:{id", &["x"]);
    assert!(bad.starts_with("--key refund:{id: character 8: `{` begins no placeholder"), "{bad}");
    let bad = told("k", &["awk", "{print"]);
    assert!(bad.starts_with("the command: {print: character 1: "), "{bad}");
    let bad = told("k:{id}", &["sh", "-c", "x {id}"]);
    assert!(bad.contains("would be read as code"), "{bad}");
}

#[test]
fn an_effect_takes_its_parameters_and_no_others() {
    // CFG-10
    let given: BTreeMap<String, String> =
        [("payment_id", "a"), ("amount", "1")].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
    let filled = refund().fill(&given).unwrap();
    assert_eq!(filled.key, "refund:a");
    assert_eq!(filled.command, ["./refund.sh", "a", "1"]);
    let told = refund().fill(&BTreeMap::new()).unwrap_err().to_string();
    assert_eq!(told, "effect refund needs a value for payment_id, amount");
}
