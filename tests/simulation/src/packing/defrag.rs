//! Protocol B starts after protocol A, when three of ten pods leave. It counts the large nodes that
//! can be emptied by moving a few of the remaining pods.
//!
//! Nodes with the fewest GPU pods are emptied first, largest pod first. Each pod moves to the
//! tightest partly used node that fits. A node that cannot be emptied completely is not changed.

use super::{
    inflation::{Placed, millionths},
    site::{Sites, WHOLE},
};
use crate::splitmix::SplitMix;

/// Number of pods that leave, of ten.
const LEAVING: u64 = 3;

/// The result of a number of moves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Defragmented {
    pub survivors: usize,
    /// Free GPUs in millionths of all GPUs.
    pub free: u64,
    /// Number of large nodes, and how many of them have only free GPUs before and after the moves.
    pub large: usize,
    pub whole_before: usize,
    pub whole_after: usize,
    pub moved: usize,
}

/// Removes each pod with the same probability.
pub fn thin_out(sites: &mut Sites, placed: Vec<Placed>, seed: u64) -> Vec<Placed> {
    let mut random = SplitMix::new(seed);
    let mut left = Vec::with_capacity(placed.len());
    for it in placed {
        if random.draw() % 10 < LEAVING {
            sites.list[it.node].give(&it.pod, &it.gpus);
        } else {
            left.push(it);
        }
    }
    left
}

/// Empties large nodes and moves at most `budget` percent of the pods.
pub fn defragment(sites: &mut Sites, pods: &mut [Placed], budget: u64) -> Defragmented {
    let largest = sites
        .empty
        .iter()
        .map(|site| site.gpus.len())
        .max()
        .unwrap_or(0);
    let mut on_node: Vec<Vec<usize>> = vec![Vec::new(); sites.list.len()];
    for (at, it) in pods
        .iter()
        .enumerate()
        .filter(|(_, it)| it.pod.shape.gpu_milli > 0)
    {
        on_node[it.node].push(at);
    }
    let is_large = |node: &usize| sites.empty[*node].gpus.len() == largest;
    let large: Vec<usize> = (0..sites.list.len()).filter(is_large).collect();
    let mut candidates = large.clone();
    candidates.retain(|node| !on_node[*node].is_empty());
    candidates.sort_by_key(|node| (on_node[*node].len(), *node));
    let mut result = Defragmented {
        survivors: pods.len(),
        free: millionths(sites.free().gpu_milli, sites.capacity().gpu_milli),
        large: large.len(),
        whole_before: whole(sites, &large),
        ..Defragmented::default()
    };
    let most = usize::try_from(pods.len() as u64 * budget / 100).unwrap_or(usize::MAX);
    for node in candidates {
        if result.moved + on_node[node].len() > most {
            continue;
        }
        let mut residents = std::mem::take(&mut on_node[node]);
        residents.sort_by_key(|at| (std::cmp::Reverse(pods[*at].pod.shape.gpu_total()), *at));
        if empty_node(sites, pods, node, &residents) {
            result.moved += residents.len();
            for at in residents {
                on_node[pods[at].node].push(at);
            }
        } else {
            on_node[node] = residents;
        }
    }
    result.whole_after = whole(sites, &large);
    result
}

fn whole(sites: &Sites, large: &[usize]) -> usize {
    let all_free = |node: &&usize| sites.list[**node].gpus.iter().all(|free| *free == WHOLE);
    large.iter().filter(all_free).count()
}

/// Moves all pods of the node away, or none.
fn empty_node(sites: &mut Sites, pods: &mut [Placed], node: usize, residents: &[usize]) -> bool {
    let mut undone: Vec<(usize, Placed)> = Vec::new();
    for at in residents {
        let Some((to, gpus)) = elsewhere(sites, &pods[*at], node) else {
            for (at, before) in undone.into_iter().rev() {
                relocate(sites, &mut pods[at], before.node, before.gpus);
            }
            return false;
        };
        undone.push((*at, pods[*at].clone()));
        relocate(sites, &mut pods[*at], to, gpus);
    }
    true
}

fn relocate(sites: &mut Sites, it: &mut Placed, node: usize, gpus: Vec<usize>) {
    sites.list[it.node].give(&it.pod, &it.gpus);
    sites.list[node].take(&it.pod, &gpus);
    (it.node, it.gpus) = (node, gpus);
}

/// Returns the partly used node with the least free GPU that fits the pod, the first among equals.
fn elsewhere(sites: &Sites, it: &Placed, not: usize) -> Option<(usize, Vec<usize>)> {
    let able = sites.list.iter().enumerate().filter(|(node, site)| {
        let whole = site.gpus.len() as u64 * WHOLE;
        *node != not && site.gpu_free() < whole && site.fits(&it.pod)
    });
    let (node, site) = able.min_by_key(|(node, site)| (site.gpu_free(), *node))?;
    Some((node, site.usual_gpus(&it.pod.shape)))
}
