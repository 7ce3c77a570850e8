//! State of one round: the index, and the decisions of the round so far. Each step of the round
//! reads the state and adds its decisions.
//!
//! Invariant: `free` of a node is its capacity minus all its allocations, including leaving ones,
//! and minus everything granted in this round.

mod allotment;
mod anti_affinity;
pub mod budget;
mod demand_by_shape;
mod derived_sets;
mod future_space;
mod grants;
pub(crate) mod hole_table;
pub(crate) mod idle_trees;
mod large_holders;
mod needy;
mod node_and_work_state;
mod node_index;
mod open_round;
pub(crate) mod permanent_reasons;
pub(crate) mod preemption_order;
mod process_counts;
pub(crate) mod serve_order;
pub(crate) mod whole_nodes;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicBool,
};

use hayward_vocabulary::{Size, UserName, WorkId};
use rustc_hash::FxHashMap;

use crate::{
    collections::{bit_set::BitSet, id_list::IdList},
    ids::{AllocIx, ClassIx, NodeIx, PoolIx, TypedVec, WorkIx},
    incremental::tracked_vec::TrackedVec,
    index::{
        AllocationRecord, FleetIndex, NodeRecord, Users, WorkRecord, growth_cap::Cap,
        node_space::NodeSpace, pool_tree::Forest,
    },
    input::{
        settings::Settings,
        snapshot::{Class, Policy, Snapshot},
    },
    output::plan::{CapParts, Receipt, Vacate, VacateReason},
};

use budget::{BudgetStop, OpenBudget};
use derived_sets::DerivedSets;
use grants::NewGrant;
use idle_trees::TreeOutcome;

pub(crate) use needy::Needy;
pub(crate) use node_and_work_state::{NodeState, Reservation, WorkShape, WorkState};
pub(crate) use node_index::NodeIndex;
pub(crate) use process_counts::ProcessCounts;

/// Rows and caches that one round passes on to the next.
#[derive(Default)]
pub(crate) struct RoundCache {
    nodes: TrackedVec<NodeIx, NodeState>,
    work: TrackedVec<WorkIx, WorkState>,
    leaving: BitSet<AllocIx>,
    /// Always empty. Only its capacity is reused.
    granted: Vec<NewGrant<'static>>,
    outcomes: TypedVec<PoolIx, TreeOutcome>,
    needy: Needy,
    derived: DerivedSets,
}

#[cfg(test)]
impl RoundCache {
    pub fn outcomes(&self) -> &TypedVec<PoolIx, TreeOutcome> {
        &self.outcomes
    }
}

/// The index with the decisions of this round so far.
pub(crate) struct RoundState<'a> {
    pub snapshot: &'a Snapshot,
    pub settings: &'a Settings,
    pub index: &'a FleetIndex,
    pub forest: &'a Forest,
    pub nodes: TrackedVec<NodeIx, NodeState>,
    pub allocations: &'a TypedVec<AllocIx, AllocationRecord>,
    /// Allocations that were vacated, before this round or in it.
    pub leaving: BitSet<AllocIx>,
    pub classes: TypedVec<ClassIx, ClassState<'a>>,
    pub work: TrackedVec<WorkIx, WorkState>,
    pub granted: Vec<NewGrant<'a>>,
    pub vacates: Vec<Vacate>,
    /// Index into `vacates`, by allocation.
    pub vacate_position: FxHashMap<AllocIx, usize>,
    pub receipts: Vec<Receipt>,
    /// Bytes of non-preemptable space by user. Held space and space of entitlements set in this
    /// round are included (C-5).
    pub fixed_bytes_by_user: FxHashMap<&'a UserName, u64>,
    /// Bytes of non-preemptable space by user and class.
    pub fixed_bytes_by_user_and_class: FxHashMap<(&'a UserName, &'a str), u64>,
    pub deficits: crate::input::snapshot::Deficits,
    /// Quanta that each group of classes had available and used, by the first class of the group.
    pub class_group_quanta: Vec<(ClassIx, crate::output::plan::GroupQuanta)>,
    pub previously_needy: BitSet<WorkIx>,
    /// Nodes on which space was reserved in this round.
    pub nodes_with_reservations: BTreeSet<NodeIx>,
    /// Space without fixed allocations, for nodes where a departure changed it.
    pub changed_space: BTreeMap<NodeIx, NodeSpace>,
    /// Caps and their parts, for work that lost an allocation in the departures step.
    pub changed_caps: BTreeMap<WorkIx, (Cap, CapParts)>,
    /// Whole nodes reserved for work of RESERVE classes, by work.
    pub whole_nodes: BTreeMap<WorkIx, Vec<NodeIx>>,
    /// Outcomes by tree.
    pub outcomes: TypedVec<PoolIx, TreeOutcome>,
    /// True if a step of the current tree depends on time. Then the tree is not idle in the next
    /// round.
    pub(crate) depends_on_time: AtomicBool,
    /// Work that waits because the preemption budget is spent.
    pub budget_stops: FxHashMap<WorkIx, BudgetStop>,
    /// Budgets of this round, computed at the first preemption.
    pub(crate) budget: OpenBudget,
    pub derived: DerivedSets,
}

