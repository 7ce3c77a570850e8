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

    /// Every gpu is there and takes no more than it has.
    pub fn gpus_suffice(&self, capacity: &Size) -> bool {
        self.gpus.iter().all(|(gpu, used)| {
            let before = gpu.saturating_mul(GPU_MILLI);
            *used <= capacity.gpu_milli.saturating_sub(before).min(GPU_MILLI)
        })
    }
}
