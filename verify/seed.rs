//! Draws that a seed repeats (VER-7).

/// A stream of draws: SplitMix64 (Steele, Lea and Flood, 2014), which any seed starts well.
#[derive(Debug, Clone)]
pub struct Draws(u64);

impl Draws {
    /// The draws of `seed` for one purpose; another purpose has others.
    #[must_use]
    pub fn of(seed: u64, purpose: u64) -> Self {
        let mut draws = Self(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        draws.next();
        draws
    }

    /// The next draw.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..below`; 0 if that is nothing.
    pub fn below(&mut self, below: u64) -> u64 {
        self.next() % below.max(1)
    }

    /// One of `choices`, by weight.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u64, T)], otherwise: T) -> T {
        let total = choices.iter().map(|(weight, _)| weight).sum();
        let mut drawn = self.below(total);
        for (weight, choice) in choices {
            if drawn < *weight {
                return *choice;
            }
            drawn -= weight;
        }
        otherwise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_another_differs() {
        // VER-7
        let drawn = |seed| {
            let mut draws = Draws::of(seed, 4);
            (0..20).map(|_| draws.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn weights_weigh() {
        let mut draws = Draws::of(1, 1);
        let heavy = (0..1_000).filter(|_| draws.weighted(&[(1, false), (9, true)], false)).count();
        assert!((800..1_000).contains(&heavy), "{heavy}");
    }
}
