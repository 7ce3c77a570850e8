//! Limits on automatic blocks: a fraction of each pool, a floor of free nodes, and a stop while
//! much of a pool fails at once. No strategy can switch them off. Blocks by operators are exempt,
//! but the same numbers produce a warning.

use std::fmt;

use hayward_vocabulary::counted::{self, counted};

/// Limits on the nodes withheld from a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brakes {
    /// Percent of the ready nodes of a pool that automatic blocks and trials may withhold.
    pub percent: u64,
    /// Ready nodes of a pool that stay free of any block (B4).
    pub floor: u64,
}

/// Counts of one pool, seen for one candidate node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pool {
    /// Ready nodes, blocked or not, including the candidate.
    pub ready: u64,
    /// Other nodes that are blocked automatically or on trial.
    pub withheld: u64,
    /// Other ready nodes with any block or trial.
    pub blocked: u64,
    /// True when the candidate is ready.
    pub node_ready: bool,
    /// Other nodes that stopped being ready or were blocked automatically within the last five
    /// minutes.
    pub turned_bad: u64,
}

/// Brake that prevents an automatic block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrakeReason {
    /// The publication `machines` is not loaded yet, or does not list the node.
    Unknown {
        node: String,
    },
    Fraction {
        pool: String,
        ready: u64,
        withheld: u64,
        allowed: u64,
        percent: u64,
    },
    Floor {
        pool: String,
        left: u64,
        floor: u64,
    },
    /// Many nodes turned bad at once, so the cause is common and not this node (B1).
    Storm {
        pool: String,
        turned_bad: u64,
        ready: u64,
    },
}

impl fmt::Display for BrakeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { node } => {
                write!(
                    f,
                    "it is not known which pool {node} is in and how many are left"
                )
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
            Self::Floor { pool, left, floor } => write!(
                f,
                "pool {pool} would have {left} ready nodes left that are not blocked, fewer than \
                 its floor of {floor}"
            ),
            Self::Storm {
                pool,
                turned_bad,
                ready,
            } => write!(
                f,
                "{} of pool {pool} turned bad within five minutes, of {ready} ready now: the cause \
                 is common, not this node",
                counted::nodes(*turned_bad)
            ),
        }
    }
}

/// A storm is at least three nodes and more than a quarter of the pool, or ten nodes.
const STORM_MIN: u64 = 3;
const STORM_ALWAYS: u64 = 10;

impl Brakes {
    /// Nodes of the pool that may be withheld.
    pub fn allowed(&self, pool: Pool) -> u64 {
        pool.ready.saturating_mul(self.percent) / 100
    }

    /// Checks whether one more node of the pool may be blocked automatically.
    ///
    /// # Errors
    /// The first brake that holds, with its numbers.
    pub fn allow(&self, name: &str, pool: Pool) -> Result<(), BrakeReason> {
        if storm(pool) {
            return Err(BrakeReason::Storm {
                pool: name.to_owned(),
                turned_bad: pool.turned_bad,
                ready: pool.ready,
            });
        }
        let allowed = self.allowed(pool);
        if pool.withheld >= allowed {
            return Err(BrakeReason::Fraction {
                pool: name.to_owned(),
                ready: pool.ready,
                withheld: pool.withheld,
                allowed,
                percent: self.percent,
            });
        }
        let left = left(pool);
        if pool.node_ready && left < self.floor {
            return Err(BrakeReason::Floor {
                pool: name.to_owned(),
                left,
                floor: self.floor,
            });
        }
        Ok(())
    }

    /// Warning for an operator about a block that exceeds the limits of automatic blocks.
    pub fn warning(&self, name: &str, pool: Pool) -> Option<String> {
        let (blocked, allowed) = (pool.blocked + 1, self.allowed(pool));
        let left = left(pool);
        (pool.node_ready && (blocked > allowed || left < self.floor)).then(|| {
            format!(
                "with this, pool {name} has blocks on {blocked} of its {} and {left} left; \
                 automatic blocks would have stopped at {allowed} ({} %)",
                counted(pool.ready, "ready node", "ready nodes"),
                self.percent
            )
        })
    }
}

/// Ready nodes without a block after the candidate is blocked too.
fn left(pool: Pool) -> u64 {
    let free = pool.ready.saturating_sub(pool.blocked);
    free.saturating_sub(u64::from(pool.node_ready))
}

fn storm(pool: Pool) -> bool {
    // Nodes that turned bad are no longer ready, so the pool was larger by that number.
    let was = pool.ready.saturating_add(pool.turned_bad);
    let quarter = pool.turned_bad.saturating_mul(4) > was;
    (pool.turned_bad >= STORM_MIN && quarter) || pool.turned_bad >= STORM_ALWAYS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BRAKES: Brakes = Brakes {
        percent: 20,
        floor: 1,
    };

    fn pool(ready: u64, withheld: u64) -> Pool {
        Pool {
            ready,
            withheld,
            blocked: withheld,
            node_ready: true,
            turned_bad: 0,
        }
    }

    #[test]
    fn the_third_block_of_ten_nodes_exceeds_the_fraction() {
        assert_eq!(BRAKES.allow("p", pool(10, 1)), Ok(()));
        let held = BRAKES.allow("p", pool(10, 2)).unwrap_err();
        assert_eq!(
            held.to_string(),
            "pool p has 10 ready nodes, of which 20 % or 2 may be blocked automatically or on \
             trial; 2 are"
        );
    }

    #[test]
    fn a_pool_keeps_its_floor() {
        let brakes = Brakes {
            percent: 100,
            floor: 2,
        };
        assert_eq!(brakes.allow("p", pool(4, 1)), Ok(()));
        let held = brakes.allow("p", pool(4, 2)).unwrap_err();
        assert!(matches!(
            held,
            BrakeReason::Floor {
                left: 1,
                floor: 2,
                ..
            }
        ));
        let down = Pool {
            node_ready: false,
            ..pool(4, 2)
        };
        assert_eq!(
            brakes.allow("p", down),
            Ok(()),
            "a node that is down costs nothing"
        );
    }

    #[test]
    fn no_node_is_blocked_while_many_turn_bad_at_once() {
        let turned = |ready, turned| {
            let pool = Pool {
                turned_bad: turned,
                ..pool(ready, 0)
            };
            BRAKES.allow("p", pool).is_ok()
        };
        assert!(turned(7, 2), "fewer than three");
        assert!(!turned(7, 3), "three of ten");
        assert!(turned(9, 3), "a quarter is not more than a quarter");
        assert!(turned(1_000, 9) && !turned(1_000, 10));
    }

    #[test]
    fn operators_are_warned_with_the_numbers() {
        assert_eq!(BRAKES.warning("p", pool(10, 1)), None);
        let warning = BRAKES.warning("p", pool(10, 4)).unwrap();
        assert!(
            warning
                .starts_with("with this, pool p has blocks on 5 of its 10 ready nodes and 5 left")
        );
    }

    proptest! {
        #[test]
        fn automatic_blocks_never_exceed_the_fraction(
            ready in 0..200_u64, percent in 0..=100_u64, floor in 0..10_u64, tries in 0..300_u64
        ) {
            let brakes = Brakes { percent, floor };
            let mut withheld = 0;
            for _ in 0..tries {
                if withheld < ready && brakes.allow("p", pool(ready, withheld)).is_ok() {
                    withheld += 1;
                }
            }
            prop_assert!(withheld * 100 <= ready * percent);
            prop_assert!(withheld == 0 || ready - withheld >= floor);
        }
    }
}
