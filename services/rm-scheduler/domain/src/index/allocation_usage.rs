//! What walks over many shares read of each, side by side: most of a share is read only when
//! something is said of it; and what the loads of a node come to.

use hayward_vocabulary::{Size, Timestamp};

use super::{AllocationRecord, FleetIndex, Shape, node_space::NodeSpace};

const NONE: u32 = u32::MAX;

/// Of shares anywhere it is one line of memory.
#[derive(Clone)]
#[repr(align(64))]
pub(crate) struct AllocationUsage {
    pub quanta: u64,
    /// How long it took to start; 0 where it has not, or took no time.
    pub start_ms: u64,
    invested: Invested,
    node: u32,
    work: u32,
    /// Number of its user.
    pub user: u32,
    /// Number of the user whose work it is.
    owner_at: u32,
    /// The shape of its work, where it is a fair share of just that size, without gpus, named
    /// resources and a service: then nothing else decides what it takes of its node.
    shape: u32,
    pub leaving: bool,
    pub fixed: bool,
}

/// What would be lost with a share, of starting or of tasks in flight.
#[derive(Clone, Copy)]
enum Invested {
    /// Milliseconds.
    Said(u64),
    /// All since then, or since the last task ended, where it is known how long one takes.
    Since(Timestamp, u64),
}

impl Invested {
    fn of(allocation: &AllocationRecord) -> Self {
        let started = allocation.started_at.unwrap_or(allocation.granted_at);
        if !allocation.running {
            return Self::Since(started, 0);
        }
        let since = allocation.running_since.unwrap_or(started);
        let since = Self::Since(since, allocation.item_ms.unwrap_or(0));
        allocation.investment_ms.map_or(since, Self::Said)
    }
}

fn small(number: Option<usize>) -> u32 {
    let number = number.map(u32::try_from);
    number.map_or(NONE, |number| number.unwrap_or(NONE - 1))
}

fn large(number: u32) -> Option<usize> {
    usize::try_from(number).ok().filter(|_| number != NONE)
}

impl AllocationUsage {
    /// Milliseconds that would be lost with the share.
    pub fn invested_ms(&self, now: Timestamp) -> u64 {
        match self.invested {
            Invested::Said(invested) => invested,
            Invested::Since(since, item_ms) => {
                let spent = now.ms_since(since);
                spent.checked_rem(item_ms).unwrap_or(spent)
            }
        }
    }

    pub fn node(&self) -> Option<usize> {
        large(self.node)
    }

    /// The work that it was of when it was brought up to date last.
    pub(super) fn work(&self) -> Option<usize> {
        large(self.work)
    }

    /// It is no load of its node any more.
    pub(super) fn leave(&mut self, taken: &mut [NodeUsage], shapes: &[Shape]) {
        if let Some(node) = self.node() {
            taken[node].remove(self, shapes);
            self.node = NONE;
        }
    }

    pub fn shape(&self) -> Option<usize> {
        large(self.shape)
    }

    pub fn owner(&self) -> Option<u32> {
        (self.owner_at != NONE).then_some(self.owner_at)
    }
}

/// What the shares of a node take of it, kept up to date share by share, so that nobody has to walk
/// over all of them when one comes or goes. Of nodes anywhere it is read in one line of memory.
#[derive(Default, Clone, PartialEq, Eq, Debug)]
#[repr(align(64))]
pub(super) struct NodeUsage {
    /// By shares with a shape.
    pub all: Sum,
    /// By those of them that are leaving, where any is.
    leaving: Option<Box<Sum>>,
    /// Shares without a shape. Each has to be looked at by itself.
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
    fn of(quanta: u64, size: &Size) -> Self {
        Self {
            quanta,
            memory_bytes: size.memory_bytes,
            cpu_milli: size.cpu_milli,
            gpu_milli: size.gpu_milli,
        }
    }

    /// None where a part would be larger than it may be.
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

    /// Does it come to no more than this room?
    pub fn fits(&self, space: &NodeSpace) -> bool {
        self.quanta <= space.quanta
            && self.memory_bytes <= space.size.memory_bytes
            && self.cpu_milli <= space.size.cpu_milli
            && self.gpu_milli <= space.size.gpu_milli
    }

