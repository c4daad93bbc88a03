//! `ctrlrun.toml`, with real files and the binary (CFG clauses).
mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use common::fill::Fill;
use common::{Output, TestEnv, finish};
use serde_json::Value;

/// An effect that appends a line to `marker`, the oracle.
const MARK: &str = r#"
[effect.mark]
key = "mark:{id}"
command = ["sh", "-c", "echo \"$1\" >>\"$HOME/marker\"; exit $2", "sh", "{id}", "{exit}"]
not_executed = [11]
"#;

fn write(env: &TestEnv, name: &str, text: &str) -> PathBuf {
    let path = env.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    path
}

fn user(env: &TestEnv, text: &str) -> PathBuf {
    write(env, "home/.config/ctrlrun/ctrlrun.toml", text)
}

fn marks(env: &TestEnv) -> Vec<String> {
    let text = fs::read_to_string(env.path("home/marker")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn show(env: &TestEnv, key: &str) -> Value {
    let shown = env.run(["show", key, "--json"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    serde_json::from_str(&shown.stdout).unwrap()
}

fn ok(output: Output) -> Output {
    assert_eq!(output.code, Some(0), "{output:?}");
    output
}

#[test]
fn an_effect_by_its_name_is_what_was_typed() {
    // CFG-10
    let env = TestEnv::new();
    write(&env, "here/ctrlrun.toml", MARK);
    ok(env.run(["run", "mark", "id=a b; $(x)", "exit=0"]));
    assert_eq!(marks(&env), ["a b; $(x)"]);
    // Typed in full it is the same effect, and the same request.
    let script = "echo \"$1\" >>\"$HOME/marker\"; exit $2";
    let again = ok(env.run([
        "run",
        "-k",
        "mark:a b; $(x)",
        "--",
        "sh",
        "-c",
        script,
        "sh",
        "a b; $(x)",
        "0",
    ]));
    assert!(
        again.stderr.contains("NOTHING WAS RUN") || again.stderr.contains("nothing was run"),
        "{again:?}"
    );
    assert_eq!(marks(&env).len(), 1);
    // Another value of what is no part of the key is another command on that key.
    let other = env.run(["run", "mark", "id=a b; $(x)", "exit=1"]);
    assert_eq!(other.code, Some(65), "{other:?}");
    // What is declared there holds, and a flag stands before it.
    assert_eq!(env.run(["run", "mark", "id=b", "exit=11", "--exit", "outcome"]).code, Some(1));
    let flag = ["run", "mark", "id=c", "exit=11", "--exit", "outcome", "--not-executed", "6"];
    assert_eq!(env.run(flag).code, Some(76));
    assert_eq!(show(&env, "mark:c")["state"], "ambiguous");
}

#[test]
fn what_a_named_effect_cannot_be_run_with_is_64() {
    // CFG-10, CFG-3
    let env = TestEnv::new();
    insta::assert_snapshot!(env.run(["run", "mark", "id=a"]).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: no effect mark is configured; nothing was run
    ctrlrun:   configuration: none was found
    ctrlrun:   to run a command: ctrlrun run --key KEY -- CMD [ARG...]
    ");
    write(&env, "here/ctrlrun.toml", MARK);
    insta::assert_snapshot!(env.run(["run", "makr", "id=a"]).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: no effect makr is configured (mark?); nothing was run
    ctrlrun:   configured: mark
    ctrlrun:   configuration: [ROOT]/here/ctrlrun.toml
    ctrlrun:   to run a command: ctrlrun run --key KEY -- CMD [ARG...]
    ");
    insta::assert_snapshot!(env.run(["run", "mark", "id=a"]).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: effect mark needs a value for exit; nothing was run
    ctrlrun:   usage: ctrlrun run mark id=... exit=...
    ");
    insta::assert_snapshot!(env.run(["run", "mark", "ID=a", "exit=0"]).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: effect mark has no parameter ID (id?); nothing was run
    ctrlrun:   usage: ctrlrun run mark id=... exit=...
    ");
    insta::assert_snapshot!(env.run(["run", "mark", "id=", "exit=0"]).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: effect mark: the value of {id} cannot be used: it is empty: a field that was not there?; nothing was run
    ctrlrun:   usage: ctrlrun run mark id=... exit=...
    ");
    insta::assert_snapshot!(env.run(["run", "mark", "id=null", "exit=0"]).all(&env), @r#"
    exit 64
    --- stderr
    ctrlrun: mark:null: refused, nothing was run: part 2 of the key is "null": a variable or a field that was not there?
    ctrlrun:   if that is the name: --key-as-is
    "#);
    for words in [
        &["mark", "id=a", "id=b", "exit=0"][..],
        &["mark", "id", "exit=0"],
        &["mark", "id=a\nb", "exit=0"],
        &["mark", "id=a ", "exit=0"],
        &["mark", "id=a", "exit=0", "-k", "k"],
        &["mark", "id=a", "exit=0", "--", "true"],
    ] {
        let out = env.run(["run"].iter().chain(words));
        assert_eq!(out.code, Some(64), "{words:?}: {out:?}");
        assert!(out.stderr.contains("nothing was run"), "{words:?}: {out:?}");
    }
    assert_eq!(marks(&env).len(), 0);
    assert!(!env.default_store().exists());
}

#[test]
fn a_dry_run_by_name_says_what_would_happen() {
    // CFG-10, CLI-13
    let env = TestEnv::new();
    write(&env, "here/ctrlrun.toml", MARK);
    let out = ok(env.run(["run", "mark", "id=a", "exit=0", "--dry-run"]));
    assert_eq!(
        out.stderr,
        "ctrlrun: mark:a: would make the default store, and run as attempt 1; nothing was run\n"
    );
    assert_eq!(env.run(["run", "mark", "--dry-run"]).code, Some(64));
    assert!(!env.default_store().exists());
}

#[test]
fn flag_then_environment_then_file_then_default() {
    // CFG-8, CLI-1, STO-11
    let env = TestEnv::new();
    for name in ["a", "b", "c"] {
        Fill::make(&env.path(name)).committed(name, "x");
    }
    let file = user(&env, "[store]\nurl = \"../../../c\"\n");
    let list = |words: &[&str], variable: Option<&str>| {
        let mut command = env.command(["effects", "-v"]);
        command.args(words);
        if let Some(name) = variable {
            command.env("CTRLRUN_STORE", env.path(name));
        }
        ok(finish(&mut command))
    };
    let first = env.path("a").to_str().unwrap().to_owned();
    assert!(list(&["--store", &first], Some("b")).stdout.contains("a  "));
    assert!(list(&[], Some("b")).stdout.contains("b  "));
    let of_file = list(&[], None);
    assert!(of_file.stdout.contains("c  "), "{of_file:?}");
    assert!(of_file.stderr.contains(&format!("(from {})", file.display())), "{of_file:?}");
    // A named store is not made, whoever named it (STO-7).
    fs::remove_file(env.path("c")).unwrap();
    let out = env.run(["run", "-k", "k", "--", "true"]);
    assert_eq!(out.code, Some(78), "{out:?}");
    assert!(out.stderr.contains("ctrlrun init --store"), "{out:?}");
    ok(env.run(["init"]));
    ok(env.run(["run", "-k", "k", "--", "true"]));
    assert!(env.path("c").exists() && !env.default_store().exists());
}

#[test]
fn defaults_hold_where_no_flag_says_otherwise() {
    // CFG-8
    let env = TestEnv::new();
    user(&env, "[defaults]\nlease = \"90s\"\ncapture = \"none\"\n");
    let lease = |words: &[&str]| {
        let key = format!("k:{}", words.join("-"));
        let mut all = vec!["run", "-k", &key];
        all.extend(words);
        all.extend(["--", "echo", "hi"]);
        ok(env.run(all));
        let history = ok(env.run(["history", &key, "--json"])).stdout;
        let began = history.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let began = began.into_iter().find(|event| event["type"] == "began").unwrap();
        let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let lease =
            time(&began["data"]["lease_expires_at"]).duration_since(time(&began["recorded_at"]));
        (lease.as_secs(), show(&env, &key)["stdout_bytes"].clone())
    };
    assert_eq!(lease(&["-q"]), (90, 0.into()));
    assert_eq!(lease(&["--lease", "2m"]), (120, 0.into()));
    assert_eq!(lease(&["--capture", "1KiB"]), (90, 3.into()));
    write(&env, "here/ctrlrun.toml", "[defaults]\nlease = \"30s\"\n");
    assert_eq!(lease(&["--quiet"]), (30, 0.into()));
}

#[test]
fn the_store_keeps_of_a_command_what_the_file_says() {
    // CFG-11, CLI-14, case 58
    let env = TestEnv::new();
    let run = |key: &str| ok(env.run(["run", "-k", key, "--", "printf", "%s", "a:s3cret"]));
    let store = || fs::read(env.default_store()).unwrap();
    let holds = |bytes: &[u8]| bytes.windows(6).any(|six| six == b"s3cret");
    user(&env, "[defaults]\ncapture = \"none\"\n");
    run("program");
    assert_eq!(show(&env, "program")["program"], "printf");
    user(&env, "[defaults]\ncapture = \"none\"\nrecord_command = \"none\"\n");
    run("none");
    let shown = show(&env, "none");
    assert_eq!((&shown["program"], &shown["arguments"]), (&"".into(), &0.into()));
    assert!(ok(env.run(["show", "none"])).stdout.contains("a command that is not recorded"));
    let other = env.run(["run", "-k", "none", "--", "printf", "%s", "b"]);
    assert_eq!(other.code, Some(65), "{other:?}");
    assert!(other.stderr.contains("how they differ is not recorded"), "{other:?}");
    let ambiguous = env.run(["run", "-k", "bad", "--", "sh", "-c", "exit 7"]);
    assert!(ambiguous.stderr.contains("sh exited 7"), "{ambiguous:?}");
    assert!(!holds(&store()));
    user(&env, "[defaults]\ncapture = \"none\"\nrecord_command = \"full\"\n");
    run("full");
    assert_eq!(show(&env, "full")["command"], serde_json::json!(["printf", "%s", "a:s3cret"]));
    let other = env.run(["run", "-k", "full", "--", "printf", "%s", "b:s3cret"]);
    assert!(other.stderr.contains("argument 2 differs"), "{other:?}");
    assert!(!other.stderr.contains("s3cret"), "{other:?}");
    // It is no part of the request: the first is still the same one.
    let again = run("program");
    assert!(again.stderr.to_lowercase().contains("nothing was run"), "{again:?}");
}

#[test]
fn a_mistake_ends_every_command_that_would_look_at_it() {
    // CFG-6, CLI-12
    let env = TestEnv::new();
    let path = user(&env, "[defaults]\nleaze = \"5m\"\n");
    let report = env.path("report");
    let named = report.to_str().unwrap();
    let out =
        env.run(["run", "-k", "k", "--report", named, "--", "sh", "-c", "echo >>$HOME/marker"]);
    assert_eq!((out.code, marks(&env).len()), (Some(78), 0), "{out:?}");
    assert!(
        out.stderr.starts_with(&format!("ctrlrun: {}:2:1: unknown field `leaze`", path.display())),
        "{out:?}"
    );
    let written: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!((&written["ran"], &written["exit_status"]), (&false.into(), &78.into()));
    for words in [
        &["effects"][..],
        &["show", "k"],
        &["resolve", "k", "--committed", "--expect", "1", "--reason", "x"],
        &["doctor"],
        &["init"],
        &[],
    ] {
        assert_eq!(env.run(words).code, Some(78), "{words:?}");
    }
    let json = env.run(["effects", "--json"]);
    let error: Value = serde_json::from_str(&json.stderr).unwrap();
    assert_eq!((&error["error"], &error["exit_status"]), (&"config".into(), &78.into()));
    ok(env.run(["help", "config"]));
    ok(env.run(["--version"]));
    // What runs nothing does not look above the working directory.
    fs::remove_file(path).unwrap();
    write(&env, "here/ctrlrun.toml", "oops");
    ok(env.run(["run", "--config", "/dev/null", "-k", "k", "--", "true"]));
    ok(env.run(["effects"]));
    assert_eq!(env.run(["run", "-k", "k", "--", "true"]).code, Some(78));
    assert!(!env.path("home/marker").exists());
}

#[test]
fn a_file_in_a_folder_that_everybody_may_write_to_is_refused() {
    // CFG-9, case 61
    let env = TestEnv::new();
    write(&env, "here/ctrlrun.toml", MARK);
    fs::create_dir(env.path("here/below")).unwrap();
    fs::set_permissions(env.path("here"), fs::Permissions::from_mode(0o777)).unwrap();
    let out = finish(
        env.command(["run", "-k", "k", "--", "sh", "-c", "echo >>$HOME/marker"])
            .current_dir(env.path("here/below")),
    );
    insta::assert_snapshot!(out.all(&env), @r"
    exit 78
    --- stderr
    ctrlrun: [ROOT]/here/ctrlrun.toml: this configuration is refused: everybody may write to its folder: nothing was done
    ctrlrun:   if it is to be used: name it by --config or CTRLRUN_CONFIG
    ");
    assert!(marks(&env).is_empty() && !env.default_store().exists());
}

#[test]
fn a_report_never_takes_the_place_of_a_store() {
    // CLI-12: with a file that cannot be read nobody knows which store it would be.
    let env = TestEnv::new();
    let store = env.path("s.db");
    Fill::make(&store).committed("k", "x");
    let before = fs::read(&store).unwrap();
    user(&env, "oops");
    let named = store.to_str().unwrap();
    let out = env.run(["run", "-k", "k", "--report", named, "--", "true"]);
    assert_eq!(out.code, Some(78), "{out:?}");
    assert!(fs::read(&store).unwrap() == before);
}

#[test]
fn the_spool_is_where_the_file_says() {
    // CFG-8, EXE-23
    let env = TestEnv::new();
    user(&env, "[spool]\ndir = \"kept\"\n");
    let found = env.run(["doctor", "--json"]).stdout;
    let kept = env.path("home/.config/ctrlrun/kept");
    assert!(found.contains(kept.to_str().unwrap()), "{found}");
    let mut command = env.command(["doctor", "--json"]);
    command.env("CTRLRUN_SPOOL", env.path("other"));
    assert!(finish(&mut command).stdout.contains(env.path("other").to_str().unwrap()));
}

#[test]
fn init_writes_a_configuration_once() {
    // CFG-12
    let env = TestEnv::new();
    insta::assert_snapshot!(env.run(["init", "--config"]).all(&env), @r"
    exit 0
    --- stderr
    ctrlrun: made ctrlrun.toml: all of it is commented out, so nothing has changed yet
    ");
    let path = env.path("here/ctrlrun.toml");
    assert!(!env.default_store().exists());
    fs::write(&path, "# mine\n").unwrap();
    insta::assert_snapshot!(env.run(["init", "--config", "--json"]).all(&env), @r#"
    exit 0
    --- stdout
    {"config":"ctrlrun.toml","made":false}
    "#);
    assert_eq!(fs::read_to_string(&path).unwrap(), "# mine\n");
    // A file that is there is the configuration in force.
    let named = write(&env, "etc/c.toml", "[store]\nurl = \"s.db\"\n");
    for words in [
        ["init", "--config", named.to_str().unwrap()],
        ["--config", named.to_str().unwrap(), "init"],
    ] {
        ok(env.run(words));
    }
    assert!(env.path("etc/s.db").exists() && !env.default_store().exists());
    // One that is not there is written, and with a store named that is made as well.
    let new = env.path("new.toml");
    ok(env.run(["init", "--config", new.to_str().unwrap(), "--store", "t.db"]));
    assert!(new.exists() && env.path("here/t.db").exists());
    // Through a link nothing is written.
    std::os::unix::fs::symlink("nowhere", env.path("here/l.toml")).unwrap();
    let out = env.run(["init", "--config", "l.toml"]);
    assert_eq!(out.code, Some(78), "{out:?}");
    assert!(!env.path("here/nowhere").exists());
    assert_eq!(env.run(["init", "--config="]).code, Some(78));
    assert_eq!(env.run(["init", "--config", "/nowhere/c.toml"]).code, Some(66));
}
