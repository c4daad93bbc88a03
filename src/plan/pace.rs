//! How many effects of a batch are reserved before there is a place for their child (BAT-10).
use std::time::Duration;

/// Children that take longer than this on average leave nobody waiting for a place.
const QUICK: Duration = Duration::from_secs(1);

/// Children that take no longer than this cost less than the commit before them.
const VERY_QUICK: Duration = Duration::from_millis(20);

/// How many are reserved ahead of very quick ones at least: the three commits of an effect are then
/// shared by enough of them.
const RESERVED_AHEAD: usize = 8;

/// How many of those begin ahead.
const BEGUN_AHEAD: usize = 4;

/// What is known of the children of late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    places: usize,
    /// Of how long they ran; none has ended yet where there is no such thing.
    mean: Option<Duration>,
}

impl Pace {
    /// For so many places.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self { places, mean: None }
    }

    /// A child has ended after so long. The last dozen of them counts.
    pub fn ended(&mut self, after: Duration) {
        self.mean = Some(match self.mean {
            None => after,
            Some(mean) => (mean * 11 + after) / 12,
        });
    }

    /// How many reservations may wait for a place. As long as nothing is known, none.
    #[must_use]
    pub fn ahead(&self) -> usize {
        match self.mean {
            Some(mean) if mean <= VERY_QUICK => self.places.max(RESERVED_AHEAD),
            Some(mean) if mean <= QUICK => self.places,
            Some(_) | None => 0,
        }
    }
}

impl Pace {
    /// How many of those may begin before there is a place: so that a place that falls free does not
    /// stand empty for the length of a commit, which is as long as such a child.
    #[must_use]
    pub fn begun_ahead(&self) -> usize {
        match self.mean {
            Some(mean) if mean <= VERY_QUICK => BEGUN_AHEAD,
            Some(_) | None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_places_that_slow_children_hold() {
        // BAT-10
        let mut pace = Pace::new(9);
        assert_eq!(pace.ahead(), 0, "nothing is known");
        pace.ended(Duration::from_millis(3));
        assert_eq!(pace.ahead(), 9);
        pace.ended(Duration::from_secs(60));
        assert_eq!(pace.ahead(), 0);
        for _ in 0..100 {
            pace.ended(Duration::from_millis(3));
        }
        assert_eq!(pace.ahead(), 9, "what was long ago is forgotten");
        assert_eq!(pace.begun_ahead(), 4);
        for _ in 0..100 {
            pace.ended(Duration::from_millis(50));
        }
        assert_eq!((pace.ahead(), pace.begun_ahead()), (9, 0), "a commit is nothing to those");
        let mut few = Pace::new(2);
        few.ended(Duration::from_millis(20));
        assert_eq!(few.ahead(), 8, "enough of them share a commit");
        few.ended(Duration::from_secs(12));
        assert_eq!(few.ahead(), 0);
        let mut few = Pace::new(2);
        few.ended(Duration::from_millis(21));
        assert_eq!(few.ahead(), 2);
    }
}
