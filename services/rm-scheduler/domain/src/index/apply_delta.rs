//! Applies a delta: changes the rows of nodes, work and allocations, and marks the rows whose
//! derived fields must be computed again.

use hayward_vocabulary::{Timestamp, WorkId, WorkKind};

use super::{
    ClassRecord, FleetIndex, NameHash, PolicyInputs, Users, WorkRecord, WorkUsage,
    delta_lookup::{Entry, WorkEntry, find_rows},
    derived_fields::set_membership,
    growth_cap::GrowthRules,
    node_usage::NodeUsage,
    pool_tree::Forest,
};
use crate::{
    collections::{bit_set::BitSet, id_list::IdList},
    ids::{AllocIx, ClassIx, Ix, NodeIx, PoolIx, TypedVec, UserIx, WorkIx},
    input::{
        delta::SnapshotDelta,
        snapshot::{Demand, Snapshot},
    },
};

/// Rows whose derived fields must be computed again. The value is reused for its capacity.
#[derive(Default)]
pub(super) struct DirtyRows {
    /// Nodes that were added, changed or removed.
    pub nodes: BitSet<NodeIx>,
    /// Nodes with changed allocations.
    pub nodes_with_changed_usage: BitSet<NodeIx>,
    pub work: BitSet<WorkIx>,
    /// Work with changed demand.
    pub changed_demand: BitSet<WorkIx>,
    pub allocations: BitSet<AllocIx>,
}

impl DirtyRows {
    fn clear(&mut self) {
        self.nodes.clear();
        self.nodes_with_changed_usage.clear();
        self.work.clear();
        self.changed_demand.clear();
        self.allocations.clear();
    }
}

impl FleetIndex {
    /// Updates the index to a snapshot that differs from the last one by `delta`.
    pub fn apply(&mut self, snapshot: &Snapshot, delta: &SnapshotDelta) {
        #[cfg(test)]
        delta.assert_matches(snapshot);
        let policy = &self.policy;
        let same_policy = policy.quantum == snapshot.quantum
            && policy.tunables == snapshot.tunables
            && policy.pools == snapshot.pools
            && policy.classes == snapshot.classes;
        if delta.everything || !same_policy {
            self.rebuild(snapshot);
            return;
        }
        self.rebuilt = false;
        self.node_kinds_changed = false;
        self.touched.clear();
        self.departed.clear();
        self.left_pools.clear();
        self.nodes_changed = false;
        self.work_list_edits.clear();
        self.withdrawn.clear();
        self.freed_work.clear();
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.clear();
        let Some(reread) = self.apply_nodes(snapshot, delta, &mut dirty) else {
            self.rebuild(snapshot);
            return;
        };
        self.node_usage
            .resize(self.nodes.len(), NodeUsage::default());
        let (work, allocations) = find_rows(self, snapshot, delta, &reread);
        // Ended allocations are removed before their work, so that they are never without demand.
        self.remove_allocations(&allocations, &mut dirty);
        self.apply_work(snapshot, work, &mut dirty);
        for allocation in &allocations {
            self.set_allocation(allocation, &mut dirty);
        }
        self.derive(snapshot, &mut dirty);
        self.dirty = dirty;
    }

    /// Rebuilds the index from the snapshot.
    fn rebuild(&mut self, snapshot: &Snapshot) {
        *self = Self {
            policy: PolicyInputs {
                quantum: snapshot.quantum.clone(),
                tunables: snapshot.tunables.clone(),
                pools: snapshot.pools.clone(),
                classes: snapshot.classes.clone(),
            },
            forest: Forest::new(&snapshot.pools),
            rebuilt: true,
            node_kinds_changed: true,
            ..Self::default()
        };
        self.read_policy(snapshot);
        self.read_nodes(snapshot);
        self.read_work(snapshot);
        self.work_by_name.reserve(self.work.len());
        for (position, id) in snapshot.demand.keys().enumerate() {
            self.work_by_name
                .insert(NameHash::new(id.as_str()), WorkIx::new(position));
        }
        self.allocation_by_name.reserve(snapshot.allocations.len());
        self.node_usage
            .resize(self.nodes.len(), NodeUsage::default());
        let mut dirty = DirtyRows::default();
        for (id, allocation) in &snapshot.allocations {
            self.set_allocation(&Entry::new(id, Some(allocation)), &mut dirty);
        }
        dirty.nodes_with_changed_usage.extend(self.nodes.indices());
        dirty.work.extend(self.work.indices());
        self.derive(snapshot, &mut dirty);
    }

