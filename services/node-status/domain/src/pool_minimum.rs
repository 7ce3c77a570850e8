//! Checks whether one more node of a pool may be drained. `force` skips the check (B4).

/// The pool of the node to drain, and its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolMinimum {
    /// Number of all nodes of the pool.
    pub size: u64,
    /// Number of nodes that already take no work, for any reason.
    pub unavailable: u64,
    /// Minimum number of nodes that must take work.
    pub minimum: u64,
    /// Maximum percentage of nodes that may take no work. Two nodes are always allowed.
    pub percent: u64,
}

/// Limit that the drain would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenLimit {
    /// Only `remaining` nodes would still take work.
    Minimum { remaining: u64 },
    /// `unavailable` nodes would take no work.
    Percentage {
        unavailable: u64,
        max_unavailable: u64,
    },
}

/// Number of nodes that may always be unavailable. [`crate::loss_brake`] treats three missing nodes
/// as an incident, and two as none.
const ALWAYS_ALLOWED: u64 = 2;

/// Checks whether one more node of the pool may take no work.
///
/// # Errors
/// Returns the limit that would be broken if too few nodes would be left.
pub fn check_one_more(pool: PoolMinimum) -> Result<(), BrokenLimit> {
    let unavailable = pool.unavailable + 1;
    let remaining = pool.size.saturating_sub(unavailable);
    if remaining < pool.minimum {
        return Err(BrokenLimit::Minimum { remaining });
    }
    let max_unavailable = (pool.size.saturating_mul(pool.percent) / 100).max(ALWAYS_ALLOWED);
    if unavailable > max_unavailable {
        return Err(BrokenLimit::Percentage {
            unavailable,
            max_unavailable,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nodes_of_a_pool_are_drained_up_to_its_limits() {
        let check = |size, unavailable| {
            check_one_more(PoolMinimum {
                size,
                unavailable,
                minimum: 1,
                percent: 25,
            })
        };
        // (size, unavailable before) -> result
        let table = [
            ((1, 0), Err(BrokenLimit::Minimum { remaining: 0 })),
            ((2, 0), Ok(())),
            ((2, 1), Err(BrokenLimit::Minimum { remaining: 0 })),
            ((3, 1), Ok(())),
            (
                (4, 2),
                Err(BrokenLimit::Percentage {
                    unavailable: 3,
                    max_unavailable: 2,
                }),
            ),
            ((12, 2), Ok(())),
            (
                (12, 3),
                Err(BrokenLimit::Percentage {
                    unavailable: 4,
                    max_unavailable: 3,
                }),
            ),
            ((1000, 249), Ok(())),
            (
                (1000, 250),
                Err(BrokenLimit::Percentage {
                    unavailable: 251,
                    max_unavailable: 250,
                }),
            ),
        ];
        for ((size, unavailable), result) in table {
            assert_eq!(check(size, unavailable), result, "{unavailable} of {size}");
        }
    }

    proptest! {
        #[test]
        fn repeated_drains_never_break_the_limits(
            size in 0..500_u64, minimum in 0..20_u64, percent in 0..=100_u64,
        ) {
            let mut unavailable = 0;
            while check_one_more(PoolMinimum { size, unavailable, minimum, percent }).is_ok() {
                unavailable += 1;
            }
            prop_assert!(unavailable == 0 || size - unavailable >= minimum);
            prop_assert!(unavailable <= ALWAYS_ALLOWED || unavailable * 100 <= size * percent);
        }
    }
}
