//! The queues of one pool by dense numbers, with what they use and what waits in them.
//!
//! Queues that are not configured come to be where an application is placed in one or holds room in
//! one, below a queue that is no leaf; they are gone as soon as nobody does (7.5).

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::{Preemption, Queue, Sort, Template};
use hayward_vocabulary::Timestamp;

use crate::resource_vec::{Dims, Sparse, Vector};

pub(crate) const ROOT: usize = 0;

pub(crate) struct Spot<'a> {
    pub path: String,
    pub parent: Option<usize>,
    pub children: BTreeMap<String, usize>,
    /// Absent of a queue that is not configured.
    pub config: Option<&'a Queue>,
    pub leaf: bool,
    pub draining: bool,
    pub max: Sparse,
    pub guaranteed: Sparse,
    pub max_applications: Option<u64>,
    pub manner: Manner,
    pub priority_fence: bool,
    pub priority_offset: i32,
    pub preemption: Preemption,
    /// Held, with what leaves.
    pub used: Vector,
    /// Of that, what leaves.
    pub going: Vector,
    /// What of the rest of its maximum is kept for some work.
    pub kept: Vector,
    /// Applications that hold room.
    pub running: u64,
}

/// What a queue has from the nearest ancestor that says it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub sort: Sort,
    pub by_priority: bool,
    pub backoff_asks: u64,
    pub backoff_ms: u64,
    pub preemption_delay_ms: u64,
    pub quota_delay_ms: u64,
    /// Nothing in it is taken for others.
    pub spared: bool,
}

pub(crate) const MANNER: Manner = Manner {
    sort: Sort::Fifo,
    by_priority: true,
    backoff_asks: 0,
    backoff_ms: 30_000,
    preemption_delay_ms: 30_000,
    quota_delay_ms: 0,
    spared: false,
};

impl Manner {
    fn below(self, queue: &Queue) -> Self {
        Self {
            sort: queue.sort.unwrap_or(self.sort),
            by_priority: queue.sort_by_priority.unwrap_or(self.by_priority),
            backoff_asks: queue.backoff_asks.unwrap_or(self.backoff_asks),
            backoff_ms: queue.backoff_ms.unwrap_or(self.backoff_ms),
            preemption_delay_ms: queue
                .preemption_delay_ms
                .unwrap_or(self.preemption_delay_ms),
            quota_delay_ms: queue
                .quota_preemption_delay_ms
                .unwrap_or(self.quota_delay_ms),
            spared: self.spared || queue.preemption == Preemption::Disabled,
        }
    }
}

pub(crate) struct Tree<'a> {
    pub spots: Vec<Spot<'a>>,
}

impl<'a> Tree<'a> {
    pub fn of(dims: &Dims, root: &'a Queue) -> Self {
        let mut tree = Self { spots: Vec::new() };
        tree.plant(dims, ("root", None), root);
        tree.spots[ROOT].leaf = false;
        // The root has what its nodes have, and no more is said of it (section 6).
        tree.spots[ROOT].max.fill(None);
        tree
    }

    fn plant(&mut self, dims: &Dims, (name, parent): (&str, Option<usize>), queue: &'a Queue) {
        let at = self.add(dims, (name, parent));
        let above = parent.map_or(MANNER, |parent| self.spots[parent].manner);
        let spot = &mut self.spots[at];
        spot.config = Some(queue);
        spot.leaf = queue.is_leaf();
        spot.draining = queue.draining;
        spot.max = dims.sparse(&queue.max);
        spot.guaranteed = dims.sparse(&queue.guaranteed);
        spot.max_applications = queue.max_applications.filter(|most| *most > 0);
        spot.manner = above.below(queue);
        spot.priority_fence = queue.priority_fence;
        spot.priority_offset = queue.priority_offset;
        spot.preemption = queue.preemption;
        for (name, child) in &queue.children {
            self.plant(dims, (name, Some(at)), child);
        }
    }

    fn add(&mut self, dims: &Dims, (name, parent): (&str, Option<usize>)) -> usize {
        let at = self.spots.len();
        let mut path = String::new();
        let mut manner = MANNER;
        if let Some(parent) = parent {
            let above = &mut self.spots[parent];
            above.children.insert(name.to_owned(), at);
            path = format!("{}.", above.path);
            manner = above.manner;
        }
        path.push_str(name);
        self.spots.push(Spot {
            path,
            parent,
            children: BTreeMap::new(),
            config: None,
            leaf: true,
            draining: false,
            max: vec![None; dims.len()],
            guaranteed: vec![None; dims.len()],
            max_applications: None,
            manner,
            priority_fence: false,
            priority_offset: 0,
            preemption: Preemption::Default,
            used: dims.zero(),
            going: dims.zero(),
            kept: dims.zero(),
            running: 0,
        });
        at
    }

