//! Which keys came before in an input of any length, in memory that does not grow with it (BAT-18).
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use ctrlrun::plan::key::{Fingerprint, Key};

/// How many keys are remembered: some 20 MB.
const MOST: usize = 200_000;

/// A key, by two hashes with secrets of their own: that two keys of one input share both is not to be
/// expected in any lifetime, and a dry run promises nothing.
type Digest = [u64; 2];

/// The keys of the last lines.
pub struct Seen {
    secrets: [RandomState; 2],
    /// Which command the key would be bound to, and the line that it first came on.
    keys: HashMap<Digest, (Fingerprint, u64)>,
    /// In the order in which they came; the next one goes to `at`, over the oldest.
    order: Vec<Digest>,
    at: usize,
    most: usize,
}

impl Seen {
    /// Of no line yet.
    #[must_use]
    pub fn new() -> Self {
        Self::of_at_most(MOST)
    }

    fn of_at_most(most: usize) -> Self {
        let secrets = [RandomState::new(), RandomState::new()];
        Self { secrets, keys: HashMap::new(), order: Vec::new(), at: 0, most }
    }

    /// What came under this key before, if that is remembered.
    #[must_use]
    pub fn first(&self, key: &Key) -> Option<(Fingerprint, u64)> {
        self.keys.get(&self.digest(key)).copied()
    }

    /// Remembers a key that was not seen.
    pub fn add(&mut self, key: &Key, fingerprint: Fingerprint, line: u64) {
        let digest = self.digest(key);
        self.keys.insert(digest, (fingerprint, line));
        match self.order.get_mut(self.at) {
            Some(oldest) => {
                self.keys.remove(oldest);
                *oldest = digest;
            }
            None => self.order.push(digest),
        }
        self.at = (self.at + 1) % self.most;
    }

    /// How far apart two lines are compared; `None` while all of them were.
    #[must_use]
    pub fn reach(&self) -> Option<usize> {
        // Full, and just come round, nothing is forgotten yet.
        (self.keys.len() == self.most).then_some(self.most)
    }

    fn digest(&self, key: &Key) -> Digest {
        self.secrets.each_ref().map(|secret| secret.hash_one(key.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_keys_are_remembered_and_no_more_than_that() {
        // BAT-18
        let key = |number: u64| Key::new(format!("k:{number}")).unwrap();
        let command = |number: u64| Fingerprint([u8::try_from(number % 251).unwrap(); 32]);
        let mut seen = Seen::of_at_most(10);
        assert_eq!((seen.first(&key(1)), seen.reach()), (None, None));
        for number in 1..=25 {
            seen.add(&key(number), command(number), number);
            assert_eq!(seen.first(&key(number)), Some((command(number), number)));
        }
        for number in 1..=25 {
            assert_eq!(seen.first(&key(number)).is_some(), number > 15, "{number}");
        }
        assert_eq!((seen.keys.len(), seen.order.len()), (10, 10));
        assert_eq!(seen.reach(), Some(10));
    }
}
