//! Computes the fields that follow from other rows. Each step reads the results of the steps before
//! it.

use std::{collections::BTreeSet, sync::Arc};

use hayward_vocabulary::{NodeName, Size, WorkId, WorkKind};

use super::{
    AllocationRecord, FleetIndex, PlacementConstraints, Shape, WorkRecord, WorkUsage,
    apply_delta::DirtyRows,
    eligibility, faulty_allocations,
    growth_cap::{self, Cap},
    largest_nodes,
};
use crate::{
    collections::id_list::IdList,
    ids::{AllocIx, ClassIx, Ix, NodeIx, PoolIx, ShapeIx, WorkIx},
    input::snapshot::{Demand, Policy, Snapshot},
    output::plan::CapParts,
};

/// Maximum number of sizes cached for each class and kind of work. A search among more sizes would
/// take longer than the computation.
const MAX_CACHED_SIZES: usize = 16;
/// Number of kinds of work.
const KINDS: usize = 3;

impl FleetIndex {
    /// Builds the row of a piece of work, without its allocations and their sums.
    pub(super) fn new_work_record(
        &mut self,
        snapshot: &Snapshot,
        id: &WorkId,
        demand: &Demand,
        holds_allocations: bool,
    ) -> WorkRecord {
        let (class, deferral) = self.class_or_deferral(snapshot, demand, holds_allocations);
        let policy = class.map(|class| self.classes[class].class.policy);
        let needs_whole_node = policy == Some(Policy::Reserve);
        let (quanta, shape) = self.quanta_and_shape(class, demand);
        let user = self.find_or_add_user(&demand.user);
        let constraints = placement_constraints(snapshot, demand, needs_whole_node);
        WorkRecord {
            id: id.clone(),
            kind: demand.kind,
            user_name: self.user_names[user].clone(),
            user,
            class,
            deferral,
            submitted_at: demand.submitted_at,
            process_quanta: quanta,
            shape,
            max_processes: demand.max_processes,
            remaining_tasks: demand.remaining_tasks,
            threads: demand.threads,
            task_ms: demand.task_ms.unwrap_or(0),
            constraints,
            managed: demand.managed,
            runnable: demand.runnable,
            completing: demand.completing,
            keeps_what_it_holds: demand.keeps_what_it_holds,
            allocations: IdList::default(),
            usage: WorkUsage::default(),
        }
    }

    /// Returns the quanta of one process, and its shape. Both are computed once for equal demand in
    /// one class.
    fn quanta_and_shape(&mut self, class: Option<ClassIx>, demand: &Demand) -> (u64, ShapeIx) {
        let kind = demand.kind as usize;
        let position = class.map_or(0, |class| class.index() + 1) * KINDS + kind;
        if let Some(cached_sizes) = self.size_cache.get(position) {
            let cached = cached_sizes.iter().find(|(size, ..)| *size == demand.size);
            if let Some((_, quanta, shape)) = cached {
                return (*quanta, *shape);
            }
        }
        let home = class.and_then(|class| self.classes[class].pool);
        let policy = class.map(|class| self.classes[class].class.policy);
        let quantum = self.quantum(home);
        // A reservation without a size takes any node. Its quanta become known with the node.
        let is_fair_share = policy == Some(Policy::FairShare);
        let quanta = self.process_quanta(&demand.size, home, is_fair_share);
        let size = match demand.kind {
            WorkKind::Reservation if policy == Some(Policy::Reserve) => demand.size.clone(),
            _ => quantum.granted_at(quanta, &demand.size),
        };
        let shape = self.find_or_add_shape(Shape {
            home,
            includes_subpools: is_fair_share,
            quanta,
            size,
        });
        if self.size_cache.len() <= position {
            self.size_cache.resize(position + 1, Vec::new());
        }
        let cached_sizes = &mut self.size_cache[position];
        if cached_sizes.len() < MAX_CACHED_SIZES {
            cached_sizes.push((demand.size.clone(), quanta, shape));
        }
        (quanta, shape)
    }

