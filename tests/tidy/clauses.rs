//! The specification's clauses, and those who cite them.
//!
//! A clause is a line of `spec/*.md` that starts with its bold number. One that is withdrawn keeps
//! its number and says `Withdrawn`; nobody cites it.
use std::collections::{BTreeMap, BTreeSet};

use crate::lexer::{Kind, tokens};
use crate::tree::{Source, test_code};

/// Three capital letters and a number that are no clause.
const NOT_CLAUSES: [&str; 6] = ["CVE", "ISO", "MIT", "RFC", "SHA", "UTF"];

/// A clause's name: `EFF` and 3.
type Clause = (String, usize);

/// All clauses, and whether each is withdrawn.
type Book = BTreeMap<Clause, bool>;

/// The clauses of the specification, and complaints about how they are numbered.
pub fn book(sources: &[Source]) -> (Book, Vec<String>) {
    let mut book = Book::new();
    let mut homes: BTreeMap<String, String> = BTreeMap::new();
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.under("spec")) {
        let mut next = BTreeMap::new();
        for (at, line) in source.text.lines().enumerate() {
            let Some((clause, text)) = defined(line) else {
                continue;
            };
            let place = format!("{}:{}: {}-{}", source.path, at + 1, clause.0, clause.1);
            let home = homes.entry(clause.0.clone()).or_insert(source.path.clone());
            if *home != source.path {
                wrong.push(format!("{place} belongs into {home}"));
            }
            let expected: &mut usize = next.entry(clause.0.clone()).or_insert(1);
            if clause.1 != *expected {
                wrong.push(format!("{place} where {}-{expected} is next", clause.0));
            }
            *expected = clause.1 + 1;
            if book.insert(clause, text.starts_with("Withdrawn")).is_some() {
                wrong.push(format!("{place} is there twice"));
            }
        }
    }
    (book, wrong)
}

/// Complaints about clauses that no test cites.
pub fn uncited(sources: &[Source], book: &Book) -> Vec<String> {
    let mut cited = BTreeSet::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        // What is said of clauses here, and about the pages for users, proves nothing about them.
        if !source.under("tests/tidy") && !source.under("tests/docs") {
            cited.extend(cited_by_tests(source));
        }
    }
    book.iter()
        .filter(|(clause, withdrawn)| !**withdrawn && !cited.contains(*clause))
        .map(|((page, number), _)| format!("{page}-{number}: no test cites it"))
        .collect()
}

/// Complaints about citations of clauses that do not exist, or no longer.
pub fn dangling(sources: &[Source], book: &Book) -> Vec<String> {
    let pages: BTreeSet<&str> = book.keys().map(|(page, _)| page.as_str()).collect();
    let mut wrong = Vec::new();
    for source in sources {
        let text = if source.is_rust() {
            rust_citations(source)
        } else if source.path.ends_with(".md") {
            citations(&source.text)
        } else {
            continue;
        };
        for (clause, line, loose) in text {
            let known = pages.contains(clause.0.as_str());
            let foreign = !known && (loose || NOT_CLAUSES.contains(&clause.0.as_str()));
            if !foreign && book.get(&clause) != Some(&false) {
                let place = format!("{}:{line}", source.path);
                wrong.push(format!("{place}: {}-{} is no clause", clause.0, clause.1));
            }
        }
    }
    wrong
}

/// The clause that a line defines, and what the line says.
fn defined(line: &str) -> Option<(Clause, &str)> {
    let (name, text) = line.strip_prefix("**")?.split_once(".**")?;
    let (page, number) = name.split_once('-')?;
    let shaped = page.len() == 3 && page.bytes().all(|byte| byte.is_ascii_uppercase());
    let number = number.parse().ok().filter(|_| shaped)?;
    Some(((page.to_owned(), number), text.trim_start()))
}

/// Every citation in a text, with its line; none is loose.
fn citations(text: &str) -> Vec<(Clause, usize, bool)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        // A clause does not cite itself; one that is withdrawn could not stay in its place.
        let line = defined(line).map_or(line, |(_, text)| text);
        found.extend(in_line(line).into_iter().map(|clause| (clause, at + 1, false)));
    }
    found
}

/// Every citation in a Rust file. In a string, and in code, a name that is like one is loose: it
/// counts where the specification has such a page, and else may be anything.
fn rust_citations(source: &Source) -> Vec<(Clause, usize, bool)> {
    let mut found = Vec::new();
    for token in tokens(&source.text) {
        for (clause, line, _) in citations(&token.text) {
            found.push((clause, token.line + line - 1, token.kind != Kind::Comment));
        }
    }
    found
}

/// What the tests of a file cite: all of it under `tests/` and in the suite that tests run on every
/// store, else what stands in a test module or in the comments inside and right above it.
fn cited_by_tests(source: &Source) -> Vec<Clause> {
    let whole = source.under("tests")
        || source.under("src/store/conformance")
        || source.path == "src/store/conformance.rs"
        || source.path.rsplit('/').next() == Some("tests.rs");
    let lines: BTreeSet<usize> = test_code(source).iter().map(|token| token.line).collect();
    let (first, last) = (lines.first(), lines.last());
    rust_citations(source)
        .into_iter()
        .filter(|(_, line, _)| {
            let between = first.is_some_and(|first| first <= line) && last >= Some(line);
            whole || (between && near(&lines, *line))
        })
        .map(|(clause, _, _)| clause)
        .collect()
}

