//! Words out of numbers, and safe text out of anybody's.
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

use ctrlrun::plan::time::Timestamp;
use unicode_width::UnicodeWidthStr;

/// Text from outside, with what could move a cursor, turn the writing round or hide escaped (CLI-5):
/// C0, DEL and C1 controls, line separators, bidirectional controls, and characters without width
/// that no script needs. Joiners stay: words of some scripts and emoji are built with them.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            _ if is_unsafe(c) && u32::from(c) < 0x100 => {
                let _ = write!(safe, "\\x{:02x}", u32::from(c));
            }
            _ if is_unsafe(c) => {
                let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
            }
            _ => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// JSON as text that is safe to look at: what [`clean`] escapes is escaped here as JSON does, so that it
/// means the same. Such characters stand in strings only, and are all of one UTF-16 unit.
#[must_use]
pub fn safe_json(json: &(impl std::fmt::Display + ?Sized)) -> String {
    let text = json.to_string();
    if !text.chars().any(is_unsafe) {
        return text;
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) {
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Whether a character is not printed as it is.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{2028}' | '\u{2029}' | '\u{200b}' | '\u{2060}' | '\u{feff}' | '\u{ad}')
}

/// How many columns it takes.
#[must_use]
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// `text`, cut to `columns` with a mark that it was.
#[must_use]
pub fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut kept = String::new();
    for c in text.chars() {
        let mut longer = kept.clone();
        longer.push(c);
        if width(&longer) + 1 > columns {
            break;
        }
        kept = longer;
    }
    kept.push('…');
    Cow::Owned(kept)
}

/// `text` in lines of at most `most` columns, broken at spaces where there are any.
#[must_use]
pub fn folded(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            line.push_str(word);
        } else if width(line) + 1 + width(word) <= most {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// What a line is about, and what is said of it, which goes on below its own beginning where a terminal
/// would break it somewhere. Ends its last line.
#[must_use]
pub fn hung(about: &str, said: &str, columns: Option<usize>) -> String {
    let hang = width(about);
    let most = columns.map_or(usize::MAX, |columns| columns.saturating_sub(hang).max(20));
    let mut text = String::new();
    for (at, part) in folded(said, most).iter().enumerate() {
        let head = if at == 0 { about.to_owned() } else { " ".repeat(hang) };
        text.push_str(format!("{head}{part}").trim_end());
        text.push('\n');
    }
    text
}

/// A length of time in its largest unit that is not nothing: `4 s`, `41 m`, `2 h`, `31 d`.
#[must_use]
pub fn age(of: Duration) -> String {
    match of.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} m", seconds / 60),
        seconds @ 3_600..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// A length of time in two units, where it matters how long still: `4 m 20 s`.
#[must_use]
pub fn span(of: Duration) -> String {
    let seconds = of.as_secs();
    let (more, rest) = match seconds {
        0..60 => return format!("{seconds} s"),
        60..3_600 => (format!("{} m", seconds / 60), seconds % 60),
        3_600..172_800 => (format!("{} h", seconds / 3_600), seconds % 3_600 / 60),
        _ => (format!("{} d", seconds / 86_400), seconds % 86_400 / 3_600),
    };
    let unit = match seconds {
        0..3_600 => "s",
        3_600..172_800 => "m",
        _ => "h",
    };
    match rest {
        0 => more,
        rest => format!("{more} {rest} {unit}"),
    }
}

/// `1 effect`, `3 effects`, `1,000 bytes`.
#[must_use]
pub fn count(of: u64, noun: &str) -> String {
    let s = if of == 1 { "" } else { "s" };
    format!("{} {noun}{s}", number(of))
}

/// `512 bytes`, `64 KiB`, `12 MiB`: rounded down to a whole number of its unit.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => count(bytes, "byte"),
        1_024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", number(bytes >> 30)),
    }
}

