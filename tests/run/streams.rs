//! Output, and what the child inherits.
use std::fs;
use std::process::Command;

use crate::at::{Kind, MARK, Place, error_of, fed, on_every_store};
use crate::common::{BINARY, finish};

on_every_store!(
    a_reader_that_goes_away_keeps_no_outcome_from_being_recorded,
    both_streams_and_stdin_pass_byte_for_byte,
    more_output_than_memory_passes_through_whole,
    a_child_inherits_what_is_the_callers_and_nothing_of_ours,
);

/// A shell line on this store, with `ctrlrun` in the PATH.
fn shell(at: &Place, line: &str) -> crate::common::Output {
    at.env.shell(&format!(
        "export CTRLRUN_STORE='{}' PLACE={} CTRLRUN={BINARY}; {line}",
        at.store(),
        at.env.path("").display()
    ))
}

fn a_reader_that_goes_away_keeps_no_outcome_from_being_recorded(kind: Kind) {
    // Case 7; EXE-16
    let at = Place::new(kind);
    let script = format!("seq 100000; {MARK}");
    for (number, line) in [
        "ctrlrun run -k K -- sh -c 'S' | head -1",
        "ctrlrun run -k K -- sh -c 'S' >/dev/full",
        "ctrlrun run -k K -- sh -c 'S' >&-",
        "ctrlrun run -k K -- sh -c 'S' 2>&- | tail -1",
        "ctrlrun run -k K -- sh -c 'S' >/dev/null 2>/dev/full",
        "ctrlrun run --capture none -k K -- sh -c 'S' | head -1",
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("k:{number}");
        let line = line.replace('K', &key).replace('S', &script.replace('\'', "'\\''"));
        let end = shell(&at, &line);
        assert!(!end.stderr.contains("panicked"), "{line}: {end:?}");
        assert_eq!(at.state(&key), "committed", "{line}: {end:?}");
        assert_eq!(at.marks(), number + 1, "{line}");
    }
    // What was cut off by a reader is not passed off as whole.
    assert_eq!(at.show("k:0")["stdout_truncated"], true);

    // The child meets the closed pipe that it would have met without us.
    let end = shell(&at, "ctrlrun run -k yes -- yes | head -1");
    assert_eq!(end.stdout, "y\n");
    assert_eq!((at.state("yes").as_str(), &at.show("yes")["signal"]), ("ambiguous", &13.into()));
    let inside = shell(&at, "ctrlrun run -k in -- sh -c 'yes | head -1'");
    assert_eq!((inside.code, inside.stdout.as_str()), (Some(0), "y\n"), "{inside:?}");
}

