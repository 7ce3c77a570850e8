//! Nodes of a pool in the order of their sort policy, and the search for free space.
//!
//! Nodes are sorted by score, and only changed ones move. A search walks them in order until one
//! fits. When walks get long, as in a nearly full fleet, the size gets an index of the nodes it
//! fits on. The index costs about as much as the walks before it, and is updated from the changed
//! nodes. Work that fits nowhere is then refused without visiting any node.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use hayward_rm_scheduler_domain::snapshot::{GPU_MILLI, Node, queues::NodeSort};
use hayward_vocabulary::{NodeName, Size};

use crate::resource_vec::{ResourceTypes, Sparse, Vector, add, take};

const SCALE: u128 = 1 << 32;
/// Divisor of the number of nodes: an index is built once the walks have visited this part of them.
const INDEX_AFTER: usize = 4;

pub(crate) struct NodeState<'a> {
    pub name: &'a NodeName,
    pub node: &'a Node,
    pub capacity: Vector,
    /// Usage, including allocations that are leaving.
    pub used: Vector,
    /// Part of the usage that is leaving.
    pub going: Vector,
    /// Thousandths in use per gpu.
    gpus: Vec<u64>,
    /// True if only reserved work may be placed here.
    pub reserved: bool,
    /// Resources reserved for a gang. Empty if there is no such reservation.
    pub reserved_amounts: Vector,
    key: Option<u64>,
}

/// Size that work items have in common, with the index of the nodes that it fits on.
pub(crate) struct Shape {
    pub order: u64,
    pub size: Size,
    pub vector: Vector,
    /// Number of processes of this size that all nodes could hold if they were empty. Computed on
    /// first use.
    pub most: OnceCell<u64>,
    steps: usize,
    index: Option<Index>,
}

impl Shape {
    pub fn new(order: u64, size: Size, vector: Vector) -> Self {
        Self {
            order,
            size,
            vector,
            most: OnceCell::new(),
            steps: 0,
            index: None,
        }
    }
}

struct Index {
    places: BTreeSet<(u64, usize)>,
    keys: BTreeMap<usize, u64>,
    /// Number of entries of `Nodes::changed` that are already applied.
    seen: usize,
}

pub(crate) struct Nodes<'a> {
    pub node_states: Vec<NodeState<'a>>,
    by_name: BTreeMap<&'a NodeName, usize>,
    sort: NodeSort,
    weights: Vec<(usize, u64)>,
    order: BTreeSet<(u64, usize)>,
    /// Changed nodes, in order of change.
    changed: Vec<usize>,
}

impl<'a> Nodes<'a> {
    pub fn new(sort: NodeSort, weights: &Sparse) -> Self {
        let weights = weights.iter().enumerate();
        let weights = weights.filter_map(|(at, weight)| Some((at, (*weight)?)));
        Self {
            node_states: Vec::new(),
            by_name: BTreeMap::new(),
            sort,
            weights: weights.filter(|(_, weight)| *weight > 0).collect(),
            order: BTreeSet::new(),
            changed: Vec::new(),
        }
    }

    pub fn add(&mut self, dims: &ResourceTypes, name: &'a NodeName, node: &'a Node, order: u64) {
        self.by_name.insert(name, self.node_states.len());
        let devices = usize::try_from(node.capacity.gpu_milli.div_ceil(GPU_MILLI)).unwrap_or(0);
        self.node_states.push(NodeState {
            name,
            node,
            capacity: dims.vector(order, &node.capacity),
            used: dims.zero(),
            going: dims.zero(),
            gpus: vec![0; devices],
            reserved: false,
            reserved_amounts: Vector::new(),
            key: None,
        });
    }

    pub fn find(&self, name: &NodeName) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Sorts the nodes after all allocations are known; the order is maintained from then on.
    pub fn sort(&mut self) {
        let open = |it: &NodeState| it.node.is_schedulable() && !it.reserved;
        let keys: Vec<Option<u64>> = self
            .node_states
            .iter()
            .map(|node_state| open(node_state).then(|| self.key(node_state)))
            .collect();
        for (node_state, key) in self.node_states.iter_mut().zip(&keys) {
            node_state.key = *key;
        }
        let places = keys.iter().enumerate();
        let mut places: Vec<(u64, usize)> =
            places.filter_map(|(at, key)| Some(((*key)?, at))).collect();
        places.sort_unstable();
        self.order = places.into_iter().collect();
    }

