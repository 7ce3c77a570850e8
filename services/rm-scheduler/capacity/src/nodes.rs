//! Nodes of a pool in the order of their sort policy, and the search for free space.
//!
//! Nodes are sorted by score, and only changed nodes move in this order. A search visits the nodes
//! in order until one fits. If the searches for a size have visited many nodes, as in a nearly full
//! fleet, an index of the nodes on which the size fits is built. Later changes of nodes update the
//! index. Work that fits nowhere is then refused without visiting any node.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use hayward_rm_scheduler_domain::snapshot::{GPU_MILLI, Node, queues::NodeSort};
use hayward_vocabulary::{NodeName, Size};

use crate::resource_vec::{GPU, LimitVector, ResourceTypes, Vector, add, subtract};

/// Fractions in scores are integers in units of 1 / `SCALE`.
const SCALE: u128 = 1 << 32;
/// An index is built once the searches for a size have visited 1/4 of the number of nodes.
const INDEX_THRESHOLD_DIVISOR: usize = 4;

/// A node with its usage in this round.
pub(crate) struct NodeState<'a> {
    pub name: &'a NodeName,
    pub node: &'a Node,
    pub capacity: Vector,
    /// Usage, including allocations that are leaving.
    pub used: Vector,
    /// Part of the usage that is leaving.
    pub leaving: Vector,
    /// Thousandths in use per gpu.
    gpus: Vec<u64>,
    /// True if only reserved work may be placed here.
    pub reserved: bool,
    /// Resources reserved for a gang. Empty if there is no such reservation.
    pub reserved_amounts: Vector,
    /// Sort key, the lowest first. `None` if no search visits the node.
    key: Option<u64>,
}

/// Size that work items have in common, with the index of the nodes that it fits on.
pub(crate) struct Shape {
    pub quanta: u64,
    pub size: Size,
    pub vector: Vector,
    /// Number of processes of this size that all nodes could hold if they were empty. Computed on
    /// first use.
    pub max_processes: OnceCell<u64>,
    /// Number of nodes that searches for this size have visited.
    visited_nodes: usize,
    index: Option<FittingIndex>,
}

impl Shape {
    pub fn new(quanta: u64, size: Size, vector: Vector) -> Self {
        Self {
            quanta,
            size,
            vector,
            max_processes: OnceCell::new(),
            visited_nodes: 0,
            index: None,
        }
    }
}

/// The nodes that a size fits on, by sort key.
struct FittingIndex {
    entries: BTreeSet<(u64, usize)>,
    /// Sort key of each node in `entries`.
    keys: BTreeMap<usize, u64>,
    /// Number of entries of `Nodes::changed` that the index already contains.
    applied_changes: usize,
}

pub(crate) struct Nodes<'a> {
    pub node_states: Vec<NodeState<'a>>,
    by_name: BTreeMap<&'a NodeName, usize>,
    sort: NodeSort,
    /// Weight of each resource type, as position and weight.
    weights: Vec<(usize, u64)>,
    /// Sort key and index of each open node.
    sorted: BTreeSet<(u64, usize)>,
    /// Changed nodes, in order of change.
    changed: Vec<usize>,
}

impl<'a> Nodes<'a> {
    pub fn new(sort: NodeSort, weights: &LimitVector) -> Self {
        let weights = weights.iter().enumerate();
        let weights = weights.filter_map(|(dim, weight)| Some((dim, (*weight)?)));
        Self {
            node_states: Vec::new(),
            by_name: BTreeMap::new(),
            sort,
            weights: weights.filter(|(_, weight)| *weight > 0).collect(),
            sorted: BTreeSet::new(),
            changed: Vec::new(),
        }
    }