    /// Returns the quanta of one process. Fair-share work may use all pools below its home.
    fn process_quanta(&self, size: &Size, home: Option<PoolIx>, is_fair_share: bool) -> u64 {
        let pools = match home {
            Some(home) if is_fair_share => self.forest.subtree(home),
            Some(ref home) => std::slice::from_ref(home),
            None => &[],
        };
        let largest = pools.iter().map(|pool| &self.largest_nodes_by_pool[*pool]);
        largest_nodes::process_quanta(self.quantum(home), size, largest)
    }

    fn find_or_add_shape(&mut self, shape: Shape) -> ShapeIx {
        if let Some(index) = self.shape_by_value.get(&shape) {
            return *index;
        }
        let index = Arc::make_mut(&mut self.shapes).push(shape.clone());
        self.shape_by_value.insert(shape, index);
        index
    }

    /// Returns the class that serves the work, or why none does. Classes open to all users are
    /// cached.
    fn class_or_deferral(
        &mut self,
        snapshot: &Snapshot,
        demand: &Demand,
        holds_allocations: bool,
    ) -> (
        Option<ClassIx>,
        Option<Box<crate::output::reason::Deferral>>,
    ) {
        let kind = demand.kind as usize;
        // Class names are never empty, so the empty name stands for no class.
        let class_name = demand.class.as_deref().unwrap_or_default();
        let is_cacheable = demand.class.is_none() || !class_name.is_empty();
        if let Some(class) = self.open_to_all[kind]
            .get(class_name)
            .filter(|_| is_cacheable)
        {
            return (Some(*class), None);
        }
        match eligibility::find_eligible_class(snapshot, demand, holds_allocations) {
            Ok(name) => {
                let class = self.find_class(name);
                let open_class = class.filter(|class| self.classes[*class].class.users.is_empty());
                if let Some(open_class) = open_class.filter(|_| is_cacheable) {
                    self.open_to_all[kind].insert(class_name.to_owned(), open_class);
                }
                (class, None)
            }
            Err(deferral) => (None, Some(Box::new(deferral))),
        }
    }

    /// Derives all fields that depend on dirty rows.
    pub(super) fn derive(&mut self, snapshot: &Snapshot, dirty: &mut DirtyRows) {
        self.rederive_classes(snapshot, dirty);
        for work in dirty.changed_demand.iter() {
            for allocation in self.work[work].allocations.iter() {
                dirty.allocations.insert(allocation);
                dirty
                    .nodes_with_changed_usage
                    .extend(self.allocations[allocation].node);
            }
        }
        for node in dirty.nodes.iter() {
            for allocation in self.nodes[node].allocations.iter() {
                dirty.allocations.insert(allocation);
                dirty.work.extend(self.allocations[allocation].work);
            }
        }
        for allocation in dirty.allocations.iter() {
            self.update_usage(allocation);
        }
        #[cfg(test)]
        self.assert_node_usage();
        let nodes: Vec<NodeIx> = dirty.nodes_with_changed_usage.iter().collect();
        for node in self.update_space(&nodes) {
            let owners = self.nodes[node].allocations.iter();
            let owners = owners.filter_map(|allocation| self.allocations[allocation].work);
            dirty.work.extend(owners);
        }
        for allocation in dirty.allocations.iter() {
            let faulty = faulty_allocations::is_faulty(self, allocation);
            set_membership(&mut self.faulty, allocation, faulty);
            let is_squatter = self.is_squatter(allocation);
            set_membership(&mut self.squatters, allocation, is_squatter);
            let is_orphan = is_squatter && self.is_in_other_tree(allocation);
            set_membership(&mut self.orphans, allocation, is_orphan);
            let record = &self.allocations[allocation];
            let class = record.work.and_then(|work| self.work[work].class);
            set_membership(&mut self.unplaced, allocation, record.node.is_none());
            set_membership(&mut self.unclassed, allocation, class.is_none());
        }
        let changed: Vec<WorkIx> = dirty.work.iter().collect();
        for work in changed.iter().copied() {
            self.work[work].usage = self.compute_work_usage(work);
        }
        if !self.rebuilt {
            (self.rederived, self.changed_nodes) = (changed, nodes);
        }
    }