    /// Reads all work, but does not fill the table from ids to rows.
    fn read_work(&mut self, snapshot: &Snapshot) {
        self.work.reserve_exact(snapshot.demand.len());
        let no_users: TypedVec<UserIx, Vec<WorkIx>> = TypedVec::default();
        let mut work_by_class = TypedVec::filled(no_users, self.classes.len());
        for (id, demand) in &snapshot.demand {
            let work_record = self.new_work_record(snapshot, id, demand, false);
            if let Some(class) = work_record.class {
                let users = &mut work_by_class[class];
                users.resize_with(users.len().max(work_record.user.index() + 1), Vec::new);
                users[work_record.user].push(WorkIx::new(self.work.len()));
            }
            let work = self.work.push(work_record);
            self.join_group(work);
            self.update_work_avoiding_nodes(work);
        }
        for (class_record, users) in self.classes.iter_mut().zip(&work_by_class) {
            for mut user_work in users.iter().cloned() {
                if let Some(first) = user_work.first() {
                    let first = &self.work[*first];
                    let (name, user) = (first.user_name.clone(), first.user);
                    user_work.sort_by_key(|work| self.work[*work].submitted_at);
                    class_record
                        .users
                        .insert(name, user, user_work.into_iter().collect());
                }
            }
        }
    }

    fn read_policy(&mut self, snapshot: &Snapshot) {
        let own_quantum = snapshot.pools.values().map(|pool| pool.quantum.as_ref());
        let own_quantum: TypedVec<PoolIx, _> = own_quantum.collect();
        self.open_quanta = TypedVec::filled(0, self.forest.len());
        self.all_quanta = TypedVec::filled(0, self.forest.len());
        let pools = self.forest.pools();
        self.quantum_by_pool = pools
            .map(|pool| own_quantum[self.forest.root(pool)].unwrap_or(&snapshot.quantum))
            .cloned()
            .collect();
        for (name, class) in &snapshot.classes {
            let class = self.classes.push(ClassRecord {
                name: name.as_str().into(),
                class: class.clone(),
                growth: GrowthRules::new(&self.policy.tunables, class),
                pool: self.forest.find(&class.pool),
                users: Users::default(),
            });
            self.class_by_name.insert(name.clone(), class);
        }
    }

    fn apply_work(&mut self, snapshot: &Snapshot, entries: Vec<WorkEntry>, dirty: &mut DirtyRows) {
        for entry in entries {
            let id = entry.name;
            match (entry.row, entry.value) {
                (Some(work), Some(demand)) => {
                    if let Some(before) = self.change_work(snapshot, work, id, demand) {
                        self.touched.push(work);
                        dirty.work.insert(work);
                        if !self.work[work].has_equal_effect_on_nodes(&before) {
                            dirty.changed_demand.insert(work);
                        }
                    }
                }
                (None, Some(demand)) => {
                    let work = self.add_work(snapshot, id, demand);
                    self.work_by_name.insert(entry.hash, work);
                    self.touched.push(work);
                    dirty.work.insert(work);
                    dirty.changed_demand.insert(work);
                }
                (Some(work), None) => {
                    self.remove_work(work, dirty);
                    self.touched.push(work);
                    dirty.work.remove(work);
                    dirty.changed_demand.remove(work);
                }
                (None, None) => {}
            }
        }
    }

