//! A transaction of ours: how it begins, how it is given up, and the deadline over all of it.
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::link::Link;

/// The setting that carries the mark.
pub const MARK: &str = "ctrlrun.write";

/// How long giving up a transaction may take; after that the connection is given up too.
const ROLLBACK: Duration = Duration::from_secs(1);

/// When a verb has to be over.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// From now on.
    pub fn new(within: Duration) -> Self {
        let now = Instant::now();
        // A time beyond what the clock can say is as good as none.
        Self(now.checked_add(within).unwrap_or(now + Duration::from_secs(86_400)))
    }

    /// What is left.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Nothing is.
    pub fn passed(self) -> bool {
        self.left().is_zero()
    }
}

/// The text that begins a transaction in which nothing takes longer than `left`, whatever becomes
/// of us: a server that has lost its client must not hold the key for ever.
///
/// What follows it in the same message does not run where it fails. What is sent behind it in a message
/// of its own may run outside of any transaction; if that writes, `mark` is to be required by it, which
/// lives as long as the transaction does. Empty: there is none.
pub fn begin(left: Duration, mark: &str) -> String {
    // The server's own ends come before ours, so that they are answers and not silence. 0 would mean
    // no end.
    let part = |percent: u32| (left * percent / 100).as_millis().max(1);
    let text = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = {}; \
         SET LOCAL statement_timeout = {}; SET LOCAL idle_in_transaction_session_timeout = {}",
        part(80),
        part(90),
        // Longer than a lock is waited for: it is not to fire while anybody still hopes.
        part(200),
    );
    match mark {
        "" => text,
        mark => format!("{text}; SET LOCAL {MARK} = '{mark}'"),
    }
}

/// The same for what is made once more should a crash of the server undo it: nobody waits until its
/// commit is on disk (PGS-11).
pub fn begin_light(left: Duration, mark: &str) -> String {
    format!("{}; SET LOCAL synchronous_commit = off", begin(left, mark))
}

/// The text that begins a transaction which only looks, all of it at one moment, and which does not
/// hold that moment for longer than `left`.
pub fn look(left: Duration) -> String {
    let left = left.as_millis().max(1);
    format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {left}; \
         SET LOCAL idle_in_transaction_session_timeout = {left}"
    )
}

/// Gives the transaction up. Where that fails the link is dead, and the transaction ends with it.
pub fn roll_back(link: &Link) {
    link.batch("ROLLBACK", ROLLBACK).ok();
}

/// Both answers; what was asked first was sent first.
pub async fn both<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut one, mut two) = (None, None);
    std::future::poll_fn(|context| {
        if one.is_none()
            && let Poll::Ready(answer) = first.as_mut().poll(context)
        {
            one = Some(answer);
        }
        if two.is_none()
            && let Poll::Ready(answer) = second.as_mut().poll(context)
        {
            two = Some(answer);
        }
        match (one.take(), two.take()) {
            (Some(one), Some(two)) => Poll::Ready((one, two)),
            (still, waiting) => {
                (one, two) = (still, waiting);
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_is_never_the_one_that_means_none() {
        // PGS-3
        let text = begin(Duration::ZERO, "ab");
        assert!(!text.contains("= 0"), "{text}");
        assert!(text.starts_with("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"), "{text}");
        assert!(begin(Duration::from_secs(10), "ab").contains("lock_timeout = 8000;"));
    }
}