    /// Derives the class again for work whose class has an allow list. The list does not apply
    /// while the work holds allocations.
    fn rederive_classes(&mut self, snapshot: &Snapshot, dirty: &mut DirtyRows) {
        for work in dirty.work.iter() {
            let work_record = &self.work[work];
            let is_open = work_record.class.is_some_and(|class| {
                let users = &self.classes[class].class.users;
                users.is_empty() || users.contains(work_record.user_name.as_str())
            });
            if is_open {
                continue;
            }
            let Some(demand) = snapshot.demand.get(&work_record.id) else {
                continue;
            };
            let before = work_record.class;
            let (id, allocations) = (work_record.id.clone(), work_record.allocations.clone());
            self.leave_class(work);
            let work_record = self.new_work_record(snapshot, &id, demand, !allocations.is_empty());
            self.work[work] = WorkRecord {
                allocations,
                ..work_record
            };
            self.join_class(work);
            self.touched.push(work);
            if self.work[work].class != before {
                dirty.changed_demand.insert(work);
            }
        }
    }

    /// Sets whether a node takes work, and updates the open quanta of its pool.
    pub(super) fn set_schedulable(&mut self, node: NodeIx, schedulable: bool) {
        let node_record = &mut self.nodes[node];
        let was_schedulable = std::mem::replace(&mut node_record.schedulable, schedulable);
        if let Some(pool) = node_record.pool.filter(|_| was_schedulable != schedulable) {
            let quanta = &mut self.open_quanta[pool];
            *quanta = if schedulable {
                *quanta + node_record.quanta
            } else {
                *quanta - node_record.quanta
            };
        }
    }

    /// Removes a node from the counts of equal nodes.
    pub(super) fn remove_node_kind(&mut self, node: NodeIx) {
        let node_record = &self.nodes[node];
        let Some(pool) = node_record.pool.filter(|_| node_record.schedulable) else {
            return;
        };
        let key = (pool, node_record.space_without_fixed.clone());
        if let Some(nodes) = self.node_kinds.get_mut(&key) {
            *nodes -= 1;
            if *nodes == 0 {
                self.node_kinds.remove(&key);
            }
            self.node_kinds_changed = true;
        }
    }

    /// Reduces the size of a whole-node allocation to whole quanta. The remnant below one quantum
    /// becomes free when the node grows.
    pub(super) fn exclude_remnant(&self, allocation: &mut AllocationRecord) {
        let class = self
            .find_class(&allocation.class)
            .map(|class| &self.classes[class]);
        if let Some(class_record) = class.filter(|record| record.class.policy == Policy::Reserve) {
            let quantum = self.quantum(class_record.pool);
            allocation.size = quantum.whole(allocation.quanta, &allocation.size);
        }
    }

    /// Returns true if the allocation is outside its home pool and not leaving (W-13).
    fn is_squatter(&self, allocation: AllocIx) -> bool {
        let allocation = &self.allocations[allocation];
        let (home, pool) = self.home_and_node_pool(allocation);
        let may_move = !allocation.leaving && !allocation.fixed && allocation.node.is_some();
        may_move && home.is_some() && home != pool
    }

    /// Returns true if the node is in another tree than the home pool of the work.
    fn is_in_other_tree(&self, allocation: AllocIx) -> bool {
        let (home, pool) = self.home_and_node_pool(&self.allocations[allocation]);
        let pools = home.zip(pool);
        pools.is_some_and(|(home, pool)| self.forest.root(home) != self.forest.root(pool))
    }

    /// Returns the home pool of the work and the pool of the node.
    fn home_and_node_pool(
        &self,
        allocation: &AllocationRecord,
    ) -> (Option<PoolIx>, Option<PoolIx>) {
        let class = allocation.work.and_then(|work| self.work[work].class);
        let pool = allocation.node.and_then(|node| self.nodes[node].pool);
        (class.and_then(|class| self.classes[class].pool), pool)
    }

