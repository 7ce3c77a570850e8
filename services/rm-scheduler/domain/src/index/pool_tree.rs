//! The trees that the pools form. Fair-share work may use its home pool and all pools below it.
//! Other work may use only its home pool. Trees are independent, except that an allotment of a user
//! applies to all of them.

use std::collections::BTreeMap;

use crate::{
    ids::{PoolIx, TypedVec},
    input::snapshot::Pool,
};

/// All trees of pools.
#[derive(Default)]
pub(crate) struct Forest {
    names: TypedVec<PoolIx, String>,
    by_name: BTreeMap<String, PoolIx>,
    parent: TypedVec<PoolIx, Option<PoolIx>>,
    depth: TypedVec<PoolIx, usize>,
    root: TypedVec<PoolIx, PoolIx>,
    /// Position by pool, in an order that serves children before their parent.
    serve_position: TypedVec<PoolIx, usize>,
    /// Each pool with all pools below it, depth first, by pool.
    subtrees: TypedVec<PoolIx, Vec<PoolIx>>,
    /// Top-level pools in the order of the policy.
    roots: Vec<PoolIx>,
}

impl Forest {
    pub fn new(pools: &BTreeMap<String, Pool>) -> Self {
        let names: TypedVec<PoolIx, String> = pools.keys().cloned().collect();
        let by_name: BTreeMap<String, PoolIx> =
            pools.keys().cloned().zip(names.indices()).collect();
        let settings: TypedVec<PoolIx, &Pool> = pools.values().collect();
        let parent_of = |pool: &Pool| by_name.get(pool.parent.as_deref()?).copied();
        let mut parent: TypedVec<PoolIx, Option<PoolIx>> =
            settings.iter().map(|pool| parent_of(pool)).collect();
        // The service refuses a policy in which pools form a cycle. If a cycle occurs nevertheless,
        // each pool that cannot reach a root becomes a root.
        let circular: Vec<PoolIx> = names
            .indices()
            .filter(|pool| find_root_and_depth(&parent, *pool).is_none())
            .collect();
        for pool in circular {
            parent[pool] = None;
        }
        let mut children: TypedVec<PoolIx, Vec<PoolIx>> =
            names.iter().map(|_| Vec::new()).collect();
        let mut by_search_order: Vec<PoolIx> = names.indices().collect();
        by_search_order
            .sort_by_key(|pool| (settings[*pool].search_order, settings[*pool].position));
        for pool in by_search_order {
            if let Some(above) = parent[pool] {
                children[above].push(pool);
            }
        }
        let is_root = |pool: &PoolIx| parent[*pool].is_none();
        let mut roots: Vec<PoolIx> = names.indices().filter(is_root).collect();
        roots.sort_by_key(|pool| settings[*pool].position);
        let mut serve_position: TypedVec<PoolIx, usize> = names.iter().map(|_| 0).collect();
        let mut next = 0;
        for root in &roots {
            set_serve_positions(*root, &children, &mut serve_position, &mut next);
        }
        let root_and_depth = |pool| find_root_and_depth(&parent, pool).unwrap_or((pool, 0));
        let (root, depth) = names.indices().map(root_and_depth).unzip();
        let subtrees = names
            .indices()
            .map(|pool| subtree(pool, &children))
            .collect();
        Self {
            names,
            by_name,
            parent,
            depth,
            root,
            serve_position,
            subtrees,
            roots,
        }
    }

    pub fn find(&self, name: &str) -> Option<PoolIx> {
        self.by_name.get(name).copied()
    }

    pub fn name(&self, pool: PoolIx) -> &str {
        &self.names[pool]
    }

    pub fn len(&self) -> usize {
        self.parent.len()
    }

    /// Returns all pools, in the order of their names.
    pub fn pools(&self) -> impl DoubleEndedIterator<Item = PoolIx> + Clone + use<> {
        self.names.indices()
    }

    pub fn root(&self, pool: PoolIx) -> PoolIx {
        self.root[pool]
    }

    pub fn depth(&self, pool: PoolIx) -> usize {
        self.depth[pool]
    }

    /// Returns the top-level pools in the order of the policy.
    pub fn roots(&self) -> &[PoolIx] {
        &self.roots
    }

    /// Returns the position of a pool in the order of service. Children precede their parent.
    pub fn rank(&self, pool: PoolIx) -> usize {
        self.serve_position[pool]
    }

    /// Returns the pool, then the pools above it.
    pub fn path_to_root(&self, pool: PoolIx) -> impl Iterator<Item = PoolIx> + '_ {
        std::iter::successors(Some(pool), |below| self.parent[*below])
    }

    /// Returns true if `pool` is `home` or below it.
    pub fn is_within(&self, pool: PoolIx, home: PoolIx) -> bool {
        self.path_to_root(pool).any(|above| above == home)
    }

    /// Returns `home`, then all pools below it, depth first.
    pub fn subtree(&self, home: PoolIx) -> &[PoolIx] {
        &self.subtrees[home]
    }
}

/// Returns `home` with the pools below it. Children are ordered by ascending search order, then
/// name.
fn subtree(home: PoolIx, children: &TypedVec<PoolIx, Vec<PoolIx>>) -> Vec<PoolIx> {
    let mut pools = Vec::new();
    let mut stack = vec![home];
    while let Some(pool) = stack.pop() {
        pools.push(pool);
        stack.extend(children[pool].iter().rev());
    }
    pools
}

/// Numbers the pools of a tree, each after all pools below it.
fn set_serve_positions(
    pool: PoolIx,
    children: &TypedVec<PoolIx, Vec<PoolIx>>,
    serve_position: &mut TypedVec<PoolIx, usize>,
    next: &mut usize,
) {
    for child in &children[pool] {
        set_serve_positions(*child, children, serve_position, next);
    }
    serve_position[pool] = *next;
    *next += 1;
}

/// Returns the root of the tree and the depth of a pool. Returns `None` if a cycle hides the root.
fn find_root_and_depth(
    parent: &TypedVec<PoolIx, Option<PoolIx>>,
    pool: PoolIx,
) -> Option<(PoolIx, usize)> {
    let mut current = pool;
    for depth in 0..=parent.len() {
        match parent[current] {
            Some(above) => current = above,
            None => return Some((current, depth)),
        }
    }
    None
}
