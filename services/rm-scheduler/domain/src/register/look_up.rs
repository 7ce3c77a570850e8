//! Names in the news, looked up in the snapshot and here.

use std::{collections::BTreeMap, hash::Hash};

use hayward_vocabulary::{AllocationId, WorkId};
use rustc_hash::FxHashMap;

use super::Register;
use crate::{
    beside::both,
    news::News,
    snapshot::{Allocation, Demand, Snapshot},
};

/// A name in the news.
pub(super) struct Entry<'s, K, V> {
    pub name: &'s K,
    /// None where it is gone.
    pub said: Option<&'s V>,
    /// The number it has here so far.
    pub at: Option<usize>,
}

pub(super) type OfWork<'s> = Entry<'s, WorkId, Demand>;
pub(super) type OfShare<'s> = Entry<'s, AllocationId, Allocation>;

impl<'s, K: Ord + Hash, V> Entry<'s, K, V> {
    fn of(name: &'s K, said: &'s BTreeMap<K, V>, numbers: &FxHashMap<K, usize>) -> Self {
        Self {
            name,
            said: said.get(name),
            at: numbers.get(name).copied(),
        }
    }
}

/// The work and the shares of some news, and some more work. Most of the time goes into waiting for
/// names in memory, so that is done side by side.
pub(super) fn look_up<'s>(
    register: &Register,
    snapshot: &'s Snapshot,
    (news, more): (&'s News, &'s [WorkId]),
) -> (Vec<OfWork<'s>>, Vec<OfShare<'s>>) {
    let work: Vec<&WorkId> = news.work.iter().chain(more).collect();
    // Half of all for each, as work and shares take equally long.
    let all = work.len() + news.allocations.len();
    let (here, beside) = work.split_at((all / 2).min(work.len()));
    let find = |names: &[&'s WorkId]| {
        let names = names.iter().copied();
        let found = names.map(|id| Entry::of(id, &snapshot.demand, &register.request_at));
        found.collect::<Vec<_>>()
    };
    let shares = || {
        let names = news.allocations.iter();
        let found = names.map(|id| Entry::of(id, &snapshot.allocations, &register.share_at));
        (find(beside), found.collect())
    };
    let (mut found, (rest, shares)) = both(all, || find(here), shares);
    found.extend(rest);
    (found, shares)
}
