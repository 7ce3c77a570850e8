//! What would help where nothing that passes by itself does: room that is held for good, nodes
//! that are closed or not listed, and less to ask for.

use hayward_vocabulary::NodeName;

use crate::{
    entitlement::whole_nodes::accepts, input::snapshot::Policy, output::plan::Unblock, state::Books,
};

/// The node on which the least is held for good by others, where that is what keeps it out: who
/// may take back what preemptable work has is not kept out by that.
pub(super) fn held_for_good(books: &Books, at: usize) -> Option<Unblock> {
    let order = books.requests[at].order;
    let lacking = |machine: usize| {
        let held = for_good(books, machine);
        if is_whole(books, at) {
            held
        } else {
            (order + held).saturating_sub(books.machines[machine].order)
        }
    };
    let open = suitable(books, at).filter(|machine| {
        books.machines[*machine].is_schedulable() && books.is_permitted(at, *machine)
    });
    let (quanta, machine) = open.map(|machine| (lacking(machine), machine)).min()?;
    let node = books.station(machine).name.clone();
    (quanta > 0).then_some(Unblock::FreeRoom { node, quanta })
}

/// What would help where no open node would do: one that is closed, one that it does not list, or
/// one more.
pub(super) fn unblock(books: &Books, at: usize) -> Unblock {
    let mut closed = suitable(books, at).filter(|machine| {
        let closed = !books.machines[*machine].is_schedulable();
        closed && books.is_permitted(at, *machine) && could_hold(books, at, *machine)
    });
    let node = closed.next();
    let node = node.map(|machine| books.station(machine).name.clone());
    let open = node.map(|node| Unblock::OpenNode { node });
    open.unwrap_or_else(|| listed_or_added(books, at))
}

/// For work whose list is in its way.
pub(super) fn listed_or_added(books: &Books, at: usize) -> Unblock {
    let quanta = books.requests[at].order;
    let unlisted = unlisted(books, at).map(|node| Unblock::ListNode { node });
    unlisted.unwrap_or(Unblock::AddNode { quanta })
}

/// The open node beside its list that has room for it, or comes nearest to having it.
fn unlisted(books: &Books, at: usize) -> Option<NodeName> {
    let order = books.requests[at].order;
    let lacking = |machine: &usize| {
        let coming = books.coming_order_for(*machine, Some(at));
        order.saturating_sub(coming)
    };
    let unlisted = suitable(books, at).filter(|machine| {
        let open = books.machines[*machine].is_schedulable();
        open && !books.admits(at, *machine) && could_hold(books, at, *machine)
    });
    let found = unlisted.min_by_key(lacking)?;
    Some(books.station(found).name.clone())
}

/// The most quanta a process could ask for, fewer than it does and at most so many, and could be
/// given on an open node.
pub(super) fn smaller(books: &Books, at: usize, most: u64) -> Option<u64> {
    let order = books.requests[at].order;
    let whole = is_whole(books, at);
    let open = (0..books.machines.len()).filter(|machine| {
        books.machines[*machine].is_schedulable() && books.is_permitted(at, *machine)
    });
    let rooms = open.filter_map(|machine| {
        let (all, held) = (books.machines[machine].order, for_good(books, machine));
        if whole {
            (held == 0).then_some(all)
        } else {
            Some(all.saturating_sub(held))
        }
    });
    rooms
        .filter(|room| (1..order).contains(room) && *room <= most)
        .max()
}

/// No node of its pool has an acceptable size, whatever its state.
pub(super) fn has_no_host_of_size(books: &Books, at: usize) -> bool {
    let home = |machine: &usize| books.machines[*machine].pool == books.home(at);
    let mut at_home = (0..books.machines.len()).filter(home);
    is_whole(books, at) && !at_home.any(|machine| accepts(books, at, machine))
}

/// Quanta of the smallest node that it could be given: a whole node may have more than was asked
/// for.
pub(super) fn least(books: &Books, at: usize) -> u64 {
    let orders = suitable(books, at).map(|machine| books.machines[machine].order);
    let least = if is_whole(books, at) {
        orders.min()
    } else {
        None
    };
    least.unwrap_or(books.requests[at].order)
}

/// Nodes that it could stand on if they were empty, open and listed.
fn suitable(books: &Books, at: usize) -> impl Iterator<Item = usize> {
    let order = books.requests[at].order;
    (0..books.machines.len()).filter(move |machine| {
        let place = &books.machines[*machine];
        let large = if is_whole(books, at) {
            place.order == order || accepts(books, at, *machine)
        } else {
            place.order >= order
        };
        let capacity = &books.station(*machine).node.capacity;
        large
            && books.asked(at).fits(capacity)
            && place.pool.is_some_and(|pool| books.may_use(at, pool))
            && !books.avoids(at, *machine)
    })
}

/// Not held for good: it is free there, or could be freed.
fn could_hold(books: &Books, at: usize, machine: usize) -> bool {
    let (all, held) = (books.machines[machine].order, for_good(books, machine));
    if is_whole(books, at) {
        held == 0
    } else {
        all.saturating_sub(held) >= books.requests[at].order
    }
}

fn is_whole(books: &Books, at: usize) -> bool {
    books.policy(at) == Some(Policy::Reserve)
}

/// Quanta of a node that nobody is going to give back.
fn for_good(books: &Books, machine: usize) -> u64 {
    let held = books.station(machine).held.iter();
    let stays = held.filter(|held| books.held[*held].fixed && !books.leaving[*held]);
    stays.map(|held| books.held[held].order).sum()
}