/// A class, with its part of the results of the entitlement step.
pub(crate) struct ClassState<'a> {
    pub name: &'a str,
    pub class: &'a Class,
    /// Pool of the class. `None` if the policy names a pool that does not exist.
    pub pool: Option<PoolIx>,
    pub users: &'a Users,
    /// Processes that the class is entitled to, by size.
    pub entitlement: ProcessCounts,
    /// Quanta that weights alone give to the class.
    pub weighted_share: u64,
    /// Quanta that each user is entitled to, in the order of `users`.
    pub user_entitlements: Vec<u64>,
}

impl<'a> ClassState<'a> {
    pub fn work(&self) -> impl Iterator<Item = WorkIx> + use<'a> {
        self.users.values().flat_map(IdList::iter)
    }
}

impl<'a> RoundState<'a> {
    pub fn policy(&self, work: WorkIx) -> Option<Policy> {
        self.work[work]
            .class
            .map(|class| self.classes[class].class.policy)
    }

    /// Returns the home pool of the class of this work.
    pub fn home(&self, work: WorkIx) -> Option<PoolIx> {
        self.work[work]
            .class
            .and_then(|class| self.classes[class].pool)
    }

    pub fn id(&self, work: WorkIx) -> &'a WorkId {
        &self.index.work[work].id
    }

    pub fn work_record(&self, work: WorkIx) -> &'a WorkRecord {
        &self.index.work[work]
    }

    /// Returns the size of one granted process.
    pub fn size(&self, work: WorkIx) -> &'a Size {
        &self.index.shapes[self.work[work].shape].size
    }

    pub fn node_record(&self, node: NodeIx) -> &'a NodeRecord {
        &self.index.nodes[node]
    }

    /// Returns the key to sort work by age: submit time, then larger processes, then id.
    pub fn age_key(&self, work: WorkIx) -> (i64, Reverse<u64>, &'a WorkId) {
        let work_record = self.work_record(work);
        let quanta = self.work[work].process_quanta;
        (
            work_record.submitted_at.unix_ms(),
            Reverse(quanta),
            &work_record.id,
        )
    }

    /// Returns true if the node list of the work allows this node and the work does not avoid it.
    pub fn admits(&self, work: WorkIx, node: NodeIx) -> bool {
        self.work_record(work).admits(&self.node_record(node).name)
    }

    /// Returns true if this node is blocked for this work alone.
    pub fn avoids(&self, work: WorkIx, node: NodeIx) -> bool {
        self.work_record(work).avoids(&self.node_record(node).name)
    }

    /// Returns the size in the demand, before rounding up to what is granted.
    pub fn requested_size(&self, work: WorkIx) -> &'a Size {
        let work_record = self.work_record(work);
        work_record
            .constraints()
            .node_size
            .as_ref()
            .unwrap_or(self.size(work))
    }

    /// Returns true if this work may ever use nodes of this pool.
    pub fn may_use(&self, work: WorkIx, pool: PoolIx) -> bool {
        self.index.may_use(work, pool)
    }

    /// Returns true if the work may use this node now: pool, node list and anti-affinity allow it.
    pub fn is_permitted(&self, work: WorkIx, node: NodeIx) -> bool {
        self.could_use(work, node) && !self.violates_anti_affinity(work, node)
    }

    /// Returns true if the pool and the node list allow the work to ever use this node.
    pub fn could_use(&self, work: WorkIx, node: NodeIx) -> bool {
        let pool = self.nodes[node].pool;
        pool.is_some_and(|pool| self.may_use(work, pool)) && self.admits(work, node)
    }

    /// Vacates an allocation. It keeps its space, but no longer counts for its work.
    pub fn vacate(&mut self, allocation: AllocIx, reason: VacateReason, detail: String) {
        let record = &self.allocations[allocation];
        // A lost node cannot respond, so its allocation ends without a confirmation.
        let purge = record
            .node
            .is_none_or(|node| self.node_record(node).node.lost);
        if !self.leaving[allocation] {
            self.leaving.insert(allocation);
            if let Some(node) = record.node {
                self.nodes[node].to_vacate.push(allocation);
            }
            if let Some(work) = record.work {
                let owner = &mut self.work[work];
                (owner.current, owner.leaving) = (owner.current - 1, owner.leaving + 1);
                owner.lost_allocation = true;
            }
        }
        let vacate = Vacate {
            allocation: record.id.clone(),
            reason,
            detail,
            purge,
        };
        // A later reason replaces an earlier one.
        let position = *self
            .vacate_position
            .entry(allocation)
            .or_insert(self.vacates.len());
        match self.vacates.get_mut(position) {
            Some(earlier) => *earlier = vacate,
            None => self.vacates.push(vacate),
        }
    }

    /// Vacates an allocation for the sake of other work, and records a receipt.
    pub fn preempt(&mut self, allocation: AllocIx, beneficiary: Option<WorkIx>, detail: String) {
        let receipt = self.new_receipt(allocation, beneficiary);
        self.charge_preemption(allocation);
        self.vacate(allocation, VacateReason::Preempted, detail);
        self.receipts.push(receipt);
    }

    fn new_receipt(&self, allocation: AllocIx, beneficiary: Option<WorkIx>) -> Receipt {
        let record = &self.allocations[allocation];
        Receipt {
            allocation: record.id.clone(),
            work: record.work_id.clone(),
            user: record.user_name.clone(),
            node: record.node_name.clone(),
            quanta: record.quanta,
            lost_ms: self.invested_ms(allocation),
            beneficiary: beneficiary.map(|work| self.id(work).clone()),
            for_user: beneficiary.map(|work| self.work_record(work).user_name.clone()),
        }
    }

    /// Returns the milliseconds lost with this allocation, spent on starting or on tasks in flight.
    pub fn invested_ms(&self, allocation: AllocIx) -> u64 {
        self.allocations[allocation].invested_ms(self.snapshot.now)
    }

    /// Sets the entitlement. An unchanged row is not written, because writing marks it dirty.
    pub fn set_entitlement(&mut self, work: WorkIx, processes: u64) {
        if self.work[work].entitlement != processes {
            self.work[work].entitlement = processes;
        }
    }

    /// Returns the entitlement as reports show it, including lent processes.
    pub fn reported_entitlement(&self, work: WorkIx) -> u64 {
        let work = &self.work[work];
        if self.settings.lend_idle {
            work.entitlement.max(work.process_count())
        } else {
            work.entitlement
        }
    }

    /// Returns the whole nodes reserved for this work.
    pub fn whole_nodes_for(&self, work: WorkIx) -> &[NodeIx] {
        self.whole_nodes.get(&work).map_or(&[], Vec::as_slice)
    }

    /// Returns the parts of the cap of this work.
    pub fn cap_parts(&self, work: WorkIx) -> CapParts {
        let changed = self.changed_caps.get(&work).map(|(_, parts)| *parts);
        let mut parts = changed.unwrap_or_else(|| {
            let usage = &self.work_record(work).usage;
            let held = usage.held_counts();
            usage.cap.parts(self.index, work, held)
        });
        if self.settings.count_what_fits && self.policy(work) == Some(Policy::FairShare) {
            // `reach` is at most the cap, so a limit by space shows only below the cap.
            parts.reach = Some(self.max_placeable(work)).filter(|max| *max < parts.base);
        }
        parts
    }

    /// Returns the number of processes for which there is space, plus those on closed nodes.
    pub fn max_placeable(&self, work: WorkIx) -> u64 {
        let work = &self.work[work];
        work.reach.saturating_add(work.resting)
    }

    pub fn is_in_tree(&self, node: NodeIx, tree: PoolIx) -> bool {
        self.nodes[node]
            .pool
            .is_some_and(|pool| self.forest.root(pool) == tree)
    }

    /// Returns the quanta that weights alone give to this work.
    pub fn weighted_share(&self, work: WorkIx) -> u64 {
        let class = self.work[work].class;
        let Some(class) = class.map(|class| &self.classes[class]) else {
            return 0;
        };
        let user_work = class.users.get(self.work_record(work).user);
        let user_share = class.weighted_share / (class.users.len() as u64).max(1);
        user_share / user_work.map_or(1, |work| (work.len() as u64).max(1))
    }

    /// Returns the space of a node without fixed allocations.
    pub fn space_without_fixed(&self, node: NodeIx) -> &NodeSpace {
        let changed = self.changed_space.get(&node);
        changed.unwrap_or(&self.index.nodes[node].space_without_fixed)
    }
}
