//! Compact rows of allocations for steps that read many of them, and their sums by node.

use hayward_vocabulary::{Size, Timestamp};

use super::{AllocationRecord, FleetIndex, Shape, node_space::NodeSpace};
use crate::ids::{AllocIx, NodeIx, ShapeIx, TypedVec, UserIx};

/// The fields of an allocation that steps read most.
#[derive(Clone)]
pub(crate) struct AllocationUsage {
    pub quanta: u64,
    /// Milliseconds that the allocation took to start, or 0 if it has not started.
    pub start_ms: u64,
    invested: Invested,
    node: Option<NodeIx>,
    /// User of the allocation.
    pub user: UserIx,
    /// User who owns its work. `None` if its work is withdrawn.
    pub owner: Option<UserIx>,
    /// Shape of the work, if the allocation follows from it. It is then a fair share of exactly
    /// this size, without GPUs, named resources and service. `None` for others.
    shape: Option<ShapeIx>,
    pub leaving: bool,
    pub fixed: bool,
}

/// Work that would be lost with an allocation: its start, or its tasks in flight.
#[derive(Clone, Copy)]
enum Invested {
    /// Milliseconds, as the allocation reported them.
    Reported(u64),
    /// Start of the lost time, and the duration of a task in milliseconds. Only time since the last
    /// task ended counts, if the duration is known and not 0.
    Since(Timestamp, u64),
}

impl Invested {
    fn new(allocation: &AllocationRecord) -> Self {
        let started = allocation.started_at.unwrap_or(allocation.granted_at);
        if !allocation.running {
            return Self::Since(started, 0);
        }
        let since = allocation.running_since.unwrap_or(started);
        let since = Self::Since(since, allocation.item_ms.unwrap_or(0));
        allocation.investment_ms.map_or(since, Self::Reported)
    }
}

impl AllocationUsage {
    /// Returns the milliseconds that would be lost with the allocation.
    pub fn invested_ms(&self, now: Timestamp) -> u64 {
        match self.invested {
            Invested::Reported(invested) => invested,
            Invested::Since(since, item_ms) => {
                let spent = now.ms_since(since);
                spent.checked_rem(item_ms).unwrap_or(spent)
            }
        }
    }

    pub fn node(&self) -> Option<NodeIx> {
        self.node
    }

    /// Removes the allocation from the sums of its node.
    pub(super) fn leave(
        &mut self,
        taken: &mut TypedVec<NodeIx, NodeUsage>,
        shapes: &TypedVec<ShapeIx, Shape>,
    ) {
        if let Some(node) = self.node() {
            taken[node].remove(self, shapes);
            self.node = None;
        }
    }

    pub fn shape(&self) -> Option<ShapeIx> {
        self.shape
    }
}

/// Sums over the allocations of one node, updated one allocation at a time.
#[derive(Default, Clone, PartialEq, Eq, Debug)]
pub(super) struct NodeUsage {
    /// Sum over the allocations with a shape.
    pub all: Sum,
    /// Part of `all` that is leaving. `None` if no allocation leaves.
    leaving: Option<Box<Sum>>,
    /// Number of allocations without a shape, which are read one by one.
    pub others: usize,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sum {
    quanta: u64,
    memory_bytes: u64,
    cpu_milli: u64,
    gpu_milli: u64,
}

impl Sum {
    fn new(quanta: u64, size: &Size) -> Self {
        Self {
            quanta,
            memory_bytes: size.memory_bytes,
            cpu_milli: size.cpu_milli,
            gpu_milli: size.gpu_milli,
        }
    }

    /// Adds two sums. Returns `None` on overflow.
    fn and(self, other: Self) -> Option<Self> {
        Some(Self {
            quanta: self.quanta.checked_add(other.quanta)?,
            memory_bytes: self.memory_bytes.checked_add(other.memory_bytes)?,
            cpu_milli: self.cpu_milli.checked_add(other.cpu_milli)?,
            gpu_milli: self.gpu_milli.checked_add(other.gpu_milli)?,
        })
    }

    fn without(self, part: Self) -> Self {
        Self {
            quanta: self.quanta - part.quanta,
            memory_bytes: self.memory_bytes - part.memory_bytes,
            cpu_milli: self.cpu_milli - part.cpu_milli,
            gpu_milli: self.gpu_milli - part.gpu_milli,
        }
    }

    /// Returns true if the sum fits into this space.
    pub fn fits(&self, space: &NodeSpace) -> bool {
        self.quanta <= space.quanta
            && self.memory_bytes <= space.size.memory_bytes
            && self.cpu_milli <= space.size.cpu_milli
            && self.gpu_milli <= space.size.gpu_milli
    }

