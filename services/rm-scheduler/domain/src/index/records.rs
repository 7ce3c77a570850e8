//! The rows of the index: classes, nodes, work and allocations.

use std::{collections::BTreeSet, sync::Arc};

use hayward_vocabulary::{
    AllocationId, Apart, NodeName, Size, Timestamp, UserName, WorkId, WorkKind,
};

use super::{
    class_users::Users,
    growth_cap::{Cap, GrowthRules, HeldCounts},
    node_contents::ComputedSpace,
    node_space::NodeSpace,
    node_usage::AllocationUsage,
};
use crate::{
    collections::id_list::IdList,
    ids::{AllocIx, ClassIx, NodeIx, PoolIx, ShapeIx, UserIx, WorkIx},
    input::snapshot::{Class, Node},
    output::reason::Deferral,
};

/// Properties that decide on which nodes a process fits. Work with equal properties has one shape.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// Home pool. `None` if the work has none.
    pub home: Option<PoolIx>,
    /// True if the work may also use the pools below its home.
    pub includes_subpools: bool,
    /// Quanta of one process.
    pub quanta: u64,
    /// Size of one process.
    pub size: Size,
}

pub(crate) struct ClassRecord {
    pub name: Arc<str>,
    pub class: Class,
    /// Growth settings of the work of this class.
    pub growth: GrowthRules,
    /// Home pool. `None` if the policy names a pool that does not exist.
    pub pool: Option<PoolIx>,
    pub users: Users,
}

/// One node, with the space that its allocations use.
pub(crate) struct NodeRecord {
    pub allocations: IdList<AllocIx>,
    /// Quanta of all allocations on the node.
    pub held_quanta: u64,
    pub quanta: u64,
    pub pool: Option<PoolIx>,
    /// True if the node takes work and holds no allocation of work without a class.
    pub schedulable: bool,
    /// True if the allocations that stay exceed the capacity of the node (W-20).
    pub is_overfull: bool,
    /// True if the row belongs to no node, so that a new node can use it.
    pub(super) is_vacant: bool,
    /// Free and future space. `None` if the sums over the allocations suffice.
    pub(super) computed_space: Option<Box<ComputedSpace>>,
    /// Capacity minus the fixed allocations.
    pub space_without_fixed: NodeSpace,
    pub node: Node,
    /// Services with an instance on the node.
    pub services: BTreeSet<WorkId>,
    pub name: NodeName,
}

/// Placement constraints. Most work has none, so they are stored separately.
#[derive(Default, PartialEq)]
pub(crate) struct PlacementConstraints {
    /// Listed nodes without avoided ones. Empty if any node is allowed.
    pub nodes: BTreeSet<NodeName>,
    /// Nodes blocked for this work alone, by name.
    pub avoided: Vec<NodeName>,
    pub service: Option<WorkId>,
    pub anti_affinity: Option<Apart>,
    /// Size in the demand. `None` unless the work gets whole nodes.
    pub node_size: Option<Size>,
}

static UNCONSTRAINED: PlacementConstraints = PlacementConstraints {
    nodes: BTreeSet::new(),
    avoided: Vec::new(),
    service: None,
    anti_affinity: None,
    node_size: None,
};

/// One piece of work. Fields without a comment are those of
/// [`Demand`](crate::input::snapshot::Demand), with indices for names.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one independent property"
)]
pub(crate) struct WorkRecord {
    pub id: WorkId,
    pub submitted_at: Timestamp,
    pub user: UserIx,
    pub class: Option<ClassIx>,
    /// Quanta of one process by its demand. The state of a round can have more, after a larger
    /// whole node was reserved.
    pub process_quanta: u64,
    /// Placement constraints. `None` if there are none.
    pub(super) constraints: Option<Box<PlacementConstraints>>,
    /// Shape of the work, which gives the size of a granted process.
    pub shape: ShapeIx,
    pub deferral: Option<Box<Deferral>>,
    pub max_processes: u64,
    pub remaining_tasks: u64,
    /// Duration of a task in milliseconds, or 0 if unknown.
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
    /// Returns the placement constraints, which may differ among work of one shape.
    pub fn constraints(&self) -> &PlacementConstraints {
        self.constraints.as_deref().unwrap_or(&UNCONSTRAINED)
    }

    pub fn is_constrained(&self) -> bool {
        let constraints = self.constraints();
        !constraints.nodes.is_empty() || constraints.anti_affinity.is_some()
    }

    /// Returns true if the node list allows the node and the work does not avoid it.
    pub fn admits(&self, node: &NodeName) -> bool {
        let listed = &self.constraints().nodes;
        (listed.is_empty() || listed.contains(node)) && !self.avoids(node)
    }

    /// Returns true if this node is blocked for this work alone.
    pub fn avoids(&self, node: &NodeName) -> bool {
        self.constraints().avoided.binary_search(node).is_ok()
    }
}

/// Sums over the allocations of one piece of work, and the resulting cap.
#[derive(Default, Clone, Copy)]
pub(crate) struct WorkUsage {
    /// Quanta of all its allocations.
    pub quanta: u64,
    /// Part of `quanta` that is leaving.
    pub leaving_quanta: u64,
    /// Part of `quanta` on nodes that take no work.
    pub closed_quanta: u64,
    /// Number of processes that stay.
    pub current: u64,
    /// Number of processes that are leaving.
    pub leaving: u64,
    /// Number of processes that stay on nodes that take no work.
    pub resting: u64,
    /// Mean time that the held processes took to start, in milliseconds.
    pub mean_start_ms: u64,
    pub cap: Cap,
}

impl WorkUsage {
    pub fn held_counts(&self) -> HeldCounts {
        HeldCounts {
            current: self.current,
            leaving: self.leaving,
            mean_start_ms: self.mean_start_ms,
        }
    }
}

/// One allocation. Fields without a comment are those of
/// [`Allocation`](crate::input::snapshot::Allocation), with indices for names.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one independent property"
)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct AllocationRecord {
    pub id: AllocationId,
    pub work_id: WorkId,
    pub work: Option<WorkIx>,
    pub kind: WorkKind,
    pub user_name: UserName,
    pub user: UserIx,
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
    /// True if the allocation was vacated, even if its node has not confirmed this yet.
    pub leaving: bool,
    pub purged: bool,
    pub usage: AllocationUsage,
}

impl AllocationRecord {
    /// Returns the milliseconds that the allocation took to start, or 0 if it is not running.
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
    pub class: ClassIx,
    pub user: UserName,
    pub work_id: WorkId,
}

/// Change of a user's work list in a class: work was inserted or removed at a position.
pub(crate) struct WorkListEdit {
    pub class: ClassIx,
    pub user: UserIx,
    pub position: usize,
    pub work: WorkIx,
    pub is_insertion: bool,
}

impl WorkListEdit {
    /// Returns true if `next` inserts again what this one removed.
    pub fn is_undone_by(&self, next: &Self) -> bool {
        let owner = |edit: &Self| (edit.class, edit.user, edit.position, edit.work);
        !self.is_insertion && next.is_insertion && owner(self) == owner(next)
    }
}