/// Whether the next line of code at or below `line` is test code.
fn near(test_lines: &BTreeSet<usize>, line: usize) -> bool {
    // Comments hold no code, so a comment in a test is followed by test code within its block.
    const COMMENT_LINES_MAX: usize = 12;
    test_lines.range(line..).next().is_some_and(|next| next - line <= COMMENT_LINES_MAX)
}

/// The names in a line that are three capital letters, a dash and a number.
fn in_line(line: &str) -> Vec<Clause> {
    let bytes = line.as_bytes();
    let mut found = Vec::new();
    for at in 0..bytes.len() {
        let alone = at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'-');
        let shaped = bytes[at..].len() > 4
            && bytes[at..at + 3].iter().all(u8::is_ascii_uppercase)
            && bytes[at + 3] == b'-';
        if !alone || !shaped {
            continue;
        }
        let rest = &line[at + 4..];
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let ends = rest[length..].bytes().next();
        let word = ends.is_some_and(|byte| byte.is_ascii_alphanumeric());
        if let (false, Ok(number)) = (word, rest[..length].parse()) {
            found.push((line[at..at + 3].to_owned(), number));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn the_clauses_are_numbered_without_gaps() {
        let (book, wrong) = book(&tree::all());
        assert!(book.len() > 50, "the specification was not found");
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn every_clause_is_cited_by_a_test() {
        let sources = tree::all();
        let (book, _) = book(&sources);
        tree::none(&uncited(&sources, &book));
    }

    #[test]
    fn every_citation_names_a_clause() {
        let sources = tree::all();
        let (book, _) = book(&sources);
        tree::none(&dangling(&sources, &book));
    }

    fn page(text: &str) -> Source {
        Source::new("spec/page.md", text)
    }

    #[test]
    fn a_number_that_is_skipped_or_given_twice_is_found() {
        let right = page("**ABC-1.** One, see **ABC-9.**\n**ABC-2.** Withdrawn: it was wrong.");
        let (clauses, wrong) = book(&[right]);
        assert_eq!(wrong, Vec::<String>::new());
        let expected = [(("ABC".to_owned(), 1), false), (("ABC".to_owned(), 2), true)];
        assert_eq!(clauses.into_iter().collect::<Vec<_>>(), expected);

        for text in [
            "**ABC-2.** It starts too late.",
            "**ABC-1.** One.\n**ABC-3.** Three.",
            "**ABC-1.** One.\n**ABC-1.** One.",
            "**ABC-1.** One.\n**ABC-2.** Two.\n**ABC-1.** One.",
        ] {
            let (_, wrong) = book(&[page(text)]);
            assert_ne!(wrong, Vec::<String>::new(), "{text}");
        }
        let elsewhere = Source::new("spec/second.md", "**ABC-2.** Astray.");
        let (_, wrong) = book(&[page("**ABC-1.** One."), elsewhere]);
        assert_ne!(wrong, Vec::<String>::new());
    }

    #[test]
    fn a_clause_without_a_test_is_found() {
        let (clauses, _) = book(&[page("**ABC-1.** One.\n**ABC-2.** Withdrawn.")]);
        let cites = [
            ("tests/run.rs", "// ABC-1\nfn f() {}"),
            ("tests/common/mod.rs", "const C: &str = \"ABC-1\";"),
            ("src/x.rs", "#[cfg(test)] mod tests {\n// ABC-1\n#[test] fn f() {} }"),
            ("src/store/conformance.rs", "/// ABC-1\npub fn f() {}"),
        ];
        for (path, text) in cites {
            let found = uncited(&[Source::new(path, text)], &clauses);
            assert_eq!(found, Vec::<String>::new(), "{path}");
        }
        let does_not = [
            ("src/x.rs", "/// ABC-1\npub fn f() {}"),
            ("src/x.rs", "/// ABC-1\npub fn f() {}\n#[cfg(test)] mod tests {}"),
            ("src/x.rs", "#[cfg(test)] mod tests {}\n/// ABC-1\npub fn f() {}"),
            ("docs/x.md", "ABC-1"),
            ("tests/tidy/x.rs", "// ABC-1"),
            ("tests/docs/x.rs", "// ABC-1"),
            ("tests/run.rs", "// ABC-11, XABC-1, ABC-1x"),
        ];
        for (path, text) in does_not {
            let found = uncited(&[Source::new(path, text)], &clauses);
            assert_eq!(found.len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn a_citation_of_nothing_is_found() {
        let (clauses, _) = book(&[page("**ABC-1.** One.\n**ABC-2.** Withdrawn.")]);
        let wrong = [
            ("src/x.rs", "// ABC-3"),
            ("src/x.rs", "const C: &str = \"ABC-3\";"),
            ("src/x.rs", "// ABD-1"),
            ("tests/x.rs", "/// see ABC-2\nfn f() {}"),
            ("docs/x.md", "(ABC-10)"),
            ("README.md", "XYZ-1"),
        ];
        for (path, text) in wrong {
            let found = dangling(&[Source::new(path, text)], &clauses);
            assert_eq!(found.len(), 1, "{path}: {text}");
        }
        let right = [
            ("src/x.rs", "// ABC-1, and SHA-256 over UTF-8"),
            ("tests/x.rs", "run(\"--reason\", \"OPS-12\")"),
            ("docs/x.md", "ABC-1, PRE-ABC-1, MIT-0"),
        ];
        for (path, text) in right {
            let found = dangling(&[Source::new(path, text)], &clauses);
            assert_eq!(found, Vec::<String>::new(), "{path}: {text}");
        }
    }
}
