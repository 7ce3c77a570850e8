//! Space on one node: quanta, the amount of each resource, and each GPU.
//!
//! A process must fit in all three. A process that needs a part of a GPU uses one GPU. A process
//! that needs whole GPUs uses only GPUs that are entirely free. The sum of the free space of all
//! GPUs is therefore not enough to decide whether a process fits (D6).

use hayward_vocabulary::Size;

use crate::input::snapshot::GPU_MILLI;

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSpace {
    pub quanta: u64,
    pub size: Size,
    /// Free thousandths of each GPU.
    pub gpus: Vec<u64>,
}

impl NodeSpace {
    pub fn new(quanta: u64, capacity: &Size) -> Self {
        let whole_gpus = capacity.gpu_milli / GPU_MILLI;
        let remainder = capacity.gpu_milli % GPU_MILLI;
        let gpus = (0..whole_gpus)
            .map(|_| GPU_MILLI)
            .chain((remainder > 0).then_some(remainder))
            .collect();
        Self {
            quanta,
            size: capacity.clone(),
            gpus,
        }
    }

    /// Returns how many processes of these quanta and this size fit at the same time.
    pub fn count_fitting(&self, quanta: u64, size: &Size) -> u64 {
        let by_quanta = self.quanta / quanta.max(1);
        if by_quanta == 0 || self.size.gpu_milli < size.gpu_milli {
            return 0;
        }
        by_quanta
            .min(count_fitting_sums(size, &self.size))
            .min(self.count_fitting_gpus(size.gpu_milli))
    }

    /// Returns how many processes with this many thousandths of a GPU fit on the GPUs.
    pub fn count_fitting_gpus(&self, milli: u64) -> u64 {
        match milli {
            0 => u64::MAX,
            1..GPU_MILLI => self.gpus.iter().map(|free| free / milli).sum(),
            _ => {
                let free = self.gpus.iter().filter(|free| **free == GPU_MILLI).count();
                free as u64 / milli.div_ceil(GPU_MILLI)
            }
        }
    }

    /// Returns the indices of the GPUs that one process would use. A part of a GPU is placed on the
    /// GPU with the least free space that suffices.
    pub fn choose_gpus(&self, milli: u64) -> Vec<u64> {
        let numbered = (0_u64..).zip(&self.gpus);
        if milli == 0 {
            return Vec::new();
        }
        if milli < GPU_MILLI {
            let fits = numbered.filter(|(_, free)| **free >= milli);
            return fits
                .min_by_key(|(index, free)| (**free, *index))
                .map(|(index, _)| index)
                .into_iter()
                .collect();
        }
        let free_gpus = numbered.filter(|(_, free)| **free == GPU_MILLI);
        let count = usize::try_from(milli.div_ceil(GPU_MILLI)).unwrap_or(usize::MAX);
        free_gpus.map(|(index, _)| index).take(count).collect()
    }

    /// Subtracts an allocation, which uses these GPUs.
    pub fn take(&mut self, quanta: u64, size: &Size, gpus: &[u64]) {
        self.quanta = self.quanta.saturating_sub(quanta);
        self.size.subtract(size);
        self.update_gpus(gpus, size.gpu_milli, u64::saturating_sub);
    }

    /// Copies the other space and reuses the allocated memory of the lists.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        let Size {
            memory_bytes,
            cpu_milli,
            gpu_milli,
            extras,
        } = &other.size;
        self.quanta = other.quanta;
        (self.size.memory_bytes, self.size.cpu_milli) = (*memory_bytes, *cpu_milli);
        self.size.gpu_milli = *gpu_milli;
        if !self.size.extras.is_empty() || !extras.is_empty() {
            self.size.extras.clone_from(extras);
        }
        self.gpus.clone_from(&other.gpus);
    }

    /// Adds the space of an allocation, which used these GPUs.
    pub fn give(&mut self, quanta: u64, size: &Size, gpus: &[u64]) {
        self.quanta += quanta;
        self.size.add(size);
        self.update_gpus(gpus, size.gpu_milli, |free, milli| {
            (free + milli).min(GPU_MILLI)
        });
    }

    fn update_gpus(&mut self, gpus: &[u64], milli: u64, change: impl Fn(u64, u64) -> u64) {
        let each = milli.min(GPU_MILLI);
        for index in gpus {
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            if let Some(free) = self.gpus.get_mut(index) {
                *free = change(*free, each);
            }
        }
    }
}

/// Returns how many processes of `size` fit into `space`, without regard to single GPUs.
pub(crate) fn count_fitting_sums(size: &Size, space: &Size) -> u64 {
    let ratio = |size: u64, space: u64| space.checked_div(size).unwrap_or(u64::MAX);
    let sums = ratio(size.memory_bytes, space.memory_bytes)
        .min(ratio(size.cpu_milli, space.cpu_milli))
        .min(ratio(size.gpu_milli, space.gpu_milli));
    let extras = size.extras.iter();
    extras
        .map(|(name, amount)| ratio(*amount, space.extras.get(name).copied().unwrap_or(0)))
        .fold(sums, u64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu_size(milli: u64) -> Size {
        Size {
            gpu_milli: milli,
            ..Size::default()
        }
    }

    #[test]
    fn a_part_uses_one_gpu_and_whole_gpus_must_be_free() {
        let mut space = NodeSpace::new(100, &gpu_size(2_000));
        assert_eq!(space.count_fitting(1, &gpu_size(600)), 2);
        let first = space.choose_gpus(600);
        space.take(1, &gpu_size(600), &first);
        // 1400 of 2000 thousandths are free, but only one GPU has 700.
        assert_eq!(space.count_fitting(1, &gpu_size(700)), 1);
        assert_eq!(space.count_fitting(1, &gpu_size(1_000)), 1);
        assert_eq!(space.count_fitting(1, &gpu_size(2_000)), 0);
        assert_eq!((first, space.choose_gpus(400)), (vec![0], vec![0]));
        assert_eq!(space.choose_gpus(1_000), [1]);
        space.give(1, &gpu_size(600), &[0]);
        assert_eq!(space, NodeSpace::new(100, &gpu_size(2_000)));
    }
}
