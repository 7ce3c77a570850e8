//! Independent check of the limits on automatic blocks, which are called brakes. The check reads
//! the current blocks and shares no code with [`crate::brakes`], so that it finds a bypass (I16).

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::invariant_finding::{Evidence, Inquiry};

/// Withheld nodes of one pool: nodes that are blocked automatically or on trial.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WithheldNodes {
    /// Number of ready nodes, blocked or not.
    pub ready: u64,
    /// Number of nodes that may be withheld.
    pub allowed: u64,
    /// Names of the withheld nodes.
    pub nodes: BTreeSet<String>,
}

/// State between two checks.
#[derive(Debug, Clone, Default)]
pub struct BrakeCheck {
    /// Withheld nodes of each pool at the previous check.
    previous: BTreeMap<String, WithheldNodes>,
    /// Pools that violated their limit at the previous check.
    violating: BTreeSet<String>,
}

impl BrakeCheck {
    /// Checks the limits of all pools. A pool may exceed its limit after it lost nodes, or after a
    /// restart changed the limit. A newly withheld node is a violation if the pool did not shrink.
    /// The violation lasts until the pool is within its limit again.
    pub fn check(&mut self, current: BTreeMap<String, WithheldNodes>, inquiry: &mut Inquiry) {
        let mut violating = BTreeSet::new();
        for (pool, withheld) in &current {
            let count = u64::try_from(withheld.nodes.len()).unwrap_or(u64::MAX);
            let previous = self.previous.get(pool);
            let has_new_nodes = previous.is_some_and(|previous| {
                withheld.ready >= previous.ready && !withheld.nodes.is_subset(&previous.nodes)
            });
            let is_violated =
                count > withheld.allowed && (has_new_nodes || self.violating.contains(pool));
            if is_violated {
                violating.insert(pool.clone());
            }
            inquiry.examine(is_violated.then(|| {
                let detail = format!(
                    "{count} nodes are blocked automatically or on trial; at most {} may be",
                    withheld.allowed
                );
                Evidence::new(&format!("pool {pool}"), detail)
                    .with_number("withheld", count)
                    .with_number("allowed", withheld.allowed)
                    .with_number("ready", withheld.ready)
            }));
        }
        self.previous = current;
        self.violating = violating;
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::invariant_finding::Rule;

    use super::*;

    fn withheld_in_pool(
        ready: u64,
        allowed: u64,
        nodes: &[&str],
    ) -> BTreeMap<String, WithheldNodes> {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        let withheld = WithheldNodes {
            ready,
            allowed,
            nodes,
        };
        BTreeMap::from([("default".to_owned(), withheld)])
    }

    /// A pool withholds no more nodes than its limit allows (I16).
    #[test]
    fn a_newly_withheld_node_over_the_limit_is_a_violation() {
        let mut check = BrakeCheck::default();
        let mut holds = |current| {
            let mut inquiry = Inquiry::new(Rule {
                id: "I16",
                title: "blocked means blocked",
            });
            check.check(current, &mut inquiry);
            inquiry.finish().holds()
        };
        assert!(holds(withheld_in_pool(10, 2, &["n1", "n2"])));
        assert!(
            holds(withheld_in_pool(5, 1, &["n1", "n2"])),
            "the pool shrank"
        );
        assert!(holds(withheld_in_pool(5, 1, &["n2"])));
        assert!(
            !holds(withheld_in_pool(5, 1, &["n2", "n3"])),
            "another node was blocked"
        );
        assert!(
            !holds(withheld_in_pool(5, 1, &["n2", "n3"])),
            "the node is still blocked"
        );
        assert!(holds(withheld_in_pool(10, 2, &["n2", "n3"])));
        assert!(
            holds(withheld_in_pool(10, 2, &["n3", "n4"])),
            "a node was replaced by another"
        );
    }
}
