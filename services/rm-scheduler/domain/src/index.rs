//! The fleet as a round sees it: nodes, work and shares by dense numbers, with their
//! cross-references and everything that follows from them alone. It is kept from round to round and
//! brought up to date by news; what a round decides is in the [`Books`](crate::state::Books).
//!
//! Invariants: numbers of nodes ascend by name; lists of shares ascend by id; what is here follows
//! from the snapshot that was absorbed last, whatever was absorbed before. Numbers of work and
//! shares mean nothing, and no decision may depend on them.

mod allocation_usage;
mod allocations;
mod apply_delta;
mod by_name;
mod derive;
pub(crate) mod eligibility;
pub(crate) mod growth_cap;
pub mod largest_nodes;
mod lookup;
pub(crate) mod node_space;
mod node_usage;
mod nodes;
pub(crate) mod pool_tree;
mod prefetch;
mod rows;
mod user_work;
mod users;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hayward_vocabulary::{NodeName, Quantum, Size, UserName, WorkId};
use rustc_hash::FxHashMap;

pub(crate) use crate::collections::id_list::IdList;
pub(crate) use allocation_usage::AllocationUsage;
use by_name::{ByName, Hash};
pub(crate) use rows::{
    AllocationRecord, ClassRecord, DepartedWork, NodeRecord, PlacementConstraints, Shape,
    WorkListEdit, WorkRecord, WorkUsage,
};
pub(crate) use users::Users;

use crate::input::snapshot::{Class, Pool, Tunables};
use largest_nodes::LargestNodes;
use node_space::NodeSpace;
use pool_tree::Forest;

#[derive(Default)]
pub(crate) struct FleetIndex {
    policy: PolicyInputs,
    pub forest: Forest,
    /// By pool: the quantum of its tree.
    pub quanta: Vec<Quantum>,
    pub classes: Vec<ClassRecord>,
    pub nodes: Vec<NodeRecord>,
    pub work: Vec<WorkRecord>,
    pub allocations: Vec<AllocationRecord>,
    /// Of each share what walks over many of them read.
    pub usage: Vec<AllocationUsage>,
    /// By node: what its shares come to.
    node_usage: Vec<allocation_usage::NodeUsage>,
    pub node_kinds: NodeKinds,
    /// Not what they were before the news absorbed last.
    pub node_kinds_changed: bool,
    /// Nodes of pools in which any node has gpus.
    pub gpu_pool_nodes: Vec<usize>,
    /// By pool: has any node gpus?
    with_gpus: Vec<bool>,
    /// By pool: quanta of the nodes that take work, and of all.
    pub open_quanta: Vec<u64>,
    pub all_quanta: Vec<u64>,
    /// Shares that have to leave whatever anybody is due.
    pub faulty: BTreeSet<usize>,
    /// Shares that are never taken back.
    pub fixed: BTreeSet<usize>,
    /// Shares that were told to leave before.
    pub leaving: BTreeSet<usize>,
    /// Shares on nodes that are gone.
    pub unplaced: BTreeSet<usize>,
    /// Shares of work that is withdrawn or may not be served.
    pub unclassed: BTreeSet<usize>,
    /// Shares outside the pool of their own work that may be sent home (W-13).
    pub squatters: BTreeSet<usize>,
    /// Those of them on nodes of another tree than that of their work, which moved.
    pub orphans: BTreeSet<usize>,
    /// Nodes that hold more than they have (W-20).
    pub overfull: BTreeSet<usize>,
    pub shapes: Arc<Vec<Shape>>,
    user_by_name: FxHashMap<UserName, usize>,
    /// By number. Work and shares say these of whose they are: what each brings with it lies
    /// somewhere else in memory.
    user_names: Vec<UserName>,
    node_by_name: FxHashMap<NodeName, usize>,
    work_by_name: ByName,
    allocation_by_name: ByName,
    class_by_name: FxHashMap<String, usize>,
    shape_by_value: FxHashMap<Shape, usize>,
    /// By pool: the largest of its own nodes, which cap the order of work.
    largest: Vec<LargestNodes>,
    /// By class and kind of work: sizes that were asked for, with their quanta and shape.
    known_sizes: Vec<Vec<(Size, u64, usize)>>,
    /// Shares of work that asks for nothing.
    without_demand: FxHashMap<WorkId, IdList>,
    /// Work that is kept apart, by group.
    pub groups: FxHashMap<WorkId, Vec<usize>>,
    /// Work that may go to all nodes but some, so that it matters to it which there are.
    avoiding: BTreeSet<usize>,
    /// Classes that serve a kind of work for everyone, by the name it asks for.
    open_to_all: [FxHashMap<String, usize>; 3],
    /// Of the news absorbed last: numbers of work that is not what it was, and whose it was.
    pub touched: Vec<usize>,
    /// Work of which something was derived anew.
    pub rederived: Vec<usize>,
    /// Nodes of which something was derived anew.
    pub changed_nodes: Vec<usize>,
    pub departed: Vec<DepartedWork>,
    /// Pools that nodes were in before they were said anew, and whether any was.
    pub left_pools: Vec<usize>,
    pub nodes_changed: bool,
    /// How the work of users in their classes came and went, in this order.
    pub work_list_edits: Vec<WorkListEdit>,
    pub withdrawn: Vec<WorkId>,
    /// The numbers they had, which others may have by now.
    pub freed_work: Vec<usize>,
    /// The news was everything.
    pub rebuilt: bool,
    dirty: apply_delta::DirtyRows,
    free_work: Vec<usize>,
    free_allocations: Vec<usize>,
}

/// Nodes alike: pool and room that could be had, to number of nodes.
pub(crate) type NodeKinds = BTreeMap<(usize, NodeSpace), u64>;

/// What everything else is read under; a change of it is read anew from the beginning.
#[derive(Default, PartialEq)]
struct PolicyInputs {
    quantum: Quantum,
    tunables: Tunables,
    pools: BTreeMap<String, Pool>,
    classes: BTreeMap<String, Class>,
}

impl FleetIndex {
    pub fn find_node(&self, name: &NodeName) -> Option<usize> {
        self.node_by_name.get(name).copied()
    }

    pub fn find_work(&self, id: &WorkId) -> Option<usize> {
        let is_it = |at: usize| self.work[at].id == *id;
        self.work_by_name.find(Hash::of(id.as_str()), is_it)
    }

    /// Is this the number of work that is not withdrawn?
    pub fn is_live(&self, at: usize) -> bool {
        let work_record = &self.work[at];
        work_record.class.is_some() || work_record.deferral.is_some()
    }

    /// Users have numbers below this.
    pub fn user_count(&self) -> usize {
        self.user_by_name.len()
    }

    pub(self) fn user_number(&mut self, name: &UserName) -> usize {
        if let Some(known) = self.user_by_name.get(name) {
            return *known;
        }
        let fresh = self.user_by_name.len();
        self.user_by_name.insert(name.clone(), fresh);
        self.user_names.push(name.clone());
        fresh
    }

    pub fn find_user(&self, name: &UserName) -> Option<usize> {
        self.user_by_name.get(name).copied()
    }

    /// Has any node of this pool itself gpus?
    pub fn has_gpus(&self, pool: usize) -> bool {
        self.with_gpus.get(pool).copied().unwrap_or(false)
    }

    pub fn find_class(&self, name: &str) -> Option<usize> {
        self.class_by_name.get(name).copied()
    }

    pub fn quantum(&self, pool: Option<usize>) -> &Quantum {
        pool.map_or(&self.policy.quantum, |pool| &self.quanta[pool])
    }
}
