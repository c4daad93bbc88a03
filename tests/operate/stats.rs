//! A store in numbers (OPS-8, OPS-9; case 46).
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;

use prometheus_parse::{Scrape, Value as Number};
use serde_json::Value;

use crate::at::{Kind, MARK, Place, on_every_store};
use crate::common::finish;

on_every_store!(
    each_effect_is_counted_once_and_the_lapsed_with_the_ambiguous,
    the_page_for_prometheus_is_one,
    a_store_that_cannot_be_read_is_down_and_not_at_rest,
);

/// One effect in each state, and one that is lapsed.
fn filled(kind: Kind) -> Place {
    let at = Place::new(kind);
    for (key, end) in [("did", "exit 0"), ("did-not", "exit 11"), ("doubt", "exit 3")] {
        finish(&mut at.run(key, &["--not-executed", "11"], &format!("{MARK} {end}")));
    }
    // Nobody contends: killed with its child, it is lapsed and nothing else.
    at.holder("gone", &["--lease", "1s"]).kill();
    at.lapsed("gone");
    at
}

fn each_effect_is_counted_once_and_the_lapsed_with_the_ambiguous(kind: Kind) {
    // OPS-8; case 46
    let at = filled(kind);
    at.home.age("doubt", 3);
    let before = at.dump();
    let out = at.ask(&["stats", "--json"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    let told: Value = serde_json::from_str(&out.stdout).unwrap();
    let states = serde_json::json!({
        "reserved": 0, "executing": 0, "lapsed": 1, "committed": 1, "failed": 1, "ambiguous": 1
    });
    assert_eq!(told["states"], states);
    assert_eq!((&told["effects"], &told["stuck"]), (&4.into(), &2.into()));
    let oldest = told["oldest_stuck_seconds"].as_u64().unwrap();
    assert!((259_200..259_500).contains(&oldest), "{oldest}");
    assert_eq!(told["spool"], serde_json::json!({ "outcomes": 0, "damaged": 0 }));
    assert!(told["bytes"].as_u64().unwrap() > 8_000, "{told}");
    let out = at.ask(&["stats"]);
    assert!(out.stdout.contains("\n  lapsed     1\n"), "{}", out.stdout);
    assert!(out.stdout.contains("\nstuck        2, the oldest for 3 d  (ctrlrun effects --stuck"));
    // The same are listed, and the retry prints what resolves it.
    let stuck = at.ask(&["effects", "--stuck", "--check"]);
    assert_eq!((stuck.code, stuck.stdout.lines().count()), (Some(76), 3), "{stuck:?}");
    assert!(stuck.stdout.contains("EXECUTING, lapsed"), "{stuck:?}");
    assert_eq!(at.dump(), before, "reading moves nothing");
    let retry = finish(&mut at.run("gone", &[], MARK));
    assert_eq!(retry.code, Some(65));
    at.go();
}

fn series(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().map(|line| Ok(line.to_owned()));
    let scrape = Scrape::parse(lines).unwrap();
    let mut all = BTreeMap::new();
    for sample in scrape.samples {
        let Number::Gauge(value) = sample.value else { panic!("{sample:?} is no gauge") };
        let state = sample.labels.get("state").map_or(String::new(), |state| format!(" {state}"));
        assert!(all.insert(format!("{}{state}", sample.metric), value).is_none(), "{page}");
    }
    all
}

/// `a="b",c="d"`, with its three escapes.
fn labels_of(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"").unwrap();
        let mut value = String::new();
        let mut chars = behind.char_indices();
        loop {
            match chars.next().unwrap() {
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c => c,
                }),
                (at, '"') => {
                    rest = &behind[at + 1..];
                    break;
                }
                (_, c) => value.push(c),
            }
        }
        assert!(labels.insert(name.to_owned(), value).is_none(), "{text}");
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    labels
}

/// The format's own rules, which a forgiving reader does not ask for.
fn well_formed(page: &str) {
    assert!(page.ends_with('\n'));
    let (mut helped, mut typed, mut seen) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').unwrap();
            assert!(helped.insert(name.to_owned()), "{line}: a second HELP");
            assert!(text.len() > 10, "{line}");
            name.clone_into(&mut current);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert_eq!(rest, format!("{current} gauge"));
            assert!(typed.insert(current.clone()), "{line}: a second TYPE");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap();
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            assert!(typed.contains(name) && name == current, "{line}");
            let labels = labels_of(labels.strip_suffix('}').unwrap());
            assert!(labels["store"].contains('/'), "{line}");
            value.parse::<f64>().unwrap();
            assert!(seen.insert(series.to_owned()), "{line}: twice");
        }
    }
}

fn the_page_for_prometheus_is_one(kind: Kind) {
    // OPS-9
    let at = filled(kind);
    let file = at.env.path("ctrlrun.prom");
    fs::write(&file, "what was there before").unwrap();
    let out = at.ask(&["stats", "--prometheus", "--output", file.to_str().unwrap()]);
    assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (Some(0), "", ""));
    let page = fs::read_to_string(&file).unwrap();
    well_formed(&page);
    let found = series(&page);
    for (name, value) in [
        ("ctrlrun_up", 1.0),
        ("ctrlrun_effects reserved", 0.0),
        ("ctrlrun_effects lapsed", 1.0),
        ("ctrlrun_effects committed", 1.0),
        ("ctrlrun_effects failed", 1.0),
        ("ctrlrun_effects ambiguous", 1.0),
        ("ctrlrun_effects_stuck", 2.0),
        ("ctrlrun_spool_outcomes", 0.0),
        ("ctrlrun_store_attempt_floor", 0.0),
    ] {
        assert_eq!(found.get(name), Some(&value), "{name}: {page}");
    }
    assert!(found["ctrlrun_store_size_bytes"] > 0.0);
    assert!(found["ctrlrun_effects_stuck_oldest_seconds"] > 0.0);
    // A collector runs as somebody else; and nothing was left beside it.
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    let beside = fs::read_dir(at.env.path("")).unwrap();
    let left = beside.filter(|entry| {
        entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".ctrlrun")
    });
    assert_eq!(left.count(), 0);
    assert_eq!(at.ask(&["stats", "--prometheus", "--json"]).code, Some(64));
    assert_eq!(at.ask(&["stats", "--output", "x"]).code, Some(64));
    let nowhere = at.ask(&["stats", "--prometheus", "--output", "/no/such/folder/x.prom"]);
    assert_eq!(nowhere.code, Some(66), "{nowhere:?}");
    if kind == Kind::Sqlite {
        let store = at.file();
        let onto = at.ask(&["stats", "--prometheus", "--output", store.to_str().unwrap()]);
        assert_eq!(onto.code, Some(64), "{onto:?}");
    }
    assert_eq!(at.state("did"), "committed");
    at.go();
}

fn a_store_that_cannot_be_read_is_down_and_not_at_rest(kind: Kind) {
    // OPS-9: an old count must not pass for a new one.
    let at = Place::new(kind);
    let file = at.env.path("ctrlrun.prom");
    let flags = ["stats", "--prometheus", "--output", file.to_str().unwrap()];
    assert_eq!(at.ask(&flags).code, Some(0));
    at.home.away();
    let out = at.ask(&flags);
    assert_eq!(out.code, Some(78), "{out:?}");
    let page = fs::read_to_string(&file).unwrap();
    well_formed(&page);
    let found = series(&page);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [("ctrlrun_up".to_owned(), 0.0)]);
}
