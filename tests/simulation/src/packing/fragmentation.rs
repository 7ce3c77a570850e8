//! Fragmentation: the free GPU capacity that is useless for the pods that are likely to come.
//!
//! The fragmentation of a node is the free GPU that pods of the popular shapes could not use there.
//! It is summed over the shapes, weighted by frequency. Placing a pod where fragmentation grows
//! least keeps the remaining free GPUs useful. This is the idea of fragmentation gradient descent
//! (ATC '23), computed in integers.

use std::collections::BTreeMap;

use super::gpu_node::{GpuNode, Pod, Shape, WHOLE_GPU_MILLI};

/// Percent of all pods that have a popular shape.
const POPULAR_PERCENT: usize = 95;

/// Shapes that are likely to come, with their frequency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Popular shapes, each with the number of its pods.
    shapes: Vec<(Shape, u64)>,
    /// Number of pods with a popular shape.
    pub weight: u64,
}

impl Demand {
    /// Selects the most popular shapes that together make up most of a list. Ties are ordered by
    /// shape.
    pub fn from_pods(pods: &[Pod]) -> Self {
        let mut counts: BTreeMap<Shape, u64> = BTreeMap::new();
        for pod in pods {
            *counts.entry(pod.shape).or_default() += 1;
        }
        let mut shapes: Vec<(Shape, u64)> = counts.into_iter().collect();
        shapes.sort_by_key(|(shape, count)| (std::cmp::Reverse(*count), *shape));
        let required_weight = (pods.len() * POPULAR_PERCENT).div_ceil(100) as u64;
        let mut weight = 0;
        shapes.retain(|(_, count)| {
            let is_popular = weight < required_weight;
            weight += if is_popular { *count } else { 0 };
            is_popular
        });
        Self { shapes, weight }
    }
}

/// Fragmentation in thousandths of a GPU, summed over pods.
pub type Fragmentation = u64;

impl Demand {
    /// Returns the free GPU of the node that pods of the popular shapes cannot use.
    pub fn fragmentation(&self, gpu_node: &GpuNode) -> Fragmentation {
        let free = gpu_node.free_gpu_milli();
        let unusable_gpu = |shape: &Shape| {
            if shape.gpu_milli == 0 || !gpu_node.accepts(shape) {
                return free;
            }
            let too_small = gpu_node
                .gpus
                .iter()
                .filter(|free| **free < shape.gpu_milli.min(WHOLE_GPU_MILLI));
            too_small.sum()
        };
        self.shapes
            .iter()
            .map(|(shape, count)| unusable_gpu(shape) * count)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cpu_milli: u64, gpu_count: u64, gpu_milli: u64) -> Pod {
        Pod {
            id: String::new(),
            class: 0,
            shape: Shape {
                cpu_milli,
                gpu_count,
                gpu_milli,
                models: u64::MAX,
            },
            memory_mib: 0,
        }
    }

    fn gpu_node(cpu_milli: u64, gpus: &[u64]) -> GpuNode {
        GpuNode {
            model: 1,
            cpu_milli,
            memory_mib: 0,
            gpus: gpus.to_vec(),
        }
    }

    #[test]
    fn free_gpu_that_no_pod_can_use_counts() {
        let demand = Demand::from_pods(&[
            pod(1, 1, 500),
            pod(1, 1, 500),
            pod(1, 1, 1000),
            pod(9, 0, 0),
        ]);
        assert_eq!(demand.weight, 4);
        // Half GPUs cannot use the 300. A whole GPU can use only the 1000. The last shape needs no
        // GPU.
        assert_eq!(
            demand.fragmentation(&gpu_node(8, &[300, 1000])),
            2 * 300 + 300 + 1300
        );
        // Without CPU, no pod can use a GPU.
        assert_eq!(demand.fragmentation(&gpu_node(0, &[300, 1000])), 4 * 1300);
        assert_eq!(demand.fragmentation(&gpu_node(8, &[0, 0])), 0);
    }

    #[test]
    fn rare_shapes_do_not_count() {
        let mut pods = vec![pod(1, 1, 1000); 96];
        pods.extend(vec![pod(1, 1, 1); 4]);
        assert_eq!(Demand::from_pods(&pods).weight, 96);
    }
}
