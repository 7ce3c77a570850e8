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
    /// Shape of the work, if the allocation has exactly that size. `None` if it is fixed, has GPUs
    /// or named resources, or belongs to a service.
    shape: Option<ShapeIx>,
    pub leaving: bool,
    pub fixed: bool,
}

/// Work that would be lost with an allocation: its start, or its tasks in flight.
#[derive(Clone, Copy)]
enum Invested {
    /// Milliseconds, as the allocation reported them.
    Reported(u64),
    /// Start of the work, and the mean duration of a task in milliseconds or 0. If it is not 0,
    /// only the time since the estimated end of the last task counts.
    Since(Timestamp, u64),
}

impl Invested {
    fn new(allocation: &AllocationRecord) -> Self {
        let started = allocation.started_at.unwrap_or(allocation.granted_at);
        if !allocation.running {
            return Self::Since(started, 0);
        }
        let since = allocation.running_since.unwrap_or(started);
        let computed = Self::Since(since, allocation.item_ms.unwrap_or(0));
        allocation.investment_ms.map_or(computed, Self::Reported)
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
    pub(super) fn remove_from_node(
        &mut self,
        node_usage: &mut TypedVec<NodeIx, NodeUsage>,
        shapes: &TypedVec<ShapeIx, Shape>,
    ) {
        if let Some(node) = self.node() {
            node_usage[node].remove(self, shapes);
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
    pub all: UsageSum,
    /// Part of `all` that is leaving. `None` if no allocation leaves.
    leaving: Option<Box<UsageSum>>,
    /// Number of allocations without a shape, which are read one by one.
    pub without_shape: usize,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UsageSum {
    quanta: u64,
    memory_bytes: u64,
    cpu_milli: u64,
    gpu_milli: u64,
}

impl UsageSum {
    fn new(quanta: u64, size: &Size) -> Self {
        Self {
            quanta,
            memory_bytes: size.memory_bytes,
            cpu_milli: size.cpu_milli,
            gpu_milli: size.gpu_milli,
        }
    }

    /// Adds two sums. Returns `None` on overflow.
    fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            quanta: self.quanta.checked_add(other.quanta)?,
            memory_bytes: self.memory_bytes.checked_add(other.memory_bytes)?,
            cpu_milli: self.cpu_milli.checked_add(other.cpu_milli)?,
            gpu_milli: self.gpu_milli.checked_add(other.gpu_milli)?,
        })
    }

    fn minus(self, part: Self) -> Self {
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

    /// Writes to `space` what the sum leaves free of `capacity`. The node must have no GPUs and no
    /// named resources.
    pub fn write_free_space(&self, capacity: &NodeSpace, space: &mut NodeSpace) {
        space.quanta = capacity.quanta.saturating_sub(self.quanta);
        space.size.memory_bytes = capacity.size.memory_bytes.saturating_sub(self.memory_bytes);
        space.size.cpu_milli = capacity.size.cpu_milli.saturating_sub(self.cpu_milli);
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
    pub fn quanta_and_size(&self) -> (u64, Size) {
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
    fn add(&mut self, usage: &mut AllocationUsage, shapes: &TypedVec<ShapeIx, Shape>) {
        let sum = |shape: ShapeIx| {
            let part = UsageSum::new(usage.quanta, &shapes[shape].size);
            Some((part, self.all.checked_add(part)?))
        };
        let Some((part, all)) = usage.shape().and_then(sum) else {
            usage.shape = None;
            self.without_shape += 1;
            return;
        };
        self.all = all;
        if usage.leaving {
            self.set_leaving(self.leaving().checked_add(part).unwrap_or(all));
        }
    }

    fn remove(&mut self, usage: &AllocationUsage, shapes: &TypedVec<ShapeIx, Shape>) {
        let Some(shape) = usage.shape() else {
            self.without_shape -= 1;
            return;
        };
        let part = UsageSum::new(usage.quanta, &shapes[shape].size);
        self.all = self.all.minus(part);
        if usage.leaving {
            self.set_leaving(self.leaving().minus(part));
        }
    }

    fn leaving(&self) -> UsageSum {
        self.leaving.as_deref().copied().unwrap_or_default()
    }

    fn set_leaving(&mut self, sum: UsageSum) {
        self.leaving = (sum != UsageSum::default()).then(|| Box::new(sum));
    }

    /// Returns the sum over the allocations with a shape that stay.
    pub fn staying(&self) -> UsageSum {
        self.all.minus(self.leaving())
    }
}

impl FleetIndex {
    /// Subtracts an allocation from the free space of its node.
    pub fn subtract_allocation(&self, space: &mut NodeSpace, allocation: AllocIx) {
        let usage = &self.usage[allocation];
        if let Some(shape) = usage.shape() {
            space.take(usage.quanta, &self.shapes[shape].size, &[]);
        } else {
            let record = &self.allocations[allocation];
            space.take(record.quanta, &record.size, &record.gpus);
        }
    }

    /// Adds an allocation to the free space of its node.
    pub fn add_allocation(&self, space: &mut NodeSpace, allocation: AllocIx) {
        let usage = &self.usage[allocation];
        if let Some(shape) = usage.shape() {
            space.give(usage.quanta, &self.shapes[shape].size, &[]);
        } else {
            let record = &self.allocations[allocation];
            space.give(record.quanta, &record.size, &record.gpus);
        }
    }

    /// Removes an allocation from the sums of its node.
    pub(super) fn remove_from_node_usage(&mut self, allocation: AllocIx) {
        if let Some(usage) = self.usage.get_mut(allocation) {
            usage.remove_from_node(&mut self.node_usage, &self.shapes);
        }
    }

    /// Updates the compact row from the allocation and its work.
    pub(super) fn update_usage(&mut self, allocation: AllocIx) {
        self.remove_from_node_usage(allocation);
        let record = &self.allocations[allocation];
        let owner = record.work.map(|work| &self.work[work]);
        let has_plain_size = |owner: &&super::WorkRecord| {
            !record.fixed
                && owner.class.is_some()
                && owner.constraints().service.is_none()
                && record.gpus.is_empty()
                && record.size.extras.is_empty()
                && record.size == self.shapes[owner.shape].size
        };
        let mut usage = AllocationUsage {
            quanta: record.quanta,
            start_ms: record.start_ms(),
            invested: Invested::new(record),
            node: record.node,
            user: record.user,
            owner: owner.map(|owner| owner.user),
            shape: owner.filter(has_plain_size).map(|owner| owner.shape),
            leaving: record.leaving,
            fixed: record.fixed,
        };
        if let Some(node) = usage.node() {
            self.node_usage[node].add(&mut usage, &self.shapes);
        }
        match self.usage.get_mut(allocation) {
            Some(row) => *row = usage,
            None => drop(self.usage.push(usage)),
        }
    }

    /// Asserts that the sums equal those computed again from all allocations.
    #[cfg(test)]
    pub(super) fn assert_node_usage(&self) {
        for (node_record, stored_usage) in self.nodes.iter().zip(self.node_usage.iter()) {
            let mut node_usage = NodeUsage::default();
            for allocation in node_record.allocations.iter() {
                node_usage.add(&mut self.usage[allocation].clone(), &self.shapes);
            }
            assert_eq!(node_usage, *stored_usage, "on {}", node_record.name);
        }
    }
}
