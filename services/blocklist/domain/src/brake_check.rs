//! Checks independently that the brakes hold. It uses the current blocks and shares no code with
//! [`crate::brakes`], so that a bypass is found (I16).

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::invariant::{Evidence, Inquiry};

/// Withheld nodes of one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WithheldNodes {
    /// Ready nodes, blocked or not.
    pub ready: u64,
    /// Nodes that may be blocked automatically or on trial.
    pub allowed: u64,
    /// Nodes that are blocked automatically or on trial.
    pub nodes: BTreeSet<String>,
}

/// State between two checks: the nodes withheld then, and the pools already over their limit.
#[derive(Debug, Clone, Default)]
pub struct BrakeCheck {
    before: BTreeMap<String, WithheldNodes>,
    over: BTreeSet<String>,
}

impl BrakeCheck {
    /// A pool may exceed its limit after it lost nodes or after a restart changed the limit. A
    /// newly withheld node in a pool that did not shrink is a violation.
    pub fn check(&mut self, now: BTreeMap<String, WithheldNodes>, inquiry: &mut Inquiry) {
        let mut over = BTreeSet::new();
        for (pool, withheld) in &now {
            let count = u64::try_from(withheld.nodes.len()).unwrap_or(u64::MAX);
            let before = self.before.get(pool);
            let added = before.is_some_and(|before| {
                withheld.ready >= before.ready && !withheld.nodes.is_subset(&before.nodes)
            });
            let too_many = count > withheld.allowed && (added || self.over.contains(pool));
            if too_many {
                over.insert(pool.clone());
            }
            inquiry.examine(too_many.then(|| {
                let detail = format!(
                    "{count} nodes are blocked automatically or on trial, where {} may be",
                    withheld.allowed
                );
                Evidence::new(&format!("pool {pool}"), detail)
                    .number("withheld", count)
                    .number("allowed", withheld.allowed)
                    .number("ready", withheld.ready)
            }));
        }
        (self.before, self.over) = (now, over);
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::invariant::Rule;

    use super::*;

    fn pool(ready: u64, allowed: u64, nodes: &[&str]) -> BTreeMap<String, WithheldNodes> {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        let withheld = WithheldNodes {
            ready,
            allowed,
            nodes,
        };
        BTreeMap::from([("default".to_owned(), withheld)])
    }

    /// (I16)
    #[test]
    fn a_newly_withheld_node_over_the_limit_is_a_violation() {
        let mut check = BrakeCheck::default();
        let mut holds = |now| {
            let mut inquiry = Inquiry::into(Rule {
                id: "I16",
                title: "blocked means blocked",
            });
            check.check(now, &mut inquiry);
            inquiry.end().holds()
        };
        assert!(holds(pool(10, 2, &["n1", "n2"])));
        assert!(holds(pool(5, 1, &["n1", "n2"])), "the pool shrank");
        assert!(holds(pool(5, 1, &["n2"])));
        assert!(!holds(pool(5, 1, &["n2", "n3"])), "one more was blocked");
        assert!(!holds(pool(5, 1, &["n2", "n3"])), "and is still there");
        assert!(holds(pool(10, 2, &["n2", "n3"])));
        assert!(holds(pool(10, 2, &["n3", "n4"])), "another is as good");
    }
}
