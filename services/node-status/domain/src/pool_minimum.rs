//! Checks whether a pool can spare one more node for a drain; `force` skips the check (B4).

/// The pool of the node to drain, and its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolMinimum {
    /// All nodes of the pool.
    pub size: u64,
    /// Nodes that already take no work, for any reason.
    pub out: u64,
    /// Least nodes that must take work.
    pub floor: u64,
    /// Most nodes that may take no work, in percent; two are always allowed.
    pub percent: u64,
}

/// Limit that the drain would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooFew {
    Floor { left: u64 },
    Fraction { out: u64, most: u64 },
}

/// The limit of [`crate::brake`]: three missing nodes are an incident, two are not.
const ALWAYS_ALLOWED: u64 = 2;

/// When too few nodes would be left.
pub fn check_one_more(pool: PoolMinimum) -> Result<(), TooFew> {
    let out = pool.out + 1;
    let left = pool.size.saturating_sub(out);
    if left < pool.floor {
        return Err(TooFew::Floor { left });
    }
    let most = (pool.size.saturating_mul(pool.percent) / 100).max(ALWAYS_ALLOWED);
    if out > most {
        return Err(TooFew::Fraction { out, most });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pool_spares_nodes_up_to_its_limits() {
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
            ((1, 0), Err(TooFew::Floor { left: 0 })),
            ((2, 0), Ok(())),
            ((2, 1), Err(TooFew::Floor { left: 0 })),
            ((3, 1), Ok(())),
            ((4, 2), Err(TooFew::Fraction { out: 3, most: 2 })),
            ((12, 2), Ok(())),
            ((12, 3), Err(TooFew::Fraction { out: 4, most: 3 })),
            ((1000, 249), Ok(())),
            (
                (1000, 250),
                Err(TooFew::Fraction {
                    out: 251,
                    most: 250,
                }),
            ),
        ];
        for ((size, out), answer) in table {
            assert_eq!(check(size, out), answer, "{out} of {size}");
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
