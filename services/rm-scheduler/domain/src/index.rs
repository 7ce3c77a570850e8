//! The fleet as a round sees it: nodes, work and shares by dense numbers, with their
//! cross-references and everything that follows from them alone. It is kept from round to round and
//! brought up to date by news; what a round decides is in the [`Books`](crate::state::Books).
//!
//! Invariants: numbers of nodes ascend by name; lists of shares ascend by id; what is here follows
//! from the snapshot that was absorbed last, whatever was absorbed before. Numbers of work and
//! shares mean nothing, and no decision may depend on them.

mod allocation_usage;
mod allocations;
mod apply_delta;
mod by_name;
mod derive;
pub(crate) mod eligibility;
pub(crate) mod growth_cap;
pub mod largest_nodes;
mod lookup;
pub(crate) mod node_space;
mod node_usage;
mod nodes;
pub(crate) mod pool_tree;
mod prefetch;
mod user_work;
mod users;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hayward_vocabulary::{
    AllocationId, Apart, NodeName, Quantum, Size, Timestamp, UserName, WorkId, WorkKind,
};
use rustc_hash::FxHashMap;

pub(crate) use crate::collections::id_list::Numbers;
pub(crate) use allocation_usage::Load;
use by_name::{ByName, Hash};
use node_usage::Counted;
pub(crate) use users::Users;

use crate::{
    input::snapshot::{Class, Node, Pool, Tunables},
    output::reason::Deferral,
};
use growth_cap::{Cap, Has, Rules};
use largest_nodes::LargestNodes;
use node_space::Room;
use pool_tree::Forest;

#[derive(Default)]
pub(crate) struct Register {
    laws: Laws,
    pub forest: Forest,
    /// By pool: the quantum of its tree.
    pub quanta: Vec<Quantum>,
    pub classes: Vec<Served>,
    pub machines: Vec<Station>,
    pub requests: Vec<Asked>,
    pub shares: Vec<Share>,
    /// Of each share what walks over many of them read.
    pub loads: Vec<Load>,
    /// By node: what its shares come to.
    taken: Vec<allocation_usage::Taken>,
    pub kinds: Kinds,
    /// Not what they were before the news absorbed last.
    pub kinds_moved: bool,
    /// Nodes of pools in which any node has gpus.
    pub packable: Vec<usize>,
    /// By pool: has any node gpus?
    with_gpus: Vec<bool>,
    /// By pool: quanta of the nodes that take work, and of all.
    pub open_quanta: Vec<u64>,
    pub all_quanta: Vec<u64>,
    /// Shares that have to leave whatever anybody is due.
    pub faulty: BTreeSet<usize>,
    /// Shares that are never taken back.
    pub fixed: BTreeSet<usize>,
    /// Shares that were told to leave before.
    pub leaving: BTreeSet<usize>,
    /// Shares on nodes that are gone.
    pub unplaced: BTreeSet<usize>,
    /// Shares of work that is withdrawn or may not be served.
    pub unclassed: BTreeSet<usize>,
    /// Shares outside the pool of their own work that may be sent home (W-13).
    pub squatters: BTreeSet<usize>,
    /// Those of them on nodes of another tree than that of their work, which moved.
    pub strays: BTreeSet<usize>,
    /// Nodes that hold more than they have (W-20).
    pub overfull: BTreeSet<usize>,
    pub shapes: Arc<Vec<Shape>>,
    user_at: FxHashMap<UserName, usize>,
    /// By number. Work and shares say these of whose they are: what each brings with it lies
    /// somewhere else in memory.
    user_names: Vec<UserName>,
    machine_at: FxHashMap<NodeName, usize>,
    request_at: ByName,
    share_at: ByName,
    class_at: FxHashMap<String, usize>,
    shape_at: FxHashMap<Shape, usize>,
    /// By pool: the largest of its own nodes, which cap the order of work.
    largest: Vec<LargestNodes>,
    /// By class and kind of work: sizes that were asked for, with their quanta and shape.
    measured: Vec<Vec<(Size, u64, usize)>>,
    /// Shares of work that asks for nothing.
    orphans: FxHashMap<WorkId, Numbers>,
    /// Work that is kept apart, by group.
    pub groups: FxHashMap<WorkId, Vec<usize>>,
    /// Work that may go to all nodes but some, so that it matters to it which there are.
    avoiding: BTreeSet<usize>,
    /// Classes that serve a kind of work for everyone, by the name it asks for.
    open_to_all: [FxHashMap<String, usize>; 3],
    /// Of the news absorbed last: numbers of work that is not what it was, and whose it was.
    pub touched: Vec<usize>,
    /// Work of which something was derived anew.
    pub refreshed: Vec<usize>,
    /// Nodes of which something was derived anew.
    pub changed_machines: Vec<usize>,
    pub departed: Vec<Departed>,
    /// Pools that nodes were in before they were said anew, and whether any was.
    pub left_pools: Vec<usize>,
    pub nodes_moved: bool,
    /// How the work of users in their classes came and went, in this order.
    pub splices: Vec<Splice>,
    pub withdrawn: Vec<WorkId>,
    /// The numbers they had, which others may have by now.
    pub vacated: Vec<usize>,
    /// The news was everything.
    pub anew: bool,
    stirred: apply_delta::Stirred,
    vacant_requests: Vec<usize>,
    vacant_shares: Vec<usize>,
}

