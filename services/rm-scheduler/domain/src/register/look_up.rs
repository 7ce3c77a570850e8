//! The news with the numbers that its names have here.

use std::{collections::BTreeMap, hash::Hash};

use hayward_vocabulary::{AllocationId, WorkId};
use rustc_hash::FxHashMap;

use super::Register;
use crate::{
    beside::both,
    names::fetch,
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

fn entries<'s, K: Eq + Hash + AsRef<str>, V>(
    said: &'s BTreeMap<K, Option<V>>,
    numbers: &mut FxHashMap<K, usize>,
) -> Vec<Entry<'s, K, V>> {
    let entries = said.iter().map(|(name, said)| Entry {
        name,
        said: said.as_ref(),
        at: None,
    });
    let mut entries: Vec<_> = entries.collect();
    fetch(entries.iter().map(|it| it.name.as_ref()));
    // Letting go of a name holds up all that is looked up after it, so that is done at the end.
    let mut names = Vec::with_capacity(entries.len());
    for it in &mut entries {
        // What is gone has its number for the last time.
        it.at = match it.said {
            Some(_) => numbers.get(it.name).copied(),
            None => numbers.remove_entry(it.name).map(|(name, at)| {
                names.push(name);
                at
            }),
        };
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
    let work = || {
        let mut work = entries(&news.work, request_at);
        work.extend(more.iter().map(|name| Entry {
            name,
            said: snapshot.demand.get(name),
            at: request_at.get(name).copied(),
        }));
        work
    };
    let shares = || entries(&news.allocations, share_at);
    both(news.work.len() + news.allocations.len(), work, shares)
}
