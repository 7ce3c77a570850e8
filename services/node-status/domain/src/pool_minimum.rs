//! Checks whether one more node of a pool may be drained. `force` skips the check (B4).

/// The pool of the node to drain, and its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolMinimum {
    /// All nodes of the pool.
    pub size: u64,
    /// Nodes that already take no work, for any reason.
    pub out: u64,
    /// Minimum number of nodes that must take work.
    pub floor: u64,
    /// Maximum percentage of nodes that may take no work. Two nodes are always allowed.
    pub percent: u64,
}

/// Limit that the drain would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenLimit {
    Floor { remaining: u64 },
    Fraction { out: u64, max_out: u64 },
}

/// Number of nodes that may always be out. [`crate::brake`] treats three missing nodes as an
/// incident, and two as none.
const ALWAYS_ALLOWED: u64 = 2;

/// Checks whether one more node of the pool may take no work.
///
/// # Errors
/// When too few nodes would be left.
pub fn check_one_more(pool: PoolMinimum) -> Result<(), BrokenLimit> {
    let out = pool.out + 1;
    let remaining = pool.size.saturating_sub(out);
    if remaining < pool.floor {
        return Err(BrokenLimit::Floor { remaining });
    }
    let max_out = (pool.size.saturating_mul(pool.percent) / 100).max(ALWAYS_ALLOWED);
    if out > max_out {
        return Err(BrokenLimit::Fraction { out, max_out });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nodes_of_a_pool_are_drained_up_to_its_limits() {
        let check = |size, out| {
            check_one_more(PoolMinimum {
                size,
                out,
                floor: 1,
                percent: 25,
            })
        };
        // (size, out before) -> result
        let table = [
            ((1, 0), Err(BrokenLimit::Floor { remaining: 0 })),
            ((2, 0), Ok(())),
            ((2, 1), Err(BrokenLimit::Floor { remaining: 0 })),
            ((3, 1), Ok(())),
            ((4, 2), Err(BrokenLimit::Fraction { out: 3, max_out: 2 })),
            ((12, 2), Ok(())),
            ((12, 3), Err(BrokenLimit::Fraction { out: 4, max_out: 3 })),
            ((1000, 249), Ok(())),
            (
                (1000, 250),
                Err(BrokenLimit::Fraction {
                    out: 251,
                    max_out: 250,
                }),
            ),
        ];
        for ((size, out), result) in table {
            assert_eq!(check(size, out), result, "{out} of {size}");
        }
    }

    proptest! {
        #[test]
        fn repeated_drains_never_break_the_limits(
            size in 0..500_u64, floor in 0..20_u64, percent in 0..=100_u64,
        ) {
            let mut out = 0;
            while check_one_more(PoolMinimum { size, out, floor, percent }).is_ok() {
                out += 1;
            }
            prop_assert!(out == 0 || size - out >= floor);
            prop_assert!(out <= ALWAYS_ALLOWED || out * 100 <= size * percent);
        }
    }
}