/// Nodes alike: pool and room that could be had, to number of nodes.
pub(crate) type Kinds = BTreeMap<(usize, Room), u64>;

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

/// What everything else is read under; a change of it is read anew from the beginning.
#[derive(Default, PartialEq)]
struct Laws {
    quantum: Quantum,
    tunables: Tunables,
    pools: BTreeMap<String, Pool>,
    classes: BTreeMap<String, Class>,
}

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
    is_vacant: bool,
    /// What its shares come to says all that stands here, as far as that is known.
    is_plain: bool,
    /// What is left, where what its shares come to does not say that.
    counted: Option<Box<Counted>>,
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
    wishes: Option<Box<Wishes>>,
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

impl Holding {
    pub fn has(&self) -> Has {
        Has {
            current: self.current,
            leaving: self.leaving,
            mean_start_ms: self.mean_start_ms,
        }
    }
}

impl Share {
    fn start_ms(&self) -> u64 {
        let since = self.running_since.filter(|_| self.running);
        since.map_or(0, |since| {
            since.ms_since(self.started_at.unwrap_or(self.granted_at))
        })
    }
}

impl Register {
    pub fn machine(&self, name: &NodeName) -> Option<usize> {
        self.machine_at.get(name).copied()
    }

    pub fn request(&self, id: &WorkId) -> Option<usize> {
        let is_it = |at: usize| self.requests[at].id == *id;
        self.request_at.find(Hash::of(id.as_str()), is_it)
    }

    /// Is this the number of work that is not withdrawn?
    pub fn is_live(&self, at: usize) -> bool {
        let asked = &self.requests[at];
        asked.class.is_some() || asked.deferral.is_some()
    }

    /// Users have numbers below this.
    pub fn users(&self) -> usize {
        self.user_at.len()
    }

    pub(self) fn user(&mut self, name: &UserName) -> usize {
        if let Some(known) = self.user_at.get(name) {
            return *known;
        }
        let fresh = self.user_at.len();
        self.user_at.insert(name.clone(), fresh);
        self.user_names.push(name.clone());
        fresh
    }

    pub fn number_of_user(&self, name: &UserName) -> Option<usize> {
        self.user_at.get(name).copied()
    }

    /// Has any node of this pool itself gpus?
    pub fn has_gpus(&self, pool: usize) -> bool {
        self.with_gpus.get(pool).copied().unwrap_or(false)
    }

    pub fn class(&self, name: &str) -> Option<usize> {
        self.class_at.get(name).copied()
    }

    pub fn quantum(&self, pool: Option<usize>) -> &Quantum {
        pool.map_or(&self.laws.quantum, |pool| &self.quanta[pool])
    }
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
