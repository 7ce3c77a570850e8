//! Search for the smallest hole that fits. It visits the nodes of a pool in order of free quanta.

use crate::{
    ids::{Ix, NodeIx, PoolIx, WorkIx},
    state::{NodeIndex, RoundState},
};

/// A cursor over nodes with free space. During the search, nodes may move to buckets that the
/// cursor has passed.
pub(crate) enum HoleSearch {
    /// Search over all nodes of a pool.
    All {
        pool: PoolIx,
        /// Free quanta of the bucket that is searched.
        free: u64,
        /// Lowest node of this bucket that the search may still return.
        next_node: NodeIx,
    },
    /// Search over the listed nodes of work with a node list, with their free quanta.
    Listed(std::vec::IntoIter<(u64, NodeIx)>),
}

impl HoleSearch {
    /// Returns a search over the nodes of a pool that the work may use, by smallest hole, then by
    /// name.
    pub fn new(state: &RoundState, node_index: &NodeIndex, pool: PoolIx, work: WorkIx) -> Self {
        let work_state = &state.work[work];
        if !work_state.has_node_list {
            return Self::All {
                pool,
                free: work_state.process_quanta,
                next_node: NodeIx::new(0),
            };
        }
        let listed_names = state.work_record(work).constraints().nodes.iter();
        let mut listed: Vec<(u64, NodeIx)> = listed_names
            .filter_map(|name| state.index.find_node(name))
            .filter_map(|node| Some((node_index.free_quanta_in(pool, node)?, node)))
            .collect();
        listed.sort_unstable();
        Self::Listed(listed.into_iter())
    }

    /// Returns the next node, or `None` at the end. `node_index` has the present free space.
    pub fn next(&mut self, node_index: &NodeIndex) -> Option<NodeIx> {
        match self {
            Self::Listed(listed) => listed.next().map(|(_, node)| node),
            Self::All {
                pool,
                free,
                next_node,
            } => loop {
                let (size, nodes) = node_index.free.at_least(*pool, *free)?;
                if size > *free {
                    (*free, *next_node) = (size, NodeIx::new(0));
                }
                if let Some(node) = nodes.at_least(*next_node) {
                    *next_node = node.next();
                    return Some(node);
                }
                (*free, *next_node) = (size + 1, NodeIx::new(0));
            },
        }
    }
}
