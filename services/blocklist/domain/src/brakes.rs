//! Brakes: limits on automatic blocks. They withhold at most a fraction of each pool, leave a
//! minimum of nodes without a block, and block nothing during a storm. A storm is the failure of
//! many nodes of a pool at once.
//!
//! No strategy can disable the brakes. Blocks by operators are exempt, but cause a warning with the
//! same numbers.

use std::fmt;

use hayward_vocabulary::plural::{self, with_count};

/// Limits on the nodes withheld from a pool. A withheld node is blocked automatically or on trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brakes {
    /// Percent of the ready nodes of a pool that automatic blocks and trials may withhold.
    pub max_percent: u64,
    /// Minimum number of ready nodes of a pool without any block (B4).
    pub min_unblocked: u64,
}

/// Numbers of nodes of one pool. They decide whether a candidate node may be blocked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Ready nodes, blocked or not, including the candidate.
    pub ready: u64,
    /// Other nodes that are blocked automatically or on trial.
    pub withheld: u64,
    /// Other ready nodes with any block or trial.
    pub blocked: u64,
    /// True if the candidate is ready.
    pub is_candidate_ready: bool,
    /// Other nodes that stopped being ready or were blocked automatically within the last five
    /// minutes.
    pub recently_failed: u64,
}

/// The brake that prevents an automatic block, with its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrakeReason {
    /// The publication `machines` is not loaded yet, or does not list the node.
    Unknown { node: String },
    Fraction {
        pool: String,
        ready: u64,
        withheld: u64,
        allowed: u64,
        percent: u64,
    },
    MinUnblocked {
        pool: String,
        remaining: u64,
        min_unblocked: u64,
    },
    /// Many nodes failed at once, so the cause is common and not this node (B1). The counts are of
    /// recently failed and of ready nodes.
    Storm {
        pool: String,
        recently_failed: u64,
        ready: u64,
    },
}

impl fmt::Display for BrakeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { node } => {
                write!(f, "the pool of {node} is unknown")
            }
            Self::Fraction {
                pool,
                ready,
                withheld,
                allowed,
                percent,
            } => write!(
                f,
                "pool {pool} has {ready} ready nodes, of which {percent} % or {allowed} may be \
                 blocked automatically or on trial; {withheld} are"
            ),
            Self::MinUnblocked {
                pool,
                remaining,
                min_unblocked,
            } => write!(
                f,
                "pool {pool} would have {remaining} ready nodes that are not blocked, fewer than \
                 its minimum of {min_unblocked}"
            ),
            Self::Storm {
                pool,
                recently_failed,
                ready,
            } => write!(
                f,
                "{} of pool {pool} failed or were blocked within five minutes, and {ready} are \
                 ready now: the cause is common, not this node",
                plural::nodes(*recently_failed)
            ),
        }
    }
}

/// At least this many failed nodes are a storm, if they are more than a quarter of their pool.
const STORM_MIN_NODES: u64 = 3;
/// At least this many failed nodes are a storm in a pool of any size.
const STORM_ANY_POOL_NODES: u64 = 10;

impl Brakes {
    /// Returns the number of nodes of the pool that may be withheld.
    pub fn max_withheld(&self, pool: PoolCounts) -> u64 {
        pool.ready.saturating_mul(self.max_percent) / 100
    }

    /// Checks whether one more node of the pool may be blocked automatically.
    ///
    /// # Errors
    /// Returns the first brake that prevents the block.
    pub fn check(&self, name: &str, pool: PoolCounts) -> Result<(), BrakeReason> {
        if is_storm(pool) {
            return Err(BrakeReason::Storm {
                pool: name.to_owned(),
                recently_failed: pool.recently_failed,
                ready: pool.ready,
            });
        }
        let allowed = self.max_withheld(pool);
        if pool.withheld >= allowed {
            return Err(BrakeReason::Fraction {
                pool: name.to_owned(),
                ready: pool.ready,
                withheld: pool.withheld,
                allowed,
                percent: self.max_percent,
            });
        }
        let remaining = unblocked_after(pool);
        if pool.is_candidate_ready && remaining < self.min_unblocked {
            return Err(BrakeReason::MinUnblocked {
                pool: name.to_owned(),
                remaining,
                min_unblocked: self.min_unblocked,
            });
        }
        Ok(())
    }

