//! Values in the text of a write, on a real server: they come back as they went in, whatever a session's
//! settings make of a literal (PGS-2).
mod common;

use common::pgstore::{MARK, Stage};
use common::postgres::{LONG, link, rows, server};
use ctrlrun::store::postgres::faultproxy::{Act, When, Which};
use ctrlrun::store::postgres::literal::{bytes, text};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Text with what ends a literal, or begins something, in every place, and half of two-byte letters.
fn texts() -> impl Strategy<Value = String> {
    let letter = prop_oneof![
        Just('\''),
        Just('\\'),
        Just('\n'),
        Just('"'),
        Just('$'),
        Just('\u{81}'),
        Just('\u{3042}'),
        Just('\u{85c}'),
        Just('\u{10ffff}'),
        proptest::char::range('\u{1}', '\u{ff}'),
        any::<char>().prop_filter("no NUL", |letter| *letter != '\0'),
    ];
    vec(letter, 0..40).prop_map(String::from_iter)
}

#[test]
fn every_text_and_every_byte_comes_back_as_it_went_in() {
    // PGS-2
    const CASES: usize = 400;
    let Some(server) = server() else { return };
    let mut runner = TestRunner::deterministic();
    let mut drawn = |_| {
        let of_both = (texts(), vec(any::<u8>(), 0..40));
        of_both.new_tree(&mut runner).unwrap().current()
    };
    let values: Vec<(String, Vec<u8>)> = (0..CASES).map(&mut drawn).collect();
    for settings in [
        "",
        "SET standard_conforming_strings = off",
        "SET standard_conforming_strings = off; SET backslash_quote = on",
        // In these the second byte of a letter may be a backslash.
        "SET client_encoding = 'SJIS'; SET standard_conforming_strings = off",
        "SET client_encoding = 'BIG5'",
        "SET client_encoding = 'GB18030'; SET standard_conforming_strings = off",
    ] {
        let session = link(&server.url("postgres"));
        session.batch(settings, LONG).unwrap();
        let mut sql = String::from("SELECT * FROM (VALUES ");
        for (at, (shown, raw)) in values.iter().enumerate() {
            sql.push_str(&format!("{}({at}, encode(convert_to(", if at > 0 { ", " } else { "" }));
            text(&mut sql, shown).unwrap();
            sql.push_str(", 'UTF8'), 'hex'), encode(");
            bytes(&mut sql, raw);
            sql.push_str("::bytea, 'hex'))");
        }
        sql.push_str(") v ORDER BY 1");
        assert!(sql.is_ascii(), "{settings}");
        let found = rows(&session, &sql);
        assert_eq!(found.len(), CASES, "{settings}");
        let hex = |raw: &[u8]| Some(data_encoding::HEXLOWER.encode(raw));
        for ((shown, raw), row) in values.iter().zip(found) {
            assert_eq!(row[1], hex(shown.as_bytes()), "{settings}: {shown:?}");
            assert_eq!(row[2], hex(raw), "{settings}: {raw:?}");
        }
    }
    assert!(text(&mut String::new(), "a\0b").is_err(), "a NUL cannot be sent");
}

#[test]
fn a_run_is_recorded_alike_whatever_the_role_makes_of_literals() {
    // PGS-2, PGS-4
    let Some(stage) = Stage::new() else { return };
    let plain = stage.run("it's \\ 1 \u{3042}", &[], "printf 'a\\\\b\\047\\303\\251'; echo x >&2");
    assert_eq!(plain.code, Some(0), "{plain:?}");
    for setting in
        ["standard_conforming_strings = off", "bytea_output = escape", "datestyle = 'German'"]
    {
        stage.server.sql(&format!("ALTER ROLE postgres SET {setting}"));
    }
    // Bytes are shown in another way now, alike at open and with each write.
    let asked =
        || stage.statements().iter().filter(|text| text.contains("pg_control_system")).count();
    let before = asked();
    let rule = stage.add(Which::Any, When::Commit(1), Act::CutAfterAnswer);
    let odd = stage.run("it's \\ 2 \u{3042}", &[], "printf 'a\\\\b\\047\\303\\251'; echo x >&2");
    assert!(stage.proxy.acted(rule, LONG));
    assert_eq!((odd.code, &odd.stdout), (Some(0), &plain.stdout), "{odd:?}");
    assert_eq!(asked() - before, 2, "at open, and by the re-read");
    let column = "SELECT string_agg(encode(head, 'hex'), ' ' ORDER BY stream) FROM ctrlrun.output";
    let stored = |key: u8| {
        let of_key = format!("{column} WHERE effect_key LIKE '%{key}%'");
        stage.server.sql(&of_key)[0][0].clone().unwrap()
    };
    assert_eq!(stored(2), stored(1));
    assert_eq!(stored(1), "780a 615c6227c3a9");
    let keys = "SELECT count(*) FROM ctrlrun.effects WHERE effect_key ~ '^it.s . [12] \u{3042}$' \
                AND state = 'committed'";
    assert_eq!(stage.server.sql(keys)[0][0].as_deref(), Some("2"));
}

#[test]
fn an_output_too_long_for_a_text_is_written_in_the_same_transaction() {
    // PGS-1
    let Some(stage) = Stage::new() else { return };
    let script = format!("{MARK}; head -c 3000000 /dev/zero | tr '\\0' a; echo b >&2");
    let out = stage.run("k", &["--capture", "4MiB"], &script);
    assert_eq!((out.code, out.stdout.len()), (Some(0), 3_000_000));
    let statements = stage.statements();
    let last = statements.iter().rposition(|text| text == "COMMIT").unwrap();
    let with = |text: &str| text.starts_with("INSERT INTO \"ctrlrun\".output");
    assert!(statements[last - 2..last].iter().all(|text| with(text)), "behind the settle");
    let again = stage.run("k", &["--capture", "4MiB"], &script);
    assert_eq!((again.code, again.stdout.len(), stage.marks()), (Some(0), 3_000_000, 1));
    // Where one of them is not taken, nothing is.
    stage.server.sql(
        "CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER drops BEFORE INSERT ON ctrlrun.output \
         FOR EACH ROW EXECUTE FUNCTION drops()",
    );
    let out = stage.run("none", &["--capture", "4MiB", "--store-timeout", "1s"], &script);
    assert_eq!(out.code, Some(74), "{out:?}");
    assert_eq!(stage.events("none"), ["reserved", "began"]);
}
