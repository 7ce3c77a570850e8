//! What lies on one node.

use std::collections::BTreeMap;

use hayward_vocabulary::Size;

use crate::snapshot::GPU_MILLI;

#[derive(Clone, Default)]
pub struct Load {
    pub order: u64,
    pub size: Size,
    /// Thousandths in use, by gpu.
    gpus: BTreeMap<u64, u64>,
}

impl Load {
    pub fn add(&mut self, order: u64, size: &Size, gpus: &[u64]) {
        self.order = self.order.saturating_add(order);
        self.size.add(size);
        for gpu in gpus {
            *self.gpus.entry(*gpu).or_default() += size.gpu_milli.min(GPU_MILLI);
        }
    }

    /// The first gpus that could take a process of this size, where there are enough of them.
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

    /// Every gpu is there and takes no more than it has.
    pub fn gpus_suffice(&self, capacity: &Size) -> bool {
        self.gpus.iter().all(|(gpu, used)| {
            let before = gpu.saturating_mul(GPU_MILLI);
            *used <= capacity.gpu_milli.saturating_sub(before).min(GPU_MILLI)
        })
    }
}
