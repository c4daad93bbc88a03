//! Manual pages, read by those who show them (AFT-14).
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::common::{TestEnv, finish};

#[test]
fn every_command_has_a_page_that_is_shown_without_a_warning() {
    // AFT-14
    let env = TestEnv::new();
    let dir = env.path("man/man1");
    let out = env.run(["man", "--output-dir", dir.to_str().unwrap()]);
    assert_eq!((out.code, out.stdout.as_str()), (Some(0), ""), "{out:?}");
    let pages: BTreeSet<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in ["ctrlrun.1", "ctrlrun-run.1", "ctrlrun-resolve.1", "ctrlrun-completions.1"] {
        assert!(pages.contains(name), "{pages:?}");
    }
    assert!(!pages.iter().any(|name| name.contains("__")), "{pages:?}");
    for name in &pages {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-ww", "-Tutf8", "-P-cbou"]).arg(dir.join(name));
        let shown = finish(&mut groff);
        assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""), "{name}");
        let title = name.trim_end_matches(".1");
        assert!(shown.stdout.contains(&format!("{}(1)", title.to_uppercase())), "{name}");
        assert!(shown.stdout.contains(&format!("ctrlrun {}", env!("CARGO_PKG_VERSION"))), "{name}");
        let cited = shown.stdout.split_whitespace().filter_map(|word| word.strip_suffix("(1)"));
        for other in cited.filter(|word| word.starts_with("ctrlrun")) {
            assert!(pages.contains(&format!("{other}.1")), "{name}: {other}");
        }
    }
}

#[test]
fn a_page_is_printed_and_no_page_is_an_error() {
    // AFT-14
    let env = TestEnv::new();
    let out = env.run(["man", "run"]);
    assert!(out.code == Some(0) && out.stdout.contains(".TH \"CTRLRUN-RUN\" \"1\""), "{out:?}");
    assert!(
        out.stdout.contains("ctrlrun run --key refund:txn_1 \\-\\- ./refund.sh txn_1")
            || out.stdout.contains("ctrlrun run \\-\\-key refund:txn_1 \\-\\- ./refund.sh txn_1"),
        "{out:?}"
    );
    for name in ["nothing", "__complete"] {
        assert_eq!(env.run(["man", name]).code, Some(64), "{name}");
    }
    let out = env.run(["man", "--output-dir", "/dev/null/x"]);
    assert_eq!(out.code, Some(66), "{out:?}");
}
