//! How many effects of a batch are reserved before there is a place for their child (BAT-10).
use std::time::Duration;

/// Children that take longer than this on average leave nobody waiting for a place.
const QUICK: Duration = Duration::from_secs(1);

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
            Some(mean) if mean <= QUICK => self.places,
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
        let mut pace = Pace::new(8);
        assert_eq!(pace.ahead(), 0, "nothing is known");
        pace.ended(Duration::from_millis(3));
        assert_eq!(pace.ahead(), 8);
        pace.ended(Duration::from_secs(60));
        assert_eq!(pace.ahead(), 0);
        for _ in 0..100 {
            pace.ended(Duration::from_millis(3));
        }
        assert_eq!(pace.ahead(), 8, "what was long ago is forgotten");
    }
}
