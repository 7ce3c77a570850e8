//! Naive best fit, the baseline for the cost of a round.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::snapshot::{Demand, Snapshot};

use crate::fleet::GIB;

/// Places work, oldest first, into the smallest free space that fits its memory. Ignores shares and
/// all other dimensions. Returns the number of placed processes.
pub fn place_by_best_fit(snapshot: &Snapshot) -> u64 {
    // Free quanta and number of each node.
    let mut holes: BTreeSet<(u64, usize)> = snapshot
        .nodes
        .values()
        .enumerate()
        .map(|(number, node)| (node.capacity.memory_bytes / GIB, number))
        .collect();
    let mut work: Vec<&Demand> = snapshot.demand.values().collect();
    work.sort_by_key(|demand| demand.submitted_at);
    let mut placed = 0;
    for demand in work {
        let quanta = demand.size.memory_bytes.div_ceil(GIB);
        for _ in 0..demand.max_processes {
            let Some(&(free, number)) = holes.range((quanta, 0)..).next() else {
                break;
            };
            holes.remove(&(free, number));
            holes.insert((free - quanta, number));
            placed += 1;
        }
    }
    placed
}
