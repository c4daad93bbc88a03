//! When to try again, and when to stop: values, passed down, never made by an inner loop.
use std::time::Duration;

use super::time::Moment;

/// The one budget of a command to the store: how often it may try, until when, and how long one
/// exchange may take. It is made once and passed down, so that two bounded loops cannot reset each
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    tries: u32,
    deadline: Moment,
    exchange_max: Duration,
}

impl Budget {
    /// At most `tries` further tries, none after `deadline`, no exchange longer than `exchange_max`.
    #[must_use]
    pub fn new(tries: u32, deadline: Moment, exchange_max: Duration) -> Self {
        Self { tries, deadline, exchange_max }
    }

    /// Takes one try; false if there is none left or the deadline has passed.
    #[must_use]
    pub fn spend(&mut self, at: Moment) -> bool {
        if at >= self.deadline || self.tries == 0 {
            return false;
        }
        self.tries -= 1;
        true
    }

    /// How long an exchange that starts now may take.
    #[must_use]
    pub fn exchange(&self, at: Moment) -> Duration {
        self.deadline.from_now(at).min(self.exchange_max)
    }

    /// When it ends.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.deadline
    }
}

/// How long to wait before each further try: exponential, capped. The driver draws the actual wait
/// at random between nothing and this, so that those who met once do not meet again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Schedule {
    next: Duration,
    cap: Duration,
}

impl Schedule {
    /// `first`, then twice that, and so on up to `cap`.
    #[must_use]
    pub fn exponential(first: Duration, cap: Duration) -> Self {
        Self { next: first.min(cap), cap }
    }

    /// The one for effects and operators' commands: 4 ms to 250 ms.
    #[must_use]
    pub fn effects() -> Self {
        Self::exponential(Duration::from_millis(4), Duration::from_millis(250))
    }

    /// The next wait's longest length.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = self.next.saturating_mul(2).min(self.cap);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends_by_tries_or_by_time() {
        let mut by_tries = Budget::new(2, Moment(1_000), Duration::from_secs(1));
        assert!(by_tries.spend(Moment(0)) && by_tries.spend(Moment(999)));
        assert!(!by_tries.spend(Moment(0)));
        let mut by_time = Budget::new(9, Moment(1_000), Duration::from_secs(1));
        assert!(!by_time.spend(Moment(1_000)));
    }

    #[test]
    fn an_exchange_never_outlasts_the_budget() {
        let budget = Budget::new(1, Moment(5_000_000), Duration::from_secs(2));
        assert_eq!(budget.exchange(Moment(0)), Duration::from_secs(2));
        assert_eq!(budget.exchange(Moment(4_000_000)), Duration::from_secs(1));
        assert_eq!(budget.exchange(Moment(6_000_000)), Duration::ZERO);
    }

    #[test]
    fn waits_double_up_to_the_cap() {
        let mut schedule =
            Schedule::exponential(Duration::from_millis(100), Duration::from_millis(350));
        let waits: Vec<u128> = (0..4).map(|_| schedule.wait().as_millis()).collect();
        assert_eq!(waits, [100, 200, 350, 350]);
    }
}
