//! The load of one node: quanta, size and use of each GPU.

use std::collections::BTreeMap;

use hayward_vocabulary::Size;

use crate::input::snapshot::GPU_MILLI;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeLoad {
    pub order: u64,
    pub size: Size,
    /// Used thousandths, by index of the GPU.
    gpus: BTreeMap<u64, u64>,
}

impl NodeLoad {
    pub fn add(&mut self, order: u64, size: &Size, gpus: &[u64]) {
        self.order = self.order.saturating_add(order);
        self.size.add(size);
        for gpu in gpus {
            *self.gpus.entry(*gpu).or_default() += size.gpu_milli.min(GPU_MILLI);
        }
    }

    /// Subtracts what was added. Returns false if a sum was saturated, so that the rest is unknown.
    pub(super) fn take(&mut self, order: u64, size: &Size, gpus: &[u64]) -> bool {
        let is_exact = self.order < u64::MAX && is_exact(&self.size);
        self.order = self.order.saturating_sub(order);
        self.size.subtract(size);
        for gpu in gpus {
            if let Some(used) = self.gpus.get_mut(gpu) {
                *used = used.saturating_sub(size.gpu_milli.min(GPU_MILLI));
            }
        }
        is_exact
    }

    /// Returns the indices of the first GPUs that could take a process of this size, or `None` if
    /// there are too few.
    pub fn open_gpus(&self, capacity: &Size, size: &Size) -> Option<Vec<u64>> {
        let part = size.gpu_milli.min(GPU_MILLI);
        let needed = usize::try_from(size.gpu_milli.div_ceil(GPU_MILLI)).unwrap_or(usize::MAX);
        let open = (0..capacity.gpu_milli.div_ceil(GPU_MILLI)).filter(|gpu| {
            let has = capacity.gpu_milli - gpu * GPU_MILLI;
            let used = self.gpus.get(gpu).copied().unwrap_or(0);
            used + part <= has.min(GPU_MILLI)
        });
        let open: Vec<u64> = open.take(needed).collect();
        (open.len() == needed).then_some(open)
    }

    /// Returns whether the load is within the capacity, in all dimensions that `size` uses. Other
    /// dimensions may exceed it, for example on a node that lost a GPU in use.
    pub fn is_within(&self, capacity: &Size, size: &Size) -> bool {
        let plain = |part: u64, given: u64, has: u64| part == 0 || given <= has;
        let extra = |(name, part): (&String, &u64)| {
            let amount = |size: &Size| size.extras.get(name).copied().unwrap_or(0);
            plain(*part, amount(&self.size), amount(capacity))
        };
        let all = &self.size;
        plain(size.memory_bytes, all.memory_bytes, capacity.memory_bytes)
            && plain(size.cpu_milli, all.cpu_milli, capacity.cpu_milli)
            && plain(size.gpu_milli, all.gpu_milli, capacity.gpu_milli)
            && size.extras.iter().all(extra)
    }

    /// Returns whether the load of these GPUs is within their capacity.
    pub fn gpus_suffice(&self, capacity: &Size, gpus: &[u64]) -> bool {
        gpus.iter().all(|gpu| {
            let before = gpu.saturating_mul(GPU_MILLI);
            let has = capacity.gpu_milli.saturating_sub(before).min(GPU_MILLI);
            self.gpus.get(gpu).is_none_or(|used| *used <= has)
        })
    }

    /// Returns the load without amounts of zero.
    #[cfg(test)]
    pub(super) fn normal(&self) -> Self {
        let mut normal = self.clone();
        normal.size.extras.retain(|_, amount| *amount > 0);
        normal.gpus.retain(|_, used| *used > 0);
        normal
    }
}

/// Returns whether no sum is saturated. Sums stop at the largest number.
pub(super) fn is_exact(size: &Size) -> bool {
    let plain = [size.memory_bytes, size.cpu_milli, size.gpu_milli];
    let mut all = plain.iter().chain(size.extras.values());
    all.all(|amount| *amount < u64::MAX)
}