    /// Returns the score of a node in units of 2^-32. Nodes with equal scores are sorted by name.
    pub fn usage(&self, node_state: &NodeState) -> u64 {
        let (mut sum, mut weights) = (0_u128, 0_u128);
        for (at, weight) in &self.weights {
            let (used, capacity) = (node_state.used[*at], node_state.capacity[*at]);
            if capacity > 0 {
                sum += u128::from(*weight) * (u128::from(used) * SCALE / u128::from(capacity));
                weights += u128::from(*weight);
            }
        }
        u64::try_from(sum / weights.max(1)).unwrap_or(u64::MAX)
    }

    fn key(&self, node_state: &NodeState) -> u64 {
        match self.sort {
            NodeSort::Fair => self.usage(node_state),
            NodeSort::Binpacking => u64::MAX - self.usage(node_state),
        }
    }

    /// Adds usage of an allocation or a placement.
    pub fn hold(&mut self, at: usize, vector: &[u64], gpus: &[u64]) {
        let node_state = &mut self.node_states[at];
        add(&mut node_state.used, vector);
        let part = vector[3].min(GPU_MILLI);
        for gpu in gpus {
            if let Some(used) = usize::try_from(*gpu)
                .ok()
                .and_then(|at| node_state.gpus.get_mut(at))
            {
                *used = used.saturating_add(part);
            }
        }
        self.update_key(at);
    }

    /// Removes usage of an undone placement.
    pub fn undo(&mut self, at: usize, vector: &[u64], gpus: &[u64]) {
        let node_state = &mut self.node_states[at];
        take(&mut node_state.used, vector);
        let part = vector[3].min(GPU_MILLI);
        for gpu in gpus {
            if let Some(used) = usize::try_from(*gpu)
                .ok()
                .and_then(|at| node_state.gpus.get_mut(at))
            {
                *used = used.saturating_sub(part);
            }
        }
        self.update_key(at);
    }

    /// Reserves resources for a gang; running allocations stay.
    pub fn reserve(&mut self, at: usize, vector: &[u64]) {
        let node_state = &mut self.node_states[at];
        node_state.reserved_amounts.resize(vector.len(), 0);
        add(&mut node_state.reserved_amounts, vector);
        self.update_key(at);
    }

    /// Ends the reservation for a gang.
    pub fn release(&mut self, at: usize) {
        if !std::mem::take(&mut self.node_states[at].reserved_amounts).is_empty() {
            self.update_key(at);
        }
    }

    fn update_key(&mut self, at: usize) {
        let Some(key) = self.node_states[at].key else {
            return;
        };
        let new = self.key(&self.node_states[at]);
        self.order.remove(&(key, at));
        self.order.insert((new, at));
        self.node_states[at].key = Some(new);
        self.changed.push(at);
    }

    /// Returns the first node in order that has free space and satisfies `suits`.
    pub fn first(&self, shape: &mut Shape, suits: impl Fn(usize) -> bool) -> Option<usize> {
        if shape.index.is_none() {
            let patience = self.node_states.len() / INDEX_AFTER;
            for (_, at) in &self.order {
                if self.node_states[*at].fits(&shape.vector) && suits(*at) {
                    return Some(*at);
                }
                shape.steps += 1;
                if shape.steps > patience {
                    break;
                }
            }
            if shape.steps <= patience {
                return None;
            }
            shape.index = Some(self.index(&shape.vector));
        }
        let index = shape.index.as_mut()?;
        self.update_index(index, &shape.vector);
        let mut places = index.places.iter().map(|(_, at)| *at);
        places.find(|at| suits(*at))
    }

    fn index(&self, vector: &[u64]) -> Index {
        let all = self.order.iter().copied();
        let fit: Vec<(u64, usize)> = all
            .filter(|(_, at)| self.node_states[*at].fits(vector))
            .collect();
        Index {
            keys: fit.iter().map(|(key, at)| (*at, *key)).collect(),
            places: fit.into_iter().collect(),
            seen: self.changed.len(),
        }
    }

