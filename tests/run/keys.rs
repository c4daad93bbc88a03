//! What names an effect, and what it is bound to.
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::at::{Kind, MARK, Place, on_every_store, text};
use crate::common::finish;

on_every_store!(
    bytes_decide_what_a_key_is_and_what_is_none_is_refused,
    a_period_is_appended_to_a_key,
    what_is_bound_decides_with_the_key,
    a_command_of_an_effect_cannot_wait_for_itself,
    arguments_and_environment_are_in_no_file_message_or_report,
);

fn bytes_decide_what_a_key_is_and_what_is_none_is_refused(kind: Kind) {
    // Case 51; KEY-1, KEY-2, KEY-3
    let at = Place::new(kind);
    let refused = [
        "",
        " k",
        "k ",
        "k\n",
        "a\tb",
        "refund:",
        ":x",
        "a::b",
        "refund:null",
        "refund:undefined",
        "refund:$TXN",
        "refund:${TXN}",
        "refund:{id}",
    ];
    let long = "k".repeat(513);
    for key in refused.into_iter().chain([long.as_str(), &"k".repeat(10_000)]) {
        let end = finish(&mut at.run(key, &[], MARK));
        assert_eq!(end.code, Some(64), "{key:?}: {end:?}");
        assert!(end.stderr.contains("nothing was run"), "{key:?}: {}", end.stderr);
    }
    assert_eq!(at.ask(&["effects", "--json"]).stdout, "");
    assert_eq!(at.marks(), 0);
    // Each is another effect.
    let longest = "k".repeat(512);
    let apart = [
        "k",
        "K",
        "\u{e9}",
        "e\u{301}",
        "a 'quoted' \"key\"",
        "a  b",
        "a b",
        "$5",
        "100%",
        "-k",
        "--store",
        "%",
        "_",
        longest.as_str(),
    ];
    for (number, key) in apart.into_iter().enumerate() {
        let flag = format!("--key={key}");
        let mut run = at.env.command(["run", "--store", at.store(), &flag, "--", "sh", "-c", MARK]);
        let end = finish(run.env("PLACE", at.env.path("")));
        assert_eq!((end.code, at.marks()), (Some(0), number + 1), "{key:?}: {end:?}");
    }
    let as_it_is = ["refund:", "refund:null", "refund:$TXN"];
    for key in as_it_is {
        let end = finish(&mut at.run(key, &["--key-as-is"], MARK));
        assert_eq!(end.code, Some(0), "{key:?}: {end:?}");
        assert_eq!(at.state(key), "committed");
    }
    for key in ["", "k\n", " k", long.as_str()] {
        assert_eq!(finish(&mut at.run(key, &["--key-as-is"], MARK)).code, Some(64), "{key:?}");
    }
    assert_eq!(at.marks(), apart.len() + as_it_is.len());
    let listed = at.ask(&["effects", "--json"]).stdout.lines().count();
    assert_eq!(listed, apart.len() + as_it_is.len());
}

fn a_period_is_appended_to_a_key(kind: Kind) {
    // KEY-4
    let at = Place::new(kind);
    for period in ["hour", "day", "week", "month"] {
        let key = format!("job-{period}");
        assert_eq!(finish(&mut at.run(&key, &["--per", period], MARK)).code, Some(0));
        let again = finish(&mut at.run(&key, &["--per", period], MARK));
        assert_eq!(again.code, Some(0), "{again:?}");
    }
    let listed = at.ask(&["effects", "--json"]).stdout;
    let keys: Vec<String> = listed
        .lines()
        .map(|line| text(&serde_json::from_str::<serde_json::Value>(line).unwrap()["key"]))
        .collect();
    // A period may have ended between the two runs; each of them is then an effect.
    assert_eq!(at.marks(), keys.len());
    let shapes = [
        ("job-hour@", "dddd-dd-ddTddZ"),
        ("job-day@", "dddd-dd-dd"),
        ("job-week@", "dddd-Wdd"),
        ("job-month@", "dddd-dd"),
    ];
    for (prefix, shape) in shapes {
        let suffix = keys.iter().find_map(|key| key.strip_prefix(prefix)).unwrap();
        let digits = |c: char| if c.is_ascii_digit() { 'd' } else { c };
        assert_eq!(suffix.chars().map(digits).collect::<String>(), shape);
    }
    let too_long = "k".repeat(505);
    assert_eq!(finish(&mut at.run(&too_long, &["--per", "day"], MARK)).code, Some(64));
}

