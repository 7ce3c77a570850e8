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
    input::snapshot::{Class, Node},
    output::reason::Deferral,
};

/// Home pool, whether pools below count, quanta and size of one process: work of one shape finds
/// the same nodes.
pub(crate) type Shape = (Option<usize>, bool, u64, Size);

pub(crate) struct ClassRecord {
    pub name: Arc<str>,
    pub class: Class,
    /// How its work grows.
    pub growth: GrowthRules,
    /// None when the policy names a pool that does not exist.
    pub pool: Option<usize>,
    pub users: Users,
}

/// What changes with what is held comes first, then what that is taken from: of nodes anywhere two
/// lines of memory are read.
#[repr(C, align(64))]
pub(crate) struct NodeRecord {
    pub allocations: IdList,
    /// Quanta of all that is held.
    pub held_quanta: u64,
    pub quanta: u64,
    pub pool: Option<usize>,
    /// and nothing of work without a class lies on it.
    pub schedulable: bool,
    /// More is held than there is (W-20).
    pub is_overfull: bool,
    /// There is no such node: the number is free for one that comes.
    pub(super) is_vacant: bool,
    /// What its shares come to says all that stands here, as far as that is known.
    pub(super) is_simple_sum: bool,
    /// What is left, where what its shares come to does not say that.
    pub(super) counted: Option<Box<Counted>>,
    /// Room without what nobody may take back.
    pub space_without_fixed: NodeSpace,
    pub node: Node,
    /// Services with an instance here.
    pub services: BTreeSet<WorkId>,
    pub name: NodeName,
}

/// What little work asks for; there is a great deal of work, so it does not make all of it large.
#[derive(Default, PartialEq)]
pub(crate) struct PlacementConstraints {
    /// Without what it avoids; of work that avoids nodes it is never empty.
    pub nodes: BTreeSet<NodeName>,
    /// Nodes it could use if they were not blocked for it, by name.
    pub avoids: Vec<NodeName>,
    pub service: Option<WorkId>,
    pub apart: Option<Apart>,
    /// As asked for, of work that is served with whole nodes.
    pub node_size: Option<Size>,
}

static UNCONSTRAINED: PlacementConstraints = PlacementConstraints {
    nodes: BTreeSet::new(),
    avoids: Vec::new(),
    service: None,
    apart: None,
    node_size: None,
};

/// Whose it is, its turn and whether it asks for anything special come first: of work anywhere that
/// is one line of memory, of four.
#[repr(C, align(64))]
pub(crate) struct WorkRecord {
    pub id: WorkId,
    pub submitted_at: Timestamp,
    pub user: usize,
    pub class: Option<usize>,
    /// Before any upgrade that an earlier round promised.
    pub process_quanta: u64,
    /// What most work does not ask for.
    pub(super) wishes: Option<Box<PlacementConstraints>>,
    /// Says what is granted to one process.
    pub shape: usize,
    pub deferral: Option<Box<Deferral>>,
    pub max_processes: u64,
    pub remaining_tasks: u64,
    /// 0 where it is not known.
    pub task_ms: u64,
    pub threads: u32,
    pub kind: WorkKind,
    pub managed: bool,
    pub runnable: bool,
    pub completing: bool,
    pub keeps_what_it_holds: bool,
    pub usage: WorkUsage,
    pub allocations: IdList,
    pub user_name: UserName,
}

impl WorkRecord {
    /// Others of its shape may go where it may not.
    pub fn constraints(&self) -> &PlacementConstraints {
        self.wishes.as_deref().unwrap_or(&UNCONSTRAINED)
    }

    pub fn is_constrained(&self) -> bool {
        let wishes = self.constraints();
        !wishes.nodes.is_empty() || wishes.apart.is_some()
    }

    pub fn admits(&self, node: &NodeName) -> bool {
        let listed = &self.constraints().nodes;
        (listed.is_empty() || listed.contains(node)) && !self.avoided(node)
    }

    /// Blocked for this work alone.
    pub fn avoided(&self, node: &NodeName) -> bool {
        self.constraints().avoids.binary_search(node).is_ok()
    }
}

/// What work holds, and what it can use with that.
#[derive(Default, Clone, Copy)]
pub(crate) struct WorkUsage {
    /// Quanta of all that is held.
    pub quanta: u64,
    /// Of those: told to leave, and on nodes that take no new work.
    pub leaving_quanta: u64,
    pub closed_quanta: u64,
    pub current: u64,
    pub leaving: u64,
    /// Of those that stay, on nodes that take no new work.
    pub resting: u64,
    /// How long what is held took to start, on average.
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
    pub work: Option<usize>,
    pub kind: WorkKind,
    pub user_name: UserName,
    pub user: usize,
    pub class: String,
    pub node_name: NodeName,
    pub node: Option<usize>,
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
    /// Told to go, with or without waiting for its node.
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
    pub work: usize,
    pub class: usize,
    pub user: UserName,
    pub work_id: WorkId,
}

/// Work of a user joined a class at this place of its work there, or left it.
pub(crate) struct WorkListEdit {
    pub class: usize,
    pub user: usize,
    pub position: usize,
    pub work: usize,
    pub joins: bool,
}

impl WorkListEdit {
    /// It leaves, and comes back to the same place.
    pub fn is_undone_by(&self, next: &Self) -> bool {
        let owner = |splice: &Self| (splice.class, splice.user, splice.position, splice.work);
        !self.joins && next.joins && owner(self) == owner(next)
    }
}
