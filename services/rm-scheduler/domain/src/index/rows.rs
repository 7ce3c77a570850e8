//! The rows of the index: classes, nodes, work and allocations.

use std::{collections::BTreeSet, sync::Arc};

use hayward_vocabulary::{
    AllocationId, Apart, NodeName, Size, Timestamp, UserName, WorkId, WorkKind,
};

use super::{
    growth_cap::{Cap, Has, Rules},
    node_space::Room,
    node_usage::Counted,
    users::Users,
};
use crate::{
    collections::id_list::Numbers,
    input::snapshot::{Class, Node},
    output::reason::Deferral,
};

/// Home pool, whether pools below count, quanta and size of one process: work of one shape finds
/// the same nodes.
pub(crate) type Shape = (Option<usize>, bool, u64, Size);

pub(crate) struct Served {
    pub name: Arc<str>,
    pub class: Class,
    /// How its work grows.
    pub rules: Rules,
    /// None when the policy names a pool that does not exist.
    pub pool: Option<usize>,
    pub users: Users,
}

/// What changes with what is held comes first, then what that is taken from: of nodes anywhere two
/// lines of memory are read.
#[repr(C, align(64))]
pub(crate) struct Station {
    pub held: Numbers,
    /// Quanta of all that is held.
    pub held_quanta: u64,
    pub order: u64,
    pub pool: Option<usize>,
    /// and nothing of work without a class lies on it.
    pub schedulable: bool,
    /// More is held than there is (W-20).
    pub over: bool,
    /// There is no such node: the number is free for one that comes.
    pub(super) is_vacant: bool,
    /// What its shares come to says all that stands here, as far as that is known.
    pub(super) is_plain: bool,
    /// What is left, where what its shares come to does not say that.
    pub(super) counted: Option<Box<Counted>>,
    /// Room without what nobody may take back.
    pub room: Room,
    pub node: Node,
    /// Services with an instance here.
    pub services: BTreeSet<WorkId>,
    pub name: NodeName,
}

/// What little work asks for; there is a great deal of work, so it does not make all of it large.
#[derive(Default, PartialEq)]
pub(crate) struct Wishes {
    /// Without what it avoids; of work that avoids nodes it is never empty.
    pub machines: BTreeSet<NodeName>,
    /// Nodes it could use if they were not blocked for it, by name.
    pub avoids: Vec<NodeName>,
    pub service: Option<WorkId>,
    pub apart: Option<Apart>,
    /// As asked for, of work that is served with whole nodes.
    pub node_size: Option<Size>,
}

static NO_WISHES: Wishes = Wishes {
    machines: BTreeSet::new(),
    avoids: Vec::new(),
    service: None,
    apart: None,
    node_size: None,
};

/// Whose it is, its turn and whether it asks for anything special come first: of work anywhere that
/// is one line of memory, of four.
#[repr(C, align(64))]
pub(crate) struct Asked {
    pub id: WorkId,
    pub submitted_at: Timestamp,
    pub user_at: usize,
    pub class: Option<usize>,
    /// Before any upgrade that an earlier round promised.
    pub order: u64,
    /// What most work does not ask for.
    pub(super) wishes: Option<Box<Wishes>>,
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
    pub holding: Holding,
    pub held: Numbers,
    pub user: UserName,
}

impl Asked {
    /// Others of its shape may go where it may not.
    pub fn wishes(&self) -> &Wishes {
        self.wishes.as_deref().unwrap_or(&NO_WISHES)
    }

    pub fn is_picky(&self) -> bool {
        let wishes = self.wishes();
        !wishes.machines.is_empty() || wishes.apart.is_some()
    }

    pub fn admits(&self, node: &NodeName) -> bool {
        let listed = &self.wishes().machines;
        (listed.is_empty() || listed.contains(node)) && !self.avoids(node)
    }

    /// Blocked for this work alone.
    pub fn avoids(&self, node: &NodeName) -> bool {
        self.wishes().avoids.binary_search(node).is_ok()
    }
}

/// What work holds, and what it can use with that.
#[derive(Default, Clone, Copy)]
pub(crate) struct Holding {
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

impl Holding {
    pub fn has(&self) -> Has {
        Has {
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
pub(crate) struct Share {
    pub id: AllocationId,
    pub work: WorkId,
    pub request: Option<usize>,
    pub kind: WorkKind,
    pub user: UserName,
    pub user_at: usize,
    pub class: String,
    pub node: NodeName,
    pub machine: Option<usize>,
    pub order: u64,
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

impl Share {
    pub(super) fn start_ms(&self) -> u64 {
        let since = self.running_since.filter(|_| self.running);
        since.map_or(0, |since| {
            since.ms_since(self.started_at.unwrap_or(self.granted_at))
        })
    }
}

/// Work that left its class.
pub(crate) struct Departed {
    pub at: usize,
    pub class: usize,
    pub user: UserName,
    pub work: WorkId,
}

/// Work of a user joined a class at this place of its work there, or left it.
pub(crate) struct Splice {
    pub class: usize,
    pub user_at: usize,
    pub place: usize,
    pub at: usize,
    pub joins: bool,
}

impl Splice {
    /// It leaves, and comes back to the same place.
    pub fn is_undone_by(&self, next: &Self) -> bool {
        let whose = |splice: &Self| (splice.class, splice.user_at, splice.place, splice.at);
        !self.joins && next.joins && whose(self) == whose(next)
    }
}