    /// Writes the part of `of` that the sum leaves free, for a node without GPUs and named
    /// resources.
    pub fn leave(&self, whole: &NodeSpace, space: &mut NodeSpace) {
        space.quanta = whole.quanta.saturating_sub(self.quanta);
        space.size.memory_bytes = whole.size.memory_bytes.saturating_sub(self.memory_bytes);
        space.size.cpu_milli = whole.size.cpu_milli.saturating_sub(self.cpu_milli);
        space.size.gpu_milli = 0;
        if !space.size.extras.is_empty() {
            space.size.extras.clear();
        }
        space.gpus.clear();
    }

    pub fn quanta(&self) -> u64 {
        self.quanta
    }

    /// Returns the quanta and the size.
    pub fn load(&self) -> (u64, Size) {
        let size = Size {
            cpu_milli: self.cpu_milli,
            gpu_milli: self.gpu_milli,
            ..Size::memory(self.memory_bytes)
        };
        (self.quanta, size)
    }
}

impl NodeUsage {
    /// Adds an allocation. On overflow, the allocation gets no shape and is counted individually.
    fn add(&mut self, load: &mut AllocationUsage, shapes: &TypedVec<ShapeIx, Shape>) {
        let sum = |shape: ShapeIx| {
            let part = Sum::new(load.quanta, &shapes[shape].size);
            Some((part, self.all.and(part)?))
        };
        let Some((part, all)) = load.shape().and_then(sum) else {
            load.shape = None;
            self.others += 1;
            return;
        };
        self.all = all;
        if load.leaving {
            self.set_leaving(self.leaving().and(part).unwrap_or(all));
        }
    }

    fn remove(&mut self, load: &AllocationUsage, shapes: &TypedVec<ShapeIx, Shape>) {
        let Some(shape) = load.shape() else {
            self.others -= 1;
            return;
        };
        let part = Sum::new(load.quanta, &shapes[shape].size);
        self.all = self.all.without(part);
        if load.leaving {
            self.set_leaving(self.leaving().without(part));
        }
    }

    fn leaving(&self) -> Sum {
        self.leaving.as_deref().copied().unwrap_or_default()
    }

    fn set_leaving(&mut self, sum: Sum) {
        self.leaving = (sum != Sum::default()).then(|| Box::new(sum));
    }

    /// Returns the sum over the allocations with a shape that stay.
    pub fn staying(&self) -> Sum {
        self.all.without(self.leaving())
    }
}

impl FleetIndex {
    /// Subtracts an allocation from the free space of its node.
    pub fn take_from(&self, space: &mut NodeSpace, allocation: AllocIx) {
        let load = &self.usage[allocation];
        if let Some(shape) = load.shape() {
            space.take(load.quanta, &self.shapes[shape].size, &[]);
        } else {
            let record = &self.allocations[allocation];
            space.take(record.quanta, &record.size, &record.gpus);
        }
    }

    /// Adds an allocation to the free space of its node.
    pub fn give_to(&self, space: &mut NodeSpace, allocation: AllocIx) {
        let load = &self.usage[allocation];
        if let Some(shape) = load.shape() {
            space.give(load.quanta, &self.shapes[shape].size, &[]);
        } else {
            let record = &self.allocations[allocation];
            space.give(record.quanta, &record.size, &record.gpus);
        }
    }

    /// Removes an allocation from the sums of its node.
    pub(super) fn unload(&mut self, allocation: AllocIx) {
        if let Some(load) = self.usage.get_mut(allocation) {
            load.leave(&mut self.node_usage, &self.shapes);
        }
    }

    /// Updates the compact row from the allocation and its work.
    pub(super) fn reload(&mut self, allocation: AllocIx) {
        self.unload(allocation);
        let record = &self.allocations[allocation];
        let owner = record.work.map(|work| &self.work[work]);
        let is_plain = |owner: &&super::WorkRecord| {
            !record.fixed
                && owner.class.is_some()
                && owner.constraints().service.is_none()
                && record.gpus.is_empty()
                && record.size.extras.is_empty()
                && record.size == self.shapes[owner.shape].size
        };
        let mut load = AllocationUsage {
            quanta: record.quanta,
            start_ms: record.start_ms(),
            invested: Invested::new(record),
            node: record.node,
            user: record.user,
            owner: owner.map(|owner| owner.user),
            shape: owner.filter(is_plain).map(|owner| owner.shape),
            leaving: record.leaving,
            fixed: record.fixed,
        };
        if let Some(node) = load.node() {
            self.node_usage[node].add(&mut load, &self.shapes);
        }
        match self.usage.get_mut(allocation) {
            Some(position) => *position = load,
            None => drop(self.usage.push(load)),
        }
    }

    /// Asserts that the sums equal those computed again from all allocations.
    #[cfg(test)]
    pub(super) fn assert_taken(&self) {
        for (node_record, known) in self.nodes.iter().zip(self.node_usage.iter()) {
            let mut taken = NodeUsage::default();
            for allocation in node_record.allocations.iter() {
                taken.add(&mut self.usage[allocation].clone(), &self.shapes);
            }
            assert_eq!(taken, *known, "on {}", node_record.name);
        }
    }
}
