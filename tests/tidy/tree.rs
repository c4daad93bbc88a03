//! The files of the repository, and what is a test in them.
use std::fs;
use std::path::Path;

use crate::lexer::{Token, code};

/// One text file: its path from the repository's root, and its text.
#[derive(Debug, Clone)]
pub struct Source {
    pub path: String,
    pub text: String,
}

impl Source {
    /// A source made up for the test of a rule.
    pub fn new(path: &str, text: &str) -> Self {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it lies under this directory.
    pub fn under(&self, directory: &str) -> bool {
        self.path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Every text file of this repository, but for what is built and what Git keeps.
pub fn all() -> Vec<Source> {
    let mut found = Vec::new();
    gather(Path::new(env!("CARGO_MANIFEST_DIR")), "", &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 20, "the source tree was not found");
    found
}

/// Fails with one complaint a line.
#[track_caller]
pub fn none(complaints: &[String]) {
    let (count, list) = (complaints.len(), complaints.join("\n  "));
    assert!(complaints.is_empty(), "{count} complaints:\n  {list}");
}

fn gather(directory: &Path, prefix: &str, into: &mut Vec<Source>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        if entry.file_type().unwrap().is_dir() {
            let ours = !["target", ".git"].contains(&path.as_str());
            if ours {
                gather(&entry.path(), &format!("{path}/"), into);
            }
        } else if path != ".git"
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            into.push(Source { path, text });
        }
    }
}

/// For each token of `tokens`, whether it is inside an item marked `#[cfg(test)]` or `#[test]`.
pub fn in_tests(tokens: &[Token]) -> Vec<bool> {
    let mut marked = vec![false; tokens.len()];
    let mut at = 0;
    while at < tokens.len() {
        let Some(attribute) = attribute_end(tokens, at) else {
            at += 1;
            continue;
        };
        if is_test_attribute(&tokens[at..attribute]) {
            let end = item_end(tokens, attribute);
            marked[at..end].fill(true);
            at = end;
        } else {
            at = attribute;
        }
    }
    marked
}

/// The code of a source that is test code only: all of it under `tests/`, else what is marked so.
pub fn test_code(source: &Source) -> Vec<Token> {
    let tokens = code(&source.text);
    if source.under("tests") {
        return tokens;
    }
    let marked = in_tests(&tokens);
    tokens.into_iter().zip(marked).filter_map(|(token, test)| test.then_some(token)).collect()
}

/// Whether an attribute marks what follows as compiled for tests only.
pub fn is_test_attribute(attribute: &[Token]) -> bool {
    let has = |word: &str| attribute.iter().any(|token| token.is(word));
    let bare = attribute.len() == 4 && attribute[2].is("test");
    bare || (has("cfg") && has("test") && !has("not") && !has("any"))
}

/// The end of the attribute that starts at `at`, if one does.
pub fn attribute_end(tokens: &[Token], at: usize) -> Option<usize> {
    let opens = tokens[at].is("#") && tokens.get(at + 1).is_some_and(|token| token.is("["));
    opens.then(|| closing(tokens, at + 1, "[", "]"))
}

/// Behind the bracket that closes the one at `at`.
pub fn closing(tokens: &[Token], at: usize, open: &str, close: &str) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        depth += usize::from(token.is(open));
        if token.is(close) {
            depth -= 1;
            if depth == 0 {
                return index + 1;
            }
        }
    }
    tokens.len()
}

/// Behind the item that starts at `at`: its `;` or the end of its braces.
fn item_end(tokens: &[Token], at: usize) -> usize {
    let mut index = at;
    while index < tokens.len() {
        if let Some(end) = attribute_end(tokens, index) {
            index = end;
        } else if tokens[index].is("{") {
            return closing(tokens, index, "{", "}");
        } else if tokens[index].is("(") {
            index = closing(tokens, index, "(", ")");
        } else if tokens[index].is(";") {
            return index + 1;
        } else {
            index += 1;
        }
    }
    index
}

#[test]
fn test_code_is_told_from_shipped_code() {
    let text = "fn shipped() { a(); }
        #[cfg(test)] mod tests { use super::*; #[test] fn b() { c(); } }
        #[cfg(not(test))] fn d() {}
        #[test] #[should_panic] fn e() { f([1; 2]); }
        fn g() {}";
    let words: Vec<String> =
        test_code(&Source::new("src/x.rs", text)).into_iter().map(|token| token.text).collect();
    for inside in ["b", "c", "e", "f"] {
        assert!(words.iter().any(|word| word == inside), "{inside}");
    }
    for outside in ["shipped", "a", "d", "g"] {
        assert!(!words.iter().any(|word| word == outside), "{outside}");
    }
}