    /// The queue of this path if it is there, else the nearest above it.
    pub fn nearest(&self, path: &str) -> (usize, bool) {
        let mut names = path.split('.');
        if names.next() != Some("root") {
            return (ROOT, false);
        }
        let mut at = ROOT;
        for name in names {
            match self.spots[at].children.get(name) {
                Some(child) => at = *child,
                None => return (at, false),
            }
        }
        (at, true)
    }

    pub fn find(&self, path: &str) -> Option<usize> {
        let (at, found) = self.nearest(path);
        found.then_some(at)
    }

    /// Makes what is missing of this path, where that may be made.
    pub fn grow(&mut self, dims: &Dims, path: &str) -> Option<usize> {
        let (mut at, found) = self.nearest(path);
        if found {
            return Some(at);
        }
        if self.spots[at].leaf || !path.starts_with("root.") {
            return None;
        }
        let known = self.spots[at].path.len() + 1;
        let names: Vec<&str> = path[known..].split('.').collect();
        if names.iter().any(|name| name.is_empty()) {
            return None;
        }
        let template = self.template(at);
        for name in names {
            self.spots[at].leaf = false;
            at = self.add(dims, (name, Some(at)));
        }
        if let Some(template) = template {
            let spot = &mut self.spots[at];
            spot.max = dims.sparse(&template.max);
            spot.guaranteed = dims.sparse(&template.guaranteed);
            spot.max_applications = template.max_applications;
            spot.manner.sort = template.sort.unwrap_or(spot.manner.sort);
        }
        Some(at)
    }

    fn template(&self, from: usize) -> Option<&'a Template> {
        let mut path = self.path(from);
        path.find_map(|at| self.spots[at].config?.template.as_ref())
    }

    /// From here up to the root.
    pub fn path(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(from), |at| self.spots[*at].parent)
    }

    pub fn is_below(&self, at: usize, top: usize) -> bool {
        self.path(at).any(|above| above == top)
    }

    pub fn leaves(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.spots.len()).filter(|at| self.spots[*at].leaf)
    }

    /// What a queue could have at most, which shares are taken of where nothing is guaranteed: a
    /// value nearer to the queue overrides (section 6).
    pub fn fair_max(&self, at: usize, root: &[u64]) -> Sparse {
        let there = root.iter().map(|amount| (*amount > 0).then_some(*amount));
        let mut most: Sparse = there.collect();
        let mut path: Vec<usize> = self.path(at).collect();
        path.reverse();
        for at in path {
            for (most, own) in most.iter_mut().zip(&self.spots[at].max) {
                *most = own.or(*most);
            }
        }
        most
    }

    /// What is left of every maximum on the path; absent is unlimited (section 6).
    pub fn headroom(&self, at: usize, root: &[u64]) -> Sparse {
        let mut room: Sparse = root.iter().map(|amount| Some(*amount)).collect();
        for (room, used) in room.iter_mut().zip(&self.spots[ROOT].used) {
            *room = room.map(|room| room.saturating_sub(*used));
        }
        for at in self.path(at) {
            let spot = &self.spots[at];
            for ((room, max), used) in room.iter_mut().zip(&spot.max).zip(&spot.used) {
                if let Some(max) = max {
                    let left = max.saturating_sub(*used);
                    *room = Some(room.map_or(left, |room| room.min(left)));
                }
            }
        }
        room
    }

    /// Priority as it is seen from `top`: offsets of the queues below it added; a fence stands for
    /// all that is behind it (8.4).
    pub fn priority_below(&self, top: usize, queue: usize, priority: i32) -> i32 {
        let path = self.path(queue).take_while(|at| *at != top);
        path.fold(priority, |priority, at| self.exported(at, priority))
    }

    pub fn exported(&self, at: usize, base: i32) -> i32 {
        let spot = &self.spots[at];
        if spot.priority_fence {
            spot.priority_offset
        } else {
            spot.priority_offset.saturating_add(base)
        }
    }
}

/// Who came last decides over the tags of a queue that was made (7.5).
#[derive(Default)]
pub(crate) struct Tagged(BTreeMap<usize, Timestamp>);

impl Tagged {
    pub fn is_last(&mut self, queue: usize, submitted: Timestamp) -> bool {
        let last = self.0.entry(queue).or_insert(submitted);
        let newer = submitted >= *last;
        *last = submitted.max(*last);
        newer
    }
}
