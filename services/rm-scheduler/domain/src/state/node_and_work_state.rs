//! Rows of one round: nodes and work from the index, with the additions of the round.

use super::RoundState;
use crate::{
    ids::{AllocIx, ClassIx, NodeIx, PoolIx, ShapeIx, WorkIx},
    index::{FleetIndex, WorkRecord, growth_cap::Cap, node_space::NodeSpace},
    input::{settings::Settings, snapshot::Policy},
    output::reason::Deferral,
};

/// One node in this round.
pub(crate) struct NodeState {
    pub pool: Option<PoolIx>,
    pub quanta: u64,
    /// True if the node takes work and holds no allocation of work without a class.
    pub schedulable: bool,
    /// True if the node is not overfull and holds no fixed allocation. The held quanta are then the
    /// quanta that are not free.
    pub is_simple_sum: bool,
    /// Quanta that are free when all allocations vacated before this round have left.
    pub future_quanta: u64,
    pub free: NodeSpace,
    /// Allocations that were vacated in this round.
    pub to_vacate: Vec<AllocIx>,
    /// Indices into the grants of this round.
    pub granted: Vec<usize>,
    /// Leaving space that is reserved for waiting work.
    pub reservations: Vec<Reservation>,
    /// Work that this whole node is reserved for in this round.
    pub whole_node_for: Option<WorkIx>,
}

impl NodeState {
    pub fn new(index: &FleetIndex, node: NodeIx) -> Self {
        let mut node_state = Self {
            pool: None,
            quanta: 0,
            schedulable: false,
            is_simple_sum: false,
            free: NodeSpace::default(),
            future_quanta: 0,
            to_vacate: Vec::new(),
            granted: Vec::new(),
            whole_node_for: None,
            reservations: Vec::new(),
        };
        node_state.reset(index, node, false);
        node_state
    }

    /// Resets the row to the index. Fields that only a round writes are cleared if the row was
    /// touched.
    pub fn reset(&mut self, index: &FleetIndex, node: NodeIx, was_touched: bool) {
        let node_record = &index.nodes[node];
        (self.pool, self.quanta) = (node_record.pool, node_record.quanta);
        (self.schedulable, self.future_quanta) =
            (node_record.schedulable, index.future_quanta(node));
        self.is_simple_sum = node_record.held_quanta <= node_record.quanta
            && node_record.space_without_fixed.quanta == node_record.quanta;
        index.write_free_space(node, &mut self.free);
        if was_touched {
            self.to_vacate.clear();
            self.granted.clear();
            self.whole_node_for = None;
            self.reservations.clear();
        }
    }

    #[cfg(test)]
    pub fn assert_equals(&self, other: &Self) {
        let values = |state: &Self| {
            (
                state.pool,
                state.quanta,
                state.schedulable,
                state.future_quanta,
            )
        };
        assert_eq!(values(self), values(other));
        assert_eq!(self.is_simple_sum, other.is_simple_sum);
        assert_eq!(self.free, other.free);
        assert_eq!(
            (&self.to_vacate, &self.granted),
            (&other.to_vacate, &other.granted)
        );
        assert_eq!(self.whole_node_for, other.whole_node_for);
        assert!(self.reservations.is_empty() && other.reservations.is_empty());
    }

    pub fn is_schedulable(&self) -> bool {
        self.schedulable
    }
}

/// Space of one process, reserved for one piece of work.
pub(crate) struct Reservation {
    pub work: WorkIx,
    pub quanta: u64,
    pub gpus: Vec<u64>,
}

/// One piece of work in this round.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one independent property"
)]
pub(crate) struct WorkState {
    pub class: Option<ClassIx>,
    pub process_quanta: u64,
    /// Processes that are held and not leaving. Each vacate of the round reduces the number.
    pub current: u64,
    /// Processes placed in this round.
    pub placed: u64,
    /// Number of processes that the work is due in this round.
    pub entitlement: u64,
    /// Processes with a reservation in leaving space.
    pub reserved: u64,
    /// True if the work lists nodes.
    pub has_node_list: bool,
    /// True if the work has anti-affinity.
    pub has_anti_affinity: bool,
    /// True if `process_quanta` is that of a node reserved for the work.
    pub has_reserved_node: bool,
    /// True if the work never gets another process.
    pub ended: bool,
    /// True if waiting cannot start the missing processes.
    pub is_needy: bool,
    /// True if an allocation of the work was vacated in this round.
    pub lost_allocation: bool,
    pub deferral: Option<Box<Deferral>>,
    pub shape: ShapeIx,
    /// Processes that the work could hold if everything preemptable left, at most its cap.
    pub reach: u64,
    pub cap: Cap,
    /// Processes held on nodes that take no new work. They stay and are not part of the
    /// entitlement.
    pub resting: u64,
    /// Processes that are leaving.
    pub leaving: u64,
    /// Number of processes before entitlements were set.
    pub process_count_before: u64,
    /// Quanta of the processes placed in this round.
    pub granted_quanta: u64,
}

impl WorkState {
    pub fn new(work_record: &WorkRecord, settings: &Settings) -> Self {
        Self {
            class: work_record.class,
            process_quanta: work_record.process_quanta,
            shape: work_record.shape,
            has_node_list: !work_record.constraints().nodes.is_empty(),
            has_anti_affinity: work_record.constraints().anti_affinity.is_some(),
            current: work_record.usage.current,
            resting: if settings.rest_on_closed {
                work_record.usage.resting
            } else {
                0
            },
            leaving: work_record.usage.leaving,
            process_count_before: work_record.usage.current,
            cap: work_record.usage.cap,
            reach: u64::MAX,
            entitlement: 0,
            placed: 0,
            granted_quanta: 0,
            deferral: work_record.deferral.clone(),
            reserved: 0,
            has_reserved_node: false,
            ended: false,
            is_needy: false,
            lost_allocation: false,
        }
    }

    /// Returns the number of processes that the work has at the end of the round.
    pub fn process_count(&self) -> u64 {
        self.current + self.placed
    }

    /// Returns the number of processes that the entitlement still lacks.
    pub fn missing(&self) -> u64 {
        self.entitlement.saturating_sub(self.process_count())
    }

    /// Returns the number of processes beyond the entitlement.
    pub fn excess(&self) -> u64 {
        self.process_count().saturating_sub(self.entitlement)
    }

    /// Returns true if a node list or anti-affinity excludes some nodes of a pool for the work.
    pub fn is_constrained(&self) -> bool {
        self.has_node_list || self.has_anti_affinity
    }

    /// Returns true if the work is not placed: it is deferred, refused or ended.
    pub fn is_excluded(&self) -> bool {
        self.deferral.is_some() || self.ended
    }
}

/// Key of work that lacks the same resources. The quanta of work with whole nodes can differ from
/// those of `shape`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WorkShape {
    pub shape: ShapeIx,
    pub needs_whole_nodes: bool,
    pub quanta: u64,
}

impl WorkShape {
    pub fn new(state: &RoundState, work: WorkIx) -> Self {
        let row = &state.work[work];
        Self {
            shape: row.shape,
            needs_whole_nodes: state.policy(work) == Some(Policy::Reserve),
            quanta: row.process_quanta,
        }
    }
}
