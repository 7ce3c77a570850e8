//! What the next round has to know of this one (14.1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_vocabulary::{NodeName, WorkId};

use crate::{books::Books, names::fetch, register::Register, snapshot::Carried, turns::reserved};

/// With the numbers of who is needy; `was_needy` are those the last round found.
pub(super) fn carried(books: &Books, was_needy: &[usize]) -> (Carried, Vec<usize>) {
    let configured = books.snapshot.tunables.reserve_overage_bytes.is_some();
    let (needy, numbers) = needy(books, was_needy);
    let mut carried = Carried {
        needy,
        deficits: books.deficits.clone(),
        claims: claims(books),
        last_hit: lately_hit(books),
        ..Carried::default()
    };
    if books.settings.churn_rounds.is_some() {
        let given = books.receipts.iter().map(|receipt| &receipt.work);
        let hit = given.filter(|work| books.register.request(work).is_some());
        let round = books.snapshot.round;
        carried
            .last_hit
            .extend(hit.map(|work| (work.clone(), round)));
    }
    let may_end = !books.settings.replace_lost || !books.snapshot.carried.ended.is_empty();
    if !may_end && !configured {
        return (carried, numbers);
    }
    for at in books.requests.written() {
        if books.requests[at].ended {
            carried.ended.insert(books.id(at).clone());
        }
    }
    for at in reserved(books).filter(|_| configured) {
        let request = &books.requests[at];
        if request.upgraded {
            carried.upgrades.insert(books.id(at).clone(), request.order);
        }
    }
    (carried, numbers)
}

/// Where the same are needy as before, they are not listed anew; where most are, those that
/// came and went are said of what was carried over. `last` are the numbers this found last.
fn needy(books: &Books, last: &[usize]) -> (Arc<BTreeSet<WorkId>>, Vec<usize>) {
    let of_trees = books.outcomes.iter().map(|it| &it.needy);
    let mut now: Vec<usize> = Vec::with_capacity(of_trees.clone().map(Vec::len).sum());
    for needy in of_trees {
        now.extend(needy);
    }
    let mut before = books.was_needy.clone();
    // Mostly in order already.
    now.sort_unstable();
    now.dedup();
    before.sort_unstable();
    let carried = &books.snapshot.carried.needy;
    let (gone, come) = differences(&before, &now);
    if gone.is_empty() && come.is_empty() && carried.len() == before.len() {
        return (Arc::clone(carried), now);
    }
    let mut needy = BTreeSet::new();
    if gone.len() + come.len() < now.len() / 4 {
        fetch(carried.iter().map(WorkId::as_str));
        needy.clone_from(carried);
        for id in withdrawn(books.register, last) {
            needy.remove(id);
        }
    }
    // All that are known are still there, so as many are the same.
    if needy.len() == before.len() {
        for at in gone {
            needy.remove(books.id(at));
        }
        needy.extend(come.into_iter().map(|at| books.id(at).clone()));
    } else {
        let names = || now.iter().map(|at| books.id(*at));
        fetch(names().map(WorkId::as_str));
        needy = names().cloned().collect();
    }
    #[cfg(test)]
    assert!(
        needy
            .iter()
            .eq(now.iter().map(|at| books.id(*at)).collect::<BTreeSet<_>>())
    );
    (Arc::new(needy), now)
}

/// Those that are only in the one and only in the other, both in order.
fn differences(one: &[usize], other: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let (mut only_one, mut only_other) = (Vec::new(), Vec::new());
    let mut others = other.iter().copied().peekable();
    for at in one.iter().copied() {
        while let Some(before) = others.next_if(|other| *other < at) {
            only_other.push(before);
        }
        if others.next_if_eq(&at).is_none() {
            only_one.push(at);
        }
    }
    only_other.extend(others);
    (only_one, only_other)
}

/// Of work with these numbers, in order, the names of what has none any more.
fn withdrawn<'r>(register: &'r Register, numbers: &[usize]) -> impl Iterator<Item = &'r WorkId> {
    let gone = register.vacated.iter().zip(&register.withdrawn);
    let gone = gone.filter(|(at, _)| numbers.binary_search(at).is_ok());
    gone.map(|(_, id)| id)
        .filter(|id| register.request(id).is_none())
}

/// W-14: room that was made is not cleared twice.
fn claims(books: &Books) -> BTreeMap<WorkId, Vec<NodeName>> {
    let mut claims: BTreeMap<WorkId, Vec<NodeName>> = BTreeMap::new();
    let written = books.machines.written();
    let spoken = written.filter(|at| !books.machines[*at].spoken.is_empty());
    let mut spoken: Vec<usize> = spoken.collect();
    // Nodes of one piece of work by name.
    spoken.sort_unstable();
    for at in spoken {
        for meant in &books.machines[at].spoken {
            let nodes = claims.entry(books.id(meant.request).clone()).or_default();
            nodes.push(books.station(at).name.clone());
        }
    }
    claims
}

/// W-32: when each piece of work last gave something up before, as long as that matters.
fn lately_hit(books: &Books) -> BTreeMap<WorkId, u64> {
    let Some(rounds) = books.settings.churn_rounds else {
        return BTreeMap::new();
    };
    let round = books.snapshot.round;
    let hits = books.snapshot.carried.last_hit.iter();
    hits.filter(|(_, last)| round.saturating_sub(**last) < rounds)
        .map(|(work, last)| (work.clone(), *last))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_and_who_went_is_found_in_one_walk() {
        let found = differences(&[1, 3, 5, 9], &[0, 3, 4, 5, 10, 11]);
        assert_eq!(found, (vec![1, 9], vec![0, 4, 10, 11]));
        assert_eq!(differences(&[2], &[2]), (vec![], vec![]));
    }
}
