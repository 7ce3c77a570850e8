//! The fleet as numbered rows, retained from round to round. Updating them is step 1 of a round.
//!
//! The input is a snapshot, and the delta from the snapshot before it. The result is rows for
//! nodes, work and allocations with their cross-references, and all values that follow from these
//! rows alone.
//!
//! Invariants: numbers of nodes ascend by name, and lists of allocations ascend by id. The content
//! depends on the last snapshot alone. Numbers of work and allocations are arbitrary, and no
//! decision may depend on them.
//!
//! The index never contains anything that a round decides. Decisions are in
//! [`RoundState`](crate::state::RoundState).

mod allocations;
mod apply_delta;
mod class_membership;
mod class_users;
mod delta_lookup;
mod derived_fields;
pub(crate) mod eligibility;
pub(crate) mod faulty_allocations;
pub(crate) mod growth_cap;
pub mod largest_nodes;
mod name_table;
mod node_contents;
pub(crate) mod node_space;
mod node_usage;
mod nodes;
pub(crate) mod pool_tree;
mod records;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hayward_vocabulary::{NodeName, Quantum, Size, UserName, WorkId};
use rustc_hash::FxHashMap;

pub(crate) use crate::collections::id_list::IdList;
pub(crate) use class_users::Users;
use name_table::{NameHash, NameTable};
pub(crate) use records::{
    AllocationRecord, ClassRecord, DepartedWork, NodeRecord, PlacementConstraints, Shape,
    WorkListEdit, WorkRecord, WorkUsage,
};

use crate::{
    ids::{AllocIx, ClassIx, NodeIx, PoolIx, ShapeIx, TypedVec, UserIx, WorkIx},
    input::snapshot::{Class, Pool, Tunables},
};
use largest_nodes::LargestNodes;
use node_space::NodeSpace;
use pool_tree::Forest;

/// All rows of the fleet, and the lists and sums that follow from them.
#[derive(Default)]
pub(crate) struct FleetIndex {
    policy: PolicyInputs,
    pub forest: Forest,
    /// Quantum of the tree, by pool.
    pub quantum_by_pool: TypedVec<PoolIx, Quantum>,
    pub classes: TypedVec<ClassIx, ClassRecord>,
    pub nodes: TypedVec<NodeIx, NodeRecord>,
    pub work: TypedVec<WorkIx, WorkRecord>,
    pub allocations: TypedVec<AllocIx, AllocationRecord>,
    /// Sum of the allocations, by node.
    node_usage: TypedVec<NodeIx, node_usage::NodeUsage>,
    pub node_kinds: NodeKinds,
    /// True if `node_kinds` changed with the last delta.
    pub node_kinds_changed: bool,
    /// Nodes of pools with GPUs.
    pub gpu_pool_nodes: Vec<NodeIx>,
    /// True if one of the pool's own nodes has GPUs, by pool.
    pool_has_gpus: TypedVec<PoolIx, bool>,
    /// Quanta of the nodes that take work, by pool.
    pub open_quanta: TypedVec<PoolIx, u64>,
    /// Quanta of all nodes, by pool.
    pub all_quanta: TypedVec<PoolIx, u64>,
    /// Allocations that must leave in this round.
    pub faulty: BTreeSet<AllocIx>,
    /// Allocations that are never preempted.
    pub fixed: BTreeSet<AllocIx>,
    /// Allocations that were vacated before this round.
    pub leaving: BTreeSet<AllocIx>,
    /// Allocations on nodes that no longer exist.
    pub unplaced: BTreeSet<AllocIx>,
    /// Allocations of work that is withdrawn or has no class.
    pub unclassed: BTreeSet<AllocIx>,
    /// Allocations outside the home pool of their work that may be sent home (W-13).
    pub squatters: BTreeSet<AllocIx>,
    /// Squatters on nodes of another tree than that of their work.
    pub orphans: BTreeSet<AllocIx>,
    /// Nodes whose staying allocations exceed their capacity (W-20).
    pub overfull: BTreeSet<NodeIx>,
    pub shapes: Arc<TypedVec<ShapeIx, Shape>>,
    user_by_name: FxHashMap<UserName, UserIx>,
    user_names: TypedVec<UserIx, UserName>,
    node_by_name: FxHashMap<NodeName, NodeIx>,
    work_by_name: NameTable<WorkIx>,
    allocation_by_name: NameTable<AllocIx>,
    class_by_name: FxHashMap<String, ClassIx>,
    shape_by_value: FxHashMap<Shape, ShapeIx>,
    /// Largest of the pool's own nodes, by pool. They limit the quanta of a process.
    largest_nodes_by_pool: TypedVec<PoolIx, LargestNodes>,
    /// Cache of sizes with their quanta and shape, by class and kind of work.
    size_cache: Vec<Vec<(Size, u64, ShapeIx)>>,
    /// Allocations of work that is not in the demand, by id of the work.
    allocations_without_demand: FxHashMap<WorkId, IdList<AllocIx>>,
    /// Work with anti-affinity, by group.
    pub anti_affinity_groups: FxHashMap<WorkId, Vec<WorkIx>>,
    /// Work that avoids single nodes.
    work_avoiding_nodes: BTreeSet<WorkIx>,
    /// Classes open to all users, by kind of work and name.
    open_to_all: [FxHashMap<String, ClassIx>; 3],
    /// Work that came, changed or left with the last delta.
    pub touched: Vec<WorkIx>,
    /// Work with derived fields that were computed again.
    pub rederived: Vec<WorkIx>,
    /// Nodes with derived fields that were computed again.
    pub changed_nodes: Vec<NodeIx>,
    /// Work that left its class with the last delta.
    pub departed: Vec<DepartedWork>,
    /// Pools that changed nodes were in before the last delta.
    pub left_pools: Vec<PoolIx>,
    /// True if a node was added, changed or removed.
    pub nodes_changed: bool,
    /// Insertions into and removals from the work lists of users, in order.
    pub work_list_edits: Vec<WorkListEdit>,
    /// Work that the last delta withdrew.
    pub withdrawn: Vec<WorkId>,
    /// Rows of withdrawn work. New work may already use them.
    pub freed_work: Vec<WorkIx>,
    /// True if the last delta was applied by a rebuild.
    pub rebuilt: bool,
    dirty: apply_delta::DirtyRows,
    /// Rows of withdrawn work that new work may use.
    free_work_rows: Vec<WorkIx>,
    free_allocation_rows: Vec<AllocIx>,
}

