//! Where a whole gang could be, once all that may leave has left: nodes that are short of the least
//! now come first, so that what is kept idle is little and not for long.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    future_nodes::{Room, Yard},
    gang::whole::lacks,
    resource_vec::{Vector, add, take},
    round_state::Books,
};

/// By node: processes of each part.
pub(crate) type Found = BTreeMap<usize, BTreeMap<usize, u64>>;

type Plots = BTreeMap<usize, Plot>;

/// A node as it is packed.
#[derive(Clone)]
struct Plot {
    room: Room,
    /// Held, without what leaves, and packed.
    soon: Vector,
}

/// Room for all that these parts lack, or none; on nodes that are kept for others only where they
/// count as well.
pub(super) fn pack(
    books: &Books,
    yard: &Yard,
    (parts, others_too): (&[usize], bool),
) -> Option<Found> {
    let first = *parts.first()?;
    let total = lacks(books, parts);
    // Room on nodes is of no use to who its queue or user holds back.
    books.may_hold_more(first, &total).ok()?;
    let app = books.asks[first].app;
    let stations = books.nodes.stations.iter().enumerate();
    let open = stations.filter(|(_, it)| it.node.is_schedulable() && (others_too || !it.reserved));
    let anywhere = parts.iter().any(|part| books.asks[*part].anywhere);
    let of_use = |node: usize| anywhere || parts.iter().any(|part| books.suits(*part, node));
    let open = open.filter(|(node, _)| of_use(*node));
    let plots: Plots = open
        .map(|(node, station)| {
            let mut soon = station.used.clone();
            take(&mut soon, &station.going);
            let room = Room::at_last(books, yard, (node, app));
            (node, Plot { room, soon })
        })
        .collect();
    let manners = [Manner::LeastShort, Manner::Tightly, Manner::Loosely];
    let mut all = manners
        .iter()
        .map(|manner| packed(books, plots.clone(), (parts, *manner)));
    all.find_map(|found| found)
}

/// The same where nobody leaves but who is told to already.
pub(super) fn pack_soon(books: &Books, yard: &Yard, parts: &[usize]) -> Option<Found> {
    let stations = books.nodes.stations.iter().enumerate();
    let open = stations.filter(|(_, it)| it.node.is_schedulable() && !it.reserved);
    let rooms = open.map(|(node, _)| (node, Room::soon(books, yard, node)));
    pack_into(books, rooms, parts)
}

/// The same in these rooms as they are.
pub(crate) fn pack_into(
    books: &Books,
    rooms: impl Iterator<Item = (usize, Room)>,
    parts: &[usize],
) -> Option<Found> {
    let soon = books.dims.zero();
    let plots = rooms.map(|(node, room)| {
        (
            node,
            Plot {
                room,
                soon: soon.clone(),
            },
        )
    });
    let plots: Plots = plots.collect();
    let tightly = packed(books, plots.clone(), (parts, Manner::Tightly));
    tightly.or_else(|| packed(books, plots, (parts, Manner::Loosely)))
}

/// Which node is next. None of them finds every packing there is, and they miss different ones.
#[derive(Clone, Copy)]
enum Manner {
    LeastShort,
    /// Where it leaves the least behind.
    Tightly,
    Loosely,
}

fn packed(books: &Books, mut plots: Plots, (parts, manner): (&[usize], Manner)) -> Option<Found> {
    let mut seats: Vec<(usize, usize)> = Vec::new();
    let mut found = Found::new();
    for part in parts {
        let vector = books.vector(*part);
        let key = |node: usize, plot: &Plot| {
            let left = match manner {
                Manner::LeastShort => 0,
                Manner::Tightly => plot.room.left(vector),
                Manner::Loosely => u64::MAX - plot.room.left(vector),
            };
            let short = short(books, node, (&plot.soon, vector));
            (left, short, books.nodes.rank(node))
        };
        let could = plots
            .iter()
            .filter(|(node, plot)| plot.room.fits(vector) && books.suits(*part, **node));
        let mut line: BTreeSet<_> = could.map(|(node, plot)| key(*node, plot)).collect();
        for _ in 0..books.asks[*part].gang_lacks() {
            let node = loop {
                let (.., (_, node)) = line.pop_first()?;
                let fits = plots[&node].room.fits(vector);
                if fits && books.is_apart_beside(*part, node, &seats) {
                    break node;
                }
            };
            let plot = plots.get_mut(&node)?;
            plot.room.place(vector);
            add(&mut plot.soon, vector);
            line.insert(key(node, plot));
            seats.extend(
                books.asks[*part]
                    .demand
                    .apart
                    .is_some()
                    .then_some((*part, node)),
            );
            *found.entry(node).or_default().entry(*part).or_default() += 1;
        }
    }
    Some(found)
}

/// What is short for one more, each type as a part of what is asked.
pub(super) fn short(books: &Books, node: usize, (soon, vector): (&Vector, &Vector)) -> u128 {
    const SCALE: u128 = 1 << 20;
    let capacity = &books.nodes.stations[node].capacity;
    let asked = vector.iter().enumerate().filter(|(_, ask)| **ask > 0);
    let short = asked.map(|(dim, ask)| {
        let over = soon[dim].saturating_add(*ask).saturating_sub(capacity[dim]);
        u128::from(over) * SCALE / u128::from(*ask)
    });
    short.sum()
}