fn both_streams_and_stdin_pass_byte_for_byte(kind: Kind) {
    // Case 22; EXE-15, EXE-19
    let at = Place::new(kind);
    let bytes: Vec<u8> =
        (0..10_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let big = at.env.path("big");
    fs::write(&big, &bytes).unwrap();
    let whole = at.run("err", &[], r#"cat "$PLACE/big" >&2"#).output().unwrap();
    assert_eq!((whole.stdout.len(), whole.stderr == bytes), (0, true));
    let fed = fed(&mut at.run("in", &[], "cat"), bytes.clone());
    assert!(fed.stdout == bytes && fed.stderr.is_empty());
    let turns = r#"for i in 1 2 3 4; do head -c 300000 "$PLACE/big"; head -c 300000 "$PLACE/big" >&2; done"#;
    let turns = at.run("turns", &[], turns).output().unwrap();
    let expected = bytes[..300_000].repeat(4);
    assert!(turns.stdout == expected && turns.stderr == expected);
    let nothing = at.run("none", &["-n"], "cat").output().unwrap();
    assert_eq!((nothing.status.code(), nothing.stdout.len()), (Some(0), 0));
}

fn more_output_than_memory_passes_through_whole(kind: Kind) {
    // Case 23; EXE-15, CLI-9, CLI-18
    let at = Place::new(kind);
    let mut limited = Command::new("sh");
    let run = at.run("k", &[], "head -c 200000000 /dev/zero");
    limited.args(["-c", r#"ulimit -v 131072; exec "$@""#, "sh"]).arg(run.get_program());
    limited.args(run.get_args()).env_clear();
    for (name, value) in run.get_envs() {
        limited.env(name, value.unwrap());
    }
    let count = at.env.path("count");
    let mut wc = Command::new("wc")
        .arg("-c")
        .stdin(std::process::Stdio::piped())
        .stdout(fs::File::create(&count).unwrap())
        .spawn()
        .unwrap();
    limited.stdout(wc.stdin.take().unwrap());
    let end = limited.output().unwrap();
    drop(limited);
    wc.wait().unwrap();
    assert!(end.status.success(), "{end:?}");
    assert_eq!(fs::read_to_string(&count).unwrap().trim(), "200000000");
    let shown = at.show("k");
    assert_eq!(
        (&shown["stdout_bytes"], &shown["stdout_truncated"]),
        (&200_000_000.into(), &true.into())
    );
    let kept = at.ask(&["output", "k"]);
    assert_eq!(kept.stdout.len(), 64 << 10);
    assert!(kept.stderr.contains("200,000,000"), "{}", kept.stderr);
    // A truncated output is never passed off as whole.
    let replay = finish(&mut at.run("k", &[], "head -c 200000000 /dev/zero"));
    assert_eq!((replay.code, replay.stdout.as_str()), (Some(0), ""));
    assert!(replay.stderr.contains("its output is not printed"), "{}", replay.stderr);
}

fn a_child_inherits_what_is_the_callers_and_nothing_of_ours(kind: Kind) {
    // EXE-19, EXE-20, KEY-7
    let at = Place::new(kind);
    fs::write(at.env.path("nine"), "").unwrap();
    let script = r#"cd "$PLACE"; ls -l /proc/$$/fd >fds; umask >umask; env >env"#;
    let flags = "--attempt-id mine --report $PLACE/report";
    let end = shell(
        &at,
        &format!("umask 027; ctrlrun run -k K {flags} -- sh -c '{script}' 9<$PLACE/nine"),
    );
    assert_eq!(end.code, Some(0), "{end:?}");
    let read = |name: &str| fs::read_to_string(at.env.path(name)).unwrap();
    let fds: Vec<String> = read("fds")
        .lines()
        .filter_map(|line| {
            line.split_once(" -> ")
                .map(|(before, to)| format!("{} {to}", before.rsplit(' ').next().unwrap()))
        })
        .collect();
    let open: Vec<&str> = fds.iter().map(|fd| fd.split(' ').next().unwrap()).collect();
    // 10 and up are the shell's own.
    let foreign = |fd: &&str| fd.parse::<u32>().unwrap() < 10;
    let mut open: Vec<&str> = open.into_iter().filter(foreign).collect();
    open.sort_unstable();
    assert_eq!(open, ["0", "1", "2", "9"], "{fds:?}");
    assert!(fds.iter().any(|fd| fd.ends_with("/nine")), "{fds:?}");
    assert!(
        !fds.iter()
            .any(|fd| fd.contains("effects.db") || fd.contains("socket:") || fd.contains("report")),
        "{fds:?}"
    );
    assert_eq!(read("umask").trim(), "0027");
    // As without us: masks and dispositions of whoever runs the tests are the caller's.
    let probe = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"];
    let without = finish(Command::new(probe[0]).args(&probe[1..]));
    let with = finish(&mut at.run_words("signals", &[], &probe));
    assert_eq!((with.code, &with.stdout), (Some(0), &without.stdout));
    let env = read("env");
    let value = |name: &str| {
        let line = env.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("{name} is not set: {env}")).to_owned()
    };
    assert_eq!(value("CTRLRUN_KEY"), "K");
    assert_eq!(value("CTRLRUN_ATTEMPT"), "1");
    assert_eq!(value("CTRLRUN_ATTEMPT_ID"), "mine");
    assert!(value("CTRLRUN_OUTCOME_FILE").starts_with(at.env.path("tmp").to_str().unwrap()));
    let id = uuid::Uuid::parse_str(&value("CTRLRUN_IDEMPOTENCY_KEY")).unwrap();
    assert_eq!(id.get_version_num(), 8);
    assert_eq!(at.show("K")["idempotency_key"], id.to_string());

    // Another key for the remote only where it is proven that nothing happened (EFF-8, EFF-9).
    let ids = r#"echo "$CTRLRUN_IDEMPOTENCY_KEY" >>"$PLACE/ids"; exit "$(cat "$PLACE/code")""#;
    for (code, after) in [("3", ""), ("4", "--not-executed"), ("0", "")] {
        fs::write(at.env.path("code"), code).unwrap();
        let end = finish(&mut at.run("id", &["--not-executed", "3", "--json"], ids));
        assert_eq!(end.code, Some(code.parse().unwrap()), "{end:?}");
        if !after.is_empty() {
            assert_eq!(error_of(&end)["error"], "ambiguous");
            at.resolve("id", after);
        }
    }
    let ids = read("ids");
    let ids: Vec<&str> = ids.lines().collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids[1], ids[2]);
}
