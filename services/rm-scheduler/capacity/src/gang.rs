//! Gangs, all or nothing (17.1): every part gets the processes without which the gang is of no use,
//! each level of queues, users and groups and the nodes agreeing, or none gets any. So two gangs
//! that each fit alone never wait for each other with a part of the room in hand.

pub(crate) mod whole;

use std::cmp::Reverse;

use hayward_rm_scheduler_domain::snapshot::queues::GangRoom;

use crate::{
    cycle::seat,
    round_state::{Books, Why},
};

/// All asks of the gang of this one; the first of them stands for it.
pub(crate) fn all<'b>(books: &'b Books, ask: usize) -> impl Iterator<Item = usize> + 'b {
    let name = move |at: usize| {
        let gang = books.asks[at].queued.gang.as_ref();
        gang.map(|gang| &gang.name)
    };
    let asks = books.apps[books.asks[ask].app].asks.iter().copied();
    asks.filter(move |at| name(*at).is_some() && name(*at) == name(ask))
}

/// Asks of the same gang that are neither served nor aside.
pub(crate) fn parts(books: &Books, ask: usize) -> Vec<usize> {
    let open = |at: &usize| books.asks[*at].why.is_none() && books.asks[*at].missing() > 0;
    all(books, ask).filter(open).collect()
}

/// Those that have less than the gang needs. Large ones go first: what is left between them can
/// still take the small ones.
pub(crate) fn lacking(books: &Books, ask: usize) -> Vec<usize> {
    let lacks = |at: &usize| books.asks[*at].gang_lacks() > 0;
    let mut parts: Vec<usize> = all(books, ask).filter(lacks).collect();
    parts.sort_by_key(|part| Reverse(bulk(books, *part)));
    parts
}

/// Where a process of a gang goes.
#[derive(Clone, Copy)]
enum Manner<'k> {
    /// Where room is kept for it, and the rest by the sort policy.
    Kept(&'k GangRoom),
    AsSorted,
    Tightly,
}

/// Places what the gang lacks, or nothing.
///
/// What was kept was found by packing, so it is tried as it was packed. Where the sort policy of
/// the nodes scatters so much that the rest does not fit, parts are put where they leave the least
/// behind.
pub(crate) fn place(books: &mut Books, ask: usize, kept: Option<&GangRoom>) -> Result<(), Why> {
    let mut parts = lacking(books, ask);
    parts.retain(|part| books.asks[*part].why.is_none());
    let app = books.asks[ask].app;
    let of = parts
        .iter()
        .map(|part| books.asks[*part].gang_lacks())
        .sum();
    let starts = !books.apps[app].running;
    let before = books.placed.len();
    let mut best = (0, Why::NoNode);
    let others = [Manner::AsSorted, Manner::Tightly];
    for manner in kept.map(Manner::Kept).into_iter().chain(others) {
        let failure = attempt(books, &parts, manner);
        let Some(why) = failure else {
            return Ok(());
        };
        let fit = (books.placed.len() - before) as u64;
        books.undo(before, starts);
        if fit >= best.0 {
            best = (fit, why);
        }
        if best.1 != Why::NoNode {
            break;
        }
    }
    let (fit, because) = best;
    let because = Some(Box::new(because));
    Err(Why::Gang { fit, of, because })
}

fn attempt(books: &mut Books, parts: &[usize], manner: Manner) -> Option<Why> {
    for part in parts {
        let mut own = match manner {
            Manner::Kept(kept) => places(books, *part, kept),
            Manner::AsSorted | Manner::Tightly => Vec::new(),
        };
        for _ in 0..books.asks[*part].gang_lacks() {
            let node = match (own.pop(), manner) {
                (_, Manner::Tightly) => books.may_hold(*part).and_then(|()| tightest(books, *part)),
                (Some(node), _) if is_free(books, *part, node) => {
                    books.may_hold(*part).map(|()| node)
                }
                _ => seat(books, *part),
            };
            match node {
                Ok(node) => books.place(*part, node),
                Err(why) => return Some(why),
            }
        }
    }
    None
}

/// Nodes that are kept for this part, one for each process.
fn places(books: &Books, part: usize, kept: &GangRoom) -> Vec<usize> {
    let mut places = Vec::new();
    for (name, works) in &kept.nodes {
        let count = works.get(books.asks[part].work).copied().unwrap_or(0);
        let count = count.min(books.asks[part].gang_lacks());
        let node = books.nodes.find(name).into_iter();
        places.extend(node.flat_map(|node| (0..count).map(move |_| node)));
    }
    places
}

/// One more of this part can be put there.
fn is_free(books: &Books, part: usize, node: usize) -> bool {
    let station = &books.nodes.stations[node];
    let open = station.node.is_schedulable() && !station.reserved;
    open && station.fits(books.vector(part)) && books.suits(part, node)
}

/// How much of an average node it takes, by its largest dimension.
fn bulk(books: &Books, part: usize) -> u64 {
    const PARTS: u128 = 1 << 20;
    let vector = books.vector(part);
    let shares = vector
        .iter()
        .zip(&books.whole)
        .filter(|(_, whole)| **whole > 0);
    let shares = shares.map(|(ask, whole)| u128::from(*ask) * PARTS / u128::from(*whole));
    u64::try_from(shares.max().unwrap_or(0)).unwrap_or(u64::MAX)
}

/// The node where the least is left of what there is least of.
fn tightest(books: &Books, part: usize) -> Result<usize, Why> {
    let vector = books.vector(part);
    let left = |at: &usize| {
        let station = &books.nodes.stations[*at];
        let asked = vector.iter().enumerate().filter(|(_, ask)| **ask > 0);
        let left = asked.map(|(dim, ask)| {
            (station.capacity[dim] - station.used[dim] - ask).saturating_mul(1_000) / ask.max(&1)
        });
        (left.min().unwrap_or(0), *at)
    };
    let all = 0..books.nodes.stations.len();
    let free = all.filter(|at| is_free(books, part, *at));
    free.min_by_key(left).ok_or(Why::NoNode)
}
