//! What a planner outside is asked: its pool as it is now, in one document.
//!
//! Names and numbers are those of the API. Work of classes that live in the pool is in it, waiting
//! or not, and everything that stands on its nodes, whoever plans for that.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Snapshot,
    snapshot::{Node, Policy, outside::Heard},
};
use hayward_vocabulary::{
    AllocationId, Apart, NodeName, Quantum, Size, Timestamp, UserName, WorkId, WorkKind,
};
use serde::Serialize;

use crate::{FORMAT, Trees, pool_view::Book, recent_moves};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ask {
    pub format: &'static str,
    /// To be repeated in the answer.
    pub revision: u64,
    pub now: Timestamp,
    /// Without parent.
    pub pool: String,
    /// What room is counted in.
    pub quantum: Quantum,
    /// All of them, of this pool and all below it, with the pool above each.
    pub pools: BTreeMap<String, Option<String>>,
    /// Those that live in these pools.
    pub classes: BTreeMap<String, AskedClass>,
    pub nodes: Vec<AskedNode>,
    /// By the order of submission.
    pub work: Vec<AskedWork>,
    pub allocations: Vec<AskedAllocation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AskedClass {
    pub policy: Policy,
    pub priority: i64,
    pub weight: u64,
    pub pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AskedNode {
    pub node: NodeName,
    pub pool: String,
    pub capacity: Size,
    /// By everything that stands there, with what leaves.
    pub used: Size,
    pub free: Size,
    pub free_quanta: u64,
    pub schedulable: bool,
    /// Why it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AskedWork {
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub class: String,
    pub submitted_at: Timestamp,
    /// What one process is given; a whole node in a class of policy `RESERVE`, which has to have as
    /// much at least.
    pub size: Size,
    pub quanta: u64,
    /// Processes it can use, has, and has that were told to leave.
    pub wanted: u64,
    pub has: u64,
    pub leaving: u64,
    /// What may be granted now.
    pub missing: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_ms: Option<u64>,
    /// Empty means any.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub machines: BTreeSet<NodeName>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub avoids: BTreeSet<NodeName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<Apart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AskedAllocation {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub user: UserName,
    pub class: String,
    pub node: NodeName,
    pub size: Size,
    pub quanta: u64,
    pub granted_at: Timestamp,
    pub running: bool,
    /// Told to go; occupies its node until it is gone.
    pub leaving: bool,
    /// An order to leave may be given.
    pub preemptable: bool,
}

/// Something of the pool lacks a process, so there is something to ask. Nothing is copied for it.
#[must_use]
pub fn lacks(snapshot: &Snapshot, trees: &Trees, top: &str) -> bool {
    let found = snapshot.outside.get_key_value(top);
    found.is_some_and(|(top, _)| {
        let book = Book::open(snapshot, trees, top);
        book.work.values().any(|wish| wish.missing() > 0)
    })
}

/// What was heard of work that still lacks something; of other work it would be said when it is
/// not true any more.
#[must_use]
pub fn of_use(snapshot: &Snapshot, trees: &Trees, top: &str, heard: &Heard) -> Heard {
    let mut heard = heard.clone();
    if let Some((top, _)) = snapshot.outside.get_key_value(top) {
        let book = Book::open(snapshot, trees, top);
        let lacks = |work: &WorkId| book.work.get(work).is_some_and(|it| it.missing() > 0);
        heard.notes.retain(|work, _| lacks(work));
        heard.refused.retain(|work, _| lacks(work));
    }
    heard
}

impl Ask {
    /// Nothing where nothing of the pool lacks a process: then there is nothing to ask.
    #[must_use]
    pub fn of(snapshot: &Snapshot, trees: &Trees, top: &str, revision: u64) -> Option<Self> {
        let (top, _) = snapshot.outside.get_key_value(top)?;
        let book = Book::open(snapshot, trees, top);
        if !book.work.values().any(|wish| wish.missing() > 0) {
            return None;
        }
        let names = snapshot.pools.iter();
        let names = names.filter(|(name, _)| trees.of_pool(name) == Some(top));
        let classes = snapshot.classes.iter();
        let classes = classes.filter(|(_, class)| trees.of_pool(&class.pool) == Some(top));
        Some(Self {
            format: FORMAT,
            revision,
            now: snapshot.now,
            pool: top.clone(),
            quantum: book.quantum.clone(),
            pools: names
                .map(|(name, pool)| (name.clone(), pool.parent.clone()))
                .collect(),
            classes: classes
                .map(|(name, class)| {
                    let class = AskedClass {
                        policy: class.policy,
                        priority: class.priority,
                        weight: class.weight,
                        pool: class.pool.clone(),
                    };
                    (name.clone(), class)
                })
                .collect(),
            nodes: nodes(&book),
            work: work(&book),
            allocations: allocations(&book),
        })
    }

    /// Is it the same question, but for when it is asked?
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.pool == other.pool
            && self.quantum == other.quantum
            && self.pools == other.pools
            && self.classes == other.classes
            && self.nodes == other.nodes
            && self.work == other.work
            && self.allocations == other.allocations
    }
}

fn nodes(book: &Book) -> Vec<AskedNode> {
    let mut used: BTreeMap<&NodeName, (Size, u64)> = BTreeMap::new();
    for held in book.snapshot.allocations.values() {
        let (size, quanta) = used.entry(&held.node).or_default();
        size.add(&held.size);
        *quanta = quanta.saturating_add(held.order);
    }
    let one = |(name, node): (&NodeName, &Node)| {
        let (used, quanta) = used.remove(name).unwrap_or_default();
        let mut free = node.capacity.clone();
        free.take(&used);
        let all = book.quantum.node_order(&node.capacity);
        AskedNode {
            node: name.clone(),
            pool: node.pool.clone(),
            capacity: node.capacity.clone(),
            used,
            free,
            free_quanta: all.saturating_sub(quanta),
            schedulable: node.is_schedulable(),
            reason: closed(node),
            labels: node.labels.clone(),
        }
    };
    book.nodes().map(one).collect()
}

fn closed(node: &Node) -> Option<String> {
    let why = if node.lost {
        "lost".to_owned()
    } else if node.offline {
        "varied off".to_owned()
    } else if let Some(block) = &node.block {
        format!("blocked: {}", block.reason)
    } else if node.takes_work {
        return None;
    } else {
        "declines new work".to_owned()
    };
    Some(why)
}

fn work(book: &Book) -> Vec<AskedWork> {
    let one = |(work, wish): (&&WorkId, &crate::pool_view::Wish)| AskedWork {
        work: (*work).clone(),
        kind: wish.demand.kind,
        user: wish.demand.user.clone(),
        class: wish.class_name.to_owned(),
        submitted_at: wish.demand.submitted_at,
        size: match wish.class.policy {
            Policy::Reserve => wish.demand.size.clone(),
            _ => wish.size.clone(),
        },
        quanta: wish.order,
        wanted: wish.wanted(),
        has: wish.has,
        leaving: wish.leaving,
        missing: wish.missing(),
        task_ms: wish.demand.task_ms,
        machines: wish.demand.machines.clone(),
        avoids: wish.demand.avoids.clone(),
        apart: wish.demand.apart.clone(),
    };
    let mut all: Vec<AskedWork> = book.work.iter().map(one).collect();
    all.sort_by(|a, b| (a.submitted_at, &a.work).cmp(&(b.submitted_at, &b.work)));
    all
}

fn allocations(book: &Book) -> Vec<AskedAllocation> {
    let here = |node: &NodeName| {
        let node = book.snapshot.nodes.get(node);
        node.is_some_and(|node| book.trees.of_pool(&node.pool) == Some(book.top))
    };
    let all = book.snapshot.allocations.iter();
    let seen = all.filter(|(id, held)| book.held.contains_key(id) || here(&held.node));
    seen.map(|(id, held)| AskedAllocation {
        allocation: id.clone(),
        work: held.work.clone(),
        user: held.user.clone(),
        class: held.class.clone(),
        node: held.node.clone(),
        size: held.size.clone(),
        quanta: held.order,
        granted_at: held.granted_at,
        running: held.running,
        leaving: held.leaving || held.purged,
        preemptable: book.held.contains_key(id)
            && !held.fixed
            && held.kind != WorkKind::Reservation
            && !recent_moves::is_safe(&book.moved, held)
            && here(&held.node),
    })
    .collect()
}