    fn update_index(&self, index: &mut Index, vector: &[u64]) {
        for at in &self.changed[index.seen..] {
            let node_state = &self.node_states[*at];
            let key = node_state.key.filter(|_| node_state.fits(vector));
            let old = index.keys.get(at).copied();
            if old == key {
                continue;
            }
            if let Some(old) = old {
                index.places.remove(&(old, *at));
                index.keys.remove(at);
            }
            if let Some(key) = key {
                index.places.insert((key, *at));
                index.keys.insert(*at, key);
            }
        }
        index.seen = self.changed.len();
    }

    /// Returns the sort key of a node.
    pub fn rank(&self, at: usize) -> (u64, usize) {
        (self.key(&self.node_states[at]), at)
    }
}

impl NodeState<'_> {
    /// Checks whether the process fits without using space reserved for a gang.
    pub fn fits(&self, needed: &[u64]) -> bool {
        self.has_free_space(needed) && (self.reserved_amounts.is_empty() || self.spares(needed))
    }

    /// Checks that enough remains for the reservation of a gang. On nodes with reserved gpus other
    /// work gets no gpu, because fragmented gpus may leave no whole one free.
    fn spares(&self, needed: &[u64]) -> bool {
        let taken = self.used.iter().zip(&self.reserved_amounts);
        let mut requested = needed.iter().zip(&self.capacity).zip(taken);
        let gpus = needed[3] > 0 && self.reserved_amounts[3] > 0;
        !gpus
            && requested.all(|((needed, most), (used, reserved))| {
                *needed == 0 || used.saturating_add(*reserved).saturating_add(*needed) <= *most
            })
    }

    /// Checks free space, reserved or not.
    pub fn has_free_space(&self, needed: &[u64]) -> bool {
        let all = self.used.iter().zip(&self.capacity).zip(needed);
        let mut all = all.map(|((used, most), needed)| used.saturating_add(*needed) <= *most);
        all.all(|fits| fits) && self.has_gpus(needed[3])
    }

    /// Checks whether the node could hold the process if it were empty.
    pub fn could_hold(&self, needed: &[u64]) -> bool {
        needed
            .iter()
            .zip(&self.capacity)
            .all(|(needed, most)| needed <= most)
    }

    /// Returns the number of such processes that the node could hold if it were empty.
    pub fn capacity_for(&self, needed: &[u64]) -> u64 {
        let pairs = needed.iter().zip(&self.capacity);
        let times = pairs.filter_map(|(each, has)| has.checked_div(*each));
        times.min().unwrap_or(0)
    }

    fn free_gpu(&self, at: usize) -> u64 {
        let before = GPU_MILLI * at as u64;
        let most = self.capacity[3].saturating_sub(before).min(GPU_MILLI);
        most.saturating_sub(self.gpus[at])
    }

    fn has_gpus(&self, milli: u64) -> bool {
        let (count, part) = (milli.div_ceil(GPU_MILLI), milli.min(GPU_MILLI));
        count == 0 || {
            let fit = (0..self.gpus.len()).filter(|at| self.free_gpu(*at) >= part);
            fit.count() as u64 >= count
        }
    }

    /// Chooses the fullest gpus that still fit. They must exist.
    pub fn choose_gpus(&self, milli: u64) -> Vec<u64> {
        let (count, part) = (milli.div_ceil(GPU_MILLI), milli.min(GPU_MILLI));
        if count == 0 {
            return Vec::new();
        }
        let all = 0..self.gpus.len();
        let mut fit: Vec<(u64, usize)> = all
            .map(|at| (self.free_gpu(at), at))
            .filter(|(free, _)| *free >= part)
            .collect();
        fit.sort_unstable();
        let few = fit.into_iter().take(usize::try_from(count).unwrap_or(0));
        let mut chosen: Vec<u64> = few.map(|(_, at)| at as u64).collect();
        chosen.sort_unstable();
        chosen
    }
}
