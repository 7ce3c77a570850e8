//! I16: the brakes hold. It is reckoned from what stands, apart from the code that lets blocks
//! pass, so that a way around the brakes is seen.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::invariant::{Evidence, Inquiry};

/// What is withheld of one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Withholds {
    /// Nodes that are well, blocked or not.
    pub ready: u64,
    /// How many may be blocked automatically or on trial.
    pub allowed: u64,
    /// Those that are.
    pub nodes: BTreeSet<String>,
}

/// From look to look: what was withheld, and the pools where it has been too much.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    before: BTreeMap<String, Withholds>,
    over: BTreeSet<String>,
}

impl Guard {
    /// A pool that lost nodes may have more withheld than it would be allowed now, and so may one
    /// whose brakes were changed by a restart. That more is withheld than before, while the pool is
    /// as large as it was, the brakes should not have let pass.
    pub fn look(&mut self, now: BTreeMap<String, Withholds>, inquiry: &mut Inquiry) {
        let mut over = BTreeSet::new();
        for (pool, seen) in &now {
            let count = u64::try_from(seen.nodes.len()).unwrap_or(u64::MAX);
            let before = self.before.get(pool);
            let passed = before.is_some_and(|before| {
                seen.ready >= before.ready && !seen.nodes.is_subset(&before.nodes)
            });
            let too_many = count > seen.allowed && (passed || self.over.contains(pool));
            if too_many {
                over.insert(pool.clone());
            }
            inquiry.examine(too_many.then(|| {
                let detail = format!(
                    "{count} nodes are blocked automatically or on trial, where {} may be",
                    seen.allowed
                );
                Evidence::new(&format!("pool {pool}"), detail)
                    .number("withheld", count)
                    .number("allowed", seen.allowed)
                    .number("ready", seen.ready)
            }));
        }
        (self.before, self.over) = (now, over);
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::invariant::Rule;

    use super::*;

    fn pool(ready: u64, allowed: u64, nodes: &[&str]) -> BTreeMap<String, Withholds> {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        let seen = Withholds {
            ready,
            allowed,
            nodes,
        };
        BTreeMap::from([("default".to_owned(), seen)])
    }

    #[test]
    fn i16_more_is_withheld_than_the_brakes_allow() {
        let mut guard = Guard::default();
        let mut holds = |now| {
            let mut inquiry = Inquiry::into(Rule {
                id: "I16",
                title: "blocked means blocked",
            });
            guard.look(now, &mut inquiry);
            inquiry.end().holds()
        };
        assert!(holds(pool(10, 2, &["n1", "n2"])));
        assert!(holds(pool(5, 1, &["n1", "n2"])), "the pool shrank");
        assert!(holds(pool(5, 1, &["n2"])));
        assert!(!holds(pool(5, 1, &["n2", "n3"])), "one was let pass");
        assert!(!holds(pool(5, 1, &["n2", "n3"])), "and is still there");
        assert!(holds(pool(10, 2, &["n2", "n3"])));
        assert!(holds(pool(10, 2, &["n3", "n4"])), "another is as good");
    }
}