    /// Replaces a row. Returns the old row, or `None` if no relevant field changed. Usually none
    /// did: tasks progressed and the cap is the same.
    fn change_work(
        &mut self,
        snapshot: &Snapshot,
        work: WorkIx,
        id: &WorkId,
        demand: &Demand,
    ) -> Option<WorkRecord> {
        let work_record = self.new_work_record(
            snapshot,
            id,
            demand,
            !self.work[work].allocations.is_empty(),
        );
        let before = &self.work[work];
        let keeps_serve_key = work_record.serve_key() == before.serve_key();
        let keeps_constraints = work_record.constraints == before.constraints;
        let is_equal_demand =
            keeps_serve_key && keeps_constraints && work_record.has_equal_demand(before);
        let cap_before = is_equal_demand.then(|| self.cap_and_parts(work));
        if !keeps_serve_key {
            self.leave_class(work);
        }
        self.leave_group(work);
        let before = &mut self.work[work];
        let (allocations, usage) = (std::mem::take(&mut before.allocations), before.usage);
        let before = std::mem::replace(before, work_record);
        (self.work[work].allocations, self.work[work].usage) = (allocations, usage);
        self.join_group(work);
        self.update_work_avoiding_nodes(work);
        if !keeps_serve_key {
            self.join_class(work);
        }
        cap_before
            .is_none_or(|before| self.cap_and_parts(work) != before)
            .then_some(before)
    }

    fn add_work(&mut self, snapshot: &Snapshot, id: &WorkId, demand: &Demand) -> WorkIx {
        let allocations = self.remove_allocations_without_demand(id);
        let mut work_record = self.new_work_record(snapshot, id, demand, !allocations.is_empty());
        let next = WorkIx::new(self.work.len());
        let work = self.free_work_rows.pop().unwrap_or(next);
        for allocation in allocations.iter() {
            self.allocations[allocation].work = Some(work);
        }
        work_record.allocations = allocations;
        if work == next {
            self.work.push(work_record);
        } else {
            let row = &mut self.work[work];
            if work_record.allocations.is_empty() {
                // Reuses the capacity of the old list.
                work_record.allocations = std::mem::take(&mut row.allocations);
            }
            *row = work_record;
        }
        self.join_group(work);
        self.update_work_avoiding_nodes(work);
        self.join_class(work);
        work
    }

    /// Removes and returns allocations of this work that arrived in a delta before the work itself.
    /// Mostly there are none.
    fn remove_allocations_without_demand(&mut self, work: &WorkId) -> IdList<AllocIx> {
        if self.allocations_without_demand.is_empty() {
            return IdList::default();
        }
        self.allocations_without_demand
            .remove(work)
            .unwrap_or_default()
    }

    fn remove_work(&mut self, work: WorkIx, dirty: &mut DirtyRows) {
        self.leave_class(work);
        self.leave_group(work);
        set_membership(&mut self.work_avoiding_nodes, work, false);
        let work_record = &mut self.work[work];
        let allocations = if work_record.allocations.is_empty() {
            IdList::default()
        } else {
            std::mem::take(&mut work_record.allocations)
        };
        (work_record.class, work_record.deferral) = (None, None);
        work_record.usage = WorkUsage::default();
        self.withdrawn.push(work_record.id.clone());
        self.freed_work.push(work);
        self.free_work_rows.push(work);
        for allocation in allocations.iter() {
            self.allocations[allocation].work = None;
            dirty.allocations.insert(allocation);
            dirty
                .nodes_with_changed_usage
                .extend(self.allocations[allocation].node);
        }
        if !allocations.is_empty() {
            self.allocations_without_demand
                .insert(work_record.id.clone(), allocations);
        }
    }
}

impl WorkRecord {
    /// Returns the serve order of the work without its quanta and id.
    fn serve_key(&self) -> (Option<ClassIx>, UserIx, Timestamp) {
        (self.class, self.user, self.submitted_at)
    }

