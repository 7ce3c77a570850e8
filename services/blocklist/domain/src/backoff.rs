//! How long a block lasts that repeats one: twice as long, up to a cap (section 7).

/// An earlier automatic block of the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Earlier {
    /// Milliseconds since it began.
    pub age_ms: u64,
    pub duration_ms: u64,
}

/// Milliseconds the next block lasts. One that began longer ago than `memory_ms` is forgiven; the
/// cap never shortens what the rule itself asks for.
pub fn duration(base_ms: u64, last: Option<Earlier>, memory_ms: u64, cap_ms: u64) -> u64 {
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
    fn each_repetition_doubles_up_to_the_cap() {
        let mut last = None;
        let mut lasted = Vec::new();
        for _ in 0..5 {
            let duration_ms = duration(600, last, 10_000, 4_000);
            last = Some(Earlier {
                age_ms: 700,
                duration_ms,
            });
            lasted.push(duration_ms);
        }
        assert_eq!(lasted, [600, 1_200, 2_400, 4_000, 4_000]);
        let forgiven = last.map(|last| Earlier {
            age_ms: 10_000,
            ..last
        });
        assert_eq!(duration(600, forgiven, 10_000, 4_000), 600);
    }

    proptest! {
        #[test]
        fn never_shorter_than_asked_for_and_never_over_the_cap(
            base in 0..u64::MAX, age in 0..100_u64, before in 0..u64::MAX, cap in 0..u64::MAX
        ) {
            let last = Earlier { age_ms: age, duration_ms: before };
            let next = duration(base, Some(last), 50, cap);
            prop_assert!(next >= base);
            prop_assert!(next <= cap.max(base));
        }
    }
}
