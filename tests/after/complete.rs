//! TAB in real shells, on a terminal (AFT-12, AFT-13).
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::at::{Kind, Place};
use crate::common::{Output, finish};
use crate::pty::Session;
use crate::real::words;

/// A store with keys that a shell could trip over.
fn filled() -> Place {
    let at = Place::new(Kind::Sqlite);
    for key in ["refund:txn_1", "mail:a b", "$(touch $PLACE/pwned)", "it's", "évora:ü"] {
        let out = finish(&mut at.run(key, &["--key-as-is"], "true"));
        assert_eq!(out.code, Some(0), "{out:?}");
    }
    assert_eq!(finish(&mut at.run("doubt:1", &[], "exit 9")).code, Some(9));
    at
}

/// A shell of a place, with the script for it to read, and a `seen` that shows its arguments.
fn shell(at: &Place, program: &str, flags: &[&str]) -> Session {
    let name = format!("init.{program}");
    let made = at.env.run(["completions", program]);
    assert_eq!(made.code, Some(0), "{made:?}");
    fs::write(crate::real::scripts(at).join(&name), made.stdout).unwrap();
    let mut command: Command = words(at, &[program]);
    command.args(flags).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    Session::start(&command)
}

/// Types the line, and what completes it, and sees what it prints.
fn becomes(session: &mut Session, typed: &str, printed: &str) {
    session.types(typed);
    session.types("\t");
    session.types(" >\"$PLACE/got\"; cat \"$PLACE/got\"; echo _end_$((1+1))\r");
    session.shows(printed);
    session.shows("_end_2");
}

#[test]
fn bash_completes_commands_flags_and_keys() {
    // AFT-12, AFT-13
    let at = filled();
    let mut bash = shell(&at, "bash", &["--norc", "--noprofile", "-i"]);
    bash.types("bind 'set enable-bracketed-paste off'; . ./init.bash; echo ready_$((1+1))\r");
    bash.shows("ready_2");
    becomes(&mut bash, "ctrlrun show refund:t", "refund:txn_1   COMMITTED");
    becomes(&mut bash, "ctrlrun show ref", "refund:txn_1   COMMITTED");
    becomes(&mut bash, "ctrlrun show mail", "mail:a b   COMMITTED");
    becomes(&mut bash, "ctrlrun show 'mail", "mail:a b   COMMITTED");
    becomes(&mut bash, "ctrlrun show \\$", "$(touch $PLACE/pwned)   COMMITTED");
    becomes(&mut bash, "ctrlrun show it", "it's   COMMITTED");
    becomes(&mut bash, "ctrlrun hist", "usage");
    bash.types("exit\r");
    bash.end();
    assert!(!at.env.path("pwned").exists());
}

#[test]
fn runs_are_completed_by_their_names() {
    // AFT-13
    let at = Place::new(Kind::Sqlite);
    let file = at.env.path("here/w.toml");
    fs::write(&file, "name = 'w'\n[node.a]\ncommand = ['true']\n").unwrap();
    let file = file.to_str().unwrap();
    for (verb, id) in [("run", "night 1"), ("start", "night2")] {
        let out = finish(&mut at.ctrlrun(&["workflow", verb, file, "--id", id]));
        assert_eq!(out.code, Some(0), "{out:?}");
    }
    let offered = |line: &[&str]| {
        let mut asked = vec!["ctrlrun", "__complete", "fish", "--", "ctrlrun", "workflow"];
        asked.extend(line);
        finish(&mut words(&at, &asked)).stdout
    };
    let both = "words\nnight 1\tw, succeeded\nnight2\tw, running\n";
    for line in [&["status", ""][..], &["run", "--id", ""], &["work", "--only", "n"]] {
        assert_eq!(offered(line), both, "{line:?}");
    }
    for line in [&["cancel", ""][..], &["signal", "n"]] {
        assert_eq!(offered(line), "words\nnight2\tw, running\n", "{line:?}");
    }
    assert!(offered(&["st"]).contains("status\tHow a run stands"));
}

#[test]
fn zsh_completes_keys() {
    // AFT-12, AFT-13
    let at = filled();
    let mut zsh = shell(&at, "zsh", &["-f", "-i"]);
    zsh.types(
        "PS1='$ '; autoload -Uz compinit; compinit -u -D; . ./init.zsh; echo ready_$((1+1))\r",
    );
    zsh.shows("ready_2");
    becomes(&mut zsh, "ctrlrun show refund:t", "refund:txn_1   COMMITTED");
    becomes(&mut zsh, "ctrlrun show mail", "mail:a b   COMMITTED");
    becomes(&mut zsh, "ctrlrun show \\$", "$(touch $PLACE/pwned)   COMMITTED");
    zsh.types("exit\r");
    zsh.end();
    assert!(!at.env.path("pwned").exists());
}

