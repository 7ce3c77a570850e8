//! Nodes by quanta. A lookup finds the nodes with at least a given number of quanta. Small numbers
//! are an array index, large ones a map key.

use std::collections::BTreeMap;

use super::bit_set::BitSet;
use crate::ids::Ix;

/// Number of quanta from which the map is used. With a map alone, a first round of 100,000 nodes
/// takes 0.7 s longer.
const LARGE: u64 = 1 << 12;

pub(crate) struct Buckets<I> {
    /// Nodes by quanta, for small numbers of quanta.
    small: Vec<BitSet<I>>,
    /// Positions of `small` that are not empty.
    filled: BitSet<usize>,
    large: BTreeMap<u64, BitSet<I>>,
}

impl<I> Default for Buckets<I> {
    fn default() -> Self {
        Self {
            small: Vec::new(),
            filled: BitSet::default(),
            large: BTreeMap::new(),
        }
    }
}

fn small(quanta: u64) -> Option<usize> {
    let position = usize::try_from(quanta).ok();
    position.filter(|_| quanta < LARGE)
}

impl<I: Ix> Buckets<I> {
    pub fn insert(&mut self, quanta: u64, node: I) {
        let Some(position) = small(quanta) else {
            self.large.entry(quanta).or_default().insert(node);
            return;
        };
        if self.small.len() <= position {
            self.small.resize_with(position + 1, BitSet::default);
        }
        let nodes = &mut self.small[position];
        if nodes.is_empty() {
            self.filled.insert(position);
        }
        nodes.insert(node);
    }

    pub fn remove(&mut self, quanta: u64, node: I) {
        let position = usize::try_from(quanta).ok();
        if let Some((position, nodes)) = position.and_then(|at| Some((at, self.small.get_mut(at)?)))
        {
            nodes.remove(node);
            if nodes.is_empty() {
                self.filled.remove(position);
            }
        } else if let Some(nodes) = self.large.get_mut(&quanta) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.large.remove(&quanta);
            }
        }
    }

    /// Returns the smallest bucket with at least this many quanta, and its nodes.
    pub fn at_least(&self, quanta: u64) -> Option<(u64, &BitSet<I>)> {
        let position = small(quanta).and_then(|position| self.filled.at_least(position));
        if let Some(position) = position {
            return Some((position as u64, &self.small[position]));
        }
        let (quanta, nodes) = self.large.range(quanta..).next()?;
        Some((*quanta, nodes))
    }

    /// Returns the buckets with at least this many quanta, in ascending order.
    pub fn from(&self, least: u64) -> impl Iterator<Item = (u64, &BitSet<I>)> {
        std::iter::successors(self.at_least(least), |(quanta, _)| {
            self.at_least(quanta.checked_add(1)?)
        })
    }

    pub fn descending(&self) -> impl Iterator<Item = (u64, &BitSet<I>)> {
        let large = self.large.iter().rev();
        let small = self.small.iter().enumerate().rev();
        let small = small.filter(|(_, nodes)| !nodes.is_empty());
        let small = small.map(|(quanta, nodes)| (quanta as u64, nodes));
        large.map(|(quanta, nodes)| (*quanta, nodes)).chain(small)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nodes_are_found_by_their_quanta(
            changes in prop::collection::vec((0..9_000_u64, 0..70_usize, any::<bool>()), 0..100),
        ) {
            let (mut buckets, mut set) = (Buckets::<usize>::default(), BTreeSet::new());
            for (quanta, node, comes) in changes {
                // Few distinct values, so that buckets are shared.
                let quanta = quanta / 500 * 500;
                if comes {
                    buckets.insert(quanta, node);
                    set.insert((quanta, node));
                } else {
                    buckets.remove(quanta, node);
                    set.remove(&(quanta, node));
                }
            }
            for least in [0, 1, 500, 4_095, 4_096, 9_000] {
                let from = buckets.from(least);
                let from = from.flat_map(|(quanta, nodes)| {
                    nodes.iter().map(move |node| (quanta, node))
                });
                prop_assert!(from.eq(set.range((least, 0)..).copied()));
            }
            let numbers: BTreeSet<u64> = set.iter().map(|(quanta, _)| *quanta).collect();
            let descending = buckets.descending().map(|(quanta, _)| quanta);
            prop_assert!(descending.eq(numbers.into_iter().rev()));
        }
    }
}
