//! What each request could hold if everything preemptable gave way: the full size vector against
//! every node it may use. Orders alone would count for work that no node can take (W-1, W-12), and
//! what is counted for it would be kept from others for ever.

use std::collections::BTreeMap;

use hayward_vocabulary::Size;

use crate::{
    books::{Books, Deferral},
    plan::Reason,
    room::Room,
    snapshot::Policy,
};

/// Measures every request against the room that is not held for good.
pub(crate) fn measure(books: &mut Books) {
    if books.settings.rest_on_closed {
        rest(books);
    }
    take_what_stays(books);
    if !books.settings.count_what_fits {
        return;
    }
    // Nodes alike are counted once: (pool, room) to number of nodes.
    let mut kinds: BTreeMap<(usize, &Room), u64> = BTreeMap::new();
    for machine in books
        .machines
        .iter()
        .filter(|machine| machine.is_schedulable())
    {
        if let Some(pool) = machine.pool {
            *kinds.entry((pool, &machine.room)).or_default() += 1;
        }
    }
    let mut known: BTreeMap<(usize, bool, u64, &Size), u64> = BTreeMap::new();
    let mut found = vec![0; books.requests.len()];
    for (at, request) in books.requests.iter().enumerate() {
        let Some(home) = books.home(at) else { continue };
        if !request.demand.machines.is_empty() {
            found[at] = among_listed(books, at);
            continue;
        }
        let below = books.policy(at) == Some(Policy::FairShare);
        let key = (home, below, request.order, &request.size);
        found[at] = *known.entry(key).or_insert_with(|| {
            let usable = kinds.iter().filter(|((pool, _), _)| {
                *pool == home || (below && books.forest.is_within(*pool, home))
            });
            usable
                .map(|((_, room), nodes)| {
                    room.fitting(request.order, &request.size)
                        .saturating_mul(*nodes)
                })
                .fold(0, u64::saturating_add)
        });
    }
    drop(known);
    drop(kinds);
    for (request, reach) in books.requests.iter_mut().zip(found) {
        request.reach = reach;
    }
}

/// what nobody may take back is not there for anybody else. Room that fixed shares leave
/// can be counted on where that is looked at so closely.
fn take_what_stays(books: &mut Books) {
    let early = books.settings.count_what_fits;
    for share in &books.held {
        if let Some(machine) = share.machine
            && share.allocation.fixed
            && !(share.leaving && early)
        {
            let it = share.allocation;
            let room = &mut books.machines[machine].room;
            room.take(it.order, &it.size, &it.gpus);
        }
    }
}

fn among_listed(books: &Books, request: usize) -> u64 {
    let work = &books.requests[request];
    work.demand
        .machines
        .iter()
        .filter_map(|name| books.machine_index.get(name))
        .filter(|at| books.machines[**at].is_schedulable() && books.is_permitted(request, **at))
        .map(|at| books.machines[*at].room.fitting(work.order, &work.size))
        .fold(0, u64::saturating_add)
}

/// Shares that stay on nodes without new work: they are in no table, so counts are made for
/// the rest. Otherwise marking a node would drive out what a mark must leave alone.
fn rest(books: &mut Books) {
    for share in &books.held {
        let (Some(machine), Some(request)) = (share.machine, share.request) else {
            continue;
        };
        if !share.leaving && !books.machines[machine].is_schedulable() {
            books.requests[request].resting += 1;
        }
    }
}

/// Why no node can take even one process of it. Every node of its pools is looked at, whatever its
/// state: too large is for ever, blocked is not [C-8].
pub(crate) fn nowhere(books: &Books, at: usize) -> Deferral {
    let order = books.requests[at].order;
    let (reason, detail) = if !books.settings.count_what_fits {
        by_order_alone(books, at)
    } else if let Some(never) = never(books, at) {
        never
    } else {
        let blocked = |machine: &usize| books.machines[*machine].node.block.is_some();
        let mut large_enough = large_enough(books, at).peekable();
        if large_enough.peek().is_some() && large_enough.all(|machine| blocked(&machine)) {
            let detail = "every node that could hold it is blocked";
            (Reason::AllBlocked, detail)
        } else {
            let detail = "no node has that much room that is free or could be freed";
            (Reason::InsufficientResources, detail)
        }
    };
    Deferral {
        reason,
        refused: false,
        detail: format!("one process needs {order} quanta: {detail}"),
    }
}

/// machine lists are no matter of counting.
fn by_order_alone(books: &Books, at: usize) -> (Reason, &'static str) {
    let may_use = |pool: usize| books.may_use(at, pool);
    let order = books.requests[at].order;
    let mut machines = books.machines.iter();
    if machines.any(|m| m.order >= order && m.pool.is_some_and(may_use)) {
        let detail = "no node has that much room that is free or could be freed";
        (Reason::InsufficientResources, detail)
    } else {
        let detail = "no node it may use is large enough";
        (Reason::NoHostLargeEnough, detail)
    }
}

/// What no passing of time changes: no node it may use is listed, or none is large enough.
pub(crate) fn never(books: &Books, at: usize) -> Option<(Reason, &'static str)> {
    let request = &books.requests[at];
    let listed = !request.demand.machines.is_empty();
    if listed && permitted(books, at).next().is_none() {
        let detail = "none of the listed machines is in its pool";
        return Some((Reason::NoListedMachine, detail));
    }
    if large_enough(books, at).next().is_none() {
        let detail = "no node it may use is large enough";
        return Some((Reason::NoHostLargeEnough, detail));
    }
    None
}

fn permitted<'b>(books: &'b Books, at: usize) -> impl Iterator<Item = usize> + 'b {
    (0..books.machines.len()).filter(move |machine| books.is_permitted(at, *machine))
}

fn large_enough<'b>(books: &'b Books, at: usize) -> impl Iterator<Item = usize> + 'b {
    let request = &books.requests[at];
    permitted(books, at).filter(move |machine| {
        let place = &books.machines[*machine];
        place.order >= request.order && request.size.fits(&place.node.capacity)
    })
}
