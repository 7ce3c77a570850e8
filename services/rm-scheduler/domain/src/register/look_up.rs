//! The news with the numbers that its names have here.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, WorkId};

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

fn entries<K, V>(
    said: &BTreeMap<K, Option<V>>,
    number: impl Fn(&K) -> Option<usize>,
) -> Vec<Entry<'_, K, V>> {
    let entries = said.iter().map(|(name, said)| Entry {
        name,
        said: said.as_ref(),
        at: number(name),
    });
    entries.collect()
}

/// The work and the shares of some news, and some more work. Most of the time goes into waiting for
/// names in memory, so that is done side by side.
pub(super) fn look_up<'s>(
    register: &Register,
    snapshot: &'s Snapshot,
    (news, more): (&'s News, &'s [WorkId]),
) -> (Vec<OfWork<'s>>, Vec<OfShare<'s>>) {
    let work = || {
        let mut work = entries(&news.work, |name| register.request(name));
        work.extend(more.iter().map(|name| Entry {
            name,
            said: snapshot.demand.get(name),
            at: register.request(name),
        }));
        work
    };
    let shares = || entries(&news.allocations, |name| register.share(name));
    both(news.work.len() + news.allocations.len(), work, shares)
}
