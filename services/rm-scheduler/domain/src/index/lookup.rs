//! The news with the numbers that its names have here.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, WorkId};

use super::{ByName, Hash, Register};
use crate::{
    incremental::{join::both, prefetch::fetch},
    input::{
        delta::News,
        snapshot::{Allocation, Demand, Snapshot},
    },
};

/// A name in the news.
pub(super) struct Entry<'s, K, V> {
    pub name: &'s K,
    pub hash: Hash,
    /// None where it is gone.
    pub said: Option<&'s V>,
    /// The number it has here so far.
    pub at: Option<usize>,
}

pub(super) type OfWork<'s> = Entry<'s, WorkId, Demand>;
pub(super) type OfShare<'s> = Entry<'s, AllocationId, Allocation>;

impl<'s, K: Eq + AsRef<str>, V> Entry<'s, K, V> {
    pub fn new(name: &'s K, said: Option<&'s V>) -> Self {
        Self {
            name,
            hash: Hash::of(name.as_ref()),
            said,
            at: None,
        }
    }

    fn find<'r>(&self, numbers: &ByName, name: impl Fn(usize) -> &'r K) -> Option<usize>
    where
        K: 'r,
    {
        numbers.find(self.hash, |at| name(at) == self.name)
    }
}

/// `name` says which name has a number.
fn entries<'s, 'r, K: Eq + AsRef<str> + 'r, V>(
    said: &'s BTreeMap<K, Option<V>>,
    numbers: &mut ByName,
    name: impl Fn(usize) -> &'r K,
) -> Vec<Entry<'s, K, V>> {
    let said: Vec<_> = said.iter().collect();
    fetch(said.iter().map(|(name, _)| name.as_ref()));
    let entries = said.into_iter().map(|(name, said)| {
        let it = Entry::new(name, said.as_ref());
        let at = numbers.guess(it.hash);
        Entry { at, ..it }
    });
    let mut entries: Vec<_> = entries.collect();
    fetch(entries.iter().filter_map(|it| Some(name(it.at?).as_ref())));
    for it in &mut entries {
        if it.at.is_some_and(|at| name(at) != it.name) {
            it.at = it.find(numbers, &name);
        }
        // What is gone has its number for the last time.
        if let Some(at) = it.at.filter(|_| it.said.is_none()) {
            numbers.remove(it.hash, at);
        }
    }
    entries
}

/// The work and the shares of some news, and some more work; those that are gone are not to be
/// found any more. Most of the time goes into waiting for names in memory, so that is done side by
/// side.
pub(super) fn look_up<'s>(
    register: &mut Register,
    snapshot: &'s Snapshot,
    (news, more): (&'s News, &'s [WorkId]),
) -> (Vec<OfWork<'s>>, Vec<OfShare<'s>>) {
    let (request_at, share_at) = (&mut register.request_at, &mut register.share_at);
    let (requests, shares) = (&register.requests, &register.shares);
    let work = || {
        let name = |at: usize| &requests[at].id;
        let mut work = entries(&news.work, request_at, name);
        for more in more {
            let it = Entry::new(more, snapshot.demand.get(more));
            let at = it.find(request_at, name);
            work.push(Entry { at, ..it });
        }
        work
    };
    let shares = || entries(&news.allocations, share_at, |at| &shares[at].id);
    both(news.work.len() + news.allocations.len(), work, shares)
}
