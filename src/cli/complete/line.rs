//! What has been typed. zsh and fish hand over words, and quote what is inserted by themselves; bash
//! hands over the line as it stands, and inserts text as it is.

/// A line up to the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typed {
    /// The words behind the program's name, before the one at the cursor, without their quotes.
    pub words: Vec<String>,
    /// The one at the cursor, without its quotes.
    pub current: String,
    /// The quote that it stands in.
    quote: Option<char>,
    /// How many bytes of `current` bash has cut off already, since a character among them ends a word
    /// for it (`refund:`). `None` where nothing that is inserted could be right.
    cut: Option<usize>,
}

impl Typed {
    /// What bash is to insert for `word`, if that can be said in the quotes that are open.
    pub fn reply(&self, word: &str) -> Option<String> {
        let rest = word.get(self.cut?..)?;
        match self.quote {
            None => Some(escaped(rest)),
            Some('\'') => (!rest.contains('\'')).then(|| rest.to_owned()),
            Some(_) => (!rest.contains(['"', '$', '`', '\\', '!'])).then(|| rest.to_owned()),
        }
    }
}

/// The words of zsh or fish, the program's name first.
pub fn of_words(words: &[String]) -> Option<Typed> {
    let (current, words) = words.split_last()?;
    let words = words.get(1..)?.to_vec();
    Some(Typed { words, current: current.clone(), quote: None, cut: Some(0) })
}

/// A line of bash. `breaks` are its COMP_WORDBREAKS.
pub fn of_bash(line: &str, breaks: &str) -> Option<Typed> {
    let mut words: Vec<String> = Vec::new();
    let mut current = String::new();
    let mut quote = None;
    let mut began = false;
    let mut cut = Some(0);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, ' ' | '\t' | '\n') => {
                if began {
                    words.push(std::mem::take(&mut current));
                }
                (began, cut) = (false, Some(0));
                continue;
            }
            (None, '\'' | '"') => {
                // bash looks for its word from an open quote on: right only at the beginning.
                cut = if began { None } else { cut };
                quote = Some(c);
            }
            (Some(open), _) if open == c => {
                quote = None;
                // What is inserted would stand behind a quote that is closed.
                cut = None;
            }
            (None, '\\') => current.extend(chars.next()),
            (Some('"'), '\\') => match chars.next() {
                Some(next @ ('"' | '\\' | '$' | '`')) => current.push(next),
                Some(next) => current.extend(['\\', next]),
                None => {}
            },
            (None, _) if breaks.contains(c) => {
                current.push(c);
                cut = cut.map(|_| current.len());
            }
            _ => current.push(c),
        }
        began = true;
    }
    if words.is_empty() {
        return None;
    }
    words.remove(0);
    Some(Typed { words, current, quote, cut })
}

/// A part of a word, so that bash reads it as it is.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for (at, c) in text.chars().enumerate() {
        let plain = c.is_alphanumeric() || "_-./:=@%+,".contains(c) || !c.is_ascii();
        // Only at the beginning of a word would these mean something.
        let first = at == 0 && (c == '~' || c == '#');
        if first || !(plain || c == '~' || c == '#') {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKS: &str = " \t\n\"'@><=;|&(:";

    fn typed(line: &str) -> Typed {
        of_bash(line, BREAKS).unwrap()
    }

    #[test]
    fn a_line_of_bash_is_read_as_bash_reads_it() {
        // AFT-12
        let of = |line: &str| {
            let typed = typed(line);
            (typed.words, typed.current)
        };
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(of("ctrlrun "), (words(&[]), String::new()));
        assert_eq!(of("ctrlrun  show refund:t"), (words(&["show"]), "refund:t".to_owned()));
        assert_eq!(
            of("c show 'a b' \"c\\\"d\" e\\ f"),
            (words(&["show", "a b", "c\"d"]), "e f".into())
        );
        assert_eq!(of("c show 'a b"), (words(&["show"]), "a b".to_owned()));
        assert_eq!(of("c show ''"), (words(&["show"]), String::new()));
        assert_eq!(of_bash("ctrl", BREAKS), None);
    }

    #[test]
    fn what_is_inserted_is_the_rest_as_bash_would_read_it() {
        // AFT-13
        for (line, word, inserted) in [
            ("c show ", "refund:txn_1", Some("refund:txn_1")),
            ("c show refund:t", "refund:txn_1", Some("txn_1")),
            ("c show ref", "refund:a b", Some("refund:a\\ b")),
            ("c show backup@2026", "backup@2026-11-30", Some("2026-11-30")),
            ("c run --key=ref", "--key=refund:1", Some("refund:1")),
            ("c show a\\:", "a:b", Some("a:b")),
            ("c show 'refund:t", "refund:txn $1", Some("refund:txn $1")),
            ("c show 'it", "it's", None),
            ("c show \"a", "a$b", None),
            ("c show \"a", "ab c", Some("ab c")),
            ("c show a'b", "ab", None),
            ("c show 'a'b", "abc", None),
            (
                "c show ",
                "$(x);`y`&|<>!*?[]{}",
                Some("\\$\\(x\\)\\;\\`y\\`\\&\\|\\<\\>\\!\\*\\?\\[\\]\\{\\}"),
            ),
            ("c show ", "~x#y", Some("\\~x#y")),
            ("c show ", "é", Some("é")),
        ] {
            assert_eq!(typed(line).reply(word).as_deref(), inserted, "{line} {word}");
        }
    }
}
