//! What the children wrote, with their keys in front (BAT-11).
use std::io::{self, Write};

use ctrlrun::plan::protocol::Captured;

use crate::cli::render::text::{clean, count};

/// Writes what is kept of a stream: whole lines, each with the key in front, and how much is missing.
///
/// # Errors
/// The stream's.
pub fn prefixed(out: &mut dyn Write, key: &str, captured: &Captured) -> io::Result<()> {
    let key = clean(key);
    let mut text = Vec::new();
    let mut lines = |bytes: &[u8]| {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            text.extend_from_slice(key.as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
    };
    let kept = (captured.head.len() + captured.tail.len()) as u64;
    if kept == captured.bytes {
        // Where it was parted is no place for a new line.
        lines(&[captured.head.as_slice(), &captured.tail].concat());
    } else {
        lines(&captured.head);
        let missing = captured.bytes.saturating_sub(kept);
        lines(format!("[{} not kept]\n", count(missing, "byte")).as_bytes());
        lines(&captured.tail);
    }
    out.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(head: &str, tail: &str, bytes: u64) -> String {
        let (head, tail) = (head.as_bytes().to_vec(), tail.as_bytes().to_vec());
        let mut out = Vec::new();
        prefixed(&mut out, "k\n1", &Captured { head, tail, bytes, whole: true }).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_line_has_its_key_and_what_is_missing_is_counted() {
        // BAT-11
        assert_eq!(shown("", "", 0), "");
        assert_eq!(shown("a\nb", "c\n", 5), "k\\n1: a\nk\\n1: bc\n");
        assert_eq!(shown("a\n", "z", 1_003), "k\\n1: a\nk\\n1: [1,000 bytes not kept]\nk\\n1: z\n");
    }
}
