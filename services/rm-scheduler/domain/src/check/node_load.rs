//! The load of one node: quanta, size and use of each GPU.

use std::collections::BTreeMap;

use hayward_vocabulary::Size;

use crate::input::snapshot::GPU_MILLI;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeLoad {
    pub quanta: u64,
    pub size: Size,
    /// Used thousandths, by index of the GPU.
    gpus: BTreeMap<u64, u64>,
}

impl NodeLoad {
    pub fn add(&mut self, quanta: u64, size: &Size, gpus: &[u64]) {
        self.quanta = self.quanta.saturating_add(quanta);
        self.size.add(size);
        for gpu in gpus {
            *self.gpus.entry(*gpu).or_default() += size.gpu_milli.min(GPU_MILLI);
        }
    }

    /// Subtracts what was added. Returns false if a sum was saturated, so that the result is
    /// unknown.
    pub(super) fn subtract(&mut self, quanta: u64, size: &Size, gpus: &[u64]) -> bool {
        let is_exact = self.quanta < u64::MAX && is_exact(&self.size);
        self.quanta = self.quanta.saturating_sub(quanta);
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
            let size_of_gpu = capacity.gpu_milli - gpu * GPU_MILLI;
            let used = self.gpus.get(gpu).copied().unwrap_or(0);
            used + part <= size_of_gpu.min(GPU_MILLI)
        });
        let open: Vec<u64> = open.take(needed).collect();
        (open.len() == needed).then_some(open)
    }

    /// Returns whether the load is within the capacity, in all dimensions that `size` uses. Other
    /// dimensions may exceed the capacity, for example on a node that lost a GPU in use.
    pub fn is_within(&self, capacity: &Size, size: &Size) -> bool {
        let is_within =
            |requested: u64, used: u64, capacity: u64| requested == 0 || used <= capacity;
        let is_extra_within = |(name, requested): (&String, &u64)| {
            let amount = |size: &Size| size.extras.get(name).copied().unwrap_or(0);
            is_within(*requested, amount(&self.size), amount(capacity))
        };
        let used = &self.size;
        is_within(size.memory_bytes, used.memory_bytes, capacity.memory_bytes)
            && is_within(size.cpu_milli, used.cpu_milli, capacity.cpu_milli)
            && is_within(size.gpu_milli, used.gpu_milli, capacity.gpu_milli)
            && size.extras.iter().all(is_extra_within)
    }

    /// Returns whether the load of these GPUs is within their capacity.
    pub fn gpus_are_within(&self, capacity: &Size, gpus: &[u64]) -> bool {
        gpus.iter().all(|gpu| {
            let milli_of_lower_gpus = gpu.saturating_mul(GPU_MILLI);
            let size_of_gpu = capacity
                .gpu_milli
                .saturating_sub(milli_of_lower_gpus)
                .min(GPU_MILLI);
            self.gpus.get(gpu).is_none_or(|used| *used <= size_of_gpu)
        })
    }

    /// Returns the load without amounts of zero.
    #[cfg(test)]
    pub(super) fn without_zeros(&self) -> Self {
        let mut without_zeros = self.clone();
        without_zeros.size.extras.retain(|_, amount| *amount > 0);
        without_zeros.gpus.retain(|_, used| *used > 0);
        without_zeros
    }
}

/// Returns whether no sum is saturated. Sums stop at the largest number.
pub(super) fn is_exact(size: &Size) -> bool {
    let standard = [size.memory_bytes, size.cpu_milli, size.gpu_milli];
    let mut all = standard.iter().chain(size.extras.values());
    all.all(|amount| *amount < u64::MAX)
}
