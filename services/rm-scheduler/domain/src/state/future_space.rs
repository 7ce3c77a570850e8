//! Future space: the space of nodes when all leaving allocations have left, and its reservations.

use super::{Reservation, RoundState};
use crate::{
    ids::{AllocIx, NodeIx, PoolIx, WorkIx},
    index::node_space::NodeSpace,
};

impl RoundState<'_> {
    /// Returns the future space of a node, minus grants and reservations of this round.
    pub fn future_free(&self, node: NodeIx) -> NodeSpace {
        self.future_free_for(node, None)
    }

    /// Does the same as [`RoundState::future_free`], but counts space reserved for `except` as
    /// free.
    pub fn future_free_for(&self, node: NodeIx, except: Option<WorkIx>) -> NodeSpace {
        let mut space = self.future_free_before_decisions(node);
        // Only touched rows have grants or reservations.
        if self.nodes.is_touched(node) {
            let node_state = &self.nodes[node];
            for placed in node_state.granted.iter().map(|grant| &self.granted[*grant]) {
                space.take(placed.quanta, placed.size, &placed.gpus);
            }
            let reservations = node_state.reservations.iter();
            for reservation in reservations.filter(|reservation| Some(reservation.work) != except) {
                space.take(
                    reservation.quanta,
                    self.size(reservation.work),
                    &reservation.gpus,
                );
            }
        }
        space
    }

    /// Returns the future space of a node before grants and reservations.
    fn future_free_before_decisions(&self, node: NodeIx) -> NodeSpace {
        if self.to_vacate_on(node).is_empty() || self.frees_exactly(node) {
            let mut space = self.index.future_free(node);
            for allocation in self.to_vacate_on(node) {
                self.index.add_allocation(&mut space, *allocation);
            }
            return space;
        }
        let node_record = self.node_record(node);
        let mut space = NodeSpace::new(node_record.quanta, &node_record.node.capacity);
        for allocation in node_record
            .allocations
            .iter()
            .filter(|allocation| !self.leaving[*allocation])
        {
            self.index.subtract_allocation(&mut space, allocation);
        }
        space
    }

    /// Returns the allocations of a node that were vacated in this round.
    fn to_vacate_on(&self, node: NodeIx) -> &[AllocIx] {
        if self.nodes.is_touched(node) {
            &self.nodes[node].to_vacate
        } else {
            &[]
        }
    }

    /// Returns true if exactly the leaving quanta become free. The node must not be overfull and
    /// must have no GPUs.
    fn frees_exactly(&self, node: NodeIx) -> bool {
        let node_record = self.node_record(node);
        !node_record.is_overfull && node_record.space_without_fixed.gpus.is_empty()
    }

    /// Returns the quanta of [`RoundState::future_free`].
    pub fn future_quanta(&self, node: NodeIx) -> u64 {
        self.future_quanta_for(node, None)
    }

    /// Returns the quanta of [`RoundState::future_free_for`].
    pub fn future_quanta_for(&self, node: NodeIx, except: Option<WorkIx>) -> u64 {
        let node_state = &self.nodes[node];
        if !self.nodes.is_touched(node) {
            return node_state.future_quanta;
        }
        let quanta = |allocation: AllocIx| self.allocations[allocation].quanta;
        let before = if node_state.to_vacate.is_empty() || self.frees_exactly(node) {
            node_state.future_quanta
                + node_state
                    .to_vacate
                    .iter()
                    .copied()
                    .map(quanta)
                    .sum::<u64>()
        } else {
            let allocations = self.node_record(node).allocations.iter();
            let staying = allocations.filter(|allocation| !self.leaving[*allocation]);
            staying
                .map(quanta)
                .fold(node_state.quanta, u64::saturating_sub)
        };
        let granted = node_state
            .granted
            .iter()
            .map(|grant| self.granted[*grant].quanta);
        let reservations = node_state.reservations.iter();
        let reservations = reservations.filter(|reservation| Some(reservation.work) != except);
        let reserved = reservations.map(|reservation| reservation.quanta);
        granted.chain(reserved).fold(before, u64::saturating_sub)
    }

    /// Reserves future space on a node for one process of this work.
    pub fn reserve(&mut self, work: WorkIx, node: NodeIx) {
        let (quanta, size) = (self.work[work].process_quanta, self.size(work));
        let gpus = match size.gpu_milli {
            0 => Vec::new(),
            milli => self.future_free(node).choose_gpus(milli),
        };
        self.nodes[node]
            .reservations
            .push(Reservation { work, quanta, gpus });
        self.nodes_with_reservations.insert(node);
        self.work[work].reserved += 1;
    }

    /// Renews the reservations of the last round for work that still waits, if there is space.
    pub fn renew_reservations(&mut self, tree: PoolIx) {
        if !self.settings.count_leaving_room {
            return;
        }
        let snapshot = self.snapshot;
        if snapshot.carried.claims.is_empty() {
            return;
        }
        for (id, names) in &snapshot.carried.claims {
            let Some(work) = self.index.find_work(id) else {
                continue;
            };
            for name in names {
                let Some(node) = self.index.find_node(name) else {
                    continue;
                };
                let work_state = &self.work[work];
                let waits = !work_state.is_excluded() && work_state.missing() > work_state.reserved;
                let node_is_open = self.is_in_tree(node, tree)
                    && self.nodes[node].is_schedulable()
                    && self.nodes[node].whole_node_for.is_none()
                    && self.is_permitted(work, node);
                let space = self.future_free(node);
                if waits
                    && node_is_open
                    && space.count_fitting(work_state.process_quanta, self.size(work)) > 0
                {
                    self.reserve(work, node);
                }
            }
        }
    }
}