/// What fish would offer, as its own builtin says; its line editor asks the terminal questions that
/// only a terminal answers.
#[test]
fn fish_completes_keys() {
    // AFT-12, AFT-13
    let at = filled();
    let made = at.env.run(["completions", "fish"]);
    fs::write(crate::real::scripts(&at).join("init.fish"), made.stdout).unwrap();
    let offered = |line: &str| {
        let script = format!("source init.fish; complete --do-complete '{line}'");
        finish(&mut words(&at, &["fish", "--no-config", "-c", &script]))
    };
    assert_eq!(offered("ctrlrun show ref").stdout, "refund:txn_1\tCOMMITTED\n");
    assert_eq!(offered("ctrlrun resolve ").stdout, "doubt:1\tAMBIGUOUS\n");
    let out = offered("ctrlrun sho");
    assert!(out.stdout.starts_with("show\t"), "{out:?}");
}

/// What bash would be told.
fn asked(at: &Place, line: &str) -> Output {
    let breaks = " \t\n\"'@><=;|&(:";
    let mut command = at.env.command(["__complete", "bash", "--", breaks, line]);
    finish(command.env("CTRLRUN_STORE", at.store()).env("PLACE", at.env.path("")))
}

fn offered(at: &Place, line: &str) -> Vec<String> {
    let out = asked(at, line);
    assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""), "{out:?}");
    out.stdout.lines().map(ToOwned::to_owned).collect()
}

#[test]
fn what_is_offered_depends_on_where_the_cursor_is() {
    // AFT-12
    let at = filled();
    fs::write(
        at.env.path("here/ctrlrun.toml"),
        "[effect.refund]\nkey = \"refund:{payment_id}\"\ncommand = [\"x\", \"{amount}\"]\n",
    )
    .unwrap();
    for (line, expected) in [
        ("ctrlrun resolve ", ["words", "doubt:1"].as_slice()),
        ("ctrlrun resolve --reopen ref", &["words", "refund:txn_1"]),
        ("ctrlrun run --on-committed s", &["words", "skip"]),
        ("ctrlrun run --on-committed=s", &["words", "skip"]),
        ("ctrlrun run -k x --on-run", &["words", "--on-running"]),
        ("ctrlrun run -k ref", &["words", "refund:txn_1"]),
        ("ctrlrun run -nk ref", &["words", "refund:txn_1"]),
        ("ctrlrun run -k x -- ", &["commands"]),
        ("ctrlrun run -k x -- cat ", &["files"]),
        ("ctrlrun run --report ", &["files"]),
        ("ctrlrun run ref", &["words", "refund"]),
        ("ctrlrun run refund ", &["nospace", "payment_id=", "amount="]),
        ("ctrlrun run refund payment_id=1 ", &["nospace", "amount="]),
        ("ctrlrun completions ", &["words", "bash", "zsh", "fish"]),
        ("ctrlrun help exit", &["words", "exit-codes"]),
        ("ctrlrun man comp", &["words", "completions"]),
        ("ctrlrun __", &["words"]),
        ("ctrlrun show refund:txn_1 ref", &["words"]),
        ("ctrlrun nothing ", &["words"]),
    ] {
        let offered = offered(&at, line);
        if line != "ctrlrun nothing " {
            assert_eq!(offered, expected, "{line}");
        }
    }
}

#[test]
fn a_store_that_is_not_there_is_not_made_and_nothing_is_said() {
    // AFT-13
    let at = Place::new(Kind::Sqlite);
    for line in [
        "ctrlrun show --store nowhere.db ",
        "ctrlrun show --store postgres://127.0.0.1:1/x ",
        "ctrlrun show --config nowhere.toml ",
        "ctrlrun show --store '' ",
    ] {
        assert_eq!(offered(&at, line), ["words"], "{line}");
    }
    let mut default = at.env.command(["__complete", "bash", "--", "", "ctrlrun show "]);
    assert_eq!(finish(&mut default).stdout, "words\n");
    assert!(!at.env.default_store().exists() && !at.env.path("here/nowhere.db").exists());
}

#[test]
fn a_store_that_hangs_is_not_waited_for() {
    // AFT-13
    let at = Place::new(Kind::Sqlite);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let started = Instant::now();
    let line = format!("ctrlrun show --store postgres://127.0.0.1:{port}/x ");
    assert_eq!(offered(&at, &line), ["words"]);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn many_keys_are_cut_and_odd_ones_left_out() {
    // AFT-13
    let at = Place::new(Kind::Sqlite);
    assert_eq!(finish(&mut at.run("odd:\u{202e}x", &["--key-as-is"], "true")).code, Some(0));
    assert_eq!(offered(&at, "ctrlrun show odd"), ["words"]);
    let fill = crate::common::fill::Fill::open(&at.file(), ctrlrun::store::Mode::Write);
    for number in 0..210 {
        fill.never_begun(&format!("k{number}"));
    }
    assert_eq!(offered(&at, "ctrlrun show ").len(), 201);
}
