//! Probes that a configuration declares for its effects.
use std::fs;
use std::process::Command;

use crate::asked;
use crate::at::{Kind, Place, on_every_store};
use crate::common::{Output, finish};
use crate::real::lines;

on_every_store!(a_named_effect_is_asked_by_its_own_probe);

/// Each command marks and proves nothing; each probe says what its file says.
const CONFIG: &str = r#"
[effect.refund]
key       = "refund:{id}"
command   = ["sh", "-c", "echo $CTRLRUN_ATTEMPT >>$PLACE/marker; exit 28", "refund", "{id}"]
reconcile = ["sh", "-c", "echo $1 >>$PLACE/asked; cat $PLACE/answer", "probe", "{id}"]

[effect.mail]
key             = "mail:{a}:{b}"
command         = ["sh", "-c", "echo $CTRLRUN_ATTEMPT >>$PLACE/marker; sleep 1000"]
timeout         = "100ms"
reconcile       = ["sh", "-c", "echo $1-$2 >>$PLACE/asked; cat $PLACE/answer", "probe", "{a}", "{b}"]
reconcile_final = true

[effect.slow]
key               = "slow:{id}"
command           = ["false", "{id}"]
reconcile         = ["sh", "-c", "echo asked >>$PLACE/asked; sleep 1000"]
reconcile_timeout = "300ms"

[effect.deploy]
key     = "deploy:{id}"
command = ["false"]
"#;

fn place(kind: Kind) -> Place {
    let at = Place::new(kind);
    fs::write(at.env.path("c.toml"), CONFIG).unwrap();
    at
}

fn says(at: &Place, answer: &str) {
    fs::write(at.env.path("answer"), answer).unwrap();
}

fn configured(at: &Place, mut command: Command) -> Output {
    finish(command.env("CTRLRUN_CONFIG", at.env.path("c.toml")))
}

fn run(at: &Place, words: &[&str]) -> Output {
    configured(at, at.ctrlrun(&[&["run"], words].concat()))
}

fn reconcile(at: &Place, words: &[&str]) -> Output {
    configured(at, at.ctrlrun(&[&["reconcile"], words].concat()))
}

fn a_named_effect_is_asked_by_its_own_probe(kind: Kind) {
    // DEC-19, DEC-7, DEC-6
    let at = place(kind);
    says(&at, "not-executed\n");
    let refund = ["refund", "id=txn_1"];
    assert_eq!(run(&at, &refund).code, Some(28));
    // A contender asks with the parameters that it was given, and runs it again.
    assert_eq!((run(&at, &refund).code, at.marks()), (Some(28), 2));
    assert_eq!(lines(&at, "asked"), ["txn_1"]);
    assert_eq!(at.history("refund:txn_1")[4]["data"]["by"], "reconcile:refund");
    // And one that knows the key alone reads them from it.
    says(&at, "committed\n");
    let told = reconcile(&at, &["refund:txn_1"]);
    assert_eq!((told.code, at.state("refund:txn_1").as_str()), (Some(0), "committed"), "{told:?}");
    assert_eq!(at.show("refund:txn_1")["resolved_by"], "reconcile:refund");
    // A final probe frees what was ended by its time-out.
    says(&at, "not-executed\n");
    assert_eq!(run(&at, &["mail", "a=x", "b=y"]).code, Some(124));
    let told = reconcile(&at, &["--all"]);
    assert_eq!((told.code, at.state("mail:x:y").as_str()), (Some(0), "failed"), "{told:?}");
    assert_eq!(lines(&at, "asked").pop().unwrap(), "x-y");
}

#[test]
fn a_key_that_does_not_tell_one_effect_and_its_values_is_not_guessed_at() {
    // DEC-19, DEC-9: the wrong values would say "not executed" of something else.
    let at = place(Kind::Sqlite);
    says(&at, "not-executed\n");
    for words in [
        &["refund", "id=txn_1", "--per", "day"][..],
        &["mail", "a=x:y", "b=z"],
        &["deploy", "id=7"],
    ] {
        let ran = run(&at, words);
        assert!(matches!(ran.code, Some(1 | 28 | 124)), "{ran:?}");
    }
    assert_eq!(finish(&mut at.run_words("other:1", &[], &["false"])).code, Some(1));
    let told = reconcile(&at, &["--all"]);
    assert_eq!((told.code, asked(&at)), (Some(76), 0), "{told:?}");
    for why in [
        "its key ends in a period",
        "its key does not tell the values of effect mail",
        "effect deploy declares no probe",
        "no effect that is declared has such a key",
        "4 stuck: 0 committed, 0 not executed, 0 unknown, 4 not asked",
    ] {
        assert!(told.stderr.contains(why), "{why}: {told:?}");
    }
    // One that is given stands before what is declared.
    let told = reconcile(&at, &["--all", "--reconcile", "echo committed"]);
    assert_eq!((told.code, asked(&at)), (Some(0), 0), "{told:?}");
}

#[test]
fn a_probe_has_the_time_that_its_effect_says_unless_a_flag_says_otherwise() {
    // DEC-1, DEC-4
    let at = place(Kind::Sqlite);
    assert_eq!(run(&at, &["slow", "id=1"]).code, Some(1));
    for (flags, told) in [(&[][..], "0.3 s"), (&["--reconcile-timeout", "200ms"], "0.2 s")] {
        let out = reconcile(&at, &[&["slow:1"], flags].concat());
        let words = format!("it took longer than {told}, and was ended");
        assert!(out.code == Some(76) && out.stderr.contains(&words), "{out:?}");
        let out = run(&at, &[&["slow", "id=1"], flags].concat());
        assert!(out.code == Some(76) && out.stderr.contains(&words), "{out:?}");
    }
    assert_eq!(asked(&at), 4);
}

#[test]
fn who_looks_is_told_of_the_probe_that_is_declared() {
    // CLI-16: also where only the file above the working directory declares it, as `reconcile` reads it.
    let at = place(Kind::Sqlite);
    says(&at, "?\n");
    assert_eq!(run(&at, &["refund", "id=txn_1"]).code, Some(28));
    assert_eq!(run(&at, &["deploy", "id=7"]).code, Some(1));
    let file = at.env.path("c.toml");
    let show = |key: &str, config: &[&str]| {
        let out = at.ask(&[&["show", key], config].concat());
        assert_eq!(out.code, Some(0), "{out:?}");
        out.stdout
    };
    let named = ["--config", file.to_str().unwrap()];
    let told = show("refund:txn_1", &named);
    assert!(told.contains("\n  probe    declared, and none has answered\n"), "{told}");
    let line = told.lines().find_map(|line| line.strip_prefix("Ask the probe:")).unwrap();
    // Typed as it is printed, it does what it says; an answer that says nothing leaves no trace.
    let words: Vec<String> = shlex::split(line.trim()).unwrap();
    let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    assert_eq!(finish(&mut at.env.command(&words)).code, Some(76));
    assert!(show("refund:txn_1", &named).contains("none has answered"));
    says(&at, "not-executed\n");
    fs::copy(&file, at.env.path("here/ctrlrun.toml")).unwrap();
    let told = show("refund:txn_1", &[]);
    assert!(told.contains("\nAsk the probe:") && !told.contains("--config"), "{told}");
    // No probe is declared for these; and a file that cannot be read is in nobody's way who looks.
    assert!(!show("deploy:7", &named).contains("robe"));
    fs::write(at.env.path("here/ctrlrun.toml"), "[").unwrap();
    assert!(!show("refund:txn_1", &[]).contains("robe"));
}
