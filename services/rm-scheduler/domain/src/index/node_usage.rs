//! Sums over the allocations of each node.

use hayward_vocabulary::{Size, Timestamp};

use super::{AllocationRecord, FleetIndex, Shape, WorkRecord, node_space::NodeSpace};
use crate::ids::{AllocIx, NodeIx, ShapeIx, TypedVec};

/// How an allocation is counted in the sums of its node.
#[derive(Default, Clone, Copy)]
pub(crate) struct AllocationUsage {
    /// Node whose sums include the allocation.
    node: Option<NodeIx>,
    /// Shape of the work, if the allocation has exactly that size. `None` if it is fixed, has GPUs
    /// or named resources, or belongs to a service.
    shape: Option<ShapeIx>,
}

impl AllocationRecord {
    /// Returns the work that would be lost with the allocation, in milliseconds: what the
    /// allocation reported, or the time since the start of the work. If the mean duration of a task
    /// is known, only the time since the estimated end of the last task counts.
    pub fn invested_ms(&self, now: Timestamp) -> u64 {
        let started = self.started_at.unwrap_or(self.granted_at);
        if !self.running {
            return now.ms_since(started);
        }
        self.investment_ms.unwrap_or_else(|| {
            let spent = now.ms_since(self.running_since.unwrap_or(started));
            let task_ms = self.item_ms.unwrap_or(0);
            spent.checked_rem(task_ms).unwrap_or(spent)
        })
    }

    /// Returns the size of the allocation as a part of the sums of its node, if it has a shape.
    fn usage_sum(&self, shapes: &TypedVec<ShapeIx, Shape>) -> Option<UsageSum> {
        let shape = self.usage.shape?;
        Some(UsageSum::new(self.quanta, &shapes[shape].size))
    }

    /// Returns true if the allocation is counted in the sums of its node by the shape of its work.
    pub fn has_shape(&self) -> bool {
        self.usage.shape.is_some()
    }

    /// Returns the shape of its work if the allocation has exactly that size.
    fn matching_shape(
        &self,
        owner: Option<&WorkRecord>,
        shapes: &TypedVec<ShapeIx, Shape>,
    ) -> Option<ShapeIx> {
        let owner = owner?;
        let has_plain_size = !self.fixed
            && owner.class.is_some()
            && owner.constraints().service.is_none()
            && self.gpus.is_empty()
            && self.size.extras.is_empty()
            && self.size == shapes[owner.shape].size;
        has_plain_size.then_some(owner.shape)
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
    fn add(&mut self, record: &mut AllocationRecord, shapes: &TypedVec<ShapeIx, Shape>) {
        let sums = record
            .usage_sum(shapes)
            .and_then(|part| Some((part, self.all.checked_add(part)?)));
        let Some((part, all)) = sums else {
            record.usage.shape = None;
            self.without_shape += 1;
            return;
        };
        self.all = all;
        if record.leaving {
            self.set_leaving(self.leaving().checked_add(part).unwrap_or(all));
        }
    }

    fn remove(&mut self, record: &AllocationRecord, shapes: &TypedVec<ShapeIx, Shape>) {
        let Some(part) = record.usage_sum(shapes) else {
            self.without_shape -= 1;
            return;
        };
        self.all = self.all.minus(part);
        if record.leaving {
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
        let record = &self.allocations[allocation];
        space.take(record.quanta, &record.size, &record.gpus);
    }

    /// Adds an allocation to the free space of its node.
    pub fn add_allocation(&self, space: &mut NodeSpace, allocation: AllocIx) {
        let record = &self.allocations[allocation];
        space.give(record.quanta, &record.size, &record.gpus);
    }

    /// Removes an allocation from the sums of its node.
    pub(super) fn remove_from_node_usage(&mut self, allocation: AllocIx) {
        let record = &mut self.allocations[allocation];
        if let Some(node) = record.usage.node.take() {
            self.node_usage[node].remove(record, &self.shapes);
        }
    }

    /// Updates the sums of the node from the allocation and its work.
    pub(super) fn update_usage(&mut self, allocation: AllocIx) {
        self.remove_from_node_usage(allocation);
        let record = &mut self.allocations[allocation];
        let owner = record.work.map(|work| &self.work[work]);
        record.usage = AllocationUsage {
            node: record.node,
            shape: record.matching_shape(owner, &self.shapes),
        };
        if let Some(node) = record.node {
            self.node_usage[node].add(record, &self.shapes);
        }
    }

    /// Asserts that the sums equal those computed again from all allocations.
    #[cfg(test)]
    pub(super) fn assert_node_usage(&self) {
        for (node_record, stored_usage) in self.nodes.iter().zip(self.node_usage.iter()) {
            let mut node_usage = NodeUsage::default();
            for allocation in node_record.allocations.iter() {
                node_usage.add(&mut self.allocations[allocation].clone(), &self.shapes);
            }
            assert_eq!(node_usage, *stored_usage, "on {}", node_record.name);
        }
    }
}