    /// Returns a warning for an operator whose block exceeds the limits of automatic blocks.
    pub fn operator_warning(&self, name: &str, pool: PoolCounts) -> Option<String> {
        let (blocked, allowed) = (pool.blocked + 1, self.max_withheld(pool));
        let remaining = unblocked_after(pool);
        (pool.is_candidate_ready && (blocked > allowed || remaining < self.min_unblocked)).then(|| {
            format!(
                "with this block, {blocked} of the {} of pool {name} are blocked and {remaining} \
                 are not; at most {allowed} ({} %) may be blocked automatically",
                with_count(pool.ready, "ready node", "ready nodes"),
                self.max_percent
            )
        })
    }
}

/// Returns the number of ready nodes without a block once the candidate is blocked.
fn unblocked_after(pool: PoolCounts) -> u64 {
    let free = pool.ready.saturating_sub(pool.blocked);
    free.saturating_sub(u64::from(pool.is_candidate_ready))
}

/// Returns whether many nodes of the pool failed at once.
fn is_storm(pool: PoolCounts) -> bool {
    // Failed nodes are no longer ready, so the pool was larger by their number.
    let former_size = pool.ready.saturating_add(pool.recently_failed);
    let exceeds_quarter = pool.recently_failed.saturating_mul(4) > former_size;
    (pool.recently_failed >= STORM_MIN_NODES && exceeds_quarter)
        || pool.recently_failed >= STORM_ANY_POOL_NODES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BRAKES: Brakes = Brakes {
        max_percent: 20,
        min_unblocked: 1,
    };

    /// Returns the counts of a pool with a ready candidate and without failures.
    fn pool_counts(ready: u64, withheld: u64) -> PoolCounts {
        PoolCounts {
            ready,
            withheld,
            blocked: withheld,
            is_candidate_ready: true,
            recently_failed: 0,
        }
    }

    #[test]
    fn the_third_block_of_ten_nodes_exceeds_the_fraction() {
        assert_eq!(BRAKES.check("p", pool_counts(10, 1)), Ok(()));
        let reason = BRAKES.check("p", pool_counts(10, 2)).unwrap_err();
        assert_eq!(
            reason.to_string(),
            "pool p has 10 ready nodes, of which 20 % or 2 may be blocked automatically or on \
             trial; 2 are"
        );
    }

    #[test]
    fn a_pool_keeps_its_minimum_of_unblocked_nodes() {
        let brakes = Brakes {
            max_percent: 100,
            min_unblocked: 2,
        };
        assert_eq!(brakes.check("p", pool_counts(4, 1)), Ok(()));
        let reason = brakes.check("p", pool_counts(4, 2)).unwrap_err();
        assert!(matches!(
            reason,
            BrakeReason::MinUnblocked {
                remaining: 1,
                min_unblocked: 2,
                ..
            }
        ));
        let counts_of_down_node = PoolCounts {
            is_candidate_ready: false,
            ..pool_counts(4, 2)
        };
        assert_eq!(
            brakes.check("p", counts_of_down_node),
            Ok(()),
            "the block of a node that is down withholds no ready node"
        );
    }

    #[test]
    fn no_node_is_blocked_while_many_nodes_fail_at_once() {
        let is_allowed = |ready, recently_failed| {
            let pool = PoolCounts {
                recently_failed,
                ..pool_counts(ready, 0)
            };
            BRAKES.check("p", pool).is_ok()
        };
        assert!(is_allowed(7, 2), "fewer than three nodes failed");
        assert!(!is_allowed(7, 3), "three of ten nodes failed");
        assert!(
            is_allowed(9, 3),
            "three of twelve nodes are not more than a quarter"
        );
        assert!(is_allowed(1_000, 9) && !is_allowed(1_000, 10));
    }

    #[test]
    fn operators_are_warned_with_the_numbers() {
        assert_eq!(BRAKES.operator_warning("p", pool_counts(10, 1)), None);
        let warning = BRAKES.operator_warning("p", pool_counts(10, 4)).unwrap();
        assert!(warning.starts_with(
            "with this block, 5 of the 10 ready nodes of pool p are blocked and 5 are not"
        ));
    }

    proptest! {
        #[test]
        fn automatic_blocks_never_exceed_the_fraction(
            ready in 0..200_u64,
            percent in 0..=100_u64,
            min_unblocked in 0..10_u64,
            attempts in 0..300_u64,
        ) {
            let brakes = Brakes {
                max_percent: percent,
                min_unblocked,
            };
            let mut withheld = 0;
            for _ in 0..attempts {
                if withheld < ready && brakes.check("p", pool_counts(ready, withheld)).is_ok() {
                    withheld += 1;
                }
            }
            prop_assert!(withheld * 100 <= ready * percent);
            prop_assert!(withheld == 0 || ready - withheld >= min_unblocked);
        }
    }
}
