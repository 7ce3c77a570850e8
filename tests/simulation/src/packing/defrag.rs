//! Defragmentation (protocol B). After the inflation of protocol A, three of ten pods leave. Then a
//! few of the remaining pods are moved, and the large nodes that become empty are counted.
//!
//! Nodes with the fewest GPU pods are emptied first, largest pod first. Each pod moves to the
//! tightest partly used node that fits. A node that cannot be emptied completely is not changed.

use super::{
    gpu_node::{GpuNodes, WHOLE_GPU_MILLI},
    inflation::{PlacedPod, millionths},
};
use crate::splitmix::SplitMix;

/// Number of pods that leave, of ten.
const LEAVING_OF_TEN: u64 = 3;

/// The result of one defragmentation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DefragmentationResult {
    /// Number of pods that did not leave.
    pub survivors: usize,
    /// Free GPUs in millionths of all GPUs.
    pub free: u64,
    /// Number of large nodes, which have as many GPUs as the largest node.
    pub large: usize,
    /// Number of large nodes with only free GPUs before the moves.
    pub whole_before: usize,
    /// Number of large nodes with only free GPUs after the moves.
    pub whole_after: usize,
    /// Number of moved pods.
    pub moved: usize,
}

/// Removes each pod with a probability of three in ten. Returns the remaining pods.
pub fn remove_random_pods(
    gpu_nodes: &mut GpuNodes,
    placed: Vec<PlacedPod>,
    seed: u64,
) -> Vec<PlacedPod> {
    let mut random = SplitMix::new(seed);
    let mut remaining = Vec::with_capacity(placed.len());
    for placed_pod in placed {
        if random.next_u64() % 10 < LEAVING_OF_TEN {
            gpu_nodes.nodes[placed_pod.node].release(&placed_pod.pod, &placed_pod.gpus);
        } else {
            remaining.push(placed_pod);
        }
    }
    remaining
}

/// Empties large nodes and moves at most `budget` percent of the pods.
pub fn defragment(
    gpu_nodes: &mut GpuNodes,
    pods: &mut [PlacedPod],
    budget: u64,
) -> DefragmentationResult {
    let largest = gpu_nodes
        .empty
        .iter()
        .map(|gpu_node| gpu_node.gpus.len())
        .max()
        .unwrap_or(0);
    let mut pods_by_node: Vec<Vec<usize>> = vec![Vec::new(); gpu_nodes.nodes.len()];
    for (index, placed) in pods
        .iter()
        .enumerate()
        .filter(|(_, placed)| placed.pod.shape.gpu_milli > 0)
    {
        pods_by_node[placed.node].push(index);
    }
    let is_large = |node: &usize| gpu_nodes.empty[*node].gpus.len() == largest;
    let large: Vec<usize> = (0..gpu_nodes.nodes.len()).filter(is_large).collect();
    let mut candidates = large.clone();
    candidates.retain(|node| !pods_by_node[*node].is_empty());
    candidates.sort_by_key(|node| (pods_by_node[*node].len(), *node));
    let mut result = DefragmentationResult {
        survivors: pods.len(),
        free: millionths(gpu_nodes.free().gpu_milli, gpu_nodes.capacity().gpu_milli),
        large: large.len(),
        whole_before: count_whole_nodes(gpu_nodes, &large),
        ..DefragmentationResult::default()
    };
    let max_moves = usize::try_from(pods.len() as u64 * budget / 100).unwrap_or(usize::MAX);
    for node in candidates {
        if result.moved + pods_by_node[node].len() > max_moves {
            continue;
        }
        let mut residents = std::mem::take(&mut pods_by_node[node]);
        residents.sort_by_key(|index| {
            (
                std::cmp::Reverse(pods[*index].pod.shape.gpu_total()),
                *index,
            )
        });
        if empty_node(gpu_nodes, pods, node, &residents) {
            result.moved += residents.len();
            for index in residents {
                pods_by_node[pods[index].node].push(index);
            }
        } else {
            pods_by_node[node] = residents;
        }
    }
    result.whole_after = count_whole_nodes(gpu_nodes, &large);
    result
}

fn count_whole_nodes(gpu_nodes: &GpuNodes, large: &[usize]) -> usize {
    let is_whole = |node: &&usize| {
        gpu_nodes.nodes[**node]
            .gpus
            .iter()
            .all(|free| *free == WHOLE_GPU_MILLI)
    };
    large.iter().filter(is_whole).count()
}

/// Moves all pods of the node away, or none.
fn empty_node(
    gpu_nodes: &mut GpuNodes,
    pods: &mut [PlacedPod],
    node: usize,
    residents: &[usize],
) -> bool {
    let mut moved: Vec<(usize, PlacedPod)> = Vec::new();
    for index in residents {
        let Some((target, gpus)) = find_target(gpu_nodes, &pods[*index], node) else {
            for (index, before) in moved.into_iter().rev() {
                relocate(gpu_nodes, &mut pods[index], before.node, before.gpus);
            }
            return false;
        };
        moved.push((*index, pods[*index].clone()));
        relocate(gpu_nodes, &mut pods[*index], target, gpus);
    }
    true
}

fn relocate(gpu_nodes: &mut GpuNodes, placed: &mut PlacedPod, node: usize, gpus: Vec<usize>) {
    gpu_nodes.nodes[placed.node].release(&placed.pod, &placed.gpus);
    gpu_nodes.nodes[node].allocate(&placed.pod, &gpus);
    (placed.node, placed.gpus) = (node, gpus);
}

/// Returns the partly used node with the least free GPU that fits the pod, the first among equals.
fn find_target(
    gpu_nodes: &GpuNodes,
    placed: &PlacedPod,
    excluded: usize,
) -> Option<(usize, Vec<usize>)> {
    let candidates = gpu_nodes
        .nodes
        .iter()
        .enumerate()
        .filter(|(node, gpu_node)| {
            let capacity = gpu_node.gpus.len() as u64 * WHOLE_GPU_MILLI;
            *node != excluded && gpu_node.free_gpu_milli() < capacity && gpu_node.fits(&placed.pod)
        });
    let (node, gpu_node) =
        candidates.min_by_key(|(node, gpu_node)| (gpu_node.free_gpu_milli(), *node))?;
    Some((node, gpu_node.select_gpus(&placed.pod.shape)))
}
