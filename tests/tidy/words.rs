//! What may not stand in a file, and how long a file may be.
use crate::lexer::{Kind, code};
use crate::tree::{Source, test_code};

/// More lines than this are two files.
const LINES_MAX: usize = 600;

/// The helpers that poll a condition under a bound; nothing else in a test may sleep.
const MAY_SLEEP: [&str; 2] = ["tests/common", "tests/exec_support"];

/// Complaints about files in `src/` that are too long.
pub fn too_long(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|source| source.is_rust() && source.under("src"))
        .map(|source| (source, source.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(source, lines)| format!("{}: {lines} lines, of {LINES_MAX}", source.path))
        .collect()
}

/// Complaints about work that is not finished, tests that do not run, and tests that only wait.
pub fn unfinished(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let tokens = code(&source.text);
        let mut complain = |line: usize, what: &str| {
            wrong.push(format!("{}:{line}: {what}", source.path));
        };
        for pair in tokens.windows(2) {
            for unfinished in ["todo", "unimplemented", "dbg"] {
                if pair[0].is(unfinished) && pair[1].is("!") {
                    complain(pair[0].line, unfinished);
                }
            }
        }
        for three in tokens.windows(3) {
            if three[0].is("#") && three[1].is("[") && three[2].is("ignore") {
                complain(three[0].line, "a test that is ignored");
            }
        }
        if MAY_SLEEP.iter().any(|room| source.under(room)) {
            continue;
        }
        for token in test_code(source) {
            if token.kind == Kind::Word
                && ["sleep", "sleep_ms", "park_timeout"].iter().any(|word| token.is(word))
            {
                complain(token.line, "a test that sleeps");
            }
        }
    }
    wrong
}

/// Complaints about what does not belong into this repository.
pub fn astray(sources: &[Source]) -> Vec<String> {
    // Put together here, so that this file does not hold what it forbids.
    let forbidden = [
        concat!("/wo", "rk/"),
        concat!("/tmp/", "wt"),
        concat!("../sha", "red"),
        concat!("FIX", "ME"),
        concat!("TO", "DO"),
    ];
    let mut wrong = Vec::new();
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            for word in forbidden {
                if line.contains(word) {
                    wrong.push(format!("{}:{}: {word}", source.path, at + 1));
                }
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn no_file_is_two_files() {
        tree::none(&too_long(&tree::all()));
    }

    #[test]
    fn nothing_is_left_unfinished() {
        tree::none(&unfinished(&tree::all()));
    }

    #[test]
    fn nothing_is_said_that_does_not_belong() {
        tree::none(&astray(&tree::all()));
    }

    #[test]
    fn a_file_that_is_too_long_is_found() {
        let long = "\n".repeat(LINES_MAX + 1);
        assert_eq!(too_long(&[Source::new("src/x.rs", &long)]).len(), 1);
        assert_eq!(too_long(&[Source::new("src/x.rs", &long[1..])]).len(), 0);
    }

    #[test]
    fn what_is_unfinished_is_found() {
        let wrong = [
            ("src/x.rs", "fn f() { todo!() }"),
            ("src/x.rs", "fn f() { unimplemented!(\"later\") }"),
            ("benches/x.rs", "fn f() { dbg!(1); }"),
            ("tests/x.rs", "#[test] #[ignore = \"slow\"] fn f() {}"),
            ("tests/x.rs", "#[test] fn f() { std::thread::sleep(TICK); }"),
            ("tests/x/y.rs", "use std::thread::sleep;"),
            ("src/x.rs", "#[cfg(test)] mod tests { fn f() { thread::sleep(TICK); } }"),
        ];
        for (path, text) in wrong {
            assert_eq!(unfinished(&[Source::new(path, text)]).len(), 1, "{path}: {text}");
        }
        let right = [
            ("src/x.rs", "fn todo() { thread::sleep(PAUSE); } // todo!()"),
            ("tests/x.rs", "#[test] fn f() { run(\"sleep 8\"); } // thread::sleep"),
            ("tests/common/mod.rs", "fn until() { thread::sleep(TICK); }"),
        ];
        for (path, text) in right {
            let found = unfinished(&[Source::new(path, text)]);
            assert_eq!(found, Vec::<String>::new(), "{path}: {text}");
        }
    }

    #[test]
    fn what_does_not_belong_is_found() {
        for text in
            [concat!("see ../sha", "red/x.md"), concat!("cd /wo", "rk/x"), concat!("# TO", "DO")]
        {
            assert_eq!(astray(&[Source::new("docs/x.md", text)]).len(), 1, "{text}");
        }
    }
}
