//! The rows of the index: classes, nodes, work and allocations.

use std::{collections::BTreeSet, sync::Arc};

use hayward_vocabulary::{
    AllocationId, Apart, NodeName, Size, Timestamp, UserName, WorkId, WorkKind,
};

use super::{
    growth_cap::{Cap, GrowthRules, HeldCounts},
    node_space::NodeSpace,
    node_usage::Counted,
    users::Users,
};
use crate::{
    collections::id_list::IdList,
    ids::{AllocIx, NodeIx, ShapeIx, WorkIx},
    input::snapshot::{Class, Node},
    output::reason::Deferral,
};

/// Home pool, whether pools below are included, quanta and size of one process. Work of one shape
/// finds the same nodes.
pub(crate) type Shape = (Option<usize>, bool, u64, Size);

pub(crate) struct ClassRecord {
    pub name: Arc<str>,
    pub class: Class,
    /// Growth of its work.
    pub growth: GrowthRules,
    /// None if the policy names a pool that does not exist.
    pub pool: Option<usize>,
    pub users: Users,
}

/// One node.
pub(crate) struct NodeRecord {
    pub allocations: IdList<AllocIx>,
    /// Quanta of all its allocations.
    pub held_quanta: u64,
    pub quanta: u64,
    pub pool: Option<usize>,
    /// True if it takes work and holds nothing of work without a class.
    pub schedulable: bool,
    /// True if it holds more than it has (W-20).
    pub is_overfull: bool,
    /// True if the number is free for a new node.
    pub(super) is_vacant: bool,
    /// Free and future space, if the sum does not describe the node.
    pub(super) counted: Option<Box<Counted>>,
    /// Space without fixed allocations.
    pub space_without_fixed: NodeSpace,
    pub node: Node,
    /// Services with an instance here.
    pub services: BTreeSet<WorkId>,
    pub name: NodeName,
}

/// Placement constraints. Most work has none, so they are stored apart.
#[derive(Default, PartialEq)]
pub(crate) struct PlacementConstraints {
    /// Listed nodes without avoided ones. Empty if any node will do.
    pub nodes: BTreeSet<NodeName>,
    /// Nodes blocked for this work alone, by name.
    pub avoided: Vec<NodeName>,
    pub service: Option<WorkId>,
    pub apart: Option<Apart>,
    /// Size in the demand. Only of work that gets whole nodes.
    pub node_size: Option<Size>,
}

static UNCONSTRAINED: PlacementConstraints = PlacementConstraints {
    nodes: BTreeSet::new(),
    avoided: Vec::new(),
    service: None,
    apart: None,
    node_size: None,
};

/// One piece of work.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one independent property"
)]
pub(crate) struct WorkRecord {
    pub id: WorkId,
    pub submitted_at: Timestamp,
    pub user: usize,
    pub class: Option<usize>,
    /// Before any upgrade that an earlier round promised.
    pub process_quanta: u64,
    /// None if unconstrained.
    pub(super) constraints: Option<Box<PlacementConstraints>>,
    /// Gives the size of a granted process.
    pub shape: ShapeIx,
    pub deferral: Option<Box<Deferral>>,
    pub max_processes: u64,
    pub remaining_tasks: u64,
    /// Milliseconds; 0 if unknown.
    pub task_ms: u64,
    pub threads: u32,
    pub kind: WorkKind,
    pub managed: bool,
    pub runnable: bool,
    pub completing: bool,
    pub keeps_what_it_holds: bool,
    pub usage: WorkUsage,
    pub allocations: IdList<AllocIx>,
    pub user_name: UserName,
}

impl WorkRecord {
    /// Other work of the same shape may have different constraints.
    pub fn constraints(&self) -> &PlacementConstraints {
        self.constraints.as_deref().unwrap_or(&UNCONSTRAINED)
    }

    pub fn is_constrained(&self) -> bool {
        let wishes = self.constraints();
        !wishes.nodes.is_empty() || wishes.apart.is_some()
    }

    pub fn admits(&self, node: &NodeName) -> bool {
        let listed = &self.constraints().nodes;
        (listed.is_empty() || listed.contains(node)) && !self.avoided(node)
    }

    /// True if this node is blocked for this work alone.
    pub fn avoided(&self, node: &NodeName) -> bool {
        self.constraints().avoided.binary_search(node).is_ok()
    }
}

/// Sums over the allocations of one piece of work, and the resulting cap.
#[derive(Default, Clone, Copy)]
pub(crate) struct WorkUsage {
    /// Quanta of all its allocations.
    pub quanta: u64,
    /// Part of `quanta` that is leaving, and part on nodes that take no work.
    pub leaving_quanta: u64,
    pub closed_quanta: u64,
    pub current: u64,
    pub leaving: u64,
    /// Processes that stay on nodes that take no work.
    pub resting: u64,
    /// Mean time the held processes took to start, in milliseconds.
    pub mean_start_ms: u64,
    pub cap: Cap,
}

impl WorkUsage {
    pub fn counts(&self) -> HeldCounts {
        HeldCounts {
            current: self.current,
            leaving: self.leaving,
            mean_start_ms: self.mean_start_ms,
        }
    }
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is said by another service on its own"
)]
pub(crate) struct AllocationRecord {
    pub id: AllocationId,
    pub work_id: WorkId,
    pub work: Option<WorkIx>,
    pub kind: WorkKind,
    pub user_name: UserName,
    pub user: usize,
    pub class: String,
    pub node_name: NodeName,
    pub node: Option<NodeIx>,
    pub quanta: u64,
    pub size: Size,
    pub gpus: Vec<u64>,
    pub fixed: bool,
    pub running: bool,
    pub granted_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub running_since: Option<Timestamp>,
    pub investment_ms: Option<u64>,
    pub item_ms: Option<u64>,
    /// Ordered to leave, with or without an answer of its node.
    pub leaving: bool,
    pub purged: bool,
}

impl AllocationRecord {
    pub(super) fn start_ms(&self) -> u64 {
        let since = self.running_since.filter(|_| self.running);
        since.map_or(0, |since| {
            since.ms_since(self.started_at.unwrap_or(self.granted_at))
        })
    }
}

/// Work that left its class.
pub(crate) struct DepartedWork {
    pub work: WorkIx,
    pub class: usize,
    pub user: UserName,
    pub work_id: WorkId,
}

/// Work of a user was inserted at or removed from this position of the user's list in a class.
pub(crate) struct WorkListEdit {
    pub class: usize,
    pub user: usize,
    pub position: usize,
    pub work: WorkIx,
    pub joins: bool,
}

impl WorkListEdit {
    /// True if `next` inserts again what this one removed.
    pub fn is_undone_by(&self, next: &Self) -> bool {
        let owner = |splice: &Self| (splice.class, splice.user, splice.position, splice.work);
        !self.joins && next.joins && owner(self) == owner(next)
    }
}
