//! Which shard a key belongs to.
use crate::plan::key::Key;

/// The shard of a key, of so many: FNV-1a of its bytes, the same in every process (BAT-7). 0 if there
/// are none.
#[must_use]
pub fn shard_of(key: &Key, shards: usize) -> usize {
    let shards = u64::try_from(shards).unwrap_or(u64::MAX);
    let shard = fnv1a(key.as_str().as_bytes()).checked_rem(shards).unwrap_or(0);
    usize::try_from(shard).unwrap_or(0)
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // BAT-7: the published test vectors.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn keys_spread_over_the_shards() {
        // BAT-7
        let mut counts = [0; 4];
        for number in 0..4_000 {
            counts[shard_of(&Key::new(format!("refund:txn_{number}")).unwrap(), 4)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
        assert_eq!(shard_of(&Key::new("k").unwrap(), 0), 0);
    }
}