    /// Sums the allocations of the work, and computes the cap that results.
    fn compute_work_usage(&self, work: WorkIx) -> WorkUsage {
        let mut usage = WorkUsage::default();
        let allocations = self.work[work].allocations.iter();
        let (mut start_ms, mut started_count) = (0_u64, 0_u64);
        for record in allocations.map(|allocation| &self.allocations[allocation]) {
            usage.quanta += record.quanta;
            let record_start_ms = record.start_ms();
            start_ms += record_start_ms;
            started_count += u64::from(record_start_ms > 0);
            let node = record.node.map(|node| &self.nodes[node]);
            if node.is_none_or(|node| !node.schedulable) {
                usage.closed_quanta += record.quanta;
            }
            if record.leaving {
                usage.leaving += 1;
                usage.leaving_quanta += record.quanta;
                continue;
            }
            usage.current += 1;
            usage.resting += u64::from(node.is_some_and(|node| !node.schedulable));
        }
        usage.mean_start_ms = start_ms.checked_div(started_count).unwrap_or(0);
        usage.cap = growth_cap::compute_cap(self, work, usage.held_counts());
        usage
    }

    /// Returns the cap of the work for its last known holdings, and the parts of the cap.
    pub(super) fn cap_and_parts(&self, work: WorkIx) -> (Cap, CapParts) {
        let held = self.work[work].usage.held_counts();
        let cap = growth_cap::compute_cap(self, work, held);
        (cap, cap.parts(self, work, held))
    }

    /// Returns true if this work may ever use nodes of this pool.
    pub fn may_use(&self, work: WorkIx, pool: PoolIx) -> bool {
        let Some(class) = self.work[work].class else {
            return false;
        };
        let class_record = &self.classes[class];
        let Some(home) = class_record.pool else {
            return false;
        };
        match class_record.class.policy {
            Policy::FairShare => self.forest.is_within(pool, home),
            Policy::FixedShare | Policy::Reserve => pool == home,
        }
    }
}

/// Inserts the member into the set, or removes it.
pub(super) fn set_membership<I: Ix>(set: &mut BTreeSet<I>, member: I, is_member: bool) {
    if is_member {
        set.insert(member);
    } else if !set.is_empty() {
        // These sets are mostly empty, so removal is mostly skipped.
        set.remove(&member);
    }
}

/// Returns the placement constraints of a demand, or `None` if it has none.
fn placement_constraints(
    snapshot: &Snapshot,
    demand: &Demand,
    needs_whole_node: bool,
) -> Option<Box<PlacementConstraints>> {
    let accepts_any_node = demand.node_list.is_empty() && demand.avoids.is_empty();
    if accepts_any_node
        && demand.service.is_none()
        && demand.anti_affinity.is_none()
        && !needs_whole_node
    {
        return None;
    }
    let (nodes, avoided) = listed_and_avoided_nodes(snapshot, demand);
    let constraints = PlacementConstraints {
        nodes,
        avoided,
        service: demand.service.clone(),
        anti_affinity: demand.anti_affinity.clone(),
        node_size: needs_whole_node.then(|| demand.size.clone()),
    };
    (constraints != PlacementConstraints::default()).then(|| Box::new(constraints))
}

/// Returns the nodes that the work is limited to, and the nodes that it avoids. The first set is
/// empty if the work is not limited. Work that avoids nodes is limited to all other listed nodes.
/// If no other node remains, the first set is the avoided nodes, so that no node takes the work.
fn listed_and_avoided_nodes(
    snapshot: &Snapshot,
    demand: &Demand,
) -> (BTreeSet<NodeName>, Vec<NodeName>) {
    let is_listed =
        |name: &&NodeName| demand.node_list.is_empty() || demand.node_list.contains(*name);
    let avoided: Vec<NodeName> = demand.avoids.iter().filter(is_listed).cloned().collect();
    if avoided.is_empty() {
        return (demand.node_list.clone(), Vec::new());
    }
    let all = snapshot.nodes.keys().filter(is_listed);
    let remaining: BTreeSet<NodeName> = all
        .filter(|name| !demand.avoids.contains(*name))
        .cloned()
        .collect();
    let nodes = if remaining.is_empty() {
        avoided.iter().cloned().collect()
    } else {
        remaining
    };
    (nodes, avoided)
}
