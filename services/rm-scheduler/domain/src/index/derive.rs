//! Derives fields that follow from other rows. Each step reads the results of the steps before it.

use std::{collections::BTreeSet, sync::Arc};

use hayward_vocabulary::{NodeName, Size, WorkId, WorkKind};

use super::{
    AllocationRecord, FleetIndex, PlacementConstraints, Shape, WorkRecord, WorkUsage,
    apply_delta::DirtyRows,
    eligibility, faults,
    growth_cap::{self, Cap},
    largest_nodes,
};
use crate::{
    collections::id_list::IdList,
    ids::{AllocIx, ClassIx, Ix, NodeIx, PoolIx, ShapeIx, WorkIx},
    input::snapshot::{Demand, Policy, Snapshot},
    output::plan::CapParts,
};

/// Most sizes cached for each class. Searching more would take longer than computing.
const MAX_CACHED_SIZES: usize = 16;
/// Number of kinds of work.
const KINDS: usize = 3;

impl FleetIndex {
    pub(super) fn work_record(
        &mut self,
        snapshot: &Snapshot,
        id: &WorkId,
        demand: &Demand,
        holds: bool,
    ) -> WorkRecord {
        let (class, deferral) = self.admit(snapshot, demand, holds);
        let policy = class.map(|class| self.classes[class].class.policy);
        let whole = policy == Some(Policy::Reserve);
        let (quanta, shape) = self.measure(class, demand);
        let user = self.user_index(&demand.user);
        let constraints = wishes(snapshot, demand, whole);
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
    fn measure(&mut self, class: Option<ClassIx>, demand: &Demand) -> (u64, ShapeIx) {
        let kind = demand.kind as usize;
        let position = class.map_or(0, |class| class.index() + 1) * KINDS + kind;
        if let Some(known) = self.known_sizes.get(position) {
            let known = known.iter().find(|(size, ..)| *size == demand.size);
            if let Some((_, quanta, shape)) = known {
                return (*quanta, *shape);
            }
        }
        let home = class.and_then(|class| self.classes[class].pool);
        let policy = class.map(|class| self.classes[class].class.policy);
        let quantum = self.quantum(home);
        // A reservation without a size takes any node. Its quanta are known with the node.
        let fair = policy == Some(Policy::FairShare);
        let quanta = self.order_of(&demand.size, home, fair);
        let size = match demand.kind {
            WorkKind::Reservation if policy == Some(Policy::Reserve) => demand.size.clone(),
            _ => quantum.granted_at(quanta, &demand.size),
        };
        let shape = self.shape(Shape {
            home,
            includes_subpools: fair,
            quanta,
            size,
        });
        if self.known_sizes.len() <= position {
            self.known_sizes.resize(position + 1, Vec::new());
        }
        let known = &mut self.known_sizes[position];
        if known.len() < MAX_CACHED_SIZES {
            known.push((demand.size.clone(), quanta, shape));
        }
        (quanta, shape)
    }

    /// Returns the quanta of one process. Fair-share work may use all pools below its home.
    fn order_of(&self, size: &Size, home: Option<PoolIx>, fair: bool) -> u64 {
        let pools = match home {
            Some(home) if fair => self.forest.subtree(home),
            Some(ref home) => std::slice::from_ref(home),
            None => &[],
        };
        let largest = pools.iter().map(|pool| &self.largest[*pool]);
        largest_nodes::order_of(self.quantum(home), size, largest)
    }

    fn shape(&mut self, shape: Shape) -> ShapeIx {
        if let Some(known) = self.shape_by_value.get(&shape) {
            return *known;
        }
        let index = Arc::make_mut(&mut self.shapes).push(shape.clone());
        self.shape_by_value.insert(shape, index);
        index
    }

    fn admit(
        &mut self,
        snapshot: &Snapshot,
        demand: &Demand,
        holds: bool,
    ) -> (
        Option<ClassIx>,
        Option<Box<crate::output::reason::Deferral>>,
    ) {
        let kind = demand.kind as usize;
        // Class names are never empty, so the empty name stands for no class.
        let named = demand.class.as_deref().unwrap_or_default();
        let can_be_known = demand.class.is_none() || !named.is_empty();
        if let Some(class) = self.open_to_all[kind].get(named).filter(|_| can_be_known) {
            return (Some(*class), None);
        }
        match eligibility::class_of(snapshot, demand, holds) {
            Ok(name) => {
                let class = self.find_class(name);
                let open = class.filter(|at| self.classes[*at].class.users.is_empty());
                if let Some(at) = open.filter(|_| can_be_known) {
                    self.open_to_all[kind].insert(named.to_owned(), at);
                }
                (class, None)
            }
            Err(deferral) => (None, Some(Box::new(deferral))),
        }
    }

    pub(super) fn derive(&mut self, snapshot: &Snapshot, dirty: &mut DirtyRows) {
        self.derive_classes_again(snapshot, dirty);
        for work in dirty.changed_demand.members() {
            for allocation in self.work[work].allocations.iter() {
                dirty.allocations.insert(allocation);
                dirty
                    .nodes_by_load
                    .extend(self.allocations[allocation].node);
            }
        }
        for node in dirty.nodes.members() {
            for allocation in self.nodes[node].allocations.iter() {
                dirty.allocations.insert(allocation);
                dirty.work.extend(self.allocations[allocation].work);
            }
        }
        for allocation in dirty.allocations.members() {
            self.reload(allocation);
        }
        #[cfg(test)]
        self.assert_taken();
        let nodes: Vec<NodeIx> = dirty.nodes_by_load.members().collect();
        for node in self.update_space(&nodes) {
            let owners = self.nodes[node].allocations.iter();
            let owners = owners.filter_map(|allocation| self.allocations[allocation].work);
            dirty.work.extend(owners);
        }
        for allocation in dirty.allocations.members() {
            let faulty = faults::is_faulty(self, allocation);
            set(&mut self.faulty, allocation, faulty);
            let squats = self.is_squatter(allocation);
            set(&mut self.squatters, allocation, squats);
            let strays = squats && self.strays(allocation);
            set(&mut self.orphans, allocation, strays);
            let record = &self.allocations[allocation];
            let class = record.work.and_then(|work| self.work[work].class);
            set(&mut self.unplaced, allocation, record.node.is_none());
            set(&mut self.unclassed, allocation, class.is_none());
        }
        let changed: Vec<WorkIx> = dirty.work.members().collect();
        for work in changed.iter().copied() {
            self.work[work].usage = self.holding(work);
        }
        if !self.rebuilt {
            (self.rederived, self.changed_nodes) = (changed, nodes);
        }
    }

    /// Derives the class again if it depends on whether the work holds allocations. Allow lists do
    /// not apply to work that holds any.
    fn derive_classes_again(&mut self, snapshot: &Snapshot, dirty: &mut DirtyRows) {
        for work in dirty.work.members() {
            let work_record = &self.work[work];
            let open = work_record.class.is_some_and(|class| {
                let users = &self.classes[class].class.users;
                users.is_empty() || users.contains(work_record.user_name.as_str())
            });
            if open {
                continue;
            }
            let Some(demand) = snapshot.demand.get(&work_record.id) else {
                continue;
            };
            let before = work_record.class;
            let (id, allocation) = (work_record.id.clone(), work_record.allocations.clone());
            self.leave_class(work);
            let work_record = self.work_record(snapshot, &id, demand, !allocation.is_empty());
            self.work[work] = WorkRecord {
                allocations: allocation,
                ..work_record
            };
            self.join_class(work);
            self.touched.push(work);
            if self.work[work].class != before {
                dirty.changed_demand.insert(work);
            }
        }
    }

    pub(super) fn open_for(&mut self, node: NodeIx, open: bool) {
        let node_record = &mut self.nodes[node];
        let was_open = std::mem::replace(&mut node_record.schedulable, open);
        if let Some(pool) = node_record.pool.filter(|_| was_open != open) {
            let quanta = &mut self.open_quanta[pool];
            *quanta = if open {
                *quanta + node_record.quanta
            } else {
                *quanta - node_record.quanta
            };
        }
    }

    pub(super) fn forget_kind(&mut self, node: NodeIx) {
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

    /// Reduces the size of a whole-node allocation to its quanta. The remnant below a quantum is
    /// then free once the node has grown.
    pub(super) fn leave_remnant(&self, allocation: &mut AllocationRecord) {
        let class = self
            .find_class(&allocation.class)
            .map(|at| &self.classes[at]);
        if let Some(served) = class.filter(|it| it.class.policy == Policy::Reserve) {
            let quantum = self.quantum(served.pool);
            allocation.size = quantum.whole(allocation.quanta, &allocation.size);
        }
    }

    /// Returns true if the allocation is outside its home pool and not leaving (W-13).
    fn is_squatter(&self, allocation: AllocIx) -> bool {
        let allocation = &self.allocations[allocation];
        let (home, pool) = self.pools(allocation);
        let stays = !allocation.leaving && !allocation.fixed && allocation.node.is_some();
        stays && home.is_some() && home != pool
    }

    fn strays(&self, allocation: AllocIx) -> bool {
        let (home, pool) = self.pools(&self.allocations[allocation]);
        let trees = home.zip(pool);
        trees.is_some_and(|(home, pool)| self.forest.root(home) != self.forest.root(pool))
    }

    /// Returns the home pool of the work and the pool of the node.
    fn pools(&self, allocation: &AllocationRecord) -> (Option<PoolIx>, Option<PoolIx>) {
        let class = allocation.work.and_then(|work| self.work[work].class);
        let pool = allocation.node.and_then(|node| self.nodes[node].pool);
        (class.and_then(|class| self.classes[class].pool), pool)
    }

    fn holding(&self, work: WorkIx) -> WorkUsage {
        let mut holding = WorkUsage::default();
        let allocation = self.work[work].allocations.iter();
        let (mut start_ms, mut started) = (0_u64, 0_u64);
        for load in allocation.map(|allocation| &self.usage[allocation]) {
            holding.quanta += load.quanta;
            start_ms += load.start_ms;
            started += u64::from(load.start_ms > 0);
            let node = load.node().map(|node| &self.nodes[node]);
            if node.is_none_or(|node| !node.schedulable) {
                holding.closed_quanta += load.quanta;
            }
            if load.leaving {
                holding.leaving += 1;
                holding.leaving_quanta += load.quanta;
                continue;
            }
            holding.current += 1;
            holding.resting += u64::from(node.is_some_and(|node| !node.schedulable));
        }
        holding.mean_start_ms = start_ms.checked_div(started).unwrap_or(0);
        holding.cap = growth_cap::of(self, work, holding.counts());
        holding
    }

    /// Returns the cap of the work for its last known holdings, and the parts of the cap.
    pub(super) fn cap(&self, work: WorkIx) -> (Cap, CapParts) {
        let has = self.work[work].usage.counts();
        let cap = growth_cap::of(self, work, has);
        (cap, cap.parts(self, work, has))
    }

    /// Returns true if this work may ever use nodes of this pool.
    pub fn may_use(&self, work: WorkIx, pool: PoolIx) -> bool {
        let Some(class) = self.work[work].class else {
            return false;
        };
        let served = &self.classes[class];
        let Some(home) = served.pool else {
            return false;
        };
        match served.class.policy {
            Policy::FairShare => self.forest.is_within(pool, home),
            Policy::FixedShare | Policy::Reserve => pool == home,
        }
    }
}

pub(super) fn set<I: Ix>(among: &mut BTreeSet<I>, member: I, belongs: bool) {
    if belongs {
        among.insert(member);
    } else if !among.is_empty() {
        // These sets are mostly empty, so removal is mostly skipped.
        among.remove(&member);
    }
}

fn wishes(snapshot: &Snapshot, demand: &Demand, whole: bool) -> Option<Box<PlacementConstraints>> {
    let may_go_anywhere = demand.machines.is_empty() && demand.avoids.is_empty();
    if may_go_anywhere && demand.service.is_none() && demand.apart.is_none() && !whole {
        return None;
    }
    let (nodes, avoids) = machines(snapshot, demand);
    let constraints = PlacementConstraints {
        nodes,
        avoided: avoids,
        service: demand.service.clone(),
        apart: demand.apart.clone(),
        node_size: whole.then(|| demand.size.clone()),
    };
    (constraints != PlacementConstraints::default()).then(|| Box::new(constraints))
}

/// Returns the listed nodes without avoided ones, and the avoided nodes. Work that avoids nodes
/// lists all others. If none is left, it lists the avoided nodes, which admit nothing.
fn machines(snapshot: &Snapshot, demand: &Demand) -> (BTreeSet<NodeName>, Vec<NodeName>) {
    let could = |name: &&NodeName| demand.machines.is_empty() || demand.machines.contains(*name);
    let avoids: Vec<NodeName> = demand.avoids.iter().filter(could).cloned().collect();
    if avoids.is_empty() {
        return (demand.machines.clone(), Vec::new());
    }
    let all = snapshot.nodes.keys().filter(could);
    let left: BTreeSet<NodeName> = all
        .filter(|name| !demand.avoids.contains(*name))
        .cloned()
        .collect();
    let nodes = if left.is_empty() {
        avoids.iter().cloned().collect()
    } else {
        left
    };
    (nodes, avoids)
}
