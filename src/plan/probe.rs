//! What a probe's end says of the effect that it was asked about (DEC-2). A wrong "unknown" costs a
//! look; a wrong "not-executed" costs a second execution: so only the one plain form counts.
use super::effect::ProbeAnswer;

/// What was kept of a probe's stdout.
#[derive(Debug, Clone, Copy)]
pub struct Printed<'a> {
    /// Its first bytes.
    pub head: &'a [u8],
    /// Its last bytes, where `head` is not all.
    pub tail: &'a [u8],
    /// Whether the two are all that it printed.
    pub whole: bool,
}

/// How a probe ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Code(i32),
    /// By this signal, or nobody saw how (`None`).
    Signal(Option<i32>),
    /// It was ended by us, because its time was out or we were told to end.
    EndedByUs,
}

/// What it says; `Unknown` comes with why.
///
/// # Errors
/// Why it says nothing, in a few words that hold nothing of what it printed.
pub fn answer(ended: Ended, stdout: Printed<'_>) -> Result<ProbeAnswer, String> {
    match ended {
        Ended::Code(0) => {}
        Ended::Code(code) => return Err(format!("it exited {code}")),
        Ended::Signal(Some(number)) => return Err(format!("it died of signal {number}")),
        Ended::Signal(None) => return Err("nobody saw how it ended".to_owned()),
        Ended::EndedByUs => return Err("it was ended before it answered".to_owned()),
    }
    if stdout.head.is_empty() && stdout.tail.is_empty() {
        return Err("it exited 0 and printed nothing".to_owned());
    }
    match last_line(stdout).as_deref() {
        Some(b"committed") => Ok(ProbeAnswer::Committed),
        Some(b"not-executed") => Ok(ProbeAnswer::NotExecuted),
        Some(_) | None => {
            Err("it exited 0, and its last line is neither `committed` nor `not-executed`"
                .to_owned())
        }
    }
}

/// The last line, where it is known from its start. One newline ends it.
fn last_line(stdout: Printed<'_>) -> Option<Vec<u8>> {
    // Where something between was dropped, a line that begins in `head` is not known.
    let mut text = if stdout.whole { stdout.head.to_vec() } else { Vec::new() };
    text.extend_from_slice(stdout.tail);
    if text.ends_with(b"\n") {
        text.pop();
    }
    match text.iter().rposition(|byte| *byte == b'\n') {
        Some(before) => Some(text.split_off(before + 1)),
        None => stdout.whole.then_some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProbeAnswer::{Committed, NotExecuted};

    fn whole(text: &[u8]) -> Printed<'_> {
        Printed { head: text, tail: b"", whole: true }
    }

    #[test]
    fn exit_0_and_the_word_as_the_last_line_say_it() {
        // DEC-2, case 31
        for (text, says) in [
            (&b"committed"[..], Committed),
            (b"committed\n", Committed),
            (b"not-executed\n", NotExecuted),
            (b"looking\ncommitted\nnot-executed\n", NotExecuted),
            (b"\xff\xfe\n\x1b[31mred\ncommitted\n", Committed),
        ] {
            assert_eq!(answer(Ended::Code(0), whole(text)), Ok(says), "{text:?}");
        }
    }

    #[test]
    fn every_other_text_is_unknown() {
        // DEC-2, case 31
        for text in [
            &b""[..],
            b"\n",
            b"committed\n\n",
            b"committed \n",
            b" committed\n",
            b"committed\r\n",
            b"Committed\n",
            b"COMMITTED\n",
            b"committed.\n",
            b"\"committed\"\n",
            b"not executed\n",
            b"not_executed\n",
            b"committed\nbye\n",
            b"not committed\n",
            b"x committed",
            b"committed\0\n",
            b"\xffcommitted\n",
            b"\xef\xbb\xbfcommitted\n",
            b"unknown\n",
        ] {
            assert!(answer(Ended::Code(0), whole(text)).is_err(), "{text:?}");
        }
    }

    #[test]
    fn no_other_end_says_anything() {
        // DEC-2, case 31: an empty URL makes curl exit 3.
        for ended in [
            Ended::Code(1),
            Ended::Code(3),
            Ended::Code(255),
            Ended::Signal(Some(9)),
            Ended::Signal(None),
            Ended::EndedByUs,
        ] {
            for text in [&b"committed\n"[..], b"not-executed\n"] {
                assert!(answer(ended, whole(text)).is_err(), "{ended:?}");
            }
        }
    }

    #[test]
    fn of_a_long_text_only_a_line_that_is_known_from_its_start_counts() {
        // DEC-2
        let cut = |tail: &'static [u8]| Printed { head: b"not-executed\n", tail, whole: false };
        assert_eq!(answer(Ended::Code(0), cut(b"..\ncommitted\n")), Ok(Committed));
        assert_eq!(answer(Ended::Code(0), cut(b"\nnot-executed")), Ok(NotExecuted));
        for tail in [&b"committed\n"[..], b"not-executed", b"", b"\n", b"\nunder-committed\n"] {
            assert!(answer(Ended::Code(0), cut(tail)).is_err(), "{tail:?}");
        }
        // All of it is there, in two parts.
        let parts = |head, tail| Printed { head, tail, whole: true };
        assert_eq!(answer(Ended::Code(0), parts(b"not-", b"executed\n")), Ok(NotExecuted));
        assert!(answer(Ended::Code(0), parts(b"x", b"committed\n")).is_err());
        assert_eq!(answer(Ended::Code(0), parts(b"a", b"b\ncommitted\n")), Ok(Committed));
    }
}
