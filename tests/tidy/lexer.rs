//! Just enough of Rust's lexical grammar to tell code from comments and strings.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or a keyword.
    Word,
    /// `::`, or one other character.
    Mark,
    /// A string, character, number or lifetime.
    Literal,
    /// A comment of any kind, documentation included.
    Comment,
}

/// One token, and the line it starts on (from 1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub text: String,
    pub line: usize,
}

impl Token {
    /// Whether it is this word or mark of code.
    pub fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.text == text
    }
}

/// All tokens of `text`, comments included.
pub fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let (mut at, mut line, mut found) = (0, 1, Vec::new());
    while at < chars.len() {
        if chars[at].is_whitespace() {
            line += usize::from(chars[at] == '\n');
            at += 1;
            continue;
        }
        let (kind, end) = one(&chars, at);
        let text: String = chars[at..end].iter().collect();
        let lines = text.matches('\n').count();
        found.push(Token { kind, text, line });
        line += lines;
        at = end;
    }
    found
}

/// As [`tokens`], without comments.
pub fn code(text: &str) -> Vec<Token> {
    let mut all = tokens(text);
    all.retain(|token| token.kind != Kind::Comment);
    all
}

fn one(chars: &[char], at: usize) -> (Kind, usize) {
    let next = |n: usize| chars.get(at + n).copied().unwrap_or('\0');
    match (chars[at], next(1)) {
        ('/', '/') => (Kind::Comment, until_newline(chars, at)),
        ('/', '*') => (Kind::Comment, block_comment(chars, at)),
        ('"', _) => (Kind::Literal, quoted(chars, at, '"')),
        (':', ':') => (Kind::Mark, at + 2),
        ('\'', first) => {
            let lifetime = (first.is_alphabetic() || first == '_') && next(2) != '\'';
            let end = if lifetime { word_end(chars, at + 1) } else { quoted(chars, at, '\'') };
            (Kind::Literal, end)
        }
        (c, _) if c.is_alphabetic() || c == '_' => prefixed(chars, at),
        (c, _) if c.is_ascii_digit() => (Kind::Literal, word_end(chars, at)),
        _ => (Kind::Mark, at + 1),
    }
}

/// A word, or a literal that starts with letters: `r"…"`, `b'…'`, `br#"…"#`, `c"…"`.
fn prefixed(chars: &[char], at: usize) -> (Kind, usize) {
    let end = word_end(chars, at);
    let word: String = chars[at..end].iter().collect();
    let follows = chars.get(end).copied().unwrap_or('\0');
    match (word.as_str(), follows) {
        ("r" | "br" | "cr", '"' | '#') => match raw_end(chars, end) {
            Some(end) => (Kind::Literal, end),
            None => (Kind::Word, word_end(chars, end + 1)),
        },
        ("b" | "c", '"') => (Kind::Literal, quoted(chars, end, '"')),
        ("b", '\'') => (Kind::Literal, quoted(chars, end, '\'')),
        _ => (Kind::Word, end),
    }
}

/// The end of a raw string whose `#`s or quote start at `at`; `None` for a raw identifier.
fn raw_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + hashes) != Some(&'"') {
        return None;
    }
    let mut end = at + hashes + 1;
    while end < chars.len() {
        let closes = chars[end] == '"'
            && chars[end + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
        if closes {
            return Some(end + 1 + hashes);
        }
        end += 1;
    }
    Some(end)
}

fn word_end(chars: &[char], at: usize) -> usize {
    let length = chars[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
    at + length
}

fn until_newline(chars: &[char], at: usize) -> usize {
    at + chars[at..].iter().take_while(|c| **c != '\n').count()
}

fn block_comment(chars: &[char], at: usize) -> usize {
    let (mut end, mut depth) = (at, 0);
    while end < chars.len() {
        match (chars[end], chars.get(end + 1)) {
            ('/', Some('*')) => (depth, end) = (depth + 1, end + 2),
            ('*', Some('/')) => (depth, end) = (depth - 1, end + 2),
            _ => end += 1,
        }
        if depth == 0 {
            break;
        }
    }
    end.min(chars.len())
}

fn quoted(chars: &[char], at: usize, quote: char) -> usize {
    let mut end = at + 1;
    while end < chars.len() && chars[end] != quote {
        end += if chars[end] == '\\' { 2 } else { 1 };
    }
    (end + 1).min(chars.len())
}

#[test]
fn comments_and_strings_are_not_code() {
    let text = r##"
        // crate::a
        /* crate::b /* nested */ crate::c */
        let s = "crate::d \" still"; let r = r#"crate::e " still"#;
        let c = '"'; let b = b"crate::f"; let q = '\''; let esc = '\u{22}';
        fn f<'a>(x: &'a str) { r#type(crate::g) }
    "##;
    let words: Vec<String> = code(text)
        .into_iter()
        .filter(|token| token.kind == Kind::Word)
        .map(|token| token.text)
        .collect();
    let expected = [
        "let", "s", "let", "r", "let", "c", "let", "b", "let", "q", "let", "esc", "fn", "f", "x",
        "str", "r#type", "crate", "g",
    ];
    assert_eq!(words, expected);
}

#[test]
fn tokens_know_their_lines() {
    let found = code("a\n\"two\nlines\"\n/* x\n */ b");
    let lines: Vec<usize> = found.iter().map(|token| token.line).collect();
    assert_eq!(lines, [1, 2, 5]);
}
