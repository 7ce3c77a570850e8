//! Nodes by a number of quanta, so that those with at least so many are found without looking at
//! others. Hardly any number is large: what is small stands at its place.

use std::collections::BTreeMap;

use super::bit_set::Bits;

/// So many quanta and more are looked up.
const LARGE: u64 = 1 << 12;

#[derive(Default)]
pub(crate) struct Shelf {
    /// By quanta.
    small: Vec<Bits>,
    /// Where any stand among those.
    filled: Bits,
    large: BTreeMap<u64, Bits>,
}

fn small(quanta: u64) -> Option<usize> {
    let place = usize::try_from(quanta).ok();
    place.filter(|_| quanta < LARGE)
}

impl Shelf {
    pub fn insert(&mut self, quanta: u64, node: usize) {
        let Some(place) = small(quanta) else {
            self.large.entry(quanta).or_default().insert(node);
            return;
        };
        if self.small.len() <= place {
            self.small.resize_with(place + 1, Bits::default);
        }
        let nodes = &mut self.small[place];
        if nodes.is_empty() {
            self.filled.insert(place);
        }
        nodes.insert(node);
    }

    pub fn remove(&mut self, quanta: u64, node: usize) {
        let place = usize::try_from(quanta).ok();
        if let Some((place, nodes)) = place.and_then(|at| Some((at, self.small.get_mut(at)?))) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.filled.remove(place);
            }
        } else if let Some(nodes) = self.large.get_mut(&quanta) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.large.remove(&quanta);
            }
        }
    }

    /// The least number that is no less than this and that any have, and who has it.
    pub fn at_least(&self, quanta: u64) -> Option<(u64, &Bits)> {
        let place = small(quanta).and_then(|place| self.filled.at_least(place));
        if let Some(place) = place {
            return Some((place as u64, &self.small[place]));
        }
        let (quanta, nodes) = self.large.range(quanta..).next()?;
        Some((*quanta, nodes))
    }

    /// From so many on, ascending.
    pub fn from(&self, least: u64) -> impl Iterator<Item = (u64, &Bits)> {
        std::iter::successors(self.at_least(least), |(quanta, _)| {
            self.at_least(quanta.checked_add(1)?)
        })
    }

    pub fn descending(&self) -> impl Iterator<Item = (u64, &Bits)> {
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
        fn all_are_found_by_their_quanta(
            changes in prop::collection::vec((0..9_000_u64, 0..70_usize, any::<bool>()), 0..100),
        ) {
            let (mut shelf, mut set) = (Shelf::default(), BTreeSet::new());
            for (quanta, node, comes) in changes {
                // Some are met again.
                let quanta = quanta / 500 * 500;
                if comes {
                    shelf.insert(quanta, node);
                    set.insert((quanta, node));
                } else {
                    shelf.remove(quanta, node);
                    set.remove(&(quanta, node));
                }
            }
            for least in [0, 1, 500, 4_095, 4_096, 9_000] {
                let from = shelf.from(least);
                let from = from.flat_map(|(quanta, nodes)| {
                    nodes.iter().map(move |node| (quanta, node))
                });
                prop_assert!(from.eq(set.range((least, 0)..).copied()));
            }
            let numbers: BTreeSet<u64> = set.iter().map(|(quanta, _)| *quanta).collect();
            let descending = shelf.descending().map(|(quanta, _)| quanta);
            prop_assert!(descending.eq(numbers.into_iter().rev()));
        }
    }
}