fn what_is_bound_decides_with_the_key(kind: Kind) {
    // KEY-5, KEY-6
    let at = Place::new(kind);
    let file = at.env.path("body");
    let body = file.to_str().unwrap();
    fs::write(&file, "one").unwrap();
    let code = |key: &str, flags: &[&str], words: &[&str]| {
        finish(at.run_words(key, flags, words).env("VALUE", "one")).code
    };
    assert_eq!(code("args", &[], &["true", "ab", "c"]), Some(0));
    assert_eq!(code("args", &[], &["true", "a", "bc"]), Some(65));
    assert_eq!(code("args", &[], &["true", "ab", "c"]), Some(0));
    assert_eq!(code("args", &["--bind", "c"], &["true", "ab"]), Some(65));
    assert_eq!(code("bind", &["--bind", "a", "--bind", "b"], &["true"]), Some(0));
    assert_eq!(code("bind", &["--bind", "a", "--bind", "b"], &["true"]), Some(0));
    assert_eq!(code("bind", &["--bind", "b", "--bind", "a"], &["true"]), Some(65));
    assert_eq!(code("file", &["--bind-file", body], &["true"]), Some(0));
    assert_eq!(code("file", &["--bind-file", body], &["true"]), Some(0));
    fs::write(&file, "two").unwrap();
    assert_eq!(code("file", &["--bind-file", body], &["true"]), Some(65));
    assert_eq!(code("file", &["--bind-file", "/no/such"], &["true"]), Some(66));
    assert_eq!(code("env", &["--bind-env", "VALUE"], &["true"]), Some(0));
    let mut other = at.run_words("env", &["--bind-env", "VALUE"], &["true"]);
    assert_eq!(finish(other.env("VALUE", "two")).code, Some(65));
    assert_eq!(code("env", &["--bind-env", "UNSET"], &["true"]), Some(64));
    assert_eq!(code("only", &["--bind-only", "txn_1"], &["true", "a"]), Some(0));
    assert_eq!(code("only", &["--bind-only", "txn_1"], &["false", "b", "c"]), Some(0));
    assert_eq!(code("only", &["--bind-only", "txn_2"], &["true", "a"]), Some(65));
    // Arguments are bytes.
    let bytes = |last: &[u8]| {
        let mut run = at.run_words("bytes", &[], &["printf", "%s"]);
        run.arg(OsStr::from_bytes(last)).output().unwrap()
    };
    assert_eq!(bytes(b"\xff\xfe").stdout, b"\xff\xfe");
    assert_eq!(bytes(b"\xff\xfd").status.code(), Some(65));
}

fn a_command_of_an_effect_cannot_wait_for_itself(kind: Kind) {
    // EXE-20
    let at = Place::new(kind);
    let nested = r#""$CTRLRUN" run --store "$STORE" -k "$KEY" --wait 1h -- true"#;
    let run = |key: &str| finish(at.run("k", &[], nested).env("KEY", key).env("STORE", at.store()));
    let end = run("k");
    assert_eq!(end.code, Some(64), "{end:?}");
    assert!(end.stderr.contains("wait for itself"), "{}", end.stderr);
    assert_eq!(at.state("k"), "ambiguous");
    at.resolve("k", "--not-executed");
    assert_eq!(run("inner").code, Some(0));
    assert_eq!((at.state("k").as_str(), at.state("inner").as_str()), ("committed", "committed"));
}

fn arguments_and_environment_are_in_no_file_message_or_report(kind: Kind) {
    // Case 58; CLI-14
    let at = Place::new(kind);
    let secret = "hush-7f3a";
    let report = at.env.path("home/report.json");
    let flags = ["--report", report.to_str().unwrap(), "--capture", "none", "--bind", secret];
    let words = ["sh", "-c", "exit 4", "-u", secret, "https://u:hush-7f3a@h"];
    let mut told = String::new();
    let mut tell =
        |end: crate::common::Output| told.push_str(&format!("{}{}", end.stdout, end.stderr));
    tell(finish(at.run_words("k", &flags, &words).env("TOKEN", secret)));
    tell(finish(at.run_words("k", &flags, &words).env("TOKEN", secret)));
    tell(finish(
        at.run_words("k", &[], &["sh", "-c", "exit 4", "-u", secret]).env("TOKEN", secret),
    ));
    tell(finish(at.run_words("f", &["-v"], &["/no/such/program", secret]).env("TOKEN", secret)));
    for look in [
        vec!["show", "k"],
        vec!["show", "k", "--json"],
        vec!["history", "k", "--json"],
        vec!["effects"],
    ] {
        tell(at.ask(&look));
    }
    assert!(!told.contains("hush"), "{told}");
    let shown = at.show("k");
    assert_eq!((&shown["program"], &shown["arguments"]), (&"sh".into(), &5.into()));
    assert!(text(&shown["fingerprint"]).starts_with("sha256:"));
    // A run that holds: its log is there too.
    let holder = at.holder("h", &["--bind", secret]);
    // On a server the store is its rows; bytes show as hexadecimal digits there.
    let rows = at.dump();
    assert!(rows.contains("executing") && !rows.contains("hush") && !rows.contains("68757368"));
    let mut seen = 0;
    let mut open = vec![at.env.path("home")];
    open.extend(Some(at.env.path("store")).filter(|folder| folder.exists()));
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            seen += 1;
            let bytes = fs::read(&path).unwrap();
            let found = bytes.windows(4).any(|window| window == b"hush");
            assert!(!found, "{} holds it", path.display());
        }
    }
    assert!(seen >= if kind == Kind::Sqlite { 3 } else { 1 }, "{seen}");
    at.go();
    assert_eq!(holder.end().code, Some(0));
}