/// Number of equal nodes, by pool and space without fixed allocations.
pub(crate) type NodeKinds = BTreeMap<(PoolIx, NodeSpace), u64>;

/// Inputs that cause a rebuild when they change.
#[derive(Default, PartialEq)]
struct PolicyInputs {
    quantum: Quantum,
    tunables: Tunables,
    pools: BTreeMap<String, Pool>,
    classes: BTreeMap<String, Class>,
}

impl FleetIndex {
    pub fn find_node(&self, name: &NodeName) -> Option<NodeIx> {
        self.node_by_name.get(name).copied()
    }

    pub fn find_work(&self, id: &WorkId) -> Option<WorkIx> {
        let has_id = |work: WorkIx| self.work[work].id == *id;
        self.work_by_name.find(NameHash::new(id.as_str()), has_id)
    }

    /// Returns true if this row belongs to work that is not withdrawn.
    pub fn is_live(&self, work: WorkIx) -> bool {
        let work_record = &self.work[work];
        work_record.class.is_some() || work_record.deferral.is_some()
    }

    /// Returns the number of users, whether they have work or not.
    pub fn user_count(&self) -> usize {
        self.user_by_name.len()
    }

    pub(self) fn find_or_add_user(&mut self, name: &UserName) -> UserIx {
        if let Some(user) = self.user_by_name.get(name) {
            return *user;
        }
        let user = self.user_names.push(name.clone());
        self.user_by_name.insert(name.clone(), user);
        user
    }

    pub fn find_user(&self, name: &UserName) -> Option<UserIx> {
        self.user_by_name.get(name).copied()
    }

    /// Returns true if one of the pool's own nodes has GPUs.
    pub fn has_gpus(&self, pool: PoolIx) -> bool {
        self.pool_has_gpus.get(pool).copied().unwrap_or(false)
    }

    pub fn find_class(&self, name: &str) -> Option<ClassIx> {
        self.class_by_name.get(name).copied()
    }

    /// Returns the quantum of the tree of a pool, or that of the policy if there is no pool.
    pub fn quantum(&self, pool: Option<PoolIx>) -> &Quantum {
        pool.map_or(&self.policy.quantum, |pool| &self.quantum_by_pool[pool])
    }
}
