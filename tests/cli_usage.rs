//! The command line itself: flags, help, which store, what cannot be meant; `init` and `outcome`.
mod common;

use std::os::unix::fs::PermissionsExt;

use common::fill::Fill;
use common::{TestEnv, finish};

#[test]
fn global_flags_stand_before_and_after_the_command() {
    let env = TestEnv::new();
    Fill::make(&env.path("here/s.db")).committed("k", "x");
    for words in [
        ["--store", "s.db", "--json", "show", "k"],
        ["show", "k", "--store", "s.db", "--json"],
        ["--json", "show", "--store", "s.db", "k"],
    ] {
        let out = env.run(words);
        assert_eq!(out.code, Some(0), "{out:?}");
        assert!(out.stdout.starts_with("{\"key\":\"k\""), "{}", out.stdout);
    }
}

#[test]
fn what_cannot_be_meant_is_64_with_a_hint() {
    // CLI-2, CLI-3, CLI-7
    let env = TestEnv::new();
    insta::assert_snapshot!(env.run(["shwo", "k"]).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: unrecognized subcommand 'shwo'
    ctrlrun:   did you mean: show?
    ctrlrun:   usage: ctrlrun run --key KEY -- CMD [ARG...]
    ctrlrun:   see: ctrlrun --help
    ");
    insta::assert_snapshot!(env.run(["run", "-k", "x", "echo", "hi"]).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: unexpected argument 'echo' found; nothing was run
    ctrlrun:   tip: the command stands behind two dashes: -- CMD [ARG...]
    ctrlrun:   see: ctrlrun run --help
    ");
    insta::assert_snapshot!(env.run(["run", "-k", "x", "--lease", "30", "--", "true"]).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: invalid value '30' for '--lease <DUR>': a duration needs a unit: 30s?; nothing was run
    ctrlrun:   see: ctrlrun run --help
    ");
    insta::assert_snapshot!(env.run(["run", "--", "true"]).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: the following required arguments were not provided: --key <KEY>; nothing was run
    ctrlrun:   usage: ctrlrun run --key KEY [OPTIONS] -- CMD [ARG...]
    ctrlrun:   see: ctrlrun run --help
    ");
    insta::assert_snapshot!(env.run(["effects", "--stuk"]).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: unexpected argument '--stuk' found
    ctrlrun:   did you mean: --stuck?
    ctrlrun:   usage: ctrlrun effects --stuck
    ctrlrun:   see: ctrlrun effects --help
    ");
    insta::assert_snapshot!(env.run(["effects", "--json", "--limit", "0"]).all(&env), @r#"
    exit 64
    --- stderr
    {"advice":[],"causes":[],"error":"usage","exit_status":64,"facts":[],"message":"invalid value '0' for '--limit <N>': 0 is not in 1..18446744073709551615","next":["ctrlrun effects --help"]}
    "#);
    for words in [
        vec!["run", "-k", "x", "--not-executed", "0", "--", "true"],
        vec!["run", "-k", "x", "--lease", "999ms", "--", "true"],
        vec!["run", "-k", "x", "--expect", "0", "--", "true"],
        vec!["run", "-k", "x", "--capture", "64", "--", "true"],
        vec!["run", "-k", "x", "--label", "x", "--", "true"],
        vec!["run", "-k", "x", "--"],
        vec!["show", ""],
        vec!["show", "a\nb"],
        vec!["help", "nonsense"],
    ] {
        let out = env.run(&words);
        assert_eq!((out.code, out.stdout.as_str()), (Some(64), ""), "{words:?}");
        assert!(out.stderr.lines().all(|line| line.starts_with("ctrlrun: ")), "{}", out.stderr);
    }
}

#[test]
fn control_characters_of_a_mistyped_flag_are_escaped() {
    // CLI-5
    let env = TestEnv::new();
    for word in ["--x\u{1b}[2J", "--x\u{202e}y"] {
        let out = env.run(["effects", word]);
        assert_eq!(out.code, Some(64));
        assert!(!out.stderr.contains(['\u{1b}', '\u{202e}']), "{:?}", out.stderr);
    }
}

#[test]
fn help_is_an_answer_and_opens_no_store() {
    // CLI-22
    let env = TestEnv::new();
    for words in [
        vec!["--help"],
        vec!["help"],
        vec!["help", "outcomes"],
        vec!["help", "exit-codes"],
        vec!["help", "keys"],
        vec!["help", "stores"],
        vec!["help", "json"],
        vec!["help", "run"],
        vec!["run", "--help"],
        vec!["resolve", "-h"],
        vec!["--version"],
    ] {
        let mut command = env.command(&words);
        command.env("CTRLRUN_STORE", "");
        let out = finish(&mut command);
        assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""), "{words:?}");
        assert!(!out.stdout.is_empty() && !out.stdout.contains('\u{1b}'), "{words:?}");
    }
    let gone = env.shell("{ ctrlrun run --help; echo $? >&2; } | true");
    assert_eq!(gone.stderr, "0\n");
}

#[test]
fn every_exit_code_that_the_code_knows_is_in_the_help() {
    // CLI-3
    let env = TestEnv::new();
    let text = env.run(["help", "exit-codes"]).stdout;
    for code in [64, 65, 66, 69, 70, 72, 73, 74, 75, 76, 77, 78, 79] {
        assert!(text.contains(&format!("   {code}  ")), "{code}");
    }
}

#[test]
fn alone_it_prints_short_help_and_what_is_stuck() {
    // CLI-7
    let env = TestEnv::new();
    insta::assert_snapshot!(env.run::<&str>([]).all(&env), @r"
    exit 64
    --- stderr
    Usage: ctrlrun run --key KEY -- CMD [ARG...]
           ctrlrun COMMAND ...

      run          Run one command as an effect: once, whatever happens in between
      batch        Run many commands, each as an effect of its own: once, whatever happens in between
      workflow     Run many effects as one: a graph of steps that any number of hosts may drive
      outcome      Inside a command: say whether the effect happened
      effects      List effects, and what became of them [alias: ls]
      show         Show one effect: where it ran, why it stands so, what to do next
      history      List what happened to one effect, oldest first
      output       Print the stored output of an effect, byte for byte [alias: logs]
      resolve      Say what is so of an effect that is stuck
      reconcile    Ask probes whether what is stuck has happened
      init         Make a store; changes nothing where it is there already
      verify       Show that the guarantees hold on your own store's kind, place and version
      doctor       Look at the store and say what about it has to be mended
      prune        Drop the stored output of effects that were settled long ago, or forget them
      stats        Count effects by state, and what needs a decision
      completions  Print a completion script for a shell
      man          Print a manual page
      help         Explain a topic, or a command

    More: ctrlrun --help, and ctrlrun help outcomes | exit-codes | probes | keys | stores | config | json
    ");
    let fill = Fill::make(&env.default_store());
    assert!(!env.run::<&str>([]).stderr.contains("ctrlrun: "));
    fill.ambiguous("k");
    let first = env.run::<&str>([]).stderr;
    let first = env.neutral(first.lines().next().unwrap());
    assert!(first.starts_with("ctrlrun: 1 effect needs a decision in [ROOT]/home/"), "{first}");
}

#[test]
fn a_store_that_is_set_and_cannot_be_meant_is_78_and_nothing_is_made() {
    // Case 61, CLI-1
    let env = TestEnv::new();
    let with = |name: &str, value: &str| {
        let mut command = env.command(["effects"]);
        command.env(name, value);
        finish(&mut command).all(&env)
    };
    insta::assert_snapshot!(with("CTRLRUN_STORE", ""), @r"
    exit 78
    --- stderr
    ctrlrun: CTRLRUN_STORE is set but empty: nothing was done. Unset it to use the default store, or give it a value
    ");
    insta::assert_snapshot!(with("HOME", "/"), @r"
    exit 78
    --- stderr
    ctrlrun: HOME (/) is the root directory, which is nobody's home: no default store can be chosen, nothing was done
    ctrlrun:   name the store: --store PATH, or CTRLRUN_STORE=PATH
    ");
    insta::assert_snapshot!(with("XDG_STATE_HOME", "state"), @r"
    exit 78
    --- stderr
    ctrlrun: XDG_STATE_HOME (state) is not an absolute path, so the store would depend on the working directory: no default store can be chosen, nothing was done
    ctrlrun:   name the store: --store PATH, or CTRLRUN_STORE=PATH
    ");
    insta::assert_snapshot!(env.run(["effects", "--store="]).all(&env), @r"
    exit 78
    --- stderr
    ctrlrun: --store is set but empty: nothing was done. Leave it out to use the default store, or give it a value
    ");
    let secret = env.run(["effects", "--store", "mysql://u:hush@h/db"]);
    assert_eq!(secret.code, Some(78));
    assert!(!secret.stderr.contains("hush"), "{}", secret.stderr);
    for folder in ["home", "here"] {
        assert!(std::fs::read_dir(env.path(folder)).unwrap().next().is_none());
    }
}

#[test]
fn somebody_elses_home_is_not_ours() {
    // Case 61, CLI-1. Only root can make a directory somebody else's; another user takes root's.
    let env = TestEnv::new();
    let theirs = env.path("theirs");
    std::fs::create_dir(&theirs).unwrap();
    let home = if nix::unistd::geteuid().is_root() {
        nix::unistd::chown(&theirs, Some(65_534.into()), None).unwrap();
        theirs.clone()
    } else {
        "/usr".into()
    };
    let mut command = env.command(["init"]);
    command.env("HOME", home);
    let out = finish(&mut command);
    assert_eq!(out.code, Some(78), "{out:?}");
    assert!(out.stderr.contains("belongs to"), "{}", out.stderr);
    assert!(std::fs::read_dir(theirs).unwrap().next().is_none());
}

#[test]
fn without_home_it_is_the_password_entrys() {
    // Case 61, CLI-1
    let env = TestEnv::new();
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap();
    // Looking makes nothing, so the real home is safe.
    let mut command = env.command(["show", "ctrlrun-test-of-no-such-key"]);
    command.env_remove("HOME");
    let out = finish(&mut command);
    let store = user.dir.join(".local/state/ctrlrun/effects.db");
    assert!(out.stderr.contains(store.to_str().unwrap()), "{}", out.stderr);
}

#[test]
fn the_store_does_not_depend_on_the_working_directory() {
    // CLI-1
    let env = TestEnv::new();
    Fill::make(&env.default_store()).committed("k", "x");
    for folder in ["here", "tmp"] {
        let mut command = env.command(["show", "--check", "k"]);
        command.current_dir(env.path(folder));
        assert_eq!(finish(&mut command).code, Some(0));
    }
}

#[test]
fn init_makes_a_store_once() {
    // CLI-22, STO-7
    let env = TestEnv::new();
    insta::assert_snapshot!(env.run(["init", "--store", "s.db", "-q"]).all(&env), @r"
    exit 0
    --- stderr
    ctrlrun: made [ROOT]/here/s.db (schema version 2)
    ");
    let before = std::fs::read(env.path("here/s.db")).unwrap();
    insta::assert_snapshot!(env.run(["init", "--store", "s.db", "-q"]).all(&env), @r"
    exit 0
    --- stderr
    ctrlrun: [ROOT]/here/s.db is there already (schema version 2)
    ");
    let out = env.run(["init", "--store", "s.db", "--json", "-q"]);
    insta::assert_snapshot!(out.all(&env), @r#"
    exit 0
    --- stdout
    {"made":false,"schema_version":2,"store":"[ROOT]/here/s.db"}
    "#);
    assert_eq!(std::fs::read(env.path("here/s.db")).unwrap(), before);
    let mode = std::fs::metadata(env.path("here/s.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(env.run(["effects", "--store", "s.db"]).code, Some(0));
}

#[test]
fn a_command_says_of_itself_what_is_so() {
    // CLI-21
    let env = TestEnv::new();
    insta::assert_snapshot!(env.run(["outcome", "committed"]).all(&env), @r"
    exit 64
    --- stderr
    ctrlrun: CTRLRUN_OUTCOME_FILE is not set: `outcome` works inside a command of `ctrlrun run`; nothing was said
    ");
    let file = env.path("tmp/outcome");
    std::fs::write(&file, "").unwrap();
    let say = |words: &[&str]| {
        let mut all = vec!["outcome"];
        all.extend(words);
        let mut command = env.command(all);
        // It touches no store: a setting that no store could be chosen by is not looked at.
        command.env("CTRLRUN_OUTCOME_FILE", &file).env("CTRLRUN_STORE", "");
        finish(&mut command)
    };
    for words in [&["committed", "re_5512"][..], &["clear"], &["not-executed", "no account"]] {
        let out = say(words);
        assert_eq!((out.code, out.stderr.as_str(), out.stdout.as_str()), (Some(0), "", ""));
    }
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "# re_5512\ncommitted\nclear\n# no account\nnot-executed\n"
    );
    assert_eq!(say(&["maybe"]).code, Some(64));
    std::fs::remove_file(&file).unwrap();
    let gone = say(&["committed"]);
    assert_eq!(gone.code, Some(66), "{gone:?}");
    assert!(!file.exists());
}

#[test]
fn an_error_with_json_is_one_object_on_stderr() {
    // CLI-6
    let env = TestEnv::new();
    Fill::make(&env.default_store()).committed("k", "x");
    for (words, code) in [
        (vec!["show", "nobody", "--json"], 66),
        (vec!["--json", "resolve", "k", "--committed", "--expect", "9", "--reason", "r"], 79),
        (vec!["effects", "--json", "--nope"], 64),
        (vec!["effects", "--json", "--store", "absent.db"], 78),
    ] {
        let out = env.run(&words);
        assert_eq!((out.code, out.stdout.as_str()), (Some(code), ""), "{words:?}");
        let object: serde_json::Value = serde_json::from_str(&out.stderr).unwrap();
        assert_eq!(object["exit_status"], code);
        for field in ["error", "message", "next"] {
            assert!(object.get(field).is_some(), "{field}");
        }
    }
}

#[test]
fn colour_comes_when_it_is_asked_for() {
    let env = TestEnv::new();
    Fill::make(&env.default_store()).ambiguous("k");
    let has = |words: &[&str]| env.run(words).stdout.contains('\u{1b}');
    assert!(!has(&["show", "k"]));
    assert!(has(&["show", "k", "--color", "always"]));
    assert!(has(&["effects", "--color", "always"]));
    assert!(!has(&["effects", "--color", "never"]));
}

#[test]
fn a_stderr_that_is_gone_changes_no_exit_status() {
    let env = TestEnv::new();
    assert_eq!(env.shell("ctrlrun show k 2>&-").code, Some(78));
    assert_eq!(env.shell("ctrlrun show k 2>/dev/full").code, Some(78));
}
