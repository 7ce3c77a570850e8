//! What keeps automatic blocks from doing harm: a fraction, a floor, and the pause when much of a
//! pool turns bad at once (section 7; B1, B3, B4 of the reliability specification). They are never
//! tuned off by a strategy. Blocks that people ask for are exempt; the same numbers warn them.

use std::fmt;

use hayward_vocabulary::counted::{self, counted};

/// How much may be withheld from a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brakes {
    /// Percent of the ready nodes of a pool that automatic blocks and trials may withhold.
    pub percent: u64,
    /// Ready nodes of a pool that stay free of any block (B4).
    pub floor: u64,
}

/// A pool as the brakes see it, without the node in question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pool {
    /// Nodes that are well, blocked or not; the node in question among them, if it is well.
    pub ready: u64,
    /// Other nodes blocked automatically or on trial.
    pub withheld: u64,
    /// Other ready nodes under any block or trial.
    pub blocked: u64,
    /// Whether the node in question is well.
    pub node_ready: bool,
    /// Other nodes that turned bad in the last five minutes: fell out of readiness, or were
    /// blocked automatically.
    pub turned: u64,
}

/// Why a machine that should be blocked is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Withheld {
    /// rm-scheduler has not said which machines there are, or not this one.
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
    /// B1: when so many turn bad at once, the cause is common and not the machine.
    Storm {
        pool: String,
        turned: u64,
        ready: u64,
    },
}

impl fmt::Display for Withheld {
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
                turned,
                ready,
            } => write!(
                f,
                "{} of pool {pool} turned bad within five minutes, of {ready} ready now: the cause \
                 is common, not this node",
                counted::nodes(*turned)
            ),
        }
    }
}

/// B1: at least three and more than a quarter of the pool, or ten of it.
const STORM_LEAST: u64 = 3;
const STORM_MANY: u64 = 10;

impl Brakes {
    pub fn allowed(&self, pool: Pool) -> u64 {
        pool.ready.saturating_mul(self.percent) / 100
    }

    /// Whether one more node of the pool may be blocked automatically.
    ///
    /// # Errors
    /// The first brake that holds, with its numbers.
    pub fn allow(&self, name: &str, pool: Pool) -> Result<(), Withheld> {
        if storm(pool) {
            return Err(Withheld::Storm {
                pool: name.to_owned(),
                turned: pool.turned,
                ready: pool.ready,
            });
        }
        let allowed = self.allowed(pool);
        if pool.withheld >= allowed {
            return Err(Withheld::Fraction {
                pool: name.to_owned(),
                ready: pool.ready,
                withheld: pool.withheld,
                allowed,
                percent: self.percent,
            });
        }
        let left = left(pool);
        if pool.node_ready && left < self.floor {
            return Err(Withheld::Floor {
                pool: name.to_owned(),
                left,
                floor: self.floor,
            });
        }
        Ok(())
    }

    /// What a person is told who blocks a node of the pool all the same.
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

/// Ready nodes without any block, once the node in question is blocked too.
fn left(pool: Pool) -> u64 {
    let free = pool.ready.saturating_sub(pool.blocked);
    free.saturating_sub(u64::from(pool.node_ready))
}

fn storm(pool: Pool) -> bool {
    // What turned bad is no longer among the ready ones, so the pool was larger by as much.
    let was = pool.ready.saturating_add(pool.turned);
    let quarter = pool.turned.saturating_mul(4) > was;
    (pool.turned >= STORM_LEAST && quarter) || pool.turned >= STORM_MANY
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
            turned: 0,
        }
    }

    #[test]
    fn scenario_22_the_third_of_ten_would_exceed_the_fraction() {
        assert_eq!(BRAKES.allow("p", pool(10, 1)), Ok(()));
        let held = BRAKES.allow("p", pool(10, 2)).unwrap_err();
        assert_eq!(
            held.to_string(),
            "pool p has 10 ready nodes, of which 20 % or 2 may be blocked automatically or on \
             trial; 2 are"
        );
    }

    #[test]
    fn b4_a_pool_keeps_its_floor() {
        let brakes = Brakes {
            percent: 100,
            floor: 2,
        };
        assert_eq!(brakes.allow("p", pool(4, 1)), Ok(()));
        let held = brakes.allow("p", pool(4, 2)).unwrap_err();
        assert!(matches!(
            held,
            Withheld::Floor {
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
    fn b1_when_much_turns_bad_at_once_nothing_is_blocked() {
        let turned = |ready, turned| {
            let pool = Pool {
                turned,
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
    fn people_are_warned_with_the_numbers() {
        assert_eq!(BRAKES.warning("p", pool(10, 1)), None);
        let said = BRAKES.warning("p", pool(10, 4)).unwrap();
        assert!(
            said.starts_with("with this, pool p has blocks on 5 of its 10 ready nodes and 5 left")
        );
    }

    proptest! {
        #[test]
        fn b9_automatic_blocks_never_exceed_the_fraction(
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
