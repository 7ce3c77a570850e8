//! What a round notes about each node and each piece of work, beside what the register says.

use crate::{
    index::{FleetIndex, WorkRecord, growth_cap::Cap, node_space::NodeSpace},
    input::settings::Settings,
    output::reason::Deferral,
};

/// What is asked together lies together: what the register says of a node first, in two lines of
/// memory, then what the round adds, which is looked at only where it wrote something.
#[repr(C, align(64))]
pub(crate) struct NodeState {
    pub pool: Option<usize>,
    pub quanta: u64,
    /// and nothing of work without a class lies on it.
    pub schedulable: bool,
    /// No more is held than there is, and nothing that stays for good: what is free says the rest.
    pub is_simple_sum: bool,
    /// Quanta that will be free once everything has left that was told to before this round.
    pub future_quanta: u64,
    pub free: NodeSpace,
    /// Shares here that were told to leave in this round.
    pub to_vacate: Vec<usize>,
    /// Granted in this round.
    pub granted: Vec<usize>,
    /// Room that is leaving and meant for somebody: nothing else may slip into it.
    pub reservations: Vec<Reservation>,
    /// The request this whole node is kept for in this round.
    pub whole_node_for: Option<usize>,
}

impl NodeState {
    pub fn of(index: &FleetIndex, at: usize) -> Self {
        let mut node = Self {
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
        node.renew(index, at, false);
        node
    }

    /// Brings the row in place to its station; what a round adds to it is there only if one wrote
    /// it.
    pub fn renew(&mut self, index: &FleetIndex, at: usize, was_written: bool) {
        let node_record = &index.nodes[at];
        (self.pool, self.quanta) = (node_record.pool, node_record.quanta);
        (self.schedulable, self.future_quanta) = (node_record.schedulable, index.coming_order(at));
        self.is_simple_sum = node_record.held_quanta <= node_record.quanta
            && node_record.space_without_fixed.quanta == node_record.quanta;
        index.set_free(at, &mut self.free);
        if was_written {
            self.to_vacate.clear();
            self.granted.clear();
            self.whole_node_for = None;
            self.reservations.clear();
        }
    }

    #[cfg(test)]
    pub fn assert_is(&self, other: &Self) {
        let of_node = |it: &Self| (it.pool, it.quanta, it.schedulable, it.future_quanta);
        assert_eq!(of_node(self), of_node(other));
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

/// Room meant for one process of a request.
pub(crate) struct Reservation {
    pub work: usize,
    pub quanta: u64,
    pub gpus: Vec<u64>,
}

/// What it has, is due and waits for comes first, then what else is asked to place it: of work
/// anywhere that is one line of memory and another, of three.
#[repr(C, align(64))]
pub(crate) struct WorkState {
    pub class: Option<usize>,
    pub process_quanta: u64,
    /// Held, not leaving, at the start of the round and after every order to leave.
    pub current: u64,
    pub placed: u64,
    pub counted: u64,
    /// Room for it is on its way: processes that leaving shares will make place for.
    pub reserved: u64,
    /// It names machines.
    pub has_node_list: bool,
    /// It is kept apart from others of its group.
    pub has_anti_affinity: bool,
    /// Its order is that of a node it was promised.
    pub upgraded: bool,
    /// Never gets anything again.
    pub ended: bool,
    /// Section 12 found that what it lacks cannot come by itself.
    pub actually_needy: bool,
    /// Something of it was told to leave in this round.
    pub lost_some: bool,
    pub deferral: Option<Box<Deferral>>,
    pub shape: usize,
    /// Processes that could be held if everything preemptable gave way, up to what it could use.
    pub reach: u64,
    pub cap: Cap,
    /// Of those held, on nodes that take no new work: they stay, outside the arithmetic of counts.
    pub resting: u64,
    pub leaving: u64,
    /// What it had when counting began.
    pub had: u64,
    /// Quanta of what was placed.
    pub granted_quanta: u64,
}

impl WorkState {
    pub fn of(work_record: &WorkRecord, settings: &Settings) -> Self {
        Self {
            class: work_record.class,
            process_quanta: work_record.process_quanta,
            shape: work_record.shape,
            has_node_list: !work_record.constraints().nodes.is_empty(),
            has_anti_affinity: work_record.constraints().apart.is_some(),
            current: work_record.usage.current,
            resting: if settings.rest_on_closed {
                work_record.usage.resting
            } else {
                0
            },
            leaving: work_record.usage.leaving,
            had: work_record.usage.current,
            cap: work_record.usage.cap,
            reach: u64::MAX,
            counted: 0,
            placed: 0,
            granted_quanta: 0,
            deferral: work_record.deferral.clone(),
            reserved: 0,
            upgraded: false,
            ended: false,
            actually_needy: false,
            lost_some: false,
        }
    }

    /// What it will have once things settle.
    pub fn has(&self) -> u64 {
        self.current + self.placed
    }

    pub fn missing(&self) -> u64 {
        self.counted.saturating_sub(self.has())
    }

    pub fn excess(&self) -> u64 {
        self.has().saturating_sub(self.counted)
    }

    /// Not every node of a pool is as good as any other for it.
    pub fn is_constrained(&self) -> bool {
        self.has_node_list || self.has_anti_affinity
    }

    /// Left out of placing: deferred, refused or over.
    pub fn is_excluded(&self) -> bool {
        self.deferral.is_some() || self.ended
    }
}
