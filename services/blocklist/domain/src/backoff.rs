//! Back-off of repeated blocks: each block is twice as long as the previous one, up to a cap.

/// The last automatic block of the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastBlock {
    /// Milliseconds since the block began.
    pub age_ms: u64,
    pub duration_ms: u64,
}

/// Returns the duration of the next block in milliseconds. A previous block older than `memory_ms`
/// is ignored. The cap never shortens the base duration of the rule.
pub fn next_duration_ms(base_ms: u64, last: Option<LastBlock>, memory_ms: u64, cap_ms: u64) -> u64 {
    match last {
        Some(last) if last.age_ms < memory_ms => {
            let doubled = last.duration_ms.max(base_ms).saturating_mul(2);
            doubled.min(cap_ms.max(base_ms))
        }
        _ => base_ms,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_repeated_block_doubles_up_to_the_cap() {
        let mut last = None;
        let mut durations = Vec::new();
        for _ in 0..5 {
            let duration_ms = next_duration_ms(600, last, 10_000, 4_000);
            last = Some(LastBlock {
                age_ms: 700,
                duration_ms,
            });
            durations.push(duration_ms);
        }
        assert_eq!(durations, [600, 1_200, 2_400, 4_000, 4_000]);
        let expired = last.map(|last| LastBlock {
            age_ms: 10_000,
            ..last
        });
        assert_eq!(next_duration_ms(600, expired, 10_000, 4_000), 600);
    }

    proptest! {
        #[test]
        fn a_repeated_block_is_never_shorter_than_its_base_and_never_over_the_cap(
            base_ms in 0..u64::MAX,
            age_ms in 0..100_u64,
            last_duration_ms in 0..u64::MAX,
            cap_ms in 0..u64::MAX,
        ) {
            let last = LastBlock { age_ms, duration_ms: last_duration_ms };
            let next_ms = next_duration_ms(base_ms, Some(last), 50, cap_ms);
            prop_assert!(next_ms >= base_ms);
            prop_assert!(next_ms <= cap_ms.max(base_ms));
        }
    }
}