    /// Compares two rows with equal serve keys and constraints. Returns true if only their tasks
    /// differ, which affect only the cap.
    fn has_equal_demand(&self, other: &Self) -> bool {
        let Self {
            id: _,
            kind,
            user_name: _,
            user: _,
            class: _,
            deferral,
            submitted_at: _,
            process_quanta: quanta,
            shape,
            max_processes,
            remaining_tasks: _,
            threads: _,
            task_ms: _,
            constraints: _,
            managed,
            runnable: _,
            completing,
            keeps_what_it_holds,
            allocations: _,
            usage: _,
        } = self;
        deferral.is_none()
            && other.deferral.is_none()
            && (*kind, *quanta, *shape) == (other.kind, other.process_quanta, other.shape)
            && (*max_processes, *managed) == (other.max_processes, other.managed)
            && *completing == other.completing
            && *keeps_what_it_holds == other.keeps_what_it_holds
    }

    /// Returns true if the allocations of the work affect their nodes in the same way as before.
    fn has_equal_effect_on_nodes(&self, before: &Self) -> bool {
        let owner = |work_record: &Self| {
            (
                work_record.class,
                work_record.kind,
                work_record.managed,
                work_record.user,
            )
        };
        let size = |work_record: &Self| (work_record.process_quanta, work_record.shape);
        owner(self) == owner(before)
            && size(self) == size(before)
            && self.constraints().service == before.constraints().service
    }

    /// Returns true for a service instance. An instance leaves a pool that its class may no longer
    /// use.
    pub fn is_instance(&self) -> bool {
        self.kind == WorkKind::Service && !self.managed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        FairShare, Planner, Rounds,
        tests::fixture::{Fixture, work_id},
    };

    /// Remaining tasks influence the growth cap only.
    #[test]
    fn progress_of_tasks_alone_marks_no_row_dirty() {
        let mut fixture = Fixture::eager().nodes(&[4]);
        fixture.job("job", "a", 1).max_processes = 2;
        let job = fixture.demand_mut("job");
        (job.remaining_tasks, job.task_ms) = (100, Some(1_000));
        let mut index = FleetIndex::default();
        index.apply(&fixture.snapshot, &SnapshotDelta::everything());
        let mut apply_change = |change: &dyn Fn(&mut Demand)| {
            change(fixture.demand_mut("job"));
            let delta = SnapshotDelta::for_work(&fixture.snapshot, [work_id("job")]);
            index.apply(&fixture.snapshot, &delta);
            (index.touched.len(), index.rederived.len())
        };
        assert_eq!(apply_change(&|job| job.remaining_tasks = 99), (0, 0));
        assert_eq!(apply_change(&|job| job.task_ms = Some(1_001)), (0, 0));
        // A second process would find nothing to do.
        assert_eq!(apply_change(&|job| job.remaining_tasks = 1), (1, 1));
        assert_eq!(apply_change(&|job| job.max_processes = 1), (1, 1));
        assert_eq!(
            apply_change(&|job| job.submitted_at = job.submitted_at.plus_ms(1)),
            (1, 1)
        );
    }

    /// An allocation counts for the service that its work belongs to now.
    #[test]
    fn an_allocation_belongs_to_the_current_service_of_its_work() {
        let mut fixture = Fixture::new().nodes(&[4, 4]);
        fixture.service("svc_x.0", "a", 1);
        let mut rounds = Rounds::default();
        let plan = rounds
            .decide(&fixture.snapshot, &SnapshotDelta::everything())
            .plan;
        fixture.carry_out(&plan);
        let allocations = fixture.snapshot.allocations.clone();
        let delta = SnapshotDelta {
            allocations: allocations
                .into_iter()
                .map(|(id, allocation)| (id, Some(allocation)))
                .collect(),
            ..SnapshotDelta::default()
        };
        rounds.decide(&fixture.snapshot, &delta);
        for id in ["svc_x.0", "svc_x.1"] {
            fixture.service(id, "a", 1).service = Some(work_id("svc_x"));
        }
        let delta = SnapshotDelta::for_work(&fixture.snapshot, ["svc_x.0", "svc_x.1"].map(work_id));
        let plan = rounds.decide(&fixture.snapshot, &delta).plan;
        assert_eq!(plan.grants[0].node.as_str(), "n01");
        assert_eq!(plan.grants, FairShare.schedule(&fixture.snapshot).grants);
    }
}
