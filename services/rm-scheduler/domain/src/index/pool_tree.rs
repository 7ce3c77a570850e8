//! Pools as trees. Fair-share work may use its home and all pools below, other work its home only.
//! Trees share nothing but allotments.

use std::collections::BTreeMap;

use crate::input::snapshot::Pool;

#[derive(Default)]
pub(crate) struct Forest {
    names: Vec<String>,
    index: BTreeMap<String, usize>,
    parent: Vec<Option<usize>>,
    depth: Vec<usize>,
    root: Vec<usize>,
    /// Position by pool, in an order that serves children before their parent.
    turn: Vec<usize>,
    /// Each pool with all pools below it, depth first, by pool.
    subtrees: Vec<Vec<usize>>,
    /// Top-level pools in the order of the policy.
    tops: Vec<usize>,
}

impl Forest {
    pub fn new(pools: &BTreeMap<String, Pool>) -> Self {
        let index: BTreeMap<String, usize> = pools.keys().cloned().zip(0..).collect();
        let mut parent: Vec<Option<usize>> = pools
            .values()
            .map(|pool| {
                pool.parent
                    .as_deref()
                    .and_then(|name| index.get(name).copied())
            })
            .collect();
        // A policy with a cycle is refused earlier. If one gets here, its pools become trees of
        // their own.
        let circular: Vec<usize> = (0..parent.len())
            .filter(|pool| climb(&parent, *pool).is_none())
            .collect();
        for pool in circular {
            parent[pool] = None;
        }
        let mut children = vec![Vec::new(); parent.len()];
        let mut by_search: Vec<(i64, u64, usize)> = pools
            .values()
            .enumerate()
            .map(|(at, pool)| (pool.search_order, pool.place, at))
            .collect();
        by_search.sort_unstable();
        for (_, _, pool) in by_search {
            if let Some(above) = parent[pool] {
                children[above].push(pool);
            }
        }
        let mut tops: Vec<(u64, usize)> = pools
            .values()
            .enumerate()
            .filter(|(at, _)| parent[*at].is_none())
            .map(|(at, pool)| (pool.place, at))
            .collect();
        tops.sort_unstable();
        let tops: Vec<usize> = tops.into_iter().map(|(_, at)| at).collect();
        let mut turn = vec![0; parent.len()];
        let mut next = 0;
        for top in &tops {
            number(*top, &children, &mut turn, &mut next);
        }
        let climbs = (0..parent.len()).map(|pool| climb(&parent, pool).unwrap_or((pool, 0)));
        let (root, depth) = climbs.unzip();
        let subtrees = (0..parent.len())
            .map(|pool| subtree(pool, &children))
            .collect();
        Self {
            names: pools.keys().cloned().collect(),
            index,
            parent,
            depth,
            root,
            turn,
            subtrees,
            tops,
        }
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    pub fn name(&self, pool: usize) -> &str {
        &self.names[pool]
    }

    pub fn len(&self) -> usize {
        self.parent.len()
    }

    pub fn root(&self, pool: usize) -> usize {
        self.root[pool]
    }

    pub fn depth(&self, pool: usize) -> usize {
        self.depth[pool]
    }

    /// Returns the top-level pools in the order of the policy.
    pub fn roots(&self) -> &[usize] {
        &self.tops
    }

    pub fn rank(&self, pool: usize) -> usize {
        self.turn[pool]
    }

    /// Returns the pool, then the pools above it.
    pub fn upwards(&self, pool: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(pool), |at| self.parent[*at])
    }

    /// Returns true if `pool` is `home` or below it.
    pub fn is_within(&self, pool: usize, home: usize) -> bool {
        self.upwards(pool).any(|above| above == home)
    }

    /// Returns `home`, then all pools below it, depth first.
    pub fn subtree(&self, home: usize) -> &[usize] {
        &self.subtrees[home]
    }
}

/// Returns `home` with the pools below it. Children are ordered by ascending search order, then
/// name.
fn subtree(home: usize, children: &[Vec<usize>]) -> Vec<usize> {
    let mut quanta = Vec::new();
    let mut stack = vec![home];
    while let Some(pool) = stack.pop() {
        quanta.push(pool);
        stack.extend(children[pool].iter().rev());
    }
    quanta
}

/// Numbers the pools of a tree, each after all pools below it.
fn number(pool: usize, children: &[Vec<usize>], turn: &mut [usize], next: &mut usize) {
    for child in &children[pool] {
        number(*child, children, turn, next);
    }
    turn[pool] = *next;
    *next += 1;
}

/// Returns the top of the tree and the depth of a pool. Returns `None` for a pool in a cycle.
fn climb(parent: &[Option<usize>], pool: usize) -> Option<(usize, usize)> {
    let mut at = pool;
    for depth in 0..=parent.len() {
        match parent[at] {
            Some(above) => at = above,
            None => return Some((at, depth)),
        }
    }
    None
}
