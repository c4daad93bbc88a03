//! Whether what was printed is what a page says, but for what no page can know.
//!
//! `...` on a line of its own stands for any number of lines, elsewhere for any text in its line.
//! How long ago something was, instants, dates after an `@`, UUIDs and the number behind `pid` are
//! never compared.

/// Whether the lines of a page describe what was printed.
pub fn agrees(page: &[String], printed: &[String]) -> bool {
    match page.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first.trim() == "..." => {
            (0..=printed.len()).any(|skip| agrees(rest, &printed[skip..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, more)| line_agrees(first, line) && agrees(rest, more)),
    }
}

fn line_agrees(page: &str, printed: &str) -> bool {
    let (page, printed) = (faceless(page), faceless(printed));
    let mut parts = page.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    true
}

/// A line without what differs from run to run.
fn faceless(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(plain).collect();
    for at in 1..words.len() {
        if words[at - 1] == "pid" {
            let end = words[at].trim_start_matches(|c: char| c.is_ascii_digit());
            words[at] = format!("N{end}");
        }
    }
    // "4 s ago", "2 h 5 m ago": numbers and units, back from the word that says so.
    while let Some(ago) =
        words.iter().position(|word| word.trim_end_matches([',', ';', '.', ')']) == "ago")
    {
        let mut from = ago;
        while from >= 2 && is_unit(&words[from - 1]) && is_number(&words[from - 2]) {
            from -= 2;
        }
        let end = words[ago].trim_start_matches("ago").to_owned();
        words.splice(from..=ago, [format!("AGO{end}")]);
    }
    words.join(" ")
}

fn is_unit(word: &str) -> bool {
    ["ms", "s", "m", "h", "d"].contains(&word)
}

fn is_number(word: &str) -> bool {
    let word = word.trim_start_matches('(');
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// A word with instants, dates and UUIDs replaced by their names.
fn plain(word: &str) -> String {
    let shapes = [
        ("00000000-0000-0000-0000-000000000000", "UUID"),
        ("0000-00-00T00:00:00.000000Z", "TIME"),
        ("0000-00-00T00:00:00Z", "TIME"),
        ("00:00:00Z", "TIME"),
        ("@0000-00-00T00Z", "@PERIOD"),
        ("@0000-00-00", "@PERIOD"),
        ("@0000-00", "@PERIOD"),
    ];
    let mut word = word.to_owned();
    for (shape, name) in shapes {
        while let Some(at) = (0..word.len()).find(|at| has_shape(&word, *at, shape)) {
            word.replace_range(at..at + shape.len(), name);
        }
    }
    word
}

/// Whether `word` has this shape at `at`, where a 0 stands for a digit (in a UUID, for a hex one).
fn has_shape(word: &str, at: usize, shape: &str) -> bool {
    let hex = shape.len() == 36;
    let Some(part) = word.get(at..at + shape.len()) else {
        return false;
    };
    part.bytes().zip(shape.bytes()).all(|(byte, wanted)| match wanted {
        b'0' if hex => byte.is_ascii_hexdigit(),
        b'0' => byte.is_ascii_digit(),
        _ => byte == wanted,
    })
}

#[cfg(test)]
mod tests {
    use super::agrees;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_no_page_can_know_is_not_compared() {
        for (page, printed) in [
            ("hi", "hi"),
            ("COMMITTED 4 s ago by 1", "COMMITTED 12 ms ago by 1"),
            ("(2 h 5 m ago), x", "(0 s ago), x"),
            ("on ... as ..., pid 7.", "on a-b as root, pid 4121."),
            ("a\n...\nd", "a\nb\nc\nd"),
            ("a\n...\nd", "a\nd"),
            ("at 2026-01-01T00:00:00.000000Z", "at 2031-12-30T23:59:59.123456Z"),
            ("b@2026-11-30: x", "b@2027-01-02: x"),
            (
                "id 01890a5d-ac96-774b-bcce-b302099a8057.",
                "id ffffffff-ac96-774b-bcce-000000000000.",
            ),
            ("a...z", "a z"),
        ] {
            assert!(agrees(&lines(page), &lines(printed)), "{page:?} and {printed:?}");
        }
    }

    #[test]
    fn a_page_that_is_wrong_is_found() {
        for (page, printed) in [
            ("hi", "ho"),
            ("hi", "hi\nho"),
            ("hi\nho", "hi"),
            ("", "hi"),
            ("hi", ""),
            ("COMMITTED 4 s ago", "FAILED 4 s ago"),
            ("timed out after 30 s", "timed out after 31 s"),
            ("a ... c", "a b"),
            ("a\n...\nd", "a\nb"),
            ("revision 3", "revision 4"),
            ("a...", "ba"),
        ] {
            assert!(!agrees(&lines(page), &lines(printed)), "{page:?} and {printed:?}");
        }
    }
}
