//! Warnings about what proves nothing.
use crate::at::{Kind, Place};
use crate::common::Output;
use crate::real::{ends, script, scripts, words};

/// Programs of these names that end with a number that the test chooses.
fn programs(at: &Place) {
    for name in ["curl", "psql", "systemd-run"] {
        script(at, name, "#!/bin/sh\nexit ${CODE:-0}\n");
        let path = scripts(at).join(name);
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
    }
}

fn run(at: &Place, line: &str) -> Output {
    ends(&mut words(at, &["sh", "-c", &format!("ctrlrun run {line}")]))
}

fn warnings(end: &Output) -> usize {
    end.stderr.lines().filter(|line| line.starts_with("ctrlrun: warning: ")).count()
}

#[test]
fn a_command_whose_0_proves_nothing_is_warned_about_once_a_run() {
    // Case 62; EXE-6
    let at = Place::new(Kind::Sqlite);
    programs(&at);
    for (number, (line, count)) in [
        ("curl http://h", 1),
        ("curl --fail http://h", 0),
        ("curl -f http://h", 0),
        ("psql -f x.sql", 1),
        ("psql -v ON_ERROR_STOP=1 -f x.sql", 0),
        ("systemd-run x", 1),
        ("systemd-run --wait x", 0),
    ]
    .into_iter()
    .enumerate()
    {
        let end = run(&at, &format!("-k a:{number} -- {line}"));
        assert_eq!((end.code, warnings(&end)), (Some(0), count), "{line}: {end:?}");
        let quiet = run(&at, &format!("-q -k q:{number} -- {line}"));
        assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""), "{line}");
    }
    for (key, line, count) in [
        ("b", "--not-executed 7 -- curl -f -L http://h", 1),
        ("c", "--not-executed 7 -- curl -f --retry 2 http://h", 1),
        ("d", "--not-executed 7 -- curl -f http://h", 0),
        ("e", "--not-executed 6 -- curl -f -L http://h", 0),
    ] {
        let end = run(&at, &format!("-k {key} {line}"));
        assert_eq!((end.code, warnings(&end)), (Some(0), count), "{line}: {end:?}");
    }
    // Once, however often it is run; and no word of it changes the outcome.
    let retried =
        "CODE=7 ctrlrun run -k r --retries 3 --backoff 1ms --not-executed 7 -- curl -f -L http://h";
    let end = ends(&mut words(&at, &["sh", "-c", retried]));
    assert_eq!((end.code, warnings(&end)), (Some(7), 1), "{end:?}");
    assert_eq!((at.state("r").as_str(), &at.show("r")["attempt"]), ("failed", &4.into()));
}

#[test]
fn a_declared_code_that_many_hands_give_is_warned_about_with_the_reason() {
    // Case 10; EXE-6
    let at = Place::new(Kind::Sqlite);
    for code in [124, 126, 127, 130, 137, 143, 255] {
        let end = run(&at, &format!("-k k:{code} --not-executed 3,{code} -- sh -c 'exit {code}'"));
        // It is a warning: what was declared counts.
        assert_eq!((end.code, warnings(&end)), (Some(code), 1), "{end:?}");
        assert!(end.stderr.contains(&code.to_string()), "{end:?}");
        assert_eq!(at.state(&format!("k:{code}")), "failed");
    }
    let end = run(&at, "-k other --not-executed 3,64,200 -- sh -c 'exit 3'");
    assert_eq!((end.code, warnings(&end)), (Some(3), 0), "{end:?}");
    let ssh = run(&at, "-k ssh -- sh -c 'exit 255'");
    assert_eq!((ssh.code, at.state("ssh").as_str()), (Some(255), "ambiguous"), "{ssh:?}");
}