    /// What it leaves of room that has no gpus and nothing named, in the memory of other room.
    pub fn leave(&self, of: &NodeSpace, space: &mut NodeSpace) {
        space.quanta = of.quanta.saturating_sub(self.quanta);
        space.size.memory_bytes = of.size.memory_bytes.saturating_sub(self.memory_bytes);
        space.size.cpu_milli = of.size.cpu_milli.saturating_sub(self.cpu_milli);
        space.size.gpu_milli = 0;
        if !space.size.extras.is_empty() {
            space.size.extras.clear();
        }
        space.gpus.clear();
    }

    pub fn quanta(&self) -> u64 {
        self.quanta
    }

    /// Quanta and size.
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
    /// What would make the sum larger than it may be has no shape here, and is looked at by itself.
    fn add(&mut self, load: &mut AllocationUsage, shapes: &[Shape]) {
        let sum = |shape: usize| {
            let part = Sum::of(load.quanta, &shapes[shape].3);
            Some((part, self.all.and(part)?))
        };
        let Some((part, all)) = load.shape().and_then(sum) else {
            load.shape = NONE;
            self.others += 1;
            return;
        };
        self.all = all;
        if load.leaving {
            self.set_leaving(self.leaving().and(part).unwrap_or(all));
        }
    }

    fn remove(&mut self, load: &AllocationUsage, shapes: &[Shape]) {
        let Some(shape) = load.shape() else {
            self.others -= 1;
            return;
        };
        let part = Sum::of(load.quanta, &shapes[shape].3);
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

    /// By shares with a shape that are not leaving.
    pub fn staying(&self) -> Sum {
        self.all.without(self.leaving())
    }
}

impl FleetIndex {
    /// Takes what a share holds from room of its node.
    pub fn take_from(&self, space: &mut NodeSpace, allocation: usize) {
        let load = &self.usage[allocation];
        if let Some(shape) = load.shape() {
            space.take(load.quanta, &self.shapes[shape].3, &[]);
        } else {
            let record = &self.allocations[allocation];
            space.take(record.quanta, &record.size, &record.gpus);
        }
    }

    /// Gives what a share held back to room of its node.
    pub fn give_to(&self, space: &mut NodeSpace, allocation: usize) {
        let load = &self.usage[allocation];
        if let Some(shape) = load.shape() {
            space.give(load.quanta, &self.shapes[shape].3, &[]);
        } else {
            let record = &self.allocations[allocation];
            space.give(record.quanta, &record.size, &record.gpus);
        }
    }

    /// Takes the load of a share off its node.
    fn unload(&mut self, at: usize) {
        if let Some(load) = self.usage.get_mut(at) {
            load.leave(&mut self.node_usage, &self.shapes);
        }
    }

    /// Brings the load of a share up to the share and to its work.
    pub(super) fn reload(&mut self, at: usize) {
        self.unload(at);
        let allocation = &self.allocations[at];
        let owner = allocation.work.map(|work| &self.work[work]);
        let is_plain = |owner: &&super::WorkRecord| {
            !allocation.fixed
                && owner.class.is_some()
                && owner.constraints().service.is_none()
                && allocation.gpus.is_empty()
                && allocation.size.extras.is_empty()
                && allocation.size == self.shapes[owner.shape].3
        };
        let mut load = AllocationUsage {
            quanta: allocation.quanta,
            start_ms: allocation.start_ms(),
            invested: Invested::of(allocation),
            node: small(allocation.node),
            work: small(allocation.work),
            user: small(Some(allocation.user)),
            owner_at: small(owner.map(|owner| owner.user)),
            shape: small(owner.filter(is_plain).map(|owner| owner.shape)),
            leaving: allocation.leaving,
            fixed: allocation.fixed,
        };
        if let Some(node) = load.node() {
            self.node_usage[node].add(&mut load, &self.shapes);
        }
        match self.usage.get_mut(at) {
            Some(position) => *position = load,
            None => self.usage.push(load),
        }
    }

    /// What is kept of the nodes is what adding up all their shares gives.
    #[cfg(test)]
    pub(super) fn assert_taken(&self) {
        for (node_record, known) in self.nodes.iter().zip(&self.node_usage) {
            let mut taken = NodeUsage::default();
            for allocation in node_record.allocations.iter() {
                taken.add(&mut self.usage[allocation].clone(), &self.shapes);
            }
            assert_eq!(taken, *known, "on {}", node_record.name);
        }
    }
}