    pub fn add(&mut self, dims: &ResourceTypes, name: &'a NodeName, node: &'a Node, quanta: u64) {
        self.by_name.insert(name, self.node_states.len());
        let devices = usize::try_from(node.capacity.gpu_milli.div_ceil(GPU_MILLI)).unwrap_or(0);
        self.node_states.push(NodeState {
            name,
            node,
            capacity: dims.vector(quanta, &node.capacity),
            used: dims.zero(),
            leaving: dims.zero(),
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
        let is_open = |it: &NodeState| it.node.is_schedulable() && !it.reserved;
        let keys: Vec<Option<u64>> = self
            .node_states
            .iter()
            .map(|node_state| is_open(node_state).then(|| self.key(node_state)))
            .collect();
        for (node_state, key) in self.node_states.iter_mut().zip(&keys) {
            node_state.key = *key;
        }
        let entries = keys.iter().enumerate();
        let mut entries: Vec<(u64, usize)> = entries
            .filter_map(|(index, key)| Some(((*key)?, index)))
            .collect();
        entries.sort_unstable();
        self.sorted = entries.into_iter().collect();
    }

    /// Returns the score of a node in units of 2^-32. Nodes with equal scores are sorted by name.
    pub fn score(&self, node_state: &NodeState) -> u64 {
        let (mut weighted_sum, mut weight_sum) = (0_u128, 0_u128);
        for (dim, weight) in &self.weights {
            let (used, capacity) = (node_state.used[*dim], node_state.capacity[*dim]);
            if capacity > 0 {
                weighted_sum +=
                    u128::from(*weight) * (u128::from(used) * SCALE / u128::from(capacity));
                weight_sum += u128::from(*weight);
            }
        }
        u64::try_from(weighted_sum / weight_sum.max(1)).unwrap_or(u64::MAX)
    }

    /// Returns the sort key of a node. The node with the lowest key is tried first.
    fn key(&self, node_state: &NodeState) -> u64 {
        match self.sort {
            NodeSort::Fair => self.score(node_state),
            NodeSort::Binpacking => u64::MAX - self.score(node_state),
        }
    }

    /// Adds usage of an allocation or a placement.
    pub fn add_usage(&mut self, index: usize, vector: &[u64], gpus: &[u64]) {
        let node_state = &mut self.node_states[index];
        add(&mut node_state.used, vector);
        let per_gpu = vector[GPU].min(GPU_MILLI);
        for gpu in gpus {
            if let Some(used) = usize::try_from(*gpu)
                .ok()
                .and_then(|index| node_state.gpus.get_mut(index))
            {
                *used = used.saturating_add(per_gpu);
            }
        }
        self.update_key(index);
    }

    /// Removes usage of an undone placement.
    pub fn remove_usage(&mut self, index: usize, vector: &[u64], gpus: &[u64]) {
        let node_state = &mut self.node_states[index];
        subtract(&mut node_state.used, vector);
        let per_gpu = vector[GPU].min(GPU_MILLI);
        for gpu in gpus {
            if let Some(used) = usize::try_from(*gpu)
                .ok()
                .and_then(|index| node_state.gpus.get_mut(index))
            {
                *used = used.saturating_sub(per_gpu);
            }
        }
        self.update_key(index);
    }

    /// Reserves resources for a gang; running allocations stay.
    pub fn reserve(&mut self, index: usize, vector: &[u64]) {
        let node_state = &mut self.node_states[index];
        node_state.reserved_amounts.resize(vector.len(), 0);
        add(&mut node_state.reserved_amounts, vector);
        self.update_key(index);
    }

    /// Ends the reservation for a gang.
    pub fn release(&mut self, index: usize) {
        if !std::mem::take(&mut self.node_states[index].reserved_amounts).is_empty() {
            self.update_key(index);
        }
    }

    fn update_key(&mut self, index: usize) {
        let Some(key) = self.node_states[index].key else {
            return;
        };
        let new = self.key(&self.node_states[index]);
        self.sorted.remove(&(key, index));
        self.sorted.insert((new, index));
        self.node_states[index].key = Some(new);
        self.changed.push(index);
    }

    /// Returns the first node in order that has free space and satisfies `meets_constraints`.
    pub fn find_first(
        &self,
        shape: &mut Shape,
        meets_constraints: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        if shape.index.is_none() {
            let max_steps = self.node_states.len() / INDEX_THRESHOLD_DIVISOR;
            for (_, index) in &self.sorted {
                if self.node_states[*index].fits(&shape.vector) && meets_constraints(*index) {
                    return Some(*index);
                }
                shape.visited_nodes += 1;
                if shape.visited_nodes > max_steps {
                    break;
                }
            }
            if shape.visited_nodes <= max_steps {
                return None;
            }
            shape.index = Some(self.build_index(&shape.vector));
        }
        let index = shape.index.as_mut()?;
        self.update_index(index, &shape.vector);
        let mut entries = index.entries.iter().map(|(_, index)| *index);
        entries.find(|index| meets_constraints(*index))
    }

    fn build_index(&self, vector: &[u64]) -> FittingIndex {
        let sorted = self.sorted.iter().copied();
        let fitting: Vec<(u64, usize)> = sorted
            .filter(|(_, index)| self.node_states[*index].fits(vector))
            .collect();
        FittingIndex {
            keys: fitting.iter().map(|(key, index)| (*index, *key)).collect(),
            entries: fitting.into_iter().collect(),
            applied_changes: self.changed.len(),
        }
    }

    fn update_index(&self, index: &mut FittingIndex, vector: &[u64]) {
        for node in &self.changed[index.applied_changes..] {
            let node_state = &self.node_states[*node];
            let key = node_state.key.filter(|_| node_state.fits(vector));
            let old = index.keys.get(node).copied();
            if old == key {
                continue;
            }
            if let Some(old) = old {
                index.entries.remove(&(old, *node));
                index.keys.remove(node);
            }
            if let Some(key) = key {
                index.entries.insert((key, *node));
                index.keys.insert(*node, key);
            }
        }
        index.applied_changes = self.changed.len();
    }

    /// Returns the sort key of a node. Nodes with equal keys are sorted by name.
    pub fn sort_key(&self, index: usize) -> (u64, usize) {
        (self.key(&self.node_states[index]), index)
    }
}

impl NodeState<'_> {
    /// Checks whether the process fits without using space reserved for a gang.
    pub fn fits(&self, needed: &[u64]) -> bool {
        self.has_free_space(needed)
            && (self.reserved_amounts.is_empty() || self.leaves_reserved_space(needed))
    }

    /// Checks that enough remains for the reservation of a gang. On nodes with reserved gpus other
    /// work gets no gpu, because fragmented gpus may leave no whole one free.
    fn leaves_reserved_space(&self, needed: &[u64]) -> bool {
        let used_and_reserved = self.used.iter().zip(&self.reserved_amounts);
        let mut amounts = needed.iter().zip(&self.capacity).zip(used_and_reserved);
        let needs_reserved_gpus = needed[GPU] > 0 && self.reserved_amounts[GPU] > 0;
        !needs_reserved_gpus
            && amounts.all(|((needed, capacity), (used, reserved))| {
                *needed == 0 || used.saturating_add(*reserved).saturating_add(*needed) <= *capacity
            })
    }

    /// Checks free space, reserved or not.
    pub fn has_free_space(&self, needed: &[u64]) -> bool {
        let amounts = self.used.iter().zip(&self.capacity).zip(needed);
        let mut amounts =
            amounts.map(|((used, capacity), needed)| used.saturating_add(*needed) <= *capacity);
        amounts.all(|fits| fits) && self.has_gpus(needed[GPU])
    }

    /// Checks whether the node could hold the process if it were empty.
    pub fn could_hold(&self, needed: &[u64]) -> bool {
        needed
            .iter()
            .zip(&self.capacity)
            .all(|(needed, capacity)| needed <= capacity)
    }

    /// Returns the number of such processes that the node could hold if it were empty.
    pub fn capacity_for(&self, needed: &[u64]) -> u64 {
        let pairs = needed.iter().zip(&self.capacity);
        let counts = pairs.filter_map(|(each, capacity)| capacity.checked_div(*each));
        counts.min().unwrap_or(0)
    }

    fn free_gpu(&self, gpu: usize) -> u64 {
        let start = GPU_MILLI * gpu as u64;
        let capacity = self.capacity[GPU].saturating_sub(start).min(GPU_MILLI);
        capacity.saturating_sub(self.gpus[gpu])
    }

    fn has_gpus(&self, milli: u64) -> bool {
        let (count, per_gpu) = (milli.div_ceil(GPU_MILLI), milli.min(GPU_MILLI));
        count == 0 || {
            let fitting = (0..self.gpus.len()).filter(|gpu| self.free_gpu(*gpu) >= per_gpu);
            fitting.count() as u64 >= count
        }
    }

    /// Chooses the fullest gpus on which the process still fits. Enough such gpus must exist.
    pub fn choose_gpus(&self, milli: u64) -> Vec<u64> {
        let (count, per_gpu) = (milli.div_ceil(GPU_MILLI), milli.min(GPU_MILLI));
        if count == 0 {
            return Vec::new();
        }
        let gpus = 0..self.gpus.len();
        let mut fitting: Vec<(u64, usize)> = gpus
            .map(|gpu| (self.free_gpu(gpu), gpu))
            .filter(|(free, _)| *free >= per_gpu)
            .collect();
        fitting.sort_unstable();
        let selected = fitting
            .into_iter()
            .take(usize::try_from(count).unwrap_or(0));
        let mut chosen: Vec<u64> = selected.map(|(_, gpu)| gpu as u64).collect();
        chosen.sort_unstable();
        chosen
    }
}
