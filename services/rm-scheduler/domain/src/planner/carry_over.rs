//! What the next round has to know of this one (14.1).

use std::{collections::BTreeMap, sync::Arc};

use hayward_vocabulary::{NodeName, WorkId};

use crate::{
    input::snapshot::{Carried, Deficits},
    placement::serve_order::reserved,
    state::{Books, Needy, Older},
};

/// With who is needy; `older` is who was before. What is owed has been noted, and nobody in this
/// round asks for it any more.
pub(super) fn carried(books: &Books, older: Option<Older>, deficits: Deficits) -> (Carried, Needy) {
    let configured = books.snapshot.tunables.reserve_overage_bytes.is_some();
    let needy = books.needy(older);
    let mut carried = Carried {
        needy: Arc::clone(&needy.names),
        deficits,
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
        return (carried, needy);
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
    (carried, needy)
}

/// W-14: room that was made is not cleared twice.
fn claims(books: &Books) -> BTreeMap<WorkId, Vec<NodeName>> {
    let mut claims: BTreeMap<WorkId, Vec<NodeName>> = BTreeMap::new();
    for at in books.spoken_on.iter().copied() {
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