/// `1,234,567`
#[must_use]
pub fn number(of: u64) -> String {
    let digits = of.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// RFC 3339 in UTC with microseconds (CLI-6).
#[must_use]
pub fn rfc3339(at: Timestamp) -> String {
    match jiff::Timestamp::from_microsecond(at.0) {
        Ok(at) => format!("{at:.6}"),
        // Outside the years that have names; no store's clock reads so.
        Err(_) => format!("{} us", at.0),
    }
}

/// `2026-11-30 00:58:03Z`
#[must_use]
pub fn second(at: Timestamp) -> String {
    let text = rfc3339(at);
    match (text.get(..10), text.get(11..19)) {
        (Some(day), Some(time)) => format!("{day} {time}Z"),
        _ => text,
    }
}

/// `00:58:03Z` on the day of `beside`, else with its date.
#[must_use]
pub fn second_beside(at: Timestamp, beside: Timestamp) -> String {
    let (text, other) = (second(at), second(beside));
    match (text.split_once(' '), other.split_once(' ')) {
        (Some((day, time)), Some((same, _))) if day == same => time.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_goes_on_below_itself_and_loses_no_word() {
        // OPS-12
        let said = "journal wal; every writer sets and checks synchronous=FULL";
        assert_eq!(hung("ok  durability  ", said, None), format!("ok  durability  {said}\n"));
        let narrow = hung("ok  durability  ", said, Some(50));
        assert!(narrow.lines().all(|line| width(line) <= 50), "{narrow}");
        assert!(narrow.lines().skip(1).all(|line| line.starts_with(&" ".repeat(16))), "{narrow}");
        let words: Vec<&str> = narrow.split_whitespace().skip(2).collect();
        assert_eq!(words.join(" "), said);
        assert_eq!(hung("spool ", "", Some(10)), "spool\n");
    }

    #[test]
    fn what_could_move_a_cursor_or_turn_the_writing_is_escaped() {
        // CLI-5
        for (text, safe) in [
            ("plain äö \u{5d0}", "plain äö \u{5d0}"),
            ("\u{1b}[2J", "\\x1b[2J"),
            ("a\nb\r\t\0", "a\\nb\\r\\t\\x00"),
            ("\u{7f}\u{9b}", "\\x7f\\x9b"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("\u{2066}\u{200f}\u{2028}", "\\u{2066}\\u{200f}\\u{2028}"),
            ("\u{200b}\u{feff}", "\\u{200b}\\u{feff}"),
            ("\u{1f469}\u{200d}\u{1f680}", "\u{1f469}\u{200d}\u{1f680}"),
        ] {
            assert_eq!(clean(text), safe);
        }
    }

    #[test]
    fn json_is_safe_to_look_at_and_means_the_same() {
        // CLI-5, OPS-12
        let evil = "a\u{9b}\u{7f}\u{202e}\u{200b}\u{1b}\n\\u{1f600}\"";
        let object = serde_json::json!({ evil: [evil] });
        let safe = safe_json(&object);
        assert!(!safe.chars().any(is_unsafe), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), object);
    }

    #[test]
    fn ages_and_spans_are_short() {
        let s = Duration::from_secs;
        let ages = [0, 59, 61, 7_300, 172_799, 172_800].map(|secs| age(s(secs)));
        assert_eq!(ages, ["0 s", "59 s", "1 m", "2 h", "47 h", "2 d"]);
        let spans = [5, 60, 260, 7_380, 180_000].map(|secs| span(s(secs)));
        assert_eq!(spans, ["5 s", "1 m", "4 m 20 s", "2 h 3 m", "2 d 2 h"]);
    }

    #[test]
    fn numbers_are_grouped_and_nouns_agree() {
        assert_eq!(count(1, "byte"), "1 byte");
        assert_eq!(count(1_234_567, "byte"), "1,234,567 bytes");
        assert_eq!(count(100, "byte"), "100 bytes");
        assert_eq!(count(0, "effect"), "0 effects");
    }

    #[test]
    fn times_are_utc_with_microseconds() {
        // CLI-6
        let at = Timestamp(1_796_033_700_000_000);
        assert_eq!(rfc3339(at), "2026-11-30T10:15:00.000000Z");
        assert_eq!(second(at), "2026-11-30 10:15:00Z");
        assert_eq!(second_beside(at, Timestamp(at.0 + 1)), "10:15:00Z");
        assert_eq!(second_beside(at, Timestamp(0)), "2026-11-30 10:15:00Z");
    }

    #[test]
    fn a_cut_text_says_so_and_fits() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("\u{6771}\u{4eac}\u{90fd}", 5), "\u{6771}\u{4eac}…");
    }
}
