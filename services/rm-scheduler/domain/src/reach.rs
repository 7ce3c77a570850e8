//! What each request could hold if everything preemptable gave way: the full size vector against
//! every node it may use. Orders alone would count for work that no node can take (W-1, W-12), and
//! what is counted for it would be kept from others for ever.

use std::collections::BTreeMap;

use hayward_vocabulary::Size;

use crate::{
    books::{Books, Deferral},
    plan::Reason,
    snapshot::Policy,
};

/// How many of `size` fit into `room` at the same time.
pub(crate) fn times(size: &Size, room: &Size) -> u64 {
    let ratio = |size: u64, room: u64| room.checked_div(size).unwrap_or(u64::MAX);
    let extras = size
        .extras
        .iter()
        .map(|(name, amount)| ratio(*amount, room.extras.get(name).copied().unwrap_or(0)));
    [
        ratio(size.memory_bytes, room.memory_bytes),
        ratio(size.cpu_milli, room.cpu_milli),
        ratio(size.gpu_milli, room.gpu_milli),
    ]
    .into_iter()
    .chain(extras)
    .min()
    .unwrap_or(u64::MAX)
}

/// How many processes of this order and size fit into this many quanta and this room.
pub(crate) fn fitting(order: u64, size: &Size, quanta: u64, room: &Size) -> u64 {
    (quanta / order.max(1)).min(times(size, room))
}

/// Takes what may not be taken back out of each node's room, then measures every request.
pub(crate) fn measure(books: &mut Books) {
    for share in &books.held {
        let Some(machine) = share.machine else {
            continue;
        };
        if share.allocation.fixed && !share.leaving {
            let machine = &mut books.machines[machine];
            machine.room_order = machine.room_order.saturating_sub(share.allocation.order);
            machine.room.take(&share.allocation.size);
        }
    }
    // Nodes alike are counted once: (pool, quanta, vector) to number of nodes.
    let mut kinds: BTreeMap<(usize, u64, &Size), u64> = BTreeMap::new();
    for machine in books
        .machines
        .iter()
        .filter(|machine| machine.is_schedulable())
    {
        if let Some(pool) = machine.pool {
            *kinds
                .entry((pool, machine.room_order, &machine.room))
                .or_default() += 1;
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
            let usable = kinds.iter().filter(|((pool, ..), _)| {
                *pool == home || (below && books.forest.is_within(*pool, home))
            });
            usable
                .map(|((_, quanta, room), nodes)| {
                    fitting(request.order, &request.size, *quanta, room).saturating_mul(*nodes)
                })
                .fold(0, u64::saturating_add)
        });
    }
    drop(known);
    drop(kinds);
    for (request, reach) in books.requests.iter_mut().zip(found) {
        request.reach = reach;
    }
    rest(books);
}

fn among_listed(books: &Books, request: usize) -> u64 {
    let work = &books.requests[request];
    work.demand
        .machines
        .iter()
        .filter_map(|name| books.machine_index.get(name))
        .filter(|at| books.machines[**at].is_schedulable() && books.is_permitted(request, **at))
        .map(|at| {
            let machine = &books.machines[*at];
            fitting(work.order, &work.size, machine.room_order, &machine.room)
        })
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
    let request = &books.requests[at];
    let mut permitted = (0..books.machines.len())
        .filter(|machine| books.is_permitted(at, *machine))
        .peekable();
    let listed = !request.demand.machines.is_empty();
    let deferral = |reason, detail: &str| {
        let detail = format!("one process needs {} quanta: {detail}", request.order);
        Deferral {
            reason,
            refused: false,
            detail,
        }
    };
    if listed && permitted.peek().is_none() {
        return deferral(
            Reason::NoListedMachine,
            "none of the listed machines is in its pool",
        );
    }
    let mut large_enough = permitted
        .map(|machine| &books.machines[machine])
        .filter(|m| m.order >= request.order && request.size.fits(&m.node.capacity))
        .peekable();
    if large_enough.peek().is_none() {
        return deferral(
            Reason::NoHostLargeEnough,
            "no node it may use is large enough",
        );
    }
    if large_enough.all(|machine| machine.node.block.is_some()) {
        return deferral(
            Reason::AllBlocked,
            "every node that could hold it is blocked",
        );
    }
    let detail = "no node has that much room that is free or could be freed";
    deferral(Reason::InsufficientResources, detail)
}
